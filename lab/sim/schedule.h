/* schedule.h: an ordo_schedule (tiles, orders and costs by hand) as a run, and the best order. */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include "ordo/lab/sim.h"
#include "planner/timeline.h"

/* Turn a schedule into a run and costs: check every field, fill in defaults, replace an order
 * that its shape does not allow (`info` says so), refuse what needs more workers. */
ordo_status ordo_schedule_prepare(const ordo_schedule *schedule, ordo_run *run, ordo_costs *costs,
                                  ordo_timeline_info *info);

/* Simulate within `budget` tasks (all of them if `record` is not NULL) and fill in `info`. */
ordo_status ordo_schedule_simulate(const ordo_run *run, const ordo_costs *costs, uint64_t budget,
                                   ordo_timeline_info *info, ordo_record *record);

/* The order of least makespan; closed forms where they exist, else few heads simulated. */
ordo_status ordo_schedule_best(const ordo_schedule *schedule, ordo_order *order);

#endif
