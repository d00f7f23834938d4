/* run.c: run an algorithm of the I/O model and compare its results with the oracle's. */
#include "io/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/mask.h"
#include "base/status.h"
#include "ref/head.h"

/* ---- the oracle ---- */

/* Copy one query head of a matrix in which the rows of all heads of a group are interleaved. */
static void gather(double *to, const double *from, int64_t head, int64_t group, int64_t rows,
                   int64_t dim)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * dim, from + (r * group + head) * dim, (size_t)dim * sizeof *to);
}
static void scatter(double *to, const double *from, int64_t head, int64_t group, int64_t rows,
                    int64_t dim)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + (r * group + head) * dim, from + r * dim, (size_t)dim * sizeof *to);
}

static ordo_problem oracle_problem(const ordo_io_world *w, const ordo_io_problem *p)
{
    ordo_problem known = ORDO_PROBLEM_INIT;
    known.head_dim = w->shape.dk;
    known.v_head_dim = w->shape.dv;
    known.scale = w->job.scale;
    known.mask = p->mask;
    known.window = p->window;
    return known;
}

/* Compute the answers for every query head of the group, in the order of rows of the matrices. */
static ordo_status ask_oracle(const ordo_io_world *w, const ordo_io_problem *p,
                              const ordo_io_answers *a)
{
    const int64_t group = w->shape.group, rows = w->shape.rows / group, cols = w->shape.cols;
    const int64_t dk = w->shape.dk, dv = w->shape.dv;
    const ordo_problem known = oracle_problem(w, p);
    double *scratch = malloc((size_t)(rows * (2 * dk + 2 * dv + 1) + cols) * sizeof *scratch);
    if (!scratch)
        return ordo_fail(ORDO_ERR_MEMORY, "oracle: out of memory");
    double *q = scratch, *dq = q + rows * dk, *o = dq + rows * dk, *dout = o + rows * dv;
    double *lse = dout + rows * dv;
    for (int64_t h = 0; h < group; h++) {
        const ordo_ref_head head = {
            .problem = &known,
            .rows = rows,
            .cols = cols,
            .diagonal = ordo_band_diagonal(p->mask, rows, cols),
            .keep_scale = w->kept ? w->job.keep_scale : 0,
            .keep = w->keep,
            .bh = (uint32_t)h,
            .q = q,
            .k = w->job.k.data,
            .v = w->job.v.data,
            .o = o,
            .lse = lse,
            .dout = dout,
            .dq = dq,
            .dk = a->dk,
            .dv = a->dv,
            .logits = lse + rows,
        };
        gather(q, w->job.q.data, h, group, rows, dk);
        ordo_ref_head_forward(&head);
        scatter(a->o, o, h, group, rows, dv);
        scatter(a->lse, lse, h, group, rows, 1);
        if (!w->job.dout.data)
            continue;
        gather(dout, w->job.dout.data, h, group, rows, dv);
        ordo_ref_head_backward(&head);
        scatter(a->dq, dq, h, group, rows, dk);
    }
    free(scratch);
    return ORDO_OK;
}

/* The oracle has no block masks: for these the naive algorithm is the reference. */
static ordo_status ask_naive(const ordo_io_world *w, const ordo_io_problem *p, ordo_io_pass pass,
                             const ordo_io_answers *a)
{
    enum { WORDS = 3 };
    ordo_io_world naive;
    ordo_io_shape shape = w->shape;
    const int64_t n = shape.rows, k = shape.cols;
    shape.pass = pass;
    ordo_status status =
        ordo_io_world_create(&naive, p, &shape, ORDO_IO_NAIVE, &(ordo_io_tiles) { 0 }, WORDS);
    if (status == ORDO_OK && pass == ORDO_IO_BACKWARD) {
        memcpy(naive.job.o.data, a->o, (size_t)(n * shape.dv) * sizeof(double));
        memcpy(naive.job.lse.data, a->lse, (size_t)n * sizeof(double));
    }
    if (status == ORDO_OK)
        status = ordo_io_world_run(&naive);
    if (status == ORDO_OK && pass == ORDO_IO_FORWARD) {
        memcpy(a->o, naive.job.o.data, (size_t)(n * shape.dv) * sizeof(double));
        memcpy(a->lse, naive.job.lse.data, (size_t)n * sizeof(double));
    } else if (status == ORDO_OK) {
        memcpy(a->dq, naive.job.dq.data, (size_t)(n * shape.dk) * sizeof(double));
        memcpy(a->dk, naive.job.dk.data, (size_t)(k * shape.dk) * sizeof(double));
        memcpy(a->dv, naive.job.dv.data, (size_t)(k * shape.dv) * sizeof(double));
    }
    ordo_io_world_destroy(&naive);
    return status;
}

