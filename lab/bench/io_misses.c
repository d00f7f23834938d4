/* io_misses.c: cache misses that the I/O laboratory predicts, and those of the same loops run.
 *
 * An algorithm that stages its own words in a pool, run on the processor at hand, touches memory as
 * the packed cache model says it does. So its misses can be counted outside: by the processor's own
 * counter, of L1, where the system lets us have it; otherwise, or with --cachegrind, by
 * cachegrind with the size, ways and lines of the model. What set-up costs is then measured by a
 * run that stops before the algorithm, and taken off.
 *
 *   build/bench/io_misses [--n N] [--cachegrind] */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#endif

#include "io/words.h"
#include "io/world.h"
#include "ordo/machine.h"

enum { WORD = 8 };
#define BUDGET 0.6 /* share of the cache that tiles fill: sets and lines cost the rest */

/* The cache: for cachegrind, or the L1 that the counter is of. */
static struct {
    int bytes, ways, line;
} l1 = { 32768, 8, 64 };

static int counter = -1; /* file of the processor's; -1: none */

static ordo_io_problem problem_of(ordo_io_pass pass, int64_t n, int64_t d)
{
    ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
    p.pass = pass;
    p.q_len = n;
    p.head_dim = d;
    p.cache_words = l1.bytes / WORD;
    p.strip = l1.line / WORD;
    return p;
}

/* ---- the processor's counter ---- */

static int open_counter(void)
{
#ifdef __linux__
    struct perf_event_attr event = { .type = PERF_TYPE_HW_CACHE, .size = sizeof event };
    event.config = PERF_COUNT_HW_CACHE_L1D | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                   PERF_COUNT_HW_CACHE_RESULT_MISS << 16;
    event.disabled = 1;
    event.exclude_kernel = 1;
    event.exclude_hv = 1;
    return (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
#else
    return -1;
#endif
}

static void start_counter(void)
{
#ifdef __linux__
    if (counter >= 0) {
        ioctl(counter, PERF_EVENT_IOC_RESET, 0);
        ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
    }
#endif
}

/* Misses since then; -1 if it does not say. */
static int64_t stop_counter(void)
{
    int64_t misses = -1;
#ifdef __linux__
    if (counter < 0 || ioctl(counter, PERF_EVENT_IOC_DISABLE, 0) != 0 ||
        read(counter, &misses, sizeof misses) != sizeof misses)
        misses = -1;
#endif
    return misses;
}

/* Some systems open a counter that never counts: walking eight times L1 must miss. */
static bool counter_counts(void)
{
    enum { WALK = 1 << 19 };
    static volatile char memory[WALK];
    start_counter();
    for (int i = 0; i < WALK; i += 64)
        (void)memory[i];
    return stop_counter() > WALK / 64 / 8;
}

/* The L1 of this machine, as far as it is known. */
static void use_own_cache(void)
{
    ordo_machine *host;
    double value;
    if (ordo_machine_create(&host, "host") != ORDO_OK)
        return;
    if (ordo_machine_get(host, "l1_bytes", &value) == ORDO_OK)
        l1.bytes = (int)value;
    if (ordo_machine_get(host, "l1_ways", &value) == ORDO_OK)
        l1.ways = (int)value;
    if (ordo_machine_get(host, "line_bytes", &value) == ORDO_OK)
        l1.line = (int)value;
    ordo_machine_destroy(host);
}

/* ---- runs ---- */

/* What is watched: the algorithm on whatever is in memory, or all but the algorithm. Misses of the
 * first go to `misses`, if there is a counter. */
static int watched(bool run, ordo_io_pass pass, ordo_io_algorithm algorithm, int64_t n, int64_t d,
                   int64_t *misses)
{
    const ordo_io_problem p = problem_of(pass, n, d);
    ordo_io_shape shape, room;
    ordo_io_tiles tiles;
    ordo_io_world world;
    if (ordo_io_shape_of(&p, &shape) != ORDO_OK)
        return 2;
    room = shape;
    room.cache = (int64_t)(BUDGET * (double)shape.cache);
    if (!ordo_io_best_tiles(&room, algorithm, &tiles))
        return 3;
    ordo_status status = ordo_io_world_create(&world, &p, &shape, algorithm, &tiles, shape.cache);
    start_counter();
    if (status == ORDO_OK && run)
        status = ordo_io_world_run(&world);
    *misses = stop_counter();
    ordo_io_world_destroy(&world);
    return status == ORDO_OK ? 0 : 4;
}

/* Misses of the first level of a run under cachegrind; -1 if it cannot be had. */
static int64_t count_misses(const char *self, const char *what, ordo_io_pass pass,
                            ordo_io_algorithm algorithm, int64_t n, int64_t d)
{
    char command[1024], line[512];
    int64_t misses = -1;
    snprintf(command, sizeof command,
             "valgrind --tool=cachegrind --cache-sim=yes --D1=%d,%d,%d --LL=8388608,16,64 "
             "--cachegrind-out-file=/dev/null '%s' %s %d %d %" PRId64 " %" PRId64 " 2>&1",
             l1.bytes, l1.ways, l1.line, self, what, (int)pass, (int)algorithm, n, d);
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *at = strstr(line, "D1  misses:");
        if (!at)
            continue;
        misses = 0;
        for (at += strlen("D1  misses:"); *at && *at != '('; at++)
            if (*at >= '0' && *at <= '9')
                misses = 10 * misses + (*at - '0');
    }
    return pipe && pclose(pipe) == 0 ? misses : -1;
}

