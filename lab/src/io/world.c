/* world.c: lay out slow memory, draw inputs, run an algorithm. */
#include "io/world.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "io/words.h"

enum {
    ALIGN = 64,          /* in words: every matrix starts at a line of any cache */
    WORDS_MAX = 1 << 28, /* 2 GiB; an address and its write bit fit 32 bits */
    DROPOUT_ROUNDS = 7,
    DROPOUT_BITS = 8
};

/* Place a matrix after the words used so far; its data pointer is set once memory is allocated. */
static void place(ordo_io_matrix *m, ordo_io_tensor tensor, int64_t rows, int64_t cols,
                  int64_t *used, double *memory)
{
    *m = (ordo_io_matrix) { memory ? memory + *used : NULL, rows, cols, tensor };
    *used += (rows * cols + ALIGN - 1) / ALIGN * ALIGN;
}

/* Place all matrices and return their words; with `memory` NULL only count. */
static int64_t lay_out(ordo_io_job *job, ordo_io_algorithm algorithm, double *memory)
{
    const ordo_io_shape *s = job->shape;
    const int64_t n = s->rows, k = s->cols, dk = s->dk, dv = s->dv;
    const bool backward = s->pass != ORDO_IO_FORWARD, gradient = s->pass == ORDO_IO_GRADIENT;
    const bool scores =
        algorithm == ORDO_IO_NAIVE || algorithm == ORDO_IO_MAT || algorithm == ORDO_IO_PHASE;
    const int64_t held = !scores ? 0 : job->tiles.panel ? job->tiles.panel : n;
    int64_t used = 0;
    place(&job->q, ORDO_IO_T_Q, n, dk, &used, memory);
    place(&job->k, ORDO_IO_T_K, k, dk, &used, memory);
    place(&job->v, ORDO_IO_T_V, k, dv, &used, memory);
    place(&job->o, ORDO_IO_T_O, n, dv, &used, memory);
    place(&job->lse, ORDO_IO_T_LSE, n, 1, &used, memory);
    place(&job->sum, ORDO_IO_T_SUM, n, 1, &used, memory);
    place(&job->p, ORDO_IO_T_P, held, k, &used, memory);
    if (backward) {
        place(&job->dout, ORDO_IO_T_DOUT, n, dv, &used, memory);
        place(&job->delta, ORDO_IO_T_DELTA, n, 1, &used, memory);
        place(&job->dq, ORDO_IO_T_DQ, n, dk, &used, memory);
        place(&job->dk, ORDO_IO_T_DK, k, dk, &used, memory);
        place(&job->dv, ORDO_IO_T_DV, k, dv, &used, memory);
        place(&job->ds, ORDO_IO_T_DS, gradient ? 0 : held, k, &used, memory);
    }
    if (gradient) {
        place(&job->a1, ORDO_IO_T_A1, n, dk, &used, memory);
        place(&job->a3, ORDO_IO_T_A3, n, dk, &used, memory);
        place(&job->e, ORDO_IO_T_E, n, dk, &used, memory);
        place(&job->x, ORDO_IO_T_X, dk, dk, &used, memory);
        place(&job->y, ORDO_IO_T_Y, dk, dk, &used, memory);
        place(&job->g, ORDO_IO_T_G, dk, dk, &used, memory);
    }
    return used;
}

/* Uniform in [-size, size): splitmix64 of a counter. */
static void draw(const ordo_io_matrix *m, uint64_t seed, double size)
{
    for (int64_t i = 0; m->data && i < m->rows * m->cols; i++) {
        uint64_t z = (seed * 64 + m->tensor) * 0x100000001b3u + (uint64_t)i * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        m->data[i] = size * (double)(int64_t)(z ^ (z >> 31)) * 0x1p-63;
    }
}

static void draw_inputs(const ordo_io_job *job, uint64_t seed)
{
    const double small = 1 / sqrt((double)job->shape->dk);
    draw(&job->q, seed, 2);
    draw(&job->k, seed, job->a1.data ? 1 : 2);
    draw(&job->v, seed, 1);
    draw(&job->dout, seed, 1);
    draw(&job->a1, seed, 1);
    draw(&job->a3, seed, 1);
    draw(&job->e, seed, 1);
    draw(&job->x, seed, small);
    draw(&job->y, seed, small);
}

