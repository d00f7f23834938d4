/* sm90/forward/spread_values.h: the products of long sequences: spread.h. A block has a slice of
 * the columns of V of one unit. The lines, at most 16, are the first warp's: the left operand of
 * 64 lines goes on into what lies behind them in shared memory, and other rows of O are not used. A
 * change of a line's largest score is rare; only then the products are waited for, so that O can be
 * multiplied. Else those of two tiles are under way. */
#ifndef CUDA_SM90_FORWARD_SPREAD_VALUES_H
#define CUDA_SM90_FORWARD_SPREAD_VALUES_H

#include "cuda/sm90/forward/spread.h"

template <int COLUMNS_> struct spread_values_shape {
    enum {
        COLUMNS = COLUMNS_,
        LINE_BYTES = 2 * ORDO_SPREAD_SLICE,
        V_BYTES = COLUMNS * LINE_BYTES,
        RECORD_BYTES = COLUMNS * ORDO_SPREAD_GROUP * 2 + 4 * 32 * ORDO_SPREAD_NUMBERS,
        ROOM = ORDO_SMEM_MOST - ORDO_SMEM_BASE - 1536,
        STAGE_BYTES = V_BYTES + SPREAD_GROUPS * RECORD_BYTES,
        STAGES = ROOM / STAGE_BYTES < 16 ? ROOM / STAGE_BYTES : 16,
        FLIGHT = 2, /* tiles whose products are under way */
        /* shared memory: behind the weights is enough for the other lines of the last ones */
        WEIGHTS = ORDO_SMEM_BASE,
        V = (WEIGHTS + STAGES * SPREAD_GROUPS * RECORD_BYTES + 1023) / 1024 * 1024,
        FULL = V + STAGES * V_BYTES,
        EMPTY = FULL + 8 * STAGES,
        UNIT = EMPTY + 8 * STAGES, /* a decode_record */
        END = UNIT + (int)sizeof(decode_record),
        BYTES = END - ORDO_SMEM_BASE,
        /* Descriptors of V: swizzle as wide as a line, groups of eight lines. */
        DESCRIPTOR_HIGH = LINE_BYTES * 8 >> 4,
        SWIZZLE = LINE_BYTES == 128  ? 1
                  : LINE_BYTES == 64 ? 2
                                     : 3
    };
    static_assert((int)END <= (int)ORDO_SMEM_MOST && (int)UNIT % 8 == 0, "shared memory");
    static_assert((int)STAGES * V_BYTES >= 8 * RECORD_BYTES, "lines behind the last weights");
    static_assert((int)STAGES > (int)FLIGHT, "a stage is loaded while products are under way");
};

/* Slice k of 16 of a tile's weights. */
template <class Z> ORDO_DEVICE uint64_t spread_left(uint32_t weights, int k)
{
    const uint32_t at = weights + ordo_spread_weights(2 * k, 0);
    return (uint64_t)((uint32_t)Z::RECORD_BYTES >> 4) << 32 |
           ordo_descriptor_low(at, ORDO_SPREAD_CHUNK);
}

/* Slice k of 16 lines of a tile of values, whose lines are the products' k. */
template <class Z> ORDO_DEVICE uint64_t spread_slice(uint32_t tile, int k)
{
    return (uint64_t)((uint32_t)Z::DESCRIPTOR_HIGH | (uint32_t)Z::SWIZZLE << 30) << 32 |
           (tile + (uint32_t)(k * 16 * Z::LINE_BYTES)) >> 4;
}

/* Bytes from a tile of values to 16 bytes of a line. */
template <class Z> ORDO_DEVICE uint32_t spread_chunk(int line, int chunk)
{
    const uint32_t at = (uint32_t)(line * Z::LINE_BYTES);
    return at + (uint32_t)(chunk * 16 ^ (at >> 3 & (Z::LINE_BYTES - 16)));
}

/* The columns of a slice of tile number `tile` by the copy engine; `begin`: the lane of its first
 * piece. What has no page is told of, and copied as zeros. */
