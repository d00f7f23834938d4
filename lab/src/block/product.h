/* product.h: matrix products on the host. */
#ifndef BLOCK_PRODUCT_H
#define BLOCK_PRODUCT_H

#include "block/block.h"

/* C = A B in f32, rounded once to dtype. Every element is summed over k in ascending order, with a
 * rounded product and a rounded addition for each term, so that its bits depend neither on the
 * threads nor on the machine.
 *
 * If `beside` is not NULL, the last worker calls it first, while the others multiply. */
ordo_status ordo_block_multiply(const block_product *product, ordo_dtype dtype, int threads,
                                void (*beside)(void *context), void *context);

#endif
