/* timeline.c: the simulator; timeline.h says what it computes and why it is exact. */
#include "sim/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "sim/heap.h"
#include "sim/live.h"

enum { ACCUMULATORS_MAX = 1 << 25 }; /* accumulators of all heads in flight: 800 MB */

/* One accumulator of one query tile of one head. */
typedef struct tile {
    int64_t visible; /* when the last addition is visible to the next contributor */
    int32_t done;    /* additions done */
    int32_t parked;  /* first worker that waits here, or -1 */
    int64_t step;    /* recorded index of the last addition, or -1 */
} tile;

typedef struct worker {
    ordo_walk walk; /* walk of the unit's head */
    ordo_unit unit;
    tile *tiles;   /* query tiles of the unit's head */
    int32_t nth;   /* which key tile of the unit */
    int32_t g, t;  /* query head of the group, step */
    int32_t next;  /* next worker parked on the same tile */
    int32_t place; /* the turn it waits for there */
    int32_t run, slot;
    int32_t queue, queue_end; /* units that wait for it: in engine.waiting, or -1 */
    bool busy, computed;      /* has a unit; has computed its next step and waits for the turn */
    int64_t begin, ready;
    int64_t end[ORDO_OVERLAP_MAX];  /* ends of the latest additions, by step count */
    int64_t step[ORDO_OVERLAP_MAX]; /* their recorded indices */
    uint64_t steps;                 /* taken so far */
} worker;

/* A unit whose worker is not free yet. */
typedef struct waiting {
    ordo_unit unit;
    int32_t run, next;
} waiting;

/* Tiles of the heads in flight. The slot of a head is released when its last unit is done. */
typedef struct slot {
    tile *tiles;
    size_t capacity;
    int32_t units_left;
    int32_t next_free;
} slot;

typedef struct engine {
    const ordo_run *runs;
    const ordo_costs *costs;
    ordo_times *times;
    ordo_record *record;
    worker *workers;
    int32_t count;
    ordo_heap free; /* workers by the time they become free */
    int32_t *wake;  /* stack of workers that can continue */
    int32_t wakes;
    waiting *waiting;
    int32_t waiting_count, waiting_capacity;
    slot *slots;
    int32_t slot_count, slot_capacity, slot_free;
    size_t accumulators; /* in all slots */
    int32_t **slot_of;   /* by run and head: slot, or -1 before the head's first unit */
} engine;

/* ---- heads in flight ---- */

static ordo_status open_head(engine *e, int32_t run, int32_t head, int32_t *out)
{
    int32_t s = e->slot_free;
    if (s >= 0) {
        e->slot_free = e->slots[s].next_free;
    } else {
        if (e->slot_count == e->slot_capacity) {
            const int32_t capacity = e->slot_capacity ? 2 * e->slot_capacity : 64;
            slot *bigger = realloc(e->slots, (size_t)capacity * sizeof *bigger);
            if (!bigger)
                return ordo_fail(ORDO_ERR_MEMORY, "timeline: %d heads in flight", capacity);
            e->slots = bigger;
            e->slot_capacity = capacity;
        }
        s = e->slot_count++;
        e->slots[s] = (slot) { 0 };
    }
    const ordo_run *r = &e->runs[run];
    const size_t tiles = (size_t)ordo_band_query_tiles(&r->band) * (size_t)r->group_heads *
                         (size_t)e->costs->accumulators;
    slot *mine = &e->slots[s];
    if (tiles > mine->capacity) {
        e->accumulators += tiles - mine->capacity;
        if (e->accumulators > ACCUMULATORS_MAX)
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "timeline: %d heads in flight hold more than %d query tiles",
                             e->slot_count, ACCUMULATORS_MAX);
        free(mine->tiles);
        mine->capacity = 0;
        mine->tiles = malloc(tiles * sizeof *mine->tiles);
        if (!mine->tiles)
            return ordo_fail(ORDO_ERR_MEMORY, "timeline: %zu query tiles", tiles);
        mine->capacity = tiles;
    }
    for (size_t i = 0; i < tiles; i++)
        mine->tiles[i] = (tile) { .visible = INT64_MIN, .parked = -1, .step = -1 };
    mine->units_left = ordo_run_head_units(r);
    e->slot_of[run][head] = s;
    *out = s;
    return ORDO_OK;
}

