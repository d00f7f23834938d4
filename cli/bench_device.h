/* bench_device.h: times of passes on a device, by its own clock. */
#ifndef CLI_BENCH_DEVICE_H
#define CLI_BENCH_DEVICE_H

#include "stage.h"

/* Launch one pass over and over for about `seconds`, after a quarter of that to warm up, and take
 * the time of each run, the caches flushed before it; `runs` is the most there may be, and then how
 * many there were. Prints its error and returns an exit status. */
int cli_bench_device(const ordo_plan *plan, const cli_stage *stage, bool backward, double seconds,
                     double *samples, size_t *runs);

/* bf16 operations a second at the clock of the datasheet; 0 if the machine does not give them. */
double cli_bench_device_peak(const ordo_machine *machine);

#endif
