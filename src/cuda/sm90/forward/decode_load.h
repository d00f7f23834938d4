/* sm90/forward/decode_load.h: units and shared memory of the kernel in decode.h, and its loader
 * warps. */
#ifndef CUDA_SM90_FORWARD_DECODE_LOAD_H
#define CUDA_SM90_FORWARD_DECODE_LOAD_H

#include "cuda/sm90/forward/pieces.h"
#include "cuda/sm90/forward/roles.h"

struct decode_record {
    int32_t key_head; /* -1: no more units */
    int32_t sequence, batch, q_row;
    int32_t kv_row;         /* row of column 0 in tensors without pages */
    int32_t query, queries; /* the first one, of the sequence, and how many */
    int32_t low, high;      /* query q sees columns q + low .. q + high */
    int32_t kv_len, diagonal;
    int32_t start;              /* the first stored column */
    int32_t from, to;           /* columns that a row may see */
    int32_t lost_from, lost_to; /* columns from the first to behind the last whose page is none */
    int32_t first, last;        /* key tiles, walked last to first. At least one */
    bool shared;                /* other units have the same keys */
    int64_t lse;                /* place of the sequence's (head 0, row 0) */
};

enum { DECODE_LOADERS = 4 }; /* warps of a gather; else there is one */

template <int D> struct decode_shape {
    enum {
        ROWS = ORDO_PAGED_LINES,
        COLUMNS = ORDO_SM90_FORWARD_K(D),
        STAGES = D == 64 ? 6 : 3, /* each of K and V */
        Q_STAGES = D > 128 ? 1 : 2,
        CONSUMERS = 1, /* warpgroups */
        PANELS = D / ORDO_PANEL_COLUMNS,
        Q_BYTES = ROWS * D * 2,
        K_BYTES = COLUMNS * D * 2,
        RECORDS = 4, /* as in the varlen kernel */
        BIAS = 0,    /* likewise: there is none */
        BIAS_STAGES = 0,
        BIAS_FULL = 0,
        BIAS_EMPTY = 0,
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

/* Queries of a sequence from `query` on, and a key head. */
template <int D>
ORDO_DEVICE void decode_describe_queries(const ordo_paged_args &args, const ordo_cuda_sequence &s,
                                         int query, decode_record &to)
{
    enum { COLUMNS = decode_shape<D>::COLUMNS };
    to.batch = s.batch;
    to.q_row = s.q_row;
    to.kv_row = s.kv_row;
    to.query = query;
    to.queries = min(args.queries, s.q_len - to.query);
    to.low = s.low;
    to.high = s.high;
    to.kv_len = s.kv_len;
    to.diagonal = s.diagonal;
    to.lse = s.lse;
    to.lost_from = INT32_MAX;
    to.lost_to = 0;
    to.start = args.pages.starts ? min(max(0, args.pages.starts[to.sequence]), s.kv_len) : 0;
    to.from = max(to.start, to.query + s.low);
    to.to = min(s.kv_len, to.query + to.queries + s.high);
    const bool sees_nothing = to.to <= to.from; /* walks one key tile and masks all of it */
    to.first = sees_nothing ? 0 : to.from / COLUMNS;
    to.last = sees_nothing ? 0 : (to.to - 1) / COLUMNS;
}

/* Unit number `unit`. Those of a sequence's last queries, which see most, come first. */
template <int D>
ORDO_DEVICE void decode_describe(const ordo_paged_args &args, int unit, decode_record &to)
{
    const int tile = unit / args.run.kv_heads;
    to.sequence = ordo_batch_find(&args.batch, ORDO_BEFORE_FORWARD, tile);
    to.key_head = unit % args.run.kv_heads;
    const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, to.sequence);
    const int tiles = (s.q_len + args.queries - 1) / args.queries;
    to.shared = tiles > 1;
    decode_describe_queries<D>(args, s, (s.forward_tile + tiles - 1 - tile) * args.queries, to);
}

/* A lane's piece of a tile: in a gather a line of the warp's quarter of the tile. */
template <int D, bool GATHER>
ORDO_DEVICE page_piece decode_find(const ordo_paged_args &args, const decode_record &unit, int tile,
                                   int warp)
{
    using Z = decode_shape<D>;
    enum { LINES = GATHER ? Z::COLUMNS / DECODE_LOADERS : Z::COLUMNS };
    return page_find<LINES>(args, GATHER ? 0 : args.copy_shift, unit,
                            tile * Z::COLUMNS + warp * LINES, tile >= unit.first);
}

/* Tells the consumers of columns that have no page, before they are told of the tile. */
ORDO_DEVICE void decode_tell(bool lost, int column, int rows, decode_record *unit)
{
    if (lost) {
        atomicMin(&unit->lost_from, column);
        atomicMax(&unit->lost_to, column + rows);
        __threadfence_block();
    }
    __syncwarp();
}

/* A tile of K or of V by the copy engine; columns that no piece has keep what was there. */
template <int D>
ORDO_DEVICE void decode_copy(const ordo_paged_args &args, const page_piece &piece, int key_head,
                             const CUtensorMap *map, uint32_t at, uint32_t full, uint64_t policy)
{
    using Z = decode_shape<D>;
    const int lane = threadIdx.x % 32, bytes = ORDO_LINE_BYTES << args.copy_shift;
    if (lane == 0)
        mbar_expect(full, (uint32_t)(max(0, piece.end - piece.first) * Z::PANELS * bytes));
    __syncwarp();
    if (lane >= piece.first && lane < piece.end)
#pragma unroll
        for (int panel = 0; panel < Z::PANELS; panel++)
            tma_load(at + (uint32_t)(panel * Z::COLUMNS * ORDO_LINE_BYTES + lane * bytes), map,
                     full, panel * ORDO_PANEL_COLUMNS, piece.from.row, key_head, piece.from.page,
                     policy);
}

/* 16 bytes to shared memory, of which `bytes` (16 or 0) are read and the rest are zeros; and an
 * arrival, which the barrier counts on, once this thread's earlier copies are there. Products see
 * them after fence_shared_to_async(). */
ORDO_DEVICE void async_copy(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

ORDO_DEVICE void async_arrive(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

/* A warp's quarter of a tile of K or of V, 16 bytes per thread: the copy engine is slower with
 * pieces of 8 lines and less. Consumers make it visible to their products. */
template <int D>
ORDO_DEVICE void decode_gather(const page_piece &piece, int key_head, const ordo_cuda_tensor &x,
                               int columns, uint32_t at, uint32_t full, int warp)
{
    using Z = decode_shape<D>;
    enum { LINES = Z::COLUMNS / DECODE_LOADERS, CHUNKS = D / 8 };
    const int lane = threadIdx.x % 32;
    const int64_t mine =
        piece.lost ? -1 : piece.from.page * x.sequence + piece.from.row * x.row + key_head * x.head;
#pragma unroll 4
    for (int n = lane; n < LINES * CHUNKS; n += 32) {
        const int line = n / CHUNKS, column = n % CHUNKS * 8;
        const int64_t from = __shfl_sync(~0u, mine, line);
        const bool there = from >= 0 && column < columns;
        if (line >= piece.first && line < piece.end)
            async_copy(at + ordo_tile_offset(Z::COLUMNS, warp * LINES + line, column),
                       (const uint16_t *)x.data + (there ? from + column : 0), there ? 16 : 0);
    }
    async_arrive(full);
}

/* The queries of a unit: `group` lines each. */
template <int D>
ORDO_DEVICE void decode_load_q(const ordo_paged_args &args, const decode_record &unit, uint32_t at,
                               uint32_t full, uint64_t policy)
{
    using Z = decode_shape<D>;
    const int lane = threadIdx.x % 32, group = args.run.group_heads;
    if (lane == 0)
        mbar_expect(full, (uint32_t)(unit.queries * group * Z::PANELS * ORDO_LINE_BYTES));
    __syncwarp();
    for (int x = lane; x < unit.queries * Z::PANELS; x += 32) {
        const int query = x / Z::PANELS, panel = x % Z::PANELS;
        tma_load(at + (uint32_t)((panel * Z::ROWS + query * group) * ORDO_LINE_BYTES), &args.map.q,
                 full, panel * ORDO_PANEL_COLUMNS, unit.key_head * group,
                 unit.q_row + unit.query + query, unit.batch, policy);
    }
}

/* A loader warp: the first draws units and loads their queries; in a gather all load keys and
 * values, else there is no other. */
template <int D, bool GATHER>
ORDO_DEVICE void decode_load(const ordo_paged_args &args, char *smem, int warp)
{
    using Z = decode_shape<D>;
    const int lane = threadIdx.x % 32;
    const uint64_t evict_first = policy_evict_first(), evict_last = policy_evict_last();
    const int units = args.run.kv_heads * (int)ordo_batch_before(&args.batch, ORDO_BEFORE_FORWARD,
                                                                 args.batch.sequences);
    pipeline_state<Z::STAGES> k_at, v_at;
    k_at.parity = v_at.parity = 1;
    /* Beside the kernels in spread.h blocks start late: units are no block's by number. */
    const bool late = args.pages.spread.slots > 0;
    const auto draw = [&] {
        const int next = lane == 0 ? atomicAdd(args.ticket, 1) : 0;
        return __shfl_sync(~0u, next, 0);
    };
    int ticket = warp == 0 && late ? draw() : (int)blockIdx.x;
    for (uint32_t drawn = 0;; drawn++) {
        const uint32_t q_stage = forward_q_stage<Z>(drawn), q_full = Z::Q_FULL + 8 * q_stage;
        decode_record unit = {};
        unit.key_head = -1;
        if (warp > 0) {
            mbar_wait(q_full, forward_q_parity<Z>(drawn));
            unit = *Z::records::of(smem, drawn);
        } else if (ticket < units) {
            decode_describe<D>(args, ticket, unit);
        }
        const bool done = unit.key_head < 0;
        const uint64_t policy = unit.shared ? evict_last : evict_first;
        page_piece now = {}, next = {};
        auto load = [&](pipeline_state<Z::STAGES> &to, int tiles, int full, int empty,
                        const page_piece &piece, const ordo_cuda_tensor &x, int columns,
                        const CUtensorMap *map) {
            const uint32_t at = tiles + to.stage * Z::K_BYTES;
            mbar_wait(empty + 8 * to.stage, to.parity);
            if (GATHER)
                decode_gather<D>(piece, unit.key_head, x, columns, at, full + 8 * to.stage, warp);
            else
                decode_copy<D>(args, piece, unit.key_head, map, at, full + 8 * to.stage, policy);
            to.advance();
        };
        auto load_k = [&](const page_piece &piece) {
            load(k_at, Z::K, Z::K_FULL, Z::K_EMPTY, piece, args.k, args.head_dim, &args.map.k);
        };
        if (!done) {
            now = decode_find<D, GATHER>(args, unit, unit.last, warp);
            load_k(now); /* its stage is free before Q's */
            next = decode_find<D, GATHER>(args, unit, unit.last - 1, warp);
        }
        if (warp == 0) {
            mbar_wait(Z::Q_EMPTY + 8 * q_stage, forward_q_parity<Z>(drawn) ^ 1);
            if (lane == 0)
                *Z::records::of(smem, drawn) = unit;
            if (done && lane == 0)
                mbar_arrive(q_full);
        }
        if (done)
            return;
        if (warp == 0) {
            decode_load_q<D>(args, unit, Z::Q + q_stage * Z::Q_BYTES, q_full, evict_first);
            ticket = (late ? 0 : (int)gridDim.x) + draw();
        }
        for (int tile = unit.last; tile >= unit.first; tile--) {
            if (tile > unit.first)
                load_k(next);
            decode_tell(now.lost, now.column, GATHER ? 1 : 1 << args.copy_shift,
                        Z::records::of(smem, drawn));
            load(v_at, Z::V, Z::V_FULL, Z::V_EMPTY, now, args.v, args.v_head_dim, &args.map.v);
            now = next;
            next = decode_find<D, GATHER>(args, unit, tile - 2, warp);
        }
    }
}

#endif
