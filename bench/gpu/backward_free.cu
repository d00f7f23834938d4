/* backward_free.cu: the backward pass apart, timed beside the
 * ordered one; and the chains alone: ordered, without turns, without dQ.
 *
 * B S = 16384 tokens, H D = 2048 channels, bf16. All take turns in one process; the cache is
 * flushed before each; medians. */
#include "../../tests/cuda/backward_apart.h"
#include "../../tests/cuda/handmade_pass.h"
#include "cuda/sm90/backward/kernel.h"
#include "cuda/support/launch.h"
#include "timing.cuh"

enum { ROUNDS = 11 };

static turn whole(device_case &c, bool apart)
{
    return { [&c, apart] {
        char why[300] = "";
        must_ordo(apart ? backward_apart(&c.pass, why, sizeof why)
                        : ordo_cuda_launch_backward(&c.pass, why, sizeof why),
                  why);
    } };
}

template <int D, int MODE> static turn chains(device_case &c)
{
    using Z = backward_shape<D, ORDO_KEEP_NONE>;
    char why[300] = "";
    int blocks;
    ordo_backward_args args;
    must_ordo(ordo_backward_arguments(&c.pass, Z::ROWS, Z::KEYS, &args, &blocks, why, sizeof why),
              why);
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_TOGETHER };
    const auto launch = [&c, args, grid] {
        char why[300] = "";
        must_ordo(ordo_cuda_launch((const void *)backward_kernel<D, MODE, ORDO_KEEP_NONE>, &args,
                                   grid, c.pass.stream, why, sizeof why),
                  why);
    };
    const auto prepare = [&c] {
        char why[300] = "";
        must_ordo(ordo_backward_begin(&c.pass, true, why, sizeof why), why);
    };
    return { launch, prepare };
}

template <int D> static void row(int S, ordo_mask mask)
{
    const int heads = 2048 / D;
    device_case c({ 16384 / S, heads, heads, S, S, D, mask });
    c.forward();
    const std::vector<double> ms =
        time_in_turns({ whole(c, false), whole(c, true), chains<D, ORDO_DQ_ORDERED>(c),
                        chains<D, ORDO_DQ_UNORDERED>(c), chains<D, ORDO_DQ_NONE>(c) },
                      ROUNDS);
    printf("%5d %3d %-6s %7.3f %6.1f %7.3f %6.3f | %7.3f %9.3f %6.3f %7.3f %6.3f\n", S, D,
           ordo_mask_name(mask), ms[0], c.flops(5) / ms[0] * 1e-9, ms[1], ms[0] / ms[1], ms[2],
           ms[3], ms[2] / ms[3], ms[4], ms[2] / ms[4]);
    fflush(stdout);
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    printf("ms; TFLOP/s; speed relative to ordered: whole passes | chains alone\n"
           "%5s %3s %-6s %7s %6s %7s %6s | %7s %9s %6s %7s %6s\n",
           "S", "D", "mask", "ordered", "TFLOP", "apart", "speed", "ordered", "unordered", "speed",
           "no dQ", "speed");
    for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
        for (int S = 2048; S <= 16384; S *= 2) {
            row<128>(S, mask);
            row<64>(S, mask);
        }
    return 0;
}
