/* run.h: a simulated run beside the oracle's answers. */
#ifndef IO_RUN_H
#define IO_RUN_H

#include "io/choose.h"
#include "io/world.h"

/* What the oracle makes of the same inputs, in the world's order of rows. */
typedef struct ordo_io_answers {
    double *memory;
    double *o, *lse, *dq, *dk, *dv;
} ordo_io_answers;

/* Destroy it whatever the status. */
ordo_status ordo_io_answers_create(ordo_io_answers *answers, const ordo_io_world *world,
                                   const ordo_io_problem *problem);
void ordo_io_answers_destroy(ordo_io_answers *answers);

/* o and lse, which a backward pass starts from; and the largest difference of its results. */
void ordo_io_answers_give(const ordo_io_answers *answers, ordo_io_world *world);
double ordo_io_answers_error(const ordo_io_answers *answers, const ordo_io_world *world);

/* Run a world and measure its error. */
ordo_status ordo_io_execute(ordo_io_world *world, const ordo_io_problem *problem, double *error);

/* Everything but the error. */
void ordo_io_fill_report(ordo_io_report *report, const ordo_io_world *world);

#endif
