/* The tile kernels of the CPU backend one by one: where a step's time goes.
 *
 * Panels as the passes lay them out, every thread with its own, in its caches; the FMA peak is
 * measured in turn. Products are given as a share of the peak, everything else as a share of the
 * time the peak would take for the products of its step, which is what it costs. */
#define _GNU_SOURCE
#include "attention/bench_peak.c"
#include "base/pool.h"
#include "cpu/pass.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 64, COLS = 128, ROUNDS = 9, HEADS = 8, MOST_DIM = 128 };
#define SECONDS 0.004

/* One thread's panels. */
typedef struct panels {
    float *a, *b, *s, *dp, *c, *data, m[ROWS], l[ROWS], alpha[ROWS];
    uint16_t *half;
    int dim, ld, ld_q, ld_k;
    const ordo_kernels *k;
} panels;

typedef void operation(panels *w);

static void scores_of_keys(panels *w)
{
    w->k->product(COLS, ROWS, w->dim, w->a, 1, w->ld_k, w->b, w->ld_q, w->s, w->ld_q, false, NULL);
}
static void output(panels *w)
{
    w->k->product(ROWS, w->dim, COLS, w->s, 1, w->ld_q, w->b, w->ld, w->c, w->ld, true, NULL);
}
static void key_gradient(panels *w)
{
    w->k->product(COLS, w->dim, ROWS, w->s, w->ld_q, 1, w->b, w->ld, w->c, w->ld, true, NULL);
}

static ordo_scores tile_of(const panels *w, bool partial)
{
    return (ordo_scores) { .rows = ROWS,
                           .cols = COLS,
                           .ld = w->ld_q,
                           .partial = partial,
                           .low = -ORDO_BAND_OPEN,
                           .high = partial ? COLS - 1 - ROWS / 2 : ORDO_BAND_OPEN,
                           .scale2 = 0.18f,
                           .keep_scale = 1 };
}
static void fill_scores(panels *w)
{
    for (int c = 0; c < COLS; c++)
        memcpy(w->s + (ptrdiff_t)c * w->ld_q, w->data + (ptrdiff_t)c * ROWS, ROWS * sizeof(float));
}
static void softmax(panels *w)
{
    const ordo_scores z = tile_of(w, false);
    fill_scores(w);
    w->k->softmax(&z, w->s, w->m, w->l, w->alpha);
}
static void softmax_partial(panels *w)
{
    const ordo_scores z = tile_of(w, true);
    fill_scores(w);
    w->k->softmax(&z, w->s, w->m, w->l, w->alpha);
}
static void gradients(panels *w)
{
    const ordo_scores z = tile_of(w, false);
    fill_scores(w);
    w->k->gradients(&z, w->s, w->dp, w->m, w->l);
}
static void rescale(panels *w)
{
    memset(w->alpha, 0, sizeof w->alpha);
    w->k->rescale(ROWS, w->dim, w->c, w->ld, w->alpha);
}
static void load(panels *w)
{
    w->k->load(w->b, w->ld, w->data, ORDO_F32, (int64_t)HEADS * w->dim, COLS, w->dim);
}
static void load_transposed(panels *w)
{
    w->k->load_transposed(w->a, w->ld_k, w->data, ORDO_F32, (int64_t)HEADS * w->dim, COLS, w->dim);
}
static void load_f16(panels *w)
{
    w->k->load(w->b, w->ld, w->half, ORDO_F16, (int64_t)HEADS * w->dim, COLS, w->dim);
}
static void accumulate(panels *w)
{
    w->k->accumulate(ROWS, w->dim, w->dp, w->dim, w->c, w->ld, false);
}
static void store_f32(panels *w)
{
    w->k->store(w->data, ORDO_F32, (int64_t)HEADS * w->dim, w->b, w->ld, ROWS, w->dim, 1, NULL);
}
static void store_bf16(panels *w)
{
    w->k->store(w->half, ORDO_BF16, (int64_t)HEADS * w->dim, w->b, w->ld, ROWS, w->dim, 1, NULL);
}
static void store_f16(panels *w)
{
    w->k->store(w->half, ORDO_F16, (int64_t)HEADS * w->dim, w->b, w->ld, ROWS, w->dim, 1, NULL);
}

/* `products`: of the operation itself; of its step if it does something else. */
typedef struct row {
    const char *name;
    operation *run;
    bool is_product;
    int products;
} row;

