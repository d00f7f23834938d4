/* gemm.h: matrix products of Hopper kernels, on the host (cuda/pass/gemm.h). */
#ifndef EMULATOR_GEMM_H
#define EMULATOR_GEMM_H

#include "plan/gemm.h"

/* Multiply a checked problem and call, with a value in place of every default. */
ordo_status ordo_emulator_gemm(const ordo_gemm_problem *problem, const ordo_gemm_call *call);

#endif
