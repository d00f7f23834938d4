/* sm90/phases/tile64.h: tiles of 64 rows, one consumer warpgroup's, of heads above 128 columns:
 * loads, products, a thread's part of a 64 x 64 tile of scores, and its keep bits. */
#ifndef CUDA_SM90_PHASES_TILE64_H
#define CUDA_SM90_PHASES_TILE64_H

#include <cuda.h>
#include <math.h>

#include "cuda/sm90/descriptor.h"
#include "cuda/sm90/ptx.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/sm90/zero_rows.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/put_rows.h"
#include "cuda/tile/score.h"
#include "cuda/tile/swizzle.h"
#include "plan/phase.h"

enum {
    WIDE_TILE = ORDO_CHAIN_KEYS, /* queries, keys */
    WIDE_PANEL_BYTES = WIDE_TILE * ORDO_LINE_BYTES,
    WIDE_THREADS = 384,
    WIDE_SCORES = WIDE_TILE / 2, /* a thread's of a 64 x 64 tile */
    WIDE_PACKED = WIDE_SCORES / 2
};

static_assert((int)WIDE_TILE == 64, "a consumer warpgroup has 64 rows");

/* Whether setmaxnreg can succeed: more than the 168 registers per thread of the launch, and it
 * waits for ever. */
constexpr bool wide_registers_fit(int consumer, int producer)
{
    return 256 * consumer + 128 * producer <= WIDE_THREADS * 168;
}

/* Named barriers, one per consumer warpgroup. PINGPONG: it may issue its products. OWN: all its
 * threads have arrived. */
enum { WIDE_PINGPONG = 1, WIDE_OWN = 3 };

/* ---- tiles of 64 rows ---- */

__host__ __device__ constexpr int wide_panels(int columns)
{
    return columns / ORDO_PANEL_COLUMNS;
}

__host__ __device__ constexpr int wide_bytes(int columns)
{
    return wide_panels(columns) * WIDE_PANEL_BYTES;
}

/* ---- loads ---- */

template <int COLUMNS>
ORDO_DEVICE void wide_load(uint32_t to, const CUtensorMap *map, uint32_t bar, int row, int head,
                           int sequence, uint64_t policy)
{
#pragma unroll
    for (int p = 0; p < wide_panels(COLUMNS); p++)
        tma_load(to + p * WIDE_PANEL_BYTES, map, bar, p * ORDO_PANEL_COLUMNS, row, head, sequence,
                 policy);
}

/* ---- products: tiles of 64 rows ---- */

/* d = A B^T, A and B 64 x COLUMNS in shared memory. */
template <bool F16, int COLUMNS>
ORDO_DEVICE void wide_scores(float (&d)[WIDE_SCORES], uint32_t a, uint32_t b)
{
    const uint32_t a_low = ordo_descriptor_low(a, 16), b_low = ordo_descriptor_low(b, 16);
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++)
        wgmma_ss<F16, 0, 0>(d, wgmma_by_columns(a_low, WIDE_TILE, k),
                            wgmma_by_columns(b_low, WIDE_TILE, k), k > 0);
}

/* d += A B, A 64 x 64 in registers, B 64 x 2 N in shared memory. */
template <bool F16, int N>
ORDO_DEVICE void wide_add(float (&d)[N], const uint32_t (&a)[WIDE_PACKED], uint32_t b)
{
    const uint32_t b_low = ordo_descriptor_low(b, WIDE_PANEL_BYTES);
#pragma unroll
    for (int k = 0; k < WIDE_TILE / 16; k++)
        wgmma_rs<F16, 1>(d, a + 4 * k, wgmma_by_rows(b_low, k), 1);
}

/* Zeroes the rows of a loaded tile beyond its sequence, before any product reads them. `valid`:
 * rows of the sequence; `mine`: the consumer warpgroup. */
template <int COLUMNS> ORDO_DEVICE void wide_zero_rows(uint32_t tile, int valid, int mine)
{
    if (valid < WIDE_TILE)
        zero_rows(tile, WIDE_TILE, wide_panels(COLUMNS), max(valid, 0), (int)threadIdx.x,
                  WIDE_OWN + mine);
}

