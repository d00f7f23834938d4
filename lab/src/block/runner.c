/* runner.c: make and destroy a runner, and reach its tensors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "block/block.h"
#include "ordo/device.h"

/* ---- shapes ---- */

static void set_extent(ordo_block_runner *r, ordo_block_tensor tensor, int64_t rows,
                       int64_t columns, ordo_dtype dtype)
{
    r->extents[tensor] =
        (ordo_block_extent) { rows, columns, dtype,
                              (size_t)(rows * columns) * ordo_block_element_bytes(dtype) };
}

static void set_shapes(ordo_block_runner *r)
{
    const ordo_block_job *job = &r->job;
    r->dtype = job->precision == ORDO_PRECISION_F32 ? ORDO_F32 : ORDO_BF16;
    r->rows = job->batch * job->seq;
    r->head_dim = job->embed / job->heads;
    r->qkv_columns = (job->heads + 2 * job->kv_heads) * r->head_dim;
    r->up_columns = (job->gated ? 2 : 1) * job->mlp;
    set_extent(r, ORDO_BLOCK_X, r->rows, job->embed, r->dtype);
    set_extent(r, ORDO_BLOCK_WQKV, r->qkv_columns, job->embed, r->dtype);
    set_extent(r, ORDO_BLOCK_WOUT, job->embed, job->embed, r->dtype);
    set_extent(r, ORDO_BLOCK_WUP, r->up_columns, job->embed, r->dtype);
    set_extent(r, ORDO_BLOCK_WDOWN, job->embed, job->mlp, r->dtype);
    if (!job->bare) {
        set_extent(r, ORDO_BLOCK_G1, 1, job->embed, ORDO_F32);
        set_extent(r, ORDO_BLOCK_G2, 1, job->embed, ORDO_F32);
    }
    if (job->backward)
        for (int i = ORDO_BLOCK_X; i < ORDO_BLOCK_DX; i++)
            r->extents[ORDO_BLOCK_DX + i] = r->extents[i];
    r->extents[ORDO_BLOCK_Y] = r->extents[ORDO_BLOCK_X];
    if (job->backward)
        r->extents[ORDO_BLOCK_DY] = r->extents[ORDO_BLOCK_X];
}

/* ---- memory ---- */

static ordo_status take(ordo_block_runner *r, void **memory, int64_t rows, int64_t columns)
{
    return r->ops->allocate(r->device, memory,
                            (size_t)(rows * columns) * ordo_block_element_bytes(r->dtype));
}

static ordo_status take_floats(ordo_block_runner *r, float **memory, int64_t count)
{
    void *taken = NULL;
    ORDO_TRY(r->ops->allocate(r->device, &taken, (size_t)count * sizeof(float)));
    *memory = taken;
    return ORDO_OK;
}

static ordo_status take_activations(ordo_block_runner *r)
{
    const ordo_block_job *job = &r->job;
    block_activations *at = &r->at;
    int64_t widest = job->embed;
    if (job->backward) /* else only products of the width of the model pass through */
        widest = r->qkv_columns > r->up_columns ? r->qkv_columns : r->up_columns;
    ORDO_TRY(take(r, &at->qkv, r->rows, r->qkv_columns));
    ORDO_TRY(take(r, &at->a, r->rows, job->embed));
    ORDO_TRY(take(r, &at->h, r->rows, job->embed));
    ORDO_TRY(take(r, &at->u, r->rows, r->up_columns));
    ORDO_TRY(take(r, &at->g, r->rows, job->mlp));
    ORDO_TRY(take(r, &at->scratch[0], r->rows, widest));
    if (job->backward) {
        ORDO_TRY(take(r, &at->scratch[1], r->rows, widest));
        ORDO_TRY(take(r, &at->dh, r->rows, job->embed));
    }
    at->n1 = r->tensors[ORDO_BLOCK_X];
    at->n2 = at->h;
    if (!job->bare) {
        ORDO_TRY(take(r, &at->n1, r->rows, job->embed));
        ORDO_TRY(take(r, &at->n2, r->rows, job->embed));
        ORDO_TRY(take_floats(r, &at->factor1, r->rows));
        ORDO_TRY(take_floats(r, &at->factor2, r->rows));
    }
    return take_floats(r, &at->lse, r->rows * job->heads);
}

static ordo_status take_bits(ordo_block_runner *r)
{
    const ordo_block_job *job = &r->job;
    const ordo_dropout_call call = ordo_block_drop_call(job);
    const bool overlapped = ordo_block_has_mode(job, ORDO_BLOCK_OVERLAPPED);
    ordo_dropout_info info;
    if (job->dropout == 0)
        return ORDO_OK;
    ORDO_TRY(ordo_dropout_query(&r->problem, &call, &info));
    r->keep_bits_bytes = info.bytes;
    r->p_used = info.p_used;
    const bool two = overlapped && job->beside != ORDO_BLOCK_BESIDE_QKV;
    const int sets = two ? 2 : ordo_block_needs_bits(job);
    for (int i = 0; i < sets; i++) {
        void *taken = NULL;
        ORDO_TRY(r->ops->allocate(r->device, &taken, info.bytes));
        r->bits[i] = taken;
    }
    return ORDO_OK;
}

