/* gemm_test.c: matrix products of the emulator: each element is one chain of steps of
 * ordo_emulator_dot() per section, and rows alone have their bits. */
#include "gemm_case.h"

#include "emulator/dot.h"
#include "emulator/kernels.h"

static float chain(ordo_dtype dtype, const uint32_t *a, const uint32_t *b, int64_t count)
{
    uint32_t sum = 0;
    for (int64_t x = 0; x < count; x += 16) {
        uint16_t left[16] = { 0 }, right[16] = { 0 };
        for (int64_t k = 0; k < 16 && x + k < count; k++) {
            left[k] = (uint16_t)a[x + k];
            right[k] = (uint16_t)b[x + k];
        }
        sum = ordo_emulator_dot(&ordo_emulator_hopper, dtype, left, right, sum);
    }
    return ordo_f32_of_bits(sum);
}

static const char *const targets[] = { "generic", "neon", "avx2", "avx512" };

TEST(elements_and_rows_have_the_bits_of_the_definition)
{
    for (int x = 0; x < 4; x++) {
        const ordo_emulator_kernels *kernels = ordo_emulator_kernels_named(targets[x]);
        if (!kernels)
            continue;
        ordo_emulator_kernels_force(kernels);
        gemm_check_drawn(ORDO_BACKEND_EMULATOR, chain, 12, 49);
    }
    ordo_emulator_kernels_force(NULL);
}

static float chains_e4m3(ordo_dtype dtype, const uint32_t *a, const uint32_t *b, int64_t count)
{
    float sum = 0;
    (void)dtype;
    for (int64_t from = 0; from < count; from += 128) {
        uint32_t chain = 0;
        for (int64_t x = from; x < from + 128; x += 32) {
            uint8_t left[32] = { 0 }, right[32] = { 0 };
            for (int64_t k = 0; k < 32 && x + k < count; k++) {
                left[k] = (uint8_t)a[x + k];
                right[k] = (uint8_t)b[x + k];
            }
            chain = ordo_emulator_dot_e4m3(&ordo_emulator_hopper_e4m3, left, right, chain);
        }
        sum += ordo_f32_of_bits(chain);
    }
    return sum;
}

TEST(elements_of_e4m3_are_sums_of_chains)
{
    static const float factor = -0.37f;
    uint64_t state = 51;
    for (int which = 0; which < 12; which++) {
        ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
        p.m = 1 + gemm_draw(&state, 80), p.n = 1 + gemm_draw(&state, 140);
        p.k = which < 6 ? 2 * gemm_draw(&state, 200) : 256 * (which & 1);
        p.sections = which < 6 ? 1 : 2;
        p.dtype = ORDO_E4M3, p.c_dtype = (ordo_dtype)(which % 3), p.b_transposed = true;
        p.bias = which & 2, p.add = p.c_dtype == ORDO_F32;
        gemm_case c = gemm_make(&p, which % 5, &state);
        c.call.scale = which & 4 ? &factor : NULL;
        gemm_check(&c, ORDO_BACKEND_EMULATOR, chains_e4m3);
        gemm_check_rows(&c, ORDO_BACKEND_EMULATOR, &state);
        gemm_free(&c);
    }
}

/* 1 - 1 + 2^-13 is seen beside the 1, 2^-14 is not; a result has 13 fraction bits. */
TEST(a_step_of_e4m3_keeps_what_publications_say)
{
    const uint8_t one = 0x38, tiny = 0x04, half = 0x30;                    /* 1, 2^-7, 2^-1 */
    uint8_t a[32] = { one, one | 0x80, tiny }, b[32] = { one, one, 0x08 }; /* 2^-6 */
    const ordo_emulator_arithmetic *rule = &ordo_emulator_hopper_e4m3;
    CHECK_INT(ordo_emulator_dot_e4m3(rule, a, b, 0), ordo_f32_bits(0x1p-13f));
    b[2] = 0x04;
    CHECK_INT(ordo_emulator_dot_e4m3(rule, a, b, 0), 0);
    a[1] = half, b[1] = one, a[2] = 0;
    CHECK_INT(ordo_emulator_dot_e4m3(rule, a, b, ordo_f32_bits(0x1.00038p2f)),
              ordo_f32_bits(0x1.6p2f));
    a[3] = 0x7f;
    CHECK_INT(ordo_emulator_dot_e4m3(rule, a, b, 0), 0x7fffffff);
    a[3] = 0x7e, b[3] = 0x7e; /* 448, beyond the largest exponent of most formats */
    CHECK_INT(ordo_emulator_dot_e4m3(rule, a, b, 0), ordo_f32_bits(448.0f * 448 + 0));
}

/* The NaN of the device, in every type of C. */
TEST(a_nan_is_that_of_the_device)
{
    const uint16_t a[] = { 0x7f80, 0x3f80 }, b[] = { 0, 0x3f80 };
    for (ordo_dtype out = ORDO_F32; out <= ORDO_BF16; out++) {
        uint32_t c = 0;
        ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
        p.m = p.n = 1, p.k = 2, p.dtype = ORDO_BF16, p.c_dtype = out;
        ordo_gemm_call call = ORDO_GEMM_CALL_INIT;
        call.a.data = (void *)a, call.b.data = (void *)b, call.c.data = &c;
        CHECK_INT(gemm_run(ORDO_BACKEND_EMULATOR, &p, &call), ORDO_OK);
        CHECK_INT(c, out == ORDO_F32 ? 0x7fffffff : 0x7fff);
    }
}

CHECK_MAIN()
