/* ranks.c: public functions of the simulation of ranks, and the methods heads and gather. */
#include "sim/ranks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"

enum { RANKS_MAX = 4096 };
#define LENGTH_MAX (INT64_C(1) << 32)

/* ---- heads: everything is even ---- */

static ordo_status all_to_all(ordo_rank_timeline *t, double bytes, double *end)
{
    const double n = (double)t->problem.ranks; /* `bytes` of all ranks: each keeps its n-th part */
    return ordo_ranks_collective(t, ordo_ranks_time(t), bytes / n * (n - 1) / n, 1, end);
}

static ordo_status everywhere(ordo_rank_timeline *t, ordo_rank_work work, double ready, double ns)
{
    for (int64_t r = 0; r < t->problem.ranks; r++)
        ORDO_TRY(ordo_ranks_compute(t, r, work, ready, ns));
    return ORDO_OK;
}

static ordo_status run_heads(ordo_rank_timeline *t)
{
    const ordo_rank_problem *p = &t->problem;
    const ordo_rank_bytes b = ordo_ranks_bytes(p);
    const double n = (double)p->ranks, heads = (double)(p->heads * p->batch) / n;
    const double pairs = ordo_ranks_row_pairs(p, 0, p->rows);
    double end = 0;
    if (p->kv_heads % p->ranks != 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "heads: %" PRId64 " key heads, expected a multiple of %" PRId64 " ranks",
                         p->kv_heads, p->ranks);
    ORDO_TRY(all_to_all(t, b.q + b.kv, &end));
    ORDO_TRY(everywhere(t, ORDO_WORK_FORWARD, end, ordo_ranks_product_ns(p, pairs, heads, 2)));
    ORDO_TRY(all_to_all(t, b.q + b.lse, &end));
    t->info.forward_ns = ordo_ranks_time(t);
    ORDO_TRY(all_to_all(t, b.q + b.lse, &end));
    ORDO_TRY(everywhere(t, ORDO_WORK_BACKWARD, end, ordo_ranks_product_ns(p, pairs, heads, 5)));
    ORDO_TRY(all_to_all(t, b.q + b.kv, &end));
    t->info.products = 5;
    t->info.memory_bytes = 2 * (4 * b.q + 2 * b.kv + 2 * b.lse) / n; /* as rows, and as heads */
    return ORDO_OK;
}

/* ---- gather ---- */

static double column_pairs(const ordo_rank_problem *p, int64_t first, int64_t end)
{
    const int64_t n = p->rows;
    return p->mask == ORDO_MASK_FULL ? (double)(end - first) * (double)n
                                     : ordo_ranks_triangle((double)(n - end), (double)(n - first));
}

/* Pairs that a rank's rows see, or that see a rank's columns. */
static double rank_pairs(const ordo_rank_problem *p, int64_t rank, bool columns)
{
    ordo_rank_rows rows[2];
    const int64_t count = ordo_ranks_segments(p, rank, rows);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += columns ? column_pairs(p, rows[i].first, rows[i].end)
                       : ordo_ranks_row_pairs(p, rows[i].first, rows[i].end);
    return sum;
}

/* A ring: every rank passes on n - 1 parts. */
static ordo_status all_gather(ordo_rank_timeline *t, double ready, double bytes, double *end)
{
    const double n = (double)t->problem.ranks;
    return ordo_ranks_collective(t, ready, bytes * (n - 1) / n, n - 1, end);
}

static ordo_status each_rank(ordo_rank_timeline *t, ordo_rank_work work, double ready, int products)
{
    const ordo_rank_problem *p = &t->problem;
    const double heads = (double)(p->heads * p->batch);
    for (int64_t r = 0; r < p->ranks; r++) {
        const double pairs = rank_pairs(p, r, work == ORDO_WORK_KEYS);
        ORDO_TRY(ordo_ranks_compute(t, r, work, ready,
                                    ordo_ranks_product_ns(p, pairs, heads, products)));
    }
    return ORDO_OK;
}

static ordo_status run_gather(ordo_rank_timeline *t)
{
    const ordo_rank_bytes b = ordo_ranks_bytes(&t->problem);
    const double n = (double)t->problem.ranks;
    double end = 0;
    ORDO_TRY(all_gather(t, 0, b.kv, &end));
    ORDO_TRY(each_rank(t, ORDO_WORK_FORWARD, end, 2));
    t->info.forward_ns = ordo_ranks_time(t);
    ORDO_TRY(all_gather(t, t->info.forward_ns, b.kv, &end));
    ORDO_TRY(each_rank(t, ORDO_WORK_DQ, end, 3));
    ORDO_TRY(all_gather(t, end, 3 * b.q + 2 * b.lse, &end)); /* while dq is computed */
    ORDO_TRY(each_rank(t, ORDO_WORK_KEYS, end, 4));
    t->info.products = 7;
    /* What was gathered, as it came and in the order of the rows. */
    t->info.memory_bytes = (4 * b.q + 2 * b.kv + 2 * b.lse) / n + 2 * (b.kv + 3 * b.q + 2 * b.lse);
    return ORDO_OK;
}

/* ---- public functions ---- */

