/* grid_levels.h: the levels of the promise for one combination: the bits of its first pass, in all
 * the ways that must not change them. */
#ifndef TESTS_CUDA_GRID_LEVELS_H
#define TESTS_CUDA_GRID_LEVELS_H

#include "grid_cut.h"
#include "grid_probe.h"
#include "grid_trial.h"

/* ---- the levels ---- */

/* Outputs that were kept are there again; else say where not. */
static inline bool kept_again(trial *t, const char *level, const char *how)
{
    if (grid_outputs_kept(&t->lab, &t->whole))
        return true;
    grid_case c = t->c;
    c.mask = NULL;
    c.dbias = malloc(grid_dbias_bytes(&c) + 1);
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

static inline void check_repeat(trial *t)
{
    for (int64_t x = 0; x < t->s->repeats; x++) {
        char how[32];
        (void)snprintf(how, sizeof how, "repeat %d", (int)x + 1);
        if (!run(t, "repeat", &t->whole, &t->c, t->plan) || !kept_again(t, "repeat", how))
            return;
    }
}

static inline void check_portable(trial *t)
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

static inline bool dense_alone(const grid_case *c, int64_t b)
{
    return c->q_lens[b] > 0 && c->kv_lens[b] > 0;
}

/* A layout of sequences of any lengths. */
static inline ordo_layout ragged(const grid_case *c)
{
    return c->bias.on ? ORDO_PADDED : ORDO_PACKED; /* packed sequences have no bias */
}

static inline void check_alone(trial *t, int64_t b)
{
    if (dense_alone(&t->c, b))
        check_same(t, "batch", "alone, dense", (grid_part) { ORDO_DENSE, b, 1, 0, 0 });
    check_same(t, "batch", "alone, ragged", (grid_part) { ragged(&t->c), b, 1, 0, 0 });
}

/* One sequence of a drawn combination, each of a fixed one; and one beside NaN. */
static inline void check_batch(trial *t, uint64_t *state)
{
    const int64_t batch = t->c.problem.batch, one = check_between(state, 0, batch - 1);
    for (int64_t b = t->s->fixed ? 0 : one; b <= (t->s->fixed ? batch - 1 : one); b++)
        check_alone(t, b);
    if (batch > 1)
        check_same(t, "batch", "beside NaN",
                   (grid_part) { .layout = t->c.problem.layout, .lone = true, .sane = one });
}

static inline void check_layout(trial *t)
{
    static const char *const names[] = { "dense", "packed", "padded" };
    for (int layout = ORDO_PACKED; layout <= ORDO_PADDED; layout++)
        if (layout != (int)t->c.problem.layout && (layout != ORDO_PACKED || !t->c.bias.on))
            check_same(t, "layout", names[layout], (grid_part) { .layout = (ordo_layout)layout });
}

static inline void check_split(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    const ordo_layout layout = p->layout;
    if (p->kv_heads > 1) {
        const int64_t cut = check_between(state, 1, p->kv_heads - 1);
        check_same(t, "split", "first heads", (grid_part) { layout, 0, 0, 0, cut });
        check_same(t, "split", "last heads", (grid_part) { layout, 0, 0, cut, p->kv_heads - cut });
    }
    if (p->batch > 1) {
        const int64_t cut = check_between(state, 1, p->batch - 1);
        check_same(t, "split", "first sequences", (grid_part) { layout, 0, cut, 0, 0 });
        check_same(t, "split", "last sequences", (grid_part) { layout, cut, p->batch - cut, 0, 0 });
    }
}

/* ---- cuts ---- */

/* The gradient of a piece's bias. */
static inline void check_bias_of(trial *t, const char *how, const grid_case *c,
                                 const grid_piece_place *x)
{
    const grid_part one = { .sequence = x->sequence, .sequences = 1 };
    if (grid_bias_differs(&t->c, c, &one, x->row, x->column))
        fail(t, "cut", "%s: dbias has other bits", how);
}

/* Rows or columns of a sequence, or one row without its place, as a problem of their own. */
static inline void check_rows(trial *t, const char *how, grid_piece_place x)
{
    grid_case c;
    ordo_problem resolved = ORDO_PROBLEM_INIT;
    grid_place at;
    grid_piece_of(&c, &t->c, &x);
    if (run_other(t, "cut", how, &c, &resolved)) {
        if (grid_piece_differs(&t->c, &c, &x, GRID_BY_ROW, &at))
            fail_at(t, "cut", how, &at);
        check_bias_of(t, how, &c, &x);
    }
    grid_close(&c);
}

/* A backward pass over a piece, from o and lse of the whole; results in `c`. */
static inline bool run_backward(trial *t, const char *how, grid_case *c, unsigned carry)
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

static inline void check_columns(trial *t, grid_piece_place x)
{
    grid_case c;
    grid_place at;
    grid_piece_of(&c, &t->c, &x);
    if (run_backward(t, "columns", &c, 0)) {
        if (grid_piece_differs(&t->c, &c, &x, GRID_BY_KEY, &at))
            fail_at(t, "cut", "columns", &at);
        check_bias_of(t, "columns", &c, &x);
    }
    grid_close(&c);
}

/* All rows of a sequence in two or three parts at tiles, in the order of the plan. */
static inline void check_carried(trial *t, grid_piece_place all, uint64_t *state)
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
        if (ran)
            check_bias_of(t, "carried", &c, &x);
        grid_close(&c);
        if (!ran)
            return;
    }
}

