/* The tree sum of arrays on the CPU ÷ a copy by the same threads: bytes read and written a second.
 *
 * Each array is larger than the last cache of most machines. Sum and copy take turns; the ratio is
 * taken in every round, and its median printed with the middle half of the rounds. Target: at least
 * 0.70 of the copy. The copy is memcpy() of one part per thread. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/pool.h"
#include "measure.h"
#include "ordo/sum.h"

enum { ROUNDS = 15, MOST = 8, ELEMENTS = 12 << 20 };
#define TARGET 0.70

static float *arrays[MOST], *out;

static void copy_part(void *context, int worker, int workers, void *scratch)
{
    const size_t begin = (size_t)ELEMENTS * (size_t)worker / (size_t)workers;
    const size_t end = (size_t)ELEMENTS * (size_t)(worker + 1) / (size_t)workers;
    (void)context, (void)scratch;
    memcpy(out + begin, arrays[0] + begin, (end - begin) * sizeof *out);
}

static double copy_rate(void)
{
    const double begin = measure_seconds(CLOCK_MONOTONIC);
    if (ordo_pool_run(0, 0, copy_part, NULL) != ORDO_OK)
        exit(1);
    return 2 * sizeof *out * (double)ELEMENTS / (measure_seconds(CLOCK_MONOTONIC) - begin);
}

static double sum_rate(ordo_dtype dtype, int64_t count, bool in_place)
{
    ordo_sum s = ORDO_SUM_INIT;
    s.dtype = dtype;
    s.count = count;
    s.elements = ELEMENTS;
    s.inputs = (const void *const *)arrays;
    s.out = in_place ? arrays[0] : out;
    const double width = dtype == ORDO_F32 ? 4 : 2;
    const double begin = measure_seconds(CLOCK_MONOTONIC);
    if (ordo_sum_tree(&s) != ORDO_OK) {
        fprintf(stderr, "%s\n", ordo_last_error());
        exit(1);
    }
    return (width * (double)count + 4) * (double)ELEMENTS /
           (measure_seconds(CLOCK_MONOTONIC) - begin);
}

static void row(ordo_dtype dtype, int64_t count, bool in_place)
{
    double ratio[ROUNDS], rate[ROUNDS];
    for (int x = 0; x < ROUNDS; x++) {
        const double copy = copy_rate();
        rate[x] = sum_rate(dtype, count, in_place);
        ratio[x] = rate[x] / copy;
    }
    const spread r = measure_spread(ratio, ROUNDS), a = measure_spread(rate, ROUNDS);
    printf("%-5s %5" PRId64 "  %-8s %8.1f %8.2f [%.2f %.2f]  %s\n", ordo_dtype_name(dtype), count,
           in_place ? "a += b" : "", 1e-9 * a.median, r.median, r.low, r.high,
           r.median >= TARGET ? "" : "below the target");
}

int main(void)
{
    out = calloc(ELEMENTS, sizeof *out);
    for (int x = 0; x < MOST; x++)
        arrays[x] = calloc(ELEMENTS, sizeof *arrays[x]);
    for (int x = 0; x < MOST; x++) {
        if (!out || !arrays[x])
            return 1;
        memset(arrays[x], 0x3c, ELEMENTS * sizeof *arrays[x]);
    }
    printf("tree sums of arrays of %d elements, %d threads\n"
           "dtype count             GB/s   ÷ copy\n",
           ELEMENTS, ordo_pool_threads(0));
    row(ORDO_F32, 2, true);
    for (int type = 0; type < 3; type++)
        for (int64_t count = 2; count <= MOST; count += count < 4 ? 1 : 2)
            row((ordo_dtype[]) { ORDO_F32, ORDO_BF16, ORDO_F16 }[type], count, false);
    return 0;
}
