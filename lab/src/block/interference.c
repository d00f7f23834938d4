/* interference.c: a product and the making of keep bits at the same time on a device.
 *
 * "Beside" is measured from one side at a time: the other side has three times the work or more, so
 * that it runs all the while. */
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
    ORDO_TRY(ordo_check_pointer("runner", r));
    if (r->job.backend != ORDO_BACKEND_CUDA)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %s: interference is measured on cuda",
                         ordo_backend_name(r->job.backend));
    if (r->bits[0] == NULL)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "modes %#x: expected dropout and a mode that keeps bits", r->job.modes);
    return ORDO_OK;
}

static block_product product_of(const ordo_block_runner *r)
{
    const ordo_block_extent *w = &r->extents[ORDO_BLOCK_WQKV];
    return (block_product) { .id = BLOCK_FORWARD * BLOCK_WEIGHTS + BLOCK_QKV,
                             .m = r->rows,
                             .n = w->rows,
                             .k = w->columns,
                             .b_transposed = true,
                             .drops = true,
                             .a = r->at.n1,
                             .b = r->tensors[ORDO_BLOCK_WQKV],
                             .c = r->at.qkv };
}

static block_bits bits_of(const ordo_block_runner *r)
{
    return (block_bits) { &r->problem, &r->job, r->bits[0], r->keep_bits_bytes };
}

/* Both as fast as they are alone. */
static ordo_status multiply(const pair *p)
{
    const block_product product = product_of(p->r);
    return p->r->ops->multiply(p->r->device, &product);
}

static ordo_status make_bits(const pair *p, void *stream)
{
    const block_bits bits = bits_of(p->r);
    return ordo_block_cuda_bits(p->r->device, &bits, stream);
}

static ordo_status told(ordo_status status, const char *why)
{
    return status == ORDO_OK ? status : ordo_fail(status, "%s", why);
}

static bool is_beside(const pair *p)
{
    return p->r->job.placement == ORDO_BLOCK_PLACEMENT_BESIDE;
}

/* Both as the placement has them. */
static ordo_status multiply_placed(const pair *p, const block_stamps *stamps)
{
    const block_product product = product_of(p->r);
    char why[400] = "";
    if (!is_beside(p))
        return multiply(p);
    return told(
        p->parts.module->multiply_beside(&product, stamps, p->parts.stream, why, sizeof why), why);
}

/* What the warps beside a product have not drawn when it ends. */
static ordo_status make_rest(const pair *p, const block_keep *keep, const block_stamps *stamps)
{
    char why[400] = "";
    return told(
        p->parts.module->keep(keep, BLOCK_KEEP_REST, stamps, p->parts.stream, why, sizeof why),
        why);
}

static ordo_status make_bits_placed(const pair *p, void *stream)
{
    const block_bits bits = bits_of(p->r);
    block_keep keep;
    char why[400] = "";
    if (!is_beside(p))
        return make_bits(p, stream);
    ORDO_TRY(ordo_block_cuda_keep(&bits, &keep));
    return told(p->parts.module->keep(&keep, BLOCK_KEEP_BESIDE, NULL, stream, why, sizeof why),
                why);
}

static ordo_status attend(const pair *p, bool drops, bool given, bool backward)
{
    return ordo_block_attend_all(p->r, drops, given ? p->r->bits[0] : NULL, backward);
}

static ordo_status wait_for(const pair *p, void *stream, void *event)
{
    char why[400] = "";
    return told(p->parts.module->wait(stream, event, why, sizeof why), why);
}

/* ---- times ---- */

enum {
    PRODUCT,
    BITS,
    THEN,
    BOTH,
    ROOM,
    SMALL,
    ATTENTION,
    DROPPING,
    FUSED,
    BACKWARD,
    BACKWARD_DROPPING,
    KINDS
};

static ordo_status launch_both(const pair *p)
{
    const block_bits bits = bits_of(p->r);
    block_keep keep;
    ORDO_TRY(ordo_block_cuda_keep(&bits, &keep));
    ORDO_TRY(ordo_device_event_record(p->first_end, p->parts.stream));
    ORDO_TRY(wait_for(p, p->parts.side, p->first_end));
    /* First what would not find room afterwards: small blocks on a second stream take whole
     * multiprocessors, and beside a product there is one for each. */
    if (is_beside(p))
        ORDO_TRY(make_bits_placed(p, p->parts.side));
    ORDO_TRY(multiply_placed(p, NULL));
    ORDO_TRY(is_beside(p) ? make_rest(p, &keep, NULL) : make_bits_placed(p, p->parts.side));
    ORDO_TRY(ordo_device_event_record(p->second_end, p->parts.side));
    return wait_for(p, p->parts.stream, p->second_end);
}

