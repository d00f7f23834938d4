/* pipeline.c: attention of the mode pipelined, over segments of rows and beside the products that
 * passes.c divides likewise.
 *
 * Rows of the forward pass are independent, and the backward pass carries the sums of dk and dv
 * from segment to segment in the order of its plan, so that the segments give the bits of one pass.
 * All sequences of the batch have the same segments. lse is stored segment by segment. The bits of
 * a segment replace those of the segment before it, which attention has read.
 *
 * A plan with segments divides attention alone, inside one call. Here the bits may also be of
 * generators that are experiments. */
#include <stdlib.h>

#include "base/status.h"
#include "block/block.h"

ordo_status ordo_block_attend(const block_attention *attention, void *stream)
{
    ordo_call call = attention->call;
    call.stream = stream;
    return attention->backward ? ordo_attention_backward(attention->plan, &call)
                               : ordo_attention_forward(attention->plan, &call);
}

static ordo_status plan_segment(ordo_block_runner *r, block_segment *s, const ordo_machine *machine)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = r->job.backend;
    ORDO_TRY(ordo_plan_create(&s->plan, &s->problem, machine, &options));
    const size_t bytes = ordo_plan_workspace(s->plan);
    if (bytes > r->call.workspace_bytes)
        r->call.workspace_bytes = bytes;
    return ORDO_OK;
}

ordo_status ordo_block_pipeline_plan(ordo_block_runner *r, const ordo_machine *machine)
{
    block_pipeline *p = &r->pipeline;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    if (!ordo_block_has_mode(&r->job, ORDO_BLOCK_PIPELINED))
        return ORDO_OK;
    p->segments = calloc((size_t)r->job.segments, sizeof *p->segments);
    if (p->segments == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "segments %" PRId64 ": not enough memory",
                         r->job.segments);
    for (int64_t i = 0; i < r->job.segments; i++)
        for (int backward = 0; backward < (r->job.backward ? 2 : 1); backward++) {
            block_segment *s = &p->segments[i][backward];
            s->problem = ordo_block_segment(&r->job, i, backward);
            ORDO_TRY(plan_segment(r, s, machine));
        }
    ORDO_TRY(ordo_plan_query(p->segments[0][r->job.backward].plan, &info));
    p->down = info.order == ORDO_ORDER_DESCENDING;
    return ORDO_OK;
}

ordo_status ordo_block_pipeline_allocate(ordo_block_runner *r)
{
    const ordo_dropout_call call = ordo_block_drop_call(&r->job);
    block_pipeline *p = &r->pipeline;
    ordo_dropout_info info;
    void *bits = NULL;
    if (p->segments == NULL)
        return ORDO_OK;
    const ordo_problem largest = ordo_block_segment(&r->job, 0, true);
    ORDO_TRY(ordo_dropout_query(&largest, &call, &info));
    ORDO_TRY(r->ops->allocate(r->device, &bits, info.bytes));
    p->bits = bits;
    p->keep_bits_bytes = info.bytes;
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
    for (int64_t i = 0; i < segments && p->segments; i++) {
        ordo_plan_destroy(p->segments[i][0].plan);
        ordo_plan_destroy(p->segments[i][1].plan);
    }
    free(p->segments);
}

/* ---- running ---- */

static const block_segment *segment_at(const ordo_block_runner *r, bool backward, int64_t nth)
{
    const block_pipeline *p = &r->pipeline;
    return &p->segments[backward && p->down ? r->job.segments - 1 - nth : nth][backward];
}

const ordo_problem *ordo_block_pipeline_segment(const ordo_block_runner *r, bool backward,
                                                int64_t nth)
{
    return &segment_at(r, backward, nth)->problem;
}

static ordo_status make_bits(const ordo_block_runner *r, bool backward, int64_t nth)
{
    const block_pipeline *p = &r->pipeline;
    const block_bits bits = { .problem = &segment_at(r, backward, nth)->problem,
                              .job = &r->job,
                              .words = p->bits,
                              .bytes = p->keep_bits_bytes };
    return r->ops->make_bits(r->device, &bits, true);
}

ordo_status ordo_block_pipeline_begin(const ordo_block_runner *r, bool backward)
{
    return make_bits(r, backward, 0);
}

static ordo_tensor from_row(const ordo_block_runner *r, ordo_tensor whole, int64_t row)
{
    whole.data = ordo_block_from(r, whole.data, row * whole.stride[1]);
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
    call.keep_bits = p->bits;
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

ordo_status ordo_block_pipeline_attend(const ordo_block_runner *r, bool backward, int64_t nth)
{
    const block_attention attention = { .plan = segment_at(r, backward, nth)->plan,
                                        .call = call_of(r, backward, nth),
                                        .backward = backward };
    if (nth > 0)
        ORDO_TRY(make_bits(r, backward, nth));
    return r->ops->attend(r->device, &attention);
}
