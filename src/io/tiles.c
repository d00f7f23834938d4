/* tiles.c: the tiles that move least.
 *
 * Unmasked, words depend on tile counts only, and of all tiles with one count the smallest leaves
 * most room for the others: so it is enough to try, for each count, the smallest, about 2 sqrt(n)
 * of them, each with the largest partner that fits. That is exact. Masked, the same candidates are
 * priced as if unmasked; those near the best, and a coarse grid of sizes, are then priced exactly.
 */
#include <inttypes.h>

#include "base/status.h"
#include "io/words.h"

typedef struct search {
    const ordo_io_shape *shape;
    ordo_io_shape open; /* the same without its mask: priced at once */
    ordo_io_algorithm algorithm;
    ordo_io_tiles best;
    int64_t least;      /* words of `best`; INT64_MAX: nothing fitted yet */
    int64_t open_least; /* least of any candidate without its mask */
    bool pricing;       /* masked: the second round, which prices candidates exactly */
} search;

static int64_t total(ordo_io_words w)
{
    return w.loads + w.stores;
}

static ordo_io_words open_words(const search *s, const ordo_io_tiles *t)
{
    return ordo_io_words_of(&s->open, s->algorithm, t);
}

/* `surely`: price it even if it looks bad without its mask. */
static void consider(search *s, const ordo_io_tiles *t, bool surely)
{
    const int64_t open = total(open_words(s, t));
    if (!s->shape->full && !s->pricing) {
        s->open_least = ordo_io_least(s->open_least, open);
        return;
    }
    if (!s->shape->full && !surely && open > s->open_least + s->open_least / 10)
        return;
    const int64_t words =
        s->shape->full ? open : total(ordo_io_words_of(s->shape, s->algorithm, t));
    if (words < s->least) {
        s->least = words;
        s->best = *t;
    }
}

/* The smallest tile that cuts lengths x and y (0: none) into as many tiles as `tile` does. */
static int64_t smallest_alike(int64_t tile, int64_t x, int64_t y)
{
    const int64_t of_x = ordo_io_count(x, ordo_io_count(x, tile));
    const int64_t of_y = y > 0 ? ordo_io_count(y, ordo_io_count(y, tile)) : 1;
    return ordo_io_most(of_x, of_y);
}

