/* issue.h: the sequence in which units are given to workers, and to which. It changes no bit.
 *
 * A run is a set of sequences of equal lengths with all their key heads: a dense batch is one
 * run, a packed batch one run per sequence. Heads of a run are numbered sequence by sequence;
 * ordo_run_issue() turns a ticket (0, 1, 2, ...) into a unit of work, in closed form, so that
 * a kernel can draw tickets from one atomic counter.
 *
 *   head   head after head, each from the end its order of sums begins with
 *   key    the same position of every head in a section, then the next position: heads that
 *          share the cache advance together, and a chain's predecessor is `section` tickets
 *          older instead of one
 *
 * Under spt+tail every fourth key head is held back: those are issued after all others,
 * longest chain first, and fill the workers that spt's long last chains leave idle. */
#ifndef PLAN_ISSUE_H
#define PLAN_ISSUE_H

#include "ordo/plan.h"
#include "plan/order.h"

typedef struct ordo_run {
    ordo_band band;
    int32_t sequences;
    int32_t kv_heads;
    int32_t head0; /* global index of the first key head */
    int32_t
        group_heads; /* query heads per key head; a chain processes them one by one at each tile */
    ordo_order order;
    int32_t group; /* group of shift and symmetric; 0 = waves over `workers` */
    ordo_issue issue;
    int32_t section; /* heads advancing together under ORDO_ISSUE_KEY */
    ordo_assign assign;
    int32_t workers;
} ordo_run;

typedef struct ordo_unit {
    int32_t head; /* sequence * kv_heads + key head */
    int32_t keys; /* 1, or 2 for a folded pair */
    int32_t key[2];
} ordo_unit;

/* Orders with cyclic groups, whose size is part of the numeric key. */
ORDO_HD bool ordo_order_cyclic(ordo_order order)
{
    return order == ORDO_ORDER_SHIFT || order == ORDO_ORDER_SYMMETRIC;
}

/* The walk that a named order means for one key head of one band. Twin and spt+tail depend on the
 * global *key* head, so that the query heads that share a chain agree; symmetric becomes spt,
 * or shift under a full mask, where the band is not a triangle it can fold. */
ORDO_HD ordo_walk_kind ordo_order_walk(ordo_order order, const ordo_band *band, int32_t key_head)
{
    const bool full = band->low == -ORDO_BAND_OPEN && band->high == ORDO_BAND_OPEN;
    switch (order) {
    case ORDO_ORDER_DESCENDING: return ORDO_WALK_DESCENDING;
    case ORDO_ORDER_SHIFT: return ORDO_WALK_SHIFT;
    case ORDO_ORDER_SYMMETRIC:
        return ordo_band_folds(band) ? ORDO_WALK_SYMMETRIC : full ? ORDO_WALK_SHIFT : ORDO_WALK_SPT;
    case ORDO_ORDER_SPT: return ORDO_WALK_SPT;
    case ORDO_ORDER_TWIN: return key_head % 2 == 0 ? ORDO_WALK_SPT : ORDO_WALK_DESCENDING;
    case ORDO_ORDER_SPT_TAIL: return key_head % 4 != 3 ? ORDO_WALK_SPT : ORDO_WALK_DESCENDING;
    case ORDO_ORDER_ASCENDING:
    case ORDO_ORDER_DEFAULT: break;
    }
    return ORDO_WALK_ASCENDING;
}

/* The walk of a head of the run. */
ORDO_HD ordo_walk ordo_run_walk(const ordo_run *run, int32_t head)
{
    ordo_walk walk;
    walk.band = run->band;
    walk.kind = ordo_order_walk(run->order, &run->band, run->head0 + head % run->kv_heads);
    walk.nq = ordo_band_query_tiles(&run->band);
    walk.nk = ordo_band_key_tiles(&run->band);
    walk.group = run->group > 0 ? run->group : run->workers;
    walk.missing = 0;
    if (run->group == 0) /* waves: the head begins where the one before it ended */
        walk.missing = (int32_t)((int64_t)head * ordo_walk_units(&walk) % run->workers);
    return walk;
}

/* Heads come in two classes: 0 issued first, 1 the tail. Number of heads of a class. */
ORDO_HD int32_t ordo_run_heads(const ordo_run *run, int cls)
{
    const int32_t end = run->head0 + run->kv_heads;
    const int32_t tail = run->order == ORDO_ORDER_SPT_TAIL ? end / 4 - run->head0 / 4 : 0;
    return run->sequences * (cls ? tail : run->kv_heads - tail);
}

/* Head number x of a class. */
ORDO_HD int32_t ordo_run_head(const ordo_run *run, int cls, int32_t x)
{
    if (run->order != ORDO_ORDER_SPT_TAIL)
        return x;
    const int32_t each = ordo_run_heads(run, cls) / run->sequences;
    const int32_t first = cls ? run->head0 / 4 : run->head0 - run->head0 / 4;
    const int32_t place = first + x % each;
    const int32_t global = cls ? 4 * place + 3 : place + place / 3;
    return x / each * run->kv_heads + global - run->head0;
}

