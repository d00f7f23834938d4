/* wrong_pass_module.c: a CUDA module built with another idea of a pass, for cuda_module_test.c. */
#include "cuda/module.h"

const ordo_cuda_module *ordo_cuda_module_table(void)
{
    static const ordo_cuda_module table = { .abi = ORDO_CUDA_MODULE_ABI,
                                            .size = sizeof table,
                                            .pass_size = sizeof(ordo_cuda_pass) + 8 };
    return &table;
}
