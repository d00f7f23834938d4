/* ordo/ordo.h: all of ordo. */
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
