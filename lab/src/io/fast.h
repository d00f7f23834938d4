/* fast.h: a fast memory of exactly M words in front of a slow memory.
 *
 * An algorithm loads blocks of matrices from slow memory, computes on them, stores results, and
 * releases blocks in reverse order of allocation. Every word moved is counted, by tensor and by
 * loop. To allocate more than is free, or to compute on words that are not in fast memory, is an
 * error; the first error is kept, nothing is computed after it, and the run fails.
 *
 * The same loops can run through a cache. Then a load moves nothing and returns a view of slow
 * memory (or of a packed copy), and the address of every access is passed to a sink. */
#ifndef IO_FAST_H
#define IO_FAST_H

#include "ordo/lab/io.h"

typedef enum ordo_io_tensor {
    ORDO_IO_T_Q,
    ORDO_IO_T_K,
    ORDO_IO_T_V,
    ORDO_IO_T_O,
    ORDO_IO_T_LSE,
    ORDO_IO_T_SUM, /* row sums of FLASH1 between its passes */
    ORDO_IO_T_DOUT,
    ORDO_IO_T_DELTA,
    ORDO_IO_T_DQ,
    ORDO_IO_T_DK,
    ORDO_IO_T_DV,
    ORDO_IO_T_P, /* scores or probabilities kept in slow memory */
    ORDO_IO_T_DS,
    ORDO_IO_T_A1, /* pass gradient: inputs, weights and intermediate results */
    ORDO_IO_T_A3,
    ORDO_IO_T_E,
    ORDO_IO_T_X,
    ORDO_IO_T_Y,
    ORDO_IO_T_G,
    ORDO_IO_T_COUNT
} ordo_io_tensor;

/* A matrix in slow memory, row-major. */
typedef struct ordo_io_matrix {
    double *data;
    int64_t rows, cols;
    ordo_io_tensor tensor;
} ordo_io_matrix;

/* A block for computation. */
typedef struct ordo_io_view {
    double *data;
    int64_t ld, rows, cols;
} ordo_io_view;

enum { ORDO_IO_BATCH = 1 << 14 }; /* accesses passed to a sink at a time */

/* Receives accesses: address in words * 2, plus 1 for a write. */
typedef struct ordo_io_sink {
    void (*take)(void *context, const uint32_t *accesses, size_t count);
    void *context;
} ordo_io_sink;

typedef struct ordo_io_fast {
    double *memory;     /* slow memory, then the pool */
    int64_t pool;       /* offset of the pool, in words */
    int64_t capacity;   /* words of the pool that may be allocated */
    int64_t used, peak; /* allocated now, and the maximum so far */
    const char *wrong;  /* the first error, or NULL */
    int loop;
    ordo_io_traffic loops[ORDO_IO_LOOPS];
    ordo_io_traffic tensors[ORDO_IO_T_COUNT];
    const ordo_io_sink *sink; /* NULL: blocks are staged in the pool */
    bool packed;
    uint32_t *batch; /* accesses not yet passed to the sink */
    size_t batched;
    int64_t accesses;
} ordo_io_fast;

/* Begin a loop: words moved from now on count for it. */
void ordo_io_loop(ordo_io_fast *fast, const char *name);

/* Allocate a block: uninitialised; filled with `value`. */
ordo_io_view ordo_io_take(ordo_io_fast *fast, int64_t rows, int64_t cols);
ordo_io_view ordo_io_fill(ordo_io_fast *fast, int64_t rows, int64_t cols, double value);

/* Allocate the block for a part of a matrix: loaded; filled with zeros, to be stored later; loaded
 * unless this is the first access to it. */
ordo_io_view ordo_io_load(ordo_io_fast *fast, const ordo_io_matrix *from, int64_t row, int64_t col,
                          int64_t rows, int64_t cols);
ordo_io_view ordo_io_fresh(ordo_io_fast *fast, const ordo_io_matrix *of, int64_t row, int64_t col,
                           int64_t rows, int64_t cols);
ordo_io_view ordo_io_modify(ordo_io_fast *fast, const ordo_io_matrix *of, int64_t row, int64_t col,
                            int64_t rows, int64_t cols, bool first);

void ordo_io_store(ordo_io_fast *fast, ordo_io_view block, const ordo_io_matrix *to, int64_t row,
                   int64_t col);

/* Store one value to all elements of a part of a matrix, one word at a time. */
void ordo_io_store_value(ordo_io_fast *fast, double value, const ordo_io_matrix *to, int64_t row,
                         int64_t col, int64_t rows, int64_t cols);

/* Release all blocks allocated since `mark` = ordo_io_mark(). */
int64_t ordo_io_mark(const ordo_io_fast *fast);
void ordo_io_release(ordo_io_fast *fast, int64_t mark);

/* Return whether there was no error so far and the view is in fast memory; else record the
 * error. */
bool ordo_io_resident(ordo_io_fast *fast, ordo_io_view view);

/* Pass the remaining accesses to the sink. */
void ordo_io_flush(ordo_io_fast *fast);

const char *ordo_io_tensor_name(ordo_io_tensor tensor);

/* ---- element access ---- */

static inline void ordo_io_touch(ordo_io_fast *fast, const double *word, unsigned write)
{
    if (!fast->sink)
        return;
    fast->batch[fast->batched++] = (uint32_t)(word - fast->memory) << 1 | write;
    if (fast->batched == ORDO_IO_BATCH)
        ordo_io_flush(fast);
}

static inline double ordo_io_get(ordo_io_fast *fast, ordo_io_view v, int64_t row, int64_t col)
{
    const double *word = v.data + row * v.ld + col;
    ordo_io_touch(fast, word, 0);
    return *word;
}

static inline void ordo_io_put(ordo_io_fast *fast, ordo_io_view v, int64_t row, int64_t col,
                               double value)
{
    double *word = v.data + row * v.ld + col;
    ordo_io_touch(fast, word, 1);
    *word = value;
}

#endif
