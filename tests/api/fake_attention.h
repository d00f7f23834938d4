/* fake_attention.h: attention by the numbers of a CUDA pass, one element after the other.
 *
 * What the kernels would compute, read from an ordo_cuda_pass alone: a pass that libordo filled in
 * wrongly gives wrong results. Products are added in f32; P and dS are rounded to the element type
 * before they are multiplied, as on the device. */
#ifndef TESTS_API_FAKE_ATTENTION_H
#define TESTS_API_FAKE_ATTENTION_H

#include "base/half.h"
#include "base/keep.h"
#include "base/sink.h"
#include "cuda/pass/pages.h"
#include "cuda/support/sequences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One head of one sequence. */
typedef struct fake_head {
    const ordo_cuda_pass *p;
    const ordo_cuda_pages *pages; /* NULL: none */
    ordo_cuda_sequence s;
    int32_t b;
    int64_t head, kv_head;
    ordo_keep keep;
    uint32_t bh;
    const uint32_t *bits;
    float slope, sink; /* -inf: none */
    float *logits;     /* one row */
} fake_head;

static inline float fake_value(const ordo_cuda_pass *p, uint16_t half)
{
    return p->f16 ? ordo_f32_from_f16(half) : ordo_f32_from_bf16(half);
}

static inline uint16_t fake_half(const ordo_cuda_pass *p, float x)
{
    return p->f16 ? ordo_f16_from_f32(x) : ordo_bf16_from_f32(x);
}

static inline float fake_rounded(const ordo_cuda_pass *p, float x)
{
    return fake_value(p, fake_half(p, x));
}

static inline uint16_t *fake_row(const ordo_cuda_tensor *t, int64_t b, int64_t row, int64_t head)
{
    return (uint16_t *)t->data + b * t->sequence + row * t->row + head * t->head;
}

static inline uint16_t *fake_query(const fake_head *h, const ordo_cuda_tensor *t, int64_t i)
{
    return fake_row(t, h->s.batch, h->s.q_row + i, h->head);
}

static inline uint16_t *fake_key(const fake_head *h, const ordo_cuda_tensor *t, int64_t j)
{
    if (!h->pages)
        return fake_row(t, h->s.batch, h->s.kv_row + j, h->kv_head);
    const ordo_page_row at = ordo_page_row_of(h->pages, h->b, (int32_t)j);
    return fake_row(t, at.page < 0 ? 0 : at.page, at.row, h->kv_head); /* no NaN here */
}

static inline fake_head fake_head_of(const ordo_cuda_pass *p, int32_t b, int64_t head)
{
    fake_head h = { .p = p, .s = ordo_batch_sequence(&p->batch, b), .b = b, .head = head };
    h.kv_head = head / p->run.group_heads;
    h.keep = p->keep;
    h.keep.seed = p->seed_ptr ? *p->seed_ptr : p->keep.seed;
    h.keep.offset = p->offset_ptr ? *p->offset_ptr : p->keep.offset;
    h.bh = h.s.id * p->heads_total + p->head0 + (uint32_t)head;
    if (p->keep_bits)
        h.bits = p->keep_bits + (h.s.keep + head * h.s.keep_head) * ORDO_KEEP_WORDS;
    h.sink = p->sink ? p->sink[head] : -INFINITY;
    h.slope = p->slopes ? p->slopes[b * p->slopes_sequence + head] : 0;
    h.logits = calloc((size_t)h.s.kv_len + 1, sizeof *h.logits);
    return h;
}

static inline bool fake_kept(const fake_head *h, int64_t i, int64_t j)
{
    if (h->p->keep_scale == 0)
        return true;
    if (h->bits)
        return ordo_keep_stored(h->bits, (int64_t)h->s.keep_across * ORDO_KEEP_COLS, i, j);
    return ordo_keep_element(&h->keep, h->bh, (uint32_t)i + h->p->row0,
                             (uint32_t)j + h->p->block0 * ORDO_KEEP_COLS);
}

static inline float fake_dot(const ordo_cuda_pass *p, const uint16_t *a, const uint16_t *b)
{
    float sum = 0;
    for (int32_t d = 0; d < p->head_dim; d++)
        sum = fmaf(fake_value(p, a[d]), fake_value(p, b[d]), sum);
    return sum;
}

