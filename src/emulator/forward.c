/* forward.c: o and lse of 64 rows, in the order of the forward kernels.
 *
 * The kernels give 64 rows of a query tile to a warpgroup, which walks the key tiles that its rows
 * see: downwards up to head size 256, upwards by phases above. At each tile
 *
 *   o += P_last V_last;   new maximum;   o *= exp2(old - new);   P = exp2(S scale - max)
 *
 * and the sum of a row has 16 parts: thread c of four has columns 8 j + 2 c and 8 j + 2 c + 1, and
 * adds them by j mod 4. P is rounded to 16 bits for the product, not for the sum.
 *
 * A few blocks of 64 rows share a walk here, so that a tile of K and V is read once for all of
 * them; each adds what it would add alone. */
#include "emulator/units.h"

#include <math.h>
#include <string.h>

#include "base/constants.h"
#include "base/shrink.h"
#include "emulator/product.h"
#include "emulator/repair.h"
#include "emulator/special.h"
#include "emulator/tiles.h"

enum { ROWS = ORDO_EMULATOR_ROWS, MOST = ORDO_EMULATOR_BLOCKS };

typedef struct row_state {
    float max, sum[4], shrink; /* sum: of the four threads of a row */
} row_state;

/* The key tiles that a block walks: first .. last, of those that the lists of its pair hold. */
typedef struct walk {
    int32_t first, last;
    const ordo_lists *lists; /* NULL: all */
    int32_t pair;            /* the first query tile of two whose lists are joined */
    int32_t each;            /* key tiles of one that lists name */
} walk;

typedef struct block {
    int32_t row; /* its first one */
    walk walk;
    row_state *rows;
    float *o;
    ordo_emulator_tile q;
    bool begun;
} block;

typedef struct forward {
    const ordo_emulator_pass *pass;
    int64_t b, head;
    int32_t columns; /* columns of a key tile */
    bool up;         /* by phases */
    block blocks[MOST];
    int count;
    ordo_emulator_tile kt, v, p;
    float *s;
    uint16_t *halves, *transposed;
} forward;

static size_t lay_out(const ordo_emulator_pass *pass, void *memory, forward *f)
{
    ordo_emulator_arena arena = { memory, 0 };
    const int columns = (int)pass->plan->forward_tile.k;
    f->columns = columns;
    f->up = ordo_plan_by_phases(pass->plan, ORDO_FORWARD);
    for (int x = 0; x < MOST; x++) {
        block *k = &f->blocks[x];
        k->rows = ordo_emulator_take(&arena, ROWS * sizeof *k->rows);
        k->o = ordo_emulator_take(&arena, ROWS * (size_t)pass->v_wide * sizeof *k->o);
        ordo_emulator_tile_take(&arena, &k->q, ROWS, pass->wide, pass->dtype);
    }
    ordo_emulator_tile_take(&arena, &f->kt, pass->wide, columns, pass->dtype);
    ordo_emulator_tile_take(&arena, &f->v, columns, pass->v_wide, pass->dtype);
    ordo_emulator_tile_take(&arena, &f->p, ROWS, columns, pass->dtype);
    const size_t most = (size_t)(pass->wide > pass->v_wide ? pass->wide : pass->v_wide);
    f->s = ordo_emulator_take(&arena, ROWS * (size_t)columns * sizeof *f->s);
    f->halves = ordo_emulator_take(&arena, (most > (size_t)columns ? most : (size_t)columns) *
                                               sizeof *f->halves);
    f->transposed = ordo_emulator_take(&arena, most * (size_t)columns * sizeof *f->transposed);
    return arena.used;
}

size_t ordo_emulator_forward_bytes(const ordo_emulator_pass *pass)
{
    forward f;
    return lay_out(pass, NULL, &f);
}

/* ---- walks ---- */

static bool listed(const ordo_lists *lists, int32_t i, int32_t j)
{
    return i < lists->nq && ordo_lists_turn(lists, ORDO_WALK_ASCENDING, i, j) >= 0;
}

