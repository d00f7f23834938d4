/* support/launch.h: tensor maps, the number of blocks, and launches whose errors carry a reason. */
#ifndef CUDA_SUPPORT_LAUNCH_H
#define CUDA_SUPPORT_LAUNCH_H

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/pass/pass.h"
#include "ordo/status.h"

/* Both return from the calling function if the call fails. */
#define CUDA_CALL(call) CUDA_TRY(ordo_cuda_status((call), #call))
#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        const ordo_status status_ = (call);                                                        \
        if (status_ != ORDO_OK)                                                                    \
            return status_;                                                                        \
    } while (0)

/* Keep the reason of a failure, which ordo_cuda_why() gives this thread until the next one. Returns
 * `status`. */
ordo_status ordo_cuda_fail(ordo_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *ordo_cuda_why(void);

/* ORDO_OK, or a failure with the name of the call and what the runtime says of it. */
ordo_status ordo_cuda_status(cudaError_t error, const char *call);

typedef struct ordo_cuda_lengths {
    int64_t rows, heads, sequences;
    int head_dim;
} ordo_cuda_lengths;

/* The lengths of a tensor of keys or queries with `columns` columns. Without rows it counts as
 * having one, which a map needs; nothing is copied from it. */
ordo_cuda_lengths ordo_pass_lengths(const ordo_cuda_pass *pass, bool keys, int columns);

/* A map of a bf16 tensor whose boxes are panels of `rows` rows. */
ordo_status ordo_cuda_map(CUtensorMap *map, const ordo_cuda_tensor *tensor,
                          ordo_cuda_lengths lengths, int rows);

/* The same in boxes of fewer columns, with a swizzle as wide: 32 or those of a panel. */
ordo_status ordo_cuda_map_slices(CUtensorMap *map, const ordo_cuda_tensor *tensor,
                                 ordo_cuda_lengths lengths, int columns, int rows);

/* Whether the copy engine can read a bias; and its map then, in boxes of 64 rows and 128 bytes,
 * with the swizzle as wide. */
bool ordo_cuda_bias_maps(const ordo_cuda_pass *pass);
ordo_status ordo_cuda_map_bias(CUtensorMap *map, const ordo_cuda_pass *pass);

/* A map of contiguous f32 rows (sequence, row, head, dim) whose boxes are `rows` whole rows; for
 * prefetches. */
ordo_status ordo_cuda_map_sums(CUtensorMap *map, float *sums, ordo_cuda_lengths lengths, int rows);

/* Blocks to launch for `units` units of work: one per multiprocessor, at most `workers`. */
ordo_status ordo_cuda_blocks(int32_t workers, int64_t units, int *blocks);

typedef enum ordo_launch {
    ORDO_LAUNCH_PLAIN,
    ORDO_LAUNCH_EARLY, /* programmatic dependent launch, from compute capability 9.0 on: the kernel
                          calls grid_wait() itself */
    ORDO_LAUNCH_TOGETHER /* all blocks are resident, or the launch fails */
} ordo_launch;

typedef struct ordo_cuda_grid {
    unsigned blocks, threads, shared_bytes;
    ordo_launch kind;
} ordo_cuda_grid;

/* Launch a kernel of one argument. */
ordo_status ordo_cuda_launch(const void *kernel, const void *argument, ordo_cuda_grid grid,
                             void *stream);

#endif
