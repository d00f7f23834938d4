/* words.c: words moved by each algorithm of the forward and the backward pass. */
#include "io/words.h"

bool ordo_io_has(ordo_io_pass pass, ordo_io_algorithm algorithm)
{
    if (pass < ORDO_IO_FORWARD || pass > ORDO_IO_GRADIENT)
        return false;
    switch (algorithm) {
    case ORDO_IO_NAIVE:
    case ORDO_IO_FUSED: return pass != ORDO_IO_GRADIENT;
    case ORDO_IO_FLASH: return true;
    case ORDO_IO_FLASH1:
    case ORDO_IO_MAT: return pass == ORDO_IO_FORWARD;
    case ORDO_IO_APART: return pass == ORDO_IO_BACKWARD;
    case ORDO_IO_PHASE: return pass != ORDO_IO_FORWARD;
    default: return false;
    }
}

/* ---- forward ---- */

static ordo_io_words forward_naive(const ordo_io_shape *s)
{
    const int64_t live = ordo_io_live_scores(s);
    return (ordo_io_words) { live * (2 * s->dk + 2 + 2 * s->dv), 2 * live + s->rows * (s->dv + 1),
                             3, s->rows * s->cols };
}

static ordo_io_words forward_flash(const ordo_io_shape *s, const ordo_io_tiles *t)
{
    const ordo_io_grid g = ordo_io_grid_whole(s, t->rows, t->cols);
    return (ordo_io_words) {
        .loads = g.live_rows * s->dk + g.widths * (s->dk + s->dv),
        .stores = s->rows * (s->dv + 1),
        .cache = t->rows * (s->dk + s->dv + 2 + t->cols) + t->cols * ordo_io_most(s->dk, s->dv),
    };
}

static ordo_io_words forward_flash1(const ordo_io_shape *s, const ordo_io_tiles *t)
{
    const ordo_io_grid g = ordo_io_grid_whole(s, t->rows, t->cols);
    return (ordo_io_words) {
        .loads = g.live_cols * (s->dk + s->dv) + g.heights * s->dk +
                 (g.heights - g.live_rows) * (s->dv + 2),
        .stores = g.heights * (s->dv + 2) + (s->rows - g.live_rows) * (s->dv + 1),
        .cache = (t->rows + t->cols) * (s->dk + s->dv) + t->rows * (2 + t->cols),
    };
}

static ordo_io_words forward_fused(const ordo_io_shape *s, const ordo_io_tiles *t)
{
    const ordo_io_grid g = ordo_io_grid_whole(s, t->rows, t->cols);
    return (ordo_io_words) {
        .loads =
            (g.heights + g.widths) * s->dk + g.widths * s->dv + (g.heights - g.live_rows) * s->dv,
        .stores = (g.heights + s->rows - g.live_rows) * s->dv + s->rows,
        .cache = t->rows * (t->cols + 3) + s->strip * (t->rows + t->cols),
    };
}

/* A tile of 0 leaves out its part of the cost, so that the parts can be optimised one by one. */
static ordo_io_grid grid_or_none(const ordo_io_shape *s, int64_t top, int64_t bottom,
                                 const ordo_io_tiles *t)
{
    return t->rows > 0 ? ordo_io_grid_of(s, top, bottom, t->rows, t->cols) : (ordo_io_grid) { 0 };
}
static ordo_io_strips rows_or_none(const ordo_io_shape *s, int64_t top, int64_t bottom,
                                   int64_t height)
{
    return height > 0 ? ordo_io_row_strips(s, top, bottom, height) : (ordo_io_strips) { 0 };
}
static ordo_io_strips cols_or_none(const ordo_io_shape *s, int64_t top, int64_t bottom,
                                   int64_t width)
{
    return width > 0 ? ordo_io_col_strips(s, top, bottom, width) : (ordo_io_strips) { 0 };
}

