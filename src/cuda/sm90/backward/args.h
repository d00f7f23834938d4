/* sm90/backward/args.h: arguments of the backward kernels. */
#ifndef CUDA_SM90_BACKWARD_ARGS_H
#define CUDA_SM90_BACKWARD_ARGS_H

#include <cuda.h>

#include "cuda/support/common.h"

/* Dense passes prefetch the sums of dV, and of dK, that a chain takes in, in so many pieces. */
enum { ORDO_SUMS_PIECES = 4 };

struct ordo_backward_maps {
    struct {
        CUtensorMap q, dout, k, v, dk, dv;
        CUtensorMap dk_sums, dv_sums; /* carried in: tiles of keys, or pieces */
    } map;
};

struct ordo_backward_args : ordo_backward_maps,
                            ordo_pass_common { /* dk.data NULL: neither dK nor dV */
    int64_t first_class; /* tickets of the heads issued first: the others come after */
    int64_t units;
    int32_t q_tiles;      /* per head */
    float dk_scale;       /* factor of dK */
    int64_t keep_line;    /* words from sixteen rows to the next */
    CUtensorMap map_bias; /* if it is copied: ordo_cuda_map_bias() */
};

/* A kernel, its tiles, and its launch parameters. */
typedef struct ordo_backward_instance {
    const void *kernel;
    int32_t rows, keys;
    unsigned threads, shared_bytes;
} ordo_backward_instance;

#endif
