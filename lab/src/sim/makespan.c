/* makespan.c: bounds, and the closed forms of docs/design/orders.md, for n workers, n x n tiles, m
 * heads, c compute, r reduce, L latency.
 *
 * The bounds of work and chain count a step as c + r without overlap. With overlap they count the
 * longer of the two pipelines, plus the first or last step of the other. */
#include "sim/makespan.h"

#include "base/checked.h"
#include "base/status.h"
#include "sim/live.h"

/* Steps of a set of tiles, by cost class. */
typedef struct work {
    uint64_t whole, partial;
} work;

/* Steps of key tile j. Query tiles are partly visible only at both ends of the walk, so the whole
 * ones in the middle are counted without visiting them. */
static work walk_work(const ordo_band *band, int32_t j)
{
    const uint64_t live = (uint64_t)ordo_span_count(ordo_band_queries(band, j));
    const int64_t c0 = (int64_t)j * band->bk, c1 = c0 + band->bk - 1;
    const int64_t rows = c0 - band->low + 1 < band->q_len ? c0 - band->low + 1 : band->q_len;
    const int64_t above = c1 - band->high > 0 ? c1 - band->high : 0;
    const int64_t whole = (rows > 0 ? rows / band->bq : 0) - (above + band->bq - 1) / band->bq;
    work sum = { 0, live };
    if (c1 < band->kv_len && whole > 0) {
        sum.whole = (uint64_t)whole;
        sum.partial = live - sum.whole;
    }
    return sum;
}

static work live_work(const ordo_band *band, const ordo_live *live, int32_t j)
{
    work sum = { 0, 0 };
    for (int64_t at = live->column[j]; at < live->column[j + 1]; at++)
        *(ordo_band_partial(band, live->query[at], j) ? &sum.partial : &sum.whole) += 1;
    return sum;
}

/* Time of `steps` on `workers` workers, each doing an equal share of them. */
static int64_t shared(work steps, const ordo_costs *costs, int32_t workers)
{
    const uint64_t n = (uint64_t)workers, count = steps.whole + steps.partial;
    const uint64_t compute =
        steps.whole * (uint64_t)costs->compute + steps.partial * (uint64_t)costs->compute_partial;
    const uint64_t reduce = count * (uint64_t)costs->reduce;
    if (count == 0)
        return 0;
    if (costs->overlap == 0)
        return (int64_t)((compute + reduce + n - 1) / n);
    const uint64_t least =
        (uint64_t)(costs->compute < costs->compute_partial ? costs->compute
                                                           : costs->compute_partial);
    const uint64_t by_compute = (compute + n - 1) / n + (uint64_t)costs->reduce;
    const uint64_t by_reduce = (reduce + n - 1) / n + least;
    return (int64_t)(by_compute > by_reduce ? by_compute : by_reduce);
}

/* Refuse runs whose total worker time may reach 2^62. */
static bool fits(uint64_t steps, int32_t workers, const ordo_costs *costs)
{
    uint64_t each = (uint64_t)costs->compute;
    return ordo_add_fits(&each, (uint64_t)costs->compute_partial) &&
           ordo_add_fits(&each, (uint64_t)costs->reduce) &&
           ordo_add_fits(&each, (uint64_t)costs->latency) && ordo_mul_fits(&each, steps + 1) &&
           ordo_mul_fits(&each, (uint64_t)workers) && each < (uint64_t)1 << 62;
}

static void bound_run(const ordo_run *run, const ordo_costs *costs, work *all, ordo_bounds *bounds)
{
    const ordo_walk walk = ordo_run_walk(run, 0);
    const uint64_t heads = (uint64_t)run->sequences * (uint64_t)run->kv_heads;
    const uint64_t queries = (uint64_t)run->group_heads;
    for (int32_t j = 0; j < walk.nk; j++) {
        work chain = costs->live ? live_work(&walk.band, costs->live, j) : walk_work(&walk.band, j);
        chain.whole *= queries;
        chain.partial *= queries;
        all->whole += chain.whole * heads;
        all->partial += chain.partial * heads;
        const int64_t alone = shared(chain, costs, 1);
        if (alone > bounds->chain)
            bounds->chain = alone;
    }
    for (int32_t i = 0; i < walk.nq; i++) {
        const int64_t contributors =
            costs->live ? costs->live->keys[i] : ordo_span_count(ordo_band_keys(&walk.band, i));
        const int64_t queue = (contributors + costs->accumulators - 1) / costs->accumulators;
        const int64_t least =
            costs->compute < costs->compute_partial ? costs->compute : costs->compute_partial;
        const int64_t turns = least + queue * costs->reduce + (queue - 1) * costs->latency;
        if (queue > 0 && turns > bounds->turns)
            bounds->turns = turns;
    }
}

