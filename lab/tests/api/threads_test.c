/* threads_test.c: eight threads make, print, read and question plans, machines and timelines at
 * once. Each gets what one thread alone would get, and each has its own last message. */
#include <pthread.h>

#include "check.h"
#include "ordo/lab/sim.h"
#include "ordo/status.h"

enum { THREADS = 8, ROUNDS = 40, LINE = 2048 };

/* What one thread gets for its index. */
typedef struct result {
    char line[LINE];
    ordo_plan_info info;
    ordo_timeline_info timeline;
    ordo_order best;
    double clock_ghz;
    uint64_t pairs;
} result;

typedef struct thread {
    pthread_t id;
    int index;
    int failures; /* CHECK counts in one variable for all threads: not from here */
    const ordo_plan *shared;
    const char *shared_line;
    const result *expected;
} thread;

static pthread_barrier_t start;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "  line %d, thread %d: not true: %s\n", __LINE__, index, #condition);  \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static ordo_problem problem_of(int index)
{
    return (ordo_problem) { .size = sizeof(ordo_problem),
                            .dtype = ORDO_BF16,
                            .batch = 1 + index,
                            .heads = 4,
                            .q_len = 300 + 50 * index,
                            .head_dim = 64,
                            .mask = (ordo_mask)(index % 3),
                            .dropout = { .p = index % 2 ? 0.25 : 0 } };
}

static ordo_schedule schedule_of(int index)
{
    return (ordo_schedule) { .size = sizeof(ordo_schedule),
                             .mask = ORDO_MASK_CAUSAL,
                             .key_tiles = 4 + index,
                             .heads = 6,
                             .workers = 4 + index,
                             .order = (ordo_order)(1 + index % ORDO_ORDER_COUNT),
                             .compute = 3,
                             .reduce = 1,
                             .record = true };
}

/* Everything that allocates, reads or fails, once. Returns the number of surprises. */
static int work(int index, result *out)
{
    static const char *const names[] = { "h100", "h200", "h800", "host" };
    int failures = 0;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL, *again = NULL;
    ordo_timeline *timeline = NULL;
    const ordo_problem problem = problem_of(index);
    const ordo_schedule schedule = schedule_of(index);
    memset(out, 0, sizeof *out);
    EXPECT(ordo_machine_create(&machine, names[index % 4]) == ORDO_OK);
    EXPECT(ordo_machine_get(machine, "clock_ghz", &out->clock_ghz) == ORDO_OK);
    EXPECT(ordo_plan_create(&plan, &problem, machine, NULL) == ORDO_OK);
    EXPECT(ordo_plan_print(plan, out->line, sizeof out->line, NULL) == ORDO_OK);
    EXPECT(ordo_plan_parse(&again, out->line) == ORDO_OK);
    out->info = (ordo_plan_info)ORDO_PLAN_INFO_INIT;
    EXPECT(ordo_plan_query(again, &out->info) == ORDO_OK);
    EXPECT(ordo_plan_check(again, &out->pairs) == ORDO_OK);
    EXPECT(ordo_timeline_create(&timeline, &schedule) == ORDO_OK);
    EXPECT(ordo_timeline_query(timeline, &out->timeline) == ORDO_OK);
    EXPECT(ordo_timeline_step_count(timeline) == out->timeline.tasks);
    EXPECT(ordo_schedule_auto(&schedule, &out->best) == ORDO_OK);
    ordo_timeline_destroy(timeline);
    ordo_plan_destroy(plan);
    ordo_plan_destroy(again);
    ordo_machine_destroy(machine);
    return failures;
}

static int compare(int index, const result *got, const result *expected)
{
    int failures = 0;
    EXPECT(strcmp(got->line, expected->line) == 0);
    EXPECT(strcmp(got->info.numeric_key, expected->info.numeric_key) == 0);
    EXPECT(got->info.dropout_mode == expected->info.dropout_mode);
    EXPECT(got->timeline.makespan == expected->timeline.makespan);
    EXPECT(got->timeline.stall == expected->timeline.stall);
    EXPECT(got->best == expected->best);
    EXPECT(got->clock_ghz == expected->clock_ghz);
    EXPECT(got->pairs == expected->pairs);
    return failures;
}

