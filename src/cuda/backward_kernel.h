/* backward_kernel.h: dK, dV, and dQ summed in the plan's order. docs/hopper.md draws the roles.
 *
 * A block draws chains from a ticket counter. A chain is a tile of 128 keys: K and V stay in
 * shared memory, dK and dV in registers, and the plan says which query tile comes when. Scores are
 * held transposed (keys x queries), so that P and dS are register operands of dV and dK as they
 * are; dS goes through shared memory once, for dQ. A step of a math warpgroup issues
 *
 *     dP(j) dV(j) | dK(j) dQ(j-1) S(j+1)
 *
 * and waits at the bar for its turn at the tensor cores: so the arithmetic of one warpgroup lies
 * under the products of the other. dQ comes one step late, when the other warpgroup's half of dS
 * has long arrived.
 *
 * dQ partials leave through two buffers, each with a warp of its own that waits for the tile's
 * turn, adds (turn 0 stores), and passes the turn on: never on the path of the math warps. */
#ifndef CUDA_BACKWARD_KERNEL_H
#define CUDA_BACKWARD_KERNEL_H

#include <math.h>

#include "cuda/backward.h"
#include "cuda/wgmma.h"

/* What a build of the kernel does with dQ partials. Only ORDERED is part of the library. */
typedef enum ordo_dq_mode {
    ORDO_DQ_ORDERED,
    ORDO_DQ_DELAYED,   /* random delays before every turn: for tests */
    ORDO_DQ_UNORDERED, /* no turns, adds as they come: what order is measured against */
    ORDO_DQ_NONE       /* dK and dV alone */
} ordo_dq_mode;

