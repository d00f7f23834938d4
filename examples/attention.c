/* A training step of attention on one screen: forward, backward, dropout, workspace.
 *
 *   cc attention.c $(pkg-config --cflags --libs ordo) -o attention */
#include <ordo/ordo.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 4, KV_HEADS = 2, ROWS = 128, DIM = 32 };
enum { COUNT = ROWS * HEADS * DIM, KV_COUNT = ROWS * KV_HEADS * DIM };

static float q[COUNT], k[KV_COUNT], v[KV_COUNT], o[COUNT], lse[HEADS * ROWS];
static float dout[COUNT], dq[COUNT], dk[KV_COUNT], dv[KV_COUNT];

static void must(ordo_status status)
{
    if (status != ORDO_OK) {
        fprintf(stderr, "%s: %s\n", ordo_status_name(status), ordo_last_error());
        exit(1);
    }
}

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        q[i] = (float)(i % 7) - 3;
        dout[i] = (float)(i % 13) / 13;
        k[i % KV_COUNT] = (float)(i % 5) - 2;
        v[i % KV_COUNT] = (float)(i % 11) / 11;
    }
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.batch = 1;
    problem.heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.q_len = ROWS;
    problem.head_dim = DIM;
    problem.mask = ORDO_MASK_CAUSAL;
    problem.dropout.p = 0.1;

    ordo_plan *plan;
    must(ordo_plan_create(&plan, &problem, NULL, NULL)); /* for the host */

    ordo_call call = ORDO_CALL_INIT;
    call.q.data = q;
    call.k.data = k;
    call.v.data = v;
    call.o.data = o;
    call.lse = lse;
    call.dout.data = dout;
    call.dq.data = dq;
    call.dk.data = dk;
    call.dv.data = dv;
    call.seed = 1;
    call.workspace_bytes = ordo_plan_workspace(plan);
    call.workspace = aligned_alloc(256, call.workspace_bytes / 256 * 256 + 256);
    must(ordo_attention_forward(plan, &call));
    must(ordo_attention_backward(plan, &call));

    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    must(ordo_plan_query(plan, &info));
    printf("%s: dq of the last row begins %a\n", info.numeric_key, (double)dq[COUNT - DIM]);
    free(call.workspace);
    ordo_plan_destroy(plan);
    return 0;
}
