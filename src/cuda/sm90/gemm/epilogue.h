/* sm90/gemm/epilogue.h: sums of products to C, from registers. */
#ifndef CUDA_SM90_GEMM_EPILOGUE_H
#define CUDA_SM90_GEMM_EPILOGUE_H

#include "base/half.h"
#include "cuda/sm90/gemm/args.h"
#include "cuda/sm90/ptx.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/ptx.h"
#include "cuda/tile/swizzle.h"

/* Element `at` of the bias, or of C. */
ORDO_DEVICE float gemm_value(const void *from, ordo_dtype type, int64_t at)
{
    if (type == ORDO_F32)
        return ((const float *)from)[at];
    const uint32_t half = ((const uint16_t *)from)[at];
    return type == ORDO_F16 ? pair_low<true>(half) : pair_low<false>(half);
}

/* The rows and columns of a warpgroup's 64 x 2 N sums that exist, counted from this thread's first
 * row and from the first column, and where they go. */
struct gemm_part {
    char *to; /* this thread's first row, first column */
    int64_t row_bytes;
    int rows, columns;
};

/* Shared memory per warp: two buffers of 16 rows of 64 columns. */
enum { GEMM_BUFFER_BYTES = 16 * ORDO_LINE_BYTES, GEMM_OUT_BYTES = 2 * GEMM_BUFFER_BYTES };

/* A warp's 16 rows from `row` on leave through shared memory, by tensor stores of 64 columns: while
 * one is under way the next is packed. */
template <bool F16, int N>
ORDO_DEVICE void gemm_put_halves(const float (&d)[N], const CUtensorMap *c, int row, int column,
                                 uint32_t out)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p < N / 32; p++) {
        const uint32_t buffer = out + p % 2 * GEMM_BUFFER_BYTES;
        if (lane == 0)
            bulk_wait_read<1>();
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = pack_pair<F16>(d[32 * p + 8 * k + 2 * i], d[32 * p + 8 * k + 2 * i + 1]);
            store_matrix4(ordo_store_slice(buffer + ordo_store_offset(16, 0, lane, 0), 16, k), w[0],
                          w[1], w[2], w[3]);
        }
        fence_shared_to_async();
        __syncwarp();
        if (lane == 0) {
            tma_store(c, buffer, column + 64 * p, row, 0, 0);
            bulk_commit();
        }
    }
}

/* The same from registers: tensor stores write 16 bytes at a time, and rows may end within them. */
template <bool F16, int N>
ORDO_DEVICE void gemm_put_pairs(const float (&d)[N], const gemm_part &part)
{
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const int column = ordo_accumulator_column(threadIdx.x % 4, i), r = i / 2 % 2;
        uint16_t *const at = (uint16_t *)(part.to + 8 * r * part.row_bytes) + column;
        const uint32_t pair = pack_pair<F16>(d[i], d[i + 1]);
        if (8 * r < part.rows && column + 1 < part.columns)
            *(uint32_t *)at = pair;
        if (8 * r < part.rows && column + 1 == part.columns)
            *at = (uint16_t)pair;
    }
}

template <bool F16, int N>
ORDO_DEVICE void gemm_put(const float (&d)[N], const ordo_gemm_args &args, const gemm_part &part,
                          int row, int column, uint32_t out)
{
    if constexpr (N % 32 == 0) /* whole tensor stores */
        if (args.end.n % 8 == 0) {
            gemm_put_halves<F16>(d, &args.c, row, column, out);
            return;
        }
    gemm_put_pairs<F16>(d, part);
}

/* Adds what C holds, or stores. */
template <bool ADD, int N> ORDO_DEVICE void gemm_put_floats(float (&d)[N], const gemm_part &part)
{
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const int column = ordo_accumulator_column(quad, i), r = i / 2 % 2;
        float *const at = (float *)(part.to + 8 * r * part.row_bytes) + column;
        const bool row = 8 * r < part.rows, both = row && column + 1 < part.columns;
        const bool one = row && column + 1 == part.columns;
        if (ADD) {
            float2 c = make_float2(0.0f, 0.0f);
            if (both)
                c = *(const float2 *)at;
            if (one)
                c.x = *at;
            d[i] = __fadd_rn(c.x, d[i]);
            d[i + 1] = __fadd_rn(c.y, d[i + 1]);
        } else {
            if (both)
                *(float2 *)at = make_float2(d[i], d[i + 1]);
            if (one)
                *at = d[i];
        }
    }
}

/* Ends the sums of this warpgroup's 64 rows from `row` on. */
template <int N>
ORDO_DEVICE void gemm_store(float (&d)[N], const ordo_gemm_args &args, int row, int column,
                            int section, uint32_t out)
{
    const ordo_gemm_end &end = args.end;
    const int own = row + ordo_accumulator_row(threadIdx.x % 128, 0);
    const gemm_part part = { end.c + section * end.sections + own * end.c_bytes +
                                 (int64_t)column * (end.out == ORDO_F32 ? 4 : 2),
                             end.c_bytes, end.m - own, end.n - column };
    if (end.bias)
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int x = ordo_accumulator_column(threadIdx.x % 4, i);
            if (x < part.columns)
                d[i] = __fadd_rn(d[i], gemm_value(end.bias, end.out, column + x));
        }
    const int first = row + threadIdx.x / 32 % 4 * 16;
    if (end.add)
        gemm_put_floats<true>(d, part);
    if (end.out == ORDO_F32)
        gemm_put_floats<false>(d, part);
    else if (end.out == ORDO_F16)
        gemm_put<true>(d, args, part, first, column, out);
    else
        gemm_put<false>(d, args, part, first, column, out);
}

#endif
