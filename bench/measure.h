/* measure.h: what the benchmarks in C share: a clock, and medians with their spread. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdlib.h>
#include <time.h>

/* Seconds by a clock: CLOCK_MONOTONIC, or CLOCK_THREAD_CPUTIME_ID, on which other work on the
 * machine does not count. */
static inline double measure_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The median, and the quartiles around it. */
typedef struct spread {
    double low, median, high;
} spread;

static inline int measure_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values; count > 0. */
static inline spread measure_spread(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, measure_order);
    return (spread) { values[count / 4], values[count / 2], values[count - 1 - count / 4] };
}

#endif
