/* gemm.c: matrix products by tiles of C, as cuda/pass/gemm.h defines each element.
 *
 * Workers take the next tile until none is left. Panels of A and B pass by; what they lack to whole
 * steps and vectors is zeros, which change no sum. */
#include "emulator/gemm.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/half.h"
#include "base/pool.h"
#include "base/status.h"
#include "base/target.h"
#include "emulator/dot.h"
#include "emulator/product.h"
#include "emulator/special.h"

enum {
    TILE_ROWS = 64,
    TILE_COLUMNS = 128,
    DEPTH = 128,
    ELEMENTS = TILE_ROWS * TILE_COLUMNS,
    ELEMENT_BYTES = sizeof(float) + sizeof(int16_t), /* bytes of an element of an operand */
    NAN_BITS = 0x7fffffff
};

typedef struct job {
    const ordo_gemm_problem *problem;
    const ordo_gemm_call *call;
    atomic_llong next; /* tile */
} job;

typedef struct panels { /* panels of a worker */
    _Alignas(64) char a[TILE_ROWS * DEPTH * ELEMENT_BYTES];
    _Alignas(64) char b[DEPTH * TILE_COLUMNS * ELEMENT_BYTES];
    float sums[ORDO_GEMM_DEPTH][ELEMENTS];
} panels;

/* A worker and the tile of C that it computes. */
typedef struct worker {
    const ordo_gemm_problem *problem;
    const ordo_gemm_call *call;
    panels *memory;
    int64_t row, column;
    int rows, columns;
} worker;

/* A tile of lines x columns in `memory`: element (i, x) is the matrix's (line + i, column + x), or
 * if `transposed` its (column + x, line + i). */
static ordo_emulator_tile load(void *memory, int all_lines, int all_columns, ordo_dtype dtype,
                               const ordo_matrix *matrix, bool transposed, int64_t line,
                               int64_t column, int lines, int columns)
{
    const uint16_t *from = matrix->data;
    uint16_t column_of[TILE_COLUMNS];
    ordo_emulator_tile tile;
    ordo_emulator_tile_make(&tile, all_lines, all_columns, dtype, memory);
    for (int i = 0; i < lines; i++) {
        for (int x = 0; transposed && x < columns; x++)
            column_of[x] = from[(column + x) * matrix->stride + line + i];
        ordo_emulator_tile_set(&tile, i,
                               transposed ? column_of : from + (line + i) * matrix->stride + column,
                               columns);
    }
    return tile;
}

static int least(int64_t x, int64_t y)
{
    return (int)(x < y ? x : y);
}

/* One chain per element. */
static void add_section(const worker *w, float *sums, int section)
{
    const ordo_gemm_problem *p = w->problem;
    const int64_t length = ordo_gemm_section(p), first = section * length;
    memset(sums, 0, ELEMENTS * sizeof *sums);
    for (int64_t k = 0; k < length; k += DEPTH) {
        const int depth = least(DEPTH, length - k);
        const ordo_emulator_tile a = load(w->memory->a, TILE_ROWS, DEPTH, p->dtype, &w->call->a,
                                          p->a_transposed, w->row, first + k, w->rows, depth);
        const ordo_emulator_tile b = load(w->memory->b, DEPTH, TILE_COLUMNS, p->dtype, &w->call->b,
                                          p->b_transposed, first + k, w->column, depth, w->columns);
        const int steps = (depth + ORDO_GEMM_STEP - 1) / ORDO_GEMM_STEP;
        ordo_emulator_product(sums, TILE_COLUMNS, w->rows, &a, 0, 0, &b, 0, 0, TILE_COLUMNS,
                              steps * ORDO_GEMM_STEP, true);
    }
}

/* The sum of a section of e4m3: chains of ORDO_GEMM_CHAIN of k, added in f32. */
static float sum_e4m3(const uint8_t *a, const uint8_t *b, int64_t length)
{
    enum { STEP = 32 };
    float sum = 0.0f;
    for (int64_t k = 0; k < length;) {
        uint32_t chain = 0;
        for (int s = 0; s < ORDO_GEMM_CHAIN && k < length; s += STEP, k += STEP) {
            uint8_t x[STEP] = { 0 }, y[STEP] = { 0 };
            memcpy(x, a + k, (size_t)least(STEP, length - k));
            memcpy(y, b + k, (size_t)least(STEP, length - k));
            chain = ordo_emulator_dot_e4m3(&ordo_emulator_hopper_e4m3, x, y, chain);
        }
        sum += ordo_f32_of_bits(chain);
    }
    return sum;
}

