/* ops/dropout.cu: keep bits on the device: one pass over the bits of the threshold combines Philox
 * words into the keep bits of 32 columns at once. Integers only; base/keep.h is the definition.
 *
 * A lane makes the words of rows r and r + 8 of a block of 16 x 128, which are adjacent in storage,
 * and of the same rows of the lines below: what Philox's first rounds make of a block of columns is
 * common to all of them. The threshold is a number of the launch. Its lowest bits that are 0 leave
 * nothing of the words drawn for them, so that the kernels differ in how many words they draw, and
 * two know the threshold of p = 0.1, with which one instruction combines two words. */
#include <cuda_runtime.h>

#include "cuda/ops/dropout.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/ptx.h"

enum {
    MOST_WORDS = 8, /* that a sliced kernel draws for a keep word */
    LINES = 4,      /* of blocks that a warp makes at once */
    PIECE = 64,     /* blocks of a warp's unit of work */
    FILLED = 2048   /* units that fill the device: with fewer, a unit is a piece of one line */
};

typedef struct bits_args {
    ordo_keep keep;
    const uint64_t *seed_ptr, *offset_ptr;
    uint2 *words;
    uint32_t units;          /* pieces of all groups of lines */
    uint32_t lines, wide;    /* of a unit: lines, blocks of each */
    uint32_t groups, pieces; /* of a head: groups of lines, pieces of a line */
    uint32_t bh, bh_step, heads, down, across, row, block;
    int32_t low, high;
    uint32_t draws, first_draw; /* of a block: all, the first that counts */
    uint32_t
        select[MOST_WORDS]; /* all ones where the threshold has a bit; the last is its highest */
} bits_args;

/* ---- words ---- */

/* Philox's first two rounds mix one half of the counter at a time, so that all of a warp's words
 * share what round_keys has, all blocks of a row its row_product, all rows of a block `first` and
 * `second` below. The rest is held in registers, or each word would compute it again. */
template <int ROUNDS> struct round_keys {
    uint32_t site, head;      /* with the keys that they meet */
    uint32_t key[2 * ROUNDS]; /* of each round */
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
};

/* Round 1's product of a row and quad, with the keys that its halves meet. */
struct row_product {
    uint32_t low, high;
};

template <int ROUNDS>
ORDO_DEVICE row_product product_of(const round_keys<ROUNDS> &keys, uint32_t row, uint32_t quad)
{
    const uint64_t product = (uint64_t)ORDO_PHILOX_M0 * (keys.row ^ (row * 4 + quad));
    row_product own = { (uint32_t)product ^ keys.key[5], (uint32_t)(product >> 32) ^ keys.key[3] };
    asm volatile("" : "+r"(own.low), "+r"(own.high));
    return own;
}

/* ordo_philox() of the counter { place, row * 4 + quad, bh, offset }. */
template <int ROUNDS>
ORDO_DEVICE ordo_philox_words philox(const round_keys<ROUNDS> &keys, row_product own,
                                     uint32_t place)
{
    const uint64_t first = (uint64_t)ORDO_PHILOX_M0 * place;
    const uint64_t second = (uint64_t)ORDO_PHILOX_M1 * ((uint32_t)(first >> 32) ^ keys.site);
    ordo_philox_words c = { { (uint32_t)(second >> 32) ^ keys.head, (uint32_t)second,
                              own.high ^ (uint32_t)first, own.low } };
#pragma unroll
    for (int r = 2; r < ROUNDS; r++) {
        const uint64_t p0 = (uint64_t)ORDO_PHILOX_M0 * c.w[0];
        const uint64_t p1 = (uint64_t)ORDO_PHILOX_M1 * c.w[2];
        c.w[0] = (uint32_t)(p1 >> 32) ^ c.w[1] ^ keys.key[2 * r];
        c.w[1] = (uint32_t)p1;
        c.w[2] = (uint32_t)(p0 >> 32) ^ c.w[3] ^ (r == 2 ? 0 : keys.key[2 * r + 1]);
        c.w[3] = (uint32_t)p0;
    }
    return c;
}

/* Keying ordo: the last WORDS words of the last draws, one per bit of the threshold from the first
 * that counts. THRESHOLD, if not 0, has these bits. */
template <int ROUNDS, int WORDS, uint32_t THRESHOLD>
ORDO_DEVICE uint32_t sliced_word(const bits_args &args, const round_keys<ROUNDS> &keys,
                                 row_product own, uint32_t block)
{
    enum { DRAWS = (WORDS + 3) / 4, SKIPPED = 4 * DRAWS - WORDS };
    uint32_t kept = 0;
#pragma unroll
    for (int draw = 0; draw < DRAWS; draw++) {
        const ordo_philox_words random =
            philox(keys, own, block * args.draws + args.first_draw + (uint32_t)draw);
#pragma unroll
        for (int i = draw ? 0 : SKIPPED; i < 4; i++) {
            const int bit = 4 * draw + i - SKIPPED;
            const uint32_t w = random.w[i];
            if (THRESHOLD)
                kept = THRESHOLD >> bit & 1 ? kept | w : kept & w;
            else /* the majority of three: kept | w or kept & w */
                kept = (kept & w) | ((kept | w) & args.select[MOST_WORDS - WORDS + bit]);
        }
    }
    return kept;
}

