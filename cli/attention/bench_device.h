/* bench_device.h: times of passes on a device, by its own clock. */
#ifndef CLI_BENCH_DEVICE_H
#define CLI_BENCH_DEVICE_H

#include "attention/bench_report.h"
#include "kit/stage.h"

enum { CLI_BITS = CLI_PASSES };

/* Launch a pass, CLI_FORWARD or CLI_BACKWARD, or what makes its keep bits, CLI_BITS, over and over
 * for about `seconds`, after a quarter of that to warm up, and take the time of each run, the
 * caches flushed before it; `runs` is the most there may be, and then how many there were. Prints
 * its error and returns an exit status. */
int cli_bench_device(const ordo_plan *plan, const cli_stage *stage, int what, double seconds,
                     double *samples, size_t *runs);

/* bf16 operations a second at the clock of the datasheet; 0 if the machine does not give them. */
double cli_bench_device_peak(const ordo_machine *machine);

#endif
