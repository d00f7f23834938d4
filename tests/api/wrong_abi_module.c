/* wrong_abi_module.c: a CUDA module of another version, for cuda_module_test.c to refuse. */
#include "cuda/module.h"

const ordo_cuda_module *ordo_cuda_module_table(void)
{
    static const ordo_cuda_module table = { .abi = ORDO_CUDA_MODULE_ABI + 1, .size = 8 };
    return &table;
}
