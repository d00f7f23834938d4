/* sm90/phases/chain_load.h: shared memory and the producer warpgroup of the chains of the backward
 * pass by phases (sm90/phases/chain.h): one thread that loads, and three warps that make keep bits.
 */
#ifndef CUDA_SM90_PHASES_CHAIN_LOAD_H
#define CUDA_SM90_PHASES_CHAIN_LOAD_H

#include "cuda/sm90/phases/pipe.h"
#include "cuda/tile/keep_inside.h"

enum {
    CHAIN_TILE = PHASE_CHAIN_KEYS, /* rows of a tile: keys of a unit, queries of a step */
    CHAIN_SCORES = CHAIN_TILE / 2, /* a thread's of a 64 x 64 tile */
    CHAIN_PACKED = CHAIN_SCORES / 2,
    CHAIN_KEEP_WORDS = CHAIN_TILE * ORDO_KEEP_COLS / 32, /* per step, which uses half of them */
    CHAIN_MAKERS = 96 /* threads that make them: the warps of the producer that do not load */
};
static_assert((int)CHAIN_TILE == 64, "a consumer warpgroup has 64 rows");
static_assert((int)PHASE_STEP == (int)CHAIN_TILE, "boxes of the maps");

/* Named barriers, one per consumer warpgroup. PINGPONG: it may issue its products. OWN: all its
 * threads have arrived. */
enum { CHAIN_PINGPONG = 1, CHAIN_OWN = 3 };

/* The record of a unit. steps: -1 at the end; ends: as product_unit's. */
struct chain_unit {
    int32_t steps, key, head, sequence, ends, queries, diagonal;
};

/* What hides some of a step. */
enum { CHAIN_BAND = 1, CHAIN_ELEMENTS = 2 };

/* The record of a step. Where bits are made, chain_made follows it, with the keys as a number of
 * tiles, and row is -1 at the end. */
struct chain_step {
    int32_t row, partial; /* SEEN: CHAIN_BAND, CHAIN_ELEMENTS; else whether the band does */
    float slope;
    int32_t line;
};

struct chain_made {
    int32_t head, sequence, keys, reserved;
};

/* With two stages (SWAPPED) Q and dO of a step have barriers of their own, and change places from
 * one use of a stage to the next: Q is loaded where dO was, which is released first, and dO where Q
 * was. The products come in the order dV, S of the next step, dK, dP of the next step. Each load
 * has the time of four of them; if Q and dO kept their places, dO would have six and Q two. SEEN:
 * under an element mask. */
