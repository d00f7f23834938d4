/* barrier_kernels.h: what the warps of the kernels wait for, as data for barrier_model.h.
 *
 * The order of waits and arrivals is that of the sources named at each kernel; a program here is
 * changed together with its kernel. Barriers that always go together (the panels of a tile) are
 * one. Named barriers count warps: 8 are two warpgroups. */
#ifndef TESTS_CUDA_BARRIER_KERNELS_H
#define TESTS_CUDA_BARRIER_KERNELS_H

#include "barrier_model.h"

/* A program has lines of its own. */
/* clang-format off */

/* Barrier, and 1 or -1 if it is that of the next step or the one before. */
#define FULL(...)      { .op = M_WAIT_FULL, __VA_ARGS__ }
#define EMPTY(...)     { .op = M_WAIT_EMPTY, __VA_ARGS__ }
#define ARRIVE(...)    { .op = M_ARRIVE, __VA_ARGS__ }
#define STORE(...)     { .op = M_STORE, __VA_ARGS__ }
#define READ(...)      { .op = M_READ, __VA_ARGS__ }
#define EXPECT(...)    { .op = M_EXPECT, __VA_ARGS__ }
#define COPY(...)      { .op = M_COPY, __VA_ARGS__ }
#define LOAD(...)      EXPECT(__VA_ARGS__), COPY(__VA_ARGS__)
/* Number, which one, warps. */
#define SYNC(...)      { .op = M_SYNC, __VA_ARGS__ }
#define PASS(...)      { .op = M_PASS, __VA_ARGS__ }
#define WHEN(x, ...)   { .op = M_IF, x }, __VA_ARGS__, { .op = M_END }
#define UNITS(...)     { .op = M_UNITS }, __VA_ARGS__, { .op = M_UNITS_END }
#define STEPS(...)     { .op = M_STEPS }, __VA_ARGS__, { .op = M_STEPS_END }
#define MORE(...)      { .op = M_MORE }, __VA_ARGS__, { .op = M_MORE_END }
#define EVERY(x, ...)  { .op = M_ALL_STEPS, x }, __VA_ARGS__, { .op = M_ALL_STEPS_END }
#define TURN(...)      { .op = M_TURN_WAIT }, __VA_ARGS__, { .op = M_TURN_PASS }
#define NOTHING()      { .op = M_IF, IF_FIRST }, { .op = M_END }
#define NEXT           { .op = M_NEXT }
#define STOP           { .op = M_STOP }

/* ---- src/cuda/sm90/phases/chain.h, chain_load.h: three stages, keep bits made inside ---- */

enum {
    PC_K_FULL, PC_K_EMPTY, PC_V_FULL, PC_V_EMPTY, PC_FULL, PC_EMPTY, PC_P_FULL, PC_P_EMPTY, PC_TOLD,
    PC_KEEP_FULL, PC_PINGPONG = 1
};

#define PC_PROBABILITIES(at)                                                                       \
    FULL(PC_KEEP_FULL, at), EMPTY(PC_P_EMPTY, at), READ(PC_FULL, at), STORE(PC_P_FULL, at)
#define PC_GRADIENTS(at) FULL(PC_P_FULL, at), READ(PC_FULL, at)

