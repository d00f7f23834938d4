/* blank.c: writes the fixed results of rows without keys and of keys without rows. */
#include "api/blank.h"

#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "api/sink.h"
#include "base/bias.h"
#include "base/half.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

/* Where the results are. */
typedef struct place {
    const ordo_cuda_module *module; /* NULL: host memory */
    void *stream;
} place;

static ordo_status zero(const place *at, void *memory, size_t bytes)
{
    if (!at->module) {
        memset(memory, 0, bytes);
        return ORDO_OK;
    }
    return ordo_cuda_answer(at->module, at->module->fill(memory, 0, bytes, at->stream));
}

static ordo_status put_minus_infinity(const place *at, float *lse, int64_t count)
{
    const float value = -INFINITY;
    if (!at->module) {
        for (int64_t x = 0; x < count; x++)
            lse[x] = value;
        return ORDO_OK;
    }
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return ordo_cuda_answer(at->module,
                            at->module->fill_words(lse, word, (size_t)count, at->stream));
}

/* A tensor's rows from `first` on, in elements. */
typedef struct part {
    const ordo_tensor *tensor;
    int64_t first, rows, heads, dim;
} part;

/* Zero the part, in as few pieces as its strides allow. */
static ordo_status clear(const place *at, const ordo_problem *p, part x)
{
    const bool packed = p->layout == ORDO_PACKED, tight = x.tensor->stride[3] == 0;
    const int64_t *step = x.tensor->stride;
    const int64_t stride[3] = { tight ? x.rows * x.heads * x.dim : step[0],
                                tight ? x.heads * x.dim : step[1], tight ? x.dim : step[2] };
    int64_t count[3] = { packed ? 1 : p->batch, x.rows - x.first, x.heads };
    if (count[0] == 0 || count[1] == 0)
        return ORDO_OK;
    int64_t run = x.dim; /* elements side by side */
    for (int axis = 2; axis >= 0 && (count[axis] == 1 || stride[axis] == run); axis--) {
        run *= count[axis];
        count[axis] = 1;
    }
    const int64_t width = p->dtype == ORDO_F32 ? 4 : 2;
    char *base = (char *)x.tensor->data + width * x.first * stride[1];
    for (int64_t b = 0; b < count[0]; b++)
        for (int64_t row = 0; row < count[1]; row++)
            for (int64_t head = 0; head < count[2]; head++)
                ORDO_TRY(zero(at,
                              base + width * (b * stride[0] + row * stride[1] + head * stride[2]),
                              (size_t)(width * run)));
    return ORDO_OK;
}

/* dk or dv of keys that no row sees, in host memory: the sums, rounded as a pass rounds them. */
static void round_sums(const ordo_problem *p, part x, const float *sums, float factor)
{
    const bool packed = p->layout == ORDO_PACKED, tight = x.tensor->stride[3] == 0;
    const int64_t *step = x.tensor->stride;
    const int64_t stride[3] = { tight ? x.rows * x.heads * x.dim : step[0],
                                tight ? x.heads * x.dim : step[1], tight ? x.dim : step[2] };
    for (int64_t line = 0; line < (packed ? 1 : p->batch) * x.rows * x.heads; line++) {
        const int64_t head = line % x.heads, row = line / x.heads % x.rows;
        const int64_t b = line / x.heads / x.rows;
        const int64_t at = b * stride[0] + row * stride[1] + head * stride[2];
        for (int64_t d = 0; d < x.dim; d++) {
            const float y = sums[line * x.dim + d] * factor;
            if (p->dtype == ORDO_F32)
                ((float *)x.tensor->data)[at + d] = y == y ? y : ordo_f32_of_bits(ORDO_F32_NAN);
            else
                ((uint16_t *)x.tensor->data)[at + d] =
                    p->dtype == ORDO_BF16 ? ordo_bf16_from_f32(y) : ordo_f16_from_f32(y);
        }
    }
}

