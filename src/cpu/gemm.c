/* gemm.c: matrix products by tiles of C.
 *
 * Workers take the next tile until none is left. A tile is summed in f32 while panels of A and B
 * pass by; the sums of a panel continue those of the panel before it, so that an element is one
 * chain per section, whatever the tiles. */
#include "cpu/gemm.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/pool.h"
#include "base/status.h"
#include "cpu/kernels.h"

enum {
    TILE_ROWS = 48,
    TILE_COLUMNS = 128,
    DEPTH = 128,
    A_ROW = DEPTH + 16 /* row of a panel: one of 128 floats would meet itself in the cache */
};

typedef struct memory { /* scratch memory of a worker */
    float a[TILE_ROWS * A_ROW], b[DEPTH * TILE_COLUMNS], row[TILE_COLUMNS];
    float sums[ORDO_GEMM_DEPTH][TILE_ROWS * TILE_COLUMNS];
} memory;

typedef struct job {
    const ordo_gemm_problem *problem;
    const ordo_gemm_call *call;
    const ordo_kernels *kernels;
    void (*beside)(void *context);
    void *context;
    atomic_llong next; /* tile */
} job;

/* A tile of C. */
typedef struct tile {
    int64_t row, column;
    int rows, columns;
} tile;

static int least(int64_t x, int64_t y)
{
    return (int)(x < y ? x : y);
}

static const void *element(const ordo_matrix *matrix, ordo_dtype dtype, int64_t row, int64_t column)
{
    const int64_t width = dtype == ORDO_F32 ? 4 : 2;
    return (const char *)matrix->data + (row * matrix->stride + column) * width;
}

/* sums (+)= the terms k .. k + depth - 1 of every element. */
static void add_panels(const job *j, const tile *t, memory *w, float *sums, int64_t k, int depth,
                       bool add)
{
    const ordo_gemm_problem *p = j->problem;
    const ordo_matrix *a = &j->call->a, *b = &j->call->b;
    if (p->a_transposed)
        j->kernels->load(w->a, TILE_ROWS, element(a, p->dtype, k, t->row), p->dtype, a->stride,
                         depth, t->rows);
    else
        j->kernels->load(w->a, A_ROW, element(a, p->dtype, t->row, k), p->dtype, a->stride, t->rows,
                         depth);
    if (p->b_transposed)
        j->kernels->load_transposed(w->b, TILE_COLUMNS, element(b, p->dtype, t->column, k),
                                    p->dtype, b->stride, t->columns, depth);
    else
        j->kernels->load(w->b, TILE_COLUMNS, element(b, p->dtype, k, t->column), p->dtype,
                         b->stride, depth, t->columns);
    j->kernels->rounded_product(t->rows, t->columns, depth, w->a, p->a_transposed ? 1 : A_ROW,
                                p->a_transposed ? TILE_ROWS : 1, w->b, TILE_COLUMNS, sums,
                                TILE_COLUMNS, add);
}

/* One chain per element, from the zeros that `sums` has. */
static void add_section(const job *j, const tile *t, memory *w, float *sums, int section)
{
    const int64_t length = ordo_gemm_section(j->problem), first = section * length;
    memset(sums, 0, sizeof w->sums[0]);
    for (int64_t k = 0; k < length; k += DEPTH)
        add_panels(j, t, w, sums, first + k, least(DEPTH, length - k), true);
}

/* The bias and what C holds, then the one rounding. */
static void store_tile(const job *j, const tile *t, memory *w)
{
    const ordo_gemm_problem *p = j->problem;
    const ordo_matrix *c = &j->call->c;
    float *sums = w->sums[0];
    if (p->bias) {
        const ordo_matrix bias = { (void *)j->call->bias, 0 };
        j->kernels->load(w->row, TILE_COLUMNS, element(&bias, p->c_dtype, 0, t->column), p->c_dtype,
                         0, 1, t->columns);
        for (int i = 0; i < t->rows; i++)
            j->kernels->accumulate(1, t->columns, sums + i * TILE_COLUMNS, TILE_COLUMNS, w->row,
                                   TILE_COLUMNS, false);
    }
    void *to = (void *)element(c, p->c_dtype, t->row, t->column);
    if (p->add) {
        j->kernels->load(w->sums[1], TILE_COLUMNS, to, ORDO_F32, c->stride, t->rows, t->columns);
        j->kernels->accumulate(t->rows, t->columns, sums, TILE_COLUMNS, w->sums[1], TILE_COLUMNS,
                               false);
    }
    j->kernels->store(to, p->c_dtype, c->stride, sums, TILE_COLUMNS, t->rows, t->columns, 1, NULL);
}

static void compute_tile(const job *j, const tile *t, memory *w)
{
    int top = -1;
    for (int s = 0; s < j->problem->sections; s++) {
        add_section(j, t, w, w->sums[++top], s);
        for (int merges = ordo_gemm_merges(s); merges > 0; merges--, top--)
            j->kernels->accumulate(t->rows, t->columns, w->sums[top - 1], TILE_COLUMNS,
                                   w->sums[top], TILE_COLUMNS, false);
    }
    assert(top == 0);
    store_tile(j, t, w);
}

static int64_t tiles_across(const ordo_gemm_problem *p)
{
    return (p->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

static int64_t tiles_of(const ordo_gemm_problem *p)
{
    return (p->m + TILE_ROWS - 1) / TILE_ROWS * tiles_across(p);
}

static void work(void *context, int worker, int workers, void *scratch)
{
    job *j = context;
    const ordo_gemm_problem *p = j->problem;
    const int64_t across = tiles_across(p), tiles = tiles_of(p);
    if (j->beside && worker == workers - 1)
        j->beside(j->context);
    for (;;) {
        const int64_t at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (at >= tiles)
            return;
        tile t = { .row = at / across * TILE_ROWS, .column = at % across * TILE_COLUMNS };
        t.rows = least(TILE_ROWS, p->m - t.row);
        t.columns = least(TILE_COLUMNS, p->n - t.column);
        compute_tile(j, &t, scratch);
    }
}

ordo_status ordo_cpu_gemm(const ordo_gemm_problem *problem, const ordo_gemm_call *call,
                          void (*beside)(void *context), void *context)
{
    job j = { .problem = problem, .call = call, .beside = beside, .context = context };
    ORDO_TRY(ordo_cpu_kernels(&j.kernels));
    const int threads = ordo_pool_threads(call->threads);
    const int64_t useful = tiles_of(problem) + (beside != NULL);
    return ordo_pool_run(useful < threads ? (int)useful : threads, sizeof(memory), work, &j);
}
