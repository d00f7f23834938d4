/* product.c: matrix products on the host.
 *
 * Workers take the next tile of C until none is left. A tile is summed in f32 while panels of A and
 * B, converted to f32 and stored by k, pass by; blocks of REGISTER_ROWS x REGISTER_COLUMNS stay in
 * registers over a panel. Panels and tiles are padded with zeros, which only reach elements that
 * are not stored. */
#include "block/product.h"

#include <stdatomic.h>
#include <string.h>

#include "base/pool.h"
#include "block/elements.h"

enum { TILE_ROWS = 48, TILE_COLUMNS = 128, DEPTH = 128, REGISTER_ROWS = 4, REGISTER_COLUMNS = 8 };

typedef struct tile_memory {
    float a[DEPTH][TILE_ROWS], b[DEPTH][TILE_COLUMNS], c[TILE_ROWS][TILE_COLUMNS];
} tile_memory;

typedef struct product_task {
    const block_product *product;
    ordo_dtype dtype;
    void (*beside)(void *context);
    void *context;
    atomic_llong next; /* tile */
} product_task;

/* panel[k][x] = element (x, k) of a matrix with these strides, x from `first`, k from `first_k`. */
static void load_panel(float *panel, int64_t width, const void *from, ordo_dtype dtype,
                       int64_t first, int64_t count, int64_t stride, int64_t first_k,
                       int64_t count_k, int64_t stride_k)
{
    for (int64_t k = 0; k < count_k; k++)
        for (int64_t x = count; x < width; x++)
            panel[k * width + x] = 0;
    if (stride == 1) {
        for (int64_t k = 0; k < count_k; k++)
            for (int64_t x = 0; x < count; x++)
                panel[k * width + x] =
                    block_load(from, dtype, (first_k + k) * stride_k + first + x);
        return;
    }
    for (int64_t x = 0; x < count; x++)
        for (int64_t k = 0; k < count_k; k++)
            panel[k * width + x] = block_load(from, dtype, (first + x) * stride + first_k + k);
}

static void add_block(tile_memory *t, int64_t row, int64_t column, int64_t count_k)
{
    float sum[REGISTER_ROWS][REGISTER_COLUMNS];
    for (int i = 0; i < REGISTER_ROWS; i++)
        memcpy(sum[i], &t->c[row + i][column], sizeof sum[i]);
    for (int64_t k = 0; k < count_k; k++) {
        const float *a = &t->a[k][row], *b = &t->b[k][column];
        for (int i = 0; i < REGISTER_ROWS; i++)
            for (int j = 0; j < REGISTER_COLUMNS; j++)
                sum[i][j] += a[i] * b[j];
    }
    for (int i = 0; i < REGISTER_ROWS; i++)
        memcpy(&t->c[row + i][column], sum[i], sizeof sum[i]);
}

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static void compute_tile(const product_task *task, tile_memory *t, int64_t row, int64_t column)
{
    const block_product *p = task->product;
    const int64_t rows = least(TILE_ROWS, p->m - row), columns = least(TILE_COLUMNS, p->n - column);
    memset(t->c, 0, sizeof t->c);
    for (int64_t k = 0; k < p->k; k += DEPTH) {
        const int64_t depth = least(DEPTH, p->k - k);
        load_panel(t->a[0], TILE_ROWS, p->a, task->dtype, row, rows, p->a_transposed ? 1 : p->k, k,
                   depth, p->m);
        load_panel(t->b[0], TILE_COLUMNS, p->b, task->dtype, column, columns,
                   p->b_transposed ? p->k : 1, k, depth, p->n);
        for (int64_t j = 0; j < columns; j += REGISTER_COLUMNS)
            for (int64_t i = 0; i < rows; i += REGISTER_ROWS)
                add_block(t, i, j, depth);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            block_store(p->c, task->dtype, (row + i) * p->n + column + j, t->c[i][j]);
}

static void multiply_tiles(void *context, int worker, int workers, void *scratch)
{
    product_task *task = context;
    const int64_t across = (task->product->n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const int64_t tiles = (task->product->m + TILE_ROWS - 1) / TILE_ROWS * across;
    if (task->beside && worker == workers - 1)
        task->beside(task->context);
    for (;;) {
        const int64_t tile = atomic_fetch_add_explicit(&task->next, 1, memory_order_relaxed);
        if (tile >= tiles)
            return;
        compute_tile(task, scratch, tile / across * TILE_ROWS, tile % across * TILE_COLUMNS);
    }
}

ordo_status ordo_block_multiply(const block_product *product, ordo_dtype dtype, int threads,
                                void (*beside)(void *context), void *context)
{
    product_task task = {
        .product = product, .dtype = dtype, .beside = beside, .context = context
    };
    return ordo_pool_run(threads, sizeof(tile_memory), multiply_tiles, &task);
}
