/* cuda_device_test.c: transformer blocks on a real device: the same bits in every dropout mode,
 * close to the cpu's; the generator of the trace makes libordo's bits. */
#include "tests/block/runs.h"

#include "base/half.h"
#include "ordo/ordo.h"

#define NEED_DEVICE()                                                                              \
    do {                                                                                           \
        if (!have_device())                                                                        \
            SKIP("no device of compute capability 9.0");                                           \
    } while (0)

/* The test's program does not lie beside the module. */
static bool have_device(void)
{
    const char *build = getenv("ORDO_BUILD"), *why = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/lib/libordo_cuda.so", build ? build : "build");
    setenv("ORDO_CUDA_MODULE", path, 0);
    return ordo_backend_available(ORDO_BACKEND_CUDA, &why);
}

static ordo_block_job device_job(void)
{
    ordo_block_job job = ORDO_BLOCK_JOB_INIT;
    job.backend = ORDO_BACKEND_CUDA;
    job.batch = 2;
    job.seq = 208;
    job.embed = 256;
    job.heads = 4;
    job.kv_heads = 2;
    job.mlp = 320;
    job.gated = job.causal = job.backward = true;
    job.dropout = 0.1;
    job.seed = 7;
    return job;
}

TEST(all_modes_that_drop_have_the_same_bits)
{
    NEED_DEVICE();
    for (int which = 0; which < 20; which++) {
        static const ordo_block_mode order[] = { ORDO_BLOCK_OVERLAPPED,     ORDO_BLOCK_FUSED,
                                                 ORDO_BLOCK_OVERLAPPED,     ORDO_BLOCK_NONE,
                                                 ORDO_BLOCK_OVERLAPPED_QKV, ORDO_BLOCK_SEQUENTIAL,
                                                 ORDO_BLOCK_PIPELINED,      ORDO_BLOCK_OVERLAPPED };
        ordo_block_job job = device_job();
        job.beside = (ordo_block_beside)(which % (ORDO_BLOCK_BESIDE_ALL + 1));
        const bool cublaslt = which / 5 & 1; /* refused in segments */
        job.modes = ((1u << ORDO_BLOCK_MODES) - 1) & ~((unsigned)cublaslt << ORDO_BLOCK_PIPELINED);
        job.precision = cublaslt ? ORDO_PRECISION_FP8 : ORDO_PRECISION_BF16;
        job.gemm = cublaslt ? ORDO_BLOCK_GEMM_CUBLASLT : ORDO_BLOCK_GEMM_ORDO;
        job.regenerate = job.bare = which / 10;
        ordo_block_runner *runner = runner_of(&job);
        if (runner == NULL)
            return;
        const uint64_t first = run(runner, order[0]);
        for (size_t i = 1; i < sizeof order / sizeof order[0]; i++)
            if (job.modes >> order[i] & 1)
                CHECK((run(runner, order[i]) == first) == (order[i] != ORDO_BLOCK_NONE));
        ordo_block_runner_destroy(runner);
    }
}

/* Kernels of products that leave room are the library's own. */
TEST(placements_have_the_same_bits)
{
    NEED_DEVICE();
    for (int which = 0; which < 16; which++) {
        static const int rounds[] = { 7, 10, 3, 5 };
        ordo_block_job job = device_job();
        job.generator = which & 1 ? ORDO_GENERATOR_COMPARE : ORDO_GENERATOR_SLICED;
        job.rounds = rounds[which / 2 % 4];
        job.bare = which >= 8;
        job.causal = which & 2;
        job.modes = 1u << ORDO_BLOCK_SEQUENTIAL | 1u << ORDO_BLOCK_OVERLAPPED |
                    1u << ORDO_BLOCK_OVERLAPPED_QKV;
        uint64_t first = 0;
        for (int placement = 0; placement <= ORDO_BLOCK_PLACEMENT_BESIDE; placement++) {
            job.placement = (ordo_block_placement)placement;
            job.regenerate = placement == ORDO_BLOCK_PLACEMENT_BESIDE && which & 4;
            ordo_block_runner *runner = runner_of(&job);
            if (runner == NULL)
                return;
            first = placement ? first : run(runner, ORDO_BLOCK_SEQUENTIAL);
            for (int turn = 0; turn < 3; turn++) {
                CHECK(run(runner, ORDO_BLOCK_OVERLAPPED) == first);
                CHECK(run(runner, ORDO_BLOCK_OVERLAPPED_QKV) == first);
            }
            ordo_block_runner_destroy(runner);
        }
    }
}