template <int D, int DV, ordo_keep_source SOURCE, bool SEEN> struct chain_shape {
    enum {
        MADE = SOURCE == ORDO_KEEP_MADE,
        CONSUMER_REGISTERS = SEEN && MADE ? 216 : 224,
        PRODUCER_REGISTERS = SEEN && MADE ? 72 : 56, /* Philox needs them */
        K_HELD = D <= 192 && !(SEEN && MADE),        /* in registers, too */
        V_HELD = D <= 192 && DV <= 128,
        STAGES = D + DV > 384   ? 2
                 : D + DV > 320 ? 3
                                : 4,
        SWAPPED = STAGES == 2,
        RECORDS = SWAPPED ? 2 * STAGES : STAGES, /* step records, read after dO has been released */
        K_BYTES = CHAIN_TILE * D * 2,            /* a tile of K or Q */
        V_BYTES = CHAIN_TILE * DV * 2,           /* a tile of V or dO */
        STAGE_BYTES = K_BYTES + V_BYTES,         /* Q, then dO; or dO, then Q */
        P_BYTES = CHAIN_TILE * CHAIN_TILE * 2,
        STAT_BYTES = CHAIN_TILE * 4,
        KEEP_BYTES = SOURCE == ORDO_KEEP_NONE ? 0 : 4 * CHAIN_KEEP_WORDS,
        ELEMENTS_BYTES = SEEN ? 4 * CHAIN_KEEP_WORDS : 0,
        STEP_BYTES = sizeof(chain_step) + (MADE ? sizeof(chain_made) : 0),
        UNIT_BYTES = sizeof(chain_unit),
        /* shared memory */
        K = ORDO_SMEM_BASE,
        V = K + K_BYTES,
        RING = V + V_BYTES,
        P = RING + STAGES * STAGE_BYTES, /* twice, by the parity of the step */
        LSE = P + 2 * P_BYTES,           /* one per stage */
        DELTA = LSE + STAGES * STAT_BYTES,
        KEEP = DELTA + STAGES * STAT_BYTES,
        ELEMENTS = KEEP + STAGES * KEEP_BYTES, /* words of an element mask; one per record */
        STEP = ELEMENTS + RECORDS * ELEMENTS_BYTES,
        UNIT = STEP + RECORDS * STEP_BYTES, /* twice, by the parity of the unit */
        K_FULL = UNIT + 2 * UNIT_BYTES,     /* barriers, 8 bytes each */
        K_EMPTY = K_FULL + 8,
        V_FULL = K_EMPTY + 8,
        V_EMPTY = V_FULL + 8,
        Q_FULL = V_EMPTY + 8, /* Q, lse, given bits and elements of a stage, and its record */
        DOUT_FULL = SWAPPED ? Q_FULL + 8 * STAGES : Q_FULL, /* dO and delta */
        Q_EMPTY = DOUT_FULL + 8 * STAGES,
        DOUT_EMPTY = SWAPPED ? Q_EMPTY + 8 * STAGES : Q_EMPTY,
        P_FULL = DOUT_EMPTY + 8 * STAGES,
        P_EMPTY = P_FULL + 16,
        TOLD = P_EMPTY + 16,                        /* bits made: the record of a stage */
        KEEP_FULL = TOLD + (MADE ? 8 * STAGES : 0), /* bits made: those of a stage */
        END = KEEP_FULL + (MADE ? 8 * STAGES : 0),
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert(!SWAPPED || D == DV, "Q and dO change places");
    static_assert(K_FULL % 8 == 0, "barriers are aligned");
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
    static_assert(256 * CONSUMER_REGISTERS + 128 * PRODUCER_REGISTERS <= PHASE_THREADS * 168,
                  "setmaxnreg would wait for ever");

    /* Q, dO, the record and the elements of a step, by its stage and the parity of the uses of that
     * stage. */
    static __device__ __forceinline__ uint32_t q(uint32_t stage, uint32_t parity)
    {
        return RING + stage * STAGE_BYTES + (SWAPPED ? parity * V_BYTES : 0);
    }

    static __device__ __forceinline__ uint32_t dout(uint32_t stage, uint32_t parity)
    {
        return RING + stage * STAGE_BYTES + (SWAPPED ? (parity ^ 1) * K_BYTES : K_BYTES);
    }

    static __device__ __forceinline__ uint32_t record(uint32_t stage, uint32_t parity)
    {
        return STEP + (SWAPPED ? parity * STAGES + stage : stage) * STEP_BYTES;
    }

    static __device__ __forceinline__ uint32_t elements(uint32_t stage, uint32_t parity)
    {
        return ELEMENTS + (SWAPPED ? parity * STAGES + stage : stage) * ELEMENTS_BYTES;
    }
};

template <int D, int DV, ordo_keep_source SOURCE, bool SEEN> struct chain_loader {
    using Z = chain_shape<D, DV, SOURCE, SEEN>;
    const ordo_phase_chains &args;
    const uint64_t reused; /* L2 policy */
    pipeline_state<Z::STAGES> ring = {};
    uint32_t units = 0;

    template <int COLUMNS>
    __device__ __forceinline__ void load(uint32_t to, const CUtensorMap *map, uint32_t bar, int row,
                                         int head, int sequence) const
    {
        tma_load_tile<COLUMNS>(to, map, bar, CHAIN_TILE, row, head, sequence, reused);
    }

    __device__ __forceinline__ void begin_unit(const ordo_cuda_sequence &s, int sequence, int head,
                                               int key, int steps, int ends)
    {
        const uint32_t at = Z::UNIT + (units & 1) * Z::UNIT_BYTES;
        mbar_wait(Z::K_EMPTY, (units & 1) ^ 1);
        mbar_wait(Z::V_EMPTY, (units & 1) ^ 1);
        store_record(at, chain_unit { steps, key, head, sequence, ends, s.q_len, s.diagonal });
        units++;
        if (steps <= 0) {
            mbar_arrive(Z::K_FULL);
            mbar_arrive(Z::V_FULL);
            return;
        }
        mbar_expect(Z::K_FULL, Z::K_BYTES);
        load<D>(Z::K, &args.map.k, Z::K_FULL, s.kv_row + key, head, s.batch);
        mbar_expect(Z::V_FULL, Z::V_BYTES);
        load<DV>(Z::V, &args.map.v, Z::V_FULL, s.kv_row + key, head, s.batch);
    }

    /* Words of bits, of which `first` is the block of row 0: one copy per sixteen rows; rows that
     * do not exist use the last ones'. */
    __device__ __forceinline__ void load_words(uint32_t to, const uint32_t *bits, int64_t first,
                                               int across, const ordo_cuda_sequence &s, int row,
                                               uint32_t bar) const
    {
        enum { EACH = ORDO_KEEP_ROWS * ORDO_KEEP_COLS / 8 };
        const int last = max(s.q_len - 1, 0) / ORDO_KEEP_ROWS;
#pragma unroll 1
        for (int n = 0; n < CHAIN_TILE / ORDO_KEEP_ROWS; n++)
            bulk_load(to + EACH * n,
                      bits + (first + (int64_t)min(row / ORDO_KEEP_ROWS + n, last) * across) *
                                 (EACH / 4),
                      EACH, bar);
    }

    /* ---- element masks ---- */

    /* The column of a key block: the query tiles of a query head that see something of it. */
    __device__ __forceinline__ const uint32_t *column(const ordo_cuda_sequence &s, int q_head,
                                                      int own) const
    {
        return ordo_blocks_column(&args.blocks, q_head, s.key_tile * (PHASE_KEYS / ORDO_BLOCK),
                                  own * CHAIN_TILE / ORDO_BLOCK);
    }

    /* Whether a query tile has steps with the keys of a unit. */
    __device__ __forceinline__ bool sees(const ordo_cuda_sequence &s, int q_head, int i,
                                         int own) const
    {
        return !SEEN || ordo_bit(column(s, q_head, own)[1 + i / ORDO_TILE_BITS], i);
    }

    /* Whether bits hide some of it. */
    __device__ __forceinline__ bool cut(const ordo_cuda_sequence &s, int q_head, int i,
                                        int own) const
    {
        const int key = own * CHAIN_TILE / ORDO_BLOCK;
        const ordo_tile_word *const words =
            ordo_blocks_words(&args.blocks, q_head, s.query_tile, i);
        return ordo_bit(words[key / ORDO_TILE_BITS].partial, key);
    }

    /* What is left of the walk of a unit. One that no query sees has no visits, in the opening
     * panel. Returns its steps. */
    __device__ __forceinline__ int32_t listed_steps(const ordo_cuda_sequence &s, int32_t head,
                                                    int32_t own, ordo_phase_walk &walk) const
    {
        uint32_t all = 0;
        int32_t steps = 0;
        for (int32_t g = 0; g < args.run.group_heads; g++) {
            const int32_t q_head = head * args.run.group_heads + g;
            all += *column(s, q_head, own);
            for (int32_t n = 0; n < walk.count; n++)
                steps += sees(s, q_head, walk.first + n * walk.step, own);
        }
        if (all == 0) {
            walk.count = 0;
            walk.begins = walk.ends = args.panel.opening;
        }
        return steps * (PHASE_ROWS / CHAIN_TILE);
    }

    /* ---- steps and units ---- */

    /* Rows row .. row + 63 of a query tile whose dS^T begins at `line`, with the keys of block
     * `own`. */
    __device__ __forceinline__ void load_step(const ordo_cuda_sequence &s, int sequence, int q_head,
                                              int line, int row, int own, int partial)
    {
        const ordo_phase_factors *const f = args.factors;
        const uint32_t q_full = Z::Q_FULL + 8 * ring.stage,
                       dout_full = Z::DOUT_FULL + 8 * ring.stage;
        const int given = SOURCE == ORDO_KEEP_GIVEN ? Z::KEEP_BYTES : 0;
        const int elements = SEEN && (partial & CHAIN_ELEMENTS) ? Z::ELEMENTS_BYTES : 0;
        const int q_bytes = Z::K_BYTES + Z::STAT_BYTES + given + elements;
        const int dout_bytes = Z::V_BYTES + Z::STAT_BYTES;
        const uint32_t at = Z::record(ring.stage, ring.parity);
        const int64_t stat = ((int64_t)q_head * args.batch.tiles + s.query_tile) * PHASE_ROWS + row;
        mbar_wait(Z::DOUT_EMPTY + 8 * ring.stage, ring.parity ^ 1);
        store_record(at, chain_step { row, partial, phase_slope(args, sequence, q_head), line });
        if constexpr (SOURCE == ORDO_KEEP_MADE) {
            store_record(at + sizeof(chain_step), chain_made { q_head, sequence, own });
            mbar_arrive(Z::TOLD + 8 * ring.stage);
        }
        mbar_expect(q_full, q_bytes + (Z::SWAPPED ? 0 : dout_bytes));
        load<D>(Z::q(ring.stage, ring.parity), &f[1].b, q_full, s.q_row + row, q_head, s.batch);
        bulk_load(Z::LSE + ring.stage * Z::STAT_BYTES, args.lse2 + stat, Z::STAT_BYTES, q_full);
        if constexpr (SOURCE == ORDO_KEEP_GIVEN)
            load_words(Z::KEEP + ring.stage * Z::KEEP_BYTES, args.keep_bits,
                       s.keep + q_head * s.keep_head + own * CHAIN_TILE / ORDO_KEEP_COLS,
                       s.keep_across, s, row, q_full);
        if (SEEN && elements > 0)
            load_words(Z::elements(ring.stage, ring.parity), args.blocks.bits,
                       ordo_blocks_bits(&args.blocks,
                                        ordo_blocks_mask(&args.blocks, sequence, q_head), 0,
                                        own * CHAIN_TILE / ORDO_KEEP_COLS),
                       args.blocks.bits_across, s, row, q_full);
        if (Z::SWAPPED) {
            mbar_wait(Z::Q_EMPTY + 8 * ring.stage, ring.parity ^ 1);
            mbar_expect(dout_full, dout_bytes);
        }
        load<DV>(Z::dout(ring.stage, ring.parity), &f[0].b, dout_full, s.q_row + row, q_head,
                 s.batch);
        bulk_load(Z::DELTA + ring.stage * Z::STAT_BYTES, args.delta + stat, Z::STAT_BYTES,
                  dout_full);
        ring.advance();
    }

    /* The sums that a pass before left, into L2. */
    __device__ __forceinline__ void prefetch(const ordo_cuda_sequence &s, int head, int key) const
    {
        for (int n = 0; n < 2; n++)
            if (args.factors[n].before)
                tma_prefetch(&args.factors[n].came, 0, s.kv_row + key, head, s.batch);
    }

    /* The sequence `s` once more. SEEN: computed anew, for its fields have no registers from step
     * to step. */
    __device__ __forceinline__ ordo_cuda_sequence again(const ordo_cuda_sequence &s,
                                                        int32_t sequence) const
    {
        return SEEN ? ordo_batch_sequence(&args.batch, (int32_t)opaque((uint32_t)sequence)) : s;
    }

    __device__ __forceinline__ void unit(int32_t block, int32_t head)
    {
        enum { OF_TILE = PHASE_KEYS / CHAIN_TILE, OF_ROWS = PHASE_ROWS / CHAIN_TILE };
        const ordo_phase_factors &f = args.factors[0];
        const int32_t sequence = ordo_batch_find(&args.batch, ORDO_BEFORE_KEY, block / OF_TILE);
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, sequence);
        const int32_t own = block - OF_TILE * s.key_tile, key = own * CHAIN_TILE;
        if (key >= s.kv_len)
            return;
        ordo_phase_walk walk = ordo_phase_visits(&s, &args.panel, CHAIN_TILE, own, args.down);
        const int32_t listed = SEEN ? listed_steps(s, head, own, walk) : 0;
        if (walk.count == 0 && (!walk.begins || (f.before && f.left)))
            return; /* another panel's block; or unseen, and the sums stay where they are */
        if (walk.begins)
            prefetch(s, head, key);
        const int32_t ends = walk.begins + 2 * walk.ends;
        const int32_t steps = SEEN ? listed : walk.count * args.run.group_heads * OF_ROWS;
        bool first = true;
        int32_t i = walk.first;
#pragma unroll 1
        for (int32_t n = 0; n < walk.count; n++, i += walk.step) {
            const int32_t line = (int32_t)ordo_phase_line(
                &args.lines, &args.panel, args.run.group_heads, head * args.run.group_heads,
                again(s, sequence).query_tile + i);
#pragma unroll 1
            for (int32_t g = 0; g < args.run.group_heads * OF_ROWS; g++) {
                const ordo_cuda_sequence now = again(s, sequence);
                const ordo_band band = ordo_sequence_band(&now, CHAIN_TILE, CHAIN_TILE);
                const int32_t half = i * OF_ROWS + g % OF_ROWS;
                const int32_t q_head = head * args.run.group_heads + g / OF_ROWS;
                if (!sees(now, q_head, i, own))
                    continue;
                int partial = ordo_band_partial(&band, half, own);
                if (SEEN && cut(now, q_head, i, own))
                    partial |= CHAIN_ELEMENTS;
                load_step(now, sequence, q_head, line + g / OF_ROWS * args.lines.head,
                          half * CHAIN_TILE, own, partial);
                if (first) /* after the first queries: K and V are released later */
                    begin_unit(now, sequence, head, key, steps, ends);
                first = false;
            }
        }
        if (first)
            begin_unit(again(s, sequence), sequence, head, key, 0, ends);
    }

    __device__ __forceinline__ void all_units(void)
    {
        const int32_t blocks =
            PHASE_KEYS / CHAIN_TILE *
            (int32_t)ordo_batch_before(&args.batch, ORDO_BEFORE_KEY, args.batch.sequences);
        const auto more = [&](int64_t ticket) {
            int32_t of_head = blocks;
            if constexpr (SOURCE == ORDO_KEEP_MADE)
                asm volatile("" : "+r"(of_head)); /* no register for the product */
            return ticket < (int64_t)of_head * args.panel.heads;
        };
        for (int64_t ticket = phase_draw(args); more(ticket); ticket = phase_draw(args)) {
            const ordo_phase_unit x =
                ordo_phase_issue(blocks, args.panel.heads, args.together, 1, ticket);
            unit(x.tile, args.panel.head + x.head);
        }
        begin_unit(ordo_cuda_sequence(), 0, 0, 0, -1, 0);
        if constexpr (SOURCE == ORDO_KEEP_MADE) { /* the end for the warps that make bits */
            mbar_wait(Z::DOUT_EMPTY + 8 * ring.stage, ring.parity ^ 1);
            store_shared(Z::record(ring.stage, ring.parity), -1); /* row */
            mbar_arrive(Z::TOLD + 8 * ring.stage);
        }
    }
};

