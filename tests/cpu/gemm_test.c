/* gemm_test.c: matrix products of the CPU backend, on every target: the bits of one chain of
 * multiplications and additions per section, whatever the shape, and rows alone. */
#include "gemm_case.h"

#include "cpu/kernels.h"

static float chain(ordo_dtype dtype, const uint32_t *a, const uint32_t *b, int64_t count)
{
    float sum = 0;
    for (int64_t x = 0; x < count; x++) {
        const float product = gemm_value(dtype, a[x]) * gemm_value(dtype, b[x]);
        sum = sum + product;
    }
    return sum;
}

static const char *const targets[] = { "generic", "neon", "avx2", "avx512" };

TEST(elements_and_rows_have_fixed_bits_on_every_target)
{
    for (int x = 0; x < 4; x++) {
        const ordo_kernels *kernels = ordo_cpu_kernels_named(targets[x]);
        if (!kernels)
            continue;
        ordo_cpu_kernels_force(kernels);
        gemm_check_drawn(ORDO_BACKEND_CPU, chain, 60, 48);
    }
    ordo_cpu_kernels_force(NULL);
}

/* In f32 a fused multiply-add would round elsewhere. */
TEST(products_of_f32_are_rounded)
{
    uint64_t state = 5;
    ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
    p.m = p.n = 40;
    p.k = GEMM_MOST_K;
    p.dtype = ORDO_F32;
    gemm_case c = gemm_make(&p, 0, &state);
    gemm_check(&c, ORDO_BACKEND_CPU, chain);
    gemm_free(&c);
}

TEST(a_nan_is_the_canonical_one)
{
    const float a[] = { INFINITY, 1 }, b[] = { 0, 1 };
    float c = 0;
    ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
    p.m = p.n = 1, p.k = 2, p.dtype = ORDO_F32;
    ordo_gemm_call call = ORDO_GEMM_CALL_INIT;
    call.a.data = (void *)a, call.b.data = (void *)b, call.c.data = &c;
    CHECK_INT(gemm_run(ORDO_BACKEND_CPU, &p, &call), ORDO_OK);
    CHECK_INT(ordo_f32_bits(c), ORDO_F32_NAN);
}

CHECK_MAIN()
