/* ordo/gemm.h: matrix products whose rows do not depend on the batch.
 *
 *   C = A B [+ bias] [+ C]        A is m x k, B is k x n, C is m x n
 *
 * The bits of an element follow from its row of A, its column of B and k alone: not from m, n, the
 * place of the row, tiles, threads or multiprocessors. Its terms are one chain in ascending k:
 * steps of 16 as Hopper's matrix instructions add them (backends cuda and emulator), or one by one,
 * with a rounded product and a rounded addition for each term (backend cpu). The chain begins with
 * 0 and is f32. Then, each an addition in f32: the bias of the column, and what C held before. The
 * result is rounded once to the type of C.
 *
 * With sections, k is divided into 2, 4 or 8 parts of equal length, each of which is a chain of its
 * own, and the sums of the chains s0, s1, ... are added in f32 by one binary tree:
 *
 *   ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
 *
 * So 8 ranks that hold an eighth of k each, or 4 ranks with 2 sections each, and that add their f32
 * results by ordo_sum_tree(), have the bits of one device with 8 sections. docs/guide/linear.md
 * shows it.
 *
 * Products of e4m3 run on backends cuda and emulator, with A and B stored by rows of k, and k even.
 * The hardware keeps fewer bits of their sums than f32 has, so each 128 of k are a chain of their
 * own, of four steps of 32. The sums of the chains are added in f32 in ascending k, the first to 0;
 * then the sum of each section is multiplied in f32 by *call.scale. */
#ifndef ORDO_GEMM_H
#define ORDO_GEMM_H

#include "ordo/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A type of matrix products alone, besides those of problem.h: 8 bits, 4 of them an exponent and 3
 * a fraction, finite numbers and NaN. */
#define ORDO_E4M3 ((ordo_dtype)3)

/* What is multiplied; no pointers. Any of m, n and k may be 0: with k = 0 all sums are 0. */
typedef struct ordo_gemm_problem {
    size_t size; /* sizeof(ordo_gemm_problem) */
    int64_t m, n, k;
    ordo_dtype dtype;   /* A and B: bf16 or f16, on backend cpu also f32, on the others e4m3 */
    ordo_dtype c_dtype; /* C and the bias: f32 or dtype; of e4m3 f32, bf16 or f16 */
    bool a_transposed;  /* A is stored as k rows of m elements, else as m rows of k */
    bool
        b_transposed; /* B is stored as n rows of k elements, as weights are, else as k rows of n */
    bool bias;        /* call.bias is added to every row */
    bool add;         /* the product is added to C, which is f32 */
    int sections;     /* 0 = 1, or 2, 4, 8: then k is a multiple of 16 times this, of e4m3 of 128 */
} ordo_gemm_problem;

#define ORDO_GEMM_PROBLEM_INIT ORDO_SIZED(ordo_gemm_problem)

typedef struct ordo_gemm_plan ordo_gemm_plan;

/* Make a plan for a backend: cpu, cuda, or emulator, which has the bits of cuda. Returns a status
 * and a message that names the field, its value and what was expected; on failure *plan is NULL.
 * The caller destroys the plan. */
ORDO_API ordo_status ordo_gemm_plan_create(ordo_gemm_plan **plan, const ordo_gemm_problem *problem,
                                           ordo_backend backend);

/* Destroy a plan. NULL is allowed. */
ORDO_API void ordo_gemm_plan_destroy(ordo_gemm_plan *plan);

typedef struct ordo_gemm_info {
    size_t size; /* sizeof(ordo_gemm_info) */
    ordo_backend backend;
    unsigned kept;            /* ORDO_PROMISE_... levels that this plan keeps */
    uint64_t workspace_bytes; /* that ordo_gemm_run() needs; often 0 */
    char numeric_key[64];     /* plans with equal keys give equal bits: "gemm.sm90.r1/s8", of e4m3
                               * "gemm-e4m3.sm90.r1/s8" */
} ordo_gemm_info;

#define ORDO_GEMM_INFO_INIT ORDO_SIZED(ordo_gemm_info)

/* Fill in `info`; set info->size before (ORDO_GEMM_INFO_INIT). */
ORDO_API ordo_status ordo_gemm_plan_query(const ordo_gemm_plan *plan, ordo_gemm_info *info);

/* A matrix in memory: row r begins `stride` elements after row r - 1; 0 = the rows are
 * contiguous. Elements of a row are contiguous. */
typedef struct ordo_matrix {
    void *data; /* may be NULL if the matrix has no elements */
    int64_t stride;
} ordo_matrix;

/* The matrices of one execution. C overlaps neither A, B, the bias nor the workspace. */
typedef struct ordo_gemm_call {
    size_t size;      /* sizeof(ordo_gemm_call) */
    ordo_matrix a, b; /* read, as they are stored */
    ordo_matrix c;    /* written, m rows of n; with `add` read, too */
    const void *bias; /* n elements, with problem.bias; else NULL */
    void *workspace; /* info.workspace_bytes, 256-byte aligned; the next call on the same stream may
                      * reuse it */
    size_t workspace_bytes;
    void *stream;       /* cuda: a cudaStream_t */
    int threads;        /* cpu and emulator: 0 = as many as the process may use */
    const float *scale; /* e4m3: one factor, where the matrices are; NULL = 1. Not read if k is 0 */
} ordo_gemm_call;

#define ORDO_GEMM_CALL_INIT ORDO_SIZED(ordo_gemm_call)

/* Multiply. Everything is checked before anything is written. Pointers are host pointers, for cuda
 * plans device pointers; a cuda plan launches kernels on the stream without allocating or waiting,
 * and may be captured into a CUDA graph.
 *
 * Subnormal numbers are kept. A result that is NaN is stored as one NaN: the canonical quiet NaN on
 * the cpu, that of the device on cuda and the emulator.
 *
 * Returns ORDO_ERR_ARGUMENT for a missing pointer or an overlap, ORDO_ERR_SHAPE for a stride
 * shorter than a row or too small a workspace, ORDO_ERR_ALIGN (cuda: addresses and strides are
 * multiples of limits.align bytes), ORDO_ERR_UNSUPPORTED without a device of compute
 * capability 9.0, and ORDO_ERR_DEVICE if a launch fails. */
ORDO_API ordo_status ordo_gemm_run(const ordo_gemm_plan *plan, const ordo_gemm_call *call);

/* What the products of a backend accept, for callers that can adapt their matrices. */
typedef struct ordo_gemm_limits {
    size_t size;      /* sizeof(ordo_gemm_limits) */
    unsigned dtypes;  /* types of A and B, one bit each: 1u << ORDO_BF16, ... */
    int64_t align;    /* addresses and strides of A, B, C and the bias are multiples of this many
                       * bytes; 0: of one element */
    int64_t size_max; /* largest m, n and k */
} ordo_gemm_limits;

#define ORDO_GEMM_LIMITS_INIT ORDO_SIZED(ordo_gemm_limits)

/* Fill in `limits`; set limits->size before (ORDO_GEMM_LIMITS_INIT). The answer does not depend on
 * whether the backend is available. */
ORDO_API ordo_status ordo_gemm_query(ordo_backend backend, ordo_gemm_limits *limits);

#ifdef __cplusplus
}
#endif
#endif
