/* module.cu: the table of libordo_lab_cuda.so. */
#include "block/cuda/keep.cuh"
#include "block/cuda/parts.cuh"

const block_cuda_module *ordo_block_cuda_table(void)
{
    static const block_cuda_module table = { ORDO_BLOCK_CUDA_ABI, sizeof(block_cuda_module),
                                             block_cuda_open,     block_cuda_close,
                                             block_cuda_forget,   block_cuda_multiply,
                                             block_cuda_describe, block_cuda_fill,
                                             block_cuda_norm,     block_cuda_norm_gradient,
                                             block_cuda_activate, block_cuda_activate_gradient,
                                             block_cuda_add,      block_cuda_keep,
                                             block_cuda_attend,   block_cuda_multiply_beside,
                                             block_cuda_stamp,    block_cuda_wait };
    return &table;
}
