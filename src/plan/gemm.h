/* gemm.h: the plan of a matrix product: the chains of an element and the tree over them. */
#ifndef PLAN_GEMM_H
#define PLAN_GEMM_H

#include "ordo/gemm.h"
#include "plan/family.h"

enum {
    ORDO_GEMM_STEP = 16,   /* elements of k in a step of a chain */
    ORDO_GEMM_CHAIN = 128, /* the same of a chain of e4m3, the sum of which is added to others */
    ORDO_GEMM_DEPTH = 4    /* sums that wait for one another in the tree over 8 sections */
};

struct ordo_gemm_plan {
    ordo_gemm_problem problem; /* every default filled in */
    ordo_backend backend;
    const ordo_family *family;
};

/* Elements of k in one section. */
static inline int64_t ordo_gemm_section(const ordo_gemm_problem *problem)
{
    return problem->k / problem->sections;
}

/* The tree: sums wait on a stack of ORDO_GEMM_DEPTH places. When section `s` has been pushed, the
 * top two places become their sum, the earlier one first, this many times. */
static inline int ordo_gemm_merges(int s)
{
    return __builtin_ctz((unsigned)s + 1);
}

/* "gemm.cpu.r1/s8", "gemm-e4m3.sm90.r1/s1": same key, same bits. */
void ordo_gemm_key(const ordo_gemm_plan *plan, char *text, size_t capacity);

/* Levels of the promise that the plan keeps. Every plan keeps the same: no row knows another, and
 * k is divided by sections alone. */
unsigned ordo_gemm_promise(const ordo_gemm_plan *plan);

#endif
