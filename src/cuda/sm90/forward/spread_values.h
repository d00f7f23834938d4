/* sm90/forward/spread_values.h: the products of long sequences: spread.h. A block has a slice of
 * the columns of V of one unit. The lines, at most 16, are the first warp's: other warps multiply
 * zeros. A change of a line's largest score is rare; only then the products are waited for, so that
 * O can be multiplied. Else those of a tile are issued while those of the tile before run, from two
 * sets of registers by turns. */
#ifndef CUDA_SM90_FORWARD_SPREAD_VALUES_H
#define CUDA_SM90_FORWARD_SPREAD_VALUES_H

#include "cuda/sm90/forward/spread.h"

template <int COLUMNS_> struct spread_values_shape {
    enum {
        COLUMNS = COLUMNS_,
        LINE_BYTES = 2 * ORDO_SPREAD_SLICE,
        V_BYTES = COLUMNS * LINE_BYTES,
        RECORD_BYTES = COLUMNS * ORDO_SPREAD_GROUP * 2 + 4 * 32 * ORDO_SPREAD_NUMBERS,
        ROOM = ORDO_SMEM_MOST - ORDO_SMEM_BASE - 512,
        STAGE_BYTES = V_BYTES + SPREAD_GROUPS * RECORD_BYTES,
        STAGES = ROOM / STAGE_BYTES < 16 ? ROOM / STAGE_BYTES : 16,
        /* shared memory */
        V = ORDO_SMEM_BASE,
        WEIGHTS = V + STAGES * V_BYTES,
        FULL = WEIGHTS + STAGES * SPREAD_GROUPS * RECORD_BYTES,
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
};

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

/* A tile's columns of a slice by the copy engine, as decode_copy() has it. */
template <class Z>
ORDO_DEVICE void spread_copy(const ordo_paged_args &args, const page_piece &piece, int key_head,
                             int slice, uint32_t at, uint32_t full, uint64_t policy)
{
    const int lane = threadIdx.x % 32, bytes = Z::LINE_BYTES << args.copy_shift;
    if (lane == 0)
        mbar_expect(full, (uint32_t)(max(0, piece.end - piece.first) * bytes));
    __syncwarp();
    if (lane >= piece.first && lane < piece.end)
        tma_load(at + (uint32_t)(lane * bytes), &args.map.v, full, slice * ORDO_SPREAD_SLICE,
                 piece.from.row, key_head, piece.from.page, policy);
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
    const uint64_t policy = policy_evict_first();
    int n = GATHER ? 0 : warp;
    page_piece now = decode_find<D, GATHER>(args, *unit, last - n, quarter);
    page_piece next = decode_find<D, GATHER>(args, *unit, last - n - STEP, quarter);
    fence_global_to_async(); /* the weights were stored by ordinary stores */
    for (; n < tiles; n += STEP) {
        const uint32_t stage = (uint32_t)n % Z::STAGES, full = Z::FULL + 8 * stage;
        const uint32_t at = Z::V + stage * Z::V_BYTES;
        mbar_wait(Z::EMPTY + 8 * stage, ((uint32_t)n / Z::STAGES & 1) ^ 1);
        if (quarter == 0 && lane == 0) {
            mbar_expect(full, (uint32_t)(groups * Z::RECORD_BYTES));
            for (int r = 0; r < groups; r++)
                bulk_load(Z::WEIGHTS + (stage * SPREAD_GROUPS + (uint32_t)r) * Z::RECORD_BYTES,
                          ordo_spread_group(&args.pages.spread, args.run.kv_heads, Z::COLUMNS,
                                            slot + n, r),
                          Z::RECORD_BYTES, full);
        }
        decode_tell(now, GATHER ? 1 : 1 << args.copy_shift, unit);
        if (GATHER)
            spread_gather<Z>(args, now, unit->key_head, slice, at, full, warp);
        else
            spread_copy<Z>(args, now, unit->key_head, slice, at, full, policy);
        now = next;
        next = decode_find<D, GATHER>(args, *unit, last - n - 2 * STEP, quarter);
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

/* The weights of a tile as register operands, and the sums with them. */
template <class Z, int N>
ORDO_DEVICE void spread_take(uint32_t (&p)[N], spread_lines &lines, uint32_t record, int groups)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < SPREAD_GROUPS; r++, record += Z::RECORD_BYTES) {
        if (r >= groups)
            break;
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            const int4 x = load_shared_int4(record + ordo_spread_place(n, lane));
            p[8 * n + r] = (uint32_t)x.x;
            p[8 * n + 2 + r] = (uint32_t)x.y;
            p[8 * n + 4 + r] = (uint32_t)x.z;
            p[8 * n + 6 + r] = (uint32_t)x.w;
        }
        const auto number = [&](ordo_spread_number what) {
            return __int_as_float(
                load_shared(record + ordo_spread_number_place(Z::COLUMNS, what, lane)));
        };
        lines.shrink[r] = number(ORDO_SPREAD_SHRINK);
        lines.sum[r] = fmaf(lines.sum[r], lines.shrink[r], number(ORDO_SPREAD_SUM));
        lines.max[r] = number(ORDO_SPREAD_MAX);
    }
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
    uint32_t even[COLUMNS / 4], odd[COLUMNS / 4]; /* weights; zeros in other warps */
#pragma unroll
    for (int i = 0; i < ORDO_SPREAD_SLICE / 2; i++)
        o[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++)
        even[i] = odd[i] = 0;
#pragma unroll
    for (int r = 0; r < SPREAD_GROUPS; r++) {
        lines.sum[r] = 0.0f;
        lines.max[r] = -INFINITY;
        lines.shrink[r] = 1.0f;
    }
    pipeline_state<Z::STAGES> now;
    uint32_t last = 0; /* the stage before */
    int n = 0, begin = unit.last * COLUMNS;
    auto step = [&](uint32_t(&p)[COLUMNS / 4]) {
        const uint32_t v = Z::V + now.stage * Z::V_BYTES;
        mbar_wait(Z::FULL + 8 * now.stage, now.parity);
        if (GATHER)
            fence_shared_to_async();
        if (begin < from || begin + COLUMNS > to)
            spread_zero<Z>(v, from - begin, to - begin);
        spread_take<Z>(p, lines, Z::WEIGHTS + now.stage * SPREAD_GROUPS * Z::RECORD_BYTES, groups);
        if (__any_sync(~0u, lines.shrink[0] != 1.0f || lines.shrink[1] != 1.0f)) {
            wgmma_wait<0>();
            wgmma_pin(o);
#pragma unroll
            for (int i = 0; i < ORDO_SPREAD_SLICE / 2; i++)
                o[i] *= lines.shrink[i / 2 % 2];
        }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < COLUMNS / 16; k++)
            wgmma_rs<F16, 1>(o, p + 4 * k, spread_slice<Z>(v, k), 1);
        wgmma_commit();
        wgmma_wait<1>(); /* the products before are done */
        if (n > 0)
            mbar_arrive_warp(Z::EMPTY + 8 * last, lane);
        last = now.stage;
        now.advance();
        begin -= COLUMNS;
        n++;
    };
#pragma unroll 1
    while (n < tiles) { /* the weights of products under way stay in their registers */
        step(even);
        if (n < tiles)
            step(odd);
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
