/* verify_cut.c: `ordo verify --cut`: sequences cut into calls, compared with the uncut run.
 *
 *   rows      pieces of rows, with all keys: o, lse and dq; and parts whose sums of dk and dv are
 *             carried, in the order of the plan: all outputs
 *   columns   pieces of 128 and more keys, with all rows: dk and dv
 *   decode    each row alone, with the keys that it sees: o and lse; with --page in pages
 *
 * A piece reads and writes the tensors of the whole in place, at their strides. lse has no strides:
 * that of a piece is copied. */
#include "attention/verify_cut.h"

#include "kit/message.h"
#include "kit/output.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP_ROWS = 16, KEEP_COLUMNS = 128 };

/* Outputs by bits, for cli_compare_some(). */
enum { BY_ROW = 1u << CLI_O | 1u << CLI_LSE | 1u << CLI_DQ, BY_KEY = 1u << CLI_DK | 1u << CLI_DV };

typedef struct cutting {
    const cli_cut_trial *t;
    cli_check *check;
    float *lse, *dk_sums, *dv_sums; /* lse of a piece; sums of a sequence */
    char *k, *v;                    /* a sequence's keys in pages, with --page */
    int32_t *table;
} cutting;

/* Some rows and columns of one sequence. */
typedef struct piece {
    int64_t sequence, row, rows, column, columns;
    bool placed; /* its shard says where it lies; else it is the last rows of its keys */
    bool paged;  /* its keys are in pages */
    bool forward, backward;
    unsigned carry;
} piece;

/* ---- memory of the backend ---- */

static int take(const cutting *x, size_t bytes, float **memory)
{
    const size_t room = (bytes + 256) / 256 * 256;
    if (x->t->stage->device)
        return cli_library(ordo_device_alloc((void **)memory, room));
    *memory = aligned_alloc(256, room);
    return *memory ? CLI_OK : cli_out_of_memory();
}

static void give(const cutting *x, float *memory)
{
    if (x->t->stage->device)
        (void)ordo_device_free(memory); /* a fault has been reported by then */
    else
        free(memory);
}

/* Between the whole's lse at `all` and that of a piece. */
static ordo_status copy_lse(const cutting *x, const piece *p, float *all, bool out)
{
    const cli_tensors *first = x->t->first;
    const cli_extent e = cli_tensors_extent(first, CLI_LSE, p->sequence);
    const size_t bytes = (size_t)p->rows * sizeof(float);
    ordo_status status = ORDO_OK;
    for (int64_t head = 0; head < e.heads && status == ORDO_OK; head++) {
        const float *place = cli_tensors_at(first, CLI_LSE, &e, p->row, head);
        float *whole = all + (place - (const float *)first->out[CLI_LSE]);
        float *part = x->lse + head * p->rows;
        if (x->t->stage->device)
            status = ordo_device_copy(out ? whole : part, out ? part : whole, bytes,
                                      x->t->stage->call.stream);
        else
            memcpy(out ? whole : part, out ? part : whole, bytes);
    }
    return status;
}

/* A tensor of the shape of `like`, from a row of a sequence on. */
static ordo_tensor view(const cutting *x, cli_output like, void *data, int64_t b, int64_t row)
{
    const cli_extent e = cli_tensors_extent(x->t->first, like, b);
    const int64_t by_row = e.heads * e.columns;
    return (ordo_tensor) { (char *)data + (size_t)((e.first + row) * by_row) * e.width,
                           { e.rows * by_row, by_row, e.columns, 1 } };
}

/* ---- pages ---- */

/* The pages of a table for all columns: twice as many as are used, those not used full of NaNs. */
static ordo_paging paging_of(const cutting *x)
{
    const int64_t rows = x->t->request->page, keys = x->t->first->problem.kv_len;
    const int64_t columns = (keys + rows - 1) / rows;
    return (ordo_paging) { rows, 2 * columns, columns };
}

/* The keys or values of a sequence into pages. */
static void fill_pages(const cutting *x, cli_output like, const void *data, int64_t b, char *pages)
{
    const cli_extent e = cli_tensors_extent(x->t->first, like, b);
    const ordo_paging p = paging_of(x);
    const size_t row = (size_t)(e.heads * e.columns) * e.width;
    memset(pages, 0xff, row * (size_t)(p.page_rows * p.pages)); /* a NaN in every type */
    for (int64_t r = 0; r < e.rows; r++)
        memcpy(pages + ((size_t)(x->table[r / p.page_rows] * p.page_rows + r % p.page_rows)) * row,
               (const char *)data + (size_t)(e.first + r) * row, row);
}

