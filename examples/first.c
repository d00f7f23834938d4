/* A plan, a forward pass and its digest on one screen. Build: see docs/guide/c.md. */
#include <inttypes.h>
#include <ordo/ordo.h>
#include <stdio.h>

enum { HEADS = 2, ROWS = 64, DIM = 16, COUNT = ROWS * HEADS * DIM };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ordo_last_error());
    return 1;
}

int main(void)
{
    static float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[HEADS * ROWS];
    for (int i = 0; i < COUNT; i++) {
        q[i] = (float)(i % 7) - 3;
        k[i] = (float)(i % 5) - 2;
        v[i] = (float)(i % 11) / 11;
    }

    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.dtype = ORDO_F32;
    problem.batch = 1;
    problem.heads = HEADS;
    problem.q_len = ROWS;
    problem.head_dim = DIM;
    problem.mask = ORDO_MASK_CAUSAL;

    ordo_plan *plan;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    if (ordo_plan_create(&plan, &problem, NULL, NULL) != ORDO_OK || /* for this machine's CPU */
        ordo_plan_query(plan, &info) != ORDO_OK)
        return fail("plan");

    ordo_call call = ORDO_CALL_INIT;
    call.q.data = q;
    call.k.data = k;
    call.v.data = v;
    call.o.data = o;
    call.lse = lse;
    if (ordo_attention_forward(plan, &call) != ORDO_OK)
        return fail("forward");

    uint64_t digest, workspace;
    const ordo_bytes bytes = { o, sizeof o };
    ordo_digest_call hash = ORDO_DIGEST_CALL_INIT;
    hash.backend = ORDO_BACKEND_CPU;
    hash.count = 1;
    hash.spans = &bytes;
    hash.digests = &digest;
    hash.workspace = &workspace;
    hash.workspace_bytes = sizeof workspace;
    if (ordo_digest_run(&hash) != ORDO_OK)
        return fail("digest");
    printf("numeric key  %s\n", info.numeric_key); /* equal keys and inputs give equal digests */
    printf("digest of o  %016" PRIx64 "\n", digest);
    ordo_plan_destroy(plan);
    return 0;
}
