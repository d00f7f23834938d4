/* tiles.c: the tiles of a forward or backward algorithm that move least.
 *
 * Unmasked, words depend on tile counts only, and of all tiles with one count the smallest leaves
 * most room for the others: so it is enough to try, for each count, the smallest, about 2 sqrt(n)
 * of them, each with the largest partner that fits. That is exact. Masked, the same candidates are
 * priced as if unmasked; those near the best, and a grid of sizes, are then priced exactly, while
 * there is effort left.
 */
#include <inttypes.h>

#include "base/status.h"
#include "io/words.h"

typedef struct search {
    const ordo_io_shape *shape;
    ordo_io_shape open; /* the same without its mask, whose words are a closed form */
    ordo_io_algorithm algorithm;
    ordo_io_tiles best;
    int64_t least;      /* words of `best`; INT64_MAX = none fits so far */
    int64_t open_least; /* fewest words of any candidate without the mask */
    bool pricing;       /* masked: second round, which computes the words of candidates exactly */
    int64_t spent;      /* effort of the second round so far */
} search;

static ordo_io_words open_words(const search *s, const ordo_io_tiles *t)
{
    return ordo_io_attention_words(&s->open, s->algorithm, t);
}

/* Effort of computing the words exactly. Along a band the sums are closed forms; else live tiles
 * are summed along the side with fewer of them, provided that no tile divides the heads of a
 * position. */
static int64_t effort(const ordo_io_shape *shape, const ordo_io_tiles *t)
{
    enum { CLOSED = 20 };
    if (!shape->blocks && shape->group == 1)
        return CLOSED;
    const int64_t scores = t->rows > 0 ? ordo_io_least(ordo_io_count(shape->rows, t->rows),
                                                       ordo_io_count(shape->cols, t->cols))
                                       : 0;
    const int64_t rows = t->out_rows > 0 ? ordo_io_count(shape->rows, t->out_rows) : 0;
    const int64_t keys = t->out_keys > 0 ? ordo_io_count(shape->cols, t->out_keys) : 0;
    return scores + rows + keys;
}

enum { EFFORT = 20000 }; /* limit of the effort for one kind of tiles: about a millisecond */

/* `far`: compute the words exactly even if they are many without the mask, while effort is left. */
static void consider(search *s, const ordo_io_tiles *t, bool far)
{
    const int64_t open = ordo_io_words_total(open_words(s, t));
    if (!s->pricing) {
        s->open_least = ordo_io_least(s->open_least, open);
        return;
    }
    if (!s->shape->full) {
        const bool near = open <= s->open_least + s->open_least / 10, first = s->least == INT64_MAX;
        const int64_t cost = effort(s->shape, t), most = open > s->open_least ? EFFORT : 2 * EFFORT;
        if (!(near || far) || (s->spent + cost > most && !(open == s->open_least && first)))
            return;
        s->spent += cost;
    }
    const int64_t words =
        s->shape->full ? open
                       : ordo_io_words_total(ordo_io_attention_words(s->shape, s->algorithm, t));
    if (words < s->least) {
        s->least = words;
        s->best = *t;
    }
}

/* The smallest tile that divides lengths x and y (0: none) into as many tiles as `tile` does. */
static int64_t smallest_alike(int64_t tile, int64_t x, int64_t y)
{
    return ordo_io_most(ordo_io_even_tile(tile, x), y > 0 ? ordo_io_even_tile(tile, y) : 1);
}

/* Set *field of t to the largest size that fits; false if 1 does not fit. */
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

/* Masked: also try smaller tiles, in steps of a twelfth, or all sizes if there are few. */
enum { PARTS = 12, FEW = 64 };

/* The lengths that a tile divides: x and, if panels do not divide the rows, y. */
typedef struct extent {
    int64_t *field;
    int64_t x, y;
} extent;

/* Try the second size as large as fits with the first and, if `far`, fractions of that. */
static void try_pair(search *s, ordo_io_tiles *t, extent first, extent second, bool far)
{
    if (!widen(s, t, second.field, second.x))
        return;
    const int64_t widest = *second.field;
    *second.field = smallest_alike(widest, second.x, second.y);
    consider(s, t, far);
    if (far) { /* along a narrow band square tiles are good */
        *second.field = ordo_io_least(widest, *first.field);
        consider(s, t, true);
    }
    const int64_t parts = widest <= FEW ? widest : PARTS;
    for (int64_t part = 1; far && part <= parts; part++) {
        *second.field = ordo_io_most(1, widest * part / parts);
        consider(s, t, true);
    }
}

