/* ordo/ordo.h: all of ordo.
 *
 * Every function computes in the default floating-point environment, whatever rounding, flushing or
 * traps its caller has set, and leaves that environment and its flags as they were. */
#ifndef ORDO_ORDO_H
#define ORDO_ORDO_H

#include "ordo/attention.h"
#include "ordo/device.h"
#include "ordo/dropout.h"
#include "ordo/io.h"
#include "ordo/machine.h"
#include "ordo/model.h"
#include "ordo/plan.h"
#include "ordo/problem.h"
#include "ordo/sim.h"
#include "ordo/status.h"

#endif