static const model_kernel phase_chain = {
    "phase_chain", 1,
    {
        [PC_K_FULL] = { "K_FULL", 1, 1, true, -1 },
        [PC_K_EMPTY] = { "K_EMPTY", 1, 4, true, PC_K_FULL },
        [PC_V_FULL] = { "V_FULL", 1, 1, true, -1 },
        [PC_V_EMPTY] = { "V_EMPTY", 1, 4, true, PC_V_FULL },
        [PC_FULL] = { "Q_FULL", 3, 1, false, -1 },
        [PC_EMPTY] = { "DOUT_EMPTY", 3, 8, false, PC_FULL },
        [PC_P_FULL] = { "P_FULL", 2, 4, false, -1 },
        [PC_P_EMPTY] = { "P_EMPTY", 2, 4, false, PC_P_FULL },
        [PC_TOLD] = { "TOLD", 3, 1, false, -1 },
        [PC_KEEP_FULL] = { "KEEP_FULL", 3, 3, false, -1 },
    },
    {
        { "loader", 1, 0, {
            UNITS(STEPS(
                EMPTY(PC_EMPTY), STORE(PC_TOLD), LOAD(PC_FULL),
                WHEN(IF_FIRST, EMPTY(PC_K_EMPTY), EMPTY(PC_V_EMPTY), LOAD(PC_K_FULL), LOAD(PC_V_FULL)))),
            EMPTY(PC_K_EMPTY), EMPTY(PC_V_EMPTY), STORE(PC_K_FULL), STORE(PC_V_FULL),
            EMPTY(PC_EMPTY), STORE(PC_TOLD), STOP } },
        { "makers", 3, 0, {
            UNITS(STEPS(FULL(PC_TOLD), STORE(PC_KEEP_FULL))), FULL(PC_TOLD), STOP } },
        { "scores", 4, 0, {
            PASS(PC_PINGPONG, PLAIN, 8),
            UNITS(
                FULL(PC_K_FULL), FULL(PC_FULL), WHEN(IF_LAST, ARRIVE(PC_K_EMPTY)),
                PC_PROBABILITIES(0),
                MORE(SYNC(PC_PINGPONG, PLAIN, 8), FULL(PC_FULL, 1),
                     PASS(PC_PINGPONG + 1, PLAIN, 8), ARRIVE(PC_EMPTY),
                     WHEN(IF_NEXT_IS_LAST, ARRIVE(PC_K_EMPTY)), PC_PROBABILITIES(1)),
                ARRIVE(PC_EMPTY), NEXT),
            FULL(PC_K_FULL), STOP } },
        { "gradients", 4, 1, {
            UNITS(
                FULL(PC_V_FULL), FULL(PC_FULL), WHEN(IF_LAST, ARRIVE(PC_V_EMPTY)), PC_GRADIENTS(0),
                MORE(FULL(PC_FULL, 1), SYNC(PC_PINGPONG + 1, PLAIN, 8), ARRIVE(PC_P_EMPTY),
                     PASS(PC_PINGPONG, PLAIN, 8), ARRIVE(PC_EMPTY),
                     WHEN(IF_NEXT_IS_LAST, ARRIVE(PC_V_EMPTY)), PC_GRADIENTS(1)),
                ARRIVE(PC_P_EMPTY), ARRIVE(PC_EMPTY), NEXT),
            FULL(PC_V_FULL), STOP } },
    },
};

/* ---- src/cuda/sm90/forward/varlen.h, roles.h, blocks.h: any batch, and under a block mask ---- */

enum {
    F_Q_FULL, F_Q_EMPTY, F_K_FULL, F_K_EMPTY, F_V_FULL, F_V_EMPTY, F_BIAS_FULL, F_BIAS_EMPTY, F_SECOND_FULL,
    F_SECOND_EMPTY, F_PINGPONG = 1, F_OWN = 5
};

#define F_BARRIERS(q_stages, q_readers, loads)                                                     \
    {                                                                                              \
        [F_Q_FULL] = { "Q_FULL", q_stages, 1, true, -1 },                                          \
        [F_Q_EMPTY] = { "Q_EMPTY", q_stages, q_readers, true, F_Q_FULL },                          \
        [F_K_FULL] = { "K_FULL", 2, loads, false, -1 },                                            \
        [F_K_EMPTY] = { "K_EMPTY", 2, 8, false, F_K_FULL },                                        \
        [F_V_FULL] = { "V_FULL", 2, loads, false, -1 },                                            \
        [F_V_EMPTY] = { "V_EMPTY", 2, 8, false, F_V_FULL },                                        \
    }
#define F_LOADER                                                                                   \
    {                                                                                              \
        UNITS(EMPTY(F_K_EMPTY), LOAD(F_K_FULL), EMPTY(F_Q_EMPTY), LOAD(F_Q_FULL),                  \
              STEPS(WHEN(IF_NOT_LAST, EMPTY(F_K_EMPTY, 1), LOAD(F_K_FULL, 1)), EMPTY(F_V_EMPTY),   \
                    LOAD(F_V_FULL))),                                                              \
            EMPTY(F_Q_EMPTY), STORE(F_Q_FULL), STOP                                                \
    }
