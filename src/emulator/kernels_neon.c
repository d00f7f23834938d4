/* kernels_neon.c: the emulator's kernels for 64-bit ARM. */
#if defined(__aarch64__)

#include <arm_neon.h>
#include <stdbool.h>

#define LANES 4

typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vu;
typedef int16x8_t vs;

static inline vs larger(vs a, vs b)
{
    return vmaxq_s16(a, b);
}

static inline vs narrow(vi a, vi b)
{
    return vcombine_s16(vmovn_s32(a), vmovn_s32(b));
}

static inline vi to_integer(vf a)
{
    return vcvtq_s32_f32(a);
}

static inline vi magnitude(vi a)
{
    return vabsq_s32(a);
}

/* Without the bit below the last one that fits, and perhaps others below it, nothing rounds up: if
 * the size has more than 24 bits, size >> 24 begins with that bit. */
static inline vf to_float(vi size, vi total)
{
    const vu bits = vreinterpretq_u32_s32(size);
    const vf exact = vcvtq_f32_u32(vbicq_u32(bits, vshrq_n_u32(bits, 24)));
    return vbslq_f32(vdupq_n_u32(0x80000000u), vreinterpretq_f32_s32(total), exact);
}

static inline vu settled(vu a)
{
    __asm__("" : "+w"(a));
    return a;
}

static inline bool any(vi a)
{
    return vmaxvq_u32(vreinterpretq_u32_s32(a)) != 0;
}

static inline vi from_table(const int32_t *table, vi index)
{
    vi y = vdupq_n_s32(table[vgetq_lane_s32(index, 0)]);
    y = vld1q_lane_s32(table + vgetq_lane_s32(index, 1), y, 1);
    y = vld1q_lane_s32(table + vgetq_lane_s32(index, 2), y, 2);
    return vld1q_lane_s32(table + vgetq_lane_s32(index, 3), y, 3);
}

static inline vf from_half(const uint16_t *from)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

static inline void to_half(uint16_t *to, vf a)
{
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

#include "emulator/kernels_body.h"

const ordo_emulator_kernels ordo_emulator_kernels_neon = EMULATOR_KERNELS("neon");

#else
typedef int ordo_no_emulator_neon; /* not this machine */
#endif
