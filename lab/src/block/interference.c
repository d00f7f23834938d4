/* interference.c: a product and the making of keep bits at the same time on a device.
 *
 * "Beside" is measured from one side at a time: the other side has three times the work, so that it
 * runs all the while. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "block/cuda.h"
#include "ordo/device.h"

enum { REPEATS = 7, LAUNCHES_MAX = 100000 };

typedef struct pair {
    ordo_block_runner *r;
    block_cuda_parts parts;
    void *begin, *first_end, *second_end; /* events */
} pair;

static ordo_status check_device(const ordo_block_runner *r)
{
    if (r == NULL)
        return ordo_fail(ORDO_ERR_ARGUMENT, "runner: is NULL");
    if (r->job.backend != ORDO_BACKEND_CUDA)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %s: interference is measured on cuda",
                         ordo_backend_name(r->job.backend));
    if (r->bits[0] == NULL)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "modes %#x: expected dropout and a mode that keeps bits", r->job.modes);
    return ORDO_OK;
}

static ordo_status multiply(const pair *p)
{
    const ordo_block_runner *r = p->r;
    const ordo_block_extent *w = &r->extents[ORDO_BLOCK_WQKV];
    const block_product product = { .id = BLOCK_FORWARD * BLOCK_WEIGHTS + BLOCK_QKV,
                                    .m = r->rows,
                                    .n = w->rows,
                                    .k = w->columns,
                                    .b_transposed = true,
                                    .drops = true,
                                    .a = r->at.n1,
                                    .b = r->tensors[ORDO_BLOCK_WQKV],
                                    .c = r->at.qkv };
    return r->ops->multiply(r->device, &product);
}

static ordo_status make_bits(const pair *p, void *stream)
{
    const ordo_block_runner *r = p->r;
    const block_bits bits = { &r->problem, &r->job, r->bits[0], r->keep_bits_bytes };
    return ordo_block_cuda_bits(r->device, &bits, stream);
}

static ordo_status attend(const pair *p, bool drops, bool given, bool backward)
{
    ordo_call call = p->r->call;
    const ordo_plan *plan = p->r->plans[drops];
    if (given)
        call.keep_bits = p->r->bits[0];
    return backward ? ordo_attention_backward(plan, &call) : ordo_attention_forward(plan, &call);
}

static ordo_status wait_for(const pair *p, void *stream, void *event)
{
    char why[400] = "";
    const ordo_status status = p->parts.module->wait(stream, event, why, sizeof why);
    return status == ORDO_OK ? status : ordo_fail(status, "%s", why);
}

/* ---- times ---- */

enum { PRODUCT, BITS, THEN, BOTH, ATTENTION, DROPPING, FUSED, BACKWARD, BACKWARD_DROPPING, KINDS };

static ordo_status launch(const pair *p, int kind)
{
    switch (kind) {
    case PRODUCT: return multiply(p);
    case BITS: return make_bits(p, p->parts.stream);
    case THEN: ORDO_TRY(multiply(p)); return make_bits(p, p->parts.stream);
    case BOTH:
        ORDO_TRY(ordo_device_event_record(p->first_end, p->parts.stream));
        ORDO_TRY(wait_for(p, p->parts.side, p->first_end));
        ORDO_TRY(multiply(p)); /* first: it has its multiprocessors before small blocks take them */
        ORDO_TRY(make_bits(p, p->parts.side));
        ORDO_TRY(ordo_device_event_record(p->second_end, p->parts.side));
        return wait_for(p, p->parts.stream, p->second_end);
    case ATTENTION: return attend(p, false, false, false);
    case DROPPING: return attend(p, true, true, false);
    case FUSED: return attend(p, true, false, false);
    case BACKWARD: return attend(p, false, false, true);
    default: return attend(p, true, true, true);
    }
}

