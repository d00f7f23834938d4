/* ordo/model.h: how long kernels and transformer blocks take on a machine, by their limiters.
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
#ifndef ORDO_MODEL_H
#define ORDO_MODEL_H

#include "ordo/io.h" /* lower bounds on words moved, and closed forms of them */
#include "ordo/machine.h"
#include "ordo/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A machine under a calibration: every rate and constant, resolved. */
typedef struct ordo_model ordo_model;

typedef enum ordo_calibration {
    ORDO_CALIBRATION_SILICON = 0,
    ORDO_CALIBRATION_PAPER = 1
} ordo_calibration;
enum { ORDO_CALIBRATIONS = 2 };

typedef enum ordo_precision {
    ORDO_PRECISION_BF16 = 0,
    ORDO_PRECISION_FP8 = 1,
    ORDO_PRECISION_F16 = 2,
    ORDO_PRECISION_F32 = 3
} ordo_precision;
enum { ORDO_PRECISIONS = 4 };

/* Why a kernel takes as long as it does. */
typedef enum ordo_limiter {
    ORDO_LIMIT_MMA = 0,      /* tensor cores, with what the kernel cannot hide behind them */
    ORDO_LIMIT_HBM_READ = 1, /* main memory */
    ORDO_LIMIT_HBM_WRITE = 2,
    ORDO_LIMIT_L2_READ = 3,
    ORDO_LIMIT_L2_ADD = 4,  /* additions performed in L2: the sums into dQ */
    ORDO_LIMIT_RF_READ = 5, /* register operands */
    ORDO_LIMIT_ISSUE = 6,   /* issue slots */
    ORDO_LIMIT_ALU = 7,     /* integer and logic lanes */
    ORDO_LIMIT_FMA = 8,     /* FMA pipe, which also multiplies integers */
    ORDO_LIMIT_IMAD = 9,    /* its integer part */
    ORDO_LIMIT_MUFU = 10,   /* exp2 */
    ORDO_LIMIT_SHARED = 11, /* shared memory */
    ORDO_LIMIT_SLOT = 12,   /* dispatch slot shared by ALU, wide multiplies, uniform */
    ORDO_LIMIT_POWER = 13   /* energy against the board's limit; steady state only */
} ordo_limiter;
enum { ORDO_LIMITERS = 14 };

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

/* How random bits become a decision: ordo's own bit-sliced chain, four bytes compared at once, or
 * one comparison an element. */
typedef enum ordo_generator {
    ORDO_GENERATOR_SLICED = 0,
    ORDO_GENERATOR_SWAR = 1,
    ORDO_GENERATOR_COMPARE = 2
} ordo_generator;
enum { ORDO_GENERATORS = 3 };

typedef struct ordo_rng {
    int rounds; /* 0 = 7 */
    int bits;   /* an element; 0 = 8 */
    ordo_generator generator;
} ordo_rng;

/* What one element of a kernel costs: instructions of a lane, bytes of shared memory written and
 * read; a description is data. */
typedef struct ordo_kernel_counts {
    const char *name; /* "attention", "rng 7x8 sliced", ... */
    double issue, alu, fma, imad, imad_wide, uniform, mufu, rf_reads;
    double shared;     /* bytes an element */
    double shared_dim; /* bytes an element and column of the head, 16-bit operands */
    const char *kind;  /* "counted" or "fitted" */
    const char *source;
} ordo_kernel_counts;

ORDO_API size_t ordo_kernel_counts_count(void);
ORDO_API const ordo_kernel_counts *ordo_kernel_counts_at(size_t index); /* NULL past the end */

/* Time of one kernel. */
typedef struct ordo_kernel_time {
    double seconds;
    ordo_limiter limiter;     /* the one that binds */
    double by[ORDO_LIMITERS]; /* what each would take alone; 0 where the kernel has no such work */
} ordo_kernel_time;

/* (m x k)(k x n) in the precision of its operands. */
typedef struct ordo_gemm {
    size_t size; /* sizeof(ordo_gemm) */
    ordo_precision precision;
    int64_t m, n, k;
} ordo_gemm;
#define ORDO_GEMM_INIT ORDO_SIZED(ordo_gemm)

ORDO_API ordo_status ordo_model_gemm(const ordo_model *model, const ordo_gemm *gemm,
                                     ordo_kernel_time *time);

