/* ordo/lab.h: all of libordo_lab, the laboratory, which builds on libordo.
 *
 * It answers questions about attention: how long kernels and transformer blocks take by their
 * limiters (ordo/lab/model.h), how many words an algorithm moves between two memories
 * (ordo/lab/io.h), how a schedule fills its workers (ordo/lab/sim.h), and how ranks share long
 * sequences (ordo/lab/ranks.h). It also runs transformer blocks around libordo's attention
 * (ordo/lab/block.h). Link libordo_lab and libordo of the same version. ordo_last_error() of
 * libordo has the message of a failure in either library. */
#ifndef ORDO_LAB_H
#define ORDO_LAB_H

#include "ordo/lab/block.h"
#include "ordo/lab/io.h"
#include "ordo/lab/model.h"
#include "ordo/lab/ranks.h"
#include "ordo/lab/sim.h"

#endif
