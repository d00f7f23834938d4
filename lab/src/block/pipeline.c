/* pipeline.c: attention over segments of rows, with the bits of the next segment made beside it.
 *
 * Rows of the forward pass are independent, and the backward pass carries the sums of dk and dv
 * from segment to segment in the order of its plan, so that the segments give the bits of one pass.
 * All sequences of the batch have the same segments. lse is stored segment by segment.
 *
 * A plan with segments does the same inside one call. Here the bits of the first segment are made
 * beside the products before attention, and may be of generators that are experiments. */
#include <stdlib.h>

#include "base/status.h"
#include "block/block.h"

ordo_status ordo_block_pipeline_plan(ordo_block_runner *r, const ordo_machine *machine)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    block_pipeline *p = &r->pipeline;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    if (!ordo_block_has_mode(&r->job, ORDO_BLOCK_PIPELINED))
        return ORDO_OK;
    options.backend = r->job.backend;
    p->segments = calloc((size_t)r->job.segments, sizeof *p->segments);
    if (p->segments == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "segments %" PRId64 ": not enough memory",
                         r->job.segments);
    for (int64_t i = 0; i < r->job.segments; i++) {
        block_segment *s = &p->segments[i];
        s->problem = ordo_block_segment(&r->job, i);
        ORDO_TRY(ordo_plan_create(&s->plan, &s->problem, machine, &options));
        const size_t bytes = ordo_plan_workspace(s->plan);
        if (bytes > r->call.workspace_bytes)
            r->call.workspace_bytes = bytes;
    }
    ORDO_TRY(ordo_plan_query(p->segments[0].plan, &info));
    p->down = info.order == ORDO_ORDER_DESCENDING;
    return ORDO_OK;
}

ordo_status ordo_block_pipeline_allocate(ordo_block_runner *r)
{
    const ordo_dropout_call call = ordo_block_drop_call(&r->job);
    block_pipeline *p = &r->pipeline;
    ordo_dropout_info info;
    if (p->segments == NULL)
        return ORDO_OK;
    ORDO_TRY(ordo_dropout_query(&p->segments[0].problem, &call, &info));
    p->keep_bits_bytes = info.bytes;
    for (int i = 0; i < 2 && i < r->job.segments; i++) {
        void *bits = NULL;
        ORDO_TRY(r->ops->allocate(r->device, &bits, info.bytes));
        p->bits[i] = bits;
    }
    float **const sums[] = { &p->dk_sums, &p->dv_sums };
    for (int i = 0; i < 2 && r->job.backward; i++) {
        void *taken = NULL;
        const int64_t count = r->rows * r->job.kv_heads * r->head_dim;
        ORDO_TRY(r->ops->allocate(r->device, &taken, (size_t)count * sizeof(float)));
        *sums[i] = taken;
    }
    return ORDO_OK;
}

void ordo_block_pipeline_free(block_pipeline *p, int64_t segments)
{
    for (int64_t i = 0; i < segments && p->segments; i++)
        ordo_plan_destroy(p->segments[i].plan);
    free(p->segments);
}

/* ---- running ---- */

static const block_segment *segment_at(const ordo_block_runner *r, bool backward, int64_t nth)
{
    const block_pipeline *p = &r->pipeline;
    return &p->segments[backward && p->down ? r->job.segments - 1 - nth : nth];
}

static ordo_status make_bits(const ordo_block_runner *r, bool backward, int64_t nth)
{
    const block_pipeline *p = &r->pipeline;
    const block_bits bits = { .problem = &segment_at(r, backward, nth)->problem,
                              .job = &r->job,
                              .words = p->bits[nth % 2],
                              .bytes = p->keep_bits_bytes };
    return r->ops->make_bits(r->device, &bits, true);
}

ordo_status ordo_block_pipeline_begin(const ordo_block_runner *r, bool backward)
{
    ORDO_TRY(r->ops->join(r->device));
    return make_bits(r, backward, 0);
}

static ordo_tensor from_row(const ordo_block_runner *r, ordo_tensor whole, int64_t row)
{
    const size_t element = r->dtype == ORDO_F32 ? 4 : 2;
    whole.data = (char *)whole.data + (size_t)(row * whole.stride[1]) * element;
    return whole;
}

static ordo_call call_of(const ordo_block_runner *r, bool backward, int64_t nth)
{
    const block_pipeline *p = &r->pipeline;
    const int64_t first = segment_at(r, backward, nth)->problem.shard.row0;
    ordo_call call = r->call;
    call.q = from_row(r, call.q, first);
    call.o = from_row(r, call.o, first);
    call.lse = r->at.lse + first * r->job.batch * r->job.heads;
    call.keep_bits = p->bits[nth % 2];
    if (backward) {
        call.dout = from_row(r, call.dout, first);
        call.dq = from_row(r, call.dq, first);
        call.carry = nth > 0 ? ORDO_CARRY_IN : 0;
        call.carry |= nth + 1 < r->job.segments ? ORDO_CARRY_OUT : 0;
        call.dk_sums = call.carry ? p->dk_sums : NULL;
        call.dv_sums = call.carry ? p->dv_sums : NULL;
    }
    return call;
}

ordo_status ordo_block_pipeline_attend(const ordo_block_runner *r, bool backward)
{
    for (int64_t nth = 0; nth < r->job.segments; nth++) {
        const ordo_plan *plan = segment_at(r, backward, nth)->plan;
        const ordo_call call = call_of(r, backward, nth);
        ORDO_TRY(r->ops->join(r->device));
        if (nth + 1 < r->job.segments)
            ORDO_TRY(make_bits(r, backward, nth + 1)); /* to the place that attention read last */
        ORDO_TRY(backward ? ordo_attention_backward(plan, &call)
                          : ordo_attention_forward(plan, &call));
    }
    return ORDO_OK;
}
