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

static void refuse_plan(ordo_gemm_problem p, ordo_backend backend, ordo_status status,
                        const char *message)
{
    ordo_gemm_plan *plan = (void *)&p;
    CHECK_REFUSED(ordo_gemm_plan_create(&plan, &p, backend), status, message);
    CHECK(plan == NULL);
}

TEST(wrong_problems_are_refused)
{
    static const struct {
        size_t field;
        int64_t value;
        bool is_int64;
        ordo_status status;
        const char *message;
    } cases[] = {
#define AT(field) offsetof(ordo_gemm_problem, field)
        { AT(m), -1, true, ORDO_ERR_ARGUMENT, "m -1: expected 0..2147483647" },
        { AT(n), -2, true, ORDO_ERR_ARGUMENT, "n -2" },
        { AT(k), INT64_C(1) << 31, true, ORDO_ERR_ARGUMENT, "k 2147483648" },
        { AT(dtype), 9, false, ORDO_ERR_ARGUMENT, "dtype 9 (unknown): backend emulator expects" },
        { AT(dtype), ORDO_F32, false, ORDO_ERR_UNSUPPORTED,
          "dtype 0 (f32): backend emulator expects bf16 or f16" },
        { AT(c_dtype), ORDO_F16, false, ORDO_ERR_ARGUMENT,
          "c_dtype 2 (f16): expected f32 or bf16" },
        { AT(sections), 3, false, ORDO_ERR_ARGUMENT, "sections 3: expected 1, 2, 4 or 8" },
        { AT(sections), -1, false, ORDO_ERR_ARGUMENT, "sections -1" },
        { AT(sections), 16, false, ORDO_ERR_ARGUMENT, "sections 16" },
        { AT(sections), 4, false, ORDO_ERR_SHAPE,
          "k 32: expected a multiple of 64 with 4 sections" },
    };
    for (size_t x = 0; x < sizeof cases / sizeof *cases; x++) {
        ordo_gemm_problem p = problem();
        const int narrow = (int)cases[x].value;
        if (cases[x].is_int64)
            memcpy((char *)&p + cases[x].field, &cases[x].value, sizeof cases[x].value);
        else
            memcpy((char *)&p + cases[x].field, &narrow, sizeof narrow);
        refuse_plan(p, ORDO_BACKEND_EMULATOR, cases[x].status, cases[x].message);
    }
    ordo_gemm_problem p = problem();
    p.size = 3;
    refuse_plan(p, ORDO_BACKEND_CPU, ORDO_ERR_ARGUMENT, "problem.size 3");
    p = problem(), p.add = true, p.c_dtype = ORDO_BF16;
    refuse_plan(p, ORDO_BACKEND_CPU, ORDO_ERR_ARGUMENT, "c_dtype bf16: expected f32 with add");
    p = problem(), p.m = p.n = INT64_C(1) << 40;
    refuse_plan(p, ORDO_BACKEND_CPU, ORDO_ERR_OVERFLOW, "expected less than 2^57 elements");
    refuse_plan(problem(), ORDO_BACKEND_DEFAULT, ORDO_ERR_ARGUMENT,
                "backend 0 (default): expected cpu, cuda or emulator");
    refuse_plan(problem(), ORDO_BACKEND_REF, ORDO_ERR_ARGUMENT, "backend 1 (ref)");
    CHECK_REFUSED(ordo_gemm_plan_create(NULL, &p, ORDO_BACKEND_CPU), ORDO_ERR_ARGUMENT,
                  "plan NULL");
}

/* A call is refused so, and writes nothing. */
static void refuse(const ordo_gemm_problem *p, ordo_backend backend, ordo_gemm_call call,
                   ordo_status status, const char *message)
{
    for (int x = 0; x < M * N; x++)
        c[x] = 7;
    CHECK_REFUSED(gemm_run(backend, p, &call), status, message);
    for (int x = 0; x < M * N; x++)
        CHECK(c[x] == 7);
}

