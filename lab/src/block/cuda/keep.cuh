/* keep.cuh: keep bits by warps that have little room: 32 registers per thread. Round keys and
 * thresholds are constants of the launch, since registers for them are missing.
 *
 * Beside a tensor product a wide integer multiplication takes 5.5 of its cycles, and f64 takes
 * none. So sliced bits come in two forms, with the upper halves of products by f64 and by integers:
 * the same words, the second one with fewer instructions. */
#ifndef BLOCK_CUDA_KEEP_CUH
#define BLOCK_CUDA_KEEP_CUH

#include "block/cuda/module.h"
#include "cuda/ops/keep_words.h"

enum {
    MOST_ROUNDS = 10,
    SLICED_BLOCKS = 8, /* of a line, in a unit */
    COMPARE_WORDS = 8  /* of a lane, in a unit */
};

typedef struct keep_args {
    uint32_t key[2 * MOST_ROUNDS];
    uint32_t offset, units;
    uint32_t *words, *drawn; /* how many units have been taken */
    /* generator sliced: lines of 16 rows of every head */
    ordo_sliced sliced;
    uint32_t pieces, down, across;
    bool causal;
    /* generator compare */
    uint64_t count; /* words */
    uint32_t limit;
} keep_args;

static __device__ __forceinline__ uint64_t now(void)
{
    uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}

static __device__ __forceinline__ uint32_t here(void)
{
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

/* ---- 32 bits per element, compared one by one ---- */

/* Word number `w` in storage; `key`: two per round. */
template <int ROUNDS>
static __device__ __forceinline__ uint32_t compare_word(const uint32_t *key, uint32_t offset,
                                                        uint32_t limit, uint64_t w)
{
    uint32_t kept = 0;
#pragma unroll
    for (uint32_t d = 0; d < 8; d++) {
        const uint64_t counter = w * 8 + d;
        uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = offset;
        uint32_t c3 = 0;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            const uint64_t p0 = (uint64_t)ORDO_PHILOX_M0 * c0;
            const uint64_t p1 = (uint64_t)ORDO_PHILOX_M1 * c2;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key[2 * r];
            c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key[2 * r + 1];
            c3 = (uint32_t)p0;
        }
        const uint32_t draws[4] = { c0, c1, c2, c3 };
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            kept |= (uint32_t)(draws[i] < limit) << (4 * d + i);
    }
    return kept;
}

template <int ROUNDS> struct compare_maker {
    static __device__ __forceinline__ void make(const keep_args &keep, uint32_t unit)
    {
        const uint64_t first = (uint64_t)unit * (32 * COMPARE_WORDS) + threadIdx.x % 32;
        const uint64_t end = min(first + 32 * COMPARE_WORDS, keep.count);
#pragma unroll 1
        for (uint64_t w = first; w < end; w += 32)
            keep.words[w] = compare_word<ROUNDS>(keep.key, keep.offset, keep.limit, w);
    }
};

/* ---- ordo's own, 8 bits per element ---- */

/* 2^52 + x, of which `d` has the upper half already. */
static __device__ __forceinline__ void set_low(double &d, uint32_t x)
{
    asm("{.reg .b32 low, high; mov.b64 {low, high}, %0; mov.b64 %0, {%1, high};}"
        : "+d"(d)
        : "r"(x));
}

/* The upper half of M x, exactly, of that number: tile/keep_inside.h. */
template <uint32_t M> static __device__ __forceinline__ uint32_t high_of(double d)
{
    const double from = (double)(0x100000000 - M) * 4503599627370496.0; /* 2^84 - M 2^52 */
    return (uint32_t)__double2loint(__fma_rz((double)M, d, from));
}

/* Keys as constants, and what all words of a head share (ops/keep_words.h). */
struct given_keys {
    uint32_t site, head, row;
    const uint32_t *key;

    template <uint32_t M> static __device__ __forceinline__ uint64_t product(uint32_t x)
    {
        return (uint64_t)M * x;
    }
};

/* Where the words of a unit are. */
struct sliced_unit {
    uint32_t first, end; /* blocks of the line */
    uint2 *words;        /* this lane's, in block `first` */
    given_keys keys;
    row_product rows[2];

    __device__ __forceinline__ sliced_unit(const keep_args &keep, uint32_t unit)
    {
        const uint32_t lane = threadIdx.x % 32, group = unit / keep.pieces;
        const uint32_t line = group % keep.down, bh = group / keep.down;
        const uint32_t visible = keep.causal ? line * ORDO_KEEP_ROWS / ORDO_KEEP_COLS + 1 : ~0u;
        const uint64_t product = (uint64_t)ORDO_PHILOX_M1 * bh;
        first = unit % keep.pieces * SLICED_BLOCKS;
        end = min(min(first + SLICED_BLOCKS, keep.across), visible);
        words = (uint2 *)keep.words + ((uint64_t)group * keep.across + first) * 32 + lane;
        keys = { keep.offset ^ keep.key[1], (uint32_t)product ^ keep.key[2],
                 (uint32_t)(product >> 32) ^ keep.key[0], keep.key };
        for (uint32_t r = 0; r < 2; r++)
            rows[r] = product_of(keys, line * ORDO_KEEP_ROWS + lane / 4 + 8 * r, lane % 4);
    }
};

