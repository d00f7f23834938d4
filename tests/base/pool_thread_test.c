/* pool_thread_test.c: the pool of threads under several callers at once, and across fork(). */
#include "attention_case.h"
#include "base/gap.h"
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The thread sanitizer lets a child of a threaded process make no threads. */
#if defined(__SANITIZE_THREAD__)
enum { CHILD_THREADS = 1 };
#else
enum { CHILD_THREADS = 5 };
#endif

/* ---- tasks ---- */

typedef struct tally {
    atomic_int runs[ORDO_THREADS_MAX];
    atomic_int inner;   /* runs of nested tasks */
    atomic_int workers; /* as the last one was told */
    size_t bytes;
} tally;

static void count(void *context, int worker, int workers, void *scratch)
{
    tally *t = context;
    atomic_fetch_add(&t->runs[worker], 1);
    atomic_store(&t->workers, workers);
    if ((uintptr_t)scratch % 64 != 0)
        atomic_fetch_add(&t->runs[worker], 1000);
    memset(scratch, worker, t->bytes);
}

/* Each worker once, whatever the number was before. */
TEST(every_worker_once)
{
    static const int threads[] = { 1, 4, 2, 9, 3, 1, 16, 5 };
    for (int x = 0; x < 8; x++) {
        static tally t;
        memset(&t, 0, sizeof t);
        t.bytes = 100 + 5000 * (size_t)(x % 3);
        CHECK(ordo_pool_run(threads[x], t.bytes, count, &t) == ORDO_OK);
        for (int w = 0; w < 20; w++)
            CHECK_INT(t.runs[w], w < threads[x]);
        CHECK_INT(t.workers, threads[x]);
    }
    CHECK(ordo_pool_threads(0) >= 1);
    CHECK_INT(ordo_pool_threads(7), 7);
    CHECK_INT(ordo_pool_threads(1 << 20), ORDO_THREADS_MAX);
}

static void inner(void *context, int worker, int workers, void *scratch)
{
    tally *t = context;
    (void)scratch;
    atomic_fetch_add(&t->inner, 1 + 100 * worker + 1000 * (workers - 1));
}

static void outer(void *context, int worker, int workers, void *scratch)
{
    (void)worker;
    (void)workers;
    (void)scratch;
    CHECK(ordo_pool_run(4, 64, inner, context) == ORDO_OK);
}

/* A task that runs a task gets one worker for it, and no deadlock. */
TEST(a_task_inside_a_task)
{
    static tally t;
    CHECK(ordo_pool_run(3, 64, outer, &t) == ORDO_OK);
    CHECK_INT(t.inner, 3);
}

/* ---- attention ---- */

enum { CALLERS = 5, ROUNDS = 12 };

typedef struct caller {
    pthread_t thread;
    int index;
    attention_case c;
    ordo_plan *plan;
    case_results expected;
    int different;
} caller;

static void open_caller(caller *a, int index)
{
    *a = (caller) { .index = index, .c = { .problem = ORDO_PROBLEM_INIT } };
    ordo_problem *p = &a->c.problem;
    p->dtype = (ordo_dtype)(index % 3);
    p->batch = 2;
    p->heads = 2;
    p->kv_heads = 1;
    p->q_len = p->kv_len = 60 + 10 * index;
    p->head_dim = p->v_head_dim = 16;
    p->mask = (ordo_mask)(index % 2);
    p->dropout.p = index == 2 ? 0.1 : 0;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backward_tile = options.forward_tile = (ordo_tile) { 16, 16 };
    a->plan = case_plan(&a->c, &options);
    case_open(&a->c, (uint64_t)index);
    CHECK(case_run(&a->c, a->plan, 1) == ORDO_OK);
    a->expected = case_keep(&a->c);
}

static void close_caller(caller *a)
{
    case_drop(&a->expected);
    ordo_plan_destroy(a->plan);
    case_close(&a->c);
}

/* Whether a run on `threads` has the bits of the first one; no checks: threads and children. */
static bool same_again(caller *a, int threads)
{
    if (case_run(&a->c, a->plan, threads) != ORDO_OK)
        return false;
    const case_results r = case_outputs(&a->c);
    for (int x = 0; x < CASE_OUTPUTS; x++)
        if (memcmp(r.data[x], a->expected.data[x], r.count[x] * r.width[x]) != 0)
            return false;
    return true;
}

static void *repeat(void *argument)
{
    caller *a = argument;
    for (int round = 0; round < ROUNDS; round++)
        a->different += !same_again(a, 1 + (a->index + round) % 6);
    return NULL;
}