static int open_pages(cutting *x, int64_t b)
{
    const cli_tensors *first = x->t->first;
    const ordo_problem *p = &first->problem;
    const ordo_paging pages = paging_of(x);
    const size_t rows = (size_t)(pages.page_rows * pages.pages * p->kv_heads) * sizeof(float);
    if (x->k == NULL) {
        x->k = malloc(rows * (size_t)p->head_dim);
        x->v = malloc(rows * (size_t)p->v_head_dim);
        x->table = malloc((size_t)pages.table_columns * sizeof *x->table);
    }
    if (!x->k || !x->v || !x->table)
        return cli_out_of_memory();
    for (int64_t n = 0; n < pages.table_columns; n++) /* backwards, every other page */
        x->table[n] = (int32_t)(pages.pages - 1 - 2 * n);
    fill_pages(x, CLI_DK, first->k, b, x->k);
    fill_pages(x, CLI_DV, first->v, b, x->v);
    return CLI_OK;
}

/* ---- one piece ---- */

static ordo_call call_of(const cutting *x, const piece *p)
{
    const cli_stage *s = x->t->stage;
    const int64_t b = p->sequence;
    ordo_call c = s->call;
    c.q = view(x, CLI_DQ, c.q.data, b, p->row);
    c.k = view(x, CLI_DK, c.k.data, b, p->column);
    c.v = view(x, CLI_DV, c.v.data, b, p->column);
    c.dout = view(x, CLI_O, c.dout.data, b, p->row);
    c.o = view(x, CLI_O, p->forward ? s->out[CLI_O] : x->t->base->out[CLI_O], b, p->row);
    c.dq = view(x, CLI_DQ, s->out[CLI_DQ], b, p->row);
    c.dk = view(x, CLI_DK, s->out[CLI_DK], b, p->column);
    c.dv = view(x, CLI_DV, s->out[CLI_DV], b, p->column);
    c.lse = x->lse;
    c.cu_q = c.cu_kv = c.q_lens = c.kv_lens = NULL;
    c.sequence_ids = NULL;
    c.keep_bits = NULL;
    c.seed = x->t->request->job.problem.seed;
    c.offset = x->t->request->job.problem.offset;
    c.threads = (int)x->t->report->is.threads;
    c.carry = p->carry;
    c.dk_sums = p->carry ? x->dk_sums : NULL;
    c.dv_sums = p->carry ? x->dv_sums : NULL;
    c.dsink_parts = NULL; /* sums of rows that a problem has not */
    c.sink = p->column > 0 ? NULL : c.sink;
    return c;
}

static ordo_problem problem_of(const cutting *x, const piece *p)
{
    ordo_problem problem = x->t->first->problem;
    problem.layout = ORDO_DENSE;
    problem.batch = 1;
    problem.total_q = problem.total_kv = 0;
    problem.q_len = p->rows;
    problem.kv_len = p->columns > 0 ? p->columns : ORDO_NO_KEYS;
    problem.shard.batch0 += p->sequence;
    problem.shard.row0 = problem.shard.col0 = problem.shard.q_total = problem.shard.kv_total = 0;
    if (p->paged) { /* any length up to that of the whole */
        problem.layout = ORDO_PADDED;
        problem.kv_len = x->t->first->problem.kv_len;
        problem.paging = paging_of(x);
    }
    if (p->placed) {
        problem.shard.row0 = p->row;
        problem.shard.col0 = p->column;
        problem.shard.q_total = cli_tensors_extent(x->t->first, CLI_O, p->sequence).rows;
        problem.shard.kv_total = cli_tensors_extent(x->t->first, CLI_DK, p->sequence).rows;
    }
    return problem;
}

static ordo_status run_passes(const cutting *x, const piece *p, const ordo_plan *plan)
{
    const int32_t rows = (int32_t)p->rows, columns = (int32_t)p->columns;
    ordo_call call = call_of(x, p);
    ordo_status status = ORDO_OK;
    if (p->paged) {
        call.k = (ordo_tensor) { x->k, { 0 } };
        call.v = (ordo_tensor) { x->v, { 0 } };
        call.page_table = x->table;
        call.q_lens = &rows;
        call.kv_lens = &columns;
    }
    if (p->forward)
        status = ordo_attention_forward(plan, &call);
    else
        status = copy_lse(x, p, x->t->base->out[CLI_LSE], false);
    if (status == ORDO_OK && p->forward)
        status = copy_lse(x, p, x->t->stage->out[CLI_LSE], true);
    if (status == ORDO_OK && p->backward)
        status = ordo_attention_backward(plan, &call);
    return status;
}

