/* kernels_body.h: the kernels of one target. The file that includes it defines
 *
 *   LANES        floats of a vector, and the vectors vf (float), vi (int32_t), vu (uint32_t) and,
 *                of twice as many lanes, vs (int16_t)
 *   larger       the larger of each lane of two vs
 *   narrow       two vi as one vs, lanes in order; values fit
 *   to_integer   vf to vi, toward zero; any vi where that does not fit
 *   magnitude    |vi|; INT32_MIN stays
 *   to_float     a vi, given its magnitude and itself, as a vf, truncated
 *   settled      a vu as it is, hidden from the optimizer, which would add in another order and
 *                need more registers than there are
 *   any          whether a lane of a vi is not 0
 *   from_table   table[index] of each lane
 *   from_half    LANES elements of f16 as vf; of a NaN any NaN
 *   to_half      a vf to LANES elements of f16; of a NaN anything
 *
 * GCC's vector arithmetic does the rest, on vectors that are registers of the target. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "emulator/dot.h"
#include "emulator/kernels.h"
#include "emulator/rom.h"
#include "emulator/special.h"

enum {
    WIDTH = ORDO_EMULATOR_WIDTH,
    DEPTH = ORDO_EMULATOR_DEPTH,
    PARTS = WIDTH / LANES, /* vectors of a step's outputs, and */
    PAIRS = PARTS / 2,     /* pairs of their exponents */
    LEAST_E = -100,
    MOST_E = 120,
};

#define EACH(x, count) _Pragma("GCC unroll 16") for (int x = 0; x < (count); x++)

