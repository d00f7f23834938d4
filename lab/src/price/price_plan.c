/* price_plan.c: predicts both passes of a plan, and chooses where its keep bits are made.
 *
 * Attention alone has no other work to hide the making of keep bits under, so the choice is between
 * making them once, in a kernel before the forward pass (sequential), and inside each pass (fused).
 * Sequential must be faster by more than the noise of measurements, and by more than the host needs
 * for one more call: a training step that is limited by the host gains nothing from a faster
 * device. The bits must also fit: they are written where they take a small part of the machine's
 * memory, else in segments, and kept for the backward pass where one per layer does. */
#include "price/price_plan.h"

#include "base/keep.h"
#include "base/status.h"
#include "plan/sizes.h"
#include "price/predict.h"

/* The memory over the bits of a call: at least this to make them, and this to keep them for every
 * layer. */
enum { MAKE_SHARE = 8, KEEP_SHARE = 64 };

ordo_attention_shape ordo_plan_shape(const ordo_problem *p)
{
    static const ordo_precision of[] = { ORDO_PRECISION_F32, ORDO_PRECISION_BF16,
                                         ORDO_PRECISION_F16 };
    return (ordo_attention_shape) {
        .size = sizeof(ordo_attention_shape),
        .precision = of[p->dtype],
        .batch = ordo_plan_sequences(p),
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .q_len = p->q_len,
        .kv_len = p->kv_len,
        .head_dim = p->head_dim,
        .causal = p->mask != ORDO_MASK_FULL,
        .rng = { .rounds = p->dropout.rounds, .bits = p->dropout.bits },
    };
}

/* Price one pass. The shape has no window; `share` is the part of its scores that the window
 * leaves. */
static ordo_kernel_time pass(const ordo_model *model, ordo_attention_shape s, double share,
                             bool backward, ordo_keep_source keep)
{
    s.backward = backward;
    s.keep = keep;
    ordo_kernel_time time = ordo_price_attention(model, &s).time;
    time.seconds *= share;
    for (int i = 0; i < ORDO_LIMITERS; i++)
        time.by[i] *= share;
    return time;
}

/* Elements of all blocks of keep bits, for which there is memory. */
static double kept_elements(const ordo_attention_shape *s)
{
    const double rows = (double)ordo_price_tiles((double)s->q_len, ORDO_KEEP_ROWS);
    const double columns = (double)ordo_price_tiles((double)s->kv_len, ORDO_KEEP_COLS);
    return (double)s->batch * (double)s->heads * rows * columns * ORDO_KEEP_ROWS * ORDO_KEEP_COLS;
}

/* Those that are made (`visible_only` of ordo_dropout_call): of dense problems only blocks in which
 * the mask and the window, whose share of the scores is `share`, leave something. */
static double made_elements(const ordo_model *model, const ordo_plan *plan,
                            const ordo_attention_shape *s, double share)
{
    if (plan->problem.layout != ORDO_DENSE)
        return kept_elements(s);
    if (plan->problem.window.on)
        return share * ordo_live_elements(s, ORDO_KEEP_ROWS, ORDO_KEEP_COLS);
    return s->causal ? ordo_price_visible(model, s) : kept_elements(s);
}

static bool fits(const ordo_model *model, double bytes, double share)
{
    const double memory = ordo_model_value(model, ORDO_C_MEMORY);
    return memory <= 0 || bytes * share <= memory;
}

/* How bits are made before the passes: of all rows, or of segments where the plan has them or the
 * whole takes too much memory. FUSED: not at all. */
static ordo_dropout_mode made_before(const ordo_model *model, const ordo_plan *plan, double bytes)
{
    const bool divides = plan->problem.layout == ORDO_DENSE && ordo_plan_carries(plan);
    if (plan->segments > 0)
        return ORDO_DROPOUT_MODE_PIPELINED;
    if (fits(model, bytes, MAKE_SHARE))
        return ORDO_DROPOUT_MODE_SEQUENTIAL;
    return divides ? ORDO_DROPOUT_MODE_PIPELINED : ordo_plan_default_mode(plan);
}