/* ---- kernels ---- */

/* Blocks of a line, first ... end - 1. */
struct range {
    uint32_t first, end;
};

struct piece {
    uint32_t bh, line, lines; /* first line of the head, how many */
    uint32_t first, end;      /* blocks of each */
    uint2 *words;             /* of this lane, in block 0 of the first line */
};

ORDO_DEVICE piece piece_at(const bits_args &args, uint32_t unit, uint32_t lane)
{
    const uint32_t group = unit / args.pieces, nth = unit % args.pieces;
    const uint32_t head = group / args.groups, sequence = head / args.heads;
    piece x;
    x.bh = args.bh + sequence * args.bh_step + head % args.heads;
    x.line = group % args.groups * args.lines;
    x.lines = min(args.lines, args.down - x.line);
    x.first = nth * args.wide;
    x.end = min(x.first + args.wide, args.across);
    x.words = args.words + ((uint64_t)head * args.down + x.line) * args.across * 32 + lane;
    return x;
}

/* The blocks of the piece's line `nth` that one of its rows needs. */
ORDO_DEVICE range needed(const bits_args &args, const piece &x, uint32_t nth)
{
    /* Rows and columns stay below 2^30, so that no sum wraps. */
    const int32_t row = (int32_t)((x.line + nth) * ORDO_KEEP_ROWS);
    const int32_t from = max(row + args.low, 0), last = row + ORDO_KEEP_ROWS - 1 + args.high;
    range r;
    r.first = max(x.first, (uint32_t)from / ORDO_KEEP_COLS);
    r.end = last < 0 ? 0 : min(x.end, (uint32_t)last / ORDO_KEEP_COLS + 1);
    return r;
}

/* The generator, with seed and offset read from their pointers if there are any. */
template <class ARGS> ORDO_DEVICE ordo_keep generator_of(const ARGS &args)
{
    ordo_keep keep = args.keep;
    if (args.seed_ptr)
        keep.seed = *args.seed_ptr;
    if (args.offset_ptr)
        keep.offset = *args.offset_ptr;
    return keep;
}

/* `COUNT` lines of a piece, from line `nth`. */
template <int ROUNDS, int WORDS, uint32_t THRESHOLD, int COUNT> struct some_lines {
    row_product rows[2 * COUNT]; /* r and r + 8 of each line */
    uint2 *words;                /* of this lane, in block 0 of the first line */

    __device__ some_lines(const bits_args &args, const round_keys<ROUNDS> &keys, const piece &x,
                          uint32_t nth)
    {
        const uint32_t lane = threadIdx.x % 32;
        const uint32_t row = args.row + (x.line + nth) * ORDO_KEEP_ROWS + lane / 4;
        words = x.words + (uint64_t)nth * args.across * 32;
#pragma unroll
        for (uint32_t i = 0; i < 2 * COUNT; i++)
            rows[i] = product_of(keys, row + 8 * i, lane % 4);
    }

    __device__ void make_block(const bits_args &args, const round_keys<ROUNDS> &keys,
                               uint32_t at) const
    {
        const auto word = [&](row_product own) {
            return sliced_word<ROUNDS, WORDS, THRESHOLD>(args, keys, own, args.block + at);
        };
#pragma unroll
        for (uint32_t l = 0; l < COUNT; l++)
            words[((uint64_t)l * args.across + at) * 32] = { word(rows[2 * l]),
                                                             word(rows[2 * l + 1]) };
    }
};

/* The blocks that LINES lines need in common, then what else each line needs. */
template <int ROUNDS, int WORDS, uint32_t THRESHOLD>
static __global__ void __launch_bounds__(128, ROUNDS > 7 ? 6 : 7) /* the keys stay in registers */
    sliced_kernel(const __grid_constant__ bits_args args)
{
    const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    const ordo_keep keep = generator_of(args);
    uint32_t unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; unit < args.units; unit += warps) {
        const piece x = piece_at(args, unit, lane);
        const round_keys<ROUNDS> keys(keep, x.bh);
        const range first = needed(args, x, 0), last = needed(args, x, LINES - 1);
        range common = { last.first, first.end };
        if (x.lines < LINES || common.first >= common.end)
            common.first = common.end = 0;
        if (common.end) {
            const some_lines<ROUNDS, WORDS, THRESHOLD, LINES> all(args, keys, x, 0);
            for (uint32_t at = common.first; at < common.end; at++)
                all.make_block(args, keys, at);
            if (first.first == last.first && first.end == last.end)
                continue;
        }
        for (uint32_t nth = 0; nth < x.lines; nth++) {
            const some_lines<ROUNDS, WORDS, THRESHOLD, 1> line(args, keys, x, nth);
            const range own = needed(args, x, nth);
#pragma unroll 1
            for (uint32_t at = own.first; at < min(own.end, common.first); at++)
                line.make_block(args, keys, at);
#pragma unroll 2
            for (uint32_t at = max(own.first, common.end); at < own.end; at++)
                line.make_block(args, keys, at);
        }
    }
}