static ordo_status launch(const pair *p, int kind)
{
    switch (kind) {
    case PRODUCT: return multiply(p);
    case BITS: return make_bits(p, p->parts.stream);
    case THEN: ORDO_TRY(multiply(p)); return make_bits(p, p->parts.stream);
    case BOTH: return launch_both(p);
    case ROOM: return multiply_placed(p, NULL);
    case SMALL: return make_bits_placed(p, p->parts.stream);
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
    if (kind == ROOM || kind == SMALL)
        return r->job.placement == ORDO_BLOCK_PLACEMENT_BESIDE;
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
        ORDO_TRY(first ? multiply_placed(p, NULL) : make_bits_placed(p, p->parts.side));
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
    const int longer = is_beside(p) ? 48 : 3; /* four warps take up to 16 times as long */
    for (int i = 0; i < REPEATS; i++) {
        ORDO_TRY(time_beside(p, products, 3 * sets, &product_beside[i], &ignored));
        ORDO_TRY(time_beside(p, longer * products, sets, &ignored, &bits_beside[i]));
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
                                       .backward_dropping = kinds[BACKWARD_DROPPING],
                                       .room = kinds[ROOM],
                                       .small = kinds[SMALL] };
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

enum { WARPS = 1 << 15, BLOCKS = 512, MARKS = 2 }; /* for 256 multiprocessors */

/* As it is on the device. */
typedef struct trace_notes {
    block_stamp warps[WARPS];   /* that made bits */
    block_stamp blocks[BLOCKS]; /* of the product, unless the placement is stream */
    uint64_t around[MARKS];     /* the product */
} trace_notes;

typedef struct traced {
    trace_notes *notes, host;
    uint32_t *words;
} traced;

/* Bits by warps of placement stream, or of the placement if a product runs beside them. */
static ordo_status launch_traced(const pair *p, const traced *t, bool product, bool dropout)
{
    const block_cuda_module *module = p->parts.module;
    const bool together = product && dropout;
    const bool beside = together && is_beside(p);
    const block_stamps stamps = { t->notes->blocks, t->notes->warps };
    const block_stamps rest = { NULL, t->notes->warps + WARPS / 2 };
    const block_bits bits = bits_of(p->r);
    block_keep keep;
    char why[400] = "";
    ORDO_TRY(ordo_block_cuda_keep(&bits, &keep));
    keep.words = t->words;
    keep.causal = false;
    ORDO_TRY(ordo_device_event_record(p->begin, p->parts.stream));
    ORDO_TRY(wait_for(p, p->parts.side, p->begin));
    if (beside)
        ORDO_TRY(told(
            module->keep(&keep, BLOCK_KEEP_BESIDE, &stamps, p->parts.side, why, sizeof why), why));
    if (product) {
        uint64_t *around = t->notes->around;
        ORDO_TRY(told(module->stamp(&around[0], p->parts.stream, why, sizeof why), why));
        ORDO_TRY(multiply_placed(p, &stamps));
        ORDO_TRY(told(module->stamp(&around[1], p->parts.stream, why, sizeof why), why));
    }
    if (beside)
        ORDO_TRY(make_rest(p, &keep, &rest));
    else if (dropout)
        ORDO_TRY(told(
            module->keep(&keep, BLOCK_KEEP_ALONE, &stamps, p->parts.side, why, sizeof why), why));
    return ORDO_OK;
}

static ordo_status run_traced(const pair *p, traced *t, bool product, bool dropout)
{
    memset(&t->host, 0, sizeof t->host);
    ORDO_TRY(ordo_device_copy(t->notes, &t->host, sizeof t->host, p->parts.stream));
    ORDO_TRY(launch_traced(p, t, product, dropout));
    ORDO_TRY(ordo_device_synchronise(p->parts.stream));
    ORDO_TRY(ordo_device_synchronise(p->parts.side));
    return ordo_device_copy(&t->host, t->notes, sizeof t->host, p->parts.stream);
}

static uint64_t first_begin(const traced *t)
{
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < WARPS; i++)
        if (t->host.warps[i].end && t->host.warps[i].begin < first)
            first = t->host.warps[i].begin;
    return first;
}

static uint64_t last_end(const traced *t)
{
    uint64_t last = 0;
    for (int i = 0; i < WARPS; i++)
        last = t->host.warps[i].end > last ? t->host.warps[i].end : last;
    return last;
}

static double overlap(double begin, double end, double from, double to)
{
    return fmax(0, fmin(end, to) - fmax(begin, from));
}

/* Seconds of a warp's time that a block of the product was on its multiprocessor. */
static double shared_time(const traced *t, const block_stamp *warp)
{
    double shared = 0;
    for (int i = 0; i < BLOCKS && t->host.blocks[i].end; i++)
        if (t->host.blocks[i].sm == warp->sm)
            shared += overlap((double)warp->begin, (double)warp->end,
                              (double)t->host.blocks[i].begin, (double)t->host.blocks[i].end);
    return shared * 1e-9;
}

static void summarise(const traced *t, ordo_block_trace *out)
{
    const uint64_t *around = t->host.around, begin = first_begin(t), end = last_end(t);
    const uint64_t zero = begin < around[0] ? begin : around[0];
    const uint64_t last = end > around[1] ? end : around[1];
    bool on[4096] = { false }, with[4096] = { false };
    double inside = 0, all = 0, shared = 0;
    out->product_begin = (double)(around[0] - zero) * 1e-9;
    out->product_end = (double)(around[1] - zero) * 1e-9;
    out->bits_begin = (double)(begin - zero) * 1e-9;
    out->bits_end = (double)(end - zero) * 1e-9;
    out->seconds = (double)(last - zero) * 1e-9;
    for (int i = 0; i < WARPS; i++) {
        const block_stamp *warp = &t->host.warps[i];
        const uint32_t sm = warp->sm % 4096;
        if (warp->end == 0)
            continue;
        const double from = (double)(warp->begin - zero) * 1e-9;
        const double to = (double)(warp->end - zero) * 1e-9;
        const double part = out->seconds / ORDO_BLOCK_TRACE_POINTS, both = shared_time(t, warp);
        all += to - from;
        shared += both;
        inside += overlap(from, to, out->product_begin, out->product_end);
        for (int x = 0; x < ORDO_BLOCK_TRACE_POINTS; x++)
            out->active[x] += overlap(from, to, x * part, (x + 1) * part) / part;
        out->warps++;
        out->sms += !on[sm];
        on[sm] = true;
        out->shared_sms += both > 0 && !with[sm];
        with[sm] |= both > 0;
    }
    out->inside = all > 0 ? inside / all : 0;
    out->shared = all > 0 ? shared / all : 0;
}

/* Whether the kernels of the trace, which know no causal mask, made the words of others. */
static ordo_status compare_words(const pair *p, const traced *t, bool *same)
{
    const ordo_block_runner *r = p->r;
    ordo_dropout_call call = ordo_block_drop_call(&r->job);
    call.visible_only = 0;
    ORDO_TRY(r->job.generator == ORDO_GENERATOR_COMPARE
                 ? make_bits(p, p->parts.stream)
                 : ordo_dropout_fill_device(&r->problem, &call, r->bits[0], r->keep_bits_bytes,
                                            p->parts.stream));
    return ordo_device_equal(r->bits[0], t->words, r->keep_bits_bytes, p->parts.stream, same);
}

static ordo_status trace_with(const pair *p, traced *t, ordo_block_trace *out)
{
    for (int i = 0; i < 3; i++) /* the last of three: warm */
        ORDO_TRY(run_traced(p, t, true, false));
    out->product_alone = (double)(t->host.around[1] - t->host.around[0]) * 1e-9;
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
    void *notes = NULL, *words = NULL;
    traced *t = calloc(1, sizeof *t);
    ordo_status status = t ? ORDO_OK : ordo_fail(ORDO_ERR_MEMORY, "trace: %zu bytes", sizeof *t);
    if (status == ORDO_OK)
        status = ordo_device_alloc(&notes, sizeof t->host);
    if (status == ORDO_OK)
        status = ordo_device_alloc(&words, p->r->keep_bits_bytes);
    if (status == ORDO_OK) {
        t->notes = notes;
        t->words = words;
        status = trace_with(p, t, out);
    }
    (void)ordo_device_free(notes); /* a fault has been reported by then */
    (void)ordo_device_free(words);
    free(t);
    return status;
}

ordo_status ordo_block_trace_run(ordo_block_runner *r, ordo_block_trace *trace)
{
    pair p;
    ORDO_TRY(check_device(r));
    ORDO_TRY(ordo_check_pointer("trace", trace));
    if (r->job.generator != ORDO_GENERATOR_COMPARE && r->job.bits != 8)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "bits %d: a trace makes 8 of generator sliced, or those of compare",
                         r->job.bits);
    *trace = (ordo_block_trace) { 0 };
    ordo_status status = open_pair(&p, r);
    if (status == ORDO_OK)
        status = trace_pair(&p, trace);
    close_pair(&p);
    r->ran = false;
    return status;
}
