/* critical.h: the critical path of a recorded timeline. */
#ifndef SIM_CRITICAL_H
#define SIM_CRITICAL_H

#include "ordo/lab/sim.h"
#include "sim/simulate.h"

/* Write the critical path of a record to *path, last step first. The caller frees *path. Returns
 * ORDO_ERR_MEMORY if there is no room for it. */
ordo_status ordo_timeline_trace(const ordo_record *record, const ordo_costs *costs,
                                ordo_critical **path, uint64_t *count);

#endif
