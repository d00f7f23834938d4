/* phases.cu: both passes at head size 128 by phases, which no plan has, and by the kernels that are
 * used there. TFLOP/s (two products are counted in the forward pass, five in the backward pass;
 * causal counts half), and whether their gradients are equal.
 *
 * 16k tokens in all, 1 GiB of workspace; all take turns in one process, the cache is flushed before
 * each; medians. bench/gpu/run phase_h200 reads the row of 8192. */
#include "../../tests/cuda/handmade_pass.h"
#include "forms.cuh"
#include "timing.cuh"

enum { TOKENS = 16384, CHANNELS = 2048, ROUNDS = 7 };

/* dQ, dK and dV as they are in memory. */
static std::vector<uint16_t> gradients(const device_case &c)
{
    const size_t queries = (size_t)c.z.batch * c.z.q_len * c.z.heads * c.z.head_dim;
    const size_t keys = (size_t)c.z.batch * c.z.kv_len * c.z.kv_heads * c.z.head_dim;
    std::vector<uint16_t> all(queries + 2 * keys);
    MUST(cudaMemcpy(all.data(), c.dq, 2 * queries, cudaMemcpyDefault));
    MUST(cudaMemcpy(all.data() + queries, c.dk, 2 * keys, cudaMemcpyDefault));
    MUST(cudaMemcpy(all.data() + queries + keys, c.dv, 2 * keys, cudaMemcpyDefault));
    return all;
}

static void crossover(int dim, int seq, ordo_mask mask)
{
    case_shape z = { TOKENS / seq, CHANNELS / dim, CHANNELS / dim, seq, seq, dim, mask };
    device_case c(z);
    ordo_cuda_pass used = c.pass, phases;
    by_phases(c, phases);
    const auto run = [](const ordo_cuda_pass &pass, bool forward) {
        must_ordo(forward ? ordo_cuda_launch_forward(&pass, NULL)
                          : ordo_cuda_launch_backward(&pass),
                  ordo_cuda_why());
    };
    run(used, true);
    run(used, false);
    const std::vector<uint16_t> expected = gradients(c);
    run(phases, false);
    const bool equal = gradients(c) == expected;
    const std::vector<double> ms =
        time_in_turns({ { [&] { run(used, true); } },
                        { [&] { run(used, false); }, [&] { run(used, true); } },
                        { [&] { run(phases, true); } },
                        { [&] { run(phases, false); }, [&] { run(phases, true); } } },
                      ROUNDS);
    const double two = c.flops(2) * 1e-9, five = c.flops(5) * 1e-9;
    printf("| %3d | %5d | %-6s | %7.0f | %6.0f | %8.0f | %6.0f | %-6s |\n", dim, seq,
           ordo_mask_name(mask), two / ms[0], two / ms[2], five / ms[1], five / ms[3],
           equal ? "equal" : "differ");
    fflush(stdout);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    puts("| dim |   seq | mask   | forward | phases | backward | phases | bits   |\n"
         "|----:|------:|--------|--------:|-------:|---------:|-------:|--------|");
    for (const int seq : { 512, 2048, 8192 })
        for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
            crossover(128, seq, mask);
    return 0;
}
