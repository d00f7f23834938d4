/* Timeline simulator: tile tasks a second on one core, and the memory it takes.
 *
 * Target: 5 million tasks per second for every order; memory that grows with query tiles in
 * flight and workers, not with tasks. */
#include <stdio.h>
#include <sys/resource.h>

#include "measure.h"
#include "ordo/plan.h"
#include "sim/simulate.h"

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static ordo_run run_of(ordo_order order, bool causal, int heads, ordo_assign assign)
{
    return (ordo_run) {
        .band = { .q_len = 256,
                  .kv_len = 256,
                  .bq = 1,
                  .bk = 2,
                  .low = -ORDO_BAND_OPEN,
                  .high = causal ? 0 : ORDO_BAND_OPEN },
        .sequences = 1,
        .kv_heads = heads,
        .group_heads = 1,
        .order = order,
        .issue = ORDO_ISSUE_HEAD,
        .section = 1,
        .assign = assign,
        .workers = 132,
    };
}

int main(void)
{
    const ordo_costs costs = { .compute = 10,
                               .compute_partial = 10,
                               .reduce = 5,
                               .latency = 3,
                               .overlap = 1,
                               .accumulators = 1 };
    double slowest = 1e300;
    printf("128 x 256 tiles, 132 workers, compute 10, reduce 5, latency 3, overlap 1\n");
    printf("%-11s %-7s %-10s %6s %10s %12s %10s\n", "order", "mask", "assign", "heads", "tasks",
           "Mtasks/s", "peak KiB");
    for (int heads = 32; heads <= 512; heads *= 16)
        for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
            for (int causal = 0; causal < 2; causal++) {
                const bool cyclic = ordo_order_cyclic((ordo_order)order);
                const ordo_assign assign = cyclic ? ORDO_ASSIGN_PINNED : ORDO_ASSIGN_FIRST_FREE;
                const ordo_run run = run_of((ordo_order)order, causal, heads, assign);
                ordo_times times;
                const double start = measure_seconds(CLOCK_MONOTONIC);
                if (ordo_timeline_simulate(&run, 1, &costs, &times, NULL) != ORDO_OK) {
                    fprintf(stderr, "%s: %s\n", ordo_order_name((ordo_order)order),
                            ordo_last_error());
                    return 1;
                }
                const double rate =
                    (double)times.tasks / (measure_seconds(CLOCK_MONOTONIC) - start) * 1e-6;
                slowest = rate < slowest ? rate : slowest;
                printf("%-11s %-7s %-10s %6d %10llu %12.1f %10ld\n",
                       ordo_order_name((ordo_order)order), causal ? "causal" : "full",
                       ordo_assign_name(assign), heads, (unsigned long long)times.tasks, rate,
                       peak_kib());
            }
    printf("slowest %.1f million tasks a second (target 5)\n", slowest);
    return slowest >= 5 ? 0 : 1;
}