static ordo_io_words mat_panel(const ordo_io_shape *s, const ordo_io_tiles *t, int64_t top,
                               int64_t bottom)
{
    const ordo_io_grid g = grid_or_none(s, top, bottom, t);
    const ordo_io_strips out = rows_or_none(s, top, bottom, t->out_rows);
    return (ordo_io_words) {
        .loads = (g.heights + g.widths) * s->dk + out.lengths * s->dv +
                 ordo_io_count(s->dv, ordo_io_most(1, t->out_cols)) * (out.areas + out.live),
        .stores = g.areas,
    };
}

/* ---- backward ---- */

static ordo_io_words delta_pass(const ordo_io_shape *s)
{
    return (ordo_io_words) { 2 * s->rows * s->dv, s->rows, 3, 0 };
}

static ordo_io_words backward_naive(const ordo_io_shape *s)
{
    const int64_t live = ordo_io_live_scores(s);
    return (ordo_io_words) { live * (6 * s->dk + 4 * s->dv + 3),
                             2 * live + (s->rows + s->cols) * s->dk + s->cols * s->dv, 3,
                             2 * s->rows * s->cols };
}

/* One kernel with an outer loop over column blocks; without dq it is the first kernel of APART. */
static ordo_io_words backward_cols(const ordo_io_shape *s, const ordo_io_tiles *t, bool with_dq)
{
    if (t->rows == 0)
        return (ordo_io_words) { 0 };
    const ordo_io_grid g = ordo_io_grid_whole(s, t->rows, t->cols);
    const int64_t d = s->dk + s->dv, dq = with_dq ? s->dk : 0;
    return (ordo_io_words) {
        .loads = g.live_cols * d + g.heights * (d + 2) + (g.heights - g.live_rows) * dq,
        .stores = s->cols * d + (g.heights + s->rows - g.live_rows) * dq,
        .cache = 2 * t->cols * d + t->rows * (d + dq + 2 + 2 * t->cols),
    };
}

ordo_io_words ordo_io_rows_words(const ordo_io_shape *s, int64_t height, int64_t width)
{
    if (height == 0)
        return (ordo_io_words) { 0 };
    const ordo_io_grid g = ordo_io_grid_whole(s, height, width);
    const int64_t d = s->dk + s->dv;
    return (ordo_io_words) {
        .loads = g.live_rows * (d + 2) + g.widths * d,
        .stores = s->rows * s->dk,
        .cache = height * (d + s->dk + 2 + 2 * width) + width * ordo_io_most(s->dk, s->dv),
    };
}

static ordo_io_words backward_fused(const ordo_io_shape *s, const ordo_io_tiles *t)
{
    const ordo_io_grid g = ordo_io_grid_whole(s, t->rows, t->cols);
    const int64_t d = s->dk + s->dv;
    return (ordo_io_words) {
        .loads = (g.heights + g.widths) * (d + s->dk) + 2 * g.heights +
                 (g.heights - g.live_rows) * s->dk + (g.widths - g.live_cols) * d,
        .stores =
            (g.heights + s->rows - g.live_rows) * s->dk + (g.widths + s->cols - g.live_cols) * d,
        .cache = 2 * t->rows * (t->cols + 1) + s->strip * (t->rows + 2 * t->cols),
    };
}

static ordo_io_words phase_panel(const ordo_io_shape *s, const ordo_io_tiles *t, int64_t top,
                                 int64_t bottom)
{
    const ordo_io_grid g = grid_or_none(s, top, bottom, t);
    const ordo_io_strips rows = rows_or_none(s, top, bottom, t->out_rows);
    const ordo_io_strips cols = cols_or_none(s, top, bottom, t->out_keys);
    const int64_t d = s->dk + s->dv, width = ordo_io_most(1, t->out_cols);
    const int64_t k_tiles = ordo_io_count(s->dk, width), v_tiles = ordo_io_count(s->dv, width);
    return (ordo_io_words) {
        .loads = (g.heights + g.widths) * d + 2 * g.heights + g.areas +
                 cols.areas * (k_tiles + v_tiles) + cols.lengths * d + rows.areas * k_tiles +
                 rows.lengths * s->dk +
                 cols.live * d, /* the first access to a tile is subtracted in backward_phase() */
        .stores = 2 * g.areas + cols.live * d,
    };
}

