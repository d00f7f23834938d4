/* ordo/plan.h: a plan: tiles and the order of every sum, as data.
 *
 * A plan is made once from a problem and a machine, and executed many times, from any thread. It
 * prints as one line of text that can be read back; a training run that keeps this line with its
 * checkpoint keeps its bits. Two plans with the same numeric key give the same bits. */
#ifndef ORDO_PLAN_H
#define ORDO_PLAN_H

#include "ordo/dropout.h"
#include "ordo/machine.h"
#include "ordo/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ordo_plan ordo_plan;

typedef enum ordo_backend {
    ORDO_BACKEND_DEFAULT = 0, /* cuda or cpu, as the machine is */
    ORDO_BACKEND_REF = 1,     /* the reference in fp64: slow, sums element by element */
    ORDO_BACKEND_CPU = 2,
    ORDO_BACKEND_CUDA = 3,
    ORDO_BACKEND_EMULATOR = 4 /* what cuda computes on compute capability 9.0, on the host */
} ordo_backend;

/* Order of sums of the backward pass: the order in which key tiles add into dQ of a query tile, and
 * the order in which a key tile visits its query tiles. It is part of the numeric key.
 * docs/design/orders.md draws each order. */
typedef enum ordo_order {
    ORDO_ORDER_DEFAULT = 0,    /* from the committed table, by backend, head size and mask */
    ORDO_ORDER_ASCENDING = 1,  /* keys 0,1,2..; queries upwards */
    ORDO_ORDER_DESCENDING = 2, /* keys 0,1,2..; queries downwards */
    ORDO_ORDER_SHIFT = 3,      /* cyclic inside groups of key tiles; for full masks */
    ORDO_ORDER_SYMMETRIC = 4,  /* key tiles u and n-1-u folded into pairs; for causal masks */
    ORDO_ORDER_SPT = 5,        /* keys last first; queries upwards from the diagonal */
    ORDO_ORDER_TWIN = 6,       /* even key heads spt, odd ones descending */
    ORDO_ORDER_SPT_TAIL = 7    /* spt; every fourth key head descending, issued last */
} ordo_order;
enum { ORDO_ORDER_COUNT = 7 }; /* named orders are 1..ORDO_ORDER_COUNT */

/* A chain is the work of one key tile of one head: its dK and dV, and a partial dQ for each query
 * tile that it visits. The issue order is the sequence in which chains are given to workers. It
 * changes no bit. */
typedef enum ordo_issue {
    ORDO_ISSUE_DEFAULT = 0,
    ORDO_ISSUE_HEAD = 1, /* all chains of one head, then those of the next */
    ORDO_ISSUE_KEY = 2   /* one key tile of each head in a section, then the next key tile */
} ordo_issue;

/* Which worker runs a chain. It changes no bit. */
typedef enum ordo_assign {
    ORDO_ASSIGN_DEFAULT = 0,
    ORDO_ASSIGN_PINNED = 1,    /* chain l runs on worker l mod n, or as the order pairs chains */
    ORDO_ASSIGN_FIRST_FREE = 2 /* the next chain runs on the first free worker, lowest on ties */
} ordo_assign;

/* Group size of the orders shift (in key tiles) and symmetric (in pairs of them): a part of the
 * numeric key. Waves are the groups of the published schedules, one chain per worker of the
 * machine. They keep only the levels `repeat` and `keep-bits` of the promise, and are for study. */
enum { ORDO_GROUP_WAVES = -1 };

typedef struct ordo_tile {
    int64_t q, k; /* rows x columns */
} ordo_tile;

/* Explicit choices. A zeroed field leaves the choice to ordo. */
typedef struct ordo_plan_options {
    size_t size; /* sizeof(ordo_plan_options) */
    ordo_backend backend;
    ordo_tile forward_tile, backward_tile;
    ordo_order order;
    int64_t group; /* 0 = default, ORDO_GROUP_WAVES, or a size */
    int64_t split; /* 0 or 1, as in version 0.1.0; the next version removes it */
    ordo_issue issue;
    int64_t section; /* heads per section of ORDO_ISSUE_KEY; 0 = chosen by ordo */
    ordo_assign assign;
    int64_t workers; /* 0 = the workers of the machine */

    /* Dropout: a plan with segments runs each pass over `segments` ranges of rows, one after the
     * other, so that the keep bits of two segments are in memory instead of all. The bits of
     * a segment are made in the workspace while the segment before it runs
     * (call.side_stream). Segments change no bit of a result.
     *
     * All segments but the last have the same number of rows, a multiple of backward_tile.q and of
     * 16; ORDO_ERR_SHAPE if the rows do not divide into that many. Segments need a dense problem
     * with p > 0 and without a block mask, an order whose sums can be carried (ordo/attention.h),
     * and backend cpu or cuda.
     *
     * keep_bits_memory is the most bytes for these bits, 0 = no limit. If segments is 0, the fewest
     * segments that fit are chosen. ORDO_ERR_ARGUMENT, with the bytes needed, if it is too small.
     */
    int64_t segments; /* 0 = none, unless keep_bits_memory is given */
    union {
        uint64_t keep_bits_memory;
        uint64_t mask_memory; /* the name of version 0.1.0; the next version removes it */
    };

    /* Bytes that the workspace of either pass should not exceed; 0 = 1.25 GiB. Only passes by
     * phases on backend cuda (forward above head size 256, backward above 128) divide their work
     * so; the limit changes no bit. The least that it can hold is one query tile of one key head: a
     * smaller limit is exceeded, and ordo_plan_workspace() returns the bytes that are needed. */
    int64_t workspace_limit;
} ordo_plan_options;