ORDO_HD int32_t ordo_run_head_units(const ordo_run *run)
{
    const ordo_walk walk = ordo_run_walk(run, 0);
    return ordo_walk_units(&walk);
}

/* Tickets of a class. */
ORDO_HD int64_t ordo_run_tickets(const ordo_run *run, int cls)
{
    return (int64_t)ordo_run_heads(run, cls) * ordo_run_head_units(run);
}

/* Twin, pinned: worker k takes key tile k of an even head, then n-1-k of the odd one. */
ORDO_HD bool ordo_run_mirrored(const ordo_run *run)
{
    return run->order == ORDO_ORDER_TWIN && run->assign == ORDO_ASSIGN_PINNED &&
           run->issue == ORDO_ISSUE_HEAD && ordo_band_key_tiles(&run->band) <= run->workers;
}

/* The unit at position p of a head; each unit waits only on units at smaller positions, except in
 * cyclic groups. */
ORDO_HD ordo_unit ordo_run_unit(const ordo_run *run, int32_t head, int32_t p)
{
    const ordo_walk walk = ordo_run_walk(run, head);
    const bool from_the_end = (walk.kind == ORDO_WALK_SPT) != ordo_run_mirrored(run);
    ordo_unit unit;
    unit.head = head;
    unit.keys = 1;
    unit.key[0] = from_the_end ? walk.nk - 1 - p : p;
    unit.key[1] = -1;
    if (walk.kind == ORDO_WALK_SYMMETRIC && walk.nk - 1 + (walk.nk & 1) - p < walk.nk) {
        unit.keys = 2;
        unit.key[1] = walk.nk - 1 + (walk.nk & 1) - p;
    }
    return unit;
}

/* Ticket -> unit, within a class. */
ORDO_HD ordo_unit ordo_run_issue(const ordo_run *run, int cls, int64_t ticket)
{
    const int32_t units = ordo_run_head_units(run);
    if (run->issue != ORDO_ISSUE_KEY) {
        const int32_t x = (int32_t)(ticket / units);
        return ordo_run_unit(run, ordo_run_head(run, cls, x), (int32_t)(ticket % units));
    }
    const int64_t per_section = (int64_t)run->section * units;
    const int32_t begin = (int32_t)(ticket / per_section) * run->section;
    const int32_t heads = ordo_min32(run->section, ordo_run_heads(run, cls) - begin);
    const int64_t rest = ticket % per_section;
    /* Orders with cyclic groups issue whole groups, so that a group becomes resident together;
     * for the others every unit is a separate group. */
    const ordo_walk walk = ordo_run_walk(run, 0);
    const bool grouped = walk.kind == ORDO_WALK_SHIFT || walk.kind == ORDO_WALK_SYMMETRIC;
    const int32_t group = grouped ? ordo_min32(walk.group, units) : 1;
    const int32_t first = (int32_t)(rest / ((int64_t)group * heads)) * group;
    const int32_t size = ordo_min32(group, units - first);
    const int64_t place = rest - (int64_t)first * heads;
    const int32_t head = ordo_run_head(run, cls, begin + (int32_t)(place / size));
    return ordo_run_unit(run, head, first + (int32_t)(place % size));
}

/* The worker a unit is pinned to; `issued` counts all tickets before it. */
ORDO_HD int32_t ordo_run_worker(const ordo_run *run, const ordo_unit *unit, int64_t issued)
{
    if (!ordo_run_mirrored(run))
        return (int32_t)(issued % run->workers);
    const int32_t nk = ordo_band_key_tiles(&run->band);
    const int32_t sequence = unit->head / run->kv_heads;
    const int32_t global = run->head0 + unit->head % run->kv_heads;
    const int32_t pairs = (run->head0 + run->kv_heads - 1) / 2 - run->head0 / 2 + 1;
    const int64_t pair = (int64_t)sequence * pairs + global / 2 - run->head0 / 2;
    const int32_t k = global % 2 == 0 ? unit->key[0] : nk - 1 - unit->key[0];
    return (int32_t)((pair * nk + k) % run->workers);
}

/* Units that must be resident together, because some wait on later-issued ones; 0: every
 * unit waits only on earlier tickets, and any number of workers will do. */
ORDO_HD int32_t ordo_run_coresident(const ordo_run *run)
{
    const ordo_walk walk = ordo_run_walk(run, 0);
    int32_t together = 0;
    if (walk.kind == ORDO_WALK_SHIFT || walk.kind == ORDO_WALK_SYMMETRIC)
        together = ordo_min32(walk.group, ordo_walk_units(&walk));
    else if (ordo_run_mirrored(run))
        together = walk.nk;
    return together > 1 ? together : 0;
}

/* Whether workers that take a unit before they are done with the one before have their tickets
 * dealt (worker w of n has w, w + n, ...) instead of drawn. A worker that drew two units of a group
 * would wait for itself. Dealt, it has none twice, because units that must be resident together
 * have consecutive tickets and are no more than the workers; and when all groups before one are
 * done, all its units are at work. */
ORDO_HD bool ordo_run_dealt(const ordo_run *run)
{
    return ordo_run_coresident(run) > 0;
}

#endif
