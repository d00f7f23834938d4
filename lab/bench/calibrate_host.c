/* calibrate_host: this machine as a machine file, its rates measured.
 *
 *   build/bench/calibrate_host [NAME] > mine.machine
 *   build/bin/ordo model block --machine ./mine.machine --precision f32 --seq 2k --embed 1k
 *
 * Clock, multiply-adds, reads of each cache level and of memory, latencies, keep bits, and what
 * attention reaches of the multiply-adds: the best of a few repetitions, since other work on the
 * machine only ever takes away; some seconds in all. The rest of the file is what the library's
 * probe says. */
#define _GNU_SOURCE
#include "attention/bench_peak.c"
#include "base/cores.h"
#include "base/machine.h"
#include "ordo/ordo.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 7, LINES = 32, LINE_BYTES = 400, VECTORS = 8 };

static char lines[LINES][LINE_BYTES];
static int line_count;
static char today[16];
static int cores;
static double clock_ghz;

static void stop(const char *what)
{
    fprintf(stderr, "calibrate_host: %s\n", what);
    exit(1);
}

static void result(const char *key, double value, const char *unit, const char *how)
{
    if (line_count == LINES)
        stop("too many results");
    snprintf(lines[line_count++], LINE_BYTES, "%s = %.4g%s%s | measured: %s | %s", key, value,
             unit[0] ? " " : "", unit, how, today);
}

/* Least seconds of `work` over REPEATS, the first of all not counted; of one thread by its own
 * clock, which stands while others run. */
