/* work.h: how much memory and arithmetic a problem is. Doubles, because it may be absurd. */
#ifndef CLI_WORK_H
#define CLI_WORK_H

#include "ordo/ordo.h"

/* Bytes of all tensors and of the workspace, roughly. */
double cli_work_bytes(const ordo_problem *problem);

/* Pairs (row, column) of which the row sees the column, of one head of all sequences: exact.
 * Packed: the numbers are ends; padded: lengths; dense: NULL. */
double cli_work_pairs(const ordo_problem *problem, const int32_t *q_numbers,
                      const int32_t *kv_numbers);

/* The same as benchmarks of kernels count it: every pair of a full mask, half of them of a causal
 * one; exact for windows and for sequences of other lengths. */
double cli_work_nominal_pairs(const ordo_problem *problem, const int32_t *q_numbers,
                              const int32_t *kv_numbers);

/* Multiplications and additions of the products over those pairs: two of them forward, five
 * backward, 2 operations a pair, head and column. */
double cli_work_forward(const ordo_problem *problem, double pairs);
double cli_work_backward(const ordo_problem *problem, double pairs);

#endif