/* Columns that row i sees: first .. *end - 1. */
static inline int64_t fake_columns(const fake_head *h, int64_t i, int64_t *end)
{
    const int64_t last = i + h->s.high, first = i + h->s.low;
    const int64_t stored = h->pages && h->pages->starts ? h->pages->starts[h->b] : 0;
    *end = last < h->s.kv_len - 1 ? last + 1 : h->s.kv_len;
    return first > stored ? first : stored;
}

/* Whether a block mask, if there is one, lets row i see column j. */
static inline bool fake_sees(const fake_head *h, int64_t i, int64_t j)
{
    const ordo_cuda_block_mask *x = &h->p->blocks;
    return !x->start || ordo_blocks_sees(x, h->b, (int32_t)h->head,
                                         ordo_blocks_before(x, &h->s, h->p->run.band.bq),
                                         (int32_t)i, (int32_t)j);
}

/* Logits of a row; the largest. Hidden ones are -inf. */
static inline float fake_logits(fake_head *h, int64_t i)
{
    const ordo_cuda_pass *p = h->p;
    int64_t end;
    float most = -INFINITY;
    for (int64_t j = fake_columns(h, i, &end); j < end; j++) {
        h->logits[j] = -INFINITY;
        if (!fake_sees(h, i, j))
            continue;
        float x = p->scale * fake_dot(p, fake_query(h, &p->q, i), fake_key(h, &p->k, j));
        if (p->softcap > 0)
            x = p->softcap * tanhf(x / p->softcap);
        h->logits[j] = x - h->slope * fabsf((float)(i + h->s.diagonal - j));
        most = fmaxf(most, h->logits[j]);
    }
    return most;
}

static inline float *fake_lse(const fake_head *h, float *lse, int64_t i)
{
    return lse + h->s.lse + h->head * h->p->batch.lse_head + i;
}

static inline void fake_forward_row(fake_head *h, int64_t i, float *sums)
{
    const ordo_cuda_pass *p = h->p;
    const float most = fake_logits(h, i), scale = p->keep_scale > 0 ? p->keep_scale : 1;
    const float top = fmaxf(most, h->sink), shrink = expf(most - top); /* the sink comes last */
    int64_t end;
    float all = 0;
    for (int32_t d = 0; d < p->v_head_dim; d++)
        sums[d] = 0;
    for (int64_t j = fake_columns(h, i, &end); j < end; j++) {
        if (!fake_sees(h, i, j))
            continue;
        const float e = expf(h->logits[j] - most);
        all += e;
        if (fake_kept(h, i, j))
            for (int32_t d = 0; d < p->v_head_dim; d++)
                sums[d] =
                    fmaf(fake_rounded(p, e), fake_value(p, fake_key(h, &p->v, j)[d]), sums[d]);
    }
    all = all * shrink + (h->sink == -INFINITY ? 0 : expf(h->sink - top));
    *fake_lse(h, p->lse, i) = most == -INFINITY ? h->sink : top + logf(all);
    for (int32_t d = 0; d < p->v_head_dim; d++)
        fake_query(h, &p->o, i)[d] =
            fake_half(p, most == -INFINITY ? 0 : sums[d] * shrink / all * scale);
}

/* Sums of a head: dq of its row, dk and dv of all keys. */
typedef struct fake_sums {
    float *dq, *dk, *dv;
} fake_sums;

