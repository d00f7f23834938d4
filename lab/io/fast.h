/* fast.h: a fast memory of exactly M words in front of a slow one.
 *
 * An algorithm loads blocks of slow matrices, computes on what is there, stores results, and
 * releases in reverse order of taking. Every word that crosses is counted, by tensor and by phase.
 * Taking more than is free, or computing on words that are not there, is an error that sticks:
 * from then on nothing is computed, and the run fails.
 *
 * The same loops run through a cache instead: then loading moves nothing and hands out a view of
 * slow memory (or a packed copy), and every access goes to the sink as an address. */
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
    ORDO_IO_T_A1, /* of the gradient: inputs, weights, and what is made of them */
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

/* A block that can be computed on. */
typedef struct ordo_io_view {
    double *data;
    int64_t ld, rows, cols;
} ordo_io_view;

enum { ORDO_IO_BATCH = 1 << 14 }; /* accesses handed to a sink at a time */

/* Takes addresses in words, times two, plus one for a write. */
typedef struct ordo_io_sink {
    void (*take)(void *context, const uint32_t *accesses, size_t count);
    void *context;
} ordo_io_sink;

typedef struct ordo_io_fast {
    double *memory;     /* slow memory, then the pool */
    int64_t pool;       /* where the pool starts, in words */
    int64_t capacity;   /* words of the pool that may be taken */
    int64_t used, peak; /* now, at most */
    const char *wrong;  /* first mistake, or NULL */
    int phase;
    ordo_io_traffic phases[ORDO_IO_PHASES];
    ordo_io_traffic tensors[ORDO_IO_T_COUNT];
    const ordo_io_sink *sink; /* NULL: the program stages its own words */
    bool packed;
    uint32_t *batch; /* accesses not yet handed over */
    size_t batched;
    int64_t accesses;
} ordo_io_fast;

/* Name the phase that the following words belong to. */
void ordo_io_phase(ordo_io_fast *fast, const char *name);

/* Words of fast memory: whatever was there before; all equal to `value`. */
ordo_io_view ordo_io_take(ordo_io_fast *fast, int64_t rows, int64_t cols);
ordo_io_view ordo_io_fill(ordo_io_fast *fast, int64_t rows, int64_t cols, double value);

/* A block of a matrix: loaded; zeros, to be stored later; loaded unless this is the first touch. */
ordo_io_view ordo_io_load(ordo_io_fast *fast, const ordo_io_matrix *from, int64_t row, int64_t col,
                          int64_t rows, int64_t cols);
ordo_io_view ordo_io_fresh(ordo_io_fast *fast, const ordo_io_matrix *of, int64_t row, int64_t col,
                           int64_t rows, int64_t cols);
ordo_io_view ordo_io_modify(ordo_io_fast *fast, const ordo_io_matrix *of, int64_t row, int64_t col,
                            int64_t rows, int64_t cols, bool first);

void ordo_io_store(ordo_io_fast *fast, ordo_io_view block, const ordo_io_matrix *to, int64_t row,
                   int64_t col);

/* Store one value all over a block, a word at a time. */
void ordo_io_store_value(ordo_io_fast *fast, double value, const ordo_io_matrix *to, int64_t row,
                         int64_t col, int64_t rows, int64_t cols);

/* Give back all that was taken since `mark` = ordo_io_mark(). */
int64_t ordo_io_mark(const ordo_io_fast *fast);
void ordo_io_release(ordo_io_fast *fast, int64_t mark);

/* Whether nothing went wrong so far and the view may be computed on; false sticks. */
bool ordo_io_resident(ordo_io_fast *fast, ordo_io_view view);

/* Hand the last accesses to the sink. */
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
