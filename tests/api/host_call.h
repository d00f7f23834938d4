/* host_call.h: a call of a backend of the host on tensors of f32 that hold any small problem. */
#ifndef TESTS_API_HOST_CALL_H
#define TESTS_API_HOST_CALL_H

#include "base/keep.h"
#include "check.h"
#include "ordo/ordo.h"

/* A plan, and tensors large enough. */
typedef struct fixture {
    ordo_plan *plan;
    ordo_call call;
    float q[512], k[512], v[512], o[512], dout[512], dq[512], dk[512], dv[512];
    float lse[128], dlse[128];
    int32_t cu_q[3], cu_kv[3], q_lens[2], kv_lens[2];
    int64_t ids[2];
    float slopes[4], sink[5], dsink[4], dsink_parts[8];
    uint32_t bits[8 * ORDO_KEEP_WORDS];
    unsigned char *work;
    size_t work_bytes;
} fixture;

/* A plan of a backend; that of cuda is for an H200, which needs no device. */
static inline ordo_plan *plan_of(const ordo_problem *p, ordo_backend backend)
{
    const ordo_plan_options options = { .size = sizeof options, .backend = backend };
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    if (backend == ORDO_BACKEND_CUDA)
        CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    if (ordo_plan_create(&plan, p, machine, &options) != ORDO_OK) {
        printf("  %s\n", ordo_last_error());
        exit(1);
    }
    ordo_machine_destroy(machine);
    return plan;
}

static inline void connect(fixture *f, const ordo_problem *p)
{
    ordo_call *c = &f->call;
    *c = (ordo_call) { .size = sizeof *c,
                       .lse = f->lse,
                       .dlse = f->dlse,
                       .workspace = f->work,
                       .workspace_bytes = f->work_bytes };
    c->q.data = f->q, c->k.data = f->k, c->v.data = f->v, c->o.data = f->o;
    c->dout.data = f->dout, c->dq.data = f->dq, c->dk.data = f->dk, c->dv.data = f->dv;
    if (p->layout == ORDO_PACKED)
        c->cu_q = f->cu_q, c->cu_kv = f->cu_kv;
    if (p->layout == ORDO_PADDED)
        c->q_lens = f->q_lens, c->kv_lens = f->kv_lens;
    if (p->alibi)
        c->slopes = f->slopes;
}

static inline fixture *fixture_create(const ordo_problem *p, ordo_backend backend)
{
    fixture *f = malloc(sizeof *f);
    memset(f, 0, sizeof *f);
    f->plan = plan_of(p, backend);
    f->work_bytes = (ordo_plan_workspace(f->plan) + 4096) / 256 * 256;
    f->work = aligned_alloc(256, f->work_bytes);
    uint64_t state = 3;
    float *inputs[] = { f->q, f->k, f->v, f->dout };
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 512; i++)
            inputs[t][i] = (float)check_uniform(&state);
    for (int i = 0; i < 128; i++)
        f->dlse[i] = (float)check_uniform(&state);
    connect(f, p);
    return f;
}

static inline void fixture_destroy(fixture *f)
{
    ordo_plan_destroy(f->plan);
    free(f->work);
    free(f);
}

/* Break one thing, expect a refusal of either pass, put it back. */
#define REFUSE(f, pass, set, status, ...)                                                          \
    do {                                                                                           \
        const ordo_call saved_ = (f)->call;                                                        \
        set;                                                                                       \
        mark(f);                                                                                   \
        CHECK_REFUSED_AS(#set, ordo_attention_##pass((f)->plan, &(f)->call), status, __VA_ARGS__); \
        if (!marked(f))                                                                            \
            CHECK_FAIL("%s: something was written", #set);                                         \
        (f)->call = saved_;                                                                        \
    } while (0)

static inline void mark(fixture *f)
{
    f->o[0] = f->dq[0] = f->dk[0] = f->dv[0] = f->lse[0] = 77;
    f->dsink[0] = f->dsink_parts[0] = 77;
    memset(f->work, 0xa5, f->work_bytes);
}

static inline bool marked(const fixture *f)
{
    for (size_t x = 0; x < f->work_bytes; x++)
        if (f->work[x] != 0xa5)
            return false;
    return f->o[0] == 77 && f->dq[0] == 77 && f->dk[0] == 77 && f->dv[0] == 77 && f->lse[0] == 77 &&
           f->dsink[0] == 77 && f->dsink_parts[0] == 77;
}

#endif
