/* check.c: the validator. It relies only on the element-wise meaning of a band: whether a tile is
 * live follows from its corners, not from the closed forms that are being checked. */
#include "plan/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"

enum { CHAIN_COST = 8 }; /* issuing a chain takes as long as this many of its steps */

/* Whether some element of tile (i, j) is visible: c - r takes every value from c0 - r1 to c1 - r0.
 */
static bool live(const ordo_band *band, int32_t i, int32_t j)
{
    const int64_t r0 = (int64_t)i * band->bq, c0 = (int64_t)j * band->bk;
    const int64_t r1 = (r0 + band->bq < band->q_len ? r0 + band->bq : band->q_len) - 1;
    const int64_t c1 = (c0 + band->bk < band->kv_len ? c0 + band->bk : band->kv_len) - 1;
    const int64_t least = c0 - r1 > band->low ? c0 - r1 : band->low;
    const int64_t most = c1 - r0 < band->high ? c1 - r0 : band->high;
    return least <= most;
}

/* ---- one head: pairs and turns ---- */

/* Visit every key tile's steps; taken[i * nk + turn] marks the turns used. */
static ordo_status mark_turns(const ordo_walk *walk, unsigned char *taken, uint64_t *visits)
{
    for (int32_t j = 0; j < walk->nk; j++) {
        const int32_t steps = ordo_walk_steps(walk, j);
        for (int32_t t = 0; t < steps; t++) {
            const int32_t i = ordo_walk_visit(walk, j, t);
            if (i < 0 || i >= walk->nq || !live(&walk->band, i, j))
                return ordo_fail(ORDO_ERR_INTERNAL, "key tile %d step %d: visits dead tile %d", j,
                                 t, i);
            const int32_t turn = ordo_walk_turn(walk, i, j);
            if (turn < 0 || turn >= walk->nk)
                return ordo_fail(ORDO_ERR_INTERNAL, "query tile %d key tile %d: turn %d", i, j,
                                 turn);
            unsigned char *place = &taken[(size_t)i * (size_t)walk->nk + (size_t)turn];
            if (*place)
                return ordo_fail(ORDO_ERR_INTERNAL, "query tile %d: turn %d taken twice", i, turn);
            *place = 1;
        }
        *visits += (uint64_t)steps;
    }
    return ORDO_OK;
}

/* Every live pair was visited: as many turns as live keys, and they are the first ones. */
static ordo_status count_turns(const ordo_walk *walk, const unsigned char *taken)
{
    for (int32_t i = 0; i < walk->nq; i++) {
        int32_t contributors = 0, used = 0, holes = 0;
        for (int32_t j = 0; j < walk->nk; j++) {
            contributors += live(&walk->band, i, j);
            const bool here = taken[(size_t)i * (size_t)walk->nk + (size_t)j];
            holes += here && used < j;
            used += here;
        }
        if (used != contributors || holes > 0)
            return ordo_fail(ORDO_ERR_INTERNAL,
                             "query tile %d: %d turns, %d holes, expected %d contributors", i, used,
                             holes, contributors);
    }
    return ORDO_OK;
}

ordo_status ordo_walk_check(const ordo_walk *walk, uint64_t *pairs)
{
    if (walk->nq == 0 || walk->nk == 0)
        return ORDO_OK;
    unsigned char *taken = calloc((size_t)walk->nq, (size_t)walk->nk);
    if (!taken)
        return ordo_fail(ORDO_ERR_MEMORY, "plan check: %d x %d tiles", walk->nq, walk->nk);
    ordo_status status = mark_turns(walk, taken, pairs);
    if (status == ORDO_OK)
        status = count_turns(walk, taken);
    free(taken);
    return status;
}

/* ---- all heads: residency ----
 *
 * Untimed execution: a worker runs until a turn is not yet its own, then parks on that query tile
 * until the turn before is done. Units are issued in ticket order. */
