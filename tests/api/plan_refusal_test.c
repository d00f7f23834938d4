/* plan_refusal_test.c: what a plan cannot be is refused before anything happens, by the name of
 * the choice, its value and what was expected. */
#include "plan_requests.h"

static void refuse(const request *r, const char *what, ordo_status status, const char *first,
                   const char *second)
{
    ordo_plan *plan = (ordo_plan *)&check_failures; /* must be overwritten */
    CHECK_REFUSED_AS(what, create(r, &plan), status, first, second);
    CHECK(plan == NULL);
}

#define REFUSE(base, change, status, first, second)                                                \
    do {                                                                                           \
        request r = base();                                                                        \
        ordo_problem *p = &r.problem;                                                              \
        ordo_plan_options *o = &r.options;                                                         \
        (void)p;                                                                                   \
        (void)o;                                                                                   \
        change;                                                                                    \
        refuse(&r, #base ": " #change, status, first, second);                                     \
    } while (0)

#define ARGUMENT    ORDO_ERR_ARGUMENT
#define UNSUPPORTED ORDO_ERR_UNSUPPORTED

TEST(what_backends_cannot_do_is_refused_by_name)
{
    REFUSE(on_h200, p->dtype = ORDO_F32, UNSUPPORTED, "dtype f32", "expected bf16 or f16");
    REFUSE(on_h200, r.machine = "a100", UNSUPPORTED, "no kernels for sm80", "expected sm90");
    REFUSE(on_h200, r.machine = "b200", UNSUPPORTED, "no kernels for sm100", "expected sm90");
    REFUSE(on_h200, o->backend = ORDO_BACKEND_CPU, UNSUPPORTED, "backend cpu",
           "machine h200 is a GPU; expected a CPU");
    REFUSE(on_host, o->backend = ORDO_BACKEND_CUDA, UNSUPPORTED, "backend cuda",
           "machine host is a CPU; expected a GPU");
    REFUSE(on_host, (r.machine = NULL, o->backend = ORDO_BACKEND_CUDA), UNSUPPORTED, "backend cuda",
           "is a CPU");
    REFUSE(on_host, (o->order = ORDO_ORDER_SHIFT, p->mask = ORDO_MASK_FULL), UNSUPPORTED,
           "order shift", "backend cpu expects an order whose chains wait only on earlier ones");
    REFUSE(on_host, o->order = ORDO_ORDER_SYMMETRIC, UNSUPPORTED, "order symmetric", "4 chains");
    REFUSE(on_host,
           (o->order = ORDO_ORDER_TWIN, o->assign = ORDO_ASSIGN_PINNED, o->issue = ORDO_ISSUE_HEAD,
            o->workers = 16),
           UNSUPPORTED, "order twin, assign pinned", "8 chains");
    REFUSE(on_host, o->split = 2, UNSUPPORTED, "split 2", "backend cpu expects 1");
    REFUSE(on_ref, o->order = ORDO_ORDER_DESCENDING, UNSUPPORTED, "backend ref", "order");
    REFUSE(on_ref, o->backward_tile = ((ordo_tile) { 64, 64 }), UNSUPPORTED, "backend ref",
           "tiles");
    REFUSE(on_ref, o->forward_tile = ((ordo_tile) { 1, 2 }), UNSUPPORTED, "backend ref", "tiles");
    REFUSE(on_ref, o->group = 4, ARGUMENT, "group 4", "order ascending has no groups");
}

/* What no CUDA pass can run is no CUDA plan. */
TEST(what_cuda_kernels_cannot_do_is_refused_by_name)
{
    REFUSE(on_h200, p->softcap = 16385, UNSUPPORTED, "softcap 16385", "0 (off) or 2^-10 to 2^14");
    REFUSE(on_h200, (p->bias.on = true, p->softcap = 30), UNSUPPORTED, "softcap 30, bias.on true",
           "backend cpu runs both");
    REFUSE(on_h200, (p->bias.on = true, p->blocks.entries = 4), UNSUPPORTED,
           "block mask, bias.on true", "backend cpu runs both");
    REFUSE(on_h200, (p->bias.on = true, p->head_dim = p->v_head_dim = 136), UNSUPPORTED,
           "head_dim 136, v_head_dim 136, bias.on true", "at most 128; backend cpu runs it");
    REFUSE(on_h200, p->softcap = 9e-4, UNSUPPORTED, "softcap 0.0009", "0 (off) or 2^-10 to 2^14");
    REFUSE(on_h200, o->split = 2, UNSUPPORTED, "split 2", "backend cuda expects 1");
    REFUSE(on_h200, o->forward_tile = ((ordo_tile) { 192, 128 }), UNSUPPORTED,
           "forward_tile 192x128", "backend cuda expects 128x128");
    REFUSE(on_h200, o->backward_tile = ((ordo_tile) { 128, 128 }), UNSUPPORTED,
           "backward_tile 128x128", "backend cuda expects 64x128");
    REFUSE(on_h200, (p->layout = ORDO_PADDED, o->order = ORDO_ORDER_SHIFT, o->group = 1),
           UNSUPPORTED, "order shift, layout padded", "ascending, descending, spt or spt+tail");
    REFUSE(on_h200, (r = packed(r), o->order = ORDO_ORDER_TWIN), UNSUPPORTED,
           "order twin, layout packed", "ascending, descending, spt or spt+tail");
    REFUSE(on_h200, (r = packed(r), o->order = ORDO_ORDER_SYMMETRIC), UNSUPPORTED,
           "order symmetric, layout packed", "ascending, descending, spt or spt+tail");
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++) { /* above 128 two run */
        request r = on_h200();
        r.options.order = (ordo_order)order;
        for (r.problem.head_dim = 136; r.problem.head_dim <= 512; r.problem.head_dim += 376)
            if (order == ORDO_ORDER_ASCENDING || order == ORDO_ORDER_DESCENDING)
                CHECK_INT(info_of(&r).order, order);
            else
                refuse(&r, ordo_order_name(r.options.order), UNSUPPORTED,
                       r.problem.head_dim == 136 ? "head_dim 136" : "head_dim 512",
                       "backend cuda expects ascending or descending above 128");
        r.problem.head_dim = 128;
        CHECK_INT(info_of(&r).order_asked, order);
    }
}

