/* calibrate_rates.cuh: kernels that show what one multiprocessor issues: instructions of one kind
 * or two, shared memory, and keep bits as ordo makes them. */
#ifndef BENCH_CALIBRATE_RATES_CUH
#define BENCH_CALIBRATE_RATES_CUH

#include "base/philox.h"
#include "calibrate.cuh"

/* ---- instructions: CHAINS independent chains a thread, SPECIAL_THREADS threads an SM ---- */

typedef enum lane_kind {
    LANE_FFMA,
    LANE_LOP3,
    LANE_IMAD,
    LANE_WIDE,
    LANE_LOP3_FFMA, /* one of each: do they share a slot? */
    LANE_LOP3_IMAD,
    LANE_WIDE_LOP3 /* one wide multiplication and two XORs */
} lane_kind;

ORDO_DEVICE void lane_ffma(float *x, float a)
{
    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(*x) : "f"(a));
}
ORDO_DEVICE void lane_lop3(uint32_t *x, uint32_t a, uint32_t b)
{
    asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(*x) : "r"(a), "r"(b));
}
ORDO_DEVICE void lane_imad(uint32_t *x, uint32_t a, uint32_t b)
{
    asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(*x) : "r"(a), "r"(b));
}
/* Both halves of a product are needed, the low one here and the high one by the next chain, or the
 * compiler would take the cheaper multiplication that makes one of them. An XOR of the halves would
 * need both too, but takes as much of the shared slot as the multiplication: 30.2 a clock then. */
ORDO_DEVICE void lane_wide(uint64_t *x, uint64_t next)
{
    asm volatile("mul.wide.u32 %0, %1, %2;"
                 : "=l"(*x)
                 : "r"((uint32_t)*x), "r"((uint32_t)(next >> 32)));
}

/* Instructions of one step of a chain. */
template <lane_kind KIND> static double lane_steps(void)
{
    return KIND == LANE_WIDE_LOP3 ? 3 : KIND == LANE_LOP3_FFMA || KIND == LANE_LOP3_IMAD ? 2 : 1;
}

template <lane_kind KIND>
__global__ void __launch_bounds__(SPECIAL_THREADS, 1)
    lane_kernel(int rounds, uint32_t a, uint32_t b, stamp *out, uint32_t *sink)
{
    float f[CHAINS];
    uint32_t u[CHAINS], v[CHAINS];
    uint64_t w[CHAINS];
    for (int c = 0; c < CHAINS; c++) {
        f[c] = 0.001f * (float)(threadIdx.x + c);
        u[c] = mix(threadIdx.x * CHAINS + c);
        v[c] = mix(u[c]);
        w[c] = (uint64_t)u[c] << 32 | v[c];
    }
    const float scale = __uint_as_float(0x3f000000u | (a & 0xffffu));
    const stamp s = begin_stamp();
    /* Long bodies: the loop's own instructions take issue slots and logic lanes too. */
#pragma unroll 16
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++) {
            if (KIND == LANE_FFMA || KIND == LANE_LOP3_FFMA)
                lane_ffma(&f[c], scale);
            if (KIND == LANE_LOP3 || KIND == LANE_LOP3_FFMA || KIND == LANE_LOP3_IMAD ||
                KIND == LANE_WIDE_LOP3)
                lane_lop3(&u[c], a, b);
            if (KIND == LANE_IMAD || KIND == LANE_LOP3_IMAD)
                lane_imad(KIND == LANE_IMAD ? &u[c] : &v[c], a, b);
            if (KIND == LANE_WIDE || KIND == LANE_WIDE_LOP3)
                lane_wide(&w[c], w[(c + 1) % CHAINS]);
            if (KIND == LANE_WIDE_LOP3)
                lane_lop3(&v[c], a, b);
        }
    end_stamp(s, out);
    uint32_t sum = 0;
    for (int c = 0; c < CHAINS; c++)
        sum += __float_as_uint(f[c]) ^ u[c] ^ v[c] ^ (uint32_t)w[c] ^ (uint32_t)(w[c] >> 32);
    if (sum == 0x12345678u)
        *sink = sum;
}

/* ---- shared memory: loads of 16 bytes, no two lanes of a quarter in one bank ---- */

enum { SHARED_READ_BYTES = 64 * 1024, SHARED_UNROLL = 8 };