static ordo_status time_launches(const pair *p, int kind, int count, double *seconds)
{
    ORDO_TRY(p->r->ops->start_clock(p->r->device));
    for (int i = 0; i < count; i++)
        ORDO_TRY(launch(p, kind));
    ORDO_TRY(p->r->ops->stop_clock(p->r->device, seconds));
    *seconds /= count;
    return ORDO_OK;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

static int launches(double interval, double once)
{
    return (int)fmin(interval / fmax(once, 1e-6), LAUNCHES_MAX) + 1;
}

static bool has(const ordo_block_runner *r, int kind)
{
    if (kind == FUSED)
        return ordo_block_has_mode(&r->job, ORDO_BLOCK_FUSED);
    return r->job.backward || (kind != BACKWARD && kind != BACKWARD_DROPPING);
}

/* All kinds alternately. */
static ordo_status time_kinds(const pair *p, double interval, double result[KINDS])
{
    double values[KINDS][REPEATS];
    int count[KINDS];
    for (int kind = 0; kind < KINDS; kind++) {
        double once = 0;
        for (int i = 0; i < 2 && has(p->r, kind); i++)
            ORDO_TRY(time_launches(p, kind, 1, &once));
        count[kind] = launches(interval, once);
    }
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int kind = 0; kind < KINDS; kind++)
            if (has(p->r, kind))
                ORDO_TRY(time_launches(p, kind, count[kind], &values[kind][repeat]));
    for (int kind = 0; kind < KINDS; kind++)
        result[kind] = has(p->r, kind) ? median(values[kind], REPEATS) : 0;
    return ORDO_OK;
}

/* `products` on one stream and `sets` of keep bits on the other, begun together. */
static ordo_status time_beside(const pair *p, int products, int sets, double *of_products,
                               double *of_bits)
{
    ORDO_TRY(ordo_device_event_record(p->begin, p->parts.stream));
    ORDO_TRY(wait_for(p, p->parts.side, p->begin));
    for (int i = 0, j = 0; i < products || j < sets;) { /* feed both streams evenly */
        const bool first = j >= sets || (i < products && (double)i / products <= (double)j / sets);
        ORDO_TRY(first ? multiply(p) : make_bits(p, p->parts.side));
        i += first;
        j += !first;
    }
    ORDO_TRY(ordo_device_event_record(p->first_end, p->parts.stream));
    ORDO_TRY(ordo_device_event_record(p->second_end, p->parts.side));
    ORDO_TRY(ordo_device_event_elapsed(p->begin, p->first_end, of_products));
    ORDO_TRY(ordo_device_event_elapsed(p->begin, p->second_end, of_bits));
    *of_products /= products;
    *of_bits /= sets;
    return ORDO_OK;
}

static ordo_status measure(const pair *p, double seconds, ordo_block_interference *out)
{
    const double interval = seconds / (REPEATS * (KINDS + 8));
    double kinds[KINDS], product_beside[REPEATS], bits_beside[REPEATS], ignored;
    ORDO_TRY(make_bits(p, p->parts.stream)); /* for attention that reads it */
    ORDO_TRY(time_kinds(p, interval, kinds));
    const int products = launches(interval, kinds[PRODUCT]), sets = launches(interval, kinds[BITS]);
    for (int i = 0; i < REPEATS; i++) {
        ORDO_TRY(time_beside(p, products, 3 * sets, &product_beside[i], &ignored));
        ORDO_TRY(time_beside(p, 3 * products, sets, &ignored, &bits_beside[i]));
    }
    *out = (ordo_block_interference) { .product = kinds[PRODUCT],
                                       .bits = kinds[BITS],
                                       .product_beside = median(product_beside, REPEATS),
                                       .bits_beside = median(bits_beside, REPEATS),
                                       .then = kinds[THEN],
                                       .both = kinds[BOTH],
                                       .attention = kinds[ATTENTION],
                                       .dropping = kinds[DROPPING],
                                       .fused = kinds[FUSED],
                                       .backward = kinds[BACKWARD],
                                       .backward_dropping = kinds[BACKWARD_DROPPING] };
    snprintf(out->algorithm, sizeof out->algorithm, "ordo");
    if (p->r->job.gemm == ORDO_BLOCK_GEMM_CUBLASLT)
        p->parts.module->describe(p->parts.cuda, BLOCK_FORWARD * BLOCK_WEIGHTS + BLOCK_QKV,
                                  out->algorithm, sizeof out->algorithm);
    return ORDO_OK;
}

/* ---- opening ---- */

static void close_pair(pair *p)
{
    void *const events[] = { p->begin, p->first_end, p->second_end };
    for (int i = 0; i < 3; i++)
        if (events[i])
            (void)ordo_device_event_destroy(events[i]);
}