typedef struct worker {
    ordo_unit unit;
    int32_t nth;  /* which key tile of the unit */
    int32_t g, t; /* query head of the group, step */
    int32_t next; /* next worker parked on the same tile, or next idle one; or -1 */
    bool busy;
} worker;

typedef struct replay {
    const ordo_run *run;
    worker *workers;
    int32_t *done;   /* turns done, by (head, query head, query tile) */
    int32_t *parked; /* first worker parked there, or -1 */
    int32_t *wake;   /* stack of workers to go on with */
    int32_t wakes;
    int32_t idle; /* first of the workers without a unit, by `next`; -1 none */
    int32_t nq;
} replay;

static size_t tile_of(const replay *r, const worker *w, int32_t i)
{
    const size_t head = (size_t)w->unit.head * (size_t)r->run->group_heads + (size_t)w->g;
    return head * (size_t)r->nq + (size_t)i;
}

/* Move the worker that is parked on `tile` and whose turn it now is from the list to the stack. */
static void release(replay *r, const ordo_walk *walk, size_t tile, int32_t i)
{
    for (int32_t *link = &r->parked[tile]; *link >= 0; link = &r->workers[*link].next) {
        const int32_t w = *link;
        const worker *other = &r->workers[w];
        if (ordo_walk_turn(walk, i, other->unit.key[other->nth]) == r->done[tile]) {
            *link = other->next;
            r->wake[r->wakes++] = w;
            return;
        }
    }
}

/* Run worker w until it parks or its unit ends. */
static void advance(replay *r, int32_t w)
{
    worker *me = &r->workers[w];
    const ordo_walk walk = ordo_run_walk(r->run, me->unit.head);
    for (; me->nth < me->unit.keys; me->nth++, me->t = 0) {
        const int32_t j = me->unit.key[me->nth], steps = ordo_walk_steps(&walk, j);
        for (; me->t < steps; me->t++, me->g = 0)
            for (; me->g < r->run->group_heads; me->g++) {
                const int32_t i = ordo_walk_visit(&walk, j, me->t);
                const size_t tile = tile_of(r, me, i);
                if (r->done[tile] != ordo_walk_turn(&walk, i, j)) {
                    me->next = r->parked[tile];
                    r->parked[tile] = w;
                    return;
                }
                r->done[tile]++;
                release(r, &walk, tile, i);
            }
    }
    me->busy = false;
    me->next = r->idle;
    r->idle = w;
}

static ordo_status hand_out(replay *r, int32_t workers, bool pinned)
{
    int64_t issued = 0;
    for (int cls = 0; cls < 2; cls++) {
        const int64_t tickets = ordo_run_tickets(r->run, cls);
        for (int64_t ticket = 0; ticket < tickets; ticket++, issued++) {
            const ordo_unit unit = ordo_run_issue(r->run, cls, ticket);
            /* Time does not pass here, so one idle worker is as good as another. */
            const int32_t w = pinned ? ordo_run_worker(r->run, &unit, issued) : r->idle;
            if (w < 0 || r->workers[w].busy)
                return ordo_fail(ORDO_ERR_INTERNAL,
                                 "deadlock: head %d key tile %d finds no free worker of %d",
                                 unit.head, unit.key[0], workers);
            if (!pinned)
                r->idle = r->workers[w].next;
            r->workers[w] = (worker) { .unit = unit, .next = -1, .busy = true };
            r->wake[r->wakes++] = w;
            while (r->wakes > 0)
                advance(r, r->wake[--r->wakes]);
        }
    }
    for (int32_t w = 0; w < workers; w++)
        if (r->workers[w].busy)
            return ordo_fail(ORDO_ERR_INTERNAL, "deadlock: worker %d waits for ever", w);
    return ORDO_OK;
}

