/* attention_unordered.h: the backward pass once more, adding into dQ in the order of arrival.
 *
 * For comparison only: what the promise costs, and what happens without it. This is
 * src/cpu/backward.c itself, compiled a second time under another name. There a step asks
 * ordo_walk_turn() for its place in the plan's order of sums; here it draws the next number of
 * its query tile, when it is ready to add. All else is the same: tiles, kernels, threads, and a
 * tile that one thread at a time adds to. */
#ifndef BENCH_ATTENTION_UNORDERED_H
#define BENCH_ATTENTION_UNORDERED_H

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"
#include "base/status.h"
#include "cpu/pass.h"
#include "plan/order.h"

static atomic_int *arrivals;   /* (head, query tile): numbers drawn */
static atomic_ullong arrival;  /* state of the delays of all tiles and calls */
static uint64_t arrival_delay; /* longest delay before a number is drawn, in microseconds */

/* The next number of a tile, after a delay that no two runs have in common. */
static int arrive(atomic_int *tile)
{
    if (arrival_delay > 0) {
        uint64_t x = atomic_fetch_add_explicit(&arrival, 0x9e3779b97f4a7c15u, memory_order_relaxed);
        x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
        const long ns = (long)((x >> 32) % (1000 * arrival_delay));
        nanosleep(&(struct timespec) { .tv_nsec = ns }, NULL);
    }
    return atomic_fetch_add_explicit(tile, 1, memory_order_relaxed);
}

ordo_status ordo_unordered_backward(const ordo_plan *plan, const ordo_call *call);

#define ordo_cpu_backward          ordo_unordered_backward
#define ordo_walk_turn(walk, i, j) arrive(&arrivals[place_of(job, c, head, i)])
#include "cpu/backward.c"
#undef ordo_walk_turn
#undef ordo_cpu_backward

/* As ordo_cpu_backward(), but bits that depend on who comes first. One caller at a time. */
static ordo_status backward_unordered(const ordo_plan *plan, const ordo_call *call)
{
    const ordo_problem *p = &plan->problem;
    const int64_t bq = plan->backward_tile.q, tiles = (p->q_len + bq - 1) / bq;
    arrivals = calloc((size_t)(p->batch * p->heads * tiles), sizeof *arrivals);
    if (!arrivals)
        return ORDO_ERR_MEMORY;
    const ordo_status status = ordo_unordered_backward(plan, call);
    free(arrivals);
    return status;
}

#endif