static double seconds_by(clockid_t clock, void (*work)(void *), void *argument)
{
    double least = 1e30;
    work(argument);
    for (int i = 0; i < REPEATS; i++) {
        struct timespec begin, end;
        clock_gettime(clock, &begin);
        work(argument);
        clock_gettime(clock, &end);
        const double seconds =
            (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        least = seconds < least ? seconds : least;
    }
    return least;
}

static double seconds_of(void (*work)(void *), void *argument)
{
    return seconds_by(CLOCK_MONOTONIC, work, argument);
}

static double thread_seconds_of(void (*work)(void *), void *argument)
{
    return seconds_by(CLOCK_THREAD_CPUTIME_ID, work, argument);
}

/* Operations a second of one core that does nothing but fused multiply-adds on registers. */
static void run_peak(void *argument)
{
    const loop *l = argument;
    for (int i = 0; i < 50; i++)
        l->run(LOOPS);
}

static double core_peak(void)
{
    loop l = choose();
    return 50 * LOOPS * l.flops / thread_seconds_of(run_peak, &l);
}

/* ---- clock: additions that wait for each other, one a cycle ---- */

enum { ADDITIONS = 10000000 };

static inline uint64_t add_four(uint64_t x)
{
    x += 3;
    __asm__ volatile("" : "+r"(x)); /* or the compiler adds 12 at once */
    x += 3;
    __asm__ volatile("" : "+r"(x));
    x += 3;
    __asm__ volatile("" : "+r"(x));
    x += 3;
    __asm__ volatile("" : "+r"(x));
    return x;
}

static void add_in_turn(void *argument)
{
    uint64_t x = 1;
    for (int i = 0; i < ADDITIONS / 16; i++)
        x = add_four(add_four(add_four(add_four(x))));
    *(volatile uint64_t *)argument = x;
}

static void measure_clock(void)
{
    uint64_t sink;
    clock_ghz = ADDITIONS / thread_seconds_of(add_in_turn, &sink) * 1e-9;
    result("clock_ghz", clock_ghz, "GHz", "dependent additions of one core, one a cycle");
}

static void measure_peak(void)
{
    const double alone = core_peak();
    char how[200];
    snprintf(how, sizeof how, "%.120s on one core, %.1f GFLOP/s", cli_peak_name(), alone * 1e-9);
    const double clk = alone / (clock_ghz * 1e9);
    result("mma_flop_per_clk_f32", clk, "flop/clk", how);
    result("mma_flop_per_clk_bf16", clk, "flop/clk", "as f32: widened first");
    result("mma_flop_per_clk_f16", clk, "flop/clk", "as f32: widened first");
}

/* ---- memory ---- */

typedef uint64_t vector __attribute__((vector_size(16)));

typedef struct region {
    const vector *data;
    size_t bytes, passes;
    uint64_t sink;
} region;

static void read_region(void *argument)
{
    region *r = argument;
    vector a = { 0 }, b = a, c = a, d = a, e = a, f = a, g = a, h = a; /* a register each */
    for (size_t pass = 0; pass < r->passes; pass++)
        for (const vector *x = r->data; x + VECTORS <= r->data + r->bytes / sizeof *x;
             x += VECTORS) {
            a ^= x[0], b ^= x[1], c ^= x[2], d ^= x[3];
            e ^= x[4], f ^= x[5], g ^= x[6], h ^= x[7];
        }
    a ^= b ^ c ^ d ^ e ^ f ^ g ^ h;
    r->sink = a[0] ^ a[1];
}

/* Bytes a second of one core over `bytes` of memory that stay where they are. */
static double read_rate(const void *data, size_t bytes)
{
    region r = { data, bytes, ((size_t)256 << 20) / bytes + 1, 0 };
    return (double)bytes * (double)r.passes / thread_seconds_of(read_region, &r);
}

typedef struct crew {
    char *memory;
    size_t bytes;
    bool copies;
} crew;

typedef struct member {
    const crew *crew;
    int index;
    region region;
} member;

static void *work_of(void *argument)
{
    member *m = argument;
    const size_t share = m->crew->bytes / (size_t)cores;
    char *from = m->crew->memory + share * (size_t)m->index;
    if (m->crew->copies) {
        memcpy(from, from + share / 2, share / 2);
    } else {
        m->region = (region) { (const vector *)(const void *)from, share, 1, 0 };
        read_region(&m->region);
    }
    return NULL;
}

static void run_crew(void *argument)
{
    pthread_t threads[256];
    member members[256];
    const int count = cores < 256 ? cores : 256;
    for (int i = 0; i < count; i++) {
        members[i] = (member) { .crew = argument, .index = i };
        if (pthread_create(&threads[i], NULL, work_of, &members[i]) != 0)
            stop("no thread");
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* Steps through lines of memory in random order: nothing can be fetched ahead. */
static double latency_ns(char *memory, size_t bytes)
{
    enum { LINE = 64, STEPS = 1 << 21 };
    const size_t count = bytes / LINE;
    uint64_t state = 1;
    size_t *order = malloc(count * sizeof *order);
    if (!order)
        stop("out of memory");
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count - 1; i > 0; i--) { /* one cycle through all of them (Sattolo) */
        state = state * 6364136223846793005u + 1442695040888963407u;
        const size_t k = (size_t)((state >> 33) % i), other = order[i];
        order[i] = order[k];
        order[k] = other;
    }
    for (size_t i = 0; i < count; i++)
        *(void **)(void *)(memory + order[i] * LINE) = memory + order[(i + 1) % count] * LINE;
    free(order);
    void **at = (void **)(void *)memory;
    struct timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int i = 0; i < STEPS; i++)
        at = *at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    if (at == NULL)
        stop("lost on the way");
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
           STEPS;
}

static void measure_memory(const ordo_machine *probed)
{
    const size_t large = (size_t)512 << 20;
    char *memory = aligned_alloc(4096, large);
    double l1 = 32768, l2 = 1 << 20, l3 = 0;
    if (!memory)
        stop("no 512 MiB of memory");
    memset(memory, 1, large);
    (void)ordo_machine_get(probed, "l1_bytes", &l1);
    (void)ordo_machine_get(probed, "l2_bytes", &l2);
    (void)ordo_machine_get(probed, "l3_bytes", &l3);
    const double hz = clock_ghz * 1e9;
    result("l1_read_bytes_per_clk", read_rate(memory, (size_t)l1 / 2) / hz, "B/clk",
           "16-byte loads over half of L1");
    result("l2_read_bytes_per_clk", read_rate(memory, (size_t)l2 / 2) / hz, "B/clk",
           "16-byte loads over half of L2");
    if (l3 > 4 * l2)
        result("l3_read_bytes_per_clk", read_rate(memory, (size_t)(l3 / 4)) / hz, "B/clk",
               "16-byte loads over a quarter of L3, one core");
    crew reads = { memory, large, false }, copies = { memory, large, true };
    result("dram_read_bytes_per_s", (double)large / seconds_of(run_crew, &reads), "B/s",
           "16-byte loads of 512 MiB by all cores");
    result("dram_bytes_per_s", (double)large / seconds_of(run_crew, &copies), "B/s",
           "memcpy within 512 MiB by all cores, bytes read plus written");
    result("dram_latency_ns", latency_ns(memory, large), "ns", "a chain of loads through 512 MiB");
    free(memory);
}

/* ---- a flag from core to core ---- */

static int flag;

static void *answer(void *argument)
{
    const int trips = *(int *)argument;
    for (int i = 0; i < trips; i++) {
        while (__atomic_load_n(&flag, __ATOMIC_ACQUIRE) != 2 * i + 1)
            continue;
        __atomic_store_n(&flag, 2 * i + 2, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void bounce(void *argument)
{
    int trips = *(int *)argument;
    pthread_t other;
    __atomic_store_n(&flag, 0, __ATOMIC_RELEASE);
    if (pthread_create(&other, NULL, answer, &trips) != 0)
        stop("no thread");
    for (int i = 0; i < trips; i++) {
        __atomic_store_n(&flag, 2 * i + 1, __ATOMIC_RELEASE);
        while (__atomic_load_n(&flag, __ATOMIC_ACQUIRE) != 2 * i + 2)
            continue;
    }
    pthread_join(other, NULL);
}

static void measure_flag(void)
{
    int trips = 200;
    double seconds = 1e30;
    if (cores < 2)
        return;
    /* Many short tries: one in which both threads run undisturbed is enough. */
    for (int i = 0; i < 100; i++) {
        const double here = seconds_of(bounce, &trips);
        seconds = here < seconds ? here : seconds;
    }
    result("flag_latency_clk", seconds / (2 * trips) * clock_ghz * 1e9, "clk",
           "a cache line from core to core, one way of a round trip");
}

/* ---- what ordo's own kernels reach ---- */

typedef struct subject {
    ordo_problem problem;
    ordo_plan *plan;
    ordo_call call;
    bool backward;
} subject;

static float *values(size_t count, uint64_t seed)
{
    float *data = malloc(count * sizeof *data);
    if (!data)
        stop("out of memory");
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
    return data;
}

static void run_pass(void *argument)
{
    subject *s = argument;
    const ordo_status status = s->backward ? ordo_attention_backward(s->plan, &s->call)
                                           : ordo_attention_forward(s->plan, &s->call);
    if (status != ORDO_OK)
        stop(ordo_last_error());
}

/* Shares of the multiply-add peak; both passes, 8 heads of 1024 rows. */
static void measure_attention(int64_t dim, double share[2])
{
    enum { HEADS = 8, ROWS = 1024 };
    const size_t count = (size_t)HEADS * ROWS * (size_t)dim;
    subject s = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
    s.problem.batch = 1;
    s.problem.heads = HEADS;
    s.problem.q_len = ROWS;
    s.problem.head_dim = dim;
    if (ordo_plan_create(&s.plan, &s.problem, NULL, NULL) != ORDO_OK)
        stop(ordo_last_error());
    void *owned[] = { values(count, 1),
                      values(count, 2),
                      values(count, 3),
                      values(count, 4),
                      values(count, 5),
                      values(count, 6),
                      values(count, 7),
                      values(count, 8),
                      values((size_t)HEADS * ROWS, 9),
                      aligned_alloc(256, (ordo_plan_workspace(s.plan) + 511) / 256 * 256) };
    s.call.q.data = owned[0];
    s.call.k.data = owned[1];
    s.call.v.data = owned[2];
    s.call.o.data = owned[3];
    s.call.dout.data = owned[4];
    s.call.dq.data = owned[5];
    s.call.dk.data = owned[6];
    s.call.dv.data = owned[7];
    s.call.lse = owned[8];
    s.call.workspace = owned[9];
    s.call.workspace_bytes = ordo_plan_workspace(s.plan);
    s.call.threads = cores;
    const double pairs = (double)HEADS * ROWS * ROWS;
    for (int pass = 0; pass < 2; pass++) {
        s.backward = pass == 1;
        /* Time of all cores together: other work that shares them does not count. */
        const double seconds = seconds_by(CLOCK_PROCESS_CPUTIME_ID, run_pass, &s);
        share[pass] = pairs * (double)dim * (pass ? 10 : 4) / seconds / core_peak();
    }
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    ordo_plan_destroy(s.plan);
}

static void measure_passes(void)
{
    double narrow[2], wide[2];
    char how[160];
    measure_attention(64, narrow);
    measure_attention(128, wide);
    for (int pass = 0; pass < 2; pass++) {
        snprintf(how, sizeof how,
                 "f32, 8 heads of 1024 rows, full mask, head size 64 %.3f, 128 %.3f; mean",
                 narrow[pass], wide[pass]);
        result(pass ? "cpu_backward_efficiency" : "cpu_forward_efficiency",
               (narrow[pass] + wide[pass]) / 2, "", how);
    }
    result("mma_efficiency", (narrow[1] + wide[1]) / 2, "", "the backward pass, as above");
}

static uint32_t words[1 << 16];

static void fill_words(void *argument)
{
    const ordo_problem *p = argument;
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    call.seed = 1;
    call.offset = 1;
    call.threads = 1;
    for (int i = 0; i < 8; i++)
        if (ordo_dropout_fill(p, &call, 0, 1024, words, sizeof words) != ORDO_OK)
            stop(ordo_last_error());
}

static void measure_keep_bits(void)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = p.heads = 1;
    p.q_len = 2048; /* with the columns: 1024 blocks of 16 x 128 */
    p.kv_len = 1024;
    p.head_dim = 64;
    p.dropout.p = 0.1;
    const double elements = 8 * 1024.0 * 2048;
    result("keep_bit_clk", thread_seconds_of(fill_words, &p) * clock_ghz * 1e9 / elements, "clk",
           "dropout bits of one core, 8 bits, 7 rounds");
}

/* ---- the file ---- */

static size_t key_length(const char *line)
{
    const size_t length = strcspn(line, " =\n");
    return line[0] == '#' || line[length] == '\n' || line[length] == '\0' ? 0 : length;
}

/* The probe's lines, with what was measured in the place of what it said; then the rest. */
static void print_file(char *probe, const char *name)
{
    bool used[LINES] = { false };
    for (char *line = strtok(probe, "\n"); line; line = strtok(NULL, "\n")) {
        const size_t length = key_length(line);
        int found = -1;
        for (int i = 0; i < line_count && length > 0; i++)
            if (key_length(lines[i]) == length && memcmp(lines[i], line, length) == 0)
                found = i;
        if (found >= 0)
            used[found] = true;
        if (length == 4 && memcmp(line, "name", 4) == 0)
            printf("name = %s\n", name);
        else
            puts(found >= 0 ? lines[found] : line);
    }
    for (int i = 0; i < line_count; i++)
        if (!used[i])
            puts(lines[i]);
}

int main(int argc, char **argv)
{
    char probe[8192];
    ordo_machine *machine = NULL;
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        printf(
            "usage: calibrate_host [NAME]\n\nMeasure this machine and print its machine file.\n");
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    const time_t now = time(NULL);
    struct tm date;
    if (gmtime_r(&now, &date))
        strftime(today, sizeof today, "%Y-%m-%d", &date);
    if (ordo_machine_probe(probe, sizeof probe, "") >= sizeof probe ||
        ordo_machine_create(&machine, "host") != ORDO_OK)
        stop(ordo_last_error());
    cores = ordo_cores("", NULL);
    measure_clock();
    measure_peak();
    measure_memory(machine);
    measure_flag();
    measure_passes();
    measure_keep_bits();
    print_file(probe, argc == 2 ? argv[1] : "host");
    ordo_machine_destroy(machine);
    return 0;
}