static void close_unit(engine *e, worker *w)
{
    slot *mine = &e->slots[w->slot];
    if (--mine->units_left == 0) {
        mine->next_free = e->slot_free;
        e->slot_free = w->slot;
    }
}

/* ---- one step ---- */

static ordo_status remember(engine *e, worker *w, ordo_step step, int64_t *index)
{
    ordo_record *record = e->record;
    if (record->count == record->capacity) {
        const uint64_t capacity = record->capacity ? 2 * record->capacity : 1024;
        ordo_step *bigger = realloc(record->steps, capacity * sizeof *bigger);
        if (!bigger)
            return ordo_fail(ORDO_ERR_MEMORY, "timeline: recording %llu steps",
                             (unsigned long long)capacity);
        record->steps = bigger;
        record->capacity = capacity;
    }
    const uint64_t n = w->steps;
    const uint64_t depth = e->costs->overlap > 0 ? (uint64_t)e->costs->overlap : 1;
    *index = (int64_t)record->count;
    step.before = n > 0 ? w->step[(n - 1) % ORDO_OVERLAP_MAX] : -1;
    step.buffered = n >= depth ? w->step[(n - depth) % ORDO_OVERLAP_MAX] : -1;
    record->steps[record->count++] = step;
    return ORDO_OK;
}

/* Time the computation of the worker's next step: when it begins and when its result is ready. */
static void compute(engine *e, worker *w, bool partial)
{
    const ordo_costs *costs = e->costs;
    const uint64_t n = w->steps;
    const int64_t cost = partial ? costs->compute_partial : costs->compute;
    if (costs->overlap == 0) {
        w->begin = n > 0 ? w->end[(n - 1) % ORDO_OVERLAP_MAX] : 0;
        w->ready = w->begin + cost;
    } else {
        const uint64_t depth = (uint64_t)costs->overlap;
        w->begin = n > 0 ? w->ready : 0;
        w->ready = w->begin + cost;
        if (n >= depth) {
            const int64_t emptied = w->end[(n - depth) % ORDO_OVERLAP_MAX];
            if (emptied > w->ready) {
                const int64_t started =
                    emptied - costs->reduce; /* start of the addition that it waited for */
                if (n == depth && started > w->ready)
                    e->times->startup += started - w->ready;
                e->times->stall += emptied - w->ready;
                w->ready = emptied;
            }
        }
    }
    e->times->busy += cost;
    w->computed = true;
}

/* Time the addition: it starts when its result is ready, its writer is free and its turn is
 * visible. */
static ordo_status reduce(engine *e, worker *w, tile *at, int32_t i, int32_t turn)
{
    const ordo_costs *costs = e->costs;
    const uint64_t n = w->steps;
    int64_t start = w->ready;
    if (n > 0 && w->end[(n - 1) % ORDO_OVERLAP_MAX] > start)
        start = w->end[(n - 1) % ORDO_OVERLAP_MAX];
    if (at->visible > start)
        start = at->visible;
    const int64_t end = start + costs->reduce;
    if (costs->overlap == 0) {
        e->times->stall += start - w->ready;
        e->times->busy += costs->reduce;
        e->times->startup += n == 0 ? start - w->ready : 0;
    }
    if (e->record) {
        const ordo_step step = {
            .worker = (int32_t)(w - e->workers),
            .head = w->unit.head * e->runs[w->run].group_heads + w->g,
            .key = w->unit.key[w->nth],
            .query = i,
            .turn = turn,
            .begin = w->begin,
            .ready = w->ready,
            .start = start,
            .end = end,
            .waited_for = at->step,
        };
        int64_t index = -1;
        ORDO_TRY(remember(e, w, step, &index));
        w->step[n % ORDO_OVERLAP_MAX] = at->step = index;
    }
    w->end[n % ORDO_OVERLAP_MAX] = end;
    w->steps = n + 1;
    w->computed = false;
    at->visible = end + costs->latency;
    at->done++;
    if (end > e->times->makespan)
        e->times->makespan = end;
    e->times->tasks++;
    return ORDO_OK;
}

/* ---- one worker ---- */

/* Push the worker that waits for the next turn onto the stack. */
static void release(engine *e, tile *at)
{
    for (int32_t *link = &at->parked; *link >= 0; link = &e->workers[*link].next)
        if (e->workers[*link].place == at->done) {
            const int32_t woken = *link;
            *link = e->workers[woken].next;
            e->wake[e->wakes++] = woken;
            return;
        }
}

