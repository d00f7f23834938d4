/* ops/dropout.h: keep bits made on the device, in storage order (docs/design/dropout-bits.md).
 * Plain C.
 *
 * The words are those of ordo_keep_word(), whatever the grid: a warp makes whole blocks of 16 rows
 * x 128 columns, 256 bytes a store. */
#ifndef CUDA_OPS_DROPOUT_H
#define CUDA_OPS_DROPOUT_H

#include "cuda/pass/pass.h"
#include "ordo/status.h"

#include <stddef.h>

/* Sequences of one shape that follow each other in the order of storage, with ids that do too. */
typedef struct ordo_cuda_bits {
    ordo_keep keep;
    const uint64_t *seed_ptr, *offset_ptr; /* on the device, instead of keep's; NULL: keep's */
    uint32_t bh, bh_step;                  /* the first head's; from a sequence to the next */
    int32_t sequences, heads;
    int32_t down, across; /* blocks of one head; over all heads below 2^31 */
    bool visible_only;    /* row r of a head needs columns r + low .. r + high alone: blocks that */
    int32_t low, high;    /* none of their rows needs are left as they are */
    uint32_t row, block;  /* first row and column block in the whole sequence */
    uint32_t *words;      /* a multiple of 16 bytes */
    uint32_t grid_blocks, grid_threads; /* threads 32, 64, 96 or 128; 0: chosen here */
    void *stream;

    /* Not NULL if only the device knows the lengths or ids of the sequences: `ragged` and `layout`
     * say where they are, and bh, down and across are ignored. */
    ordo_cuda_sequence *table; /* room for sequences + 1, on the device */
    ordo_layout layout;
    ordo_cuda_ragged ragged;
    int32_t q_len, kv_len;   /* the largest */
    int64_t q_rows, kv_rows; /* packed: of all sequences */
    uint32_t head0;          /* bh_step: heads of the whole model */
    int64_t most;            /* blocks of all sequences and heads: no more than these */
} ordo_cuda_bits;

/* Launch. Unless the grid is given, many blocks of one warp: on a second stream they fill the
 * multiprocessors that the last wave of a matrix product leaves idle. */
ordo_status ordo_cuda_dropout(const ordo_cuda_bits *bits);
#endif
