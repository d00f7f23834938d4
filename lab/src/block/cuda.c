/* cuda.c: the operations of a block on a device: memory, streams and keep bits by libordo, the rest
 * by libordo_lab_cuda.so, which lies in the folder of libordo's module and is loaded on demand.
 *
 * Work runs on one stream; bits made and attention run beside it are on a second one, between two
 * events. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cuda_pass.h"
#include "base/keep.h"
#include "base/status.h"
#include "block/compare.h"
#include "block/cuda.h"
#include "block/product.h"
#include "ordo/device.h"

enum { PIECES = 64, WHY = 400 };

struct block_device {
    const block_cuda_module *module;
    block_cuda *cuda;
    void *stream, *side;
    void *fork, *done;  /* events: the second stream may begin; its work is done */
    void *start, *stop; /* events of the clock */
    bool cublaslt;      /* whose products are run */
    bool beside;        /* work runs on the second stream */
    bool room;          /* beside which products leave room */
    block_keep keep;    /* the bits beside such products */
    ordo_block_placement placement;
    void *pieces[PIECES];
    int count;
};

/* Call a function of the module and take over its message. */
#define MODULE_CALL(function, ...)                                                                 \
    do {                                                                                           \
        char why_[WHY] = "";                                                                       \
        const ordo_status called_ = d->module->function(__VA_ARGS__, why_, sizeof why_);           \
        if (called_ != ORDO_OK)                                                                    \
            return ordo_fail(called_, "%s", why_);                                                 \
    } while (0)

/* ---- opening ---- */

static ordo_status load(const block_cuda_module **module)
{
    const char *beside = NULL;
    char path[PATH_MAX];
    int devices;
    ORDO_TRY(ordo_device_count(&devices, &beside));
    const char *slash = strrchr(beside, '/');
    if (!slash || snprintf(path, sizeof path, "%.*s/libordo_lab_cuda.so", (int)(slash - beside),
                           beside) >= (int)sizeof path)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "CUDA module of the laboratory: no path beside \"%s\"", beside);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, ORDO_BLOCK_CUDA_ENTRY) : NULL;
    if (symbol == NULL)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "CUDA module of the laboratory: %s", dlerror());
    block_cuda_entry entry; /* C has no cast from an object to a function */
    memcpy(&entry, &symbol, sizeof entry);
    *module = entry();
    if ((*module)->abi != ORDO_BLOCK_CUDA_ABI || (*module)->size != sizeof **module)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "%s: interface %u of %u bytes, expected %d of %zu",
                         path, (*module)->abi, (*module)->size, ORDO_BLOCK_CUDA_ABI,
                         sizeof **module);
    return ORDO_OK;
}

static ordo_status open_parts(block_device *d, const ordo_block_job *job)
{
    const block_cuda_options options = { .fp8 = job->precision == ORDO_PRECISION_FP8,
                                         .sm_target = job->sm_target,
                                         .small_tiles = job->small_tiles };
    void **events[] = { &d->fork, &d->done, &d->start, &d->stop };
    d->cublaslt = job->gemm == ORDO_BLOCK_GEMM_CUBLASLT;
    d->placement = job->placement;
    ORDO_TRY(load(&d->module));
    MODULE_CALL(open, &d->cuda, &options);
    ORDO_TRY(ordo_device_stream_create(&d->stream));
    ORDO_TRY(ordo_device_stream_create(&d->side));
    for (int i = 0; i < 4; i++)
        ORDO_TRY(ordo_device_event_create(events[i]));
    return ORDO_OK;
}

static void close_device(block_device *d)
{
    void *const events[] = { d->fork, d->done, d->start, d->stop };
    if (d->cuda)
        d->module->close(d->cuda);
    for (int i = 0; i < d->count; i++)
        (void)ordo_device_free(d->pieces[i]); /* a fault has been reported by then */
    for (int i = 0; i < 4; i++)
        if (events[i])
            (void)ordo_device_event_destroy(events[i]);
    if (d->stream)
        (void)ordo_device_stream_destroy(d->stream);
    if (d->side)
        (void)ordo_device_stream_destroy(d->side);
    free(d);
}

