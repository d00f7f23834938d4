/* fit_dropout_mode.c: the constants of src/planner/dropout_mode.c, fitted to the performance model.
 *
 *   build/bench/fit_dropout_mode [problems, default 4000]
 *
 * Draws problems and asks the model for the times of both passes. The constants of each class of
 * head sizes are least squares, with most weight where both modes take about the same time, and
 * then changed at random as long as the penalty of wrong choices does not grow. Prints the table,
 * and what the committed one and this one lose. */
#include "planner/dropout_mode.h"
#include "tests/model/random_dropout.h"

enum { K = ORDO_DROPOUT_TERMS, MOST = 60000, TRIES = 6000 };

static const double steps[K] = { 0.5, 0.5, 20, 0.5 }; /* how far the first changes go */

typedef struct row {
    ordo_dropout_terms terms;
    double given, fused, made; /* seconds; made: given bits and what makes them */
    int times;                 /* that bits are made */
    bool sequential;           /* the model's choice */
} row;

static row rows[MOST];

static double lost(const row *r, const ordo_dropout_saving *s)
{
    const bool sequential = ordo_dropout_saved(&r->terms, s) > r->times * r->terms.make_seconds;
    if (sequential == r->sequential)
        return 0;
    const double best = r->sequential ? r->made : r->fused;
    const double loss = (sequential ? r->made : r->fused) / best - 1;
    return loss > 0 ? loss : 0;
}

/* The squares of what wrong choices lose, and much more where that is above 2 %. */
static double penalty(int count, int at, const ordo_dropout_saving *s)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const double loss = rows[i].terms.at == at ? lost(&rows[i], s) : 0, much = loss - 0.02;
        sum += loss * loss + (much > 0 ? 100 * much * much + 1e-3 : 0);
    }
    return sum;
}

/* Solve the normal equations. */
static void least_squares(int count, int at, double noise, ordo_dropout_saving *s)
{
    double a[K][K + 1] = { { 0 } };
    for (int i = 0; i < count; i++) {
        const row *r = &rows[i];
        const double *x = r->terms.value, y = r->fused * (1 - noise) - r->given;
        const double weight = 1 / (fabs(r->made - r->fused) + 0.02 * r->fused + 1e-5);
        for (int k = 0; k < K && r->terms.at == at; k++) {
            for (int l = 0; l < K; l++)
                a[k][l] += weight * weight * x[k] * x[l];
            a[k][K] += weight * weight * x[k] * y;
        }
    }
    for (int k = 0; k < K; k++)
        for (int l = 0; l < K; l++)
            for (int m = K; l != k && m >= k; m--)
                a[l][m] -= a[l][k] / a[k][k] * a[k][m];
    for (int k = 0; k < K; k++)
        s->each[k] = a[k][K] / a[k][k];
}

/* Change all constants, or one of them, by less and less. */
static void improve(int count, int at, ordo_dropout_saving *s)
{
    double least = penalty(count, at, s);
    for (int n = 0; n < TRIES; n++) {
        ordo_dropout_saving t = *s;
        const int64_t only = check_between(&random_state, 0, K - 1);
        for (int k = 0; k < K; k++)
            if (n % 2 || k == only)
                t.each[k] += steps[k] * pow(1e-3, n / (double)TRIES) * check_uniform(&random_state);
        const double now = penalty(count, at, &t);
        if (now <= least) {
            least = now;
            *s = t;
        }
    }
    for (int k = 0; k < K; k++)
        s->each[k] = round(100 * s->each[k]) / 100;
}

static void report(const char *name, int count, const ordo_dropout_saving *savings)
{
    double worst = 0;
    int wrong = 0, above = 0;
    for (int i = 0; i < count; i++) {
        const double loss = lost(&rows[i], &savings[rows[i].terms.at]);
        wrong += loss > 0;
        above += loss > 0.03;
        worst = loss > worst ? loss : worst;
    }
    printf("%s: %d of %d lose time, %d more than 3 %%, at most %.3f\n", name, wrong, count, above,
           worst);
}

int main(int count, char **arguments)
{
    ordo_machine *h200 = NULL;
    ordo_model *model = NULL;
    int problems = count > 1 ? atoi(arguments[1]) : 4000, found = 0;
    if (ordo_machine_create(&h200, "h200") != ORDO_OK ||
        ordo_model_create(&model, h200, ORDO_CALIBRATION_SILICON) != ORDO_OK || problems > MOST)
        return 1;
    const double call = constant(model, "call") * 1e-9, noise = constant(model, "noise");
    random_state = 1;
    for (; problems > 0; problems--) {
        const drawn d = draw_plan(h200, model);
        const double given = d.price.mode_seconds[ORDO_DROPOUT_MODE_OVERLAPPED];
        const double fused = d.price.mode_seconds[ORDO_DROPOUT_MODE_FUSED];
        const uint64_t bytes = d.info.keep_bits_bytes;
        double memory = 0;
        (void)ordo_machine_get(h200, "memory_bytes", &memory);
        const int times = (double)bytes * 64 <= memory ? 1 : 2;
        const double made = given + times * (d.price.rng.seconds + call);
        if (d.plan->problem.head_dim <= 256 && (double)bytes * 8 <= memory)
            rows[found++] = (row) { ordo_plan_dropout_terms(d.plan), given, fused, made, times,
                                    made < fused * (1 - noise) };
        ordo_plan_destroy(d.plan);
    }
    ordo_dropout_saving fitted[ORDO_DROPOUT_CLASSES];
    for (int at = 0; at < ORDO_DROPOUT_CLASSES; at++) {
        fitted[at] = ordo_dropout_savings[at];
        least_squares(found, at, noise, &fitted[at]);
        improve(found, at, &fitted[at]);
        printf("    { %d, { %.2f, %.2f, %.1f, %.2f } },\n", (int)fitted[at].head_dim,
               fitted[at].each[0], fitted[at].each[1], fitted[at].each[2], fitted[at].each[3]);
    }
    report("committed", found, ordo_dropout_savings);
    report("fitted", found, fitted);
    ordo_model_destroy(model);
    ordo_machine_destroy(h200);
    return 0;
}
