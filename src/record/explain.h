/* explain.h: a comparison of two records as data, and the words for what it found. */
#ifndef RECORD_EXPLAIN_H
#define RECORD_EXPLAIN_H

#include "ordo/record.h"
#include "record/record.h"

/* Two records of one step: of the two files, or of one file that holds it twice. */
typedef struct ordo_step_pair {
    const ordo_record_step *a, *b;
    const ordo_record_session *session_a, *session_b;
} ordo_step_pair;

/* A step that both files have: its index in each. */
typedef struct ordo_step_match {
    size_t a, b;
    bool equal;
} ordo_step_match;

struct ordo_comparison {
    ordo_names names;
    ordo_record a, b;
    ordo_step_match *matches; /* `count` of them */
    size_t count;
    ordo_step_pair first;            /* the first that differs; NULL steps if none does */
    char repeated;                   /* 'A' or 'B' if `first` is of this file alone; else NUL */
    ordo_step_difference difference; /* what differs in `first` */
    ordo_comparison_info info;
    char *text, *hint, *different, *gradient; /* what info points to */
};

/* Number of the step that a match is about. */
static inline int64_t ordo_comparison_number(const ordo_comparison *c, size_t match)
{
    return c->a.steps[c->matches[match].a].step;
}

/* Set causes and the texts of `info` from all the rest. False if memory ran out. */
bool ordo_comparison_explain(ordo_comparison *comparison);

#endif
