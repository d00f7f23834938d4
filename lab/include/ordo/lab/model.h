/* ordo/lab/model.h: how long kernels and transformer blocks take on a machine, by their limiters.
 *
 * A kernel takes as long as its slowest limiter: tensor cores, memory, registers, issue slots,
 * pipes or power. Rates come from a machine file, and instruction counts per element from a table
 * of kernels. One of two calibrations supplies the other constants:
 *
 *   silicon  measured on an H200: pipes that share a dispatch slot, multiplications that take
 *            tensor cycles, GEMMs that leave no registers to a second kernel, the power limit
 *   paper    the constants that reproduce the figures of arXiv 2410.07531
 *
 * Every constant has a kind (physical, counted or fitted) and a source. Constants can be listed,
 * and changed to ask "what if". lab/docs/model.md derives the formulas. Times are in seconds. */
#ifndef ORDO_LAB_MODEL_H
#define ORDO_LAB_MODEL_H

#include "ordo/machine.h"
#include "ordo/plan.h"
#include "ordo/price.h" /* kernels, limiters and times */

#ifdef __cplusplus
extern "C" {
#endif

/* A machine under a calibration: a value for every rate and constant. */
typedef struct ordo_model ordo_model;

/* Make a model of `machine`, which must outlive it. Returns ORDO_ERR_UNSUPPORTED if the machine
 * lacks rates that the calibration needs; the message names all of them. */
ORDO_API ordo_status ordo_model_create(ordo_model **model, const ordo_machine *machine,
                                       ordo_calibration calibration);
ORDO_API void ordo_model_destroy(ordo_model *model);

/* One constant of a model. */
typedef struct ordo_model_constant {
    const char *name, *unit;
    const char *kind;   /* "physical", "counted", "fitted", or "choice" for a switch */
    const char *source; /* source of the value: the machine file or the calibration */
    const char *about;
    double value;
    bool changed; /* whether ordo_model_set() or ordo_model_scale() changed it */
} ordo_model_constant;

ORDO_API size_t ordo_model_constant_count(void);
ORDO_API ordo_status ordo_model_constant_at(const ordo_model *model, size_t index,
                                            ordo_model_constant *constant);

/* Set a constant to a value, or multiply it by a factor. ordo_model_scale() also takes the name of
 * a group of constants: tensor, hbm, l2 or clock. Returns ORDO_ERR_ARGUMENT for an unknown name
 * (the message has the most similar one), for a value out of range, and for a factor outside (0,
 * 1e6]. */
ORDO_API ordo_status ordo_model_set(ordo_model *model, const char *name, double value);
ORDO_API ordo_status ordo_model_scale(ordo_model *model, const char *name, double factor);

/* The table of kernels whose instructions per element are known. */
ORDO_API size_t ordo_kernel_counts_count(void);
ORDO_API const ordo_kernel_counts *ordo_kernel_counts_at(size_t index); /* NULL past the end */

/* A matrix product (m x k)(k x n). */
typedef struct ordo_gemm {
    size_t size;              /* sizeof(ordo_gemm) */
    ordo_precision precision; /* type of the operands */
    int64_t m, n, k;
} ordo_gemm;
#define ORDO_GEMM_INIT ORDO_SIZED(ordo_gemm)

ORDO_API ordo_status ordo_model_gemm(const ordo_model *model, const ordo_gemm *gemm,
                                     ordo_kernel_time *time);

ORDO_API ordo_status ordo_model_attention(const ordo_model *model,
                                          const ordo_attention_shape *shape,
                                          ordo_kernel_time *time);

/* Name of the constant that the time of this attention on a GPU is multiplied by: measured over
 * priced time of its kind of kernel, by pass, head size and source of keep bits, as in
 * "forward_192_given". The constant with "_start" after that name is added for every 128 rows of
 * a head, in nanoseconds. NULL on CPUs, whose prices have none. */
ORDO_API ordo_status ordo_model_attention_constant(const ordo_model *model,
                                                   const ordo_attention_shape *shape,
                                                   const char **name);

/* Time of making `elements` keep bits, packed, in a separate kernel. Returns
 * ORDO_ERR_UNSUPPORTED for a combination of rounds, bits and generator whose instructions are not
 * known; the message lists those that are. */
ORDO_API ordo_status ordo_model_rng(const ordo_model *model, const ordo_rng *rng, double elements,
                                    ordo_kernel_time *time);

/* Time of a kernel that only moves bytes: layer norm, residual, activation, copy. */
ORDO_API ordo_status ordo_model_memory(const ordo_model *model, double read_bytes,
                                       double write_bytes, ordo_kernel_time *time);

/* ---- a transformer block ---- */

enum { ORDO_BLOCK_QKV, ORDO_BLOCK_OUT, ORDO_BLOCK_UP, ORDO_BLOCK_DOWN, ORDO_BLOCK_GEMMS };

/* The products during which overlapped bits are made. During any but qkv, the bits of a pass are
 * made in the pass before it, as in a stack of blocks; that takes memory for the bits of two
 * passes. */
typedef enum ordo_block_beside {
    ORDO_BLOCK_BESIDE_DEFAULT =
        0, /* all, if the memory for bits holds those of two passes; else qkv */
    ORDO_BLOCK_BESIDE_QKV = 1,
    ORDO_BLOCK_BESIDE_OUT = 2,
    ORDO_BLOCK_BESIDE_UP = 3,
    ORDO_BLOCK_BESIDE_DOWN = 4,
    ORDO_BLOCK_BESIDE_MLP = 5, /* up and down */
    ORDO_BLOCK_BESIDE_ALL = 6  /* out, both of the MLP, and qkv of the next pass */
} ordo_block_beside;

typedef struct ordo_block {
    size_t size; /* sizeof(ordo_block) */
    ordo_precision precision;
    int64_t batch; /* 0 = 1 */
    int64_t seq, embed;
    int64_t head_dim; /* 0 = 128; must divide embed */
    int64_t kv_heads; /* 0 = number of heads; must divide it */
    bool causal;
    ordo_rng rng;
    ordo_block_beside beside;  /* GEMMs that can hide making the bits; default: all */
    int64_t segments;          /* mode pipelined; 0 = 8, or fewer if the rows do not divide */
    int64_t tensor_parallel;   /* ranks that share the heads; 0 = 1 */
    int64_t sequence_parallel; /* ranks that share the rows; 0 = 1 */
    double utilization;        /* share of the workers that work in the backward pass; 0 = 1 */
} ordo_block;
#define ORDO_BLOCK_INIT ORDO_SIZED(ordo_block)

/* Time of forward and backward pass of one block, by dropout mode. The backward pass reads the bits
 * that the forward pass kept, or regenerates them. */
typedef struct ordo_training {
    double none; /* without dropout */
    double sequential_kept, sequential_regenerated;
    double fused;
    double overlapped_kept, overlapped_regenerated;
    double pipelined; /* regenerates them, too */
} ordo_training;

/* What the model says of one block. A ratio x_over_y is the time of y divided by that of x. */
typedef struct ordo_block_report {
    int64_t heads;
    double elements; /* live scores of this rank */
    ordo_kernel_time gemm[ORDO_BLOCK_GEMMS];
    ordo_kernel_time attention;          /* forward, without dropout */
    ordo_kernel_time attention_given;    /* forward, keep bits given */
    ordo_kernel_time attention_made;     /* forward, keep bits made inside */
    ordo_kernel_time attention_backward; /* without dropout */
    ordo_kernel_time rng;                /* making the keep bits in a separate kernel */
    double gemm_seconds;                 /* time of the GEMMs that can hide making the bits */
    double gemm_then_rng;                /* these GEMMs, then the bits */
    double gemm_beside_rng;              /* these GEMMs and the bits at the same time */
    double memory_seconds;               /* layer norms, residuals, activation */
    double communication_seconds;        /* between ranks, not overlapped; 0 if not known */
    double none;                         /* forward pass without dropout */
    double mode[ORDO_DROPOUT_MODES];     /* forward pass in each dropout mode */
    double exposed;                      /* time of making bits that the GEMMs do not cover */
    double hidden_in_fused;              /* share of the time of making bits that fused hides */
    double keep_bits_bytes[ORDO_DROPOUT_MODES]; /* memory for bits in each mode */
    int64_t segments;                           /* segments of the pipelined mode */
    bool keep_bits_fit; /* the bits of all scores fit the machine's memory */
    bool coresident;    /* both kernels fit one multiprocessor together */
    double overlapped_over_sequential, overlapped_over_fused, fused_over_sequential;
    int region; /* making bits takes 1: less than half the GEMMs' time, 2: less, 3: more */
    ordo_dropout_mode best; /* the fastest mode whose bits fit memory; overlapped only if it gains
                               more over sequential than the noise of measurements */
    double margin;          /* time of the second best mode / time of the best - 1 */
    ordo_training training;
    ordo_dropout_mode training_best; /* the fastest for forward and backward pass */
    bool training_reuses_keep_bits;  /* with it the backward pass reads the kept bits */
    bool no_difference;              /* margin is within the noise of measurements */
} ordo_block_report;

ORDO_API ordo_status ordo_model_block(const ordo_model *model, const ordo_block *block,
                                      ordo_block_report *report);

/* ---- any list of kernels ---- */

typedef enum ordo_operator_kind {
    ORDO_OPERATOR_GEMM = 0,
    ORDO_OPERATOR_ATTENTION = 1,
    ORDO_OPERATOR_RNG = 2,        /* makes keep bits */
    ORDO_OPERATOR_MEMORY = 3,     /* only moves bytes: norm, activation, optimizer */
    ORDO_OPERATOR_ALL_REDUCE = 4, /* over the link between devices */
    ORDO_OPERATOR_MEASURED = 5    /* a known time and use of resources */
} ordo_operator_kind;

/* What kernels that run at the same time share. */
enum {
    ORDO_RESOURCE_TENSOR,
    ORDO_RESOURCE_MEMORY,
    ORDO_RESOURCE_SLOTS, /* issue slots and integer lanes */
    ORDO_RESOURCE_LINK,
    ORDO_RESOURCES
};

enum { ORDO_OPERATORS_MOST = 256 };

typedef struct ordo_operator {
    const char *name; /* for messages; may be NULL */
    ordo_operator_kind kind;
    ordo_gemm gemm;
    ordo_attention_shape attention;
    ordo_rng rng;
    double elements;                /* for ORDO_OPERATOR_RNG */
    double read_bytes, write_bytes; /* for ORDO_OPERATOR_MEMORY; all-reduce: read_bytes, per rank */
    int64_t ranks;                  /* for ORDO_OPERATOR_ALL_REDUCE */
    double seconds;                 /* measured; 0 = predicted */
    double use[ORDO_RESOURCES];     /* for ORDO_OPERATOR_MEASURED: share of each while it runs */
    int64_t stream;                 /* kernels of a stream run in the order of the list */
    const int64_t *after;           /* indices of kernels that it waits for as well */
    size_t after_count;
} ordo_operator;

typedef struct ordo_operator_time {
    double seconds;        /* alone */
    double start, end;     /* with the bits at their best place */
    double beside_seconds; /* total if the bits start with this kernel; 0: not possible */
} ordo_operator_time;

typedef struct ordo_overlap_report {
    int64_t rng, reader;    /* the kernel that makes the bits, and the first that waits for it */
    double in_line;         /* time of the list as it is given */
    double fused;           /* with attention that makes its bits; 0 if that is not predicted */
    double seconds;         /* in the recommended mode */
    ordo_dropout_mode mode; /* sequential (as given), fused or overlapped */
    int64_t beside;         /* best kernel to start the bits with, on a second stream; -1 */
    bool no_difference;     /* that place gains no more than measurements vary */
} ordo_overlap_report;

/* Find the best place for the one kernel of the list that makes keep bits: where the list has it,
 * on a second stream from the start of another kernel on, or inside attention. `times` has one
 * element per kernel. Kernels of matrix products whose registers leave no room exclude others from
 * the multiprocessors; the rest share resources. Returns ORDO_ERR_ARGUMENT for a list without a
 * kernel that makes bits or reads them, for dependencies in a cycle, and for a kernel that cannot
 * be priced; the message names it. */
ORDO_API ordo_status ordo_model_overlap(const ordo_model *model, const ordo_operator *operators,
                                        size_t count, ordo_operator_time *times,
                                        ordo_overlap_report *report);

/* Two kernels by themselves. */
typedef struct ordo_pair_report {
    double first, second; /* each alone */
    double in_turn;       /* one after the other, on one stream */
    double together;      /* begun at the same time on two streams, what the second one costs
                             included */
    bool no_difference;   /* together gains no more than measurements vary */
} ordo_pair_report;

/* Price any two kernels, of any kinds, one after the other and at the same time, by the rules of
 * ordo_model_overlap(). Their streams, and what they wait for, are ignored. */
ORDO_API ordo_status ordo_model_pair(const ordo_model *model, const ordo_operator *first,
                                     const ordo_operator *second, ordo_pair_report *report);

/* ---- a plan ---- */

/* Predict the times of a plan on the machine of the model. The timeline of its backward pass gives
 * the utilization. With the calibration silicon and no changed constant this is what
 * ordo_plan_create() computes for ordo_plan_info. Returns ORDO_ERR_UNSUPPORTED for plans of the
 * backend ref, which has no workers, for problems with block masks, and for those whose precision
 * or dropout parameters the model does not know. */
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
