/* price.h: predicted times of attention and of making keep bits on a machine.
 *
 * A model is a machine under a calibration: a value for every constant. The price of a kernel is
 * its predicted time, that of its slowest limiter. */
#ifndef PRICE_PRICE_H
#define PRICE_PRICE_H

#include <math.h>

#include "ordo/machine.h"
#include "ordo/price.h"

/* Classes of head sizes that kernels are compiled for: up to 64, 96, 128, 192, 256, and those
 * above, which run by phases. */
enum { ORDO_PRICE_SIZES = 6 };

/* Constants of a model. Rates first: those of a multiprocessor are per clock. */
typedef enum ordo_constant {
    ORDO_C_WORKERS,
    ORDO_C_CLOCK_TENSOR,   /* GHz, while tensor cores are busy */
    ORDO_C_CLOCK_BACKWARD, /* in backward kernels */
    ORDO_C_CLOCK_ORDINARY, /* in kernels without matrix products */
    ORDO_C_TENSOR_BF16,
    ORDO_C_TENSOR_FP8,
    ORDO_C_TENSOR_F16,
    ORDO_C_TENSOR_F32,
    ORDO_C_HBM_READ, /* B/s, whole device, as are the next three */
    ORDO_C_HBM_WRITE,
    ORDO_C_HBM_COPY,
    ORDO_C_LINK,
    ORDO_C_L2_READ,
    ORDO_C_L2_ADD,
    ORDO_C_ISSUE,
    ORDO_C_ALU,
    ORDO_C_FMA,
    ORDO_C_IMAD,
    ORDO_C_IMAD_WIDE,
    ORDO_C_MUFU,
    ORDO_C_RF,
    ORDO_C_SHARED,
    ORDO_C_MMA_ROWS,
    ORDO_C_REGISTERS,
    ORDO_C_MEMORY,
    ORDO_C_POWER,
    ORDO_C_LAUNCH,

    /* GEMM. */
    ORDO_C_GEMM_EFFICIENCY_16,
    ORDO_C_GEMM_EFFICIENCY_FP8,
    ORDO_C_GEMM_EFFICIENCY_F32,
    ORDO_C_GEMM_TILE_M,
    ORDO_C_GEMM_TILE_N,
    ORDO_C_GEMM_TILE_K,
    ORDO_C_GEMM_ISSUE_STEP,
    ORDO_C_GEMM_ISSUE_OUTPUT,
    ORDO_C_GEMM_MULTICAST,
    ORDO_C_GEMM_REGISTERS,
    ORDO_C_GEMM_THREADS,

    /* Attention. */
    ORDO_C_ATTENTION_EFFICIENCY,
    ORDO_C_ATTENTION_EXPOSED,
    ORDO_C_ATTENTION_TILE_CLK,
    ORDO_C_ATTENTION_TILE_Q,
    ORDO_C_ATTENTION_TILE_K,
    ORDO_C_ATTENTION_SCALE,
    ORDO_C_BACKWARD_EFFICIENCY,
    ORDO_C_BACKWARD_EXPOSED,
    ORDO_C_BACKWARD_TILE_CLK,
    ORDO_C_BACKWARD_TILE_Q,
    ORDO_C_BACKWARD_TILE_K,
    ORDO_C_BACKWARD_FACTOR,
    ORDO_C_DROP,
    ORDO_C_DROP_ALU_16,
    ORDO_C_DROP_ALU_FP8,
    ORDO_C_DROP_SHARED,
    ORDO_C_FUSED_EXPOSED,
    ORDO_C_FUSED_EXPOSED_BACKWARD,
    ORDO_C_TIME, /* the first of those that ordo_price_time_constant() returns */
    ORDO_C_TIME_LAST = ORDO_C_TIME + 2 * ORDO_PRICE_SIZES * (ORDO_KEEP_MADE + 1) - 1,
    ORDO_C_START, /* start times of the same kinds, in the same order */
    ORDO_C_START_LAST = ORDO_C_START + ORDO_C_TIME_LAST - ORDO_C_TIME,

    /* Random numbers, alone and beside a GEMM. */
    ORDO_C_RNG_SCALE,
    ORDO_C_RNG_RF,
    ORDO_C_RNG_REGISTERS,
    ORDO_C_RNG_CPU_CLK,
    ORDO_C_RNG_START,
    ORDO_C_ISSUE_EFFICIENCY,
    ORDO_C_SLOT_EFFICIENCY,
    ORDO_C_WIDE_STEAL,
    ORDO_C_STEAL_MOST,
    ORDO_C_GEMM_SLOW,
    ORDO_C_CARVE_OUT,
    ORDO_C_RNG_SLOW,
    ORDO_C_TAIL_SHARE,
    ORDO_C_FORK_JOIN,
    ORDO_C_GAP_SHARE,
    ORDO_C_SEGMENT_LAUNCH,
    ORDO_C_CALL,
    ORDO_C_NOISE,

    /* Energy. */
    ORDO_C_ENERGY_16,
    ORDO_C_ENERGY_FP8,
    ORDO_C_ORDINARY_POWER,
    ORDO_C_POWER_CREDIT,

    /* Switches. */
    ORDO_C_STEADY,
    ORDO_C_WHOLE_WAVES,
    ORDO_C_REFINED,
    ORDO_C_SHARED_SLOT,
    ORDO_C_COUNT_WRITES,
    ORDO_C_COUNT_MEMORY,
    ORDO_C_TAILS_COUNTED,
    ORDO_C_CORESIDENT,
    ORDO_CONSTANTS
} ordo_constant;

