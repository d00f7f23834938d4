/* grid_test.c: the promise over the grid of features.
 *
 *   grid_test [--backend cpu] [--fixed] [--seed S] [--count N] [--repeats R] [--only N]
 *             [--seconds T] [--hang T] [--longest ROWS] [--work MILLIONS] [--with WORDS]
 *             [--without WORDS] [--threads N] [--together] [--json]
 *
 * Draws combinations of dtype, head size, lengths, groups of heads, mask, window, layout, dropout,
 * softcap, ALiBi, sinks, block mask, gradient of lse and place in a larger problem, or takes those
 * of grid_fixed.h, and holds forward and backward of each
 *
 *   oracle    within the bounds of grid_oracle.h of backend ref; every output written, and nothing
 *             between them
 *   repeat    the same bits from every repeat, whatever the workspace holds
 *   portable  from plans for 132, 78 and 1 workers, with less workspace, and either order of issue
 *   batch     for one sequence alone, dense and packed, and beside others that are NaN
 *   layout    packed, padded and dense
 *   split     in two shards of heads, in two of the batch
 *   cut       of rows alone, of columns alone, of rows whose sums are carried, of a decoded row
 *   mask      from bits given and bits made inside; the bits of the device and of the host
 *   segments  from passes in segments of rows that make their bits, on one stream or two
 *   dropped   and the positions read back are the exporter's
 *
 * Every failure prints a line with the command that repeats it. What the backend refuses is counted
 * by message, and is no pass; a fixed combination that CUDA refuses has failed. Threads draw and
 * ask the oracle; one of them at a time has the device, unless --together. Exit 1 after a failure,
 * or if nothing passed; 77 without a device. */
#include "grid_cut.h"
#include "grid_probe.h"
#include "grid_session.h"

#include <pthread.h>
#include <stdarg.h>

/* One combination in work. */
typedef struct trial {
    session *s;
    int64_t number;
    grid_lab lab;
    grid_image whole, other;
    grid_case c;
    ordo_plan *plan;
    ordo_plan_info info;
    bool failed, refused;
    int64_t passes;
} trial;

/* ---- what is found ---- */

__attribute__((format(printf, 3, 4))) static void fail(trial *t, const char *level,
                                                       const char *format, ...)
{
    char what[TEXT_SIZE], about[TEXT_SIZE], line[3 * TEXT_SIZE];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(what, sizeof what, format, list);
    va_end(list);
    session *s = t->s;
    grid_describe(&t->c, about, sizeof about);
    const int used = snprintf(line, sizeof line, "FAIL %s: %s; %s; ", level, what, about);
    say_again(s, t->number, line + used, sizeof line - (size_t)used);
    pthread_mutex_lock(&s->lock);
    t->failed = true;
    if (s->failure_count < FAILURES_MAX)
        s->failures[s->failure_count++] = strdup(line);
    fprintf(s->json ? stderr : stdout, "%s\n", line);
    fflush(stdout);
    pthread_mutex_unlock(&s->lock);
}