/* After a whole pass: activations and, for fp8, scales are those of the block. */
static ordo_status open_pair(pair *p, ordo_block_runner *r)
{
    const ordo_block_job *job = &r->job;
    const ordo_block_mode mode = ordo_block_has_mode(job, ORDO_BLOCK_SEQUENTIAL)
                                     ? ORDO_BLOCK_SEQUENTIAL
                                 : ordo_block_has_mode(job, ORDO_BLOCK_OVERLAPPED)
                                     ? ORDO_BLOCK_OVERLAPPED
                                     : ORDO_BLOCK_OVERLAPPED_QKV; /* one of them: there are bits */
    *p = (pair) { .r = r };
    ORDO_TRY(ordo_block_forward(r, mode));
    ORDO_TRY(r->ops->join(r->device));
    r->next_ready = false; /* bits[0] is overwritten */
    ordo_block_cuda_parts(r->device, &p->parts);
    ORDO_TRY(ordo_device_event_create(&p->begin));
    ORDO_TRY(ordo_device_event_create(&p->first_end));
    return ordo_device_event_create(&p->second_end);
}

ordo_status ordo_block_interfere(ordo_block_runner *r, double seconds,
                                 ordo_block_interference *interference)
{
    pair p;
    ORDO_TRY(check_device(r));
    if (interference == NULL || !(seconds > 0 && seconds <= 3600))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "seconds %g, interference %s: expected 0 to 3600 and "
                         "an address",
                         seconds, interference ? "given" : "NULL");
    ordo_status status = open_pair(&p, r);
    if (status == ORDO_OK)
        status = measure(&p, seconds, interference);
    close_pair(&p);
    r->ran = false; /* the activations are no longer those of one pass */
    return status;
}

/* ---- trace ---- */

enum { WARPS = 132 * 128, MARKS = 2 };

typedef struct traced {
    block_stamp *stamps; /* stamps of the warps, on the device */
    uint64_t *marks;     /* around the product, on the device */
    uint32_t *words;
    block_stamp host[WARPS];
    uint64_t around[MARKS];
} traced;

static ordo_status run_traced(const pair *p, traced *t, bool product, bool dropout)
{
    const ordo_block_runner *r = p->r;
    const ordo_problem *problem = &r->problem;
    const ordo_dropout_call call = ordo_block_drop_call(&r->job);
    ordo_dropout_info info;
    char why[400] = "";
    ordo_status status = ORDO_OK;
    ORDO_TRY(ordo_dropout_query(problem, &call, &info));
    const int64_t down = (problem->q_len + 15) / 16, across = (problem->q_len + 127) / 128;
    const block_traced bits = { .words = t->words,
                                .blocks = info.blocks,
                                .across = across,
                                .head_blocks = down * across,
                                .seed = r->job.seed,
                                .offset = r->job.offset,
                                .threshold = (uint32_t)info.threshold,
                                .warps = WARPS,
                                .stamps = t->stamps };
    ORDO_TRY(ordo_device_event_record(p->begin, p->parts.stream));
    ORDO_TRY(wait_for(p, p->parts.side, p->begin));
    if (product) {
        status = p->parts.module->stamp(&t->marks[0], p->parts.stream, why, sizeof why);
        if (status == ORDO_OK)
            ORDO_TRY(multiply(p));
        if (status == ORDO_OK)
            status = p->parts.module->stamp(&t->marks[1], p->parts.stream, why, sizeof why);
    }
    if (dropout && status == ORDO_OK)
        status = p->parts.module->traced_bits(&bits, p->parts.side, why, sizeof why);
    if (status != ORDO_OK)
        return ordo_fail(status, "%s", why);
    ORDO_TRY(ordo_device_synchronise(p->parts.stream));
    ORDO_TRY(ordo_device_synchronise(p->parts.side));
    ORDO_TRY(ordo_device_copy(t->around, t->marks, sizeof t->around, p->parts.stream));
    return ordo_device_copy(t->host, t->stamps, sizeof t->host, p->parts.stream);
}

static uint64_t first_begin(const traced *t)
{
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < WARPS; i++)
        first = t->host[i].begin < first ? t->host[i].begin : first;
    return first;
}

static uint64_t last_end(const traced *t)
{
    uint64_t last = 0;
    for (int i = 0; i < WARPS; i++)
        last = t->host[i].end > last ? t->host[i].end : last;
    return last;
}

static double overlap(double begin, double end, double from, double to)
{
    return fmax(0, fmin(end, to) - fmax(begin, from));
}

