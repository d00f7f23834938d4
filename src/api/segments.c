/* segments.c: runs the segments of a plan one after the other.
 *
 * Two buffers of keep bits serve the segments alternately. With a second stream, the bits of the
 * next segment are made there while the kernels of this one run:
 *
 *   side    bits 0   bits 1            bits 2            bits 3
 *   stream           segment 0         segment 1         segment 2   ...
 *
 * `made` events say that bits are complete, `used` events that a segment no longer reads it. */
#include "api/segments.h"

#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "api/problem.h"
#include "base/keep.h"
#include "base/status.h"
#include "ordo/dropout.h"
#include "plan/workspace.h"

enum { BUFFERS = 2, EVENTS = 2 * BUFFERS };

typedef struct segmented {
    const ordo_plan *plan;
    const ordo_call *call;
    ordo_pass pass;
    ordo_pass_run *run;
    ordo_segment_parts sizes;
    bool keys; /* backward: dk and dv are computed */

    /* With a second stream, else NULL. */
    const ordo_cuda_module *module;
    void *events[EVENTS]; /* made, then used, of each buffer */
} segmented;

/* ---- the segments, in the order in which they run ---- */

static int64_t segment_at(const segmented *s, int64_t nth)
{
    const bool down = s->pass == ORDO_BACKWARD && s->plan->order == ORDO_ORDER_DESCENDING;
    return down ? s->plan->segments - 1 - nth : nth;
}

static char *bits_at(const segmented *s, int64_t nth)
{
    return (char *)s->call->workspace + (uint64_t)(nth % BUFFERS) * s->sizes.bits;
}

/* A tensor of queries from a row of the whole on. */
static ordo_tensor from_row(const ordo_problem *p, ordo_tensor t, int64_t dim, int64_t row)
{
    if (!t.data)
        return t;
    if (t.stride[3] == 0) { /* contiguous, which the rows of a segment are not */
        const int64_t tight[4] = { p->q_len * p->heads * dim, p->heads * dim, dim, 1 };
        for (int i = 0; i < 4; i++)
            t.stride[i] = tight[i];
    }
    t.data = (char *)t.data + row * t.stride[1] * (p->dtype == ORDO_F32 ? 4 : 2);
    return t;
}

/* Sums that go on from segment to segment, and beyond them if the call says so. */
static void carry_on(const segmented *s, int64_t nth, ordo_call *c)
{
    char *const sums =
        (char *)s->call->workspace + (uint64_t)s->sizes.buffers * s->sizes.bits + s->sizes.backward;
    const unsigned in = nth > 0 ? ORDO_CARRY_IN : s->call->carry & ORDO_CARRY_IN;
    const unsigned out =
        nth + 1 < s->plan->segments ? ORDO_CARRY_OUT : s->call->carry & ORDO_CARRY_OUT;
    c->carry = s->keys ? in | out : 0;
    if (c->carry && !s->call->carry) {
        c->dk_sums = (float *)(void *)sums;
        c->dv_sums = (float *)(void *)(sums + s->sizes.dk);
    }
    if (c->carry & ORDO_CARRY_OUT)
        c->dk.data = c->dv.data = NULL;
}

static ordo_call call_of(const segmented *s, int64_t nth)
{
    const ordo_problem *p = &s->plan->problem;
    const int64_t first = ordo_segment_first(s->plan, segment_at(s, nth));
    ordo_call c = *s->call;
    c.q = from_row(p, c.q, p->head_dim, first);
    c.o = from_row(p, c.o, p->v_head_dim, first);
    c.lse += first;
    c.keep_bits = (const uint32_t *)bits_at(s, nth);
    c.workspace = bits_at(s, 0) + (uint64_t)s->sizes.buffers * s->sizes.bits;
    if (s->pass == ORDO_BACKWARD) {
        c.dout = from_row(p, c.dout, p->v_head_dim, first);
        c.dq = from_row(p, c.dq, p->head_dim, first);
        c.dlse = c.dlse ? c.dlse + first : NULL;
        carry_on(s, nth, &c);
    }
    return c;
}

/* ---- events between both streams ---- */

static void *made_event(const segmented *s, int64_t nth)
{
    return s->events[nth % BUFFERS];
}

static void *used_event(const segmented *s, int64_t nth)
{
    return s->events[BUFFERS + nth % BUFFERS];
}

static ordo_status record(const segmented *s, void *event, void *stream)
{
    return s->module ? ordo_cuda_answer(s->module, s->module->event_record(event, stream))
                     : ORDO_OK;
}