static void refuse(trial *t, const char *level)
{
    char text[TEXT_SIZE];
    const char *said = ordo_last_error();
    int at = snprintf(text, sizeof text, "%s: ", level);
    for (; *said && at < TEXT_SIZE - 1; said++) {
        const bool digit = *said >= '0' && *said <= '9';
        if (!digit || text[at - 1] != '#')
            text[at++] = digit ? '#' : *said;
    }
    text[at] = 0;
    session *s = t->s;
    pthread_mutex_lock(&s->lock);
    t->refused = true;
    int x = 0;
    while (x < s->refusal_count && strcmp(s->refusals[x].text, text) != 0)
        x++;
    if (x < REFUSALS_MAX) {
        s->refusals[x].count++;
        if (x == s->refusal_count) {
            s->refusal_count++;
            memcpy(s->refusals[x].text, text, sizeof text);
            s->refusals[x].first = t->number;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

/* True if a call went well; else it was refused, or has failed. */
static bool fine(trial *t, const char *level, ordo_status status)
{
    if (status == ORDO_ERR_UNSUPPORTED)
        refuse(t, level);
    else if (status != ORDO_OK)
        fail(t, level, "%s: %s", ordo_status_name(status), ordo_last_error());
    if (status == ORDO_ERR_DEVICE) { /* nothing works after that */
        fflush(NULL);
        _Exit(1);
    }
    return status == ORDO_OK;
}

static void fail_at(trial *t, const char *level, const char *how, const grid_place *at)
{
    fail(t, level, "%s: %s(sequence %d, head %d, row %d, %d) is %#x, in the whole %#x", how,
         grid_tensors[at->tensor].name, (int)at->sequence, (int)at->head, (int)at->row,
         (int)at->column, at->bits, at->expected);
}

/* ---- passes ---- */

/* For --wrong: one bit of o, on the way, of the first row there is. */
static void spoil(trial *t, const grid_image *image, const grid_case *c)
{
    for (int64_t b = 0; b < c->problem.batch; b++)
        if (c->q_lens[b] > 0) {
            unsigned char *at =
                image->memory.at + image->at[GRID_O] + grid_at(c, GRID_O, b, 0, 0) + 1;
            unsigned char byte;
            grid_move(&t->lab, &byte, at, 1);
            byte ^= 0x40;
            grid_move(&t->lab, at, &byte, 1);
            return;
        }
}

static bool run(trial *t, const char *level, grid_image *image, const grid_case *c,
                const ordo_plan *plan)
{
    static const int poisons[] = { 0xff, 0, 0xa5 };
    t->passes++;
    pthread_mutex_lock(&t->s->lock);
    t->s->on_device = t->number;
    t->s->level = level;
    t->s->since = seconds_since(&t->s->start);
    pthread_mutex_unlock(&t->s->lock);
    const int poison = poisons[t->passes % 3], threads = 1 + (int)(t->passes % 3);
    if (!fine(t, level, grid_run(&t->lab, image, plan, poison, threads)))
        return false;
    if (t->s->wrong && strcmp(t->s->wrong, level) == 0)
        spoil(t, image, c);
    return true;
}

/* Rows past the end of a padded sequence: o = 0, lse = -inf, gradients 0. */
static void check_padding(trial *t, const char *level, const grid_case *c)
{
    for (int tensor = GRID_OUTPUTS; tensor < GRID_TENSORS; tensor++) {
        const bool keys = grid_tensors[tensor].keys;
        const uint32_t expected = tensor == GRID_LSE ? 0xff800000 : 0;
        for (int64_t b = 0; b < c->problem.batch; b++)
            for (int64_t r = grid_length(c, keys, b); r < grid_space(c, keys, b); r++)
                for (int64_t h = 0; h < grid_heads(c, tensor); h++)
                    for (int64_t d = 0; d < grid_dim(c, tensor); d++) {
                        const size_t at = grid_at(c, tensor, b, r, h);
                        const uint32_t bits =
                            grid_bits(c, tensor, at + (size_t)d * grid_width(tensor));
                        if (bits != expected) {
                            const grid_place place = { tensor, b, h, r, d, bits, expected };
                            fail_at(t, level, "padding", &place);
                            return;
                        }
                    }
    }
}

/* A case made from the whole, with the whole's numeric key, run by a plan of its own. */
static bool run_other(trial *t, const char *level, const char *how, grid_case *c,
                      ordo_problem *resolved)
{
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    const bool ran = fine(t, level, grid_plan(&t->lab, c, 0, ORDO_ISSUE_DEFAULT, &plan)) &&
                     fine(t, level, ordo_plan_query(plan, &info)) &&
                     fine(t, level, ordo_plan_problem(plan, resolved)) &&
                     fine(t, level, grid_load(&t->lab, &t->other, c)) &&
                     run(t, level, &t->other, c, plan);
    if (ran && strcmp(info.numeric_key, t->info.numeric_key) != 0)
        fail(t, level, "%s: key %s, in the whole %s", how, info.numeric_key, t->info.numeric_key);
    if (ran && !grid_fetch(&t->lab, &t->other, c))
        fail(t, level, "%s: written past the end of an output", how);
    ordo_plan_destroy(plan);
    return ran;
}

/* Part of the case, or all of it in another way, has the bits of the whole. */
static void check_same(trial *t, const char *level, const char *how, grid_part part, bool swap_bits)
{
    grid_case c;
    ordo_problem resolved = ORDO_PROBLEM_INIT;
    grid_place at;
    grid_part_of(&c, &t->c, &part);
    c.bits_given = swap_bits ? !c.bits_given : c.bits_given;
    if (run_other(t, level, how, &c, &resolved)) {
        int64_t sequence, head;
        if (grid_differ(&t->c, &c, &part, &at))
            fail_at(t, level, how, &at);
        else if (grid_sinks_differ(&t->c, &c, &part, &sequence, &head))
            fail(t, level, "%s: dsink_parts(sequence %d, head %d) has other bits", how,
                 (int)sequence, (int)head);
        else
            check_padding(t, level, &c);
    }
    grid_close(&c);
}

/* ---- the levels ---- */

/* Outputs that were kept are there again; else say where not. */
static bool kept_again(trial *t, const char *level, const char *how)
{
    if (grid_outputs_kept(&t->lab, &t->whole))
        return true;
    grid_case c = t->c;
    c.mask = NULL;
    grid_part all = { c.problem.layout, 0, c.problem.batch, 0, c.problem.kv_heads };
    grid_place at = { 0 };
    for (int x = 0; x < GRID_TENSORS; x++)
        c.data[x] = malloc(grid_bytes(&c, x) + 1);
    (void)grid_fetch(&t->lab, &t->whole, &c);
    if (grid_differ(&t->c, &c, &all, &at))
        fail_at(t, level, how, &at);
    else
        fail(t, level, "%s: padding, or memory around an output", how);
    grid_close(&c);
    return false;
}

static void check_repeat(trial *t)
{
    for (int64_t x = 0; x < t->s->repeats; x++) {
        char how[32];
        (void)snprintf(how, sizeof how, "repeat %d", (int)x + 1);
        if (!run(t, "repeat", &t->whole, &t->c, t->plan) || !kept_again(t, "repeat", how))
            return;
    }
}

static void check_portable(trial *t)
{
    static const struct {
        int64_t workers;
        ordo_issue issue;
    } kinds[] = { { 132, ORDO_ISSUE_DEFAULT }, { 78, ORDO_ISSUE_HEAD }, { 1, ORDO_ISSUE_KEY } };
    for (size_t x = 0; x < sizeof kinds / sizeof kinds[0]; x++) {
        ordo_plan *plan = NULL;
        ordo_plan_info info = ORDO_PLAN_INFO_INIT;
        char how[32];
        (void)snprintf(how, sizeof how, "%d workers", (int)kinds[x].workers);
        const bool ran = fine(t, "portable",
                              grid_plan(&t->lab, &t->c, kinds[x].workers, kinds[x].issue, &plan)) &&
                         fine(t, "portable", ordo_plan_query(plan, &info)) &&
                         run(t, "portable", &t->whole, &t->c, plan);
        ordo_plan_destroy(plan);
        if (ran && strcmp(info.numeric_key, t->info.numeric_key) != 0)
            fail(t, "portable", "%s: key %s, else %s", how, info.numeric_key, t->info.numeric_key);
        if (ran && !kept_again(t, "portable", how))
            return;
    }
}

static bool dense_alone(const grid_case *c, int64_t b)
{
    return c->q_lens[b] > 0 && c->kv_lens[b] > 0;
}

static void check_alone(trial *t, int64_t b)
{
    if (dense_alone(&t->c, b))
        check_same(t, "batch", "alone, dense", (grid_part) { ORDO_DENSE, b, 1, 0, 0 }, false);
    check_same(t, "batch", "alone, packed", (grid_part) { ORDO_PACKED, b, 1, 0, 0 }, false);
}

/* One sequence of a drawn combination, each of a fixed one; and one beside NaN. */
static void check_batch(trial *t, uint64_t *state)
{
    const int64_t batch = t->c.problem.batch, one = check_between(state, 0, batch - 1);
    for (int64_t b = t->s->fixed ? 0 : one; b <= (t->s->fixed ? batch - 1 : one); b++)
        check_alone(t, b);
    if (batch > 1)
        check_same(t, "batch", "beside NaN",
                   (grid_part) { .layout = t->c.problem.layout, .lone = true, .sane = one }, false);
}

static void check_layout(trial *t)
{
    static const char *const names[] = { "dense", "packed", "padded" };
    for (int layout = ORDO_PACKED; layout <= ORDO_PADDED; layout++)
        if (layout != (int)t->c.problem.layout)
            check_same(t, "layout", names[layout], (grid_part) { .layout = (ordo_layout)layout },
                       false);
}

static void check_split(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    const ordo_layout layout = p->layout;
    if (p->kv_heads > 1) {
        const int64_t cut = check_between(state, 1, p->kv_heads - 1);
        check_same(t, "split", "first heads", (grid_part) { layout, 0, 0, 0, cut }, false);
        check_same(t, "split", "last heads", (grid_part) { layout, 0, 0, cut, p->kv_heads - cut },
                   false);
    }
    if (p->batch > 1) {
        const int64_t cut = check_between(state, 1, p->batch - 1);
        check_same(t, "split", "first sequences", (grid_part) { layout, 0, cut, 0, 0 }, false);
        check_same(t, "split", "last sequences", (grid_part) { layout, cut, p->batch - cut, 0, 0 },
                   false);
    }
}

/* ---- cuts ---- */

/* Rows or columns of a sequence, or one row without its place, as a problem of their own. */
static void check_rows(trial *t, const char *how, grid_piece_place x)
{
    grid_case c;
    ordo_problem resolved = ORDO_PROBLEM_INIT;
    grid_place at;
    grid_piece_of(&c, &t->c, &x);
    if (run_other(t, "cut", how, &c, &resolved) &&
        grid_piece_differs(&t->c, &c, &x, GRID_BY_ROW, &at))
        fail_at(t, "cut", how, &at);
    grid_close(&c);
}

/* A backward pass over a piece, from o and lse of the whole; results in `c`. */
static bool run_backward(trial *t, const char *how, grid_case *c, unsigned carry)
{
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    t->passes++;
    const bool ran =
        fine(t, "cut", grid_plan(&t->lab, c, 0, ORDO_ISSUE_DEFAULT, &plan)) &&
        fine(t, "cut", ordo_plan_query(plan, &info)) &&
        fine(t, "cut", grid_load(&t->lab, &t->other, c)) &&
        fine(t, "cut",
             grid_run_backward(&t->lab, &t->other, c, plan, carry, 1 + (int)(t->passes % 3)));
    if (ran && strcmp(info.numeric_key, t->info.numeric_key) != 0)
        fail(t, "cut", "%s: key %s, in the whole %s", how, info.numeric_key, t->info.numeric_key);
    if (ran && !grid_fetch(&t->lab, &t->other, c))
        fail(t, "cut", "%s: written past the end of an output", how);
    ordo_plan_destroy(plan);
    return ran;
}

static void check_columns(trial *t, grid_piece_place x)
{
    grid_case c;
    grid_place at;
    grid_piece_of(&c, &t->c, &x);
    if (run_backward(t, "columns", &c, 0) && grid_piece_differs(&t->c, &c, &x, GRID_BY_KEY, &at))
        fail_at(t, "cut", "columns", &at);
    grid_close(&c);
}

/* All rows of a sequence in two or three parts at tiles, in the order of the plan. */
static void check_carried(trial *t, grid_piece_place all, uint64_t *state)
{
    const int64_t tile = t->info.backward_tile.q, tiles = (all.rows + tile - 1) / tile;
    const int64_t parts = tiles < 3 ? tiles : check_between(state, 2, 3);
    const int64_t middle = parts < 3 ? tiles : check_between(state, 2, tiles - 1);
    const int64_t cuts[] = { 0, parts < 2 ? tiles : check_between(state, 1, middle - 1), middle,
                             tiles };
    const bool down = t->info.order == ORDO_ORDER_DESCENDING;
    for (int64_t n = 0; parts > 1 && n < parts; n++) {
        const int64_t part = down ? parts - 1 - n : n;
        const bool last = n + 1 == parts;
        grid_piece_place x = all;
        grid_case c;
        grid_place at;
        x.row = cuts[part] * tile;
        x.rows = (cuts[part + 1] * tile < all.rows ? cuts[part + 1] * tile : all.rows) - x.row;
        grid_piece_of(&c, &t->c, &x);
        const bool ran = run_backward(t, "carried", &c,
                                      (n > 0 ? ORDO_CARRY_IN : 0u) | (last ? 0u : ORDO_CARRY_OUT));
        if (ran && grid_piece_differs(&t->c, &c, &x,
                                      1u << GRID_DQ | (last ? (unsigned)GRID_BY_KEY : 0u), &at))
            fail_at(t, "cut", "carried", &at);
        grid_close(&c);
        if (!ran)
            return;
    }
}

/* Row i of a causal sequence with the keys that it sees, as decoding computes it. */
static void check_decode(trial *t, grid_piece_place all, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    const int64_t i = check_between(state, 0, all.rows - 1);
    all.decode = true;
    all.row = i;
    all.columns += i + 1 - all.rows;
    all.rows = 1;
    if (p->mask == ORDO_MASK_CAUSAL && p->dropout.p == 0 && !grid_cut(&t->c) && all.columns > 0)
        check_rows(t, "decoded", all);
}

static void check_cut(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    const bool sparse = t->c.blocks.kind == GRID_SPARSE; /* cut at blocks only */
    const int64_t b = check_between(state, 0, p->batch - 1);
    const int64_t step = sparse ? ORDO_BLOCK : p->dropout.p > 0 ? 16 : 1;
    const grid_piece_place all = { .sequence = b,
                                   .rows = t->c.q_lens[b],
                                   .columns = t->c.kv_lens[b] };
    const ordo_order order = t->info.order_asked;
    const bool cyclic = order == ORDO_ORDER_SHIFT || order == ORDO_ORDER_SYMMETRIC;
    if (all.rows == 0 || all.columns == 0 || cyclic) /* which keep o and lse only */
        return;
    grid_piece_place rows = all, columns = all;
    rows.row = check_between(state, 0, (all.rows - 1) / step) * step;
    rows.rows = check_between(state, 1, all.rows - rows.row);
    check_rows(t, "rows", rows);
    columns.column = 128 * check_between(state, 0, (all.columns - 1) / 128);
    columns.columns -= columns.column;
    if (columns.columns > 128 && check_between(state, 0, 1))
        columns.columns = 128;
    check_columns(t, columns);
    if (sparse)
        return;
    if (t->info.kept & ORDO_PROMISE_CUT && !grid_cut(&t->c))
        check_carried(t, all, state);
    check_decode(t, all, state);
}

/* Bits that the device made are those of the host. */
static void check_device_bits(trial *t)
{
    ordo_dropout_info info;
    const ordo_dropout_call call = grid_dropout_call(&t->c);
    grid_image whole = t->whole;
    grid_must(ordo_dropout_query(&t->c.problem, &call, &info), "ordo_dropout_query");
    uint32_t *host = malloc(info.bytes + 1), *made = malloc(info.bytes + 1);
    if (!host || !made)
        abort();
    grid_must(ordo_dropout_fill(&t->c.problem, &call, 0, info.blocks, host, info.bytes),
              "ordo_dropout_fill");
    if (fine(t, "mask", grid_make_bits(&t->lab, &whole, &t->c))) {
        grid_move(&t->lab, made, t->lab.bits.at, info.bytes);
        for (size_t x = 0; x < info.bytes / 4; x++)
            if (made[x] != host[x]) {
                fail(t, "mask", "word %zu is %#x, on the host %#x", x, made[x], host[x]);
                break;
            }
    }
    free(host);
    free(made);
}

static void check_mask(trial *t)
{
    if (t->c.problem.dropout.p == 0)
        return;
    const ordo_problem *p = &t->c.problem;
    if (!t->s->cuda || !grid_by_phases(p)) /* else no pass makes them */
        check_same(t, "mask", t->c.bits_given ? "bits made inside" : "bits given",
                   (grid_part) { .layout = p->layout }, true);
    if (t->s->cuda)
        check_device_bits(t);
}

/* A number of segments that the rows can have: up to six. */
static int64_t draw_segments(const trial *t, uint64_t *state)
{
    int64_t unit = t->info.backward_tile.q;
    while (unit % 16 != 0)
        unit += t->info.backward_tile.q;
    const int64_t units = (t->c.problem.q_len + unit - 1) / unit;
    const int64_t asked = check_between(state, 1, units < 6 ? units : 6);
    const int64_t each = (units + asked - 1) / asked;
    return (units + each - 1) / each;
}

static void check_segments(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    char how[40];
    if (p->dropout.p == 0 || p->layout != ORDO_DENSE || t->c.mask ||
        !(t->info.kept & ORDO_PROMISE_CUT))
        return;
    options.backend = t->info.backend;
    options.order = t->c.order;
    options.segments = draw_segments(t, state);
    (void)snprintf(how, sizeof how, "%d segments", (int)options.segments);
    const uint32_t *const bits = t->whole.call.mask_bits;
    t->whole.call.mask_bits = NULL;
    t->whole.call.side_stream = check_between(state, 0, 1) ? t->lab.side : NULL;
    if (fine(t, "segments", ordo_plan_create(&plan, p, t->lab.machine, &options)) &&
        run(t, "segments", &t->whole, &t->c, plan))
        (void)kept_again(t, "segments", how);
    t->whole.call.mask_bits = bits;
    ordo_plan_destroy(plan);
}

static void check_dropped(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    grid_part all = { .layout = p->layout };
    grid_probe probe = { check_between(state, 0, p->kv_len - 1),
                         check_between(state, 0, p->q_len - 1),
                         check_between(state, 0, p->heads / p->kv_heads - 1) };
    ordo_problem resolved = ORDO_PROBLEM_INIT;
    grid_wrong_drop wrong;
    grid_case c;
    if (p->dropout.p == 0)
        return;
    grid_part_of(&c, &t->c, &all);
    c.sinks = false; /* a large one leaves nothing to read */
    grid_probe_fill(&c, &probe);
    if (run_other(t, "dropped", "probe", &c, &resolved) &&
        grid_probe_wrong(&c, &resolved, &probe, &wrong))
        fail(t, "dropped", "sequence %d, head %d, row %d, column %d: %s by the %s pass",
             (int)wrong.sequence, (int)wrong.head, (int)wrong.row, (int)wrong.column,
             wrong.kept ? "dropped" : "kept", wrong.backward ? "backward" : "forward");
    grid_close(&c);
}

static void check_oracle(trial *t)
{
    grid_errors e;
    char all[120];
    size_t used = 0;
    int first = 0;
    grid_compare(&t->c, &e);
    for (int x = GRID_OUTPUTS; x < GRID_TENSORS; x++) {
        used += (size_t)snprintf(all + used, sizeof all - used, " %s %zu", grid_tensors[x].name,
                                 e.wrong[x]);
        if (first == 0 && (e.element[x] > 1 || e.mean[x] > 1))
            first = x;
    }
    if (first > 0 && e.element[first] > 1) {
        const grid_place at = e.at[first];
        fail(t, "oracle",
             "%s(sequence %d, head %d, row %d, %d) is %.9g, exactly %.9g: %.3g times what is "
             "allowed; wrong elements:%s",
             grid_tensors[first].name, (int)at.sequence, (int)at.head, (int)at.row, (int)at.column,
             e.got[first], e.exact[first], e.element[first], all);
    } else if (first > 0) {
        fail(t, "oracle", "%s: root mean square error %.3g times what is allowed",
             grid_tensors[first].name, e.mean[first]);
    } else if (e.dsink > 1) {
        fail(t, "oracle", "dsink_parts[%d] is %.9g: %.3g times off what is allowed",
             (int)e.dsink_at, (double)t->c.dsink_parts[e.dsink_at], e.dsink);
    } else if (!e.dsink_summed) {
        fail(t, "oracle", "dsink is not the sum of dsink_parts");
    }
    session *s = t->s;
    pthread_mutex_lock(&s->lock);
    for (int x = GRID_OUTPUTS; x < GRID_TENSORS; x++) {
        s->worst[x] = fmax(s->worst[x], e.element[x]);
        s->mean[x] = fmax(s->mean[x], e.mean[x]);
    }
    s->worst_dsink = fmax(s->worst_dsink, e.dsink);
    pthread_mutex_unlock(&s->lock);
}

/* Everything that runs on the backend. False if the combination does not run at all. */
static bool check_bits(trial *t)
{
    uint64_t state = t->c.seed;
    t->info = (ordo_plan_info)ORDO_PLAN_INFO_INIT;
    if (!fine(t, "plan", grid_plan(&t->lab, &t->c, 0, ORDO_ISSUE_DEFAULT, &t->plan)) ||
        !fine(t, "plan", ordo_plan_query(t->plan, &t->info)) ||
        !fine(t, "call", grid_load(&t->lab, &t->whole, &t->c)) ||
        !run(t, "call", &t->whole, &t->c, t->plan))
        return false;
    if (t->info.not_kept & ~(unsigned)ORDO_PROMISE_CUT) /* some orders */
        fail(t, "plan", "levels %#x are not kept: %s", t->info.not_kept, t->info.note);
    if (t->s->wrong && strcmp(t->s->wrong, "oracle") == 0)
        spoil(t, &t->whole, &t->c);
    if (!grid_fetch(&t->lab, &t->whole, &t->c))
        fail(t, "oracle", "written past the end of an output");
    grid_keep_outputs(&t->lab, &t->whole);
    check_repeat(t);
    check_portable(t);
    check_batch(t, &state);
    check_layout(t);
    check_split(t, &state);
    check_mask(t);
    check_dropped(t, &state);
    check_cut(t, &state);
    check_segments(t, &state);
    return true;
}

/* How many of the words, and how many of them a description has. */
static int count_words(const char *words, const char *about, int *found)
{
    int count = 0;
    *found = 0;
    for (size_t length; words && *words; words += length + (words[length] == ',')) {
        char word[TEXT_SIZE];
        length = strcspn(words, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, words);
        *found += strstr(about, word) != NULL;
        count++;
    }
    return count;
}

static bool asked_for(const session *s, const grid_case *c)
{
    char about[TEXT_SIZE];
    int found, bad;
    grid_describe(c, about, sizeof about);
    (void)count_words(s->without, about, &bad);
    return count_words(s->with, about, &found) == found && bad == 0;
}

static void check_combination(trial *t)
{
    session *s = t->s;
    t->plan = NULL;
    t->failed = t->refused = false;
    t->passes = 0;
    (s->fixed ? grid_fix : grid_draw)(&t->c, &s->limits, t->number);
    if (!asked_for(s, &t->c)) {
        pthread_mutex_lock(&s->lock);
        s->left_out++;
        pthread_mutex_unlock(&s->lock);
        grid_close(&t->c);
        return;
    }
    if (!s->together)
        pthread_mutex_lock(&s->device);
    const bool ran = check_bits(t);
    pthread_mutex_lock(&s->lock);
    s->level = NULL;
    pthread_mutex_unlock(&s->lock);
    if (!s->together)
        pthread_mutex_unlock(&s->device);
    if (ran)
        check_oracle(t);
    else if (s->fixed && s->cuda && !t->failed)
        fail(t, "plan", "refused, but a fixed combination must run: %s", ordo_last_error());
    pthread_mutex_lock(&s->lock);
    s->failed += t->failed;
    s->refused += !t->failed && !ran;
    s->passed += !t->failed && ran;
    s->in_part += !t->failed && ran && t->refused;
    s->passes += t->passes;
    pthread_mutex_unlock(&s->lock);
    ordo_plan_destroy(t->plan);
    grid_close(&t->c);
}

/* ---- threads ---- */

static int64_t take_number(session *s)
{
    int64_t number = -1;
    pthread_mutex_lock(&s->lock);
    if (s->next < s->count && (s->seconds == 0 || seconds_since(&s->start) < (double)s->seconds))
        number = s->only >= 0 ? s->only : s->next;
    s->next += number >= 0;
    pthread_mutex_unlock(&s->lock);
    return number;
}

static void *work(void *argument)
{
    trial t = { .s = argument };
    t.lab.cuda = t.s->cuda;
    if (t.lab.cuda) {
        grid_must(ordo_device_select(0), "ordo_device_select");
        grid_must(ordo_device_stream_create(&t.lab.stream), "ordo_device_stream_create");
        grid_must(ordo_device_stream_create(&t.lab.side), "ordo_device_stream_create");
        grid_must(ordo_device_machine(0, &t.lab.machine), "ordo_device_machine");
    }
    for (t.number = take_number(t.s); t.number >= 0; t.number = take_number(t.s))
        check_combination(&t);
    grid_piece *const pieces[] = { &t.lab.workspace, &t.lab.bits,     &t.lab.copy,
                                   &t.lab.sums,      &t.whole.memory, &t.other.memory };
    for (size_t x = 0; x < sizeof pieces / sizeof pieces[0]; x++)
        grid_release(&t.lab, pieces[x]);
    ordo_machine_destroy(t.lab.machine);
    if (t.lab.cuda) {
        grid_must(ordo_device_stream_destroy(t.lab.stream), "ordo_device_stream_destroy");
        grid_must(ordo_device_stream_destroy(t.lab.side), "ordo_device_stream_destroy");
    }
    return NULL;
}

/* A pass that does not end cannot be stopped, but named. */
static void look_for_hang(const session *s)
{
    char again[TEXT_SIZE];
    if (!s->cuda || s->together || !s->level ||
        seconds_since(&s->start) - s->since < (double)s->hang)
        return;
    say_again(s, s->on_device, again, sizeof again);
    printf("FAIL hang: %s: a pass does not end; %s\n", s->level, again);
    fflush(stdout);
    _Exit(1);
}

/* Say how far it is, every few seconds, until told to stop. */
static void *say(void *argument)
{
    session *s = argument;
    double next = SAY_SECONDS;
    for (bool over = false; !over;) {
        nanosleep(&(struct timespec) { .tv_nsec = 50000000 }, NULL);
        pthread_mutex_lock(&s->lock);
        over = s->threads == 0;
        look_for_hang(s);
        if (!over && seconds_since(&s->start) > next) {
            next += SAY_SECONDS;
            fprintf(stderr,
                    "grid_test: %" PRId64 " of %" PRId64 ", %" PRId64 " failed, %" PRId64
                    " refused; at %" PRId64 "; %.0f s\n",
                    s->passed + s->failed + s->refused + s->left_out, s->count, s->failed,
                    s->refused, s->on_device, seconds_since(&s->start));
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void run_all(session *s)
{
    const long count = s->threads;
    pthread_t saying, *threads = calloc((size_t)count, sizeof *threads);
    if (!threads || pthread_create(&saying, NULL, say, s) != 0)
        abort();
    clock_gettime(CLOCK_MONOTONIC, &s->start);
    for (long x = 0; x < count; x++)
        if (pthread_create(&threads[x], NULL, work, s) != 0)
            abort();
    for (long x = 0; x < count; x++)
        pthread_join(threads[x], NULL);
    pthread_mutex_lock(&s->lock);
    s->threads = 0;
    pthread_mutex_unlock(&s->lock);
    pthread_join(saying, NULL);
    free(threads);
}

int main(int argc, char **argv)
{
    session s = {
        .limits = { .seed = 1, .longest = 700, .work = 200 },
        .count = 2000,
        .repeats = 20,
        .hang = 30,
        .only = -1,
        .threads = sysconf(_SC_NPROCESSORS_ONLN),
        .cuda = true,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .device = PTHREAD_MUTEX_INITIALIZER,
    };
    const char *why = "";
    parse(&s, argc, argv);
    if (s.cuda && !ordo_backend_available(ORDO_BACKEND_CUDA, &why)) {
        printf("grid_test: skipped: %s\n", why);
        return 77;
    }
    s.together = s.together || !s.cuda;
    run_all(&s);
    const double seconds = seconds_since(&s.start);
    (s.json ? print_json : print_text)(&s, seconds);
    for (int x = 0; x < s.failure_count; x++)
        free(s.failures[x]);
    return s.failed > 0 || s.passed == 0;
}
