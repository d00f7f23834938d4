/* gemm_run.c: makes the matrices of a product, multiplies, takes times.
 *
 * An element of an input is a function of the seed, its matrix, its line and its place in k, so
 * that rows and columns are the same wherever they are. Strides are multiples of 16 elements. */
#define _XOPEN_SOURCE 700
#include "gemm/gemm_run.h"

#include "kit/message.h"
#include "kit/random.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { A, B, C, BIAS, WORKSPACE, PIECES };
enum { LEAST_SAMPLES = 5, MOST_SAMPLES = 1000, ALIGN = 256, STRIDE = 16 };

/* One of the matrices on the host, and where the backend has it. */
typedef struct piece {
    unsigned char *host;
    void *there;
    size_t bytes;
    int64_t stride;
} piece;

typedef struct stage {
    ordo_gemm_plan *plan;
    ordo_gemm_call call;
    piece pieces[PIECES];
    bool device;
} stage;

static int64_t width_of(ordo_dtype dtype)
{
    return dtype == ORDO_F32 ? 4 : dtype == ORDO_E4M3 ? 1 : 2;
}

/* A piece of `rows` rows of `columns` elements, zeros. */
static bool make(piece *x, int64_t rows, int64_t columns, int64_t width)
{
    x->stride = (columns + STRIDE - 1) / STRIDE * STRIDE;
    x->bytes = (size_t)(rows * x->stride * width);
    if (posix_memalign((void **)&x->host, ALIGN, x->bytes + ALIGN) != 0)
        return false;
    memset(x->host, 0, x->bytes);
    return true;
}

/* Elements (line, x) of the lines that were chosen, x < length; `across`: a line is a column. */
static void fill(const piece *to, ordo_dtype dtype, cli_gemm_lines lines, int64_t length,
                 bool across, uint64_t key)
{
    for (int64_t i = 0; i < lines.count; i++) {
        const uint64_t line = cli_random_mix(key + (uint64_t)(lines.ids ? lines.ids[i] : i));
        for (int64_t x = 0; x < length; x++)
            cli_random_put(to->host, dtype, across ? x * to->stride + i : i * to->stride + x,
                           line + (uint64_t)x);
    }
}

/* What C holds first: a number for each row and column. */
static void fill_c(const piece *to, cli_gemm_lines rows, cli_gemm_lines columns, uint64_t key)
{
    for (int64_t i = 0; i < rows.count; i++) {
        const uint64_t row = cli_random_mix(key + (uint64_t)(rows.ids ? rows.ids[i] : i));
        for (int64_t j = 0; j < columns.count; j++)
            cli_random_put(to->host, ORDO_F32, i * to->stride + j,
                           row + (uint64_t)(columns.ids ? columns.ids[j] : j));
    }
}

static bool make_matrices(stage *s, const cli_gemm_job *g, cli_gemm_lines rows,
                          cli_gemm_lines columns)
{
    const ordo_gemm_problem *p = &g->problem;
    const int64_t k = p->k, width = width_of(p->dtype), out = width_of(p->c_dtype);
    piece *x = s->pieces;
    if (!make(&x[A], p->a_transposed ? k : rows.count, p->a_transposed ? rows.count : k, width) ||
        !make(&x[B], p->b_transposed ? columns.count : k, p->b_transposed ? k : columns.count,
              width) ||
        !make(&x[C], rows.count, columns.count, out) ||
        !make(&x[BIAS], p->bias ? 1 : 0, columns.count, out))
        return false;
    fill(&x[A], p->dtype, rows, k, p->a_transposed, cli_random_mix(g->seed ^ cli_random_mix(1)));
    fill(&x[B], p->dtype, columns, k, !p->b_transposed,
         cli_random_mix(g->seed ^ cli_random_mix(2)));
    if (p->add)
        fill_c(&x[C], rows, columns, cli_random_mix(g->seed ^ cli_random_mix(3)));
    else
        memset(x[C].host, 0xff, x[C].bytes); /* NaNs: an element left unwritten is seen */
    if (p->bias)
        fill(&x[BIAS], p->c_dtype, columns, 1, true, cli_random_mix(g->seed ^ cli_random_mix(4)));
    return true;
}

static ordo_status to_device(stage *s)
{
    ordo_status status = ordo_device_stream_create(&s->call.stream);
    for (int i = 0; i < PIECES && status == ORDO_OK; i++) {
        piece *x = &s->pieces[i];
        if (x->bytes > 0)
            status = ordo_device_alloc(&x->there, x->bytes);
        if (status == ORDO_OK && x->bytes > 0 && x->host)
            status = ordo_device_copy(x->there, x->host, x->bytes, s->call.stream);
    }
    return status;
}

