/* fake_module.h: what fake_module.so shows to the test that loaded it, besides its table. */
#ifndef TESTS_API_FAKE_MODULE_H
#define TESTS_API_FAKE_MODULE_H

#include "cuda/module.h"

/* Passes, makings of bits, combinations and digests so far, and the last ones. Exported as
 * `fake_passes`. */
typedef struct fake_record {
    int forward, backward, dropout, combine, digest;
    ordo_cuda_pass last;
    ordo_cuda_combine last_combine;
} fake_record;

#endif
