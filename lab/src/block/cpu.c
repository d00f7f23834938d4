/* cpu.c: the operations of a block on the host. Workers take whole rows, or whole columns where
 * rows are summed, so that no sum depends on how many there are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/keep.h"
#include "base/pool.h"
#include "base/status.h"
#include "block/compare.h"
#include "block/elements.h"
#include "block/functions.h"
#include "block/product.h"
#include "block/random.h"
#include "cpu/gemm.h"
#include "ordo/plan.h"

enum { PIECES = 64 };

struct block_device {
    ordo_dtype dtype;
    int threads;
    void *pieces[PIECES];
    int count;
    struct timespec start;

    /* Bits that the next product is to make beside itself. */
    bool waiting;
    ordo_problem problem;
    ordo_block_job job;
    uint32_t *words;
    size_t bytes;
    ordo_status made;
    char message[512];

    bool attending; /* join() is to run this attention, after the bits */
    block_attention attention;
};

/* Workers take equal shares of `count`, in whole units of `unit`. */
typedef struct span {
    int64_t first, end;
} span;

static span share_of(int64_t count, int64_t unit, int worker, int workers)
{
    const int64_t units = (count + unit - 1) / unit;
    const span s = { units * worker / workers * unit, units * (worker + 1) / workers * unit };
    return (span) { s.first, s.end < count ? s.end : count };
}

/* ---- keep bits ---- */

/* Blocks of words from block `first` in storage on. */
typedef struct compare_task {
    const ordo_block_job *job;
    int64_t first, count;
    uint32_t *words;
} compare_task;

static void compare_share(void *context, int worker, int workers, void *scratch)
{
    const compare_task *t = context;
    const ordo_block_job *job = t->job;
    const span s = share_of(t->count * ORDO_KEEP_WORDS, 1, worker, workers);
    const uint32_t limit = block_compare_limit(job->dropout);
    (void)scratch;
    for (int64_t i = s.first; i < s.end; i++)
        t->words[i] = block_compare_word(job->seed, job->offset, job->rounds, limit,
                                         (uint64_t)(t->first * ORDO_KEEP_WORDS + i));
}

static ordo_status fill_blocks(const block_bits *bits, int64_t first, int64_t count, int threads)
{
    ordo_dropout_call call = ordo_block_drop_call(bits->job);
    compare_task task = { bits->job, first, count, bits->words };
    call.threads = threads;
    if (bits->job->generator == ORDO_GENERATOR_COMPARE)
        return ordo_pool_run(threads, 0, compare_share, &task);
    return ordo_dropout_fill(bits->problem, &call, (uint64_t)first, (uint64_t)count, bits->words,
                             bits->bytes);
}

static ordo_status fill_bits(const block_bits *bits, int threads)
{
    const ordo_dropout_call call = ordo_block_drop_call(bits->job);
    ordo_dropout_info info;
    ORDO_TRY(ordo_dropout_query(bits->problem, &call, &info));
    return fill_blocks(bits, 0, (int64_t)info.blocks, threads);
}

/* Called by a worker, whose message the caller of the product would not see. */
static void make_waiting(void *context)
{
    block_device *d = context;
    const block_bits bits = { &d->problem, &d->job, d->words, d->bytes };
    d->made = fill_bits(&bits, 1);
    if (d->made != ORDO_OK)
        snprintf(d->message, sizeof d->message, "%s", ordo_last_error());
}

static ordo_status bits_made(const block_device *d)
{
    return d->made == ORDO_OK ? ORDO_OK : ordo_fail(d->made, "%s", d->message);
}

/* The bits if no product has come; and attention, which takes all workers. */
static ordo_status join_host(block_device *d)
{
    const block_bits bits = { &d->problem, &d->job, d->words, d->bytes };
    const bool waiting = d->waiting, attending = d->attending;
    d->waiting = d->attending = false;
    if (waiting)
        ORDO_TRY(fill_bits(&bits, d->threads));
    return attending ? ordo_block_attend(&d->attention, NULL) : ORDO_OK;
}

static ordo_status attend_host(block_device *d, const block_attention *attention)
{
    d->attention = *attention;
    d->attending = true;
    return ORDO_OK;
}

static ordo_status make_bits_host(block_device *d, const block_bits *bits, bool beside)
{
    ORDO_TRY(join_host(d));
    if (!beside)
        return fill_bits(bits, d->threads);
    d->problem = *bits->problem;
    d->job = *bits->job;
    d->words = bits->words;
    d->bytes = bits->bytes;
    d->waiting = true;
    return ORDO_OK;
}

