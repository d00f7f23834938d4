/* sm90/forward/decode.h: the forward kernel for few queries over keys in pages, and for short
 * pages. Key tiles, their order and all arithmetic are those of the varlen kernel, and so are the
 * bits of a row.
 *
 * A unit is some queries of a sequence and a key head. Its 64 lines are the rows of all query heads
 * of the group: line r is query r / group of head r % group, so that keys and values pass once for
 * all of them. One warpgroup consumes; loader warps (decode_load.h) know that a tile of keys may
 * lie in many pages. */
#ifndef CUDA_SM90_FORWARD_DECODE_H
#define CUDA_SM90_FORWARD_DECODE_H

#include "cuda/sm90/forward/decode_load.h"
#include "cuda/sm90/forward/epilogue.h"
#include "cuda/tile/put_rows.h"

/* What a thread knows of its two rows, r and r + 8 of its warp's sixteen. */
struct decode_rows {
    int query[2], head[2];
    int from[2], to[2]; /* columns that it sees: from .. to - 1 */
    float slope[2], sink[2];
    bool exists[2];
};

ORDO_DEVICE decode_rows decode_rows_of(const ordo_paged_args &args, const decode_record &unit)
{
    decode_rows rows;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int line = ordo_accumulator_row((int)threadIdx.x, 2 * r);
        const int query = line / args.run.group_heads;
        rows.query[r] = unit.query + query;
        rows.head[r] = unit.key_head * args.run.group_heads + line % args.run.group_heads;
        rows.from[r] = max(unit.start, rows.query[r] + unit.low);
        rows.to[r] = min(unit.kv_len, rows.query[r] + unit.high + 1);
        rows.exists[r] = query < unit.queries;
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
ORDO_DEVICE decode_end decode_end_of(const ordo_paged_args &args, float max, float sum, float sink)
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
ORDO_DEVICE void decode_epilogue(const ordo_paged_args &args, const decode_record &unit,
                                 const decode_rows &rows, const row_state &state, float (&o)[D / 2])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const bool lost = max(unit.lost_from, rows.from[r]) < min(unit.lost_to, rows.to[r]);
        const decode_end end =
            decode_end_of<F16>(args, state.max[r], lost ? NAN : state.sum[r], rows.sink[r]);
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

template <bool GATHER> constexpr int decode_threads = 128 + 32 * (GATHER ? (int)DECODE_LOADERS : 1);

/* GATHER: keys are copied line by line. */
template <int D, bool F16, bool GATHER>
__global__ void __launch_bounds__(decode_threads<GATHER>, 1)
    forward_decode_kernel(const __grid_constant__ ordo_paged_args args)
{
    using Z = decode_shape<D>;
    extern __shared__ __align__(1024) char smem[];
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (forward_begin<Z>(GATHER ? 32 * DECODE_LOADERS : 1) == 1) {
        decode_load<D, GATHER>(args, smem, warp - 4);
        return;
    }

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
            unit.queries * args.run.group_heads - warp * 16; /* from this warp's first on */
        const int column = 2 * (lane % 4);
        const uint32_t q_low = ordo_descriptor_low(Z::Q, 16) + q_stage * (Z::Q_BYTES / 16);
        row_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            o[i] = 0.0f;

        auto issue_scores = [&] {
            mbar_wait(Z::K_FULL + 8 * now.stage, now.parity);
            if (GATHER)
                fence_shared_to_async();
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
            if (GATHER)
                fence_shared_to_async();
            if (begin < unit.from || begin + Z::COLUMNS > unit.to)
                zero_outside(Z::V + last.stage * Z::K_BYTES, Z::COLUMNS, Z::PANELS,
                             unit.from - begin, unit.to - begin, threadIdx.x, OWN);
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
                /* Partial for some row. */
                if (tile * Z::COLUMNS < max(unit.start, unit.query + unit.queries - 1 + unit.low) ||
                    (tile + 1) * Z::COLUMNS > min(unit.kv_len, unit.query + unit.high + 1))
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
    grid_wait(); /* the kernels before, beside which it may run: so the repair comes after them */
}

template <int D, bool F16, bool GATHER> static ordo_forward_instance forward_decode_instance(void)
{
    using Z = decode_shape<D>;
    return { (const void *)forward_decode_kernel<D, F16, GATHER>, Z::ROWS, Z::COLUMNS,
             decode_threads<GATHER>, Z::BYTES };
}

#endif