/* The first and last entry of query tile i; first > last: none. */
static ordo_span listed_span(const ordo_lists *lists, int32_t i)
{
    if (i >= lists->nq || ordo_lists_count(lists, i) == 0)
        return (ordo_span) { INT32_MAX, -1 };
    return (ordo_span) { lists->key[lists->start[i]], lists->key[lists->start[i + 1] - 1] };
}

/* Two blocks of 64 rows walk together what one of them sees; each from its own last tile to its own
 * first one. A block that sees nothing takes the first tile of the walk, all of it hidden. */
static walk listed_walk(const ordo_lists *lists, int32_t row, int32_t columns, int32_t kv_len)
{
    const int32_t i = row / ROWS, pair = i / 2 * 2;
    const ordo_span a = listed_span(lists, pair), b = listed_span(lists, pair + 1);
    const ordo_span own = i == pair ? a : b;
    const int32_t last = ordo_max32(0, ordo_max32(a.last, b.last));
    const int32_t first = ordo_min32(ordo_min32(a.first, b.first), last);
    const int32_t each = ORDO_BLOCK / columns; /* tiles of a block, as far as they exist */
    const int32_t end = ordo_min32((own.last + 1) * each, (kv_len + columns - 1) / columns);
    if (own.last < own.first)
        return (walk) { first * each, first * each, lists, pair, each };
    return (walk) { own.first * each, end - 1, lists, pair, each };
}

/* Flash: of a tile of `rows` queries, from the last key tile that one of them sees, the tiles that
 * the rows of this block see; at least one. */
static walk band_walk(const ordo_emulator_pass *pass, const ordo_emulator_sequence *s, int32_t row,
                      int32_t rows, int32_t columns)
{
    const ordo_band band = { s->q_len, s->kv_len, rows, columns, s->low, s->high };
    ordo_span keys = ordo_band_keys(&band, row / rows);
    if (ordo_plan_by_phases(pass->plan, ORDO_FORWARD))
        return (walk) { keys.first, keys.last, NULL, 0, 1 };
    if (keys.last < keys.first)
        keys.first = keys.last = 0;
    const int32_t own = ordo_min32(s->kv_len, row + ROWS + s->high);
    int32_t last = keys.last;
    while (last > keys.first && last * columns >= own)
        last--;
    const int32_t low = ordo_max32(0, row + s->low) / columns;
    return (walk) { ordo_max32(keys.first, ordo_min32(last, low)), last, NULL, 0, 1 };
}

static walk walk_of(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row)
{
    const ordo_lists *lists = ordo_emulator_lists(pass, b, head);
    if (lists)
        return listed_walk(lists, row, (int32_t)pass->plan->forward_tile.k,
                           pass->sequences[b].kv_len);
    return band_walk(pass, &pass->sequences[b], row, (int32_t)pass->plan->forward_tile.q,
                     (int32_t)pass->plan->forward_tile.k);
}

static bool walks(const walk *w, int32_t j)
{
    if (j < w->first || j > w->last)
        return false;
    return !w->lists || w->first == w->last || listed(w->lists, w->pair, j / w->each) ||
           listed(w->lists, w->pair + 1, j / w->each);
}

int64_t ordo_emulator_forward_scores(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                     int32_t row)
{
    const walk w = walk_of(pass, b, head, row);
    int64_t tiles = 0;
    for (int32_t j = w.first; j <= w.last; j++)
        tiles += walks(&w, j);
    return tiles * ROWS * pass->plan->forward_tile.k;
}

/* ---- steps ---- */

/* A step of the online softmax over the scores of one row. */
static void soften(float *s, int columns, float scale_log2, row_state *r)
{
    float max = r->max;
    for (int j = 0; j < columns; j++)
        max = fmaxf(max, s[j]);
    const float shift = ordo_softmax_shift(max, scale_log2);
    r->shrink = ordo_emulator_ex2(ordo_softmax_shrink(r->max, scale_log2, shift));
    r->max = max;
    for (int j = 0; j < columns; j++)
        s[j] = fmaf(s[j], scale_log2, -shift);
    ordo_emulator_ex2_row(s, columns);
    float part[4][4] = { { 0.0f } }; /* by j mod 4, and the thread */
    for (int j = 0; j < columns / 8; j++)
        for (int c = 0; c < 4; c++) {
            const float *x = s + 8 * j + 2 * c;
            part[j % 4][c] = (j < 4 ? x[0] : part[j % 4][c] + x[0]) + x[1];
        }
    for (int c = 0; c < 4; c++)
        r->sum[c] =
            fmaf(r->sum[c], r->shrink, (part[0][c] + part[1][c]) + (part[2][c] + part[3][c]));
}

