/* model.h: inside the model: prices of what the planner has no use for, GEMMs and blocks. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "ordo/lab/model.h"
#include "planner/price.h"

/* Kernels, arguments checked. */
ordo_priced ordo_price_gemm(const ordo_model *model, const ordo_gemm *gemm);
ordo_priced ordo_price_memory(const ordo_model *model, double read_bytes, double write_bytes);

/* Share of a GEMM's last wave of tiles that stands idle, of its whole time. */
double ordo_gemm_tail(const ordo_model *model, const ordo_gemm *gemm);

/* The block, arguments checked and defaults filled in. */
void ordo_price_block(const ordo_model *model, const ordo_block *block,
                      const ordo_kernel_counts *counts, ordo_block_report *report);

/* Whether a warp of the mask kernel finds registers beside a GEMM. */
bool ordo_model_coresident(const ordo_model *model);

/* GEMMs of `gemm` seconds with a mask of `rng` seconds beside them. */
typedef struct ordo_hidden {
    double seconds, exposed;
} ordo_hidden;

typedef struct ordo_beside {
    double gemm, rng;
    double steal; /* tensor time that all wide multiplications of the mask take */
    double tail;  /* idle time in the last waves of the GEMMs */
} ordo_beside;

ordo_hidden ordo_overlap(const ordo_model *model, const ordo_beside *beside);

#endif