static ordo_status multiply_host(block_device *d, const block_product *product)
{
    const bool waiting = d->waiting;
    const ordo_gemm_problem problem = ordo_block_gemm_problem(product, d->dtype);
    ordo_gemm_call call = ordo_block_gemm_call(product);
    call.threads = d->threads;
    d->waiting = false;
    ORDO_TRY(ordo_cpu_gemm(&problem, &call, waiting ? make_waiting : NULL, d));
    return waiting ? bits_made(d) : ORDO_OK;
}

/* ---- bits of experiments inside attention ---- */

static ordo_tensor from_head(const block_device *d, ordo_tensor whole, int64_t sequence,
                             int64_t head)
{
    const int64_t elements = sequence * whole.stride[0] + head * whole.stride[2];
    if (whole.data)
        whole.data = (char *)whole.data + elements * (int64_t)ordo_block_element_bytes(d->dtype);
    return whole;
}

/* The same call for one key head of a sequence and its `group` query heads. */
static ordo_call call_of_group(const block_device *d, const ordo_call *whole,
                               const ordo_problem *problem, int64_t sequence, int64_t kv_head)
{
    const int64_t group = problem->heads / problem->kv_heads, head = kv_head * group;
    ordo_call call = *whole;
    ordo_tensor *const queries[] = { &call.q, &call.o, &call.dout, &call.dq };
    ordo_tensor *const keys[] = { &call.k, &call.v, &call.dk, &call.dv };
    for (int i = 0; i < 4; i++) {
        *queries[i] = from_head(d, *queries[i], sequence, head);
        *keys[i] = from_head(d, *keys[i], sequence, kv_head);
    }
    call.lse += (sequence * problem->heads + head) * problem->q_len;
    return call;
}

/* libordo's passes make no such bits: those of the query heads of one key head are made, and read,
 * at a time. */
static ordo_status attend_groups(block_device *d, const block_attention *attention,
                                 block_bits *bits)
{
    const ordo_problem *problem = bits->problem;
    const int64_t group = problem->heads / problem->kv_heads;
    const int64_t blocks = group * ordo_keep_blocks(problem->q_len, problem->q_len);
    for (int64_t i = 0; i < problem->batch * problem->kv_heads; i++) {
        block_attention each = { .plan = attention->plan, .backward = attention->backward };
        each.call = call_of_group(d, &attention->call, problem, i / problem->kv_heads,
                                  i % problem->kv_heads);
        each.call.keep_bits = bits->words;
        ORDO_TRY(fill_blocks(bits, i * blocks, blocks, d->threads));
        ORDO_TRY(ordo_block_attend(&each, NULL));
    }
    return ORDO_OK;
}

static ordo_status attend_inside_host(block_device *d, const block_attention *attention,
                                      const block_bits *bits)
{
    ordo_problem problem = *bits->problem;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    block_attention each = *attention;
    block_bits made = *bits;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_CPU;
    problem.batch = 1;
    problem.heads = problem.heads / problem.kv_heads;
    problem.kv_heads = 1;
    made.bytes = (size_t)(problem.heads * ordo_keep_blocks(problem.q_len, problem.q_len)) *
                 ORDO_KEEP_WORDS * sizeof *made.words;
    ORDO_TRY(ordo_plan_create(&plan, &problem, NULL, &options));
    each.plan = plan;
    made.words = malloc(made.bytes);
    const ordo_status status =
        made.words ? attend_groups(d, &each, &made)
                   : ordo_fail(ORDO_ERR_MEMORY, "keep bits of a head: %zu bytes", made.bytes);
    free(made.words);
    ordo_plan_destroy(plan);
    return status;
}

/* ---- memory ---- */

static ordo_status open_host(block_device **device, const ordo_block_job *job)
{
    block_device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "device: %zu bytes", sizeof *d);
    d->dtype = job->precision == ORDO_PRECISION_F32 ? ORDO_F32 : ORDO_BF16;
    d->threads = job->threads;
    *device = d;
    return ORDO_OK;
}

static void close_host(block_device *d)
{
    for (int i = 0; i < d->count; i++)
        free(d->pieces[i]);
    free(d);
}

static ordo_status allocate_host(block_device *d, void **memory, size_t bytes)
{
    if (bytes > SIZE_MAX - 512)
        return ordo_fail(ORDO_ERR_OVERFLOW, "tensor of %zu bytes: too large", bytes);
    void *taken = d->count < PIECES ? aligned_alloc(256, (bytes + 256) / 256 * 256) : NULL;
    if (taken == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "tensor of %zu bytes: not enough memory", bytes);
    d->pieces[d->count++] = taken;
    *memory = taken;
    return ORDO_OK;
}