static void search_pair(search *s, ordo_io_tiles *t, extent first, extent second)
{
    for (int64_t size = first.x; size > 0; size = *first.field - 1) {
        *first.field = smallest_alike(size, first.x, first.y);
        try_pair(s, t, first, second, false);
    }
    for (int64_t size = 1; !s->shape->full && size <= first.x;
         size += first.x <= FEW ? 1 : (size + 7) / 8) {
        *first.field = size;
        try_pair(s, t, first, second, true);
    }
}

/* One side is streamed, as thin as a strip, or thinner if that does not fit; the other is as large
 * as fits. Masked, thicker tiles may follow the edge of the mask better, so they are tried too. */
static void search_stream(search *s, ordo_io_tiles *t, extent thin, extent large)
{
    for (int64_t size = ordo_io_least(s->shape->strip, thin.x); size > 0; size /= 2) {
        *thin.field = size;
        if (!widen(s, t, large.field, large.x))
            continue;
        *large.field = smallest_alike(*large.field, large.x, large.y);
        consider(s, t, true);
        break;
    }
    if (!s->shape->full)
        search_pair(s, t, thin, large);
}

/* ---- the kinds of tiles of each algorithm ---- */

static void flash_tiles(search *s, ordo_io_tiles *t)
{
    const extent rows = { &t->rows, s->shape->rows, 0 }, cols = { &t->cols, s->shape->cols, 0 };
    if (s->algorithm == ORDO_IO_FLASH && s->shape->pass == ORDO_IO_FORWARD)
        search_stream(s, t, cols, rows);
    else
        search_stream(s, t, rows, cols);
}

static void apart_rows(search *s, ordo_io_tiles *t)
{
    search_stream(s, t, (extent) { &t->out_cols, s->shape->cols, 0 },
                  (extent) { &t->out_rows, s->shape->rows, 0 });
}

static extent panel_extent(const search *s, const ordo_io_tiles *t, int64_t *field)
{
    return t->panel ? (extent) { field, t->panel, s->shape->rows % t->panel }
                    : (extent) { field, s->shape->rows, 0 };
}

static void score_tiles(search *s, ordo_io_tiles *t)
{
    search_pair(s, t, panel_extent(s, t, &t->rows), (extent) { &t->cols, s->shape->cols, 0 });
}

static void mat_output(search *s, ordo_io_tiles *t)
{
    search_pair(s, t, (extent) { &t->out_cols, s->shape->dv, 0 }, panel_extent(s, t, &t->out_rows));
}

/* Replace *field of t by its best fraction, for costs that depend on no other field. */
static void best_part(search *s, const ordo_io_tiles *t, int64_t *field)
{
    const int64_t widest = *field, parts = widest <= FEW ? widest : PARTS;
    int64_t best = widest, least = INT64_MAX;
    for (int64_t part = parts; part > 0 && s->spent + effort(s->shape, t) <= EFFORT; part--) {
        *field = ordo_io_most(1, widest * part / parts);
        s->spent += effort(s->shape, t);
        const int64_t words =
            ordo_io_words_total(ordo_io_attention_words(s->shape, s->algorithm, t));
        if (words < least) {
            least = words;
            best = *field;
        }
    }
    *field = best;
}

/* dk and dv in tiles of out_keys, dq in tiles of out_rows, all of one width. */
static void phase_output(search *s, ordo_io_tiles *t)
{
    const ordo_io_shape *shape = s->shape;
    const int64_t d = ordo_io_most(shape->dk, shape->dv), other = shape->dk + shape->dv - d;
    const extent rows = panel_extent(s, t, &t->out_rows);
    for (int64_t size = d; size > 0; size = t->out_cols - 1) {
        t->out_cols = smallest_alike(size, d, other);
        t->out_rows = 1;
        if (!widen(s, t, &t->out_keys, shape->cols))
            continue;
        if (!widen(s, t, &t->out_rows, rows.x))
            continue;
        const ordo_io_tiles widest = *t;
        t->out_keys = smallest_alike(t->out_keys, shape->cols, 0);
        t->out_rows = smallest_alike(t->out_rows, rows.x, rows.y);
        consider(s, t, true);
        if (s->pricing && !shape->full) {
            *t = widest;
            best_part(s, t, &t->out_keys);
            best_part(s, t, &t->out_rows);
            consider(s, t, true);
        }
    }
}

