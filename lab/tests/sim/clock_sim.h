/* clock_sim.h: the timeline again, the slow and obvious way, for tests.
 *
 * Time goes forward one unit at a time; at every unit each worker does whatever it can. Shares
 * nothing with src/planner but the runs' definition. Makespan, or -1 if nothing moves any more. */
#ifndef TESTS_CLOCK_SIM_H
#define TESTS_CLOCK_SIM_H

#include <string.h>

#include "check.h"
#include "plan/issue.h"
#include "sim/costs.h"

enum { CLOCK_STEPS = 4096 };

typedef struct clock_step {
    int head, query, turn;
    bool partial;
} clock_step;

/* A worker computes steps in order and, behind that, adds them in order. */
typedef struct clock_worker {
    clock_step step[CLOCK_STEPS];
    int64_t ready[CLOCK_STEPS];            /* handed over at */
    int count;                             /* steps given to it so far */
    int handed, added;                     /* hand-overs and additions finished */
    int64_t computing_until, adding_until; /* -1: not at it */
} clock_worker;

typedef struct clock_tile {
    int done;
    int64_t visible;
} clock_tile;

static void clock_give(clock_worker *w, const ordo_run *run, const ordo_unit *unit)
{
    const ordo_walk walk = ordo_run_walk(run, unit->head);
    for (int x = 0; x < unit->keys; x++)
        for (int t = 0; t < ordo_walk_steps(&walk, unit->key[x]); t++)
            for (int g = 0; g < run->group_heads; g++) {
                const int i = ordo_walk_visit(&walk, unit->key[x], t);
                w->step[w->count++] = (clock_step) {
                    .head = unit->head * run->group_heads + g,
                    .query = i,
                    .turn = ordo_walk_turn(&walk, i, unit->key[x]),
                    .partial = ordo_band_partial(&walk.band, i, unit->key[x]),
                };
            }
}

/* Begin an addition whose turn is visible; end those whose time has come. */
static bool clock_add(clock_worker *w, clock_tile *tiles, int nq, const ordo_costs *costs,
                      int64_t now, int64_t *end)
{
    bool moved = false;
    if (w->adding_until == now) {
        const clock_step *s = &w->step[w->added];
        clock_tile *at =
            &tiles[(s->head * nq + s->query) * costs->accumulators + s->turn % costs->accumulators];
        at->done++;
        at->visible = now + costs->latency;
        w->adding_until = -1;
        w->added++;
        *end = now > *end ? now : *end;
        moved = true;
    }
    if (w->adding_until < 0 && w->added < w->handed && w->ready[w->added] <= now) {
        const clock_step *s = &w->step[w->added];
        const clock_tile *at =
            &tiles[(s->head * nq + s->query) * costs->accumulators + s->turn % costs->accumulators];
        if (at->done == s->turn / costs->accumulators && at->visible <= now) {
            w->adding_until = now + costs->reduce;
            moved = true;
        }
    }
    return moved;
}

/* Hand over a finished computation if a buffer is free, then begin the next. Serial workers
 * have no buffer: they compute only when everything before is added. */
static bool clock_compute(clock_worker *w, const ordo_costs *costs, int64_t now)
{
    bool moved = false;
    const int depth = costs->overlap ? costs->overlap : 1;
    if (w->computing_until >= 0 && w->computing_until <= now && w->handed - w->added < depth) {
        w->ready[w->handed++] = now;
        w->computing_until = -1;
        moved = true;
    }
    const bool may = costs->overlap > 0 || w->added == w->handed;
    if (w->computing_until < 0 && may && w->handed < w->count) {
        const int64_t cost = w->step[w->handed].partial ? costs->compute_partial : costs->compute;
        w->computing_until = now + cost;
        moved = true;
    }
    return moved;
}

/* Each unit goes to its owner, or without owners to the lowest worker that has added all. */
static int64_t clock_run(const ordo_run *run, const ordo_costs *costs, const int *owner)
{
    const int nq = ordo_band_query_tiles(&run->band);
    const int heads = run->sequences * run->kv_heads * run->group_heads;
    clock_worker *workers = calloc((size_t)run->workers, sizeof *workers);
    clock_tile *tiles = calloc((size_t)(heads * nq * costs->accumulators) + 1, sizeof *tiles);
    const int64_t first = ordo_run_tickets(run, 0), all = first + ordo_run_tickets(run, 1);
    int64_t issued = 0, end = 0, quiet = 0;
    for (int w = 0; w < run->workers; w++)
        workers[w].computing_until = workers[w].adding_until = -1;
    for (int64_t now = 0; quiet < 64; now++, quiet++) {
        bool again = true;
        while (again) {
            again = false;
            for (int w = 0; w < run->workers; w++)
                again |= clock_add(&workers[w], tiles, nq, costs, now, &end);
            /* hand out: in ticket order, each to its owner or to the lowest idle worker */
            for (bool gave = true; gave && issued < all;) {
                const ordo_unit unit = issued < first ? ordo_run_issue(run, 0, issued)
                                                      : ordo_run_issue(run, 1, issued - first);
                int w = owner ? owner[issued] : 0;
                while (!owner && w < run->workers && workers[w].added < workers[w].count)
                    w++;
                gave = w < run->workers;
                if (gave) {
                    clock_give(&workers[w], run, &unit);
                    issued++;
                    again = true;
                }
            }
            for (int w = 0; w < run->workers; w++)
                again |= clock_compute(&workers[w], costs, now);
            quiet = again ? 0 : quiet;
        }
    }
    bool finished = issued == all;
    for (int w = 0; w < run->workers; w++)
        finished &= workers[w].added == workers[w].count;
    free(workers);
    free(tiles);
    return finished ? end : -1;
}

/* Owners of pinned units, and of those that are dealt in turn. A worker that adds behind its
 * computation takes its next unit when its last addition ends, but has computed on it since the
 * last hand-over: no clock that only goes forward can know whose it will be, so then `taken` tells
 * the owner of (head, key). */
static inline int64_t clock_sim(const ordo_run *run, const ordo_costs *costs,
                                int (*taken)(const ordo_unit *unit, void *context), void *context)
{
    static int owner[CLOCK_STEPS];
    const bool pinned = run->assign == ORDO_ASSIGN_PINNED, dealt = ordo_run_dealt(run);
    if (!pinned && !dealt && costs->overlap == 0)
        return clock_run(run, costs, NULL);
    const int64_t first = ordo_run_tickets(run, 0), all = first + ordo_run_tickets(run, 1);
    for (int64_t t = 0; t < all; t++) {
        const ordo_unit unit =
            t < first ? ordo_run_issue(run, 0, t) : ordo_run_issue(run, 1, t - first);
        owner[t] = pinned  ? ordo_run_worker(run, &unit, t)
                   : dealt ? (int)(t % run->workers)
                           : taken(&unit, context);
    }
    return clock_run(run, costs, owner);
}

#endif