/* Keep bits of all steps, by the three warps that do not load. A step's words may be overwritten
 * when its stage is loaded again: P of the step before has been computed. */
template <class Z> ORDO_DEVICE void chain_make_bits(const ordo_phase_chains &args, uint32_t thread)
{
    for (pipeline_state<Z::STAGES> ring;; ring.advance()) {
        const uint32_t at = Z::record(ring.stage, ring.parity);
        mbar_wait(Z::TOLD + 8 * ring.stage, ring.parity);
        const int32_t row = load_shared(at);
        if (row < 0)
            break;
        const chain_made from = load_record<chain_made>(at + sizeof(chain_step));
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, from.sequence);
        const uint32_t head = keep_head_of(args, s.id, from.head);
        const uint32_t block = args.block0 + (uint32_t)(from.keys * CHAIN_TILE) / ORDO_KEEP_COLS;
#pragma unroll 1
        for (uint32_t w = thread; w < CHAIN_KEEP_WORDS; w += CHAIN_MAKERS) {
            /* The place of a word in sixteen rows: row % 8, quad, row / 8. */
            const uint32_t line = w / 64 * 16 + w % 2 * 8 + w % 64 / 8;
            ordo_keep keep = keep_now(args);
            asm volatile("" : "+l"(keep.seed)); /* keys of the rounds: not all in registers */
            store_shared(Z::KEEP + ring.stage * Z::KEEP_BYTES + 4 * w,
                         (int32_t)keep_inside(keep, head, args.row0 + (uint32_t)row + line, block,
                                              w % 8 / 2));
        }
        mbar_arrive_warp(Z::KEEP_FULL + 8 * ring.stage, thread % 32);
    }
}

#endif
