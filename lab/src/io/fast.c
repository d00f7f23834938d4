/* fast.c: a fast memory of exactly M words. */
#include "io/fast.h"

#include <string.h>

void ordo_io_loop(ordo_io_fast *fast, const char *name)
{
    for (fast->loop = 0; fast->loop < ORDO_IO_LOOPS - 1; fast->loop++) {
        const char *there = fast->loops[fast->loop].name;
        if (!there || strcmp(there, name) == 0)
            break;
    }
    fast->loops[fast->loop].name = name;
}

static void fail(ordo_io_fast *fast, const char *why)
{
    if (!fast->wrong)
        fast->wrong = why;
}

static ordo_io_view in_place(const ordo_io_matrix *m, int64_t row, int64_t col, int64_t rows,
                             int64_t cols)
{
    return (ordo_io_view) { m->data + row * m->cols + col, m->cols, rows, cols };
}

static bool in_pool(const ordo_io_fast *fast, ordo_io_view v)
{
    const double *begin = fast->memory + fast->pool;
    return v.data >= begin && v.data + (v.rows - 1) * v.ld + v.cols <= begin + fast->used;
}

bool ordo_io_resident(ordo_io_fast *fast, ordo_io_view view)
{
    if (!fast->wrong && !fast->sink && !in_pool(fast, view))
        fail(fast, "arithmetic on words that are not in fast memory");
    return !fast->wrong;
}

ordo_io_view ordo_io_take(ordo_io_fast *fast, int64_t rows, int64_t cols)
{
    const ordo_io_view none = { 0 };
    if (fast->wrong)
        return none;
    if (rows * cols > fast->capacity - fast->used) {
        fail(fast, "fast memory overflows");
        return none;
    }
    const ordo_io_view v = { fast->memory + fast->pool + fast->used, cols, rows, cols };
    fast->used += rows * cols;
    if (fast->used > fast->peak)
        fast->peak = fast->used;
    return v;
}

static void set_all(ordo_io_fast *fast, ordo_io_view v, double value)
{
    for (int64_t r = 0; r < v.rows; r++)
        for (int64_t c = 0; c < v.cols; c++)
            ordo_io_put(fast, v, r, c, value);
}

ordo_io_view ordo_io_fill(ordo_io_fast *fast, int64_t rows, int64_t cols, double value)
{
    const ordo_io_view v = ordo_io_take(fast, rows, cols);
    set_all(fast, v, value);
    return v;
}

static void copy(ordo_io_fast *fast, ordo_io_view from, ordo_io_view to)
{
    for (int64_t r = 0; r < to.rows; r++)
        for (int64_t c = 0; c < to.cols; c++)
            ordo_io_put(fast, to, r, c, ordo_io_get(fast, from, r, c));
}

ordo_io_view ordo_io_load(ordo_io_fast *fast, const ordo_io_matrix *from, int64_t row, int64_t col,
                          int64_t rows, int64_t cols)
{
    const ordo_io_view there = in_place(from, row, col, rows, cols);
    if (fast->sink && !fast->packed)
        return there;
    const ordo_io_view v = ordo_io_take(fast, rows, cols);
    copy(fast, there, v);
    fast->tensors[from->tensor].loads += rows * cols;
    fast->loops[fast->loop].loads += rows * cols;
    return v;
}

ordo_io_view ordo_io_fresh(ordo_io_fast *fast, const ordo_io_matrix *of, int64_t row, int64_t col,
                           int64_t rows, int64_t cols)
{
    if (!fast->sink || fast->packed)
        return ordo_io_fill(fast, rows, cols, 0);
    const ordo_io_view v = in_place(of, row, col, rows, cols);
    set_all(fast, v, 0);
    return v;
}

ordo_io_view ordo_io_modify(ordo_io_fast *fast, const ordo_io_matrix *of, int64_t row, int64_t col,
                            int64_t rows, int64_t cols, bool first)
{
    return first ? ordo_io_fresh(fast, of, row, col, rows, cols)
                 : ordo_io_load(fast, of, row, col, rows, cols);
}

void ordo_io_store(ordo_io_fast *fast, ordo_io_view block, const ordo_io_matrix *to, int64_t row,
                   int64_t col)
{
    const ordo_io_view there = in_place(to, row, col, block.rows, block.cols);
    if (fast->wrong || block.data == there.data) /* computed in place; the cache writes it back */
        return;
    if (!in_pool(fast, block)) {
        fail(fast, "a store of words that are not in fast memory");
        return;
    }
    copy(fast, block, there);
    fast->tensors[to->tensor].stores += block.rows * block.cols;
    fast->loops[fast->loop].stores += block.rows * block.cols;
}

void ordo_io_store_value(ordo_io_fast *fast, double value, const ordo_io_matrix *to, int64_t row,
                         int64_t col, int64_t rows, int64_t cols)
{
    const int64_t mark = ordo_io_mark(fast);
    const ordo_io_view word = ordo_io_fill(fast, 1, 1, value);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ordo_io_store(fast, word, to, row + r, col + c);
    ordo_io_release(fast, mark);
}

int64_t ordo_io_mark(const ordo_io_fast *fast)
{
    return fast->used;
}

void ordo_io_release(ordo_io_fast *fast, int64_t mark)
{
    if (mark < 0 || mark > fast->used)
        fail(fast, "a release of words that were not taken");
    else
        fast->used = mark;
}

void ordo_io_flush(ordo_io_fast *fast)
{
    if (!fast->sink || fast->batched == 0)
        return;
    fast->accesses += (int64_t)fast->batched;
    fast->sink->take(fast->sink->context, fast->batch, fast->batched);
    fast->batched = 0;
}

const char *ordo_io_tensor_name(ordo_io_tensor tensor)
{
    static const char *const names[ORDO_IO_T_COUNT] = {
        "q",  "k", "v",  "o",  "lse", "sum", "dout", "delta", "dq", "dk",
        "dv", "p", "ds", "a1", "a3",  "e",   "x",    "y",     "g",
    };
    return (unsigned)tensor < ORDO_IO_T_COUNT ? names[tensor] : "unknown";
}
