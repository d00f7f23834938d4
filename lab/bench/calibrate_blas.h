/* calibrate_blas.h: GEMMs of cuBLASLt and the board's energy counter, both loaded on demand, so
 * that calibrate builds and runs without them. */
#ifndef BENCH_CALIBRATE_BLAS_H
#define BENCH_CALIBRATE_BLAS_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define BLAS_HEADER 1
#else
#define BLAS_HEADER 0
#endif

/* ---- the board, as NVML knows it; -1 if nobody says ---- */

typedef struct board {
    int (*energy)(void *device, unsigned long long *mj);
    int (*limit)(void *device, unsigned *mw);
    void *device;
} board;

static board open_board(void)
{
    board b = { NULL, NULL, NULL };
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        return b;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*handle)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    if (!init || !handle || init() != 0 || handle(0, &b.device) != 0)
        return b;
    b.energy = (int (*)(void *, unsigned long long *))dlsym(library,
                                                            "nvmlDeviceGetTotalEnergyConsumption");
    b.limit = (int (*)(void *, unsigned *))dlsym(library, "nvmlDeviceGetEnforcedPowerLimit");
    return b;
}

static const board *the_board(void)
{
    static const board b = open_board();
    return &b;
}

/* Since the driver was loaded. */
static double board_energy_mj(void)
{
    const board *b = the_board();
    unsigned long long mj;
    return b->energy && b->energy(b->device, &mj) == 0 ? (double)mj : -1;
}

static double board_limit_w(void)
{
    const board *b = the_board();
    unsigned mw;
    return b->limit && b->limit(b->device, &mw) == 0 ? mw * 1e-3 : -1;
}

/* ---- GEMMs: C = A^T B, the layout that fp8 needs; bf16 results ---- */

typedef struct blas_gemm {
    int m, n, k;
    bool fp8;
    char *a, *b, *c;
#if BLAS_HEADER
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout_a, layout_b, layout_c;
    cublasLtMatmulAlgo_t algorithm;
#endif
} blas_gemm;

#if BLAS_HEADER

enum { BLAS_WORKSPACE = 64 << 20, BLAS_CANDIDATES = 8 };

#define BLAS_FUNCTIONS(X)                                                                          \
    X(cublasLtCreate)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmul)

static struct {
#define BLAS_DECLARE(name) decltype(&::name) name;
    BLAS_FUNCTIONS(BLAS_DECLARE)
#undef BLAS_DECLARE
    cublasLtHandle_t handle;
    void *workspace;
    float *scale; /* one, for fp8 */
    bool ready;
} blas;

static bool blas_load(void)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         "libcublasLt.so" };
    void *library = NULL;
    for (const char *name : names)
        if (!library)
            library = dlopen(name, RTLD_NOW);
    if (!library)
        return false;
#define BLAS_FIND(name)                                                                            \
    blas.name = (decltype(&::name))dlsym(library, #name);                                          \
    if (!blas.name)                                                                                \
        return false;
    BLAS_FUNCTIONS(BLAS_FIND)
#undef BLAS_FIND
    const float one = 1;
    blas.ready = blas.cublasLtCreate(&blas.handle) == CUBLAS_STATUS_SUCCESS &&
                 cudaMalloc(&blas.workspace, BLAS_WORKSPACE) == cudaSuccess &&
                 cudaMalloc((void **)&blas.scale, sizeof one) == cudaSuccess &&
                 cudaMemcpy(blas.scale, &one, sizeof one, cudaMemcpyHostToDevice) == cudaSuccess;
    return blas.ready;
}

static bool blas_run(const blas_gemm *g, cudaStream_t stream)
{
    const float alpha = 1, beta = 0;
    return blas.cublasLtMatmul(blas.handle, g->product, &alpha, g->a, g->layout_a, g->b,
                               g->layout_b, &beta, g->c, g->layout_c, g->c, g->layout_c,
                               &g->algorithm, blas.workspace, BLAS_WORKSPACE,
                               stream) == CUBLAS_STATUS_SUCCESS;
}

static bool blas_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *value,
                     size_t size)
{
    return blas.cublasLtMatmulDescSetAttribute(d, what, value, size) == CUBLAS_STATUS_SUCCESS;
}

/* Milliseconds of one product; -1 if it fails. */
static double blas_ms(const blas_gemm *g)
{
    cudaEvent_t begin, end;
    float ms = -1;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    bool good = blas_run(g, NULL);
    cudaEventRecord(begin);
    good = good && blas_run(g, NULL);
    cudaEventRecord(end);
    good = good && cudaEventSynchronize(end) == cudaSuccess;
    if (good)
        cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ms;
}

/* Describe a product over the given buffers and take the fastest of the candidates offered. */
static bool blas_prepare(blas_gemm *g)
{
    const cudaDataType type = g->fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const size_t workspace = BLAS_WORKSPACE;
    const int8_t fast = 0;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[BLAS_CANDIDATES];
    int count = 0;
    bool good = blas.cublasLtMatmulDescCreate(&g->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
                    CUBLAS_STATUS_SUCCESS &&
                blas_set(g->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (g->fp8)
        good = good &&
               blas_set(g->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &blas.scale,
                        sizeof blas.scale) &&
               blas_set(g->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &blas.scale,
                        sizeof blas.scale) &&
               blas_set(g->product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    good =
        good &&
        blas.cublasLtMatrixLayoutCreate(&g->layout_a, type, g->k, g->n, g->k) ==
            CUBLAS_STATUS_SUCCESS &&
        blas.cublasLtMatrixLayoutCreate(&g->layout_b, type, g->k, g->m, g->k) ==
            CUBLAS_STATUS_SUCCESS &&
        blas.cublasLtMatrixLayoutCreate(&g->layout_c, CUDA_R_16BF, g->n, g->m, g->n) ==
            CUBLAS_STATUS_SUCCESS &&
        blas.cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS &&
        blas.cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace) ==
            CUBLAS_STATUS_SUCCESS &&
        blas.cublasLtMatmulAlgoGetHeuristic(blas.handle, g->product, g->layout_a, g->layout_b,
                                            g->layout_c, g->layout_c, preference, BLAS_CANDIDATES,
                                            found, &count) == CUBLAS_STATUS_SUCCESS;
    double least = -1;
    for (int i = 0; i < count && good; i++) {
        blas_gemm trial = *g;
        trial.algorithm = found[i].algo;
        const double once = blas_ms(&trial), again = blas_ms(&trial);
        const double ms = once < again ? once : again;
        if (ms > 0 && (least < 0 || ms < least)) {
            least = ms;
            g->algorithm = found[i].algo;
        }
    }
    return good && least > 0;
}

#else

static bool blas_load(void)
{
    return false;
}
static bool blas_prepare(blas_gemm *g)
{
    (void)g;
    return false;
}
static bool blas_run(const blas_gemm *g, cudaStream_t stream)
{
    (void)g;
    (void)stream;
    return false;
}

#endif
#endif