/* Sums of keys past the end of a padded sequence: how many are not `value`. They become `next`. */
static inline int64_t mark_padding(trial *t, float value, float next)
{
    const ordo_problem *p = &t->c.problem;
    const int64_t width = p->kv_heads * p->head_dim;
    const size_t bytes = (size_t)(p->batch * p->kv_len * width) * sizeof(float);
    float *sums = malloc(bytes + 1);
    int64_t wrong = 0;
    if (!sums)
        abort();
    grid_move(&t->lab, sums, t->lab.sums.at, bytes);
    for (int64_t row = 0; row < p->batch * p->kv_len; row++)
        for (int64_t x = 0; row % p->kv_len >= t->c.kv_lens[row / p->kv_len] && x < width; x++) {
            wrong += sums[row * width + x] != value;
            sums[row * width + x] = next;
        }
    grid_move(&t->lab, t->lab.sums.at, sums, bytes);
    free(sums);
    return wrong;
}

/* A packed or padded batch in two or three calls: some tiles of every sequence where rows know no
 * place, else some sequences. The first call makes the sums of padding 0, later ones leave them. */
static inline void check_carried_batch(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    const bool tiles =
        p->mask == ORDO_MASK_FULL && !p->window.on && !p->alibi && p->dropout.p == 0 && !t->c.mask;
    const bool down = t->info.order == ORDO_ORDER_DESCENDING;
    const int32_t tile = (int32_t)t->info.backward_tile.q;
    const int parts = (int)check_between(state, 2, 3);
    if (!grid_ragged(&t->c) || t->c.mask || t->c.bias.on)
        return;
    for (int n = 0; n < parts; n++) {
        const int part = down ? parts - 1 - n : n;
        int32_t first[GRID_BATCH_MAX], rows[GRID_BATCH_MAX];
        grid_case c;
        grid_place at;
        for (int64_t b = 0; b < p->batch; b++) {
            const int32_t all = t->c.q_lens[b], each = (all / tile / parts + 1) * tile;
            const int32_t from = part * each < all ? part * each : all;
            first[b] = tiles ? from : 0;
            rows[b] = b % parts == part ? all : 0;
            if (tiles)
                rows[b] = each < all - from ? each : all - from;
        }
        if (!grid_rows_of(&c, &t->c, first, rows))
            return;
        const bool last = n + 1 == parts;
        const bool ran = run_backward(t, "carried batch", &c,
                                      (n > 0 ? ORDO_CARRY_IN : 0u) | (last ? 0u : ORDO_CARRY_OUT));
        if (ran && grid_rows_differ(&t->c, &c, first, last, &at))
            fail_at(t, "cut", "carried batch", &at);
        if (ran && p->layout == ORDO_PADDED && !last && mark_padding(t, n > 0 ? 7.5f : 0, 7.5f) > 0)
            fail(t, "cut", "carried batch: sums of padding");
        grid_close(&c);
        if (!ran)
            return;
    }
}

