/* backward_free.cu: the split backward, whose blocks never wait for each other, timed beside the
 * ordered one; and the chains alone: ordered, without turns, without dQ.
 *
 * B S = 16384 tokens, H D = 2048 channels, bf16. All take turns in one process; the cache is
 * flushed before each; medians. */
#include <algorithm>

#include "../tests/cuda/backward_split.h"
#include "../tests/cuda/case.h"
#include "cuda/backward/kernel.h"
#include "cuda/common/launch.h"

enum { PASSES = 2, TIMED = 5, REPEATS = 11, FLUSH_BYTES = 256 << 20 };

static cudaEvent_t event[2];

static void whole(device_case &c, bool split)
{
    char why[300] = "";
    MUST(cudaEventRecord(event[0]));
    must_ordo(split ? backward_split(&c.pass, why, sizeof why)
                    : ordo_sm90_backward(&c.pass, why, sizeof why),
              why);
    MUST(cudaEventRecord(event[1]));
}

template <int D, int MODE> static void chains(device_case &c)
{
    using Z = backward_shape<D, ORDO_KEEP_NONE>;
    char why[300] = "";
    int blocks;
    ordo_backward_args args;
    must_ordo(ordo_backward_arguments(&c.pass, Z::ROWS, Z::KEYS, &args, &blocks, why, sizeof why),
              why);
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_TOGETHER };
    must_ordo(ordo_backward_begin(&c.pass, true, why, sizeof why), why);
    MUST(cudaEventRecord(event[0]));
    must_ordo(ordo_cuda_launch((const void *)backward_kernel<D, MODE, ORDO_KEEP_NONE>, &args, grid,
                               c.pass.stream, why, sizeof why),
              why);
    MUST(cudaEventRecord(event[1]));
}

template <int D> static void run(device_case &c, int which)
{
    switch (which) {
    case 0: whole(c, false); break;
    case 1: whole(c, true); break;
    case 2: chains<D, ORDO_DQ_ORDERED>(c); break;
    case 3: chains<D, ORDO_DQ_UNORDERED>(c); break;
    default: chains<D, ORDO_DQ_NONE>(c); break;
    }
}

template <int D> static void row(int S, ordo_mask mask, void *flush)
{
    const int heads = 2048 / D;
    device_case c({ 16384 / S, heads, heads, S, S, D, mask });
    std::vector<float> ms[TIMED];
    double median[TIMED];
    c.forward();
    for (int repeat = -1; repeat < REPEATS; repeat++) /* the first is not counted */
        for (int i = 0; i < TIMED; i++) {
            float t = 0;
            MUST(cudaMemsetAsync(flush, 0, FLUSH_BYTES));
            run<D>(c, i);
            MUST(cudaEventSynchronize(event[1]));
            MUST(cudaEventElapsedTime(&t, event[0], event[1]));
            if (repeat >= 0)
                ms[i].push_back(t);
        }
    for (int i = 0; i < TIMED; i++) {
        std::sort(ms[i].begin(), ms[i].end());
        median[i] = (double)ms[i][REPEATS / 2];
    }
    printf("%5d %3d %-6s %7.3f %6.1f %7.3f %6.3f | %7.3f %9.3f %6.3f %7.3f %6.3f\n", S, D,
           ordo_mask_name(mask), median[0], c.flops(5) / median[0] * 1e-9, median[1],
           median[0] / median[1], median[2], median[3], median[2] / median[3], median[4],
           median[2] / median[4]);
    fflush(stdout);
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    void *flush;
    MUST(cudaMalloc(&flush, FLUSH_BYTES));
    for (cudaEvent_t &e : event)
        MUST(cudaEventCreate(&e));
    printf("ms; TFLOP/s; speed relative to ordered: whole passes | chains alone\n"
           "%5s %3s %-6s %7s %6s %7s %6s | %7s %9s %6s %7s %6s\n",
           "S", "D", "mask", "ordered", "TFLOP", "split", "speed", "ordered", "unordered", "speed",
           "no dQ", "speed");
    for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
        for (int S = 2048; S <= 16384; S *= 2) {
            row<128>(S, mask, flush);
            row<64>(S, mask, flush);
        }
    return 0;
}
