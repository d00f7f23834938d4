/* sm90/zero_rows.h: zeros in those rows of a loaded tile that lie beyond its sequence: padding,
 * or rows of the next sequence. They are only ever multiplied by zero, but a NaN there would
 * spread.
 *
 * Every consumer warpgroup does it before its own products read the tile: all write the same zeros,
 * so none waits for another. */
#ifndef CUDA_SM90_ZERO_ROWS_H
#define CUDA_SM90_ZERO_ROWS_H

#include "cuda/sm90/ptx.h"
#include "cuda/tile/swizzle.h"

/* Rows `valid` .. rows - 1 of a tile of `panels` panels, by the 128 threads of a warpgroup that
 * meet at `barrier`. A line of a panel stays itself under the swizzle. */
ORDO_DEVICE void zero_rows(uint32_t tile, int rows, int panels, int valid, int thread, int barrier)
{
    enum { CHUNKS = ORDO_LINE_BYTES / 16 };
    const int bad = rows - valid, count = bad * panels * CHUNKS;
#pragma unroll 1 /* rarely run: keep the code small */
    for (int x = thread % 128; x < count; x += 128) {
        const int line = x / CHUNKS;
        store_shared4(tile + (uint32_t)(line / bad * rows + valid + line % bad) * ORDO_LINE_BYTES +
                          (uint32_t)(x % CHUNKS) * 16,
                      0.0f, 0.0f, 0.0f, 0.0f);
    }
    fence_shared_to_async();
    named_sync((uint32_t)barrier, 128);
}

#endif
