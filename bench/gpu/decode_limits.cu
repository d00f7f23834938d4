/* decode_limits.cu: what a kernel for one row and many keys can hope for, before one is written.
 *
 *     steps      cycles of a step of 16 keys in a chain on one accumulator, by the columns of the
 *                instruction; and with the wait at the end of a tile of 8 steps, which a change of
 *                scale needs
 *     slices     bytes per second from memory when the blocks of a group read slices of 32 to 256
 *                bytes of the same rows
 *     clusters   how many clusters of 2 to 16 blocks with 200 KiB each run at once
 *
 * bench/gpu/run has no table of it: these are limits of the device, and no row of ordo's. */
#include <algorithm>
#include <vector>

#include "../../tests/cuda/handmade_pass.h"
#include "../../tests/cuda/wgmma_narrow.h"
#include "cuda/tile/swizzle.h"

/* ---- steps ---- */

enum { TILE_STEPS = 8, TILES = 256, LINES_A = 64 };

template <int N, bool DRAINED> __global__ void steps(long long *cycles, float *sums)
{
    const uint32_t at_a = ORDO_SMEM_BASE, at_b = at_a + 2 * LINES_A * ORDO_LINE_BYTES;
    for (uint32_t x = threadIdx.x * 4; x < 2 * (LINES_A + N) * ORDO_LINE_BYTES; x += blockDim.x * 4)
        store_shared(at_a + x, 0);
    fence_shared_to_async();
    __syncthreads();
    const uint32_t low_a = ordo_descriptor_low(at_a, 0), low_b = ordo_descriptor_low(at_b, 0);
    float d[N / 2] = {};
    const long long begin = clock64();
    for (int tile = 0; tile < TILES; tile++) {
        wgmma_pin(d);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TILE_STEPS; k++)
            step<false>(d, wgmma_by_columns(low_a, LINES_A, k), wgmma_by_columns(low_b, N, k), 1);
        wgmma_commit();
        if (DRAINED)
            wgmma_wait<0>();
        else
            wgmma_wait<1>();
        wgmma_pin(d);
    }
    wgmma_wait<0>();
    wgmma_pin(d);
    if (threadIdx.x == 0)
        *cycles = clock64() - begin;
    sums[threadIdx.x] = d[0]; /* so that the products are not left out */
}

