/* fake_module.h: what fake_module.so shows to the test that loaded it, besides its table. */
#ifndef TESTS_API_FAKE_MODULE_H
#define TESTS_API_FAKE_MODULE_H

#include "cuda/module.h"

/* Passes and makings of bits so far, and the last pass. Exported as `fake_passes`. */
typedef struct fake_record {
    int forward, backward, dropout;
    ordo_cuda_pass last;
} fake_record;

#endif
