/* sm90/forward/decode.h: the forward kernel for few queries over many keys, in pages or not. Key
 * tiles, their order and all arithmetic are those of the varlen kernel, and so are the bits of a
 * row.
 *
 * A unit is a sequence and a key head. Its 64 lines are the rows of all query heads of the group:
 * line r is query r / group of head r % group, so that keys and values pass once for all of them.
 * One warpgroup consumes; a warp produces, each lane with copies of its own, since a tile of keys
 * may lie in many pages. Sequences of more than 64 lines are other kernels'.
 *
 * Not in the module: tests/cuda/decode_test.cu has not run on a device yet. */
#ifndef CUDA_SM90_FORWARD_DECODE_H
#define CUDA_SM90_FORWARD_DECODE_H

#include "cuda/sm90/forward/epilogue.h"
#include "cuda/tile/put_rows.h"

/* Where keys and values lie. In tensors they are (page, row of the page, head, dim). */
typedef struct ordo_decode_pages {
    const int32_t *table; /* (sequence, column / rows): a page; NULL: no pages */
    int64_t table_stride;
    int32_t rows, pages;   /* rows of a page; number of pages */
    int32_t copy_rows;     /* keys of one copy: divide those of a page and of a tile */
    const int32_t *starts; /* the first stored column of each sequence, or NULL: 0 */
} ordo_decode_pages;

/* The map of q counts heads before rows. */
struct ordo_decode_args : ordo_forward_args {
    ordo_decode_pages pages;
};

struct decode_record {
    int32_t key_head; /* -1: no more units */
    int32_t sequence, batch, q_row;
    int32_t kv_row; /* row of column 0 in tensors without pages */
    int32_t q_len, kv_len, low, high, diagonal;
    int32_t start;       /* the first stored column */
    int32_t from, to;    /* columns that a row may see */
    int32_t first, last; /* key tiles, walked last to first. At least one */
    int64_t lse;         /* place of the sequence's (head 0, row 0) */
};

template <int D> struct decode_shape {
    enum {
        ROWS = 64,
        COLUMNS = ORDO_SM90_FORWARD_K(D),
        STAGES = D == 64 ? 6 : 3, /* each of K and V */
        Q_STAGES = D > 128 ? 1 : 2,
        CONSUMERS = 1, /* warpgroups */
        THREADS = 160,
        PANELS = D / ORDO_PANEL_COLUMNS,
        Q_BYTES = ROWS * D * 2,
        K_BYTES = COLUMNS * D * 2,
        RECORDS = 4, /* as in the varlen kernel */
        /* shared memory */
        Q = ORDO_SMEM_BASE,
        K = Q + Q_STAGES * Q_BYTES,
        V = K + STAGES * K_BYTES,
        Q_FULL = V + STAGES * K_BYTES, /* barriers, 8 bytes each */
        Q_EMPTY = Q_FULL + 8 * Q_STAGES,
        K_FULL = Q_EMPTY + 8 * Q_STAGES,
        K_EMPTY = K_FULL + 8 * STAGES,
        V_FULL = K_EMPTY + 8 * STAGES,
        V_EMPTY = V_FULL + 8 * STAGES,
        RECORD = V_EMPTY + 8 * STAGES,
        END = RECORD + RECORDS * (int)sizeof(decode_record),
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)END <= (int)ORDO_SMEM_MOST, "shared memory");
    typedef shared_ring<decode_record, RECORDS, RECORD> records;
};

