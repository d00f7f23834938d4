/* sm90/backward/varlen.h: planner and loader of the backward kernel for any pass: packed and
 * padded batches, windows, ALiBi, keep bits made inside.
 *
 * In sm90/backward/roles.h all sequences share one band. Here every sequence has its own: a chain
 * has a record, and the records of its steps hold only what changes from step to step. Rows count
 * in the tensors; a chain's record holds its band in these coordinates. */
#ifndef CUDA_SM90_BACKWARD_VARLEN_H
#define CUDA_SM90_BACKWARD_VARLEN_H

#include "cuda/sm90/backward/roles.h"

/* One step as the planning thread records it for loads, stores and consumers. Records are written
 * and read in pairs of words. */
struct general_step {
    int32_t tile, turn; /* as in backward_step */
    int32_t row;        /* first query, in the tensor */
    float slope;        /* ALiBi's */
    int32_t head;       /* query head; above it STEP_ENDS, STEP_MASKED and STEP_PARTIAL */
    uint32_t keep;      /* bits given: first block of 64 words; made: sequence and head, */
    uint32_t keep_row, keep_block; /* and the first row and the block of the whole problem */
    /* Block masks, at Z::STEP_OWN: place of the first query among the intervals, or of the first
     * block among those of bits; and the first key, in its sequence. */
};

/* The chain that begins with a step. */
struct general_chain {
    int32_t steps;     /* over all its query heads */
    int32_t key;       /* first key, in the tensor */
    int32_t sequence;  /* in the tensors */
    int32_t end;       /* the queries' end, in the tensor */
    int32_t high, low; /* key k of the tile is seen from query r of the tile whose first row in the
                        * tensor is `row` if low <= k - r - row <= high */
    int32_t away;      /* ALiBi's distance is |away + row + r - k| */
    int32_t keys;      /* at most 128; above 8 bits: blocks of keep bits side by side */
};

/* The chain at hand, for the consumers. Dense instances have the first four words. */
struct backward_chain {
    int32_t steps, key, head, sequence; /* head: of keys */
    int32_t high, low, away, keys;      /* as in general_chain */
    int32_t dead; /* no query sees these keys: write zeros, whatever was computed */
    int32_t end;  /* as in general_chain */
};

enum {
    NOWHERE = 1 << 30, /* a row past the end of any tensor: zeros are loaded */
    /* Flags of a step's tile; most tiles have none. */
    STEP_PARTIAL = 1 << 29, /* intervals or bits hide some of it */
    STEP_ENDS = 1 << 30,    /* it has rows past its sequence's last one */
    STEP_MASKED = INT32_MIN /* something in it is hidden; the sign, so that one test tells */
};

