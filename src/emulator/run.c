/* run.c: divides a pass into units and runs them on threads.
 *
 * Threads draw units from one counter. In a backward pass the units of keys come first and leave dS
 * for the units of queries, if the dS of one key head fits DS_BYTES; heads are taken in sections
 * that fit together. Otherwise, and in an audit, a unit of queries computes its dS again: two more
 * products of five. Neither changes a bit. */
#include "emulator/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bias.h"
#include "base/pool.h"
#include "base/sink.h"
#include "base/status.h"
#include "emulator/units.h"

enum { DS_BYTES = 256 << 20 };

/* A row that came out NaN or infinite because of what the mask hides: the device repairs it. */
static ordo_status known(const _Atomic bool *unknown)
{
    return *unknown ? ordo_fail(ORDO_ERR_UNSUPPORTED,
                                "a NaN or infinity in an input: backend emulator does not compute "
                                "finite rows beside it that the device computes again in f64")
                    : ORDO_OK;
}

/* ---- units by number ---- */

/* A unit: the first of a sequence is the longest under a causal mask, except units of keys. */
typedef struct unit {
    ordo_audit_kind kind;
    int64_t b, head;
    int32_t tile;
} unit;

static int32_t tiles_of(const ordo_emulator_pass *pass, ordo_audit_kind kind, int64_t b)
{
    const ordo_emulator_sequence *s = &pass->sequences[b];
    if (kind == ORDO_AUDIT_DSINK)
        return 1;
    const int32_t length = kind == ORDO_AUDIT_DBIAS   ? (int32_t)pass->problem->q_len
                           : kind == ORDO_AUDIT_DK_DV ? s->kv_len
                                                      : s->q_len;
    const int32_t size = kind == ORDO_AUDIT_O       ? ORDO_EMULATOR_ROWS
                         : kind == ORDO_AUDIT_DK_DV ? pass->backward.keys
                                                    : pass->backward.rows;
    return length / size + (length % size != 0);
}

static int64_t count_of(const ordo_emulator_pass *pass, ordo_audit_kind kind)
{
    const ordo_problem *p = pass->problem;
    if (kind == ORDO_AUDIT_DBIAS)
        return ordo_bias_sequences(p) * ordo_bias_heads(p) * tiles_of(pass, kind, 0);
    return pass->sequences[pass->problem->batch].before[kind];
}

