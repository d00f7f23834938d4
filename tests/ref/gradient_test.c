/* gradient_test.c: the oracle's backward pass is the derivative of its forward pass.
 *
 * f = sum(dout * o) + sum(dlse * lse) over rows that see something. Its derivative by each
 * element of q, k, v, sink and bias, taken by differences of fourth order, must be dq, dk, dv,
 * dsink and dbias.
 */
#include "trial.h"

enum { SEEDS = 500 };

static double functional(trial *t)
{
    double f = 0;
    CHECK(ordo_ref_forward_f64(&t->p, &t->c) == ORDO_OK);
    for (int64_t i = 0; i < ordo_ref_count(&t->p, ORDO_REF_O); i++)
        f += t->dout[i] * t->o[i];
    for (int64_t i = 0; i < ordo_ref_count(&t->p, ORDO_REF_LSE); i++)
        if (t->lse[i] != -INFINITY)
            f += t->dlse[i] * t->lse[i];
    return f;
}

static double at(trial *t, double *x, double value)
{
    const double saved = *x;
    *x = value;
    const double f = functional(t);
    *x = saved;
    return f;
}

static double difference(trial *t, double *x)
{
    const double h = 0x1p-10;
    return (8 * (at(t, x, *x + h) - at(t, x, *x - h)) -
            (at(t, x, *x + 2 * h) - at(t, x, *x - 2 * h))) /
           (12 * h);
}

/* The error of the difference is about h^4 f'''''/30 + 2^-53 f/h, some 1e-11 here. */
static void compare(trial *t, uint64_t seed, const char *name, double *x, const double *gradient,
                    int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double expected = difference(t, &x[i]);
        if (!(fabs(gradient[i] - expected) <= 1e-9 * (1 + fabs(expected))))
            CHECK_FAIL("seed %" PRIu64 ": %s[%" PRId64 "] is %.15g, differences give %.15g", seed,
                       name, i, gradient[i], expected);
    }
}

static void check_seed(uint64_t seed)
{
    trial *t = trial_draw(seed);
    trial_run(t);
    compare(t, seed, "dq", t->q, t->dq, ordo_ref_count(&t->p, ORDO_REF_Q));
    compare(t, seed, "dk", t->k, t->dk, ordo_ref_count(&t->p, ORDO_REF_K));
    compare(t, seed, "dv", t->v, t->dv, ordo_ref_count(&t->p, ORDO_REF_V));
    if (t->c.sink.data)
        compare(t, seed, "dsink", t->sink, t->dsink, t->p.heads);
    if (t->c.bias.data)
        compare(t, seed, "dbias", t->bias, t->dbias, ordo_bias_count(&t->p));
    trial_destroy(t);
}

TEST(gradients_are_derivatives_for_random_features)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        check_seed(seed);
}

/* The generator above must not quietly stop drawing some feature. */
TEST(every_feature_is_drawn)
{
    int layouts[3] = { 0 }, masks[3] = { 0 }, empty = 0;
    int stored = 0, generated = 0, windows = 0, caps = 0, slopes = 0, shared = 0, shards = 0;
    int sinks = 0, biases = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        trial *t = trial_draw(seed);
        CHECK(ordo_ref_forward_f64(&t->p, &t->c) == ORDO_OK);
        for (int64_t i = 0; i < ordo_ref_count(&t->p, ORDO_REF_LSE); i++)
            empty += t->lse[i] == -INFINITY;
        layouts[t->p.layout]++;
        masks[t->p.mask]++;
        stored += t->bits != NULL;
        generated += t->p.dropout.p > 0 && !t->bits;
        windows += t->p.window.on;
        caps += t->p.softcap > 0;
        slopes += t->p.alibi;
        shared += t->p.heads > t->p.kv_heads;
        shards += t->p.shard.row0 > 0 && t->p.shard.col0 > 0;
        sinks += t->c.sink.data != NULL;
        biases += t->c.bias.data != NULL;
        trial_destroy(t);
    }
    const int counts[] = { layouts[0], layouts[1], layouts[2], masks[0], masks[1], masks[2],
                           stored,     generated,  windows,    caps,     slopes,   shared,
                           shards,     empty,      sinks,      biases };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i] < 10)
            CHECK_FAIL("feature %zu was drawn %d times", i, counts[i]);
}

CHECK_MAIN()
