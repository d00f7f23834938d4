/* calibrate_model.cuh: what the performance model wants to know besides calibrate.cu's figures:
 * lanes, shared memory, launches, keep bits, GEMMs, both together. Needs result(), row(), repeat()
 * and event_ms() above it. */
#ifndef BENCH_CALIBRATE_MODEL_CUH
#define BENCH_CALIBRATE_MODEL_CUH

#include "calibrate_blas.h"
#include "calibrate_rates.cuh"

enum { HEADS = 32, ROWS = 8192, WIDTH = 4096, STEADY_MS = 500, WARM_MS = 1500, STEADY_TURNS = 3 };

/* ---- lanes ---- */

template <lane_kind KIND> static double lanes(void)
{
    enum { ROUNDS = 2000 };
    const timing t = repeat(sms, [&] {
        lane_kernel<KIND><<<sms, SPECIAL_THREADS>>>(ROUNDS, 0x9e3779b9u, 0x7feb352du, stamps, sink);
    });
    return lane_steps<KIND>() * SPECIAL_THREADS * CHAINS * ROUNDS / t.clk;
}

static void measure_lanes(void)
{
    lane_result("alu_lanes", lanes<LANE_LOP3>(), "three-input logic");
    lane_result("imad_lanes", lanes<LANE_IMAD>(), "32-bit multiply-add");
    lane_result("imad_wide_lanes", lanes<LANE_WIDE>(), "32 x 32 to 64-bit multiplication");
    lane_result("fma_lanes", lanes<LANE_FFMA>(), "f32 multiply-add");
    result("logic_and_ffma_lanes", false, lanes<LANE_LOP3_FFMA>(), "lane/clk",
           "one of each in turn; 128 would be every issue slot");
    const double both = lanes<LANE_LOP3_IMAD>(), warps = both / 32;
    result("logic_and_imad_lanes", false, both, "lane/clk", "one of each");
    result("issue_per_clk", true, warps > 3.8 && warps < 4.1 ? 4 : warps, "warp/clk",
           "logic and multiply-adds in turn, %.1f lanes by 32 warps an SM", both);
    result("wide_and_two_logic_lanes", false, lanes<LANE_WIDE_LOP3>(), "lane/clk",
           "64 if wide multiplications take the logic's slot");
}

static void measure_shared(void)
{
    enum { ROUNDS = 1000 };
    allow_shared(shared_kernel, SHARED_READ_BYTES);
    const timing t = repeat(sms, [&] {
        shared_kernel<<<sms, SPECIAL_THREADS, SHARED_READ_BYTES>>>(ROUNDS, stamps, sink);
    });
    const double measured = 16.0 * SPECIAL_THREADS * SHARED_UNROLL * ROUNDS / t.clk;
    const double whole = 8 * (double)(int64_t)(measured / 8 + 0.5);
    result("shared_bytes_per_clk", true, measured > 0.95 * whole ? whole : measured, "B/clk",
           "loads of 16 bytes, %.1f by 32 warps an SM", measured);
}

/* ---- launches ---- */

static double wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* What events around one launch see besides the kernel: an empty one. */
static double launch_seconds(void)
{
    static double seconds;
    if (seconds == 0)
        seconds = 1e-3 * event_ms([] {
                      null_kernel<<<1, 32>>>();
                      return cudaGetLastError();
                  });
    return seconds;
}

static double graph_chain_ns(void)
{
    enum { LENGTH = 500 };
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    double values[REPEATS];
    TRY(cudaStreamCreate(&stream));
    TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int x = 0; x < LENGTH; x++)
        null_kernel<<<1, 32, 0, stream>>>();
    TRY(cudaStreamEndCapture(stream, &graph));
    TRY(cudaGraphInstantiate(&ready, graph, 0));
    for (int x = -1; x < REPEATS; x++) {
        TRY(cudaStreamSynchronize(stream));
        const double begin = wall_ns();
        TRY(cudaGraphLaunch(ready, stream));
        TRY(cudaStreamSynchronize(stream));
        if (x >= 0)
            values[x] = (wall_ns() - begin) / LENGTH;
    }
    TRY(cudaGraphExecDestroy(ready));
    TRY(cudaGraphDestroy(graph));
    TRY(cudaStreamDestroy(stream));
    return median(values, REPEATS);
}