#define F_PASS_ON(bias)                                                                            \
    FULL(F_K_FULL), ARRIVE(F_K_EMPTY), FULL(F_V_FULL), ARRIVE(F_V_EMPTY), bias(),                  \
        SYNC(F_PINGPONG, MINE, 8), PASS(F_PINGPONG, OTHER, 8)
/* `after`: of the last tile; `end`: of the unit. One of them releases Q. */
#define F_CONSUMER(bias, after, end)                                                               \
    {                                                                                              \
        PASS(F_PINGPONG, ZEROTH, 8),                                                               \
            UNITS(FULL(F_Q_FULL),                                                                  \
                  STEPS(WHEN(IF_BEFORE, F_PASS_ON(bias)),                                                \
                        WHEN(IF_BEGIN, FULL(F_K_FULL), ARRIVE(F_K_EMPTY), bias()),                 \
                        WHEN(IF_WITHIN, FULL(F_K_FULL), SYNC(F_PINGPONG, MINE, 8),                 \
                             FULL(F_V_FULL, -1), PASS(F_PINGPONG, OTHER, 8), ARRIVE(F_K_EMPTY),    \
                             bias(), ARRIVE(F_V_EMPTY, -1)),                                       \
                        WHEN(IF_CLOSE, after, FULL(F_V_FULL), ARRIVE(F_V_EMPTY)),                  \
                        WHEN(IF_BEHIND, F_PASS_ON(bias))),                                               \
                  SYNC(F_OWN, MINE, 4), end),                                                      \
            FULL(F_Q_FULL), STOP                                                                   \
    }

static const model_kernel forward_wide = { /* O leaves from Q's place */
    "forward_varlen_kernel, head size 256", 1, F_BARRIERS(1, 8, 1),
    {
        { "loader", 1, 0, F_LOADER },
        { "consumers 0", 4, 0, F_CONSUMER(NOTHING, READ(F_Q_FULL), ARRIVE(F_Q_EMPTY)) },
        { "consumers 1", 4, 1, F_CONSUMER(NOTHING, READ(F_Q_FULL), ARRIVE(F_Q_EMPTY)) },
    },
};

static const model_kernel forward_blocks = {
    "forward_varlen_kernel, block mask", 1, F_BARRIERS(2, 8, 1),
    {
        { "loader", 1, 0, F_LOADER },
        { "consumers 0", 4, 0, F_CONSUMER(NOTHING, ARRIVE(F_Q_EMPTY), SYNC(F_OWN, MINE, 4)) },
        { "consumers 1", 4, 1, F_CONSUMER(NOTHING, ARRIVE(F_Q_EMPTY), SYNC(F_OWN, MINE, 4)) },
    },
};

/* A bias in 32 bits: both pieces of a tile, which follow each other, are one buffer here. */
#define F_LOAD_BIAS(...)                                                                           \
    EMPTY(F_BIAS_EMPTY, __VA_ARGS__), LOAD(F_BIAS_FULL, __VA_ARGS__),                              \
        EMPTY(F_SECOND_EMPTY, __VA_ARGS__), LOAD(F_SECOND_FULL, __VA_ARGS__)
#define F_BIAS_0() FULL(F_BIAS_FULL), ARRIVE(F_BIAS_EMPTY)
#define F_BIAS_1() FULL(F_SECOND_FULL), ARRIVE(F_SECOND_EMPTY)

