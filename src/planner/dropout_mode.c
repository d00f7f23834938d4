/* dropout_mode.c: see the header.
 *
 * Attention alone has no other work to hide the making of keep bits under, so the choice is between
 * making them once, in a kernel before the forward pass (sequential), and inside each pass (fused).
 * On a GPU sequential is chosen where the passes save more time than making the bits and the calls
 * of the host take; on a CPU making bits is a hundredth of a pass, and fused needs no memory. The
 * bits must also fit: they are written where they take a small part of the machine's memory, else
 * in segments, and kept for the backward pass where those of every layer do.
 *
 * The constants are fitted to the performance model of the laboratory, as measured on an H200, and
 * serve every GPU; lab/tests/model/dropout_mode_test.c compares the choice with the model's. */
#include "planner/dropout_mode.h"

#include <math.h>

#include "base/keep.h"
#include "plan/sizes.h"

/* The memory over the bits of a call: at least this to make them, and this to keep them for every
 * layer. */
enum { MAKE_SHARE = 8, KEEP_SHARE = 64 };

/* Written by build/bench/fit_dropout_mode. */
static const ordo_dropout_saving saving[] = {
    { 64, -0.25, 0.53, 3.1 },   { 96, -0.15, 0.77, -14.2 }, { 128, -0.27, 0.76, 7.6 },
    { 160, 0.64, 0.70, -38.3 }, { 192, 0.33, 1.23, -53.7 }, { 256, -0.06, 1.36, -35.8 },
};
enum { CLASSES = sizeof saving / sizeof saving[0], WIDE = 128, WAIT = 8 };

static const double MAKE = 0.0943e-12; /* seconds for one bit, with 7 rounds and 8 bits */
static const double CALL = 67e-6;      /* one more kernel, where the host is the limit */
static const double IDLE = 32 * 1024;  /* bits of 128 columns that a worker could make at the end */

/* The pairs of a row below `rows` and a column below `columns` with column - row <= diagonal. */
static double pairs(double rows, double columns, double diagonal)
{
    const double end = fmax(rows + diagonal, 0), begin = fmax(diagonal, 0);
    const double a = fmin(end, columns), b = fmin(begin, columns);
    return (a * (a + 1) / 2 + (end - a) * columns) - (b * (b + 1) / 2 + (begin - b) * columns);
}

static double pieces(int64_t length, int64_t piece)
{
    return ceil((double)length / (double)piece);
}

/* How much longer `count` equal units take than if all workers were always busy. */
static double stretch(double workers, double count)
{
    return ceil(count / workers) * workers / count;
}

static double all_bits(const ordo_problem *p)
{
    return (double)ordo_plan_sequences(p) * (double)p->heads * pieces(p->q_len, ORDO_KEEP_ROWS) *
           pieces(p->kv_len, ORDO_KEEP_COLS) * ORDO_KEEP_ROWS * ORDO_KEEP_COLS;
}

ordo_dropout_terms ordo_plan_dropout_terms(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const ordo_tile tile = plan->backward_tile;
    const ordo_band band = ordo_plan_band(plan, p->q_len, p->kv_len);
    const int edges = (band.low != -ORDO_BAND_OPEN) + (band.high != ORDO_BAND_OPEN);
    const double q = (double)p->q_len, kv = (double)p->kv_len, workers = (double)plan->workers;
    const double low = fmax(band.low - 1, -q), high = fmin(band.high, kv);
    const double heads = (double)ordo_plan_sequences(p) * (double)p->heads;
    const double group = (double)p->heads / (double)p->kv_heads;
    const double units = heads * pieces(p->q_len, WIDE);
    const double whole = p->mask == ORDO_MASK_FULL ? q * kv : pairs(q, kv, high);
    /* Tiles that an edge of the mask cuts are computed whole. */
    const double edge = edges * (double)(tile.q + tile.k) / 2 * fmin(q, kv);
    const double visible = fmin(pairs(q, kv, high) - pairs(q, kv, low) + edge, q * kv);
    const double idle = IDLE * workers * fmin(pieces(p->kv_len, WIDE), 64);
    /* The longest chain of the backward pass over the mean work of a worker, and how much longer
     * all take than work alone: chains of narrow tiles also wait for each other's additions. */
    const double area = (double)(tile.q * tile.k), keys = pieces(p->kv_len, tile.k);
    const double steps = pieces(p->q_len, tile.q) * group;
    const double rows = fmin(high - low + (double)(tile.q + tile.k), q);
    const double longest = rows / (double)tile.q * group * area * workers / (heads * visible);
    const double even = stretch(workers, heads / group * fmin(keys, steps));
    const double slow = edges > 0 ? fmax(longest, 1 + 0.15 * longest) : even;
    const double cut = edges > 0 ? fmin(2 * visible / (q * kv), 1) : 0;
    const double waiting = 1 + (tile.k < WIDE ? WAIT : 0) * (1 + cut) / steps;
    const double generator = (p->dropout.rounds - 1) * p->dropout.bits / 48.0;
    const double some = heads * visible + (p->window.on ? 0 : idle), all = all_bits(p);
    const double made = p->layout == ORDO_DENSE && edges > 0 ? fmin(some, all) : all;
    ordo_dropout_terms terms = {
        .scores = heads * visible * (stretch(workers, units) + 2 * slow * waiting) / 3,
        .generator = generator,
        .units = units * (p->window.on ? fmin(visible / whole, 1) : 1),
        .make_seconds = MAKE * generator * made + CALL,
    };
    while (terms.at < CLASSES - 1 && (double)p->head_dim > saving[terms.at].head_dim)
        terms.at++;
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
    plan->keep_bits_reused = false;
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
    const ordo_dropout_terms terms = ordo_plan_dropout_terms(plan);
    const double make = (keep ? 1 : 2) * terms.make_seconds; /* again for the backward pass */
    const bool pays = ordo_dropout_saved(&terms, &saving[terms.at]) > make;
    if (plan->segments > 0 || (!ordo_plan_needs_bits(plan) && !pays))
        return;
    if (fits)
        plan->dropout_mode = ORDO_DROPOUT_MODE_SEQUENTIAL;
    else if (p->layout == ORDO_DENSE && ordo_plan_carries(plan))
        plan->dropout_mode = ORDO_DROPOUT_MODE_PIPELINED;
    plan->keep_bits_reused = fits && keep;
}
