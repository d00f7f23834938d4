/* cuda_call.h: a small call of a cuda plan, with memory for its tensors; no device is needed. */
#ifndef API_CUDA_CALL_H
#define API_CUDA_CALL_H

#include "plan_requests.h"

enum { DIM = 64, ROWS = 100, COLS = 150, BATCH = 2, HEADS = 4, KV_HEADS = 2 };
enum { Q = BATCH * ROWS * HEADS * DIM, K = BATCH * COLS * KV_HEADS * DIM, POISON = 0x5a };

/* A request whose tensors are small, and memory for them. */
static inline request small(void)
{
    request r = on_h200();
    r.problem.head_dim = DIM;
    r.problem.batch = BATCH;
    r.problem.heads = HEADS;
    r.problem.kv_heads = KV_HEADS;
    r.problem.q_len = ROWS;
    r.problem.kv_len = COLS;
    return r;
}

typedef struct fixture {
    ordo_plan *plan;
    ordo_call call;
    _Alignas(256) uint16_t q[Q], k[K], v[K], o[Q], dout[Q], dq[Q], dk[K], dv[K];
    float lse[BATCH * HEADS * ROWS + 1];
} fixture;

static inline fixture *open_fixture(const request *r)
{
    fixture *f = aligned_alloc(256, (sizeof *f + 255) / 256 * 256);
    if (!f)
        exit(1);
    memset(f, POISON, sizeof *f);
    f->plan = make(r);
    f->call = (ordo_call)ORDO_CALL_INIT;
    f->call.q.data = f->q, f->call.k.data = f->k, f->call.v.data = f->v, f->call.o.data = f->o;
    f->call.dout.data = f->dout, f->call.dq.data = f->dq, f->call.dk.data = f->dk;
    f->call.dv.data = f->dv;
    f->call.lse = f->lse;
    f->call.stream = &f->lse[0]; /* any address */
    f->call.workspace_bytes = ordo_plan_workspace(f->plan);
    f->call.workspace = aligned_alloc(256, f->call.workspace_bytes);
    return f;
}

static inline void close_fixture(fixture *f)
{
    free(f->call.workspace);
    ordo_plan_destroy(f->plan);
    free(f);
}

#endif
