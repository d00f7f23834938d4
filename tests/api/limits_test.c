/* limits_test.c: ordo_backend_query() says what plans and passes do. */
#include "api/cuda_pass.h"
#include "cuda_call.h"

static ordo_backend_limits limits_of(ordo_backend backend)
{
    ordo_backend_limits limits = ORDO_BACKEND_LIMITS_INIT;
    CHECK(ordo_backend_query(backend, &limits) == ORDO_OK);
    CHECK_INT(limits.size, sizeof limits);
    return limits;
}

static request on(ordo_backend backend)
{
    request r = backend == ORDO_BACKEND_CPU   ? on_host()
                : backend == ORDO_BACKEND_REF ? on_ref()
                                              : small();
    r.options.backend = backend;
    r.problem.q_len = r.problem.kv_len = 1;
    return r;
}

static bool plans(const request *r)
{
    ordo_plan *plan = NULL;
    const bool created = create(r, &plan) == ORDO_OK;
    ordo_plan_destroy(plan);
    return created;
}

TEST(types_and_largest_head_sizes_are_those_of_plans)
{
    for (int backend = ORDO_BACKEND_REF; backend <= ORDO_BACKEND_EMULATOR; backend++) {
        const ordo_backend_limits limits = limits_of((ordo_backend)backend);
        for (int dtype = 0; dtype < 3; dtype++) {
            request r = on((ordo_backend)backend);
            r.problem.dtype = (ordo_dtype)dtype;
            CHECK_INT(plans(&r), limits.dtypes >> dtype & 1);
        }
        request r = on((ordo_backend)backend);
        r.problem.head_dim = limits.head_dim_max;
        CHECK(plans(&r));
        r.problem.head_dim++;
        CHECK(!plans(&r));
    }
}

/* A pass refuses a head size exactly if the limits do. */
TEST(head_sizes_are_those_of_cuda_passes)
{
    const ordo_backend_limits limits = limits_of(ORDO_BACKEND_CUDA);
    CHECK(limits.unequal_head_dims);
    for (int64_t dim = 1; dim <= limits.head_dim_max; dim++)
        for (int64_t v_dim = dim; v_dim <= dim + 8 && v_dim <= limits.head_dim_max; v_dim += 8) {
            request r = on(ORDO_BACKEND_CUDA);
            ordo_cuda_pass pass;
            r.problem.head_dim = dim;
            r.problem.v_head_dim = v_dim;
            fixture *f = open_fixture(&r);
            const bool fits =
                dim % limits.head_dim_multiple == 0 && (limits.unequal_head_dims || v_dim == dim);
            const ordo_status status = ordo_cuda_pass_make(f->plan, ORDO_FORWARD, &f->call, &pass);
            if (status != (fits ? ORDO_OK : ORDO_ERR_UNSUPPORTED))
                CHECK_FAIL("head_dim %d, v_head_dim %d: %s", (int)dim, (int)v_dim,
                           ordo_status_name(status));
            close_fixture(f);
        }
}

TEST(alignment_is_that_of_cuda_passes)
{
    const ordo_backend_limits limits = limits_of(ORDO_BACKEND_CUDA);
    for (int64_t bytes = 2; bytes <= limits.tensor_align; bytes += 2) {
        const request r = on(ORDO_BACKEND_CUDA);
        ordo_cuda_pass pass;
        fixture *f = open_fixture(&r);
        f->call.q.data = (char *)f->call.q.data + bytes;
        CHECK_INT(ordo_cuda_pass_make(f->plan, ORDO_FORWARD, &f->call, &pass),
                  bytes == limits.tensor_align ? ORDO_OK : ORDO_ERR_ALIGN);
        close_fixture(f);
    }
    CHECK_INT(limits_of(ORDO_BACKEND_CPU).tensor_align, 0);
}

TEST(bits_of_keying_fa2_are_made_inside_or_given)
{
    request r = on(ORDO_BACKEND_CUDA);
    ordo_cuda_pass pass;
    r.problem.dropout = (ordo_dropout) { .p = 0.25, .keying = ORDO_KEYING_FA2 };
    fixture *f = open_fixture(&r);
    CHECK_INT(ordo_cuda_pass_make(f->plan, ORDO_FORWARD, &f->call, &pass),
              limits_of(ORDO_BACKEND_CUDA).makes_fa2_bits ? ORDO_OK : ORDO_ERR_UNSUPPORTED);
    f->call.keep_bits = (const uint32_t *)f->k;
    CHECK_INT(ordo_cuda_pass_make(f->plan, ORDO_FORWARD, &f->call, &pass), ORDO_OK);
    close_fixture(f);
    CHECK(limits_of(ORDO_BACKEND_CPU).makes_fa2_bits && limits_of(ORDO_BACKEND_REF).makes_fa2_bits);
    CHECK_INT(limits_of(ORDO_BACKEND_CPU).made_bits_head_dim_max, 576);
}

TEST(no_backend_and_no_struct)
{
    ordo_backend_limits limits = ORDO_BACKEND_LIMITS_INIT;
    CHECK_REFUSED(ordo_backend_query(ORDO_BACKEND_DEFAULT, &limits), ORDO_ERR_ARGUMENT,
                  "backend 0: expected ref, cpu, cuda or emulator");
    CHECK_REFUSED(ordo_backend_query(ORDO_BACKEND_CPU, NULL), ORDO_ERR_ARGUMENT, "limits NULL");
    limits.size = 0;
    CHECK_REFUSED(ordo_backend_query(ORDO_BACKEND_CPU, &limits), ORDO_ERR_ARGUMENT,
                  "ORDO_BACKEND_LIMITS_INIT");
}

CHECK_MAIN()
