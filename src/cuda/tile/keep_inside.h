/* tile/keep_inside.h: keep bits generated inside a kernel instead of read: the same words.
 *
 * base/keep.h is the definition. Seven rounds and eight bits, the default, are unrolled. */
#ifndef CUDA_TILE_KEEP_INSIDE_H
#define CUDA_TILE_KEEP_INSIDE_H

#include "cuda/pass/keep_tile.h"
#include "cuda/pass/pass.h"
#include "cuda/tile/ptx.h"

/* The generator, with seed and offset read from their pointers if there are any. */
template <class FROM> ORDO_DEVICE ordo_keep keep_now(const FROM &from)
{
    ordo_keep keep = from.keep;
    if (from.seed_ptr)
        keep.seed = *from.seed_ptr;
    if (from.offset_ptr)
        keep.offset = *from.offset_ptr;
    return keep;
}

/* Round keys that stay in registers: otherwise the compiler computes them again for every tile. */
ORDO_DEVICE ordo_keep_keys keep_keys_now(const ordo_keep &keep)
{
    ordo_keep_keys keys = ordo_keep_keys_of(keep.seed);
#pragma unroll
    for (int r = 0; r < ORDO_KEEP_TILE_ROUNDS; r++)
        asm volatile("" : "+r"(keys.key0[r]), "+r"(keys.key1[r]));
    return keys;
}

/* Keys that are mixed with what all threads share, in registers of each thread: an instruction
 * reads only one uniform register. Bit 31 of a row is 0, which the compiler does not know. */
ORDO_DEVICE void keep_keys_own(ordo_keep_keys &keys, int row)
{
    keys.key0[2] ^= (uint32_t)row >> 31;
    keys.key1[3] ^= (uint32_t)row >> 31;
    asm volatile("" : "+r"(keys.key0[2]), "+r"(keys.key1[3]));
}

/* ordo_keep_line(), in registers. */
ORDO_DEVICE ordo_keep_product keep_line_now(const ordo_keep_keys &keys, uint32_t bh, uint32_t row,
                                            uint32_t quad)
{
    ordo_keep_product line = ordo_keep_line(&keys, bh, row, quad);
    asm volatile("" : "+r"(line.low), "+r"(line.high));
    return line;
}

/* Draw `number`, 0 or 1, of the words of two rows and a block: after both they are `kept`. */
template <int ROUNDS = ORDO_KEEP_TILE_ROUNDS>
ORDO_DEVICE void keep_draw(uint2 &kept, const ordo_keep_keys &keys, uint32_t offset,
                           const ordo_keep_product (&lines)[2], uint32_t bh, uint32_t block,
                           const ordo_keep_select &select, int number)
{
    const ordo_keep_draw draw = ordo_keep_draw_of(&keys, offset, bh, block, (uint32_t)number);
    if (number == 0)
        kept = make_uint2(0, 0);
    kept.x = ordo_keep_compare(kept.x, ordo_keep_random(lines[0], &draw, &keys, ROUNDS), &select,
                               number);
    kept.y = ordo_keep_compare(kept.y, ordo_keep_random(lines[1], &draw, &keys, ROUNDS), &select,
                               number);
}

ORDO_DEVICE uint32_t keep_head_of(const ordo_cuda_pass &pass, uint32_t sequence_id, int head)
{
    return sequence_id * pass.heads_total + pass.head0 + (uint32_t)head;
}

/* The upper half of M * x, exactly: x is the low word of 2^52 + x, and 2^84 plus the product,
 * rounded towards zero, has the upper half in its low word. */
template <uint32_t M> ORDO_DEVICE uint32_t high_of_product(uint32_t x)
{
    const double from = (double)(0x100000000 - M) * 4503599627370496.0; /* 2^84 - M 2^52 */
    return (uint32_t)__double2loint(
        __fma_rz((double)M, __hiloint2double(0x43300000, (int)x), from));
}

/* ordo_philox() with upper halves of products by f64, which takes nothing from the pipe of integer
 * products: faster beside the matrix products of head size 64, slower beside those of 128. */
template <int ROUNDS>
ORDO_DEVICE ordo_philox_words philox_by_f64(ordo_philox_words c, uint32_t k0, uint32_t k1)
{
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        /* Integers where all threads have the same: they have units of their own. */
        const bool same0 = r == 0 || r == 2, same1 = r < 2;
        const uint32_t high0 = same0 ? __umulhi(m0, c.w[0]) : high_of_product<m0>(c.w[0]);
        const uint32_t high1 = same1 ? __umulhi(m1, c.w[2]) : high_of_product<m1>(c.w[2]);
        const uint32_t low0 = m0 * c.w[0], low1 = m1 * c.w[2];
        c = { { high1 ^ c.w[1] ^ k0, low1, high0 ^ c.w[3] ^ k1, low0 } };
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

template <int ROUNDS, int BITS, bool BY_F64>
ORDO_DEVICE uint32_t keep_word_unrolled(const ordo_keep &keep, uint32_t bh, uint32_t row,
                                        uint32_t block, uint32_t quad)
{
    uint32_t kept = 0;
#pragma unroll
    for (int bit = 0; bit < BITS; bit += 4) {
        const ordo_philox_words counter = { { block * ((BITS + 3) / 4) + (uint32_t)bit / 4,
                                              row * 4 + quad, bh, (uint32_t)keep.offset } };
        const uint32_t k0 = (uint32_t)keep.seed, k1 = (uint32_t)(keep.seed >> 32);
        const ordo_philox_words random =
            BY_F64 ? philox_by_f64<ROUNDS>(counter, k0, k1) : ordo_philox(counter, k0, k1, ROUNDS);
#pragma unroll
        for (int i = 0; i < 4 && bit + i < BITS; i++) {
            const uint32_t w = random.w[i], select = 0u - (keep.threshold >> (bit + i) & 1);
            kept = (kept & w) | ((kept | w) & select); /* kept | w or kept & w */
        }
    }
    return kept;
}

/* The word of a row, a block of 128 columns and a quad; all counted in the whole problem. */
template <bool BY_F64 = false>
ORDO_DEVICE uint32_t keep_inside(const ordo_keep &keep, uint32_t bh, uint32_t row, uint32_t block,
                                 uint32_t quad)
{
    if (keep.rounds == 7 && keep.bits == 8)
        return keep_word_unrolled<7, 8, BY_F64>(keep, bh, row, block, quad);
    return ordo_keep_word_ordo(&keep, bh, row, block, quad);
}

#endif
