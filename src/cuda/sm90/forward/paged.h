/* sm90/forward/paged.h: loader warps of the forward kernel for keys in pages: two load keys, two
 * values, each every other piece of a tile. Values that no row of the unit sees are neither copied
 * nor read (varlen_stored()). */
#ifndef CUDA_SM90_FORWARD_PAGED_H
#define CUDA_SM90_FORWARD_PAGED_H

#include "cuda/sm90/forward/pieces.h"
#include "cuda/sm90/forward/roles.h"

/* Describes a unit. One that sees nothing walks key tile 0, all of it hidden. */
template <int D>
ORDO_DEVICE void paged_describe(const ordo_paged_args &args, int ticket, char *smem, uint32_t drawn)
{
    using Z = forward_shape<D, D, true, FORWARD_PAGES>;
    forward_record *const to = Z::records::of(smem, drawn);
    forward_stored *const more = Z::stored::of(smem, drawn);
    const int sequence = forward_describe<D, D, FORWARD_PAGES>(args, ticket, to).sequence;
    const int queries = min((int)Z::ROWS, to->q_len - to->row);
    const int start = args.pages.starts ? min(max(0, args.pages.starts[sequence]), to->kv_len) : 0;
    const int from = max(start, to->row + to->low);
    const int end = min(to->kv_len, to->row + queries + to->high);
    const bool sees_nothing = end <= from;
    to->first = sees_nothing ? 0 : from / Z::COLUMNS;
    to->last = sees_nothing ? 0 : (end - 1) / Z::COLUMNS;
    *more = { sequence, 0, 0, start, from, end };
}

/* NaN in the lines of keys without a page, so that rows that see them become NaN and no others do.
 * `lost`: these pieces of a tile. */
template <class Z> ORDO_DEVICE void paged_lose(uint32_t tile, uint32_t lost, int shift)
{
    enum { CHUNKS = ORDO_LINE_BYTES / 16 };
    const int lines = 1 << shift, count = lines * Z::PANELS * CHUNKS;
#pragma unroll 1
    for (; lost; lost &= lost - 1)
#pragma unroll 1
        for (int x = threadIdx.x % 32; x < count; x += 32) {
            const int line = (__ffs((int)lost) - 1) * lines + x / CHUNKS % lines;
            store_shared4(
                tile + (uint32_t)((x / CHUNKS / lines * Z::COLUMNS + line) * ORDO_LINE_BYTES) +
                    (uint32_t)(x % CHUNKS) * 16,
                NAN, NAN, NAN, NAN);
        }
    fence_shared_to_async();
    __syncwarp();
}

/* Every other piece of a tile of K, or of V, whose stage is empty. `begin`: the lane of the tile's
 * first piece. */
template <class Z, bool VALUES, int HALF>
ORDO_DEVICE void paged_copy(const ordo_paged_args &args, const page_span &span, int begin,
                            int kv_head, uint32_t at, uint32_t full)
{
    const int lane = threadIdx.x % 32, shift = args.copy_shift, bytes = ORDO_LINE_BYTES << shift;
    const uint32_t piece = (uint32_t)(lane - begin);
    const bool mine = piece < (uint32_t)(Z::COLUMNS >> shift) && lane % 2 == HALF && span.page >= 0;
    const bool there = mine && (VALUES || span.page < args.pages.count);
    if (!VALUES) {
        const uint32_t lost = __ballot_sync(~0u, mine && !there);
        if (lost)
            paged_lose<Z>(at, lost >> begin, shift);
    }
    const uint32_t copied = __ballot_sync(~0u, there);
    if (lane == 0)
        mbar_expect(full, (uint32_t)(__popc(copied) * Z::PANELS * bytes));
    __syncwarp();
    if (there)
#pragma unroll
        for (int panel = 0; panel < Z::PANELS; panel++)
            tma_load(at + (uint32_t)panel * (Z::COLUMNS * ORDO_LINE_BYTES) + piece * bytes,
                     VALUES ? &args.map.v : &args.map.k, full, panel * ORDO_PANEL_COLUMNS, span.row,
                     kv_head, span.page, policy_evict_last());
}

