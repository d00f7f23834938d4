/* audit_blank.c: compares the fixed results of rows that belong to no sequence. */
#include "api/audit_blank.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

/* An output of 16-bit elements, and which rows it has. */
typedef struct output {
    const char *name;
    const ordo_tensor *tensor;
    bool keys;
    int64_t heads, dim;
} output;

/* Sequences that are looked at one by one; a packed tensor is one. */
static int64_t sequences(const ordo_problem *p)
{
    return p->layout == ORDO_PACKED ? 1 : p->batch;
}

/* Rows of the memory of a sequence, and the first of them that belongs to none. */
static int64_t space(const ordo_problem *p, bool keys)
{
    if (p->layout == ORDO_PACKED)
        return keys ? p->total_kv : p->total_q;
    return keys ? p->kv_len : p->q_len;
}

static int64_t first_blank(const ordo_problem *p, const ordo_call *c, bool keys, int64_t b)
{
    if (ordo_problem_empty(p))
        return 0;
    if (p->layout == ORDO_PACKED)
        return (keys ? c->cu_kv : c->cu_q)[p->batch];
    if (p->layout == ORDO_PADDED)
        return (keys ? c->kv_lens : c->q_lens)[b];
    return space(p, keys);
}

static int64_t blank_rows(const ordo_problem *p, const ordo_call *c, bool keys)
{
    int64_t rows = 0;
    for (int64_t b = 0; b < sequences(p); b++)
        rows += space(p, keys) - first_blank(p, c, keys, b);
    return rows;
}

int64_t ordo_audit_blank_rows(const ordo_problem *p, ordo_pass pass, const ordo_call *c)
{
    if (pass == ORDO_FORWARD)
        return blank_rows(p, c, false);
    return (c->dq.data ? blank_rows(p, c, false) : 0) + (c->dk.data ? blank_rows(p, c, true) : 0);
}

/* ---- comparing ---- */

/* An element that is not as it should be. */
static void tell(ordo_audit_difference *to, const ordo_audit_difference *x)
{
    const int64_t count = to->count + 1;
    if (count == 1) {
        const size_t size = to->size;
        *to = *x;
        to->size = size;
        to->differs = true;
    }
    to->count = count;
}

static void check_output(const ordo_problem *p, const ordo_call *c, output x,
                         ordo_audit_difference *difference)
{
    const int64_t rows = space(p, x.keys), *step = x.tensor->stride;
    const bool tight = step[3] == 0;
    const int64_t row_stride = tight ? x.heads * x.dim : step[1];
    const int64_t strides[3] = { tight ? rows * row_stride : step[0], row_stride,
                                 tight ? x.dim : step[2] };
    for (int64_t b = 0; x.tensor->data && b < sequences(p); b++)
        for (int64_t row = first_blank(p, c, x.keys, b); row < rows; row++)
            for (int64_t at = 0; at < x.heads * x.dim; at++) {
                const int64_t head = at / x.dim, column = at % x.dim;
                const uint16_t *data = x.tensor->data;
                const uint16_t found =
                    data[b * strides[0] + row * strides[1] + head * strides[2] + column];
                if (found == 0)
                    continue;
                ordo_audit_difference here = {
                    .sequence = b, .row = row, .head = head, .column = column, .found = found
                };
                here.found_value = (double)(p->dtype == ORDO_F16 ? ordo_f32_from_f16(found)
                                                                 : ordo_f32_from_bf16(found));
                memcpy(here.tensor, x.name, strlen(x.name));
                tell(difference, &here);
            }
}

static void check_lse(const ordo_problem *p, const ordo_call *c, ordo_audit_difference *difference)
{
    const int64_t rows = space(p, false);
    for (int64_t line = 0; line < sequences(p) * p->heads; line++)
        for (int64_t row = first_blank(p, c, false, line / p->heads); row < rows; row++) {
            const float found = c->lse[line * rows + row];
            const ordo_audit_difference here = { .tensor = "lse",
                                                 .sequence = line / p->heads,
                                                 .row = row,
                                                 .head = line % p->heads,
                                                 .found = ordo_f32_bits(found),
                                                 .expected = ordo_f32_bits(-INFINITY),
                                                 .found_value = (double)found,
                                                 .expected_value = -INFINITY };
            if (here.found != here.expected)
                tell(difference, &here);
        }
}

void ordo_audit_blank_check(const ordo_problem *p, ordo_pass pass, const ordo_call *c,
                            ordo_audit_difference *difference)
{
    if (pass == ORDO_FORWARD) {
        check_output(p, c, (output) { "o", &c->o, false, p->heads, p->v_head_dim }, difference);
        check_lse(p, c, difference);
        return;
    }
    check_output(p, c, (output) { "dq", &c->dq, false, p->heads, p->head_dim }, difference);
    check_output(p, c, (output) { "dk", &c->dk, true, p->kv_heads, p->head_dim }, difference);
    check_output(p, c, (output) { "dv", &c->dv, true, p->kv_heads, p->v_head_dim }, difference);
}