template <class Z>
ORDO_DEVICE void spread_copy(const ordo_paged_args &args, const page_span &span, int begin,
                             decode_record *unit, int tile, int slice, uint32_t at, uint32_t full,
                             uint64_t policy)
{
    const int lane = threadIdx.x % 32, shift = args.copy_shift;
    const uint32_t piece = (uint32_t)(lane - begin), bytes = (uint32_t)Z::LINE_BYTES << shift;
    const bool mine = piece < (uint32_t)(Z::COLUMNS >> shift) && span.page >= 0;
    const uint32_t copied = __ballot_sync(~0u, mine);
    decode_tell(mine && span.page == args.pages.count, tile * Z::COLUMNS + ((int)piece << shift),
                1 << shift, unit);
    if (lane == 0)
        mbar_expect(full, (uint32_t)__popc(copied) * bytes);
    __syncwarp();
    if (mine)
        tma_load(at + piece * bytes, &args.map.v, full, slice * ORDO_SPREAD_SLICE, span.row,
                 unit->key_head, span.page, policy);
}

/* A warp's quarter of them, as decode_gather() has it. */
template <class Z>
ORDO_DEVICE void spread_gather(const ordo_paged_args &args, const page_piece &piece, int key_head,
                               int slice, uint32_t at, uint32_t full, int warp)
{
    enum { LINES = Z::COLUMNS / DECODE_LOADERS, CHUNKS = Z::LINE_BYTES / 16 };
    const int lane = threadIdx.x % 32;
    const ordo_cuda_tensor &x = args.v;
    const int64_t mine =
        piece.lost ? -1 : piece.from.page * x.sequence + piece.from.row * x.row + key_head * x.head;
#pragma unroll 4
    for (int n = lane; n < LINES * CHUNKS; n += 32) {
        const int line = n / CHUNKS, column = slice * ORDO_SPREAD_SLICE + n % CHUNKS * 8;
        const int64_t from = __shfl_sync(~0u, mine, line);
        const bool there = from >= 0 && column < args.v_head_dim;
        if (line >= piece.first && line < piece.end)
            async_copy(at + spread_chunk<Z>(warp * LINES + line, n % CHUNKS),
                       (const uint16_t *)x.data + (there ? from + column : 0), there ? 16 : 0);
    }
    async_arrive(full);
}

/* A loader warp: the products of a tile take less time than one warp needs for its loads. In a
 * gather all warps load a quarter of every tile, else each takes tiles in turn. */
template <int D, bool GATHER>
ORDO_DEVICE void spread_load_values(const ordo_paged_args &args, decode_record *unit, int64_t slot,
                                    int slice, int warp)
{
    using Z = spread_values_shape<decode_shape<D>::COLUMNS>;
    enum { STEP = GATHER ? 1 : (int)DECODE_LOADERS };
    const int lane = threadIdx.x % 32, groups = args.pages.spread.lines / ORDO_SPREAD_GROUP;
    const int quarter = GATHER ? warp : 0, last = unit->last, tiles = last - unit->first + 1;
    int n = GATHER ? 0 : warp, begin = 0;
    page_piece now = {}, next = {}; /* in a gather */
    page_span from = {};            /* else */
    const uint64_t policy = policy_evict_first();
    if (GATHER) {
        now = decode_find<D, true>(args, *unit, last, quarter);
        next = decode_find<D, true>(args, *unit, last - 1, quarter);
    } else {
        from = page_span_find<Z::COLUMNS>(args, *unit, last - n, STEP, unit->first);
    }
    const char *record = ordo_spread_group(&args.pages.spread, args.run.kv_heads, Z::COLUMNS,
                                           slot + n, 0); /* of the tile's first group */
    fence_global_to_async(); /* the weights were stored by ordinary stores */
    for (; n < tiles; n += STEP) {
        const uint32_t stage = (uint32_t)n % Z::STAGES, full = Z::FULL + 8 * stage;
        const uint32_t at = Z::V + stage * Z::V_BYTES;
        mbar_wait(Z::EMPTY + 8 * stage, ((uint32_t)n / Z::STAGES & 1) ^ 1);
        if (quarter == 0 && lane == 0) {
            mbar_expect(full, (uint32_t)(groups * Z::RECORD_BYTES));
            for (int r = 0; r < groups; r++)
                bulk_load(Z::WEIGHTS + (stage * SPREAD_GROUPS + (uint32_t)r) * Z::RECORD_BYTES,
                          record + r * ordo_spread_group_bytes(Z::COLUMNS), Z::RECORD_BYTES, full);
        }
        record += STEP * groups * ordo_spread_group_bytes(Z::COLUMNS);
        if (GATHER) {
            decode_tell(now.lost, now.column, 1, unit);
            spread_gather<Z>(args, now, unit->key_head, slice, at, full, warp);
            now = next;
            next = decode_find<D, true>(args, *unit, last - n - 2, quarter);
            continue;
        }
        spread_copy<Z>(args, from, begin, unit, last - n, slice, at, full, policy);
        begin += Z::COLUMNS >> args.copy_shift;
        if (begin == 32) { /* before its stage is empty: the table's latency is hidden */
            begin = 0;
            from = page_span_find<Z::COLUMNS>(args, *unit, last - n - STEP, STEP, unit->first);
        }
    }
}