static inline vf load(const float *from)
{
    vf x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline vs load_short(const int16_t *from)
{
    vs x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* LANES of int16 as int32. */
static inline vi widen(const int16_t *from)
{
    typedef int16_t half_vs __attribute__((vector_size(2 * LANES)));
    half_vs x;
    memcpy(&x, from, sizeof x);
    return __builtin_convertvector(x, vi);
}

static inline vi choose(vi mask, vi yes, vi no)
{
    return (yes & mask) | (no & ~mask);
}

/* Compute with the definition the results that the fast path cannot. */
static __attribute__((noinline)) void leave(const float *d, const int16_t *exponents,
                                            const vi *large, vf *result, const float *a,
                                            const float *b, ordo_dtype dtype)
{
    for (int n = 0; n < WIDTH; n++) {
        float *to = (float *)(result + n / LANES) + n % LANES;
        if (exponents[n] < LEAST_E || exponents[n] > MOST_E || large[n / LANES][n % LANES])
            *to = ordo_emulator_dot_values(&ordo_emulator_hopper, dtype, a, b + n, WIDTH, d[n]);
    }
}

/* One step of 32 outputs: d += 16 products. Lines of b are 32 elements. */
static inline __attribute__((always_inline)) void step(float *d, const float *a,
                                                       const int16_t *a_exponent, const float *b,
                                                       const int16_t *b_exponent, ordo_dtype dtype)
{
    vi field[PARTS];
    vs e[PAIRS];
    EACH (x, PARTS) {
        const vi size = (vi)load(d + x * LANES) & 0x7fffffff;
        field[x] = choose(size == 0, (vi) { 0 } + ORDO_EMULATOR_ZERO, (size >> 23) - 127);
    }
    EACH (x, PAIRS)
        e[x] = narrow(field[2 * x], field[2 * x + 1]);
    EACH (k, DEPTH)
        EACH (x, PAIRS)
            e[x] = larger(e[x], load_short(b_exponent + k * WIDTH + 2 * x * LANES) + a_exponent[k]);

    /* Where all terms are zero, any exponent will do. */
    _Alignas(64) int16_t exponents[WIDTH];
    vs outside = { 0 };
    EACH (x, PAIRS) {
        e[x] &= ~(e[x] < ORDO_EMULATOR_ZERO / 2);
        outside |= (e[x] < LEAST_E) | (e[x] > MOST_E);
        memcpy(exponents + 2 * x * LANES, &e[x], sizeof e[x]);
    }
    vf scale[PARTS];
    vu sum[PARTS]; /* may pass 2^31, which `large` finds */
    EACH (x, PARTS) {
        scale[x] = (vf)((vu)(127 + 25 - widen(exponents + x * LANES)) << 23);
        sum[x] = (vu)to_integer(load(d + x * LANES) * scale[x]);
    }
    EACH (k, DEPTH)
        EACH (x, PARTS)
            sum[x] =
                settled(sum[x] + (vu)to_integer(load(b + k * WIDTH + x * LANES) * a[k] * scale[x]));

    vi large[PARTS];
    vf result[PARTS];
    EACH (x, PARTS) {
        const vi size = magnitude((vi)sum[x]);
        const vf back = (vf)((vu)(127 - 25 + widen(exponents + x * LANES)) << 23);
        large[x] = (vi)((vu)size >> 24) > 0x77;
        result[x] = to_float(size, (vi)sum[x]) * back;
        outside |= (vs)large[x];
    }
    if (__builtin_expect(any((vi)outside), 0))
        leave(d, exponents, large, result, a, b, dtype);
    EACH (x, PARTS)
        memcpy(d + x * LANES, &result[x], sizeof result[x]);
}

static void product(float *d, ptrdiff_t stride, int rows, const ordo_emulator_tile *a, int row0,
                    int a0, const ordo_emulator_tile *b, int b0, int column0, int columns,
                    int depth, bool add)
{
    for (int i = 0; i < rows && !add; i++)
        memset(d + i * stride, 0, (size_t)columns * sizeof *d);
    /* Rows inside: their steps do not wait for one another. */
    for (int n = 0; n < columns; n += WIDTH)
        for (int k = 0; k < depth; k += DEPTH) {
            const size_t a_from = ordo_emulator_place(a, row0, a0 + k),
                         b_from = ordo_emulator_place(b, b0 + k, column0 + n);
            for (int i = 0; i < rows; i++) {
                const size_t at = a_from + (size_t)i * WIDTH;
                step(d + i * stride + n, a->value + at, a->exponent + at, b->value + b_from,
                     b->exponent + b_from, b->dtype);
            }
        }
}

static void set(float *value, int16_t *exponent, const uint16_t *elements, int n, ordo_dtype dtype)
{
    const int fraction_bits = dtype == ORDO_F16 ? 10 : 7, top = 0x7fff >> fraction_bits;
    int i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        vs x;
        memcpy(&x, elements + i, sizeof x);
        const vs size = x & 0x7fff, field = size >> fraction_bits;
        vs e = field - (int16_t)(top >> 1) - (field == 0);
        const vs zero = size == 0, special = field == (int16_t)top;
        e = (e & ~(zero | special)) | (zero & ORDO_EMULATOR_ZERO) |
            (special & ORDO_EMULATOR_SPECIAL);
        memcpy(exponent + i, &e, sizeof e);
        EACH (y, 2) {
            const uint16_t *from = elements + i + y * LANES;
            vf v;
            if (dtype == ORDO_F16)
                v = from_half(from);
            else
                v = (vf)(widen((const int16_t *)from) << 16);
            memcpy(value + i + y * LANES, &v, sizeof v);
        }
    }
    if (i < n) { /* the rest as one vector */
        uint16_t rest[2 * LANES] = { 0 };
        float values[2 * LANES];
        int16_t exponents[2 * LANES];
        memcpy(rest, elements + i, (size_t)(n - i) * sizeof *rest);
        set(values, exponents, rest, 2 * LANES, dtype);
        memcpy(value + i, values, (size_t)(n - i) * sizeof *values);
        memcpy(exponent + i, exponents, (size_t)(n - i) * sizeof *exponents);
    }
}

/* Coefficients of ex2 in two words: c0 / 8; c0 mod 8, c2 (10 bits) and c1 (16 bits). */
#define UPPER(c0, c1, c2) (c0) >> 3,
#define LOWER(c0, c1, c2) ((c0)&7) << 26 | (c2) << 16 | (c1),
static const int32_t ex2_upper[64] = { ORDO_EX2_ROM(UPPER) };
static const int32_t ex2_lower[64] = { ORDO_EX2_ROM(LOWER) };
#undef UPPER
#undef LOWER

/* The square of x < 2^17 without its columns below 2^19, divided by 2^19. With x = 512 h + l, h is
 * squared, and bit j of h has the columns from 2^19 on of its product with l. */
static inline vu upper_square(vu x)
{
    const vu h = x >> 9, l = x & 511;
    vu sum = h * h >> 1;
    _Pragma("GCC unroll 7") for (int j = 1; j < 8; j++) sum +=
        l >> (9 - j) & (vu)((vi)(h << (31 - j)) < 0);
    return sum;
}

static inline vf ex2(vf v)
{
    const vi size_bits = (vi)v & 0x7fffffff, edge = (vi) { 0 } + 0x43480000; /* 200 */
    const vf size = (vf)choose(size_bits < edge, size_bits, edge);
    const vi up = to_integer(size * 8388608.0f);
    const vi place = choose((vi)v < 0, ~up - ((up & 0x7fffff) == 0), up);
    const vi exponent = (place >> 23) + 127;
    const vu fraction = (vu)(place & 0x7fffff), x = fraction & 0x1ffff;
    const vu upper = (vu)from_table(ex2_upper, (vi)(fraction >> 17)),
             lower = (vu)from_table(ex2_lower, (vi)(fraction >> 17));
    const vu c1 = lower & 0xffff, c2 = lower >> 16 & 1023, c0 = lower >> 26;
    /* Q / 2^15 in 32 bits: c1 x has 33, so its last bit is added with the rest */
    const vu rest = (c0 << 12) + ORDO_EX2_BIAS + (c1 & (0u - (x & 1))) + c2 * upper_square(x);
    const vu q = upper + ((c1 * (x >> 1) + (rest >> 1)) >> 14);
    vi y = exponent << 23 | (vi)q;
    y = choose(exponent >= 255, (vi) { 0 } + 0x7f800000, y & (exponent > 0));
    return (vf)choose(size_bits > 0x7f800000, (vi) { 0 } + 0x7fffffff, y);
}

static void ex2_row(float *x, int n)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vf y = ex2(load(x + i));
        memcpy(x + i, &y, sizeof y);
    }
    for (; i < n; i++)
        x[i] = ordo_emulator_ex2(x[i]);
}

