/* ordo/lab/sim.h: simulate a schedule of the backward pass on workers, in integer time.
 *
 * Each worker runs chains. A chain is one key tile of one head; its steps visit query tiles. A step
 * computes for `compute`, waits for its turn at the query tile, and then adds to that tile's dQ for
 * `reduce`; the next contributor may start `latency` later. Times have no unit. */
#ifndef ORDO_LAB_SIM_H
#define ORDO_LAB_SIM_H

#include "ordo/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is simulated: tiles, order, workers and the costs of a step. */
typedef struct ordo_schedule {
    size_t size; /* sizeof(ordo_schedule) */
    ordo_mask mask;
    int64_t key_tiles, query_tiles; /* query_tiles 0 = as the ratio gives for q_len = kv_len */
    int64_t ratio_num, ratio_den;   /* Bk/Bq; 0/0 = query_tiles/key_tiles, or 1 without them */
    int64_t heads, workers;
    ordo_order order;
    int64_t group;        /* group of shift and symmetric; 0 = ORDO_GROUP_WAVES */
    int64_t accumulators; /* per query tile; 0 = 1 */
    ordo_issue issue;
    int64_t section;    /* heads per section of ORDO_ISSUE_KEY; 0 = all */
    ordo_assign assign; /* default: the assignment for which closed forms are known */
    int64_t compute, reduce, latency;
    int64_t compute_partial; /* time of partial tiles; 0 = compute */
    int64_t overlap;         /* additions that may run while later steps compute; 0 = none */
    bool record;        /* keep every step, for ordo_timeline_step_at() and the critical path */
    int64_t kv_heads;   /* a chain takes the heads that share its keys; 0 = heads */
    ordo_window window; /* in key tiles, relative to the diagonal of the mask */

    /* NULL, or a block mask in addition, the same for all heads: one byte per query tile and key
     * tile, row-major; 0 hides the tile. Orders shift and symmetric have no such schedules. */
    const uint8_t *blocks;
} ordo_schedule;

#define ORDO_SCHEDULE_INIT ORDO_SIZED(ordo_schedule)

typedef struct ordo_timeline ordo_timeline;

/* What a simulation found. Worker times are summed over all workers. */
typedef struct ordo_timeline_info {
    ordo_order order;       /* simulated */
    ordo_order order_asked; /* differs if the shape does not allow it; `note` says why */
    ordo_assign assign;
    ordo_issue issue;
    int64_t group, accumulators;
    int64_t key_tiles, query_tiles, heads, workers;
    uint64_t tasks;        /* live tile pairs of all heads */
    int64_t makespan;      /* time from start to the end of the last step */
    int64_t bound_work;    /* all work spread evenly over the workers, rounded up */
    int64_t bound_chain;   /* longest chain, which one worker runs alone */
    int64_t bound_turns;   /* longest queue of contributors to one query tile */
    int64_t lower_bound;   /* the largest of the three */
    int64_t closed_form;   /* makespan by formula; -1 if none is known for this schedule */
    bool exact;            /* false: extrapolated from fewer heads */
    double utilization;    /* busy / (workers * makespan) */
    int64_t busy;          /* computing, and without overlap also adding */
    int64_t stall;         /* waiting for turns */
    int64_t startup;       /* the part of stall before each worker's first addition */
    int64_t tail;          /* after each worker's last step */
    int64_t coresident;    /* chains that must run at the same time; 0 = any number of workers do */
    bool valid;            /* every live pair once, turns without gaps, no deadlock */
    char numeric_key[160]; /* the part of the numeric key that names the order */
    char note[256];        /* which order was replaced and why, or "" */
} ordo_timeline_info;

/* One recorded step: it computes in [begin, ready), waits in [ready, start) and adds in
 * [start, end). */
typedef struct ordo_timeline_step {
    int32_t worker, head, key, query, turn;
    int64_t begin, ready, start, end;
    int64_t waited_for; /* index of the step with the turn before; -1 = none */
    bool critical;      /* on the critical path */
} ordo_timeline_step;

/* Simulate a schedule; ordo_timeline_query() returns the results. Returns ORDO_ERR_ARGUMENT for a
 * field out of range, and ORDO_ERR_UNSUPPORTED for a schedule that deadlocks on so few workers or
 * is too large to simulate or, with `record`, to keep. */
ORDO_API ordo_status ordo_timeline_create(ordo_timeline **timeline, const ordo_schedule *schedule);
ORDO_API void ordo_timeline_destroy(ordo_timeline *timeline);
ORDO_API ordo_status ordo_timeline_query(const ordo_timeline *timeline, ordo_timeline_info *info);

/* The recorded steps by index; a step comes after those it waited for. */
ORDO_API uint64_t ordo_timeline_step_count(const ordo_timeline *timeline);
ORDO_API ordo_status ordo_timeline_step_at(const ordo_timeline *timeline, uint64_t index,
                                           ordo_timeline_step *step);

/* The critical path, from the last step back: the steps whose times add up to the makespan. */
typedef enum ordo_edge {
    ORDO_EDGE_START = 0,  /* it began at time 0 */
    ORDO_EDGE_WORKER = 1, /* it waited for its worker's previous step */
    ORDO_EDGE_TURN = 2    /* it waited for the turn before, at its query tile */
} ordo_edge;
typedef struct ordo_critical {
    uint64_t step;  /* index of a recorded step */
    ordo_edge edge; /* what it waited for */
} ordo_critical;

ORDO_API uint64_t ordo_timeline_critical_count(const ordo_timeline *timeline);
ORDO_API ordo_status ordo_timeline_critical_at(const ordo_timeline *timeline, uint64_t index,
                                               ordo_critical *critical);

/* Choose the order with the smallest makespan for this shape and these costs. Of equal ones, orders
 * that wait only for chains issued before come first, then the lower number. schedule->order is
 * ignored. Large schedules are simulated on a few heads and extrapolated. */
ORDO_API ordo_status ordo_schedule_auto(const ordo_schedule *schedule, ordo_order *order);

#ifdef __cplusplus
}
#endif
#endif