/* The next unit. Blocks that start late, after those of the kernel beside this one, may find none:
 * no unit waits for them. */
ORDO_DEVICE int paged_draw(const ordo_paged_args &args)
{
    int ticket = 0;
    if (threadIdx.x % 32 == 0)
        ticket = atomicAdd(args.ticket + ORDO_SECOND_TICKET, 1);
    return __shfl_sync(~0u, ticket, 0);
}

/* The rows of a unit. */
template <class Z>
ORDO_DEVICE void paged_load_queries(const ordo_paged_args &args, const forward_record *record,
                                    uint32_t drawn)
{
    const uint32_t stage = forward_q_stage<Z>(drawn), full = Z::Q_FULL + 8 * stage;
    mbar_wait(Z::Q_EMPTY + 8 * stage, forward_q_parity<Z>(drawn) ^ 1);
    if (threadIdx.x % 32 == 0) {
        mbar_expect(full, Z::Q_BYTES);
        tma_load_tile<ORDO_PANEL_COLUMNS * Z::PANELS>(
            Z::Q + stage * Z::Q_BYTES, &args.map.q, full, Z::ROWS, record->q_row + record->row,
            record->head, record->batch, policy_evict_first());
    }
}

/* A loader warp. The first one of keys draws units and loads their queries. */
template <int D, bool VALUES, int HALF>
ORDO_DEVICE void paged_load(const ordo_paged_args &args, char *smem)
{
    using Z = forward_shape<D, D, true, FORWARD_PAGES>;
    constexpr bool DRAWS = !VALUES && HALF == 0;
    const int lane = threadIdx.x % 32;
    const int units = args.issue.heads * args.batch.table[args.batch.sequences].query_tile;
    pipeline_state<Z::STAGES> at;
    at.parity = 1;
    int ticket = DRAWS ? paged_draw(args) : 0;
    auto describe = [&](uint32_t drawn) {
        if (lane == 0 && ticket < units)
            paged_describe<D>(args, ticket, smem, drawn);
        __syncwarp();
    };
    if (DRAWS)
        describe(0);
    for (uint32_t drawn = 0;; drawn++) {
        const uint32_t q_stage = forward_q_stage<Z>(drawn), q_full = Z::Q_FULL + 8 * q_stage;
        forward_record *const record = Z::records::of(smem, drawn);
        const forward_stored &stored = *Z::stored::of(smem, drawn);
        if (!DRAWS) {
            mbar_wait(q_full, forward_q_parity<Z>(drawn));
            if (record->head < 0)
                return;
            /* The consumers may be done with Q before they ask for values. */
            mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, lane);
        } else if (ticket >= units) {
            mbar_wait(Z::Q_EMPTY + 8 * q_stage, forward_q_parity<Z>(drawn) ^ 1);
            if (lane == 0) {
                record->head = -1; /* no more */
                mbar_arrive(q_full);
            }
            return;
        }
        /* Read from the record at each use, to save registers. */
        const int &first = record->first, &last = record->last;
        page_span span;
        int begin;
        auto look = [&](int tile) {
            span = page_span_find<Z::COLUMNS>(args, stored, tile, 1, first);
            begin = 0;
        };
        look(last);
        for (int tile = last; tile >= first; tile--) {
            const uint32_t full = (VALUES ? Z::V_FULL : Z::K_FULL) + 8 * at.stage;
            const uint32_t to = (VALUES ? Z::V : Z::K) + at.stage * Z::K_BYTES;
            mbar_wait((VALUES ? Z::V_EMPTY : Z::K_EMPTY) + 8 * at.stage, at.parity);
            paged_copy<Z, VALUES, HALF>(args, span, begin, record->head / args.run.group_heads, to,
                                        full);
            begin += Z::COLUMNS >> args.copy_shift;
            at.advance();
            if (DRAWS && tile == last) {
                paged_load_queries<Z>(args, record, drawn);
                ticket = paged_draw(args);
            }
            if (DRAWS && tile == max(last - 1, first)) { /* in the shadow of two tiles */
                describe(drawn + 1);
                look(tile - 1);
            } else if (begin == 32) { /* before its stage is empty: the table's latency is hidden */
                look(tile - 1);
            }
        }
    }
}

#endif
