/* product.cu: products by cuBLASLt, which is loaded when a runner first needs it.
 *
 * The algorithm of a product is the first that the heuristic offers without a reduction over parts
 * of k; it is chosen once, never by its time, so that the bits repeat from process to process.
 * cuBLASLt thinks in columns: it is told to compute C^T = B^T A^T.
 *
 * fp8: both operands are quantised to e4m3 with k contiguous, which is the only form that cuBLASLt
 * multiplies on Hopper. The scales of activations come from the first pass with and the first
 * without dropout; weights are quantised once. */
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

#include "block/cuda/parts.cuh"
#include "block/cuda/quantise.cuh"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

enum { WORKSPACE = 64 << 20, CANDIDATES = 32, OPERANDS = 2, SETS = 2 };

#define BLAS_FUNCTIONS(X)                                                                          \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmul)

static struct {
#define BLAS_DECLARE(name) decltype(&::name) name;
    BLAS_FUNCTIONS(BLAS_DECLARE)
#undef BLAS_DECLARE
} blas;

struct prepared {
    bool ready;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result; /* cuBLASLt's A, B and result: our B, A and C */
    cublasLtMatmulAlgo_t algorithm;
    uint8_t *weight; /* fp8: B, if it is a weight */
    bool weight_ready;
    bool scaled[OPERANDS][SETS]; /* fp8: the scale is known */
};

struct memory {
    void *data;
    size_t bytes;
};

struct block_cuda {
    block_cuda_options options;
    cublasLtHandle_t handle;
    memory workspace, partials, quantised[OPERANDS], scales;
    prepared products[BLOCK_PRODUCTS];
};

/* The factor back from e4m3, which cuBLASLt reads, and the bits of the largest magnitude. */
struct alignas(16) scale_pair {
    float back;
    uint32_t largest;
};

static ordo_status need(memory *m, size_t bytes, char *why, size_t n)
{
    if (bytes <= m->bytes)
        return ORDO_OK;
    CUDA_CALL(cudaFree(m->data));
    *m = memory();
    CUDA_CALL(cudaMalloc(&m->data, bytes));
    m->bytes = bytes;
    return ORDO_OK;
}

ordo_status block_cuda_partials(block_cuda *c, size_t bytes, float **partials, char *why, size_t n)
{
    const ordo_status status = need(&c->partials, bytes, why, n);
    *partials = (float *)c->partials.data;
    return status;
}

/* ---- opening ---- */

static bool load_blas(char *why, size_t n)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         "libcublasLt.so" };
    void *library = NULL;
    for (const char *name : names)
        if (!library)
            library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, n, "cuBLASLt, which multiplies weights: %s", dlerror());
        return false;
    }
