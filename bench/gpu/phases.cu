/* phases.cu: the passes by phases on one device, TFLOP/s (two products are counted in the forward
 * pass, five in the backward pass; causal counts half).
 *
 *     phases           head sizes 264 to 576 at 4k, 8k and 16k; a long sequence; the crossover
 *     phases quick     head size 512 at 8k, and the crossover at 8k
 *     phases crossover the crossover alone
 *
 * The crossover runs chains at head size 128, beside the kernels that are used there.
 * 16k tokens in all, 1 GiB of workspace; what is in one line takes turns in one process, the cache
 * is flushed before each; medians. */
#include "../../tests/cuda/handmade_parts.h"
#include "forms.cuh"
#include "timing.cuh"

enum { TOKENS = 16384, CHANNELS = 2048, ROUNDS = 7 };

static const char *mask_name(ordo_mask mask)
{
    return mask == ORDO_MASK_FULL ? "full" : "causal";
}

static double flops(int dim, int64_t heads, int64_t seq, ordo_mask mask, double products)
{
    const double pairs = (double)seq * (double)seq * (mask == ORDO_MASK_FULL ? 1 : 0.5);
    return products * 2 * pairs * dim * (double)heads;
}

/* ---- head sizes above 256, as plans run them ---- */

static void line(int dim, int seq, ordo_mask mask)
{
    cut_shape z = { "", dim, CHANNELS / dim, CHANNELS / dim, seq, seq, mask };
    z.batch = TOKENS / seq;
    cut_case c(z);
    const std::vector<double> ms =
        time_in_turns({ { [&c] { c.forward(); } }, { [&c] { c.backward(); } } }, ROUNDS);
    const int64_t heads = (int64_t)z.batch * z.heads;
    printf("| %3d | %5d | %-6s | %7.0f | %8.0f | %9.3f | %9.3f |\n", dim, seq, mask_name(mask),
           flops(dim, heads, seq, mask, 2) / ms[0] * 1e-9,
           flops(dim, heads, seq, mask, 5) / ms[1] * 1e-9, ms[0], ms[1]);
    fflush(stdout);
}

/* One sequence of `seq` tokens, one head: that it runs, and how long it takes. */
static void long_line(int dim, int seq)
{
    const cut_shape z = { "", dim, 1, 1, seq, seq, ORDO_MASK_CAUSAL };
    cut_case c(z);
    const std::vector<double> ms =
        time_in_turns({ { [&c] { c.forward(); } }, { [&c] { c.backward(); } } }, 1);
    printf(
        "\n%d tokens, one head of %d, causal, workspace %.0f MiB: forward %.1f ms, %.0f TFLOP/s; "
        "backward %.1f ms, %.0f TFLOP/s\n",
        seq, dim, (double)c.call.workspace_bytes / (1 << 20), ms[0],
        flops(dim, 1, seq, z.mask, 2) / ms[0] * 1e-9, ms[1],
        flops(dim, 1, seq, z.mask, 5) / ms[1] * 1e-9);
    fflush(stdout);
}

/* ---- the crossover ---- */

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
        char why[300] = "";
        must_ordo(forward ? ordo_cuda_launch_forward(&pass, why, sizeof why)
                          : ordo_cuda_launch_backward(&pass, why, sizeof why),
                  why);
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
    const int64_t heads = (int64_t)z.batch * z.heads;
    const double two = flops(dim, heads, seq, mask, 2) * 1e-9, five = 2.5 * two;
    printf("| %3d | %5d | %-6s | %7.0f | %6.0f | %8.0f | %6.0f | %-6s |\n", dim, seq,
           mask_name(mask), two / ms[0], two / ms[2], five / ms[1], five / ms[3],
           equal ? "equal" : "differ");
    fflush(stdout);
}

int main(int count, char **words)
{
    const bool quick = count > 1 && strcmp(words[1], "quick") == 0;
    const bool only = count > 1 && strcmp(words[1], "crossover") == 0; /* the second table */
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    puts("| dim |   seq | mask   | forward | backward | fwd, ms   | bwd, ms   |\n"
         "|----:|------:|--------|--------:|---------:|----------:|----------:|");
    for (const int dim : { 512, 576, 448, 384, 320, 264 })
        for (const int seq : { 4096, 8192, 16384 })
            for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
                if (!only && (!quick || (dim == 512 && seq == 8192)))
                    line(dim, seq, mask);
    if (!quick && !only)
        long_line(512, 1 << 17);
    puts("\n| dim |   seq | mask   | forward | phases | backward | phases | bits   |\n"
         "|----:|------:|--------|--------:|-------:|---------:|-------:|--------|");
    for (const int seq : { 512, 2048, 8192 })
        for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
            if (!quick || seq == 8192)
                crossover(128, seq, mask);
    return 0;
}