static int64_t find_sequence(const ordo_emulator_pass *pass, ordo_audit_kind kind, int64_t index)
{
    int64_t low = 0, high = pass->problem->batch; /* before(low) <= index < before(high) */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (pass->sequences[middle].before[kind] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Unit `index` of a kind: sequence by sequence, head by head, tile by tile. */
static unit unit_at(const ordo_emulator_pass *pass, ordo_audit_kind kind, int64_t index)
{
    if (kind == ORDO_AUDIT_DBIAS) {
        const int64_t rows = tiles_of(pass, kind, 0), heads = ordo_bias_heads(pass->problem);
        return (unit) { kind, index / rows / heads, index / rows % heads, (int32_t)(index % rows) };
    }
    unit u = { .kind = kind, .b = find_sequence(pass, kind, index) };
    const int64_t tiles = tiles_of(pass, kind, u.b);
    index -= pass->sequences[u.b].before[kind];
    u.head = index / tiles;
    u.tile = (int32_t)(index % tiles);
    return u;
}

/* Units of a kind that a pass has: in this order. */
static int64_t count_in_pass(const ordo_emulator_pass *pass, ordo_audit_kind kind)
{
    const bool has[] = { [ORDO_AUDIT_O] = pass->which == ORDO_FORWARD,
                         [ORDO_AUDIT_DQ] = pass->which == ORDO_BACKWARD && pass->dq,
                         [ORDO_AUDIT_DK_DV] = pass->which == ORDO_BACKWARD && pass->dk_dv,
                         [ORDO_AUDIT_DSINK] =
                             pass->which == ORDO_BACKWARD && pass->call->dsink_parts,
                         [ORDO_AUDIT_DBIAS] = pass->which == ORDO_BACKWARD && pass->call->dbias };
    return has[kind] ? count_of(pass, kind) : 0;
}

static unit unit_of_pass(const ordo_emulator_pass *pass, int64_t index)
{
    ordo_audit_kind kind = ORDO_AUDIT_O;
    for (; kind < ORDO_AUDIT_DBIAS && index >= count_in_pass(pass, kind); kind++)
        index -= count_in_pass(pass, kind);
    return unit_at(pass, kind, index);
}

static int64_t count_pass(const ordo_emulator_pass *pass)
{
    int64_t count = 0;
    for (ordo_audit_kind kind = ORDO_AUDIT_O; kind <= ORDO_AUDIT_DBIAS; kind++)
        count += count_in_pass(pass, kind);
    return count;
}

/* ---- rows that belong to no sequence ---- */

static void clear_rows(const ordo_emulator_pass *pass, const ordo_tensor *tensor,
                       ordo_emulator_side side, int dim, int64_t b, int64_t head, int64_t first,
                       int64_t end)
{
    const ordo_emulator_rows rows = ordo_emulator_rows_of(pass, tensor, side, dim, b, head);
    for (int64_t row = first; tensor->data && row < end; row++)
        memset(rows.data + row * rows.stride, 0, (size_t)dim * sizeof *rows.data);
}

/* Sums that nothing is added to: they stay, or begin at 0. */
static void clear_sums(const ordo_emulator_pass *pass, float *sums, int dim, int64_t b)
{
    const ordo_problem *p = pass->problem;
    const int64_t first = b * p->kv_len + pass->sequences[b].kv_len, end = (b + 1) * p->kv_len;
    memset(sums + first * p->kv_heads * dim, 0,
           (size_t)((end - first) * p->kv_heads * dim) * sizeof *sums);
}

static void clear_padding(const ordo_emulator_pass *pass, int64_t b)
{
    const ordo_problem *p = pass->problem;
    const ordo_call *c = pass->call;
    const ordo_emulator_sequence *s = &pass->sequences[b];
    const ordo_emulator_side queries = ORDO_EMULATOR_QUERIES, keys = ORDO_EMULATOR_KEYS;
    for (int64_t head = 0; head < p->heads; head++) {
        if (pass->which == ORDO_BACKWARD) {
            clear_rows(pass, &c->dq, queries, pass->dim, b, head, s->q_len, p->q_len);
            continue;
        }
        clear_rows(pass, &c->o, queries, pass->v_dim, b, head, s->q_len, p->q_len);
        for (int64_t row = s->q_len; row < p->q_len; row++)
            c->lse[ordo_emulator_lse(pass, b, head) + row] = -INFINITY;
    }
    if (pass->which == ORDO_FORWARD || !pass->dk_dv)
        return;
    if (c->carry & ORDO_CARRY_OUT) {
        if (!(c->carry & ORDO_CARRY_IN)) {
            clear_sums(pass, c->dk_sums, pass->dim, b);
            clear_sums(pass, c->dv_sums, pass->v_dim, b);
        }
        return;
    }
    for (int64_t head = 0; head < p->kv_heads; head++) {
        clear_rows(pass, &c->dk, keys, pass->dim, b, head, s->kv_len, p->kv_len);
        clear_rows(pass, &c->dv, keys, pass->v_dim, b, head, s->kv_len, p->kv_len);
    }
}

/* ---- running ---- */

/* Units first .. end - 1 of one kind, drawn by threads. */
typedef struct job {
    const ordo_emulator_pass *pass;
    ordo_audit_kind kind;
    int64_t first, end;
    _Atomic int64_t next;
    const ordo_emulator_ds *ds; /* one per key head of `section` */
    int64_t section;            /* the first key head, of all sequences */
} job;

/* Units of a job in the order in which they are drawn: the last first, which are the longest under
 * a causal mask, except units of keys. */
static int64_t drawn(const job *j, int64_t ticket)
{
    return j->kind == ORDO_AUDIT_DK_DV ? j->first + ticket : j->end - 1 - ticket;
}

/* Forward units of one head that share a walk: consecutive ones, from an even block on. */
static void run_forward(const job *j, int64_t ticket, void *scratch)
{
    const ordo_emulator_pass *pass = j->pass;
    const ordo_problem *p = pass->problem;
    int64_t b = p->batch - 1;
    for (; b > 0; b--) {
        const int64_t groups = (tiles_of(pass, j->kind, b) + ORDO_EMULATOR_BLOCKS - 1) /
                               ORDO_EMULATOR_BLOCKS * p->heads;
        if (ticket < groups)
            break;
        ticket -= groups;
    }
    const int32_t tiles = tiles_of(pass, j->kind, b);
    const int32_t groups = (tiles + ORDO_EMULATOR_BLOCKS - 1) / ORDO_EMULATOR_BLOCKS;
    const int32_t first = (groups - 1 - (int32_t)(ticket / p->heads)) * ORDO_EMULATOR_BLOCKS;
    ordo_emulator_forward_unit(pass, b, ticket % p->heads, first * ORDO_EMULATOR_ROWS,
                               ordo_min32(ORDO_EMULATOR_BLOCKS, tiles - first), scratch);
}

static void run_backward(const job *j, int64_t ticket, void *scratch)
{
    const ordo_emulator_pass *pass = j->pass;
    const unit u = unit_at(pass, j->kind, drawn(j, ticket));
    const bool keys = j->kind == ORDO_AUDIT_DK_DV;
    const int64_t kv_head = keys ? u.head : u.head / pass->group;
    const ordo_emulator_ds *ds =
        j->ds ? &j->ds[u.b * pass->problem->kv_heads + kv_head - j->section] : NULL;
    if (keys)
        ordo_emulator_key_unit(pass, u.b, kv_head, u.tile, ds, scratch);
    else
        ordo_emulator_query_unit(pass, u.b, u.head, u.tile, ds, scratch);
}

static void run_bias(const job *j, int64_t ticket, void *scratch)
{
    const unit u = unit_at(j->pass, j->kind, ticket);
    ordo_emulator_bias_unit(j->pass, u.b, u.head, u.tile, scratch);
}

static void work(void *context, int worker, int workers, void *scratch)
{
    job *j = context;
    (void)worker;
    (void)workers;
    for (;;) {
        const int64_t ticket = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (ticket >= j->end - j->first)
            return;
        if (j->kind == ORDO_AUDIT_O)
            run_forward(j, ticket, scratch);
        else if (j->kind == ORDO_AUDIT_DBIAS)
            run_bias(j, ticket, scratch);
        else
            run_backward(j, ticket, scratch);
    }
}

static ordo_status run_job(job *j)
{
    const int threads = ordo_pool_threads(j->pass->call->threads);
    const int64_t units = j->end - j->first, useful = units < threads ? units : threads;
    const size_t bytes = j->kind == ORDO_AUDIT_O ? ordo_emulator_forward_bytes(j->pass)
                                                 : ordo_emulator_backward_bytes(j->pass);
    return useful == 0 ? ORDO_OK : ordo_pool_run((int)useful, bytes, work, j);
}

ordo_status ordo_emulator_forward(const ordo_plan *plan, const ordo_call *call)
{
    ordo_emulator_pass pass;
    _Atomic bool unknown = false;
    ordo_status status = ordo_emulator_open(&pass, plan, ORDO_FORWARD, call);
    pass.unknown = &unknown;
    if (status == ORDO_OK) {
        job j = { .pass = &pass, .kind = ORDO_AUDIT_O };
        for (int64_t b = 0; b < plan->problem.batch; b++)
            j.end += (tiles_of(&pass, j.kind, b) + ORDO_EMULATOR_BLOCKS - 1) /
                     ORDO_EMULATOR_BLOCKS * plan->problem.heads;
        status = run_job(&j);
        for (int64_t b = 0; status == ORDO_OK && b < plan->problem.batch; b++)
            if (plan->problem.layout == ORDO_PADDED)
                clear_padding(&pass, b);
    }
    ordo_emulator_close(&pass);
    return status == ORDO_OK ? known(&unknown) : status;
}

/* ---- backward ---- */

/* Elements of dS of one key head of a sequence. */
static int64_t ds_count(const ordo_emulator_pass *pass, int64_t b)
{
    return (int64_t)tiles_of(pass, ORDO_AUDIT_DQ, b) * tiles_of(pass, ORDO_AUDIT_DK_DV, b) *
           pass->backward.rows * pass->backward.keys * pass->group;
}

static int64_t kv_head_units(const ordo_emulator_pass *pass, ordo_audit_kind kind, int64_t kv_head)
{
    const int64_t kv_heads = pass->problem->kv_heads, b = kv_head / kv_heads;
    const int64_t each = kind == ORDO_AUDIT_DK_DV ? 1 : pass->group;
    if (b >= pass->problem->batch)
        return count_of(pass, kind);
    return pass->sequences[b].before[kind] + kv_head % kv_heads * each * tiles_of(pass, kind, b);
}

/* The units of a kind of key heads first .. end - 1, numbered over all sequences. */
static ordo_status run_kind(const ordo_emulator_pass *pass, ordo_audit_kind kind, int64_t first,
                            int64_t end, const ordo_emulator_ds *ds)
{
    job j = { .pass = pass,
              .kind = kind,
              .first = kv_head_units(pass, kind, first),
              .end = kv_head_units(pass, kind, end),
              .ds = ds,
              .section = first };
    return run_job(&j);
}

/* Key heads from `first` on whose dS fits the memory for it, one at least; 0: the first does not.
 */
static int64_t section_of(const ordo_emulator_pass *pass, int64_t first)
{
    const int64_t kv_heads = pass->problem->kv_heads, all = pass->problem->batch * kv_heads;
    int64_t count = 0, room = DS_BYTES / (int64_t)sizeof(uint16_t);
    while (first + count < all && ds_count(pass, (first + count) / kv_heads) <= room) {
        room -= ds_count(pass, (first + count) / kv_heads);
        count++;
    }
    return count;
}

static ordo_status run_section(const ordo_emulator_pass *pass, int64_t first, int64_t count)
{
    const int64_t kv_heads = pass->problem->kv_heads;
    int64_t elements = 0;
    for (int64_t x = first; x < first + count; x++)
        elements += ds_count(pass, x / kv_heads);
    ordo_emulator_ds *ds = calloc((size_t)count, sizeof *ds);
    uint16_t *data = malloc((size_t)elements * sizeof *data + 1);
    ordo_status status =
        ds && data ? ORDO_OK
                   : ordo_fail(ORDO_ERR_MEMORY,
                               "emulator: no memory for %" PRId64 " elements of dS", elements);
    uint16_t *at = data;
    for (int64_t x = 0; status == ORDO_OK && x < count; x++) {
        const int64_t b = (first + x) / kv_heads;
        ds[x] = (ordo_emulator_ds) { at, tiles_of(pass, ORDO_AUDIT_DQ, b),
                                     tiles_of(pass, ORDO_AUDIT_DK_DV, b) };
        at += ds_count(pass, b);
    }
    if (status == ORDO_OK)
        status = run_kind(pass, ORDO_AUDIT_DK_DV, first, first + count, ds);
    if (status == ORDO_OK)
        status = run_kind(pass, ORDO_AUDIT_DQ, first, first + count, ds);
    free(data);
    free(ds);
    return status;
}

static ordo_status run_heads(const ordo_emulator_pass *pass)
{
    const int64_t all = pass->problem->batch * pass->problem->kv_heads;
    for (int64_t first = 0, count; first < all; first += count) {
        count = pass->dq && pass->dk_dv ? section_of(pass, first) : 0;
        if (count > 0) {
            ORDO_TRY(run_section(pass, first, count));
            continue;
        }
        count = 1;
        if (pass->dk_dv)
            ORDO_TRY(run_kind(pass, ORDO_AUDIT_DK_DV, first, first + count, NULL));
        if (pass->dq)
            ORDO_TRY(run_kind(pass, ORDO_AUDIT_DQ, first, first + count, NULL));
    }
    return ORDO_OK;
}

/* ---- sinks ---- */

/* The terms of a sequence and head: blocks of rows by one tree each, these upwards. */
static float sink_part(const ordo_emulator_pass *pass, int64_t b, int64_t head)
{
    const ordo_call *c = pass->call;
    const float *lse = c->lse + ordo_emulator_lse(pass, b, head);
    double sum = 0;
    for (int32_t first = 0; first < pass->sequences[b].q_len; first += ORDO_SINK_ROWS) {
        double terms[ORDO_SINK_ROWS] = { 0 };
        float lse2[ORDO_SINK_ROWS], delta[ORDO_SINK_ROWS];
        ordo_emulator_statistics(pass, b, head, first, ORDO_SINK_ROWS, lse2, delta);
        for (int i = 0; i < ORDO_SINK_ROWS && first + i < pass->sequences[b].q_len; i++)
            terms[i] = ordo_sink_term(c->sink[head], lse[first + i], delta[i] * pass->keep_scale);
        sum += ordo_sink_tree(terms);
    }
    return ordo_f32_from_f64(sum);
}

static void run_sinks(const ordo_emulator_pass *pass)
{
    const ordo_call *c = pass->call;
    const ordo_problem *p = pass->problem;
    for (int64_t head = 0; head < p->heads && (c->dsink || c->dsink_parts); head++) {
        double sum = 0;
        for (int64_t b = 0; b < p->batch; b++) {
            const float part = sink_part(pass, b, head);
            if (c->dsink_parts)
                ordo_emulator_put_sink(pass, b, head, part);
            sum += (double)part;
        }
        if (c->dsink)
            c->dsink[head] = ordo_f32_from_f64(sum);
    }
}

ordo_status ordo_emulator_backward(const ordo_plan *plan, const ordo_call *call)
{
    ordo_emulator_pass pass;
    _Atomic bool unknown = false;
    ordo_status status = ordo_emulator_open(&pass, plan, ORDO_BACKWARD, call);
    pass.unknown = &unknown;
    if (status == ORDO_OK)
        status = run_heads(&pass);
    if (status == ORDO_OK && call->dbias) {
        job j = { .pass = &pass, .kind = ORDO_AUDIT_DBIAS };
        j.end = count_of(&pass, j.kind);
        status = run_job(&j);
    }
    if (status == ORDO_OK)
        run_sinks(&pass);
    for (int64_t b = 0; status == ORDO_OK && b < plan->problem.batch; b++)
        if (plan->problem.layout == ORDO_PADDED)
            clear_padding(&pass, b);
    ordo_emulator_close(&pass);
    return status == ORDO_OK ? known(&unknown) : status;
}

/* ---- audits ---- */

ordo_status ordo_emulator_unit_count(const ordo_plan *plan, const ordo_call *call, ordo_pass which,
                                     int64_t *count)
{
    ordo_emulator_pass pass;
    const ordo_status status = ordo_emulator_open(&pass, plan, which, call);
    if (status == ORDO_OK)
        *count = count_pass(&pass);
    ordo_emulator_close(&pass);
    return status;
}

static void describe(const ordo_emulator_pass *pass, const unit *u, ordo_audit_unit *to)
{
    const ordo_emulator_sequence *s = &pass->sequences[u->b];
    const bool keys = u->kind == ORDO_AUDIT_DK_DV, bias = u->kind == ORDO_AUDIT_DBIAS;
    const int64_t size = u->kind == ORDO_AUDIT_O            ? ORDO_EMULATOR_ROWS
                         : u->kind == ORDO_AUDIT_DQ || bias ? pass->backward.rows
                         : u->kind == ORDO_AUDIT_DK_DV      ? pass->backward.keys
                                                            : s->q_len;
    to->kind = u->kind;
    to->sequence = u->b;
    to->head = u->head;
    to->row = u->tile * size;
    to->rows = (keys ? s->kv_len : bias ? pass->problem->q_len : s->q_len) - to->row;
    to->rows = to->rows < size ? to->rows : size;
    to->scores = u->kind == ORDO_AUDIT_O
                     ? ordo_emulator_forward_scores(pass, u->b, u->head, (int32_t)to->row)
                 : bias ? ordo_emulator_bias_scores(pass, u->tile)
                 : keys ? ordo_emulator_key_scores(pass, u->b, u->head, u->tile)
                 : u->kind == ORDO_AUDIT_DQ
                     ? ordo_emulator_query_scores(pass, u->b, u->head, u->tile)
                     : 0;
}

ordo_status ordo_emulator_unit_describe(const ordo_plan *plan, const ordo_call *call,
                                        ordo_pass which, int64_t index, ordo_audit_unit *to)
{
    ordo_emulator_pass pass;
    ordo_status status = ordo_emulator_open(&pass, plan, which, call);
    if (status == ORDO_OK) {
        const unit u = unit_of_pass(&pass, index);
        describe(&pass, &u, to);
    }
    ordo_emulator_close(&pass);
    return status;
}

/* Units that are compared; each has a separate answer. */
typedef struct checks {
    const ordo_emulator_pass *pass;
    int64_t first, count;
    _Atomic int64_t next;
    ordo_audit_difference *differences;
} checks;

static void check_units(void *context, int worker, int workers, void *scratch)
{
    checks *c = context;
    (void)worker;
    (void)workers;
    for (;;) {
        const int64_t x = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (x >= c->count)
            return;
        ordo_emulator_pass pass = *c->pass;
        const unit u = unit_of_pass(&pass, c->first + x);
        pass.audit = &c->differences[x];
        if (u.kind == ORDO_AUDIT_O)
            ordo_emulator_forward_unit(&pass, u.b, u.head, u.tile * ORDO_EMULATOR_ROWS, 1, scratch);
        else if (u.kind == ORDO_AUDIT_DQ)
            ordo_emulator_query_unit(&pass, u.b, u.head, u.tile, NULL, scratch);
        else if (u.kind == ORDO_AUDIT_DK_DV)
            ordo_emulator_key_unit(&pass, u.b, u.head, u.tile, NULL, scratch);
        else if (u.kind == ORDO_AUDIT_DBIAS)
            ordo_emulator_bias_unit(&pass, u.b, u.head, u.tile, scratch);
        else
            ordo_emulator_put_sink(&pass, u.b, u.head, sink_part(&pass, u.b, u.head));
    }
}

static ordo_status check_all(const ordo_emulator_pass *pass, int64_t index, int64_t count,
                             ordo_audit_difference *difference)
{
    const int threads = ordo_pool_threads(pass->call->threads);
    const size_t forward = ordo_emulator_forward_bytes(pass);
    const size_t backward = pass->which == ORDO_BACKWARD ? ordo_emulator_backward_bytes(pass) : 0;
    checks c = { .pass = pass, .first = index, .count = count };
    c.differences = calloc((size_t)count + 1, sizeof *c.differences);
    if (!c.differences)
        return ordo_fail(ORDO_ERR_MEMORY, "emulator: no memory for %" PRId64 " answers", count);
    const ordo_status status =
        count == 0 ? ORDO_OK
                   : ordo_pool_run((int)(count < threads ? count : threads),
                                   forward > backward ? forward : backward, check_units, &c);
    *difference = (ordo_audit_difference)ORDO_AUDIT_DIFFERENCE_INIT;
    for (int64_t x = 0; status == ORDO_OK && x < count; x++)
        if (c.differences[x].differs) {
            *difference = c.differences[x];
            difference->size = sizeof *difference;
            break;
        }
    free(c.differences);
    return status;
}

ordo_status ordo_emulator_check(const ordo_plan *plan, const ordo_call *call, ordo_pass which,
                                int64_t index, int64_t count, ordo_audit_difference *difference)
{
    ordo_emulator_pass pass;
    _Atomic bool unknown = false;
    ordo_status status = ordo_emulator_open(&pass, plan, which, call);
    pass.unknown = &unknown;
    if (status == ORDO_OK)
        status = check_all(&pass, index, count, difference);
    ordo_emulator_close(&pass);
    return status == ORDO_OK ? known(&unknown) : status;
}