/* Make *field of t the largest that fits; false if 1 does not. */
static bool widen(const search *s, ordo_io_tiles *t, int64_t *field, int64_t most)
{
    int64_t fits = 0;
    for (int64_t low = 1, high = most; low <= high;) {
        const int64_t middle = fits == 0 ? 1 : low + (high - low) / 2;
        *field = middle;
        if (open_words(s, t).cache <= s->shape->cache) {
            fits = middle;
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    *field = fits;
    return fits > 0;
}

/* ---- one size with a fixed partner, and two sizes that share fast memory ---- */

/* *field as large as fits, and a few more counts: masked, one of them may be better. */
static void search_one(search *s, ordo_io_tiles *t, int64_t *field, int64_t length)
{
    enum { MORE = 8 };
    if (!widen(s, t, field, length))
        return;
    const int64_t count = ordo_io_count(length, *field);
    for (int64_t c = count; c < count + MORE && c <= length; c++) {
        *field = ordo_io_count(length, c);
        consider(s, t, true);
    }
}

/* Lengths that a size cuts: x and, for panels that do not divide the rows, y. */
typedef struct cut {
    int64_t *field;
    int64_t x, y;
} cut;

static void try_pair(search *s, ordo_io_tiles *t, cut first, cut second, bool surely)
{
    if (!widen(s, t, second.field, second.x))
        return;
    const int64_t widest = *second.field;
    *second.field = smallest_alike(widest, second.x, second.y);
    consider(s, t, surely);
    for (int64_t part = 1; surely && part < 4; part++) {
        *second.field = ordo_io_most(1, widest * part / 4);
        consider(s, t, true);
    }
    (void)first;
}

static void search_pair(search *s, ordo_io_tiles *t, cut first, cut second)
{
    for (int64_t size = first.x; size > 0;) {
        *first.field = smallest_alike(size, first.x, first.y);
        size = *first.field - 1;
        try_pair(s, t, first, second, false);
    }
    for (int64_t size = 1; s->pricing && size <= first.x; size += (size + 2) / 3) {
        *first.field = size;
        try_pair(s, t, first, second, true);
    }
}

/* ---- the algorithms ---- */

/* The side that streams is as thin as a strip, thinner if that does not fit. */
static int64_t stream(const ordo_io_shape *shape, int64_t length)
{
    return ordo_io_least(shape->strip, length);
}

static void search_flash(search *s)
{
    const ordo_io_shape *shape = s->shape;
    const bool rows_stay = s->algorithm == ORDO_IO_FLASH && shape->pass == ORDO_IO_FORWARD;
    for (int64_t thin = stream(shape, rows_stay ? shape->cols : shape->rows);
         thin > 0 && s->least == INT64_MAX; thin /= 2) {
        ordo_io_tiles t = { thin, thin };
        if (rows_stay)
            search_one(s, &t, &t.rows, shape->rows);
        else
            search_one(s, &t, &t.cols, shape->cols);
    }
}

static void search_split(search *s)
{
    const ordo_io_shape *shape = s->shape;
    const int64_t rows = stream(shape, shape->rows), cols = stream(shape, shape->cols);
    for (int64_t thin = ordo_io_most(rows, cols); thin > 0 && s->least == INT64_MAX; thin /= 2) {
        ordo_io_tiles t = { .rows = ordo_io_least(thin, rows),
                            .cols = 1,
                            .out_rows = 1,
                            .out_cols = ordo_io_least(thin, cols) };
        search_one(s, &t, &t.cols, shape->cols);
        if (s->least == INT64_MAX)
            continue;
        t = s->best;
        search_one(s, &t, &t.out_rows, shape->rows);
    }
}

/* Rows whose scores may be in slow memory together: few even panels; 0: not even one row. */
static int64_t panel_rows(const ordo_io_shape *shape, ordo_io_algorithm algorithm)
{
    const int64_t a_row = (algorithm == ORDO_IO_PHASE ? 2 : 1) * shape->cols;
    const int64_t rows = ordo_io_least(shape->rows, shape->workspace / a_row);
    return rows > 0 ? ordo_io_count(shape->rows, ordo_io_count(shape->rows, rows)) : 0;
}

static void search_panels(search *s)
{
    const ordo_io_shape *shape = s->shape;
    const int64_t panel = panel_rows(shape, s->algorithm), rest = panel ? shape->rows % panel : 0;
    if (panel == 0)
        return;
    ordo_io_tiles t = { 1, 1, 1, s->algorithm == ORDO_IO_PHASE, 1, panel };
    search_pair(s, &t, (cut) { &t.rows, panel, rest }, (cut) { &t.cols, shape->cols, 0 });
    if (s->pricing || shape->full) {
        if (s->least == INT64_MAX)
            return;
        t = s->best;
    } else if (!widen(s, &t, &t.cols, shape->cols)) {
        return;
    }
    if (s->algorithm == ORDO_IO_MAT) {
        search_pair(s, &t, (cut) { &t.out_rows, panel, rest }, (cut) { &t.out_cols, shape->dv, 0 });
        return;
    }
    const int64_t d = ordo_io_most(shape->dk, shape->dv), other = shape->dk + shape->dv - d;
    for (int64_t size = d; size > 0; size = t.out_cols - 1) {
        t.out_cols = smallest_alike(size, d, other);
        t.out_rows = t.out_keys = 1;
        if (!widen(s, &t, &t.out_keys, shape->cols))
            continue;
        t.out_keys = smallest_alike(t.out_keys, shape->cols, 0);
        widen(s, &t, &t.out_rows, panel);
        t.out_rows = smallest_alike(t.out_rows, panel, rest);
        consider(s, &t, true);
    }
}

static void search_round(search *s)
{
    ordo_io_tiles t = { 1, 1 };
    switch (s->algorithm) {
    case ORDO_IO_NAIVE: consider(s, &t, true); break;
    case ORDO_IO_SPLIT: search_split(s); break;
    case ORDO_IO_MAT:
    case ORDO_IO_PHASE: search_panels(s); break;
    case ORDO_IO_FUSED:
        search_pair(s, &t, (cut) { &t.rows, s->shape->rows, 0 },
                    (cut) { &t.cols, s->shape->cols, 0 });
        break;
    default: search_flash(s); break;
    }
}

bool ordo_io_best_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                        ordo_io_tiles *tiles)
{
    search s = { shape, *shape, algorithm, { 0 }, INT64_MAX, INT64_MAX, false };
    s.open.full = true;
    s.open.blocks = NULL;
    if (shape->pass == ORDO_IO_GRADIENT) {
        *tiles = (ordo_io_tiles) { 0 };
        return ordo_io_words_of(shape, algorithm, tiles).cache <= shape->cache;
    }
    if (!shape->full)
        search_round(&s);
    s.pricing = true;
    search_round(&s);
    *tiles = s.best;
    return s.least != INT64_MAX && ordo_io_words_of(shape, algorithm, tiles).cache <= shape->cache;
}

/* ---- tiles from outside ---- */

static ordo_status set(const char *name, int64_t *tile, int64_t length, int64_t otherwise)
{
    if (*tile == 0)
        *tile = otherwise;
    if (*tile < 1)
        return ordo_fail(ORDO_ERR_ARGUMENT, "tiles.%s %" PRId64 ": expected 1 or more", name,
                         *tile);
    *tile = ordo_io_least(*tile, length);
    return ORDO_OK;
}

ordo_status ordo_io_tiles_of(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                             const ordo_io_tiles *given, ordo_io_tiles *tiles)
{
    const bool forward = shape->pass == ORDO_IO_FORWARD;
    const bool flash = algorithm == ORDO_IO_FLASH || algorithm == ORDO_IO_FLASH1;
    const bool split = algorithm == ORDO_IO_SPLIT, mat = algorithm == ORDO_IO_MAT;
    const bool phase = algorithm == ORDO_IO_PHASE;
    *tiles = *given;
    if (algorithm == ORDO_IO_NAIVE || shape->pass == ORDO_IO_GRADIENT) {
        *tiles = (ordo_io_tiles) { 0 };
        return ORDO_OK;
    }
    ORDO_TRY(set("rows", &tiles->rows, shape->rows,
                 split || (flash && !(forward && algorithm == ORDO_IO_FLASH)) ? shape->strip : 0));
    ORDO_TRY(set("cols", &tiles->cols, shape->cols, flash && forward ? shape->strip : 0));
    if (mat || phase) {
        const int64_t panel = panel_rows(shape, algorithm);
        if (panel == 0)
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "workspace_words %" PRId64 ": one row of scores needs %" PRId64,
                             shape->workspace, (phase ? 2 : 1) * shape->cols);
        ORDO_TRY(set("panel", &tiles->panel, shape->rows, panel));
        tiles->rows = ordo_io_least(tiles->rows, tiles->panel);
        ORDO_TRY(set("out_rows", &tiles->out_rows, tiles->panel, 0));
        ORDO_TRY(set("out_cols", &tiles->out_cols,
                     phase ? ordo_io_most(shape->dk, shape->dv) : shape->dv, 0));
    }
    if (phase)
        ORDO_TRY(set("out_keys", &tiles->out_keys, shape->cols, 0));
    if (split) {
        ORDO_TRY(set("out_rows", &tiles->out_rows, shape->rows, 0));
        ORDO_TRY(set("out_cols", &tiles->out_cols, shape->cols, shape->strip));
    }
    return ORDO_OK;
}

