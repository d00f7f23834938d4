/* overlap.c: keep bits made at the same time as GEMMs.
 *
 * On one multiprocessor both slow each other down: by constant factors in the calibration paper
 * and where f64 takes the place of wide multiplications, else by the tensor cycles that these take
 * in silicon, of which they get no more than a share. What remains when the GEMMs end runs at full
 * speed. Where the registers of a GEMM leave no room for a second kernel, at most the idle end of
 * each GEMM's last wave can be used, and the rest runs between the GEMMs. A whole block has gaps
 * where a share of it runs beside norms, sums and activations. A second stream must be started and
 * awaited, which shows where the next kernel needs the bits. */
#include "model/model.h"

enum { WARP = 32, SCHEDULERS = 4 };

bool ordo_model_coresident(const ordo_model *model)
{
    const double wish = ordo_model_value(model, ORDO_C_CORESIDENT);
    if (wish >= 0)
        return wish > 0;
    const double used = ordo_model_value(model, ORDO_C_GEMM_REGISTERS) *
                        ordo_model_value(model, ORDO_C_GEMM_THREADS);
    const double free_here = (ordo_model_value(model, ORDO_C_REGISTERS) - used) / SCHEDULERS;
    return free_here >= ordo_model_value(model, ORDO_C_RNG_REGISTERS) * WARP;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* The GEMMs are slowed by one constant factor, making bits by another. */
static ordo_hidden by_factors(const ordo_model *model, const ordo_beside *b)
{
    const double slow = ordo_model_value(model, ORDO_C_GEMM_SLOW);
    const double carve = 1 + ordo_model_value(model, ORDO_C_CARVE_OUT);
    const double factor = ordo_model_value(model, ORDO_C_RNG_SLOW);
    const double gemm = b->gemm * (1 + slow) * carve, done = gemm / factor;
    if (b->rng > done)
        return (ordo_hidden) { gemm + (b->rng - done), b->rng - done };
    if (ordo_model_on(model, ORDO_C_REFINED))
        return (ordo_hidden) { b->gemm * carve + b->rng * factor * slow / (1 + slow), 0 };
    return (ordo_hidden) { gemm, 0 };
}

bool ordo_bits_by_f64(const ordo_rng *rng)
{
    return rng->generator == ORDO_GENERATOR_SLICED;
}

double ordo_bits_slow(const ordo_model *model, double seconds, double steal)
{
    if (steal <= 0)
        return ordo_model_value(model, ORDO_C_RNG_SLOW);
    const double least = steal / ordo_model_value(model, ORDO_C_STEAL_MOST);
    return least > seconds ? least / seconds : 1;
}

/* In parallel, making bits takes `factor` times as long and costs the GEMMs `steal` seconds. */
static ordo_hidden by_theft(const ordo_model *model, const ordo_beside *b)
{
    const double factor = ordo_bits_slow(model, b->rng, b->steal);
    const double carve = 1 + ordo_model_value(model, ORDO_C_CARVE_OUT);
    const double beside = b->rng * factor, gemm = b->gemm * carve + b->steal;
    if (beside <= gemm)
        return (ordo_hidden) { gemm, 0 };
    /* The GEMMs end first: they lost a constant share of their rate until then. */
    const double share = b->steal / beside;
    const double end = b->gemm * carve / (1 - smaller(share, 0.99));
    const double left = b->rng - end / factor;
    return (ordo_hidden) { end + left, left };
}

ordo_hidden ordo_overlap(const ordo_model *model, const ordo_beside *b)
{
    const double join = b->awaited ? ordo_model_value(model, ORDO_C_FORK_JOIN) * 1e-9 : 0;
    if (!ordo_model_coresident(model)) {
        double filled = smaller(b->rng, b->tail * ordo_model_value(model, ORDO_C_TAIL_SHARE));
        filled += b->gaps * (b->rng - filled);
        return (ordo_hidden) { b->gemm + b->rng - filled + join, b->rng - filled };
    }
    ordo_hidden hidden = b->steal > 0 ? by_theft(model, b) : by_factors(model, b);
    hidden.seconds += join;
    return hidden;
}
