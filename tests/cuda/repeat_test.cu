/* The same bits from a thousand repeats while another stream hammers memory, with random delays
 * before every turn, from a repair of nothing, and from a graph that is replayed. (Grids, batches,
 * layouts: grid_test.)
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "cuda/sm90/backward/kernel.h"
#include "cuda/support/around.h"
#include "cuda/support/launch.h"
#include "handmade_pass.h"

static void check(bool ok, const char *what, const case_shape &z)
{
    verdict(ok, "%s: batch %d heads %d/%d %dx%d dim %d %s", what, z.batch, z.heads, z.kv_heads,
            z.q_len, z.kv_len, z.head_dim, ordo_mask_name(z.mask));
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
    ordo_backward_args args;
    int blocks = 0;
    must_ordo(ordo_backward_arguments(&c.pass, Z::ROWS, Z::KEYS, &args, &blocks), ordo_cuda_why());
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_EARLY };
    must_ordo(ordo_backward_begin(&c.pass, false), ordo_cuda_why());
    must_ordo(ordo_cuda_launch((const void *)backward_kernel<D, ORDO_DQ_DELAYED, ORDO_KEEP_NONE>,
                               &args, grid, NULL),
              ordo_cuda_why());
    must_ordo(ordo_backward_end(&c.pass, true), ordo_cuda_why());
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
    check(first.same(), "captured in a graph and replayed", c.z);
    MUST(cudaGraphExecDestroy(ready));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaStreamDestroy(stream));
    c.pass.stream = NULL;
}

/* Finite inputs raise no flag, and flags raised for nothing change no bit. */
static void check_flags(device_case &c, const outputs &first)
{
    MUST(cudaDeviceSynchronize());
    check(case_download(c.pass.ticket, 2)[ORDO_NOT_FINITE] == 0, "no flag", c.z);
    MUST(cudaMemset(c.pass.ticket, 1, 2 * sizeof *c.pass.ticket));
    must_ordo(ordo_repair_forward(&c.pass, NULL), ordo_cuda_why());
    must_ordo(ordo_repair_backward(&c.pass), ordo_cuda_why());
    first.compare();
    check(first.same(), "a flag for nothing", c.z);
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
    check(first.same(), "repeats, memory hammered", z);
    check_flags(c, first);
    for (int n = 0; n < repeats; n++) {
        c.poison();
        if (z.head_dim == 64)
            backward_delayed<64>(c);
        else
            backward_delayed<128>(c);
        first.compare();
    }
    check(first.same(), "random delays before every turn", z);
    check_graph(c, first);
}

int main(int argc, char **argv)
{
    if (device_is_missing())
        return 77;
    const int repeats = argc > 1 ? atoi(argv[1]) : 1000;
    const hammer hammer;
    for (const int dim : { 64, 128 })
        for (const ordo_mask mask :
             { ORDO_MASK_FULL, ORDO_MASK_CAUSAL, ORDO_MASK_CAUSAL_TOP_LEFT }) {
            check_repeats({ 2, 4, 4, 640, 640, dim, mask }, repeats, hammer);
            check_repeats({ 1, 8, 2, 777, 1100, dim, mask }, repeats, hammer);
            check_repeats({ 3, 4, 1, 1000, 500, dim, mask }, repeats, hammer);
        }
    check_repeats({ 1, 16, 16, 4096, 4096, 128, ORDO_MASK_CAUSAL }, repeats / 4, hammer);
    check_repeats({ 1, 32, 8, 4096, 4096, 64, ORDO_MASK_FULL }, repeats / 4, hammer);
    return report_all();
}
