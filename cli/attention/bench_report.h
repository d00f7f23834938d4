/* bench_report.h: what `ordo bench` measured, for people and as JSON. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "kit/execute.h"
#include "kit/report.h"

/* Median and quartiles of samples. */
typedef struct cli_spread {
    double low, median, high;
} cli_spread;

/* Sorts the samples; count > 0. */
cli_spread cli_spread_of(double *samples, size_t count);

typedef struct cli_bench_report {
    cli_executed is;
    size_t runs[CLI_PASSES];
    bool has[CLI_PASSES];
    cli_spread seconds[CLI_PASSES];
    double flops[CLI_PASSES];
    cli_spread bits;              /* seconds to make the keep bits of a device's passes */
    size_t bits_runs, bits_bytes; /* 0: none were made */
    cli_spread
        peak; /* operations a second of those threads; of a device, as its machine says, or 0 */
    size_t workspace_bytes;
    uint64_t digests[CLI_OUTPUTS];
} cli_bench_report;

/* Prints its error and returns an exit status. */
int cli_bench_show(const cli_json_target *target, const cli_bench_report *reports, size_t count);

#endif