TEST(callers_at_once)
{
    static caller callers[CALLERS];
    for (int x = 0; x < CALLERS; x++)
        open_caller(&callers[x], x);
    for (int x = 0; x < CALLERS; x++)
        CHECK(pthread_create(&callers[x].thread, NULL, repeat, &callers[x]) == 0);
    for (int x = 0; x < CALLERS; x++) {
        CHECK(pthread_join(callers[x].thread, NULL) == 0);
        CHECK_INT(callers[x].different, 0);
        close_caller(&callers[x]);
    }
}

/* ---- fork ---- */

/* A child that runs attention on `threads`, and whose child does: 0 if both have the right bits.
 * An alarm ends one that waits for ever. */
static int child(caller *a, int threads, int deeper)
{
    fflush(stdout);
    const pid_t id = fork();
    if (id == 0) {
        alarm(600);
        int status = same_again(a, threads < CHILD_THREADS ? threads : CHILD_THREADS) ? 0 : 3;
        if (status == 0 && deeper > 0)
            status = child(a, threads + 1, deeper - 1);
        _exit(status);
    }
    int status = -1;
    if (id < 0 || waitpid(id, &status, 0) != id || !WIFEXITED(status))
        return 99;
    return WEXITSTATUS(status);
}

TEST(children_make_threads_of_their_own)
{
    caller a;
    open_caller(&a, 1);
    CHECK(same_again(&a, 4));
    for (int threads = 1; threads <= 5; threads += 2) {
        CHECK_INT(child(&a, threads, 1), 0);
        CHECK(same_again(&a, threads));
    }
    close_caller(&a);
}

static atomic_bool busy;

/* Scratch that always grows, so that a fork can fall into its allocation. */
static void *keep_busy(void *argument)
{
    caller *a = argument;
    static tally t;
    for (size_t round = 0; atomic_load(&busy); round++) {
        a->different += !same_again(a, 3);
        t.bytes = 64 * round;
        (void)ordo_pool_run(2 + (int)round % 3, t.bytes, count, &t);
    }
    return NULL;
}

/* Not under the address sanitizer, whose allocator has locks that a fork may leave taken in the
 * child, where every task allocates memory of its own. */
TEST(fork_while_another_thread_computes)
{
#ifdef ORDO_ASAN
    SKIP("the sanitizer's allocator does not survive a fork beside other threads");
#endif
    static caller a, b;
    open_caller(&a, 3);
    open_caller(&b, 2);
    atomic_store(&busy, true);
    CHECK(pthread_create(&b.thread, NULL, keep_busy, &b) == 0);
    for (int x = 0; x < 30; x++)
        CHECK_INT(child(&a, 1 + x % 4, 0), 0);
    atomic_store(&busy, false);
    CHECK(pthread_join(b.thread, NULL) == 0);
    CHECK_INT(b.different, 0);
    close_caller(&a);
    close_caller(&b);
}

/* ---- pthread_cancel ---- */

static atomic_bool entered, cancelled;

/* The caller finishes first, and waits for the other worker in the pool. */
static void outlast_the_caller(void *context, int worker, int workers, void *scratch)
{
    (void)context;
    (void)workers;
    (void)scratch;
    if (worker == 0)
        atomic_store(&entered, true);
    while (worker > 0 && !atomic_load(&cancelled))
        sched_yield();
}

static void *be_cancelled(void *argument)
{
    atomic_int *finished = argument;
    if (ordo_pool_run(2, 64, outlast_the_caller, NULL) == ORDO_OK)
        atomic_store(finished, 1);
    pthread_testcancel();
    atomic_store(finished, 2);
    return NULL;
}

/* A thread that is cancelled inside a task ends after it, with no lock taken: a fork waits for the
 * pool's. An alarm ends the program if that lasts for ever. */
TEST(a_cancelled_caller_leaves_the_pool)
{
    static atomic_int finished;
    static caller a;
    pthread_t thread;
    void *result = NULL;
    open_caller(&a, 1);
    alarm(240);
    CHECK(pthread_create(&thread, NULL, be_cancelled, &finished) == 0);
    while (!atomic_load(&entered))
        sched_yield();
    nanosleep(&(struct timespec) { .tv_nsec = 50000000 }, NULL); /* until it sleeps */
    CHECK(pthread_cancel(thread) == 0);
    nanosleep(&(struct timespec) { .tv_nsec = 50000000 }, NULL); /* until that is noticed */
    atomic_store(&cancelled, true);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK_INT(finished, 1);
    if (atomic_load(&finished) == 1) { /* else the pool is locked, and all below hangs */
        CHECK_INT(child(&a, 1, 0), 0);
        CHECK(same_again(&a, 4));
    }
    alarm(0);
    close_caller(&a);
}

CHECK_MAIN()