/* Stop at what the backend refuses; the check then says why it was not run. */
static int run_piece(cutting *x, const piece *p)
{
    const cli_verify_request *r = x->t->request;
    const ordo_problem problem = problem_of(x, p);
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_plan_options options = r->job.options;
    options.segments = 0; /* segments belong to the whole */
    options.keep_bits_memory = 0;
    ordo_status status = ordo_plan_create(&plan, &problem, r->job.problem.machine, &options);
    if (status == ORDO_OK)
        status = ordo_plan_query(plan, &info);
    if (status == ORDO_OK && strcmp(info.numeric_key, x->t->info->numeric_key) != 0) {
        x->check->verdict = CLI_DIFFERS;
        snprintf(x->check->note, sizeof x->check->note, "another plan: %.100s, expected %.100s",
                 info.numeric_key, x->t->info->numeric_key);
    } else if (status == ORDO_OK) {
        status = run_passes(x, p, plan);
        x->check->runs++;
        x->t->report->runs++;
    }
    ordo_plan_destroy(plan);
    if (status != ORDO_ERR_UNSUPPORTED)
        return cli_library(status);
    x->check->verdict = CLI_NOT_RUN;
    snprintf(x->check->note, sizeof x->check->note, "%s", ordo_last_error());
    return CLI_OK;
}

/* ---- the kinds of cuts, for one sequence ---- */

/* Lengths of the whole; how many rows or columns each piece has, or how many parts there are. */
typedef int cutter(cutting *x, piece whole, int64_t size);

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int cut_rows(cutting *x, piece p, int64_t size)
{
    const int64_t rows = p.rows;
    int status = CLI_OK;
    for (p.row = 0; p.row < rows && status == CLI_OK && x->check->verdict == CLI_EQUAL;
         p.row += size) {
        p.rows = smaller(size, rows - p.row);
        status = run_piece(x, &p);
    }
    return status;
}

static int cut_columns(cutting *x, piece p, int64_t size)
{
    const int64_t columns = p.columns;
    int status = CLI_OK;
    p.forward = false; /* o and lse are those of whole rows */
    for (p.column = 0; p.column < columns && status == CLI_OK && x->check->verdict == CLI_EQUAL;
         p.column += size) {
        p.columns = smaller(size, columns - p.column);
        status = run_piece(x, &p);
    }
    return status;
}

static int cut_carried(cutting *x, piece p, int64_t parts)
{
    const int64_t rows = p.rows, tile = x->t->info->backward_tile.q;
    const int64_t tiles = (rows + tile - 1) / tile, most = smaller(parts, tiles);
    const bool down = x->t->info->order == ORDO_ORDER_DESCENDING;
    int status = CLI_OK;
    for (int64_t n = 0; n < most && status == CLI_OK && x->check->verdict == CLI_EQUAL; n++) {
        const int64_t part = down ? most - 1 - n : n;
        p.row = tiles * part / most * tile;
        p.rows = smaller(tiles * (part + 1) / most * tile, rows) - p.row;
        p.carry = (n > 0 ? ORDO_CARRY_IN : 0u) | (n + 1 < most ? ORDO_CARRY_OUT : 0u);
        status = run_piece(x, &p);
    }
    return status;
}

/* A row of a causal sequence gets the keys up to it, and no place. Other masks need the place of
 * the row, and with dropout rows come from the beginning of a block of keep bits on. */
static int cut_decode(cutting *x, piece p, int64_t unused)
{
    const ordo_problem *problem = &x->t->first->problem;
    const int64_t rows = p.rows, columns = p.columns;
    const bool dropout = problem->dropout.p > 0;
    const bool causal = problem->mask == ORDO_MASK_CAUSAL && !dropout;
    int status = CLI_OK;
    (void)unused;
    p.backward = false;
    p.paged = x->t->request->page > 0;
    if (p.paged)
        CLI_TRY(open_pages(x, p.sequence));
    for (int64_t i = 0; i < rows && status == CLI_OK && x->check->verdict == CLI_EQUAL; i++) {
        p.row = dropout ? i / KEEP_ROWS * KEEP_ROWS : i;
        p.rows = i + 1 - p.row;
        const int64_t seen = i + 1 + ordo_mask_diagonal(ORDO_MASK_CAUSAL, rows, columns);
        p.placed = !causal || (seen <= 0 && !p.paged);
        p.columns = p.placed ? columns : seen < 0 ? 0 : seen;
        status = run_piece(x, &p);
    }
    return status;
}