/* Unit number `unit`; false: its sequence has no rows, or too many. */
template <int D>
ORDO_DEVICE bool decode_describe(const ordo_decode_args &args, int unit, decode_record &to)
{
    enum { COLUMNS = decode_shape<D>::COLUMNS };
    to.sequence = unit / args.run.kv_heads;
    to.key_head = unit % args.run.kv_heads;
    const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, to.sequence);
    to.batch = s.batch;
    to.q_row = s.q_row;
    to.kv_row = s.kv_row;
    to.q_len = s.q_len;
    to.kv_len = s.kv_len;
    to.low = s.low;
    to.high = s.high;
    to.diagonal = s.diagonal;
    to.lse = s.lse;
    to.start = args.pages.starts ? min(max(0, args.pages.starts[to.sequence]), s.kv_len) : 0;
    to.from = max(to.start, s.low);
    to.to = min(s.kv_len, s.q_len + s.high);
    const bool sees_nothing = to.to <= to.from; /* walks one key tile and masks all of it */
    to.first = sees_nothing ? 0 : to.from / COLUMNS;
    to.last = sees_nothing ? 0 : (to.to - 1) / COLUMNS;
    return s.q_len > 0 && s.q_len * args.run.group_heads <= decode_shape<D>::ROWS;
}

/* Copies a tile's columns from .. to - 1, of K or of V; others keep what was there. */
template <int D>
ORDO_DEVICE void decode_load_tile(const ordo_decode_args &args, const decode_record &unit,
                                  const CUtensorMap *map, int tile, uint32_t at, uint32_t full,
                                  uint64_t policy)
{
    using Z = decode_shape<D>;
    const ordo_decode_pages &pages = args.pages;
    const int lane = threadIdx.x % 32, rows = pages.copy_rows, begin = tile * Z::COLUMNS;
    const int first = max(0, unit.from - begin) / rows;
    const int end = (min((int)Z::COLUMNS, unit.to - begin) + rows - 1) / rows;
    const int copies = max(0, end - first) * Z::PANELS;
    if (lane == 0)
        mbar_expect(full, (uint32_t)(copies * rows * ORDO_LINE_BYTES));
    __syncwarp();
    for (int x = lane; x < copies; x += 32) {
        const int line = (first + x / Z::PANELS) * rows, panel = x % Z::PANELS;
        const int column = begin + line;
        int row = unit.kv_row + column, page = unit.batch;
        if (pages.table) {
            const int32_t *const table = pages.table + unit.sequence * pages.table_stride;
            page = min(max(0, table[column / pages.rows]), pages.pages - 1);
            row = column % pages.rows;
        }
        tma_load(at + (uint32_t)((panel * Z::COLUMNS + line) * ORDO_LINE_BYTES), map, full,
                 panel * ORDO_PANEL_COLUMNS, row, unit.key_head, page, policy);
    }
}

/* The queries of a unit: `group` lines each. */
template <int D>
ORDO_DEVICE void decode_load_q(const ordo_decode_args &args, const decode_record &unit, uint32_t at,
                               uint32_t full, uint64_t policy)
{
    using Z = decode_shape<D>;
    const int lane = threadIdx.x % 32, group = args.run.group_heads;
    if (lane == 0)
        mbar_expect(full, (uint32_t)(unit.q_len * group * Z::PANELS * ORDO_LINE_BYTES));
    __syncwarp();
    for (int x = lane; x < unit.q_len * Z::PANELS; x += 32) {
        const int query = x / Z::PANELS, panel = x % Z::PANELS;
        tma_load(at + (uint32_t)((panel * Z::ROWS + query * group) * ORDO_LINE_BYTES), &args.map.q,
                 full, panel * ORDO_PANEL_COLUMNS, unit.key_head * group, unit.q_row + query,
                 unit.batch, policy);
    }
}

