/* cuda_module.h: the CUDA module, loaded when first asked for. */
#ifndef API_CUDA_MODULE_H
#define API_CUDA_MODULE_H

#include "cuda/module.h"

enum { ORDO_CUDA_WHY_SIZE = 400 }; /* a message of ordo_fail() holds it */

/* The module's table, or ORDO_ERR_UNSUPPORTED and why there is none. Loads it once for the
 * process, from any thread: the file ORDO_CUDA_MODULE names, else libordo_cuda.so beside
 * libordo, beside the program, or in ../lib from the program. `path`, if not NULL, gets where it
 * was found. */
ordo_status ordo_cuda_module_get(const ordo_cuda_module **module, const char **path);

#endif