static ordo_status await(const segmented *s, void *stream, void *event)
{
    return s->module ? ordo_cuda_answer(s->module, s->module->event_wait(stream, event)) : ORDO_OK;
}

static ordo_status open_events(segmented *s)
{
    if (s->plan->backend != ORDO_BACKEND_CUDA || !s->call->side_stream)
        return ORDO_OK;
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&s->module, NULL));
    for (int i = 0; i < EVENTS; i++)
        ORDO_TRY(ordo_cuda_answer(s->module, s->module->event_create(&s->events[i])));
    return ORDO_OK;
}

/* Events may be destroyed before the device has reached them. */
static void close_events(const segmented *s)
{
    for (int i = 0; i < EVENTS && s->module; i++)
        if (s->events[i])
            (void)s->module->event_destroy(s->events[i]);
}

/* ---- running ---- */

static ordo_status fill_bits(const segmented *s, int64_t nth)
{
    const ordo_plan segment = ordo_segment_plan(s->plan, segment_at(s, nth));
    const ordo_problem problem = ordo_problem_original(&segment.problem);
    const ordo_call *c = s->call;
    const bool device = s->plan->backend == ORDO_BACKEND_CUDA;
    uint32_t *words = (uint32_t *)bits_at(s, nth);
    uint64_t bytes = 0;
    ordo_dropout_call drop = ORDO_DROPOUT_CALL_INIT;
    drop.seed = c->seed;
    drop.offset = c->offset;
    drop.seed_ptr = c->seed_ptr;
    drop.offset_ptr = c->offset_ptr;
    drop.sequence_ids = c->sequence_ids;
    drop.threads = c->threads;
    drop.visible_only = 1;
    drop.on_device = device && c->sequence_ids;
    if (device)
        return ordo_dropout_fill_device(&problem, &drop, words, s->sizes.bits,
                                        s->module ? c->side_stream : c->stream);
    (void)ordo_segment_bits(s->plan, segment.problem.q_len, &bytes); /* fits: as made */
    return ordo_dropout_fill(&problem, &drop, 0, bytes / (sizeof *words * ORDO_KEEP_WORDS), words,
                             s->sizes.bits);
}

/* Make the bits of a segment, once those that had their place have been used. */
static ordo_status begin_bits(const segmented *s, int64_t nth)
{
    if (nth == 0) /* what the stream does before the pass */
        ORDO_TRY(record(s, used_event(s, nth), s->call->stream));
    if (nth != 1)
        ORDO_TRY(await(s, s->call->side_stream, used_event(s, nth)));
    ORDO_TRY(fill_bits(s, nth));
    return record(s, made_event(s, nth), s->call->side_stream);
}

static ordo_status run_segment(const segmented *s, int64_t nth)
{
    const ordo_plan segment = ordo_segment_plan(s->plan, segment_at(s, nth));
    const ordo_call call = call_of(s, nth);
    ORDO_TRY(await(s, s->call->stream, made_event(s, nth)));
    ORDO_TRY(s->run(&segment, &call));
    return record(s, used_event(s, nth), s->call->stream);
}

static ordo_status run_all(const segmented *s)
{
    ORDO_TRY(begin_bits(s, 0));
    for (int64_t nth = 0; nth < s->plan->segments; nth++) {
        if (nth + 1 < s->plan->segments)
            ORDO_TRY(begin_bits(s, nth + 1));
        ORDO_TRY(run_segment(s, nth));
    }
    return ORDO_OK;
}

/* What the kernels of a device do not take, before the first of them is launched. */
static ordo_status check_device(const segmented *s)
{
    ordo_cuda_pass pass;
    if (s->plan->backend != ORDO_BACKEND_CUDA)
        return ORDO_OK;
    const ordo_plan segment = ordo_segment_plan(s->plan, segment_at(s, 0));
    const ordo_call call = call_of(s, 0);
    return ordo_cuda_pass_make(&segment, s->pass, &call, &pass);
}

ordo_status ordo_segments_run(const ordo_plan *plan, ordo_pass pass, ordo_pass_run *run,
                              const ordo_call *call)
{
    segmented s = {
        .plan = plan, .call = call, .pass = pass, .run = run, .keys = call->dk.data || call->carry
    };
    (void)ordo_segment_sizes(plan, &s.sizes); /* fits: as made */
    ORDO_TRY(check_device(&s));
    ordo_status status = open_events(&s);
    if (status == ORDO_OK)
        status = run_all(&s);
    if (status != ORDO_OK && s.events[EVENTS - 1]) { /* the workspace may still be written */
        (void)record(&s, s.events[0], call->side_stream);
        (void)await(&s, call->stream, s.events[0]);
    }
    close_events(&s);
    return status;
}
