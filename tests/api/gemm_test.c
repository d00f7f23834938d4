/* gemm_test.c: what the functions of ordo/gemm.h refuse and say; nothing is written then. */
#include "gemm_case.h"
#include "ordo/sum.h"

enum { M = 4, N = 16, K = 32 };

static _Alignas(16) uint16_t a[M * K + 8], b[N * K + 8], bias[N + 8];
static _Alignas(16) float c[M * N + 8];

static ordo_gemm_problem problem(void)
{
    ordo_gemm_problem p = ORDO_GEMM_PROBLEM_INIT;
    p.m = M, p.n = N, p.k = K, p.dtype = ORDO_BF16, p.b_transposed = true;
    return p;
}

static ordo_gemm_call valid(void)
{
    ordo_gemm_call call = ORDO_GEMM_CALL_INIT;
    call.a.data = a, call.b.data = b, call.c.data = c;
    return call;
}

/* A problem with this change has no plan. */
#define NO_PLAN(change, backend, status, message)                                                  \
    do {                                                                                           \
        ordo_gemm_problem p = problem();                                                           \
        ordo_gemm_plan *plan = (void *)&p;                                                         \
        change;                                                                                    \
        CHECK_REFUSED_AS(#change, ordo_gemm_plan_create(&plan, &p, ORDO_BACKEND_##backend),        \
                         ORDO_ERR_##status, message);                                              \
        CHECK(plan == NULL);                                                                       \
    } while (0)

TEST(wrong_problems_are_refused)
{
    NO_PLAN(p.m = -1, EMULATOR, ARGUMENT, "m -1: expected 0..2147483647");
    NO_PLAN(p.n = -2, EMULATOR, ARGUMENT, "n -2");
    NO_PLAN(p.k = INT64_C(1) << 31, EMULATOR, ARGUMENT, "k 2147483648");
    NO_PLAN(p.dtype = 9, EMULATOR, ARGUMENT, "dtype 9 (unknown): backend emulator expects");
    NO_PLAN(p.dtype = ORDO_F32, EMULATOR, UNSUPPORTED,
            "dtype 0 (f32): backend emulator expects bf16 or f16, or e4m3");
    NO_PLAN(p.c_dtype = ORDO_F16, EMULATOR, ARGUMENT, "c_dtype 2 (f16): expected f32 or bf16");
    NO_PLAN(p.sections = 3, EMULATOR, ARGUMENT, "sections 3: expected 1, 2, 4 or 8");
    NO_PLAN(p.sections = -1, EMULATOR, ARGUMENT, "sections -1");
    NO_PLAN(p.sections = 16, EMULATOR, ARGUMENT, "sections 16");
    NO_PLAN(p.sections = 4, EMULATOR, SHAPE, "k 32: expected a multiple of 64 with 4 sections");
    NO_PLAN(p.size = 3, CPU, ARGUMENT, "problem.size 3");
    NO_PLAN((p.add = true, p.c_dtype = ORDO_BF16), CPU, ARGUMENT,
            "c_dtype bf16: expected f32 with add");
    NO_PLAN(p.m = p.n = INT64_C(1) << 40, CPU, OVERFLOW, "expected less than 2^57 elements");
    NO_PLAN((void)p, DEFAULT, ARGUMENT, "backend 0 (default): expected cpu, cuda or emulator");
    NO_PLAN((void)p, REF, ARGUMENT, "backend 1 (ref)");
    NO_PLAN(p.dtype = ORDO_E4M3, CPU, UNSUPPORTED,
            "dtype 3 (e4m3): backend cpu expects bf16 or f16, or f32");
    NO_PLAN(p.c_dtype = ORDO_E4M3, CUDA, ARGUMENT, "c_dtype 3 (e4m3): expected f32 or bf16");
    NO_PLAN((p.dtype = p.c_dtype = ORDO_E4M3), CUDA, ARGUMENT,
            "c_dtype 3 (e4m3): expected f32, bf16 or f16");
    NO_PLAN((p.dtype = ORDO_E4M3, p.a_transposed = true), CUDA, UNSUPPORTED,
            "a_transposed true: expected false with dtype e4m3");
    NO_PLAN((p.dtype = ORDO_E4M3, p.b_transposed = false), CUDA, UNSUPPORTED,
            "b_transposed false: expected true with dtype e4m3");
    NO_PLAN((p.dtype = ORDO_E4M3, p.k = 33), CUDA, SHAPE, "k 33: expected an even number");
    NO_PLAN((p.dtype = ORDO_E4M3, p.sections = 2, p.k = 160), CUDA, SHAPE,
            "k 160: expected a multiple of 256 with 2 sections");
    const ordo_gemm_problem p = problem();
    CHECK_REFUSED(ordo_gemm_plan_create(NULL, &p, ORDO_BACKEND_CPU), ORDO_ERR_ARGUMENT,
                  "plan NULL");
}

/* A call with this change is refused so, and writes nothing. */
#define REFUSE(backend, change, status, message)                                                   \
    do {                                                                                           \
        ordo_gemm_problem p = problem();                                                           \
        ordo_gemm_call call = valid();                                                             \
        for (int x = 0; x < M * N; x++)                                                            \
            c[x] = 7;                                                                              \
        change;                                                                                    \
        CHECK_REFUSED_AS(#change, gemm_run(ORDO_BACKEND_##backend, &p, &call), ORDO_ERR_##status,  \
                         message);                                                                 \
        for (int x = 0; x < M * N; x++)                                                            \
            CHECK(c[x] == 7);                                                                      \
    } while (0)

TEST(wrong_calls_are_refused)
{
    REFUSE(CPU, call.size = 5, ARGUMENT, "call.size 5");
    REFUSE(CPU, call.a.data = NULL, ARGUMENT, "a NULL: expected 128 bf16 values");
    REFUSE(CPU, call.c.data = NULL, ARGUMENT, "c NULL: expected 64 f32 values");
    REFUSE(CPU, call.b.stride = K - 1, SHAPE, "b.stride 31: expected at least 32");
    REFUSE(CPU, call.a.stride = -K, SHAPE, "a.stride -32");
    REFUSE(CPU, call.a.stride = INT64_C(1) << 40, OVERFLOW, "a.stride 1099511627776");
    REFUSE(CPU, call.a.data = (char *)a + 1, ALIGN, "a ");
    REFUSE(CPU, call.threads = -1, ARGUMENT, "threads -1");
    REFUSE(CPU, call.bias = bias, ARGUMENT, "bias given: expected NULL");
    REFUSE(CPU, p.bias = true, ARGUMENT, "bias NULL: expected 16 f32 values");
    REFUSE(CPU, call.c.data = a, ARGUMENT, "c and a overlap in memory");
    REFUSE(CPU, (p.bias = true, call.bias = c + N), ARGUMENT, "c and bias overlap in memory");
    const ordo_gemm_call fine = valid();
    CHECK_REFUSED(ordo_gemm_run(NULL, &fine), ORDO_ERR_ARGUMENT, "plan NULL");

    /* What only the device needs. */
    REFUSE(CUDA, call.a.data = a + 1, ALIGN, "expected a multiple of 16");
    REFUSE(CUDA, call.b.stride = K + 4, ALIGN,
           "b.stride 36: expected a multiple of 8 bf16 elements");
    REFUSE(CUDA, call.c.stride = N + 2, ALIGN,
           "c.stride 18: expected a multiple of 4 f32 elements");
    REFUSE(CUDA, p.sections = 2, SHAPE, "workspace_bytes 0: expected at least 512");
    REFUSE(CUDA, (p.sections = 2, call.workspace = (char *)a + 16, call.workspace_bytes = 512),
           ALIGN, "workspace");
    REFUSE(CUDA, call.scale = c, ARGUMENT, "scale given: expected NULL with dtype bf16");
    REFUSE(CUDA, (p.dtype = ORDO_E4M3, call.scale = c), ARGUMENT, "c and scale overlap in memory");
    REFUSE(CUDA, (p.dtype = ORDO_E4M3, call.scale = (float *)((char *)bias + 2)), ALIGN, "scale ");
    REFUSE(CUDA, (p.dtype = ORDO_E4M3, call.b.stride = K + 8), ALIGN,
           "b.stride 40: expected a multiple of 16 e4m3 elements");
}

TEST(a_plan_says_its_key_and_what_it_keeps)
{
    static const struct {
        ordo_backend backend;
        int sections;
        ordo_dtype dtype;
        const char *key;
    } cases[] = { { ORDO_BACKEND_CPU, 0, ORDO_BF16, "gemm.cpu.r1/s1" },
                  { ORDO_BACKEND_CUDA, 2, ORDO_BF16, "gemm.sm90.r1/s2" },
                  { ORDO_BACKEND_CUDA, 2, ORDO_E4M3, "gemm-e4m3.sm90.r1/s2" },
                  { ORDO_BACKEND_EMULATOR, 2, ORDO_BF16, "gemm.sm90.r1/s2" } };
    for (int x = 0; x < 4; x++) {
        ordo_gemm_problem p = problem();
        ordo_gemm_plan *plan = NULL;
        ordo_gemm_info info = ORDO_GEMM_INFO_INIT;
        p.sections = cases[x].sections, p.dtype = cases[x].dtype, p.k = 256;
        CHECK_INT(ordo_gemm_plan_create(&plan, &p, cases[x].backend), ORDO_OK);
        CHECK_INT(ordo_gemm_plan_query(plan, &info), ORDO_OK);
        CHECK_TEXT(info.numeric_key, cases[x].key);
        CHECK_INT(info.backend, cases[x].backend);
        CHECK_INT(info.kept, ORDO_PROMISE_REPEAT | ORDO_PROMISE_PORTABLE | ORDO_PROMISE_BATCH |
                                 ORDO_PROMISE_SPLIT);
        CHECK_INT(info.workspace_bytes, cases[x].backend == ORDO_BACKEND_CUDA ? 512 : 0);
        CHECK_REFUSED(ordo_gemm_plan_query(plan, NULL), ORDO_ERR_ARGUMENT, "info NULL");
        ordo_gemm_plan_destroy(plan);
    }
    ordo_gemm_plan_destroy(NULL);
}

TEST(a_backend_says_what_it_accepts)
{
    ordo_gemm_limits limits = ORDO_GEMM_LIMITS_INIT;
    CHECK_INT(ordo_gemm_query(ORDO_BACKEND_CUDA, &limits), ORDO_OK);
    CHECK_INT(limits.dtypes, 1u << ORDO_BF16 | 1u << ORDO_F16 | 1u << ORDO_E4M3);
    CHECK_INT(limits.align, 16);
    CHECK_INT(ordo_gemm_query(ORDO_BACKEND_CPU, &limits), ORDO_OK);
    CHECK(limits.dtypes & 1u << ORDO_F32);
    CHECK_INT(limits.align, 0);
    CHECK_REFUSED(ordo_gemm_query(ORDO_BACKEND_REF, &limits), ORDO_ERR_ARGUMENT, "backend 1 (ref)");
    CHECK_REFUSED(ordo_gemm_query(ORDO_BACKEND_CPU, NULL), ORDO_ERR_ARGUMENT, "limits NULL");
}

/* Without elements C is not touched; without terms every sum is 0. */
TEST(empty_products_are_products)
{
    const ordo_backend backends[] = { ORDO_BACKEND_CPU, ORDO_BACKEND_EMULATOR };
    for (int x = 0; x < 2; x++) {
        ordo_gemm_problem p = problem();
        ordo_gemm_call call = ORDO_GEMM_CALL_INIT;
        p.m = 0;
        call.b.data = b;
        CHECK_INT(gemm_run(backends[x], &p, &call), ORDO_OK);
        p = problem(), p.k = 0;
        call = (ordo_gemm_call)ORDO_GEMM_CALL_INIT;
        call.c.data = c;
        c[0] = c[M * N - 1] = 7;
        CHECK_INT(gemm_run(backends[x], &p, &call), ORDO_OK);
        CHECK(c[0] == 0 && c[M * N - 1] == 0);
        p.add = true;
        c[1] = 7;
        CHECK_INT(gemm_run(backends[x], &p, &call), ORDO_OK);
        CHECK(c[1] == 7);
    }
}

/* 8 sections are what 8, 4 or 2 ranks with a part of k each compute, added by ordo_sum_tree(). */
TEST(parts_of_k_added_by_the_tree_are_sections)
{
    uint64_t state = 8;
    const ordo_backend backends[] = { ORDO_BACKEND_CPU, ORDO_BACKEND_EMULATOR };
    ordo_gemm_problem p = problem();
    p.k = 256, p.sections = 8;
    for (int x = 0; x < 2; x++)
        for (int ranks = 1; ranks <= 8; ranks *= 2) {
            float parts[8][M * N], sum[M * N];
            const void *inputs[8];
            gemm_case whole = gemm_make(&p, 0, &state);
            CHECK_INT(gemm_run(backends[x], &p, &whole.call), ORDO_OK);
            ordo_gemm_problem part = p;
            part.k = p.k / ranks, part.sections = p.sections / ranks;
            for (int r = 0; r < ranks; r++) {
                ordo_gemm_call call = whole.call;
                call.a.data = (uint16_t *)whole.call.a.data + r * part.k;
                call.b.data = (uint16_t *)whole.call.b.data + r * part.k;
                call.c.data = parts[r];
                inputs[r] = parts[r];
                CHECK_INT(gemm_run(backends[x], &part, &call), ORDO_OK);
            }
            ordo_sum tree = ORDO_SUM_INIT;
            tree.count = ranks, tree.elements = M * N, tree.inputs = inputs, tree.out = sum;
            CHECK_INT(ordo_sum_tree(&tree), ORDO_OK);
            CHECK_BITS(sum, (const float *)whole.call.c.data, M * N);
            gemm_free(&whole);
        }
}

CHECK_MAIN()