#define ORDO_PLAN_OPTIONS_INIT ORDO_SIZED(ordo_plan_options)

/* Make a plan. `machine` may be NULL for the host; `options` may be NULL for defaults. The caller
 * destroys the plan. On failure *plan is NULL.
 *
 * What can be planned can be run: every choice that no pass of the backend can execute is refused
 * with a message that names the field, its value and what was expected (ORDO_ERR_ARGUMENT,
 * ORDO_ERR_SHAPE, ORDO_ERR_OVERFLOW or ORDO_ERR_UNSUPPORTED). No backend runs more than one
 * accumulator. The cuda backend runs only the tiles of the committed table; above head size 128,
 * and for packed and padded sequences, it does not run every order. ordo_schedule (ordo/lab/sim.h)
 * simulates all of them.
 *
 * Head sizes are the one exception: a cuda plan may have any up to 576, because
 * ordo_attention_combine() runs them all. ordo_backend_query() gives those that a pass runs. */
ORDO_API ordo_status ordo_plan_create(ordo_plan **plan, const ordo_problem *problem,
                                      const ordo_machine *machine,
                                      const ordo_plan_options *options);

/* Destroy a plan. NULL is allowed. */
ORDO_API void ordo_plan_destroy(ordo_plan *plan);

/* The levels of the promise. docs/guide/promise.md says what each level holds against. */
typedef enum ordo_promise {
    ORDO_PROMISE_REPEAT = 1 << 0,
    ORDO_PROMISE_PORTABLE = 1 << 1,
    ORDO_PROMISE_BATCH = 1 << 2,
    ORDO_PROMISE_SPLIT = 1 << 3,
    ORDO_PROMISE_KEEP_BITS = 1 << 4,
    ORDO_PROMISE_MASK = ORDO_PROMISE_KEEP_BITS, /* as version 0.1.0 says; the next one removes it */
    ORDO_PROMISE_CUT = 1 << 5
} ordo_promise;

/* How the backward pass is divided into products. backward_tile decides bits, the form does not:
 * forms that share a tile give the same bits. Backends cpu and ref, and cuda up to head size 128,
 * have flash only. */
typedef enum ordo_form {
    ORDO_FORM_FLASH, /* a key tile stays, with its dk and dv; dq is added over the key tiles */
    ORDO_FORM_APART, /* so for dk and dv; dq by a second walk, which computes the scores again: no
                      * plan has it, the laboratory counts it */
    ORDO_FORM_PHASE, /* P and dS to the workspace; then product by product */
    ORDO_FORM_CHAIN, /* as apart for dk and dv, which leaves dS in the workspace; then one product
                      * for dq */

    ORDO_FORM_SPLIT = ORDO_FORM_APART /* the name of version 0.1.0; the next version removes it */
} ordo_form;

