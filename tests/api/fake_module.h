/* fake_module.h: what fake_module.so shows to the test that loaded it, besides its table. */
#ifndef TESTS_API_FAKE_MODULE_H
#define TESTS_API_FAKE_MODULE_H

#include "cuda/module.h"

/* Passes so far, and the last one. Exported as `fake_passes`. */
typedef struct fake_record {
    int forward, backward;
    ordo_cuda_pass last;
} fake_record;

#endif