static void summarise(const traced *t, ordo_block_trace *out)
{
    const uint64_t begin = first_begin(t), end = last_end(t);
    const uint64_t zero = begin < t->around[0] ? begin : t->around[0];
    const uint64_t last = end > t->around[1] ? end : t->around[1];
    bool on[4096] = { false };
    double inside = 0, all = 0;
    out->product_begin = (double)(t->around[0] - zero) * 1e-9;
    out->product_end = (double)(t->around[1] - zero) * 1e-9;
    out->bits_begin = (double)(begin - zero) * 1e-9;
    out->bits_end = (double)(end - zero) * 1e-9;
    out->seconds = (double)(last - zero) * 1e-9;
    out->warps = WARPS;
    for (int i = 0; i < WARPS; i++) {
        const double from = (double)(t->host[i].begin - zero) * 1e-9;
        const double to = (double)(t->host[i].end - zero) * 1e-9;
        const double part = out->seconds / ORDO_BLOCK_TRACE_POINTS;
        all += to - from;
        inside += overlap(from, to, out->product_begin, out->product_end);
        for (int x = 0; x < ORDO_BLOCK_TRACE_POINTS; x++)
            out->active[x] += overlap(from, to, x * part, (x + 1) * part) / part;
        out->sms += !on[t->host[i].sm % 4096];
        on[t->host[i].sm % 4096] = true;
    }
    out->inside = all > 0 ? inside / all : 0;
}

/* Whether the kernel of the trace, which knows no causal mask, made the words of libordo. */
static ordo_status compare_words(const pair *p, const traced *t, bool *same)
{
    const ordo_block_runner *r = p->r;
    ordo_dropout_call call = ordo_block_drop_call(&r->job);
    call.visible_only = 0;
    ORDO_TRY(ordo_dropout_fill_device(&r->problem, &call, r->bits[0], r->keep_bits_bytes,
                                      p->parts.stream));
    return ordo_device_equal(r->bits[0], t->words, r->keep_bits_bytes, p->parts.stream, same);
}

static ordo_status trace_with(const pair *p, traced *t, ordo_block_trace *out)
{
    for (int i = 0; i < 3; i++) /* the last of three: warm */
        ORDO_TRY(run_traced(p, t, true, false));
    out->product_alone = (double)(t->around[1] - t->around[0]) * 1e-9;
    for (int i = 0; i < 3; i++)
        ORDO_TRY(run_traced(p, t, false, true));
    out->bits_alone = (double)(last_end(t) - first_begin(t)) * 1e-9;
    for (int i = 0; i < 3; i++)
        ORDO_TRY(run_traced(p, t, true, true));
    summarise(t, out);
    return compare_words(p, t, &out->same_words);
}

static ordo_status trace_pair(const pair *p, ordo_block_trace *out)
{
    void *stamps = NULL, *marks = NULL, *words = NULL;
    traced *t = calloc(1, sizeof *t);
    ordo_status status = t ? ORDO_OK : ordo_fail(ORDO_ERR_MEMORY, "trace: %zu bytes", sizeof *t);
    if (status == ORDO_OK)
        status = ordo_device_alloc(&stamps, sizeof t->host);
    if (status == ORDO_OK)
        status = ordo_device_alloc(&marks, sizeof t->around);
    if (status == ORDO_OK)
        status = ordo_device_alloc(&words, p->r->keep_bits_bytes);
    if (status == ORDO_OK) {
        t->stamps = stamps;
        t->marks = marks;
        t->words = words;
        status = trace_with(p, t, out);
    }
    (void)ordo_device_free(stamps); /* a fault has been reported by then */
    (void)ordo_device_free(marks);
    (void)ordo_device_free(words);
    free(t);
    return status;
}

ordo_status ordo_block_trace_run(ordo_block_runner *r, ordo_block_trace *trace)
{
    pair p;
    ORDO_TRY(check_device(r));
    if (trace == NULL)
        return ordo_fail(ORDO_ERR_ARGUMENT, "trace: is NULL");
    if (r->job.generator != ORDO_GENERATOR_SLICED || r->job.rounds != 7 || r->job.bits != 8)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "rounds %d, bits %d: a trace makes bits of generator "
                         "sliced with 7 and 8",
                         r->job.rounds, r->job.bits);
    *trace = (ordo_block_trace) { 0 };
    ordo_status status = open_pair(&p, r);
    if (status == ORDO_OK)
        status = trace_pair(&p, trace);
    close_pair(&p);
    r->ran = false;
    return status;
}
