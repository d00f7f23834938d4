/* child.h: the same command in another process, on another instruction set. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include "kit/tensors.h"

/* Returns the index of the problem that this process runs for its parent process, or -1 if it has
 * no such parent. A child writes the bytes of its outputs to standard output, and nothing else. */
int64_t cli_child_asked(void);
int cli_child_answer(const cli_tensors *tensors);

/* Start this command again with the same arguments and ORDO_CPU = target ("" = not set), and read
 * its outputs into `tensors`. `lacks` is set, and CLI_OK returned, if the machine has no such
 * target or the system cannot start it. Prints its error and returns an exit status. */
int cli_child_run(int argc, char **argv, size_t problem, const char *target,
                  const cli_tensors *tensors, bool *lacks);

#endif
