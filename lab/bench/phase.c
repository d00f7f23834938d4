/* phase.c: is the phase-structured backward faster than the flash form on a CPU, at large head
 * sizes?
 *
 * Both are built from the CPU backend's own tile kernels, one thread, one head, no mask, f32. The
 * flash form walks row tiles of 64 past a key tile of 128, as the backend does. The phase form
 * writes p and ds of a panel of rows to memory, then makes dv, dk and dq as plain products. Both
 * give gradients that agree to rounding.
 *
 * Then the backend itself, whose chains take row tiles together from head size 512 on, or one by
 * one: the same bits.
 *
 * Every round times both sides once, in turn as to which comes first, and gives one ratio. Printed
 * are the median of the ratios and, in brackets, their quartiles: a gain smaller than the distance
 * between the quartiles is not shown by this run.
 *
 *   build/bench/phase [--rows N] [--head-dim D] [--rounds R] [--quick] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/pass.h"
#include "measure.h"
#include "ordo/ordo.h"
#include "plan/plan.h"

enum { ROWS = 64, COLS = 128, PANEL = 256, DEPTH = 256, DQ_ROWS = 256, MOST_ROUNDS = 99 };

typedef struct work {
    const ordo_kernels *kernels;
    int n, d;
    int ld, ld_rows, ld_cols,
        ld_panel;              /* rows of d, ROWS, COLS and PANEL floats, as the backend pads */
    float *q, *dout, *k;       /* n x d */
    float *qt, *doutt;         /* per tile of ROWS rows: d x ROWS */
    float *kt, *vt;            /* per tile of COLS columns: d x COLS */
    float *lse2, *delta;       /* n */
    float *dq, *dk, *dv;       /* n x d */
    float *s, *dp, *part;      /* one tile of the flash form */
    float *panel_p, *panel_ds; /* n columns x PANEL rows of the phase form */
} work;

static float *floats(size_t count)
{
    float *memory = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    if (!memory) {
        fputs("phase: out of memory\n", stderr);
        exit(4);
    }
    memset(memory, 0, (count * sizeof(float) + 63) / 64 * 64);
    return memory;
}

/* Other work on the machine does not count. */
static double now(void)
{
    return measure_seconds(CLOCK_THREAD_CPUTIME_ID);
}

