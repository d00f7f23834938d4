/* A plan, a forward pass and its digest on one screen. Build: see docs/guide/start-c.md. */
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

    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = ORDO_BACKEND_REF;

    ordo_plan *plan;
    if (ordo_plan_create(&plan, &problem, NULL, &options) != ORDO_OK)
        return fail("plan");

    ordo_call call = ORDO_CALL_INIT;
    call.q.data = q;
    call.k.data = k;
    call.v.data = v;
    call.o.data = o;
    call.lse = lse;
    if (ordo_attention_forward(plan, &call) != ORDO_OK)
        return fail("forward");

    char line[2048];
    if (ordo_plan_print(plan, line, sizeof line, NULL) != ORDO_OK)
        return fail("print");
    printf("%s\nlse of the last row: %.9g\n", line, (double)lse[HEADS * ROWS - 1]);
    ordo_plan_destroy(plan);
    return 0;
}
