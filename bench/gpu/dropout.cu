/* dropout.cu: what making keep bits costs on a Hopper GPU. (features_h200 times the passes that
 * read them.)
 *
 *   build/bench/dropout [--quick]
 *
 * Times are medians by the device's clock, with the caches flushed before each launch.
 * Beside the generator stands one that draws 32 bits per element with a linear counter, as a paper
 * would: a baseline for the time; its bits are nobody's. */
#include "../../tests/cuda/handmade_pass.h"
#include "cuda/ops/dropout.h"
#include "timing.cuh"

/* 32 random bits per element, eight draws per word. */
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
            const auto fill = [&] { must_ordo(ordo_cuda_dropout(&b, why, sizeof why), why); };
            printf("  rounds %2d bits %2d T %5u  %-15s %7.3f ms\n", r.rounds, r.bits, r.threshold,
                   g.name, time_in_turns({ { fill } }, runs)[0]);
        }
    const auto baseline = [&] {
        draw_32_bits<<<132 * 16, 128>>>(bits, (uint32_t)words, 42, 0xe6666666);
    };
    printf("  rounds  7, 32 bits per element, baseline  %7.3f ms\n",
           time_in_turns({ { baseline } }, runs)[0]);
    fflush(stdout);
    MUST(cudaFree(bits));
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
    return 0;
}