/* Row i of a causal sequence with the keys that it sees, as decoding computes it. */
static inline void check_decode(trial *t, grid_piece_place all, uint64_t *state)
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

static inline void check_cut(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    const bool sparse =
        t->c.blocks.kind == GRID_SPARSE && !t->c.blocks.seen; /* cut at blocks only */
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
    if (t->info.kept & ORDO_PROMISE_CUT)
        check_carried_batch(t, state);
    check_decode(t, all, state);
}

/* Bits that the device made are those of the host. */
static inline void check_device_bits(trial *t)
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
    if (fine(t, "keep bits", grid_make_bits(&t->lab, &whole, &t->c))) {
        grid_move(&t->lab, made, t->lab.bits.at, info.bytes);
        for (size_t x = 0; x < info.bytes / 4; x++)
            if (made[x] != host[x]) {
                fail(t, "keep bits", "word %zu is %#x, on the host %#x", x, made[x], host[x]);
                break;
            }
    }
    free(host);
    free(made);
}

/* Chains have the bits of phases, which make no keep bits. */
static inline void check_form(trial *t)
{
    ordo_plan *plan = NULL;
    char line[2048], phases[2100];
    if (t->info.backward_form != ORDO_FORM_CHAIN || t->c.mask ||
        (t->c.problem.dropout.p > 0 && !t->c.bits_given))
        return;
    if (!fine(t, "form", ordo_plan_print(t->plan, line, sizeof line, NULL)))
        return;
    const char *key = strstr(line, " key=");
    (void)snprintf(phases, sizeof phases, "%.*s form=phase%s", (int)(key - line), line, key);
    if (fine(t, "form", ordo_plan_parse(&plan, phases)) && run(t, "form", &t->whole, &t->c, plan))
        (void)kept_again(t, "form", "by phases");
    ordo_plan_destroy(plan);
}

static inline void check_keep_bits(trial *t)
{
    if (t->c.problem.dropout.p == 0)
        return;
    const ordo_problem *p = &t->c.problem;
    grid_case swapped = t->c;
    swapped.bits_given = !t->c.bits_given;
    if (!t->s->cuda || !grid_by_phases(p)) /* else no pass makes them */
        check_same_of(t, "keep bits", t->c.bits_given ? "bits made inside" : "bits given", &swapped,
                      (grid_part) { .layout = p->layout });
    if (t->s->cuda)
        check_device_bits(t);
}

/* Dropout changes no lse. */
static inline void check_lse(trial *t)
{
    grid_case whole = t->c;
    if (whole.problem.dropout.p == 0)
        return;
    whole.problem.dropout.p = 0;
    check_same_of(t, "lse", "without dropout", &whole,
                  (grid_part) { .layout = whole.problem.layout, .tensors = 1u << GRID_LSE });
}

/* Sinks of minus infinity are none, and have no gradient. */
static inline void check_no_sinks(trial *t)
{
    grid_case with = t->c;
    if (t->c.sinks || t->c.problem.shard.col0 > 0) /* a sink belongs to column 0 */
        return;
    with.sinks = true;
    for (int h = 0; h < GRID_HEADS_MAX; h++)
        with.sink[h] = -INFINITY;
    check_same_of(t, "sinks", "sinks of minus infinity", &with,
                  (grid_part) { .layout = with.problem.layout });
}