/* Addition modulo 2^32, for offsets whose intermediate sums may overflow. */
ORDO_DEVICE int32_t wrapping_sum(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* Where a step's keep bits are, or what they are made from, as in general_step. */
struct keep_place {
    uint32_t which, row, block;
};

/* ---- plan ---- */

template <int D, ordo_keep_source SOURCE, bool BLOCKS, bool ELEMENTS, backward_bias BIAS>
struct general_planner {
    using Z = backward_shape<D, SOURCE, true, BLOCKS, BIAS>;
    const ordo_backward_args &args;
    uint32_t step;

    __device__ __forceinline__ void wait_for_room(void) const
    {
        mbar_wait(Z::STEP_EMPTY + 8 * (step % Z::AHEAD), (step / Z::AHEAD & 1) ^ 1);
    }

    __device__ __forceinline__ void record(int32_t tile, int32_t turn, int32_t row, float slope,
                                           int32_t head, const keep_place &keep, int32_t partial,
                                           int32_t column)
    {
        const uint32_t at = Z::STEP + Z::STEP_BYTES * (step % Z::STEPS);
        store_shared2(at, tile, turn);
        store_shared2(at + offsetof(general_step, row), row, __float_as_int(slope));
        store_shared2(at + offsetof(general_step, head), head, (int32_t)keep.which);
        if (SOURCE == ORDO_KEEP_MADE)
            store_shared2(at + offsetof(general_step, keep_row), (int32_t)keep.row,
                          (int32_t)keep.block);
        if (BLOCKS)
            store_shared2(at + Z::STEP_OWN, partial, column);
        mbar_arrive(Z::STEP_FULL + 8 * (step % Z::STEPS));
        step++;
    }

    __device__ __forceinline__ void begin(const ordo_cuda_sequence &s, int32_t key, int32_t steps,
                                          int32_t end)
    {
        const uint32_t at = Z::RING + Z::RING_BYTES * (step % Z::AHEAD);
        const int32_t first = key * Z::KEYS, shift = wrapping_sum(-first, -s.q_row);
        const int32_t keys = ordo_min32(Z::KEYS, s.kv_len - first);
        wait_for_room();
        store_shared2(at, steps, s.kv_row + first);
        store_shared2(at + 8, s.batch, end);
        store_shared2(at + 16, wrapping_sum(s.high, shift), wrapping_sum(s.low, shift));
        store_shared2(at + 24, wrapping_sum(s.diagonal, shift), keys | s.keep_across << 8);
    }

    __device__ __forceinline__ keep_place keep_of(const ordo_cuda_sequence &s, int32_t head,
                                                  int32_t i, int32_t key) const
    {
        if (SOURCE == ORDO_KEEP_MADE)
            return { keep_head_of(args, s.id, head), args.row0 + i * Z::ROWS, args.block0 + key };
        /* Bits of 2^32 blocks are more than any device holds. */
        return { (uint32_t)(s.keep + head * s.keep_head) +
                     (uint32_t)(i * (Z::ROWS / 16)) * (uint32_t)s.keep_across + (uint32_t)key,
                 0, 0 };
    }

    /* Where what narrows a partial tile begins; bits of 2^32 blocks are more than any device holds.
     */
    __device__ __forceinline__ int32_t partial_at(int32_t b, int32_t head, int32_t i,
                                                  int32_t key) const
    {
        const int64_t mask = ordo_blocks_mask(&args.blocks, b, head);
        if constexpr (ELEMENTS)
            return (int32_t)(uint32_t)ordo_blocks_bits(&args.blocks, mask, i * Z::ROWS, key);
        return (int32_t)(mask * args.blocks.q_len) + i * Z::ROWS;
    }

    /* STEP_ENDS and STEP_MASKED of query tile i. */
    static __device__ __forceinline__ int32_t special(const ordo_cuda_sequence &s, int32_t i,
                                                      int32_t key)
    {
        const int32_t shift = i * Z::ROWS - key * Z::KEYS;
        const bool ends = s.q_len - i * Z::ROWS < Z::ROWS;
        const bool masked = wrapping_sum(s.high, shift) < Z::KEYS - 1 ||
                            wrapping_sum(s.low, shift) > 1 - Z::ROWS ||
                            s.kv_len - key * Z::KEYS < Z::KEYS;
        return (ends ? STEP_ENDS : 0) | (ends || masked ? STEP_MASKED : 0);
    }

    /* A chain under a block mask: the query tiles that some query head sees it from, and at each of
     * them those heads. */
    __device__ __forceinline__ void listed_chain(bool descending, bool spt, int32_t b, int32_t head,
                                                 int32_t key)
    {
        const ordo_cuda_block_mask &blocks = args.blocks;
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, b);
        const int32_t group_heads = args.run.group_heads, head0 = head * group_heads;
        const int32_t own = blocks.lists > 1 ? group_heads : 1; /* lists of these heads */
        const uint32_t *const column = ordo_blocks_column(&blocks, head0, s.key_tile, key);
        const int64_t stride = (int64_t)blocks.key_tiles * (blocks.down + 1);
        int32_t steps = 0;
        for (int32_t n = 0; n < own; n++)
            steps += (int32_t)column[n * stride];
        if (own == 1)
            steps *= group_heads;
        if (steps == 0 && no_unseen(args))
            return;
        prefetch_sums(args, s.kv_row + key * Z::KEYS, head, s.batch);
        begin(s, key, steps ? steps : 1, steps ? s.q_row + s.q_len : NOWHERE + Z::ROWS);
        if (steps == 0) /* keys that no query sees */
            record(-1, 0, NOWHERE, 0.0f, head0, { 0, 0, 0 }, 0, 0);
        bool first = true;
        for (int32_t i = descending ? blocks.down * ORDO_TILE_BITS : -1; steps > 0;) {
            i = ordo_blocks_visit(column, stride, own, blocks.down, i, descending);
            for (int32_t q_head = head0; q_head < head0 + group_heads; q_head++) {
                const ordo_tile_word word =
                    ordo_blocks_words(&blocks, q_head, s.query_tile, i)[key / ORDO_TILE_BITS];
                if (!ordo_bit(word.seen, key))
                    continue;
                if (!first)
                    wait_for_room();
                first = false;
                const float slope =
                    args.slopes ? args.slopes[b * args.slopes_sequence + q_head] : 0.0f;
                const int32_t partial =
                    ordo_bit(word.partial, key) ? STEP_PARTIAL | STEP_MASKED : 0;
                record(q_head * args.batch.tiles + s.query_tile + i,
                       ordo_blocks_turn(&word, key, spt), s.q_row + i * Z::ROWS, slope,
                       q_head | special(s, i, key) | partial, keep_of(s, q_head, i, key),
                       partial_at(b, q_head, i, key), key * Z::KEYS);
                steps--;
            }
        }
    }

    /* A chain of key head `head` of sequence b. */
    __device__ __forceinline__ void chain(const ordo_walk &walk, int32_t b, int32_t head,
                                          int32_t key)
    {
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, b);
        const int32_t steps = ordo_walk_steps(&walk, key), group_heads = args.run.group_heads;
        if (steps == 0 && no_unseen(args))
            return;
        prefetch_sums(args, s.kv_row + key * Z::KEYS, head, s.batch);
        begin(s, key, steps ? steps * group_heads : 1,
              steps ? s.q_row + s.q_len : NOWHERE + Z::ROWS);
        if (steps == 0) /* keys that no query sees */
            record(-1, 0, NOWHERE, 0.0f, head * group_heads, { 0, 0, 0 }, 0, 0);
        for (int32_t n = 0, t = 0, g = 0; n < steps * group_heads; n++) {
            const int32_t i = ordo_walk_visit(&walk, key, t), q_head = head * group_heads + g;
            const float slope = args.slopes ? args.slopes[b * args.slopes_sequence + q_head] : 0.0f;
            if (n > 0)
                wait_for_room();
            record(q_head * args.batch.tiles + s.query_tile + i, ordo_walk_turn(&walk, i, key),
                   s.q_row + i * Z::ROWS, slope, q_head | special(s, i, key),
                   keep_of(s, q_head, i, key), 0, 0);
            if (++g == group_heads) { /* heads inside, so that the chains of a key head keep step */
                g = 0;
                t++;
            }
        }
    }

    /* Ticket of a class. Sequences of a ragged batch follow each other, each a run of its own. */
    __device__ __forceinline__ void unit(int cls, int64_t ticket)
    {
        ordo_run run = args.run;
        int32_t b = 0;
        if (args.batch.table) {
            run.sequences = 1;
            const int32_t heads = ordo_run_heads(&run, cls);
            b = ordo_batch_find(&args.batch, ORDO_BEFORE_KEY, ticket / heads);
            ticket -= heads * ordo_batch_before(&args.batch, ORDO_BEFORE_KEY, b);
            run.band = ordo_sequence_band(&args.batch.table[b], Z::ROWS, Z::KEYS);
        }
        run.band.bq = Z::ROWS; /* constants, so that divisions become shifts */
        run.band.bk = Z::KEYS;
        const ordo_unit unit = ordo_run_issue(&run, cls, ticket);
        const ordo_walk walk = ordo_run_walk(&run, unit.head);
        const int32_t head = unit.head % run.kv_heads;
        b += unit.head / run.kv_heads;
        if constexpr (BLOCKS)
            listed_chain(walk.kind == ORDO_WALK_DESCENDING, walk.kind == ORDO_WALK_SPT, b, head,
                         unit.key[0]);
        else
            for (int c = 0; c < unit.keys; c++)
                chain(walk, b, head, c ? unit.key[1] : unit.key[0]);
    }

    __device__ __forceinline__ int64_t tickets(int cls) const
    {
        if (!args.batch.table)
            return cls ? args.units - args.first_class : args.first_class;
        ordo_run run = args.run;
        run.sequences = 1;
        return (int64_t)ordo_run_heads(&run, cls) *
               ordo_batch_before(&args.batch, ORDO_BEFORE_KEY, args.batch.sequences);
    }

    /* The ticket after `last`, -1 at first. This thread takes it while consumers are still busy
     * with the unit before: see ordo_run_dealt(). Drawn: all earlier ones are taken. */
    __device__ __forceinline__ int64_t next(bool dealt, int64_t last) const
    {
        if (!dealt)
            return atomicAdd(args.ticket, 1);
        return last < 0 ? (int64_t)blockIdx.x : last + gridDim.x;
    }

    __device__ __forceinline__ void all(void)
    {
        const int64_t first_class = tickets(0), units = first_class + tickets(1);
        const bool dealt = !BLOCKS && ordo_run_dealt(&args.run); /* lists have no cyclic orders */
        for (int64_t ticket = next(dealt, -1); ticket < units; ticket = next(dealt, ticket)) {
            const int cls = ticket >= first_class;
            unit(cls, ticket - (cls ? first_class : 0));
        }
        for (int end = 0; end < 2; end++) { /* store warps look at one each, makers at both */
            wait_for_room();
            record(-1, -1, 0, 0.0f, 0, { 0, 0, 0 }, 0, 0);
        }
    }
};