static const model_kernel forward_bias = {
    "forward_varlen_kernel, bias", 1,
    {
        [F_Q_FULL] = { "Q_FULL", 1, 1, true, -1 },
        [F_Q_EMPTY] = { "Q_EMPTY", 1, 8, true, F_Q_FULL },
        [F_K_FULL] = { "K_FULL", 2, 1, false, -1 },
        [F_K_EMPTY] = { "K_EMPTY", 2, 8, false, F_K_FULL },
        [F_V_FULL] = { "V_FULL", 2, 1, false, -1 },
        [F_V_EMPTY] = { "V_EMPTY", 2, 8, false, F_V_FULL },
        [F_BIAS_FULL] = { "BIAS_FULL 0", 1, 1, false, -1 },
        [F_BIAS_EMPTY] = { "BIAS_EMPTY 0", 1, 4, false, F_BIAS_FULL },
        [F_SECOND_FULL] = { "BIAS_FULL 1", 1, 1, false, -1 },
        [F_SECOND_EMPTY] = { "BIAS_EMPTY 1", 1, 4, false, F_SECOND_FULL },
    },
    {
        { "loader", 1, 0, {
            UNITS(EMPTY(F_K_EMPTY), LOAD(F_K_FULL), F_LOAD_BIAS(0), EMPTY(F_Q_EMPTY), LOAD(F_Q_FULL),
                  STEPS(WHEN(IF_NOT_LAST, EMPTY(F_K_EMPTY, 1), LOAD(F_K_FULL, 1)), EMPTY(F_V_EMPTY),
                        LOAD(F_V_FULL), WHEN(IF_NOT_LAST, F_LOAD_BIAS(1)))),
            EMPTY(F_Q_EMPTY), STORE(F_Q_FULL), STOP } },
        { "consumers 0", 4, 0, F_CONSUMER(F_BIAS_0, READ(F_Q_FULL), ARRIVE(F_Q_EMPTY)) },
        { "consumers 1", 4, 1, F_CONSUMER(F_BIAS_1, READ(F_Q_FULL), ARRIVE(F_Q_EMPTY)) },
    },
};

/* ---- src/cuda/sm90/forward/decode.h, decode_load.h: short pages, of two warps that gather ---- */

#define G_TILES                                                                                    \
    STEPS(WHEN(IF_NOT_LAST, EMPTY(F_K_EMPTY, 1), STORE(F_K_FULL, 1)), EMPTY(F_V_EMPTY),            \
          STORE(F_V_FULL))

static const model_kernel forward_gather = {
    "forward_decode_kernel, gather", 1,
    {
        [F_Q_FULL] = { "Q_FULL", 2, 1, true, -1 },
        [F_Q_EMPTY] = { "Q_EMPTY", 2, 4, true, F_Q_FULL },
        [F_K_FULL] = { "K_FULL", 3, 2, false, -1 },
        [F_K_EMPTY] = { "K_EMPTY", 3, 4, false, F_K_FULL },
        [F_V_FULL] = { "V_FULL", 3, 2, false, -1 },
        [F_V_EMPTY] = { "V_EMPTY", 3, 4, false, F_V_FULL },
    },
    {
        { "loader", 1, 0, {
            UNITS(EMPTY(F_K_EMPTY), STORE(F_K_FULL), EMPTY(F_Q_EMPTY), LOAD(F_Q_FULL), G_TILES),
            EMPTY(F_Q_EMPTY), STORE(F_Q_FULL), STOP } },
        { "another loader", 1, 0, {
            UNITS(FULL(F_Q_FULL), EMPTY(F_K_EMPTY), STORE(F_K_FULL), G_TILES),
            FULL(F_Q_FULL), STOP } },
        { "consumers", 4, 0, {
            UNITS(
                FULL(F_Q_FULL), FULL(F_K_FULL),
                STEPS(ARRIVE(F_K_EMPTY), WHEN(IF_NOT_FIRST, ARRIVE(F_V_EMPTY, -1)),
                      WHEN(IF_NOT_LAST, FULL(F_K_FULL, 1), FULL(F_V_FULL)),
                      WHEN(IF_LAST, ARRIVE(F_Q_EMPTY), FULL(F_V_FULL), ARRIVE(F_V_EMPTY)))),
            FULL(F_Q_FULL), STOP } },
    },
};

/* ---- src/cuda/sm90/forward/varlen.h, paged.h: keys in pages, two warps load keys, two values ---- */

