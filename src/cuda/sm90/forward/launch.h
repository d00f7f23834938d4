/* sm90/forward/launch.h: what the lines of sm90/forward/instances.h call: a kernel by kind of
 * dropout or by rule. */
#ifndef CUDA_SM90_FORWARD_LAUNCH_H
#define CUDA_SM90_FORWARD_LAUNCH_H

#include "cuda/sm90/forward/dense.h"
#include "cuda/sm90/forward/instances.h"
#include "cuda/sm90/forward/spread_scores.h"
#include "cuda/sm90/forward/spread_values.h"
#include "cuda/sm90/forward/varlen.h"

/* The dense kernel. At head size 64 registers do not suffice for making bits. */
template <int D, bool F16>
static ordo_forward_instance forward_dense(ordo_keep_source source, ordo_forward_rule)
{
    if constexpr (D == 128)
        if (source == ORDO_KEEP_MADE)
            return forward_dense_instance<D, ORDO_KEEP_MADE, F16>();
    return source == ORDO_KEEP_GIVEN ? forward_dense_instance<D, ORDO_KEEP_GIVEN, F16>()
                                     : forward_dense_instance<D, ORDO_KEEP_NONE, F16>();
}

/* The varlen kernel of a bucket. */
template <int D, int DV, bool F16, forward_kind KIND = FORWARD_BAND>
static ordo_forward_instance forward_varlen(ordo_keep_source source, ordo_forward_rule)
{
    const ordo_forward_rule any = ORDO_RULE_ANY;
    return source == ORDO_KEEP_NONE
               ? forward_varlen_instance<D, DV, ORDO_KEEP_NONE, F16, any, KIND>()
           : source == ORDO_KEEP_GIVEN
               ? forward_varlen_instance<D, DV, ORDO_KEEP_GIVEN, F16, any, KIND>()
               : forward_varlen_instance<D, DV, ORDO_KEEP_MADE, F16, any, KIND>();
}

/* Head size 64 has no instance for softcap: the varlen kernel is faster there. */
template <int D, bool F16>
static ordo_forward_instance forward_score_rule(ordo_keep_source, ordo_forward_rule rule)
{
    if constexpr (D > 64)
        if (rule == ORDO_RULE_CAP)
            return forward_varlen_instance<D, D, ORDO_KEEP_NONE, F16, ORDO_RULE_CAP>();
    return rule == ORDO_RULE_NONE
               ? forward_varlen_instance<D, D, ORDO_KEEP_NONE, F16, ORDO_RULE_NONE>()
               : forward_varlen_instance<D, D, ORDO_KEEP_NONE, F16, ORDO_RULE_DISTANCE>();
}

/* The varlen kernel for keys in pages. */
template <int D, bool F16>
static ordo_forward_instance forward_paged(ordo_keep_source, ordo_forward_rule rule)
{
    if constexpr (D <= 128)
        if (rule == ORDO_RULE_NONE)
            return forward_varlen_instance<D, D, ORDO_KEEP_NONE, F16, ORDO_RULE_NONE,
                                           FORWARD_PAGES>();
    return forward_varlen_instance<D, D, ORDO_KEEP_NONE, F16, ORDO_RULE_ANY, FORWARD_PAGES>();
}

/* The kernel for few queries over pages. */
template <int D, bool F16, bool GATHER>
static ordo_forward_instance forward_decode(ordo_keep_source, ordo_forward_rule)
{
    return forward_decode_instance<D, F16, GATHER>();
}

/* The kernels for its long sequences. */
template <int D> static ordo_forward_instance spread_choose(ordo_keep_source, ordo_forward_rule)
{
    return spread_choose_instance<D>();
}

template <int D, bool F16, bool GATHER>
static ordo_forward_instance spread_scores(ordo_keep_source, ordo_forward_rule)
{
    return spread_scores_instance<D, F16, GATHER>();
}

template <int D, bool F16>
static ordo_forward_instance spread_weights(ordo_keep_source, ordo_forward_rule)
{
    return spread_weights_instance<D, F16>();
}

template <int D, bool F16, bool GATHER>
static ordo_forward_instance spread_values(ordo_keep_source, ordo_forward_rule)
{
    return spread_values_instance<D, F16, GATHER>();
}

#define ORDO_INSTANCE(NAME, ...)                                                                   \
    ordo_forward_instance ordo_forward_##NAME(ordo_keep_source source, ordo_forward_rule rule)     \
    {                                                                                              \
        return __VA_ARGS__(source, rule);                                                          \
    }

#endif