/* Packed and padded batches may hold a sequence that needs more residents than the longest. */
TEST(residency_is_that_of_any_lengths_a_batch_may_hold)
{
    REFUSE(on_host, (r = packed(r), o->order = ORDO_ORDER_SYMMETRIC, p->kv_len = 2048), UNSUPPORTED,
           "order symmetric", "4 chains");
    REFUSE(on_host,
           (p->layout = ORDO_PADDED, o->order = ORDO_ORDER_TWIN, o->assign = ORDO_ASSIGN_PINNED,
            o->issue = ORDO_ISSUE_HEAD, o->workers = 3),
           UNSUPPORTED, "order twin, assign pinned", "3 chains");
    request r = packed(on_h200());
    r.problem.kv_len = 2048;
    ordo_plan *plan = make_study(&r, ORDO_ORDER_SYMMETRIC, (ordo_tile) { 64, 128 });
    CHECK_INT(ordo_plan_coresident(plan), 4); /* 1024 rows and keys: 8 key tiles of 128 */
    ordo_plan_destroy(plan);
}

TEST(choices_out_of_range_are_refused_by_name)
{
    REFUSE(on_h200, o->group = 4, ARGUMENT, "group 4", "order descending has no groups");
    REFUSE(on_h200, (o->order = ORDO_ORDER_SHIFT, o->group = -5), ARGUMENT, "group -5",
           "expected 1..");
    REFUSE(on_h200, (o->order = ORDO_ORDER_SHIFT, o->group = (INT64_C(1) << 30) + 1), ARGUMENT,
           "group 1073741825", "expected 1..1073741824");
    REFUSE(on_h200, (o->order = ORDO_ORDER_SHIFT, o->group = 200, p->q_len = 32768), UNSUPPORTED,
           "group 200: 200 chains must be resident together", "workers 132");
    REFUSE(on_h200, (o->order = ORDO_ORDER_SYMMETRIC, o->workers = 3), UNSUPPORTED,
           "order symmetric, group 16: 4 chains", "workers 3");
    REFUSE(on_h200, (o->order = ORDO_ORDER_SHIFT, o->group = ORDO_GROUP_WAVES, r = packed(r)),
           UNSUPPORTED, "group waves", "layout packed");
    REFUSE(on_h200,
           (o->order = ORDO_ORDER_SHIFT, o->group = ORDO_GROUP_WAVES, o->issue = ORDO_ISSUE_KEY),
           UNSUPPORTED, "group waves", "issue key");
    REFUSE(on_h200, (o->issue = ORDO_ISSUE_HEAD, o->section = 4), ARGUMENT, "section 4",
           "issue head has no sections");
    REFUSE(on_host, o->section = -4, ARGUMENT, "section -4", "expected 1..16");
    REFUSE(on_h200, o->section = -4, ARGUMENT, "section -4", "expected 1..16");
    REFUSE(on_h200, o->section = 17, ARGUMENT, "section 17", "expected 1..16");
    REFUSE(on_h200, o->forward_tile = ((ordo_tile) { 0, 64 }), ARGUMENT, "forward_tile 0x64",
           "1..4096");
    REFUSE(on_h200, o->backward_tile = ((ordo_tile) { 64, 0 }), ARGUMENT, "backward_tile 64x0",
           "1..4096");
    REFUSE(on_h200, o->backward_tile = ((ordo_tile) { -64, 64 }), ARGUMENT, "backward_tile -64x64",
           "1..4096");
    REFUSE(on_h200, o->backward_tile = ((ordo_tile) { 64, 4097 }), ARGUMENT,
           "backward_tile 64x4097", "1..4096");
    REFUSE(on_ref, o->split = -1, UNSUPPORTED, "split -1", "backend ref expects 1");
    REFUSE(on_h200, o->workers = -1, ARGUMENT, "workers -1", "1..1048576");
    REFUSE(on_h200, o->workers = (1 << 20) + 1, ARGUMENT, "workers 1048577", "1..1048576");
    REFUSE(on_h200, o->workers = INT64_MAX, ARGUMENT, "workers 9223372036854775807", "1048576");
    REFUSE(on_h200, o->backend = (ordo_backend)9, ARGUMENT, "backend 9", "expected ref, cpu");
    REFUSE(on_h200, o->order = (ordo_order)8, ARGUMENT, "order 8", "0..7");
    REFUSE(on_h200, o->issue = (ordo_issue)3, ARGUMENT, "issue 3", "0..2");
    REFUSE(on_h200, o->assign = (ordo_assign)3, ARGUMENT, "assign 3", "0..2");
    REFUSE(on_h200, p->heads = 0, ARGUMENT, "heads 0", "expected");
    REFUSE(on_h200, (p->batch = 1 << 16, p->heads = (1 << 14) + 1, p->q_len = 1), ORDO_ERR_OVERFLOW,
           "batch 65536 x heads 16385", "2^30");
}