static const row rows[] = {
    { "product  k q^T", scores_of_keys, true, 1 },
    { "product  p v, ds k", output, true, 1 },
    { "product  p^T dout", key_gradient, true, 1 },
    { "fill a score tile", fill_scores, false, 2 },
    { "softmax + fill, of forward", softmax, false, 2 },
    { "softmax, partial, + fill", softmax_partial, false, 2 },
    { "rescale", rescale, false, 2 },
    { "gradients + fill, of backward", gradients, false, 5 },
    { "accumulate", accumulate, false, 5 },
    { "load, of forward, 4 steps", load, false, 8 },
    { "load transposed, 4 steps", load_transposed, false, 8 },
    { "load f16, 4 steps", load_f16, false, 8 },
    { "store f32, 16 steps", store_f32, false, 32 },
    { "store bf16, 16 steps", store_bf16, false, 32 },
    { "store f16, 16 steps", store_f16, false, 32 },
};
enum { COUNT = sizeof rows / sizeof *rows };

/* ---- one row on all threads ---- */

typedef struct job {
    const row *row;
    const ordo_kernels *kernels;
    int dim;
    double rate[ORDO_THREADS_MAX]; /* runs a second */
} job;

static void lay_out(const job *j, void *memory, panels *w)
{
    ordo_arena arena = { memory, 0 };
    w->k = j->kernels;
    w->dim = j->dim;
    w->ld = ordo_panel_row(j->dim);
    w->ld_q = ordo_panel_row(ROWS);
    w->ld_k = ordo_panel_row(COLS);
    w->a = ordo_arena_take(&arena, (size_t)w->dim * (size_t)w->ld_k);
    w->b = ordo_arena_take(&arena, (size_t)COLS * (size_t)w->ld_k);
    w->s = ordo_arena_take(&arena, (size_t)COLS * (size_t)w->ld_q);
    w->dp = ordo_arena_take(&arena, (size_t)COLS * (size_t)w->ld_q);
    w->c = ordo_arena_take(&arena, (size_t)COLS * (size_t)w->ld_k);
    w->data = ordo_arena_take(&arena, (size_t)COLS * HEADS * MOST_DIM);
    w->half = ordo_arena_take(&arena, (size_t)COLS * HEADS * MOST_DIM);
}

enum { SCRATCH_BYTES = 4 << 20 };

static void time_row(void *context, int worker, int workers, void *scratch)
{
    job *j = context;
    panels w;
    (void)workers;
    memset(scratch, 0, SCRATCH_BYTES);
    lay_out(j, scratch, &w);
    for (int x = 0; x < COLS * HEADS * MOST_DIM; x++)
        w.data[x] = (float)(x * 7 % 13) - 6;
    for (int r = 0; r < ROWS; r++) {
        w.m[r] = 1;
        w.l[r] = 0;
    }
    j->row->run(&w);
    const double start = seconds_now();
    double passed = 0;
    int runs = 0;
    while (passed < SECONDS) {
        j->row->run(&w);
        runs++;
        passed = seconds_now() - start;
    }
    j->rate[worker] = runs / passed;
}

/* What the table shows, each side the best of its rounds: other work may share the machine. */
static double share(job *j, int threads)
{
    const double flops = 2.0 * ROWS * COLS * j->dim * j->row->products;
    double best = 0, best_peak = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double rate = 0;
        const double peak = cli_peak_flops(threads, SECONDS);
        if (ordo_pool_run(threads, SCRATCH_BYTES, time_row, j) != ORDO_OK)
            exit(1);
        for (int x = 0; x < threads; x++)
            rate += j->rate[x];
        best = rate > best ? rate : best;
        best_peak = peak > best_peak ? peak : best_peak;
    }
    return j->row->is_product ? best * flops / best_peak : best_peak / flops / best;
}

int main(int argc, char **argv)
{
    job j = { 0 };
    if (ordo_cpu_kernels(&j.kernels) != ORDO_OK)
        return 1;
    const int most = argc > 1 ? atoi(argv[1]) : ordo_pool_threads(0);
    printf("%s, tiles of %d x %d; products: share of the peak; the rest: over the peak's time for "
           "the step\n",
           j.kernels->name, ROWS, COLS);
    printf("%-32s %8s %8s", "", "D 64", "D 128");
    if (most > 1)
        printf(" %8s %8s, %d threads", "D 64", "D 128", most);
    printf("\n");
    for (int x = 0; x < COUNT; x++) {
        printf("%-32s", rows[x].name);
        j.row = &rows[x];
        for (int threads = 1; threads <= most; threads += most > 1 ? most - 1 : 1)
            for (j.dim = 64; j.dim <= MOST_DIM; j.dim *= 2)
                printf(" %8.3f", share(&j, threads));
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
