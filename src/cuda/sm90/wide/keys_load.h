/* sm90/wide/keys_load.h: shared memory and the producer warpgroup of the keys kernel of head sizes
 * 129 to 256: one thread that loads, and three warps that generate keep bits. */
#ifndef CUDA_SM90_WIDE_KEYS_LOAD_H
#define CUDA_SM90_WIDE_KEYS_LOAD_H

#include "cuda/sm90/wide/wide.h"

template <int D, int DV, ordo_keep_source SOURCE> struct wide_keys_shape {
    enum {
        CONSUMER_REGISTERS = 224,
        PRODUCER_REGISTERS = 56,  /* Philox needs them */
        K_BYTES = wide_bytes(D),  /* of a tile of K or Q */
        V_BYTES = wide_bytes(DV), /* of V or dO */
        PANELS = wide_panels(D),
        P_BYTES = WIDE_TILE * WIDE_TILE * 4,
        STAT_BYTES = WIDE_TILE * 4,
        KEEP_BYTES = SOURCE != ORDO_KEEP_NONE ? WIDE_TILE * 128 / 8 : 0,
        STEP_BYTES = 5 * 4,  /* row, cut, slope, head of the keep bits, their block */
        UNIT_BYTES = 10 * 4, /* see below */
        /* shared memory; all but K and V twice, by the parity of the step or unit */
        K = ORDO_SMEM_BASE,
        V = K + K_BYTES,
        Q = V + V_BYTES,
        DO = Q + 2 * K_BYTES,
        P = DO + 2 * V_BYTES,
        LSE = P + 2 * P_BYTES,
        DELTA = LSE + 2 * STAT_BYTES,
        KEEP = DELTA + 2 * STAT_BYTES, /* dropout: of one step */
        K_FULL = KEEP + KEEP_BYTES,    /* barriers, 8 bytes each */
        K_EMPTY = K_FULL + 8,
        V_FULL = K_EMPTY + 8,
        V_EMPTY = V_FULL + 8,
        Q_FULL = V_EMPTY + 8,             /* a panel each */
        STAT_FULL = Q_FULL + 16 * PANELS, /* lse and delta, and the step's record */
        Q_EMPTY = STAT_FULL + 16,         /* by halves of the columns */
        DO_FULL = Q_EMPTY + 32,
        DO_EMPTY = DO_FULL + 16,
        P_FULL = DO_EMPTY + 16,
        P_EMPTY = P_FULL + 16,
        KEEP_FULL = P_EMPTY + 16,
        KEEP_EMPTY = KEEP_FULL + 8,
        STEP = KEEP_EMPTY + 8,
        UNIT = STEP + 2 * STEP_BYTES,
        END = UNIT + 2 * UNIT_BYTES,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
    static_assert(wide_registers_fit(CONSUMER_REGISTERS, PRODUCER_REGISTERS), "registers");
};

/* Indices of the words in the record of a unit, and of a step. */
enum {
    UNIT_STEPS,
    UNIT_KEY,
    UNIT_HEAD,
    UNIT_KEYS,
    UNIT_LOW,
    UNIT_HIGH,
    UNIT_DIAGONAL,
    UNIT_BATCH,
    UNIT_ROW,
    UNIT_QUERIES
};
enum { STEP_ROW, STEP_CUT, STEP_SLOPE, STEP_HEAD, STEP_BLOCK };

/* How the mask cuts a step's tile. HIDDEN: no query sees these keys; the unit has this one step. */
enum { WIDE_WHOLE, WIDE_CUT, WIDE_HIDDEN };

/* ---- loads: one thread ---- */

template <int D, int DV, ordo_keep_source SOURCE> struct wide_keys_loader {
    using Z = wide_keys_shape<D, DV, SOURCE>;
    const ordo_wide_args &args;
    const uint64_t evict_last;
    uint32_t step, units;

    __device__ __forceinline__ void record(uint32_t at, int place, int32_t value) const
    {
        store_shared(at + 4 * place, value);
    }

    /* One copy per sixteen rows; rows that do not exist use the bits of the last ones. */
    __device__ __forceinline__ void bits(const ordo_cuda_sequence &s, int q_head, int row, int key)
    {
        mbar_wait(Z::KEEP_EMPTY, (step & 1) ^ 1);
        mbar_expect(Z::KEEP_FULL, Z::KEEP_BYTES);
        const int last = max(s.q_len - 1, 0) / 16;
        const int64_t first = s.keep + q_head * s.keep_head + key / 128;
#pragma unroll 1
        for (int n = 0; n < WIDE_TILE / 16; n++)
            bulk_load(Z::KEEP + 256 * n,
                      wide_keep_at(args, first + (int64_t)min(row / 16 + n, last) * s.keep_across),
                      256, Z::KEEP_FULL);
    }

    __device__ __forceinline__ void begin_unit(const ordo_cuda_sequence &s, int head, int key,
                                               int steps)
    {
        const uint32_t at = Z::UNIT + (units & 1) * Z::UNIT_BYTES;
        if (args.carry.in && steps > 0) {
            tma_prefetch(&args.dv_sums, 0, s.kv_row + key, head, s.batch);
            tma_prefetch(&args.dk_sums, 0, s.kv_row + key, head, s.batch);
        }
        mbar_wait(Z::K_EMPTY, (units & 1) ^ 1);
        mbar_wait(Z::V_EMPTY, (units & 1) ^ 1);
        record(at, UNIT_STEPS, steps);
        if (steps == 0) {
            mbar_arrive(Z::K_FULL);
            mbar_arrive(Z::V_FULL);
            return;
        }
        record(at, UNIT_KEY, key);
        record(at, UNIT_HEAD, head);
        record(at, UNIT_KEYS, s.kv_len);
        record(at, UNIT_LOW, s.low);
        record(at, UNIT_HIGH, s.high);
        record(at, UNIT_DIAGONAL, s.diagonal);
        record(at, UNIT_BATCH, s.batch);
        record(at, UNIT_ROW, s.kv_row);
        record(at, UNIT_QUERIES, s.q_len);
        mbar_expect(Z::K_FULL, Z::K_BYTES);
        wide_load<D>(Z::K, &args.k, Z::K_FULL, s.kv_row + key, head, s.batch, evict_last);
        mbar_expect(Z::V_FULL, Z::V_BYTES);
        wide_load<DV>(Z::V, &args.v, Z::V_FULL, s.kv_row + key, head, s.batch, evict_last);
        units++;
    }

    __device__ __forceinline__ void load_step(const ordo_cuda_sequence &s, int sequence, int q_head,
                                              int row, int key, int cut)
    {
        const uint32_t stage = step & 1, empty = (step >> 1 & 1) ^ 1;
        const uint32_t do_full = Z::DO_FULL + 8 * stage, stat_full = Z::STAT_FULL + 8 * stage;
        const uint32_t q_full = Z::Q_FULL + 8 * Z::PANELS * stage;
        const uint32_t at = Z::STEP + stage * Z::STEP_BYTES;
        mbar_wait(Z::DO_EMPTY + 8 * stage, empty); /* dO is released first */
        mbar_expect(do_full, Z::V_BYTES);
        wide_load<DV>(Z::DO + stage * Z::V_BYTES, &args.dout, do_full, s.q_row + row, q_head,
                      s.batch, evict_last);
#pragma unroll
        for (int p = 0; p < Z::PANELS; p++) /* dO is empty, so the Q before was full */
            mbar_expect(q_full + 8 * p, WIDE_PANEL_BYTES);
        /* Q next: nothing is needed sooner. */
        const uint32_t q_to = Z::Q + stage * Z::K_BYTES;
        mbar_wait(Z::Q_EMPTY + 16 * stage, empty);
        wide_load_half<D, 0>(q_to, &args.q, q_full, s.q_row + row, q_head, s.batch, evict_last,
                             false);
        mbar_wait(Z::Q_EMPTY + 16 * stage + 8, empty);
        wide_load_half<D, 1>(q_to, &args.q, q_full, s.q_row + row, q_head, s.batch, evict_last,
                             false);
        record(at, STEP_ROW, row);
        record(at, STEP_CUT, cut);
        record(at, STEP_SLOPE, __float_as_int(wide_slope(args, sequence, q_head)));
        if (SOURCE == ORDO_KEEP_MADE) {
            record(at, STEP_HEAD, (int32_t)keep_head_of(args.maker, s.id, q_head));
            record(at, STEP_BLOCK, (int32_t)(args.maker.block0 + (uint32_t)key / 128));
        }
        /* A hidden step uses no statistics: load any that exist. */
        const int64_t stat =
            cut == WIDE_HIDDEN
                ? 0
                : ((int64_t)q_head * args.batch.tiles + s.query_tile) * WIDE_TILE + row;
        mbar_expect(stat_full, 2 * Z::STAT_BYTES);
        bulk_load(Z::LSE + stage * Z::STAT_BYTES, args.lse2 + stat, Z::STAT_BYTES, stat_full);
        bulk_load(Z::DELTA + stage * Z::STAT_BYTES, args.delta + stat, Z::STAT_BYTES, stat_full);
        if (SOURCE == ORDO_KEEP_GIVEN)
            bits(s, q_head, row, key);
        step++;
    }

    __device__ __forceinline__ void unit(wide_unit unit)
    {
        const int32_t sequence = ordo_batch_find(&args.batch, ORDO_BEFORE_KEY, unit.tile);
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, sequence);
        const int32_t tile = unit.tile - s.key_tile, key = tile * WIDE_TILE;
        ordo_walk walk = {};
        walk.band = ordo_sequence_band(&s, WIDE_TILE, WIDE_TILE);
        walk.kind = ordo_order_walk(args.run.order, &walk.band, args.run.head0 + unit.head) ==
                            ORDO_WALK_DESCENDING
                        ? ORDO_WALK_DESCENDING
                        : ORDO_WALK_ASCENDING; /* plans of these head sizes have no other */
        const int32_t visits = ordo_walk_steps(&walk, tile);
        if (!visits && (args.carry.in || args.carry.out)) /* support/unseen.h */
            return;
        const int32_t steps = visits ? visits * args.run.group_heads : 1;
        const int32_t first = ordo_walk_visit(&walk, tile, 0);
        const int32_t stride = ordo_walk_visit(&walk, tile, 1) - first; /* 1 or -1 */
        int32_t i = visits ? first : 0, g = 0;
        for (int32_t n = 0; n < steps; n++) {
            const int cut = !visits                               ? WIDE_HIDDEN
                            : ordo_band_cuts(&walk.band, i, tile) ? WIDE_CUT
                                                                  : WIDE_WHOLE;
            load_step(s, sequence, unit.head * args.run.group_heads + g, i * WIDE_TILE, key, cut);
            if (n == 0) /* after the first queries: K and V are released later */
                begin_unit(s, unit.head, key, steps);
            if (++g == args.run.group_heads) {
                g = 0;
                i += stride;
            }
        }
    }

    __device__ __forceinline__ void all(void)
    {
        const int32_t tiles =
            (int32_t)ordo_batch_before(&args.batch, ORDO_BEFORE_KEY, args.batch.sequences);
        const int64_t total = (int64_t)tiles * args.run.kv_heads;
        for (int64_t ticket = atomicAdd(args.key_ticket, 1); ticket < total;) {
            unit(wide_issue(args.run.kv_heads, args.key_section, tiles, ticket));
            ticket = atomicAdd(args.key_ticket, 1); /* none is kept waiting for its unit */
        }
        begin_unit(ordo_cuda_sequence(), 0, 0, 0); /* no steps: the end */
        if (SOURCE == ORDO_KEEP_MADE) {            /* and for the warps that make bits */
            mbar_wait(Z::Q_EMPTY + 16 * (step & 1) + 8, (step >> 1 & 1) ^ 1);
            record(Z::STEP + (step & 1) * Z::STEP_BYTES, STEP_ROW, -1);
            mbar_arrive(Z::STAT_FULL + 8 * (step & 1));
        }
    }
};

