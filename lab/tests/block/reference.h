/* reference.h: the forward pass of a block in double, element by element, as ordo/lab/block.h
 * defines it; nothing is shared with the runner but the keep bits. */
#ifndef TESTS_BLOCK_REFERENCE_H
#define TESTS_BLOCK_REFERENCE_H

#include "check.h"
#include "ordo/dropout.h"
#include "ordo/lab/block.h"

typedef struct reference {
    ordo_block_job job; /* kv_heads and mlp set */
    double *in[ORDO_BLOCK_DX];
    int64_t count[ORDO_BLOCK_DX];
    double p_used;
    double *y;
} reference;

static void reference_norm(const reference *r, const double *x, const double *gain, double *y)
{
    const int64_t rows = r->job.batch * r->job.seq, width = r->job.embed;
    for (int64_t i = 0; i < rows; i++) {
        double squares = 0;
        for (int64_t j = 0; j < width; j++)
            squares += x[i * width + j] * x[i * width + j];
        for (int64_t j = 0; j < width; j++)
            y[i * width + j] =
                gain ? x[i * width + j] * gain[j] / sqrt(squares / (double)width + 1e-5)
                     : x[i * width + j];
    }
}

static void reference_project(const reference *r, const double *in, const double *weight,
                              int64_t outputs, int64_t inputs, const double *residual, double *out)
{
    for (int64_t i = 0; i < r->job.batch * r->job.seq; i++)
        for (int64_t j = 0; j < outputs; j++) {
            double sum = residual ? residual[i * outputs + j] : 0;
            for (int64_t k = 0; k < inputs; k++)
                sum += in[i * inputs + k] * weight[j * inputs + k];
            out[i * outputs + j] = sum;
        }
}

static bool reference_keeps(const reference *r, int64_t batch, int64_t head, int64_t row,
                            int64_t column)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    bool keep = true;
    problem.batch = r->job.batch;
    problem.heads = r->job.heads;
    problem.kv_heads = r->job.kv_heads;
    problem.q_len = r->job.seq;
    problem.head_dim = r->job.embed / r->job.heads;
    problem.dropout.p = r->job.dropout;
    call.seed = r->job.seed;
    call.offset = r->job.offset;
    if (r->job.dropout > 0)
        CHECK_INT(ordo_dropout_keep(&problem, &call, batch, head, row, column, &keep), ORDO_OK);
    return keep;
}

/* One row of one head. */
static void reference_attend(const reference *r, const double *qkv, int64_t batch, int64_t head,
                             int64_t row, double *out)
{
    const ordo_block_job *job = &r->job;
    const int64_t d = job->embed / job->heads, stride = (job->heads + 2 * job->kv_heads) * d;
    const int64_t shared = head / (job->heads / job->kv_heads);
    const int64_t end = job->causal ? row + 1 : job->seq;
    const double *rows = qkv + batch * job->seq * stride;
    const double *q = rows + row * stride + head * d;
    double *weights = calloc((size_t)job->seq, sizeof *weights), total = 0;
    for (int64_t j = 0; j < end; j++) {
        const double *k = rows + j * stride + (job->heads + shared) * d;
        double logit = 0;
        for (int64_t x = 0; x < d; x++)
            logit += q[x] * k[x];
        total += weights[j] = exp(logit / sqrt((double)d));
    }
    for (int64_t x = 0; x < d; x++)
        out[x] = 0;
    for (int64_t j = 0; j < end; j++) {
        const double *v = rows + j * stride + (job->heads + job->kv_heads + shared) * d;
        const double kept = reference_keeps(r, batch, head, row, j) ? 1 / (1 - r->p_used) : 0;
        for (int64_t x = 0; x < d; x++)
            out[x] += weights[j] / total * kept * v[x];
    }
    free(weights);
}

static double reference_act(const reference *r, const double *u, int64_t j)
{
    const double x = u[j];
    if (r->job.gated)
        return x / (1 + exp(-x)) * u[r->job.mlp + j];
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void reference_forward(const reference *r)
{
    const ordo_block_job *job = &r->job;
    const int64_t rows = job->batch * job->seq, embed = job->embed, d = embed / job->heads;
    const int64_t up = (job->gated ? 2 : 1) * job->mlp;
    const int64_t qkv_columns = (job->heads + 2 * job->kv_heads) * d;
    double *n = calloc((size_t)(rows * embed), sizeof *n);
    double *qkv = calloc((size_t)(rows * qkv_columns), sizeof *qkv);
    double *a = calloc((size_t)(rows * embed), sizeof *a);
    double *h = calloc((size_t)(rows * embed), sizeof *h);
    double *u = calloc((size_t)(rows * up), sizeof *u);
    double *g = calloc((size_t)(rows * job->mlp), sizeof *g);
    const double *x = r->in[ORDO_BLOCK_X];
    reference_norm(r, x, r->in[ORDO_BLOCK_G1], n);
    reference_project(r, n, r->in[ORDO_BLOCK_WQKV], qkv_columns, embed, NULL, qkv);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t head = 0; head < job->heads; head++)
            reference_attend(r, qkv, i / job->seq, head, i % job->seq, a + i * embed + head * d);
    reference_project(r, a, r->in[ORDO_BLOCK_WOUT], embed, embed, job->bare ? NULL : x, h);
    reference_norm(r, h, r->in[ORDO_BLOCK_G2], n);
    reference_project(r, n, r->in[ORDO_BLOCK_WUP], up, embed, NULL, u);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < job->mlp; j++)
            g[i * job->mlp + j] = reference_act(r, u + i * up, j);
    reference_project(r, g, r->in[ORDO_BLOCK_WDOWN], embed, job->mlp, job->bare ? NULL : h, r->y);
    free(n);
    free(qkv);
    free(a);
    free(h);
    free(u);
    free(g);
}

#endif