/* P of one row and key tile j, from its scores. */
static void probabilities(forward *f, block *k, int i, int32_t j, float *s)
{
    const ordo_emulator_pass *pass = f->pass;
    const int32_t row = k->row + i, key0 = j * f->columns;
    uint32_t seen[8];
    ordo_emulator_sees(pass, f->b, f->head, row, key0, f->columns, seen);
    if (pass->has_rule)
        ordo_emulator_apply_rule(pass, s, f->columns, f->b, f->head, row, key0);
    for (int c = 0; c < f->columns; c++)
        if (!ordo_emulator_bit(seen, c))
            s[c] = -INFINITY;
    soften(s, f->columns, pass->scale_log2, &k->rows[i]);
    if (k->begun)
        for (int c = 0; c < pass->v_wide; c++)
            k->o[(size_t)i * (size_t)pass->v_wide + (size_t)c] *= k->rows[i].shrink;
    ordo_emulator_round_row(f->halves, s, f->columns, pass->dtype);
    if (pass->dropout) {
        uint32_t kept[8];
        ordo_emulator_kept(pass, f->b, f->head, row, key0, f->columns, kept);
        for (int c = 0; c < f->columns; c++)
            if (!ordo_emulator_bit(kept, c))
                f->halves[c] = 0;
    }
    ordo_emulator_tile_set(&f->p, i, f->halves, f->columns);
}

/* The keys of tile j over which P V runs: by phases only blocks of 64 that the query tile sees. */
static ordo_span summed(const forward *f, const block *k, int32_t j)
{
    enum { STEP = 64 };
    const ordo_emulator_sequence *s = &f->pass->sequences[f->b];
    const int32_t rows = (int32_t)f->pass->plan->forward_tile.q;
    const ordo_band band = { s->q_len, s->kv_len, rows, STEP, s->low, s->high };
    ordo_span all = { 0, f->columns };
    if (f->up) {
        const ordo_span keys = ordo_band_keys(&band, k->row / rows);
        all.first = ordo_max32(0, keys.first * STEP - j * f->columns);
        all.last = ordo_min32(f->columns, (keys.last + 1) * STEP - j * f->columns);
    }
    return all;
}

static void step(forward *f, block *k, int32_t j)
{
    const ordo_emulator_pass *pass = f->pass;
    ordo_emulator_product(f->s, f->columns, ROWS, &k->q, 0, 0, &f->kt, 0, 0, f->columns, pass->wide,
                          false);
    for (int i = 0; i < ROWS; i++)
        probabilities(f, k, i, j, f->s + (size_t)i * (size_t)f->columns);
    k->begun = true;
    const ordo_span keys = summed(f, k, j);
    ordo_emulator_product(k->o, pass->v_wide, ROWS, &f->p, 0, keys.first, &f->v, keys.first, 0,
                          pass->v_wide, keys.last - keys.first, true);
}

/* ---- results ---- */

/* The factor of a row's outputs, and its lse; a row that sees nothing has `nothing`. */
typedef struct row_end {
    float weight, lse;
    bool nothing;
} row_end;