template <int D> ORDO_DEVICE void decode_load(const ordo_decode_args &args, char *smem)
{
    using Z = decode_shape<D>;
    const int lane = threadIdx.x % 32;
    const uint64_t policy = policy_evict_first();
    pipeline_state<Z::STAGES> k_at, v_at;
    k_at.parity = v_at.parity = 1;
    auto draw = [&] {
        int ticket = 0;
        if (lane == 0)
            ticket = (int)gridDim.x + atomicAdd(args.ticket, 1);
        return __shfl_sync(~0u, ticket, 0);
    };
    int ticket = blockIdx.x;
    for (uint32_t drawn = 0;; drawn++) {
        decode_record unit;
        while (ticket < args.units && !decode_describe<D>(args, ticket, unit))
            ticket = draw();
        const bool done = ticket >= args.units;
        const uint32_t q_stage = forward_q_stage<Z>(drawn), q_full = Z::Q_FULL + 8 * q_stage;
        auto load_k = [&](int tile) {
            mbar_wait(Z::K_EMPTY + 8 * k_at.stage, k_at.parity);
            decode_load_tile<D>(args, unit, &args.map.k, tile, Z::K + k_at.stage * Z::K_BYTES,
                                Z::K_FULL + 8 * k_at.stage, policy);
            k_at.advance();
        };
        if (!done)
            load_k(unit.last); /* its stage is free before Q's */
        mbar_wait(Z::Q_EMPTY + 8 * q_stage, forward_q_parity<Z>(drawn) ^ 1);
        if (done)
            unit.key_head = -1;
        if (lane == 0)
            *Z::records::of(smem, drawn) = unit;
        if (done) {
            if (lane == 0)
                mbar_arrive(q_full);
            return;
        }
        decode_load_q<D>(args, unit, Z::Q + q_stage * Z::Q_BYTES, q_full, policy);
        ticket = draw();
        for (int tile = unit.last; tile >= unit.first; tile--) {
            if (tile > unit.first)
                load_k(tile - 1);
            mbar_wait(Z::V_EMPTY + 8 * v_at.stage, v_at.parity);
            decode_load_tile<D>(args, unit, &args.map.v, tile, Z::V + v_at.stage * Z::K_BYTES,
                                Z::V_FULL + 8 * v_at.stage, policy);
            v_at.advance();
        }
    }
}

/* Zeros in lines of a tile of V that no row sees, where a freed page, another sequence or an older
 * tile may have left NaN: columns before `from` and from `to` on, counted from the tile's first. */
template <int D> ORDO_DEVICE void decode_zero(uint32_t tile, int from, int to)
{
    using Z = decode_shape<D>;
    enum { CHUNKS = ORDO_LINE_BYTES / 16 };
    from = max(0, from);
    to = max(from, to);
    const int before = min((int)Z::COLUMNS, from), after = max(0, Z::COLUMNS - to);
    const int lines = before + after, count = lines * Z::PANELS * CHUNKS;
#pragma unroll 1
    for (int x = threadIdx.x; x < count; x += 128) {
        const int line = x / CHUNKS % lines, panel = x / CHUNKS / lines;
        store_shared4(
            tile +
                (uint32_t)((panel * Z::COLUMNS + (line < before ? line : to + line - before)) *
                           ORDO_LINE_BYTES) +
                (uint32_t)(x % CHUNKS) * 16,
            0.0f, 0.0f, 0.0f, 0.0f);
    }
    fence_shared_to_async();
    named_sync(OWN, 128);
}

/* What a thread knows of its two rows, r and r + 8 of its warp's sixteen. */
struct decode_rows {
    int query[2], head[2];
    int from[2], to[2]; /* columns that it sees: from .. to - 1 */
    float slope[2], sink[2];
    bool exists[2];
};

ORDO_DEVICE decode_rows decode_rows_of(const ordo_decode_args &args, const decode_record &unit)
{
    decode_rows rows;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int line = ordo_accumulator_row((int)threadIdx.x, 2 * r);
        rows.query[r] = line / args.run.group_heads;
        rows.head[r] = unit.key_head * args.run.group_heads + line % args.run.group_heads;
        rows.from[r] = max(unit.start, rows.query[r] + unit.low);
        rows.to[r] = min(unit.kv_len, rows.query[r] + unit.high + 1);
        rows.exists[r] = rows.query[r] < unit.q_len;
        rows.slope[r] = args.slopes && rows.exists[r]
                            ? args.slopes[unit.sequence * args.slopes_sequence + rows.head[r]]
                            : 0.0f;
        rows.sink[r] = args.sink && rows.exists[r] ? args.sink[rows.head[r]] : -INFINITY;
    }
    return rows;
}

