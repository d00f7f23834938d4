/* handmade_gemm.h: what tests of products on the device share: C and the bias before a product, and
 * what becomes of a sum. A problem P has m, n, out, sections, bias, add and pad. */
#ifndef TESTS_CUDA_HANDMADE_GEMM_H
#define TESTS_CUDA_HANDMADE_GEMM_H

#include "handmade_pass.h"

#include "base/half.h"
#include "cuda/pass/gemm.h"
#include "cuda/sm90/gemm/gemm.h"

static inline uint16_t half_of(ordo_dtype type, float x)
{
    return type == ORDO_F16 ? ordo_f16_from_f32(x) : ordo_bf16_from_f32(x);
}

static inline float value_of(ordo_dtype type, uint16_t x)
{
    return type == ORDO_F16 ? ordo_f32_from_f16(x) : ordo_f32_from_bf16(x);
}

/* Any number, from two. */
static inline uint32_t mixed(int which, int64_t line, int64_t k)
{
    uint32_t x = (uint32_t)line * 0x9e3779b1u ^ (uint32_t)k * 0x85ebca77u ^ (uint32_t)which << 30;
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return x ^ x >> 15;
}

static inline float before_of(int64_t row, int64_t column)
{
    return (float)((row * 31 + column * 17) % 101 - 50) / 7.0f;
}

template <class P> static float bias_of(const P &p, int64_t column)
{
    const float x = (float)(int32_t)((uint32_t)column * 2654435761u) * 0x1p-31f;
    return p.out == ORDO_F32 ? x : value_of(p.out, half_of(p.out, x));
}

template <class P> static std::vector<uint8_t> bias_row(const P &p)
{
    std::vector<uint8_t> row;
    for (int64_t j = 0; j < p.n; j++) {
        const float x = bias_of(p, j);
        const uint16_t half = half_of(p.out, x);
        const uint8_t *const bytes =
            p.out == ORDO_F32 ? (const uint8_t *)&x : (const uint8_t *)&half;
        row.insert(row.end(), bytes, bytes + (p.out == ORDO_F32 ? 4 : 2));
    }
    return row;
}

/* ---- C ---- */

struct result {
    int64_t stride;
    int bytes; /* per element */
    std::vector<uint8_t> c;
    uint32_t at(int64_t row, int64_t column) const
    {
        uint32_t x = 0;
        memcpy(&x, &c[(size_t)((row * stride + column) * bytes)], (size_t)bytes);
        return x;
    }
};

/* Before a product of rows `first` and following of A. */
template <class P> static result result_before(const P &p, int64_t first)
{
    result r = { (p.n + 7) / 8 * 8 + p.pad, p.out == ORDO_F32 ? 4 : 2, {} };
    r.c.assign((size_t)((p.m + 2) * r.stride * r.bytes), 0xa5);
    for (int64_t i = 0; p.add && i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            const float x = before_of(first + i, j);
            memcpy(&r.c[(size_t)((i * r.stride + j) * 4)], &x, 4);
        }
    return r;
}

/* Bytes that no element has, and that were written. */
template <class P> static long written_outside(const P &p, const result &r)
{
    long written = 0;
    for (int64_t i = 0; i < p.m + 2; i++)
        for (int64_t x = 0; x < r.stride * r.bytes; x++)
            if (i >= p.m || x >= p.n * r.bytes)
                written += r.c[(size_t)(i * r.stride * r.bytes + x)] != 0xa5;
    return written;
}

static inline long differ(const result &some, int64_t rows, int64_t columns, const result &all,
                          int64_t first)
{
    long wrong = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            wrong += some.at(i, j) != all.at(first + i, j);
    return wrong;
}

/* The element that the sums of its sections become. */
template <class P>
static uint32_t element_of(const P &p, float (&sum)[ORDO_GEMM_SECTIONS], int64_t row,
                           int64_t column)
{
    for (int by = 1; by < p.sections; by *= 2)
        for (int s = 0; s + by < p.sections; s += 2 * by)
            sum[s] += sum[s + by];
    if (p.bias)
        sum[0] += bias_of(p, column);
    if (p.add)
        sum[0] = before_of(row, column) + sum[0];
    return p.out == ORDO_F32 ? ordo_f32_bits(sum[0]) : half_of(p.out, sum[0]);
}

#endif
