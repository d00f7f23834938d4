/* ops/seen.cu: packs element masks. A block makes one tile of 128 x 128 elements, a warp sixteen
 * rows of it: a ballot gives the word of a row and quad, whose bit each lane reads. */
#include "cuda/ops/seen.h"

#include "base/keep.h"
#include "cuda/support/launch.h"
#include "cuda/tile/ptx.h"
#include "ordo/blocks.h"

enum { WARPS = ORDO_BLOCK / ORDO_KEEP_ROWS, THREADS = 32 * WARPS };

/* The column of a tile whose bit in the word of quad 0 has this number. */
ORDO_DEVICE int32_t column_of(int32_t bit)
{
    return 16 * (7 - bit % 8) + bit / 16 * 8 + bit / 8 % 2;
}

/* Sixteen rows; whether all elements are seen that there are. */
ORDO_DEVICE bool pack_rows(const ordo_cuda_seen &seen, const unsigned char *from, int32_t row,
                           int32_t column, uint2 *to)
{
    const int32_t lane = threadIdx.x % 32;
    uint2 own = { 0, 0 };
    bool all = true;
#pragma unroll 4
    for (int32_t n = 0; n < ORDO_KEEP_ROWS; n++) {
#pragma unroll
        for (int32_t quad = 0; quad < 4; quad++) {
            const int32_t r = row + n, c = column + column_of(lane) + 2 * quad;
            const bool inside = r < seen.q_len && c < seen.kv_len;
            const bool bit = inside && from[r * seen.strides[2] + c * seen.strides[3]] != 0;
            const uint32_t word = __ballot_sync(~0u, bit);
            all = all && (bit || !inside);
            if (lane == n % 8 * 4 + quad)
                (n < 8 ? own.x : own.y) = word;
        }
    }
    to[lane] = own;
    return all;
}

static __global__ void __launch_bounds__(THREADS)
    pack_kernel(const __grid_constant__ ordo_cuda_seen seen)
{
    const int64_t across = (seen.kv_len + ORDO_BLOCK - 1) / ORDO_BLOCK;
    const int64_t down = (seen.q_len + ORDO_BLOCK - 1) / ORDO_BLOCK;
    const int64_t key = blockIdx.x % across, line = blockIdx.x / across;
    const int64_t mask = line / down, i = line % down;
    const unsigned char *const from =
        seen.elements + mask / seen.heads * seen.strides[0] + mask % seen.heads * seen.strides[1];
    const int32_t row = (int32_t)i * ORDO_BLOCK + threadIdx.x / 32 * ORDO_KEEP_ROWS;
    bool all = true;
    if (row < seen.q_len) {
        const int64_t first = mask * ordo_keep_blocks(seen.q_len, seen.kv_len);
        uint2 *const to =
            (uint2 *)(seen.bits + (first + row / ORDO_KEEP_ROWS * across + key) * ORDO_KEEP_WORDS);
        all = pack_rows(seen, from, row, (int32_t)key * ORDO_BLOCK, to);
    }
    const bool whole = __syncthreads_and(all) != 0;
    if (threadIdx.x == 0) {
        seen.key[blockIdx.x] = (int32_t)key | (whole ? ORDO_BLOCK_WHOLE : 0);
        if (key == 0)
            seen.start[line + mask] = (int32_t)(line * across);
        if (key == across - 1 && i == down - 1)
            seen.start[line + mask + 1] = (int32_t)((line + 1) * across);
    }
}

ordo_status ordo_cuda_pack_seen(const ordo_cuda_seen *seen)
{
    const int64_t tiles = (int64_t)seen->sequences * seen->heads *
                          ((seen->q_len + ORDO_BLOCK - 1) / ORDO_BLOCK) *
                          ((seen->kv_len + ORDO_BLOCK - 1) / ORDO_BLOCK);
    const ordo_cuda_grid grid = { (unsigned)tiles, THREADS, 0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch((const void *)pack_kernel, seen, grid, seen->stream);
}
