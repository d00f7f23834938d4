/* ordo/seen.h: element masks: which elements the rows of a sequence see, one by one.
 *
 * An element mask narrows the mask of a problem. Row i sees column j if both of this holds:
 *
 *   mask   visible(i, j) of ordo/problem.h: lengths, causal, window
 *   seen   element (i, j) of the element mask is not 0
 *
 * It is a block mask (ordo/blocks.h) whose partial blocks have bits instead of intervals: a pass
 * leaves out blocks in which nothing is seen, computes whole ones as without a mask, and reads bits
 * in the others. The problem says that its calls have one (ordo_problem.seen), the call points to
 * it (ordo_call.seen). It is made once of a tensor of bytes, and then serves any number of passes
 * and plans of the same lengths. The bits of a result are a function of the elements that are
 * visible, the tiles and the order, as with any mask.
 *
 *   runs      where and as block masks do, in every layout; on backend cuda up to head size 256
 *   refused   segments of dropout, and with it a block mask or pages, when the plan is made;
 *             kv_starts by the call (ORDO_ERR_UNSUPPORTED) */
#ifndef ORDO_SEEN_H
#define ORDO_SEEN_H

#include "ordo/blocks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the element mask of a problem with seen.on: one bit per element, in whole blocks, and
 * the lists. ORDO_ERR_OVERFLOW if it has more than 2^31 - 1 blocks. */
ORDO_API ordo_status ordo_seen_bytes(const ordo_problem *problem, size_t *bytes);

/* Make an element mask in `memory`, which holds the bytes of ordo_seen_bytes(), is aligned to 16
 * and outlives the mask. `seen` is an ORDO_BLOCK_MASK_INIT, whose arrays then lie there: bits,
 * start and key, one behind the other, the last with room for all blocks.
 *
 * Element (sequence, head, row, column) is the byte at
 *
 *   elements + sequence strides[0] + head strides[1] + row strides[2] + column strides[3]
 *
 * It is seen if the byte is not 0. Rows and columns are q_len and kv_len of the problem; without
 * per_sequence or per_head there is one sequence, or one head. A stride may be 0. Takes about a
 * nanosecond per element. */
ORDO_API ordo_status ordo_seen_make(ordo_block_mask *seen, const ordo_problem *problem,
                                    const void *elements, const int64_t strides[4], void *memory,
                                    size_t bytes);

/* Make it on the current CUDA device, on `stream` (NULL: the default one), for backend cuda.
 * `elements` and `memory` lie there, and `seen` is ready when the work on the stream is done. The
 * bits are those of ordo_seen_make(); the lists have all blocks, also those in which nothing is
 * seen, which changes no result. */
ORDO_API ordo_status ordo_seen_make_device(ordo_block_mask *seen, const ordo_problem *problem,
                                           const void *elements, const int64_t strides[4],
                                           void *memory, size_t bytes, void *stream);

/* Find an ordinary mask that hides what the mask of a dense problem and `seen` hide together: full,
 * causal, causal-top-left or a window, with padding or without. `as` becomes the problem with that
 * mask, without seen; its layout is padded if sequences are shorter than q_len and kv_len, whose
 * valid lengths are then in q_lens and kv_lens (batch elements each, or both NULL: padding is not
 * tried). If there is none, or the problem is a shard or not dense, `as` is the problem itself. The
 * heads of a sequence must agree, and ALiBi must stay as it is. */
ORDO_API ordo_status ordo_seen_kind(const ordo_problem *problem, const ordo_block_mask *seen,
                                    ordo_problem *as, int32_t *q_lens, int32_t *kv_lens);

#ifdef __cplusplus
}
#endif
#endif
