/* ordo/lab/model.h: how long kernels and transformer blocks take on a machine, by their limiters.
 *
 * A kernel takes as long as its slowest limiter: tensor cores, memory, registers, issue slots,
 * pipes, power. Rates come from a machine file, counts per element from descriptions of kernels,
 * and what neither gives from one of two calibrations:
 *
 *   silicon  what was measured on an H200: pipes that share a slot, multiplications that take
 *            tensor cycles, GEMMs that leave no registers to a neighbour, the power limit
 *   paper    the constants with which the figures of arXiv 2410.07531 come out
 *
 * Every constant has a kind (physical, counted or fitted) and a source, can be listed, and can be
 * changed to ask "what if". docs/design/model.md derives the formulas. Times are in seconds. */
#ifndef ORDO_LAB_MODEL_H
#define ORDO_LAB_MODEL_H

#include "ordo/lab/io.h" /* lower bounds on words moved, and closed forms of them */
#include "ordo/machine.h"
#include "ordo/plan.h"
#include "ordo/price.h" /* what a kernel is, and what its time consists of */

#ifdef __cplusplus
extern "C" {
#endif

/* A machine under a calibration: every rate and constant, resolved. */
typedef struct ordo_model ordo_model;

/* Make a model of `machine`, which must outlive it. ORDO_ERR_UNSUPPORTED if the machine lacks a
 * rate that the calibration needs, naming all of them. */
ORDO_API ordo_status ordo_model_create(ordo_model **model, const ordo_machine *machine,
                                       ordo_calibration calibration);
ORDO_API void ordo_model_destroy(ordo_model *model);

/* One constant of a model. */
typedef struct ordo_model_constant {
    const char *name, *unit;
    const char *kind;   /* "physical", "counted", "fitted", or "choice" for switches */
    const char *source; /* of the value: a machine file's line, or the calibration's */
    const char *about;
    double value;
    bool changed; /* by ordo_model_set() or ordo_model_scale() */
} ordo_model_constant;

ORDO_API size_t ordo_model_constant_count(void);
ORDO_API ordo_status ordo_model_constant_at(const ordo_model *model, size_t index,
                                            ordo_model_constant *constant);

/* Change constants: by name, or a group by the name of what it describes: tensor, hbm, l2, clock.
 * ORDO_ERR_ARGUMENT for an unknown name (with the nearest one), for a value out of range, and for
 * a factor that is not in (0, 1e6]. Values are absolute and only for single constants. */
ORDO_API ordo_status ordo_model_set(ordo_model *model, const char *name, double value);
ORDO_API ordo_status ordo_model_scale(ordo_model *model, const char *name, double factor);

ORDO_API size_t ordo_kernel_counts_count(void);
ORDO_API const ordo_kernel_counts *ordo_kernel_counts_at(size_t index); /* NULL past the end */

/* (m x k)(k x n) in the precision of its operands. */
typedef struct ordo_gemm {
    size_t size; /* sizeof(ordo_gemm) */
    ordo_precision precision;
    int64_t m, n, k;
} ordo_gemm;
#define ORDO_GEMM_INIT ORDO_SIZED(ordo_gemm)

ORDO_API ordo_status ordo_model_gemm(const ordo_model *model, const ordo_gemm *gemm,
                                     ordo_kernel_time *time);

ORDO_API ordo_status ordo_model_attention(const ordo_model *model,
                                          const ordo_attention_shape *shape,
                                          ordo_kernel_time *time);

/* A mask of `elements` packed bits. ORDO_ERR_UNSUPPORTED for rounds, bits and generator that
 * nobody counted, naming those that were. */
ORDO_API ordo_status ordo_model_rng(const ordo_model *model, const ordo_rng *rng, double elements,
                                    ordo_kernel_time *time);

/* Layer norm, residual, activation, copy: whatever only moves bytes. */
ORDO_API ordo_status ordo_model_memory(const ordo_model *model, double read_bytes,
                                       double write_bytes, ordo_kernel_time *time);

/* ---- a transformer block ---- */

enum { ORDO_BLOCK_QKV, ORDO_BLOCK_PROJ, ORDO_BLOCK_FC1, ORDO_BLOCK_FC2, ORDO_BLOCK_GEMMS };

typedef struct ordo_block {
    size_t size; /* sizeof(ordo_block) */
    ordo_precision precision;
    int64_t batch; /* 0 = 1 */
    int64_t seq, embed;
    int64_t head_dim; /* 0 = 128; must divide embed */
    int64_t kv_heads; /* 0 = as many as heads; must divide them */
    bool causal;
    ordo_rng rng;
    bool overlap_qkv_only;     /* hide the mask under the first GEMM instead of all four */
    int64_t segments;          /* of the pipelined mode; 0 = 8, or what the rows allow */
    int64_t tensor_parallel;   /* ranks that share the heads; 0 = 1 */
    int64_t sequence_parallel; /* ranks that share the rows; 0 = 1 */
    double utilization;        /* of the backward order; 0 = 1 */
} ordo_block;
#define ORDO_BLOCK_INIT ORDO_SIZED(ordo_block)

/* Forward and backward of one block, mask kept between them or made again. */
typedef struct ordo_training {
    double none;
    double sequential_kept, sequential_regenerated;
    double fused;
    double overlapped_kept, overlapped_regenerated;
} ordo_training;

typedef struct ordo_block_report {
    int64_t heads;
    double elements; /* live scores of this rank */
    ordo_kernel_time gemm[ORDO_BLOCK_GEMMS];
    ordo_kernel_time attention;          /* without dropout */
    ordo_kernel_time attention_mask;     /* a mask read and applied */
    ordo_kernel_time attention_fused;    /* the mask made inside */
    ordo_kernel_time attention_backward; /* without dropout */
    ordo_kernel_time rng;
    double gemm_seconds;                   /* the GEMMs that count: all four, or the first */
    double gemm_then_rng;                  /* those, then the mask */
    double gemm_beside_rng;                /* those and the mask, overlapped */
    double memory_seconds;                 /* layer norms, residuals, activation */
    double communication_seconds;          /* of the ranks, not hidden; 0 if the link is unknown */
    double none;                           /* without dropout */
    double mode[ORDO_DROPOUT_MODES];       /* forward time of each */
    double exposed;                        /* mask making that the GEMMs do not cover */
    double hidden_in_fusion;               /* share of it that fusion hides */
    double mask_bytes[ORDO_DROPOUT_MODES]; /* memory each needs for bits */
    int64_t segments;                      /* of the pipelined mode */
    bool mask_fits;                        /* a whole mask fits the machine's memory */
    bool coresident;                       /* GEMM and mask kernel fit one multiprocessor */
    double overlap_over_baseline, overlap_over_fusion, fusion_over_baseline;
    int region;             /* 1 the mask hides easily, 2 it hides, 3 it outlasts the GEMMs */
    ordo_dropout_mode best; /* the fastest that fits */
    double margin;          /* runner-up over best, less 1 */
    ordo_training training;
    ordo_dropout_mode training_best;
    bool training_keeps_mask;
} ordo_block_report;

ORDO_API ordo_status ordo_model_block(const ordo_model *model, const ordo_block *block,
                                      ordo_block_report *report);

/* ---- a plan ---- */

typedef struct ordo_plan_price {
    ordo_kernel_time forward, backward;      /* with the plan's dropout, if any, read from a mask */
    ordo_kernel_time rng;                    /* making that mask; all zero without dropout */
    double utilization;                      /* of the backward order's timeline */
    ordo_dropout_mode mode;                  /* recommended for the dropout, if any */
    double mode_seconds[ORDO_DROPOUT_MODES]; /* forward + backward; pipelined is not priced: 0 */
} ordo_plan_price;

/* Price a plan on the machine of the model. The timeline of its backward order gives the
 * utilization. ORDO_ERR_UNSUPPORTED for the oracle's plans. */
ORDO_API ordo_status ordo_model_plan(const ordo_model *model, const ordo_plan *plan,
                                     ordo_plan_price *price);

ORDO_API const char *ordo_calibration_name(ordo_calibration calibration);
ORDO_API const char *ordo_precision_name(ordo_precision precision);
ORDO_API const char *ordo_limiter_name(ordo_limiter limiter);
ORDO_API const char *ordo_generator_name(ordo_generator generator);

#ifdef __cplusplus
}
#endif
#endif