static inline bool order_of_blocks(ordo_order order)
{
    return order == ORDO_ORDER_ASCENDING || order == ORDO_ORDER_DESCENDING ||
           order == ORDO_ORDER_SPT;
}

/* A mask of blocks, or of elements, that shows what the mask and the window show. Entries that show
 * nothing are not drawn: all levels would have the same (cpu/blocks_identity_test.c adds and
 * removes them). */
static inline void check_blocks(trial *t, bool seen)
{
    grid_case c = t->c;
    ordo_problem *p = &c.problem;
    const int64_t diagonal = ordo_mask_diagonal(p->mask, p->q_len, p->kv_len);
    const bool causal = p->mask != ORDO_MASK_FULL;
    const int64_t most = seen ? t->s->limits.seen : t->s->limits.blocks;
    if (p->layout != ORDO_DENSE || c.mask || c.bias.on || grid_cut(&c) || p->head_dim > most ||
        p->v_head_dim > most || !order_of_blocks(t->info.order))
        return;
    c.blocks = (grid_blocks) {
        .kind = GRID_BAND, .size = 1, .low = -INT32_MAX, .high = INT32_MAX, .seen = seen
    };
    if (p->window.on && p->window.left >= 0)
        c.blocks.low = diagonal - p->window.left;
    if (p->window.on && p->window.right >= 0)
        c.blocks.high = diagonal + p->window.right;
    if (causal && c.blocks.high > diagonal)
        c.blocks.high = diagonal;
    c.order = t->info.order;
    p->mask = p->alibi ? p->mask : ORDO_MASK_FULL; /* distances are from the mask's diagonal */
    p->window = (ordo_window) { 0 };
    check_same_of(t, seen ? "seen" : "blocks", "the mask in lists", &c,
                  (grid_part) { .layout = p->layout });
}

/* An output that a pass was not asked for, which it must leave as it was: what it should have been
 * takes its place. */
static inline void check_left(trial *t, const char *name, size_t at, size_t bytes)
{
    unsigned char *left = malloc(bytes + 1);
    if (!left)
        abort();
    grid_move(&t->lab, left, t->whole.memory.at + at, bytes);
    for (size_t x = 0; x < bytes; x++)
        if (left[x] != GRID_NOT_WRITTEN) {
            fail(t, "some", "%s is written and was not asked for", name);
            break;
        }
    free(left);
    grid_move(&t->lab, t->whole.memory.at + at, t->lab.copy.at + (at - t->whole.outputs), bytes);
}

/* Only dk and dv, then only dq and the gradient of a bias, then that alone. */
static inline void check_some(trial *t)
{
    static const char *const names[] = { "dk and dv alone", "dq, and dbias", "dbias alone" };
    ordo_call *call = &t->whole.call;
    const ordo_call all = *call;
    for (int asked = 0; asked < (t->c.bias.on ? 3 : 2); asked++) {
        call->dq.data = asked == 1 ? all.dq.data : NULL;
        call->dk.data = asked == 0 ? all.dk.data : NULL;
        call->dv.data = asked == 0 ? all.dv.data : NULL;
        call->dbias = asked > 0 ? all.dbias : NULL;
        const bool ran = run(t, "some", &t->whole, &t->c, t->plan);
        *call = all;
        if (!ran)
            return;
        for (int tensor = GRID_DQ; tensor <= GRID_DV; tensor++)
            if (asked != (tensor == GRID_DQ ? 1 : 0))
                check_left(t, grid_tensors[tensor].name, t->whole.at[tensor],
                           grid_bytes(&t->c, tensor));
        if (asked == 0)
            check_left(t, "dbias", t->whole.dbias, grid_dbias_bytes(&t->c));
        if (!kept_again(t, "some", names[asked]))
            return;
    }
}

/* Every element of a tensor of the class that the definition gives it: finite, NaN, or one of the
 * infinities. */
