/* ops/dropout.cu: keep bits on the device: one pass over the bits of the threshold combines Philox
 * words into the keep bits of 32 columns at once. Integers only; base/keep.h is the definition.
 *
 * A lane makes the words of rows r and r + 8 of a block of 16 x 128, which are adjacent in storage.
 * The threshold's lowest bits that are 0 leave nothing of the words drawn for them. There is a loop
 * for each threshold of a usual p, where one instruction combines two words, and two for any other.
 * With seven rounds usual ones have a kernel each: among other loops one begins later by half a
 * microsecond. */
#include <cuda_runtime.h>

#include "cuda/ops/dropout.h"
#include "cuda/ops/keep_words.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/ptx.h"

enum { PIECE = 64 }; /* blocks side by side that a warp makes, at most */

typedef struct bits_args {
    ordo_keep keep;
    const uint64_t *seed_ptr, *offset_ptr;
    uint2 *words;
    uint32_t units;        /* pieces of all lines of blocks */
    uint32_t wide, pieces; /* blocks of a piece, pieces of a line */
    bool upwards;          /* the last line of a head comes first */
    uint32_t bh, bh_step, heads, down, across, row, block;
    int32_t low, high;
    uint32_t loop; /* which: loops[] */
    ordo_sliced sliced;
} bits_args;

/* ---- words ---- */

/* What ops/keep_words.h reads, in registers, or each word would compute it again. */
template <int ROUNDS> struct round_keys {
    uint32_t site, head;      /* with the keys that they meet */
    uint32_t key[2 * ROUNDS]; /* two per round */
    uint32_t row;             /* what a row's number is mixed with in round 0 */

    __device__ round_keys(const ordo_keep &keep, uint32_t bh)
    {
        const uint64_t product = (uint64_t)ORDO_PHILOX_M1 * bh;
#pragma unroll
        for (uint32_t r = 0; r < ROUNDS; r++) {
            key[2 * r] = (uint32_t)keep.seed + r * ORDO_PHILOX_W0;
            key[2 * r + 1] = (uint32_t)(keep.seed >> 32) + r * ORDO_PHILOX_W1;
            if (r >= 2)
                asm volatile("" : "+r"(key[2 * r]), "+r"(key[2 * r + 1]));
        }
        row = (uint32_t)(product >> 32) ^ key[0];
        site = (uint32_t)keep.offset ^ key[1];
        head = (uint32_t)product ^ key[2];
        asm volatile("" : "+r"(site), "+r"(head));
    }

    template <uint32_t M> static __device__ __forceinline__ uint64_t product(uint32_t x)
    {
        return (uint64_t)M * x;
    }
};

/* ---- kernels ---- */

struct piece {
    uint32_t bh, row, first, end; /* blocks first .. end - 1 of the head's line */
    uint2 *words;                 /* this lane's, in block 0 of the line */
};

ORDO_DEVICE piece piece_at(const bits_args &args, uint32_t unit, uint32_t lane)
{
    const uint32_t group = unit / args.pieces, nth = unit % args.pieces;
    const uint32_t head = group / args.down, sequence = head / args.heads;
    const uint32_t line = args.upwards ? args.down - 1 - group % args.down : group % args.down;
    /* Rows and columns stay below 2^30, so that no sum wraps. */
    const int32_t first_row = (int32_t)(line * ORDO_KEEP_ROWS);
    const int32_t from = max(first_row + args.low, 0);
    const int32_t last = first_row + ORDO_KEEP_ROWS - 1 + args.high;
    piece x;
    x.bh = args.bh + sequence * args.bh_step + head % args.heads;
    x.row = args.row + line * ORDO_KEEP_ROWS + lane / 4;
    x.first = max(nth * args.wide, (uint32_t)from / ORDO_KEEP_COLS);
    x.end = min(nth * args.wide + args.wide, args.across);
    x.end = last < 0 ? 0 : min(x.end, (uint32_t)last / ORDO_KEEP_COLS + 1);
    x.words = args.words + ((uint64_t)head * args.down + line) * args.across * 32 + lane;
    return x;
}

/* The blocks of a piece, by a loop for thresholds of WORDS bits. */
template <int ROUNDS, int WORDS, uint32_t THRESHOLD>
ORDO_DEVICE void make_piece(const bits_args &args, const round_keys<ROUNDS> &keys, const piece &x)
{
    const uint32_t quad = threadIdx.x % 4;
    const row_product rows[2] = { product_of(keys, x.row, quad),
                                  product_of(keys, x.row + 8, quad) };
    uint2 *to = x.words + x.first * 32;
    uint32_t place = sliced_place(args.sliced, args.block + x.first);
    const auto word = [&](row_product own) {
        return sliced_word_at<ROUNDS, WORDS, THRESHOLD>(args.sliced, keys, own, place);
    };
#pragma unroll 2
    for (uint32_t at = x.first; at < x.end; at++, to += 32, place += args.sliced.draws)
        *to = { word(rows[0]), word(rows[1]) };
}