#define BLAS_FIND(name)                                                                            \
    blas.name = (decltype(&::name))dlsym(library, #name);                                          \
    if (!blas.name) {                                                                              \
        snprintf(why, n, "cuBLASLt has no %s", #name);                                             \
        return false;                                                                              \
    }
    BLAS_FUNCTIONS(BLAS_FIND)
#undef BLAS_FIND
    return true;
}

static ordo_status blas_failed(cublasStatus_t status, const char *what, char *why, size_t n)
{
    snprintf(why, n, "%s: cuBLASLt status %d", what, (int)status);
    return ORDO_ERR_DEVICE;
}

#define BLAS_CALL(call)                                                                            \
    do {                                                                                           \
        const cublasStatus_t status_ = blas.call;                                                  \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return blas_failed(status_, #call, why, n);                                            \
    } while (0)

static ordo_status open_blas(block_cuda *c, char *why, size_t n)
{
    const size_t scales = BLOCK_PRODUCTS * OPERANDS * SETS * sizeof(scale_pair);
    BLAS_CALL(cublasLtCreate(&c->handle));
    ordo_status status = need(&c->workspace, WORKSPACE, why, n);
    if (status == ORDO_OK)
        status = need(&c->scales, scales, why, n);
    return status;
}

ordo_status block_cuda_open(block_cuda **c, const block_cuda_options *options, char *why, size_t n)
{
    if (!load_blas(why, n))
        return ORDO_ERR_UNSUPPORTED;
    *c = (block_cuda *)calloc(1, sizeof **c);
    if (!*c) {
        snprintf(why, n, "%zu bytes of memory", sizeof **c);
        return ORDO_ERR_MEMORY;
    }
    (*c)->options = *options;
    const ordo_status status = open_blas(*c, why, n);
    if (status != ORDO_OK) {
        block_cuda_close(*c);
        *c = NULL;
    }
    return status;
}

void block_cuda_close(block_cuda *c)
{
    (void)cudaDeviceSynchronize(); /* a fault has been reported by then */
    for (prepared &p : c->products) {
        if (p.product)
            blas.cublasLtMatmulDescDestroy(p.product);
        for (cublasLtMatrixLayout_t layout : { p.first, p.second, p.result })
            if (layout)
                blas.cublasLtMatrixLayoutDestroy(layout);
        (void)cudaFree(p.weight);
    }
    for (memory m : { c->workspace, c->partials, c->quantised[0], c->quantised[1], c->scales })
        (void)cudaFree(m.data);
    if (c->handle)
        blas.cublasLtDestroy(c->handle);
    free(c);
}

void block_cuda_forget(block_cuda *c)
{
    for (prepared &p : c->products) {
        p.weight_ready = false;
        memset(p.scaled, 0, sizeof p.scaled);
    }
}

/* ---- algorithms ---- */

static uint32_t tile_of(const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t tile = 0;
    size_t written;
    if (blas.cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                                  sizeof tile, &written) != CUBLAS_STATUS_SUCCESS)
        return 0;
    return tile;
}

/* Elements of a tile from 64 x 64 on; of others, more than any. */
static int tile_area(uint32_t tile)
{
    switch (tile) {
    case CUBLASLT_MATMUL_TILE_64x64: return 64 * 64;
    case CUBLASLT_MATMUL_TILE_64x96:
    case CUBLASLT_MATMUL_TILE_96x64: return 64 * 96;
    case CUBLASLT_MATMUL_TILE_64x128:
    case CUBLASLT_MATMUL_TILE_128x64: return 64 * 128;
    case CUBLASLT_MATMUL_TILE_96x128:
    case CUBLASLT_MATMUL_TILE_128x96: return 96 * 128;
    case CUBLASLT_MATMUL_TILE_64x256:
    case CUBLASLT_MATMUL_TILE_256x64:
    case CUBLASLT_MATMUL_TILE_128x128: return 128 * 128;
    default: return 1 << 20;
    }
}

static ordo_status describe_product(const block_cuda *c, prepared *q, const block_product *p,
                                    char *why, size_t n)
{
    const bool fp8 = c->options.fp8;
    const cudaDataType type = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const bool b_by_k = fp8 || p->b_transposed, a_by_k = fp8 || !p->a_transposed;
    const cublasOperation_t first = b_by_k ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = a_by_k ? CUBLAS_OP_N : CUBLAS_OP_T;
    const int32_t target = c->options.sm_target;
    const int8_t fast = 0;
    BLAS_CALL(cublasLtMatmulDescCreate(&q->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS_CALL(cublasLtMatmulDescSetAttribute(q->product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                             sizeof first));
    BLAS_CALL(cublasLtMatmulDescSetAttribute(q->product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                             sizeof second));
    if (target > 0)
        BLAS_CALL(cublasLtMatmulDescSetAttribute(q->product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
                                                 &target, sizeof target));
    if (fp8)
        BLAS_CALL(cublasLtMatmulDescSetAttribute(q->product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
                                                 sizeof fast));
    BLAS_CALL(cublasLtMatrixLayoutCreate(&q->first, type, (uint64_t)(b_by_k ? p->k : p->n),
                                         (uint64_t)(b_by_k ? p->n : p->k), b_by_k ? p->k : p->n));
    BLAS_CALL(cublasLtMatrixLayoutCreate(&q->second, type, (uint64_t)(a_by_k ? p->k : p->m),
                                         (uint64_t)(a_by_k ? p->m : p->k), a_by_k ? p->k : p->m));
    BLAS_CALL(
        cublasLtMatrixLayoutCreate(&q->result, CUDA_R_16BF, (uint64_t)p->n, (uint64_t)p->m, p->n));
    return ORDO_OK;
}

/* Tell cuBLASLt where the scales are. */
static ordo_status point_to_scales(const block_cuda *c, prepared *q, const scale_pair *a,
                                   const scale_pair *b, char *why, size_t n)
{
    const float *of_first = &b->back, *of_second = &a->back;
    if (!c->options.fp8)
        return ORDO_OK;
    BLAS_CALL(cublasLtMatmulDescSetAttribute(q->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                             &of_first, sizeof of_first));
    BLAS_CALL(cublasLtMatmulDescSetAttribute(q->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                             &of_second, sizeof of_second));
    return ORDO_OK;
}

static ordo_status choose(const block_cuda *c, prepared *q, const block_product *p,
                          cublasLtMatmulPreference_t preference, char *why, size_t n)
{
    const size_t workspace = WORKSPACE;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0, chosen = 0;
    BLAS_CALL(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    BLAS_CALL(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
    BLAS_CALL(cublasLtMatmulAlgoGetHeuristic(c->handle, q->product, q->first, q->second, q->result,
                                             q->result, preference, CANDIDATES, found, &count));
    if (count == 0) {
        snprintf(why, n, "cuBLASLt offers no product of %lld x %lld x %lld", (long long)p->m,
                 (long long)p->n, (long long)p->k);
        return ORDO_ERR_UNSUPPORTED;
    }
    for (int i = 1; i < count && c->options.small_tiles; i++)
        if (tile_area(tile_of(&found[i].algo)) < tile_area(tile_of(&found[chosen].algo)))
            chosen = i;
    q->algorithm = found[chosen].algo;
    q->ready = true;
    return ORDO_OK;
}

static ordo_status prepare(block_cuda *c, prepared *q, const block_product *p, char *why, size_t n)
{
    cublasLtMatmulPreference_t preference;
    const scale_pair *scales = (const scale_pair *)c->scales.data;
    ordo_status status = describe_product(c, q, p, why, n);
    if (status == ORDO_OK)
        status = point_to_scales(c, q, scales, scales, why, n); /* the heuristic asks for some */
    if (status != ORDO_OK)
        return status;
    BLAS_CALL(cublasLtMatmulPreferenceCreate(&preference));
    status = choose(c, q, p, preference, why, n);
    blas.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

void block_cuda_describe(const block_cuda *c, int id, char *text, size_t n)
{
    const prepared *q = &c->products[id];
    int32_t algorithm = -1;
    uint32_t stages = 0;
    size_t written;
    if (n > 0)
        text[0] = 0;
    if (!q->ready)
        return;
    blas.cublasLtMatmulAlgoConfigGetAttribute(&q->algorithm, CUBLASLT_ALGO_CONFIG_ID, &algorithm,
                                              sizeof algorithm, &written);
    blas.cublasLtMatmulAlgoConfigGetAttribute(&q->algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                              &stages, sizeof stages, &written);
    snprintf(text, n, "algorithm %d, tile %u, stages %u", (int)algorithm,
             (unsigned)tile_of(&q->algorithm), (unsigned)stages);
}

/* ---- fp8 ---- */

/* Write `from`, outer x k or stored as k x outer, as e4m3 with k contiguous. */
static ordo_status quantise(const void *from, int64_t outer, int64_t k, bool transposed,
                            bool *scaled, scale_pair *scale, uint8_t *to, cudaStream_t stream,
                            char *why, size_t n)
{
    const int64_t eights = outer * k / 8;
    const unsigned grid = block_cuda_grid(eights, QUANTISE_THREADS);
    if (!*scaled) {
        CUDA_CALL(cudaMemsetAsync(&scale->largest, 0, sizeof scale->largest, stream));
        largest_kernel<<<grid, QUANTISE_THREADS, 0, stream>>>(from, eights, &scale->largest);
        CUDA_CALL(cudaGetLastError());
        *scaled = true;
    }
    const dim3 tiles((unsigned)((outer + QUANTISE_TILE - 1) / QUANTISE_TILE),
                     (unsigned)((k + QUANTISE_TILE - 1) / QUANTISE_TILE));
    if (transposed)
        quantise_transposed_kernel<<<tiles, QUANTISE_THREADS, 0, stream>>>(
            from, to, k, outer, &scale->largest, &scale->back);
    else
        quantise_kernel<<<grid, QUANTISE_THREADS, 0, stream>>>(from, to, eights, &scale->largest,
                                                               &scale->back);
    CUDA_CALL(cudaGetLastError());
    return ORDO_OK;
}

/* Replace the operands by quantised ones. */
static ordo_status quantise_operands(block_cuda *c, prepared *q, block_product *p,
                                     cudaStream_t stream, char *why, size_t n)
{
    const bool weight = p->id / BLOCK_WEIGHTS != BLOCK_WEIGHT_GRADIENT;
    const int set = p->drops, of_b = weight ? 0 : set;
    scale_pair *scales = (scale_pair *)c->scales.data + p->id * OPERANDS * SETS;
    scale_pair *a = &scales[set], *b = &scales[SETS + of_b];
    if (p->m % 16 != 0 || p->n % 16 != 0 || p->k % 16 != 0) {
        snprintf(why, n, "product of %lld x %lld x %lld: fp8 needs multiples of 16",
                 (long long)p->m, (long long)p->n, (long long)p->k);
        return ORDO_ERR_SHAPE;
    }
    ordo_status status = need(&c->quantised[0], (size_t)(p->m * p->k), why, n);
    if (status == ORDO_OK && !weight)
        status = need(&c->quantised[1], (size_t)(p->n * p->k), why, n);
    if (status != ORDO_OK)
        return status;
    if (weight && !q->weight)
        CUDA_CALL(cudaMalloc((void **)&q->weight, (size_t)(p->n * p->k)));
    uint8_t *a8 = (uint8_t *)c->quantised[0].data;
    uint8_t *b8 = weight ? q->weight : (uint8_t *)c->quantised[1].data;
    status = quantise(p->a, p->m, p->k, p->a_transposed, &q->scaled[0][set], a, a8, stream, why, n);
    if (status == ORDO_OK && !(weight && q->weight_ready))
        status = quantise(p->b, p->n, p->k, !p->b_transposed, &q->scaled[1][of_b], b, b8, stream,
                          why, n);
    q->weight_ready = weight && status == ORDO_OK;
    p->a = a8;
    p->b = b8;
    return status == ORDO_OK ? point_to_scales(c, q, a, b, why, n) : status;
}

ordo_status block_cuda_multiply(block_cuda *c, const block_product *wanted, void *stream, char *why,
                                size_t n)
{
    const float alpha = 1, beta = 0;
    block_product p = *wanted;
    prepared *q = &c->products[p.id];
    ordo_status status = q->ready ? ORDO_OK : prepare(c, q, &p, why, n);
    if (status == ORDO_OK && c->options.fp8)
        status = quantise_operands(c, q, &p, (cudaStream_t)stream, why, n);
    if (status != ORDO_OK)
        return status;
    BLAS_CALL(cublasLtMatmul(c->handle, q->product, &alpha, p.b, q->first, p.a, q->second, &beta,
                             p.c, q->result, p.c, q->result, &q->algorithm, c->workspace.data,
                             WORKSPACE, (cudaStream_t)stream));
    return ORDO_OK;
}

#else /* built without the header of cuBLASLt */

struct block_cuda {
    int unused;
};

ordo_status block_cuda_open(block_cuda **c, const block_cuda_options *options, char *why, size_t n)
{
    (void)c, (void)options;
    snprintf(why, n, "this build of libordo_lab_cuda.so had no header of cuBLASLt");
    return ORDO_ERR_UNSUPPORTED;
}

/* Without a block_cuda nobody calls these. */
void block_cuda_close(block_cuda *c)
{
    (void)c;
}
void block_cuda_forget(block_cuda *c)
{
    (void)c;
}
ordo_status block_cuda_multiply(block_cuda *c, const block_product *p, void *stream, char *why,
                                size_t n)
{
    (void)c, (void)p, (void)stream, (void)why, (void)n;
    return ORDO_ERR_UNSUPPORTED;
}
void block_cuda_describe(const block_cuda *c, int id, char *text, size_t n)
{
    (void)c, (void)id, (void)text, (void)n;
}
ordo_status block_cuda_partials(block_cuda *c, size_t bytes, float **memory, char *why, size_t n)
{
    (void)c, (void)bytes, (void)memory, (void)why, (void)n;
    return ORDO_ERR_UNSUPPORTED;
}

#endif
