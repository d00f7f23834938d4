/* dropout.cu: what dropout costs on a Hopper GPU: making the keep bits, and passes that read them.
 *
 *   bench/dropout [--quick]
 *
 * Times are medians by the device's clock, each launch alone with the caches flushed before it.
 * Beside the generator stands one that draws 32 bits an element with a linear counter, as a paper
 * would: a baseline for the time; its bits are nobody's. */
#include "../tests/cuda/case.h"
#include "cuda/dropout.h"

#include <algorithm>
#include <functional>

enum { FLUSH_BYTES = 256 << 20 };

struct clock_pair {
    cudaEvent_t from, to;
};

/* Median milliseconds of a launch. */
static double time_of(const std::function<void(void)> &launch, int runs)
{
    static void *flush;
    if (!flush)
        MUST(cudaMalloc(&flush, FLUSH_BYTES));
    std::vector<clock_pair> clocks(runs);
    std::vector<float> ms(runs);
    launch();
    for (clock_pair &c : clocks) {
        MUST(cudaEventCreate(&c.from));
        MUST(cudaEventCreate(&c.to));
        MUST(cudaMemsetAsync(flush, 0, FLUSH_BYTES));
        MUST(cudaEventRecord(c.from));
        launch();
        MUST(cudaEventRecord(c.to));
    }
    MUST(cudaDeviceSynchronize());
    for (int i = 0; i < runs; i++) {
        MUST(cudaEventElapsedTime(&ms[i], clocks[i].from, clocks[i].to));
        cudaEventDestroy(clocks[i].from);
        cudaEventDestroy(clocks[i].to);
    }
    std::sort(ms.begin(), ms.end());
    return ms[runs / 2];
}

/* ---- the generator ---- */

/* 32 random bits an element, eight draws a word. */
static __global__ void draw_32_bits(uint32_t *words, uint32_t count, uint64_t seed, uint32_t limit)
{
    for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += gridDim.x * blockDim.x) {
        uint32_t kept = 0;
#pragma unroll
        for (uint32_t d = 0; d < 8; d++) {
            const ordo_philox_words counter = { { at * 8 + d, 0, 0, 0 } };
            const ordo_philox_words random =
                ordo_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32), 7);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                kept |= (uint32_t)(random.w[i] < limit) << (4 * d + i);
        }
        words[at] = kept;
    }
}

struct grid {
    const char *name;
    uint32_t blocks, threads;
};

static void bench_generator(int seq, int runs)
{
    const int heads = 32;
    const size_t words = (size_t)heads * seq * seq / 32;
    const grid grids[] = { { "a warp a block", 0, 0 }, { "132*16 x 128", 132 * 16, 128 } };
    const struct {
        int rounds, bits;
        uint32_t threshold;
    } rows[] = { { 7, 8, 230 },  { 7, 8, 231 }, { 7, 4, 14 },
                 { 10, 8, 230 }, { 10, 4, 14 }, { 7, 16, 58982 } };
    uint32_t *bits;
    MUST(cudaMalloc(&bits, words * 4));
    printf("\nkeep bits of %d heads, %d x %d: %.0f MiB\n", heads, seq, seq, (double)words / 262144);
    for (const auto &r : rows)
        for (const grid &g : grids) {
            char why[300] = "";
            ordo_cuda_bits b = {};
            b.keep = { 42, 7, r.rounds, r.bits, r.threshold, ORDO_KEYING_ORDO };
            b.sequences = 1;
            b.heads = heads;
            b.bh_step = heads;
            b.down = seq / 16;
            b.across = seq / 128;
            b.words = bits;
            b.grid_blocks = g.blocks;
            b.grid_threads = g.threads;
            const double ms =
                time_of([&] { must_ordo(ordo_sm90_dropout(&b, why, sizeof why), why); }, runs);
            printf("  rounds %2d bits %2d T %5u  %-15s %7.3f ms\n", r.rounds, r.bits, r.threshold,
                   g.name, ms);
        }
    const double ms = time_of(
        [&] { draw_32_bits<<<132 * 16, 128>>>(bits, (uint32_t)words, 42, 0xe6666666); }, runs);
    printf("  rounds  7, 32 bits an element, baseline   %7.3f ms\n", ms);
    fflush(stdout);
    MUST(cudaFree(bits));
}

/* ---- passes ---- */

/* 16k tokens, 2048 columns of heads: forward and backward without bits, then with them. */
static void bench_passes(int seq, int dim, ordo_mask mask, int runs)
{
    device_case c({ 16384 / seq, 2048 / dim, 2048 / dim, seq, seq, dim, mask });
    const size_t blocks =
        (size_t)c.z.batch * c.z.heads * (size_t)ordo_keep_blocks(c.z.q_len, c.z.kv_len);
    double ms[2][2];
    for (int drop = 0; drop < 2; drop++) {
        if (drop) {
            char why[300] = "";
            ordo_cuda_bits b = {};
            uint32_t *bits = c.take<uint32_t>(blocks * 64);
            b.keep = { 42, 7, 7, 8, 230, ORDO_KEYING_ORDO };
            b.sequences = c.z.batch;
            b.heads = c.z.heads;
            b.bh_step = (uint32_t)c.z.heads;
            b.down = seq / 16;
            b.across = seq / 128;
            b.words = bits;
            must_ordo(ordo_sm90_dropout(&b, why, sizeof why), why);
            c.pass.keep_bits = bits;
            c.pass.keep_scale = 256.0f / 230.0f;
        }
        ms[0][drop] = time_of([&] { c.forward(); }, runs);
        ms[1][drop] = time_of([&] { c.backward(); }, runs);
    }
    printf("  %5d %3d %-6s", seq, dim, ordo_mask_name(mask));
    for (int pass = 0; pass < 2; pass++)
        printf("  %7.3f %4.0f  %7.3f %4.0f  %5.3f", ms[pass][0],
               c.flops(pass ? 5 : 2) / ms[pass][0] * 1e-9, ms[pass][1],
               c.flops(pass ? 5 : 2) / ms[pass][1] * 1e-9, ms[pass][0] / ms[pass][1]);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const int runs = quick ? 9 : 31;
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    bench_generator(8192, runs);
    if (!quick)
        bench_generator(16384, runs);
    puts("\n    seq dim mask     forward: ms TFLOP/s, p 0.1, ratio   backward: the same");
    for (const int dim : { 128, 64 })
        for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
            for (const int seq : { 4096, 8192, 16384 })
                bench_passes(seq, dim, mask, runs);
    return 0;
}