static inline void round_f16(uint16_t *to, vf x)
{
    uint16_t y[LANES];
    int32_t nan[LANES];
    const vi mask = ((vi)x & 0x7fffffff) > 0x7f800000;
    to_half(y, x);
    memcpy(nan, &mask, sizeof mask);
    EACH (i, LANES)
        to[i] = nan[i] ? 0x7fff : y[i];
}

static void round_row(uint16_t *to, const float *x, int n, ordo_dtype dtype)
{
    int i = 0;
    if (dtype == ORDO_F16) {
        for (; i + LANES <= n; i += LANES)
            round_f16(to + i, load(x + i));
    } else {
        for (; i + 2 * LANES <= n; i += 2 * LANES) {
            vi part[2];
            EACH (y, 2) {
                const vi bits = (vi)load(x + i + y * LANES);
                const vu rounded = (vu)bits + 0x7fff + ((vu)bits >> 16 & 1);
                const vi nan = (bits & 0x7fffffff) > 0x7f800000;
                part[y] = choose(nan, (vi) { 0 } + 0x7fff, (vi)rounded >> 16);
            }
            const vs both = narrow(part[0], part[1]);
            memcpy(to + i, &both, sizeof both);
        }
    }
    for (; i < n; i++)
        to[i] = ordo_emulator_round(x[i], dtype);
}

#define EMULATOR_KERNELS(name)                                                                     \
    {                                                                                              \
        name, product, set, ex2_row, round_row                                                     \
    }
