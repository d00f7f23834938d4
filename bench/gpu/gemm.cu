/* gemm.cu: ordo's matrix products and cuBLASLt's, each shape by the best of the algorithms that
 * its heuristic names, in one process on a warm device.
 *
 *     gemm [ROUNDS [TABLES]]          TABLES: of l, f and e; all
 *
 * l, linear layers of a transformer (tokens x width: QKV, out, MLP up and down; forward, dX, dW) in
 * bf16; f, few rows, as decoding has them; e, the forward layers in e4m3, cuBLASLt without fast
 * accumulation, and for information with it. Launches are replayed from graphs, in turns, with the
 * operands of as many places in memory as there is room for; medians. Few rows have a second floor
 * besides memory: k / 16 dependent steps of the matrix cores. */
#include <cublasLt.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "../../tests/cuda/handmade_pass.h"
#include "cuda/pass/gemm.h"
#include "cuda/sm90/gemm/gemm.h"

#define LT(call)                                                                                   \
    do {                                                                                           \
        const cublasStatus_t status_ = (call);                                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                                                    \
            printf("%s: %s\n", #call, cublasLtGetStatusName(status_));                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const size_t pool_bytes = (size_t)1 << 30, lt_bytes = 64 << 20;
static const double batch_us = 2000.0, step_clk = 24.0,
                    clock_ghz = 1.98; /* n32: hopper-tuning.md */
static uint16_t *pool_a, *pool_b, *pool_c;
static void *lt_memory;
static cudaStream_t stream;
static cublasLtHandle_t lt;
static int rounds = 7;

struct shape {
    const char *layer, *direction;
    int64_t m, n, k;
    bool a_rows, b_rows; /* a_rows_are_k, b_rows_are_k */
    ordo_dtype in = ORDO_BF16;
};

/* Numbers of about unit size. */
static __global__ void fill(uint16_t *x, size_t count, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        const ordo_philox_words counter = { { (uint32_t)i, (uint32_t)(i >> 32), seed, 0 } };
        const ordo_philox_words r = ordo_philox(counter, 1, 2, 7);
        float sum = 0.0f;
        for (int w = 0; w < 4; w++)
            sum += (float)(int32_t)r.w[w] * 0x1p-31f;
        x[i] = (uint16_t)pack_pair<false>(sum, sum);
    }
}

static __global__ void fill_e4m3(uint16_t *x, size_t count, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        const ordo_philox_words counter = { { (uint32_t)i, (uint32_t)(i >> 32), seed, 0 } };
        const ordo_philox_words r = ordo_philox(counter, 1, 2, 7);
        const float low = (float)(int32_t)r.w[0] * 0x1p-31f + (float)(int32_t)r.w[1] * 0x1p-31f;
        const float high = (float)(int32_t)r.w[2] * 0x1p-31f + (float)(int32_t)r.w[3] * 0x1p-31f;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(x[i]) : "f"(high), "f"(low));
    }
}

/* ---- the contestants ---- */

static size_t places(int64_t elements)
{
    const size_t most = pool_bytes / 2 / (((size_t)elements + 127) / 128 * 128);
    return std::max<size_t>(1, std::min<size_t>(most, 64));
}

static uint16_t *place(uint16_t *pool, int64_t elements, int turn)
{
    return pool + turn % places(elements) * (((size_t)elements + 127) / 128 * 128);
}

static ordo_cuda_gemm operands(const shape &s, int turn)
{
    ordo_cuda_gemm g = {};
    g.m = s.m, g.n = s.n, g.k = s.k, g.sections = 1;
    g.in = s.in, g.out = ORDO_BF16;
    const int pair = s.in == ORDO_E4M3 ? 2 : 1; /* elements in the place of one of 16 bits */
    g.a = place(pool_a, s.m * s.k / pair, turn), g.a_rows_are_k = s.a_rows;
    g.b = place(pool_b, s.n * s.k / pair, turn), g.b_rows_are_k = s.b_rows;
    g.a_stride = s.a_rows ? s.m : s.k, g.b_stride = s.b_rows ? s.n : s.k;
    g.c = place(pool_c, s.m * s.n, turn), g.c_stride = s.n;
    g.stream = stream;
    return g;
}