/* ---- loads ---- */

/* The tile of a bias of step `step`. */
template <class Z>
ORDO_DEVICE void general_load_bias(const ordo_backward_args &args, uint32_t step, int row, int key,
                                   int head, int sequence)
{
    enum { BOX = 64 * ORDO_LINE_BYTES };
    const bool f32 = args.bias.f32;
    const uint32_t stage = f32 ? 0 : step & 1, turn = f32 ? step : step >> 1;
    const uint32_t to = Z::BIASES + stage * Z::BIAS_BYTES, full = Z::BIAS_FULL + 8 * stage;
    const int columns = ORDO_LINE_BYTES / (f32 ? 4 : 2);
    const uint64_t policy = args.bias.head ? policy_evict_first() : policy_evict_last();
    mbar_wait(Z::BIAS_EMPTY + 8 * stage, (turn & 1) ^ 1);
    mbar_expect(full, f32 ? 2 * Z::BIAS_BYTES : Z::BIAS_BYTES);
#pragma unroll 1
    for (int box = 0; box * columns < Z::KEYS; box++)
        tma_load(to + box * BOX, &args.map_bias, full, key + box * columns, row,
                 args.bias.head ? head : 0, args.bias.sequence ? sequence : 0, policy);
}

template <int D, ordo_keep_source SOURCE, bool BLOCKS, backward_bias BIAS>
ORDO_DEVICE void general_load(const ordo_backward_args &args)
{
    using Z = backward_shape<D, SOURCE, true, BLOCKS, BIAS>;
    const uint64_t policy = policy_evict_last();
    uint32_t chains = 0;
    int32_t left = 0, sequence = 0, q_end = 0, across = 0, first_key = 0; /* the chain at hand */
    for (uint32_t step = 0;; step++) {
        const uint32_t stage = step & 1, empty = (step >> 1 & 1) ^ 1;
        const uint32_t at = Z::STEP + Z::STEP_BYTES * (step % Z::STEPS);
        const uint32_t ring = Z::RING + Z::RING_BYTES * (step % Z::AHEAD);
        int32_t tile, turn, head, keep;
        mbar_wait(Z::STEP_FULL + 8 * (step % Z::STEPS), step / Z::STEPS & 1);
        load_shared2(at, tile, turn);
        load_shared2(at + offsetof(general_step, head), head, keep);
        if (turn < 0)
            break;
        const int32_t row = load_shared(at + offsetof(general_step, row));
        head &= STEP_PARTIAL - 1;
        const bool first = left == 0;
        if (first) {
            left = load_shared(ring);
            load_shared2(ring + offsetof(general_chain, sequence), sequence, q_end);
            if (Z::STAGED)
                first_key = load_shared(ring + 4);
            if (SOURCE == ORDO_KEEP_GIVEN)
                across = load_shared(ring + offsetof(general_chain, keys)) >> 8;
        }
        left--;
        /* A step of unseen keys has no statistics. */
        const uint32_t bytes = Z::Q_BYTES + (tile >= 0 ? Z::STAT_BYTES : 0);
        const int64_t stat = (int64_t)tile * Z::ROWS;
        const uint32_t q_full = Z::Q_FULL + 8 * stage, do_full = Z::DO_FULL + 8 * stage;
        mbar_wait(Z::Q_EMPTY + 8 * stage, empty);
        mbar_expect(q_full, bytes);
        tma_load_tile<D>(Z::Q + stage * Z::Q_BYTES, &args.map.q, q_full, Z::ROWS, row, head,
                         sequence, policy);
        if (tile >= 0)
            bulk_load(Z::LSE + stage * Z::STAT_BYTES, args.lse2 + stat, Z::STAT_BYTES, q_full);
        mbar_wait(Z::DO_EMPTY + 8 * stage, empty);
        mbar_expect(do_full, bytes);
        tma_load_tile<D>(Z::DO + stage * Z::Q_BYTES, &args.map.dout, do_full, Z::ROWS, row, head,
                         sequence, policy);
        if (tile >= 0)
            bulk_load(Z::DELTA + stage * Z::STAT_BYTES, args.delta + stat, Z::STAT_BYTES, do_full);
        if (SOURCE == ORDO_KEEP_GIVEN) {
            /* One copy per sixteen rows; rows that do not exist keep any bits. */
            const int32_t rows = tile < 0 ? 0 : ordo_min32(Z::ROWS, q_end - row);
            const uint32_t *from = args.keep_bits + (int64_t)(uint32_t)keep * 64;
            mbar_wait(Z::KEEP_EMPTY, (step & 1) ^ 1);
            mbar_expect(Z::KEEP_FULL, (uint32_t)(rows + 15) / 16 * 256);
#pragma unroll 1
            for (int32_t r = 0; r < rows; r += 16) {
                bulk_load(Z::KEEP + r * 16, from, 256, Z::KEEP_FULL);
                from += (int64_t)across * 64;
            }
        }
        if constexpr (Z::STAGED)
            general_load_bias<Z>(args, step, row, first_key, head, sequence);
        if (first) {       /* after the first queries: K and V are released later */
            float band[4]; /* high, low, away, keys: copied as they are */
            const int32_t key = load_shared(ring + 4);
            head /= args.run.group_heads;
            mbar_wait(Z::KV_EMPTY, (chains++ & 1) ^ 1);
            store_shared2(Z::CHAIN, left + 1, key);
            store_shared2(Z::CHAIN + 8, head, sequence);
            load_shared4(ring + offsetof(general_chain, high), band[0], band[1], band[2], band[3]);
            store_shared4(Z::CHAIN + offsetof(backward_chain, high), band[0], band[1], band[2],
                          band[3]);
            store_shared2(Z::CHAIN + offsetof(backward_chain, dead), tile < 0, q_end);
            mbar_expect(Z::KV_FULL, 2 * Z::KV_BYTES);
            tma_load_tile<D>(Z::K, &args.map.k, Z::KV_FULL, Z::KEYS, key, head, sequence, policy);
            tma_load_tile<D>(Z::V, &args.map.v, Z::KV_FULL, Z::KEYS, key, head, sequence, policy);
        }
        mbar_arrive(Z::STEP_EMPTY + 8 * (step % Z::AHEAD)); /* both records are read */
    }
    mbar_wait(Z::KV_EMPTY, (chains & 1) ^ 1);
    store_shared(Z::CHAIN, 0);
    mbar_arrive(Z::KV_FULL); /* a chain of no steps: the end */
}

#endif
