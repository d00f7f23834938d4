/* gemm_case.h: matrix products drawn from a seed, and what they have to be: every element by
 * itself, from the row of A and the column of B, by a chain that the test gives. */
#ifndef TESTS_GEMM_CASE_H
#define TESTS_GEMM_CASE_H

#include "base/half.h"
#include "check.h"
#include "ordo/gemm.h"

enum { GEMM_MOST = 160, GEMM_MOST_K = 400 };

/* The chain of one section: `count` terms a[x] b[x], as 16-bit patterns or as bits of f32. */
typedef float gemm_chain(ordo_dtype dtype, const uint32_t *a, const uint32_t *b, int64_t count);

typedef struct gemm_case {
    ordo_gemm_problem p;
    ordo_gemm_call call;
    size_t c_bytes;
    void *before; /* C at first */
} gemm_case;

static inline int64_t gemm_width(ordo_dtype dtype)
{
    return dtype == ORDO_F32 ? 4 : dtype == ORDO_E4M3 ? 1 : 2;
}

static inline uint32_t gemm_bits(const void *data, ordo_dtype dtype, int64_t at)
{
    return dtype == ORDO_F32    ? ((const uint32_t *)data)[at]
           : dtype == ORDO_E4M3 ? ((const uint8_t *)data)[at]
                                : ((const uint16_t *)data)[at];
}

static inline float gemm_value(ordo_dtype dtype, uint32_t bits)
{
    return dtype == ORDO_F32    ? ordo_f32_of_bits(bits)
           : dtype == ORDO_BF16 ? ordo_f32_from_bf16((uint16_t)bits)
                                : ordo_f32_from_f16((uint16_t)bits);
}

static inline void gemm_put(void *data, ordo_dtype dtype, int64_t at, float x)
{
    switch (dtype) {
    case ORDO_F32: ((float *)data)[at] = x; break;
    case ORDO_BF16: ((uint16_t *)data)[at] = ordo_bf16_from_f32(x); break;
    case ORDO_F16: ((uint16_t *)data)[at] = ordo_f16_from_f32(x); break;
    }
}

/* Rows of `stride` elements; magnitudes from 2^-8 to 1, so that sums round in every step. */
static inline void *gemm_fill(ordo_dtype dtype, int64_t rows, int64_t stride, uint64_t *state)
{
    const int64_t count = rows * stride;
    void *data = malloc((size_t)(count * gemm_width(dtype) + 16));
    for (int64_t x = 0; x < count; x++) {
        const uint64_t drawn = check_random(state);
        if (dtype == ORDO_E4M3) { /* any number */
            ((uint8_t *)data)[x] = (drawn & 0x7f) == 0x7f ? 0 : (uint8_t)drawn;
            continue;
        }
        const float size = ldexpf((float)(drawn >> 40) * 0x1p-24f, -(int)(drawn & 7));
        gemm_put(data, dtype, x, drawn & 8 ? size : -size);
    }
    return data;
}

static inline int64_t gemm_draw(uint64_t *state, int64_t most)
{
    return (int64_t)(check_random(state) % (uint64_t)(most + 1));
}

static inline void gemm_free(gemm_case *c)
{
    free(c->call.a.data);
    free(c->call.b.data);
    free(c->call.c.data);
    free((void *)c->call.bias);
    free(c->before);
}

/* Fill the matrices of a problem. */
static inline gemm_case gemm_make(const ordo_gemm_problem *problem, int slack, uint64_t *state)
{
    gemm_case c = { .p = *problem, .call = ORDO_GEMM_CALL_INIT };
    const ordo_gemm_problem *p = problem;
    c.call.a.stride = (p->a_transposed ? p->m : p->k) + slack;
    c.call.b.stride = (p->b_transposed ? p->k : p->n) + slack;
    c.call.c.stride = p->n + slack;
    c.call.a.data = gemm_fill(p->dtype, p->a_transposed ? p->k : p->m, c.call.a.stride, state);
    c.call.b.data = gemm_fill(p->dtype, p->b_transposed ? p->n : p->k, c.call.b.stride, state);
    c.call.c.data = gemm_fill(p->c_dtype, p->m, c.call.c.stride, state);
    c.call.bias = p->bias ? gemm_fill(p->c_dtype, 1, p->n, state) : NULL;
    c.call.threads = 1 + (int)gemm_draw(state, 2);
    c.c_bytes = (size_t)(p->m * c.call.c.stride * gemm_width(p->c_dtype));
    c.before = malloc(c.c_bytes + 1);
    memcpy(c.before, c.call.c.data, c.c_bytes);
    return c;
}

/* A problem of any kind; f32 only if the backend has it. */
static inline ordo_gemm_problem gemm_problem(bool has_f32, uint64_t *state)
{
    ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
    p.m = gemm_draw(state, GEMM_MOST);
    p.n = gemm_draw(state, GEMM_MOST);
    p.k = gemm_draw(state, GEMM_MOST_K);
    p.dtype = has_f32 && gemm_draw(state, 3) == 0 ? ORDO_F32
              : gemm_draw(state, 1)               ? ORDO_BF16
                                                  : ORDO_F16;
    p.c_dtype = gemm_draw(state, 1) ? ORDO_F32 : p.dtype;
    p.a_transposed = gemm_draw(state, 1);
    p.b_transposed = gemm_draw(state, 1);
    p.bias = gemm_draw(state, 1);
    p.add = p.c_dtype == ORDO_F32 && gemm_draw(state, 1);
    p.sections = 1 << gemm_draw(state, 3);
    if (p.sections > 1)
        p.k -= p.k % (16 * p.sections);
    return p;
}

