/* ordo/price.h: types for predicted kernel times.
 *
 * A kernel takes as long as its slowest limiter. ordo/lab/model.h predicts with these types. This
 * header declares no function. Times are in seconds. */
#ifndef ORDO_PRICE_H
#define ORDO_PRICE_H

#include "ordo/dropout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where constants come from that no machine file has; ordo/lab/model.h describes both. */
typedef enum ordo_calibration {
    ORDO_CALIBRATION_SILICON = 0,
    ORDO_CALIBRATION_PAPER = 1
} ordo_calibration;
enum { ORDO_CALIBRATIONS = 2 };

/* Type of the operands of matrix products. */
typedef enum ordo_precision {
    ORDO_PRECISION_BF16 = 0,
    ORDO_PRECISION_FP8 = 1,
    ORDO_PRECISION_F16 = 2,
    ORDO_PRECISION_F32 = 3
} ordo_precision;
enum { ORDO_PRECISIONS = 4 };

/* What can limit the speed of a kernel. */
typedef enum ordo_limiter {
    ORDO_LIMIT_MMA = 0,      /* tensor cores, with the work that does not overlap with them */
    ORDO_LIMIT_HBM_READ = 1, /* main memory */
    ORDO_LIMIT_HBM_WRITE = 2,
    ORDO_LIMIT_L2_READ = 3,
    ORDO_LIMIT_L2_ADD = 4,  /* additions performed in L2: the sums into dQ */
    ORDO_LIMIT_RF_READ = 5, /* reads of register operands */
    ORDO_LIMIT_ISSUE = 6,   /* issue slots */
    ORDO_LIMIT_ALU = 7,     /* integer and logic lanes */
    ORDO_LIMIT_FMA = 8,     /* FMA pipe, which also multiplies integers */
    ORDO_LIMIT_IMAD = 9,    /* integer multiplications of that pipe */
    ORDO_LIMIT_MUFU = 10,   /* exp2 */
    ORDO_LIMIT_SHARED = 11, /* shared memory */
    ORDO_LIMIT_SLOT = 12,   /* dispatch slot shared by ALU, wide multiplies and uniform path */
    ORDO_LIMIT_POWER = 13   /* energy / power limit of the board; in steady state only */
} ordo_limiter;
enum { ORDO_LIMITERS = 14 };

/* How random bits are compared with the threshold: bit-sliced, four bytes at once in a register
 * (SWAR), or one comparison per element. Bit-sliced kernels of libordo are compiled for common
 * thresholds (SLICED is that of p = 0.1); SLICED_ANY reads its threshold, as lab/bench/calibrate
 * does. */
typedef enum ordo_generator {
    ORDO_GENERATOR_SLICED = 0,
    ORDO_GENERATOR_SWAR = 1,
    ORDO_GENERATOR_COMPARE = 2,
    ORDO_GENERATOR_SLICED_ANY = 3
} ordo_generator;
enum { ORDO_GENERATORS = 4 };

/* Generator of keep bits. */
typedef struct ordo_rng {
    int rounds; /* rounds of Philox; 0 = 7 */
    int bits;   /* per element; 0 = 8 */
    ordo_generator generator;
} ordo_rng;

/* What one element costs in a kernel: instructions per lane, and bytes of shared memory written and
 * read. */
typedef struct ordo_kernel_counts {
    const char *name; /* "attention", "rng 7x8 sliced", ... */
    double issue, alu, fma, imad, imad_wide, uniform, mufu, rf_reads;
    double shared;     /* bytes per element */
    double shared_dim; /* bytes per element and column of the head, for 16-bit operands */
    const char *kind;  /* "counted" or "fitted" */
    const char *source;
} ordo_kernel_counts;

/* Predicted time of one kernel. */
typedef struct ordo_kernel_time {
    double seconds;
    ordo_limiter limiter;     /* the slowest */
    double by[ORDO_LIMITERS]; /* time of each limiter alone; 0 if the kernel does not use it */
} ordo_kernel_time;

/* One pass of attention. */
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
    ordo_rng rng;       /* for ORDO_KEEP_MADE */
    double utilization; /* backward: share of the time in which workers are busy; 0 = 1 */
} ordo_attention_shape;
#define ORDO_ATTENTION_SHAPE_INIT ORDO_SIZED(ordo_attention_shape)

/* Both passes of a plan. With dropout the passes are those of the mode that the model recommends;
 * the plan's own follows from a rule that comes close. */
typedef struct ordo_plan_price {
    ordo_kernel_time forward, backward;
    ordo_kernel_time rng;   /* making the keep bits in a separate kernel; 0 without dropout */
    double utilization;     /* share of the workers in use, by the backward timeline */
    ordo_dropout_mode mode; /* the recommended one; fused without dropout */
    /* Forward + backward; 0 for pipelined. Sequential keeps the bits for the backward pass;
     * overlapped leaves out the time of making them, which other work hides at best. */
    double mode_seconds[ORDO_DROPOUT_MODES];
    bool keep_bits_reused; /* sequential: the backward pass reads the bits of the forward pass */
} ordo_plan_price;

#ifdef __cplusplus
}
#endif
#endif
