/* ordo/plan.h: tiles and the order of every sum, as data.
 *
 * problem + machine -> plan. Make one once, execute it many times, from any thread. A plan
 * prints as one line of text that can be read back: keep that line beside a checkpoint and
 * the bits stay pinned. Two plans with the same numeric key give the same bits. */
#ifndef ORDO_PLAN_H
#define ORDO_PLAN_H

#include "ordo/machine.h"
#include "ordo/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ordo_plan ordo_plan;

typedef enum ordo_backend {
    ORDO_BACKEND_DEFAULT = 0, /* from the machine: cuda or cpu */
    ORDO_BACKEND_REF = 1,     /* the fp64 oracle */
    ORDO_BACKEND_CPU = 2,
    ORDO_BACKEND_CUDA = 3
} ordo_backend;

/* Order of sums: in which order key tiles add into dQ of a query tile, and in which order
 * a key tile walks its query tiles. Part of the numeric key. docs/design/orders.md draws each. */
typedef enum ordo_order {
    ORDO_ORDER_DEFAULT = 0,    /* the committed table's, by backend, dtype, head size, mask */
    ORDO_ORDER_ASCENDING = 1,  /* keys 0,1,2..; queries upwards */
    ORDO_ORDER_DESCENDING = 2, /* keys 0,1,2..; queries downwards */
    ORDO_ORDER_SHIFT = 3,      /* cyclic inside groups of key tiles; for full masks */
    ORDO_ORDER_SYMMETRIC = 4,  /* key tiles u and n-1-u folded into pairs; for causal masks */
    ORDO_ORDER_SPT = 5,        /* keys last first; queries upwards from the diagonal */
    ORDO_ORDER_TWIN = 6,       /* even key heads spt, odd ones descending */
    ORDO_ORDER_SPT_TAIL = 7    /* spt; every fourth key head descending, issued last */
} ordo_order;
enum { ORDO_ORDER_COUNT = 7 }; /* named orders are 1..ORDO_ORDER_COUNT */

/* Sequence in which chains are handed out. Changes no bit. */
typedef enum ordo_issue {
    ORDO_ISSUE_DEFAULT = 0,
    ORDO_ISSUE_HEAD = 1, /* head after head */
    ORDO_ISSUE_KEY = 2   /* key tile outermost over a section of heads */
} ordo_issue;

/* Who runs a chain. Changes no bit. */
typedef enum ordo_assign {
    ORDO_ASSIGN_DEFAULT = 0,
    ORDO_ASSIGN_PINNED = 1,    /* chain l on worker l mod n, or the order's own pairing */
    ORDO_ASSIGN_FIRST_FREE = 2 /* next chain to the first free worker, ties to the lowest */
} ordo_assign;

/* Group size of shift (key tiles) and symmetric (pairs); part of the numeric key. */
enum { ORDO_GROUP_WAVES = -1 }; /* the paper's waves over all workers: study only */

typedef struct ordo_tile {
    int64_t q, k; /* rows x columns */
} ordo_tile;

/* Explicit choices; a zeroed field leaves the choice to ordo. */
typedef struct ordo_plan_options {
    size_t size; /* sizeof(ordo_plan_options) */
    ordo_backend backend;
    ordo_tile forward_tile, backward_tile;
    ordo_order order;
    int64_t group; /* 0 = default, ORDO_GROUP_WAVES, or a size */
    int64_t split; /* accumulators per query tile: 0 or 1 */
    ordo_issue issue;
    int64_t section; /* heads per section of ORDO_ISSUE_KEY: 0 = what the cache holds */
    ordo_assign assign;
    int64_t workers; /* 0 = the machine's */
} ordo_plan_options;

#define ORDO_PLAN_OPTIONS_INIT ORDO_SIZED(ordo_plan_options)

/* Make a plan. `machine` may be NULL for the host; `options` may be NULL for defaults.
 *
 * What can be planned can be run: every choice that no pass of the backend can execute is refused
 * with a message that names the field, its value and what was expected (ORDO_ERR_ARGUMENT,
 * ORDO_ERR_SHAPE, ORDO_ERR_OVERFLOW or ORDO_ERR_UNSUPPORTED). No backend runs a split other than 1;
 * cuda runs the tiles of the committed table only, and above head size 128 or with packed or padded
 * sequences not every order. ordo_schedule (the simulator) takes all of them.
 *
 * Head sizes are the one exception: a cuda plan may have any up to 256, because
 * ordo_attention_combine() runs them; see ordo_backend_query() for those that a pass runs. */
