/* The workspace of plans of head sizes above 256 on CUDA keeps to its limit, and grows with the
 * length, not with its square. */
#include "plan_requests.h"

static request asked(int64_t length, int64_t dim, int64_t heads, int64_t limit)
{
    request r = on_h200();
    r.problem.batch = 1;
    r.problem.heads = heads;
    r.problem.q_len = length;
    r.problem.head_dim = dim;
    r.options.workspace_limit = limit;
    return r;
}

static uint64_t workspace(int64_t length, int64_t dim, int64_t heads, int64_t limit,
                          uint64_t *forward)
{
    const request r = asked(length, dim, heads, limit);
    const ordo_plan_info info = info_of(&r);
    *forward = info.forward_workspace_bytes;
    CHECK(*forward <= info.backward_workspace_bytes);
    return info.backward_workspace_bytes;
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
    request r = asked(4096, 512, 8, 123456789);
    ordo_plan *plan = make(&r), *again = NULL;
    char line[2048];
    CHECK(ordo_plan_print(plan, line, sizeof line, NULL) == ORDO_OK);
    CHECK_HAS(line, " limit=123456789 key=");
    CHECK(ordo_plan_parse(&again, line) == ORDO_OK);
    CHECK_INT(ordo_plan_workspace(again), ordo_plan_workspace(plan));
    ordo_plan_destroy(again);
    ordo_plan_destroy(plan);
    r.options.workspace_limit = 0;
    plan = make(&r);
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
    const request r = asked(128, 512, 1, -5);
    ordo_plan *plan = NULL;
    CHECK_REFUSED(create(&r, &plan), ORDO_ERR_ARGUMENT, "workspace_limit -5");
}

CHECK_MAIN()
