/* known_test.c: the oracle against answers derived by hand. */
#include "api/problem.h"
#include "data_attention.h"
#include "ref/attention.h"

/* Answers are good to 20 digits, the oracle to a few roundings of terms below 10. */
static void compare(const attention_case *c, const char *what, const data_list *expected,
                    const double *got, int64_t count)
{
    if (expected->count != count)
        CHECK_FAIL("%s: %d values of %s, expected %d", c->name, expected->count, what, (int)count);
    for (int i = 0; i < expected->count && i < count; i++) {
        const double e = expected->at[i];
        const bool same = isinf(e) ? got[i] == e : fabs(got[i] - e) <= 2e-15 * fmax(1, fabs(e));
        if (!same)
            CHECK_FAIL("%s: %s[%d] is %.17g, expected %.17g", c->name, what, i, got[i], e);
    }
}

static void visit(const attention_case *c)
{
    ordo_problem p;
    if (ordo_problem_resolve(&c->problem, &p) != ORDO_OK) {
        CHECK_FAIL("%s: %s", c->name, ordo_last_error());
        return;
    }
    double o[DATA_MAX], lse[DATA_MAX], dq[DATA_MAX], dk[DATA_MAX], dv[DATA_MAX];
    const struct {
        const char *name;
        const data_list *list;
        ordo_ref_role role;
    } inputs[] = { { "q", &c->q, ORDO_REF_Q },
                   { "k", &c->k, ORDO_REF_K },
                   { "v", &c->v, ORDO_REF_V },
                   { "dout", &c->dout, ORDO_REF_O } };
    for (int i = 0; i < 4; i++)
        if (inputs[i].list->count != ordo_ref_count(&p, inputs[i].role))
            CHECK_FAIL("%s: %d values of %s", c->name, inputs[i].list->count, inputs[i].name);

    const ordo_ref_call call = {
        .q = ordo_ref_array(&p, ORDO_REF_Q, (double *)c->q.at),
        .k = ordo_ref_array(&p, ORDO_REF_K, (double *)c->k.at),
        .v = ordo_ref_array(&p, ORDO_REF_V, (double *)c->v.at),
        .o = ordo_ref_array(&p, ORDO_REF_O, o),
        .lse = ordo_ref_array(&p, ORDO_REF_LSE, lse),
        .dout = ordo_ref_array(&p, ORDO_REF_O, (double *)c->dout.at),
        .dlse = ordo_ref_array(&p, ORDO_REF_LSE, c->dlse.count ? (double *)c->dlse.at : NULL),
        .dq = ordo_ref_array(&p, ORDO_REF_Q, dq),
        .dk = ordo_ref_array(&p, ORDO_REF_K, dk),
        .dv = ordo_ref_array(&p, ORDO_REF_V, dv),
        .cu_q = c->cu_q,
        .cu_kv = c->cu_kv,
        .q_lens = c->q_lens,
        .kv_lens = c->kv_lens,
        .slopes = c->slopes,
        .keep_bits = c->has_bits ? c->keep_bits : NULL,
    };
    CHECK(ordo_ref_forward_f64(&p, &call) == ORDO_OK);
    CHECK(ordo_ref_backward_f64(&p, &call) == ORDO_OK);
    compare(c, "o", &c->o, o, ordo_ref_count(&p, ORDO_REF_O));
    compare(c, "lse", &c->lse, lse, ordo_ref_count(&p, ORDO_REF_LSE));
    compare(c, "dq", &c->dq, dq, ordo_ref_count(&p, ORDO_REF_Q));
    compare(c, "dk", &c->dk, dk, ordo_ref_count(&p, ORDO_REF_K));
    compare(c, "dv", &c->dv, dv, ordo_ref_count(&p, ORDO_REF_V));
}

TEST(oracle_gives_the_known_answers)
{
    attention_cases(visit);
}

CHECK_MAIN()
