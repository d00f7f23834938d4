/* fit_dropout_mode.c: the constants of src/planner/dropout_mode.c, fitted to the performance model.
 *
 *   build/bench/fit_dropout_mode [problems, default 4000]
 *
 * Draws problems and asks the model for the times of both passes. The three constants of each class
 * of head sizes are least squares, with most weight where both modes take about the same time, and
 * then changed step by step as long as the squares of what wrong choices lose become less. Prints
 * the table, and what the committed one and this one lose. */
#include "planner/dropout_mode.h"
#include "tests/model/random_dropout.h"

enum { CLASSES_MAX = 8, MOST = 20000 };

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

static double penalty(int count, int at, const ordo_dropout_saving *s)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const double loss = rows[i].terms.at == at ? lost(&rows[i], s) : 0;
        sum += loss * loss + (loss > 0.025 ? 10 * loss * loss : 0);
    }
    return sum;
}

/* Solve the three normal equations. */
static void least_squares(int count, int at, double noise, ordo_dropout_saving *s)
{
    double a[3][4] = { { 0 } };
    for (int i = 0; i < count; i++) {
        const row *r = &rows[i];
        if (r->terms.at != at)
            continue;
        const double x[3] = { r->terms.scores * 1e-12, r->terms.scores * r->terms.generator * 1e-12,
                              r->terms.units * 1e-9 };
        const double y = r->fused * (1 - noise) - r->given;
        const double weight = 1 / (fabs(r->made - r->fused) + 0.02 * r->fused + 1e-5);
        for (int k = 0; k < 3; k++) {
            for (int l = 0; l < 3; l++)
                a[k][l] += weight * weight * x[k] * x[l];
            a[k][3] += weight * weight * x[k] * y;
        }
    }
    for (int k = 0; k < 3; k++)
        for (int l = 0; l < 3; l++)
            for (int m = 3; l != k && m >= k; m--)
                a[l][m] -= a[l][k] / a[k][k] * a[k][m];
    s->fixed = a[0][3] / a[0][0];
    s->made = a[1][3] / a[1][1];
    s->start = a[2][3] / a[2][2];
}

static void improve(int count, int at, ordo_dropout_saving *s)
{
    double least = penalty(count, at, s), step = 0.32;
    for (int halving = 0; halving < 7; halving++, step /= 2)
        for (int k = 0; k < 6; k++) {
            ordo_dropout_saving t = *s;
            double *value = k / 2 == 0 ? &t.fixed : k / 2 == 1 ? &t.made : &t.start;
            *value += (k % 2 ? -step : step) * (k / 2 == 2 ? 40 : 1);
            const double now = penalty(count, at, &t);
            if (now < least) {
                least = now;
                *s = t;
                k = -1;
            }
        }
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
    int problems = count > 1 ? atoi(arguments[1]) : 4000, classes, found = 0;
    const ordo_dropout_saving *committed = ordo_dropout_savings(&classes);
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
    ordo_dropout_saving fitted[CLASSES_MAX];
    for (int at = 0; at < classes; at++) {
        fitted[at] = committed[at];
        least_squares(found, at, noise, &fitted[at]);
        improve(found, at, &fitted[at]);
        fitted[at].fixed = round(100 * fitted[at].fixed) / 100;
        fitted[at].made = round(100 * fitted[at].made) / 100;
        fitted[at].start = round(10 * fitted[at].start) / 10;
        printf("    { %g, %.2f, %.2f, %.1f },\n", fitted[at].head_dim, fitted[at].fixed,
               fitted[at].made, fitted[at].start);
    }
    report("committed", found, committed);
    report("fitted", found, fitted);
    ordo_model_destroy(model);
    ordo_machine_destroy(h200);
    return 0;
}
