/* dropout_mode.h: how a plan should make its keep bits. */
#ifndef PLANNER_DROPOUT_MODE_H
#define PLANNER_DROPOUT_MODE_H

#include "base/for_lab.h"
#include "ordo/machine.h"
#include "plan/plan.h"

/* Fill in dropout_mode and keep_bits, which change no bit. The mode is the default if the machine
 * is NULL. */
void ordo_plan_advise(ordo_plan *plan, const ordo_machine *machine);

/* The mode of a plan of which no machine is known: fused, which needs no memory, where there is a
 * kernel that makes the bits. */
ORDO_FOR_LAB ordo_dropout_mode ordo_plan_default_mode(const ordo_plan *plan);

/* The rule: what both passes of a head size save if the bits are given, against making them. The
 * savings are fitted to the performance model (lab/bench/fit_dropout_mode.c). */
typedef struct ordo_dropout_saving {
    double head_dim; /* the largest of the class */
    double fixed;    /* picoseconds for each score */
    double made;     /* the same for a generator of 7 rounds and 8 bits */
    double start;    /* nanoseconds for 128 rows of a head */
} ordo_dropout_saving;

typedef struct ordo_dropout_terms {
    int at;              /* the class */
    double scores;       /* visible ones, more where workers wait for others */
    double generator;    /* instructions over those of the generator of `made` */
    double units;        /* 128 rows of a head; under a window the share that it leaves */
    double make_seconds; /* making the bits, and the call for it */
} ordo_dropout_terms;

ordo_dropout_terms ordo_plan_dropout_terms(const ordo_plan *plan);
double ordo_dropout_saved(const ordo_dropout_terms *terms, const ordo_dropout_saving *saving);
const ordo_dropout_saving *ordo_dropout_savings(int *count);

#endif