TEST(a_replaced_order_has_its_own_groups)
{
    REFUSE(on_h200, (p->kv_len = 2048, o->order = ORDO_ORDER_SYMMETRIC, o->group = 4), ARGUMENT,
           "group 4", "order spt has no groups");
}

TEST(workspace_that_does_not_fit_is_refused)
{
    request r = on_host(); /* which keeps the query side in five panels of f32 */
    r.problem.batch = r.problem.heads = 1 << 15;
    r.problem.q_len = 1 << 22;
    refuse(&r, "2^63 bytes", ORDO_ERR_OVERFLOW, "workspace", "62 bits");
    r.problem.q_len = 1 << 20;
    CHECK(info_of(&r).backward_workspace_bytes > UINT64_C(1) << 59);
}

TEST(structs_of_other_versions)
{
    struct {
        ordo_plan_options options;
        char more[16];
    } newer = { .options = ORDO_PLAN_OPTIONS_INIT };
    const request base = on_h200();
    ordo_plan *plan;
    ordo_machine *machine = NULL;
    CHECK(ordo_machine_create(&machine, "h200") == ORDO_OK);
    ordo_plan_options *o = &newer.options;
    o->size = sizeof newer; /* from a newer program, which uses nothing this library lacks */
    CHECK(ordo_plan_create(&plan, &base.problem, machine, o) == ORDO_OK);
    ordo_plan_destroy(plan);
    newer.more[9] = 1; /* and which does */
    CHECK(ordo_plan_create(&plan, &base.problem, machine, o) == UNSUPPORTED);
    CHECK_HAS(ordo_last_error(), "ordo_plan_options.size");
    CHECK(plan == NULL);
    o->size = 0;
    CHECK(ordo_plan_create(&plan, &base.problem, machine, o) == ARGUMENT);
    CHECK_HAS(ordo_last_error(), "ORDO_PLAN_OPTIONS_INIT");
    o->size = (size_t)-1;
    CHECK(ordo_plan_create(&plan, &base.problem, machine, o) == ARGUMENT);
    o->size = offsetof(ordo_plan_options, split); /* from an older one: the rest is not read */
    o->split = 999;
    CHECK(ordo_plan_create(&plan, &base.problem, machine, o) == ORDO_OK);
    ordo_plan_destroy(plan);
    ordo_problem problem = base.problem;
    problem.size = 0;
    CHECK(ordo_plan_create(&plan, &problem, machine, NULL) == ARGUMENT);
    CHECK_HAS(ordo_last_error(), "ORDO_PROBLEM_INIT");
    ordo_machine_destroy(machine);
}

