/* audit_blank.h: rows that belong to no sequence, in an audit: after the length of a padded
 * sequence, after the last end of a packed tensor, and all rows of an empty problem. Their results
 * are fixed: o and gradients 0, lse -inf. */
#ifndef API_AUDIT_BLANK_H
#define API_AUDIT_BLANK_H

#include "api/call.h"
#include "ordo/audit.h"

/* The number of such rows in the outputs of a pass. */
int64_t ordo_audit_blank_rows(const ordo_problem *problem, ordo_pass pass, const ordo_call *call);

/* Compare them; sets all of `difference` but its size. */
void ordo_audit_blank_check(const ordo_problem *problem, ordo_pass pass, const ordo_call *call,
                            ordo_audit_difference *difference);

#endif
