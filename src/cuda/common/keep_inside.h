/* common/keep_inside.h: keep bits generated inside a kernel instead of read: the same words.
 *
 * base/keep.h is the definition. Seven rounds and eight bits, the default, are unrolled. */
#ifndef CUDA_COMMON_KEEP_INSIDE_H
#define CUDA_COMMON_KEEP_INSIDE_H

#include "cuda/common/pass.h"
#include "cuda/common/ptx.h"

/* Inputs of the generator that are the same for all elements of a pass. */
typedef struct ordo_keep_maker {
    ordo_keep keep;
    const uint64_t *seed_ptr, *offset_ptr; /* on the device, instead of keep's; or NULL */
    uint32_t heads_total, head0, row0, block0;
} ordo_keep_maker;

ORDO_HD ordo_keep_maker ordo_keep_maker_of(const ordo_cuda_pass *pass)
{
    ordo_keep_maker maker;
    maker.keep = pass->keep;
    maker.seed_ptr = pass->seed_ptr;
    maker.offset_ptr = pass->offset_ptr;
    maker.heads_total = pass->heads_total;
    maker.head0 = pass->head0;
    maker.row0 = pass->row0;
    maker.block0 = pass->col0 / ORDO_KEEP_COLS;
    return maker;
}

/* The generator, with seed and offset read from their pointers if there are any. */
ORDO_DEVICE ordo_keep keep_now(const ordo_keep_maker &maker)
{
    ordo_keep keep = maker.keep;
    if (maker.seed_ptr)
        keep.seed = *maker.seed_ptr;
    if (maker.offset_ptr)
        keep.offset = *maker.offset_ptr;
    return keep;
}

ORDO_DEVICE uint32_t keep_head_of(const ordo_keep_maker &maker, uint32_t sequence_id, int head)
{
    return sequence_id * maker.heads_total + maker.head0 + (uint32_t)head;
}

template <int ROUNDS, int BITS>
ORDO_DEVICE uint32_t keep_word_unrolled(const ordo_keep &keep, uint32_t bh, uint32_t row,
                                        uint32_t block, uint32_t quad)
{
    uint32_t kept = 0;
#pragma unroll
    for (int bit = 0; bit < BITS; bit += 4) {
        const ordo_philox_words counter = { { block * ((BITS + 3) / 4) + (uint32_t)bit / 4,
                                              row * 4 + quad, bh, (uint32_t)keep.offset } };
        const ordo_philox_words random =
            ordo_philox(counter, (uint32_t)keep.seed, (uint32_t)(keep.seed >> 32), ROUNDS);
#pragma unroll
        for (int i = 0; i < 4 && bit + i < BITS; i++) {
            const uint32_t w = random.w[i], select = 0u - (keep.threshold >> (bit + i) & 1);
            kept = (kept & w) | ((kept | w) & select); /* kept | w or kept & w */
        }
    }
    return kept;
}

/* The word of a row, a block of 128 columns and a quad; all counted in the whole problem. */
ORDO_DEVICE uint32_t keep_inside(const ordo_keep &keep, uint32_t bh, uint32_t row, uint32_t block,
                                 uint32_t quad)
{
    if (keep.rounds == 7 && keep.bits == 8)
        return keep_word_unrolled<7, 8>(keep, bh, row, block, quad);
    return ordo_keep_word_ordo(&keep, bh, row, block, quad);
}

#endif
