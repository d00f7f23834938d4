/* sm90/forward/args.h: arguments of the forward kernels, and what an instance is. */
#ifndef CUDA_SM90_FORWARD_ARGS_H
#define CUDA_SM90_FORWARD_ARGS_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/pass/forward_order.h"
#include "cuda/pass/keep_tile.h"
#include "cuda/support/common.h"
#include "ordo/status.h"

typedef struct ordo_forward_args {
    CUtensorMap q, k, v, o;
    ordo_pass_common all;
    ordo_forward_issue_order issue;
    int32_t units;
    int32_t backward_rows; /* of the query tiles that the table of sequences counts */
    float *lse;
    const float *sink;       /* one logit per query head, or NULL */
    ordo_keep_select select; /* read by the dense kernel if ORDO_KEEP_MADE */
} ordo_forward_args;

/* What happens to scores before the softmax. */
typedef enum ordo_forward_rule {
    ORDO_RULE_ANY,      /* `has_rule` and `rule` say it at run time: the varlen kernel */
    ORDO_RULE_NONE,     /* nothing */
    ORDO_RULE_CAP,      /* softcap alone */
    ORDO_RULE_DISTANCE, /* ALiBi alone, with a scale of which rule.h leaves scores as they are */
} ordo_forward_rule;

/* A kernel and its launch parameters. */
typedef struct ordo_forward_instance {
    const void *kernel;
    int32_t rows, columns; /* of its tiles */
    unsigned threads, shared_bytes;
} ordo_forward_instance;

#endif
