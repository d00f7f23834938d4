/* gradient_words.c: tiles and words of the gradient, whose stages are products and the attention
 * passes of words.c and tiles.c; then tiles and words of any pass. */
#include "io/words.h"

/* ---- products ---- */

/* (m x k)(k x p) with the result resident. */
static ordo_io_words product_words(const ordo_io_product *p, int64_t strip)
{
    const int64_t a = p->tile_rows, b = p->tile_cols;
    return (ordo_io_words) {
        .loads =
            p->inner * (p->rows * ordo_io_count(p->cols, b) + p->cols * ordo_io_count(p->rows, a)),
        .stores = p->rows * p->cols,
        .cache = a * b + strip * (a + b),
    };
}

/* Choose the tile that moves the fewest words; false if none fits. */
static bool product_tiles(ordo_io_product *p, int64_t cache, int64_t strip)
{
    ordo_io_product best = { 0 };
    int64_t least = INT64_MAX;
    for (int64_t size = p->rows; size > 0; size = p->tile_rows - 1) {
        p->tile_rows = ordo_io_even_tile(size, p->rows);
        const int64_t room = cache - strip * p->tile_rows;
        p->tile_cols = room > 0 ? ordo_io_least(p->cols, room / (p->tile_rows + strip)) : 0;
        if (p->tile_cols < 1)
            continue;
        p->tile_cols = ordo_io_even_tile(p->tile_cols, p->cols);
        const int64_t words = ordo_io_words_total(product_words(p, strip));
        if (words < least) {
            least = words;
            best = *p;
        }
    }
    if (least < INT64_MAX)
        *p = best;
    return least < INT64_MAX;
}

/* ---- the gradient ---- */

/* Choose the score tile of the phase algorithm; fast memory also holds one row of p and two
 * numbers. */
static bool score_tile(const ordo_io_shape *s, ordo_io_gradient *st)
{
    int64_t least = INT64_MAX;
    for (int64_t size = s->rows, rows; size > 0; size = rows - 1) {
        rows = ordo_io_even_tile(size, s->rows);
        const int64_t strips = (s->cache - s->strip * rows) / (rows + s->strip);
        const int64_t cols =
            ordo_io_least(s->cols, ordo_io_least(strips, (s->cache - 2) / (rows + 1)));
        if (s->cache <= s->strip * rows || cols < 1)
            continue;
        const int64_t tile_cols = ordo_io_even_tile(cols, s->cols);
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
    if (!product_tiles(&st->project, m, w) || !product_tiles(&st->dq, m, w) ||
        !product_tiles(&st->g, m, w) ||
        !ordo_io_attention_tiles(&st->inner, large ? ORDO_IO_FLASH : ORDO_IO_MAT, &st->forward))
        return false;
    if (large) {
        st->cols = ordo_io_least(w, shape->cols);
        st->rows = ordo_io_least(n, (m - st->cols * d) / (3 * d + 2 + 2 * st->cols));
        return m > st->cols * d && st->rows > 0;
    }
    /* Scores stay in slow memory between the forward and the backward part, so there are no
     * panels. */
    return st->forward.panel == n && score_tile(shape, st);
}

static ordo_io_words gradient(const ordo_io_shape *s, ordo_io_algorithm algorithm)
{
    ordo_io_gradient st;
    if (!ordo_io_gradient_tiles(s, algorithm, &st))
        return (ordo_io_words) { .cache = INT64_MAX };
    const int64_t n = s->rows, d = s->dk;
    const bool large = algorithm == ORDO_IO_FLASH;
    const ordo_io_words project = product_words(&st.project, s->strip);
    const ordo_io_words residual = { 2 * n * d, n * d + n, 4, 0 };
    ordo_io_words sum = ordo_io_words_add(ordo_io_words_add(project, project), residual);
    sum = ordo_io_words_add(
        sum, ordo_io_attention_words(&st.inner, large ? ORDO_IO_FLASH : ORDO_IO_MAT, &st.forward));
    if (large) {
        sum = ordo_io_words_add(sum, ordo_io_rows_words(&st.inner, st.rows, st.cols));
    } else {
        const ordo_io_grid g = ordo_io_grid_whole(&st.inner, st.rows, st.cols);
        const ordo_io_words scores = {
            .loads = (g.heights + g.widths) * d + g.areas + 2 * g.heights,
            .stores = g.areas,
            .cache = st.rows * st.cols + ordo_io_most(s->strip * (st.rows + st.cols), st.cols + 2),
        };
        sum = ordo_io_words_add(ordo_io_words_add(sum, scores), product_words(&st.dq, s->strip));
    }
    return ordo_io_words_add(sum, product_words(&st.g, s->strip));
}

/* ---- any pass ---- */

ordo_io_words ordo_io_words_of(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                               const ordo_io_tiles *tiles)
{
    return shape->pass == ORDO_IO_GRADIENT ? gradient(shape, algorithm)
                                           : ordo_io_attention_words(shape, algorithm, tiles);
}

bool ordo_io_best_tiles(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                        ordo_io_tiles *tiles)
{
    if (shape->pass != ORDO_IO_GRADIENT)
        return ordo_io_attention_tiles(shape, algorithm, tiles);
    *tiles = (ordo_io_tiles) { 0 };
    return gradient(shape, algorithm).cache <= shape->cache;
}
