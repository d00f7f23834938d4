/* grid_cut.h: rows and columns of one sequence of a case as a case of its own.
 *
 *   grid_piece_place rows = { .sequence = 1, .row = 64, .rows = 30, .columns = 200 };
 *   grid_piece_of(&c, &whole, &rows);
 *   grid_piece_differs(&whole, &c, &rows, GRID_BY_ROW, &at)     after it has run
 *
 * A piece is dense; its shard says where it lies. Backward alone, it takes o and lse of the whole.
 */
#ifndef TESTS_CUDA_GRID_CUT_H
#define TESTS_CUDA_GRID_CUT_H

#include "grid_run.h"

enum { GRID_BY_ROW = 1u << GRID_O | 1u << GRID_LSE | 1u << GRID_DQ };
enum { GRID_BY_KEY = 1u << GRID_DK | 1u << GRID_DV };

typedef struct grid_piece_place {
    int64_t sequence;
    int64_t row, rows, column, columns;
    bool decode; /* give no place: the last rows of a sequence of `columns` keys */
} grid_piece_place;

static inline int64_t grid_piece_first(const grid_piece_place *x, int tensor)
{
    return grid_tensors[tensor].keys ? x->column : x->row;
}

/* Copy inputs, and the whole's o and lse. */
static inline void grid_piece_copy(grid_case *to, const grid_case *from, const grid_piece_place *x)
{
    for (int t = 0; t <= GRID_LSE; t++)
        for (int64_t r = 0; r < grid_length(to, grid_tensors[t].keys, 0); r++)
            for (int64_t h = 0; h < grid_heads(to, t); h++)
                memcpy(to->data[t] + grid_at(to, t, 0, r, h),
                       from->data[t] + grid_at(from, t, x->sequence, grid_piece_first(x, t) + r, h),
                       grid_slice(to, t));
}

static inline void grid_piece_of(grid_case *to, const grid_case *from, const grid_piece_place *x)
{
    const int64_t b = x->sequence;
    *to = *from;
    ordo_problem *p = &to->problem;
    p->layout = ORDO_DENSE;
    p->batch = 1;
    p->shard.batch0 += b;
    if (p->shard.heads_total == 0)
        p->shard.heads_total = p->heads;
    if (p->shard.q_total == 0)
        p->shard.q_total = from->q_lens[b];
    if (p->shard.kv_total == 0)
        p->shard.kv_total = from->kv_lens[b];
    p->shard.row0 += x->row;
    p->shard.col0 += x->column;
    if (x->decode)
        p->shard.q_total = p->shard.kv_total = p->shard.row0 = p->shard.col0 = 0;
    to->sinks = from->sinks && p->shard.col0 == 0; /* the sink belongs to column 0 */
    to->ids[0] = from->ids[b];
    to->blocks.sequence0 += b;
    to->blocks.row0 += x->row;
    to->blocks.col0 += x->column;
    to->bias.sequence0 += b;
    to->bias.row0 += x->row;
    to->bias.col0 += x->column;
    for (int64_t h = 0; h < p->heads; h++)
        to->slopes[h] = from->slopes[(from->slopes_each ? b * p->heads : 0) + h];
    to->q_lens[0] = (int32_t)x->rows;
    to->kv_lens[0] = (int32_t)x->columns;
    to->head_gap = to->row_gap = x->decode ? 8 : 0; /* keys at a stride, as a cache has them */
    grid_settle(to, 0);
    grid_open(to);
    grid_piece_copy(to, from, x);
}

/* Whether one of these outputs has other bits than the whole. */
static inline bool grid_piece_differs(const grid_case *whole, const grid_case *part,
                                      const grid_piece_place *x, unsigned tensors, grid_place *at)
{
    for (int t = GRID_OUTPUTS; t < GRID_TENSORS; t++)
        for (int64_t r = 0; tensors >> t & 1 && r < grid_length(part, grid_tensors[t].keys, 0); r++)
            for (int64_t h = 0; h < grid_heads(part, t); h++) {
                const int64_t was = grid_piece_first(x, t) + r;
                *at = (grid_place) { .tensor = t, .sequence = x->sequence, .head = h, .row = was };
                if (grid_slice_differs(whole, grid_at(whole, t, x->sequence, was, h), part,
                                       grid_at(part, t, 0, r, h), at))
                    return true;
            }
    return false;
}

