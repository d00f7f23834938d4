/* gemm.h: matrix products of the CPU backend. */
#ifndef CPU_GEMM_H
#define CPU_GEMM_H

#include "plan/gemm.h"

/* Multiply as ordo/gemm.h says; a checked problem and call, with a value in place of every default.
 * If `beside` is not NULL, the last worker calls it first, while the others multiply. */
ORDO_FOR_LAB ordo_status ordo_cpu_gemm(const ordo_gemm_problem *problem, const ordo_gemm_call *call,
                                       void (*beside)(void *context), void *context);

#endif