static inline ordo_status gemm_run(ordo_backend backend, const ordo_gemm_problem *p,
                                   const ordo_gemm_call *call)
{
    ordo_gemm_plan *plan = NULL;
    ordo_status status = ordo_gemm_plan_create(&plan, p, backend);
    if (status == ORDO_OK)
        status = ordo_gemm_run(plan, call);
    ordo_gemm_plan_destroy(plan);
    return status;
}

/* What element (row, column) has to be, before it is rounded. */
static inline float gemm_element(const gemm_case *c, gemm_chain *chain, int64_t row, int64_t column)
{
    const ordo_gemm_problem *p = &c->p;
    const int sections = p->sections ? p->sections : 1;
    uint32_t a[GEMM_MOST_K] = { 0 }, b[GEMM_MOST_K] = { 0 };
    float s[8];
    for (int64_t x = 0; x < p->k; x++) {
        a[x] = gemm_bits(c->call.a.data, p->dtype,
                         p->a_transposed ? x * c->call.a.stride + row : row * c->call.a.stride + x);
        b[x] = gemm_bits(c->call.b.data, p->dtype,
                         p->b_transposed ? column * c->call.b.stride + x
                                         : x * c->call.b.stride + column);
    }
    for (int x = 0; x < sections; x++)
        s[x] =
            chain(p->dtype, a + x * (p->k / sections), b + x * (p->k / sections), p->k / sections);
    for (int x = 0; x < sections && c->call.scale && p->k > 0; x++)
        s[x] *= *c->call.scale;
    for (int width = sections; width > 1; width /= 2)
        for (int x = 0; x < width / 2; x++)
            s[x] = s[2 * x] + s[2 * x + 1];
    if (p->bias)
        s[0] += gemm_value(p->c_dtype, gemm_bits(c->call.bias, p->c_dtype, column));
    if (p->add)
        s[0] += ((const float *)c->before)[row * c->call.c.stride + column];
    return s[0];
}

/* Run a case, and compare all of C: elements as they have to be, and the memory between rows. */
static inline void gemm_check(const gemm_case *c, ordo_backend backend, gemm_chain *chain)
{
    const ordo_gemm_problem *p = &c->p;
    void *expected = malloc(c->c_bytes + 1);
    memcpy(expected, c->before, c->c_bytes);
    CHECK_INT(gemm_run(backend, p, &c->call), ORDO_OK);
    for (int64_t row = 0; row < p->m; row++)
        for (int64_t column = 0; column < p->n; column++)
            gemm_put(expected, p->c_dtype, row * c->call.c.stride + column,
                     gemm_element(c, chain, row, column));
    if (memcmp(expected, c->call.c.data, c->c_bytes) != 0)
        CHECK_FAIL("%d x %d x %d, %s to %s, a %d, b %d, bias %d, add %d, sections %d: other bits",
                   (int)p->m, (int)p->n, (int)p->k, ordo_dtype_name(p->dtype),
                   ordo_dtype_name(p->c_dtype), p->a_transposed, p->b_transposed, p->bias, p->add,
                   p->sections);
    free(expected);
}

/* Some rows of a case alone, in another order: the bits that they have among all. */
static inline void gemm_check_rows(const gemm_case *c, ordo_backend backend, uint64_t *state)
{
    const int64_t width = gemm_width(c->p.dtype), out = gemm_width(c->p.c_dtype);
    ordo_gemm_problem few = c->p;
    few.m = c->p.m == 0 ? 0 : 1 + gemm_draw(state, c->p.m - 1);
    few.a_transposed = false;
    gemm_case alone = gemm_make(&few, 3, state);
    int64_t *row = malloc(sizeof *row * (size_t)(few.m + 1));
    for (int64_t i = 0; i < few.m; i++) {
        row[i] = gemm_draw(state, c->p.m - 1);
        for (int64_t x = 0; x < few.k; x++)
            memcpy((char *)alone.call.a.data + (i * alone.call.a.stride + x) * width,
                   (const char *)c->call.a.data + (c->p.a_transposed
                                                       ? x * c->call.a.stride + row[i]
                                                       : row[i] * c->call.a.stride + x) *
                                                      width,
                   (size_t)width);
        memcpy((char *)alone.call.c.data + i * alone.call.c.stride * out,
               (const char *)c->before + row[i] * c->call.c.stride * out, (size_t)(few.n * out));
    }
    ordo_gemm_call call = alone.call;
    call.b = c->call.b;
    call.bias = c->call.bias;
    call.scale = c->call.scale;
    CHECK_INT(gemm_run(backend, &few, &call), ORDO_OK);
    for (int64_t i = 0; i < few.m; i++)
        CHECK_BITS((const char *)alone.call.c.data + i * alone.call.c.stride * out,
                   (const char *)c->call.c.data + row[i] * c->call.c.stride * out, few.n * out);
    free(row);
    gemm_free(&alone);
}

/* Drawn cases: the elements, then rows alone. */
static inline void gemm_check_drawn(ordo_backend backend, gemm_chain *chain, int count,
                                    uint64_t seed)
{
    uint64_t state = seed;
    for (int x = 0; x < count; x++) {
        const ordo_gemm_problem p = gemm_problem(backend == ORDO_BACKEND_CPU, &state);
        gemm_case c = gemm_make(&p, (int)gemm_draw(&state, 9), &state);
        gemm_check(&c, backend, chain);
        gemm_check_rows(&c, backend, &state);
        gemm_free(&c);
    }
}

#endif