/* Run the steps of one key tile: at each query tile, every head that shares the keys. Sets *parked
 * if a turn has not come yet. */
static ordo_status walk_steps(engine *e, worker *w, bool *parked)
{
    const int32_t j = w->unit.key[w->nth], accumulators = e->costs->accumulators;
    const ordo_live *live = e->costs->live;
    const int32_t steps = live ? ordo_live_steps(live, j) : ordo_walk_steps(&w->walk, j);
    const bool classes = e->costs->compute_partial != e->costs->compute;
    const int32_t heads = e->runs[w->run].group_heads;
    for (; w->t < steps; w->g + 1 < heads ? w->g++ : (w->g = 0, w->t++)) {
        int32_t turn;
        const int32_t i = live ? ordo_live_visit(live, w->walk.kind, j, w->t, &turn)
                               : ordo_walk_visit(&w->walk, j, w->t);
        if (!live)
            turn = ordo_walk_turn(&w->walk, i, j);
        const size_t index = (size_t)w->g * (size_t)w->walk.nq + (size_t)i;
        tile *at = &w->tiles[index * (size_t)accumulators + (size_t)(turn % accumulators)];
        if (!w->computed)
            compute(e, w, classes && ordo_band_partial(&w->walk.band, i, j));
        if (at->done != turn / accumulators) {
            w->place = turn / accumulators;
            w->next = at->parked;
            at->parked = (int32_t)(w - e->workers);
            *parked = true;
            return ORDO_OK;
        }
        ORDO_TRY(reduce(e, w, at, i, turn));
        if (at->parked >= 0)
            release(e, at);
    }
    return ORDO_OK;
}

/* When a worker takes its next unit: when its last addition is done. With overlap its next
 * computation does not wait for that but follows the last one, as in a kernel that draws its ticket
 * ahead. */
static int64_t asks_at(const worker *w)
{
    return w->steps == 0 ? 0 : w->end[(w->steps - 1) % ORDO_OVERLAP_MAX];
}

static ordo_status take_unit(engine *e, worker *w, int32_t run, const ordo_unit *unit)
{
    int32_t s = e->slot_of[run][unit->head];
    if (s < 0)
        ORDO_TRY(open_head(e, run, unit->head, &s));
    w->walk = ordo_run_walk(&e->runs[run], unit->head);
    w->unit = *unit;
    w->run = run;
    w->slot = s;
    w->tiles = e->slots[s].tiles;
    w->nth = w->g = w->t = 0;
    w->busy = true;
    return ORDO_OK;
}

static ordo_status advance(engine *e, int32_t index)
{
    worker *w = &e->workers[index];
    bool parked = false;
    for (;;) {
        for (; w->nth < w->unit.keys; w->nth++, w->t = 0) {
            ORDO_TRY(walk_steps(e, w, &parked));
            if (parked)
                return ORDO_OK;
        }
        w->busy = false;
        close_unit(e, w);
        if (w->queue < 0)
            break;
        const waiting *next = &e->waiting[w->queue];
        w->queue = next->next;
        ORDO_TRY(take_unit(e, w, next->run, &next->unit));
    }
    ordo_heap_push(&e->free, asks_at(w), index);
    return ORDO_OK;
}

/* ---- all units ---- */

/* Append a unit to those that wait for its worker. */
static ordo_status queue_unit(engine *e, worker *w, int32_t run, const ordo_unit *unit)
{
    if (e->waiting_count == e->waiting_capacity) {
        const int32_t capacity = e->waiting_capacity ? 2 * e->waiting_capacity : 256;
        waiting *bigger = realloc(e->waiting, (size_t)capacity * sizeof *bigger);
        if (!bigger)
            return ordo_fail(ORDO_ERR_MEMORY, "timeline: %d units wait for their workers",
                             capacity);
        e->waiting = bigger;
        e->waiting_capacity = capacity;
    }
    const int32_t index = e->waiting_count++;
    e->waiting[index] = (waiting) { *unit, run, -1 };
    if (w->queue < 0)
        w->queue = index;
    else
        e->waiting[w->queue_end].next = index;
    w->queue_end = index;
    return ORDO_OK;
}

/* The worker to which a unit belongs, -1: to any. Kernels deal the units of cyclic orders. */
static int32_t owner_of(const ordo_run *run, const ordo_unit *unit, int64_t issued)
{
    if (run->assign == ORDO_ASSIGN_PINNED)
        return ordo_run_worker(run, unit, issued);
    return ordo_run_dealt(run) ? (int32_t)(issued % run->workers) : -1;
}

