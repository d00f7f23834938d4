/* kernels_test.c: the tile kernels of every target against what kernels.h says of them, on shapes
 * that leave every kind of rest. */
#include "base/half.h"
#include "check.h"
#include "cpu/kernels.h"

static const ordo_kernels *target(int x)
{
    static const char *const names[] = { "generic", "neon", "avx2", "avx512" };
    return x < 4 ? ordo_cpu_kernels_named(names[x]) : NULL;
}
#define FOR_TARGETS(k)                                                                             \
    for (int x_ = 0; x_ < 4; x_++)                                                                 \
        for (const ordo_kernels *k = target(x_); k; k = NULL)

static float widen(uint16_t half, ordo_dtype dtype)
{
    return dtype == ORDO_F16 ? ordo_f32_from_f16(half) : ordo_f32_from_bf16(half);
}

/* All 65536 patterns, as rows of 16 and as one long row. */
TEST(every_half_is_widened_exactly)
{
    static uint16_t all[1 << 16];
    static float panel[1 << 16];
    for (int x = 0; x < 1 << 16; x++)
        all[x] = (uint16_t)x;
    FOR_TARGETS(k)
    for (int type = 0; type < 2; type++) {
        const ordo_dtype dtype = type ? ORDO_F16 : ORDO_BF16;
        CHECK(!k->load(panel, 16, all, dtype, 16, (1 << 16) / 16, 16));
        for (int x = 0; x < 1 << 16; x++) {
            const float want = widen((uint16_t)x, dtype);
            if (want != want ? panel[x] == panel[x]
                             : ordo_f32_bits(panel[x]) != ordo_f32_bits(want))
                CHECK_FAIL("%s, type %d: %04x gives %a, expected %a", k->name, type, x,
                           (double)panel[x], (double)want);
        }
    }
}

/* Floats near every f16: the value, between it and the next, and just beside that. */
TEST(every_f16_is_rounded_once)
{
    enum { NEAR = 5, COUNT = 1 << 16 };
    static float panel[NEAR * COUNT];
    static uint16_t out[NEAR * COUNT];
    for (int x = 0; x < COUNT; x++) {
        const uint32_t bits = ordo_f32_bits(ordo_f32_from_f16((uint16_t)x));
        const uint32_t near[NEAR] = { bits, bits + 0x1000, bits + 0xfff, bits + 0x1001,
                                      (uint32_t)x * 0x10001u };
        for (int n = 0; n < NEAR; n++)
            panel[NEAR * x + n] = ordo_f32_of_bits(near[n]);
    }
    FOR_TARGETS(k)
    {
        k->store(out, ORDO_F16, 16, panel, 16, NEAR * COUNT / 16, 16, 1, NULL);
        for (int x = 0; x < NEAR * COUNT; x++)
            if (out[x] != ordo_f16_from_f32(panel[x]))
                CHECK_FAIL("%s: %a gives %04x, expected %04x", k->name, (double)panel[x], out[x],
                           ordo_f16_from_f32(panel[x]));
    }
}

enum { MOST = 150, ROOM = MOST * (MOST + 16) };

static void fill(float *to, uint64_t *state, int count)
{
    for (int x = 0; x < count; x++)
        to[x] = (float)check_between(state, -1000, 1000) / 64;
}

TEST(a_panel_and_its_transpose_agree)
{
    static float data[ROOM], rows[ROOM], transposed[ROOM];
    uint64_t state = 11;
    fill(data, &state, ROOM);
    FOR_TARGETS(k)
    for (int trial = 0; trial < 60; trial++) {
        const int count = (int)check_between(&state, 1, 128);
        const int dim = (int)check_between(&state, 1, 128), ld = 144;
        const int bad = (int)check_between(&state, 0, count * dim - 1);
        CHECK(k->load(rows, ld, data, ORDO_F32, dim, count, dim));
        CHECK(k->load_transposed(transposed, ld, data, ORDO_F32, dim, count, dim));
        for (int r = 0; r < count; r++)
            for (int d = 0; d < (dim + 15) / 16 * 16; d++) {
                const float want = d < dim ? data[r * dim + d] : 0;
                CHECK(rows[r * ld + d] == want && (d >= dim || transposed[d * ld + r] == want));
            }
        const float kept = data[bad];
        data[bad] = trial % 2 ? INFINITY : NAN;
        CHECK(!k->load(rows, ld, data, ORDO_F32, dim, count, dim));
        CHECK(!k->load_transposed(transposed, ld, data, ORDO_F32, dim, count, dim));
        data[bad] = kept;
    }
}