__global__ void __launch_bounds__(SPECIAL_THREADS, 1)
    shared_kernel(int rounds, stamp *out, uint32_t *sink)
{
    fill_shared(SHARED_READ_BYTES);
    uint32_t at = threadIdx.x * 16, seen = 0;
    const stamp s = begin_stamp();
#pragma unroll 1
    for (int round = 0; round < rounds; round++) {
        uint32_t x[SHARED_UNROLL][4];
#pragma unroll
        for (int u = 0; u < SHARED_UNROLL; u++)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[u][0]), "=r"(x[u][1]), "=r"(x[u][2]), "=r"(x[u][3])
                         : "r"(ORDO_SMEM_BASE +
                               ((at + u * SPECIAL_THREADS * 16) & (SHARED_READ_BYTES - 1))));
        at += 512;
#pragma unroll
        for (int u = 0; u < SHARED_UNROLL; u++)
            seen ^= x[u][0] ^ x[u][3];
    }
    end_stamp(s, out);
    if (seen == 0x12345678u)
        *sink = seen;
}

/* ---- keep bits ---- */

typedef struct draw_keys {
    uint32_t round[20];  /* two a round, made by the host */
    uint32_t select[16]; /* the bit-sliced chain's, from the threshold: 0 or all ones */
} draw_keys;

template <int ROUNDS>
ORDO_DEVICE ordo_philox_words philox_rounds(ordo_philox_words c, const draw_keys &keys)
{
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const uint64_t p0 = (uint64_t)ORDO_PHILOX_M0 * c.w[0];
        const uint64_t p1 = (uint64_t)ORDO_PHILOX_M1 * c.w[2];
        c.w[0] = (uint32_t)(p1 >> 32) ^ c.w[1] ^ keys.round[2 * r];
        c.w[1] = (uint32_t)p1;
        c.w[2] = (uint32_t)(p0 >> 32) ^ c.w[3] ^ keys.round[2 * r + 1];
        c.w[3] = (uint32_t)p0;
    }
    return c;
}

template <int ROUNDS, int BITS>
ORDO_DEVICE uint32_t sliced_word(const draw_keys &keys, uint32_t bh, uint32_t row, uint32_t block,
                                 uint32_t quad)
{
    enum { DRAWS = (BITS + 3) / 4 };
    uint32_t kept = 0;
#pragma unroll
    for (int d = 0; d < DRAWS; d++) {
        const ordo_philox_words counter = { { block * DRAWS + d, row * 4 + quad, bh, 7 } };
        const ordo_philox_words random = philox_rounds<ROUNDS>(counter, keys);
#pragma unroll
        for (int i = 0; i < 4 && 4 * d + i < BITS; i++) {
            const uint32_t select = keys.select[4 * d + i]; /* majority: OR if ones, AND if zeros */
            kept = (kept & random.w[i]) | (kept & select) | (random.w[i] & select);
        }
    }
    return kept;
}

/* A warp walks the column blocks of 16 rows of one head; lane-major words, as keep bits are stored.
 */
template <int ROUNDS, int BITS>
__global__ void __launch_bounds__(128, 16)
    sliced_kernel(uint2 *bits, const __grid_constant__ draw_keys keys, uint32_t strips,
                  uint32_t strips_a_head, uint32_t blocks)
{
    const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
    for (uint32_t u = (blockIdx.x * blockDim.x + threadIdx.x) / 32; u < strips; u += warps) {
        const uint32_t bh = u / strips_a_head, row = u % strips_a_head * 16 + lane / 4;
        uint2 *to = bits + (size_t)u * blocks * 32 + lane;
        for (uint32_t block = 0; block < blocks; block++) {
            const uint2 words = { sliced_word<ROUNDS, BITS>(keys, bh, row, block, lane % 4),
                                  sliced_word<ROUNDS, BITS>(keys, bh, row + 8, block, lane % 4) };
            to[(size_t)block * 32] = words;
        }
    }
}

/* One 32-bit draw an element, as arXiv 2410.07531 seems to: a word is 8 calls. For timing only; its
 * bits are not ordo's. */
template <int ROUNDS>
__global__ void __launch_bounds__(128, 16)
    compare_kernel(uint32_t *bits, const __grid_constant__ draw_keys keys, uint32_t threshold,
                   uint64_t words)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t w = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; w < words; w += step) {
        uint32_t kept = 0;
#pragma unroll
        for (int call = 0; call < 8; call++) {
            const uint64_t at = w * 8 + call;
            const ordo_philox_words counter = { { (uint32_t)at, (uint32_t)(at >> 32), 0, 7 } };
            const ordo_philox_words random = philox_rounds<ROUNDS>(counter, keys);
#pragma unroll
            for (int i = 0; i < 4; i++)
                kept |= random.w[i] < threshold ? 1u << (4 * call + i) : 0;
        }
        bits[w] = kept;
    }
}

__global__ void null_kernel(void)
{
}

#endif