static void run_ordo(const shape &s, int turn)
{
    const ordo_cuda_gemm g = operands(s, turn);
    must_ordo(ordo_wgmma_gemm(&g), ordo_cuda_why());
}

/* By columns, C^T = B^T A^T. */
struct lt_plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t b, a, c;
    std::vector<cublasLtMatmulHeuristicResult_t> found;

    explicit lt_plan(const shape &s, bool fast = false) : found(16)
    {
        const cudaDataType_t in = s.in == ORDO_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
        const int8_t accumulation = fast;
        const cublasOperation_t turn_b = s.b_rows ? CUBLAS_OP_N : CUBLAS_OP_T;
        const cublasOperation_t turn_a = s.a_rows ? CUBLAS_OP_T : CUBLAS_OP_N;
        cublasLtMatmulPreference_t preference;
        int count = 0;
        LT(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        LT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &turn_b,
                                          sizeof turn_b));
        LT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &turn_a,
                                          sizeof turn_a));
        LT(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &accumulation,
                                          sizeof accumulation));
        const int64_t b_stride = s.b_rows ? s.n : s.k, a_stride = s.a_rows ? s.m : s.k;
        LT(cublasLtMatrixLayoutCreate(&b, in, b_stride, s.b_rows ? s.k : s.n, b_stride));
        LT(cublasLtMatrixLayoutCreate(&a, in, a_stride, s.a_rows ? s.k : s.m, a_stride));
        LT(cublasLtMatrixLayoutCreate(&c, CUDA_R_16BF, s.n, s.m, s.n));
        LT(cublasLtMatmulPreferenceCreate(&preference));
        LT(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &lt_bytes, sizeof lt_bytes));
        LT(cublasLtMatmulAlgoGetHeuristic(lt, product, b, a, c, c, preference, (int)found.size(),
                                          found.data(), &count));
        found.resize((size_t)count);
        LT(cublasLtMatmulPreferenceDestroy(preference));
    }

    lt_plan(const lt_plan &) = delete;

    ~lt_plan()
    {
        cublasLtMatmulDescDestroy(product);
        for (cublasLtMatrixLayout_t layout : { a, b, c })
            cublasLtMatrixLayoutDestroy(layout);
    }

    void run(const shape &s, size_t algorithm, int turn) const
    {
        const float one = 1.0f, zero = 0.0f;
        const ordo_cuda_gemm g = operands(s, turn);
        LT(cublasLtMatmul(lt, product, &one, g.b, b, g.a, a, &zero, g.c, c, g.c, c,
                          &found[algorithm].algo, lt_memory, lt_bytes, stream));
    }
};

/* ---- time ---- */

typedef std::function<void(int turn)> contestant;

/* Median microseconds of a launch, of each. */
static std::vector<double> in_turns(const std::vector<contestant> &all, int launches, int times)
{
    std::vector<cudaGraphExec_t> graphs(all.size());
    std::vector<std::vector<float>> us(all.size());
    std::vector<double> medians;
    cudaEvent_t from, to;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    for (size_t x = 0; x < all.size(); x++) {
        cudaGraph_t graph;
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int turn = 0; turn < launches; turn++)
            all[x](turn);
        MUST(cudaStreamEndCapture(stream, &graph));
        MUST(cudaGraphInstantiate(&graphs[x], graph, 0));
        MUST(cudaGraphDestroy(graph));
    }
    for (int round = -1; round < times; round++)
        for (size_t i = 0; i < all.size(); i++) {
            const size_t x = (i + (size_t)(round + 1)) % all.size();
            float ms = 0.0f;
            MUST(cudaEventRecord(from, stream));
            MUST(cudaGraphLaunch(graphs[x], stream));
            MUST(cudaEventRecord(to, stream));
            MUST(cudaEventSynchronize(to));
            MUST(cudaEventElapsedTime(&ms, from, to));
            if (round >= 0)
                us[x].push_back(ms * 1e3f / (float)launches);
        }
    for (size_t x = 0; x < all.size(); x++) {
        std::sort(us[x].begin(), us[x].end());
        medians.push_back((double)us[x][us[x].size() / 2]);
        MUST(cudaGraphExecDestroy(graphs[x]));
    }
    MUST(cudaEventDestroy(from));
    MUST(cudaEventDestroy(to));
    return medians;
}

