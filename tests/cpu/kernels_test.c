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
    static float data[ROOM], rows[ROOM], turned[ROOM];
    uint64_t state = 11;
    fill(data, &state, ROOM);
    FOR_TARGETS(k)
    for (int trial = 0; trial < 60; trial++) {
        const int count = (int)check_between(&state, 1, 128);
        const int dim = (int)check_between(&state, 1, 128), ld = 144;
        const int bad = (int)check_between(&state, 0, count * dim - 1);
        CHECK(k->load(rows, ld, data, ORDO_F32, dim, count, dim));
        CHECK(k->load_transposed(turned, ld, data, ORDO_F32, dim, count, dim));
        for (int r = 0; r < count; r++)
            for (int d = 0; d < (dim + 15) / 16 * 16; d++) {
                const float want = d < dim ? data[r * dim + d] : 0;
                CHECK(rows[r * ld + d] == want && (d >= dim || turned[d * ld + r] == want));
            }
        const float kept = data[bad];
        data[bad] = trial % 2 ? INFINITY : NAN;
        CHECK(!k->load(rows, ld, data, ORDO_F32, dim, count, dim));
        CHECK(!k->load_transposed(turned, ld, data, ORDO_F32, dim, count, dim));
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

CHECK_MAIN(RUN(every_half_is_widened_exactly), RUN(every_f16_is_rounded_once),
           RUN(a_panel_and_its_transpose_agree), RUN(a_product_is_one_chain_an_element))