/* A failure that names this thread, in one of four parts of the library. */
static ordo_status fail(int index, char says[64])
{
    ordo_plan *plan = NULL;
    ordo_timeline *timeline = NULL;
    ordo_machine *machine = NULL;
    ordo_problem problem = problem_of(index);
    ordo_schedule schedule = schedule_of(index);
    char name[32];
    switch (index % 4) {
    case 0:
        problem.batch = -100 - index;
        snprintf(says, 64, "batch %d", -100 - index);
        return ordo_plan_create(&plan, &problem, NULL, NULL);
    case 1:
        schedule.workers = -100 - index;
        snprintf(says, 64, "workers %d", -100 - index);
        return ordo_timeline_create(&timeline, &schedule);
    case 2: snprintf(says, 64, "thread%d", index); return ordo_plan_parse(&plan, says);
    default:
        snprintf(name, sizeof name, "thread%d", index);
        snprintf(says, 64, "thread%d", index);
        return ordo_machine_create(&machine, name);
    }
}

/* The one plan that all threads share. */
static int question(int index, const ordo_plan *plan, const char *line)
{
    int failures = 0;
    char text[LINE];
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_problem problem = ORDO_PROBLEM_INIT;
    size_t needed = 0;
    EXPECT(ordo_plan_print(plan, text, sizeof text, &needed) == ORDO_OK);
    EXPECT(strcmp(text, line) == 0 && needed == strlen(line) + 1);
    EXPECT(ordo_plan_query(plan, &info) == ORDO_OK && strstr(line, info.numeric_key) != NULL);
    EXPECT(ordo_plan_problem(plan, &problem) == ORDO_OK && problem.batch == 1 + THREADS);
    EXPECT(ordo_plan_workspace(plan) == info.backward_workspace_bytes);
    EXPECT(ordo_plan_check(plan, NULL) == ORDO_OK);
    return failures;
}

static void *body(void *argument)
{
    thread *self = argument;
    const int index = self->index;
    int failures = 0;
    static _Thread_local result got;
    pthread_barrier_wait(&start);
    EXPECT(ordo_last_error()[0] == 0); /* a new thread has failed at nothing */
    for (int round = 0; round < ROUNDS; round++) {
        char says[64], said[512];
        EXPECT(fail(index, says) != ORDO_OK);
        EXPECT(strstr(ordo_last_error(), says) != NULL);
        snprintf(said, sizeof said, "%s", ordo_last_error());
        failures += work(index, &got);
        failures += compare(index, &got, self->expected);
        failures += question(index, self->shared, self->shared_line);
        EXPECT(strcmp(ordo_last_error(), said) == 0); /* whatever the others did meanwhile */
    }
    self->failures = failures;
    return NULL;
}

TEST(eight_threads_at_once)
{
    static result expected[THREADS];
    static thread threads[THREADS];
    char line[LINE];
    ordo_plan *shared = NULL;
    const ordo_problem problem = problem_of(THREADS);
    CHECK(ordo_plan_create(&shared, &problem, NULL, NULL) == ORDO_OK);
    CHECK(ordo_plan_print(shared, line, sizeof line, NULL) == ORDO_OK);
    for (int x = 0; x < THREADS; x++)
        CHECK_INT(work(x, &expected[x]), 0);
    CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (int x = 0; x < THREADS; x++) {
        threads[x] = (thread) {
            .index = x, .shared = shared, .shared_line = line, .expected = &expected[x]
        };
        CHECK(pthread_create(&threads[x].id, NULL, body, &threads[x]) == 0);
    }
    for (int x = 0; x < THREADS; x++) {
        CHECK(pthread_join(threads[x].id, NULL) == 0);
        CHECK_INT(threads[x].failures, 0);
    }
    pthread_barrier_destroy(&start);
    ordo_plan_destroy(shared);
}

CHECK_MAIN()