/* Add the best tiles of one kind to `tiles`; false if none fits. */
static bool add_kind(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                     void (*kind)(search *s, ordo_io_tiles *t), ordo_io_tiles *tiles)
{
    search s = { shape, *shape, algorithm, { 0 }, INT64_MAX, INT64_MAX, shape->full, 0 };
    s.open.full = true;
    s.open.blocks = NULL;
    for (int round = shape->full; round < 2; round++) {
        ordo_io_tiles t = { .panel = tiles->panel };
        s.pricing = round == 1;
        kind(&s, &t);
    }
    if (s.least == INT64_MAX)
        return false;
    tiles->rows += s.best.rows; /* a kind leaves the fields of the others at 0 */
    tiles->cols += s.best.cols;
    tiles->out_rows += s.best.out_rows;
    tiles->out_keys += s.best.out_keys;
    tiles->out_cols += s.best.out_cols;
    return true;
}

/* Rows per panel: as few panels as the workspace allows, of equal size; 0 if not even one row
 * fits. */
static int64_t panel_rows(const ordo_io_shape *shape, ordo_io_algorithm algorithm)
{
    const int64_t a_row = (algorithm == ORDO_IO_PHASE ? 2 : 1) * shape->cols;
    const int64_t rows = ordo_io_least(shape->rows, shape->workspace / a_row);
    return rows > 0 ? ordo_io_count(shape->rows, ordo_io_count(shape->rows, rows)) : 0;
}

bool ordo_io_attention_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                             ordo_io_tiles *tiles)
{
    const bool panels = algorithm == ORDO_IO_MAT || algorithm == ORDO_IO_PHASE;
    *tiles = (ordo_io_tiles) { 0 };
    if (algorithm == ORDO_IO_NAIVE)
        return ordo_io_attention_words(shape, algorithm, tiles).cache <= shape->cache;
    tiles->panel = panels ? panel_rows(shape, algorithm) : 0;
    if (panels && tiles->panel == 0)
        return false;
    switch (algorithm) {
    case ORDO_IO_APART:
        return add_kind(shape, algorithm, flash_tiles, tiles) &&
               add_kind(shape, algorithm, apart_rows, tiles) &&
               ordo_io_attention_words(shape, algorithm, tiles).cache <= shape->cache;
    case ORDO_IO_MAT:
        return add_kind(shape, algorithm, score_tiles, tiles) &&
               add_kind(shape, algorithm, mat_output, tiles);
    case ORDO_IO_PHASE:
        return shape->cache >= 3 && /* needed by the pass that computes delta */
               add_kind(shape, algorithm, score_tiles, tiles) &&
               add_kind(shape, algorithm, phase_output, tiles);
    case ORDO_IO_FUSED: return add_kind(shape, algorithm, score_tiles, tiles);
    default: return add_kind(shape, algorithm, flash_tiles, tiles);
    }
}

/* ---- tiles given by a caller ---- */

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
                             const ordo_io_tiles *fixed, ordo_io_tiles *tiles)
{
    const bool forward = shape->pass == ORDO_IO_FORWARD;
    const bool flash = algorithm == ORDO_IO_FLASH || algorithm == ORDO_IO_FLASH1;
    const bool apart = algorithm == ORDO_IO_APART, mat = algorithm == ORDO_IO_MAT;
    const bool phase = algorithm == ORDO_IO_PHASE;
    *tiles = *fixed;
    if (algorithm == ORDO_IO_NAIVE || shape->pass == ORDO_IO_GRADIENT) {
        *tiles = (ordo_io_tiles) { 0 };
        return ORDO_OK;
    }
    ORDO_TRY(set("rows", &tiles->rows, shape->rows,
                 apart || (flash && !(forward && algorithm == ORDO_IO_FLASH)) ? shape->strip : 0));
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
    if (apart) {
        ORDO_TRY(set("out_rows", &tiles->out_rows, shape->rows, 0));
        ORDO_TRY(set("out_cols", &tiles->out_cols, shape->cols, shape->strip));
    }
    return ORDO_OK;
}
