/* shape.c: which scores are visible, and sums over the tiles that contain them. */
#include "io/shape.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/mask.h"
#include "base/status.h"
#include "base/versioned.h"

enum {
    LENGTH_MAX = 1 << 24,
    DIM_MAX = 1 << 16,
    OPEN = 1 << 30,    /* a band without an edge on this side */
    WORDS_A_SCORE = 16 /* times dk + dv + 1: more than any algorithm moves for one score */
};

/* ---- from a problem ---- */

static ordo_status check_sizes(const ordo_io_problem *p)
{
    ORDO_TRY(ordo_check_range("pass", p->pass, ORDO_IO_FORWARD, ORDO_IO_GRADIENT));
    ORDO_TRY(ordo_check_range("q_len", p->q_len, 1, LENGTH_MAX));
    ORDO_TRY(ordo_check_range("kv_len", p->kv_len, 1, LENGTH_MAX));
    ORDO_TRY(ordo_check_range("head_dim", p->head_dim, 1, DIM_MAX));
    ORDO_TRY(ordo_check_range("v_head_dim", p->v_head_dim, 1, DIM_MAX));
    ORDO_TRY(ordo_check_range("heads", p->heads, 1, LENGTH_MAX));
    ORDO_TRY(ordo_check_range("kv_heads", p->kv_heads, 1, p->heads));
    ORDO_TRY(ordo_check_mask("mask", p->mask));
    ORDO_TRY(ordo_check_range("cache_words", p->cache_words, 1, INT64_MAX / 4));
    ORDO_TRY(ordo_check_range("strip", p->strip, 1, DIM_MAX));
    ORDO_TRY(ordo_check_range("workspace_words", p->workspace_words, 0, INT64_MAX));
    if (p->heads % p->kv_heads != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "kv_heads %" PRId64 ": expected a divisor of heads %" PRId64, p->kv_heads,
                         p->heads);
    if (p->window.on && (p->window.left < -1 || p->window.right < -1))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "window %" PRId64 ",%" PRId64 ": expected -1 (open) or more",
                         p->window.left, p->window.right);
    if (!(p->dropout_p >= 0 && p->dropout_p < 1))
        return ordo_fail(ORDO_ERR_ARGUMENT, "dropout_p %g: expected 0 <= p < 1", p->dropout_p);
    if (p->blocks && (p->block_q < 1 || p->block_k < 1))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "block_q %" PRId64 ", block_k %" PRId64 ": expected 1 or more", p->block_q,
                         p->block_k);
    return ORDO_OK;
}

/* Refuse problems for which a count may exceed 63 bits. */
static ordo_status check_fits(const ordo_io_problem *p)
{
    uint64_t words = WORDS_A_SCORE * (uint64_t)(p->head_dim + p->v_head_dim + 1);
    if (!ordo_mul_fits(&words, (uint64_t)p->q_len) || !ordo_mul_fits(&words, (uint64_t)p->kv_len) ||
        !ordo_mul_fits(&words, (uint64_t)p->heads) || words > (uint64_t)1 << 62)
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "q_len %" PRId64 ", kv_len %" PRId64 ", head_dim %" PRId64
                         ", v_head_dim %" PRId64 ", heads %" PRId64
                         ": the words moved may not fit 63 bits",
                         p->q_len, p->kv_len, p->head_dim, p->v_head_dim, p->heads);
    return ORDO_OK;
}

/* The gradient is defined for one length and one width, without a mask. */
static ordo_status check_gradient(const ordo_io_problem *p)
{
    if (p->pass == ORDO_IO_GRADIENT &&
        (p->q_len != p->kv_len || p->head_dim != p->v_head_dim || p->heads != 1 || p->mask ||
         p->window.on || p->blocks || p->dropout_p > 0))
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "pass gradient: expected one head, q_len = kv_len, "
                                               "head_dim = v_head_dim, no mask and no dropout");
    return ORDO_OK;
}