/* Thresholds that have a loop, without their lowest zeros: of p = 0.05, 0.1, 0.15, 0.17, 0.2, 0.25,
 * 0.3 and 0.5 in 8 bits, and 0.1 in 4; the last two are for any. */
#define USUAL_LOOPS(LOOP)                                                                          \
    LOOP(8, 243)                                                                                   \
    LOOP(7, 115)                                                                                   \
    LOOP(7, 109) LOOP(6, 53) LOOP(8, 205) LOOP(2, 3) LOOP(8, 179) LOOP(1, 1)
#define OTHER_LOOPS(LOOP) LOOP(3, 7) LOOP(4, 0) LOOP(8, 0)

#define NUMBER_OF(WORDS, THRESHOLD) LOOP_##WORDS##_##THRESHOLD,
enum { USUAL_LOOPS(NUMBER_OF) OTHER_LOOPS(NUMBER_OF) ANY_LOOP };

/* LOOP: the one that the kernel has; ANY_LOOP: all of them. */
template <int ROUNDS, int LOOP>
static __global__ void __launch_bounds__(128, 8)
    sliced_kernel(const __grid_constant__ bits_args args)
{
    const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    const ordo_keep keep = keep_now(args);
    uint32_t unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; unit < args.units; unit += warps) {
        const piece x = piece_at(args, unit, lane);
        const round_keys<ROUNDS> keys(keep, x.bh);
        switch (LOOP == ANY_LOOP ? args.loop : LOOP) {
#define CASE_OF(WORDS, THRESHOLD)                                                                  \
    case LOOP_##WORDS##_##THRESHOLD: make_piece<ROUNDS, WORDS, THRESHOLD>(args, keys, x); break;
            USUAL_LOOPS(CASE_OF)
            OTHER_LOOPS(CASE_OF)
        }
    }
}

/* Every rounds, bits, threshold and keying, by the definition itself. */
static __global__ void __launch_bounds__(128, 8)
    defined_kernel(const __grid_constant__ bits_args args)
{
    const uint32_t lane = threadIdx.x % 32, quad = lane % 4, warps = gridDim.x * (blockDim.x / 32);
    const ordo_keep keep = keep_now(args);
    uint32_t unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; unit < args.units; unit += warps) {
        const piece x = piece_at(args, unit, lane);
        for (uint32_t at = x.first; at < x.end; at++)
            x.words[at * 32] = { ordo_keep_word(&keep, x.bh, x.row, args.block + at, quad),
                                 ordo_keep_word(&keep, x.bh, x.row + 8, args.block + at, quad) };
    }
}

/* ---- sequences whose lengths only the device knows ---- */

ORDO_DEVICE uint32_t word_of(const ordo_keep &keep, uint32_t bh, uint32_t row, uint32_t block,
                             uint32_t quad)
{
    if (keep.threshold >> keep.bits) /* keep all */
        return ~0u;
    return keep.keying == ORDO_KEYING_FA2 ? ordo_keep_word_fa2(&keep, bh, row, block, quad)
                                          : keep_inside(keep, bh, row, block, quad);
}

