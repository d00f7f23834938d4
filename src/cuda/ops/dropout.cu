/* ops/dropout.cu: keep bits on the device: one pass over the bits of the threshold combines Philox
 * words into the keep bits of 32 columns at once. Integers only; base/keep.h is the definition.
 *
 * A lane makes the words of rows r and r + 8 of a block of 16 x 128, which are adjacent in storage.
 * Round keys are kernel parameters, which the XORs read at no cost, or registers if the seed is in
 * device memory; thresholds known at compile time let one instruction combine two words. */
#include <cuda_runtime.h>

#include "cuda/ops/dropout.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/ptx.h"

enum { MOST_ROUNDS = 10, MOST_BITS = 16, PIECE = 64 /* blocks side by side that a warp makes */ };

typedef struct bits_args {
    ordo_keep keep;
    const uint64_t *seed_ptr, *offset_ptr;
    uint2 *words;
    uint32_t units; /* pieces of all lines of blocks */
    uint32_t bh, bh_step, heads, down, across, pieces, row, block;
    int32_t low, high;
    uint32_t key[2 * MOST_ROUNDS]; /* of each round */
    uint32_t select[MOST_BITS];    /* all ones where the threshold has a bit */
} bits_args;

/* ---- words ---- */

/* Round keys from the parameters, or from a seed that only the device knows. */
struct given_keys {
    const bits_args &args;
    __host__ __device__ uint32_t at(int round, int half) const
    {
        return args.key[2 * round + half];
    }
};

struct computed_keys {
    uint32_t low, high;
    __host__ __device__ uint32_t at(int round, int half) const
    {
        return half ? high + (uint32_t)round * ORDO_PHILOX_W1
                    : low + (uint32_t)round * ORDO_PHILOX_W0;
    }
};

/* Computed once and held in registers. */
template <int ROUNDS> struct held_keys {
    uint32_t key[2 * ROUNDS];
    __device__ explicit held_keys(const computed_keys &from)
    {
#pragma unroll
        for (int i = 0; i < 2 * ROUNDS; i++) {
            key[i] = from.at(i / 2, i % 2);
            asm volatile("" : "+r"(key[i])); /* else every XOR computes its key again */
        }
    }
    __device__ uint32_t at(int round, int half) const
    {
        return key[2 * round + half];
    }
};

template <int ROUNDS, class KEYS>
ORDO_DEVICE ordo_philox_words philox(ordo_philox_words c, const KEYS &keys)
{
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const uint64_t p0 = (uint64_t)ORDO_PHILOX_M0 * c.w[0];
        const uint64_t p1 = (uint64_t)ORDO_PHILOX_M1 * c.w[2];
        c.w[0] = (uint32_t)(p1 >> 32) ^ c.w[1] ^ keys.at(r, 0);
        c.w[1] = (uint32_t)p1;
        c.w[2] = (uint32_t)(p0 >> 32) ^ c.w[3] ^ keys.at(r, 1);
        c.w[3] = (uint32_t)p0;
    }
    return c;
}

/* Keying ordo; THRESHOLD 0: whatever the parameters select. */
template <int ROUNDS, int BITS, uint32_t THRESHOLD, class KEYS>
ORDO_DEVICE uint32_t sliced_word(const bits_args &args, const KEYS &keys, uint32_t bh, uint32_t row,
                                 uint32_t block, uint32_t quad, uint32_t site)
{
    const uint32_t draws = (BITS + 3) / 4;
    uint32_t kept = 0;
#pragma unroll
    for (int bit = 0; bit < BITS; bit += 4) {
        const ordo_philox_words counter = { { block * draws + (uint32_t)bit / 4, row * 4 + quad, bh,
                                              site } };
        const ordo_philox_words random = philox<ROUNDS>(counter, keys);
#pragma unroll
        for (int i = 0; i < 4 && bit + i < BITS; i++) {
            const uint32_t w = random.w[i];
            if (THRESHOLD)
                kept = THRESHOLD >> (bit + i) & 1 ? kept | w : kept & w;
            else /* the majority of three: kept | w or kept & w */
                kept = (kept & w) | ((kept | w) & args.select[bit + i]);
        }
    }
    return kept;
}

