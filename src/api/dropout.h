/* dropout.h: keep bits of a checked problem, head by head. */
#ifndef API_DROPOUT_H
#define API_DROPOUT_H

#include "base/keep.h"
#include "ordo/dropout.h"

/* A problem and a call that have been checked and resolved. */
typedef struct ordo_dropout_view {
    ordo_problem problem;
    ordo_dropout_call call;
    ordo_keep keep;
    int32_t low, high;         /* row r needs columns r + low .. r + high; open: all of them */
    uint64_t blocks, elements; /* counted over all sequences and heads; packed on_device: at most */
} ordo_dropout_view;

/* Check and resolve a problem and a call. If `host` is true, seed_ptr and offset_ptr are read; else
 * they may be device pointers. */
ordo_status ordo_dropout_open(const ordo_problem *problem, const ordo_dropout_call *call, bool host,
                              ordo_dropout_view *view);

/* Bytes of the bits and, with on_device, of the table that follows them. */
uint64_t ordo_dropout_bytes(const ordo_dropout_view *view);

/* Check that `words` has room for the bytes needed and is aligned to `align` bytes. */
ordo_status ordo_dropout_room(const uint32_t *words, size_t bytes, uint64_t needed, size_t align);

/* The blocks of one sequence. */
typedef struct ordo_dropout_sequence {
    int64_t rows, cols;
    int64_t across;      /* blocks per row of blocks */
    int64_t head_blocks; /* blocks of one head */
    uint32_t bh;         /* number of its first head held here */
} ordo_dropout_sequence;

ordo_dropout_sequence ordo_dropout_sequence_at(const ordo_dropout_view *view, int64_t index);

/* Index of the first block of a sequence in storage order. */
uint64_t ordo_dropout_first_block(const ordo_dropout_view *view, int64_t index);

/* Write the words of `count` adjacent blocks: block row `down`, from block `across` on. */
void ordo_dropout_blocks(const ordo_dropout_view *view, const ordo_dropout_sequence *sequence,
                         int64_t head, int64_t down, int64_t across, int64_t count,
                         uint32_t *words);

#endif
