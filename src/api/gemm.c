/* gemm.c: the public functions of matrix products: checks, then the backend. */
#include "ordo/gemm.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/cuda_gemm.h"
#include "api/limits.h"
#include "api/overlap.h"
#include "base/checked.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "cpu/gemm.h"
#include "emulator/gemm.h"

enum {
    WORKSPACE_ALIGN = 256,
    STRIDE_BITS = 40 /* bytes of a stride that the hardware's descriptions of matrices hold */
};

/* What a backend accepts; NULL: it has no products. */
static const ordo_gemm_limits *limits_of(ordo_backend backend)
{
    static const ordo_gemm_limits host = { .dtypes =
                                               1u << ORDO_F32 | 1u << ORDO_BF16 | 1u << ORDO_F16,
                                           .size_max = INT64_C(1) << 40 },
                                  emulator = { .dtypes = 1u << ORDO_BF16 | 1u << ORDO_F16 |
                                                         1u << ORDO_E4M3,
                                               .size_max = INT32_MAX },
                                  cuda = { .dtypes =
                                               1u << ORDO_BF16 | 1u << ORDO_F16 | 1u << ORDO_E4M3,
                                           .align = ORDO_CUDA_COPY_BYTES,
                                           .size_max = INT32_MAX };
    switch (backend) {
    case ORDO_BACKEND_CPU: return &host;
    case ORDO_BACKEND_CUDA: return &cuda;
    case ORDO_BACKEND_EMULATOR: return &emulator;
    default: return NULL;
    }
}

static ordo_status no_products(ordo_backend backend)
{
    return ordo_fail(ORDO_ERR_ARGUMENT, "backend %d (%s): expected cpu, cuda or emulator",
                     (int)backend, ordo_backend_name(backend));
}

ordo_status ordo_gemm_query(ordo_backend backend, ordo_gemm_limits *limits)
{
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_gemm_limits, "limits", ORDO_GEMM_LIMITS_INIT, NULL);
    const ordo_gemm_limits *found = limits_of(backend);
    ORDO_TRY(ordo_check_pointer("limits", limits));
    return found ? ordo_versioned_answer(limits, found, &kind) : no_products(backend);
}

/* ---- plans ---- */

static ordo_status check_types(const ordo_gemm_problem *p, ordo_backend backend)
{
    const bool e4m3 = p->dtype == ORDO_E4M3, known = e4m3 || (unsigned)p->dtype <= ORDO_F16;
    if (!known || !(limits_of(backend)->dtypes & 1u << p->dtype))
        return ordo_fail(known ? ORDO_ERR_UNSUPPORTED : ORDO_ERR_ARGUMENT,
                         "dtype %d (%s): backend %s expects bf16 or f16%s", (int)p->dtype,
                         ordo_dtype_name(p->dtype), ordo_backend_name(backend),
                         backend == ORDO_BACKEND_CPU ? ", or f32" : ", or e4m3");
    if (e4m3 && (unsigned)p->c_dtype > ORDO_F16)
        return ordo_fail(ORDO_ERR_ARGUMENT, "c_dtype %d (%s): expected f32, bf16 or f16",
                         (int)p->c_dtype, ordo_dtype_name(p->c_dtype));
    if (e4m3 && (p->a_transposed || !p->b_transposed))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%s: expected %s with dtype e4m3, whose products read rows of k",
                         p->a_transposed ? "a_transposed true" : "b_transposed false",
                         p->a_transposed ? "false" : "true");
    if (!e4m3 && p->c_dtype != ORDO_F32 && p->c_dtype != p->dtype)
        return ordo_fail(ORDO_ERR_ARGUMENT, "c_dtype %d (%s): expected f32 or %s, as dtype is",
                         (int)p->c_dtype, ordo_dtype_name(p->c_dtype), ordo_dtype_name(p->dtype));
    if (p->add && p->c_dtype != ORDO_F32)
        return ordo_fail(ORDO_ERR_ARGUMENT, "c_dtype %s: expected f32 with add",
                         ordo_dtype_name(p->c_dtype));
    return ORDO_OK;
}

static ordo_status check_problem(const ordo_gemm_problem *p, ordo_backend backend)
{
    const int64_t most = limits_of(backend)->size_max;
    const int64_t step =
        (int64_t)(p->dtype == ORDO_E4M3 ? ORDO_GEMM_CHAIN : ORDO_GEMM_STEP) * p->sections;
    ORDO_TRY(check_types(p, backend));
    ORDO_TRY(ordo_check_range("m", p->m, 0, most));
    ORDO_TRY(ordo_check_range("n", p->n, 0, most));
    ORDO_TRY(ordo_check_range("k", p->k, 0, most));
    if (p->sections != 1 && p->sections != 2 && p->sections != 4 && p->sections != 8)
        return ordo_fail(ORDO_ERR_ARGUMENT, "sections %d: expected 1, 2, 4 or 8", p->sections);
    if (p->dtype == ORDO_E4M3 && p->k % 2 != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "k %" PRId64 ": expected an even number with dtype e4m3",
                         p->k);
    if (p->sections > 1 && p->k % step != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "k %" PRId64 ": expected a multiple of %" PRId64 " with %d sections", p->k,
                         step, p->sections);
    uint64_t bytes = 8 * sizeof(float); /* a bound for C, and for the sums of all sections */
    if (!ordo_mul_fits(&bytes, (uint64_t)p->m + 3) || !ordo_mul_fits(&bytes, (uint64_t)p->n + 3) ||
        bytes >> 62)
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "m %" PRId64 " and n %" PRId64 ": expected less than 2^57 elements", p->m,
                         p->n);
    return ORDO_OK;
}