/* ---- kernels ---- */

struct piece {
    uint32_t bh, row, first, end; /* blocks first .. end - 1 of the head's line */
    uint2 *words;                 /* of this lane, in block 0 of the line */
};

ORDO_DEVICE piece piece_at(const bits_args &args, uint32_t unit, uint32_t lane)
{
    const uint32_t line = unit / args.pieces, nth = unit % args.pieces;
    const uint32_t head = line / args.down, sequence = head / args.heads;
    piece x;
    x.bh = args.bh + sequence * args.bh_step + head % args.heads;
    x.row = args.row + line % args.down * ORDO_KEEP_ROWS + lane / 4;
    /* Rows and columns stay below 2^30, so that no sum wraps. */
    const int32_t first_row = (int32_t)(line % args.down * ORDO_KEEP_ROWS);
    const int32_t from = max(first_row + args.low, 0);
    const int32_t last = first_row + ORDO_KEEP_ROWS - 1 + args.high;
    x.first = max(nth * PIECE, (uint32_t)from / ORDO_KEEP_COLS);
    x.end = min(nth * PIECE + PIECE, args.across);
    x.end = last < 0 ? 0 : min(x.end, (uint32_t)last / ORDO_KEEP_COLS + 1);
    x.words = args.words + (uint64_t)line * args.across * 32 + lane;
    return x;
}

template <int ROUNDS, int BITS, uint32_t THRESHOLD, class KEYS>
ORDO_DEVICE void make_pieces(const bits_args &args, const KEYS &keys, uint32_t site)
{
    const uint32_t lane = threadIdx.x % 32, quad = lane % 4, warps = gridDim.x * (blockDim.x / 32);
    auto word = [&](uint32_t bh, uint32_t row, uint32_t block) {
        return sliced_word<ROUNDS, BITS, THRESHOLD>(args, keys, bh, row, block, quad, site);
    };
    uint32_t unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; unit < args.units; unit += warps) {
        const piece x = piece_at(args, unit, lane);
#pragma unroll 2
        for (uint32_t at = x.first; at < x.end; at++)
            x.words[at * 32] = { word(x.bh, x.row, args.block + at),
                                 word(x.bh, x.row + 8, args.block + at) };
    }
}

template <int ROUNDS, int BITS, uint32_t THRESHOLD, bool POINTERS>
static __global__ void __launch_bounds__(128, 8)
    sliced_kernel(const __grid_constant__ bits_args args)
{
    if (!POINTERS) {
        const given_keys keys = { args };
        make_pieces<ROUNDS, BITS, THRESHOLD>(args, keys, (uint32_t)args.keep.offset);
        return;
    }
    const uint64_t seed = args.seed_ptr ? *args.seed_ptr : args.keep.seed;
    const uint64_t offset = args.offset_ptr ? *args.offset_ptr : args.keep.offset;
    const held_keys<ROUNDS> keys({ (uint32_t)seed, (uint32_t)(seed >> 32) });
    make_pieces<ROUNDS, BITS, THRESHOLD>(args, keys, (uint32_t)offset);
}

/* Every rounds, bits, threshold and keying, by the definition itself. */
static __global__ void __launch_bounds__(128, 8)
    defined_kernel(const __grid_constant__ bits_args args)
{
    const uint32_t lane = threadIdx.x % 32, quad = lane % 4, warps = gridDim.x * (blockDim.x / 32);
    ordo_keep keep = args.keep;
    if (args.seed_ptr)
        keep.seed = *args.seed_ptr;
    if (args.offset_ptr)
        keep.offset = *args.offset_ptr;
    uint32_t unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; unit < args.units; unit += warps) {
        const piece x = piece_at(args, unit, lane);
        for (uint32_t at = x.first; at < x.end; at++)
            x.words[at * 32] = { ordo_keep_word(&keep, x.bh, x.row, args.block + at, quad),
                                 ordo_keep_word(&keep, x.bh, x.row + 8, args.block + at, quad) };
    }
}

