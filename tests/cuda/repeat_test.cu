/* The promise on a device: the same bits from every repeat, grid, order of issue and batch, while
 * another stream hammers memory, and with random delays before every turn.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "cuda/sm90/backward/kernel.h"
#include "cuda/support/launch.h"
#include "handmade_pass.h"

static int passed, failed;

static void report(bool ok, const char *what, const case_shape &z)
{
    passed += ok;
    failed += !ok;
    printf("%s %s: batch %d heads %d/%d %dx%d dim %d %s\n", ok ? "ok  " : "FAIL", what, z.batch,
           z.heads, z.kv_heads, z.q_len, z.kv_len, z.head_dim, ordo_mask_name(z.mask));
    fflush(stdout);
}

/* ---- another stream ---- */

static __global__ void hammer_kernel(uint4 *x, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        x[i].x = x[i].y * 3 + x[i].z;
}

struct hammer {
    enum { BYTES = 256 << 20 };
    cudaStream_t stream;
    uint4 *memory;

    hammer()
    {
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        MUST(cudaMalloc(&memory, BYTES));
    }

    void strike(void) const
    {
        hammer_kernel<<<64, 256, 0, stream>>>(memory, BYTES / sizeof *memory);
    }

    ~hammer()
    {
        cudaStreamSynchronize(stream);
        cudaFree(memory);
        cudaStreamDestroy(stream);
    }
};

/* ---- all outputs of a case, compared on the device ---- */

static __global__ void differ_kernel(const uint16_t *a, const uint16_t *b, size_t count,
                                     unsigned long long *differ)
{
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        mine += a[i] != b[i];
    if (mine)
        atomicAdd(differ, mine);
}

struct outputs {
    const void *at[5];
    size_t halves[5]; /* 16-bit words */
    uint16_t *copy[5];
    unsigned long long *differ;

    explicit outputs(device_case &c)
        : at { c.o, c.lse, c.dq, c.dk, c.dv }, halves { c.q_count, 2 * c.lse_count, c.q_count,
                                                        c.kv_count, c.kv_count }
    {
        for (int x = 0; x < 5; x++) {
            copy[x] = c.take<uint16_t>(halves[x]);
            MUST(cudaMemcpy(copy[x], at[x], 2 * halves[x], cudaMemcpyDeviceToDevice));
        }
        differ = c.take<unsigned long long>(1);
        MUST(cudaMemset(differ, 0, sizeof *differ));
    }

    void compare(void) const
    {
        for (int x = 0; x < 5; x++)
            differ_kernel<<<264, 256>>>((const uint16_t *)at[x], copy[x], halves[x], differ);
    }

    bool same(void) const
    {
        return case_download(differ, 1)[0] == 0;
    }
};

/* ---- delays before every turn ---- */

template <int D> static void backward_delayed(device_case &c)
{
    using Z = backward_shape<D, ORDO_KEEP_NONE>;
    char why[300] = "";
    ordo_backward_args args;
    int blocks = 0;
    must_ordo(ordo_backward_arguments(&c.pass, Z::ROWS, Z::KEYS, &args, &blocks, why, sizeof why),
              why);
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_EARLY };
    must_ordo(ordo_backward_begin(&c.pass, false, why, sizeof why), why);
    must_ordo(ordo_cuda_launch((const void *)backward_kernel<D, ORDO_DQ_DELAYED, ORDO_KEEP_NONE>,
                               &args, grid, NULL, why, sizeof why),
              why);
    must_ordo(ordo_backward_end(&c.pass, true, why, sizeof why), why);
}

