/* inside.cuh: keep bits made inside libordo's attention kernels as experiments have them: generator
 * sliced with 3 or 5 rounds, and compare. The words are those of keep.cuh.
 *
 * The kernels are libordo's, of head size 128 in bf16; a MAKER takes the place of theirs. */
#ifndef BLOCK_CUDA_INSIDE_CUH
#define BLOCK_CUDA_INSIDE_CUH

#include "block/cuda/keep.cuh"
#include "cuda/pass/pass.h"
#include "cuda/tile/keep_inside.h"

/* Keys of rounds, from a seed that all threads share. */
template <int ROUNDS> struct compare_keys {
    uint32_t key[2 * ROUNDS];

    __device__ __forceinline__ explicit compare_keys(uint64_t seed)
    {
#pragma unroll
        for (uint32_t r = 0; r < ROUNDS; r++) {
            key[2 * r] = (uint32_t)seed + r * ORDO_PHILOX_W0;
            key[2 * r + 1] = (uint32_t)(seed >> 32) + r * ORDO_PHILOX_W1;
        }
    }
};

/* Generator compare: the word of a row, a block of 128 columns and a quad of a dense problem, whose
 * lengths `band` has. It is made from its number in storage. */
template <int ROUNDS>
static __device__ __forceinline__ uint32_t compare_inside(const ordo_keep &keep,
                                                          const ordo_band &band, uint32_t bh,
                                                          uint32_t row, uint32_t block,
                                                          uint32_t quad)
{
    const compare_keys<ROUNDS> keys(keep.seed);
    const uint64_t head = (uint64_t)bh * ordo_keep_blocks(band.q_len, band.kv_len);
    return compare_word<ROUNDS>(keys.key, (uint32_t)keep.offset, keep.threshold,
                                head * ORDO_KEEP_WORDS +
                                    ordo_keep_index(band.kv_len, row, block, quad));
}

/* inside_forward.cu, inside_backward.cu: launch a dense pass of head size 128 in bf16 without given
 * bits, which keep.rounds and keep.threshold of the pass describe. */
ordo_status block_cuda_forward_inside(const ordo_cuda_pass *pass, ordo_generator generator);
ordo_status block_cuda_backward_inside(const ordo_cuda_pass *pass, ordo_generator generator);

#endif
