/* call.h: check the arguments of a pass, once, before any backend sees them. */
#ifndef API_CALL_H
#define API_CALL_H

#include "ordo/attention.h"
#include "plan/plan.h"

/* Copy `in`, of any version, to `out`, and check it against a resolved problem: tensors, strides,
 * lengths, slopes, dropout, workspace, and that no output overlaps anything else. If `host` is
 * false, arrays are on a device and their contents are not checked. `mask` holds the block mask of
 * `out`, if it has one. */
ordo_status ordo_call_check(const ordo_problem *problem, ordo_pass pass, bool host,
                            uint64_t workspace_bytes, const ordo_call *in, ordo_call *out,
                            ordo_block_mask *mask);

/* Check the batch + 1 ends of packed sequences: they begin with 0 and end with `total` or less, and
 * no sequence is longer than `longest`. */
ordo_status ordo_check_ends(const char *name, const int32_t *ends, int64_t batch, int64_t total,
                            int64_t longest);

/* Check that the offset and the sequence ids (NULL: none) fit the counter of the generator. */
ordo_status ordo_check_keys(const ordo_problem *problem, uint64_t offset,
                            const int64_t *sequence_ids);

/* As ordo_call_check(), for ordo_attention_combine(). `o_parts` and `lse_parts` of `out` point to
 * those of `in`. */
ordo_status ordo_combine_check(const ordo_problem *problem, const ordo_combine *in,
                               ordo_combine *out);

#endif