/* Misses of an algorithm, by the one means or the other; -1 if neither can be had. */
static int64_t measured(const char *self, ordo_io_pass pass, ordo_io_algorithm algorithm, int64_t n,
                        int64_t d)
{
    if (counter >= 0) {
        int64_t misses = -1;
        return watched(true, pass, algorithm, n, d, &misses) == 0 ? misses : -1;
    }
    const int64_t all = count_misses(self, "run", pass, algorithm, n, d);
    const int64_t before = count_misses(self, "setup", pass, algorithm, n, d);
    return all < 0 || before < 0 ? -1 : all - before;
}

static void compare(const char *self, ordo_io_pass pass, ordo_io_algorithm algorithm, int64_t n,
                    int64_t d)
{
    const ordo_io_problem p = problem_of(pass, n, d);
    ordo_io_cache cache = ORDO_IO_CACHE_INIT;
    ordo_io_report r;
    cache.replacement = ORDO_IO_ASSOC;
    cache.line = l1.line / WORD;
    cache.ways = l1.ways;
    cache.budget = BUDGET;
    cache.packed = true;
    printf("%-9s %-7s %5" PRId64 " %6.2f", ordo_io_pass_name(pass),
           ordo_io_algorithm_name(algorithm), d, (double)p.cache_words / (double)(d * d));
    if (ordo_io_cache_run(&p, algorithm, NULL, &cache, &r, NULL) != ORDO_OK) {
        printf("  %s\n", ordo_last_error());
        return;
    }
    const int64_t predicted = r.loads / cache.line;
    const int64_t misses = measured(self, pass, algorithm, n, d);
    printf(" %12" PRId64, predicted);
    if (misses < 0)
        puts("   not available: no counter, no valgrind");
    else
        printf(" %12" PRId64 " %8.3f\n", misses, (double)misses / (double)predicted);
    fflush(stdout);
}

/* A head size whose square is the words of the cache over `ratio`, in sixteens. */
static int64_t head_size(double ratio)
{
    return 16 * llround(sqrt((double)l1.bytes / WORD / ratio) / 16);
}

int main(int argc, char **argv)
{
    int64_t n = 96, misses;
    bool simulate = false;
    if (argc == 6) /* started under valgrind */
        return watched(strcmp(argv[1], "run") == 0, (ordo_io_pass)strtol(argv[2], NULL, 10),
                       (ordo_io_algorithm)strtol(argv[3], NULL, 10), strtol(argv[4], NULL, 10),
                       strtol(argv[5], NULL, 10), &misses);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--n") == 0 && i + 1 < argc)
            n = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--cachegrind") == 0)
            simulate = true;
    counter = simulate ? -1 : open_counter();
    if (counter >= 0 && !counter_counts()) {
        close(counter);
        counter = -1;
    }
    if (counter >= 0)
        use_own_cache();
    printf("misses of a cache of %d bytes, %d ways, lines of %d bytes; n = %" PRId64
           ", fp64, strips of a line\n%-9s %-7s %5s %6s %12s %12s %8s\n",
           l1.bytes, l1.ways, l1.line, n, "pass", "", "d", "M/d^2", "predicted",
           counter >= 0 ? "counter" : "cachegrind", "ratio");
    for (int wide = 0; wide < 2; wide++) {
        const int64_t d = head_size(wide ? 1.0 / 3 : 1.78);
        compare(argv[0], ORDO_IO_FORWARD, ORDO_IO_FLASH, n, d);
        compare(argv[0], ORDO_IO_FORWARD, ORDO_IO_FUSED, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_FLASH, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_APART, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_PHASE, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_FUSED, n, d);
    }
    return 0;
}
