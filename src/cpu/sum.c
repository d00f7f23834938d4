/* sum.c: the tree sum of arrays, chunk by chunk. An element is independent of all others, so
 * threads change no bit. */
#include "cpu/sum.h"

#include "base/pool.h"
#include "cpu/kernels.h"

enum { ELEMENTS_PER_THREAD = 1 << 15 }; /* at least: below that, waking a thread takes longer */

typedef struct sum_job {
    const ordo_sum *sum;
    const ordo_kernels *kernels;
} sum_job;

/* Worker w of n takes the w-th of n parts: each core then reads its own pages. */
static void work(void *context, int worker, int workers, void *scratch)
{
    const sum_job *job = context;
    const ordo_sum *s = job->sum;
    const int64_t chunks = s->elements / ORDO_SUM_CHUNK + (s->elements % ORDO_SUM_CHUNK != 0);
    const int64_t share = chunks / workers, more = chunks % workers;
    const int64_t first = worker * share + (worker < more ? worker : more);
    const int64_t last = first + share + (worker < more);
    for (int64_t chunk = first; chunk < last; chunk++) {
        const int64_t at = chunk * ORDO_SUM_CHUNK, left = s->elements - at;
        job->kernels->tree_sum(s->out + at, s->inputs, s->dtype, (int)s->count, at,
                               (int)(left < ORDO_SUM_CHUNK ? left : ORDO_SUM_CHUNK), scratch);
    }
}

ordo_status ordo_cpu_sum(const ordo_sum *sum)
{
    sum_job job = { .sum = sum };
    const ordo_status status = ordo_cpu_kernels(&job.kernels);
    if (status != ORDO_OK)
        return status;
    const int64_t useful = sum->elements / ELEMENTS_PER_THREAD + 1;
    const int threads = ordo_pool_threads(sum->threads);
    return ordo_pool_run(useful < threads ? (int)useful : threads, sizeof(float) * ORDO_SUM_SCRATCH,
                         work, &job);
}
