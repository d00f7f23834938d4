/* ops/combine.h: parts of attention over disjoint sets of keys, merged on the device. Plain C. */
#ifndef CUDA_OPS_COMBINE_H
#define CUDA_OPS_COMBINE_H

#include "cuda/pass/pass.h"
#include "ordo/attention.h"

/* Parts that fit the 4096 bytes of a launch's parameters; more go through a table in memory. */
enum { ORDO_COMBINE_FEW = 96 };

/* A part as the kernel reads it. */
typedef struct ordo_cuda_part {
    const uint16_t *o;
    const float *lse;
    int64_t sequence, row, head; /* strides of o in elements; the last is 1 */
} ordo_cuda_part;

/* A checked combination: arrays of parts are the host's, what they point to the device's. */
typedef struct ordo_cuda_combine {
    int64_t parts;
    const ordo_tensor *o_parts;
    const float *const *lse_parts;
    ordo_cuda_part *table;          /* on the device, if there are more than ORDO_COMBINE_FEW */
    int64_t sequences, heads, rows; /* packed: one sequence of all rows */
    int32_t dim;                    /* columns of o; at most 256 */
    bool f16;                       /* else bf16 */
    ordo_tensor o;
    float *lse;
    void *stream;
} ordo_cuda_combine;

ordo_status ordo_cuda_combine_parts(const ordo_cuda_combine *combine);
#endif
