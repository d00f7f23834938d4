/* sm90/gemm/instances.h: the instances of the GEMM kernels.
 *
 * A line makes an object with ordo_gemm_NAME(), a call of a template of sm90/gemm/launch.h, as in
 * sm90/forward/instances.h. */
#ifndef CUDA_SM90_GEMM_INSTANCES_H
#define CUDA_SM90_GEMM_INSTANCES_H

#include "cuda/sm90/gemm/args.h"

#define ORDO_GEMM_INSTANCES(INSTANCE)                                                              \
    /* tiles of 128 x 256, and of 128 x 128 for products that have few of those */                 \
    INSTANCE(wide_bf16, gemm_any<gemm_wide, false>)                                                \
    INSTANCE(wide_f16, gemm_any<gemm_wide, true>)                                                  \
    INSTANCE(narrow_bf16, gemm_any<gemm_narrow, false>)                                            \
    INSTANCE(narrow_f16, gemm_any<gemm_narrow, true>)                                              \
    /* up to 64 rows of A by weights that are stored as rows of k, by columns */                   \
    INSTANCE(rows_32_bf16, gemm_plain<gemm_rows<32>, false>)                                       \
    INSTANCE(rows_32_f16, gemm_plain<gemm_rows<32>, true>)                                         \
    INSTANCE(rows_64_bf16, gemm_plain<gemm_rows<64>, false>)                                       \
    INSTANCE(rows_64_f16, gemm_plain<gemm_rows<64>, true>)                                         \
    INSTANCE(rows_96_bf16, gemm_plain<gemm_rows<96>, false>)                                       \
    INSTANCE(rows_96_f16, gemm_plain<gemm_rows<96>, true>)                                         \
    INSTANCE(rows_128_bf16, gemm_plain<gemm_rows<128>, false>)                                     \
    INSTANCE(rows_128_f16, gemm_plain<gemm_rows<128>, true>)                                       \
    /* the same of e4m3 */                                                                         \
    INSTANCE(wide_e4m3, gemm_plain<gemm_e4m3<gemm_wide, 128>, false>)                              \
    INSTANCE(narrow_e4m3, gemm_plain<gemm_e4m3<gemm_narrow, 128>, false>)                          \
    INSTANCE(rows_32_e4m3, gemm_plain<gemm_e4m3<gemm_rows<32>, 32>, false>)                        \
    INSTANCE(rows_64_e4m3, gemm_plain<gemm_e4m3<gemm_rows<64>, 64>, false>)                        \
    INSTANCE(rows_96_e4m3, gemm_plain<gemm_e4m3<gemm_rows<96>, 96>, false>)                        \
    INSTANCE(rows_128_e4m3, gemm_plain<gemm_e4m3<gemm_rows<128>, 128>, false>)

/* The instance for operands that are stored so (pass/gemm.h). */
#define ORDO_GEMM_DECLARE(NAME, ...)                                                               \
    ordo_gemm_instance ordo_gemm_##NAME(bool a_rows_are_k, bool b_rows_are_k);
ORDO_GEMM_INSTANCES(ORDO_GEMM_DECLARE)

#endif