static ordo_status prepare_dropout(ordo_io_world *w, const ordo_io_problem *problem)
{
    const int64_t rows = w->shape.rows, cols = w->shape.cols;
    w->dropout =
        (ordo_dropout) { .p = problem->dropout_p, .rounds = DROPOUT_ROUNDS, .bits = DROPOUT_BITS };
    w->keep = ordo_keep_of(&w->dropout, problem->seed, 0);
    if (w->dropout.p <= 0)
        return ORDO_OK;
    if (w->keep.threshold == 0 || w->keep.threshold >> DROPOUT_BITS)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "dropout_p %g: expected 0, or 1/512 to 511/512: %d random bits an element",
                         w->dropout.p, DROPOUT_BITS);
    w->kept = malloc((size_t)(rows * cols));
    if (!w->kept)
        return ordo_fail(ORDO_ERR_MEMORY, "keep bits: out of memory");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            w->kept[r * cols + c] = ordo_keep_element(&w->keep, (uint32_t)(r % w->shape.group),
                                                      (uint32_t)(r / w->shape.group), (uint32_t)c);
    w->job.keep = w->kept;
    w->job.keep_scale = ordo_keep_scale(&w->dropout);
    return ORDO_OK;
}

ordo_status ordo_io_world_create(ordo_io_world *w, const ordo_io_problem *problem,
                                 const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                                 const ordo_io_tiles *tiles, int64_t pool)
{
    memset(w, 0, sizeof *w);
    w->shape = *shape;
    w->algorithm = algorithm;
    w->predicted = ordo_io_words_of(shape, algorithm, tiles);
    w->job.shape = &w->shape;
    w->job.tiles = *tiles;
    w->job.fast = &w->fast;
    w->job.scale = shape->pass == ORDO_IO_GRADIENT ? 1 : 1 / sqrt((double)shape->dk);
    w->fast.capacity = pool;
    const double least = (double)shape->rows * (double)shape->cols;
    w->fast.pool = least < 64.0 * WORDS_MAX ? lay_out(&w->job, algorithm, NULL) : WORDS_MAX;
    if (w->fast.pool + pool > WORDS_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "simulation of %" PRId64 " x %" PRId64 " scores: needs more than %d words "
                         "of memory; predictions have no such limit",
                         shape->rows, shape->cols, WORDS_MAX);
    /* Aligned to a line of the processor's caches as well, so that measured misses match the
     * simulation. */
    const size_t bytes = (size_t)(w->fast.pool + pool + ALIGN) / ALIGN * ALIGN * sizeof(double);
    w->memory = aligned_alloc(ALIGN * sizeof(double), bytes);
    w->batch = malloc(ORDO_IO_BATCH * sizeof *w->batch);
    if (!w->memory || !w->batch)
        return ordo_fail(ORDO_ERR_MEMORY, "simulation: out of memory");
    memset(w->memory, 0xff, bytes); /* NaN: not computed yet */
    w->fast.memory = w->memory;
    w->fast.batch = w->batch;
    lay_out(&w->job, algorithm, w->memory);
    draw_inputs(&w->job, problem->seed);
    return prepare_dropout(w, problem);
}

void ordo_io_world_destroy(ordo_io_world *w)
{
    free(w->memory);
    free(w->batch);
    free(w->kept);
}

ordo_status ordo_io_world_run(ordo_io_world *w)
{
    typedef void (*algorithm)(const ordo_io_job *job);
    static const algorithm table[ORDO_IO_GRADIENT + 1][ORDO_IO_ALGORITHM_COUNT + 1] = {
        [ORDO_IO_FORWARD] = { [ORDO_IO_NAIVE] = ordo_io_forward_naive,
                              [ORDO_IO_FLASH] = ordo_io_forward_flash,
                              [ORDO_IO_FLASH1] = ordo_io_forward_flash1,
                              [ORDO_IO_MAT] = ordo_io_forward_mat,
                              [ORDO_IO_FUSED] = ordo_io_forward_fused },
        [ORDO_IO_BACKWARD] = { [ORDO_IO_NAIVE] = ordo_io_backward_naive,
                               [ORDO_IO_FLASH] = ordo_io_backward_flash,
                               [ORDO_IO_APART] = ordo_io_backward_apart,
                               [ORDO_IO_PHASE] = ordo_io_backward_phase,
                               [ORDO_IO_FUSED] = ordo_io_backward_fused },
        [ORDO_IO_GRADIENT] = { [ORDO_IO_FLASH] = ordo_io_gradient_flash,
                               [ORDO_IO_PHASE] = ordo_io_gradient_phase },
    };
    table[w->shape.pass][w->algorithm](&w->job);
    ordo_io_flush(&w->fast);
    if (w->fast.wrong)
        return ordo_fail(ORDO_ERR_INTERNAL, "%s %s: %s", ordo_io_pass_name(w->shape.pass),
                         ordo_io_algorithm_name(w->algorithm), w->fast.wrong);
    return ORDO_OK;
}
