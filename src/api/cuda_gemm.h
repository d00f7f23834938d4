/* cuda_gemm.h: matrix products of cuda plans, as the CUDA module takes them. */
#ifndef API_CUDA_GEMM_H
#define API_CUDA_GEMM_H

#include "plan/gemm.h"

/* Bytes of workspace of a cuda plan. */
uint64_t ordo_cuda_gemm_workspace(const ordo_gemm_plan *plan);

/* Launch a checked call. */
ordo_status ordo_cuda_gemm_run(const ordo_gemm_plan *plan, const ordo_gemm_call *call);

#endif
