/* sm90/forward/launch.h: what the lines of sm90/forward/instances.h call: a kernel by kind of
 * dropout or by rule. */
#ifndef CUDA_SM90_FORWARD_LAUNCH_H
#define CUDA_SM90_FORWARD_LAUNCH_H

#include "cuda/sm90/forward/instances.h"
#include "cuda/sm90/forward/kernel.h"
#include "cuda/sm90/forward/score_rule.h"

/* The dense kernel. At head size 64 registers do not suffice for making bits. */
template <int D, bool F16>
static ordo_forward_instance forward_dense(ordo_keep_source source, ordo_forward_rule)
{
    if constexpr (D == 128)
        if (source == ORDO_KEEP_MADE)
            return forward_instance<D, D, ORDO_KEEP_MADE, false, F16>();
    return source == ORDO_KEEP_GIVEN ? forward_instance<D, D, ORDO_KEEP_GIVEN, false, F16>()
                                     : forward_instance<D, D, ORDO_KEEP_NONE, false, F16>();
}

/* The varlen kernel of a bucket, or that for block masks. */
template <int D, int DV, bool F16, bool BLOCKS = false>
static ordo_forward_instance forward_varlen(ordo_keep_source source, ordo_forward_rule)
{
    return source == ORDO_KEEP_NONE ? forward_instance<D, DV, ORDO_KEEP_NONE, true, F16, BLOCKS>()
           : source == ORDO_KEEP_GIVEN
               ? forward_instance<D, DV, ORDO_KEEP_GIVEN, true, F16, BLOCKS>()
               : forward_instance<D, DV, ORDO_KEEP_MADE, true, F16, BLOCKS>();
}

/* Head size 64 has no instance for softcap: the varlen kernel is faster there. */
template <int D, bool F16>
static ordo_forward_instance forward_score_rule(ordo_keep_source, ordo_forward_rule rule)
{
    if constexpr (D > 64)
        if (rule == ORDO_RULE_CAP)
            return forward_score_rule_instance<D, F16, ORDO_RULE_CAP>();
    return rule == ORDO_RULE_NONE ? forward_score_rule_instance<D, F16, ORDO_RULE_NONE>()
                                  : forward_score_rule_instance<D, F16, ORDO_RULE_DISTANCE>();
}

#define ORDO_INSTANCE(NAME, ...)                                                                   \
    ordo_forward_instance ordo_forward_##NAME(ordo_keep_source source, ordo_forward_rule rule)     \
    {                                                                                              \
        return __VA_ARGS__(source, rule);                                                          \
    }

#endif