static ordo_status check(ordo_rank_problem *p)
{
    const struct {
        const char *name;
        int64_t value, most;
    } counts[] = { { "ranks", p->ranks, RANKS_MAX },
                   { "rows", p->rows, LENGTH_MAX },
                   { "batch", p->batch, 1 << 20 },
                   { "heads", p->heads, 1 << 20 },
                   { "head_dim", p->head_dim, 1 << 16 } };
    const struct {
        const char *name;
        double value;
    } rates[] = { { "flop_per_s", p->flop_per_s }, { "link_bytes_per_s", p->link_bytes_per_s } };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 1 || counts[i].value > counts[i].most)
            return ordo_fail(ORDO_ERR_ARGUMENT, "%s %" PRId64 ": expected 1..%" PRId64,
                             counts[i].name, counts[i].value, counts[i].most);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (!(rates[i].value >= 1 && rates[i].value <= 1e30))
            return ordo_fail(ORDO_ERR_ARGUMENT, "%s %g: expected 1 to 1e30", rates[i].name,
                             rates[i].value);
    if (!(p->link_ns >= 0 && p->link_ns <= 1e12))
        return ordo_fail(ORDO_ERR_ARGUMENT, "link_ns %g: expected 0 to 1e12", p->link_ns);
    if (p->kv_heads == 0)
        p->kv_heads = p->heads;
    if (p->kv_heads < 1 || p->heads % p->kv_heads != 0)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "kv_heads %" PRId64 ": expected a divisor of %" PRId64 " heads",
                         p->kv_heads, p->heads);
    if (p->element_bytes == 0)
        p->element_bytes = 2;
    if (p->element_bytes != 2 && p->element_bytes != 4)
        return ordo_fail(ORDO_ERR_ARGUMENT, "element_bytes %" PRId64 ": expected 2 or 4",
                         p->element_bytes);
    if (p->mask != ORDO_MASK_FULL && p->mask != ORDO_MASK_CAUSAL)
        return ordo_fail(ORDO_ERR_ARGUMENT, "mask %d: expected full or causal", (int)p->mask);
    return ORDO_OK;
}

static ordo_status simulate(ordo_rank_timeline *t)
{
    const ordo_rank_problem *p = &t->problem;
    const double pairs = ordo_ranks_row_pairs(p, 0, p->rows);
    switch (t->info.method) {
    case ORDO_RANKS_HEADS: ORDO_TRY(run_heads(t)); break;
    case ORDO_RANKS_GATHER: ORDO_TRY(run_gather(t)); break;
    case ORDO_RANKS_RELAY: ORDO_TRY(ordo_ranks_run_relay(t)); break;
    default:
        return ordo_fail(ORDO_ERR_ARGUMENT, "method %d: expected 1..%d", (int)t->info.method,
                         ORDO_RANKS_METHODS);
    }
    const double time = ordo_ranks_time(t), n = (double)p->ranks;
    t->info.backward_ns = time - t->info.forward_ns;
    t->info.ideal_ns = ordo_ranks_product_ns(p, pairs, (double)(p->heads * p->batch) / n, 7);
    t->info.utilization = time > 0 ? t->busy / (n * time) : 1;
    for (int64_t r = 0; r < p->ranks; r++)
        if (t->lanes[r].sent > t->info.sent_bytes)
            t->info.sent_bytes = t->lanes[r].sent;
    return ORDO_OK;
}

ordo_status ordo_rank_timeline_create(ordo_rank_timeline **timeline,
                                      const ordo_rank_problem *problem, ordo_rank_method method)
{
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_rank_problem, "ordo_rank_problem", ORDO_RANK_PROBLEM_INIT, NULL);
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("timeline", timeline));
    *timeline = NULL;
    ORDO_TRY(ordo_check_pointer("problem", problem));
    ordo_rank_problem known;
    ORDO_TRY(ordo_versioned_copy(&known, problem, &kind));
    ORDO_TRY(check(&known));
    ordo_rank_timeline *t = calloc(1, sizeof *t);
    if (t)
        t->lanes = calloc((size_t)known.ranks, sizeof *t->lanes);
    if (!t || !t->lanes) {
        free(t);
        return ordo_fail(ORDO_ERR_MEMORY, "timeline: %" PRId64 " ranks", known.ranks);
    }
    t->problem = known;
    t->info.method = method;
    const ordo_status status = simulate(t);
    if (status == ORDO_OK)
        *timeline = t;
    else
        ordo_rank_timeline_destroy(t);
    return status;
}

void ordo_rank_timeline_destroy(ordo_rank_timeline *timeline)
{
    if (!timeline)
        return;
    free(timeline->lanes);
    free(timeline->spans);
    free(timeline);
}

ordo_status ordo_rank_timeline_query(const ordo_rank_timeline *timeline, ordo_rank_info *info)
{
    ORDO_TRY(ordo_check_pointer("timeline", timeline));
    ORDO_TRY(ordo_check_pointer("info", info));
    *info = timeline->info;
    return ORDO_OK;
}

uint64_t ordo_rank_span_count(const ordo_rank_timeline *timeline)
{
    return timeline ? timeline->count : 0;
}

ordo_status ordo_rank_span_at(const ordo_rank_timeline *timeline, uint64_t index,
                              ordo_rank_span *span)
{
    ORDO_TRY(ordo_check_pointer("timeline", timeline));
    ORDO_TRY(ordo_check_pointer("span", span));
    if (index >= timeline->count)
        return ordo_fail(ORDO_ERR_ARGUMENT, "index %" PRIu64 ": expected less than %" PRIu64, index,
                         timeline->count);
    *span = timeline->spans[index];
    return ORDO_OK;
}

const char *ordo_rank_method_name(ordo_rank_method method)
{
    static const char *const names[] = { "heads", "gather", "relay" };
    const int at = (int)method - 1;
    return at >= 0 && at < ORDO_RANKS_METHODS ? names[at] : "unknown";
}
