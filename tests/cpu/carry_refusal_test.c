/* carry_refusal_test.c: carried sums that a backward pass refuses, before anything is written: sums
 * that are missing, misplaced or overlap, cuts beside tiles, and orders whose rows differ by head.
 */
#include "attention_case.h"

typedef struct refusal {
    attention_case c;
    ordo_plan *plan;
    float *dk, *dv; /* sums */
} refusal;

static void refusal_open(refusal *r, const ordo_plan_options *options, int64_t rows, int64_t row0,
                         int64_t total)
{
    *r = (refusal) { .c = { .problem = ORDO_PROBLEM_INIT } };
    ordo_problem *p = &r->c.problem;
    p->batch = p->heads = p->kv_heads = 1;
    p->q_len = rows;
    p->kv_len = 128;
    p->head_dim = 8;
    p->v_head_dim = 12;
    p->shard.row0 = row0;
    p->shard.q_total = total;
    case_open(&r->c, 4);
    r->dk = case_alloc(r->c.k_count, 4);
    r->dv = case_alloc(r->c.v_count, 4);
    r->plan = NULL;
    CHECK_INT(ordo_plan_create(&r->plan, p, NULL, options), ORDO_OK);
    r->c.call.dk_sums = r->dk;
    r->c.call.dv_sums = r->dv;
    r->c.call.carry = ORDO_CARRY_OUT;
}

static void refusal_close(refusal *r)
{
    ordo_plan_destroy(r->plan);
    free(r->dk);
    free(r->dv);
    case_close(&r->c);
}

/* The call is refused with this status and these words, and nothing has been written. */
static void expect(refusal *r, ordo_status status, const char *field, const char *wanted)
{
    float *const dk = r->dk;
    const size_t bytes = ordo_plan_workspace(r->plan);
    void *memory = case_alloc(bytes + 256, 1);
    r->c.call.workspace = (char *)memory + (256 - (uintptr_t)memory % 256) % 256;
    r->c.call.workspace_bytes = bytes;
    dk[0] = 77;
    ((float *)r->c.call.q.data)[0] = 78;
    CHECK_REFUSED(ordo_attention_backward(r->plan, &r->c.call), status, field, wanted);
    CHECK(dk[0] == 77 && ((float *)r->c.call.q.data)[0] == 78);
    free(memory);
}

#define REFUSE(change, status, field, wanted)                                                      \
    do {                                                                                           \
        const ordo_call kept_ = r.c.call;                                                          \
        change;                                                                                    \
        expect(&r, status, field, wanted);                                                         \
        r.c.call = kept_;                                                                          \
    } while (0)

TEST(wrong_sums_are_refused)
{
    refusal r;
    refusal_open(&r, NULL, 128, 0, 128);
    ordo_call *c = &r.c.call;
    REFUSE(c->carry = 8, ORDO_ERR_ARGUMENT, "carry 0x8", "ORDO_CARRY_IN");
    REFUSE(c->carry = 0, ORDO_ERR_ARGUMENT, "dk_sums given", "carry 0");
    REFUSE((c->carry = 0, c->dk_sums = NULL), ORDO_ERR_ARGUMENT, "dv_sums given", "carry 0");
    REFUSE(c->dk_sums = NULL, ORDO_ERR_ARGUMENT, "dk_sums NULL", "1024 f32 values");
    REFUSE(c->dv_sums = NULL, ORDO_ERR_ARGUMENT, "dv_sums NULL", "1536 f32 values");
    REFUSE(c->dk_sums = (float *)((char *)r.dk + 2), ORDO_ERR_ALIGN, "dk_sums", "multiple of 4");
    REFUSE(c->dk_sums = c->q.data, ORDO_ERR_ARGUMENT, "q and dk_sums", "overlap");
    REFUSE(c->dv_sums = r.dk + 1023, ORDO_ERR_ARGUMENT, "dk_sums and dv_sums", "overlap");
    REFUSE(c->dv_sums = c->dq.data, ORDO_ERR_ARGUMENT, "dq and dv_sums", "overlap");
    REFUSE((c->carry = ORDO_CARRY_IN, c->dk_sums = c->dk.data), ORDO_ERR_ARGUMENT, "dk and dk_sums",
           "overlap");
    REFUSE((c->carry = ORDO_CARRY_IN, c->dk.data = c->dv.data = NULL), ORDO_ERR_ARGUMENT,
           "dk.data and dv.data NULL", "carry in");
    refusal_close(&r);
}

TEST(wrong_gradients_are_refused)
{
    refusal r;
    refusal_open(&r, NULL, 128, 0, 128);
    ordo_call *c = &r.c.call;
    c->carry = 0;
    c->dk_sums = c->dv_sums = NULL;
    REFUSE(c->dv.data = NULL, ORDO_ERR_ARGUMENT, "dv.data NULL", "both");
    REFUSE(c->dk.data = NULL, ORDO_ERR_ARGUMENT, "dk.data NULL", "both");
    REFUSE((c->dq.data = c->dk.data = c->dv.data = NULL), ORDO_ERR_ARGUMENT, "dq.data",
           "expected a tensor");
    refusal_close(&r);
}

TEST(wrong_cuts_are_refused)
{
    static const struct {
        int64_t rows, row0, total;
        const char *field, *wanted;
    } cuts[] = { { 64, 32, 128, "shard.row0 32", "multiple of 64" },
                 { 100, 64, 256, "q_len 100", "shard.q_total 256" } };
    for (int x = 0; x < 2; x++) {
        refusal r;
        refusal_open(&r, NULL, cuts[x].rows, cuts[x].row0, cuts[x].total);
        expect(&r, ORDO_ERR_SHAPE, cuts[x].field, cuts[x].wanted);
        refusal_close(&r);
    }
    static const ordo_order orders[] = { ORDO_ORDER_SHIFT, ORDO_ORDER_TWIN, ORDO_ORDER_SPT_TAIL };
    for (int x = 0; x < 3; x++) {
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        options.order = orders[x];
        refusal r;
        refusal_open(&r, &options, 128, 0, 128);
        if (r.plan)
            expect(&r, ORDO_ERR_UNSUPPORTED, ordo_order_name(orders[x]), "ascending");
        refusal_close(&r);
    }
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = ORDO_BACKEND_REF;
    refusal r;
    refusal_open(&r, &options, 128, 0, 128);
    expect(&r, ORDO_ERR_UNSUPPORTED, "carry", "backend ref");
    refusal_close(&r);
}

CHECK_MAIN()
