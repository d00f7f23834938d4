/* support/common.h: what the argument structs of all kernels of a pass have in common. */
#ifndef CUDA_SUPPORT_COMMON_H
#define CUDA_SUPPORT_COMMON_H

#include "cuda/pass/pass.h"
#include "cuda/tile/keep_inside.h"
#include "cuda/tile/score.h"

typedef struct ordo_pass_common {
    ordo_cuda_batch batch;
    ordo_cuda_tensor out[2]; /* o; or dk and dv */
    int32_t head_dim, v_head_dim;
    bool has_rule; /* `rule` applies to scores */
    ordo_score_rule rule;
    const float *slopes;
    int64_t slopes_sequence;
    ordo_keep_maker maker;
    ordo_cuda_block_mask blocks;
    int32_t kv_heads, group_heads;
    float scale, scale_log2;   /* of what the rule gives, else of scores: to logits, to base 2 */
    float keep_scale;          /* factor of kept elements; 0: no dropout */
    const uint32_t *keep_bits; /* NULL: no dropout, or bits are made inside */
    int32_t *ticket;
} ordo_pass_common;

ORDO_HD ordo_pass_common ordo_pass_common_of(const ordo_cuda_pass *pass, bool backward)
{
    const ordo_cuda_tensor none = {};
    ordo_pass_common all;
    all.batch = pass->batch;
    all.out[0] = backward ? pass->dk : pass->o;
    all.out[1] = backward ? pass->dv : none;
    all.head_dim = pass->head_dim;
    all.v_head_dim = pass->v_head_dim;
    all.has_rule = ordo_pass_has_rule(pass);
    all.rule = ordo_score_rule_of(pass->scale, pass->softcap, pass->slopes);
    all.slopes = pass->slopes;
    all.slopes_sequence = pass->slopes_sequence;
    all.maker = ordo_keep_maker_of(pass);
    all.blocks = pass->blocks;
    all.kv_heads = pass->run.kv_heads;
    all.group_heads = pass->run.group_heads;
    all.scale = all.has_rule ? all.rule.natural : pass->scale;
    all.scale_log2 = all.has_rule ? all.rule.to_log2 : pass->scale * (float)ORDO_LOG2_E;
    all.keep_scale = pass->keep_scale;
    all.keep_bits = pass->keep_scale > 0.0f ? pass->keep_bits : NULL;
    all.ticket = pass->ticket;
    return all;
}

#endif
