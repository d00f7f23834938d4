/* ordo/lab/block.h: run one transformer block, forward and backward, in every dropout mode.
 *
 *   n1 = norm(x) g1              qkv = n1 wqkv^T      a = attention(q, k, v), with dropout
 *   h  = x + a wout^T            n2  = norm(h) g2     u = n2 wup^T
 *   y  = h + act(u) wdown^T
 *
 * Tensors are row-major, with one row per token; a weight has one row per output. norm is
 * x / sqrt(mean(x^2) + 1e-5). act is GELU (its tanh form), or for gated blocks silu(u1) u2 of the
 * two halves of u. A bare block has no norms and no residuals: n1 = x, h = a wout^T, n2 = h,
 * y = act(u) wdown^T.
 *
 * Attention is libordo's, and so are the products (ordo/gemm.h); on cuda they may be cuBLASLt's
 * instead, loaded on demand, each with one algorithm that does not depend on times. Repeated passes
 * give the same bits, and so do all modes with dropout; on the cpu the bits do not depend on the
 * number of threads or the machine either.
 *
 * A runner is used by one thread at a time. */
#ifndef ORDO_LAB_BLOCK_H
#define ORDO_LAB_BLOCK_H

#include "ordo/lab/model.h" /* ordo_block_beside */
#include "ordo/plan.h"
#include "ordo/price.h" /* precision and generator */

