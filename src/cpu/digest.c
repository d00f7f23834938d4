/* digest.c: xxh64-pieces: threads take pieces in order, then the caller folds each span's pieces.
 *
 * A piece has its own place in the workspace, so threads change no digest. */
#include "cpu/digest.h"

#include "base/pool.h"
#include "base/xxh64.h"

#include <stdatomic.h>

enum { PIECES_A_THREAD = 8 }; /* at least: half a megabyte, some 50 us */

typedef struct digest_job {
    const ordo_digest_call *call;
    uint64_t *pieces;
    atomic_ullong next;
} digest_job;

static void work(void *context, int worker, int workers, void *scratch)
{
    digest_job *job = context;
    uint64_t first = 0; /* piece of the span at hand; a worker's pieces only ascend */
    (void)worker;
    (void)workers;
    (void)scratch;
    int64_t x = 0;
    for (;;) {
        const uint64_t at = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        while (x < job->call->count && at - first >= ordo_pieces(job->call->spans[x].bytes))
            first += ordo_pieces(job->call->spans[x++].bytes);
        if (x == job->call->count)
            return;
        const ordo_bytes *span = &job->call->spans[x];
        const unsigned char *data = (const unsigned char *)span->data;
        job->pieces[at] = ordo_xxh64(data + (at - first) * ORDO_PIECE_BYTES,
                                     ordo_piece_bytes(span->bytes, at - first));
    }
}

/* The digests of pieces, as the bytes that the outer XXH64 reads: in place. */
static void store_little_endian(uint64_t *word)
{
    const uint64_t value = *word;
    unsigned char *to = (unsigned char *)word;
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

ordo_status ordo_cpu_digest(const ordo_digest_call *call)
{
    digest_job job = { .call = call, .pieces = call->workspace };
    uint64_t all = 0;
    for (int64_t x = 0; x < call->count; x++)
        all += ordo_pieces(call->spans[x].bytes);
    int threads = ordo_pool_threads(call->threads);
    if ((uint64_t)threads > all / PIECES_A_THREAD)
        threads = all < 2 * PIECES_A_THREAD ? 1 : (int)(all / PIECES_A_THREAD);
    const ordo_status status = ordo_pool_run(threads, 0, work, &job);
    if (status != ORDO_OK)
        return status;
    for (uint64_t at = 0; at < all; at++)
        store_little_endian(&job.pieces[at]);
    uint64_t *pieces = job.pieces;
    for (int64_t x = 0; x < call->count; x++) {
        const uint64_t count = ordo_pieces(call->spans[x].bytes);
        call->digests[x] = ordo_xxh64(pieces, 8 * count);
        pieces += count;
    }
    return ORDO_OK;
}