/* Where a value comes from under one calibration. */
typedef struct ordo_origin {
    const char *key, *other_key; /* in the machine file: the second if the first is missing */
    double factor;               /* value = key * factor; 0 = 1 */
    double value;                /* if there is no key */
    const char *kind, *source;   /* kind and source of that value; NULL = there is none */
    bool needed;                 /* required of GPUs */
} ordo_origin;

typedef struct ordo_constant_row {
    const char *name, *unit, *about;
    double low, high; /* range that ordo_model_set() accepts */
    ordo_origin silicon, paper;
} ordo_constant_row;

extern const ordo_constant_row ordo_constant_rows[ORDO_CONSTANTS];

typedef struct ordo_model {
    const ordo_machine *machine;
    ordo_calibration calibration;
    double value[ORDO_CONSTANTS]; /* 0 = not known: no such limiter */
    const char *source[ORDO_CONSTANTS];
    const char *kind[ORDO_CONSTANTS];
    bool changed[ORDO_CONSTANTS];
} ordo_model;

/* Fill in every constant of `model` from `machine`, which must outlive it. Returns
 * ORDO_ERR_ARGUMENT for an unknown calibration, and ORDO_ERR_UNSUPPORTED if the machine lacks a
 * rate that the calibration needs, naming all of them. */
ordo_status ordo_model_resolve(ordo_model *model, const ordo_machine *machine,
                               ordo_calibration calibration);

static inline double ordo_model_value(const ordo_model *model, ordo_constant constant)
{
    return model->value[constant];
}

static inline bool ordo_model_on(const ordo_model *model, ordo_constant constant)
{
    return model->value[constant] != 0;
}

/* Bytes of an operand element. */
int ordo_precision_bytes(ordo_precision precision);

/* flop per clock and worker; 0 if the machine has no such products. */
double ordo_model_tensor(const ordo_model *model, ordo_precision precision);

/* Energy of one flop in J; 0 if unknown. */
double ordo_model_flop_energy(const ordo_model *model, ordo_precision precision);

/* Return the counts of a generator, or NULL if they are not known. Fields that are 0 mean the
 * defaults. */
const ordo_kernel_counts *ordo_rng_counts(const ordo_rng *rng);
const ordo_kernel_counts *ordo_attention_counts(bool backward);

/* Every description of a kernel, by index; NULL past the last. */
const ordo_kernel_counts *ordo_price_counts(size_t index);

/* Return the cost of a generator on a CPU core, relative to the default generator: by counted
 * instructions where there are any, else in the ratio of the GPU's instructions. */
double ordo_rng_cpu_cost(const ordo_kernel_counts *counts);

/* The price of a kernel, whose arguments are already checked. The energy is kept with the time,
 * since blocks average power over kernels. */
typedef struct ordo_priced {
    ordo_kernel_time time;
    double clock_seconds; /* without the power limit */
    double joules;        /* 0 if unknown */
} ordo_priced;

ordo_priced ordo_price_attention(const ordo_model *model, const ordo_attention_shape *shape);
ordo_priced ordo_price_rng(const ordo_model *model, const ordo_kernel_counts *counts,
                           double elements);

/* The constant that the time of a pass on a GPU is multiplied by: one for each pass, class of head
 * sizes and source of keep bits. */
ordo_constant ordo_price_time_constant(const ordo_attention_shape *shape);

/* Return the number of scores that a kernel with tiles bq x bk computes: all, or those of live
 * tiles. */
double ordo_live_elements(const ordo_attention_shape *shape, int64_t bq, int64_t bk);

/* Return how many elements of keep bits take as long as those that a causal mask leaves. A GPU
 * makes lines of unequal length, one warp each: when no line is left to begin, the warps end one
 * after the other, and on average half of them idle for the time of the longest line. Under a full
 * mask all lines are equal. */
double ordo_price_visible(const ordo_model *model, const ordo_attention_shape *shape);

/* Complete a price from its limiters: the longest, the launch, and the power limit where it acts.
 */
ordo_priced ordo_price_finish(const ordo_model *model, ordo_kernel_time time, double joules);

/* ---- arithmetic that prices share ---- */

enum { ORDO_WARP = 32 };

/* Worker clocks per second, of all workers. */
static inline double ordo_price_clocks(const ordo_model *model, ordo_constant clock)
{
    return ordo_model_value(model, ORDO_C_WORKERS) * ordo_model_value(model, clock) * 1e9;
}

/* count / rate; 0 if the machine does not give the rate. */
static inline double ordo_price_over(double count, double rate)
{
    return rate > 0 ? count / rate : 0;
}

static inline int64_t ordo_price_tiles(double length, double tile)
{
    return (int64_t)ceil(length / tile);
}

/* How much longer whole waves of `tiles` take than their share of the workers. */
static inline double ordo_price_waves(const ordo_model *model, double tiles)
{
    const double share = tiles / ordo_model_value(model, ORDO_C_WORKERS);
    return ordo_model_on(model, ORDO_C_WHOLE_WAVES) && share > 0 ? ceil(share) / share : 1;
}

/* Rate of shared memory; 0 on machines whose products do not read it as the counts assume. */
static inline double ordo_price_shared_rate(const ordo_model *model)
{
    return ordo_model_value(model, ORDO_C_MMA_ROWS) > 0 ? ordo_model_value(model, ORDO_C_SHARED)
                                                        : 0;
}

#endif