/* dk or dv of keys from x.first on, or what their sums are without a row that sees them. */
static ordo_status blank_keys(const place *at, const ordo_problem *p, const ordo_call *c, part x,
                              float *sums, float factor)
{
    const int64_t lines = (p->layout == ORDO_PACKED ? 1 : p->batch) * x.rows, row = x.heads * x.dim;
    if (c->carry == ORDO_CARRY_OUT && lines > x.first)
        return zero(at, sums + x.first * row, (size_t)((lines - x.first) * row) * sizeof *sums);
    if (c->carry == ORDO_CARRY_IN && ordo_problem_empty(p) && lines > 0) {
        if (at->module)
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "carry in, q_len %lld: backend cuda expects "
                             "rows; backend cpu runs it",
                             (long long)p->q_len);
        round_sums(p, x, sums, factor);
        return ORDO_OK;
    }
    return x.tensor->data ? clear(at, p, x) : ORDO_OK;
}

/* Results of rows from `row` and of keys from `key` on. */
static ordo_status blank(const place *at, const ordo_problem *p, ordo_pass pass, const ordo_call *c,
                         int64_t row, int64_t key)
{
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t rows = packed ? p->total_q : p->q_len, keys = packed ? p->total_kv : p->kv_len;
    if (pass == ORDO_BACKWARD) {
        const part dk = { &c->dk, key, keys, p->kv_heads, p->head_dim };
        const part dv = { &c->dv, key, keys, p->kv_heads, p->v_head_dim };
        if (c->dq.data)
            ORDO_TRY(clear(at, p, (part) { &c->dq, row, rows, p->heads, p->head_dim }));
        ORDO_TRY(blank_keys(at, p, c, dk, c->dk_sums, (float)p->scale));
        return blank_keys(at, p, c, dv, c->dv_sums, 1);
    }
    ORDO_TRY(clear(at, p, (part) { &c->o, row, rows, p->heads, p->v_head_dim }));
    const int64_t lines = (packed ? 1 : p->batch) * p->heads; /* lines of lse, `rows` each */
    if (row == 0)
        return lines * rows > 0 ? put_minus_infinity(at, c->lse, lines * rows) : ORDO_OK;
    for (int64_t line = 0; line < lines && row < rows; line++)
        ORDO_TRY(put_minus_infinity(at, c->lse + line * rows + row, rows - row));
    return ORDO_OK;
}

ordo_status ordo_blank_behind(const ordo_problem *p, ordo_pass pass, const ordo_call *c)
{
    const place host = { NULL, NULL };
    if (p->layout != ORDO_PACKED)
        return ORDO_OK;
    return blank(&host, p, pass, c, c->cu_q[p->batch], c->cu_kv ? c->cu_kv[p->batch] : 0);
}

ordo_status ordo_blank_all(const ordo_problem *p, ordo_pass pass, bool host, const ordo_call *c)
{
    place at = { NULL, c->stream };
    if (!host) {
        ORDO_TRY(ordo_cuda_ready());
        ORDO_TRY(ordo_cuda_module_get(&at.module, NULL));
    }
    ORDO_TRY(blank(&at, p, pass, c, 0, 0));
    if (pass == ORDO_BACKWARD && c->dbias) /* no sequence, but a bias that all share */
        ORDO_TRY(zero(&at, c->dbias, (size_t)ordo_bias_count(p) * sizeof *c->dbias));
    if (host)
        ordo_sink_blank(p, pass, c);
    if (!host && pass == ORDO_BACKWARD && c->dsink) /* no row: see check_sink() of attention.c */
        ORDO_TRY(zero(&at, c->dsink, (size_t)p->heads * sizeof *c->dsink));
    if (!host && pass == ORDO_BACKWARD && c->dsink_parts && p->batch > 0)
        ORDO_TRY(zero(&at, c->dsink_parts, (size_t)(p->batch * p->heads) * sizeof *c->dsink));
    return ORDO_OK;
}
