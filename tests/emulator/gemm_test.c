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