static ordo_status copy_host(block_device *d, void *to, const void *from, size_t bytes)
{
    ORDO_TRY(join_host(d));
    memcpy(to, from, bytes);
    return ORDO_OK;
}

static void *no_stream(const block_device *d)
{
    (void)d;
    return NULL;
}

static void forget_nothing(block_device *d)
{
    (void)d;
}

/* ---- elements ---- */

/* What the workers of an operation on rows share: its arguments, and the type of the tensors. */
typedef struct row_task {
    const void *of;
    ordo_dtype dtype;
} row_task;

static ordo_status run_rows(block_device *d, ordo_task *share, const void *of)
{
    row_task task = { of, d->dtype };
    return ordo_pool_run(d->threads, 0, share, &task);
}

typedef struct fill_task {
    void *to;
    ordo_dtype dtype;
    int64_t count;
    uint64_t seed;
    uint32_t tensor;
    float factor, centre;
} fill_task;

static void fill_share(void *context, int worker, int workers, void *scratch)
{
    const fill_task *t = context;
    const span s = share_of(t->count, 4, worker, workers);
    (void)scratch;
    for (int64_t i = s.first; i < s.end; i += 4) {
        const block_numbers numbers = block_random(t->seed, t->tensor, (uint64_t)i / 4);
        for (int x = 0; x < 4 && i + x < s.end; x++)
            block_store(t->to, t->dtype, i + x, t->centre + t->factor * numbers.at[x]);
    }
}

static ordo_status fill_host(block_device *d, void *to, ordo_dtype dtype, int64_t count,
                             uint64_t seed, uint32_t tensor, float factor, float centre)
{
    fill_task task = { to, dtype, count, seed, tensor, factor, centre };
    return ordo_pool_run(d->threads, 0, fill_share, &task);
}

typedef struct add_task {
    void *sum;
    const void *a, *b;
    ordo_dtype dtype;
    int64_t count;
} add_task;

static void add_share(void *context, int worker, int workers, void *scratch)
{
    const add_task *t = context;
    const span s = share_of(t->count, 1024, worker, workers);
    (void)scratch;
    for (int64_t i = s.first; i < s.end; i++)
        block_store(t->sum, t->dtype, i,
                    block_load(t->a, t->dtype, i) + block_load(t->b, t->dtype, i));
}

static ordo_status add_host(block_device *d, void *sum, const void *a, const void *b, int64_t count)
{
    add_task task = { sum, a, b, d->dtype, count };
    return ordo_pool_run(d->threads, 0, add_share, &task);
}

/* ---- activations ---- */

static void activate_share(void *context, int worker, int workers, void *scratch)
{
    const row_task *t = context;
    const block_activation *a = t->of;
    const span s = share_of(a->rows, 1, worker, workers);
    const int64_t columns = (a->gated ? 2 : 1) * a->width;
    (void)scratch;
    for (int64_t row = s.first; row < s.end; row++)
        for (int64_t j = 0; j < a->width; j++) {
            const float u = block_load(a->u, t->dtype, row * columns + j);
            const int64_t second = row * columns + a->width + j;
            float slope;
            const float g = a->gated ? block_silu(u, &slope) * block_load(a->u, t->dtype, second)
                                     : block_gelu(u, &slope);
            block_store(a->g, t->dtype, row * a->width + j, g);
        }
}

static void activate_gradient_share(void *context, int worker, int workers, void *scratch)
{
    const row_task *t = context;
    const block_activation *a = t->of;
    const span s = share_of(a->rows, 1, worker, workers);
    const int64_t columns = (a->gated ? 2 : 1) * a->width;
    (void)scratch;
    for (int64_t row = s.first; row < s.end; row++)
        for (int64_t j = 0; j < a->width; j++) {
            const float u = block_load(a->u, t->dtype, row * columns + j);
            const float dg = block_load(a->dg, t->dtype, row * a->width + j);
            const int64_t second = row * columns + a->width + j;
            float slope;
            if (a->gated) {
                const float value = block_silu(u, &slope);
                block_store(a->du, t->dtype, second, dg * value);
                slope *= block_load(a->u, t->dtype, second);
            } else {
                (void)block_gelu(u, &slope);
            }
            block_store(a->du, t->dtype, row * columns + j, dg * slope);
        }
}

static ordo_status activate_host(block_device *d, const block_activation *activation)
{
    return run_rows(d, activate_share, activation);
}

static ordo_status activate_gradient_host(block_device *d, const block_activation *activation)
{
    return run_rows(d, activate_gradient_share, activation);
}

/* ---- norms ---- */

