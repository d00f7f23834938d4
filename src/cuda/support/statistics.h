/* support/statistics.h: query tiles of the backward passes, how they are numbered and where they
 * lie; and the row statistics, which every backward pass computes first. */
#ifndef CUDA_SUPPORT_STATISTICS_H
#define CUDA_SUPPORT_STATISTICS_H

#include "cuda/pass/pass.h"
#include "cuda/tile/ptx.h"
#include "ordo/status.h"

/* Whether the dense instances of the kernels run a pass: dense, head sizes that are a bucket's,
 * no window, no softcap, no ALiBi, no block mask, no keep bits made inside if sums are carried, and
 * all of dq, dk and dv wanted, or the sums of the last two; in another than the usual orders, bf16
 * without dropout or carried sums. They number tiles (sequence, head, tile), the varlen ones
 * (head, tile of all sequences). */
bool ordo_backward_dense(const ordo_cuda_pass *pass);

/* Whether the order of sums is ascending or descending. */
bool ordo_backward_usual_order(const ordo_cuda_pass *pass);

/* Launch the first kernel of a backward pass: delta and lse2 of every row; turns, ticket, flag and
 * the marks of broken rows become zero. `clear`, for dense passes only, also zeroes dq_sum. */
ordo_status ordo_backward_begin(const ordo_cuda_pass *pass, bool clear);

/* ---- for kernels over rows ---- */

struct ordo_row_args : ordo_cuda_pass { /* run: varlen, of one sequence */
    int32_t heads, q_tiles;             /* q_tiles: of one head; varlen: of all sequences */
    int64_t tiles;                      /* query tiles of all heads and sequences */
    float dq_scale;
    float kept;    /* factor of delta: dropout, 1 / the scale of kept elements */
    uint4 *broken; /* begin: marks of rows whose sums are not carried out, to be cleared */
    int64_t broken_count;
};

/* A tile of queries: where it lies in the tensors, and what there is of it. */
typedef struct tile_place {
    int32_t head, sequence;
    int32_t row0;  /* its first row in its sequence, */
    int32_t q_row; /* whose first row in the tensor is this, */
    int32_t q_len; /* and which has so many; 0: the tile does not exist */
    int32_t keys;  /* tiles of keys that add to it */
    int64_t lse;   /* place of the sequence's first row of this head */
} tile_place;

template <int ROWS, bool VARLEN>
ORDO_DEVICE tile_place place_of(const ordo_row_args &args, int32_t all, int32_t i)
{
    if constexpr (VARLEN) {
        tile_place at = { all, 0, 0, 0, 0, 0, 0 };
        if (i >= ordo_batch_before(&args.batch, ORDO_BEFORE_QUERY, args.batch.sequences))
            return at;
        const int32_t b = ordo_batch_find(&args.batch, ORDO_BEFORE_QUERY, i);
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, b);
        const ordo_band band = ordo_sequence_band(&s, ROWS, args.run.band.bk);
        at.sequence = s.batch;
        at.row0 = (i - s.query_tile) * ROWS;
        at.q_row = s.q_row;
        at.q_len = s.q_len;
        at.keys = args.blocks.start
                      ? ordo_blocks_words(&args.blocks, all, s.query_tile, i - s.query_tile)->count
                      : ordo_span_count(ordo_band_keys(&band, i - s.query_tile));
        at.lse = s.lse + all * args.batch.lse_head;
        return at;
    }
    return { all % args.heads,
             all / args.heads,
             i * args.run.band.bq,
             0,
             args.run.band.q_len,
             ordo_span_count(ordo_band_keys(&args.run.band, i)),
             (int64_t)all * (int32_t)args.batch.lse_head };
}

ORDO_DEVICE int64_t element(const ordo_cuda_tensor &x, const tile_place &at, int32_t row)
{
    return at.sequence * x.sequence + at.head * x.head + (at.q_row + row) * x.row;
}

ordo_row_args ordo_row_args_of(const ordo_cuda_pass *pass);

#endif