/* ---- some rows of every sequence of a ragged batch ---- */

/* Row `first[b]` and `rows[b]` of them, with all keys, and the whole's o and lse; false if there
 * are none. */
static inline bool grid_rows_of(grid_case *to, const grid_case *from, const int32_t *first,
                                const int32_t *rows)
{
    *to = *from;
    memcpy(to->q_lens, rows, (size_t)to->problem.batch * sizeof *rows);
    to->head_gap = to->row_gap = 0;
    grid_settle(to, 0);
    if (to->problem.layout != from->problem.layout)
        return false;
    to->problem.q_len = from->problem.q_len;
    to->problem.kv_len = from->problem.kv_len;
    grid_open(to);
    for (int t = 0; t <= GRID_LSE; t++) {
        const bool keys = grid_tensors[t].keys;
        for (int64_t b = 0; b < to->problem.batch; b++)
            for (int64_t r = 0; r < grid_length(to, keys, b); r++)
                for (int64_t h = 0; h < grid_heads(to, t); h++)
                    memcpy(to->data[t] + grid_at(to, t, b, r, h),
                           from->data[t] + grid_at(from, t, b, keys ? r : first[b] + r, h),
                           grid_slice(to, t));
    }
    return true;
}

/* Whether dq, and with `keys` dk and dv, have other bits than the whole. */
static inline bool grid_rows_differ(const grid_case *whole, const grid_case *part,
                                    const int32_t *first, bool keys, grid_place *at)
{
    for (int t = GRID_DQ; t <= (keys ? GRID_DV : GRID_DQ); t++)
        for (int64_t b = 0; b < part->problem.batch; b++)
            for (int64_t r = 0; r < grid_length(part, t != GRID_DQ, b); r++)
                for (int64_t h = 0; h < grid_heads(part, t); h++) {
                    const int64_t was = t == GRID_DQ ? first[b] + r : r;
                    *at = (grid_place) { .tensor = t, .sequence = b, .head = h, .row = was };
                    if (grid_slice_differs(whole, grid_at(whole, t, b, was, h), part,
                                           grid_at(part, t, b, r, h), at))
                        return true;
                }
    return false;
}

/* ---- backward passes of their own ---- */

/* The backward pass, from the o and lse that the case has. With `carry`, its sums are in
 * lab->sums. Gradients are NaN before. */
static inline ordo_status grid_run_backward(grid_lab *lab, grid_image *image, const grid_case *c,
                                            const ordo_plan *plan, unsigned carry, int threads)
{
    const size_t bytes = ordo_plan_workspace(plan);
    const ordo_problem *p = &c->problem;
    const int64_t keys = grid_rows(c, true) * p->kv_heads;
    const size_t sums = (size_t)(keys * p->head_dim) * sizeof(float);
    const size_t room = (sums + GRID_ALIGN - 1) / GRID_ALIGN * GRID_ALIGN;
    grid_reserve(lab, &lab->workspace, bytes + GRID_ALIGN);
    grid_set(lab, lab->workspace.at, 0xa5, bytes);
    grid_set(lab, image->memory.at + image->outputs, GRID_NOT_WRITTEN, image->end - image->outputs);
    grid_move(lab, image->memory.at + image->at[GRID_O], c->data[GRID_O], grid_bytes(c, GRID_O));
    grid_move(lab, image->memory.at + image->at[GRID_LSE], c->data[GRID_LSE],
              grid_bytes(c, GRID_LSE));
    image->call.workspace = lab->workspace.at;
    image->call.workspace_bytes = bytes;
    image->call.threads = threads;
    image->call.carry = carry;
    if (carry) {
        const size_t values = (size_t)(keys * p->v_head_dim) * sizeof(float);
        grid_reserve(lab, &lab->sums, room + values + GRID_ALIGN);
        if (!(carry & ORDO_CARRY_IN))
            grid_set(lab, lab->sums.at, GRID_NOT_WRITTEN, room + values);
        image->call.dk_sums = (float *)(void *)lab->sums.at;
        image->call.dv_sums = (float *)(void *)(lab->sums.at + room);
    }
    const ordo_status status = ordo_attention_backward(plan, &image->call);
    return status == ORDO_OK && lab->cuda ? ordo_device_synchronise(lab->stream) : status;
}

#endif