static void add_section_e4m3(const worker *w, float *sums, int section)
{
    const ordo_gemm_call *call = w->call;
    const int64_t length = ordo_gemm_section(w->problem), first = section * length;
    for (int i = 0; i < w->rows; i++)
        for (int x = 0; x < w->columns; x++) {
            const uint8_t *a = call->a.data, *b = call->b.data;
            float *sum = &sums[i * TILE_COLUMNS + x];
            *sum = sum_e4m3(a + (w->row + i) * call->a.stride + first,
                            b + (w->column + x) * call->b.stride + first, length);
            if (call->scale && length > 0)
                *sum *= *call->scale;
        }
}

/* Element `at` of a row of type dtype. */
static float value(const void *row, ordo_dtype dtype, int64_t at)
{
    switch (dtype) {
    case ORDO_BF16: return ordo_f32_from_bf16(((const uint16_t *)row)[at]);
    case ORDO_F16: return ordo_f32_from_f16(((const uint16_t *)row)[at]);
    default: return ((const float *)row)[at];
    }
}

/* The bias and what C holds, then the one rounding. */
static void store(const worker *w)
{
    const ordo_gemm_problem *p = w->problem;
    for (int i = 0; i < w->rows; i++)
        for (int x = 0; x < w->columns; x++) {
            const int64_t at = (w->row + i) * w->call->c.stride + w->column + x;
            float sum = w->memory->sums[0][i * TILE_COLUMNS + x];
            if (p->bias)
                sum += value(w->call->bias, p->c_dtype, w->column + x);
            if (p->add)
                sum = ((const float *)w->call->c.data)[at] + sum;
            if (p->c_dtype != ORDO_F32)
                ((uint16_t *)w->call->c.data)[at] = ordo_emulator_round(sum, p->c_dtype);
            else
                ((float *)w->call->c.data)[at] = isnan(sum) ? ordo_f32_of_bits(NAN_BITS) : sum;
        }
}

static void compute_tile(const worker *w)
{
    int top = -1;
    for (int s = 0; s < w->problem->sections; s++) {
        if (w->problem->dtype == ORDO_E4M3)
            add_section_e4m3(w, w->memory->sums[++top], s);
        else
            add_section(w, w->memory->sums[++top], s);
        for (int merges = ordo_gemm_merges(s); merges > 0; merges--, top--)
            for (int x = 0; x < ELEMENTS; x++)
                w->memory->sums[top - 1][x] += w->memory->sums[top][x];
    }
    store(w);
}

static void work(void *context, int number, int workers, void *scratch)
{
    job *j = context;
    const ordo_gemm_problem *p = j->problem;
    const int64_t across = (p->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const int64_t tiles = (p->m + TILE_ROWS - 1) / TILE_ROWS * across;
    worker w = { .problem = p, .call = j->call, .memory = scratch };
    (void)number, (void)workers;
    for (;;) {
        const int64_t at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
        if (at >= tiles)
            return;
        w.row = at / across * TILE_ROWS;
        w.column = at % across * TILE_COLUMNS;
        w.rows = least(TILE_ROWS, p->m - w.row);
        w.columns = least(TILE_COLUMNS, p->n - w.column);
        compute_tile(&w);
    }
}

ordo_status ordo_emulator_gemm(const ordo_gemm_problem *problem, const ordo_gemm_call *call)
{
    job j = { .problem = problem, .call = call };
    const char *target = NULL;
    ORDO_TRY(ordo_target_name(&target)); /* a wrong ORDO_CPU */
    assert(ordo_emulator_tile_bytes(TILE_ROWS, DEPTH) == sizeof(((panels *)NULL)->a));
    assert(ordo_emulator_tile_bytes(DEPTH, TILE_COLUMNS) == sizeof(((panels *)NULL)->b));
    return ordo_pool_run(call->threads, sizeof(panels), work, &j);
}