ORDO_API ordo_status ordo_plan_create(ordo_plan **plan, const ordo_problem *problem,
                                      const ordo_machine *machine,
                                      const ordo_plan_options *options);

ORDO_API void ordo_plan_destroy(ordo_plan *plan);

/* The five levels of the promise; docs/guide/promise.md says what each holds against. */
typedef enum ordo_promise {
    ORDO_PROMISE_REPEAT = 1 << 0,
    ORDO_PROMISE_PORTABLE = 1 << 1,
    ORDO_PROMISE_BATCH = 1 << 2,
    ORDO_PROMISE_SPLIT = 1 << 3,
    ORDO_PROMISE_MASK = 1 << 4
} ordo_promise;

typedef struct ordo_plan_info {
    ordo_backend backend;
    ordo_tile forward_tile, backward_tile;
    int64_t query_tiles, key_tiles; /* of the longest sequence, backward */
    ordo_order order;               /* executed */
    ordo_order order_asked;         /* equal, unless the shape made ordo replace it */
    int64_t group;                  /* 0 where the order has none */
    int64_t split;
    ordo_issue issue;
    int64_t section;
    ordo_assign assign;
    int64_t workers;
    int64_t coresident; /* chains that must be resident together; 0 = waits only on earlier work */
    uint64_t forward_workspace_bytes, backward_workspace_bytes;
    unsigned kept;     /* ORDO_PROMISE_... levels this plan keeps */
    unsigned not_kept; /* the others */
    int dropout_rounds, dropout_bits, dropout_threshold; /* keep if draw < threshold */
    double dropout_p_used;                               /* 1 - threshold / 2^bits */
    double predicted_ns;   /* backward makespan; negative if the machine gives no rates */
    char numeric_key[160]; /* same key, same bits */
    char note[256];        /* what was replaced and why, which levels fell and why; or "" */
} ordo_plan_info;

ORDO_API ordo_status ordo_plan_query(const ordo_plan *plan, ordo_plan_info *info);

/* The problem as the plan holds it: every default filled in. Set problem->size before
 * (ORDO_PROBLEM_INIT). No keys are ORDO_NO_KEYS, so that the problem can be given again. */
ORDO_API ordo_status ordo_plan_problem(const ordo_plan *plan, ordo_problem *problem);

/* Bytes of workspace that are enough for either pass. The forward pass alone needs
 * ordo_plan_info.forward_workspace_bytes, often less or none. Linear in the sequence length. */
ORDO_API size_t ordo_plan_workspace(const ordo_plan *plan);

/* Write the plan's line into `text` (NUL-terminated, no newline). `needed`, if not NULL,
 * gets the size including the NUL. ORDO_ERR_SHAPE if `capacity` is too small. */
ORDO_API ordo_status ordo_plan_print(const ordo_plan *plan, char *text, size_t capacity,
                                     size_t *needed);

/* Read a plan back from its line. Safe on untrusted text: the result is either a plan that
 * ordo could have made itself, or ORDO_ERR_PARSE (or another status) with a message. */
ORDO_API ordo_status ordo_plan_parse(ordo_plan **plan, const char *text);

/* Replay the plan tile by tile and check it: every live pair once, turns without holes, no
 * cycle. Dense problems; packed and padded ones are checked at their maximal lengths.
 * ORDO_ERR_INTERNAL with the first violation if the plan is wrong. `pairs`, if not NULL,
 * gets the number of tile pairs checked. */
ORDO_API ordo_status ordo_plan_check(const ordo_plan *plan, uint64_t *pairs);

ORDO_API const char *ordo_backend_name(ordo_backend backend);
ORDO_API const char *ordo_order_name(ordo_order order);
ORDO_API const char *ordo_issue_name(ordo_issue issue);
ORDO_API const char *ordo_assign_name(ordo_assign assign);
ORDO_API const char *ordo_promise_name(ordo_promise level);
ORDO_API ordo_status ordo_order_from_name(const char *name, ordo_order *order);

#ifdef __cplusplus
}
#endif
#endif
