/* schedule.h: an ordo_schedule as a run of the simulator, and the choice of an order. */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include "ordo/lab/sim.h"
#include "sim/simulate.h"

/* Turn a schedule into a run and costs: check every field, fill in defaults, and replace an order
 * that the shape does not allow; `info` then has a note. ordo_schedule_release() frees what costs
 * refer to. Returns ORDO_ERR_ARGUMENT for a field out
 * of range, ORDO_ERR_OVERFLOW for too many rows, ORDO_ERR_UNSUPPORTED if the order needs more
 * workers. */
ordo_status ordo_schedule_prepare(const ordo_schedule *schedule, ordo_run *run, ordo_costs *costs,
                                  ordo_timeline_info *info);
void ordo_schedule_release(ordo_costs *costs);

/* Simulate at most about `budget` tasks, or all of them if `record` is not NULL, and fill in
 * `info`. */
ordo_status ordo_schedule_simulate(const ordo_run *run, const ordo_costs *costs, uint64_t budget,
                                   ordo_timeline_info *info, ordo_record *record);

/* Choose the order with the smallest makespan, by closed forms where they exist, else by simulating
 * a few heads. */
ordo_status ordo_schedule_best(const ordo_schedule *schedule, ordo_order *order);

#endif
