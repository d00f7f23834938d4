/* ordo/lab/ranks.h: simulate attention over ranks that divide each sequence, in nanoseconds.
 *
 * Each rank has a compute lane, and a link that sends and receives at the same time. The three
 * methods of docs/guide/ranks.md are replayed as python/ordo/torch/distributed runs them. All times
 * are simulated: products at a given rate, messages at a given bandwidth and latency. */
#ifndef ORDO_LAB_RANKS_H
#define ORDO_LAB_RANKS_H

#include "ordo/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ordo_rank_method {
    ORDO_RANKS_HEADS = 1, /* all-to-all from rows to heads and back */
    ORDO_RANKS_GATHER = 2,
    ORDO_RANKS_RELAY = 3 /* sums of dk and dv travel from rank to rank */
} ordo_rank_method;

enum { ORDO_RANKS_METHODS = 3 };

/* What is simulated: one attention, forward and backward, of one layer. */
typedef struct ordo_rank_problem {
    size_t size; /* sizeof(ordo_rank_problem) */
    int64_t ranks;
    int64_t rows, batch, heads, kv_heads, head_dim; /* whole sequences; kv_heads 0 = heads */
    int64_t element_bytes;                          /* 0 = 2 */
    ordo_mask mask;                                 /* full or causal */
    bool zigzag;                                    /* rank r has chunks r and 2n - 1 - r of 2n */
    bool record;                                    /* keep every span */
    double flop_per_s;       /* rate of one rank, in matrix products of attention */
    double link_bytes_per_s; /* rate of one rank, in one direction */
    double link_ns;          /* latency of one message */
} ordo_rank_problem;

#define ORDO_RANK_PROBLEM_INIT ORDO_SIZED(ordo_rank_problem)

typedef struct ordo_rank_info {
    ordo_rank_method method;
    int products;          /* matrix products of the backward pass */
    int64_t items, stages; /* relay: items that pass through the pipeline, and its stages; else 0 */
    double forward_ns, backward_ns;
    double ideal_ns;     /* seven products, divided evenly, without a message */
    double utilization;  /* computing / (ranks * time) */
    double sent_bytes;   /* by the rank that sends most */
    double memory_bytes; /* bytes of the rank that holds most: its own tensors and the buffers */
} ordo_rank_info;

typedef enum ordo_rank_work {
    ORDO_WORK_FORWARD = 0,
    ORDO_WORK_BACKWARD = 1, /* all gradients; relay: one stage of one item */
    ORDO_WORK_DQ = 2,
    ORDO_WORK_KEYS = 3,    /* dk and dv */
    ORDO_WORK_EXCHANGE = 4 /* on the link */
} ordo_rank_work;

/* One interval of a rank, on its compute lane or, if an exchange, its link. */
typedef struct ordo_rank_span {
    int64_t rank, item; /* item of a relay, or -1 */
    ordo_rank_work work;
    double begin_ns, end_ns;
} ordo_rank_span;

typedef struct ordo_rank_timeline ordo_rank_timeline;

/* Simulate one method. Returns ORDO_ERR_ARGUMENT for a field out of range, ORDO_ERR_UNSUPPORTED if
 * the method does not divide these heads or the simulation would be too large. */
ORDO_API ordo_status ordo_rank_timeline_create(ordo_rank_timeline **timeline,
                                               const ordo_rank_problem *problem,
                                               ordo_rank_method method);
ORDO_API void ordo_rank_timeline_destroy(ordo_rank_timeline *timeline);
ORDO_API ordo_status ordo_rank_timeline_query(const ordo_rank_timeline *timeline,
                                              ordo_rank_info *info);

/* The recorded spans by index. */
ORDO_API uint64_t ordo_rank_span_count(const ordo_rank_timeline *timeline);
ORDO_API ordo_status ordo_rank_span_at(const ordo_rank_timeline *timeline, uint64_t index,
                                       ordo_rank_span *span);

/* "heads", "gather", "relay"; "unknown" for other values. */
ORDO_API const char *ordo_rank_method_name(ordo_rank_method method);

#ifdef __cplusplus
}
#endif
#endif
