/* pool.h: threads that outlive a call.
 *
 * One pool a process, its threads made when first needed and kept. A task is the same function
 * on every worker; the caller is worker 0. If another caller has the pool, the task runs on one
 * worker instead of waiting: plans give the same bits on any number. After fork() the child
 * starts with no threads and makes its own. Workers run in the default floating-point
 * environment, whatever the caller's, and the caller's is restored. */
#ifndef CPU_POOL_H
#define CPU_POOL_H

#include <stddef.h>

#include "ordo/status.h"

/* One of `workers`, all of which run; `scratch` is its own memory, 64-byte aligned, its content
 * unspecified. */
typedef void ordo_task(void *context, int worker, int workers, void *scratch);

enum { ORDO_THREADS_MAX = 1024 };

/* Run `task` on `threads` workers (0 = as many cores as the process may use), each with
 * `scratch_bytes`. ORDO_ERR_MEMORY before any of them starts. Fewer threads than asked for may
 * run it, if the system has no more. */
ordo_status ordo_pool_run(int threads, size_t scratch_bytes, ordo_task *task, void *context);

/* The number that 0 stands for. */
int ordo_pool_threads(int asked);

#endif