#define F_FOLLOWER(empty, full)                                                                    \
    {                                                                                              \
        UNITS(FULL(F_Q_FULL), ARRIVE(F_Q_EMPTY), STEPS(EMPTY(empty), LOAD(full))), FULL(F_Q_FULL), \
            STOP                                                                                   \
    }

static const model_kernel forward_pages = {
    "forward_varlen_kernel, pages", 1, F_BARRIERS(2, 11, 2),
    {
        { "loader of keys", 1, 0, {
            UNITS(STEPS(EMPTY(F_K_EMPTY), LOAD(F_K_FULL),
                        WHEN(IF_FIRST, EMPTY(F_Q_EMPTY), LOAD(F_Q_FULL)))),
            EMPTY(F_Q_EMPTY), STORE(F_Q_FULL), STOP } },
        { "another loader of keys", 1, 0, F_FOLLOWER(F_K_EMPTY, F_K_FULL) },
        { "loader of values", 1, 0, F_FOLLOWER(F_V_EMPTY, F_V_FULL) },
        { "another loader of values", 1, 0, F_FOLLOWER(F_V_EMPTY, F_V_FULL) },
        { "consumers 0", 4, 0, F_CONSUMER(NOTHING, ARRIVE(F_Q_EMPTY), SYNC(F_OWN, MINE, 4)) },
        { "consumers 1", 4, 1, F_CONSUMER(NOTHING, ARRIVE(F_Q_EMPTY), SYNC(F_OWN, MINE, 4)) },
    },
};

/* ---- src/cuda/sm90/backward/kernel.h, roles.h, varlen.h: head size 128, given keep bits, block mask ---- */

enum {
    B_KV_FULL, B_KV_EMPTY, B_Q_FULL, B_Q_EMPTY, B_DO_FULL, B_DO_EMPTY, B_DQ_FULL, B_DQ_EMPTY, B_STEP_FULL,
    B_STEP_EMPTY, B_KEEP_FULL, B_KEEP_EMPTY, B_BIAS_FULL = B_KEEP_FULL, B_BIAS_EMPTY,
    B_DQ_DONE = 1, B_DS_DONE = 2, B_PINGPONG = 6, B_OWN = 8
};

/* `begin`: of a chain; `mine`, `next`: of a step. */
#define B_CONSUMER(begin, mine, next)                                                              \
    {                                                                                              \
        PASS(B_PINGPONG, ZEROTH, 8),                                                               \
            UNITS(FULL(B_KV_FULL), SYNC(B_OWN, MINE, 4), PASS(B_DS_DONE, BEFORE_OTHER, 8),         \
                  FULL(B_Q_FULL), FULL(B_DO_FULL), begin(),                                        \
                  STEPS(mine(), SYNC(B_DS_DONE, BEFORE_MINE, 8),                                   \
                        SYNC(B_PINGPONG, MINE, 8), ARRIVE(B_DO_EMPTY), ARRIVE(B_Q_EMPTY),          \
                        WHEN(IF_NOT_LAST, FULL(B_Q_FULL, 1)), PASS(B_PINGPONG, OTHER, 8),          \
                        WHEN(IF_NOT_FIRST, EMPTY(B_DQ_EMPTY, -1)),                                 \
                        WHEN(IF_NOT_LAST, FULL(B_DO_FULL, 1)),                                     \
                        WHEN(IF_NOT_FIRST, STORE(B_DQ_FULL, -1)),                                  \
                        PASS(B_DS_DONE, STAGE_OTHER, 8), next()),                                  \
                  SYNC(B_DS_DONE, BEFORE_MINE, 8), EMPTY(B_DQ_EMPTY, -1), STORE(B_DQ_FULL, -1),    \
                  ARRIVE(B_KV_EMPTY), SYNC(B_DQ_DONE, PLAIN, 8)),                                  \
            FULL(B_KV_FULL), STOP                                                                  \
    }