ordo_status ordo_makespan_bounds(const ordo_run *runs, int32_t count, const ordo_costs *costs,
                                 ordo_bounds *bounds)
{
    uint64_t most = 0;
    for (int32_t x = 0; x < count; x++) {
        uint64_t tiles = (uint64_t)ordo_band_key_tiles(&runs[x].band);
        if (!ordo_mul_fits(&tiles, (uint64_t)ordo_band_query_tiles(&runs[x].band)) ||
            !ordo_mul_fits(&tiles, (uint64_t)runs[x].sequences) ||
            !ordo_mul_fits(&tiles, (uint64_t)runs[x].kv_heads) ||
            !ordo_mul_fits(&tiles, (uint64_t)runs[x].group_heads) || !ordo_add_fits(&most, tiles))
            return ordo_fail(ORDO_ERR_OVERFLOW, "tiles: their number does not fit 64 bits");
    }
    if (!fits(most, runs[0].workers, costs))
        return ordo_fail(
            ORDO_ERR_OVERFLOW,
            "costs: %llu tiles at these costs, on %d workers, do not fit 62 bits of time",
            (unsigned long long)most, runs[0].workers);
    work all = { 0, 0 };
    *bounds = (ordo_bounds) { 0 };
    for (int32_t x = 0; x < count; x++)
        bound_run(&runs[x], costs, &all, bounds);
    bounds->tasks = all.whole + all.partial;
    bounds->work = shared(all, costs, runs[0].workers);
    return ORDO_OK;
}

/* ---- closed forms ---- */

typedef struct square {
    int64_t n, m, c, r, latency;
    bool causal, serial, pinned;
} square;

/* One skewed pipeline, filled once. Causal: the longest chain of each head is a whole column. */
static int64_t ascending(const square *s)
{
    if (!s->pinned)
        return -1;
    if (s->serial && (!s->causal || s->latency == 0))
        return s->m * s->n * (s->c + s->r) + (s->n - 1) * (s->r + s->latency);
    if (!s->serial && !s->causal && s->r <= s->c)
        return s->m * s->n * s->c + s->n * s->r + (s->n - 1) * s->latency;
    return -1;
}

/* Pairs of heads complete the triangle to a rectangle; every pair but the first starts without
 * waiting if computing is no faster than adding. */
static int64_t descending(const square *s)
{
    if (!s->causal || s->pinned || !s->serial || s->latency != 0)
        return -1;
    const int64_t step = s->c + s->r, pairs = (s->m + 1) / 2;
    const int64_t late = s->c < s->r ? (pairs - 1) * (s->n - 1) * (s->r - s->c) : 0;
    if (s->m % 2 == 0)
        return s->m * (s->n + 1) * step / 2 + (s->n - 1) * s->r + late;
    return (s->m - 1) * (s->n + 1) / 2 * step + s->n * step + late;
}

/* No two workers visit one query tile in the same step, as long as a turn is visible in time. */
static int64_t shift(const square *s)
{
    if (s->causal || !s->pinned)
        return -1;
    if (s->serial && s->latency <= s->c)
        return s->m * s->n * (s->c + s->r);
    if (!s->serial && s->r + s->latency <= s->c)
        return s->m * s->n * s->c + s->r;
    return -1;
}

/* Two heads at a time, on half of the workers each. */
static int64_t symmetric(const square *s)
{
    if (!s->causal || !s->pinned || !s->serial || s->latency != 0 || s->n % 2 != 0)
        return -1;
    return (s->m + 1) / 2 * (s->n + 1) * (s->c + s->r);
}

static int64_t twin(const square *s)
{
    if (!s->causal || !s->pinned || !s->serial || s->latency != 0)
        return -1;
    const int64_t pairs = s->m / 2 * (s->n + 1) * (s->c + s->r);
    return s->m % 2 == 0 ? pairs : pairs + s->n * (s->c + s->r);
}

/* Workers never wait; the makespan is known for one head only, not the tail of several. */
static int64_t spt(const square *s)
{
    if (!s->causal || !s->serial || s->latency != 0 || s->m != 1)
        return -1;
    return s->n * (s->c + s->r);
}

int64_t ordo_makespan_closed(const ordo_run *run, const ordo_costs *costs)
{
    if (costs->live)
        return -1;
    const ordo_band *band = &run->band;
    const int32_t n = ordo_band_key_tiles(band);
    const bool causal = band->high == 0 && band->low <= 1 - band->q_len;
    const bool full = band->high >= band->kv_len - 1 && band->low <= 1 - band->q_len;
    const square s = { .n = n,
                       .m = (int64_t)run->sequences * run->kv_heads,
                       .c = costs->compute,
                       .r = costs->reduce,
                       .latency = costs->latency,
                       .causal = causal && n > 1,
                       .serial = costs->overlap == 0,
                       .pinned = run->assign == ORDO_ASSIGN_PINNED };
    if (!(causal || full) || band->bq != band->bk || n != ordo_band_query_tiles(band) ||
        n != run->workers || run->group_heads != 1 || run->issue != ORDO_ISSUE_HEAD ||
        costs->accumulators != 1 || costs->overlap > 1 ||
        costs->compute_partial != costs->compute || run->sequences != 1 || costs->reduce < 1)
        return -1;
    if (!fits(2 * (uint64_t)s.n * (uint64_t)s.m, 1, costs))
        return -1;
    if (ordo_order_cyclic(run->order) && run->group != 0 && run->group < n)
        return -1; /* not one cycle per head */
    switch (run->order) {
    case ORDO_ORDER_ASCENDING: return ascending(&s);
    case ORDO_ORDER_DESCENDING: return descending(&s);
    case ORDO_ORDER_SHIFT: return shift(&s);
    case ORDO_ORDER_SYMMETRIC: return symmetric(&s);
    case ORDO_ORDER_TWIN: return twin(&s);
    case ORDO_ORDER_SPT: return spt(&s);
    case ORDO_ORDER_SPT_TAIL:
    case ORDO_ORDER_DEFAULT: break;
    }
    return -1;
}