/* Weights have the variance that keeps that of the rows; gains are near one. */
static ordo_status fill_tensors(ordo_block_runner *r)
{
    for (int i = 0; i < ORDO_BLOCK_TENSORS; i++) {
        const ordo_block_extent *e = &r->extents[i];
        if (e->rows == 0)
            continue;
        ORDO_TRY(r->ops->allocate(r->device, &r->tensors[i], e->bytes));
        const bool activation = i == ORDO_BLOCK_X || i == ORDO_BLOCK_DY;
        const float factor = activation ? 1.0f : 1.0f / sqrtf((float)e->columns);
        const bool gain = i == ORDO_BLOCK_G1 || i == ORDO_BLOCK_G2;
        if (i < ORDO_BLOCK_DX || i == ORDO_BLOCK_DY)
            ORDO_TRY(r->ops->fill(r->device, r->tensors[i], e->dtype, e->rows * e->columns,
                                  r->job.seed, (uint32_t)i, gain ? 0.125f : factor,
                                  gain ? 1.0f : 0.0f));
    }
    return ORDO_OK;
}

/* ---- attention ---- */

static ordo_tensor columns_of(const ordo_block_runner *r, void *rows, int64_t first,
                              int64_t columns)
{
    return (ordo_tensor) { ordo_block_from(r, rows, first),
                           { r->job.seq * columns, columns, r->head_dim, 1 } };
}

/* q, k and v are columns of one tensor, and so are their gradients. */
static void set_call(ordo_block_runner *r)
{
    const int64_t d = r->head_dim, k = r->job.heads * d, v = k + r->job.kv_heads * d;
    const int64_t columns = r->qkv_columns;
    void *const qkv = r->at.qkv, *const gradients = r->at.scratch[1];
    ordo_call *call = &r->call;
    call->q = columns_of(r, qkv, 0, columns);
    call->k = columns_of(r, qkv, k, columns);
    call->v = columns_of(r, qkv, v, columns);
    call->o = columns_of(r, r->at.a, 0, r->job.embed);
    call->lse = r->at.lse;
    if (r->job.backward) {
        call->dout = columns_of(r, r->at.scratch[0], 0, r->job.embed);
        call->dq = columns_of(r, gradients, 0, columns);
        call->dk = columns_of(r, gradients, k, columns);
        call->dv = columns_of(r, gradients, v, columns);
    }
    call->seed = r->job.seed;
    call->offset = r->job.offset;
    call->threads = r->job.threads;
    call->stream = r->ops->stream(r->device);
}

/* The machine to plan for: the first device that attention runs on; of the cpu the host, NULL. */
static ordo_status open_machine(const ordo_block_job *job, ordo_machine **machine)
{
    ordo_device device;
    int count = 0;
    if (job->backend != ORDO_BACKEND_CUDA)
        return ORDO_OK;
    ORDO_TRY(ordo_device_count(&count, NULL));
    for (int i = 0; i < count; i++)
        if (ordo_device_query(i, &device) == ORDO_OK && device.major == 9 && device.minor == 0)
            return ordo_device_machine(i, machine);
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "backend cuda: none of %d devices has compute capability 9.0", count);
}

static ordo_status make_plans(ordo_block_runner *r, const ordo_machine *machine)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    size_t workspace = 0;
    options.backend = r->job.backend;
    r->problem = ordo_block_problem(&r->job, true);
    for (int drops = 0; drops < 2; drops++) {
        const ordo_problem problem = ordo_block_problem(&r->job, drops == 1);
        if (drops == 1 && r->job.dropout == 0)
            continue;
        ORDO_TRY(ordo_plan_create(&r->plans[drops], &problem, machine, &options));
        const size_t bytes = ordo_plan_workspace(r->plans[drops]);
        workspace = bytes > workspace ? bytes : workspace;
    }
    r->call = (ordo_call)ORDO_CALL_INIT;
    r->call.workspace_bytes = workspace;
    return ordo_block_pipeline_plan(r, machine);
}

/* ---- the runner ---- */

static ordo_status fill_runner(ordo_block_runner *r, const ordo_block_job *job)
{
    ordo_machine *machine = NULL;
    ORDO_TRY(ordo_block_job_resolve(job, &r->job));
    set_shapes(r);
    ORDO_TRY(open_machine(&r->job, &machine));
    const ordo_status planned = make_plans(r, machine); /* refuses what attention does not do */
    ordo_machine_destroy(machine);
    ORDO_TRY(planned);
    const block_operations *ops =
        r->job.backend == ORDO_BACKEND_CUDA ? &ordo_block_cuda : &ordo_block_cpu;
    ORDO_TRY(ops->open(&r->device, &r->job));
    r->ops = ops;
    ORDO_TRY(fill_tensors(r));
    ORDO_TRY(take_activations(r));
    ORDO_TRY(take_bits(r));
    ORDO_TRY(ordo_block_pipeline_allocate(r));
    if (r->call.workspace_bytes > 0)
        ORDO_TRY(ops->allocate(r->device, &r->call.workspace, r->call.workspace_bytes));
    set_call(r);
    return ORDO_OK;
}