TEST(wrong_calls_are_refused)
{
    const ordo_backend cpu = ORDO_BACKEND_CPU, cuda = ORDO_BACKEND_CUDA;
    const ordo_gemm_problem p = problem();
    ordo_gemm_problem with_bias = p, sections = p;
    with_bias.bias = true, sections.sections = 2;
    ordo_gemm_call call = valid();
    call.size = 5;
    refuse(&p, cpu, call, ORDO_ERR_ARGUMENT, "call.size 5");
    call = valid(), call.a.data = NULL;
    refuse(&p, cpu, call, ORDO_ERR_ARGUMENT, "a NULL: expected 128 bf16 values");
    call = valid(), call.c.data = NULL;
    refuse(&p, cpu, call, ORDO_ERR_ARGUMENT, "c NULL: expected 64 f32 values");
    call = valid(), call.b.stride = K - 1;
    refuse(&p, cpu, call, ORDO_ERR_SHAPE, "b.stride 31: expected at least 32");
    call = valid(), call.a.stride = -K;
    refuse(&p, cpu, call, ORDO_ERR_SHAPE, "a.stride -32");
    call = valid(), call.a.stride = INT64_C(1) << 40;
    refuse(&p, cpu, call, ORDO_ERR_OVERFLOW, "a.stride 1099511627776");
    call = valid(), call.a.data = (char *)a + 1;
    refuse(&p, cpu, call, ORDO_ERR_ALIGN, "a ");
    call = valid(), call.threads = -1;
    refuse(&p, cpu, call, ORDO_ERR_ARGUMENT, "threads -1");
    call = valid(), call.bias = bias;
    refuse(&p, cpu, call, ORDO_ERR_ARGUMENT, "bias given: expected NULL");
    refuse(&with_bias, cpu, valid(), ORDO_ERR_ARGUMENT, "bias NULL: expected 16 f32 values");
    call = valid(), call.c.data = a;
    refuse(&p, cpu, call, ORDO_ERR_ARGUMENT, "c and a overlap in memory");
    call = valid(), call.bias = c + N;
    refuse(&with_bias, cpu, call, ORDO_ERR_ARGUMENT, "c and bias overlap in memory");
    CHECK_REFUSED(ordo_gemm_run(NULL, &call), ORDO_ERR_ARGUMENT, "plan NULL");

    /* What only the device needs. */
    call = valid(), call.a.data = a + 1;
    refuse(&p, cuda, call, ORDO_ERR_ALIGN, "expected a multiple of 16");
    call = valid(), call.b.stride = K + 4;
    refuse(&p, cuda, call, ORDO_ERR_ALIGN, "b.stride 36: expected a multiple of 8 bf16 elements");
    call = valid(), call.c.stride = N + 2;
    refuse(&p, cuda, call, ORDO_ERR_ALIGN, "c.stride 18: expected a multiple of 4 f32 elements");
    refuse(&sections, cuda, valid(), ORDO_ERR_SHAPE, "workspace_bytes 0: expected at least 512");
    call = valid(), call.workspace = (char *)a + 16, call.workspace_bytes = 512;
    refuse(&sections, cuda, call, ORDO_ERR_ALIGN, "workspace");
}

TEST(a_plan_says_its_key_and_what_it_keeps)
{
    static const struct {
        ordo_backend backend;
        int sections;
        const char *key;
    } cases[] = { { ORDO_BACKEND_CPU, 0, "gemm.cpu.r1/s1" },
                  { ORDO_BACKEND_CUDA, 2, "gemm.sm90.r1/s2" },
                  { ORDO_BACKEND_EMULATOR, 2, "gemm.sm90.r1/s2" } };
    for (int x = 0; x < 3; x++) {
        ordo_gemm_problem p = problem();
        ordo_gemm_plan *plan = NULL;
        ordo_gemm_info info = ORDO_GEMM_INFO_INIT;
        p.sections = cases[x].sections;
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
    CHECK_INT(limits.dtypes, 1u << ORDO_BF16 | 1u << ORDO_F16);
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