template <int ROUNDS> struct sliced_maker {
    static __device__ __forceinline__ void make(const keep_args &keep, uint32_t unit)
    {
        sliced_unit u(keep, unit);
#pragma unroll 1
        for (uint32_t at = u.first; at < u.end; at++, u.words += 32) {
            const uint32_t place = sliced_place(keep.sliced, at);
            *u.words = { sliced_word_at<ROUNDS, 8, 0>(keep.sliced, u.keys, u.rows[0], place),
                         sliced_word_at<ROUNDS, 8, 0>(keep.sliced, u.keys, u.rows[1], place) };
        }
    }
};

/* One row at a time, through the same two numbers: fewest registers and moves. */
template <int ROUNDS> struct sliced_by_f64 {
    static __device__ __forceinline__ void make(const keep_args &keep, uint32_t unit)
    {
        sliced_unit u(keep, unit);
        /* 2^52 in a register that the compiler does not know: else it writes it for every product
         */
        const double start = __hiloint2double(__shfl_sync(~0u, 0x43300000, 0), 0);
        double x0 = start, x1 = start;
#pragma unroll 1
        for (uint32_t at = u.first; at < u.end; at++, u.words += 32) {
            uint32_t kept[2] = { 0, 0 };
#pragma unroll
            for (uint32_t draw = 0; draw < 2; draw++) {
                const uint64_t one = (uint64_t)ORDO_PHILOX_M0 * (2 * at + draw);
                const uint64_t two =
                    (uint64_t)ORDO_PHILOX_M1 * ((uint32_t)(one >> 32) ^ u.keys.site);
                const uint64_t three =
                    (uint64_t)ORDO_PHILOX_M0 * ((uint32_t)(two >> 32) ^ u.keys.head);
#pragma unroll
                for (int r = 0; r < 2; r++)
                    kept[r] = compared(keep, u.rows[r], one, two, three, x0, x1, kept[r], draw);
            }
            *u.words = { kept[0], kept[1] };
        }
    }

    /* A draw of a row's word. Rounds 0 to 2 as pass/keep_tile.h divides them: three products are
     * those of all rows. */
    static __device__ __forceinline__ uint32_t compared(const keep_args &keep, row_product row,
                                                        uint64_t one, uint64_t two, uint64_t three,
                                                        double &x0, double &x1, uint32_t kept,
                                                        uint32_t draw)
    {
        const uint32_t other = row.high ^ (uint32_t)one;
        set_low(x1, other);
        uint32_t w[4] = { high_of<ORDO_PHILOX_M1>(x1) ^ (uint32_t)two ^ keep.key[4],
                          ORDO_PHILOX_M1 * other, (uint32_t)(three >> 32) ^ row.low,
                          (uint32_t)three };
#pragma unroll
        for (int r = 3; r < ROUNDS; r++) {
            set_low(x0, w[0]);
            set_low(x1, w[2]);
            const uint32_t high0 = high_of<ORDO_PHILOX_M0>(x0);
            const uint32_t high1 = high_of<ORDO_PHILOX_M1>(x1);
            const uint32_t low0 = ORDO_PHILOX_M0 * w[0], low1 = ORDO_PHILOX_M1 * w[2];
            w[0] = high1 ^ w[1] ^ keep.key[2 * r];
            w[1] = low1;
            w[2] = high0 ^ w[3] ^ keep.key[2 * r + 1];
            w[3] = low0;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) /* kept | w or kept & w */
            kept = (kept & w[i]) | ((kept | w[i]) & keep.sliced.select[4 * draw + i]);
        return kept;
    }
};

/* ---- units ---- */

/* Makes units until none is left, and notes when and where, if there are stamps. `warp` counts over
 * the grid. */
template <class MAKER>
static __device__ __forceinline__ void make_units(const keep_args &keep, uint32_t warp,
                                                  const block_stamps &stamps)
{
    const bool leader = threadIdx.x % 32 == 0;
    if (stamps.warps && leader)
        stamps.warps[warp].begin = now();
    for (;;) {
        uint32_t unit = keep.units;
        if (leader)
            unit = atomicAdd(keep.drawn, 1);
        unit = __shfl_sync(~0u, unit, 0);
        if (unit >= keep.units)
            break;
        MAKER::make(keep, unit);
    }
    if (stamps.warps && leader) {
        stamps.warps[warp].end = now();
        stamps.warps[warp].sm = here();
    }
}

/* room.cu */
ordo_status block_cuda_keep(const block_keep *keep, block_keep_part part,
                            const block_stamps *stamps, void *stream, char *why, size_t n);
ordo_status block_cuda_attend(const ordo_cuda_pass *pass, ordo_generator generator, bool backward,
                              char *why, size_t n);
ordo_status block_cuda_multiply_beside(const block_product *p, const block_stamps *stamps,
                                       void *stream, char *why, size_t n);

#endif