static inline void fake_backward_row(fake_head *h, int64_t i, const fake_sums *sums)
{
    const ordo_cuda_pass *p = h->p;
    const int32_t dim = p->head_dim;
    const uint16_t *q = fake_query(h, &p->q, i), *dout = fake_query(h, &p->dout, i);
    const float lse = *fake_lse(h, p->lse, i);
    const float delta = fake_dot(p, dout, fake_query(h, &p->o, i)) -
                        (p->dlse ? *fake_lse(h, (float *)p->dlse, i) : 0);
    int64_t end;
    (void)fake_logits(h, i);
    for (int32_t d = 0; d < dim; d++)
        sums->dq[d] = 0;
    for (int64_t j = fake_columns(h, i, &end); j < end && lse > -INFINITY; j++) {
        if (!fake_sees(h, i, j))
            continue;
        const uint16_t *k = fake_key(h, &p->k, j);
        const float x = exp2f((h->logits[j] - lse) * 1.4426950408889634f);
        const float kept = !fake_kept(h, i, j) ? 0 : p->keep_scale > 0 ? p->keep_scale : 1;
        float ds = x * (kept * fake_dot(p, dout, fake_key(h, &p->v, j)) - delta);
        if (p->softcap > 0) {
            const float t =
                (h->logits[j] + h->slope * fabsf((float)(i + h->s.diagonal - j))) / p->softcap;
            ds *= 1 - t * t;
        }
        ds = fake_rounded(p, ds);
        for (int32_t d = 0; d < dim; d++) {
            sums->dq[d] = fmaf(ds, fake_value(p, k[d]), sums->dq[d]);
            sums->dk[j * dim + d] = fmaf(ds, fake_value(p, q[d]), sums->dk[j * dim + d]);
            sums->dv[j * dim + d] =
                fmaf(kept * fake_rounded(p, x), fake_value(p, dout[d]), sums->dv[j * dim + d]);
        }
    }
    for (int32_t d = 0; d < dim && p->dq.data; d++)
        fake_query(h, &p->dq, i)[d] = fake_half(p, sums->dq[d] * p->scale);
}

/* Zeros in rows that no sequence has; lse, if given, is -inf there. */
static inline void fake_clear(const ordo_cuda_pass *p, const ordo_cuda_tensor *t, int32_t columns,
                              float *lse, bool keys)
{
    const int64_t heads = keys ? p->run.kv_heads : (int64_t)p->run.kv_heads * p->run.group_heads;
    for (int32_t slot = 0; p->layout != ORDO_DENSE && t->data && slot < ordo_left_slots(p);
         slot++) {
        const ordo_rows left = ordo_left_rows(p, slot, keys);
        const int64_t b = ordo_left_sequence(p, slot);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t r = left.first; r < left.first + left.count; r++) {
                memset(fake_row(t, b, r, head), 0, (size_t)columns * 2);
                if (lse)
                    lse[(b * heads + head) * p->batch.lse_head + r] = -INFINITY;
            }
    }
}

static inline void fake_attention_forward(const ordo_cuda_pass *p, const ordo_cuda_pages *pages)
{
    const int64_t heads = (int64_t)p->run.kv_heads * p->run.group_heads;
    float *sums = calloc((size_t)p->v_head_dim, sizeof *sums);
    for (int32_t b = 0; b < p->batch.sequences; b++)
        for (int64_t head = 0; head < heads; head++) {
            fake_head h = fake_head_of(p, b, head);
            h.pages = pages;
            for (int64_t i = 0; i < h.s.q_len; i++)
                fake_forward_row(&h, i, sums);
            free(h.logits);
        }
    fake_clear(p, &p->o, p->v_head_dim, p->lse, false);
    free(sums);
}

/* ---- sums that are carried ---- */

static inline float *fake_carried(const ordo_cuda_pass *p, float *sums, int64_t b, int64_t row,
                                  int64_t kv_head)
{
    return sums +
           ordo_carry_row(p->kv_rows, p->run.kv_heads, (int32_t)b, (int32_t)row, (int32_t)kv_head) *
               p->head_dim;
}

static inline void fake_load_sums(const ordo_cuda_pass *p, const ordo_cuda_sequence *s,
                                  int64_t kv_head, const fake_sums *sums)
{
    const size_t dim = (size_t)p->head_dim;
    for (int64_t j = 0; j < s->kv_len && p->carry.in; j++) {
        const int64_t row = s->kv_row + j;
        memcpy(sums->dk + (size_t)j * dim, fake_carried(p, p->carry.dk, s->batch, row, kv_head),
               dim * sizeof(float));
        memcpy(sums->dv + (size_t)j * dim, fake_carried(p, p->carry.dv, s->batch, row, kv_head),
               dim * sizeof(float));
    }
}

/* Sums of a key for the next pass, or its gradients. */
static inline void fake_put_key(const ordo_cuda_pass *p, const ordo_cuda_sequence *s,
                                int64_t kv_head, int64_t j, const fake_sums *sums)
{
    const int64_t dim = p->head_dim, row = s->kv_row + j;
    const float *dk = sums->dk + j * dim, *dv = sums->dv + j * dim;
    for (int64_t d = 0; d < dim; d++) {
        if (p->carry.out) {
            fake_carried(p, p->carry.dk, s->batch, row, kv_head)[d] = dk[d];
            fake_carried(p, p->carry.dv, s->batch, row, kv_head)[d] = dv[d];
        } else if (p->dk.data) {
            fake_row(&p->dk, s->batch, row, kv_head)[d] = fake_half(p, dk[d] * p->scale);
            fake_row(&p->dv, s->batch, row, kv_head)[d] = fake_half(p, dv[d]);
        }
    }
}