ordo_status ordo_io_answers_create(ordo_io_answers *a, const ordo_io_world *w,
                                   const ordo_io_problem *p)
{
    const int64_t n = w->shape.rows, k = w->shape.cols, dk = w->shape.dk, dv = w->shape.dv;
    a->memory = calloc((size_t)(n * (dv + 1 + dk) + k * (dk + dv)), sizeof *a->memory);
    if (!a->memory)
        return ordo_fail(ORDO_ERR_MEMORY, "oracle: out of memory");
    a->o = a->memory;
    a->lse = a->o + n * dv;
    a->dq = a->lse + n;
    a->dk = a->dq + n * dk;
    a->dv = a->dk + k * dk;
    if (!w->shape.blocks)
        return ask_oracle(w, p, a);
    ORDO_TRY(ask_naive(w, p, ORDO_IO_FORWARD, a));
    return w->shape.pass == ORDO_IO_BACKWARD ? ask_naive(w, p, ORDO_IO_BACKWARD, a) : ORDO_OK;
}

void ordo_io_answers_destroy(ordo_io_answers *a)
{
    free(a->memory);
}

void ordo_io_answers_give(const ordo_io_answers *a, ordo_io_world *w)
{
    memcpy(w->job.o.data, a->o, (size_t)(w->shape.rows * w->shape.dv) * sizeof(double));
    memcpy(w->job.lse.data, a->lse, (size_t)w->shape.rows * sizeof(double));
}

/* ---- errors ---- */

/* The larger error; NaN counts as infinite. */
static double worse(double worst, double error)
{
    return isnan(error) ? INFINITY : error > worst ? error : worst;
}

/* The largest difference; equal infinities have none. */
static double difference(double worst, const ordo_io_matrix *got, const double *wanted)
{
    for (int64_t i = 0; i < got->rows * got->cols; i++)
        if (got->data[i] != wanted[i])
            worst = worse(worst, fabs(got->data[i] - wanted[i]));
    return worst;
}

double ordo_io_answers_error(const ordo_io_answers *a, const ordo_io_world *w)
{
    const ordo_io_job *j = &w->job;
    if (w->shape.pass == ORDO_IO_FORWARD)
        return difference(difference(0, &j->o, a->o), &j->lse, a->lse);
    return difference(difference(difference(0, &j->dq, a->dq), &j->dk, a->dk), &j->dv, a->dv);
}

/* ---- the gradient, checked by central differences of its loss ---- */

static double loss(const ordo_io_job *j, const double *x, double *row)
{
    const int64_t n = j->shape->rows, d = j->shape->dk;
    double sum = 0, *q = row + n;
    for (int64_t i = 0; i < n; i++) {
        double largest = -INFINITY, total = 0;
        for (int64_t c = 0; c < d; c++) {
            q[c] = 0;
            for (int64_t t = 0; t < d; t++)
                q[c] += j->a1.data[i * d + t] * x[t * d + c];
        }
        for (int64_t k = 0; k < n; k++) {
            row[k] = 0;
            for (int64_t t = 0; t < d; t++)
                row[k] += q[t] * j->k.data[k * d + t];
            largest = row[k] > largest ? row[k] : largest;
        }
        for (int64_t k = 0; k < n; k++)
            total += row[k] = exp(row[k] - largest);
        for (int64_t c = 0; c < d; c++) {
            double o = 0;
            for (int64_t k = 0; k < n; k++)
                o += row[k] * j->v.data[k * d + c];
            o = o / total - j->e.data[i * d + c];
            sum += o * o / 2;
        }
    }
    return sum;
}

