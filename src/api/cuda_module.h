/* cuda_module.h: the CUDA module, loaded when it is first needed. */
#ifndef API_CUDA_MODULE_H
#define API_CUDA_MODULE_H

#include "cuda/module.h"

enum { ORDO_CUDA_WHY_SIZE = 400 }; /* a message of ordo_fail() holds it */

/* Get the function table of the module. The module is loaded once per process, from any thread: the
 * file that the variable ORDO_CUDA_MODULE names, else libordo_cuda.so in the folder of libordo, of
 * the program, or in ../lib from the program. Returns ORDO_ERR_UNSUPPORTED with the reason if there
 * is none. If `path` is not NULL it gets the absolute path of the file. */
ordo_status ordo_cuda_module_get(const ordo_cuda_module **module, const char **path);

/* What the module has answered: ORDO_OK, or the failure with "backend cuda: " and its reason. */
ordo_status ordo_cuda_answer(const ordo_cuda_module *module, ordo_status status);

#endif
