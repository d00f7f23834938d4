/* The workspace of plans of head sizes above 256 on CUDA keeps to its limit, and grows with the
 * length, not with its square. */
#include "check.h"
#include "ordo/ordo.h"

static ordo_plan *plan_of(int64_t length, int64_t dim, int64_t heads, int64_t limit)
{
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    p.dtype = ORDO_BF16;
    p.batch = 1;
    p.heads = heads;
    p.q_len = p.kv_len = length;
    p.head_dim = dim;
    p.mask = ORDO_MASK_CAUSAL;
    options.workspace_limit = limit;
    CHECK(ordo_machine_create(&machine, "h200") == ORDO_OK);
    const ordo_status status = ordo_plan_create(&plan, &p, machine, &options);
    if (status != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_machine_destroy(machine);
    return plan;
}

static uint64_t workspace(int64_t length, int64_t dim, int64_t heads, int64_t limit,
                          uint64_t *forward)
{
    ordo_plan *plan = plan_of(length, dim, heads, limit);
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    uint64_t bytes = 0;
    if (plan && ordo_plan_query(plan, &info) == ORDO_OK) {
        bytes = info.backward_workspace_bytes;
        *forward = info.forward_workspace_bytes;
        CHECK(*forward <= bytes);
    }
    ordo_plan_destroy(plan);
    return bytes;
}

TEST(workspaces_keep_to_their_limit)
{
    const uint64_t mib = 1 << 20;
    uint64_t forward = 0;
    for (int64_t length = 1024; length <= 1 << 17; length *= 2)
        for (int64_t dim = 264; dim <= 576; dim += 104) {
            const uint64_t bytes = workspace(length, dim, 8, 0, &forward);
            CHECK(bytes <= 1280 * mib && forward <= 1280 * mib);
            /* One tile of one head: P and dS, sums of dK and dV, statistics and marks of 8 heads.
             */
            const uint64_t least = workspace(length, dim, 8, 1, &forward);
            CHECK(least <= (uint64_t)length * (512 + 8 * (uint64_t)dim + 128) + mib);
            CHECK(workspace(length, dim, 8, (int64_t)least + (100 << 20), &forward) <=
                  least + 100 * mib);
        }
    CHECK_INT(workspace(512, 128, 8, 1, &forward), workspace(512, 128, 8, 0, &forward));
}

TEST(the_limit_is_part_of_the_line)
{
    ordo_plan *plan = plan_of(4096, 512, 8, 123456789), *again = NULL;
    char line[2048];
    CHECK(ordo_plan_print(plan, line, sizeof line, NULL) == ORDO_OK);
    CHECK_HAS(line, " limit=123456789 key=");
    CHECK(ordo_plan_parse(&again, line) == ORDO_OK);
    CHECK_INT(ordo_plan_workspace(again), ordo_plan_workspace(plan));
    ordo_plan_destroy(again);
    ordo_plan_destroy(plan);
    plan = plan_of(4096, 512, 8, 0);
    CHECK(ordo_plan_print(plan, line, sizeof line, NULL) == ORDO_OK);
    CHECK(strstr(line, "limit=") == NULL);
    char wrong[2200];
    snprintf(wrong, sizeof wrong, "%.*s limit=0%s", (int)(strstr(line, " key=") - line), line,
             strstr(line, " key="));
    CHECK(ordo_plan_parse(&again, wrong) == ORDO_ERR_PARSE);
    ordo_plan_destroy(plan);
}

TEST(a_negative_limit_is_refused)
{
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    p.dtype = ORDO_BF16;
    p.batch = p.heads = 1;
    p.q_len = p.kv_len = 128;
    p.head_dim = 512;
    options.workspace_limit = -5;
    CHECK(ordo_machine_create(&machine, "h200") == ORDO_OK);
    CHECK_REFUSED(ordo_plan_create(&plan, &p, machine, &options), ORDO_ERR_ARGUMENT,
                  "workspace_limit -5");
    ordo_machine_destroy(machine);
}

CHECK_MAIN()
