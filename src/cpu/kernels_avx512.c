/* kernels_avx512.c: the tile kernels for x86-64 with AVX-512F; compiled with -mavx512f. */
#if defined(__x86_64__)

#include "cpu/vec_avx512.h"

#include "cpu/kernels_body.h"

const ordo_kernels ordo_kernels_avx512 = KERNELS("avx512");

#else
typedef int ordo_no_avx512; /* not this machine */
#endif
