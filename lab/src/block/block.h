/* block.h: a runner, and the operations that a backend has to provide for it.
 *
 * passes.c writes the block once, over these operations; cpu.c and cuda.c implement them. */
#ifndef BLOCK_BLOCK_H
#define BLOCK_BLOCK_H

#include "ordo/attention.h"
#include "ordo/dropout.h"
#include "ordo/lab/block.h"

/* The products of a block: which weight, and which of its three uses. */
enum { BLOCK_QKV, BLOCK_OUT, BLOCK_UP, BLOCK_DOWN, BLOCK_WEIGHTS };
enum { BLOCK_FORWARD, BLOCK_INPUT_GRADIENT, BLOCK_WEIGHT_GRADIENT, BLOCK_USES };
enum { BLOCK_PRODUCTS = BLOCK_WEIGHTS * BLOCK_USES };

/* C (m x n) = A B, row-major, sums over k. a_transposed: A is stored as k x m; b_transposed: B is
 * stored as n x k. */
typedef struct block_product {
    int id; /* use * BLOCK_WEIGHTS + weight */
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    bool drops; /* part of a pass with dropout: fp8 scales differ */
    const void *a, *b;
    void *c;
} block_product;

/* y = norm(x) gain, and the factor of each row; rows x columns. */
typedef struct block_norm {
    int64_t rows, columns;
    const void *x;
    const float *gain;
    void *y;
    float *factor;
} block_norm;

/* From dy: dx = gradient of the norm + add, and dgain. */
typedef struct block_norm_gradient {
    int64_t rows, columns;
    const void *x, *dy, *add;
    const float *gain, *factor;
    void *dx;
    float *dgain;
} block_norm_gradient;

/* g = act(u), rows x width; u has 2 width columns if gated. Backward: du from dg. */
typedef struct block_activation {
    int64_t rows, width;
    bool gated;
    const void *u, *dg;
    void *g, *du;
} block_activation;

/* Keep bits to be made: all words of `problem`. */
typedef struct block_bits {
    const ordo_problem *problem;
    const ordo_block_job *job;
    uint32_t *words;
    size_t bytes;
} block_bits;

/* One pass of attention over all rows or a segment of them. */
typedef struct block_attention {
    const ordo_plan *plan;
    ordo_call call; /* with the stream that the backend gives it */
    bool backward;
} block_attention;

typedef struct block_device block_device; /* defined by the backend */

typedef struct block_operations {
    /* The job has been checked. */
    ordo_status (*open)(block_device **device, const ordo_block_job *job);
    void (*close)(block_device *device); /* waits for all work; frees what was allocated */
    ordo_status (*allocate)(block_device *device, void **memory, size_t bytes);
    ordo_status (*copy)(block_device *device, void *to, const void *from, size_t bytes); /* waits */

    /* Element i = centre + factor * number i of (seed, tensor), see random.h. */
    ordo_status (*fill)(block_device *device, void *to, ordo_dtype dtype, int64_t count,
                        uint64_t seed, uint32_t tensor, float factor, float centre);

    ordo_status (*multiply)(block_device *device, const block_product *product);
    ordo_status (*norm)(block_device *device, const block_norm *norm);
    ordo_status (*norm_gradient)(block_device *device, const block_norm_gradient *norm);
    ordo_status (*activate)(block_device *device, const block_activation *activation);
    ordo_status (*activate_gradient)(block_device *device, const block_activation *activation);
    ordo_status (*add)(block_device *device, void *sum, const void *a, const void *b,
                       int64_t count);

    /* Make bits after all earlier work; `beside`: at the same time as what follows, until join().
     * One set at a time. */
    ordo_status (*make_bits)(block_device *device, const block_bits *bits, bool beside);

    /* Attend after all earlier work and after the bits that are being made, at the same time as
     * what follows, until join(). */
    ordo_status (*attend)(block_device *device, const block_attention *attention);
    ordo_status (*join)(block_device *device); /* nothing to do if nothing runs beside */

    /* Attend over all rows, with bits that are not in memory: those of an experiment. */
    ordo_status (*attend_inside)(block_device *device, const block_attention *attention,
                                 const block_bits *bits);

    /* The seconds between both calls, all work between them included. */
    ordo_status (*start_clock)(block_device *device);
    ordo_status (*stop_clock)(block_device *device, double *seconds);

    /* Weights or inputs have changed: what was derived from them is no longer valid. */
    void (*forget)(block_device *device);

    void *(*stream)(const block_device *device); /* a cudaStream_t; NULL on the cpu */
} block_operations;

extern const block_operations ordo_block_cpu, ordo_block_cuda;

