/* support/common.h: what the kernels of a pass read: the pass, and what follows from it. */
#ifndef CUDA_SUPPORT_COMMON_H
#define CUDA_SUPPORT_COMMON_H

#include "cuda/pass/pass.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/score.h"

/* keep_bits: NULL without dropout, too. */
struct ordo_pass_common : ordo_cuda_pass {
    bool has_rule; /* `rule` applies to scores */
    ordo_score_rule rule;
    float to_logit, scale_log2; /* factors to logits, to base 2: of the rule's result, or scores */
};

ORDO_HD ordo_pass_common ordo_pass_common_of(const ordo_cuda_pass *pass)
{
    ordo_pass_common all;
    (ordo_cuda_pass &)all = *pass;
    all.has_rule = ordo_pass_has_rule(pass);
    all.rule = ordo_score_rule_of(pass->scale, pass->softcap, pass->slopes);
    all.to_logit = all.has_rule ? all.rule.natural : pass->scale;
    all.scale_log2 = all.has_rule ? all.rule.to_log2 : pass->scale * (float)ORDO_LOG2_E;
    all.keep_bits = pass->keep_scale > 0.0f ? pass->keep_bits : NULL;
    return all;
}

#endif
