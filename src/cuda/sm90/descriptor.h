/* sm90/descriptor.h: descriptors of tiles (tile/swizzle.h) for wgmma, in units of 16 bytes. Plain
 * C, shared by kernels and tests. */
#ifndef CUDA_SM90_DESCRIPTOR_H
#define CUDA_SM90_DESCRIPTOR_H

#include <stdint.h>

#include "base/hd.h"

/* Swizzle of 128 bytes; groups of eight lines 1024 bytes apart. */
enum { ORDO_DESCRIPTOR_HIGH = 0x40000040 };

/* Low word: start, and the distance of panels (read only by rows, where N > 64). */
ORDO_HD uint32_t ordo_descriptor_low(uint32_t address, uint32_t panel_bytes)
{
    return address >> 4 | panel_bytes >> 4 << 16;
}

/* Added to the low word for slice k of 16: by columns, by rows. */
ORDO_HD uint32_t ordo_slice_by_columns(int rows, int k)
{
    return (uint32_t)(k / 4 * rows * 8 + k % 4 * 2);
}

ORDO_HD uint32_t ordo_slice_by_rows(int k)
{
    return (uint32_t)k * 128;
}

#endif