ordo_status ordo_block_runner_create(ordo_block_runner **runner, const ordo_block_job *job)
{
    ORDO_TRY(ordo_check_pointer("runner", runner));
    *runner = NULL;
    ORDO_TRY(ordo_check_pointer("job", job));
    ordo_block_runner *r = calloc(1, sizeof *r);
    if (r == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "runner: %zu bytes", sizeof *r);
    const ordo_status status = fill_runner(r, job);
    if (status == ORDO_OK)
        *runner = r;
    else
        ordo_block_runner_destroy(r);
    return status;
}

void ordo_block_runner_destroy(ordo_block_runner *r)
{
    if (r == NULL)
        return;
    if (r->ops)
        r->ops->close(r->device);
    ordo_plan_destroy(r->plans[0]);
    ordo_plan_destroy(r->plans[1]);
    ordo_block_pipeline_free(&r->pipeline, r->job.segments);
    free(r);
}

/* Products and attention, counted as two operations for each multiplication with addition. */
static double flops_of(const ordo_block_runner *r)
{
    const double rows = (double)r->rows, embed = (double)r->job.embed;
    const double weights =
        embed * ((double)r->qkv_columns + embed + (double)r->up_columns + (double)r->job.mlp);
    const double pairs = rows * (double)r->job.seq * (r->job.causal ? 0.5 : 1);
    return 2 * rows * weights * (r->job.backward ? 3 : 1) +
           4 * pairs * embed * (r->job.backward ? 3.5 : 1);
}

ordo_status ordo_block_query(const ordo_block_runner *r, ordo_block_info *info)
{
    ordo_plan_info plan = ORDO_PLAN_INFO_INIT;
    ORDO_TRY(ordo_check_pointer("runner", r));
    ORDO_TRY(ordo_check_pointer("info", info));
    ORDO_TRY(ordo_plan_query(r->plans[r->plans[1] ? 1 : 0], &plan));
    *info = (ordo_block_info) { .head_dim = r->head_dim,
                                .kv_heads = r->job.kv_heads,
                                .mlp = r->job.mlp,
                                .p_used = r->p_used,
                                .keep_bits_bytes = r->keep_bits_bytes,
                                .segments = r->job.segments,
                                .beside = r->job.beside,
                                .flops = flops_of(r) };
    info->bits_bytes = r->pipeline.keep_bits_bytes;
    for (int i = 0; i < 2; i++)
        info->bits_bytes += r->bits[i] ? r->keep_bits_bytes : 0;
    memcpy(info->numeric_key, plan.numeric_key, sizeof info->numeric_key);
    return ORDO_OK;
}

/* ---- tensors ---- */

ordo_status ordo_block_extent_of(const ordo_block_runner *r, ordo_block_tensor tensor,
                                 ordo_block_extent *extent)
{
    ORDO_TRY(ordo_check_pointer("runner", r));
    ORDO_TRY(ordo_check_pointer("extent", extent));
    ORDO_TRY(ordo_check_range("tensor", tensor, 0, ORDO_BLOCK_TENSORS - 1));
    *extent = r->extents[tensor];
    return ORDO_OK;
}

static ordo_status check_copy(const ordo_block_runner *r, ordo_block_tensor tensor,
                              const void *data, size_t bytes)
{
    ordo_block_extent extent;
    ORDO_TRY(ordo_block_extent_of(r, tensor, &extent));
    if (extent.rows == 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "tensor %d: this block has none", (int)tensor);
    if (data == NULL || bytes != extent.bytes)
        return ordo_fail(ORDO_ERR_ARGUMENT, "tensor %d: %zu bytes at %s; expected %zu", (int)tensor,
                         bytes, data ? "an address" : "NULL", extent.bytes);
    return ORDO_OK;
}

ordo_status ordo_block_read(ordo_block_runner *r, ordo_block_tensor tensor, void *data,
                            size_t bytes)
{
    ORDO_TRY(check_copy(r, tensor, data, bytes));
    return r->ops->copy(r->device, data, r->tensors[tensor], bytes);
}

ordo_status ordo_block_write(ordo_block_runner *r, ordo_block_tensor tensor, const void *data,
                             size_t bytes)
{
    ORDO_TRY(check_copy(r, tensor, data, bytes));
    r->ops->forget(r->device);
    return r->ops->copy(r->device, r->tensors[tensor], data, bytes);
}