/* ---- sequences whose lengths only the device knows ---- */

typedef struct ragged_args {
    ordo_keep keep;
    const uint64_t *seed_ptr, *offset_ptr;
    uint2 *words;
    const ordo_cuda_sequence *table;
    int32_t sequences;
    uint32_t heads_total, head0, row, block;
} ragged_args;

ORDO_DEVICE uint32_t word_of(const ordo_keep &keep, uint32_t bh, uint32_t row, uint32_t block,
                             uint32_t quad)
{
    if (keep.threshold >> keep.bits) /* keep all */
        return ~0u;
    return keep.keying == ORDO_KEYING_FA2 ? ordo_keep_word_fa2(&keep, bh, row, block, quad)
                                          : keep_inside(keep, bh, row, block, quad);
}

/* The last sequence that begins at or before a block. */
ORDO_DEVICE int32_t sequence_of(const ragged_args &args, int64_t block)
{
    int32_t low = 0, high = args.sequences;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (args.table[middle].keep <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A block of one warp makes PIECE blocks of bits that follow each other in storage, of whatever
 * sequences. */
static __global__ void __launch_bounds__(32) ragged_kernel(const __grid_constant__ ragged_args args)
{
    const uint32_t lane = threadIdx.x, quad = lane % 4;
    const int64_t total = args.table[args.sequences].keep;
    const int64_t first = (int64_t)blockIdx.x * PIECE, end = min(first + PIECE, total);
    ordo_keep keep = args.keep;
    if (args.seed_ptr)
        keep.seed = *args.seed_ptr;
    if (args.offset_ptr)
        keep.offset = *args.offset_ptr;
    int64_t next = 0; /* where the sequence ends */
    ordo_cuda_sequence s = {};
    for (int64_t at = first; at < end; at++) {
        if (at == first || at >= next) {
            const int32_t b = sequence_of(args, at);
            s = args.table[b];
            next = args.table[b + 1].keep;
        }
        const int64_t head = (at - s.keep) / s.keep_head, here = (at - s.keep) % s.keep_head;
        const uint32_t down = (uint32_t)(here / s.keep_across);
        const uint32_t across = (uint32_t)(here % s.keep_across);
        const uint32_t bh = s.id * args.heads_total + args.head0 + (uint32_t)head;
        const uint32_t row = args.row + down * ORDO_KEEP_ROWS + lane / 4;
        args.words[at * 32 + lane] = { word_of(keep, bh, row, args.block + across, quad),
                                       word_of(keep, bh, row + 8, args.block + across, quad) };
    }
}

static ordo_status launch_ragged(const ordo_cuda_bits *bits, char *why, size_t why_size)
{
    ordo_cuda_pass pass = {}; /* what makes a table */
    ragged_args args = {};
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
    CUDA_TRY(ordo_cuda_sequences(&pass, why, why_size));
    args.keep = bits->keep;
    args.seed_ptr = bits->seed_ptr;
    args.offset_ptr = bits->offset_ptr;
    args.words = (uint2 *)bits->words;
    args.table = bits->table;
    args.sequences = bits->sequences;
    args.heads_total = bits->bh_step;
    args.head0 = bits->head0;
    args.row = bits->row;
    args.block = bits->block;
    const int64_t warps = (bits->most + PIECE - 1) / PIECE;
    if (warps == 0)
        return ORDO_OK;
    ragged_kernel<<<(unsigned)warps, 32, 0, (cudaStream_t)bits->stream>>>(args);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

/* ---- which ---- */

typedef void (*bits_kernel)(const bits_args args);

/* p = 0.05, 0.1, 0.15, 0.17, 0.2, 0.25, 0.3 and 0.5 in 8 bits. */
template <int ROUNDS, bool POINTERS> static bits_kernel choose_8(uint32_t threshold)
{
    switch (threshold) {
    case 243: return sliced_kernel<ROUNDS, 8, 243, POINTERS>;
    case 230: return sliced_kernel<ROUNDS, 8, 230, POINTERS>;
    case 218: return sliced_kernel<ROUNDS, 8, 218, POINTERS>;
    case 212: return sliced_kernel<ROUNDS, 8, 212, POINTERS>;
    case 205: return sliced_kernel<ROUNDS, 8, 205, POINTERS>;
    case 192: return sliced_kernel<ROUNDS, 8, 192, POINTERS>;
    case 179: return sliced_kernel<ROUNDS, 8, 179, POINTERS>;
    case 128: return sliced_kernel<ROUNDS, 8, 128, POINTERS>;
    default: return sliced_kernel<ROUNDS, 8, 0, POINTERS>;
    }
}

template <int ROUNDS, bool POINTERS> static bits_kernel choose_bits(const ordo_keep *keep)
{
    if (keep->bits == 8)
        return choose_8<ROUNDS, POINTERS>(keep->threshold);
    if (keep->bits == 4 && keep->threshold == 14) /* p = 0.1 */
        return sliced_kernel<ROUNDS, 4, 14, POINTERS>;
    return keep->bits == 4 ? sliced_kernel<ROUNDS, 4, 0, POINTERS> : defined_kernel;
}

static bits_kernel choose(const ordo_keep *keep, bool pointers)
{
    if (keep->keying == ORDO_KEYING_ORDO && keep->rounds == 7)
        return pointers ? choose_bits<7, true>(keep) : choose_bits<7, false>(keep);
    if (keep->keying == ORDO_KEYING_ORDO && keep->rounds == 10)
        return pointers ? choose_bits<10, true>(keep) : choose_bits<10, false>(keep);
    return defined_kernel;
}

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
    args.pieces = (args.across + PIECE - 1) / PIECE;
    args.units = (uint32_t)bits->sequences * args.heads * args.down * args.pieces;
    args.row = bits->row;
    args.block = bits->block;
    args.low = bits->visible_only ? bits->low : -ORDO_BAND_OPEN;
    args.high = bits->visible_only ? bits->high : ORDO_BAND_OPEN;
    const computed_keys keys = { (uint32_t)bits->keep.seed, (uint32_t)(bits->keep.seed >> 32) };
    for (int r = 0; r < MOST_ROUNDS; r++)
        for (int half = 0; half < 2; half++)
            args.key[2 * r + half] = keys.at(r, half);
    for (int i = 0; i < MOST_BITS; i++)
        args.select[i] = bits->keep.threshold >> i & 1 ? ~0u : 0;
    return args;
}

ordo_status ordo_cuda_dropout(const ordo_cuda_bits *bits, char *why, size_t why_size)
{
    if (bits->table)
        return launch_ragged(bits, why, why_size);
    const bits_args args = arguments(bits);
    const cudaStream_t stream = (cudaStream_t)bits->stream;
    if (args.units == 0)
        return ORDO_OK;
    if (bits->keep.threshold >> bits->keep.bits) { /* keep all */
        const size_t lines = (size_t)args.units / args.pieces;
        CUDA_CALL(cudaMemsetAsync(args.words, 0xff, lines * args.across * 256, stream));
        return ORDO_OK;
    }
    const uint32_t threads = bits->grid_threads ? bits->grid_threads : 32;
    const uint32_t blocks = bits->grid_blocks ? bits->grid_blocks : args.units;
    const bits_kernel kernel = choose(&bits->keep, bits->seed_ptr || bits->offset_ptr);
    kernel<<<blocks, threads, 0, stream>>>(args);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}
