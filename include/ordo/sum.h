/* ordo/sum.h: sums of arrays by one fixed binary tree.
 *
 * Gradients of micro-batches are added by a tree that depends on their number alone. Node (level l,
 * index i) of the tree is the sum of the inputs i * 2^l ... (i + 1) * 2^l - 1, those that exist:
 *
 *   count 4: (0 + 1) + (2 + 3)      count 7: ((0 + 1) + (2 + 3)) + ((4 + 5) + 6)
 *
 * Each node is one f32 addition, rounded to nearest, of its left and its right child; a node
 * without a right child is its left child. So the sum over an aligned block of 2^l inputs is a node
 * of every larger tree, and a tree may be added in parts: by groups of inputs, as the inputs
 * arrive, or on several machines. The result has the same bits on every backend and with any number
 * of threads.
 *
 * Subnormal numbers are kept. A result that is NaN is stored as the canonical quiet NaN
 * (0x7fc00000); inputs that are NaN and sums of opposite infinities give it. The sum of one input
 * is that input, and a zero keeps its sign. */
#ifndef ORDO_SUM_H
#define ORDO_SUM_H

#include "ordo/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most inputs of one call. Longer sums are made of blocks of ORDO_SUM_MOST inputs, whose sums
 * are the inputs of the next call. */
enum { ORDO_SUM_MOST = 256 };

typedef struct ordo_sum {
    size_t size;               /* sizeof(ordo_sum) */
    ordo_dtype dtype;          /* type of the inputs: f32, bf16 or f16, converted to f32 exactly */
    int threads;               /* for ordo_sum_tree(): 0 = as many as the process may use */
    int64_t count;             /* inputs, 1 ... ORDO_SUM_MOST */
    int64_t elements;          /* number in each input and in out; 0: nothing is read or written */
    const void *const *inputs; /* `count` arrays; the array of pointers is on the host */

    /* Overwritten. It may be one of the inputs itself, if those are f32 (a += b); apart from that
     * it shares no byte with an input. Inputs may share theirs. */
    float *out;
} ordo_sum;

#define ORDO_SUM_INIT ORDO_SIZED(ordo_sum)

/* Write the tree sum of arrays in host memory. The arrays are aligned to their elements.
 *
 * Returns ORDO_ERR_ARGUMENT, ORDO_ERR_ALIGN or ORDO_ERR_OVERFLOW before anything is written. */
ORDO_API ordo_status ordo_sum_tree(const ordo_sum *sum);

/* The same for arrays in the memory of the current CUDA device: the bits of ordo_sum_tree(). The
 * kernel is launched on `stream` (a cudaStream_t; NULL: the default stream); `threads` is not
 * used. It runs fastest if all arrays are aligned to 16 bytes.
 *
 * Also returns ORDO_ERR_UNSUPPORTED without a CUDA module or a device of compute capability 9.0,
 * and ORDO_ERR_DEVICE if the launch fails. */
ORDO_API ordo_status ordo_sum_tree_device(const ordo_sum *sum, void *stream);

#ifdef __cplusplus
}
#endif
#endif