static inline void fake_clear_sums(const ordo_cuda_pass *p)
{
    const bool fresh = p->layout != ORDO_DENSE && p->carry.out && !p->carry.in;
    for (int32_t slot = 0; fresh && slot < ordo_left_slots(p); slot++) {
        const ordo_rows left = ordo_left_rows(p, slot, true);
        const int64_t b = ordo_left_sequence(p, slot);
        const size_t bytes = (size_t)(p->run.kv_heads * p->head_dim) * sizeof(float);
        for (int64_t r = left.first; r < left.first + left.count; r++) {
            memset(fake_carried(p, p->carry.dk, b, r, 0), 0, bytes);
            memset(fake_carried(p, p->carry.dv, b, r, 0), 0, bytes);
        }
    }
}

/* Rows in the direction of the plan, at each the query heads that share the keys. */
static inline void fake_backward_group(const ordo_cuda_pass *p, int32_t b, int64_t kv_head)
{
    const int64_t group = p->run.group_heads, dim = p->head_dim;
    const ordo_cuda_sequence s = ordo_batch_sequence(&p->batch, b);
    const size_t keys = (size_t)(s.kv_len * dim) + 1;
    const fake_sums sums = { calloc((size_t)dim, sizeof(float)), calloc(keys, sizeof(float)),
                             calloc(keys, sizeof(float)) };
    fake_load_sums(p, &s, kv_head, &sums);
    fake_head *heads = calloc((size_t)group, sizeof *heads);
    for (int64_t g = 0; g < group; g++)
        heads[g] = fake_head_of(p, b, kv_head * group + g);
    for (int64_t n = 0; n < s.q_len; n++)
        for (int64_t g = 0; g < group; g++)
            fake_backward_row(&heads[g],
                              p->run.order == ORDO_ORDER_DESCENDING ? s.q_len - 1 - n : n, &sums);
    for (int64_t j = 0; j < s.kv_len; j++)
        fake_put_key(p, &s, kv_head, j, &sums);
    for (int64_t g = 0; g < group; g++)
        free(heads[g].logits);
    free(heads);
    free(sums.dq);
    free(sums.dk);
    free(sums.dv);
}

/* Gradients of the sinks: rows upwards, then sequences. */
static inline void fake_sinks(const ordo_cuda_pass *p)
{
    const int64_t heads = (int64_t)p->run.kv_heads * p->run.group_heads;
    for (int64_t head = 0; p->dsink_parts && head < heads; head++) {
        double all = 0;
        for (int32_t b = 0; b < p->batch.sequences; b++) {
            fake_head h = fake_head_of(p, b, head);
            double sum = 0;
            for (int64_t i = 0; i < h.s.q_len; i++) {
                const float *lse = fake_lse(&h, p->lse, i);
                const float delta =
                    fake_dot(p, fake_query(&h, &p->dout, i), fake_query(&h, &p->o, i)) -
                    (p->dlse ? *fake_lse(&h, (float *)p->dlse, i) : 0);
                sum += ordo_sink_term(h.sink, *lse, delta);
            }
            p->dsink_parts[b * heads + head] = ordo_f32_from_f64(sum);
            all += (double)p->dsink_parts[b * heads + head];
            free(h.logits);
        }
        if (p->dsink)
            p->dsink[head] = ordo_f32_from_f64(all);
    }
}

static inline void fake_attention_backward(const ordo_cuda_pass *p)
{
    fake_sinks(p);
    for (int32_t b = 0; b < p->batch.sequences; b++)
        for (int64_t kv_head = 0; kv_head < p->run.kv_heads; kv_head++)
            fake_backward_group(p, b, kv_head);
    fake_clear(p, &p->dq, p->head_dim, NULL, false);
    fake_clear(p, &p->dk, p->head_dim, NULL, true);
    fake_clear(p, &p->dv, p->head_dim, NULL, true);
    fake_clear_sums(p);
}

#endif