static void set_band(ordo_io_shape *shape, const ordo_io_problem *p)
{
    const int64_t diagonal = ordo_band_diagonal(p->mask, p->q_len, p->kv_len);
    const bool left = p->window.on && p->window.left >= 0;
    const bool right = p->window.on && p->window.right >= 0;
    /* an edge beyond all columns is no edge */
    const int64_t left_of = ordo_io_least(p->window.left, OPEN);
    const int64_t right_of = ordo_io_least(p->window.right, OPEN);
    shape->low = left ? diagonal - left_of : -OPEN;
    shape->high = p->mask ? diagonal : right ? diagonal + right_of : OPEN;
    shape->full = !p->blocks && !left && !right && !p->mask;
}

ordo_status ordo_io_shape_of(const ordo_io_problem *problem, ordo_io_shape *shape)
{
    ordo_io_problem p;
    ORDO_TRY(ordo_check_pointer("problem", problem));
    static const ordo_nested nested[] = { ORDO_NESTED(ordo_io_problem, window), { 0 } };
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_io_problem, "ordo_io_problem", ORDO_IO_PROBLEM_INIT, nested);
    ORDO_TRY(ordo_versioned_copy(&p, problem, &kind));
    p.kv_len = p.kv_len ? p.kv_len : p.q_len;
    p.v_head_dim = p.v_head_dim ? p.v_head_dim : p.head_dim;
    p.heads = p.heads ? p.heads : 1;
    p.kv_heads = p.kv_heads ? p.kv_heads : p.heads;
    p.strip = p.strip ? p.strip : 1;
    ORDO_TRY(check_sizes(&p));
    ORDO_TRY(check_fits(&p));
    ORDO_TRY(check_gradient(&p));
    *shape = (ordo_io_shape) {
        .pass = p.pass,
        .rows = p.q_len * (p.heads / p.kv_heads),
        .cols = p.kv_len,
        .group = p.heads / p.kv_heads,
        .dk = p.head_dim,
        .dv = p.v_head_dim,
        .blocks = p.blocks,
        .block_q = ordo_io_least(p.block_q, p.q_len), /* a larger block hides the same scores */
        .block_k = ordo_io_least(p.block_k, p.kv_len),
        .cache = p.cache_words,
        .strip = p.strip,
        .workspace = p.workspace_words ? p.workspace_words : INT64_MAX,
        .copies = p.kv_heads,
    };
    shape->blocks_across = p.blocks ? ordo_io_count(p.kv_len, shape->block_k) : 0;
    set_band(shape, &p);
    return ORDO_OK;
}

/* ---- visibility ---- */

static ordo_io_span intersect(ordo_io_span a, int64_t begin, int64_t end)
{
    a.begin = ordo_io_most(a.begin, begin);
    a.end = ordo_io_most(a.begin, ordo_io_least(a.end, end));
    return a;
}

/* The visible columns of positions p0..p1-1 of a band: one interval, since those of neighbours
 * overlap or touch. Likewise the positions that see columns c0..c1-1. */
static ordo_io_span band_cols(const ordo_io_shape *s, int64_t p0, int64_t p1)
{
    return (ordo_io_span) { p0 + s->low, p1 + s->high };
}
static ordo_io_span band_positions(const ordo_io_shape *s, int64_t c0, int64_t c1)
{
    return (ordo_io_span) { c0 - s->high, c1 - s->low };
}

static bool block_at(const ordo_io_shape *s, int64_t position, int64_t col)
{
    return s->blocks[position / s->block_q * s->blocks_across + col / s->block_k] != 0;
}

bool ordo_io_visible(const ordo_io_shape *s, int64_t row, int64_t col)
{
    if (s->full)
        return true;
    const int64_t position = row / s->group, right_of = col - position;
    return right_of >= s->low && right_of <= s->high && (!s->blocks || block_at(s, position, col));
}

/* Whether the band meets a rectangle of positions and columns. */
static bool band_meets(const ordo_io_shape *s, int64_t p0, int64_t p1, int64_t c0, int64_t c1)
{
    const ordo_io_span seen = intersect(band_cols(s, p0, p1), c0, c1);
    return seen.begin < seen.end;
}

