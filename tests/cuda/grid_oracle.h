/* grid_oracle.h: what a grid_case should give. The oracle (backend ref, fp64) gets the 16-bit
 * inputs as f32, which is exact, and its results come back as f32. The backward pass is given the o
 * and lse that were written, as any backward pass is. */
#ifndef TESTS_CUDA_GRID_ORACLE_H
#define TESTS_CUDA_GRID_ORACLE_H

#include "grid_run.h"

/* A case in f32, its tensors laid out as in the case. */
typedef struct grid_exact {
    ordo_problem problem; /* resolved */
    float *data[GRID_TENSORS];
    float *o_written; /* by the case: what the backward pass reads */
    float dsink[GRID_HEADS_MAX], dsink_parts[GRID_BATCH_MAX * GRID_HEADS_MAX];
    unsigned char *bias; /* f32 */
    float *dbias;
} grid_exact;

static inline float *grid_floats(const grid_case *c, int tensor, bool wanted)
{
    const size_t count = grid_bytes(c, tensor) / grid_width(tensor);
    float *x = calloc(count + 1, sizeof *x);
    if (!x)
        abort();
    if (wanted && grid_tensors[tensor].row)
        memcpy(x, c->data[tensor], count * sizeof *x);
    else if (wanted)
        for (size_t i = 0; i < count; i++)
            x[i] = (float)grid_value(c, ((const uint16_t *)c->data[tensor])[i]);
    return x;
}

static inline ordo_call grid_oracle_call(const grid_case *c, grid_exact *exact)
{
    float *const *x = exact->data;
    ordo_call call = ORDO_CALL_INIT;
    *(c->blocks.seen ? &call.seen : &call.block_mask) = c->mask;
    call.q = grid_tensor(c, GRID_Q, x[GRID_Q]);
    call.k = grid_tensor(c, GRID_K, x[GRID_K]);
    call.v = grid_tensor(c, GRID_V, x[GRID_V]);
    call.o = grid_tensor(c, GRID_O, x[GRID_O]);
    call.dout = grid_tensor(c, GRID_DOUT, x[GRID_DOUT]);
    call.dq = grid_tensor(c, GRID_DQ, x[GRID_DQ]);
    call.dk = grid_tensor(c, GRID_DK, x[GRID_DK]);
    call.dv = grid_tensor(c, GRID_DV, x[GRID_DV]);
    call.lse = x[GRID_LSE];
    call.dlse = c->dlse ? x[GRID_DLSE] : NULL;
    if (c->problem.layout == ORDO_PACKED)
        call.cu_q = c->cu_q, call.cu_kv = c->cu_kv;
    if (c->problem.layout == ORDO_PADDED)
        call.q_lens = c->q_lens, call.kv_lens = c->kv_lens;
    call.sequence_ids = c->ids_given ? c->ids : NULL;
    call.slopes = c->problem.alibi ? c->slopes : NULL;
    call.slopes_batch_stride = c->slopes_each ? c->problem.heads : 0;
    if (c->sinks)
        call.sink = c->sink, call.dsink = exact->dsink, call.dsink_parts = exact->dsink_parts;
    if (c->bias.on)
        call.bias = grid_bias_tensor(&c->problem, 0, exact->bias), call.dbias = exact->dbias;
    call.seed = c->seed;
    call.offset = c->offset;
    return call;
}

/* What a case that has run should have given. */
static inline void grid_ask_oracle(const grid_case *c, grid_exact *exact)
{
    ordo_problem problem = c->problem;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_REF;
    grid_bias bias = c->bias;
    bias.f32 = true;
    exact->bias = grid_bias_make(&c->bias, &c->problem, 0, true);
    problem.dtype = ORDO_F32;
    exact->dbias = grid_bias_open(&bias, &problem);
    for (int t = 0; t < GRID_TENSORS; t++)
        exact->data[t] = grid_floats(c, t, t < GRID_OUTPUTS);
    exact->problem = (ordo_problem)ORDO_PROBLEM_INIT;
    ordo_call call = grid_oracle_call(c, exact);
    grid_must(ordo_plan_create(&plan, &problem, NULL, &options), "oracle's plan");
    grid_must(ordo_plan_problem(plan, &exact->problem), "oracle's problem");
    grid_must(ordo_attention_forward(plan, &call), "oracle's forward pass");
    call.o.data = exact->o_written = grid_floats(c, GRID_O, true);
    call.lse = grid_floats(c, GRID_LSE, true);
    grid_must(ordo_attention_backward(plan, &call), "oracle's backward pass");
    ordo_plan_destroy(plan);
    free(call.lse);
}

static inline void grid_exact_close(grid_exact *exact)
{
    for (int t = 0; t < GRID_TENSORS; t++)
        free(exact->data[t]);
    free(exact->o_written);
    free(exact->bias);
    free(exact->dbias);
}

#endif
