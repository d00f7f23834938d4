/* blank.c: see the header. */
#include "api/blank.h"

#include <math.h>
#include <string.h>

/* A tensor's rows from `first` on, in elements. */
typedef struct part {
    const ordo_tensor *tensor;
    int64_t first, rows, heads, dim;
} part;

/* Zero the part, in as few pieces as its strides allow. */
static void clear(const ordo_problem *p, part x)
{
    const bool packed = p->layout == ORDO_PACKED, tight = x.tensor->stride[3] == 0;
    const int64_t *given = x.tensor->stride;
    const int64_t stride[3] = { tight ? x.rows * x.heads * x.dim : given[0],
                                tight ? x.heads * x.dim : given[1], tight ? x.dim : given[2] };
    int64_t count[3] = { packed ? 1 : p->batch, x.rows - x.first, x.heads };
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
                memset(base + width * (b * stride[0] + row * stride[1] + head * stride[2]), 0,
                       (size_t)(width * run));
}

void ordo_blank_behind(const ordo_problem *p, ordo_pass pass, const ordo_call *c)
{
    if (p->layout != ORDO_PACKED)
        return;
    const int64_t row = c->cu_q[p->batch], col = c->cu_kv[p->batch];
    if (pass == ORDO_BACKWARD) {
        clear(p, (part) { &c->dq, row, p->total_q, p->heads, p->head_dim });
        clear(p, (part) { &c->dk, col, p->total_kv, p->kv_heads, p->head_dim });
        clear(p, (part) { &c->dv, col, p->total_kv, p->kv_heads, p->v_head_dim });
        return;
    }
    clear(p, (part) { &c->o, row, p->total_q, p->heads, p->v_head_dim });
    for (int64_t head = 0; head < p->heads; head++)
        for (int64_t r = row; r < p->total_q; r++)
            c->lse[head * p->total_q + r] = -INFINITY;
}
