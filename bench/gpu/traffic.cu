/* traffic.cu: one attention pass of one form on one device, for counters of bytes.
 *
 *     traffic FORM PASS DIM            once, between cudaProfilerStart() and cudaProfilerStop()
 *     traffic FORM PASS DIM SECONDS    again and again; prints "ready" when the device is busy, and
 *                                      at the end the milliseconds of a pass
 *     traffic read|write|l2 [SECONDS]  a stream of known bytes instead of a pass: reads or writes
 * of 4 GiB, or reads of 16 MiB that L2 holds
 *
 * FORM is flash (head sizes up to 128) or phase, PASS forward or backward. DIM is a head size, or
 * two for phase: 192/128 has values of 128 columns. 16k tokens in sequences of 8k, full mask.
 * bench/gpu/run counters_h200 runs it. */
#include <cuda_profiler_api.h>

#include <chrono>
#include <functional>

#include "../../tests/cuda/handmade_pass.h"
#include "forms.cuh"

enum { TOKENS = 16384, CHANNELS = 2048, SEQ = 8192, BATCH_PASSES = 4 };

/* ---- streams of known bytes ---- */

static const size_t stream_bytes = (size_t)4 << 30, small_bytes = 16 << 20;

/* Read `bytes` of memory `times` times past L1; `sum` is written if it has one value in 2^32, which
 * keeps the loads. */
static __global__ void read_stream(const uint4 *x, size_t bytes, int times, uint32_t *sum)
{
    uint32_t all = 0;
    for (int n = 0; n < times; n++)
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes / sizeof *x;
             i += (size_t)gridDim.x * blockDim.x) {
            const uint4 v = __ldcg(x + i);
            all += v.x ^ v.y ^ v.z ^ v.w;
        }
    if (all == 0x12345678u)
        *sum = all;
}

static __global__ void write_stream(uint4 *x, size_t bytes)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes / sizeof *x;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] = make_uint4((uint32_t)i, 1, 2, 3);
}

/* ---- runs ---- */

static void run_once(const std::function<void(void)> &pass)
{
    MUST(cudaDeviceSynchronize());
    MUST(cudaProfilerStart());
    pass();
    MUST(cudaDeviceSynchronize());
    MUST(cudaProfilerStop());
}

/* Never less than one batch of passes is queued, so that the device does not rest. */
static void run_for(const std::function<void(void)> &pass, double seconds)
{
    using clock = std::chrono::steady_clock;
    cudaEvent_t from, done[2];
    float ms = 0;
    long passes = 0;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&done[0]));
    MUST(cudaEventCreate(&done[1]));
    MUST(cudaEventRecord(from));
    MUST(cudaEventRecord(done[1]));
    puts("ready");
    fflush(stdout);
    const auto end = clock::now() + std::chrono::duration<double>(seconds);
    int last = 0;
    for (int n = 0; n < 2 || clock::now() < end; n++, passes += BATCH_PASSES) {
        for (int i = 0; i < BATCH_PASSES; i++)
            pass();
        last = n & 1;
        MUST(cudaEventRecord(done[last]));
        MUST(cudaEventSynchronize(done[last ^ 1]));
    }
    MUST(cudaEventSynchronize(done[last]));
    MUST(cudaEventElapsedTime(&ms, from, done[last]));
    printf("passes %ld ms %.6f\n", passes, (double)ms / (double)passes);
}

static void run(const std::function<void(void)> &pass, double seconds)
{
    pass(); /* modules are loaded by the first */
    MUST(cudaDeviceSynchronize());
    if (seconds > 0)
        run_for(pass, seconds);
    else
        run_once(pass);
}

static int stream(const char *kind, double seconds)
{
    uint4 *x;
    uint32_t *sum;
    const bool small = strcmp(kind, "l2") == 0;
    const size_t bytes = small ? small_bytes : stream_bytes;
    MUST(cudaMalloc(&x, bytes));
    MUST(cudaMalloc(&sum, sizeof *sum));
    MUST(cudaMemset(x, 1, bytes));
    printf("bytes %zu\n", stream_bytes);
    if (strcmp(kind, "write") == 0)
        run([=] { write_stream<<<1056, 512>>>(x, bytes); }, seconds);
    else
        run([=] { read_stream<<<1056, 512>>>(x, bytes, (int)(stream_bytes / bytes), sum); },
            seconds);
    MUST(cudaGetLastError());
    MUST(cudaFree(sum));
    MUST(cudaFree(x));
    return 0;
}

/* Values of `v_dim` columns lie in rows of `dim`. */
static int attention(const char *form, bool forward, int dim, int v_dim, double seconds)
{
    device_case c({ TOKENS / SEQ, CHANNELS / dim, CHANNELS / dim, SEQ, SEQ, dim, ORDO_MASK_FULL });
    ordo_cuda_pass pass = c.pass;
    if (strcmp(form, "phase") == 0)
        by_phases(c, pass);
    pass.v_head_dim = v_dim;
    const auto launch = [&pass](bool which) {
        must_ordo(which ? ordo_cuda_launch_forward(&pass, NULL) : ordo_cuda_launch_backward(&pass),
                  ordo_cuda_why());
    };
    launch(true); /* o and lse for the backward pass */
    run([&] { launch(forward); }, seconds);
    return 0;
}

static bool form_has(const char *form, int dim, int v_dim)
{
    if (strcmp(form, "phase") == 0)
        return dim >= 128 && dim <= 576 && v_dim >= 8 && v_dim <= dim;
    return v_dim == dim && strcmp(form, "flash") == 0 && dim >= 8 && dim <= 128;
}

static int usage(void)
{
    fputs("usage: traffic flash|phase forward|backward DIM [SECONDS]\n"
          "       traffic read|write|l2 [SECONDS]\n",
          stderr);
    return 2;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    const bool known = !strcmp(what, "read") || !strcmp(what, "write") || !strcmp(what, "l2");
    const int wanted = known ? 2 : 4; /* words before SECONDS */
    if (count < wanted || count > wanted + 1)
        return usage();
    const double seconds = count > wanted ? atof(words[wanted]) : 0;
    const int dim = known ? 0 : atoi(words[3]);
    const char *const values = known ? NULL : strchr(words[3], '/');
    const int v_dim = values ? atoi(values + 1) : dim;
    if (!known && (!form_has(what, dim, v_dim) || dim % 8 != 0 || v_dim % 8 != 0 ||
                   (strcmp(words[2], "forward") != 0 && strcmp(words[2], "backward") != 0)))
        return usage();
    int devices = 0;
    const cudaError_t found = cudaGetDeviceCount(&devices);
    if (found != cudaSuccess || !have_hopper()) {
        printf("skipped: no device of compute capability 9.0: %s\n", cudaGetErrorString(found));
        return 77;
    }
    return known ? stream(what, seconds)
                 : attention(what, strcmp(words[2], "forward") == 0, dim, v_dim, seconds);
}