struct times {
    double ordo, lt;
};

static int launches_of(double about_us)
{
    return std::max(1, std::min(64, (int)(batch_us / about_us)));
}

/* The fastest algorithm of a plan. */
static contestant best_of(const lt_plan &plan, const shape &s, int launches)
{
    std::vector<contestant> algorithms;
    for (size_t x = 0; x < plan.found.size(); x++)
        algorithms.push_back([&plan, &s, x](int turn) { plan.run(s, x, turn); });
    const std::vector<double> us = in_turns(algorithms, std::max(1, launches / 4), 3);
    return algorithms[(size_t)(std::min_element(us.begin(), us.end()) - us.begin())];
}

static times compare(const shape &s, double about_us)
{
    const lt_plan plan(s);
    const int launches = launches_of(about_us);
    const std::vector<double> both = in_turns(
        { [&s](int turn) { run_ordo(s, turn); }, best_of(plan, s, launches) }, launches, rounds);
    return { both[0], both[1] };
}

/* ---- the tables ---- */

static void layers(void)
{
    double sum = 0.0, least = 9.0;
    int count = 0;
    puts("| tokens | width | layer | direction | ordo TFLOP/s | cuBLASLt | ordo ÷ cuBLASLt |\n"
         "|---|---|---|---|---|---|---|");
    for (const int64_t tokens : { 2048, 8192, 16384 })
        for (const int64_t width : { 2048, 4096, 8192 }) {
            const struct {
                const char *name;
                int64_t out, in;
            } linear[] = { { "QKV", 3 * width, width },
                           { "out", width, width },
                           { "up", 4 * width, width },
                           { "down", width, 4 * width } };
            for (const auto &l : linear)
                for (const shape &s :
                     { shape { l.name, "forward", tokens, l.out, l.in, false, false },
                       shape { l.name, "dX", tokens, l.in, l.out, false, true },
                       shape { l.name, "dW", l.out, l.in, tokens, true, true } }) {
                    const double flop = 2.0 * (double)s.m * (double)s.n * (double)s.k;
                    const times t = compare(s, flop * 1e-6 / 700.0);
                    printf("| %lld | %lld | %s | %s | %.0f | %.0f | %.3f |\n", (long long)tokens,
                           (long long)width, s.layer, s.direction, flop * 1e-6 / t.ordo,
                           flop * 1e-6 / t.lt, t.lt / t.ordo);
                    fflush(stdout);
                    sum += t.lt / t.ordo;
                    least = std::min(least, t.lt / t.ordo);
                    count++;
                }
        }
    printf("| mean, least | | | | | | %.3f, %.3f |\n\n", sum / count, least);
}

