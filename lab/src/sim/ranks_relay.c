/* ranks_relay.c: method relay: a packet per key head passes the stages in the order of rows.
 *
 * Stage s of item x runs at time x + s of a common order, as in
 * python/ordo/torch/distributed/_chain.py: a rank waits for the packet and for itself. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "sim/ranks.h"

#define TASKS_MAX (INT64_C(1) << 26)

typedef struct stage {
    int64_t rank;
    double ns; /* time of one item */
} stage;

typedef struct relay {
    ordo_rank_timeline *t;
    stage *stages;
    double *arrived; /* by stage: when its next packet is there */
    int64_t count, items;
    double packet_bytes;
    double shard_bytes; /* keys and values, or dk and dv, of one item that other ranks hold */
} relay;

/* The chunks in the order in which the plan visits rows; the two in the middle of a zigzag are
 * adjacent rows of one rank, and one stage. */
static void make_stages(relay *x)
{
    const ordo_rank_problem *p = &x->t->problem;
    const int64_t chunks = p->zigzag ? 2 * p->ranks : p->ranks;
    const int64_t group = p->heads / p->kv_heads;
    for (int64_t i = 0; i < chunks; i++) {
        const int64_t c = p->mask == ORDO_MASK_FULL ? i : chunks - 1 - i;
        const int64_t rank = c < p->ranks ? c : chunks - 1 - c;
        const double pairs =
            ordo_ranks_row_pairs(p, p->rows * c / chunks, p->rows * (c + 1) / chunks);
        const double ns = ordo_ranks_product_ns(p, pairs, (double)group, 5);
        if (x->count > 0 && x->stages[x->count - 1].rank == rank)
            x->stages[x->count - 1].ns += ns;
        else
            x->stages[x->count++] = (stage) { rank, ns };
    }
}

/* A message; returns when it has arrived. */
static ordo_status send(relay *x, int64_t item, int64_t from, int64_t to, double ready,
                        double bytes, double *arrived)
{
    ordo_rank_timeline *t = x->t;
    ordo_rank_lanes *source = &t->lanes[from], *target = &t->lanes[to];
    double begin = ready > source->send ? ready : source->send;
    begin = target->receive > begin ? target->receive : begin;
    const double end = begin + bytes / t->problem.link_bytes_per_s * 1e9;
    source->send = target->receive = end;
    source->sent += bytes;
    *arrived = end + t->problem.link_ns;
    return ordo_ranks_record(t, from, item, ORDO_WORK_EXCHANGE, begin, end);
}

/* Keys and values of an item come to the first stage from all ranks: its link receives them. */
static double collect(relay *x, double ready)
{
    ordo_rank_lanes *first = &x->t->lanes[x->stages[0].rank];
    const double begin = ready > first->receive ? ready : first->receive;
    if (x->t->problem.ranks == 1)
        return ready;
    first->receive = begin + x->shard_bytes / x->t->problem.link_bytes_per_s * 1e9;
    return first->receive + x->t->problem.link_ns;
}

static ordo_status run_task(relay *x, int64_t item, int64_t s)
{
    const stage *here = &x->stages[s];
    ordo_rank_lanes *lanes = &x->t->lanes[here->rank];
    const double ready = x->arrived[s], busy = lanes->compute;
    const double begin = ready > busy ? ready : busy, end = begin + here->ns;
    lanes->compute = end;
    ORDO_TRY(ordo_ranks_record(x->t, here->rank, item, ORDO_WORK_BACKWARD, begin, end));
    if (s == 0 && item + 1 < x->items)
        x->arrived[0] = collect(x, begin); /* while this item is computed */
    if (s + 1 < x->count)
        return send(x, item, here->rank, x->stages[s + 1].rank, end, x->packet_bytes,
                    &x->arrived[s + 1]);
    double unused;
    if (x->t->problem.ranks == 1)
        return ORDO_OK;
    const int64_t other = here->rank == 0 ? 1 : 0; /* each gets its part: one link sends them all */
    return send(x, item, here->rank, other, end, x->shard_bytes, &unused);
}

static ordo_status backward(relay *x)
{
    x->arrived[0] = collect(x, ordo_ranks_time(x->t));
    for (int64_t time = 0; time < x->items + x->count - 1; time++) {
        const int64_t late = time - x->count + 1; /* items in order, so stages from the last */
        for (int64_t item = late > 0 ? late : 0; item <= time && item < x->items; item++)
            ORDO_TRY(run_task(x, item, time - item));
    }
    return ORDO_OK;
}

/* Keys of one key head of all sequences are gathered, then used. */
static ordo_status forward(relay *x)
{
    ordo_rank_timeline *t = x->t;
    const ordo_rank_problem *p = &t->problem;
    const int64_t group = p->heads / p->kv_heads * p->batch;
    const double n = (double)p->ranks;
    const double bytes = ordo_ranks_bytes(p).kv / (double)p->kv_heads * (n - 1) / n;
    for (int64_t h = 0; h < p->kv_heads; h++) {
        double end;
        ORDO_TRY(ordo_ranks_collective(t, ordo_ranks_time(t), bytes, n - 1, &end));
        for (int64_t r = 0; r < p->ranks; r++) {
            ordo_rank_rows rows[2];
            const int64_t count = ordo_ranks_segments(p, r, rows);
            double pairs = 0;
            for (int64_t i = 0; i < count; i++)
                pairs += ordo_ranks_row_pairs(p, rows[i].first, rows[i].end);
            ORDO_TRY(ordo_ranks_compute(t, r, ORDO_WORK_FORWARD, end,
                                        ordo_ranks_product_ns(p, pairs, (double)group, 2)));
        }
    }
    t->info.forward_ns = ordo_ranks_time(t);
    return ORDO_OK;
}

ordo_status ordo_ranks_run_relay(ordo_rank_timeline *t)
{
    const ordo_rank_problem *p = &t->problem;
    const ordo_rank_bytes b = ordo_ranks_bytes(p);
    const double n = (double)p->ranks, wide = (double)(p->element_bytes + 4);
    relay x = { .t = t, .items = p->batch * p->kv_heads };
    x.packet_bytes = b.kv / (double)x.items * wide / (double)p->element_bytes;
    x.shard_bytes = b.kv / (double)x.items * (n - 1) / n;
    if (x.items > TASKS_MAX / (2 * p->ranks))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "relay: %" PRId64 " sequences and key heads on %" PRId64
                         " ranks: expected at most %" PRId64 " steps",
                         x.items, p->ranks, TASKS_MAX);
    x.stages = calloc(2 * (size_t)p->ranks, sizeof *x.stages);
    x.arrived = calloc(2 * (size_t)p->ranks, sizeof *x.arrived);
    ordo_status status = ORDO_OK;
    if (!x.stages || !x.arrived)
        status = ordo_fail(ORDO_ERR_MEMORY, "relay: %" PRId64 " ranks", p->ranks);
    if (status == ORDO_OK)
        status = forward(&x);
    if (status == ORDO_OK) {
        make_stages(&x);
        status = backward(&x);
    }
    t->info.products = 5;
    t->info.items = x.items;
    t->info.stages = x.count;
    /* Its own tensors; a packet in work, one that arrives and two that leave. */
    t->info.memory_bytes = (4 * b.q + 2 * b.kv + 2 * b.lse) / n + 4 * x.packet_bytes;
    free(x.stages);
    free(x.arrived);
    return status;
}