/* Every rounds, bits, threshold and keying, by the definition itself. */
static __global__ void __launch_bounds__(128, 8)
    defined_kernel(const __grid_constant__ bits_args args)
{
    const uint32_t lane = threadIdx.x % 32, quad = lane % 4, warps = gridDim.x * (blockDim.x / 32);
    const ordo_keep keep = generator_of(args);
    uint32_t unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; unit < args.units; unit += warps) {
        const piece x = piece_at(args, unit, lane);
        const range own = needed(args, x, 0);
        const uint32_t row = args.row + x.line * ORDO_KEEP_ROWS + lane / 4;
        for (uint32_t at = own.first; at < own.end; at++)
            x.words[at * 32] = { ordo_keep_word(&keep, x.bh, row, args.block + at, quad),
                                 ordo_keep_word(&keep, x.bh, row + 8, args.block + at, quad) };
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
    const ordo_keep keep = generator_of(args);
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

/* Bits of the threshold from the lowest that is 1: the words below it leave nothing. */
static int words_of(const ordo_keep *keep)
{
    int zeros = 0;
    while (!(keep->threshold >> zeros & 1))
        zeros++;
    return keep->bits - zeros;
}

typedef struct bits_choice {
    bits_kernel kernel;
    int words; /* that it draws; 0: by the definition */
} bits_choice;

/* The kernel of the fewest words that are enough. */
static bits_choice choose(const ordo_keep *keep)
{
    static const struct {
        int rounds, words;
        uint32_t threshold; /* not 0: of that many bits */
        bits_kernel kernel;
    } rows[] = { { 7, 4, 14, sliced_kernel<7, 4, 14> }, { 7, 8, 230, sliced_kernel<7, 8, 230> },
                 { 7, 1, 0, sliced_kernel<7, 1, 0> },   { 7, 2, 0, sliced_kernel<7, 2, 0> },
                 { 7, 4, 0, sliced_kernel<7, 4, 0> },   { 7, 6, 0, sliced_kernel<7, 6, 0> },
                 { 7, 8, 0, sliced_kernel<7, 8, 0> },   { 10, 2, 0, sliced_kernel<10, 2, 0> },
                 { 10, 4, 0, sliced_kernel<10, 4, 0> }, { 10, 8, 0, sliced_kernel<10, 8, 0> } };
    const int words = words_of(keep);
    if (keep->keying == ORDO_KEYING_ORDO && keep->bits % 4 == 0)
        for (const auto &row : rows)
            if (row.rounds == keep->rounds &&
                (row.threshold ? row.words == keep->bits && row.threshold == keep->threshold
                               : row.words >= words))
                return { row.kernel, row.words };
    return { defined_kernel, 0 };
}

/* Units of `lines` lines. */
static void divide(bits_args *args, uint32_t heads, uint32_t lines)
{
    args->lines = lines;
    args->wide = PIECE / lines;
    args->groups = (args->down + lines - 1) / lines;
    args->pieces = (args->across + args->wide - 1) / args->wide;
    args->units = heads * args->groups * args->pieces;
}

static bits_args arguments(const ordo_cuda_bits *bits, int words)
{
    const uint32_t heads = (uint32_t)bits->sequences * (uint32_t)bits->heads;
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
    args.row = bits->row;
    args.block = bits->block;
    args.low = bits->visible_only ? bits->low : -ORDO_BAND_OPEN;
    args.high = bits->visible_only ? bits->high : ORDO_BAND_OPEN;
    divide(&args, heads, LINES);
    if (words == 0 || args.units < FILLED)
        divide(&args, heads, 1);
    args.draws = (uint32_t)(bits->keep.bits + 3) / 4;
    args.first_draw = args.draws - (uint32_t)(words + 3) / 4;
    for (int i = 0; i < words; i++)
        args.select[MOST_WORDS - 1 - i] =
            bits->keep.threshold >> (bits->keep.bits - 1 - i) & 1 ? ~0u : 0;
    return args;
}

ordo_status ordo_cuda_dropout(const ordo_cuda_bits *bits, char *why, size_t why_size)
{
    if (bits->table)
        return launch_ragged(bits, why, why_size);
    const cudaStream_t stream = (cudaStream_t)bits->stream;
    const size_t blocks = (size_t)bits->sequences * bits->heads * bits->down * bits->across;
    if (blocks == 0)
        return ORDO_OK;
    if (bits->keep.threshold >> bits->keep.bits) { /* keep all */
        CUDA_CALL(cudaMemsetAsync(bits->words, 0xff, blocks * 4 * ORDO_KEEP_WORDS, stream));
        return ORDO_OK;
    }
    const bits_choice choice = choose(&bits->keep);
    const bits_args args = arguments(bits, choice.words);
    const uint32_t grid = bits->grid_blocks ? bits->grid_blocks : args.units;
    choice.kernel<<<grid, bits->grid_threads ? bits->grid_threads : 32, 0, stream>>>(args);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}