/* ---- the gradient ---- */

bool ordo_io_product_tiles(ordo_io_product *p, int64_t cache, int64_t strip)
{
    ordo_io_product best = { 0 };
    int64_t least = INT64_MAX;
    for (int64_t size = p->rows; size > 0; size = p->tile_rows - 1) {
        p->tile_rows = smallest_alike(size, p->rows, 0);
        const int64_t room = cache - strip * p->tile_rows;
        p->tile_cols = room > 0 ? ordo_io_least(p->cols, room / (p->tile_rows + strip)) : 0;
        if (p->tile_cols < 1)
            continue;
        p->tile_cols = smallest_alike(p->tile_cols, p->cols, 0);
        const int64_t words = total(ordo_io_product_words(p, strip));
        if (words < least) {
            least = words;
            best = *p;
        }
    }
    if (least < INT64_MAX)
        *p = best;
    return least < INT64_MAX;
}

/* The score tile of the gradient's phase form, with one row of p and two numbers beside it. */
static bool score_tile(const ordo_io_shape *s, ordo_io_gradient *st)
{
    int64_t least = INT64_MAX;
    for (int64_t size = s->rows, rows; size > 0; size = rows - 1) {
        rows = smallest_alike(size, s->rows, 0);
        const int64_t strips = (s->cache - s->strip * rows) / (rows + s->strip);
        const int64_t cols =
            ordo_io_least(s->cols, ordo_io_least(strips, (s->cache - 2) / (rows + 1)));
        if (s->cache <= s->strip * rows || cols < 1)
            continue;
        const int64_t tile_cols = smallest_alike(cols, s->cols, 0);
        const int64_t tiles = s->rows * ordo_io_count(s->cols, tile_cols);
        const int64_t words = tiles * (s->dk + 2) + s->cols * ordo_io_count(s->rows, rows) * s->dk;
        if (words < least) {
            least = words;
            st->rows = rows;
            st->cols = tile_cols;
        }
    }
    return least < INT64_MAX;
}

bool ordo_io_gradient_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                            ordo_io_gradient *st)
{
    const int64_t n = shape->rows, d = shape->dk, m = shape->cache, w = shape->strip;
    const bool large = algorithm == ORDO_IO_FLASH;
    *st = (ordo_io_gradient) { .project = { n, d, d, 0, 0 },
                               .inner = *shape,
                               .dq = { n, n, d, 0, 0 },
                               .g = { d, n, d, 0, 0 } };
    st->inner.pass = ORDO_IO_FORWARD;
    if (!ordo_io_product_tiles(&st->project, m, w) || !ordo_io_product_tiles(&st->dq, m, w) ||
        !ordo_io_product_tiles(&st->g, m, w) ||
        !ordo_io_best_tiles(&st->inner, large ? ORDO_IO_FLASH : ORDO_IO_MAT, &st->forward))
        return false;
    if (large) {
        st->cols = ordo_io_least(w, shape->cols);
        st->rows = ordo_io_least(n, (m - st->cols * d) / (3 * d + 2 + 2 * st->cols));
        return m > st->cols * d && st->rows > 0;
    }
    /* Scores stay in slow memory between the two halves: no panels. */
    return st->forward.panel == n && score_tile(shape, st);
}