static double relative_error(ordo_block_runner *got, ordo_block_runner *expected,
                             ordo_block_tensor tensor)
{
    ordo_block_extent extent;
    const void *a = read_tensor(got, tensor, &extent), *b = read_tensor(expected, tensor, &extent);
    double wrong = 0, size = 0;
    for (int64_t i = 0; i < extent.rows * extent.columns; i++) {
        const bool f32 = extent.dtype == ORDO_F32;
        const double x = f32 ? (double)((const float *)a)[i]
                             : (double)ordo_f32_from_bf16(((const uint16_t *)a)[i]);
        const double y = f32 ? (double)((const float *)b)[i]
                             : (double)ordo_f32_from_bf16(((const uint16_t *)b)[i]);
        wrong += (x - y) * (x - y);
        size += y * y;
    }
    free((void *)a);
    free((void *)b);
    return size > 0 ? sqrt(wrong / size) : 0;
}

/* bf16 differs by the order of sums; e4m3 rounds every operand to 3 bits. */
TEST(results_are_near_those_of_the_cpu)
{
    NEED_DEVICE();
    for (int which = 0; which < 8; which++) {
        ordo_block_job job = device_job();
        job.precision = which & 1 ? ORDO_PRECISION_FP8 : ORDO_PRECISION_BF16;
        job.gemm = which & 5 ? ORDO_BLOCK_GEMM_CUBLASLT : ORDO_BLOCK_GEMM_ORDO;
        job.gated = which >> 1 & 1;
        job.bare = which >> 2;
        ordo_block_runner *device = runner_of(&job);
        job.backend = ORDO_BACKEND_CPU;
        job.precision = ORDO_PRECISION_BF16;
        job.gemm = ORDO_BLOCK_GEMM_ORDO;
        ordo_block_runner *host = runner_of(&job);
        if (device == NULL || host == NULL)
            return;
        run(device, ORDO_BLOCK_OVERLAPPED);
        run(host, ORDO_BLOCK_FUSED);
        for (int i = 0; i <= ORDO_BLOCK_DY; i++) {
            const bool input = i < ORDO_BLOCK_DX || i == ORDO_BLOCK_DY;
            const double most = input ? 0 : which & 1 ? 0.25 : 0.02;
            const double error = relative_error(device, host, (ordo_block_tensor)i);
            if (!(error <= most))
                CHECK_FAIL("block %d, tensor %d: error %g, expected at most %g", which, i, error,
                           most);
        }
        ordo_block_runner_destroy(device);
        ordo_block_runner_destroy(host);
    }
}

