/* sm90/forward/args.h: arguments of the forward kernels, and what an instance is. */
#ifndef CUDA_SM90_FORWARD_ARGS_H
#define CUDA_SM90_FORWARD_ARGS_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/pass/forward_order.h"
#include "cuda/pass/keep_tile.h"
#include "cuda/pass/pages.h"
#include "cuda/support/common.h"
#include "ordo/status.h"

struct ordo_forward_maps {
    struct {
        CUtensorMap q, k, v, o;
    } map;
};

struct ordo_forward_args : ordo_forward_maps, ordo_pass_common {
    ordo_forward_issue_order issue;
    ordo_keep_select select; /* read by the dense kernel if ORDO_KEEP_MADE */
    int32_t units;
};

/* Of kernels for keys in pages. The map of q of the one in decode.h counts heads before rows. */
struct ordo_paged_args : ordo_forward_args {
    ordo_cuda_pages pages;
    int32_t queries; /* of a unit */
    int32_t
        copy_shift; /* keys of one copy, as a power of 2: divide those of a page and of a tile */
};

/* Of kernels with a bias. `staged`: it has a map, of boxes of 64 rows and 128 bytes. */
struct ordo_forward_bias_args : ordo_forward_args {
    CUtensorMap map_bias;
    bool staged;
};

/* Columns of V that a block of the last kernel in spread.h multiplies. */
enum { ORDO_SPREAD_SLICE = 32 };

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
    int32_t rows, columns; /* size of its tiles */
    unsigned threads, shared_bytes;
} ordo_forward_instance;

#endif
