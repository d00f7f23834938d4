/* tile/put_rows.h: accumulators of a warpgroup to rows in global memory, without shared memory.
 */
#ifndef CUDA_TILE_PUT_ROWS_H
#define CUDA_TILE_PUT_ROWS_H

#include "cuda/pass/pass.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/ptx.h"

/* Four threads hold a 4 x 4 matrix by rows; afterwards by columns. */
ORDO_DEVICE void quad_transpose(uint32_t (&w)[4], int quad)
{
#pragma unroll
    for (int d = 1; d <= 2; d *= 2)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & d)) {
                const bool upper = quad & d;
                const uint32_t got = __shfl_xor_sync(~0u, upper ? w[i] : w[i + d], d);
                w[i] = upper ? got : w[i];
                w[i + d] = upper ? w[i + d] : got;
            }
}

/* Scales and stores the first `rows` rows of this warpgroup's 64 x 2 N accumulators, 64 bytes per
 * quad; `scale` of a thread's two rows. Returns nonzero if any value written is not finite. */
template <bool F16, int N>
ORDO_DEVICE uint32_t put_rows(const float (&d)[N], const float (&scale)[2], char *to,
                              int64_t row_bytes, int rows, int columns)
{
    const int quad = threadIdx.x % 4, row0 = ordo_accumulator_row(threadIdx.x % 128, 0);
    char *const at = to + row0 * row_bytes + 16 * quad;
    uint32_t taint = 0;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int g = 0; g < N / 16; g++) {
            uint32_t w[4];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int i = 16 * g + 4 * c + 2 * r;
                w[c] = pack_pair<F16>(d[i] * scale[r], d[i + 1] * scale[r]);
            }
            quad_transpose(w, quad);
            if (row0 + 8 * r < rows && 32 * g + 8 * quad < columns) {
                *(uint4 *)(at + 8 * r * row_bytes + 64 * g) = make_uint4(w[0], w[1], w[2], w[3]);
#pragma unroll
                for (int c = 0; c < 4; c++)
                    taint = not_finite<F16>(taint, w[c]);
            }
        }
    return taint;
}

/* Address of a row. */
ORDO_DEVICE char *row_address(const ordo_cuda_tensor &x, int sequence, int row, int head)
{
    return (char *)x.data + 2 * (sequence * x.sequence + row * x.row + head * x.head);
}

#endif
