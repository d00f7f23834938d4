/* call.h: check the arguments of a pass, once, before any backend sees them. */
#ifndef API_CALL_H
#define API_CALL_H

#include "ordo/attention.h"

typedef enum ordo_pass { ORDO_FORWARD, ORDO_BACKWARD } ordo_pass;

/* Copy `in` to `out` whatever its version, and check it against a resolved problem: tensors,
 * strides, lengths, slopes, dropout, workspace, and that no output overlaps anything else.
 * With `host` false the contents of arrays are out of reach and are not checked. */
ordo_status ordo_call_check(const ordo_problem *problem, ordo_pass pass, bool host,
                            uint64_t workspace_bytes, const ordo_call *in, ordo_call *out);

/* The ends of packed sequences: batch + 1, from 0 to `total` at most, no sequence longer than
 * `longest`. */
ordo_status ordo_check_ends(const char *name, const int32_t *ends, int64_t batch, int64_t total,
                            int64_t longest);

/* That an array of elements of `width` bytes begins where one may. */
ordo_status ordo_check_aligned(const char *name, const void *array, size_t width);

/* With dropout: that the offset and the ids (NULL: none given) fit the generator's counter. */
ordo_status ordo_check_keys(const ordo_problem *problem, uint64_t offset,
                            const int64_t *sequence_ids);

/* The same for a combination; `o_parts` and `lse_parts` of `out` are those of `in`. */
ordo_status ordo_combine_check(const ordo_problem *problem, const ordo_combine *in,
                               ordo_combine *out);

#endif
