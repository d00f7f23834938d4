/* sm90/backward/roles.h: shared memory of the backward kernel, and its producer warpgroup, one
 * thread per role: planner (tickets, chains, steps), loader, and stores of dQ in the order of
 * turns. */
#ifndef CUDA_SM90_BACKWARD_ROLES_H
#define CUDA_SM90_BACKWARD_ROLES_H

#include "cuda/sm90/backward/args.h"
#include "cuda/sm90/pipeline.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/swizzle.h"
#include "plan/family_sm90.h"

/* How an instance of the kernel adds dQ partials. DELAYED and UNORDERED are compiled into tests and
 * benchmarks only. */
typedef enum ordo_dq_mode {
    ORDO_DQ_ORDERED,   /* dense instances: ascending or descending */
    ORDO_DQ_DELAYED,   /* random delays before every turn: for tests */
    ORDO_DQ_UNORDERED, /* no turns: adds in any order, the baseline of measurements */
    ORDO_DQ_NONE,      /* dK and dV alone: four products instead of five */
    ORDO_DQ_ALONE,     /* ordered, without dK and dV: three products */
    ORDO_DQ_ANY_ORDER  /* dense instances: every order, for studies of orders */
} ordo_dq_mode;

/* A bias: read by the consumer warps, or where its memory allows it copied for them. */
enum backward_bias { BIAS_NONE, BIAS_READ, BIAS_STAGED };

/* SOURCE: of keep bits; the consumer warps make those that are not given. VARLEN: any pass
 * (sm90/backward/varlen.h), else dense ones of bf16 whose head size is D, under no other rules.
 * BLOCKS: varlen, with a block mask; ELEMENTS, elsewhere: one whose partial tiles have bits; BIAS:
 * varlen, with a bias. */
template <int D, ordo_keep_source SOURCE, bool VARLEN = false, bool BLOCKS = false,
          backward_bias BIAS = BIAS_NONE>