template <int D, bool DROP> struct backward_shape {
    enum {
        ROWS = D == 64 ? 128 : 64, /* queries */
        KEYS = 128,
        THREADS = 384,
        MATH_REGISTERS = 240,
        LOAD_REGISTERS = 24,
        PANELS = D / ORDO_PANEL_COLUMNS,
        KV_BYTES = KEYS * D * 2,
        Q_BYTES = ROWS * D * 2,
        DS_BYTES = ROWS * KEYS * 2,
        DQ_BYTES = ROWS * D * 4,
        STAT_BYTES = ROWS * 4,
        KEEP_BYTES = DROP ? ROWS * KEYS / 8 : 0,
        DQ_BUFFERS = DROP && D == 64 ? 1 : 2, /* the bits take the other one's place */
        AHEAD = 8,                            /* steps that are planned before they are loaded */
        STEPS = 2 * AHEAD,  /* steps on record: store warps lag behind loads by less than AHEAD */
        STEP_BYTES = 8 * 4, /* of a record: struct backward_step */
        /* shared memory; Q, dO, dS and the statistics twice, by the parity of the step */
        K = ORDO_SMEM_BASE,
        V = K + KV_BYTES,
        Q = V + KV_BYTES,
        DO = Q + 2 * Q_BYTES,
        DS = DO + 2 * Q_BYTES,
        DQ = DS + 2 * DS_BYTES,
        LSE = DQ + DQ_BUFFERS * DQ_BYTES,
        DELTA = LSE + 2 * STAT_BYTES,
        KEEP = DELTA + 2 * STAT_BYTES, /* dropout: of one step */
        STEP = KEEP + KEEP_BYTES,
        CUT = STEP + STEP_BYTES * STEPS, /* how the mask cuts a stage's tile */
        CHAIN = CUT + 8,                 /* steps of the chain, first key, key head, sequence */
        KV_FULL = CHAIN + 16,            /* barriers, 8 bytes each */
        KV_FREE = KV_FULL + 8,
        Q_FULL = KV_FREE + 8,
        Q_FREE = Q_FULL + 16,
        DO_FULL = Q_FREE + 16,
        DO_FREE = DO_FULL + 16,
        DQ_FULL = DO_FREE + 16,
        DQ_FREE = DQ_FULL + 16,
        STEP_FULL = DQ_FREE + 16,
        STEP_FREE = STEP_FULL + 8 * STEPS,
        KEEP_FULL = STEP_FREE + 8 * AHEAD,
        KEEP_FREE = KEEP_FULL + 8,
        END = KEEP_FREE + 8,
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
};

/* Named barriers. DS_DONE: by the step's parity and the warpgroup that waits: the other one has
 * written its half of dS and has read what is written next. Two parities, because a warpgroup may
 * arrive twice before the other has waited once. */
enum { DQ_DONE = 1, DS_DONE = 2, TURN_AT_CORES = 6, OWN = 8 };

/* A step's cut: rows of the tile at which key 0 of the chain would be seen, or one of these. */
enum { CUT_NOTHING = 0x7fffffff, CUT_TAIL = 1 << 28, CUT_ALL = -(1 << 28) };

/* One step as the planning thread records it for loads and stores. */
struct backward_step {
    int32_t tile; /* where dQ goes, over all heads; -1: nowhere */
    int32_t turn; /* -1: no more steps */
    int32_t row;  /* first query */
    int32_t cut;
    int32_t head; /* query head */
    int32_t sequence;
    int32_t chain; /* steps of the chain that begins here; 0 inside one */
    int32_t key;   /* first key */
};

/* ---- plan: one thread draws tickets and walks their chains ---- */

template <int D, bool DROP> struct backward_planner {
    using Z = backward_shape<D, DROP>;
    const ordo_backward_args &args;
    uint32_t step;

    __device__ __forceinline__ void record(int32_t tile, int32_t turn, int32_t row, int32_t cut,
                                           int32_t head, int32_t sequence, int32_t chain,
                                           int32_t key)
    {
        const uint32_t at = Z::STEP + Z::STEP_BYTES * (step % Z::STEPS);
        mbar_wait(Z::STEP_FREE + 8 * (step % Z::AHEAD), (step / Z::AHEAD & 1) ^ 1);
        store_shared2(at, tile, turn);
        store_shared2(at + 8, row, cut);
        store_shared2(at + 16, head, sequence);
        store_shared2(at + 24, chain, key);
        mbar_arrive(Z::STEP_FULL + 8 * (step % Z::STEPS));
        step++;
    }

    /* Tile sizes as constants: the walk's divisions become shifts. */
    __device__ __forceinline__ ordo_walk walk_of(int32_t head) const
    {
        ordo_run run = args.run;
        run.band.bq = Z::ROWS;
        run.band.bk = Z::KEYS;
        return ordo_run_walk(&run, head);
    }

    __device__ __forceinline__ void chain(int32_t head, int32_t key)
    {
        const ordo_walk walk = walk_of(head);
        const int32_t steps = ordo_walk_steps(&walk, key), groups = args.run.group_heads;
        const int32_t sequence = head / args.run.kv_heads, first_key = key * Z::KEYS;
        const int32_t q_head = head % args.run.kv_heads * groups;
        if (steps == 0) { /* keys that nobody sees: one step of which all is masked */
            record(-1, 0, 0, CUT_ALL, q_head, sequence, 1, first_key);
            return;
        }
        for (int32_t n = 0, t = 0, g = 0; n < steps * groups; n++) {
            const int32_t i = ordo_walk_visit(&walk, key, t);
            const bool high = first_key + Z::KEYS - 1 - i * Z::ROWS > args.run.band.high;
            const bool tail = first_key + Z::KEYS > args.run.band.kv_len;
            record((head * groups + g) * args.q_tiles + i, ordo_walk_turn(&walk, i, key),
                   i * Z::ROWS,
                   high   ? i * Z::ROWS + args.run.band.high
                   : tail ? CUT_TAIL
                          : CUT_NOTHING,
                   q_head + g, sequence, n ? 0 : steps * groups, first_key);
            if (++g == groups) { /* heads inside, so that the chains of a key head keep step */
                g = 0;
                t++;
            }
        }
    }

    __device__ __forceinline__ void all(void)
    {
        /* Every ticket from the counter: whoever draws a later one knows the earlier ones run. */
        for (int64_t ticket = atomicAdd(args.ticket, 1); ticket < args.units;) {
            const int cls = ticket >= args.first_class;
            const ordo_unit unit =
                ordo_run_issue(&args.run, cls, ticket - (cls ? args.first_class : 0));
            for (int c = 0; c < unit.keys; c++)
                chain(unit.head, c ? unit.key[1] : unit.key[0]);
            ticket = atomicAdd(args.ticket, 1);
        }
        for (int warp = 0; warp < Z::DQ_BUFFERS; warp++) /* one for each store warp */
            record(-1, -1, 0, 0, 0, 0, 0, 0);
    }
};

/* ---- loads: one thread ---- */

template <int D>
ORDO_DEVICE void load_rows(uint32_t to, const CUtensorMap *map, uint32_t bar, int count, int row,
                           int head, int sequence, uint64_t policy)
{
#pragma unroll
    for (int p = 0; p < D / ORDO_PANEL_COLUMNS; p++)
        tma_load(to + p * count * ORDO_LINE_BYTES, map, bar, p * ORDO_PANEL_COLUMNS, row, head,
                 sequence, policy);
}

template <int D, bool DROP> ORDO_DEVICE void backward_load(const ordo_backward_args &args)
{
    using Z = backward_shape<D, DROP>;
    const uint64_t keep = policy_evict_last();
    uint32_t chains = 0;
    for (uint32_t step = 0;; step++) {
        const uint32_t stage = step & 1, free = (step >> 1 & 1) ^ 1;
        const uint32_t at = Z::STEP + Z::STEP_BYTES * (step % Z::STEPS);
        backward_step x;
        mbar_wait(Z::STEP_FULL + 8 * (step % Z::STEPS), step / Z::STEPS & 1);
        load_shared2(at, x.tile, x.turn);
        load_shared2(at + 8, x.row, x.cut);
        load_shared2(at + 16, x.head, x.sequence);
        load_shared2(at + 24, x.chain, x.key);
        mbar_arrive(Z::STEP_FREE + 8 * (step % Z::AHEAD));
        if (x.turn >= 0) {
            const int32_t heads = args.run.kv_heads * args.run.group_heads;
            const int64_t stat =
                (int64_t)(x.sequence * heads + x.head) * args.q_tiles * Z::ROWS + x.row;
            const uint32_t q_full = Z::Q_FULL + 8 * stage, do_full = Z::DO_FULL + 8 * stage;
            mbar_wait(Z::Q_FREE + 8 * stage, free);
            store_shared(Z::CUT + 4 * stage, x.cut);
            mbar_expect(q_full, Z::Q_BYTES + Z::STAT_BYTES);
            load_rows<D>(Z::Q + stage * Z::Q_BYTES, &args.q, q_full, Z::ROWS, x.row, x.head,
                         x.sequence, keep);
            bulk_load(Z::LSE + stage * Z::STAT_BYTES, args.lse2 + stat, Z::STAT_BYTES, q_full);
            mbar_wait(Z::DO_FREE + 8 * stage, free);
            mbar_expect(do_full, Z::Q_BYTES + Z::STAT_BYTES);
            load_rows<D>(Z::DO + stage * Z::Q_BYTES, &args.dout, do_full, Z::ROWS, x.row, x.head,
                         x.sequence, keep);
            bulk_load(Z::DELTA + stage * Z::STAT_BYTES, args.delta + stat, Z::STAT_BYTES, do_full);
            if (DROP) { /* sixteen rows a copy; rows that do not exist take the last ones' bits */
                mbar_wait(Z::KEEP_FREE, (step & 1) ^ 1);
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
        if (x.chain || x.turn < 0) { /* after the first queries: K and V are free later */
            mbar_wait(Z::KV_FREE, (chains++ & 1) ^ 1);
            const int head = x.head / args.run.group_heads;
            store_shared2(Z::CHAIN, x.chain, x.key);
            store_shared2(Z::CHAIN + 8, head, x.sequence);
            if (x.turn < 0)
                break;
            mbar_expect(Z::KV_FULL, 2 * Z::KV_BYTES);
            load_rows<D>(Z::K, &args.k, Z::KV_FULL, Z::KEYS, x.key, head, x.sequence, keep);
            load_rows<D>(Z::V, &args.v, Z::KV_FULL, Z::KEYS, x.key, head, x.sequence, keep);
        }
    }
    mbar_arrive(Z::KV_FULL); /* a chain of no steps: the end */
}

/* ---- stores: one thread a buffer ---- */

template <int D, int MODE, bool DROP>
ORDO_DEVICE void backward_store(const ordo_backward_args &args, uint32_t buffer)
{
    using Z = backward_shape<D, DROP>;
    const uint32_t from = Z::DQ + buffer * Z::DQ_BYTES;
    for (uint32_t step = buffer;; step += Z::DQ_BUFFERS) {
        int32_t tile, turn;
        mbar_wait(Z::STEP_FULL + 8 * (step % Z::STEPS), step / Z::STEPS & 1);
        load_shared2(Z::STEP + Z::STEP_BYTES * (step % Z::STEPS), tile, turn);
        if (turn < 0)
            break;
        const bool ordered = MODE == ORDO_DQ_ORDERED || MODE == ORDO_DQ_DELAYED;
        if (MODE == ORDO_DQ_DELAYED) {
            const uint32_t hash = (step * 2654435761u ^ (uint32_t)clock64()) * 2246822519u;
            __nanosleep(hash >> 18);
        }
        if (ordered && turn > 0) { /* mostly true before the partial is there */
            for (uint32_t spins = 0; load_acquire(args.turns + tile) != turn; spins++)
                ordo_watch(spins);
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
        mbar_arrive(Z::DQ_FREE + 8 * buffer);
        if (ordered && tile >= 0) {
            bulk_wait(); /* done, */
            fence_global_to_async();
            add_release(args.turns + tile, 1); /* and seen: the release does that */
        }
    }
    bulk_wait();
}

/* ---- products ---- */

/* The same number, as if new: keeps what is computed from it inside the loop, out of registers. */
ORDO_DEVICE uint32_t opaque(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

template <int D, bool DROP> struct backward_math {
    using Z = backward_shape<D, DROP>;
    enum { SCORES = Z::ROWS / 2, PACKED = Z::ROWS / 4, STATS = Z::ROWS / 4 };
    const int mine, thread; /* of the two math warpgroups; in the block */
    const uint32_t k_low;   /* V lies behind K alike */
    uint32_t dq_at, ds_at;

    __device__ __forceinline__ backward_math(int mine_, int thread_)
        : mine(mine_), thread(thread_),
          k_low(ordo_descriptor_low(Z::K + mine_ * 64 * ORDO_LINE_BYTES, 16)),
          dq_at(Z::DQ + mine_ * (Z::DQ_BYTES / 2) + thread_ % 128 * 16), ds_at(0)
    {
        /* Where this lane's rows of dS go: sixteens of queries, 8 keys of this warp a matrix. */
        const int lane = thread_ % 32, warp = thread_ / 32 % 4;
        const int line = lane / 16 * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
        ds_at = Z::DS + mine_ * Z::ROWS * ORDO_LINE_BYTES + line * ORDO_LINE_BYTES +
                ((chunk ^ line % 8) << 4);
        /* Opaque, or they are computed again from the thread's number at every use. */
        asm volatile("" : "+r"(dq_at), "+r"(ds_at));
    }

    __device__ __forceinline__ void s(float (&d)[SCORES], int stage) const /* S^T = K Q^T */
    {
        const uint32_t q_low = ordo_descriptor_low(Z::Q, 16) + stage * (Z::Q_BYTES / 16);
        const uint32_t low = opaque(k_low);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<0, 0>(d, wgmma_by_columns(low, Z::KEYS, k),
                           wgmma_by_columns(q_low, Z::ROWS, k), k > 0);
    }

    __device__ __forceinline__ void dp(float (&d)[SCORES], int stage) const /* dP^T = V dO^T */
    {
        const uint32_t do_low = ordo_descriptor_low(Z::DO, 16) + stage * (Z::Q_BYTES / 16);
        const uint32_t low = opaque(k_low) + (Z::V - Z::K) / 16;
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            wgmma_ss<0, 0>(d, wgmma_by_columns(low, Z::KEYS, k),
                           wgmma_by_columns(do_low, Z::ROWS, k), k > 0);
    }

    /* dV += P^T dO, dK += dS^T Q */
    __device__ __forceinline__ void add(float (&d)[D / 2], const uint32_t (&a)[PACKED],
                                        uint32_t tile, int stage) const
    {
        const uint32_t low =
            ordo_descriptor_low(tile, Z::ROWS * ORDO_LINE_BYTES) + stage * (Z::Q_BYTES / 16);
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++)
            wgmma_rs<1>(d, a + 4 * k, wgmma_by_rows(low, k), 1);
    }

    /* dQ = dS K: 64 rows x 64 columns a warpgroup; halves of the columns, or of the rows. */
    __device__ __forceinline__ void dq(float (&d)[32], int stage) const
    {
        const uint32_t ds_low = (D == 64 ? opaque(k_low) + (Z::DS - Z::K) / 16 /* 64 rows on, too */
                                         : ordo_descriptor_low(Z::DS, 16)) +
                                stage * (Z::DS_BYTES / 16);
        const uint32_t low = ordo_descriptor_low(Z::K, Z::KEYS * ORDO_LINE_BYTES) +
                             (D == 128 ? mine * (Z::KEYS * ORDO_LINE_BYTES / 16) : 0);
#pragma unroll
        for (int k = 0; k < Z::KEYS / 16; k++)
            wgmma_ss<0, 1>(d, wgmma_by_columns(ds_low, Z::ROWS, k), wgmma_by_rows(low, k), k > 0);
    }

    /* The one thread of the warpgroup that copies its tiles out. */
    __device__ __forceinline__ bool leads(void) const
    {
        return opaque((uint32_t)thread) % 128 == 0;
    }

    __device__ __forceinline__ void arrive(uint32_t bar) const
    {
        mbar_arrive_warp(bar, (uint32_t)thread % 32);
    }

    static __device__ __forceinline__ uint32_t dq_full(uint32_t j)
    {
        return Z::DQ_FULL + 8 * (j % Z::DQ_BUFFERS);
    }

    static __device__ __forceinline__ void wait_dq(uint32_t j)
    {
        mbar_wait(Z::DQ_FREE + 8 * (j % Z::DQ_BUFFERS), (j / Z::DQ_BUFFERS & 1) ^ 1);
    }

    /* Of step j, once its buffer is free. */
    __device__ __forceinline__ void put_dq(const float (&d)[32], uint32_t j) const
    {
        const uint32_t buffer = j % Z::DQ_BUFFERS;
#pragma unroll
        for (int i = 0; i < 8; i++)
            store_shared4(dq_at + buffer * Z::DQ_BYTES + i * 2048, d[4 * i], d[4 * i + 1],
                          d[4 * i + 2], d[4 * i + 3]);
    }

    __device__ __forceinline__ void put_ds(const uint32_t (&ds)[PACKED], int stage) const
    {
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++)
            store_matrix4_transposed(ds_at + stage * Z::DS_BYTES + k * 16 * ORDO_LINE_BYTES,
                                     ds[4 * k], ds[4 * k + 1], ds[4 * k + 2], ds[4 * k + 3]);
    }

    /* This thread's row statistics: computed again, for registers are full. */
    __device__ __forceinline__ uint32_t stat_at(void) const
    {
        return Z::LSE + opaque((uint32_t)thread) % 4 * 16;
    }

    /* Row statistics of a stage: four of sixteen rows a load. */
    __device__ __forceinline__ void stats(float (&x)[STATS], int which, int stage) const
    {
        const uint32_t at = stat_at() + which + stage * Z::STAT_BYTES;
#pragma unroll
        for (int i = 0; i < Z::ROWS / 16; i++)
            load_shared4(at + 64 * i, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    }

    /* Dropout: the sign of P says that the element is dropped. A word holds 32 keys of one query;
     * this thread has two of them, sixteen bits apart. */
    __device__ __forceinline__ void drop(float (&p)[SCORES], uint32_t j) const
    {
        const uint32_t x = opaque((uint32_t)thread); /* computed again: registers are full */
        const uint32_t keep_at = Z::KEEP + x % 4 * 64 + x % 32 / 8 * 8;
        const uint32_t shift = 24 - x / 4 % 2 * 8 + mine * 4 + x / 32 % 4;
        mbar_wait(Z::KEEP_FULL, j & 1);
#pragma unroll
        for (int k = 0; k < Z::ROWS / 16; k++) {
            int32_t word[2][2]; /* of queries 0 and 8, 1 and 9 of this thread's sixteen */
            load_shared2(keep_at + k * 256, word[0][0], word[0][1]);
            load_shared2(keep_at + k * 256 + 32, word[1][0], word[1][1]);
#pragma unroll
            for (int i = 8 * k; i < 8 * k + 8; i++) {
                const uint32_t sign = (uint32_t)word[i % 2][i / 4 % 2]
                                      << (i & 2 ? shift - 16 : shift);
                p[i] = __uint_as_float(__float_as_uint(p[i]) | (~sign & 0x80000000u));
            }
        }
        arrive(Z::KEEP_FREE);
    }

    /* P as dV's operand has it, and dS of it; delta is divided by the scale of what is kept, which
     * the results are multiplied by. */
    static __device__ __forceinline__ float kept(float p)
    {
        return DROP ? max_nan(p, 0.0f) : p;
    }

    static __device__ __forceinline__ float gradient(float p, float dp, float delta)
    {
        return DROP ? fmaf(kept(p), dp, -(fabsf(p) * delta)) : p * (dp - delta);
    }

    /* What the mask hides becomes -inf. */
    __device__ __forceinline__ void mask(float (&sc)[SCORES], int32_t cut, int kv_len) const
    {
        if (cut == CUT_NOTHING)
            return;
        const int x = (int)opaque((uint32_t)thread), column = 2 * (x % 4);
        const int key = /* this thread's first */
            load_shared(Z::CHAIN + 4) + mine * 64 + x / 32 % 4 * 16 + x % 32 / 4;
        const int hidden0 = key >= kv_len ? 1 << 20 : key - column - cut;
        const int hidden1 = key + 8 >= kv_len ? 1 << 20 : key + 8 - column - cut;
#pragma unroll
        for (int i = 0; i < SCORES; i++)
            if (8 * (i / 4) + i % 2 < (i & 2 ? hidden1 : hidden0))
                sc[i] = -INFINITY;
    }

    /* P, then dS, from S (masked) and dP (in flight); dV += P^T dO is left in flight. */
    __device__ __forceinline__ void gradients(float (&sc)[SCORES], float (&dp)[SCORES],
                                              float (&dv)[D / 2], const float (&lse)[STATS],
                                              uint32_t (&p)[PACKED], uint32_t (&ds)[PACKED],
                                              uint32_t j, float scale_log2) const
    {
        const int stage = j & 1;
        if constexpr (D == 128) {
            float delta[STATS];
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                sc[i] = exp2_approx(fmaf(sc[i], scale_log2, -lse[i / 4 * 2 + i % 2]));
            if (DROP)
                drop(sc, j);
            stats(delta, Z::DELTA - Z::LSE, stage);
            pack_kept(p, sc);
            issue_dv(dv, p, stage);
            wgmma_wait<1>(); /* dP */
            wgmma_pin(dp);
#pragma unroll
            for (int i = 0; i < SCORES; i++)
                dp[i] = gradient(sc[i], dp[i], delta[i / 4 * 2 + i % 2]);
            pack(ds, dp);
        } else { /* P in f32 beside P in bf16 and dP: too many registers. So dS comes first, and
                  * the row statistics when they are needed. */
            const uint32_t at = stat_at() + stage * Z::STAT_BYTES;
#pragma unroll
            for (int k = 0; k < Z::ROWS / 16; k++) {
                float l[4];
                load_shared4(at + 64 * k, l[0], l[1], l[2], l[3]);
#pragma unroll
                for (int i = 8 * k; i < 8 * k + 8; i++)
                    sc[i] = exp2_approx(fmaf(sc[i], scale_log2, -l[i / 4 % 2 * 2 + i % 2]));
            }
            if (DROP)
                drop(sc, j);
            wgmma_wait<0>();
            wgmma_pin(dp);
#pragma unroll
            for (int k = 0; k < Z::ROWS / 16; k++) {
                float d[4];
                load_shared4(at + (Z::DELTA - Z::LSE) + 64 * k, d[0], d[1], d[2], d[3]);
#pragma unroll
                for (int i = 8 * k; i < 8 * k + 8; i++)
                    dp[i] = gradient(sc[i], dp[i], d[i / 4 % 2 * 2 + i % 2]);
#pragma unroll
                for (int i = 4 * k; i < 4 * k + 4; i++) /* and P is done with */
                    p[i] = pack_bf16(kept(sc[2 * i]), kept(sc[2 * i + 1]));
            }
            issue_dv(dv, p, stage);
            pack(ds, dp);
        }
    }

    /* This warpgroup's 64 keys of dV or dK, through the two buffers of dS. Not 0 if any number of
     * this thread's is not finite. */
    __device__ __forceinline__ uint32_t put_out(const float (&d)[D / 2], float scale,
                                                const CUtensorMap *map, int first_key, int head,
                                                int sequence) const
    {
        uint32_t taint = 0;
        const int x = (int)opaque((uint32_t)thread), line = x / 32 % 4 * 16 + x % 16;
        const bool leader = leads();
        const uint32_t rows_at = Z::DS + mine * 64 * ORDO_LINE_BYTES;
        if (leader)
            bulk_wait_read(); /* what left there before has left */
        named_sync(OWN + mine, 128);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            const uint32_t pairs[4] = { pack_bf16(d[8 * c] * scale, d[8 * c + 1] * scale),
                                        pack_bf16(d[8 * c + 2] * scale, d[8 * c + 3] * scale),
                                        pack_bf16(d[8 * c + 4] * scale, d[8 * c + 5] * scale),
                                        pack_bf16(d[8 * c + 6] * scale, d[8 * c + 7] * scale) };
            taint |= not_finite(pairs[0]) | not_finite(pairs[1]) | not_finite(pairs[2]) |
                     not_finite(pairs[3]);
            store_matrix4(rows_at + ordo_tile_offset(Z::KEYS, line, c * 16 + x % 32 / 16 * 8),
                          pairs[0], pairs[1], pairs[2], pairs[3]);
        }
        fence_shared_to_async();
        named_sync(OWN + mine, 128);
        if (leader) {
#pragma unroll
            for (int p = 0; p < Z::PANELS; p++)
                tma_store(map, rows_at + p * Z::KEYS * ORDO_LINE_BYTES, p * ORDO_PANEL_COLUMNS,
                          first_key + mine * 64, head, sequence);
            bulk_commit();
        }
        return taint;
    }

    static __device__ __forceinline__ void pack_kept(uint32_t (&to)[PACKED],
                                                     const float (&from)[SCORES])
    {
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            to[i] = pack_bf16(kept(from[2 * i]), kept(from[2 * i + 1]));
    }

    static __device__ __forceinline__ void pack(uint32_t (&to)[PACKED], const float (&from)[SCORES])
    {
#pragma unroll
        for (int i = 0; i < PACKED; i++)
            to[i] = pack_bf16(from[2 * i], from[2 * i + 1]);
    }

    __device__ __forceinline__ void issue_dv(float (&dv)[D / 2], const uint32_t (&p)[PACKED],
                                             int stage) const
    {
        wgmma_pin(dv);
        wgmma_fence();
        add(dv, p, Z::DO, stage);
        wgmma_commit();
    }
};

template <int D, int MODE, bool DROP>
__global__ void __launch_bounds__(384, 1)
    backward_kernel(const __grid_constant__ ordo_backward_args args)
{
    using Z = backward_shape<D, DROP>;
    using M = backward_math<D, DROP>;
    extern __shared__ __align__(1024) char smem[];
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        if ((uint32_t)__cvta_generic_to_shared(smem) != ORDO_SMEM_BASE)
            ordo_fault();
        mbar_init(Z::KV_FULL, 1);
        mbar_init(Z::KV_FREE, 8);
        for (int s = 0; s < 2; s++) {
            mbar_init(Z::Q_FULL + 8 * s, 1);
            mbar_init(Z::Q_FREE + 8 * s, 8);
            mbar_init(Z::DO_FULL + 8 * s, 1);
            mbar_init(Z::DO_FREE + 8 * s, 8);
            mbar_init(Z::DQ_FULL + 8 * s, 8);
            mbar_init(Z::DQ_FREE + 8 * s, 1);
        }
        for (int i = 0; i < Z::STEPS; i++)
            mbar_init(Z::STEP_FULL + 8 * i, 1);
        for (int i = 0; i < Z::AHEAD; i++)
            mbar_init(Z::STEP_FREE + 8 * i, 1);
        mbar_init(Z::KEEP_FULL, 1);
        mbar_init(Z::KEEP_FREE, 8);
        mbar_init_fence();
    }
    __syncthreads();
    grid_wait();     /* counters are zero, statistics there */
    grid_let_next(); /* not before: who comes next reads the counters */

    if (group == 0) {
        registers_down<Z::LOAD_REGISTERS>();
        const int warp = threadIdx.x / 32;
        if (!elect_one())
            return;
        if (warp == 0)
            backward_load<D, DROP>(args);
        else if (warp <= Z::DQ_BUFFERS)
            backward_store<D, MODE, DROP>(args, warp - 1);
        else if (warp == 3)
            backward_planner<D, DROP> { args, 0 }.all();
        return;
    }

    registers_up<Z::MATH_REGISTERS>();
    const M m(group - 1, threadIdx.x);
    uint32_t j = 0; /* steps of this block so far */
    float dk[D / 2], dv[D / 2];
    if (m.mine == 0)
        named_arrive(TURN_AT_CORES, 256);
    for (uint32_t chain = 0;; chain++) {
        mbar_wait(Z::KV_FULL, chain & 1);
        const int32_t steps = load_shared(Z::CHAIN);
        if (steps == 0)
            break;
        const uint32_t end = j + steps;
        float sc[M::SCORES], lse[M::STATS];
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            dk[i] = dv[i] = 0.0f;
        if (m.leads())
            bulk_wait_read(); /* dK of the last chain has left dS */
        named_sync(OWN + m.mine, 128);
        named_arrive(DS_DONE + 2 * ((j & 1) ^ 1) + (m.mine ^ 1), 256);
        mbar_wait(Z::Q_FULL + 8 * (j & 1), j >> 1 & 1);
        wgmma_pin(sc);
        wgmma_fence();
        m.s(sc, j & 1);
        wgmma_commit();
        if (D == 128)
            m.stats(lse, 0, j & 1);
        mbar_wait(Z::DO_FULL + 8 * (j & 1), j >> 1 & 1);
        wgmma_wait<0>();
        wgmma_pin(sc);

        /* On entry S(j) is there, and dS(j - 1) in shared memory. */
        auto step = [&](uint32_t j) {
            const int stage = j & 1, other = stage ^ 1;
            const bool first = j == end - steps, last = j + 1 == end;
            float dp[M::SCORES];
            uint32_t p[M::PACKED], ds[M::PACKED];
            wgmma_fence();
            m.dp(dp, stage);
            wgmma_commit();
            m.mask(sc, load_shared(Z::CUT + 4 * stage), args.run.band.kv_len);
            m.gradients(sc, dp, dv, lse, p, ds, j, args.scale_log2);
            named_sync(DS_DONE + 2 * other + m.mine, 256);
            m.put_ds(ds, stage);
            named_sync(TURN_AT_CORES + m.mine, 256);
            wgmma_pin(dk);
            wgmma_fence();
            m.add(dk, ds, Z::Q, stage);
            wgmma_commit();
            float dq[32]; /* of the step before; the first step's is dropped */
            wgmma_pin(dq);
            wgmma_fence();
            if (MODE != ORDO_DQ_NONE)
                m.dq(dq, other);
            wgmma_commit();
            wgmma_wait<2>(); /* dV: dO is free, and P */
            m.arrive(Z::DO_FREE + 8 * stage);
            if (D == 128) { /* no registers for S beside dK */
                wgmma_wait<1>();
                m.arrive(Z::Q_FREE + 8 * stage);
            }
            const uint32_t next_phase = (j + 1) >> 1 & 1;
            if (!last)
                mbar_wait(Z::Q_FULL + 8 * other, next_phase);
            wgmma_pin(sc);
            wgmma_fence();
            m.s(sc, other); /* after the last step: of whatever is there, and dropped */
            wgmma_commit();
            named_arrive(TURN_AT_CORES + (m.mine ^ 1), 256);
            if (D == 64) {
                wgmma_wait<2>();
                m.arrive(Z::Q_FREE + 8 * stage);
            }
            if (!first) /* barriers are looked at while the tensor cores work */
                m.wait_dq(j - 1);
            if (!last)
                mbar_wait(Z::DO_FULL + 8 * other, next_phase);
            wgmma_wait<1>();
            wgmma_pin(dq);
            if (MODE != ORDO_DQ_NONE && !first)
                m.put_dq(dq, j - 1);
            fence_shared_to_async(); /* dS and dQ */
            if (!first)
                m.arrive(m.dq_full(j - 1));
            named_arrive(DS_DONE + 2 * stage + (m.mine ^ 1), 256);
            if (D == 128)
                m.stats(lse, 0, other);
            wgmma_wait<0>();
            wgmma_pin(sc);
        };
#pragma unroll 1
        for (; j < end; j++)
            step(j);

        { /* dQ of the last step */
            const int stage = (j - 1) & 1;
            float dq[32];
            named_sync(DS_DONE + 2 * stage + m.mine, 256);
            wgmma_pin(dq);
            wgmma_fence();
            if (MODE != ORDO_DQ_NONE)
                m.dq(dq, stage);
            wgmma_commit();
            m.wait_dq(j - 1);
            wgmma_wait<0>();
            wgmma_pin(dq);
            if (MODE != ORDO_DQ_NONE)
                m.put_dq(dq, j - 1);
            fence_shared_to_async();
            m.arrive(m.dq_full(j - 1));
        }
        const int first_key = load_shared(Z::CHAIN + 4);
        const int head = load_shared(Z::CHAIN + 8), sequence = load_shared(Z::CHAIN + 12);
        m.arrive(Z::KV_FREE);     /* the next chain's K and V come meanwhile */
        named_sync(DQ_DONE, 256); /* nobody reads dS any more: dV and dK leave there */
        uint32_t taint =
            m.put_out(dv, DROP ? args.keep_scale : 1.0f, &args.dv, first_key, head, sequence);
        taint |= m.put_out(dk, args.out_scale, &args.dk, first_key, head, sequence);
        if (taint)
            args.ticket[ORDO_NOT_FINITE] = 1;
    }
    if (m.leads())
        bulk_wait();
}

#endif