/* The last sequence that begins at or before a block. */
ORDO_DEVICE int32_t sequence_of(const ordo_cuda_bits &bits, int64_t block)
{
    int32_t low = 0, high = bits.sequences;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (bits.table[middle].keep <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A block of one warp makes PIECE blocks of bits that follow each other in storage, of whatever
 * sequences. */
static __global__ void __launch_bounds__(32)
    ragged_kernel(const __grid_constant__ ordo_cuda_bits bits)
{
    const uint32_t lane = threadIdx.x, quad = lane % 4;
    const int64_t total = bits.table[bits.sequences].keep;
    const int64_t first = (int64_t)blockIdx.x * PIECE, end = min(first + PIECE, total);
    const ordo_keep keep = keep_now(bits);
    int64_t next = 0; /* where the sequence ends */
    ordo_cuda_sequence s = {};
    for (int64_t at = first; at < end; at++) {
        if (at == first || at >= next) {
            const int32_t b = sequence_of(bits, at);
            s = bits.table[b];
            next = bits.table[b + 1].keep;
        }
        const int64_t head = (at - s.keep) / s.keep_head, here = (at - s.keep) % s.keep_head;
        const uint32_t down = (uint32_t)(here / s.keep_across);
        const uint32_t across = (uint32_t)(here % s.keep_across);
        const uint32_t bh = s.id * bits.bh_step + bits.head0 + (uint32_t)head;
        const uint32_t row = bits.row + down * ORDO_KEEP_ROWS + lane / 4;
        ((uint2 *)bits.words)[at * 32 + lane] = { word_of(keep, bh, row, bits.block + across, quad),
                                                  word_of(keep, bh, row + 8, bits.block + across,
                                                          quad) };
    }
}

static ordo_status launch_ragged(const ordo_cuda_bits *bits)
{
    ordo_cuda_pass pass = {}; /* what makes a table */
    pass.layout = bits->layout;
    pass.ragged = bits->ragged;
    pass.run.kv_heads = bits->heads;
    pass.run.group_heads = 1;
    pass.run.band.q_len = bits->q_len;
    pass.run.band.kv_len = bits->kv_len;
    pass.batch.sequences = bits->sequences;
    pass.q_rows = bits->q_rows;
    pass.kv_rows = bits->kv_rows;
    pass.table = bits->table;
    pass.stream = bits->stream;
    CUDA_TRY(ordo_cuda_sequences(&pass, 0));
    const int64_t warps = (bits->most + PIECE - 1) / PIECE;
    if (warps == 0)
        return ORDO_OK;
    ragged_kernel<<<(unsigned)warps, 32, 0, (cudaStream_t)bits->stream>>>(*bits);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

/* ---- which ---- */

typedef void (*bits_kernel)(const bits_args args);

/* sliced_kernel and its loop for keying ordo with few words per keep word; else defined_kernel. */
static bits_kernel choose(const ordo_keep *keep, bits_args *args)
{
    static const struct {
        int words;
        uint32_t threshold; /* 0: any */
        bits_kernel kernel; /* with seven rounds */
    } loops[] = {
#define USUAL_ROW(WORDS, THRESHOLD)                                                                \
    { WORDS, THRESHOLD, sliced_kernel<7, LOOP_##WORDS##_##THRESHOLD> },
#define OTHER_ROW(WORDS, THRESHOLD) { WORDS, THRESHOLD, sliced_kernel<7, ANY_LOOP> },
        USUAL_LOOPS(USUAL_ROW) OTHER_LOOPS(OTHER_ROW)
    };
    int zeros = 0;
    while (!(keep->threshold >> zeros & 1))
        zeros++;
    const int words = keep->bits - zeros;
    const bool rounds = keep->rounds == 7 || keep->rounds == 10;
    if (keep->keying != ORDO_KEYING_ORDO || keep->bits % 4 || words > ORDO_SLICED_WORDS || !rounds)
        return defined_kernel;
    while (loops[args->loop].threshold ? loops[args->loop].words != words ||
                                             loops[args->loop].threshold != keep->threshold >> zeros
                                       : loops[args->loop].words < words)
        args->loop++;
    args->sliced.draws = (uint32_t)(keep->bits + 3) / 4;
    args->sliced.first_draw = args->sliced.draws - (uint32_t)(loops[args->loop].words + 3) / 4;
    for (int i = 0; i < keep->bits && i < ORDO_SLICED_WORDS; i++)
        args->sliced.select[ORDO_SLICED_WORDS - 1 - i] =
            keep->threshold >> (keep->bits - 1 - i) & 1 ? ~0u : 0;
    return keep->rounds == 7 ? loops[args->loop].kernel : sliced_kernel<10, ANY_LOOP>;
}

/* Where a band leaves rows different numbers of blocks, long lines come first, the longest in two
 * pieces. */
static bits_args arguments(const ordo_cuda_bits *bits)
{
    bits_args args = {};
    args.keep = bits->keep;
    args.seed_ptr = bits->seed_ptr;
    args.offset_ptr = bits->offset_ptr;
    args.words = (uint2 *)bits->words;
    args.bh = bits->bh;
    args.bh_step = bits->bh_step;
    args.heads = (uint32_t)bits->heads;
    args.down = (uint32_t)bits->down;
    args.across = (uint32_t)bits->across;
    args.wide = bits->visible_only ? PIECE / 2 : PIECE;
    args.upwards = bits->visible_only && args.across >= PIECE / 2;
    args.pieces = (args.across + args.wide - 1) / args.wide;
    args.units = (uint32_t)bits->sequences * args.heads * args.down * args.pieces;
    args.row = bits->row;
    args.block = bits->block;
    args.low = bits->visible_only ? bits->low : -ORDO_BAND_OPEN;
    args.high = bits->visible_only ? bits->high : ORDO_BAND_OPEN;
    return args;
}

ordo_status ordo_cuda_dropout(const ordo_cuda_bits *bits)
{
    if (bits->table)
        return launch_ragged(bits);
    const cudaStream_t stream = (cudaStream_t)bits->stream;
    const size_t blocks = (size_t)bits->sequences * bits->heads * bits->down * bits->across;
    if (blocks == 0)
        return ORDO_OK;
    if (bits->keep.threshold >> bits->keep.bits) { /* keep all */
        CUDA_CALL(cudaMemsetAsync(bits->words, 0xff, blocks * 4 * ORDO_KEEP_WORDS, stream));
        return ORDO_OK;
    }
    bits_args args = arguments(bits);
    const bits_kernel kernel = choose(&bits->keep, &args);
    const uint32_t grid = bits->grid_blocks ? bits->grid_blocks : args.units;
    kernel<<<grid, bits->grid_threads ? bits->grid_threads : 32, 0, stream>>>(args);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}
