/* sm90/gemm/gemm.h: matrix products by wgmma. */
#ifndef CUDA_SM90_GEMM_GEMM_H
#define CUDA_SM90_GEMM_GEMM_H

#include "cuda/pass/gemm.h"
#include "cuda/sm90/gemm/args.h"
#include "cuda/support/launch.h"

/* Launch a checked product on its stream. */
ordo_status ordo_wgmma_gemm(const ordo_cuda_gemm *gemm);

/* Kernel number `kind`, from 0 on, with its name; NULL if there are no more. kernel->kernel is NULL
 * if it does not run that product. */
const char *ordo_gemm_kind(int kind, const ordo_cuda_gemm *gemm, ordo_gemm_instance *kernel);

/* The arguments and the grid of a product by that kernel. */
ordo_status ordo_gemm_prepare(const ordo_cuda_gemm *gemm, const ordo_gemm_instance *kernel,
                              ordo_gemm_args *args, ordo_cuda_grid *grid);

/* Launch the product by that kernel, and what follows it. */
ordo_status ordo_gemm_run(const ordo_cuda_gemm *gemm, const ordo_gemm_instance *kernel);

/* Add the sections' sums, of which none are +0, and end C. */
ordo_status ordo_gemm_sections(const ordo_cuda_gemm *gemm);

#endif