ordo_status ordo_gemm_plan_create(ordo_gemm_plan **plan, const ordo_gemm_problem *problem,
                                  ordo_backend backend)
{
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_gemm_problem, "problem", ORDO_GEMM_PROBLEM_INIT, NULL);
    ordo_gemm_problem known;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    *plan = NULL;
    ORDO_TRY(ordo_check_pointer("problem", problem));
    if (!limits_of(backend))
        return no_products(backend);
    ORDO_TRY(ordo_versioned_copy(&known, problem, &kind));
    known.sections += known.sections == 0;
    ORDO_TRY(check_problem(&known, backend));
    ordo_gemm_plan *made = calloc(1, sizeof *made);
    if (!made)
        return ordo_fail(ORDO_ERR_MEMORY, "plan: out of memory");
    *made = (ordo_gemm_plan) { known, backend, ordo_family_first(backend) };
    *plan = made;
    return ORDO_OK;
}

void ordo_gemm_plan_destroy(ordo_gemm_plan *plan)
{
    free(plan);
}

ordo_status ordo_gemm_plan_query(const ordo_gemm_plan *plan, ordo_gemm_info *info)
{
    static const ordo_nested nested[] = { ORDO_NESTED(ordo_gemm_info, numeric_key), { 0 } };
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_gemm_info, "info", ORDO_GEMM_INFO_INIT, nested);
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("info", info));
    ordo_gemm_info found = { .backend = plan->backend, .kept = ordo_gemm_promise(plan) };
    if (plan->backend == ORDO_BACKEND_CUDA)
        found.workspace_bytes = ordo_cuda_gemm_workspace(plan);
    ordo_gemm_key(plan, found.numeric_key, sizeof found.numeric_key);
    return ordo_versioned_answer(info, &found, &kind);
}

/* ---- execution ---- */

/* A matrix as it is stored. */
typedef struct stored {
    const char *name;
    ordo_matrix *matrix;
    int64_t rows, columns;
    ordo_dtype dtype;
} stored;

static int64_t width_of(ordo_dtype dtype)
{
    return dtype == ORDO_F32 ? 4 : dtype == ORDO_E4M3 ? 1 : 2;
}

static ordo_status check_address(const char *name, const void *data, ordo_dtype dtype,
                                 int64_t elements, int64_t align)
{
    if (!data)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected %" PRId64 " %s values", name,
                         elements, ordo_dtype_name(dtype));
    return ordo_check_aligned(name, data, (size_t)(align ? align : width_of(dtype)));
}

/* Check a matrix, fill in its stride, and describe its memory. */
static ordo_status check_matrix(const stored *s, int64_t align, ordo_extent *extent)
{
    const int64_t width = width_of(s->dtype);
    ordo_matrix *matrix = s->matrix;
    *extent = (ordo_extent) { .name = s->name };
    if (matrix->stride == 0)
        matrix->stride = s->columns;
    if (matrix->stride < s->columns)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "%s.stride %" PRId64 ": expected at least %" PRId64 ", the elements of a "
                         "row, or 0",
                         s->name, matrix->stride, s->columns);
    if (s->rows == 0 || s->columns == 0)
        return ORDO_OK;
    ORDO_TRY(check_address(s->name, matrix->data, s->dtype, s->rows * s->columns, align));
    if (matrix->stride >= (INT64_C(1) << STRIDE_BITS) / width)
        return ordo_fail(ORDO_ERR_OVERFLOW, "%s.stride %" PRId64 ": expected less than 2^%d bytes",
                         s->name, matrix->stride, STRIDE_BITS);
    if (align && matrix->stride * width % align != 0)
        return ordo_fail(ORDO_ERR_ALIGN,
                         "%s.stride %" PRId64 ": expected a multiple of %" PRId64 " %s elements",
                         s->name, matrix->stride, align / width, ordo_dtype_name(s->dtype));
    *extent = (ordo_extent) { s->name,
                              (uintptr_t)matrix->data,
                              width,
                              { s->rows, s->columns, 1, 1 },
                              { matrix->stride * width, width, 0, 0 } };
    int64_t bytes;
    if (!ordo_extent_bytes(extent, &bytes))
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "%s of %" PRId64 " rows and stride %" PRId64
                         ": expected less than 2^62 bytes",
                         s->name, s->rows, matrix->stride);
    return ORDO_OK;
}