/* ---- a 64 x 64 tile of scores, of which a thread has two rows and every fourth pair of columns:
 * register i is row 8 (i / 2 % 2), column wide_column(i), counted from the thread's first ---- */

ORDO_DEVICE int wide_column(int i)
{
    return ordo_accumulator_column(0, i);
}

/* Statistics of the columns, if they are queries, permuted as in layout.h: of register i that in
 * to[i / 4 * 2 + i % 2]. */
ORDO_DEVICE void wide_stats(float (&to)[16], uint32_t from, int x)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        load_shared4(from + x % 4 * 16 + 64 * k, to[4 * k], to[4 * k + 1], to[4 * k + 2],
                     to[4 * k + 3]);
}

/* ---- keep words of 64 queries x 128 keys, of which such a tile of 64 keys uses half ---- */

enum {
    WIDE_KEEP_WORDS = WIDE_TILE * ORDO_KEEP_COLS / 32,
    WIDE_KEEP_BYTES = WIDE_KEEP_WORDS * 4,
    WIDE_MAKERS = 96 /* threads that make them: the warps of the producer that do not load */
};

/* Given words: one copy per sixteen rows; rows that do not exist use the bits of the last ones. */
ORDO_DEVICE void wide_load_keep(uint32_t to, const uint32_t *bits, const ordo_cuda_sequence &s,
                                int q_head, int row, int key, uint32_t bar)
{
    enum { EACH = ORDO_KEEP_ROWS * ORDO_KEEP_COLS / 8 };
    const int last = max(s.q_len - 1, 0) / ORDO_KEEP_ROWS;
    const int64_t first = s.keep + q_head * s.keep_head + key / ORDO_KEEP_COLS;
#pragma unroll 1
    for (int n = 0; n < WIDE_TILE / ORDO_KEEP_ROWS; n++)
        bulk_load(to + EACH * n,
                  bits + (first + (int64_t)min(row / ORDO_KEEP_ROWS + n, last) * s.keep_across) *
                             (EACH / 4),
                  EACH, bar);
}

/* Words made by thread `thread` of WIDE_MAKERS; `row` and `block`: in the shard, in the whole. */
ORDO_DEVICE void wide_make_keep(uint32_t to, const ordo_keep_maker &maker, uint32_t bh,
                                uint32_t row, uint32_t block, uint32_t thread)
{
#pragma unroll 1
    for (uint32_t w = thread; w < WIDE_KEEP_WORDS; w += WIDE_MAKERS) {
        /* The place of a word in sixteen rows: row % 8, quad, row / 8. */
        const uint32_t line = w / 64 * 16 + w % 2 * 8 + w % 64 / 8;
        ordo_keep keep = keep_now(maker);
        asm volatile("" : "+l"(keep.seed)); /* keys of the rounds: not all in registers */
        const uint32_t word = keep_inside(keep, bh, maker.row0 + row + line, block, w % 8 / 2);
        store_shared(to + 4 * w, (int32_t)word);
    }
}

/* Marks the dropped elements of S^T, whose rows are the keys from `key` on. A word holds 32 keys of
 * one query; a thread has two of them, 8 keys apart. */
ORDO_DEVICE void wide_drop(float (&p)[WIDE_SCORES], uint32_t words, int key, int x)
{
    const uint32_t at = words + x % 4 * 64 + x % 32 / 8 * 8;
    const uint32_t shift = keep_shift(key / WIDE_TILE % 2 * 8 + x / 32 * 2, x / 4 % 2);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int32_t word[2][2]; /* of queries 0 and 8, 1 and 9 of this thread's sixteen */
        load_shared2(at + k * 256, word[0][0], word[0][1]);
        load_shared2(at + k * 256 + 32, word[1][0], word[1][1]);
#pragma unroll
        for (int i = 8 * k; i < 8 * k + 8; i++)
            p[i] = mark_dropped(p[i], (uint32_t)word[i % 2][i / 4 % 2], shift - (i & 2 ? 16 : 0));
    }
}

/* i + diagonal - j of register i; SIGN: 1 if columns are queries, -1 if they are keys. */
template <int SIGN> ORDO_DEVICE int wide_away(int away, int i)
{
    return away + SIGN * (wide_column(i) - 8 * (i / 2 % 2));
}

#endif