/* Central differences at a few entries of X. The error of the method itself is about 1e-8. */
static ordo_status gradient_error(const ordo_io_world *w, double *error)
{
    enum { PROBES = 6 };
    const ordo_io_job *j = &w->job;
    const int64_t n = w->shape.rows, d = w->shape.dk;
    const double step = 1e-5;
    double *row = malloc((size_t)(n + d) * sizeof *row);
    if (!row)
        return ordo_fail(ORDO_ERR_MEMORY, "gradient: out of memory");
    *error = 0;
    for (int64_t probe = 0; probe < PROBES; probe++) {
        const int64_t at = probe * 7 % d * d + (probe * 5 + 3) % d;
        const double x = j->x.data[at];
        j->x.data[at] = x + step;
        const double above = loss(j, j->x.data, row);
        j->x.data[at] = x - step;
        const double below = loss(j, j->x.data, row);
        j->x.data[at] = x;
        *error = worse(*error, fabs((above - below) / (2 * step) - j->g.data[at]));
    }
    free(row);
    return ORDO_OK;
}

/* ---- a run ---- */

void ordo_io_fill_report(ordo_io_report *r, const ordo_io_world *w)
{
    const int64_t copies = w->shape.copies;
    int tensors = 0;
    r->algorithm = w->algorithm;
    r->tiles = w->job.tiles;
    r->peak = w->fast.peak;
    r->predicted = w->predicted;
    r->predicted.loads *= copies;
    r->predicted.stores *= copies;
    r->accesses = copies * w->fast.accesses;
    for (int t = 0; t < ORDO_IO_T_COUNT; t++) {
        const ordo_io_traffic *moved = &w->fast.tensors[t];
        r->loads += copies * moved->loads;
        r->stores += copies * moved->stores;
        if (moved->loads + moved->stores > 0)
            r->tensors[tensors++] =
                (ordo_io_traffic) { ordo_io_tensor_name((ordo_io_tensor)t), copies * moved->loads,
                                    copies * moved->stores };
    }
    for (int p = 0; p < ORDO_IO_LOOPS; p++) {
        const ordo_io_traffic *loop = &w->fast.loops[p];
        r->loops[p] = (ordo_io_traffic) { loop->name, copies * loop->loads, copies * loop->stores };
    }
}

ordo_status ordo_io_execute(ordo_io_world *w, const ordo_io_problem *problem, double *error)
{
    ordo_io_answers answers = { 0 };
    if (w->shape.pass == ORDO_IO_GRADIENT) {
        ORDO_TRY(ordo_io_world_run(w));
        return gradient_error(w, error);
    }
    ordo_status status = ordo_io_answers_create(&answers, w, problem);
    if (status == ORDO_OK && w->shape.pass == ORDO_IO_BACKWARD)
        ordo_io_answers_give(&answers, w);
    if (status == ORDO_OK)
        status = ordo_io_world_run(w);
    if (status == ORDO_OK)
        *error = ordo_io_answers_error(&answers, w);
    ordo_io_answers_destroy(&answers);
    return status;
}

ordo_status ordo_io_run(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                        const ordo_io_tiles *tiles, ordo_io_report *report)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_shape shape;
    ordo_io_choice choice;
    ORDO_TRY(ordo_check_pointer("report", report));
    ORDO_TRY(ordo_io_shape_of(problem, &shape));
    ORDO_TRY(ordo_io_decide(&shape, algorithm, tiles, &choice));
    if (choice.words.cache > shape.cache)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "cache_words %" PRId64 ": these tiles of %s need %" PRId64, shape.cache,
                         ordo_io_algorithm_name(choice.algorithm), choice.words.cache);
    if (choice.words.workspace > shape.workspace)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "workspace_words %" PRId64 ": %s needs %" PRId64,
                         shape.workspace, ordo_io_algorithm_name(choice.algorithm),
                         choice.words.workspace);
    ordo_io_world world;
    memset(report, 0, sizeof *report);
    ordo_status status = ordo_io_world_create(&world, problem, &shape, choice.algorithm,
                                              &choice.tiles, choice.words.cache);
    if (status == ORDO_OK)
        status = ordo_io_execute(&world, problem, &report->error);
    if (status == ORDO_OK)
        ordo_io_fill_report(report, &world);
    ordo_io_world_destroy(&world);
    return status;
}
