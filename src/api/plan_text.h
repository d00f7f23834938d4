/* plan_text.h: a plan as one line of text, and back. */
#ifndef API_PLAN_TEXT_H
#define API_PLAN_TEXT_H

#include "plan/plan.h"

enum { ORDO_PLAN_LINE_MAX = 2048 }; /* bytes of a line, its NUL included */

/* Write the line; it always fits. Returns its length. */
size_t ordo_plan_write(const ordo_plan *plan, char text[ORDO_PLAN_LINE_MAX]);

/* Read a line into a zeroed plan: every field, in order, in its one spelling. Values are checked
 * for their type only. Returns ORDO_ERR_PARSE with the name of the first wrong field. */
ordo_status ordo_plan_read(ordo_plan *plan, const char *text);

#endif