static ordo_status open_device(block_device **device, const ordo_block_job *job)
{
    block_device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "device: %zu bytes", sizeof *d);
    const ordo_status status = open_parts(d, job);
    if (status == ORDO_OK)
        *device = d;
    else
        close_device(d);
    return status;
}

static ordo_status allocate_device(block_device *d, void **memory, size_t bytes)
{
    if (d->count == PIECES)
        return ordo_fail(ORDO_ERR_INTERNAL, "more than %d tensors", PIECES);
    ORDO_TRY(ordo_device_alloc(memory, bytes > 0 ? bytes : 1));
    d->pieces[d->count++] = *memory;
    return ORDO_OK;
}

/* ---- the second stream ---- */

/* What follows on it waits for all earlier work. */
static ordo_status fork_device(block_device *d)
{
    ORDO_TRY(ordo_device_event_record(d->fork, d->stream));
    MODULE_CALL(wait, d->side, d->fork);
    d->beside = true;
    return ORDO_OK;
}

static ordo_status join_device(block_device *d)
{
    if (!d->beside)
        return ORDO_OK;
    if (d->room)
        MODULE_CALL(keep, &d->keep, BLOCK_KEEP_REST, NULL, d->stream);
    d->beside = d->room = false;
    ORDO_TRY(ordo_device_event_record(d->done, d->side));
    MODULE_CALL(wait, d->stream, d->done);
    return ORDO_OK;
}

ordo_status ordo_block_cuda_keep(const block_bits *bits, block_keep *keep)
{
    const ordo_block_job *job = bits->job;
    const ordo_dropout_call call = ordo_block_drop_call(job);
    const bool compare = job->generator == ORDO_GENERATOR_COMPARE;
    ordo_dropout_info info;
    ORDO_TRY(ordo_dropout_query(bits->problem, &call, &info));
    *keep = (block_keep) { .words = bits->words,
                           .count = bits->bytes / sizeof(uint32_t),
                           .generator = job->generator,
                           .rounds = job->rounds,
                           .seed = job->seed,
                           .offset = job->offset,
                           .threshold = compare ? block_compare_limit(job->dropout)
                                                : (uint32_t)info.threshold,
                           .heads = job->batch * job->heads,
                           .seq = job->seq,
                           .causal = job->causal };
    return ORDO_OK;
}

ordo_status ordo_block_cuda_bits(block_device *d, const block_bits *bits, void *stream)
{
    const ordo_dropout_call call = ordo_block_drop_call(bits->job);
    block_keep keep;
    if (bits->job->generator != ORDO_GENERATOR_COMPARE)
        return ordo_dropout_fill_device(bits->problem, &call, bits->words, bits->bytes, stream);
    ORDO_TRY(ordo_block_cuda_keep(bits, &keep));
    MODULE_CALL(keep, &keep, BLOCK_KEEP_ALONE, NULL, stream);
    return ORDO_OK;
}

static ordo_status make_bits_device(block_device *d, const block_bits *bits, bool beside)
{
    ORDO_TRY(join_device(d));
    if (!beside)
        return ordo_block_cuda_bits(d, bits, d->stream);
    ORDO_TRY(fork_device(d));
    if (d->placement != ORDO_BLOCK_PLACEMENT_BESIDE)
        return ordo_block_cuda_bits(d, bits, d->side);
    ORDO_TRY(ordo_block_cuda_keep(bits, &d->keep));
    d->room = true;
    MODULE_CALL(keep, &d->keep, BLOCK_KEEP_BESIDE, NULL, d->side);
    return ORDO_OK;
}

static ordo_status attend_device(block_device *d, const block_attention *attention)
{
    ORDO_TRY(fork_device(d));
    return ordo_block_attend(attention, d->side);
}

static ordo_status attend_inside_device(block_device *d, const block_attention *attention,
                                        const block_bits *bits)
{
    ordo_cuda_pass pass;
    block_keep keep;
    ORDO_TRY(ordo_block_cuda_keep(bits, &keep));
    ORDO_TRY(ordo_cuda_pass_make(attention->plan,
                                 attention->backward ? ORDO_BACKWARD : ORDO_FORWARD,
                                 &attention->call, &pass));
    pass.keep.rounds = keep.rounds;
    pass.keep.threshold = keep.threshold;
    MODULE_CALL(attend, &pass, keep.generator, attention->backward);
    return ORDO_OK;
}

