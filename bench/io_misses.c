/* io_misses.c: cache misses that the I/O laboratory predicts, beside those of the same loops run.
 *
 * An algorithm that stages its own words in a pool, run on the processor at hand, touches memory as
 * the packed cache model says it does. So its misses can be counted outside: by cachegrind with the
 * same size, ways and lines. (Hardware counters would count another cache.) What set-up costs is
 * measured by a run that stops before the algorithm, and taken off.
 *
 *   bench/io_misses [--n N] */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/words.h"
#include "io/world.h"

enum { BYTES = 32768, WAYS = 8, LINE = 64, WORD = 8, STRIP = LINE / WORD };
#define BUDGET 0.6 /* of the cache, filled by tiles: sets and lines cost the rest */

static ordo_io_problem problem_of(ordo_io_pass pass, int64_t n, int64_t d)
{
    ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
    p.pass = pass;
    p.q_len = n;
    p.head_dim = d;
    p.cache_words = BYTES / WORD;
    p.strip = STRIP;
    return p;
}

/* What valgrind watches: the algorithm on whatever is in memory, or all but the algorithm. */
static int watched(bool run, ordo_io_pass pass, ordo_io_algorithm algorithm, int64_t n, int64_t d)
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
    if (status == ORDO_OK && run)
        status = ordo_io_world_run(&world);
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
             BYTES, WAYS, LINE, self, what, (int)pass, (int)algorithm, n, d);
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

static void compare(const char *self, ordo_io_pass pass, ordo_io_algorithm algorithm, int64_t n,
                    int64_t d)
{
    const ordo_io_problem p = problem_of(pass, n, d);
    ordo_io_cache cache = ORDO_IO_CACHE_INIT;
    ordo_io_report r;
    cache.replacement = ORDO_IO_ASSOC;
    cache.line = LINE / WORD;
    cache.ways = WAYS;
    cache.budget = BUDGET;
    cache.packed = true;
    printf("%-9s %-7s %5" PRId64 " %6.2f", ordo_io_pass_name(pass),
           ordo_io_algorithm_name(algorithm), d, (double)p.cache_words / (double)(d * d));
    if (ordo_io_cache_run(&p, algorithm, NULL, &cache, &r, NULL) != ORDO_OK) {
        printf("  %s\n", ordo_last_error());
        return;
    }
    const int64_t predicted = r.loads / cache.line;
    const int64_t all = count_misses(self, "run", pass, algorithm, n, d);
    const int64_t before = count_misses(self, "setup", pass, algorithm, n, d);
    printf(" %12" PRId64, predicted);
    if (all < 0 || before < 0)
        puts("   not available: no valgrind");
    else
        printf(" %12" PRId64 " %8.3f\n", all - before, (double)(all - before) / (double)predicted);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int64_t n = 96;
    if (argc == 6) /* started under valgrind */
        return watched(strcmp(argv[1], "run") == 0, (ordo_io_pass)strtol(argv[2], NULL, 10),
                       (ordo_io_algorithm)strtol(argv[3], NULL, 10), strtol(argv[4], NULL, 10),
                       strtol(argv[5], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "--n") == 0)
        n = strtol(argv[2], NULL, 10);
    printf("misses of a cache of %d bytes, %d ways, lines of %d bytes; n = %" PRId64
           ", fp64, strips of a line\n%-9s %-7s %5s %6s %12s %12s %8s\n",
           BYTES, WAYS, LINE, n, "pass", "", "d", "M/d^2", "predicted", "cachegrind", "ratio");
    for (int64_t d = 48; d <= 112; d += 64) {
        compare(argv[0], ORDO_IO_FORWARD, ORDO_IO_FLASH, n, d);
        compare(argv[0], ORDO_IO_FORWARD, ORDO_IO_FUSED, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_FLASH, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_SPLIT, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_PHASE, n, d);
        compare(argv[0], ORDO_IO_BACKWARD, ORDO_IO_FUSED, n, d);
    }
    return 0;
}