static ordo_status check_residency(const ordo_run *run, int32_t workers, bool pinned)
{
    replay r = { .run = run, .nq = ordo_band_query_tiles(&run->band), .idle = 0 };
    const size_t tiles =
        (size_t)run->sequences * (size_t)run->kv_heads * (size_t)run->group_heads * (size_t)r.nq;
    r.workers = calloc((size_t)workers, sizeof *r.workers);
    r.wake = malloc((size_t)workers * sizeof *r.wake);
    r.done = calloc(tiles + 1, sizeof *r.done);
    r.parked = malloc((tiles + 1) * sizeof *r.parked);
    ordo_status status;
    if (r.workers && r.wake && r.done && r.parked) {
        memset(r.parked, 0xff, (tiles + 1) * sizeof *r.parked); /* -1 */
        for (int32_t w = 0; w < workers; w++)
            r.workers[w].next = w + 1 < workers ? w + 1 : -1;
        status = hand_out(&r, workers, pinned);
    } else {
        status = ordo_fail(ORDO_ERR_MEMORY, "plan check: %zu query tiles", tiles);
    }
    free(r.workers);
    free(r.wake);
    free(r.done);
    free(r.parked);
    return status;
}

/* ---- */

/* Two heads of a run differ only in their walk's kind and `missing`: check each kind once. Waves
 * give every head its own number. */
static ordo_status check_heads(const ordo_run *run, uint64_t *pairs)
{
    const int32_t heads = run->sequences * run->kv_heads;
    uint64_t visits[ORDO_WALK_SYMMETRIC + 1];
    bool seen[ORDO_WALK_SYMMETRIC + 1] = { false };
    for (int32_t head = 0; head < heads; head++) {
        const ordo_walk walk = ordo_run_walk(run, head);
        if (run->group == 0 || !seen[walk.kind]) {
            visits[walk.kind] = 0;
            seen[walk.kind] = true;
            ORDO_TRY(ordo_walk_check(&walk, &visits[walk.kind]));
        }
        *pairs += visits[walk.kind] * (uint64_t)run->group_heads;
    }
    return ORDO_OK;
}

uint64_t ordo_run_tasks(const ordo_run *run)
{
    uint64_t pairs = 0;
    for (int32_t j = 0; j < ordo_band_key_tiles(&run->band); j++)
        pairs += (uint64_t)ordo_span_count(ordo_band_queries(&run->band, j));
    return pairs * (uint64_t)run->sequences * (uint64_t)run->kv_heads * (uint64_t)run->group_heads;
}

uint64_t ordo_run_check_cost(const ordo_run *run, uint64_t tasks)
{
    const uint64_t heads = (uint64_t)run->sequences * (uint64_t)run->kv_heads; /* below 2^30 */
    const uint64_t nq = (uint64_t)ordo_band_query_tiles(&run->band);
    const uint64_t nk = (uint64_t)ordo_band_key_tiles(&run->band);
    uint64_t grids = nq * nk, counters = nq * (uint64_t)run->group_heads; /* below 2^60 */
    const uint64_t walks = run->group == 0 ? heads : 2; /* walks that differ; see check_heads() */
    if (!ordo_mul_fits(&grids, walks) || !ordo_mul_fits(&counters, heads) ||
        !ordo_add_fits(&tasks, CHAIN_COST * nk * heads) || !ordo_add_fits(&tasks, grids) ||
        !ordo_add_fits(&tasks, counters))
        return UINT64_MAX;
    return tasks;
}

ordo_status ordo_run_check(const ordo_run *run, uint64_t *pairs)
{
    ORDO_TRY(check_heads(run, pairs));
    const int32_t together = ordo_run_coresident(run);
    if (together > run->workers)
        return ordo_fail(ORDO_ERR_INTERNAL, "%d units must be resident together, workers %d",
                         together, run->workers);
    if (!ordo_run_mirrored(run)) /* which has no meaning but pinned to all its workers */
        ORDO_TRY(check_residency(run, together > 1 ? together : 1, false));
    return check_residency(run, run->workers, run->assign == ORDO_ASSIGN_PINNED);
}
