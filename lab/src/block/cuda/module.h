/* module.h: the interface between libordo_lab and libordo_lab_cuda.so: what a block needs on a
 * device in addition to libordo's attention. Both come from one build.
 *
 * The functions return a status and, where that is not ORDO_OK, write why into the caller's buffer.
 * They launch on a stream without waiting, unless they say so. Activations and weights are bf16,
 * and numbers of columns multiples of 8. */
#ifndef BLOCK_CUDA_MODULE_H
#define BLOCK_CUDA_MODULE_H

#include "block/block.h"
#include "cuda/pass/pass.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ORDO_BLOCK_CUDA_ABI   4
#define ORDO_BLOCK_CUDA_ENTRY "ordo_block_cuda_table"

typedef struct block_cuda block_cuda; /* cuBLASLt and its memory, on one device */

/* How the products are made. */
typedef struct block_cuda_options {
    bool fp8;
    int sm_target; /* 0 = all */
    bool small_tiles;
} block_cuda_options;

/* Keep bits of one dense problem without a shard: generator sliced with 8 bits per element, or
 * compare. */
typedef struct block_keep {
    uint32_t *words;
    uint64_t count; /* words; compare makes all of them */
    ordo_generator generator;
    int rounds; /* 3, 5, 7 or 10 */
    uint64_t seed, offset;
    uint32_t threshold; /* sliced: of 256; compare: a draw below it keeps */
    int64_t heads, seq; /* sliced: heads of all sequences; rows and columns of one */
    bool causal;        /* sliced: blocks that a causal mask hides are left out */
} block_keep;

/* When and where a warp made bits, or a block a product: nanoseconds of the device's clock. */
typedef struct block_stamp {
    uint64_t begin, end; /* 0: not used */
    uint32_t sm, pad;
} block_stamp;

/* For stamps, in memory of the device, or NULL. */
typedef struct block_stamps {
    block_stamp *blocks; /* of a product: one per multiprocessor at most */
    block_stamp *warps;  /* that make bits */
} block_stamps;

/* Bits are drawn unit by unit from one count per device, so that several kernels can make one set.
 */
typedef enum block_keep_part {
    BLOCK_KEEP_ALONE,  /* all, as fast as the device can */
    BLOCK_KEEP_BESIDE, /* all, by one block of four warps of 32 registers per multiprocessor */
    BLOCK_KEEP_REST    /* what no kernel launched before has drawn, as fast as the device can */
} block_keep_part;

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

    /* Keep bits. One set at a time. */
    ordo_status (*keep)(const block_keep *keep, block_keep_part part, const block_stamps *stamps,
                        void *stream, char *why, size_t n);

    /* A dense pass of attention of head size 128 in bf16 that makes the bits of an experiment
     * inside: keep.rounds and keep.threshold of the pass are those of a block_keep. Rows that are
     * not finite are computed again with bits of generator sliced, whatever the generator. */
    ordo_status (*attend)(const ordo_cuda_pass *pass, ordo_generator generator, bool backward,
                          char *why, size_t n);

    /* A product with the bits of libordo's, by a kernel that leaves room for one block of
     * BLOCK_KEEP_BESIDE on every multiprocessor. */
    ordo_status (*multiply_beside)(const block_product *p, const block_stamps *stamps, void *stream,
                                   char *why, size_t n);
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
