/* grid_bias.h: the bias of a grid_case: a number for each element, by its place in the whole
 * sequence, so that a part of a case has its part of the bias. */
#ifndef TESTS_CUDA_GRID_BIAS_H
#define TESTS_CUDA_GRID_BIAS_H

#include "base/bias.h"
#include "base/half.h"
#include "check.h"

typedef struct grid_bias {
    bool on, per_sequence, per_head;
    bool f32;   /* else of the type of q */
    bool holes; /* some elements are hidden */
    uint64_t seed;
    int64_t sequence0, head0, row0, col0;
} grid_bias;

/* As the passes read it. */
static inline float grid_bias_value(const grid_bias *x, ordo_dtype dtype, int64_t sequence,
                                    int64_t head, int64_t row, int64_t column)
{
    const int64_t own = (x->per_sequence ? x->sequence0 + sequence : 0) * 1000 +
                        (x->per_head ? x->head0 + head : 0);
    uint64_t state = x->seed + (uint64_t)own * 0x9e3779b97f4a7c15u +
                     (uint64_t)(x->row0 + row) * 0xbf58476d1ce4e5b9u +
                     (uint64_t)(x->col0 + column) * 0x94d049bb133111ebu;
    const uint64_t u = check_random(&state);
    const double value = ldexp((double)(u & 0xfffff), -18) - 2;
    if (x->holes && u >> 60 == 0)
        return -INFINITY;
    return x->f32               ? (float)value
           : dtype == ORDO_BF16 ? ordo_f32_from_bf16(ordo_bf16_from_f64(value))
                                : ordo_f32_from_f16(ordo_f16_from_f64(value));
}

/* Room for its gradient; what a problem says of it. */
static inline float *grid_bias_open(const grid_bias *x, ordo_problem *p)
{
    p->bias = (ordo_bias) { 0 };
    if (x->on)
        p->bias = (ordo_bias) { true, x->per_sequence, x->per_head, x->f32 ? ORDO_F32 : p->dtype };
    float *grad = calloc((size_t)ordo_bias_count(p) + 1, sizeof *grad);
    if (!grad)
        abort();
    return grad;
}

static inline size_t grid_bias_width(const grid_bias *x)
{
    return x->f32 ? sizeof(float) : sizeof(uint16_t);
}

/* The tensor of a call; `gap`: elements between rows. */
static inline ordo_tensor grid_bias_tensor(const ordo_problem *p, int64_t gap, void *data)
{
    const int64_t row = p->kv_len + gap, head = p->q_len * row;
    return (ordo_tensor) { data, { ordo_bias_heads(p) * head, head, row, 1 } };
}

static inline size_t grid_bias_bytes(const grid_bias *x, const ordo_problem *p, int64_t gap)
{
    return x->on ? (size_t)(ordo_bias_sequences(p) * ordo_bias_heads(p) * p->q_len *
                            (p->kv_len + gap)) *
                       grid_bias_width(x)
                 : 0;
}

/* Its numbers, in host memory, laid out so; the caller frees them. What is between rows is NaN. */
static inline unsigned char *grid_bias_make(const grid_bias *x, const ordo_problem *p, int64_t gap)
{
    const size_t bytes = grid_bias_bytes(x, p, gap), width = grid_bias_width(x);
    const int64_t heads = ordo_bias_heads(p), row = p->kv_len + gap;
    unsigned char *data = malloc(bytes + 1);
    if (!data)
        abort();
    memset(data, 0xff, bytes);
    for (int64_t n = 0; x->on && n < ordo_bias_sequences(p) * heads * p->q_len; n++)
        for (int64_t j = 0; j < p->kv_len; j++) {
            const int64_t matrix = n / p->q_len;
            const float value =
                grid_bias_value(x, p->dtype, matrix / heads, matrix % heads, n % p->q_len, j);
            const uint16_t half = p->dtype == ORDO_BF16 ? ordo_bf16_from_f64((double)value)
                                                        : ordo_f16_from_f64((double)value);
            memcpy(data + (size_t)(n * row + j) * width,
                   x->f32 ? (const void *)&value : (const void *)&half, width);
        }
    return data;
}

/* Where the gradient of an element is. */
static inline int64_t grid_bias_at(const ordo_problem *p, int64_t sequence, int64_t head,
                                   int64_t row, int64_t column)
{
    const int64_t matrix =
        (p->bias.per_sequence ? sequence : 0) * ordo_bias_heads(p) + (p->bias.per_head ? head : 0);
    return (matrix * p->q_len + row) * p->kv_len + column;
}

#endif
