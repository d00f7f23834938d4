/* ordo/ordo.h: all of libordo: problems, plans, attention, audits, dropout, digests, records,
 * sums, matrix products, devices, machines, block
 * masks, element masks.
 *
 * The laboratory (ordo/lab.h: model, memory traffic, timelines) is a separate library.
 *
 * Every function computes in the default floating-point environment, whatever rounding, flushing or
 * traps its caller has set, and leaves that environment and its flags as they were. */
#ifndef ORDO_ORDO_H
#define ORDO_ORDO_H

#include "ordo/attention.h"
#include "ordo/audit.h"
#include "ordo/blocks.h"
#include "ordo/device.h"
#include "ordo/digest.h"
#include "ordo/dropout.h"
#include "ordo/gemm.h"
#include "ordo/machine.h"
#include "ordo/plan.h"
#include "ordo/problem.h"
#include "ordo/record.h"
#include "ordo/seen.h"
#include "ordo/status.h"
#include "ordo/sum.h"

#endif
