/* sm90/forward/spread.h: long sequences of a pass with few rows, over many multiprocessors. The
 * kernel in decode.h leaves a sequence and key head to one block, which walks all key tiles: O is
 * one chain of products per column of values, in the order that fixes the bits. All else can be
 * computed apart, since maxima are exact in any order:
 *
 *   choose    which sequences are long: pass/spread.h. The others stay with decode.h
 *   scores    S = Q K^T of key tiles, any block any tile, and the largest score of each line
 *   weights   running maxima; P, rounded, as left operands; sums and factors of each tile
 *   values    O of a unit and a slice of the columns of V: the chain alone
 *
 * Arithmetic and its order are those of decode.h, and so are the bits. Each kernel starts early and
 * waits for the one before; the kernel in decode.h runs beside the last one. */
#ifndef CUDA_SM90_FORWARD_SPREAD_H
#define CUDA_SM90_FORWARD_SPREAD_H

#include "cuda/sm90/forward/decode.h"
#include "cuda/support/scan.h"
#include "cuda/support/sequences.h"

enum { WEIGHTS_THREADS = 256, SPREAD_GROUPS = ORDO_SPREAD_LINES / ORDO_SPREAD_GROUP };

/* The unit of a key head and a sequence of the list. */
template <int D>
ORDO_DEVICE decode_record spread_describe(const ordo_paged_args &args, int sequence, int key_head)
{
    decode_record unit = {};
    unit.sequence = sequence;
    unit.key_head = key_head;
    decode_describe_queries<D>(args, ordo_batch_sequence(&args.batch, sequence), 0, unit);
    return unit;
}

/* ---- which sequences are long: by one block, with one thread per sequence ---- */

enum { CHOOSE_THREADS = 512 };

/* Their tiles leave the table, whose counts are those of the kernel in decode.h. */
template <int D>
__global__ void __launch_bounds__(CHOOSE_THREADS, 1)
    spread_choose_kernel(const __grid_constant__ ordo_paged_args args)
{
    __shared__ int64_t scratch[CHOOSE_THREADS / 32];
    const ordo_cuda_spread &spread = args.pages.spread;
    ordo_spread_list &list = *ordo_spread_list_of(&spread);
    const int sequences = args.batch.sequences;
    const auto tiles_of = [&](int b) {
        if (b >= sequences || args.table[b].q_len == 0)
            return 0;
        const decode_record unit = spread_describe<D>(args, b, 0);
        return unit.last - unit.first + 1;
    };
    int64_t all = 0, end = 0, slots = 0, count = 0, others = 0;
    grid_wait();
    for (int first = 0; first < sequences; first += CHOOSE_THREADS)
        scan<sum>(tiles_of(first + threadIdx.x), all, scratch);
    all *= args.run.kv_heads;
    for (int first = 0; first < sequences; first += CHOOSE_THREADS) {
        const int b = first + threadIdx.x, tiles = tiles_of(b);
        const int mine = ordo_spread_is_long(tiles, all) ? ordo_spread_slots(tiles) : 0;
        const int64_t to = scan<sum>(mine, end, scratch);
        const bool here = mine > 0 && to <= spread.slots;
        const int64_t number = scan<sum>(here, count, scratch) - here;
        const int other =
            here || b >= sequences ? 0 : ordo_tiles_of(args.table[b].q_len, args.queries);
        const int64_t before = scan<sum>(other, others, scratch) - other;
        scan<largest>(here ? to : 0, slots, scratch);
        if (b < sequences)
            args.table[b].forward_tile = (int)before;
        if (here) {
            list.at[number].sequence = b;
            list.at[number].slot = (int)to - mine;
        }
    }
    if (threadIdx.x > 0)
        return;
    args.table[sequences].forward_tile = (int)others;
    list.count = (int)count;
    list.slots = (int)slots;
}

template <int D> static ordo_forward_instance spread_choose_instance(void)
{
    return { (const void *)spread_choose_kernel<D>, 0, decode_shape<D>::COLUMNS, CHOOSE_THREADS,
             0 };
}

/* ---- weights ---- */

/* Largest scores of a run's lines: before its first tile, and with each of its tiles. */
struct spread_tops {
    float part[WEIGHTS_THREADS / ORDO_SPREAD_LINES][ORDO_SPREAD_LINES];
    float upto[ORDO_SPREAD_RUN + 1][ORDO_SPREAD_LINES];
};

