/* tile/carry.h: accumulators of dK and dV that begin from, and are left as, f32 sums in memory.
 *
 * A consumer warpgroup holds 64 keys. Its threads load and store their own elements, pairs of
 * columns: four threads cover 32 bytes of a row. What is stored is what was in the registers, so a
 * pass that begins from it continues the sums as if it had never stopped. */
#ifndef CUDA_TILE_CARRY_H
#define CUDA_TILE_CARRY_H

#include "cuda/pass/pass.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/ptx.h"

/* 64 keys of one key head in the carried sums. */
typedef struct carry_tile {
    int64_t first; /* number of the first key's row: ordo_carry_row() */
    int32_t step;  /* from a key to the next: the key heads */
    int32_t rows;  /* keys that exist; may be less than 0, or more than 64 */
    int32_t columns;
} carry_tile;

/* A pair if column < columns; else nothing changes. The comparison is part of the statement, so
 * that the results of many comparisons are not kept in registers. */
ORDO_DEVICE void carry_load_pair(const float *from, int column, int columns, float &a, float &b)
{
    asm volatile("{.reg .pred p; setp.lt.s32 p, %3, %4; @p ld.global.cg.v2.f32 {%0, %1}, [%2];}"
                 : "+f"(a), "+f"(b)
                 : "l"(from), "r"(column), "r"(columns)
                 : "memory");
}

ORDO_DEVICE void carry_store_pair(float *to, int column, int columns, float a, float b)
{
    asm volatile(
        "{.reg .pred p; setp.lt.s32 p, %3, %4; @p st.global.v2.f32 [%0], {%1, %2};}" ::"l"(to),
        "f"(a), "f"(b), "r"(column), "r"(columns)
        : "memory");
}

/* This thread's first pair of columns of its row r, 0 or 1. Hidden from the optimizer, which would
 * keep the offsets of all pairs in registers from unit to unit. */
ORDO_DEVICE float *carry_row_at(float *sums, const carry_tile &tile, int thread, int r)
{
    const int64_t row = tile.first + (int64_t)ordo_accumulator_row(thread, 2 * r) * tile.step;
    float *at = sums + row * tile.columns + ordo_accumulator_column(thread, 0);
    asm volatile("" : "+l"(at));
    return at;
}

/* d = the sums, of rows that exist, and zeros after the last column. Rows that do not exist are
 * zeros: nothing is made of them. `thread` of the warpgroup. */
template <int N>
ORDO_DEVICE void carry_load(float (&d)[N], float *sums, const carry_tile &tile, int thread)
{
    clear(d);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int columns = ordo_accumulator_row(thread, 2 * r) < tile.rows ? tile.columns : 0;
        const float *const row = carry_row_at(sums, tile, thread, r);
#pragma unroll
        for (int c = 0; c < N / 4; c++)
            carry_load_pair(row + 8 * c, 8 * c, columns, d[4 * c + 2 * r], d[4 * c + 2 * r + 1]);
    }
}

/* Finite if all of this thread's values are, except where products of two overflow: then the caller
 * looks closer. One instruction for two values. */
template <int N> ORDO_DEVICE float carry_taint(const float (&d)[N])
{
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        a = fmaf(d[i], d[i + 1], a);
        b = fmaf(d[i + 2], d[i + 3], b);
    }
    return (a + b) * 0.0f;
}

/* Stores d, except rows that hold a value that is not finite: those keep what was there, and are
 * marked as broken. Nonzero if this thread has such a row. */
template <int N>
ORDO_DEVICE uint32_t carry_store(const float (&d)[N], float *sums, uint8_t *broken,
                                 const carry_tile &tile, int thread)
{
    uint32_t taint = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int key = ordo_accumulator_row(thread, 2 * r);
        float *const row = carry_row_at(sums, tile, thread, r);
        float nan = 0.0f; /* or NaN: x * 0 is 0 for all others */
#pragma unroll
        for (int i = 2 * r; i < N; i += 4)
            nan = fmaf(d[i + 1], 0.0f, fmaf(d[i], 0.0f, nan));
        nan += __shfl_xor_sync(~0u, nan, 1); /* four threads have the row */
        nan += __shfl_xor_sync(~0u, nan, 2);
        const bool exists = key < tile.rows, bad = nan != 0.0f;
        if (exists && bad) {
            broken[tile.first + (int64_t)key * tile.step] = 1;
            taint = 1;
        }
        const int columns = exists && !bad ? tile.columns : 0;
#pragma unroll
        for (int c = 0; c < N / 4; c++)
            carry_store_pair(row + 8 * c, 8 * c, columns, d[4 * c + 2 * r], d[4 * c + 2 * r + 1]);
    }
    return taint;
}

#endif