/* Choose the mode. price->forward and price->backward are those with bits given. */
static void price_dropout(const ordo_model *model, const ordo_attention_shape *s, double share,
                          const ordo_kernel_counts *counts, const ordo_plan *plan,
                          ordo_plan_price *price)
{
    const double elements = kept_elements(s), bytes = elements / 8;
    const ordo_kernel_time forward = pass(model, *s, share, false, ORDO_KEEP_MADE);
    const ordo_kernel_time backward = pass(model, *s, share, true, ORDO_KEEP_MADE);
    const double fused = forward.seconds + backward.seconds;
    const double given = price->forward.seconds + price->backward.seconds;
    price->rng = ordo_price_rng(model, counts, made_elements(model, plan, s, share)).time;
    const double kept = given + price->rng.seconds, again = kept + price->rng.seconds;
    const double call = ordo_model_value(model, ORDO_C_CALL) * 1e-9;
    const double noise = 1 - ordo_model_value(model, ORDO_C_NOISE);
    price->mode_seconds[ORDO_DROPOUT_MODE_SEQUENTIAL] = kept;
    price->mode_seconds[ORDO_DROPOUT_MODE_OVERLAPPED] = given;
    price->mode_seconds[ORDO_DROPOUT_MODE_FUSED] = fused;
    const bool must = plan->segments > 0 || ordo_plan_needs_bits(plan);
    price->mode = made_before(model, plan, bytes);
    price->keep_bits_reused =
        price->mode == ORDO_DROPOUT_MODE_SEQUENTIAL && fits(model, bytes, KEEP_SHARE);
    const double made = price->keep_bits_reused ? kept + call : again + 2 * call;
    if (must || (made < fused * noise && price->mode != ORDO_DROPOUT_MODE_FUSED))
        return;
    price->mode = ORDO_DROPOUT_MODE_FUSED;
    price->keep_bits_reused = false;
    price->forward = forward;
    price->backward = backward;
}

ordo_status ordo_price_plan(const ordo_model *model, const ordo_plan *plan, ordo_plan_price *price)
{
    ordo_plan_price found = { .utilization = 1, .mode = ORDO_DROPOUT_MODE_FUSED };
    if (ordo_problem_empty(&plan->problem)) {
        *price = found;
        return ORDO_OK;
    }
    ordo_attention_shape s = ordo_plan_shape(&plan->problem);
    ordo_plan_work work;
    if (ordo_model_tensor(model, s.precision) <= 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "dtype %s: machine \"%s\" states no rate for it",
                         ordo_dtype_name(plan->problem.dtype), ordo_machine_name(model->machine));
    ORDO_TRY(ordo_plan_measure(plan, model->machine, &work));
    found.utilization = s.utilization = work.utilization;
    double share = 1;
    if (plan->problem.window.on) {
        const ordo_tile tile = plan->backward_tile;
        share = work.scores / ordo_live_elements(&s, tile.q, tile.k);
        share = share < 1 ? share : 1;
    }
    const bool drops = plan->problem.dropout.p > 0;
    const ordo_keep_source keep = drops ? ORDO_KEEP_GIVEN : ORDO_KEEP_NONE;
    found.forward = pass(model, s, share, false, keep);
    found.backward = pass(model, s, share, true, keep);
    if (drops) {
        const ordo_kernel_counts *counts = ordo_rng_counts(&s.rng);
        if (!counts)
            return ordo_fail(ORDO_ERR_UNSUPPORTED, "%d rounds, %d bits: not priced", s.rng.rounds,
                             s.rng.bits);
        price_dropout(model, &s, share, counts, plan, &found);
    }
    *price = found;
    return ORDO_OK;
}
