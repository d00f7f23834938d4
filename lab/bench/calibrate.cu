/* calibrate: the figures of a machine file that decide how the CUDA kernels are built and that the
 * performance model is fed with, measured.
 *
 * Prints them in the syntax of machines/NAME.machine; what has no key there is a comment. With
 * --machine FILE it prints that file, each line that was measured replaced; with --measured FILE it
 * writes the times of whole kernels there, for `ordo model validate`. Clocks and settings are left
 * alone; medians of five short runs. The clock falls under load, so compare figures in clk, and
 * those in seconds only together with the clock. */
#define ORDO_WATCHDOG
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <cuda_runtime.h>

#include "calibrate.cuh"

enum { REPEATS = 5, SMS_MAX = 1024 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "calibrate: %s: %s\n", #call, cudaGetErrorString(error_));             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- the device, and memory for everything ---- */

static const size_t memory_bytes = (size_t)2 << 30;

static cudaDeviceProp device;
static int sms;
static char *memory;
static stamp *stamps;
static int32_t *flags;
static uint32_t *sink; /* takes results, so that the compiler does not drop the work */

static void open_device(void)
{
    TRY(cudaGetDeviceProperties(&device, 0));
    sms = device.multiProcessorCount;
    if (device.major != 9 || sms > SMS_MAX) {
        fprintf(stderr, "calibrate: %s has compute capability %d.%d: expected 9.0\n", device.name,
                device.major, device.minor);
        exit(77);
    }
    TRY(cudaMalloc(&memory, memory_bytes));
    TRY(cudaMemset(memory, 1, memory_bytes));
    TRY(cudaMalloc(&stamps, sizeof(stamp) * sms));
    TRY(cudaMalloc(&flags, 4096));
    TRY(cudaMalloc(&sink, 4096));
}

/* ---- results ---- */

static bool json;
static int printed;
static char today[16];
static const char *base_path, *measured_path; /* --machine, --measured */

/* Lines for the machine file, where one is rewritten. */
enum { LINES_MAX = 64, LINE_MAX_BYTES = 400 };
static char lines[LINES_MAX][LINE_MAX_BYTES];
static int line_count;

static FILE *measured;
static int rows;

/* One kernel's time, as members of a JSON object. */
static void row(const char *format, ...)
{
    if (!measured)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(measured, "%s\n    {", rows++ ? "," : "");
    vfprintf(measured, format, arguments);
    fputs("}", measured);
    va_end(arguments);
}

static void print_text(const char *name, bool key, double value, const char *unit, const char *how)
{
    /* Bytes and counts in full; machine files take at most 15 digits. */
    const bool whole = value < 1e12 && value == (double)(int64_t)value;
    char number[32];
    snprintf(number, sizeof number, whole ? "%.0f" : "%.4g", value);
    char text[LINE_MAX_BYTES];
    snprintf(text, sizeof text, "%s%s = %s%s%s | measured: %s | %s", key ? "" : "# ", name, number,
             *unit ? " " : "", unit, how, today);
    if (!base_path)
        puts(text);
    else if (!key)
        fprintf(stderr, "%s\n", text);
    else if (line_count < LINES_MAX)
        memcpy(lines[line_count++], text, sizeof text);
}

/* Length of the key a line of a machine file begins with; 0 if it has none. */
static size_t key_length(const char *line)
{
    const size_t length = strcspn(line, " =");
    return line[0] == '#' || line[length] == '\0' || length == 0 ? 0 : length;
}

/* The command, as anybody could repeat it: where results go is left out, and so is the place of the
 * base file on this host. */
static void print_command(int argc, char **argv)
{
    printf("calibrate");
    for (int a = 1; a < argc; a++) {
        const char *slash = argv[a][0] == '/' ? strrchr(argv[a], '/') : NULL;
        if (strcmp(argv[a], "--measured") == 0)
            a++;
        else
            printf(" %s", slash ? slash + 1 : argv[a]);
    }
}

/* The base file, with what was measured in the place of what it said; the rest at the end. The
 * first line says by what command; that of an earlier run goes. */
static bool rewrite_base(int argc, char **argv)
{
    static const char first[] = "# Measured";
    char line[1024];
    bool used[LINES_MAX] = { false };
    FILE *base = fopen(base_path, "r");
    if (!base) {
        fprintf(stderr, "calibrate: %s: %s\n", base_path, strerror(errno));
        return false;
    }
    printf("%s %s on %s by: ", first, today, device.name);
    print_command(argc, argv);
    puts("");
    while (fgets(line, sizeof line, base)) {
        if (strncmp(line, first, sizeof first - 1) == 0)
            continue;
        const size_t length = key_length(line);
        int found = -1;
        for (int x = 0; x < line_count && length > 0; x++)
            if (key_length(lines[x]) == length && memcmp(lines[x], line, length) == 0)
                found = x;
        if (found >= 0) {
            used[found] = true;
            puts(lines[found]);
        } else {
            fputs(line, stdout);
        }
    }
    fclose(base);
    for (int x = 0; x < line_count; x++)
        if (!used[x])
            puts(lines[x]);
    return true;
}

static void print_json(const char *name, bool key, double value, const char *unit, const char *how)
{
    printf("%s\n    {\"name\": \"%s\", \"key\": %s, \"value\": %.6g, \"unit\": \"%s\", \"how\": "
           "\"%s\"}",
           printed ? "," : "", name, key ? "true" : "false", value, unit, how);
}

/* key: whether machine files have it. */
static void result(const char *name, bool key, double value, const char *unit, const char *how, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, how);
    vsnprintf(text, sizeof text, how, arguments);
    va_end(arguments);
    (json ? print_json : print_text)(name, key, value, unit, text);
    printed++;
    fflush(stdout);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

/* ---- running: a launch, timed by its blocks' stamps ---- */

typedef struct timing {
    double ns;  /* from the first block's begin to the last one's end */
    double clk; /* clocks of the slowest block */
    double ghz; /* mean over the blocks */
} timing;

static timing read_stamps(int blocks)
{
    static stamp s[SMS_MAX];
    TRY(cudaGetLastError());
    TRY(cudaMemcpy(s, stamps, sizeof(stamp) * blocks, cudaMemcpyDeviceToHost));
    uint64_t begin = s[0].begin_ns, end = s[0].end_ns, clk = 0;
    double ghz = 0;
    for (int x = 0; x < blocks; x++) {
        begin = s[x].begin_ns < begin ? s[x].begin_ns : begin;
        end = s[x].end_ns > end ? s[x].end_ns : end;
        clk = s[x].clk > clk ? s[x].clk : clk;
        ghz += (double)s[x].clk / (double)(s[x].end_ns - s[x].begin_ns) / blocks;
    }
    const timing t = { (double)(end - begin), (double)clk, ghz };
    return t;
}

/* The median of each over REPEATS launches, the `warm` before them not counted. */
template <class LAUNCH> static timing repeat(int blocks, LAUNCH launch, int warm = 1)
{
    double ns[REPEATS], clk[REPEATS], ghz[REPEATS];
    for (int x = -warm; x < REPEATS; x++) {
        launch();
        const timing t = read_stamps(blocks);
        if (x >= 0) {
            ns[x] = t.ns;
            clk[x] = t.clk;
            ghz[x] = t.ghz;
        }
    }
    const timing t = { median(ns, REPEATS), median(clk, REPEATS), median(ghz, REPEATS) };
    return t;
}

template <class KERNEL> static void allow_shared(KERNEL kernel, int bytes)
{
    TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

/* ---- what is measured ---- */

static void measure_device(void)
{
    result("workers", true, sms, "count", "read from the device, %s", device.name);
    result("l2_bytes", true, device.l2CacheSize, "B", "the driver reports it");
    result("shared_bytes_per_block", true, (double)device.sharedMemPerBlockOptin, "B",
           "the driver reports it");
}

static void measure_clock(void)
{
    enum { TURNS = 8 }; /* a board that was busy takes a while to its highest clock */
    double highest = 0;
    for (int x = 0; x < TURNS; x++)
        highest = fmax(highest, repeat(1, [&] { spin_kernel<<<1, 32>>>(5000000, stamps); }).ghz);
    result("clock_max_ghz", true, highest, "GHz",
           "one block spins for 5 ms, clock64 / globaltimer; the highest of %d medians", TURNS);
}

template <bulk_kind KIND> static timing time_bulk(int mb, int rounds)
{
    allow_shared(bulk_kernel<KIND>, ALONE_BYTES);
    const int tiles = mb * 1000000 / TILE_BYTES;
    TRY(cudaMemset(memory, 0, (size_t)mb * 1000000));
    return repeat(
        sms, [&] { bulk_kernel<KIND><<<sms, 64, ALONE_BYTES>>>(memory, tiles, rounds, stamps); });
}

static void measure_reduce(void)
{
    enum { ROUNDS = 300 };
    static const int sizes[] = { 8, 16, 20, 40, 48, 56, 64, 80 };
    const double bytes = 2.0 * ROUNDS * TILE_BYTES * sms;
    char name[64];
    for (int mb : sizes) {
        const timing f = time_bulk<BULK_ADD_F32>(mb, ROUNDS);
        const timing s = time_bulk<BULK_ADD_S32>(mb, ROUNDS);
        if (mb == 40) {
            result("l2_add_bytes_per_s", true, bytes / f.ns * 1e9, "B/s",
                   "bulk f32 adds of 32 KB by two warps an SM, %d MB, %.2f GHz", mb, f.ghz);
            result("reduce_bytes_per_clk", true, bytes / sms / f.clk, "B/clk",
                   "bulk f32 adds of 32 KB by two warps an SM, %d MB", mb);
        }
        snprintf(name, sizeof name, "l2_add_%dmb_bytes_per_s", mb);
        result(name, false, bytes / f.ns * 1e9, "B/s", "f32, %.2f GHz", f.ghz);
        snprintf(name, sizeof name, "l2_add_s32_%dmb_bytes_per_s", mb);
        result(name, false, bytes / s.ns * 1e9, "B/s", "s32, %.2f GHz", s.ghz);
    }
    const timing store = time_bulk<BULK_STORE>(20, ROUNDS);
    result("l2_store_bytes_per_s", true, bytes / store.ns * 1e9, "B/s",
           "bulk stores of 32 KB by two warps an SM, 20 MB, %.2f GHz", store.ghz);
}

/* Median cycles of one add of `kb` KiB, nothing else running. */
static double add_latency(int kb)
{
    enum { ROUNDS = 400 };
    static uint32_t clk[ROUNDS];
    static double values[ROUNDS];
    uint32_t *there;
    TRY(cudaMalloc(&there, sizeof clk));
    allow_shared(add_latency_kernel, ALONE_BYTES);
    for (int x = 0; x < 2; x++)
        add_latency_kernel<<<1, 128, ALONE_BYTES>>>(memory, 40000000 / (kb * 1024), kb * 1024,
                                                    ROUNDS, there);
    TRY(cudaMemcpy(clk, there, sizeof clk, cudaMemcpyDeviceToHost));
    TRY(cudaFree(there));
    for (int x = 0; x < ROUNDS; x++)
        values[x] = clk[x];
    return median(values, ROUNDS);
}

static void measure_latency(void)
{
    static const int sizes[] = { 16, 32, 40 };
    char name[64];
    double x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
    for (int kb : sizes) {
        const double bytes = kb * 1024, clk = add_latency(kb);
        snprintf(name, sizeof name, "reduce_%dkb_clk", kb);
        result(name, false, clk, "clk", "one bulk f32 add from issue to completion, one SM");
        x_sum += bytes;
        y_sum += clk;
        xx_sum += bytes * bytes;
        xy_sum += bytes * clk;
    }
    const double slope = (3 * xy_sum - x_sum * y_sum) / (3 * xx_sum - x_sum * x_sum);
    result("reduce_alone_bytes_per_clk", true, 1 / slope, "B/clk",
           "bulk reduce of 16, 32 and 40 KB, slope");
    result("reduce_latency_clk", true, (y_sum - slope * x_sum) / 3, "clk",
           "bulk reduce of 16, 32 and 40 KB, intercept");
}

static void measure_flag(void)
{
    enum { TRIPS = 1000, STEP = 5 };
    static double clk[SMS_MAX], ns[SMS_MAX];
    int pairs = 0;
    allow_shared(flag_kernel, ALONE_BYTES);
    for (int partner = 1; partner < sms; partner += STEP, pairs++) {
        TRY(cudaMemset(flags, 0, 4096));
        flag_kernel<<<sms, 32, ALONE_BYTES>>>(flags, partner, TRIPS, stamps);
        const timing t = read_stamps(1);
        clk[pairs] = t.clk / (2 * TRIPS);
        ns[pairs] = t.ns / (2 * TRIPS);
    }
    const double middle = median(clk, pairs);
    result(
        "flag_hop_clk", false, middle, "clk",
        "red.release to another SM's ld.acquire, one way, median of %d pairs of SMs, %.0f to %.0f",
        pairs, clk[0], clk[pairs - 1]);
    result("flag_hop_ns", false, median(ns, pairs), "ns", "the same");
}

/* Cycles from one block's turn to the next one's, of `blocks` that add `kb` KiB. */
static timing hop(int kb, int blocks)
{
    const int laps = 2000 / blocks;
    allow_shared(hop_kernel, ALONE_BYTES);
    timing t = repeat(blocks, [&] {
        TRY(cudaMemset(flags, 0, 4096));
        hop_kernel<<<blocks, 128, ALONE_BYTES>>>(memory, flags, kb * 1024, laps, stamps);
    });
    t.clk /= laps * blocks;
    t.ns /= laps * blocks;
    return t;
}

static void measure_hop(void)
{
    static const int sizes[] = { 1, 16, 32, 40 };
    char name[64];
    for (int kb : sizes)
        for (int blocks = 2; blocks <= 32; blocks *= 4) {
            const timing t = hop(kb, blocks);
            snprintf(name, sizeof name, "ordered_hop_%dkb_%d_blocks_ns", kb, blocks);
            result(name, false, t.ns, "ns", "poll, bulk add, wait, fence, release; %.0f clk",
                   t.clk);
            if (kb == 32 && blocks == 8)
                result("flag_latency_clk", true, t.clk - add_latency(32), "clk",
                       "ordered hop of 32 KB between 8 SMs %.0f clk, less the add itself", t.clk);
        }
}

template <int N, bool REGISTERS, int GROUPS> static void measure_product(void)
{
    enum { WARM = 40 }; /* a fifth of a second, until the power limit has settled the clock */
    const int bytes = GROUPS * 16384 + N * 256, rounds = 32000 * 64 / N / GROUPS;
    allow_shared(product_kernel<N, REGISTERS, GROUPS>, bytes);
    const timing t = repeat(
        sms,
        [&] {
            product_kernel<N, REGISTERS, GROUPS>
                <<<sms, GROUPS * 128, bytes>>>(rounds, stamps, (float *)sink);
        },
        WARM);
    const double clk = t.clk / (8.0 * rounds * GROUPS), flop = 2.0 * 64 * N * 16;
    char name[64];
    if (N == 256 && !REGISTERS && GROUPS == 2)
        result("mma_flop_per_clk_bf16", true, flop / clk, "flop/clk",
               "wgmma m64n256k16 by two warpgroups takes %.1f clk", clk);
    snprintf(name, sizeof name, "wgmma_%s_n%d_%d_groups_clk", REGISTERS ? "rs" : "ss", N, GROUPS);
    result(name, false, clk, "clk", "floor %d; %.0f TFLOP/s at %.2f GHz", N / 2,
           flop * 8 * rounds * GROUPS * sms / t.ns * 1e-3, t.ghz);
}

static void measure_mma(void)
{
    measure_product<64, false, 1>();
    measure_product<64, false, 2>();
    measure_product<128, false, 1>();
    measure_product<128, false, 2>();
    measure_product<256, false, 1>();
    measure_product<256, false, 2>();
    measure_product<64, true, 1>();
    measure_product<64, true, 2>();
    measure_product<128, true, 1>();
    measure_product<128, true, 2>();
    measure_product<256, true, 1>();
    measure_product<256, true, 2>();
}

template <special FUNCTION> static double special_lanes(void)
{
    enum { ROUNDS = 1000 };
    const timing t = repeat(sms, [&] {
        special_kernel<FUNCTION><<<sms, SPECIAL_THREADS>>>(ROUNDS, stamps, (float *)sink);
    });
    return (double)SPECIAL_THREADS * CHAINS * ROUNDS / t.clk;
}

/* Lanes are a whole number of sixteens; a measurement that comes near one means it. */
static void lane_result(const char *name, double measured, const char *what)
{
    const double whole = 16 * (double)(int64_t)(measured / 16 + 0.5);
    const bool near = measured > 0.95 * whole && measured < 1.02 * whole;
    result(name, true, near ? whole : measured, "lane/clk", "%s, %.1f by 32 warps an SM", what,
           measured);
}

static void measure_special(void)
{
    lane_result("mufu_lanes", special_lanes<EXP2>(), "exp2");
    result("float_to_int_lanes", false, special_lanes<FLOAT_TO_INT>(), "lane/clk",
           "float to integer, 32 warps an SM");
}

/* What one round of the reading kernel loads. */
static double read_round_bytes(void)
{
    return (double)sms * READ_THREADS * READ_UNROLL * 16;
}

static void launch_read(const char *from, size_t bytes, int rounds)
{
    read_kernel<<<sms, READ_THREADS>>>((const uint4 *)from, (uint32_t)(bytes / 16), rounds, stamps,
                                       sink);
}

static void measure_l2(void)
{
    static const int sizes[] = { 8, 16, 20, 40, 48, 60, 80 };
    enum { LOADS = 170, ROUNDS = 700 };
    char name[64];
    allow_shared(bulk_read_kernel, BULK_STAGES * TILE_BYTES + 64);
    for (int mb : sizes) {
        const double bytes = LOADS * read_round_bytes();
        const timing t = repeat(sms, [&] { launch_read(memory, (size_t)mb * 1000000, LOADS); });
        if (mb == 40)
            result("l2_read_bytes_per_s", true, bytes / t.ns * 1e9, "B/s",
                   "16-byte loads, 40 MB, %.2f GHz", t.ghz);
        snprintf(name, sizeof name, "l2_read_%dmb_bytes_per_s", mb);
        result(name, false, bytes / t.ns * 1e9, "B/s", "16-byte loads, %.2f GHz", t.ghz);
        const timing b = repeat(sms, [&] {
            bulk_read_kernel<<<sms, 32, BULK_STAGES * TILE_BYTES + 64>>>(
                memory, mb * 1000000 / TILE_BYTES, ROUNDS, stamps);
        });
        snprintf(name, sizeof name, "l2_bulk_read_%dmb_bytes_per_s", mb);
        result(name, false, (double)ROUNDS * TILE_BYTES * sms / b.ns * 1e9, "B/s",
               "bulk copies of 32 KB, %d in flight an SM, %.2f GHz", BULK_STAGES, b.ghz);
    }
}

/* Milliseconds of a copy or a memset, by events. */
template <class WORK> static double event_ms(WORK work)
{
    cudaEvent_t begin, end;
    double values[REPEATS];
    TRY(cudaEventCreate(&begin));
    TRY(cudaEventCreate(&end));
    for (int x = -1; x < REPEATS; x++) {
        float ms;
        TRY(cudaEventRecord(begin));
        TRY(work());
        TRY(cudaEventRecord(end));
        TRY(cudaEventSynchronize(end));
        TRY(cudaEventElapsedTime(&ms, begin, end));
        if (x >= 0)
            values[x] = ms;
    }
    TRY(cudaEventDestroy(begin));
    TRY(cudaEventDestroy(end));
    return median(values, REPEATS);
}

static void measure_hbm(void)
{
    const size_t half = memory_bytes / 2;
    const int rounds = (int)((double)half / read_round_bytes());
    const timing t = repeat(sms, [&] {
        launch_read(memory + half, half, rounds); /* leaves nothing of the first half in L2 */
        launch_read(memory, half, rounds);
    });
    result("hbm_read_bytes_per_s", true, rounds * read_round_bytes() / t.ns * 1e9, "B/s",
           "16-byte loads of 1 GiB");
    const double write = event_ms([&] { return cudaMemsetAsync(memory, 1, memory_bytes, NULL); });
    result("hbm_write_bytes_per_s", true, (double)memory_bytes / write * 1e3, "B/s",
           "memset of 2 GiB");
    const double copy = event_ms([&] {
        return cudaMemcpyAsync(memory, memory + half, half, cudaMemcpyDeviceToDevice, NULL);
    });
    row("\"kernel\": \"memory\", \"read_bytes\": 0, \"write_bytes\": %zu, \"seconds\": %.6g",
        memory_bytes, write * 1e-3);
    row("\"kernel\": \"memory\", \"read_bytes\": %zu, \"write_bytes\": %zu, \"seconds\": %.6g",
        half, half, copy * 1e-3);
    result("hbm_copy_bytes_per_s", true, 2.0 * (double)half / copy * 1e3, "B/s",
           "device to device copy of 1 GiB, bytes read plus written");
}

static void measure_barrier(void)
{
    int rounds = 300;
    allow_shared(grid_barrier_kernel, ALONE_BYTES);
    const timing t = repeat(sms, [&] {
        TRY(cudaMemset(flags, 0, 4096));
        void *arguments[] = { &flags, &rounds, &stamps };
        TRY(cudaLaunchCooperativeKernel((const void *)grid_barrier_kernel, dim3(sms), dim3(384),
                                        arguments, ALONE_BYTES, NULL));
    });
    result("grid_barrier_clk", true, t.clk / rounds, "clk",
           "release add and acquire poll, %d blocks; %.0f ns", sms, t.ns / rounds);
}

#include "calibrate_model.cuh"

/* ---- the command ---- */

typedef struct measurement {
    const char *name, *what;
    void (*run)(void);
} measurement;

static const measurement measurements[] = {
    { "device", "what the driver reports", measure_device },
    { "clock", "clock without load", measure_clock },
    { "reduce", "bulk adds into L2, f32 and s32, 8 to 80 MB; bulk stores", measure_reduce },
    { "latency", "one bulk add of 16, 32, 40 KB", measure_latency },
    { "flag", "a flag from one SM to another", measure_flag },
    { "hop", "an ordered add from one SM to the next", measure_hop },
    { "mma", "wgmma with A in shared memory and in registers, n64, n128, n256", measure_mma },
    { "special", "exp2 and float to integer", measure_special },
    { "l2", "L2 reads by loads and by bulk copies, 8 to 80 MB", measure_l2 },
    { "hbm", "memory reads, writes, copies", measure_hbm },
    { "barrier", "barrier over all SMs", measure_barrier },
    { "lanes", "logic, multiply-adds and wide ones, alone and mixed", measure_lanes },
    { "shared", "loads from shared memory", measure_shared },
    { "launch", "empty kernels: by the host, in a graph", measure_launch },
    { "rng", "keep bits of 32 heads of 8192 x 8192", measure_keep_bits },
    { "gemm", "GEMMs of a block, bf16 and fp8, burst and steady, and beside keep bits",
      measure_gemm },
};
enum { COUNT = sizeof measurements / sizeof measurements[0] };

static void help(void)
{
    printf("usage: calibrate [--json] [--machine FILE] [--measured FILE] [name...]\n\n"
           "Measure the CUDA device and print lines for its file in machines/.\n"
           "With --machine, print that file with those lines in it; with --measured, write\n"
           "times of kernels there, for `ordo model validate`. Without names, everything:\n\n");
    for (const measurement &m : measurements)
        printf("  %-9s %s\n", m.name, m.what);
}

/* Which measurements the arguments name; false for a name that there is not. */
static bool choose(int argc, char **argv, bool *chosen)
{
    bool any = false;
    for (int a = 1; a < argc; a++) {
        if (strcmp(argv[a], "--json") == 0) {
            json = true;
            continue;
        }
        const bool base = strcmp(argv[a], "--machine") == 0;
        if ((base || strcmp(argv[a], "--measured") == 0) && a + 1 < argc) {
            (base ? base_path : measured_path) = argv[++a];
            continue;
        }
        int x = 0;
        while (x < COUNT && strcmp(argv[a], measurements[x].name) != 0)
            x++;
        if (x == COUNT) {
            fprintf(stderr,
                    "calibrate: %s: expected --json, --machine FILE, --measured FILE, --help or a "
                    "name that --help lists\n",
                    argv[a]);
            return false;
        }
        chosen[x] = any = true;
    }
    for (int x = 0; x < COUNT && !any; x++)
        chosen[x] = true;
    return true;
}

/* Name of the device's machine file. */
static const char *machine_name(void)
{
    static const char *const known[][2] = { { "H200", "h200" },
                                            { "H100", "h100" },
                                            { "H800", "h800" } };
    for (const char *const *k : known)
        if (strstr(device.name, k[0]))
            return k[1];
    return base_path ? base_path : "h200";
}

static bool open_measured(void)
{
    if (!measured_path)
        return true;
    measured = fopen(measured_path, "w");
    if (!measured) {
        fprintf(stderr, "calibrate: %s: %s\n", measured_path, strerror(errno));
        return false;
    }
    fprintf(measured,
            "{\n  \"schema_version\": 1,\n  \"command\": \"measured\",\n  \"machine\": \"%s\",\n  "
            "\"source\": [\"lab/bench/calibrate.cu on %s, %s\"],\n  \"results\": [",
            machine_name(), device.name, today);
    return true;
}

int main(int argc, char **argv)
{
    for (int a = 1; a < argc; a++)
        if (strcmp(argv[a], "--help") == 0) {
            help();
            return 0;
        }
    bool chosen[COUNT] = { false };
    if (!choose(argc, argv, chosen))
        return 2;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "calibrate: no CUDA device\n");
        return 77;
    }
    open_device();
    const time_t now = time(NULL);
    strftime(today, sizeof today, "%Y-%m-%d", gmtime(&now));
    if (!open_measured())
        return 1;
    if (json)
        printf("{\"device\": \"%s\", \"date\": \"%s\", \"results\": [", device.name, today);
    for (int x = 0; x < COUNT; x++)
        if (chosen[x]) {
            fprintf(stderr, "calibrate: %s\n", measurements[x].what);
            measurements[x].run();
        }
    if (json)
        printf("\n]}\n");
    if (measured) {
        fputs("\n  ]\n}\n", measured);
        fclose(measured);
    }
    return base_path && !json && !rewrite_base(argc, argv) ? 1 : 0;
}
