/* run.h: a simulated run and its comparison with the oracle. */
#ifndef IO_RUN_H
#define IO_RUN_H

#include "io/choose.h"
#include "io/world.h"

/* Results of the oracle for the same inputs, in the order of rows of the world. */
typedef struct ordo_io_answers {
    double *memory;
    double *o, *lse, *dq, *dk, *dv;
} ordo_io_answers;

/* Destroy the answers even if this fails. */
ordo_status ordo_io_answers_create(ordo_io_answers *answers, const ordo_io_world *world,
                                   const ordo_io_problem *problem);
void ordo_io_answers_destroy(ordo_io_answers *answers);

/* Copy o and lse, which the backward pass reads, to the world; return the largest difference
 * between the results of the world and the answers. */
void ordo_io_answers_give(const ordo_io_answers *answers, ordo_io_world *world);
double ordo_io_answers_error(const ordo_io_answers *answers, const ordo_io_world *world);

/* Run a world and compute its error. */
ordo_status ordo_io_execute(ordo_io_world *world, const ordo_io_problem *problem, double *error);

/* Fill in the report, except for the error. */
void ordo_io_fill_report(ordo_io_report *report, const ordo_io_world *world);

#endif