/* The rule on a tile's scores; `at`: the thread's first column. */
template <int N>
ORDO_DEVICE void decode_rule(float (&s)[N], const ordo_score_rule &rule, const decode_rows &rows,
                             int diagonal, int at)
{
    ordo_score_rule alike = rule; /* for all rows of a thread: without ALiBi */
    alike.biased = false;
    apply_rule<-1, true>(s, alike, [](float &) { return 0; });
    if (rule.biased)
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int r = i / 2 % 2, away = rows.query[r] + diagonal - at;
            const float distance = (float)away - (float)ordo_accumulator_column(0, i);
            s[i] = fmaf(-(rows.slope[r] * rule.slope), fabsf(distance), s[i]);
        }
}

/* The end of a row, as forward_sums() has it: the factor of its outputs, and its lse. */
struct decode_end {
    float weight, lse;
    bool sees_nothing;
};

template <bool F16>
ORDO_DEVICE decode_end decode_end_of(const ordo_decode_args &args, float max, float sum, float sink)
{
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (sum == 0.0f && max == -INFINITY)
        return { 1.0f, sink, true };
    if (F16 && ordo_softmax_far(max, args.scale_log2))
        sum = NAN;
    if (sink == -INFINITY) /* NaN is a sink */
        return { 1.0f / sum, fmaf(max, args.to_logit, logf(sum)), false };
    const row_with_sink row = with_sink(max, sum, args.scale_log2, sink);
    return { row.shrink / row.sum, fmaf(row.top, (float)ORDO_LN_2, logf(row.sum)), false };
}

/* Stores row r of a thread's accumulators, 64 bytes per quad, if it exists; `at`: of the quad's
 * first 16 bytes. Nonzero if a value written is not finite. */