TEST(a_trace_makes_the_same_bits_and_interference_is_measured)
{
    NEED_DEVICE();
    ordo_block_job job = device_job();
    job.causal = false;
    for (int which = 1; which < 4; which++) { /* placements, generators */
        job.placement = (ordo_block_placement)(which / 2);
        job.generator = which & 1 ? ORDO_GENERATOR_COMPARE : ORDO_GENERATOR_SLICED;
        job.modes = 1u << ORDO_BLOCK_OVERLAPPED;
        ordo_block_runner *placed = runner_of(&job);
        ordo_block_trace trace;
        if (placed == NULL)
            return;
        CHECK_INT(ordo_block_trace_run(placed, &trace), ORDO_OK);
        CHECK(trace.same_words && trace.warps > 0);
        CHECK(trace.shared_sms == 0 || job.placement == ORDO_BLOCK_PLACEMENT_BESIDE);
        ordo_block_runner_destroy(placed);
    }
    job = device_job();
    job.causal = false;
    ordo_block_runner *runner = runner_of(&job);
    ordo_block_trace trace;
    ordo_block_interference found;
    if (runner == NULL)
        return;
    const uint64_t before = run(runner, ORDO_BLOCK_OVERLAPPED);
    CHECK_INT(ordo_block_trace_run(runner, &trace), ORDO_OK);
    CHECK(trace.same_words);
    CHECK(trace.product_end > trace.product_begin && trace.bits_end > trace.bits_begin);
    CHECK(trace.seconds >= trace.product_end && trace.seconds >= trace.bits_end);
    CHECK(trace.sms > 1 && trace.inside >= 0 && trace.inside <= 1);
    CHECK_INT(ordo_block_interfere(runner, 0.2, &found), ORDO_OK);
    CHECK(found.product > 0 && found.bits > 0 && found.both > 0 && found.then > 0);
    CHECK(found.backward > 0 && found.fused > 0 && strlen(found.algorithm) > 0);
    CHECK_INT(ordo_block_backward(runner), ORDO_ERR_ARGUMENT); /* activations were overwritten */
    CHECK(run(runner, ORDO_BLOCK_OVERLAPPED) == before);
    ordo_block_runner_destroy(runner);
}

/* Its bits are not ordo's, but as many are kept, and both modes have the same. */
TEST(the_generator_compare_runs_in_kernels_of_its_own)
{
    NEED_DEVICE();
    for (int which = 0; which < 4; which++) {
        static const int rounds[] = { 3, 5, 7, 10 };
        ordo_block_job job = device_job();
        job.generator = ORDO_GENERATOR_COMPARE;
        job.rounds = rounds[which];
        job.modes = 1u << ORDO_BLOCK_SEQUENTIAL | 1u << ORDO_BLOCK_OVERLAPPED;
        ordo_block_runner *runner = runner_of(&job);
        if (runner == NULL)
            return;
        const uint64_t sequential = run(runner, ORDO_BLOCK_SEQUENTIAL);
        CHECK(run(runner, ORDO_BLOCK_OVERLAPPED) == sequential);
        CHECK(run(runner, ORDO_BLOCK_OVERLAPPED) == sequential);
        ordo_block_runner_destroy(runner);
    }
}

TEST(bad_jobs_are_refused_by_name)
{
    NEED_DEVICE();
    ordo_block_runner *runner = NULL;
    ordo_block_job job = device_job();
    job.embed = 260;
    CHECK_REFUSED(ordo_block_runner_create(&runner, &job), ORDO_ERR_SHAPE, "multiples of 8");
    job = device_job();
    job.precision = ORDO_PRECISION_F32;
    CHECK_REFUSED(ordo_block_runner_create(&runner, &job), ORDO_ERR_UNSUPPORTED, "precision f32");
    job = device_job();
    job.generator = ORDO_GENERATOR_COMPARE;
    CHECK_REFUSED(ordo_block_runner_create(&runner, &job), ORDO_ERR_UNSUPPORTED,
                  "dropout mode fused");
}

/* Head size 128, whole and partial tiles, two query heads for one key head. */
TEST(bits_of_experiments_are_made_inside)
{
    NEED_DEVICE();
    for (int which = 0; which < 24; which++) {
        static const int rounds[] = { 3, 5, 3, 5, 7, 10 };
        ordo_block_job job = device_job();
        job.rounds = rounds[which % 6];
        job.generator = which % 6 < 2 ? ORDO_GENERATOR_SLICED : ORDO_GENERATOR_COMPARE;
        job.embed = 512;
        job.seq = which < 12 ? 384 : 328;
        job.causal = which / 6 & 1;
        job.modes = 1u << ORDO_BLOCK_SEQUENTIAL | 1u << ORDO_BLOCK_FUSED;
        ordo_block_runner *runner = runner_of(&job);
        if (runner == NULL)
            return;
        const uint64_t given = run(runner, ORDO_BLOCK_SEQUENTIAL);
        CHECK(run(runner, ORDO_BLOCK_FUSED) == given);
        CHECK(run(runner, ORDO_BLOCK_FUSED) == given);
        ordo_block_runner_destroy(runner);
    }
}

CHECK_MAIN()