static inline void check_classes(trial *t, const grid_case *c, const grid_exact *exact, int tensor)
{
    const bool keys = grid_tensors[tensor].keys, row = grid_tensors[tensor].row;
    for (int64_t b = 0; b < c->problem.batch; b++)
        for (int64_t r = 0; r < grid_length(c, keys, b); r++)
            for (int64_t h = 0; h < grid_heads(c, tensor); h++)
                for (int64_t d = 0; d < grid_dim(c, tensor); d++) {
                    const size_t i = grid_at(c, tensor, b, r, h) / grid_width(tensor) + (size_t)d;
                    const double want = (double)exact->data[tensor][i];
                    const double got =
                        row ? (double)((const float *)(void *)c->data[tensor])[i]
                            : grid_value(c, ((const uint16_t *)(void *)c->data[tensor])[i]);
                    const bool same = isfinite(want) ? isfinite(got) || fabs(want) > 6e4
                                                     : got == want || (isnan(got) && isnan(want));
                    if (!same) {
                        fail(t, "nan", "%s(sequence %d, head %d, row %d, %d) is %g, exactly %g",
                             grid_tensors[tensor].name, (int)b, (int)h, (int)r, (int)d, got, want);
                        return;
                    }
                }
}

/* One number of an input, or one sink, is NaN or an infinity: it shows where the definition has it
 * so, and a sequence alone has the same bits. */
static inline void check_nan(trial *t, uint64_t *state)
{
    static const uint16_t bf16[] = { 0x7fc0, 0x7f80, 0xff80 }, f16[] = { 0x7e00, 0x7c00, 0xfc00 };
    const ordo_problem *p = &t->c.problem;
    const int tensor = (int)check_between(state, GRID_Q, GRID_DOUT);
    const bool keys = grid_tensors[tensor].keys;
    const int64_t b = check_between(state, 0, p->batch - 1), rows = grid_length(&t->c, keys, b);
    const uint16_t *values = p->dtype == ORDO_F16 ? f16 : bf16;
    grid_part all = { .layout = p->layout };
    ordo_problem resolved = ORDO_PROBLEM_INIT;
    grid_case c;
    grid_exact exact;
    if (t->s->fake || rows == 0 || p->dropout.p > 0 || t->c.mask)
        return;
    grid_part_of(&c, &t->c, &all);
    const int64_t row = check_between(state, 0, rows - 1);
    const int64_t head = check_between(state, 0, grid_heads(&c, tensor) - 1);
    if (c.sinks && check_between(state, 0, 1))
        c.sink[head] = check_between(state, 0, 1) ? NAN : INFINITY;
    else
        memcpy(c.data[tensor] + grid_at(&c, tensor, b, row, head) +
                   2 * (size_t)check_between(state, 0, grid_dim(&c, tensor) - 1),
               &values[check_between(state, 0, 2)], sizeof values[0]);
    if (run_other(t, "nan", "one number", &c, &resolved)) {
        grid_part alone = { ragged(&c), b, 1, 0, 0 };
        grid_case one;
        grid_place at;
        grid_part_of(&one, &c, &alone);
        if (run_other(t, "nan", "its sequence alone", &one, &resolved) &&
            grid_differ(&c, &one, &alone, &at))
            fail_at(t, "nan", "its sequence alone", &at);
        grid_close(&one);
        grid_ask_oracle(&c, &exact);
        for (int x = GRID_OUTPUTS; x < GRID_TENSORS; x++)
            check_classes(t, &c, &exact, x);
        for (int64_t x = 0; c.sinks && x < p->batch * p->heads; x++)
            if (isfinite(c.dsink_parts[x]) != isfinite(exact.dsink_parts[x]))
                fail(t, "nan", "dsink_parts[%d] is %g, exactly %g", (int)x,
                     (double)c.dsink_parts[x], (double)exact.dsink_parts[x]);
        for (int64_t x = 0; x < ordo_bias_count(&c.problem); x++)
            if (isfinite(c.dbias[x]) != isfinite(exact.dbias[x]))
                fail(t, "nan", "dbias[%d] is %g, exactly %g", (int)x, (double)c.dbias[x],
                     (double)exact.dbias[x]);
        grid_exact_close(&exact);
    }
    grid_close(&c);
}

