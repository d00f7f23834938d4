/* pipeline.c: attention over segments of rows, with the bits of the next segment made beside it.
 *
 * Rows of the forward pass are independent, so that the segments give the bits of one pass. All
 * sequences of the batch are cut alike. lse of a segment is contiguous, and is spread over that of
 * the whole, which the backward pass reads. */
#include <stdlib.h>

#include "base/status.h"
#include "block/block.h"

ordo_status ordo_block_pipeline_plan(ordo_block_runner *r, const ordo_machine *machine)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    block_pipeline *p = &r->pipeline;
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
    return ORDO_OK;
}

ordo_status ordo_block_pipeline_allocate(ordo_block_runner *r)
{
    const ordo_dropout_call call = ordo_block_drop_call(&r->job);
    block_pipeline *p = &r->pipeline;
    ordo_dropout_info info;
    void *lse = NULL;
    if (p->segments == NULL)
        return ORDO_OK;
    ORDO_TRY(ordo_dropout_query(&p->segments[0].problem, &call, &info));
    p->mask_bytes = info.bytes;
    for (int i = 0; i < 2; i++) {
        void *mask = NULL;
        ORDO_TRY(r->ops->allocate(r->device, &mask, info.bytes));
        p->masks[i] = mask;
    }
    const int64_t rows = p->segments[0].problem.q_len * r->job.batch * r->job.heads;
    ORDO_TRY(r->ops->allocate(r->device, &lse, (size_t)rows * sizeof(float)));
    p->lse = lse;
    return ORDO_OK;
}

void ordo_block_pipeline_free(block_pipeline *p, int64_t segments)
{
    for (int64_t i = 0; i < segments && p->segments; i++)
        ordo_plan_destroy(p->segments[i].plan);
    free(p->segments);
}

static ordo_status make_bits(const ordo_block_runner *r, int64_t segment)
{
    const block_pipeline *p = &r->pipeline;
    const block_bits bits = { .problem = &p->segments[segment].problem,
                              .job = &r->job,
                              .words = p->masks[segment % 2],
                              .bytes = p->mask_bytes };
    return r->ops->make_bits(r->device, &bits, true);
}

ordo_status ordo_block_pipeline_begin(const ordo_block_runner *r)
{
    return make_bits(r, 0);
}

static ordo_tensor from_row(const ordo_block_runner *r, ordo_tensor whole, int64_t row)
{
    const size_t element = r->dtype == ORDO_F32 ? 4 : 2;
    whole.data = (char *)whole.data + (size_t)(row * whole.stride[1]) * element;
    return whole;
}

static ordo_status attend(const ordo_block_runner *r, int64_t segment)
{
    const block_pipeline *p = &r->pipeline;
    const block_segment *s = &p->segments[segment];
    const int64_t first = s->problem.shard.row0;
    ordo_call call = r->call;
    call.q = from_row(r, call.q, first);
    call.o = from_row(r, call.o, first);
    call.lse = p->lse;
    call.mask_bits = p->masks[segment % 2];
    ORDO_TRY(ordo_attention_forward(s->plan, &call));
    return r->ops->spread(r->device, r->at.lse + first, r->job.seq, p->lse,
                          r->job.batch * r->job.heads, s->problem.q_len);
}

ordo_status ordo_block_pipeline_attend(const ordo_block_runner *r)
{
    for (int64_t i = 0; i < r->job.segments; i++) {
        ORDO_TRY(r->ops->join(r->device));
        if (i + 1 < r->job.segments)
            ORDO_TRY(make_bits(r, i + 1)); /* to the mask that attention read last */
        ORDO_TRY(attend(r, i));
    }
    return ORDO_OK;
}