bool ordo_io_live(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    if (r0 >= r1 || c0 >= c1)
        return false;
    const int64_t p0 = r0 / s->group, p1 = (r1 - 1) / s->group + 1;
    if (!s->blocks)
        return s->full || band_meets(s, p0, p1, c0, c1);
    for (int64_t p = p0; p < p1; p = (p / s->block_q + 1) * s->block_q)
        for (int64_t c = c0; c < c1; c = (c / s->block_k + 1) * s->block_k)
            if (block_at(s, p, c) &&
                band_meets(s, p, ordo_io_least(p1, (p / s->block_q + 1) * s->block_q), c,
                           ordo_io_least(c1, (c / s->block_k + 1) * s->block_k)))
                return true;
    return false;
}

/* Pairs (position, column) with column - position <= x. */
static int64_t pairs_up_to(int64_t positions, int64_t cols, int64_t x)
{
    /* Position i has min(cols, max(0, i + x + 1)) such columns: first 0, then one more per
     * position, then all. */
    const int64_t none = ordo_io_least(positions, ordo_io_most(0, -x - 1));
    const int64_t all = ordo_io_least(positions, ordo_io_most(none, cols - x - 1));
    const int64_t first = none + x + 1, growing = all - none;
    return growing * first + growing * (growing - 1) / 2 + (positions - all) * cols;
}

int64_t ordo_io_live_scores(const ordo_io_shape *s)
{
    const int64_t positions = s->rows / s->group;
    int64_t live = 0;
    if (!s->blocks)
        return s->group * (pairs_up_to(positions, s->cols, s->high) -
                           pairs_up_to(positions, s->cols, s->low - 1));
    for (int64_t p = 0; p < positions; p++)
        for (int64_t c = 0; c < s->cols; c++)
            live += ordo_io_visible(s, p * s->group, c);
    return live * s->group;
}

/* ---- runs ---- */

ordo_io_span ordo_io_next_cols(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t from,
                               int64_t to)
{
    const ordo_io_span all = { from, to };
    if (s->full || !s->blocks)
        return s->full ? all
                       : intersect(band_cols(s, r0 / s->group, (r1 - 1) / s->group + 1), from, to);
    ordo_io_span run = { from, from };
    while (run.begin < to && !ordo_io_live(s, r0, r1, run.begin, run.begin + 1))
        run.begin++;
    for (run.end = run.begin; run.end < to && ordo_io_live(s, r0, r1, run.end, run.end + 1);)
        run.end++;
    return run;
}

ordo_io_span ordo_io_next_rows(const ordo_io_shape *s, int64_t c0, int64_t c1, int64_t from,
                               int64_t to)
{
    const ordo_io_span all = { from, to };
    if (s->full || !s->blocks) {
        ordo_io_span seen = band_positions(s, c0, c1);
        seen.begin *= s->group;
        seen.end *= s->group;
        return s->full ? all : intersect(seen, from, to);
    }
    ordo_io_span run = { from, from };
    while (run.begin < to && !ordo_io_live(s, run.begin, run.begin + 1, c0, c1))
        run.begin++;
    for (run.end = run.begin; run.end < to && ordo_io_live(s, run.end, run.end + 1, c0, c1);)
        run.end++;
    return run;
}

/* ---- sums over tiles ---- */

typedef struct tally {
    int64_t tiles, size; /* number of live tiles, and the sum of their sizes */
} tally;

/* Add the tiles of `size`, counted from `origin`, that overlap a run of indices. */
static tally tiles_met(ordo_io_span run, int64_t origin, int64_t end, int64_t size)
{
    if (run.begin >= run.end)
        return (tally) { 0, 0 };
    const int64_t first = (run.begin - origin) / size, last = (run.end - 1 - origin) / size;
    return (tally) { last - first + 1,
                     ordo_io_least(end, origin + (last + 1) * size) - (origin + first * size) };
}

static tally col_tiles(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t width)
{
    if (!s->blocks)
        return tiles_met(ordo_io_next_cols(s, r0, r1, 0, s->cols), 0, s->cols, width);
    tally t = { 0, 0 };
    for (int64_t c = 0; c < s->cols; c += width) {
        const int64_t end = ordo_io_least(s->cols, c + width);
        if (ordo_io_live(s, r0, r1, c, end)) {
            t.tiles++;
            t.size += end - c;
        }
    }
    return t;
}

