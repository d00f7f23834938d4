/* work.h: memory and operations of a problem, as doubles, because they may exceed any integer. */
#ifndef CLI_WORK_H
#define CLI_WORK_H

#include "ordo/ordo.h"

/* Bytes of all tensors and of the workspace, roughly. */
double cli_work_bytes(const ordo_problem *problem);

/* Visible pairs (row, column) of one head, over all sequences: exact.
 * Packed: the numbers are ends; padded: lengths; dense: NULL. `mask` is one of kit/seen.h, or NULL.
 */
double cli_work_pairs(const ordo_problem *problem, const int32_t *q_numbers,
                      const int32_t *kv_numbers, const ordo_block_mask *mask);

/* The same as benchmarks of kernels count pairs: all for a full mask, half of them for a causal
 * one; exact for windows and for sequences of other lengths. */
double cli_work_nominal_pairs(const ordo_problem *problem, const int32_t *q_numbers,
                              const int32_t *kv_numbers);

/* Multiplications and additions of the matrix products over those pairs: two products forward, five
 * backward, 2 operations per pair, head and column. */
double cli_work_forward(const ordo_problem *problem, double pairs);
double cli_work_backward(const ordo_problem *problem, double pairs);

#endif