static void eight_bits(void)
{
    double sum = 0.0, least = 9.0;
    int count = 0;
    for (uint16_t *pool : { pool_a, pool_b })
        fill_e4m3<<<1024, 256, 0, stream>>>(pool, pool_bytes / 2, (uint32_t)(uintptr_t)pool);
    puts("| tokens | width | e4m3 layer | ordo TFLOP/s | cuBLASLt | fast | ordo ÷ cuBLASLt |\n"
         "|---|---|---|---|---|---|---|");
    for (const int64_t tokens : { 64, 2048, 8192, 16384 })
        for (const int64_t width : { 2048, 4096, 8192 })
            for (const shape &s :
                 { shape { "QKV", "", tokens, 3 * width, width, false, false, ORDO_E4M3 },
                   shape { "out", "", tokens, width, width, false, false, ORDO_E4M3 },
                   shape { "up", "", tokens, 4 * width, width, false, false, ORDO_E4M3 },
                   shape { "down", "", tokens, width, 4 * width, false, false, ORDO_E4M3 } }) {
                const double flop = 2.0 * (double)s.m * (double)s.n * (double)s.k;
                const int launches = launches_of(flop * 1e-6 / 1300.0);
                const lt_plan plan(s), quick(s, true);
                const std::vector<double> us =
                    in_turns({ [&s](int turn) { run_ordo(s, turn); }, best_of(plan, s, launches),
                               best_of(quick, s, launches) },
                             launches, rounds);
                printf("| %lld | %lld | %s | %.0f | %.0f | %.0f | %.3f |\n", (long long)tokens,
                       (long long)width, s.layer, flop * 1e-6 / us[0], flop * 1e-6 / us[1],
                       flop * 1e-6 / us[2], us[1] / us[0]);
                fflush(stdout);
                sum += us[1] / us[0];
                least = std::min(least, us[1] / us[0]);
                count++;
            }
    printf("| mean, least | | | | | | %.3f, %.3f |\n\n", sum / count, least);
}

static void few_rows(void)
{
    static const int64_t weights[][2] = { { 2048, 2048 },  { 6144, 2048 },  { 8192, 2048 },
                                          { 2048, 8192 },  { 4096, 4096 },  { 12288, 4096 },
                                          { 16384, 4096 }, { 4096, 16384 }, { 8192, 8192 },
                                          { 32768, 8192 }, { 8192, 32768 } };
    puts("| rows | n | k | ordo µs | cuBLASLt µs | steps µs | cuBLASLt or steps ÷ ordo |\n"
         "|---|---|---|---|---|---|---|");
    for (const int64_t rows : { 1, 8, 16, 32, 64 })
        for (const int64_t(&w)[2] : weights) {
            const shape s = { "", "", rows, w[0], w[1], false, false };
            const times t = compare(s, (double)(w[0] * w[1]) * 2e-6 / 4.0);
            const double steps = (double)w[1] / 16.0 * step_clk / clock_ghz * 1e-3;
            printf("| %lld | %lld | %lld | %.1f | %.1f | %.1f | %.3f |\n", (long long)rows,
                   (long long)w[0], (long long)w[1], t.ordo, t.lt, steps,
                   std::max(t.lt, steps) / t.ordo);
            fflush(stdout);
        }
}

int main(int argc, char **argv)
{
    if (device_is_missing())
        return 77;
    rounds = argc > 1 ? std::max(1, atoi(argv[1])) : rounds;
    const char *const tables = argc > 2 ? argv[2] : "lfe";
    MUST(cudaStreamCreate(&stream));
    LT(cublasLtCreate(&lt));
    MUST(cudaMalloc(&lt_memory, lt_bytes));
    for (uint16_t **pool : { &pool_a, &pool_b, &pool_c }) {
        MUST(cudaMalloc(pool, pool_bytes));
        fill<<<1024, 256, 0, stream>>>(*pool, pool_bytes / 2, (uint32_t)(uintptr_t)*pool);
    }
    const shape warm = { "", "", 8192, 8192, 8192, false, false };
    for (int x = 0; x < 1500; x++) /* two seconds: the power limit is reached */
        run_ordo(warm, x);
    MUST(cudaStreamSynchronize(stream));
    if (strchr(tables, 'l'))
        layers();
    if (strchr(tables, 'f'))
        few_rows();
    if (strchr(tables, 'e'))
        eight_bits();
    return 0;
}
