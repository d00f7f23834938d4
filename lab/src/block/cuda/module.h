/* module.h: the interface between libordo_lab and libordo_lab_cuda.so: what a block needs on a
 * device in addition to libordo's attention. Both come from one build.
 *
 * The functions return a status and, where that is not ORDO_OK, write why into the caller's buffer.
 * They launch on a stream without waiting, unless they say so. Activations and weights are bf16,
 * and numbers of columns multiples of 8. */
#ifndef BLOCK_CUDA_MODULE_H
#define BLOCK_CUDA_MODULE_H

#include "block/block.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ORDO_BLOCK_CUDA_ABI   2
#define ORDO_BLOCK_CUDA_ENTRY "ordo_block_cuda_table"

typedef struct block_cuda block_cuda; /* cuBLASLt and its memory, on one device */

/* How the products are made. */
typedef struct block_cuda_options {
    bool fp8;
    int sm_target; /* 0 = all */
    bool small_tiles;
} block_cuda_options;

/* Keep bits of the generator `compare`: a word of 32 elements kept if their draw is below limit. */
typedef struct block_compare {
    uint32_t *words;
    uint64_t count; /* words */
    uint64_t seed, offset;
    uint32_t limit;
    int rounds; /* 3, 5, 7 or 10 */
} block_compare;

/* When and where the warps of a traced generator ran: nanoseconds of the device's clock. */
typedef struct block_stamp {
    uint64_t begin, end;
    uint32_t sm, pad;
} block_stamp;

/* Keep bits of the generator sliced with 7 rounds and 8 bits of one dense problem, by a kernel that
 * notes a stamp per warp: the same words as libordo's. Each of `warps` warps, one per block of the
 * grid, takes every warps-th block of words. */
typedef struct block_traced {
    uint32_t *words;
    uint64_t blocks; /* blocks of words */
    int64_t across, head_blocks;
    uint64_t seed, offset;
    uint32_t threshold;
    int warps;
    block_stamp *stamps; /* one per warp */
} block_traced;

typedef struct block_cuda_module {
    uint32_t abi, size; /* ORDO_BLOCK_CUDA_ABI, sizeof(block_cuda_module) */

    ordo_status (*open)(block_cuda **c, const block_cuda_options *options, char *why, size_t n);
    void (*close)(block_cuda *c); /* waits for all work */
    void (*forget)(block_cuda *c);
    ordo_status (*multiply)(block_cuda *c, const block_product *p, void *stream, char *why,
                            size_t n);
    /* The algorithm of a product that has run: "algorithm 66, tile 24, stages 36", or "". */
    void (*describe)(const block_cuda *c, int id, char *text, size_t n);

    ordo_status (*fill)(void *to, ordo_dtype dtype, int64_t count, uint64_t seed, uint32_t tensor,
                        float factor, float centre, void *stream, char *why, size_t n);
    ordo_status (*norm)(const block_norm *norm, void *stream, char *why, size_t n);
    ordo_status (*norm_gradient)(block_cuda *c, const block_norm_gradient *norm, void *stream,
                                 char *why, size_t n);
    ordo_status (*activate)(const block_activation *a, void *stream, char *why, size_t n);
    ordo_status (*activate_gradient)(const block_activation *a, void *stream, char *why, size_t n);
    ordo_status (*add)(void *sum, const void *a, const void *b, int64_t count, void *stream,
                       char *why, size_t n);

    ordo_status (*compare_bits)(const block_compare *bits, void *stream, char *why, size_t n);
    ordo_status (*traced_bits)(const block_traced *bits, void *stream, char *why, size_t n);
    ordo_status (*stamp)(uint64_t *nanoseconds, void *stream, char *why, size_t n);

    /* What follows on the stream waits for the event, a cudaEvent_t. */
    ordo_status (*wait)(void *stream, void *event, char *why, size_t n);
} block_cuda_module;

typedef const block_cuda_module *(*block_cuda_entry)(void);

/* Declared for the module that defines it; libordo_lab finds it by name. */
__attribute__((visibility("default"))) const block_cuda_module *ordo_block_cuda_table(void);

#ifdef __cplusplus
}
#endif
#endif