/* ---- checks ---- */

static int compare(cutting *x, unsigned outputs)
{
    cli_difference d;
    CLI_TRY(cli_stage_fetch(x->t->stage));
    if (x->check->verdict == CLI_EQUAL && cli_compare_some(x->t->first, x->t->again, outputs, &d)) {
        x->check->verdict = CLI_DIFFERS;
        x->check->located = true;
        x->check->difference = d;
        cli_difference_text(&x->t->first->problem, &d, x->check->note, sizeof x->check->note);
    }
    return CLI_OK;
}

static int check(cutting *x, const char *name, cutter *cut, int64_t size, unsigned outputs)
{
    const cli_cut_trial *t = x->t;
    int status = CLI_OK;
    x->check = cli_verify_add(t->report);
    snprintf(x->check->name, sizeof x->check->name, name, (int)size);
    if (!(t->info->kept & ORDO_PROMISE_CUT)) {
        x->check->verdict = CLI_NOT_RUN;
        snprintf(x->check->note, sizeof x->check->note, "not promised by this plan");
        return CLI_OK;
    }
    CLI_TRY(cli_stage_poison(t->stage));
    cli_progress_start(x->check->name);
    for (int64_t b = 0; b < t->first->problem.batch && status == CLI_OK; b++) {
        piece whole = { .sequence = b,
                        .rows = cli_tensors_extent(t->first, CLI_O, b).rows,
                        .columns = cli_tensors_extent(t->first, CLI_DK, b).rows,
                        .forward = true,
                        .backward = true };
        whole.placed = whole.rows > 0 && whole.columns > 0; /* else there is nothing to cut */
        status = whole.placed ? cut(x, whole, size) : run_piece(x, &whole);
    }
    cli_progress_stop();
    return status == CLI_OK ? compare(x, outputs) : status;
}

static int check_all(cutting *x)
{
    const bool dropout = x->t->first->problem.dropout.p > 0;
    const unsigned all = BY_ROW | BY_KEY;
    switch ((cli_cut)x->t->request->cut) {
    case CLI_CUT_ROWS:
        CLI_TRY(check(x, "pieces of %d rows", cut_rows, dropout ? 7 * KEEP_ROWS : 100, BY_ROW));
        CLI_TRY(check(x, "%d parts of rows, sums carried", cut_carried, 2, all));
        CLI_TRY(check(x, "%d parts of rows, sums carried", cut_carried, 3, all));
        return check(x, "%d parts of rows, sums carried", cut_carried, 5, all);
    case CLI_CUT_COLUMNS:
        CLI_TRY(check(x, "pieces of %d columns", cut_columns, KEEP_COLUMNS, BY_KEY));
        return check(x, "pieces of %d columns", cut_columns, 3 * KEEP_COLUMNS, BY_KEY);
    case CLI_CUT_DECODE:
        return check(x,
                     dropout                   ? "each row from its block on"
                     : x->t->request->page > 0 ? "each row, keys in pages of %d"
                                               : "each row alone",
                     cut_decode, x->t->request->page > 0 ? x->t->request->page : 1,
                     1u << CLI_O | 1u << CLI_LSE);
    }
    return CLI_OK;
}

int cli_verify_cut(const cli_cut_trial *t)
{
    const ordo_problem *p = &t->first->problem;
    const size_t keys = (size_t)(p->kv_len * p->kv_heads) * sizeof(float);
    cutting x = { .t = t };
    int status = take(&x, (size_t)(p->q_len * p->heads) * sizeof(float), &x.lse);
    if (status == CLI_OK)
        status = take(&x, keys * (size_t)p->head_dim, &x.dk_sums);
    if (status == CLI_OK)
        status = take(&x, keys * (size_t)p->v_head_dim, &x.dv_sums);
    if (status == CLI_OK)
        status = check_all(&x);
    free(x.k);
    free(x.v);
    free(x.table);
    give(&x, x.lse);
    give(&x, x.dk_sums);
    give(&x, x.dv_sums);
    return status;
}