/* A caller's problem may be of another version: no byte past its size is written. */
TEST(the_problem_of_a_plan_at_the_callers_size)
{
    enum { POISON = 0x5a, MORE = 16 };
    const request base = on_host();
    ordo_plan *plan = make(&base);
    struct {
        ordo_problem p;
        unsigned char more[MORE];
    } newer, other;
    memset(&newer, POISON, sizeof newer);
    other = newer;
    const size_t first = offsetof(ordo_problem, dtype), known = offsetof(ordo_problem, softcap);
    newer.p.size = known; /* an older one */
    CHECK(ordo_plan_problem(plan, &newer.p) == ORDO_OK);
    CHECK_INT(newer.p.size, known);
    CHECK_INT(newer.p.head_dim, 128);
    CHECK_INT(newer.p.window.left, 0);
    CHECK_BITS((unsigned char *)&newer + known, (unsigned char *)&other + known,
               sizeof newer - known);
    newer = other;
    newer.p.size = sizeof newer; /* a newer one: what is not known is 0 */
    CHECK(ordo_plan_problem(plan, &newer.p) == ORDO_OK);
    CHECK_INT(newer.p.size, sizeof newer);
    CHECK_INT(newer.p.shard.kv_total, 1024);
    for (int x = 0; x < MORE; x++)
        CHECK_INT(newer.more[x], 0);
    const size_t wrong[] = { 0, 4, sizeof(ordo_problem) - 4, offsetof(ordo_problem, shard) + 8,
                             1 << 20 };
    for (int x = 0; x < 5; x++) {
        newer = other;
        newer.p.size = wrong[x];
        CHECK(ordo_plan_problem(plan, &newer.p) == ARGUMENT);
        CHECK_HAS(ordo_last_error(), "problem.size");
        CHECK_BITS((unsigned char *)&newer + first, (unsigned char *)&other + first,
                   sizeof newer - first);
    }
    ordo_plan_destroy(plan);
}

TEST(success_leaves_the_last_message_alone)
{
    ordo_order order;
    CHECK(ordo_order_from_name("sideways", &order) == ARGUMENT);
    char said[512];
    snprintf(said, sizeof said, "%s", ordo_last_error());
    for (int x = 0; x < 3; x++) {
        request r = x == 0 ? on_h200() : x == 1 ? on_host() : on_ref();
        if (x == 0) /* as large as a plan may be */
            r.problem.q_len = r.problem.kv_len = 1 << 30;
        (void)info_of(&r);
        CHECK_TEXT(ordo_last_error(), said);
    }
}

CHECK_MAIN()