/* The same by mma.sync, m16n8k16, a warp. */
__global__ void warp_steps(long long *cycles, float *sums)
{
    float d[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    const long long begin = clock64();
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int k = 0; k < TILE_STEPS; k++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                         "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    if (threadIdx.x == 0)
        *cycles = clock64() - begin;
    sums[threadIdx.x] = d[0];
}

template <class Launch> static double cycles_per_step(Launch launch)
{
    long long *cycles, result;
    float *sums;
    MUST(cudaMalloc(&cycles, sizeof *cycles));
    MUST(cudaMalloc(&sums, 128 * sizeof *sums));
    for (int time = 0; time < 3; time++) /* the last one counts: code is in the cache */
        launch(cycles, sums);
    MUST(cudaMemcpy(&result, cycles, sizeof result, cudaMemcpyDefault));
    MUST(cudaFree(cycles));
    MUST(cudaFree(sums));
    return (double)result / (TILES * TILE_STEPS);
}

template <int N> static void print_steps(void)
{
    enum { BYTES = 2 * (LINES_A + N) * ORDO_LINE_BYTES };
    MUST(cudaFuncSetAttribute(steps<N, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    MUST(cudaFuncSetAttribute(steps<N, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    const double chain =
        cycles_per_step([](long long *c, float *s) { steps<N, false><<<1, 128, BYTES>>>(c, s); });
    const double drained =
        cycles_per_step([](long long *c, float *s) { steps<N, true><<<1, 128, BYTES>>>(c, s); });
    printf("| wgmma, %3d columns | %5.1f | %5.1f | %4.0f |\n", N, chain, drained,
           (drained - chain) * TILE_STEPS);
    fflush(stdout);
}

/* ---- slices: block x of a group reads columns x * width .. of every row of its sequence ---- */

enum { ROW_BYTES = 256, BOX_ROWS = 128, STAGES = 4 };

__global__ void read_slices(const __grid_constant__ CUtensorMap map, int slices, int boxes)
{
    const int width = ROW_BYTES / slices, bytes = width * BOX_ROWS;
    const uint32_t bars = ORDO_SMEM_BASE, data = ORDO_SMEM_BASE + 1024;
    if (threadIdx.x != 0)
        return;
    for (int s = 0; s < STAGES; s++)
        mbar_init(bars + s * 8, 1);
    mbar_init_fence();
    const uint64_t policy = policy_evict_first();
    const auto load = [&](int box) {
        const uint32_t bar = bars + box % STAGES * 8;
        mbar_expect(bar, bytes);
        tma_load(data + box % STAGES * bytes, &map, bar, (int)blockIdx.x % slices * width / 2,
                 box * BOX_ROWS, 0, (int)blockIdx.x / slices, policy);
    };
    for (int box = 0; box < STAGES && box < boxes; box++)
        load(box);
    for (int box = 0; box < boxes; box++) {
        mbar_wait(bars + box % STAGES * 8, box / STAGES % 2);
        if (box + STAGES < boxes)
            load(box + STAGES);
    }
}

static void print_slices(int slices, CUtensorMapL2promotion promotion)
{
    enum { GROUPS = 16, ROWS = 65536 };
    const size_t bytes = (size_t)GROUPS * ROWS * ROW_BYTES;
    void *memory, *function;
    MUST(cudaMalloc(&memory, bytes));
    MUST(cudaMemset(memory, 1, bytes));
    cudaDriverEntryPointQueryResult found;
    MUST(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                          cudaEnableDefault, &found));
    const int width = ROW_BYTES / slices;
    const cuuint64_t size[4] = { ROW_BYTES / 2, ROWS, 1, GROUPS };
    const cuuint64_t stride[3] = { ROW_BYTES, ROW_BYTES, (cuuint64_t)ROWS * ROW_BYTES };
    const cuuint32_t box[4] = { (cuuint32_t)width / 2, BOX_ROWS, 1, 1 }, step[4] = { 1, 1, 1, 1 };
    CUtensorMap map;
    if (((decltype(&cuTensorMapEncodeTiled))function)(
            &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, memory, size, stride, box, step,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, promotion,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
        printf("cuTensorMapEncodeTiled failed\n");
        exit(1);
    }
    const int shared = 1024 + STAGES * width * BOX_ROWS;
    MUST(cudaFuncSetAttribute(read_slices, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    cudaEvent_t from, to;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    std::vector<float> ms;
    for (int time = 0; time < 7; time++) {
        float t;
        MUST(cudaEventRecord(from));
        read_slices<<<GROUPS * slices, 32, shared>>>(map, slices, ROWS / BOX_ROWS);
        MUST(cudaEventRecord(to));
        MUST(cudaEventSynchronize(to));
        MUST(cudaEventElapsedTime(&t, from, to));
        ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    printf("| %3d of %d bytes, %3d blocks | %3d | %5.2f |\n", width, ROW_BYTES, GROUPS * slices,
           promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_256B ? 256 : 128,
           (double)bytes / (double)ms[ms.size() / 2] * 1e-9);
    fflush(stdout);
    MUST(cudaEventDestroy(from));
    MUST(cudaEventDestroy(to));
    MUST(cudaFree(memory));
}

/* ---- clusters ---- */

__global__ void resident(void)
{
}

static void print_clusters(int blocks)
{
    enum { BYTES = 200 << 10 };
    MUST(cudaFuncSetAttribute(resident, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    if (blocks > 8)
        MUST(cudaFuncSetAttribute(resident, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = { (unsigned)blocks, 1, 1 };
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks * 64);
    config.blockDim = dim3(384);
    config.dynamicSmemBytes = BYTES;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    MUST(cudaOccupancyMaxActiveClusters(&clusters, resident, &config));
    printf("| %2d blocks | %3d | %3d |\n", blocks, clusters, clusters * blocks);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    puts("| step of 16 keys | cycles | with a wait per tile | cycles of the wait "
         "|\n|---|---|---|---|");
    print_steps<8>();
    print_steps<16>();
    print_steps<32>();
    print_steps<64>();
    print_steps<128>();
    print_steps<256>();
    printf("| mma.sync, 8 columns | %5.1f | | |\n\n",
           cycles_per_step([](long long *c, float *s) { warp_steps<<<1, 32>>>(c, s); }));
    puts("| slice of a row | promotion | TB/s |\n|---|---|---|");
    for (int slices = 1; slices <= 8; slices *= 2) {
        print_slices(slices, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
        print_slices(slices, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
    }
    puts("\n| cluster | at once | blocks |\n|---|---|---|");
    for (int blocks = 2; blocks <= 16; blocks *= 2)
        print_clusters(blocks);
}