/* Zeros in lines of a tile of values that no row sees: decode_zero(). */
template <class Z> ORDO_DEVICE void spread_zero(uint32_t tile, int from, int to)
{
    enum { CHUNKS = Z::LINE_BYTES / 16 };
    for (int x = threadIdx.x; x < Z::COLUMNS * CHUNKS; x += 128)
        if (x / CHUNKS < from || x / CHUNKS >= to)
            store_shared4(tile + (uint32_t)(x * 16), 0.0f, 0.0f, 0.0f, 0.0f);
    fence_shared_to_async();
    named_sync(OWN, 128);
}

/* What the first warp, which has the lines, knows of them. */
struct spread_lines {
    float sum[SPREAD_GROUPS], max[SPREAD_GROUPS], shrink[SPREAD_GROUPS];
};

/* The sums with a tile's weights. Returns whether O is to be multiplied. */
template <class Z> ORDO_DEVICE bool spread_take(spread_lines &lines, uint32_t record, int groups)
{
    const int lane = threadIdx.x % 32;
    bool shrinks = false;
#pragma unroll
    for (int r = 0; r < SPREAD_GROUPS; r++, record += Z::RECORD_BYTES) {
        if (r >= groups)
            break;
        const auto number = [&](ordo_spread_number what) {
            return __int_as_float(
                load_shared(record + ordo_spread_number_place(Z::COLUMNS, what, lane)));
        };
        lines.shrink[r] = number(ORDO_SPREAD_SHRINK);
        lines.sum[r] = fmaf(lines.sum[r], lines.shrink[r], number(ORDO_SPREAD_SUM));
        lines.max[r] = number(ORDO_SPREAD_MAX);
        shrinks |= lines.shrink[r] != 1.0f;
    }
    return __any_sync(~0u, shrinks);
}

/* Divides O by the row sums, rounds and stores it; the first slice's block stores lse. */
template <bool F16, int N>
ORDO_DEVICE void spread_epilogue(const ordo_paged_args &args, const decode_record &unit, int slice,
                                 const spread_lines &lines, float (&o)[N])
{
    const decode_rows rows = decode_rows_of(args, unit);
    const int column = slice * ORDO_SPREAD_SLICE;
#pragma unroll
    for (int r = 0; r < SPREAD_GROUPS; r++) {
        const bool lost = max(unit.lost_from, rows.from[r]) < min(unit.lost_to, rows.to[r]);
        const decode_end end =
            decode_end_of<F16>(args, lines.max[r], lost ? NAN : lines.sum[r], rows.sink[r]);
        if (slice == 0 && threadIdx.x % 4 == 0 && rows.exists[r])
            args.lse[unit.lse + rows.head[r] * args.batch.lse_head + rows.query[r]] = end.lse;
        if (end.sees_nothing)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i / 2 % 2 == r)
                    o[i] = 0.0f;
        char *const to = row_address(args.o, unit.batch, unit.q_row + rows.query[r], rows.head[r]);
        if (decode_put<F16>(o, r, end.weight, to + 2 * column + 16 * (threadIdx.x % 4),
                            rows.exists[r], args.v_head_dim - column))
            args.ticket[ORDO_NOT_FINITE] = 1;
    }
}

