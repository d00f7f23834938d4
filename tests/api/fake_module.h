/* fake_module.h: what fake_module.so shows to the test that loaded it, besides its table. */
#ifndef TESTS_API_FAKE_MODULE_H
#define TESTS_API_FAKE_MODULE_H

#include "cuda/module.h"

/* What was launched, in order. */
typedef struct fake_launch {
    enum { FAKE_PASS, FAKE_BITS, FAKE_RECORD, FAKE_WAIT } kind;
    void *stream;
    const void *thing; /* the keep bits, or the event */
} fake_launch;
enum { FAKE_LAUNCHES = 256 }; /* what comes after is not kept */

/* Passes, makings of bits, combinations, digests, sums and matrix products so far, and the last
 * ones. Exported as
 * `fake_passes`. */
typedef struct fake_record {
    int forward, backward, dropout, combine, digest, sum, gemm, pack_seen;
    ordo_cuda_pass last;
    bool paged; /* the last forward pass had pages, these */
    ordo_cuda_pages last_pages;
    ordo_cuda_combine last_combine;
    ordo_sum last_sum;
    void *last_sum_stream;
    ordo_cuda_gemm last_gemm;
    ordo_cuda_seen last_seen;
    fake_launch launches[FAKE_LAUNCHES];
    int launched;
} fake_record;

#endif