static row_end end_of(const forward *f, const row_state *r)
{
    const ordo_emulator_pass *pass = f->pass;
    const float sink = pass->call->sink ? pass->call->sink[f->head] : -INFINITY;
    float sum = (r->sum[0] + r->sum[1]) + (r->sum[2] + r->sum[3]), shrink = 1.0f;
    const bool far = pass->f16 && ordo_softmax_far(r->max, pass->scale_log2);
    row_end end = { .nothing = sum == 0.0f && r->max == -INFINITY };
    if (far && !f->up) /* by phases lse is spared; both are repaired */
        sum = NAN;
    end.lse = fmaf(r->max, pass->natural, ordo_emulator_log(sum));
    if (sink != -INFINITY) { /* NaN is a sink */
        const float shift = ordo_softmax_shift(r->max, pass->scale_log2);
        const float sink2 = sink * (float)ORDO_LOG2_E, top = fmaxf(shift, sink2);
        shrink = ordo_emulator_ex2(shift - top);
        sum = fmaf(sum, shrink, ordo_emulator_ex2(sink2 - top));
        end.lse = fmaf(top, (float)ORDO_LN_2, ordo_emulator_log(sum));
    }
    end.weight = pass->keep_scale * shrink / (far ? NAN : sum);
    if (end.nothing) {
        end.lse = sink;
        end.weight = f->up ? 0.0f : end.weight;
    }
    return end;
}

static void finish(forward *f, block *k)
{
    const ordo_emulator_pass *pass = f->pass;
    const ordo_emulator_sequence *s = &pass->sequences[f->b];
    const ordo_emulator_rows o = ordo_emulator_rows_of(pass, &pass->call->o, ORDO_EMULATOR_QUERIES,
                                                       pass->v_dim, f->b, f->head);
    for (int i = 0; i < ROWS && k->row + i < s->q_len; i++) {
        row_end end = end_of(f, &k->rows[i]);
        float *x = k->o + (size_t)i * (size_t)pass->v_wide;
        for (int c = 0; c < pass->v_dim; c++)
            x[c] = end.nothing && !f->up ? 0.0f : x[c] * end.weight;
        ordo_emulator_round_row(f->halves, x, pass->v_dim, pass->dtype);
        if (ordo_emulator_broken(pass, f->halves, pass->v_dim) &&
            !ordo_emulator_repair_output(pass, f->b, f->head, k->row + i, f->halves, &end.lse)) {
            *pass->unknown = true;
            continue;
        }
        ordo_emulator_put(pass, "o", f->b, f->head, k->row + i, o.data + (k->row + i) * o.stride,
                          f->halves, pass->v_dim);
        ordo_emulator_put_lse(pass, f->b, f->head, k->row + i, end.lse);
    }
}

static void begin(forward *f, block *k, int32_t row)
{
    const ordo_emulator_pass *pass = f->pass;
    k->row = row;
    k->walk = walk_of(pass, f->b, f->head, row);
    k->begun = false;
    for (int i = 0; i < ROWS; i++)
        k->rows[i] = (row_state) { .max = -INFINITY };
    memset(k->o, 0, ROWS * (size_t)pass->v_wide * sizeof *k->o);
    ordo_emulator_load(pass, &k->q, &pass->call->q, ORDO_EMULATOR_QUERIES, pass->dim, f->b, f->head,
                       row, ROWS);
}

void ordo_emulator_forward_unit(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                int32_t row, int count, void *memory)
{
    forward f = { .pass = pass, .b = b, .head = head };
    int32_t first = INT32_MAX, last = -1;
    (void)lay_out(pass, memory, &f);
    for (; f.count < count; f.count++) {
        block *k = &f.blocks[f.count];
        begin(&f, k, row + f.count * ROWS);
        first = ordo_min32(first, k->walk.first);
        last = ordo_max32(last, k->walk.last);
    }
    for (int32_t n = 0; n <= last - first; n++) {
        const int32_t j = f.up ? first + n : last - n;
        bool loaded = false;
        for (int x = 0; x < count; x++) {
            if (!walks(&f.blocks[x].walk, j))
                continue;
            if (!loaded) {
                ordo_emulator_load_transposed(pass, &f.kt, &pass->call->k, ORDO_EMULATOR_KEYS,
                                              pass->dim, b, head / pass->group, j * f.columns,
                                              f.columns, f.transposed);
                ordo_emulator_load(pass, &f.v, &pass->call->v, ORDO_EMULATOR_KEYS, pass->v_dim, b,
                                   head / pass->group, j * f.columns, f.columns);
            }
            loaded = true;
            step(&f, &f.blocks[x], j);
        }
    }
    for (int x = 0; x < count; x++)
        finish(&f, &f.blocks[x]);
}