/* ---- panels ---- */

/* Unmasked, all panels but the last cost the same: compute one and multiply. */
static ordo_io_words over_panels(const ordo_io_shape *s, const ordo_io_tiles *t,
                                 ordo_io_words (*panel)(const ordo_io_shape *s,
                                                        const ordo_io_tiles *t, int64_t top,
                                                        int64_t bottom))
{
    ordo_io_words sum = { 0 };
    int64_t top = 0;
    if (s->full && s->rows >= t->panel) {
        const int64_t whole_panels = s->rows / t->panel;
        const ordo_io_words one = panel(s, t, 0, t->panel);
        sum.loads = one.loads * whole_panels;
        sum.stores = one.stores * whole_panels;
        top = whole_panels * t->panel;
    }
    for (; top < s->rows; top += t->panel)
        sum = ordo_io_words_add(sum, panel(s, t, top, ordo_io_least(s->rows, top + t->panel)));
    return sum;
}

static ordo_io_words forward_mat(const ordo_io_shape *s, const ordo_io_tiles *t)
{
    const int64_t w = s->strip;
    const ordo_io_words ends = {
        .stores = s->rows * (s->dv + 1),
        .cache = ordo_io_most(t->rows * (t->cols + 2) + w * (t->rows + t->cols),
                              t->out_rows * (t->out_cols + 1) + w * (t->out_rows + t->out_cols)),
        .workspace = t->panel * s->cols,
    };
    return ordo_io_words_add(over_panels(s, t, mat_panel), ends);
}

static ordo_io_words backward_phase(const ordo_io_shape *s, const ordo_io_tiles *t)
{
    const int64_t w = s->strip, a = t->rows, b = t->cols, d = s->dk + s->dv;
    const int64_t out = ordo_io_most(t->out_rows, t->out_keys);
    const int64_t beside = ordo_io_most(w * (a + b), ordo_io_most(a, b + 1));
    const int64_t seen = cols_or_none(s, 0, s->rows, t->out_keys).live;
    const ordo_io_words ends = {
        .loads = -seen * d, /* the first panel that visits a tile of columns starts from zero */
        .stores = (s->cols - seen) * d + s->rows * s->dk,
        .cache = ordo_io_most(a * b + beside, out * t->out_cols + w * (out + t->out_cols)),
        .workspace = 2 * t->panel * s->cols,
    };
    return ordo_io_words_add(over_panels(s, t, phase_panel), ends);
}

/* ---- */

ordo_io_words ordo_io_attention_words(const ordo_io_shape *s, ordo_io_algorithm algorithm,
                                      const ordo_io_tiles *t)
{
    const bool forward = s->pass == ORDO_IO_FORWARD;
    switch (algorithm) {
    case ORDO_IO_NAIVE:
        return forward ? forward_naive(s) : ordo_io_words_add(delta_pass(s), backward_naive(s));
    case ORDO_IO_FLASH:
        return forward ? forward_flash(s, t)
                       : ordo_io_words_add(delta_pass(s), backward_cols(s, t, true));
    case ORDO_IO_FLASH1: return forward_flash1(s, t);
    case ORDO_IO_APART:
        return ordo_io_words_add(ordo_io_words_add(delta_pass(s), backward_cols(s, t, false)),
                                 ordo_io_rows_words(s, t->out_rows, t->out_cols));
    case ORDO_IO_MAT: return forward_mat(s, t);
    case ORDO_IO_PHASE: return ordo_io_words_add(delta_pass(s), backward_phase(s, t));
    default:
        return forward ? forward_fused(s, t)
                       : ordo_io_words_add(delta_pass(s), backward_fused(s, t));
    }
}
