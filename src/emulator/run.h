/* run.h: passes of family sm90 on the threads of the host, and their units one by one. */
#ifndef EMULATOR_RUN_H
#define EMULATOR_RUN_H

#include "ordo/audit.h"
#include "plan/plan.h"

/* Run a checked call. ORDO_ERR_UNSUPPORTED names what the emulator does not compute, and
 * ORDO_ERR_MEMORY is returned before anything is written. */
ordo_status ordo_emulator_forward(const ordo_plan *plan, const ordo_call *call);
ordo_status ordo_emulator_backward(const ordo_plan *plan, const ordo_call *call);

/* The functions of ordo/audit.h for a checked call, and units that the pass has; those of blank
 * rows are not among them. `difference` is set, too, where rows that are not known make the status
 * ORDO_ERR_UNSUPPORTED. */
ordo_status ordo_emulator_unit_count(const ordo_plan *plan, const ordo_call *call, ordo_pass which,
                                     int64_t *count);
ordo_status ordo_emulator_unit_describe(const ordo_plan *plan, const ordo_call *call,
                                        ordo_pass which, int64_t index, ordo_audit_unit *unit);
ordo_status ordo_emulator_check(const ordo_plan *plan, const ordo_call *call, ordo_pass which,
                                int64_t index, int64_t count, ordo_audit_difference *difference);

#endif