/* ---- the operations ---- */

static ordo_status copy_device(block_device *d, void *to, const void *from, size_t bytes)
{
    ORDO_TRY(join_device(d));
    return ordo_device_copy(to, from, bytes, d->stream);
}

static ordo_status fill_device(block_device *d, void *to, ordo_dtype dtype, int64_t count,
                               uint64_t seed, uint32_t tensor, float factor, float centre)
{
    MODULE_CALL(fill, to, dtype, count, seed, tensor, factor, centre, d->stream);
    return ORDO_OK;
}

static ordo_status multiply_by_ordo(const block_device *d, const block_product *product)
{
    const ordo_gemm_problem problem = ordo_block_gemm_problem(product, ORDO_BF16);
    ordo_gemm_call call = ordo_block_gemm_call(product);
    ordo_gemm_plan *plan = NULL;
    call.stream = d->stream;
    ORDO_TRY(ordo_gemm_plan_create(&plan, &problem, ORDO_BACKEND_CUDA));
    const ordo_status status = ordo_gemm_run(plan, &call);
    ordo_gemm_plan_destroy(plan);
    return status;
}

static ordo_status multiply_device(block_device *d, const block_product *product)
{
    if (d->room) {
        MODULE_CALL(multiply_beside, product, NULL, d->stream);
        return ORDO_OK;
    }
    if (!d->cublaslt)
        return multiply_by_ordo(d, product);
    MODULE_CALL(multiply, d->cuda, product, d->stream);
    return ORDO_OK;
}

static ordo_status norm_device(block_device *d, const block_norm *norm)
{
    MODULE_CALL(norm, norm, d->stream);
    return ORDO_OK;
}

static ordo_status norm_gradient_device(block_device *d, const block_norm_gradient *norm)
{
    MODULE_CALL(norm_gradient, d->cuda, norm, d->stream);
    return ORDO_OK;
}

static ordo_status activate_device(block_device *d, const block_activation *activation)
{
    MODULE_CALL(activate, activation, d->stream);
    return ORDO_OK;
}

static ordo_status activate_gradient_device(block_device *d, const block_activation *activation)
{
    MODULE_CALL(activate_gradient, activation, d->stream);
    return ORDO_OK;
}

static ordo_status add_device(block_device *d, void *sum, const void *a, const void *b,
                              int64_t count)
{
    MODULE_CALL(add, sum, a, b, count, d->stream);
    return ORDO_OK;
}

static ordo_status start_device_clock(block_device *d)
{
    ORDO_TRY(join_device(d));
    return ordo_device_event_record(d->start, d->stream);
}

static ordo_status stop_device_clock(block_device *d, double *seconds)
{
    ORDO_TRY(join_device(d));
    ORDO_TRY(ordo_device_event_record(d->stop, d->stream));
    return ordo_device_event_elapsed(d->start, d->stop, seconds);
}

static void forget_device(block_device *d)
{
    d->module->forget(d->cuda);
}

static void *stream_device(const block_device *d)
{
    return d->stream;
}

void ordo_block_cuda_parts(block_device *d, block_cuda_parts *parts)
{
    *parts = (block_cuda_parts) { d->module, d->cuda, d->stream, d->side };
}

const block_operations ordo_block_cuda = { .open = open_device,
                                           .close = close_device,
                                           .allocate = allocate_device,
                                           .copy = copy_device,
                                           .fill = fill_device,
                                           .multiply = multiply_device,
                                           .norm = norm_device,
                                           .norm_gradient = norm_gradient_device,
                                           .activate = activate_device,
                                           .activate_gradient = activate_gradient_device,
                                           .add = add_device,
                                           .make_bits = make_bits_device,
                                           .attend = attend_device,
                                           .join = join_device,
                                           .attend_inside = attend_inside_device,
                                           .start_clock = start_device_clock,
                                           .stop_clock = stop_device_clock,
                                           .forget = forget_device,
                                           .stream = stream_device };