/* One chain of fused multiply-adds an element, whatever the block it falls into. */
TEST(a_product_is_one_chain_an_element)
{
    static float a[ROOM], b[ROOM], c[ROOM], start[ROOM];
    uint64_t state = 12;
    fill(a, &state, ROOM);
    fill(b, &state, ROOM);
    fill(start, &state, ROOM);
    for (int x = 0; x < ROOM; x++)
        a[x] *= 0x1.000002p-3f; /* so that sums are rounded */
    FOR_TARGETS(k)
    for (int trial = 0; trial < 60; trial++) {
        const int m = (int)check_between(&state, 1, 140), n = (int)check_between(&state, 1, 140);
        const int steps = (int)check_between(&state, 1, 140), ld = 160;
        const bool across = check_between(&state, 0, 1), add = check_between(&state, 0, 1);
        const int a_row = across ? 150 : 1, a_k = across ? 1 : 150;
        memcpy(c, start, sizeof c);
        k->product(m, n, steps, a, a_row, a_k, b, ld, c, ld, add, NULL);
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++) {
                float want = add ? start[i * ld + j] : 0;
                for (int x = 0; x < steps; x++)
                    want = fmaf(a[i * a_row + x * a_k], b[x * ld + j], want);
                if (ordo_f32_bits(c[i * ld + j]) != ordo_f32_bits(want))
                    CHECK_FAIL("%s: %d x %d x %d, element %d, %d: %a, expected %a", k->name, m, n,
                               steps, i, j, (double)c[i * ld + j], (double)want);
            }
        for (int x = 0; x < ROOM; x++) /* nothing but its rows, padded */
            if (x / ld >= m || x % ld >= (n + 15) / 16 * 16)
                CHECK(c[x] == start[x]);
    }
}

/* The logit and the slope of 16 capped scores. One column under no maximum leaves its logits as the
 * maximum, and with those for lse every probability is 1: dS is the slope. */
static void cap_scores(const ordo_kernels *k, const ordo_scores *z, const float *scores,
                       float *logits, float *slopes)
{
    float s[16], l[16] = { 0 }, alpha[16];
    const float delta[16] = { 0 };
    memcpy(s, scores, sizeof s);
    for (int r = 0; r < 16; r++) {
        logits[r] = -INFINITY;
        slopes[r] = 1;
    }
    k->softmax(z, s, logits, l, alpha);
    memcpy(s, scores, sizeof s);
    k->gradients(z, s, slopes, logits, delta);
}

/* softcap tanh(scale s / softcap) and 1 - tanh^2 within a few units of their own last place, as
 * tests/attention_bounds.h derives: for caps and scales at both ends of floats, and for quotients
 * from where they vanish to where tanh is 1. */
TEST(a_soft_cap_is_accurate_relative_to_itself)
{
    static const double caps[] = { 0x1p-126, 1e-30, 0.01, 1, 20, 30, 50, 1e6, 1e20, 1e38, 0x1p127 };
    static const double scales[] = { 0.125, -0.3, 1e-20, 1e20 };
    const double u = 0x1p-24, log2_e = 1.4426950408889634;
    uint64_t state = 13;
    FOR_TARGETS(k)
    for (int trial = 0; trial < 11 * 4 * 100; trial++) {
        const double cap = caps[trial % 11], scale = scales[trial / 11 % 4];
        const double ratio = fmin(fmax(fabs(scale) / cap, 0x1p-149), 0x1.fffffep127);
        const ordo_scores z = { .rows = 16,
                                .cols = 1,
                                .ld = 16,
                                .low = -16,
                                .high = 16,
                                .scale2 = (float)(scale * log2_e),
                                .softcap2 = (float)(cap * log2_e),
                                .to_cap = (float)copysign(ratio, scale),
                                .keep_scale = 1 };
        float s[16], logits[16], slopes[16];
        for (int r = 0; r < 16; r++) { /* any scores that scale and softcap leave normal */
            const double y =
                ldexp(1.5 + check_uniform(&state) / 2, (int)check_between(&state, -40, 6));
            s[r] = (float)(r % 2 ? y * cap / scale : -y * cap / scale);
            if (!(fabsf(s[r]) >= 0x1p-100f && fabsf(s[r]) <= 0x1p100f))
                s[r] = (float)check_uniform(&state);
        }
        cap_scores(k, &z, s, logits, slopes);
        for (int r = 0; r < 16; r++) {
            const double x = (double)s[r] * scale, y = fabs(x / cap);
            const double logit = log2_e * cap * tanh(x / cap), slope = 1 / (cosh(y) * cosh(y));
            const double slope_error = (10 * fmin(y, 60) + 12) * u * slope + 0x1p-123;
            if (!(fabs((double)logits[r] - logit) <= 14 * u * fabs(logit) + 0x1p-125))
                CHECK_FAIL("%s: cap %g, scale %g, score %g: logit %.9g, expected %.9g", k->name,
                           cap, scale, (double)s[r], (double)logits[r], logit);
            if (!(fabs((double)slopes[r] - slope) <= slope_error))
                CHECK_FAIL("%s: cap %g, scale %g, score %g: slope %.9g, expected %.9g", k->name,
                           cap, scale, (double)s[r], (double)slopes[r], slope);
        }
    }
}

CHECK_MAIN()