static void norm_share(void *context, int worker, int workers, void *scratch)
{
    const row_task *t = context;
    const block_norm *n = t->of;
    const span s = share_of(n->rows, 1, worker, workers);
    (void)scratch;
    for (int64_t row = s.first; row < s.end; row++) {
        const int64_t first = row * n->columns;
        double squares = 0;
        for (int64_t j = 0; j < n->columns; j++) {
            const double x = (double)block_load(n->x, t->dtype, first + j);
            squares += x * x;
        }
        const double mean = squares / (double)n->columns;
        const float factor = (float)(1 / sqrt(mean + (double)ORDO_BLOCK_NORM_EPSILON));
        n->factor[row] = factor;
        for (int64_t j = 0; j < n->columns; j++)
            block_store(n->y, t->dtype, first + j,
                        block_load(n->x, t->dtype, first + j) * factor * n->gain[j]);
    }
}

static ordo_status norm_host(block_device *d, const block_norm *norm)
{
    return run_rows(d, norm_share, norm);
}

/* dx_j = f g_j dy_j - x_j f^3 / n sum_i g_i dy_i x_i */
static void norm_gradient_rows(void *context, int worker, int workers, void *scratch)
{
    const row_task *t = context;
    const block_norm_gradient *n = t->of;
    const span s = share_of(n->rows, 1, worker, workers);
    (void)scratch;
    for (int64_t row = s.first; row < s.end; row++) {
        const int64_t first = row * n->columns;
        const double f = (double)n->factor[row];
        double sum = 0;
        for (int64_t j = 0; j < n->columns; j++)
            sum += (double)n->gain[j] * (double)block_load(n->dy, t->dtype, first + j) *
                   (double)block_load(n->x, t->dtype, first + j);
        const float shrink = (float)(f * f * f / (double)n->columns * sum);
        for (int64_t j = 0; j < n->columns; j++) {
            const float dy = block_load(n->dy, t->dtype, first + j);
            const float x = block_load(n->x, t->dtype, first + j);
            block_store(n->dx, t->dtype, first + j,
                        n->factor[row] * n->gain[j] * dy - x * shrink +
                            block_load(n->add, t->dtype, first + j));
        }
    }
}

static void norm_gradient_columns(void *context, int worker, int workers, void *scratch)
{
    const row_task *t = context;
    const block_norm_gradient *n = t->of;
    const span s = share_of(n->columns, 16, worker, workers);
    double *sums = scratch;
    memset(sums, 0, (size_t)n->columns * sizeof *sums);
    for (int64_t row = 0; row < n->rows; row++)
        for (int64_t j = s.first; j < s.end; j++)
            sums[j] += (double)block_load(n->dy, t->dtype, row * n->columns + j) *
                       (double)(block_load(n->x, t->dtype, row * n->columns + j) * n->factor[row]);
    for (int64_t j = s.first; j < s.end; j++)
        n->dgain[j] = (float)sums[j];
}

static ordo_status norm_gradient_host(block_device *d, const block_norm_gradient *norm)
{
    row_task task = { norm, d->dtype };
    ORDO_TRY(ordo_pool_run(d->threads, (size_t)norm->columns * sizeof(double),
                           norm_gradient_columns, &task));
    return run_rows(d, norm_gradient_rows, norm);
}

/* ---- clock ---- */

static ordo_status start_host_clock(block_device *d)
{
    ORDO_TRY(join_host(d));
    clock_gettime(CLOCK_MONOTONIC, &d->start);
    return ORDO_OK;
}

static ordo_status stop_host_clock(block_device *d, double *seconds)
{
    struct timespec now;
    ORDO_TRY(join_host(d));
    clock_gettime(CLOCK_MONOTONIC, &now);
    *seconds =
        (double)(now.tv_sec - d->start.tv_sec) + (double)(now.tv_nsec - d->start.tv_nsec) * 1e-9;
    return ORDO_OK;
}

const block_operations ordo_block_cpu = { .open = open_host,
                                          .close = close_host,
                                          .allocate = allocate_host,
                                          .copy = copy_host,
                                          .fill = fill_host,
                                          .multiply = multiply_host,
                                          .norm = norm_host,
                                          .norm_gradient = norm_gradient_host,
                                          .activate = activate_host,
                                          .activate_gradient = activate_gradient_host,
                                          .add = add_host,
                                          .make_bits = make_bits_host,
                                          .attend = attend_host,
                                          .join = join_host,
                                          .attend_inside = attend_inside_host,
                                          .start_clock = start_host_clock,
                                          .stop_clock = stop_host_clock,
                                          .forget = forget_nothing,
                                          .stream = no_stream };
