/* pool.h: threads that outlive a call.
 *
 * There is one pool per process. Its threads are created when first needed, and kept. A task runs
 * the same function on every worker; the caller is worker 0. If the pool is in use by another
 * caller, the task runs on one worker instead of waiting, which changes no bit. After fork() the
 * child has no threads, and creates its own. Workers run in the default floating-point environment,
 * and that of the caller is restored; the caller cannot be cancelled inside. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stddef.h>

#include "base/for_lab.h"
#include "ordo/status.h"

/* The function that each of `workers` workers runs. All of them run at the same time. `scratch` is
 * memory of this worker alone, 64-byte aligned, with unspecified content. */
typedef void ordo_task(void *context, int worker, int workers, void *scratch);

enum { ORDO_THREADS_MAX = 1024 };

/* Run `task` on `threads` workers (0 = as many as the process has cores), each with `scratch_bytes`
 * of scratch memory. Returns ORDO_ERR_MEMORY before any of them starts. Fewer workers run if the
 * system cannot create as many threads. */
ORDO_FOR_LAB ordo_status ordo_pool_run(int threads, size_t scratch_bytes, ordo_task *task,
                                       void *context);

/* The number of workers for `asked` threads: `asked`, or for 0 the cores of the process. */
int ordo_pool_threads(int asked);

#endif