template <int D, bool F16, bool GATHER>
__global__ void __launch_bounds__(decode_threads<true>, 1)
    spread_values_kernel(const __grid_constant__ ordo_paged_args args)
{
    enum { COLUMNS = decode_shape<D>::COLUMNS };
    using Z = spread_values_shape<COLUMNS>;
    extern __shared__ __align__(1024) char smem[];
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    decode_record &unit = *(decode_record *)(smem + (Z::UNIT - ORDO_SMEM_BASE));
    const ordo_cuda_spread &spread = args.pages.spread;
    block_begin([] {
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::FULL + 8 * s, 1 + (GATHER ? 32 * DECODE_LOADERS : 1));
            mbar_init(Z::EMPTY + 8 * s, 4);
        }
    });
    grid_wait();
    grid_let_next(); /* now: the kernel in decode.h does not wait for the table of sequences */
    const ordo_spread_list &list = *ordo_spread_list_of(&spread);
    const int slices = (args.v_head_dim + ORDO_SPREAD_SLICE - 1) / ORDO_SPREAD_SLICE;
    const int slice = blockIdx.x % slices, key_head = blockIdx.x / slices % args.run.kv_heads;
    const int number = blockIdx.x / slices / args.run.kv_heads;
    if (number >= list.count)
        return;
    if (threadIdx.x == 0)
        unit = spread_describe<D>(args, list.at[number].sequence, key_head);
    __syncthreads();
    if (warp >= 4) {
        spread_load_values<D, GATHER>(
            args, &unit, (int64_t)key_head * list.slots + list.at[number].slot, slice, warp - 4);
        return;
    }

    const int groups = warp == 0 ? spread.lines / ORDO_SPREAD_GROUP : 0;
    const int tiles = unit.last - unit.first + 1, from = unit.from, to = unit.to;
    spread_lines lines;
    float o[ORDO_SPREAD_SLICE / 2];
    clear(o);
#pragma unroll
    for (int r = 0; r < SPREAD_GROUPS; r++) {
        lines.sum[r] = 0.0f;
        lines.max[r] = -INFINITY;
        lines.shrink[r] = 1.0f;
    }
    pipeline_state<Z::STAGES> now, done;
    int begin = unit.last * COLUMNS;
#pragma unroll 1
    for (int n = 0; n < tiles; n++, begin -= COLUMNS, now.advance()) {
        const uint32_t v = Z::V + now.stage * Z::V_BYTES;
        const uint32_t weights = Z::WEIGHTS + now.stage * SPREAD_GROUPS * Z::RECORD_BYTES;
        mbar_wait(Z::FULL + 8 * now.stage, now.parity);
        if (GATHER)
            fence_shared_to_async();
        if (begin < from || begin + COLUMNS > to)
            spread_zero<Z>(v, from - begin, to - begin);
        if (spread_take<Z>(lines, weights, groups)) {
            wgmma_wait<0>();
            wgmma_pin(o);
#pragma unroll
            for (int i = 0; i < ORDO_SPREAD_SLICE / 2; i++)
                o[i] *= lines.shrink[i / 2 % 2];
        }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < COLUMNS / 16; k++)
            wgmma_ss<F16, 0, 1>(o, spread_left<Z>(weights, k), spread_slice<Z>(v, k), 1);
        wgmma_commit();
        wgmma_wait<Z::FLIGHT>();
        if (n >= Z::FLIGHT) {
            mbar_arrive_warp(Z::EMPTY + 8 * done.stage, lane);
            done.advance();
        }
    }
    wgmma_wait<0>();
    wgmma_pin(o);
    if (warp == 0)
        spread_epilogue<F16>(args, unit, slice, lines, o);
}

template <int D, bool F16, bool GATHER> static ordo_forward_instance spread_values_instance(void)
{
    using Z = spread_values_shape<decode_shape<D>::COLUMNS>;
    return { (const void *)spread_values_kernel<D, F16, GATHER>, ORDO_SPREAD_LINES, Z::COLUMNS,
             decode_threads<true>, Z::BYTES };
}

#endif