static tally row_tiles(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                       int64_t height)
{
    return tiles_met(ordo_io_next_rows(s, c0, c1, r0, r1), r0, r1, height);
}

/* Sum of floor((a i + b) / m) over i = 0..n-1, b not negative: the lattice points below a line, by
 * the steps of Euclid's algorithm. */
static int64_t floor_sum(int64_t n, int64_t m, int64_t a, int64_t b)
{
    int64_t sum = 0;
    while (n > 0) {
        sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
        a %= m;
        b %= m;
        const int64_t above = a * n + b, old = m;
        n = above / m;
        b = above % m;
        m = a;
        a = old;
    }
    return sum;
}

/* For `count` tiles of `step` positions from `first` on along a band: the number of tiles of
 * `width` in 0..length-1 that they overlap, the sum of their sizes, and how many overlap any. */
typedef struct band_sum {
    int64_t tiles, size, live;
} band_sum;

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return ordo_io_most(low, ordo_io_least(x, high));
}

static band_sum sum_band(int64_t first, int64_t count, int64_t step, ordo_io_span band,
                         int64_t length, int64_t width)
{
    const int64_t begin = first + band.begin,
                  end = first + step + band.end; /* what tile 0 overlaps */
    const int64_t all = ordo_io_count(length, width);
    if (end <= begin || count < 1 || length < 1)
        return (band_sum) { 0, 0, 0 };
    /* Tiles before `top` and from `bottom` on overlap nothing. */
    const int64_t top = end >= 1 ? 0 : ordo_io_count(1 - end, step);
    const int64_t bottom = begin >= length ? 0 : clamp((length - 1 - begin) / step + 1, 0, count);
    if (top >= bottom)
        return (band_sum) { 0, 0, 0 };
    /* The band leaves the near edge at `leaves`, reaches the far one at `reaches`. */
    const int64_t leaves = clamp(begin >= 0 ? 0 : ordo_io_count(-begin, step), top, bottom);
    const int64_t reaches = clamp(end > length ? 0 : (length - end) / step + 1, top, bottom);
    const int64_t before = floor_sum(bottom - leaves, width, step, begin + leaves * step);
    const int64_t upto = floor_sum(reaches - top, width, step, end + top * step - 1) + reaches -
                         top + (bottom - reaches) * all;
    /* From `short_at` on the last overlapped tile is the last of all, which may be smaller. */
    const int64_t short_of = (all - 1) * width + 1 - end;
    const int64_t short_at = clamp(short_of <= 0 ? 0 : ordo_io_count(short_of, step), top, bottom);
    return (band_sum) { upto - before,
                        (upto - before) * width - (bottom - short_at) * (all * width - length),
                        bottom - top };
}

/* Whether each tile of rows is a whole number of positions of a band. */
static bool along_band(const ordo_io_shape *s, int64_t r0, int64_t height)
{
    return !s->blocks && r0 % s->group == 0 && height % s->group == 0;
}

static ordo_io_grid grid_full(const ordo_io_shape *s, int64_t rows, int64_t height, int64_t width)
{
    return (ordo_io_grid) { rows * ordo_io_count(s->cols, width),
                            s->cols * ordo_io_count(rows, height), rows * s->cols, rows, s->cols };
}

/* The same sums by tiles of columns, which is faster if these are fewer. Bands only. */
static ordo_io_grid grid_by_cols(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t height,
                                 int64_t width)
{
    ordo_io_grid g = { 0 };
    for (int64_t c = 0; c < s->cols; c += width) {
        const int64_t end = ordo_io_least(s->cols, c + width);
        const tally t = row_tiles(s, r0, r1, c, end, height);
        g.heights += t.size;
        g.widths += t.tiles * (end - c);
        g.areas += t.size * (end - c);
        g.live_cols += t.tiles > 0 ? end - c : 0;
    }
    g.live_rows = row_tiles(s, r0, r1, 0, s->cols, height).size;
    return g;
}

