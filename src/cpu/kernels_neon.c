/* kernels_neon.c: the tile kernels for 64-bit ARM. */
#if defined(__aarch64__)

#include "cpu/vec_neon.h"

#include "cpu/kernels_body.h"

const ordo_kernels ordo_kernels_neon = KERNELS("neon");

#else
typedef int ordo_no_neon; /* not this machine */
#endif