static int open_stage(stage *s, const cli_gemm_job *g, cli_gemm_lines rows, cli_gemm_lines columns)
{
    ordo_gemm_problem problem = g->problem;
    ordo_gemm_info info = ORDO_GEMM_INFO_INIT;
    piece *x = s->pieces;
    problem.m = rows.count, problem.n = columns.count;
    CLI_TRY(cli_library(ordo_gemm_plan_create(&s->plan, &problem, g->backend)));
    CLI_TRY(cli_library(ordo_gemm_plan_query(s->plan, &info)));
    if (!make_matrices(s, g, rows, columns))
        return cli_out_of_memory();
    x[WORKSPACE].bytes = (size_t)info.workspace_bytes; /* only devices have one */
    s->device = g->backend == ORDO_BACKEND_CUDA;
    if (s->device)
        CLI_TRY(cli_library(to_device(s)));
    for (int i = 0; i < PIECES && !s->device; i++)
        x[i].there = x[i].host;
    s->call.a = (ordo_matrix) { x[A].there, x[A].stride };
    s->call.b = (ordo_matrix) { x[B].there, x[B].stride };
    s->call.c = (ordo_matrix) { x[C].there, x[C].stride };
    s->call.bias = g->problem.bias ? x[BIAS].there : NULL;
    s->call.workspace = x[WORKSPACE].there;
    s->call.workspace_bytes = x[WORKSPACE].bytes;
    s->call.threads = g->threads;
    return CLI_OK;
}

static void close_stage(stage *s)
{
    for (int i = 0; i < PIECES; i++) {
        if (s->device)
            (void)ordo_device_free(s->pieces[i].there); /* a fault has been reported by then */
        free(s->pieces[i].host);
    }
    if (s->device)
        (void)ordo_device_stream_destroy(s->call.stream);
    ordo_gemm_plan_destroy(s->plan);
}

/* ---- times ---- */

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* `count` products one after the other; on a device none waits for the host. */
static ordo_status sample_host(const stage *s, int count, double *samples)
{
    ordo_status status = ORDO_OK;
    for (int i = 0; i < count && status == ORDO_OK; i++) {
        const double start = now();
        status = ordo_gemm_run(s->plan, &s->call);
        samples[i] = now() - start;
    }
    return status;
}

static ordo_status sample_device(const stage *s, int count, double *samples)
{
    void *events[MOST_SAMPLES + 1] = { NULL };
    ordo_status status = ORDO_OK;
    for (int i = 0; i <= count && status == ORDO_OK; i++)
        status = ordo_device_event_create(&events[i]);
    if (status == ORDO_OK)
        status = ordo_device_event_record(events[0], s->call.stream);
    for (int i = 0; i < count && status == ORDO_OK; i++) {
        status = ordo_gemm_run(s->plan, &s->call);
        if (status == ORDO_OK)
            status = ordo_device_event_record(events[i + 1], s->call.stream);
    }
    for (int i = 0; i < count && status == ORDO_OK; i++)
        status = ordo_device_event_elapsed(events[i], events[i + 1], &samples[i]);
    for (int i = 0; i <= count; i++)
        (void)ordo_device_event_destroy(events[i]);
    return status;
}

static ordo_status measure(const stage *s, double *seconds)
{
    double samples[MOST_SAMPLES] = { 0 };
    int count = LEAST_SAMPLES;
    for (int round = 0; round < 2; round++) { /* the first one warms up */
        const ordo_status status =
            s->device ? sample_device(s, count, samples) : sample_host(s, count, samples);
        if (status != ORDO_OK)
            return status;
        qsort(samples, (size_t)count, sizeof *samples, by_size);
        const double runs = *seconds / (samples[count / 2] + 1e-9);
        if (round == 0)
            count = runs < LEAST_SAMPLES  ? LEAST_SAMPLES
                    : runs > MOST_SAMPLES ? MOST_SAMPLES
                                          : (int)runs;
    }
    *seconds = samples[count / 2];
    return ORDO_OK;
}

/* ---- one product ---- */

static int fetch(const stage *s, cli_gemm_result *result)
{
    const piece *c = &s->pieces[C];
    if (s->device && c->bytes > 0)
        CLI_TRY(cli_library(ordo_device_copy(c->host, c->there, c->bytes, s->call.stream)));
    const size_t row = (size_t)(result->n * result->width);
    result->data = malloc((size_t)result->m * row + 1);
    if (result->data == NULL)
        return cli_out_of_memory();
    for (int64_t i = 0; i < result->m; i++)
        memcpy(result->data + (size_t)i * row, c->host + i * c->stride * result->width, row);
    return CLI_OK;
}

int cli_gemm_execute(const cli_gemm_job *gemm, cli_gemm_lines rows, cli_gemm_lines columns,
                     cli_gemm_result *result, double *seconds)
{
    stage s = { .call = ORDO_GEMM_CALL_INIT };
    *result =
        (cli_gemm_result) { rows.count, columns.count, width_of(gemm->problem.c_dtype), NULL };
    int status = open_stage(&s, gemm, rows, columns);
    if (status == CLI_OK)
        status = cli_library(ordo_gemm_run(s.plan, &s.call));
    if (status == CLI_OK)
        status = fetch(&s, result);
    if (status == CLI_OK && seconds)
        status = cli_library(measure(&s, seconds));
    close_stage(&s);
    return status;
}
