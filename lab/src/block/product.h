/* product.h: a product of a block as one of libordo's. */
#ifndef BLOCK_PRODUCT_H
#define BLOCK_PRODUCT_H

#include "block/block.h"
#include "ordo/gemm.h"

/* What is multiplied, with elements of this type. */
static inline ordo_gemm_problem ordo_block_gemm_problem(const block_product *product,
                                                        ordo_dtype dtype)
{
    return (ordo_gemm_problem) { .size = sizeof(ordo_gemm_problem),
                                 .m = product->m,
                                 .n = product->n,
                                 .k = product->k,
                                 .dtype = dtype,
                                 .c_dtype = dtype,
                                 .a_transposed = product->a_transposed,
                                 .b_transposed = product->b_transposed,
                                 .sections = 1 };
}

/* Its matrices, all contiguous. */
static inline ordo_gemm_call ordo_block_gemm_call(const block_product *product)
{
    return (ordo_gemm_call) {
        .size = sizeof(ordo_gemm_call),
        .a = { (void *)product->a, product->a_transposed ? product->m : product->k },
        .b = { (void *)product->b, product->b_transposed ? product->k : product->n },
        .c = { product->c, product->n },
    };
}

#endif
