/* grid_probe.h: which elements a pass has dropped, read back from its results.
 *
 * With q = k = 0 every visible element has the same probability. With values of one column block
 * the rows of an identity matrix, o of a row is not zero exactly where an element of that block is
 * visible and kept; with dout of one row block likewise, dv shows it for the backward pass. */
#ifndef TESTS_CUDA_GRID_PROBE_H
#define TESTS_CUDA_GRID_PROBE_H

#include "grid_compare.h"

typedef struct grid_probe {
    int64_t column, row; /* first of the blocks */
    int64_t query;       /* whose dout is not zero, of the query heads of a key head */
} grid_probe;

/* Rows first, first + 1, ... of a tensor become the rows of an identity matrix, all others zero;
 * in heads whose place in a group of `group` is `place`. */
static inline void grid_identity(grid_case *c, int tensor, int64_t first, int64_t group,
                                 int64_t place)
{
    const bool keys = grid_tensors[tensor].keys;
    const uint16_t one = grid_half(c, 1);
    for (int64_t b = 0; b < c->problem.batch; b++)
        for (int64_t r = 0; r < grid_length(c, keys, b); r++)
            for (int64_t h = 0; h < grid_heads(c, tensor); h++) {
                unsigned char *to = c->data[tensor] + grid_at(c, tensor, b, r, h);
                memset(to, 0, grid_slice(c, tensor));
                if (h % group == place && r >= first && r - first < grid_dim(c, tensor))
                    memcpy(to + (size_t)(r - first) * sizeof one, &one, sizeof one);
            }
}

/* Turn a case into one that shows its mask. */
static inline void grid_probe_fill(grid_case *c, const grid_probe *probe)
{
    grid_identity(c, GRID_Q, INT32_MAX, 1, 0);
    grid_identity(c, GRID_K, INT32_MAX, 1, 0);
    grid_identity(c, GRID_V, probe->column, 1, 0);
    grid_identity(c, GRID_DOUT, probe->row, c->problem.heads / c->problem.kv_heads, probe->query);
    memset(c->slopes, 0, sizeof c->slopes);
}

/* Where what a pass dropped is not what the exporter says. */
typedef struct grid_wrong_drop {
    bool backward, kept;
    int64_t sequence, head, row, column;
} grid_wrong_drop;

static inline bool grid_shows(const grid_case *c, int tensor, int64_t b, int64_t row, int64_t head,
                              int64_t d)
{
    const size_t at = grid_at(c, tensor, b, row, head) + (size_t)d * sizeof(uint16_t);
    return (grid_bits(c, tensor, at) & 0x7fff) != 0;
}

static inline bool grid_probe_head(const grid_case *c, const grid_head *h, const grid_probe *probe,
                                   int64_t b, int64_t head, grid_wrong_drop *wrong)
{
    for (int64_t i = 0; i < h->rows; i++)
        for (int64_t j = 0; j < h->cols; j++) {
            const bool keep = h->keep[i * h->cols + j] && grid_visible(h, i, j);
            const int64_t d = j - probe->column, e = i - probe->row;
            *wrong = (grid_wrong_drop) { false, keep, b, head, i, j };
            if (d >= 0 && d < h->v_dim && grid_shows(c, GRID_O, b, i, head, d) != keep)
                return true;
            wrong->backward = true;
            if (e >= 0 && e < h->v_dim && head % h->group == probe->query &&
                grid_shows(c, GRID_DV, b, j, head / h->group, e) != keep)
                return true;
        }
    return false;
}

/* Whether a probe that has run dropped anything else than it should. `resolved`: its problem as its
 * plan has it. */
static inline bool grid_probe_wrong(const grid_case *c, const ordo_problem *resolved,
                                    const grid_probe *probe, grid_wrong_drop *wrong)
{
    bool found = false;
    for (int64_t b = 0; b < c->problem.batch && !found; b++)
        for (int64_t head = 0; head < c->problem.heads && !found; head++) {
            unsigned char *kept = grid_kept(c, b, head);
            const int64_t rows = c->q_lens[b], cols = c->kv_lens[b];
            const grid_head h = {
                .p = resolved,
                .blocks = &c->blocks,
                .sequence = b,
                .head = head,
                .rows = rows,
                .cols = cols,
                .group = c->problem.heads / c->problem.kv_heads,
                .v_dim = c->problem.v_head_dim,
                .diagonal = c->problem.mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : cols - rows,
                .keep = kept,
            };
            found = kept && grid_probe_head(c, &h, probe, b, head, wrong);
            free(kept);
        }
    return found;
}

#endif
