/* bench_device.h: times of passes on a device, measured by its events. */
#ifndef CLI_BENCH_DEVICE_H
#define CLI_BENCH_DEVICE_H

#include "attention/bench_report.h"
#include "kit/stage.h"

enum { CLI_BITS = CLI_PASSES };

/* Time a pass, CLI_FORWARD or CLI_BACKWARD, or the kernel that makes its keep bits, CLI_BITS: warm
 * up for a quarter of `seconds`, then run for about `seconds` and store the time of each run. The
 * caches are flushed before every run. `runs` is the capacity of `samples`, then the number of
 * runs. Prints its error and returns an exit status. */
int cli_bench_device(const ordo_plan *plan, const cli_stage *stage, int what, double seconds,
                     double *samples, size_t *runs);

/* Returns bf16 operations per second at the clock of the datasheet, or 0 if they are unknown. */
double cli_bench_device_peak(const ordo_machine *machine);

#endif