static ordo_status check_workspace(const ordo_gemm_call *c, uint64_t needed, ordo_extent *extent)
{
    *extent = (ordo_extent) { .name = "workspace" };
    if (needed == 0)
        return ORDO_OK;
    if (!c->workspace || c->workspace_bytes < needed)
        return ordo_fail(ORDO_ERR_SHAPE, "workspace_bytes %zu: expected at least %" PRIu64,
                         c->workspace ? c->workspace_bytes : 0, needed);
    ORDO_TRY(ordo_check_aligned("workspace", c->workspace, WORKSPACE_ALIGN));
    *extent = (ordo_extent) {
        "workspace", (uintptr_t)c->workspace, 1, { (int64_t)needed, 1, 1, 1 }, { 1, 0, 0, 0 }
    };
    return ORDO_OK;
}

/* Check everything, and fill in strides. */
static ordo_status check_call(const ordo_gemm_plan *plan, ordo_gemm_call *c)
{
    enum { A, B, BIAS, SCALE, WORKSPACE, INPUTS };
    const ordo_gemm_problem *p = &plan->problem;
    const int64_t align = limits_of(plan->backend)->align;
    const stored a = { "a", &c->a, p->a_transposed ? p->k : p->m, p->a_transposed ? p->m : p->k,
                       p->dtype },
                 b = { "b", &c->b, p->b_transposed ? p->n : p->k, p->b_transposed ? p->k : p->n,
                       p->dtype },
                 of_c = { "c", &c->c, p->m, p->n, p->c_dtype };
    ordo_matrix bias_row = { (void *)c->bias, 0 };
    const stored bias = { "bias", &bias_row, p->bias ? 1 : 0, p->n, p->c_dtype };
    ordo_matrix factor = { (void *)c->scale, 0 };
    const stored scale = { "scale", &factor, c->scale ? 1 : 0, 1, ORDO_F32 };
    ordo_extent in[INPUTS], out;
    if (c->threads < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "threads %d: expected 0 or more", c->threads);
    ORDO_TRY(check_matrix(&a, align, &in[A]));
    ORDO_TRY(check_matrix(&b, align, &in[B]));
    ORDO_TRY(check_matrix(&of_c, align, &out));
    ORDO_TRY(check_matrix(&bias, 0, &in[BIAS]));
    if (!p->bias && c->bias)
        return ordo_fail(ORDO_ERR_ARGUMENT, "bias given: expected NULL, because the problem has "
                                            "none");
    ORDO_TRY(check_matrix(&scale, 0, &in[SCALE]));
    if (p->dtype != ORDO_E4M3 && c->scale)
        return ordo_fail(ORDO_ERR_ARGUMENT, "scale given: expected NULL with dtype %s",
                         ordo_dtype_name(p->dtype));
    ordo_gemm_info info = ORDO_GEMM_INFO_INIT;
    ORDO_TRY(ordo_gemm_plan_query(plan, &info));
    ORDO_TRY(check_workspace(c, info.workspace_bytes, &in[WORKSPACE]));
    for (int i = 0; i < INPUTS; i++)
        for (int j = 0; j < 2; j++) { /* C meets nothing, and the workspace nothing */
            const ordo_extent *x = &in[i], *y = j ? &in[WORKSPACE] : &out;
            if (x != y && x->width && y->width && ordo_extent_overlap(x, y))
                return ordo_fail(ORDO_ERR_ARGUMENT,
                                 "%s and %s overlap in memory: expected outputs that overlap "
                                 "nothing",
                                 y->name, x->name);
        }
    return ORDO_OK;
}

ordo_status ordo_gemm_run(const ordo_gemm_plan *plan, const ordo_gemm_call *call)
{
    static const ordo_nested nested[] = { ORDO_NESTED(ordo_gemm_call, a),
                                          ORDO_NESTED(ordo_gemm_call, b),
                                          ORDO_NESTED(ordo_gemm_call, c),
                                          { 0 } };
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_gemm_call, "call", ORDO_GEMM_CALL_INIT, nested);
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_gemm_call c;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("call", call));
    ORDO_TRY(ordo_versioned_copy(&c, call, &kind));
    ORDO_TRY(check_call(plan, &c));
    if (plan->backend == ORDO_BACKEND_CUDA)
        return ordo_cuda_gemm_run(plan, &c);
    if (plan->problem.m == 0 || plan->problem.n == 0)
        return ORDO_OK;
    return plan->backend == ORDO_BACKEND_CPU ? ordo_cpu_gemm(&plan->problem, &c, NULL, NULL)
                                             : ordo_emulator_gemm(&plan->problem, &c);
}
