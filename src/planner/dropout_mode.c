/* dropout_mode.c: how a plan should make its keep bits.
 *
 * Attention alone has no other work to hide this under: the bits are made by a kernel before the
 * forward pass (sequential), or inside each pass (fused). Sequential is chosen on a GPU where both
 * passes save more time than the bits and the calls of the host take; on a CPU making bits is a
 * hundredth of a pass. Bits are written where they take a small part of the machine's memory, else
 * in segments, and kept for the backward pass where those of every layer do. The constants are
 * fitted to the laboratory's model of an H200, and serve every GPU. */
#include "planner/dropout_mode.h"

#include <math.h>

#include "base/blocks.h"
#include "base/keep.h"
#include "plan/sizes.h"

/* The memory over the bits of a call: at least this to make them, and to keep them. */
enum { MAKE_SHARE = 8, KEEP_SHARE = 64 };

/* Written by build/bench/fit_dropout_mode. */
const ordo_dropout_saving ordo_dropout_savings[ORDO_DROPOUT_CLASSES] = {
    { 64, { -0.33, 0.59, 1.2, -1.35 } },   { 96, { -0.10, 0.77, -40.1, -0.63 } },
    { 128, { -0.25, 0.80, -9.1, -1.92 } }, { 160, { 0.46, 1.25, -80.0, -2.30 } },
    { 192, { 0.40, 1.38, -57.9, -1.22 } }, { 256, { 0.07, 1.50, -51.6, -0.97 } },
};

static const double MAKE = 0.0943e-12; /* seconds for one bit, with 7 rounds and 8 bits */
static const double CALL = 67e-6;      /* one more kernel, where the host is the limit */

/* The sum of min(r + 1, columns) over rows r below x. */
static double stairs(double x, double columns)
{
    const double high = fmax(x, 0), few = fmin(high, columns);
    return few * (few + 1) / 2 + (high - few) * columns;
}

static double all_bits(const ordo_problem *p)
{
    return (double)ordo_plan_sequences(p) * (double)p->heads * ORDO_KEEP_ROWS * ORDO_KEEP_COLS *
           ceil((double)p->q_len / ORDO_KEEP_ROWS) * ceil((double)p->kv_len / ORDO_KEEP_COLS);
}

ordo_dropout_terms ordo_plan_dropout_terms(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const double q = (double)p->q_len, kv = (double)p->kv_len, workers = (double)plan->workers;
    const double tile_q = (double)plan->backward_tile.q, tile_k = (double)plan->backward_tile.k;
    const double key_heads = (double)(ordo_plan_sequences(p) * p->kv_heads);
    const double group = (double)p->heads / (double)p->kv_heads;
    const ordo_band band = ordo_plan_band(plan, p->q_len, p->kv_len);
    const int edges = (band.low != -ORDO_BAND_OPEN) + (band.high != ORDO_BAND_OPEN);
    const double low = fmax(band.low - 1, -q), high = fmin(band.high, kv);
    /* Tiles at an edge of the mask are computed whole. */
    const double seen = stairs(q + high, kv) - stairs(high, kv) - stairs(q + low, kv) +
                        stairs(low, kv) + edges * (tile_q + tile_k) / 2 * fmin(q, kv);
    const double scores = key_heads * group * fmin(seen, q * kv);
    /* The backward pass takes as long as its longest chain, or as the worker with most chains. */
    const double longest = fmin(high - low + tile_q + tile_k, q) * group * tile_k * workers;
    const double chains = key_heads * ceil(kv / tile_k);
    const double even = ceil(chains / workers) * workers / chains * scores;
    const double last = fmax(longest, edges > 0 ? 1.1 * scores : even);
    const double generator = (p->dropout.rounds - 1) * p->dropout.bits / 48.0;
    const bool some = p->layout == ORDO_DENSE && edges > 0;
    const double made = some ? fmin(scores, all_bits(p)) : all_bits(p), both = scores + 2 * last;
    ordo_dropout_terms terms = {
        .make_seconds = MAKE * generator * made + CALL,
        .value = { both / 3e12, both * generator / 3e12, scores / kv / 128e9, last / scores / 1e6 },
    };
    while (terms.at < ORDO_DROPOUT_CLASSES - 1 &&
           p->head_dim > ordo_dropout_savings[terms.at].head_dim)
        terms.at++;
    return terms;
}

void ordo_plan_advise(ordo_plan *plan, const ordo_machine *machine)
{
    const ordo_problem *p = &plan->problem;
    const bool empty = ordo_problem_empty(p);
    plan->dropout_mode = ordo_plan_default_mode(plan);
    plan->keep_bits_reused = false;
    if (!machine || p->dropout.p == 0 || !ordo_plan_of_kernels(plan) || ordo_has_blocks(p))
        return; /* what a block mask leaves is known when a pass is called */
    if (empty)
        plan->dropout_mode = ORDO_DROPOUT_MODE_FUSED;
    if (empty || plan->segments > 0)
        return;
    double memory = INFINITY; /* where the machine does not state it */
    if (ordo_machine_source(machine, "memory_bytes"))
        (void)ordo_machine_get(machine, "memory_bytes", &memory);
    const double bytes = all_bits(p) / 8;
    const bool fits = bytes * MAKE_SHARE <= memory, keep = bytes * KEEP_SHARE <= memory;
    const ordo_dropout_terms terms = ordo_plan_dropout_terms(plan);
    const double make = (keep ? 1 : 2) * terms.make_seconds; /* again for the backward pass */
    if (!ordo_plan_needs_bits(plan) &&
        ordo_dropout_saved(&terms, &ordo_dropout_savings[terms.at]) <= make)
        return;
    if (fits)
        plan->dropout_mode = ORDO_DROPOUT_MODE_SEQUENTIAL;
    else if (p->layout == ORDO_DENSE && ordo_plan_carries(plan))
        plan->dropout_mode = ORDO_DROPOUT_MODE_PIPELINED;
    plan->keep_bits_reused = keep;
}
