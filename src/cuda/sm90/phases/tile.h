/* sm90/phases/tile.h: a tile of scores of 128 queries x 256 keys, in both passes: its stages, its
 * keep bits, and the store to the workspace. */
#ifndef CUDA_SM90_PHASES_TILE_H
#define CUDA_SM90_PHASES_TILE_H

#include "cuda/sm90/phases/pipe.h"
#include "cuda/tile/put_rows.h"

enum { PHASE_SCORES = PHASE_KEYS / 2 }; /* a thread's of a tile */

/* The stages of a query tile times key tile j of its sequence, over `columns` columns. The first
 * may have been taken already. */
ORDO_DEVICE void phase_load_scores(phase_loader<PHASE_KEYS> &load, const ordo_phase_common &all,
                                   const CUtensorMap *a, const CUtensorMap *b, int columns,
                                   const phase_query_tile &at, int j)
{
    using Z = phase_shape<PHASE_KEYS>;
#pragma unroll 1
    for (int column = 0; column < columns; column += PHASE_STEP) {
        load.take();
        mbar_expect(load.full(), Z::STAGE_BYTES);
#pragma unroll
        for (int n = 0; n < PHASE_ROWS / PHASE_STEP; n++)
            tma_load(load.a() + n * PHASE_BOX_BYTES, a, load.full(), column,
                     at.s.q_row + at.i * PHASE_ROWS + n * PHASE_STEP, at.head, at.s.batch,
                     load.reused);
#pragma unroll
        for (int n = 0; n < PHASE_KEYS / PHASE_STEP; n++)
            tma_load(load.a() + Z::A_BYTES + n * PHASE_BOX_BYTES, b, load.full(), column,
                     at.s.kv_row + j * PHASE_KEYS + n * PHASE_STEP, at.head / all.run.group_heads,
                     at.s.batch, load.reused);
        load.ring.advance();
    }
}

/* Keep words of a thread's two rows, of two blocks of 128 keys. What does not exist takes bits of
 * what does. */
struct phase_keep {
    uint2 words[2];
};

ORDO_DEVICE phase_keep phase_load_keep(const ordo_phase_common &all, const ordo_cuda_sequence &s,
                                       int head, int row, int key, int thread)
{
    const int line = min(row / 16, (s.q_len - 1) / 16);
    const uint2 *bits = (const uint2 *)all.keep_bits;
    bits += (s.keep + head * s.keep_head + (int64_t)line * s.keep_across + key / 128) * 32 +
            thread % 32;
    return { { load_once(bits), load_once(bits + (key / 128 + 1 < s.keep_across ? 32 : 0)) } };
}

ORDO_DEVICE void phase_drop(float (&p)[PHASE_SCORES], const phase_keep &keep)
{
#pragma unroll
    for (int i = 0; i < PHASE_SCORES; i++) {
        const uint2 words = keep.words[i / 64];
        p[i] = mark_dropped(p[i], i / 2 % 2 ? words.y : words.x, keep_shift(i / 4 % 16, i % 2));
    }
}

template <bool F16> ORDO_DEVICE uint32_t kept_pair(uint32_t pair) /* 0 where the sign is set */
{
    if constexpr (F16)
        asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0));
    else
        asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(0));
    return pair;
}

/* x *= 0 if the bit is set. One statement, so that it is done in place, and shares nothing with
 * what else is made of the word. */
ORDO_DEVICE void zero_if(float &x, uint32_t word, uint32_t bit)
{
    asm volatile("{.reg .pred p; .reg .b32 b; and.b32 b, %1, %2; setp.ne.u32 p, b, 0; "
                 "@p mul.rn.f32 %0, %0, 0f00000000;}"
                 : "+f"(x)
                 : "r"(word), "r"(bit));
}

/* x = value if the bit is clear. */
ORDO_DEVICE void set_if_clear(float &x, uint32_t word, uint32_t bit, float value)
{
    asm("{.reg .b32 b; .reg .pred clear; and.b32 b, %1, %2; setp.eq.u32 clear, b, 0; "
        "@clear mov.b32 %0, %3;}"
        : "+f"(x)
        : "r"(word), "r"(bit), "f"(value));
}

/* The first element that a thread's quad writes of its first row, in the workspace. */
ORDO_DEVICE int64_t phase_place(const ordo_phase_common &all, int head, int tile, int row, int key,
                                int columns, int thread)
{
    const int64_t slot = ordo_phase_slot(&all.panel, all.run.group_heads, head, tile);
    return (slot * PHASE_ROWS + row) * columns + key + 8 * (thread % 4);
}

/* Stores a tile of which a thread has PAIRS pairs of elements, 64 bytes per quad and row. `pair`:
 * number i of a thread's, packed; `columns`: elements from row to row. */
template <int PAIRS, typename F>
ORDO_DEVICE void phase_store_pairs(uint16_t *to, int columns, int thread, F pair)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int g = 0; g < PAIRS / 8; g++) {
            uint32_t w[4];
#pragma unroll
            for (int c = 0; c < 4; c++)
                w[c] = pair(8 * g + 2 * c + r);
            quad_transpose(w, thread % 4);
            *(uint4 *)(to + 8 * r * columns + 32 * g) = make_uint4(w[0], w[1], w[2], w[3]);
        }
}

/* The same from f32. KEPT: zeros where the sign is set. */
template <bool F16, bool KEPT>
ORDO_DEVICE void phase_store_tile(const float (&d)[PHASE_SCORES], uint16_t *to, int columns,
                                  int thread)
{
    phase_store_pairs<PHASE_SCORES / 2>(to, columns, thread, [&](int i) {
        const uint32_t pair = pack_pair<F16>(d[2 * i], d[2 * i + 1]);
        return KEPT ? kept_pair<F16>(pair) : pair;
    });
}

#endif