template <bool F16, int N>
ORDO_DEVICE uint32_t decode_put(const float (&o)[N], int r, float weight, char *at, bool exists,
                                int columns)
{
    const int quad = threadIdx.x % 4;
    uint32_t taint = 0;
#pragma unroll
    for (int g = 0; g < N / 16; g++) {
        uint32_t words[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            words[c] = pack_pair<F16>(o[16 * g + 4 * c + 2 * r] * weight,
                                      o[16 * g + 4 * c + 2 * r + 1] * weight);
        quad_transpose(words, quad);
        if (!exists || 32 * g + 8 * quad >= columns)
            continue;
        *(uint4 *)(at + 64 * g) = make_uint4(words[0], words[1], words[2], words[3]);
#pragma unroll
        for (int c = 0; c < 4; c++)
            taint = not_finite<F16>(taint, words[c]);
    }
    return taint;
}

/* Divides O by the row sums, rounds and stores it, and lse. */
template <int D, bool F16>
ORDO_DEVICE void decode_epilogue(const ordo_decode_args &args, const decode_record &unit,
                                 const decode_rows &rows, const row_state &state, float (&o)[D / 2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const decode_end end = decode_end_of<F16>(args, state.max[r], state.sum[r], rows.sink[r]);
        if (threadIdx.x % 4 == 0 && rows.exists[r])
            args.lse[unit.lse + rows.head[r] * args.batch.lse_head + rows.query[r]] = end.lse;
        if (end.sees_nothing)
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                if (i / 2 % 2 == r)
                    o[i] = 0.0f;
        char *const to = row_address(args.o, unit.batch, unit.q_row + rows.query[r], rows.head[r]);
        if (decode_put<F16>(o, r, end.weight, to + 16 * (threadIdx.x % 4), rows.exists[r],
                            args.v_head_dim))
            args.ticket[ORDO_NOT_FINITE] = 1;
    }
}

template <int D, bool F16>
__global__ void __launch_bounds__(decode_shape<D>::THREADS, 1)
    forward_decode_kernel(const __grid_constant__ ordo_decode_args args)
{
    using Z = decode_shape<D>;
    extern __shared__ __align__(1024) char smem[];
    if (forward_begin<Z>() == 1) {
        decode_load<D>(args, smem);
        return;
    }

    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const uint32_t k_low0 = ordo_descriptor_low(Z::K, 16);
    const uint32_t v_low0 = ordo_descriptor_low(Z::V, Z::COLUMNS * ORDO_LINE_BYTES);
    float s[Z::COLUMNS / 2], o[D / 2];
    uint32_t p[Z::COLUMNS / 4] = {};
    pipeline_state<Z::STAGES> now, last;
    for (uint32_t drawn = 0;; drawn++) {
        const uint32_t q_stage = forward_q_stage<Z>(drawn);
        mbar_wait(Z::Q_FULL + 8 * q_stage, forward_q_parity<Z>(drawn));
        const decode_record &unit = *Z::records::of(smem, drawn);
        if (unit.key_head < 0)
            break;
        const decode_rows rows = decode_rows_of(args, unit);
        const int lines =
            unit.q_len * args.run.group_heads - warp * 16; /* lines from this warp's first on */
        const int column = 2 * (lane % 4);
        const uint32_t q_low = ordo_descriptor_low(Z::Q, 16) + q_stage * (Z::Q_BYTES / 16);
        row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0.0f;

        auto issue_scores = [&] {
            mbar_wait(Z::K_FULL + 8 * now.stage, now.parity);
            wgmma_pin(s);
            wgmma_pin(o);
            wgmma_fence();
            forward_scores<Z, F16>(s, q_low, k_low0 + now.stage * (Z::K_BYTES / 16));
            wgmma_commit();
        };
        /* O += P V of a tile, where values that no row may see are zeroed first. */
        auto issue_outputs = [&](int tile) {
            const int begin = tile * Z::COLUMNS;
            mbar_wait(Z::V_FULL + 8 * last.stage, last.parity);
            if (begin < unit.from || begin + Z::COLUMNS > unit.to)
                decode_zero<D>(Z::V + last.stage * Z::K_BYTES, unit.from - begin, unit.to - begin);
            wgmma_fence();
            forward_outputs<Z, F16>(o, p, v_low0 + last.stage * (Z::K_BYTES / 16));
            wgmma_commit();
        };

        issue_scores();
        wgmma_commit(); /* no outputs yet */
#pragma unroll 1
        for (int tile = unit.last;; tile--) {
            const int at = tile * Z::COLUMNS + column;
            wgmma_wait<1>();
            wgmma_pin(s);
            mbar_arrive_warp(Z::K_EMPTY + 8 * now.stage, lane);
            if (lines > 0) {
                if (args.has_rule)
                    decode_rule(s, args.rule, rows, unit.diagonal, at);
                /* Partial for some row: queries see from low + i to high + i. */
                if (tile * Z::COLUMNS < max(unit.start, unit.q_len - 1 + unit.low) ||
                    (tile + 1) * Z::COLUMNS > min(unit.kv_len, unit.high + 1))
                    mask_window(s, { rows.from[0] - at, rows.from[1] - at },
                                { rows.to[0] - at - 1, rows.to[1] - at - 1 }, -INFINITY);
                row_softmax(s, row_top(s, state, 0), args.scale_log2, state, 0);
                if (lines > 8)
                    row_softmax(s, row_top(s, state, 1), args.scale_log2, state, 1);
            }
            wgmma_wait<0>();
            wgmma_pin(o);
            if (tile != unit.last)
                mbar_arrive_warp(Z::V_EMPTY + 8 * last.stage, lane);
            if (lines > 0)
                pack_probabilities<false, F16>(p, s, make_uint2(0, 0));
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                o[i] *= state.shrink[i / 2 % 2];
            last = now;
            now.advance();
            if (tile == unit.first)
                break;
            issue_scores();
            issue_outputs(tile);
        }
        mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, lane);
        wgmma_pin(o);
        issue_outputs(unit.first);
        wgmma_wait<0>();
        wgmma_pin(o);
        mbar_arrive_warp(Z::V_EMPTY + 8 * last.stage, lane);
        decode_epilogue<D, F16>(args, unit, rows, state, o);
    }
}

#endif