/* Lists of nonsense in the memory of a device, where nobody can refuse them: the passes end, and
 * twice alike. Replaces the case's lists: the last level. Keep bits are made again: those of the
 * images loaded since have taken their place, or have grown into other memory. */
static inline void check_nonsense(trial *t, uint64_t *state)
{
    if (!t->s->cuda || !t->c.mask || t->s->fake) /* which reads lists on the host */
        return;
    if (t->whole.call.keep_bits && !fine(t, "nonsense", grid_make_bits(&t->lab, &t->whole, &t->c)))
        return;
    for (int list = 0; list < GRID_LISTS; list++) {
        size_t count = 0;
        (void)grid_list(t->c.mask, list, &count);
        int32_t *x = malloc((count + 1) * sizeof *x);
        if (!x)
            abort();
        for (size_t i = 0; i < count; i++) {
            x[i] = (int32_t)check_random(state);
            if (check_between(state, 0, 2) == 0)
                x[i] = (int32_t)check_between(state, 0, t->c.mask->entries);
        }
        grid_move(&t->lab, t->whole.memory.at + t->whole.lists[list], x, count * sizeof *x);
        free(x);
    }
    if (!run(t, "nonsense", &t->whole, &t->c, t->plan))
        return;
    grid_keep_outputs(&t->lab, &t->whole);
    if (run(t, "nonsense", &t->whole, &t->c, t->plan) && !grid_outputs_kept(&t->lab, &t->whole))
        fail(t, "nonsense", "other bits the second time");
}

/* A number of segments that the rows can have: up to six. */
static inline int64_t draw_segments(const trial *t, uint64_t *state)
{
    int64_t unit = t->info.backward_tile.q;
    while (unit % 16 != 0)
        unit += t->info.backward_tile.q;
    const int64_t units = (t->c.problem.q_len + unit - 1) / unit;
    const int64_t asked = check_between(state, 1, units < 6 ? units : 6);
    const int64_t each = (units + asked - 1) / asked;
    return (units + each - 1) / each;
}

static inline void check_segments(trial *t, uint64_t *state)
{
    const ordo_problem *p = &t->c.problem;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    char how[40];
    if (p->dropout.p == 0 || p->layout != ORDO_DENSE || t->c.mask || t->c.bias.on ||
        !(t->info.kept & ORDO_PROMISE_CUT))
        return;
    options.backend = t->info.backend;
    options.order = t->c.order;
    options.segments = draw_segments(t, state);
    (void)snprintf(how, sizeof how, "%d segments", (int)options.segments);
    const uint32_t *const bits = t->whole.call.keep_bits;
    t->whole.call.keep_bits = NULL;
    t->whole.call.side_stream = check_between(state, 0, 1) ? t->lab.side : NULL;
    if (fine(t, "segments", ordo_plan_create(&plan, p, t->lab.machine, &options)) &&
        run(t, "segments", &t->whole, &t->c, plan))
        (void)kept_again(t, "segments", how);
    t->whole.call.keep_bits = bits;
    ordo_plan_destroy(plan);
}

static inline void check_dropped(trial *t, uint64_t *state)
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
    c.bias = (grid_bias) { 0 };
    c.problem.bias = (ordo_bias) { 0 };
    grid_probe_fill(&c, &probe);
    if (run_other(t, "dropped", "probe", &c, &resolved) &&
        grid_probe_wrong(&c, &resolved, &probe, &wrong))
        fail(t, "dropped", "sequence %d, head %d, row %d, column %d: %s by the %s pass",
             (int)wrong.sequence, (int)wrong.head, (int)wrong.row, (int)wrong.column,
             wrong.kept ? "dropped" : "kept", wrong.backward ? "backward" : "forward");
    grid_close(&c);
}

#endif