struct backward_shape {
    enum {
        DROP = SOURCE != ORDO_KEEP_NONE,
        MADE = SOURCE == ORDO_KEEP_MADE,
        ROWS = ORDO_SM90_BACKWARD_Q(D), /* queries */
        KEYS = ORDO_SM90_BACKWARD_K(D),
        THREADS = 384,
        CONSUMER_REGISTERS = 240,
        PRODUCER_REGISTERS = 24,
        PANELS = D / ORDO_PANEL_COLUMNS,
        KV_BYTES = KEYS * D * 2,
        Q_BYTES = ROWS * D * 2,
        DS_BYTES = ROWS * KEYS * 2,
        DQ_BYTES = ROWS * D * 4,
        STAT_BYTES = ROWS * 4,
        KEEP_BYTES = DROP ? ROWS * KEYS / 8 : 0,
        KEEP_BUFFERS = MADE ? 2 : 1,
        /* Tiles of a bias are copied: in 16 bits to two stages, in 32 to one as large. */
        STAGED = BIAS == BIAS_STAGED,
        BIAS_BYTES = STAGED ? ROWS * KEYS * 2 : 0,
        /* The bits, or the biases, take the other one's place. */
        DQ_BUFFERS = MADE || (DROP && D == 64) || STAGED ? 1 : 2,
        /* Steps that are planned before they are loaded. Store warps have read the records of all
         * steps up to six before the one that was loaded last, so that six are enough. */
        AHEAD =
            (BLOCKS && SOURCE == (D == 64 ? ORDO_KEEP_NONE : ORDO_KEEP_GIVEN)) || (STAGED && DROP)
                ? 6
                : 8,
        STEPS = 2 * AHEAD,                        /* steps on record */
        STEP_OWN = (VARLEN && !MADE ? 6 : 8) * 4, /* a record: struct backward_step, */
        STEP_BYTES = STEP_OWN + (BLOCKS ? 8 : 0), /* and with a block mask two words more */
        RING_BYTES = VARLEN ? 8 * 4 : 0,          /* a chain's record */
        /* shared memory; Q, dO, dS and the statistics twice, by the parity of the step */
        K = ORDO_SMEM_BASE,
        V = K + KV_BYTES,
        Q = V + KV_BYTES,
        DO = Q + 2 * Q_BYTES,
        DS = DO + 2 * Q_BYTES,
        DQ = DS + 2 * DS_BYTES,
        BIASES = DQ + DQ_BUFFERS * DQ_BYTES,
        LSE = BIASES + 2 * BIAS_BYTES,
        DELTA = LSE + 2 * STAT_BYTES,
        KEEP = DELTA + 2 * STAT_BYTES, /* dropout: of one step */
        STEP = KEEP + KEEP_BUFFERS * KEEP_BYTES,
        RING = STEP + STEP_BYTES * STEPS, /* varlen: chains that begin, by their first step */
        EDGE = RING + RING_BYTES * AHEAD, /* else: the edge of a stage's tile */
        CHAIN = EDGE + (VARLEN ? 0 : 8),  /* steps of the chain, first key, key head, sequence */
        KV_FULL = CHAIN + (VARLEN ? 48 : 16), /* barriers, 8 bytes each */
        KV_EMPTY = KV_FULL + 8,
        Q_FULL = KV_EMPTY + 8,
        Q_EMPTY = Q_FULL + 16,
        DO_FULL = Q_EMPTY + 16,
        DO_EMPTY = DO_FULL + 16,
        DQ_FULL = DO_EMPTY + 16,
        DQ_EMPTY = DQ_FULL + 16,
        STEP_FULL = DQ_EMPTY + 16,
        STEP_EMPTY = STEP_FULL + 8 * STEPS,
        KEEP_FULL = STEP_EMPTY + 8 * AHEAD,
        KEEP_EMPTY = KEEP_FULL + 8 * KEEP_BUFFERS,
        BIAS_FULL = KEEP_EMPTY + 8 * KEEP_BUFFERS,
        BIAS_EMPTY = BIAS_FULL + (STAGED ? 16 : 0),
        END = BIAS_EMPTY + (STAGED ? 16 : 0),
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
    static_assert((int)KEYS == 128, "two consumer warpgroups have 64 keys each");
    static_assert((int)KEYS == (int)ORDO_KEEP_COLS, "a tile's keep bits are of one block");
    static_assert(ROWS * D == 2 * 64 * 64, "each consumer warpgroup has 64 x 64 of dQ");
};

/* A step's edge: the row of the tile from which on key 0 of the chain is seen, or one of these. */
enum { EDGE_NOTHING = 0x7fffffff, EDGE_TAIL = 1 << 28, EDGE_ALL = -(1 << 28) };

/* One step as the planning thread records it for loads and stores. */
struct backward_step {
    int32_t tile; /* where dQ goes, over all heads; -1: nowhere */
    int32_t turn; /* -1: no more steps */
    int32_t row;  /* first query */
    int32_t edge;
    int32_t head; /* query head */
    int32_t sequence;
    int32_t chain; /* steps of the chain that begins here; 0 inside one */
    int32_t key;   /* first key */
};

/* ---- plan: one thread draws tickets and walks their chains ---- */

/* Whether keys that no query sees have no chain: the pass carries sums (support/unseen.cu), or
 * wants nothing of keys. */
ORDO_DEVICE bool no_unseen(const ordo_backward_args &args)
{
    return args.carry.in || args.carry.out || !args.dk.data;
}

/* Brings the sums that a chain begins with into L2. The planner does it: it is more than eight
 * steps ahead of the consumer warps, and the memory has that long. Varlen passes: whole tiles. */
ORDO_DEVICE void prefetch_sums(const ordo_backward_args &args, int32_t key, int32_t head,
                               int32_t sequence)
{
    if (args.carry.in) {
        tma_prefetch(&args.map.dv_sums, 0, key, head, sequence);
        tma_prefetch(&args.map.dk_sums, 0, key, head, sequence);
    }
}

/* Dense passes: a piece with each of the chain's first steps that are planned, dV before dK, and
 * what is left with its last. All 128 KiB (D = 128) at once would keep the copy engine from Q, dO
 * and dQ for longer than a step. The last piece comes three steps before it is loaded. */
ORDO_DEVICE void prefetch_piece(const ordo_backward_args &args, int32_t step, int32_t steps,
                                int32_t key, int32_t head, int32_t sequence)
{
    enum { PIECES = ORDO_SUMS_PIECES };
    if (!args.carry.in || step >= 2 * PIECES)
        return;
    const int32_t end = step + 1 == steps ? 2 * PIECES : step + 1;
#pragma unroll 1
    for (; step < end; step++)
        tma_prefetch(step < PIECES ? &args.map.dv_sums : &args.map.dk_sums, 0,
                     key + step % PIECES * (128 / PIECES), head, sequence);
}

template <int D, int MODE, ordo_keep_source SOURCE, bool CARRY> struct backward_planner {
    using Z = backward_shape<D, SOURCE>;
    const ordo_backward_args &args;
    uint32_t step;

    __device__ __forceinline__ void record(int32_t tile, int32_t turn, int32_t row, int32_t edge,
                                           int32_t head, int32_t sequence, int32_t chain,
                                           int32_t key)
    {
        const uint32_t at = Z::STEP + Z::STEP_BYTES * (step % Z::STEPS);
        mbar_wait(Z::STEP_EMPTY + 8 * (step % Z::AHEAD), (step / Z::AHEAD & 1) ^ 1);
        store_shared2(at, tile, turn);
        store_shared2(at + 8, row, edge);
        store_shared2(at + 16, head, sequence);
        store_shared2(at + 24, chain, key);
        mbar_arrive(Z::STEP_FULL + 8 * (step % Z::STEPS));
        step++;
    }

    /* The run with what a dense pass has as constants. Tile sizes: the walk's divisions become
     * shifts. Two orders, but where any is asked for: a quarter of the code, which shares the
     * instruction cache with what the consumer warps run once per chain. */
    __device__ __forceinline__ ordo_run run(void) const
    {
        ordo_run run = args.run;
        run.band.bq = Z::ROWS;
        run.band.bk = Z::KEYS;
        if (MODE != ORDO_DQ_ANY_ORDER) {
            run.order =
                run.order == ORDO_ORDER_DESCENDING ? ORDO_ORDER_DESCENDING : ORDO_ORDER_ASCENDING;
            run.group = 1;
        }
        return run;
    }

    __device__ __forceinline__ void chain(int32_t head, int32_t key)
    {
        const ordo_run all = run();
        const ordo_walk walk = ordo_run_walk(&all, head);
        const int32_t steps = ordo_walk_steps(&walk, key), group_heads = args.run.group_heads;
        const int32_t sequence = head / args.run.kv_heads, first_key = key * Z::KEYS;
        const int32_t kv_head = head % args.run.kv_heads, q_head = kv_head * group_heads;
        if (CARRY && steps == 0 && no_unseen(args))
            return;
        if (steps == 0) { /* keys that no query sees: one step, fully masked */
            record(-1, 0, 0, EDGE_ALL, q_head, sequence, 1, first_key);
            return;
        }
        for (int32_t n = 0, t = 0, g = 0; n < steps * group_heads; n++) {
            const int32_t i = ordo_walk_visit(&walk, key, t);
            const bool high = first_key + Z::KEYS - 1 - i * Z::ROWS > args.run.band.high;
            const bool tail = first_key + Z::KEYS > args.run.band.kv_len;
            record((head * group_heads + g) * args.q_tiles + i, ordo_walk_turn(&walk, i, key),
                   i * Z::ROWS,
                   high   ? i * Z::ROWS + args.run.band.high
                   : tail ? EDGE_TAIL
                          : EDGE_NOTHING,
                   q_head + g, sequence, n ? 0 : steps * group_heads, first_key);
            if constexpr (CARRY)
                prefetch_piece(args, n, steps * group_heads, first_key, kv_head, sequence);
            if (++g == group_heads) { /* heads inside, so that the chains of a key head keep step */
                g = 0;
                t++;
            }
        }
    }

    /* Every ticket comes from the counter: when one is drawn, all earlier ones are taken. */
    __device__ __forceinline__ void drawn(void)
    {
        for (int64_t ticket = atomicAdd(args.ticket, 1); ticket < args.units;) {
            const ordo_run all = run();
            const ordo_unit unit = ordo_run_issue(&all, 0, ticket);
            chain(unit.head, unit.key[0]);
            ticket = atomicAdd(args.ticket, 1);
        }
    }

    /* Orders in which units have two keys, heads two classes, or groups are resident together. */
    __device__ __forceinline__ void any_order(void)
    {
        const ordo_run all = run();
        const bool dealt = ordo_run_dealt(&all);
        for (int64_t ticket = dealt ? (int64_t)blockIdx.x : atomicAdd(args.ticket, 1);
             ticket < args.units;) {
            const int cls = ticket >= args.first_class;
            const ordo_unit unit = ordo_run_issue(&all, cls, ticket - (cls ? args.first_class : 0));
            for (int c = 0; c < unit.keys; c++)
                chain(unit.head, c ? unit.key[1] : unit.key[0]);
            ticket = dealt ? ticket + gridDim.x : atomicAdd(args.ticket, 1);
        }
    }

    __device__ __forceinline__ void all(void)
    {
        if (MODE == ORDO_DQ_ANY_ORDER)
            any_order();
        else
            drawn();
        /* One for each store warp; makers of keep bits look at two. */
        for (int end = 0; end < (Z::MADE ? 2 : Z::DQ_BUFFERS); end++)
            record(-1, -1, 0, 0, 0, 0, 0, 0);
    }
};

/* ---- loads: one thread ---- */

template <int D, ordo_keep_source SOURCE>
ORDO_DEVICE void backward_load(const ordo_backward_args &args)
{
    using Z = backward_shape<D, SOURCE>;
    const uint64_t policy = policy_evict_last();
    uint32_t chains = 0;
    for (uint32_t step = 0;; step++) {
        const uint32_t stage = step & 1, empty = (step >> 1 & 1) ^ 1;
        const uint32_t at = Z::STEP + Z::STEP_BYTES * (step % Z::STEPS);
        backward_step x;
        mbar_wait(Z::STEP_FULL + 8 * (step % Z::STEPS), step / Z::STEPS & 1);
        load_shared2(at, x.tile, x.turn);
        load_shared2(at + 8, x.row, x.edge);
        load_shared2(at + 16, x.head, x.sequence);
        load_shared2(at + 24, x.chain, x.key);
        mbar_arrive(Z::STEP_EMPTY + 8 * (step % Z::AHEAD));
        if (x.turn >= 0) {
            const int32_t heads = args.run.kv_heads * args.run.group_heads;
            const int64_t stat =
                (int64_t)(x.sequence * heads + x.head) * args.q_tiles * Z::ROWS + x.row;
            const uint32_t q_full = Z::Q_FULL + 8 * stage, do_full = Z::DO_FULL + 8 * stage;
            mbar_wait(Z::Q_EMPTY + 8 * stage, empty);
            store_shared(Z::EDGE + 4 * stage, x.edge);
            mbar_expect(q_full, Z::Q_BYTES + Z::STAT_BYTES);
            tma_load_tile<D>(Z::Q + stage * Z::Q_BYTES, &args.map.q, q_full, Z::ROWS, x.row, x.head,
                             x.sequence, policy);
            bulk_load(Z::LSE + stage * Z::STAT_BYTES, args.lse2 + stat, Z::STAT_BYTES, q_full);
            mbar_wait(Z::DO_EMPTY + 8 * stage, empty);
            mbar_expect(do_full, Z::Q_BYTES + Z::STAT_BYTES);
            tma_load_tile<D>(Z::DO + stage * Z::Q_BYTES, &args.map.dout, do_full, Z::ROWS, x.row,
                             x.head, x.sequence, policy);
            bulk_load(Z::DELTA + stage * Z::STAT_BYTES, args.delta + stat, Z::STAT_BYTES, do_full);
            if (SOURCE == ORDO_KEEP_GIVEN) {
                /* One copy per sixteen rows; rows that do not exist take the last ones' bits. */
                mbar_wait(Z::KEEP_EMPTY, (step & 1) ^ 1);
                mbar_expect(Z::KEEP_FULL, Z::KEEP_BYTES);
                const uint32_t *from =
                    args.keep_bits + ordo_keep_at(x.sequence * heads + x.head, x.row, x.key,
                                                  args.run.band.q_len, args.run.band.kv_len) *
                                         64;
#pragma unroll 1
                for (uint32_t to = Z::KEEP; to < Z::KEEP + Z::KEEP_BYTES; to += 256) {
                    bulk_load(to, from, 256, Z::KEEP_FULL);
                    x.row += 16;
                    if (x.row < args.run.band.q_len)
                        from += args.keep_line;
                }
            }
        }
        if (x.chain || x.turn < 0) { /* after the first queries: K and V are released later */
            mbar_wait(Z::KV_EMPTY, (chains++ & 1) ^ 1);
            const int head = x.head / args.run.group_heads;
            store_shared2(Z::CHAIN, x.chain, x.key);
            store_shared2(Z::CHAIN + 8, head, x.sequence);
            if (x.turn < 0)
                break;
            mbar_expect(Z::KV_FULL, 2 * Z::KV_BYTES);
            tma_load_tile<D>(Z::K, &args.map.k, Z::KV_FULL, Z::KEYS, x.key, head, x.sequence,
                             policy);
            tma_load_tile<D>(Z::V, &args.map.v, Z::KV_FULL, Z::KEYS, x.key, head, x.sequence,
                             policy);
        }
    }
    mbar_arrive(Z::KV_FULL); /* a chain of no steps: the end */
}

/* ---- stores: one thread per buffer ---- */

template <int D, int MODE, ordo_keep_source SOURCE, bool VARLEN, bool BLOCKS, backward_bias BIAS>
ORDO_DEVICE void backward_store(const ordo_backward_args &args, uint32_t buffer)
{
    using Z = backward_shape<D, SOURCE, VARLEN, BLOCKS, BIAS>;
    const uint32_t from = Z::DQ + buffer * Z::DQ_BYTES;
    for (uint32_t step = buffer;; step += Z::DQ_BUFFERS) {
        int32_t tile, turn;
        mbar_wait(Z::STEP_FULL + 8 * (step % Z::STEPS), step / Z::STEPS & 1);
        load_shared2(Z::STEP + Z::STEP_BYTES * (step % Z::STEPS), tile, turn);
        if (turn < 0)
            break;
        const bool ordered = MODE != ORDO_DQ_UNORDERED && MODE != ORDO_DQ_NONE;
        if (MODE == ORDO_DQ_DELAYED) {
            const uint32_t hash = (step * 2654435761u ^ (uint32_t)clock64()) * 2246822519u;
            __nanosleep(hash >> 18);
        }
        if (ordered && turn > 0) { /* usually reached before the partial is staged */
            ordo_watch watch;
            for (uint32_t spins = 0; load_acquire(args.turns + tile) != turn; spins++)
                watch.look(ORDO_WAIT_COUNTER, (uint64_t)(args.turns + tile), (uint32_t)turn);
            fence_global_to_async();
        }
        mbar_wait(Z::DQ_FULL + 8 * buffer, step / Z::DQ_BUFFERS & 1);
        if (MODE != ORDO_DQ_NONE && tile >= 0) {
            float *const to = args.dq_sum + (int64_t)tile * (Z::ROWS * D);
            if (ordered && turn == 0)
                bulk_store(to, from, Z::DQ_BYTES);
            else
                bulk_add_f32(to, from, Z::DQ_BYTES);
            bulk_commit();
        }
        bulk_wait_read();
        mbar_arrive(Z::DQ_EMPTY + 8 * buffer);
        if (ordered && tile >= 0) {
            bulk_wait(); /* complete, */
            fence_global_to_async();
            add_release(args.turns + tile, 1); /* and visible: the release orders it */
        }
    }
    bulk_wait();
}

#endif