/* Where an attention kernel's dropout comes from. */
typedef enum ordo_drop {
    ORDO_DROP_NONE = 0,
    ORDO_DROP_MASK = 1, /* bits made before: read and applied */
    ORDO_DROP_FUSED = 2 /* generated inside the kernel */
} ordo_drop;

typedef struct ordo_attention_shape {
    size_t size; /* sizeof(ordo_attention_shape) */
    ordo_precision precision;
    int64_t batch, heads;
    int64_t kv_heads;      /* 0 = heads */
    int64_t q_len, kv_len; /* kv_len 0 = q_len */
    int64_t head_dim;      /* 0 = 128 */
    bool causal;           /* aligned bottom-right */
    bool backward;
    ordo_drop drop;
    ordo_rng rng;       /* of ORDO_DROP_FUSED */
    double utilization; /* backward: busy share of the workers under its order; 0 = 1 */
} ordo_attention_shape;
#define ORDO_ATTENTION_SHAPE_INIT ORDO_SIZED(ordo_attention_shape)

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

/* Where the mask of attention dropout is made. */
typedef enum ordo_mode {
    ORDO_MODE_SEQUENTIAL = 0, /* a kernel between the GEMMs and attention */
    ORDO_MODE_FUSED = 1,      /* inside attention */
    ORDO_MODE_OVERLAPPED = 2, /* beside the GEMMs */
    ORDO_MODE_PIPELINED = 3   /* beside the GEMMs of another segment of rows: less memory */
} ordo_mode;
enum { ORDO_MODES = 4 };

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
    double sequential_kept, sequential_again;
    double fused;
    double overlapped_kept, overlapped_again;
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
    double gemm_seconds;           /* the GEMMs that count: all four, or the first */
    double gemm_then_rng;          /* those, then the mask */
    double gemm_beside_rng;        /* those and the mask, overlapped */
    double memory_seconds;         /* layer norms, residuals, activation */
    double communication_seconds;  /* of the ranks, not hidden; 0 if the link is unknown */
    double none;                   /* without dropout */
    double mode[ORDO_MODES];       /* forward time of each */
    double exposed;                /* mask making that the GEMMs do not cover */
    double hidden_in_fusion;       /* share of it that fusion hides */
    double mask_bytes[ORDO_MODES]; /* memory each needs for bits */
    int64_t segments;              /* of the pipelined mode */
    bool mask_fits;                /* a whole mask fits the machine's memory */
    bool coresident;               /* GEMM and mask kernel fit one multiprocessor */
    double overlap_over_baseline, overlap_over_fusion, fusion_over_baseline;
    int region;     /* 1 the mask hides easily, 2 it hides, 3 it outlasts the GEMMs */
    ordo_mode best; /* the fastest that fits */
    double margin;  /* runner-up over best, less 1 */
    ordo_training training;
    ordo_mode training_best;
    bool training_keeps_mask;
} ordo_block_report;

ORDO_API ordo_status ordo_model_block(const ordo_model *model, const ordo_block *block,
                                      ordo_block_report *report);

/* ---- a plan ---- */

typedef struct ordo_plan_price {
    ordo_kernel_time forward, backward; /* with the plan's dropout, if any, read from a mask */
    ordo_kernel_time rng;               /* making that mask; all zero without dropout */
    double utilization;                 /* of the backward order's timeline */
    ordo_mode mode;                     /* recommended for the dropout, if any */
    double mode_seconds[ORDO_MODES];    /* forward + backward; pipelined is not priced: 0 */
} ordo_plan_price;

/* Price a plan on the machine of the model. The timeline of its backward order gives the
 * utilization. ORDO_ERR_UNSUPPORTED for the oracle's plans. */
ORDO_API ordo_status ordo_model_plan(const ordo_model *model, const ordo_plan *plan,
                                     ordo_plan_price *price);

ORDO_API const char *ordo_calibration_name(ordo_calibration calibration);
ORDO_API const char *ordo_precision_name(ordo_precision precision);
ORDO_API const char *ordo_limiter_name(ordo_limiter limiter);
ORDO_API const char *ordo_generator_name(ordo_generator generator);
ORDO_API const char *ordo_mode_name(ordo_mode mode);

#ifdef __cplusplus
}
#endif
#endif
