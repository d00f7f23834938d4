/* ranks.h: what the files of the simulation of ranks share. */
#ifndef SIM_RANKS_H
#define SIM_RANKS_H

#include "ordo/lab/ranks.h"

/* When each lane of a rank is free. */
typedef struct ordo_rank_lanes {
    double compute, send, receive;
    double sent; /* bytes */
} ordo_rank_lanes;

struct ordo_rank_timeline {
    ordo_rank_problem problem; /* checked, without defaults */
    ordo_rank_info info;
    ordo_rank_lanes *lanes;
    double busy; /* compute lanes of all ranks */
    ordo_rank_span *spans;
    uint64_t count, room;
};

typedef struct ordo_rank_rows {
    int64_t first, end;
} ordo_rank_rows;

/* Bytes of all ranks: q (and o, dout, dq each), k and v together, lse (and dlse). */
typedef struct ordo_rank_bytes {
    double q, kv, lse;
} ordo_rank_bytes;

ordo_rank_bytes ordo_ranks_bytes(const ordo_rank_problem *p);

/* The rows of a rank: one segment, or two if zigzag. Returns how many. */
int64_t ordo_ranks_segments(const ordo_rank_problem *p, int64_t rank, ordo_rank_rows rows[2]);

/* The sum of i + 1 for i from first to end - 1. */
double ordo_ranks_triangle(double first, double end);

/* Visible pairs of rows first .. end - 1 of one head of one sequence, and the time of products. */
double ordo_ranks_row_pairs(const ordo_rank_problem *p, int64_t first, int64_t end);
double ordo_ranks_product_ns(const ordo_rank_problem *p, double pairs, double heads, int products);

/* Work of one rank, not before `ready`. */
ordo_status ordo_ranks_compute(ordo_rank_timeline *t, int64_t rank, ordo_rank_work work,
                               double ready, double ns);

/* All ranks together: each sends `bytes` in so many messages, one after the other. */
ordo_status ordo_ranks_collective(ordo_rank_timeline *t, double ready, double bytes,
                                  double messages, double *end);

ordo_status ordo_ranks_record(ordo_rank_timeline *t, int64_t rank, int64_t item,
                              ordo_rank_work work, double begin, double end);

/* When the last lane is free. */
double ordo_ranks_time(const ordo_rank_timeline *t);

/* Method relay, in ranks_relay.c. */
ordo_status ordo_ranks_run_relay(ordo_rank_timeline *t);

#endif
