/* ordo/lab/sim.h: replay a schedule on a timeline, in integer time.
 *
 * Each worker runs chains; a chain is one key tile of one head and walks its query tiles.
 * A step computes for `compute`, waits for its turn at the query tile, then reduces for
 * `reduce`; the next contributor may start `latency` after that. */
#ifndef ORDO_LAB_SIM_H
#define ORDO_LAB_SIM_H

#include "ordo/lab/io.h" /* words moved between two memories: the other simulator */
#include "ordo/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ordo_schedule {
    size_t size; /* sizeof(ordo_schedule) */
    ordo_mask mask;
    int64_t key_tiles, query_tiles; /* query_tiles 0 = what the ratio gives for q_len = kv_len */
    int64_t ratio_num, ratio_den;   /* Bk/Bq; 0/0 = query_tiles/key_tiles, else 1 */
    int64_t heads, workers;
    ordo_order order;
    int64_t group; /* shift, symmetric: 0 = ORDO_GROUP_WAVES here */
    int64_t split; /* 0 = 1 */
    ordo_issue issue;
    int64_t section;    /* heads per section of ORDO_ISSUE_KEY: 0 = all */
    ordo_assign assign; /* default: the one the closed forms speak of */
    int64_t compute, reduce, latency;
    int64_t compute_partial; /* cost of tiles the mask cuts; 0 = compute */
    int64_t overlap;         /* reductions in flight behind the computation: 0 = serial */
    bool record;             /* keep every step for ordo_timeline_step() and the critical path */
} ordo_schedule;

#define ORDO_SCHEDULE_INIT ORDO_SIZED(ordo_schedule)

typedef struct ordo_timeline ordo_timeline;

typedef struct ordo_timeline_info {
    ordo_order order; /* executed */
    ordo_order order_asked;
    ordo_assign assign;
    ordo_issue issue;
    int64_t group, split;
    int64_t key_tiles, query_tiles, heads, workers;
    uint64_t tasks; /* live tile pairs, all heads */
    int64_t makespan;
    int64_t bound_work;    /* all work spread evenly, rounded up */
    int64_t bound_chain;   /* longest chain that one worker must run alone */
    int64_t bound_turns;   /* longest queue of contributors to one query tile */
    int64_t lower_bound;   /* the largest of the three */
    int64_t closed_form;   /* -1 if none is known for this schedule */
    bool exact;            /* false: extended from fewer heads */
    double utilization;    /* busy worker time / (workers * makespan) */
    int64_t busy;          /* worker time computing, and reducing where that is serial */
    int64_t stall;         /* worker time waiting for turns */
    int64_t startup;       /* the part of stall before a worker's first reduction */
    int64_t tail;          /* worker time after its last work */
    int64_t coresident;    /* chains needed together; 0 none */
    bool valid;            /* every pair once, turns without holes, no deadlock */
    char numeric_key[160]; /* order part of the numeric key */
    char note[256];        /* what was replaced and why; or "" */
} ordo_timeline_info;

/* One recorded step. Times: compute [begin, ready), waiting [ready, start), reduce
 * [start, end). */
typedef struct ordo_timeline_step {
    int32_t worker, head, key, query, turn;
    int64_t begin, ready, start, end;
    int64_t waited_for; /* index of the step whose turn came just before, or -1 */
    bool critical;
} ordo_timeline_step;

/* Simulate. ORDO_ERR_UNSUPPORTED if the schedule cannot run on so few workers. */
ORDO_API ordo_status ordo_timeline_create(ordo_timeline **timeline, const ordo_schedule *schedule);
ORDO_API void ordo_timeline_destroy(ordo_timeline *timeline);
ORDO_API ordo_status ordo_timeline_query(const ordo_timeline *timeline, ordo_timeline_info *info);

/* Recorded steps by index, in an order where a step follows those it waited for. */
ORDO_API uint64_t ordo_timeline_step_count(const ordo_timeline *timeline);
ORDO_API ordo_status ordo_timeline_step_at(const ordo_timeline *timeline, uint64_t index,
                                           ordo_timeline_step *step);

/* The critical path, last step first: why the makespan is what it is. */
typedef enum ordo_edge {
    ORDO_EDGE_START = 0,  /* began at time 0 */
    ORDO_EDGE_WORKER = 1, /* waited for the worker's previous step */
    ORDO_EDGE_TURN = 2    /* waited for the previous turn at its query tile */
} ordo_edge;
typedef struct ordo_critical {
    uint64_t step;  /* index of a recorded step */
    ordo_edge edge; /* what bound it */
} ordo_critical;

ORDO_API uint64_t ordo_timeline_critical_count(const ordo_timeline *timeline);
ORDO_API ordo_status ordo_timeline_critical_at(const ordo_timeline *timeline, uint64_t index,
                                               ordo_critical *critical);

/* Choose the order with the least makespan for this shape and these costs; ties go to
 * orders that wait only on earlier work, then to the lower number. schedule->order is
 * ignored. Large cases are simulated on a few heads and extended. */
ORDO_API ordo_status ordo_schedule_auto(const ordo_schedule *schedule, ordo_order *order);

#ifdef __cplusplus
}
#endif
#endif
