/* cuda_gemm_test.c: what of ordo_gemm_run() reaches the module, here one that stands for a device
 * and multiplies by chains (fake_module.so). */
#include "fake_load.h"
#include "gemm_case.h"

static float chain(ordo_dtype dtype, const uint32_t *a, const uint32_t *b, int64_t count)
{
    float sum = 0;
    for (int64_t x = 0; x < count; x++)
        sum += gemm_value(dtype, a[x]) * gemm_value(dtype, b[x]);
    return sum;
}

/* Every way to store A and B, with and without a bias and an addition, in rows with gaps. */
TEST(a_device_multiplies_what_was_asked_for)
{
    uint64_t state = 3;
    LOAD_FAKE(passes);
    for (int which = 0; which < 16; which++) {
        ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
        p.m = 24, p.n = 40, p.k = 16;
        p.dtype = which & 1 ? ORDO_F16 : ORDO_BF16;
        p.a_transposed = which & 2, p.b_transposed = which & 4;
        p.bias = p.add = which & 8;
        p.c_dtype = p.add ? ORDO_F32 : p.dtype;
        gemm_case c = gemm_make(&p, which & 1 ? 8 : 0, &state);
        c.call.threads = 0, c.call.stream = &state;
        gemm_check(&c, ORDO_BACKEND_CUDA, chain);
        CHECK_INT(passes->gemm, which + 1);
        CHECK(passes->last_gemm.stream == &state);
        CHECK_INT(passes->last_gemm.capability, 90);
        gemm_free(&c);
    }
}

/* The stand-in leaves C as it is. */
TEST(products_of_e4m3_reach_the_device_with_their_factor)
{
    static _Alignas(16) uint8_t a[2 * 16], b[8 * 16];
    static _Alignas(16) float c[2 * 8], factor = 0.5f;
    LOAD_FAKE(passes);
    ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
    ordo_gemm_call call = ORDO_GEMM_CALL_INIT;
    p.m = 2, p.n = 8, p.k = 10, p.dtype = ORDO_E4M3, p.b_transposed = true;
    call.a = (ordo_matrix) { a, 16 }, call.b = (ordo_matrix) { b, 16 }, call.c.data = c;
    call.scale = &factor;
    CHECK_INT(gemm_run(ORDO_BACKEND_CUDA, &p, &call), ORDO_OK);
    CHECK_INT(passes->last_gemm.in, ORDO_E4M3);
    CHECK_INT(passes->last_gemm.out, ORDO_F32);
    CHECK_INT(passes->last_gemm.k, 10);
    CHECK(!passes->last_gemm.a_rows_are_k && !passes->last_gemm.b_rows_are_k);
    CHECK(passes->last_gemm.scale == &factor);
}

TEST(sections_have_a_workspace_and_empty_products_no_launch)
{
    uint64_t state = 4;
    static _Alignas(256) char work[4 * 8 * 16 * 4];
    LOAD_FAKE(passes);
    ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
    p.m = 8, p.n = 16, p.k = 64, p.dtype = ORDO_BF16, p.sections = 4;
    gemm_case c = gemm_make(&p, 0, &state);
    c.call.workspace = work, c.call.workspace_bytes = sizeof work - 1;
    CHECK_REFUSED(gemm_run(ORDO_BACKEND_CUDA, &p, &c.call), ORDO_ERR_SHAPE,
                  "expected at least 2048");
    c.call.workspace_bytes++;
    CHECK_INT(gemm_run(ORDO_BACKEND_CUDA, &p, &c.call), ORDO_OK);
    CHECK_INT(passes->last_gemm.sections, 4);
    CHECK(passes->last_gemm.workspace == work);
    const int launched = passes->gemm;
    p.n = 0, p.sections = 1;
    CHECK_INT(gemm_run(ORDO_BACKEND_CUDA, &p, &c.call), ORDO_OK);
    CHECK_INT(passes->gemm, launched);
    gemm_free(&c);
}

CHECK_MAIN()
