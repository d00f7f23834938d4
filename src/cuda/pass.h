/* pass.h: one call as the CUDA module sees it: numbers and pointers, every rule applied already.
 *
 * libordo fills it from a plan and a checked call; the module reads nothing else. Plain C. */
#ifndef CUDA_PASS_H
#define CUDA_PASS_H

#include "plan/issue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Indexed (sequence, row, head, dim); the last stride is 1, the others count elements. */
typedef struct ordo_cuda_tensor {
    void *data;
    int64_t sequence, row, head;
} ordo_cuda_tensor;

typedef struct ordo_cuda_pass {
    ordo_run run; /* lengths, backward tiles, mask, heads, order, issue order, workers */
    int32_t head_dim;
    float scale;
    float keep_scale; /* dropout: what kept elements are multiplied by; 0: none */
    ordo_cuda_tensor q, k, v, o, dout, dq, dk, dv;
    float *lse;                /* (sequence, head, row) */
    const uint32_t *keep_bits; /* dropout: in storage order (docs/dropout-bits.md) */

    /* Workspace. Tiles of all query heads are numbered (sequence, head, tile). */
    int32_t *ticket; /* forward and backward: the next unit of work, and a flag: see below */
    int32_t *turns;  /* a counter a query tile */
    float *dq_sum;   /* a tile of f32 a query tile, in the order of the registers: layout.h */
    float *delta;    /* a row each, rows padded to whole tiles, permuted in sixteens: layout.h */
    float *lse2;     /* likewise: lse in powers of two, +inf where a row sees nothing */

    void *stream;
} ordo_cuda_pass;

/* The place after the ticket: not zero if a pass has written anything that is not finite. */
enum { ORDO_NOT_FINITE = 1 };

#ifdef __cplusplus
}
#endif
#endif