static void measure_launch(void)
{
    enum { LAUNCHES = 2000, SINGLE = 201 };
    double each[SINGLE];
    double begin = 0;
    for (int pass = 0; pass < 2; pass++) {
        TRY(cudaDeviceSynchronize());
        begin = wall_ns();
        for (int x = 0; x < LAUNCHES; x++)
            null_kernel<<<1, 32>>>();
        TRY(cudaDeviceSynchronize());
    }
    result("launch_ns", true, (wall_ns() - begin) / LAUNCHES, "ns",
           "%d empty kernels launched back to back by the host", LAUNCHES);
    result("launch_graph_empty_ns", false, graph_chain_ns(), "ns",
           "chain of 500 empty kernels in a graph; kernels with work take about twice that");
    for (int x = 0; x < SINGLE; x++) {
        const double start = wall_ns();
        null_kernel<<<1, 32>>>();
        TRY(cudaDeviceSynchronize());
        each[x] = wall_ns() - start;
    }
    result("launch_and_wait_ns", false, median(each, SINGLE), "ns", "one empty kernel");
}

/* ---- keep bits of HEADS x ROWS x ROWS ---- */

static draw_keys keys_of(int threshold, int bits)
{
    draw_keys keys;
    uint32_t k0 = 0x89abcdefu, k1 = 0x01234567u;
    for (int r = 0; r < 10; r++) {
        keys.round[2 * r] = k0;
        keys.round[2 * r + 1] = k1;
        k0 += ORDO_PHILOX_W0;
        k1 += ORDO_PHILOX_W1;
    }
    for (int i = 0; i < 16; i++)
        keys.select[i] = i < bits && (threshold >> i & 1) ? 0xffffffffu : 0;
    return keys;
}

template <int RNG_ROUNDS, int BITS>
static void launch_sliced(int blocks, int threads, cudaStream_t stream, char *to)
{
    const draw_keys keys = keys_of((1 << BITS) * 9 / 10, BITS);
    sliced_kernel<RNG_ROUNDS, BITS><<<blocks, threads, 0, stream>>>(
        (uint2 *)to, keys, HEADS * ROWS / 16, ROWS / 16, ROWS / 128);
}

template <int RNG_ROUNDS, int BITS> static void time_sliced(void)
{
    const double ms = event_ms([&] {
        launch_sliced<RNG_ROUNDS, BITS>(sms * 16, 128, NULL, memory);
        return cudaGetLastError();
    });
    char name[64];
    snprintf(name, sizeof name, "keep_%dx%d_sliced_us", RNG_ROUNDS, BITS);
    result(name, false, ms * 1e3, "us", "%d heads of %d x %d", HEADS, ROWS, ROWS);
    row("\"kernel\": \"rng\", \"rounds\": %d, \"bits\": %d, \"generator\": \"sliced-any\", "
        "\"heads\": "
        "%d, "
        "\"seq\": %d, \"state\": \"burst\", \"seconds\": %.6g, \"overhead_seconds\": %.3g",
        RNG_ROUNDS, BITS, HEADS, ROWS, ms * 1e-3, launch_seconds());
}

template <int RNG_ROUNDS> static void time_compare(void)
{
    const draw_keys keys = keys_of(0, 0);
    const uint64_t words = (uint64_t)HEADS * ROWS * ROWS / 32;
    const double ms = event_ms([&] {
        compare_kernel<RNG_ROUNDS><<<sms * 16, 128>>>((uint32_t *)memory, keys, 0xe6666666u, words);
        return cudaGetLastError();
    });
    char name[64];
    snprintf(name, sizeof name, "keep_%dx32_compare_us", RNG_ROUNDS);
    result(name, false, ms * 1e3, "us", "%d heads of %d x %d", HEADS, ROWS, ROWS);
    row("\"kernel\": \"rng\", \"rounds\": %d, \"bits\": 32, \"generator\": \"compare\", \"heads\": "
        "%d, "
        "\"seq\": %d, \"state\": \"burst\", \"seconds\": %.6g, \"overhead_seconds\": %.3g",
        RNG_ROUNDS, HEADS, ROWS, ms * 1e-3, launch_seconds());
}

/* Mean seconds of `work`, and W if the board says, over STEADY_MS of it. */
typedef struct steady {
    double seconds, watts;
    int count;
} steady;

/* Let the board cool down and its governor forget: what follows is a burst. */
static void rest(void)
{
    const struct timespec third = { 0, 300000000 };
    nanosleep(&third, NULL);
}

template <class WORK> static steady hold(WORK work, int ms)
{
    steady s = { 0, -1, 0 };
    work();
    TRY(cudaDeviceSynchronize());
    const double energy = board_energy_mj(), begin = wall_ns();
    double now = begin;
    while (now - begin < ms * 1e6) {
        for (int x = 0; x < 8; x++, s.count++)
            work();
        TRY(cudaDeviceSynchronize());
        now = wall_ns();
    }
    const double after = board_energy_mj();
    s.seconds = (now - begin) * 1e-9 / s.count;
    if (energy >= 0 && after > energy)
        s.watts = (after - energy) * 1e-3 / ((now - begin) * 1e-9);
    return s;
}

