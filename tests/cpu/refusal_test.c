/* refusal_test.c: where the CPU's forward pass has a workspace, it looks at it as the backward pass
 * does: a call that it cannot run is refused before anything is written. (api/attention_test.c has
 * all that both passes refuse.) */
#include "attention_case.h"

TEST(workspace_of_the_forward_pass)
{
    attention_case c = { .problem = ORDO_PROBLEM_INIT, .call = ORDO_CALL_INIT };
    ordo_problem *p = &c.problem;
    p->batch = 1;
    p->heads = 2;
    p->kv_heads = 1;
    p->q_len = p->kv_len = 320; /* 10 tiles meet each key tile */
    p->head_dim = p->v_head_dim = 8;
    case_open(&c, 1);
    ordo_plan *plan = case_plan(&c, NULL);
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CHECK(ordo_plan_query(plan, &info) == ORDO_OK);
    const size_t bytes = ordo_plan_workspace(plan), needed = info.forward_workspace_bytes;
    unsigned char *const workspace = aligned_alloc(256, bytes + 256);
    memset(workspace, CASE_POISON, bytes + 256);
    CHECK(needed > 0);
    c.call.workspace = workspace;
    c.call.workspace_bytes = bytes;
    case_results poison = case_keep(&c);
    for (int kind = 0; kind < 4; kind++) {
        ordo_call bad = c.call;
        switch (kind) {
        case 0: bad.workspace = NULL; break;
        case 1: bad.workspace_bytes = needed - 1; break;
        case 2: bad.workspace = workspace + 64; break;
        default: bad.o.data = workspace;
        }
        CHECK(ordo_attention_forward(plan, &bad) != ORDO_OK);
        case_same(&c, &poison, "refused");
        for (size_t x = 0; x < bytes + 256; x++)
            CHECK(workspace[x] == CASE_POISON);
    }
    c.call.workspace_bytes = needed;
    CHECK(ordo_attention_forward(plan, &c.call) == ORDO_OK);
    for (size_t x = needed; x < bytes + 256; x++)
        CHECK(workspace[x] == CASE_POISON);
    case_drop(&poison);
    free(workspace);
    ordo_plan_destroy(plan);
    case_close(&c);
}

CHECK_MAIN()