static ordo_status start_unit(engine *e, int32_t run, const ordo_unit *unit, int64_t issued)
{
    int32_t index = owner_of(&e->runs[run], unit, issued);
    if (index >= 0) {
        if (e->workers[index].busy)
            return queue_unit(e, &e->workers[index], run, unit);
        ordo_heap_remove(&e->free, index);
    } else if (e->free.count > 0) {
        index = ordo_heap_pop(&e->free);
    } else {
        return ordo_fail(
            ORDO_ERR_UNSUPPORTED,
            "order %s on %d workers: deadlock, all wait before head %d key tile %d starts",
            ordo_order_name(e->runs[run].order), e->count, unit->head, unit->key[0]);
    }
    ORDO_TRY(take_unit(e, &e->workers[index], run, unit));
    e->wake[e->wakes++] = index;
    while (e->wakes > 0)
        ORDO_TRY(advance(e, e->wake[--e->wakes]));
    return ORDO_OK;
}

static ordo_status hand_out(engine *e, int32_t runs)
{
    int64_t issued = 0;
    for (int cls = 0; cls < 2; cls++)
        for (int32_t run = 0; run < runs; run++) {
            const int64_t tickets = ordo_run_tickets(&e->runs[run], cls);
            for (int64_t ticket = 0; ticket < tickets; ticket++, issued++) {
                const ordo_unit unit = ordo_run_issue(&e->runs[run], cls, ticket);
                ORDO_TRY(start_unit(e, run, &unit, issued));
            }
        }
    for (int32_t w = 0; w < e->count; w++)
        if (e->workers[w].busy)
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "order %s on %d workers: deadlock, worker %d waits",
                             ordo_order_name(e->runs[0].order), e->count, w);
    return ORDO_OK;
}

/* Idle time at the end: after the last addition or, with overlap, the last computation. */
static void sum_tails(engine *e)
{
    for (int32_t w = 0; w < e->count; w++) {
        const worker *last = &e->workers[w];
        e->times->tail += e->times->makespan - (e->costs->overlap ? last->ready : asks_at(last));
    }
}

/* ---- */

static ordo_status prepare(engine *e, int32_t runs)
{
    e->workers = calloc((size_t)e->count, sizeof *e->workers);
    e->wake = malloc((size_t)e->count * sizeof *e->wake);
    e->slot_of = calloc((size_t)runs, sizeof *e->slot_of);
    if (!e->workers || !e->wake || !e->slot_of || !ordo_heap_init(&e->free, e->count))
        return ordo_fail(ORDO_ERR_MEMORY, "timeline: %d workers, %d runs", e->count, runs);
    for (int32_t run = 0; run < runs; run++) {
        const size_t heads = (size_t)e->runs[run].sequences * (size_t)e->runs[run].kv_heads;
        e->slot_of[run] = malloc(heads * sizeof **e->slot_of);
        if (!e->slot_of[run])
            return ordo_fail(ORDO_ERR_MEMORY, "timeline: %zu heads", heads);
        memset(e->slot_of[run], 0xff, heads * sizeof **e->slot_of); /* -1 */
    }
    for (int32_t w = 0; w < e->count; w++) {
        e->workers[w].queue = -1;
        ordo_heap_push(&e->free, 0, w);
    }
    return ORDO_OK;
}

static void dispose(engine *e, int32_t runs)
{
    for (int32_t s = 0; s < e->slot_count; s++)
        free(e->slots[s].tiles);
    free(e->slots);
    for (int32_t run = 0; e->slot_of && run < runs; run++)
        free(e->slot_of[run]);
    free(e->slot_of);
    free(e->waiting);
    free(e->workers);
    free(e->wake);
    ordo_heap_free(&e->free);
}

ordo_status ordo_timeline_simulate(const ordo_run *runs, int32_t count, const ordo_costs *costs,
                                   ordo_times *times, ordo_record *record)
{
    *times = (ordo_times) { 0 };
    engine e = { .runs = runs,
                 .costs = costs,
                 .times = times,
                 .record = record,
                 .count = runs[0].workers,
                 .slot_free = -1 };
    ordo_status status = prepare(&e, count);
    if (status == ORDO_OK)
        status = hand_out(&e, count);
    if (status == ORDO_OK)
        sum_tails(&e);
    dispose(&e, count);
    return status;
}