/* ---- keep bits made inside, by the three warps that do not load ---- */

template <int D, int DV>
ORDO_DEVICE void wide_keys_make(const ordo_wide_args &args, uint32_t thread)
{
    using Z = wide_keys_shape<D, DV, ORDO_KEEP_MADE>;
    for (uint32_t step = 0;; step++) {
        const uint32_t at = Z::STEP + (step & 1) * Z::STEP_BYTES;
        mbar_wait(Z::STAT_FULL + 8 * (step & 1), step >> 1 & 1);
        const int32_t row = load_shared(at + 4 * STEP_ROW);
        if (row < 0)
            break;
        const uint32_t bh = (uint32_t)load_shared(at + 4 * STEP_HEAD);
        const uint32_t block = (uint32_t)load_shared(at + 4 * STEP_BLOCK);
        mbar_wait(Z::KEEP_EMPTY, (step & 1) ^ 1);
#pragma unroll 1
        for (uint32_t w = thread; w < WIDE_TILE * 4; w += WIDE_MAKERS) {
            /* The place of a word in sixteen rows: row % 8, quad, row / 8. */
            const uint32_t line = w / 64 * 16 + w % 2 * 8 + w % 64 / 8;
            ordo_keep keep = keep_now(args.maker);
            asm volatile("" : "+l"(keep.seed)); /* keys of the rounds: not all in registers */
            const uint32_t word =
                keep_inside(keep, bh, args.maker.row0 + (uint32_t)row + line, block, w % 8 / 2);
            store_shared(Z::KEEP + 4 * w, (int32_t)word);
        }
        mbar_arrive_warp(Z::KEEP_FULL, thread % 32);
    }
}

#endif