/* `tiles`: of the run. All threads of the block. */
ORDO_DEVICE void spread_find_tops(const ordo_cuda_spread &spread, const ordo_spread_at &at,
                                  int tiles, spread_tops &tops)
{
    enum { PARTS = WEIGHTS_THREADS / ORDO_SPREAD_LINES };
    static_assert((int)PARTS <= 32 && (int)ORDO_SPREAD_RUN <= 32, "a warp has them");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int mine = threadIdx.x % ORDO_SPREAD_LINES, part = threadIdx.x / ORDO_SPREAD_LINES;
    float top = -INFINITY;
    if (mine < spread.lines)
#pragma unroll 4
        for (int n = part; n < at.tile; n += PARTS)
            top = fmaxf(top, ordo_spread_tops(&spread, at.first + n)[mine]);
    tops.part[part][mine] = top;
    __syncthreads();
    for (int line = warp; line < spread.lines; line += WEIGHTS_THREADS / 32) {
        float before = lane < PARTS ? tops.part[lane][line] : -INFINITY;
        for (int x = 16; x; x /= 2)
            before = fmaxf(before, __shfl_xor_sync(~0u, before, x));
        top = lane < tiles ? ordo_spread_tops(&spread, at.first + at.tile + lane)[line] : -INFINITY;
        for (int step = 1; step < 32; step *= 2)
            top = fmaxf(top, __shfl_up_sync(~0u, top, step)); /* of lane 0: its own */
        if (lane == 0)
            tops.upto[0][line] = before;
        if (lane < tiles)
            tops.upto[lane + 1][line] = fmaxf(before, top);
    }
    __syncthreads();
}

/* The weights of a group of a slot, in place of its scores; `before`, `upto`: the largest score of
 * the thread's line without and with this tile. */
template <int COLUMNS, bool F16>
ORDO_DEVICE void spread_weigh(char *group, float scale_log2, float before, float upto)
{
    const int lane = threadIdx.x % 32;
    float s[COLUMNS / 2]; /* the second line of an accumulator is not used */
#pragma unroll
    for (int n = 0; n < COLUMNS / 16; n++) {
        const float4 x = *(const float4 *)(group + ordo_spread_place(n, lane));
        s[8 * n] = x.x;
        s[8 * n + 1] = x.y;
        s[8 * n + 4] = x.z;
        s[8 * n + 5] = x.w;
    }
    __syncwarp(); /* all have read */
    row_state state = { { before, 0.0f }, { 0.0f, 0.0f }, { 1.0f, 1.0f } };
    row_softmax(s, upto, scale_log2, state, 0);
#pragma unroll
    for (int n = 0; n < COLUMNS / 32; n++) {
        uint32_t words[4];
#pragma unroll
        for (int x = 0; x < 4; x++)
            words[x] = pack_pair<F16>(s[4 * (4 * n + x)], s[4 * (4 * n + x) + 1]);
        quad_transpose(words, lane % 4);
        *(uint4 *)(group + ordo_spread_weights(4 * n + lane % 4, lane / 4)) =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
    const auto put = [&](ordo_spread_number what, float x) {
        *(float *)(group + ordo_spread_number_place(COLUMNS, what, lane)) = x;
    };
    put(ORDO_SPREAD_SUM, state.sum[0]);
    put(ORDO_SPREAD_SHRINK, before == -INFINITY ? 1.0f : state.shrink[0]);
    put(ORDO_SPREAD_MAX, state.max[0]);
}

template <int D, bool F16>
__global__ void __launch_bounds__(WEIGHTS_THREADS)
    spread_weights_kernel(const __grid_constant__ ordo_paged_args args)
{
    enum { COLUMNS = decode_shape<D>::COLUMNS };
    __shared__ spread_tops tops;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const ordo_cuda_spread &spread = args.pages.spread;
    grid_let_next();
    grid_wait();
    const ordo_spread_list &list = *ordo_spread_list_of(&spread);
    const int64_t all = (int64_t)list.slots * args.run.kv_heads;
    for (int64_t slot = (int64_t)blockIdx.x * ORDO_SPREAD_RUN; slot < all;
         slot += (int64_t)gridDim.x * ORDO_SPREAD_RUN) {
        const ordo_spread_at at = ordo_spread_find(&list, slot);
        const decode_record unit =
            spread_describe<D>(args, list.at[at.number].sequence, at.key_head);
        const int tiles = min((int)ORDO_SPREAD_RUN, unit.last - unit.first + 1 - at.tile);
        spread_find_tops(spread, at, tiles, tops);
        for (int n = warp; n < tiles * (spread.lines / ORDO_SPREAD_GROUP);
             n += WEIGHTS_THREADS / 32) {
            const int tile = n % tiles, group = n / tiles;
            const int line = group * ORDO_SPREAD_GROUP + lane / 4;
            const bool exists = line < unit.queries * args.run.group_heads;
            spread_weigh<COLUMNS, F16>(
                ordo_spread_group(&spread, args.run.kv_heads, COLUMNS, slot + tile, group),
                args.scale_log2, exists ? tops.upto[tile][line] : -INFINITY,
                exists ? tops.upto[tile + 1][line] : -INFINITY);
        }
        __syncthreads(); /* tops are written anew */
    }
}

template <int D, bool F16> static ordo_forward_instance spread_weights_instance(void)
{
    return { (const void *)spread_weights_kernel<D, F16>, ORDO_SPREAD_LINES,
             decode_shape<D>::COLUMNS, WEIGHTS_THREADS, 0 };
}

#endif