/* All full tiles of rows at once, then the partial one. */
static ordo_io_grid grid_band(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t height,
                              int64_t width)
{
    const int64_t whole = (r1 - r0) / height, rest = r0 + whole * height;
    const band_sum b = sum_band(r0 / s->group, whole, height / s->group,
                                (ordo_io_span) { s->low, s->high }, s->cols, width);
    const tally t = rest < r1 ? col_tiles(s, rest, r1, width) : (tally) { 0, 0 };
    return (ordo_io_grid) { b.tiles * height + t.tiles * (r1 - rest), b.size + t.size,
                            b.size * height + t.size * (r1 - rest),
                            b.live * height + (t.tiles > 0 ? r1 - rest : 0),
                            col_tiles(s, r0, r1, width).size };
}

ordo_io_grid ordo_io_grid_of(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t height,
                             int64_t width)
{
    if (s->full)
        return grid_full(s, r1 - r0, height, width);
    if (along_band(s, r0, height))
        return grid_band(s, r0, r1, height, width);
    if (!s->blocks && ordo_io_count(r1 - r0, height) > ordo_io_count(s->cols, width))
        return grid_by_cols(s, r0, r1, height, width);
    ordo_io_grid g = { 0 };
    for (int64_t r = r0; r < r1; r += height) {
        const int64_t end = ordo_io_least(r1, r + height);
        const tally t = col_tiles(s, r, end, width);
        g.heights += t.tiles * (end - r);
        g.widths += t.size;
        g.areas += t.size * (end - r);
        g.live_rows += t.tiles > 0 ? end - r : 0;
    }
    g.live_cols = col_tiles(s, r0, r1, width).size;
    return g;
}

static void add_strip(ordo_io_strips *sum, int64_t length, int64_t size)
{
    sum->lengths += length;
    sum->areas += length * size;
    sum->live += length > 0 ? size : 0;
}

ordo_io_strips ordo_io_row_strips(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t height)
{
    if (s->full)
        return (ordo_io_strips) { s->cols * ordo_io_count(r1 - r0, height), s->cols * (r1 - r0),
                                  r1 - r0 };
    ordo_io_strips sum = { 0 };
    int64_t begin = r0;
    if (along_band(s, r0, height)) {
        const int64_t whole = (r1 - r0) / height;
        const band_sum b = sum_band(r0 / s->group, whole, height / s->group,
                                    (ordo_io_span) { s->low, s->high }, s->cols, 1);
        sum = (ordo_io_strips) { b.size, b.size * height, b.live * height };
        begin += whole * height;
    }
    for (int64_t r = begin; r < r1; r += height) {
        const int64_t end = ordo_io_least(r1, r + height);
        add_strip(&sum, col_tiles(s, r, end, 1).size, end - r);
    }
    return sum;
}

ordo_io_strips ordo_io_col_strips(const ordo_io_shape *s, int64_t r0, int64_t r1, int64_t width)
{
    const int64_t rows = r1 - r0;
    if (s->full)
        return (ordo_io_strips) { rows * ordo_io_count(s->cols, width), rows * s->cols, s->cols };
    ordo_io_strips sum = { 0 };
    int64_t begin = 0;
    if (along_band(s, r0, r1)) { /* positions seen from columns */
        const int64_t whole = s->cols / width, p0 = r0 / s->group;
        const band_sum b = sum_band(-p0, whole, width, (ordo_io_span) { -s->high, -s->low },
                                    r1 / s->group - p0, 1);
        const int64_t length = b.size * s->group;
        sum = (ordo_io_strips) { length, length * width, b.live * width };
        begin = whole * width;
    }
    for (int64_t c = begin; c < s->cols; c += width) {
        const int64_t end = ordo_io_least(s->cols, c + width);
        int64_t length = 0;
        for (ordo_io_span run = { r0, r0 };;) {
            run = ordo_io_next_rows(s, c, end, run.end, r1);
            if (run.begin >= run.end)
                break;
            length += run.end - run.begin;
        }
        add_strip(&sum, length, end - c);
    }
    return sum;
}
