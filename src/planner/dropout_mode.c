/* dropout_mode.c: see the header.
 *
 * Attention alone has no other work to hide the making of keep bits under, so the choice is between
 * making them once, in a kernel before the forward pass (sequential), and inside each pass (fused).
 * On a GPU sequential is chosen where the passes save more time than making the bits and the calls
 * of the host take; on a CPU making bits is a hundredth of a pass, and fused needs no memory. The
 * bits must also fit: a mask is written where it takes a small part of the machine's memory, else
 * in segments, and kept for the backward pass where one per layer does.
 *
 * The constants are fitted to the performance model of the laboratory, as measured on an H200, and
 * serve every GPU; lab/tests/model/dropout_mode_test.c compares the choice with the model's. */
#include "planner/dropout_mode.h"

#include "base/keep.h"
#include "plan/sizes.h"

/* The memory over one mask: at least this to make it, and this to keep one for every layer. */
enum { MAKE_SHARE = 8, KEEP_SHARE = 64 };

/* Written by build/bench/fit_dropout_mode. */
static const ordo_dropout_saving saving[] = {
    { 64, -0.26, 0.54, -0.3 },  { 96, -0.16, 0.85, -7.0 },  { 128, -0.18, 0.68, 4.1 },
    { 160, 0.48, 0.95, -58.9 }, { 192, 0.04, 1.68, -77.3 }, { 256, -0.56, 1.71, -47.1 },
};
enum { CLASSES = sizeof saving / sizeof saving[0], GENERATOR = 7 * 8, ROWS = 128, COLUMNS = 128 };

static const double MAKE = 0.115e-12; /* seconds of that generator for one bit */
static const double CALL = 67e-6;     /* one more kernel, where the host is the limit */

/* The pairs of a row below `rows` and a column below `columns` with column - row <= diagonal. */
static double pairs(double rows, double columns, double diagonal)
{
    const double ends[2] = { rows + diagonal, diagonal };
    double sum[2];
    for (int i = 0; i < 2; i++) {
        const double m = ends[i] < 0 ? 0 : ends[i], inside = m < columns ? m : columns;
        sum[i] = inside * (inside + 1) / 2 + (m - inside) * columns;
    }
    return sum[0] - sum[1];
}

static int64_t pieces(int64_t length, int64_t piece)
{
    return (length + piece - 1) / piece;
}

/* How much longer `count` units take on the workers than if all workers were always busy. */
static double stretch(const ordo_plan *plan, double count)
{
    const double workers = (double)plan->workers, waves = count / workers;
    return waves >= 64 ? 1 : workers * (double)(int64_t)(waves + 1 - 1e-9) / count;
}

static double all_bits(const ordo_problem *p)
{
    const double blocks =
        (double)pieces(p->q_len, ORDO_KEEP_ROWS) * (double)pieces(p->kv_len, ORDO_KEEP_COLS);
    return (double)ordo_plan_sequences(p) * (double)p->heads * blocks * ORDO_KEEP_ROWS *
           ORDO_KEEP_COLS;
}

ordo_dropout_terms ordo_plan_dropout_terms(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const ordo_run run = ordo_plan_run(plan, 1, p->q_len, p->kv_len);
    const double low = (double)run.band.low, high = (double)run.band.high;
    const double q = (double)p->q_len, kv = (double)p->kv_len;
    const int cuts = (run.band.low != -ORDO_BAND_OPEN) + (run.band.high != ORDO_BAND_OPEN);
    const int64_t rows = cuts && p->kv_len < p->q_len ? p->kv_len : p->q_len;
    const double sequences = (double)ordo_plan_sequences(p), heads = sequences * (double)p->heads;
    const double units = heads * (double)pieces(rows, ROWS), elements = all_bits(p);
    double visible = q * kv;
    if (cuts) { /* tiles that a mask cuts are computed whole */
        visible = pairs(q, kv, high < kv ? high : kv) - pairs(q, kv, low - 1 > -q ? low - 1 : -q) +
                  (double)cuts * COLUMNS * (double)rows;
        visible = visible < q * kv ? visible : q * kv;
    }
    visible *= heads;
    const int64_t steps = pieces(rows, plan->backward_tile.q) * (p->heads / p->kv_heads);
    const int64_t keys = pieces(p->kv_len, COLUMNS);
    const double chains = sequences * (double)p->kv_heads * (double)(keys < steps ? keys : steps);
    const double generator = (double)(p->dropout.rounds * p->dropout.bits) / GENERATOR;
    const bool hidden = p->layout == ORDO_DENSE && cuts && visible < elements;
    ordo_dropout_terms terms = {
        .scores = visible * (stretch(plan, units) + 2 * stretch(plan, chains)) / 3,
        .generator = generator,
        .units = units,
        .make_seconds = MAKE * generator * (hidden ? visible : elements) + CALL,
    };
    while (terms.at < CLASSES - 1 && (double)p->head_dim > saving[terms.at].head_dim)
        terms.at++;
    terms.generator *= (double)p->head_dim / saving[terms.at].head_dim;
    return terms;
}

double ordo_dropout_saved(const ordo_dropout_terms *t, const ordo_dropout_saving *s)
{
    return t->scores * (s->fixed + s->made * t->generator) * 1e-12 + t->units * s->start * 1e-9;
}

const ordo_dropout_saving *ordo_dropout_savings(int *count)
{
    *count = CLASSES;
    return saving;
}

/* Whether the passes with given bits, the bits and the calls take less time than fused passes; the
 * bits are made once, or again for the backward pass. */
static bool pays(const ordo_plan *plan, int times)
{
    const ordo_dropout_terms terms = ordo_plan_dropout_terms(plan);
    return ordo_dropout_saved(&terms, &saving[terms.at]) > times * terms.make_seconds;
}

ordo_dropout_mode ordo_plan_default_mode(const ordo_plan *plan)
{
    if (plan->segments > 0)
        return ORDO_DROPOUT_MODE_PIPELINED;
    return ordo_plan_needs_bits(plan) ? ORDO_DROPOUT_MODE_SEQUENTIAL : ORDO_DROPOUT_MODE_FUSED;
}

void ordo_plan_advise(ordo_plan *plan, const ordo_machine *machine)
{
    const ordo_problem *p = &plan->problem;
    double memory = 0;
    plan->dropout_mode = ordo_plan_default_mode(plan);
    plan->keep_bits = false;
    if (!machine || p->dropout.p == 0 || !ordo_plan_of_kernels(plan) || p->blocks.entries > 0)
        return; /* what a block mask leaves is known when a pass is called */
    if (ordo_problem_empty(p)) {
        plan->dropout_mode = ORDO_DROPOUT_MODE_FUSED;
        return;
    }
    const double bytes = all_bits(p) / 8;
    if (ordo_machine_source(machine, "memory_bytes"))
        (void)ordo_machine_get(machine, "memory_bytes", &memory); /* else there is enough */
    const bool fits = memory <= 0 || bytes * MAKE_SHARE <= memory;
    const bool keep = memory <= 0 || bytes * KEEP_SHARE <= memory;
    if (plan->segments > 0 || (!ordo_plan_needs_bits(plan) && !pays(plan, keep ? 1 : 2)))
        return;
    if (fits)
        plan->dropout_mode = ORDO_DROPOUT_MODE_SEQUENTIAL;
    else if (p->layout == ORDO_DENSE && ordo_plan_carries(plan))
        plan->dropout_mode = ORDO_DROPOUT_MODE_PIPELINED;
    plan->keep_bits = fits && keep;
}
