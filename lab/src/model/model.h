/* model.h: prices of what the planner does not need: GEMMs, copies and transformer blocks. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "ordo/lab/model.h"
#include "price/price.h"

/* Prices of single kernels; the arguments are already checked. */
ordo_priced ordo_price_gemm(const ordo_model *model, const ordo_gemm *gemm);
ordo_priced ordo_price_memory(const ordo_model *model, double read_bytes, double write_bytes);

/* Idle share of the workers in a GEMM, caused by its last, partial wave of tiles. */
double ordo_gemm_tail(const ordo_model *model, const ordo_gemm *gemm);

/* Price a block whose arguments are checked and whose defaults are filled in. */
void ordo_price_block(const ordo_model *model, const ordo_block *block,
                      const ordo_kernel_counts *counts, ordo_block_report *report);

/* Whether a GEMM leaves registers for a warp that makes keep bits. */
bool ordo_model_coresident(const ordo_model *model);

/* Overlap of GEMMs that take `gemm` seconds with making bits, which takes `rng` seconds. */
typedef struct ordo_hidden {
    double seconds, exposed;
} ordo_hidden;

typedef struct ordo_beside {
    double gemm, rng;
    double steal; /* tensor time taken by the wide multiplications of making the bits; or 0 */
    double tail;  /* idle time in the last waves of the GEMMs */
    double gaps;  /* share of making the bits that runs beside other kernels than GEMMs */
    bool awaited; /* the kernel after the GEMMs needs the bits, not the next block */
} ordo_beside;

ordo_hidden ordo_overlap(const ordo_model *model, const ordo_beside *beside);

/* Whether kernels beside products make the upper halves of Philox's products by f64, which takes
 * nothing from the tensor cores. */
bool ordo_bits_by_f64(const ordo_rng *rng);

/* How many times as long as alone, which takes `seconds`, making bits takes beside GEMMs, from
 * which it takes `steal` seconds in all. */
double ordo_bits_slow(const ordo_model *model, double seconds, double steal);

#endif
