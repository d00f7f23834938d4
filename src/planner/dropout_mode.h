/* dropout_mode.h: how a plan should make its keep bits. */
#ifndef PLANNER_DROPOUT_MODE_H
#define PLANNER_DROPOUT_MODE_H

#include "ordo/machine.h"
#include "plan/plan.h"

/* Fill in dropout_mode and keep_bits, which change no bit. The mode is the default if the machine
 * is NULL. */
void ordo_plan_advise(ordo_plan *plan, const ordo_machine *machine);

/* The rule: given bits save both passes the sum of four terms, each times a constant of the class
 * of the head size, and must pay for making them. lab/bench/fit_dropout_mode.c fits the constants
 * to the performance model. */
enum { ORDO_DROPOUT_CLASSES = 6, ORDO_DROPOUT_TERMS = 4 };

typedef struct ordo_dropout_saving {
    int64_t head_dim; /* the largest of the class */
    double each[ORDO_DROPOUT_TERMS];
} ordo_dropout_saving;

extern const ordo_dropout_saving ordo_dropout_savings[ORDO_DROPOUT_CLASSES];

typedef struct ordo_dropout_terms {
    int at; /* the class */
    /* scores, by how long the slowest worker takes for them; the same times the generator's
     * instructions; rows; how unevenly workers are loaded */
    double value[ORDO_DROPOUT_TERMS];
    double make_seconds; /* making the bits, and the call for it */
} ordo_dropout_terms;

ordo_dropout_terms ordo_plan_dropout_terms(const ordo_plan *plan);

static inline double ordo_dropout_saved(const ordo_dropout_terms *terms,
                                        const ordo_dropout_saving *saving)
{
    double seconds = 0;
    for (int k = 0; k < ORDO_DROPOUT_TERMS; k++)
        seconds += terms->value[k] * saving->each[k];
    return seconds;
}

#endif