#define B_KEEP() FULL(B_KEEP_FULL), ARRIVE(B_KEEP_EMPTY)
#define B_BIAS() FULL(B_BIAS_FULL), ARRIVE(B_BIAS_EMPTY)
#define B_NEXT_BIAS() WHEN(IF_NOT_LAST, FULL(B_BIAS_FULL, 1), ARRIVE(B_BIAS_EMPTY, 1))
#define B_LOADER                                                                                   \
    {                                                                                              \
        UNITS(STEPS(                                                                               \
            FULL(B_STEP_FULL), EMPTY(B_Q_EMPTY), LOAD(B_Q_FULL), EMPTY(B_DO_EMPTY),                \
            LOAD(B_DO_FULL), EMPTY(B_KEEP_EMPTY), LOAD(B_KEEP_FULL),                               \
            WHEN(IF_FIRST, EMPTY(B_KV_EMPTY), LOAD(B_KV_FULL)), READ(B_STEP_FULL),                 \
            ARRIVE(B_STEP_EMPTY))),                                                                \
            FULL(B_STEP_FULL), EMPTY(B_KV_EMPTY), STORE(B_KV_FULL), STOP                           \
    }
#define B_PLANNER                                                                                  \
    {                                                                                              \
        UNITS(STEPS(EMPTY(B_STEP_EMPTY), STORE(B_STEP_FULL))), EMPTY(B_STEP_EMPTY),                \
            STORE(B_STEP_FULL), NEXT, EMPTY(B_STEP_EMPTY), STORE(B_STEP_FULL), STOP                \
    }
#define B_STORES(buffers)                                                                          \
    {                                                                                              \
        EVERY(buffers, FULL(B_STEP_FULL), TURN(FULL(B_DQ_FULL), ARRIVE(B_DQ_EMPTY))),                \
            FULL(B_STEP_FULL), STOP                                                                \
    }

/* What every instance has. `buffers`: of dQ; `ahead`: steps that the planner may be ahead. */
#define B_BARRIERS(buffers, ahead)                                                                 \
    [B_KV_FULL] = { "KV_FULL", 1, 1, true, -1 },                                                   \
    [B_KV_EMPTY] = { "KV_EMPTY", 1, 8, true, B_KV_FULL },                                          \
    [B_Q_FULL] = { "Q_FULL", 2, 1, false, -1 },                                                    \
    [B_Q_EMPTY] = { "Q_EMPTY", 2, 8, false, B_Q_FULL },                                            \
    [B_DO_FULL] = { "DO_FULL", 2, 1, false, -1 },                                                  \
    [B_DO_EMPTY] = { "DO_EMPTY", 2, 8, false, B_DO_FULL },                                         \
    [B_DQ_FULL] = { "DQ_FULL", buffers, 8, false, -1 },                                            \
    [B_DQ_EMPTY] = { "DQ_EMPTY", buffers, 1, false, B_DQ_FULL },                                   \
    [B_STEP_FULL] = { "STEP_FULL", 2 * (ahead), 1, false, -1 },                                    \
    [B_STEP_EMPTY] = { "STEP_EMPTY", ahead, 1, false, -1 }

static const model_kernel backward_blocks = {
    "backward_kernel, block mask", 2,
    {
        B_BARRIERS(2, 6),
        [B_KEEP_FULL] = { "KEEP_FULL", 1, 1, false, -1 },
        [B_KEEP_EMPTY] = { "KEEP_EMPTY", 1, 8, false, B_KEEP_FULL },
    },
    {
        { "planner", 1, 0, B_PLANNER },
        { "loader", 1, 0, B_LOADER },
        { "store 0", 1, 0, B_STORES(2) },
        { "store 1", 1, 1, B_STORES(2) },
        { "consumers 0", 4, 0, B_CONSUMER(NOTHING, B_KEEP, NOTHING) },
        { "consumers 1", 4, 1, B_CONSUMER(NOTHING, B_KEEP, NOTHING) },
    },
};

/* A bias in 32 bits, no keep bits. */
static const model_kernel backward_bias = {
    "backward_kernel, bias", 2,
    {
        B_BARRIERS(1, 8),
        [B_BIAS_FULL] = { "BIAS_FULL", 1, 1, false, -1 },
        [B_BIAS_EMPTY] = { "BIAS_EMPTY", 1, 8, false, B_BIAS_FULL },
    },
    {
        { "planner", 1, 0, B_PLANNER },
        { "loader", 1, 0, B_LOADER },
        { "store", 1, 0, B_STORES(1) },
        { "consumers 0", 4, 0, B_CONSUMER(B_BIAS, NOTHING, B_NEXT_BIAS) },
        { "consumers 1", 4, 1, B_CONSUMER(B_BIAS, NOTHING, B_NEXT_BIAS) },
    },
};