static void measure_keep_bits(void)
{
    time_sliced<7, 8>();
    time_sliced<10, 8>();
    time_sliced<5, 8>();
    time_sliced<3, 8>();
    time_sliced<7, 4>();
    time_sliced<10, 4>();
    time_sliced<7, 16>();
    time_compare<7>();
    time_compare<5>();
    time_compare<3>();
    time_compare<10>();
    const steady s = hold([&] { launch_sliced<7, 8>(sms * 16, 128, NULL, memory); }, 2 * STEADY_MS);
    if (s.watts > 0)
        result("ordinary_power_w", true, s.watts, "W",
               "board energy while keep bits are made for %d ms", 2 * STEADY_MS);
}

/* ---- GEMMs of a transformer block of ROWS x WIDTH ---- */

enum { GEMMS = 4 };
static const char *const gemm_names[GEMMS] = { "qkv", "out", "up", "down" };

__global__ void fill_kernel(uint32_t *to, size_t words, uint32_t keep, uint32_t set)
{
    for (size_t x = (size_t)blockIdx.x * blockDim.x + threadIdx.x; x < words;
         x += (size_t)gridDim.x * blockDim.x)
        to[x] = (mix((uint32_t)x) & keep) | set;
}

/* Random values near one, of both signs: bf16, or fp8 e4m3. */
static void fill_memory(bool fp8)
{
    fill_kernel<<<sms * 8, 256>>>((uint32_t *)memory, memory_bytes / 4,
                                  fp8 ? 0x87878787u : 0x807f807fu, fp8 ? 0x38383838u : 0x3f003f00u);
    TRY(cudaDeviceSynchronize());
}

static bool prepare_gemm(blas_gemm *g, int m, int n, int k, bool fp8)
{
    *g = blas_gemm();
    g->m = m;
    g->n = n;
    g->k = k;
    g->fp8 = fp8;
    g->a = memory;
    g->b = memory + memory_bytes / 4;
    g->c = memory + memory_bytes / 2;
    return blas_prepare(g);
}

static bool prepare_gemms(blas_gemm *gemms, bool fp8)
{
    const int n[GEMMS] = { 3 * WIDTH, WIDTH, 4 * WIDTH, WIDTH };
    const int k[GEMMS] = { WIDTH, WIDTH, WIDTH, 4 * WIDTH };
    bool good = true;
    for (int i = 0; i < GEMMS && good; i++)
        good = prepare_gemm(&gemms[i], ROWS, n[i], k[i], fp8);
    return good;
}

/* A product by itself, after a rest; its flop. */
static double time_burst(const blas_gemm *g, const char *what)
{
    const char *type = g->fp8 ? "fp8" : "bf16";
    const double flop = 2.0 * g->m * g->n * g->k;
    char name[64];
    rest();
    const double ms = event_ms([&] { return blas_run(g, NULL) ? cudaSuccess : cudaErrorUnknown; });
    snprintf(name, sizeof name, "gemm_%s_%s_burst_us", type, what);
    result(name, false, ms * 1e3, "us", "%d x %d x %d, %.0f TFLOP/s", g->m, g->n, g->k,
           flop / ms * 1e-9);
    row("\"kernel\": \"gemm\", \"precision\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"state\": "
        "\"burst\", \"seconds\": %.6g, \"overhead_seconds\": %.3g",
        type, g->m, g->n, g->k, ms * 1e-3, launch_seconds());
    return flop;
}

/* Other shapes, which no constant was fitted to. */
static void time_shapes(bool fp8)
{
    static const int shapes[][3] = {
        { 4096, 4096, 4096 }, { 8192, 8192, 8192 }, { 16384, 8192, 2048 }, { 2048, 16384, 8192 }
    };
    for (const int *s : shapes) {
        blas_gemm g;
        char what[40];
        snprintf(what, sizeof what, "%dx%dx%d", s[0], s[1], s[2]);
        if (prepare_gemm(&g, s[0], s[1], s[2], fp8))
            time_burst(&g, what);
    }
}

static void run_gemms(const blas_gemm *gemms, cudaStream_t stream)
{
    for (int i = 0; i < GEMMS; i++)
        if (!blas_run(&gemms[i], stream)) {
            fprintf(stderr, "calibrate: a GEMM failed\n");
            exit(1);
        }
}

