/* kernels_avx2.c: the tile kernels for x86-64 with AVX2 and FMA; compiled with -mavx2 -mfma. */
#if defined(__x86_64__)

#include "cpu/vec_avx2.h"

#include "cpu/kernels_body.h"

const ordo_kernels ordo_kernels_avx2 = KERNELS("avx2");

#else
typedef int ordo_no_avx2; /* not this machine */
#endif