/* ---- src/cuda/sm90/forward/spread_scores.h, spread_values.h: long sequences, short pages, two of the
 * loaders. A block has one unit of the latter kernel, whose last stages nobody needs; here it goes on,
 * and one tile is under way, not two. ---- */

static const model_kernel spread_scores = {
    "spread_scores_kernel, gather", 1,
    {
        [F_Q_FULL] = { "Q_FULL", 1, 1, true, -1 },
        [F_Q_EMPTY] = { "Q_EMPTY", 1, 4, true, F_Q_FULL },
        [F_K_FULL] = { "K_FULL", 4, 2, false, -1 },
        [F_K_EMPTY] = { "K_EMPTY", 4, 4, false, F_K_FULL },
    },
    {
        { "loader", 1, 0, {
            UNITS(EMPTY(F_Q_EMPTY), LOAD(F_Q_FULL), STEPS(EMPTY(F_K_EMPTY), STORE(F_K_FULL))), STOP } },
        { "another loader", 1, 0, { UNITS(STEPS(EMPTY(F_K_EMPTY), STORE(F_K_FULL))), STOP } },
        { "consumers", 4, 0, {
            UNITS(FULL(F_Q_FULL), STEPS(FULL(F_K_FULL), READ(F_Q_FULL), ARRIVE(F_K_EMPTY)),
                  ARRIVE(F_Q_EMPTY)),
            STOP } },
    },
};

enum { W_FULL, W_EMPTY };

static const model_kernel spread_values = {
    "spread_values_kernel, gather", 1,
    {
        [W_FULL] = { "FULL", 6, 3, false, -1 },
        [W_EMPTY] = { "EMPTY", 6, 4, false, W_FULL },
    },
    {
        { "loader", 1, 0, { UNITS(STEPS(EMPTY(W_EMPTY), LOAD(W_FULL), STORE(W_FULL))), STOP } },
        { "another loader", 1, 0, { UNITS(STEPS(EMPTY(W_EMPTY), STORE(W_FULL))), STOP } },
        { "consumers", 4, 0, {
            UNITS(STEPS(FULL(W_FULL), WHEN(IF_NOT_FIRST, ARRIVE(W_EMPTY, -1)),
                        WHEN(IF_LAST, ARRIVE(W_EMPTY)))),
            STOP } },
    },
};

/* ---- src/cuda/sm90/backward/bias.cu: tiles of more than one visit ---- */

enum { X_FULL, X_EMPTY, X_TURN = 1 };

#define X_CONSUMER                                                                                 \
    {                                                                                              \
        PASS(X_TURN, ZEROTH, 8),                                                                   \
            UNITS(STEPS(FULL(X_FULL), SYNC(X_TURN, MINE, 8), PASS(X_TURN, OTHER, 8),               \
                        ARRIVE(X_EMPTY))),                                                         \
            STOP                                                                                   \
    }

static const model_kernel bias_gradient = {
    "bias_kernel", 1,
    {
        [X_FULL] = { "FULL", 2, 1, false, -1 },
        [X_EMPTY] = { "EMPTY", 2, 8, false, X_FULL },
    },
    {
        { "producer", 1, 0, { UNITS(STEPS(EMPTY(X_EMPTY), LOAD(X_FULL))), STOP } },
        { "consumers 0", 4, 0, X_CONSUMER },
        { "consumers 1", 4, 1, X_CONSUMER },
    },
};

static const model_kernel *const model_kernels[] = {
    &phase_chain,   &forward_wide,  &forward_blocks, &forward_bias,    &forward_gather, &forward_pages,
    &spread_scores, &spread_values, &bias_gradient,  &backward_blocks, &backward_bias,
};

#endif