static void block_row(bool fp8, const char *mode, double seconds)
{
    row("\"kernel\": \"block\", \"precision\": \"%s\", \"seq\": %d, \"embed\": %d, \"rounds\": 7, "
        "\"bits\": 8, \"generator\": \"sliced-any\", \"mode\": \"%s\", \"seconds\": %.6g",
        fp8 ? "fp8" : "bf16", ROWS, WIDTH, mode, seconds);
}

/* GEMMs alone, with keep bits made behind them, and on a second stream beside them: by turns, once
 * the board is warm, since it slows down for seconds. Medians. */
static void time_steady(const blas_gemm *gemms, bool fp8, double flop)
{
    enum { ALONE, THEN, BESIDE, WAYS };
    static const char *const modes[WAYS] = { "gemm", "gemm-then-rng", "gemm-beside-rng" };
    cudaStream_t first, second;
    cudaEvent_t begun, made;
    double seconds[WAYS][STEADY_TURNS], watts[STEADY_TURNS];
    char *bits = memory + memory_bytes / 4 * 3;
    char name[64];
    const char *type = fp8 ? "fp8" : "bf16";
    TRY(cudaStreamCreate(&first));
    TRY(cudaStreamCreate(&second));
    TRY(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming));
    TRY(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    hold([&] { run_gemms(gemms, first); }, WARM_MS);
    for (int turn = 0; turn < STEADY_TURNS; turn++) {
        const steady alone = hold([&] { run_gemms(gemms, first); }, STEADY_MS);
        seconds[ALONE][turn] = alone.seconds;
        watts[turn] = alone.watts;
        seconds[THEN][turn] = hold(
                                  [&] {
                                      run_gemms(gemms, first);
                                      launch_sliced<7, 8>(sms * 16, 128, first, bits);
                                  },
                                  STEADY_MS)
                                  .seconds;
        seconds[BESIDE][turn] = hold(
                                    [&] {
                                        TRY(cudaEventRecord(begun, first));
                                        run_gemms(gemms, first);
                                        TRY(cudaStreamWaitEvent(second, begun, 0));
                                        /* The first GEMM has its SMs before small blocks take them
                                         * piece by piece. */
                                        spin_kernel<<<1, 32, 0, second>>>(20000, stamps);
                                        launch_sliced<7, 8>(sms * 128, 32, second, bits);
                                        TRY(cudaEventRecord(made, second));
                                        TRY(cudaStreamWaitEvent(first, made, 0));
                                    },
                                    STEADY_MS)
                                    .seconds;
    }
    for (int way = 0; way < WAYS; way++) {
        const double middle = median(seconds[way], STEADY_TURNS);
        snprintf(name, sizeof name, "block_%s_%s_us", type, modes[way]);
        result(name, false, middle * 1e6, "us", "four GEMMs%s, %d ms by turns",
               way == ALONE  ? ""
               : way == THEN ? ", then keep bits"
                             : ", keep bits on a second stream",
               STEADY_MS);
        block_row(fp8, modes[way], middle);
    }
    const double middle = median(seconds[ALONE], STEADY_TURNS), power = median(watts, STEADY_TURNS);
    snprintf(name, sizeof name, "gemm_%s_flop_per_s", type);
    result(name, true, (double)(int64_t)(flop / middle * 1e-12) * 1e12, "flop/s",
           "four GEMMs of a block, warm, %d x %d ms", STEADY_TURNS, STEADY_MS);
    /* What the model calls energy: the power limit for the time it takes. */
    const double limit = board_limit_w();
    snprintf(name, sizeof name, "mma_pj_per_flop_%s", type);
    if (limit > 0)
        result(name, true, limit * middle / flop * 1e12, "pJ/flop",
               "%.0f W limit for four GEMMs of a block, %.0f us warm; the counter says %.0f W",
               limit, middle * 1e6, power);
    TRY(cudaEventDestroy(begun));
    TRY(cudaEventDestroy(made));
    TRY(cudaStreamDestroy(first));
    TRY(cudaStreamDestroy(second));
}

static void time_gemms(bool fp8)
{
    blas_gemm gemms[GEMMS];
    double flop = 0;
    fill_memory(fp8);
    if (!prepare_gemms(gemms, fp8)) {
        fprintf(stderr, "calibrate: cuBLASLt offers no %s product\n", fp8 ? "fp8" : "bf16");
        return;
    }
    for (int i = 0; i < GEMMS; i++)
        flop += time_burst(&gemms[i], gemm_names[i]);
    time_shapes(fp8);
    time_steady(gemms, fp8, flop);
}

static void measure_gemm(void)
{
    if (!blas_load()) {
        fprintf(stderr, "calibrate: no cuBLASLt: GEMMs left out\n");
        return;
    }
    time_gemms(false);
    time_gemms(true);
}

#endif
