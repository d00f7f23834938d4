/* kernels_generic.c: the tile kernels for any machine. */
#include "cpu/vec_generic.h"

#include "cpu/kernels_body.h"

const ordo_kernels ordo_kernels_generic = KERNELS("generic");