typedef struct ordo_plan_info {
    size_t size; /* sizeof(ordo_plan_info) */
    ordo_backend backend;
    ordo_tile forward_tile, backward_tile;
    int64_t query_tiles, key_tiles; /* backward tiles of the longest sequence */
    ordo_order order;               /* the order that is executed */
    ordo_order order_asked; /* the one requested; order differs if the shape does not allow it */
    int64_t group;          /* 0 if the order has no groups */
    int64_t split;          /* 1; the next version removes it */
    ordo_issue issue;
    int64_t section;
    ordo_assign assign;
    int64_t workers;
    int64_t coresident; /* chains that must run at once; 0: chains wait only on earlier ones */
    uint64_t forward_workspace_bytes, backward_workspace_bytes;
    unsigned kept;     /* ORDO_PROMISE_... levels that this plan keeps */
    unsigned not_kept; /* the other levels */
    int dropout_rounds, dropout_bits, dropout_threshold; /* keep if draw < threshold */
    double dropout_p_used;                               /* 1 - threshold / 2^bits */
    double unused;         /* -1; predicted_ns of version 0.1, where that was "not known" */
    char numeric_key[160]; /* plans with equal keys give equal bits */
    char note[256];        /* what was replaced, which levels are not kept, and why; or "" */

    /* The recommended way to make the keep bits of dropout. It changes no bit.
     *
     *   FUSED       call.keep_bits is NULL, and each pass makes the bits. Also the value of plans
     *               without dropout, and of those without a known machine (ordo_plan_parse())
     *   SEQUENTIAL  call ordo_dropout_fill_device() or ordo_dropout_fill() before the forward pass:
     *               this is faster by more than the noise of measurements and the cost of the call,
     *               and other work may run at the same time. If keep_bits_reused is true, keep the
     *               bits for the backward pass; otherwise make them again, because those of
     *               every layer would take too much of the machine's memory. Also the value where
     *               no pass can make the bits (ordo_backend_limits)
     *   PIPELINED   this plan has segments; or `segments` is 0, all bits at once take too much
     *               memory, and a plan with segments is faster than FUSED */
    ordo_dropout_mode dropout_mode;
    /* The second name is that of version 0.1.0; the next version removes it. */
    union {
        bool keep_bits_reused; /* the backward pass reads the bits of the forward pass */
        bool dropout_keep_bits;
    };
    union {
        uint64_t keep_bits_bytes; /* all keep bits; packed: at most; UINT64_MAX: above 2^60 */
        uint64_t dropout_mask_bytes;
    };
    int64_t segments;       /* number of segments of rows; 0: none */
    uint64_t segment_bytes; /* memory for the bits of segments, included in the workspace of
                             * both passes: for n > 1 segments about 2/n of
                             * keep_bits_bytes */
    ordo_form backward_form;

    /* "FAMILY.r3/keys128/last-first", and the generator with dropout: two plans of one problem, as
     * a trainer and a sampler have them, write equal o and lse if it is equal. */
    char forward_key[64];
} ordo_plan_info;
#define ORDO_PLAN_INFO_INIT ORDO_SIZED(ordo_plan_info)

/* Fill in `info`; set info->size before (ORDO_PLAN_INFO_INIT). Fields of later versions are not
 * written to a program that was compiled without them. ordo_model_plan() of ordo/lab/model.h
 * predicts the times of a plan. */
ORDO_API ordo_status ordo_plan_query(const ordo_plan *plan, ordo_plan_info *info);

/* Fill in the problem of a plan, with a value in place of every default. Set problem->size before
 * (ORDO_PROBLEM_INIT). A problem without keys has kv_len ORDO_NO_KEYS, so that the result can be
 * passed to ordo_plan_create() again. */
ORDO_API ordo_status ordo_plan_problem(const ordo_plan *plan, ordo_problem *problem);

/* Return the bytes of workspace that are enough for either pass; they grow linearly with the
 * sequence length, except for the keep bits of a plan with segments. The forward pass alone needs
 * ordo_plan_info.forward_workspace_bytes, which is never more and often 0. */
ORDO_API size_t ordo_plan_workspace(const ordo_plan *plan);

/* Write the plan's line into `text`, NUL-terminated and without a newline. If `needed` is not NULL
 * it gets the size including the NUL. Returns ORDO_ERR_SHAPE if `capacity` is too small. */
ORDO_API ordo_status ordo_plan_print(const ordo_plan *plan, char *text, size_t capacity,
                                     size_t *needed);

/* Make a plan from its line. The text may be untrusted: the result is either a plan that
 * ordo_plan_create() could have made, or ORDO_ERR_PARSE or another status with a message. */
ORDO_API ordo_status ordo_plan_parse(ordo_plan **plan, const char *text);

/* Replay the plan tile by tile and check that every visible tile pair is visited once, that the
 * turns of each query tile have no holes, and that no chains wait on each other in a cycle. Packed
 * and padded problems are checked at their maximal lengths. Returns ORDO_ERR_INTERNAL with the
 * first violation if the plan is wrong, ORDO_ERR_UNSUPPORTED if it is too large to replay. If
 * `pairs` is not NULL it gets the number of tile pairs checked. Turns that follow from a block mask
 * are checked by ordo_block_mask_check(). */
ORDO_API ordo_status ordo_plan_check(const ordo_plan *plan, uint64_t *pairs);

/* Names as the command spells them; "unknown" for other values. ordo_order_from_name() is the
 * inverse; it returns ORDO_ERR_ARGUMENT for a name that is no order. */
ORDO_API const char *ordo_backend_name(ordo_backend backend);
ORDO_API const char *ordo_order_name(ordo_order order);
ORDO_API const char *ordo_issue_name(ordo_issue issue);
ORDO_API const char *ordo_assign_name(ordo_assign assign);
ORDO_API const char *ordo_promise_name(ordo_promise level);
ORDO_API const char *ordo_form_name(ordo_form form);
ORDO_API ordo_status ordo_order_from_name(const char *name, ordo_order *order);

#ifdef __cplusplus
}
#endif
#endif