/* Run it, on cuda on this stream. */
ordo_status ordo_block_attend(const block_attention *attention, void *stream);

/* Attend over all rows: without dropout, or with the bits at `words`, or, if that is NULL, with
 * bits made inside. */
ordo_status ordo_block_attend_all(const ordo_block_runner *runner, bool drops,
                                  const uint32_t *words, bool backward);

/* Everything between input and output that the backward pass reads, and gradients of it. */
typedef struct block_activations {
    void *n1, *qkv, *a, *h, *n2, *u, *g, *dh;
    void *scratch[2]; /* rows x the widest that passes through */
    float *factor1, *factor2, *lse;
} block_activations;

/* A pass of attention over one segment of rows of the mode pipelined. */
typedef struct block_segment {
    ordo_problem problem;
    ordo_plan *plan; /* NULL in the backward pass of a job without one */
} block_segment;

typedef struct block_pipeline {
    block_segment (*segments)[2]; /* job.segments of them, forward and backward; NULL without the
                                   * mode */
    uint32_t *bits;               /* bits of one segment after the other */
    uint64_t keep_bits_bytes;
    float *dk_sums, *dv_sums; /* sums of the backward pass, from segment to segment */
    bool down;                /* the backward pass visits the last segment first */
} block_pipeline;

struct ordo_block_runner {
    ordo_block_job job; /* with a value in place of every default */
    const block_operations *ops;
    block_device *device;
    ordo_dtype dtype; /* type of activations and weights */
    int64_t rows, head_dim, qkv_columns, up_columns;
    ordo_block_extent extents[ORDO_BLOCK_TENSORS];
    void *tensors[ORDO_BLOCK_TENSORS];
    block_activations at;
    ordo_plan *plans[2];  /* without and with dropout */
    ordo_problem problem; /* with dropout */
    ordo_call call;
    uint64_t keep_bits_bytes;
    double p_used;
    uint32_t *bits[2]; /* the second for bits of the next pass; NULL if not needed */
    int current;       /* bits of the latest forward pass */
    bool next_ready;   /* the other place has the bits of the next overlapped pass */
    block_pipeline pipeline;
    bool ran; /* a forward pass has run, in this mode: */
    ordo_block_mode mode;
};

/* Check a job and put a value in place of every default; no memory, no device. */
ordo_status ordo_block_job_resolve(const ordo_block_job *in, ordo_block_job *out);

/* The problem of attention, with dropout unless `drops` is false. */
ordo_problem ordo_block_problem(const ordo_block_job *job, bool drops);

/* The same for one segment of its rows, with dropout; and the rows of all segments but the last.
 * The forward pass under a causal mask has the keys up to the end of the segment, because those
 * after it may not be written yet. */
ordo_problem ordo_block_segment(const ordo_block_job *job, int64_t segment, bool backward);
int64_t ordo_block_segment_rows(const ordo_block_job *job);

/* The call that makes the keep bits. */
ordo_dropout_call ordo_block_drop_call(const ordo_block_job *job);

/* Whether libordo's passes do not make the bits of a job inside: generator compare, or 3 or 5
 * rounds. */
bool ordo_block_is_experiment(const ordo_block_job *job);

bool ordo_block_has_mode(const ordo_block_job *job, ordo_block_mode mode);
bool ordo_block_needs_bits(const ordo_block_job *job); /* one of its modes keeps bits */

static inline size_t ordo_block_element_bytes(ordo_dtype dtype)
{
    return dtype == ORDO_F32 ? 4 : 2;
}

/* A tensor of activations from element `first` on. */
static inline void *ordo_block_from(const ordo_block_runner *runner, const void *tensor,
                                    int64_t first)
{
    return (char *)tensor + (size_t)first * ordo_block_element_bytes(runner->dtype);
}

/* pipeline.c: plan the segments, which says how much workspace they need; allocate their memory. */
ordo_status ordo_block_pipeline_plan(ordo_block_runner *runner, const ordo_machine *machine);
ordo_status ordo_block_pipeline_allocate(ordo_block_runner *runner);
void ordo_block_pipeline_free(block_pipeline *pipeline, int64_t segments);

/* Begin with the bits of the first segment of a pass. Begin with attention of the nth segment that
 * the pass visits, after its bits; that of the segment before it is awaited. The rows of that
 * segment, in each sequence. */
ordo_status ordo_block_pipeline_begin(const ordo_block_runner *runner, bool backward);
ordo_status ordo_block_pipeline_attend(const ordo_block_runner *runner, bool backward, int64_t nth);
const ordo_problem *ordo_block_pipeline_segment(const ordo_block_runner *runner, bool backward,
                                                int64_t nth);

#endif