#ifdef __cplusplus
extern "C" {
#endif

/* How the forward pass gets the keep bits of dropout: not at all, 1 + an ordo_dropout_mode, or
 * overlapped in its simplest form, to be compared with others in one run. */
typedef enum ordo_block_mode {
    ORDO_BLOCK_NONE = 0, /* no dropout, whatever the job's probability */
    ORDO_BLOCK_SEQUENTIAL = 1 + ORDO_DROPOUT_MODE_SEQUENTIAL,
    ORDO_BLOCK_FUSED = 1 + ORDO_DROPOUT_MODE_FUSED,
    ORDO_BLOCK_OVERLAPPED = 1 + ORDO_DROPOUT_MODE_OVERLAPPED,
    ORDO_BLOCK_PIPELINED = 1 + ORDO_DROPOUT_MODE_PIPELINED, /* in segments of rows */
    ORDO_BLOCK_OVERLAPPED_QKV = 1 + ORDO_DROPOUT_MODES      /* beside qkv, whatever job.beside is */
} ordo_block_mode;
enum { ORDO_BLOCK_MODES = 2 + ORDO_DROPOUT_MODES };

/* Pipelined: both passes run over segments of rows, so that the bits of one segment are in memory.
 * Bits and attention of a segment run beside products of other segments, as lab/docs/block.md
 * defines. Refused with products of cuBLASLt, whose bits may depend on how many rows there are. */

/* Whose products are run. */
typedef enum ordo_block_gemm {
    ORDO_BLOCK_GEMM_ORDO = 0,
    ORDO_BLOCK_GEMM_CUBLASLT = 1 /* only on cuda; fp8, sm_target and small_tiles need it */
} ordo_block_gemm;

/* What makes keep bits during products, in the modes overlapped (only on cuda; the default on the
 * cpu, too). The bits are the same. */
typedef enum ordo_block_placement {
    ORDO_BLOCK_PLACEMENT_STREAM = 0, /* a second stream, whenever the device has room for it */
    ORDO_BLOCK_PLACEMENT_BESIDE = 1  /* one small block per multiprocessor, for which the kernels of
                                        the products leave room, and what is left when they end */
} ordo_block_placement;

/* A block and how it is run. A zeroed field means its default. */
typedef struct ordo_block_job {
    size_t size;              /* sizeof(ordo_block_job) */
    ordo_backend backend;     /* cpu (default) or cuda, on the selected device */
    ordo_precision precision; /* bf16, f32 (cpu), or fp8 (cuda: e4m3 products, bf16 attention) */
    int64_t batch;            /* 0 = 1 */
    int64_t seq, embed;
    int64_t heads;    /* must divide embed */
    int64_t kv_heads; /* 0 = heads; must divide heads */
    int64_t mlp;      /* hidden width; 0 = 4 embed */
    bool gated, bare, causal;
    bool backward; /* the backward pass will run */

    double dropout;           /* probability of dropping */
    int rounds;               /* Philox rounds: 0 = 7, or 10; 3 and 5 are experiments, see below */
    int bits;                 /* random bits per element: 0 = 8, or 1..16; 32 with compare */
    ordo_generator generator; /* sliced, ordo's own; or compare, see below */
    uint64_t seed, offset;    /* seed and offset of inputs, weights and keep bits */
    unsigned modes;           /* 1u << mode for each that will run; 0 = all but pipelined */
    ordo_block_beside beside;
    bool regenerate;          /* the backward pass makes the bits again instead of keeping them */
    bool limit_keep_bits;     /* keep_bits_bytes is the most memory for keep bits */
    uint64_t keep_bits_bytes; /* in use only if limit_keep_bits is true */
    int64_t segments;         /* segments of pipelined; 0 = 8; fewer if segments would be short */
    int threads;              /* cpu: 0 = as many as the process may use */

    /* Products of cuBLASLt: multiprocessors that each may use (0 = all), and whether the smallest
     * tile is chosen instead of the first algorithm offered. For measurements of interference. */
    int sm_target;
    bool small_tiles;

    ordo_block_gemm gemm;

    /* Beside: with products of ordo, and generator compare or 8 bits per element; not pipelined. */
    ordo_block_placement placement;
} ordo_block_job;

#define ORDO_BLOCK_JOB_INIT ORDO_SIZED(ordo_block_job)

/* Experiments: with 3 or 5 rounds keep bits are correlated and must not be used for training. The
 * generator `compare` draws 32 bits per element from a linear counter and compares them one by one,
 * as arXiv 2410.07531 does; its bits are not those of ordo/dropout.h. In mode fused libordo's
 * attention kernels make both inside on cuda, at head size 128, those of sliced with 8 bits per
 * element; the cpu makes those of one key head's queries at a time. */

typedef struct ordo_block_runner ordo_block_runner;

/* Make a runner: check the job, allocate the tensors and fill inputs and weights from the seed. On
 * cuda the first passes choose the algorithms and allocate the workspace of the products. Returns
 * a status and a message that names the field, its value and what was expected. On failure *runner
 * is NULL. The caller destroys the runner. */
ORDO_API ordo_status ordo_block_runner_create(ordo_block_runner **runner,
                                              const ordo_block_job *job);

/* Wait for all work and free everything. NULL is allowed. */
ORDO_API void ordo_block_runner_destroy(ordo_block_runner *runner);

/* The tensors that can be read and written. The gradient of tensor t is
 * ORDO_BLOCK_DX + t - ORDO_BLOCK_X. */
typedef enum ordo_block_tensor {
    ORDO_BLOCK_X = 0,
    ORDO_BLOCK_G1 = 1, /* norm gains, f32 */
    ORDO_BLOCK_WQKV = 2,
    ORDO_BLOCK_WOUT = 3,
    ORDO_BLOCK_G2 = 4,
    ORDO_BLOCK_WUP = 5, /* gated: mlp rows of u1, then mlp rows of u2 */
    ORDO_BLOCK_WDOWN = 6,
    ORDO_BLOCK_DX = 7,
    ORDO_BLOCK_DG1 = 8,
    ORDO_BLOCK_DWQKV = 9,
    ORDO_BLOCK_DWOUT = 10,
    ORDO_BLOCK_DG2 = 11,
    ORDO_BLOCK_DWUP = 12,
    ORDO_BLOCK_DWDOWN = 13,
    ORDO_BLOCK_Y = 14,
    ORDO_BLOCK_DY = 15 /* gradient of y */
} ordo_block_tensor;
enum { ORDO_BLOCK_TENSORS = 16 };

typedef struct ordo_block_extent {
    int64_t rows, columns; /* 0 x 0: this block has no such tensor */
    ordo_dtype dtype;
    size_t bytes;
} ordo_block_extent;

ORDO_API ordo_status ordo_block_extent_of(const ordo_block_runner *runner, ordo_block_tensor tensor,
                                          ordo_block_extent *extent);

/* Copy a whole tensor to or from host memory, after all earlier work. `bytes` must be its size. */
ORDO_API ordo_status ordo_block_read(ordo_block_runner *runner, ordo_block_tensor tensor,
                                     void *data, size_t bytes);
ORDO_API ordo_status ordo_block_write(ordo_block_runner *runner, ordo_block_tensor tensor,
                                      const void *data, size_t bytes);

/* Run one pass. The backward pass belongs to the forward pass before it and has its mode. On cuda
 * the calls launch work without waiting; a fault shows at the next read. A mode that is not among
 * job.modes is refused (ORDO_ERR_ARGUMENT), as is a backward pass without a forward pass. */
ORDO_API ordo_status ordo_block_forward(ordo_block_runner *runner, ordo_block_mode mode);
ORDO_API ordo_status ordo_block_backward(ordo_block_runner *runner);

/* What was chosen. */
typedef struct ordo_block_info {
    int64_t head_dim, kv_heads, mlp;
    double p_used;            /* 0 without dropout */
    uint64_t keep_bits_bytes; /* bytes of one pass */
    uint64_t bits_bytes;      /* memory held for keep bits */
    int64_t segments;         /* segments of the mode pipelined; 0 if not among the modes */
    ordo_block_beside beside; /* products of the mode overlapped */
    double flops;             /* products and attention: forward, and backward if run */
    char numeric_key[160];    /* key of the plan of attention */
} ordo_block_info;

ORDO_API ordo_status ordo_block_query(const ordo_block_runner *runner, ordo_block_info *info);

/* Times of one mode. */
typedef struct ordo_block_time {
    double seconds; /* time of the passes: median over the samples */
    double fastest, slowest;
    int samples, passes;     /* passes in all samples together */
    double watts, clock_ghz; /* means of the board, by NVML; negative if not known */
} ordo_block_time;

/* Time modes in steady state: the modes alternate in samples of about 50 ms, until each has had
 * `seconds` or more (one pass each if 0). Every sample begins with passes that are not counted, and
 * the first one follows passes of 0.2 s, or of `seconds` if that is less, for a steady clock. Every
 * second round takes the modes in reverse order. `times` has one element per mode. */
ORDO_API ordo_status ordo_block_measure(ordo_block_runner *runner, const ordo_block_mode *modes,
                                        int count, double seconds, ordo_block_time *times);

/* ---- interference, on cuda ---- */

/* Seconds of one QKV projection, of the keep bits of one pass and of attention, alone and beside
 * each other: medians in steady state. A job with dropout and a mode that keeps bits. */
typedef struct ordo_block_interference {
    double product, bits;  /* each alone, as fast as it is */
    double product_beside; /* while bits are made all the time */
    double bits_beside;    /* while products run all the time */
    double then, both; /* one product and the bits of a pass: one after the other, and together */
    double attention, dropping;         /* forward, without dropout and with given bits */
    double fused;                       /* with bits made inside; 0 if not among the modes */
    double backward, backward_dropping; /* the same backward; 0 without backward pass */
    double room, small; /* placement beside: alone, the product that leaves room, and the bits by
                           the block that fits into it; else 0 */
    char algorithm[64]; /* algorithm of the product, as cuBLASLt numbers it */
} ordo_block_interference;

/* Measure for about `seconds` in all. Returns ORDO_ERR_UNSUPPORTED on the cpu. */
ORDO_API ordo_status ordo_block_interfere(ordo_block_runner *runner, double seconds,
                                          ordo_block_interference *interference);

/* One QKV projection and the keep bits of one pass at the same time, by the clock of the device:
 * the product between two marks on its stream, the bits by kernels that note when and where each
 * warp began and ended; with placement beside, blocks of the product note that, too. A job with 8
 * bits per element, or generator compare. */
enum { ORDO_BLOCK_TRACE_POINTS = 64 };
typedef struct ordo_block_trace {
    double product_alone, bits_alone;                        /* seconds, measured in the same way */
    double product_begin, product_end, bits_begin, bits_end; /* from the first of all begins */
    double seconds;                                          /* until the last of all ends */
    double inside;  /* share of the warps' time between the marks of the product */
    int warps, sms; /* warps that made bits, and multiprocessors that they ran on */
    double shared;  /* share of the warps' time with a block of the product on the multiprocessor */
    int shared_sms; /* multiprocessors that had both at the same time; placement stream: 0 */
    bool same_words;                        /* as a separate kernel makes */
    double active[ORDO_BLOCK_TRACE_POINTS]; /* warps that ran, on average in equal parts of it */
} ordo_block_trace;

ORDO_API ordo_status ordo_block_trace_run(ordo_block_runner *runner, ordo_block_trace *trace);

/* Names as the command spells them: "none", "sequential", ..., "overlapped-qkv"; "qkv", "out",
 * "mlp", "all"; "stream", "beside". */
ORDO_API const char *ordo_block_mode_name(ordo_block_mode mode);
ORDO_API const char *ordo_block_beside_name(ordo_block_beside beside);
ORDO_API const char *ordo_block_placement_name(ordo_block_placement placement);

#ifdef __cplusplus
}
#endif
#endif
