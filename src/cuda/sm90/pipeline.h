/* sm90/pipeline.h: what a producer and its consumers share: stages that they fill and empty in
 * turn, and records of what is in them. */
#ifndef CUDA_SM90_PIPELINE_H
#define CUDA_SM90_PIPELINE_H

#include "cuda/sm90/ptx.h"

/* The stage at hand, and the parity to wait for at its barrier: a consumer begins with parity 0 at
 * full barriers, a producer with parity 1 at empty ones. */
template <int STAGES> struct pipeline_state {
    uint32_t stage = 0, parity = 0;

    __device__ __forceinline__ void advance(void)
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* COUNT records in shared memory from address AT on; the n-th one that is written takes the place
 * of the one COUNT before it. Fields are found by offsetof. */
template <class RECORD, int COUNT, int AT> struct shared_ring {
    static_assert(AT % alignof(RECORD) == 0, "records");
    enum { END = AT + COUNT * (int)sizeof(RECORD) };

    static __device__ __forceinline__ uint32_t at(uint32_t n)
    {
        return AT + n % COUNT * (uint32_t)sizeof(RECORD);
    }

    /* The same, where shared memory is at hand as a pointer. */
    static __device__ __forceinline__ RECORD *of(char *smem, uint32_t n)
    {
        return (RECORD *)(smem + (AT - ORDO_SMEM_BASE)) + n % COUNT;
    }
};

#endif
