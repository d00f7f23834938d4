/* ordo/price.h: the terms in which ordo predicts how long a kernel takes.
 *
 * A kernel takes as long as its slowest limiter. The planner prices attention and dropout bits in
 * these terms; ordo/lab/model.h answers questions in them and changes the constants behind them.
 * This header declares types only. Times are in seconds. */
#ifndef ORDO_PRICE_H
#define ORDO_PRICE_H

#include "ordo/dropout.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* Time of one kernel. */
typedef struct ordo_kernel_time {
    double seconds;
    ordo_limiter limiter;     /* the one that binds */
    double by[ORDO_LIMITERS]; /* what each would take alone; 0 where the kernel has no such work */
} ordo_kernel_time;

typedef struct ordo_attention_shape {
    size_t size; /* sizeof(ordo_attention_shape) */
    ordo_precision precision;
    int64_t batch, heads;
    int64_t kv_heads;      /* 0 = heads */
    int64_t q_len, kv_len; /* kv_len 0 = q_len */
    int64_t head_dim;      /* 0 = 128 */
    bool causal;           /* aligned bottom-right */
    bool backward;
    ordo_keep_source keep;
    ordo_rng rng;       /* of ORDO_KEEP_MADE */
    double utilization; /* backward: busy share of the workers under its order; 0 = 1 */
} ordo_attention_shape;
#define ORDO_ATTENTION_SHAPE_INIT ORDO_SIZED(ordo_attention_shape)

#ifdef __cplusplus
}
#endif
#endif