/* Captured once, replayed: nothing in a pass waits for the host or allocates. */
static void check_graph(device_case &c, const outputs &first)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaDeviceSynchronize());
    c.pass.stream = stream;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    c.forward();
    c.backward();
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&ready, graph, 0));
    for (int n = 0; n < 20; n++) {
        c.poison();
        MUST(cudaDeviceSynchronize());
        MUST(cudaGraphLaunch(ready, stream));
        MUST(cudaStreamSynchronize(stream));
        first.compare();
        MUST(cudaDeviceSynchronize());
    }
    report(first.same(), "captured in a graph and replayed", c.z);
    MUST(cudaGraphExecDestroy(ready));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaStreamDestroy(stream));
    c.pass.stream = NULL;
}

static void check_repeats(const case_shape &z, int repeats, const hammer &hammer)
{
    device_case c(z, 77);
    c.forward();
    c.backward();
    MUST(cudaDeviceSynchronize());
    const outputs first(c);
    for (int n = 0; n < repeats; n++) {
        if (n % 8 == 0)
            hammer.strike();
        c.poison();
        c.forward();
        c.backward();
        first.compare();
    }
    report(first.same(), "repeats, memory hammered", z);
    for (int n = 0; n < repeats; n++) {
        c.poison();
        if (z.head_dim == 64)
            backward_delayed<64>(c);
        else
            backward_delayed<128>(c);
        first.compare();
    }
    report(first.same(), "random delays before every turn", z);
    for (const int workers : { 132, 114, 78, 32, 1 }) {
        c.again(workers, z.order);
        c.poison();
        c.forward();
        c.backward();
        first.compare();
    }
    report(first.same(), "grids of 132, 114, 78, 32 and 1", z);
    check_graph(c, first);
}

/* Sequence b of a batch alone, and every sequence the same in a batch of another size. */
static void check_batch(case_shape z)
{
    device_case all(z, 5);
    all.forward();
    all.backward();
    z.batch = 1;
    bool same = true;
    for (int b = 0; b < all.z.batch; b++) {
        device_case one(z, 6);
        const size_t q = one.q_count, kv = one.kv_count;
        MUST(cudaMemcpy(one.q, all.q + b * q, 2 * q, cudaMemcpyDeviceToDevice));
        MUST(cudaMemcpy(one.dout, all.dout + b * q, 2 * q, cudaMemcpyDeviceToDevice));
        MUST(cudaMemcpy(one.k, all.k + b * kv, 2 * kv, cudaMemcpyDeviceToDevice));
        MUST(cudaMemcpy(one.v, all.v + b * kv, 2 * kv, cudaMemcpyDeviceToDevice));
        one.forward();
        one.backward();
        const bf16 *a[] = { one.o, one.dq, one.dk, one.dv };
        const bf16 *b_[] = { all.o + b * q, all.dq + b * q, all.dk + b * kv, all.dv + b * kv };
        const size_t count[] = { q, q, kv, kv };
        for (int x = 0; x < 4; x++)
            same = same && memcmp(case_download(a[x], count[x]).data(),
                                  case_download(b_[x], count[x]).data(), 2 * count[x]) == 0;
    }
    report(same, "alone and in a batch", all.z);
}

int main(int argc, char **argv)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    const int repeats = argc > 1 ? atoi(argv[1]) : 1000;
    const hammer hammer;
    for (const int dim : { 64, 128 })
        for (const ordo_mask mask :
             { ORDO_MASK_FULL, ORDO_MASK_CAUSAL, ORDO_MASK_CAUSAL_TOP_LEFT }) {
            check_repeats({ 2, 4, 4, 640, 640, dim, mask }, repeats, hammer);
            check_repeats({ 1, 8, 2, 777, 1100, dim, mask }, repeats, hammer);
            check_repeats({ 3, 4, 1, 1000, 500, dim, mask }, repeats, hammer);
            check_batch({ 3, 4, 2, 500, 700, dim, mask });
        }
    check_repeats({ 1, 16, 16, 4096, 4096, 128, ORDO_MASK_CAUSAL }, repeats / 4, hammer);
    check_repeats({ 1, 32, 8, 4096, 4096, 64, ORDO_MASK_FULL }, repeats / 4, hammer);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