static float random_float(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

/* Place of row r in a matrix of n x d. */
static float *row_of(const work *w, float *m, int r)
{
    return m + (size_t)r * (size_t)w->ld;
}

/* Rows of m by tiles of `tile`, each tile transposed, its rows `ld` apart. */
static void transpose_tiles(const work *w, float *to, float *m, int tile, int ld)
{
    for (int r = 0; r < w->n; r++)
        for (int c = 0; c < w->d; c++)
            to[((size_t)(r / tile) * (size_t)w->d + (size_t)c) * (size_t)ld + (size_t)(r % tile)] =
                row_of(w, m, r)[c];
}

static void set_up(work *w, const ordo_kernels *kernels, int n, int d)
{
    uint64_t random = 1;
    *w = (work) { .kernels = kernels,
                  .n = n,
                  .d = d,
                  .ld = ordo_panel_row(d),
                  .ld_rows = ordo_panel_row(ROWS),
                  .ld_cols = ordo_panel_row(COLS),
                  .ld_panel = ordo_panel_row(PANEL) };
    const size_t size = (size_t)n * (size_t)w->ld;
    float *v = floats(size);
    float **matrices[] = { &w->q, &w->dout, &w->k, &w->dq, &w->dk, &w->dv };
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        *matrices[i] = floats(size);
    w->qt = floats((size_t)(n / ROWS * d) * (size_t)w->ld_rows);
    w->doutt = floats((size_t)(n / ROWS * d) * (size_t)w->ld_rows);
    w->kt = floats((size_t)(n / COLS * d) * (size_t)w->ld_cols);
    w->vt = floats((size_t)(n / COLS * d) * (size_t)w->ld_cols);
    w->lse2 = floats((size_t)n);
    w->delta = floats((size_t)n);
    w->s = floats((size_t)COLS * (size_t)w->ld_rows);
    w->dp = floats((size_t)COLS * (size_t)w->ld_rows);
    w->part = floats((size_t)ROWS * (size_t)w->ld);
    w->panel_p = floats((size_t)n * (size_t)w->ld_panel);
    w->panel_ds = floats((size_t)n * (size_t)w->ld_panel);
    for (size_t i = 0; i < size; i++) {
        w->q[i] = random_float(&random);
        w->k[i] = random_float(&random);
        w->dout[i] = random_float(&random);
        v[i] = random_float(&random);
    }
    for (int r = 0; r < n; r++) /* not those of these inputs: only the time counts */
        w->lse2[r] = log2f((float)n);
    transpose_tiles(w, w->qt, w->q, ROWS, w->ld_rows);
    transpose_tiles(w, w->doutt, w->dout, ROWS, w->ld_rows);
    transpose_tiles(w, w->kt, w->k, COLS, w->ld_cols);
    transpose_tiles(w, w->vt, v, COLS, w->ld_cols);
    free(v);
}

static void tear_down(work *w)
{
    float *all[] = { w->q,  w->dout, w->k,     w->qt,      w->doutt,   w->kt,
                     w->vt, w->lse2, w->delta, w->dq,      w->dk,      w->dv,
                     w->s,  w->dp,   w->part,  w->panel_p, w->panel_ds };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* p and ds of one tile, transposed, columns `ld` apart. */
static void score_tile(const work *w, int i, int j, float *p, float *ds, int ld)
{
    const size_t rows = (size_t)(i / ROWS * w->d) * (size_t)w->ld_rows;
    const size_t cols = (size_t)(j / COLS * w->d) * (size_t)w->ld_cols;
    const float scale = 1 / sqrtf((float)w->d);
    const ordo_scores z = {
        .rows = ROWS, .cols = COLS, .ld = ld, .scale2 = scale * 1.44269504f, .keep_scale = 1
    };
    w->kernels->product(COLS, ROWS, w->d, w->kt + cols, 1, w->ld_cols, w->qt + rows, w->ld_rows, p,
                        ld, false, NULL);
    w->kernels->product(COLS, ROWS, w->d, w->vt + cols, 1, w->ld_cols, w->doutt + rows, w->ld_rows,
                        ds, ld, false, NULL);
    w->kernels->gradients(&z, p, ds, w->lse2 + i, w->delta + i);
}

static void flash(work *w)
{
    const int d = w->d, ld = w->ld, tile = w->ld_rows;
    for (int j = 0; j < w->n; j += COLS) {
        float *dk = row_of(w, w->dk, j), *dv = row_of(w, w->dv, j);
        memset(dk, 0, (size_t)COLS * (size_t)ld * sizeof *dk);
        memset(dv, 0, (size_t)COLS * (size_t)ld * sizeof *dv);
        for (int i = 0; i < w->n; i += ROWS) {
            score_tile(w, i, j, w->s, w->dp, tile);
            w->kernels->product(COLS, d, ROWS, w->s, tile, 1, row_of(w, w->dout, i), ld, dv, ld,
                                true, NULL);
            w->kernels->product(COLS, d, ROWS, w->dp, tile, 1, row_of(w, w->q, i), ld, dk, ld, true,
                                NULL);
            w->kernels->product(ROWS, d, COLS, w->dp, 1, tile, row_of(w, w->k, j), ld, w->part, ld,
                                false, NULL);
            w->kernels->accumulate(ROWS, d, row_of(w, w->dq, i), ld, w->part, ld, j == 0);
        }
    }
}

/* dv and dk of all columns from a panel of rows, in strips of DEPTH rows. */
static void phase_cols(work *w, int top)
{
    for (int j = 0; j < w->n; j += COLS)
        for (int t = 0; t < PANEL; t += DEPTH) {
            const bool add = top > 0 || t > 0;
            const size_t at = (size_t)j * (size_t)w->ld_panel + (size_t)t;
            w->kernels->product(COLS, w->d, DEPTH, w->panel_p + at, w->ld_panel, 1,
                                row_of(w, w->dout, top + t), w->ld, row_of(w, w->dv, j), w->ld, add,
                                NULL);
            w->kernels->product(COLS, w->d, DEPTH, w->panel_ds + at, w->ld_panel, 1,
                                row_of(w, w->q, top + t), w->ld, row_of(w, w->dk, j), w->ld, add,
                                NULL);
        }
}

static void phase(work *w)
{
    const int ld = w->ld_panel;
    for (int top = 0; top < w->n; top += PANEL) {
        for (int j = 0; j < w->n; j += COLS)
            for (int i = 0; i < PANEL; i += ROWS)
                score_tile(w, top + i, j, w->panel_p + (size_t)j * (size_t)ld + i,
                           w->panel_ds + (size_t)j * (size_t)ld + i, ld);
        phase_cols(w, top);
        for (int i = 0; i < PANEL; i += DQ_ROWS)
            for (int t = 0; t < w->n; t += DEPTH)
                w->kernels->product(DQ_ROWS, w->d, DEPTH, w->panel_ds + (size_t)t * (size_t)ld + i,
                                    1, ld, row_of(w, w->k, t), w->ld, row_of(w, w->dq, top + i),
                                    w->ld, t > 0, NULL);
    }
}

/* ---- */

/* Two ways to do one thing; each returns the seconds that it took. */
typedef struct pair {
    double (*one)(void *context);
    double (*other)(void *context);
    void *context;
} pair;

typedef struct contest {
    spread one, other, ratio; /* seconds, seconds, one over other */
} contest;

static contest hold(const pair *p, int rounds)
{
    double one[MOST_ROUNDS], other[MOST_ROUNDS], ratio[MOST_ROUNDS];
    for (int r = 0; r < rounds; r++) {
        const bool swap = r % 2 != 0;
        const double early = swap ? p->other(p->context) : p->one(p->context);
        const double late = swap ? p->one(p->context) : p->other(p->context);
        one[r] = swap ? late : early;
        other[r] = swap ? early : late;
        ratio[r] = one[r] / other[r];
    }
    return (contest) { measure_spread(one, rounds), measure_spread(other, rounds),
                       measure_spread(ratio, rounds) };
}

static double flash_seconds(void *w)
{
    const double start = now();
    flash(w);
    return now() - start;
}

static double phase_seconds(void *w)
{
    const double start = now();
    phase(w);
    return now() - start;
}

/* The largest difference of the two forms' gradients, over the largest gradient. */
static double disagreement(work *w)
{
    const size_t size = (size_t)w->n * (size_t)w->ld;
    float *grads[] = { w->dq, w->dk, w->dv }, *kept = floats(3 * size);
    double worst = 0, largest = 0;
    flash(w);
    for (size_t g = 0; g < 3; g++)
        memcpy(kept + g * size, grads[g], size * sizeof(float));
    phase(w);
    for (size_t g = 0; g < 3; g++)
        for (size_t i = 0; i < size; i++) {
            const float off = fabsf(grads[g][i] - kept[g * size + i]);
            const float size_of = fabsf(kept[g * size + i]);
            worst = (double)off > worst ? (double)off : worst;
            largest = (double)size_of > largest ? (double)size_of : largest;
        }
    free(kept);
    return worst / largest;
}

/* ---- the backend ---- */

enum { NEVER = 1 << 20 }; /* no head size is that large */

typedef struct pass {
    ordo_plan *plan;
    ordo_call call;
} pass;

static void must(ordo_status status)
{
    if (status == ORDO_OK)
        return;
    fprintf(stderr, "phase: %s\n", ordo_last_error());
    exit(4);
}

static double backward_seconds(const pass *p, int from_head_dim)
{
    const double start = now();
    ordo_cpu_phase_force(from_head_dim);
    must(ordo_attention_backward(p->plan, &p->call));
    return now() - start;
}

static double single_seconds(void *p)
{
    return backward_seconds(p, NEVER);
}

static double together_seconds(void *p)
{
    return backward_seconds(p, 1);
}

/* One head, one thread: single row tiles over row tiles together. */
static contest backend_contest(int n, int d, int rounds)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    pass p = { .call = ORDO_CALL_INIT };
    uint64_t random = 2;
    problem.batch = problem.heads = 1;
    problem.q_len = n;
    problem.head_dim = d;
    must(ordo_plan_create(&p.plan, &problem, NULL, NULL));
    const size_t size = (size_t)n * (size_t)d;
    const size_t bytes = ordo_plan_workspace(p.plan);
    float *all = floats(8 * size + (size_t)n), *space = floats(bytes / 4 + 64);
    ordo_call *call = &p.call;
    void **tensors[] = { &call->q.data,    &call->k.data,  &call->v.data,  &call->o.data,
                         &call->dout.data, &call->dq.data, &call->dk.data, &call->dv.data };
    for (size_t i = 0; i < 8; i++)
        *tensors[i] = all + i * size;
    for (size_t i = 0; i < 5 * size; i++)
        all[i] = random_float(&random);
    call->lse = all + 8 * size;
    call->workspace = (void *)(((uintptr_t)space + 255) / 256 * 256);
    call->workspace_bytes = bytes;
    call->threads = 1;
    must(ordo_attention_forward(p.plan, call));
    const contest result = hold(&(pair) { single_seconds, together_seconds, &p }, rounds);
    ordo_cpu_phase_force(0);
    free(all);
    free(space);
    ordo_plan_destroy(p.plan);
    return result;
}

/* ---- the whole ---- */

static void measure(const ordo_kernels *kernels, int n, int d, int rounds)
{
    work w;
    set_up(&w, kernels, n, d);
    const double off = disagreement(&w);
    const contest form = hold(&(pair) { flash_seconds, phase_seconds, &w }, rounds);
    const double gflop = 1e-9 * 10.0 * n * n * d;
    tear_down(&w);
    const spread backend = backend_contest(n, d, rounds).ratio;
    printf("%5d %12.1f %12.1f %8.3f (%.3f-%.3f) %10.1e %8.3f (%.3f-%.3f)\n", d,
           gflop / form.one.median, gflop / form.other.median, form.ratio.median, form.ratio.low,
           form.ratio.high, off, backend.median, backend.low, backend.high);
    fflush(stdout);
}

/* The number that follows option `name` at argv[*i], which then is consumed; false if it is
 * another. */
static bool option(char **argv, int *i, const char *name, int *value)
{
    if (strcmp(argv[*i], name) != 0 || !argv[*i + 1])
        return false;
    *value = (int)strtol(argv[++*i], NULL, 10);
    return true;
}

int main(int argc, char **argv)
{
    static const int dims[] = { 128, 256, 384, 512, 576 };
    const ordo_kernels *kernels;
    int n = 2048, rounds = 9, only = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--quick") == 0)
            rounds = 1;
        else if (!option(argv, &i, "--rows", &n) && !option(argv, &i, "--rounds", &rounds) &&
                 !option(argv, &i, "--head-dim", &only)) {
            fprintf(stderr, "phase: %s: expected --rows N, --head-dim D, --rounds R or --quick\n",
                    argv[i]);
            return 2;
        }
    if (n < PANEL || n % PANEL != 0) {
        fprintf(stderr, "phase: --rows %d: expected a multiple of %d\n", n, PANEL);
        return 2;
    }
    if (rounds < 1 || rounds > MOST_ROUNDS || only < 0) {
        fprintf(stderr, "phase: --rounds %d, --head-dim %d: expected 1 to %d, 1 or more\n", rounds,
                only, MOST_ROUNDS);
        return 2;
    }
    if (ordo_cpu_kernels(&kernels) != ORDO_OK)
        return 3;
    printf("backward, %s kernels, one thread, n = %d, f32, %d rounds: flash %dx%d, phase panels of "
           "%d rows\n%5s %12s %12s %22s %10s %22s\n",
           kernels->name, n, rounds, ROWS, COLS, PANEL, "d", "flash Gflop/s", "phase Gflop/s",
           "flash/phase (quartiles)", "difference", "backend (quartiles)");
    if (only > 0)
        measure(kernels, n, only, rounds);
    for (size_t k = 0; only == 0 && k < sizeof dims / sizeof dims[0]; k++)
        measure(kernels, n, dims[k], rounds);
    return 0;
}
