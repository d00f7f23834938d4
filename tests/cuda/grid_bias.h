/* grid_bias.h: the bias of a grid_case: a number for each element, by its place in the whole
 * sequence, so that a part of a case has its part of the bias. */
#ifndef TESTS_CUDA_GRID_BIAS_H
#define TESTS_CUDA_GRID_BIAS_H

#include "base/bias.h"
#include "base/half.h"
#include "grid_blocks.h"

typedef struct grid_bias {
    bool on, per_sequence, per_head;
    bool f32;   /* else of the type of q */
    bool holes; /* some elements are hidden */
    bool wide;  /* rows begin at multiples of 16 bytes */
    uint64_t seed;
    int64_t sequence0, head0, row0, col0;
} grid_bias;

/* The bias of an element, rounded to the type in which passes read it. */
static inline float grid_bias_value(const grid_bias *x, ordo_dtype dtype, int64_t sequence,
                                    int64_t head, int64_t row, int64_t column)
{
    const uint64_t u =
        grid_hash(x->seed, x->per_sequence ? x->sequence0 + sequence : 0,
                  x->per_head ? x->head0 + head : 0, x->row0 + row, x->col0 + column);
    const double value = ldexp((double)(u & 0xfffff), -18) - 2;
    if (x->holes && u >> 60 == 0)
        return -INFINITY;
    return x->f32               ? (float)value
           : dtype == ORDO_BF16 ? ordo_f32_from_bf16(ordo_bf16_from_f64(value))
                                : ordo_f32_from_f16(ordo_f16_from_f64(value));
}

/* Sets what the problem says of the bias. Returns room for its gradient, which the caller frees. */
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

/* The tensor of a call; `gap`: elements between rows. */
static inline ordo_tensor grid_bias_tensor(const ordo_problem *p, int64_t gap, void *data)
{
    const int64_t row = p->kv_len + gap, head = p->q_len * row;
    return (ordo_tensor) { data, { ordo_bias_heads(p) * head, head, row, 1 } };
}

/* Bytes of that tensor, with elements of f32 or of 16 bits. */
static inline size_t grid_bias_bytes(const grid_bias *x, const ordo_problem *p, int64_t gap,
                                     bool f32)
{
    const int64_t rows = ordo_bias_sequences(p) * ordo_bias_heads(p) * p->q_len;
    return x->on ? (size_t)(rows * (p->kv_len + gap)) * (f32 ? sizeof(float) : sizeof(uint16_t))
                 : 0;
}

/* Its numbers in host memory; the caller frees them. What is between rows is NaN. */
static inline unsigned char *grid_bias_make(const grid_bias *x, const ordo_problem *p, int64_t gap,
                                            bool f32)
{
    const size_t bytes = grid_bias_bytes(x, p, gap, f32);
    const size_t width = f32 ? sizeof(float) : sizeof(uint16_t);
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
                   f32 ? (const void *)&value : (const void *)&half, width);
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
