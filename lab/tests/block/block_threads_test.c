/* block_threads_test.c: transformer blocks on the cpu: the same bits in every dropout mode, with
 * any number of threads; close to a block in double, gradients to its differences; bad jobs
 * refused. */
#include "tests/block/reference.h"
#include "tests/block/runs.h"

#include "base/half.h"
#include "block/block.h"

#define GOLDEN_F32  0x45eddc81a415d008
#define GOLDEN_BF16 0x154bb1dc3734b112

static ordo_block_job small_job(void)
{
    ordo_block_job job = ORDO_BLOCK_JOB_INIT;
    job.precision = ORDO_PRECISION_F32;
    job.batch = 2;
    job.seq = 19;
    job.embed = 24;
    job.heads = 4;
    job.kv_heads = 2;
    job.mlp = 20;
    job.backward = true;
    job.dropout = 0.25;
    job.seed = 7;
    job.offset = 3;
    return job;
}

/* ---- bits ---- */

static void check_modes(const ordo_block_job *job)
{
    static const ordo_block_mode order[] = { ORDO_BLOCK_FUSED,          ORDO_BLOCK_OVERLAPPED,
                                             ORDO_BLOCK_OVERLAPPED,     ORDO_BLOCK_SEQUENTIAL,
                                             ORDO_BLOCK_OVERLAPPED_QKV, ORDO_BLOCK_NONE,
                                             ORDO_BLOCK_OVERLAPPED,     ORDO_BLOCK_FUSED,
                                             ORDO_BLOCK_OVERLAPPED };
    ordo_block_runner *runner = runner_of(job);
    const uint64_t first = run(runner, order[0]);
    for (size_t i = 1; i < sizeof order / sizeof order[0]; i++) {
        const uint64_t next = run(runner, order[i]);
        CHECK((next == first) == (order[i] != ORDO_BLOCK_NONE));
    }
    ordo_block_runner_destroy(runner);
}

TEST(all_modes_that_drop_have_the_same_bits)
{
    ordo_block_job job = small_job();
    for (int beside = 0; beside <= ORDO_BLOCK_BESIDE_ALL; beside++)
        for (int which = 0; which < 4; which++) {
            job.beside = (ordo_block_beside)beside;
            job.precision = which & 1 ? ORDO_PRECISION_BF16 : ORDO_PRECISION_F32;
            job.causal = job.gated = job.regenerate = which >> 1;
            check_modes(&job);
        }
    job.bare = true;
    check_modes(&job);
    job.rounds = 10;
    job.bits = 4;
    check_modes(&job);
    for (int which = 0; which < 6; which++) { /* experiments */
        static const int rounds[] = { 3, 5, 3, 5, 7, 10 };
        job.rounds = rounds[which];
        job.generator = which < 2 ? ORDO_GENERATOR_SLICED : ORDO_GENERATOR_COMPARE;
        job.bits = 0;
        job.causal = which & 1;
        check_modes(&job);
    }
}

/* Bits of blocks of 16 x 128 that a causal mask hides are not made: that would be half the work. In
 * 256 columns those are the second blocks of the first 128 rows. */
TEST(hidden_bits_are_not_made)
{
    enum { ROWS = 256, ACROSS = 2, DOWN = ROWS / 16, BLOCK_WORDS = 64, UNTOUCHED = 0xa5 };
    for (int causal = 0; causal < 2; causal++) {
        ordo_block_job job = small_job();
        job.batch = 1;
        job.seq = ROWS;
        job.causal = causal;
        job.modes = 1u << ORDO_BLOCK_SEQUENTIAL;
        ordo_block_runner *runner = runner_of(&job);
        memset(runner->bits[0], UNTOUCHED, runner->keep_bits_bytes);
        CHECK_INT(ordo_block_forward(runner, ORDO_BLOCK_SEQUENTIAL), ORDO_OK);
        for (int block = 0; block < DOWN * ACROSS; block++) { /* blocks of the first head */
            const uint32_t word = runner->bits[0][block * BLOCK_WORDS];
            const bool hidden = causal && block % ACROSS == 1 && block / ACROSS < 128 / 16;
            CHECK((word == UNTOUCHED * 0x01010101u) == hidden);
        }
        ordo_block_runner_destroy(runner);
    }
}

/* Segments of 64 rows and more; the last one is short, and sequences of the batch have the same
 * ones. Both passes run over them. Nothing has run before: what is read before it is written
 * differs. */
TEST(pipelined_has_the_bits_of_the_other_modes)
{
    for (int which = 0; which < 16; which++) {
        static const int64_t segments[] = { 1, 2, 0, 100 }, expected[] = { 1, 2, 5, 5 };
        ordo_block_job job = small_job();
        ordo_block_info info;
        job.seq = 270;
        job.segments = segments[which % 4];
        job.precision = which & 4 ? ORDO_PRECISION_BF16 : ORDO_PRECISION_F32;
        job.causal = which >> 3;
        job.gated = job.bare = which >> 2 & 1;
        job.modes = 1u << ORDO_BLOCK_PIPELINED | 1u << ORDO_BLOCK_FUSED;
        ordo_block_runner *runner = runner_of(&job);
        CHECK_INT(ordo_block_query(runner, &info), ORDO_OK);
        CHECK_INT(info.segments, expected[which % 4]);
        CHECK(info.segments < 5 || info.bits_bytes < info.keep_bits_bytes);
        const uint64_t pipelined = run(runner, ORDO_BLOCK_PIPELINED);
        CHECK(run(runner, ORDO_BLOCK_FUSED) == pipelined);
        CHECK(run(runner, ORDO_BLOCK_PIPELINED) == pipelined);
        ordo_block_runner_destroy(runner);
    }
}

/* A device may run attention as soon as it is asked for; the host runs it when it is awaited. Tiles
 * that a device loads end with the keys. */
static ordo_status attend_at_once(block_device *device, const block_attention *attention)
{
    CHECK_INT(ordo_block_cpu.join(device), ORDO_OK); /* its bits */
    return ordo_block_attend(attention, NULL);
}

TEST(attention_reads_nothing_that_is_written_later)
{
    for (int causal = 0; causal < 2; causal++) {
        block_operations ops = ordo_block_cpu;
        ordo_block_job job = small_job();
        job.seq = 150;
        job.segments = 3;
        job.causal = causal;
        job.modes = 1u << ORDO_BLOCK_PIPELINED | 1u << ORDO_BLOCK_FUSED;
        ordo_block_runner *runner = runner_of(&job);
        const size_t bytes = (size_t)(runner->rows * runner->qkv_columns) * sizeof(float);
        const uint64_t expected = run(runner, ORDO_BLOCK_FUSED);
        for (int i = 0; i < 3; i++) {
            const ordo_problem *segment = &runner->pipeline.segments[i][0].problem;
            const int64_t end = segment->shard.row0 + segment->q_len;
            CHECK_INT(segment->kv_len, causal ? end : job.seq);
        }
        memset(runner->at.qkv, 0xff, bytes); /* NaN */
        memset(runner->at.a, 0xff, (size_t)(runner->rows * job.embed) * sizeof(float));
        ops.attend = attend_at_once;
        runner->ops = &ops;
        CHECK(run(runner, ORDO_BLOCK_PIPELINED) == expected);
        ordo_block_runner_destroy(runner);
    }
}

/* What the backend was asked for, in order: b, bits; a, attention; j, join; a product by its
 * weight: Q, O, U, D forward, small letters for gradients of the input, after + for those of
 * weights. */
static char asked[64];

static void ask(const char *what)
{
    strncat(asked, what, sizeof asked - strlen(asked) - 1);
}

static void was_asked(const char *expected)
{
    if (strcmp(asked, expected) != 0)
        CHECK_FAIL("asked for %s, expected %s", asked, expected);
    asked[0] = '\0';
}

static ordo_status asked_multiply(block_device *device, const block_product *product)
{
    const char *const letters = "QOUDqoud+q+o+u+d";
    const int at = product->id < 8 ? product->id : 2 * product->id - 8;
    const char name[3] = { letters[at], product->id < 8 ? '\0' : letters[at + 1], '\0' };
    ask(name);
    return ordo_block_cpu.multiply(device, product);
}

static ordo_status asked_bits(block_device *device, const block_bits *bits, bool beside)
{
    ask(beside ? "b" : "B");
    return ordo_block_cpu.make_bits(device, bits, beside);
}

static ordo_status asked_attend(block_device *device, const block_attention *attention)
{
    ask("a");
    return ordo_block_cpu.attend(device, attention);
}

static ordo_status asked_join(block_device *device)
{
    ask("j");
    return ordo_block_cpu.join(device);
}

/* The order that lab/docs/block.md draws: beside b and a runs what stands between them and the next
 * b or j. */
TEST(segments_run_beside_products_of_other_segments)
{
    for (int causal = 0; causal < 2; causal++) {
        block_operations ops = ordo_block_cpu;
        ordo_block_job job = small_job();
        job.batch = 1;
        job.seq = 150;
        job.segments = 3;
        job.causal = causal;
        job.modes = 1u << ORDO_BLOCK_PIPELINED;
        ordo_block_runner *runner = runner_of(&job);
        ops.multiply = asked_multiply;
        ops.make_bits = asked_bits;
        ops.attend = asked_attend;
        ops.join = asked_join;
        runner->ops = &ops;
        CHECK_INT(ordo_block_forward(runner, ORDO_BLOCK_PIPELINED), ORDO_OK);
        was_asked(causal ? "bQaQbaOUDQbaOUDjOUD" : "bQabaOUDbaOUDjOUD");
        CHECK_INT(ordo_block_backward(runner), ORDO_OK);
        was_asked("bd+du+uoaobaoba+ojq+q");
        ordo_block_runner_destroy(runner);
    }
}

/* 145 rows and 200 columns leave ragged tiles of products, which 2..5 threads divide differently.
 */
TEST(bits_do_not_depend_on_the_number_of_threads)
{
    ordo_block_job job = small_job();
    job.seq = 145;
    job.batch = 1;
    job.mlp = 200;
    job.gated = true;
    uint64_t one = 0;
    for (int threads = 1; threads <= 5; threads++) {
        job.threads = threads;
        ordo_block_runner *runner = runner_of(&job);
        const uint64_t many = run(runner, ORDO_BLOCK_OVERLAPPED);
        one = threads == 1 ? many : one;
        CHECK(many == one);
        ordo_block_runner_destroy(runner);
    }
}

/* Committed, so that every machine has the same. */
TEST(bits_are_those_of_every_machine)
{
    ordo_block_job job = small_job();
    ordo_block_runner *runner = runner_of(&job);
    CHECK_INT(run(runner, ORDO_BLOCK_SEQUENTIAL), GOLDEN_F32);
    ordo_block_runner_destroy(runner);
    job.precision = ORDO_PRECISION_BF16;
    job.gated = job.causal = true;
    runner = runner_of(&job);
    CHECK_INT(run(runner, ORDO_BLOCK_SEQUENTIAL), GOLDEN_BF16);
    ordo_block_runner_destroy(runner);
}

/* ---- accuracy ---- */

static double element(const void *data, ordo_dtype dtype, int64_t i)
{
    return dtype == ORDO_F32 ? (double)((const float *)data)[i]
                             : (double)ordo_f32_from_bf16(((const uint16_t *)data)[i]);
}

static double *as_doubles(ordo_block_runner *runner, ordo_block_tensor tensor, int64_t *count)
{
    ordo_block_extent extent;
    void *data = read_tensor(runner, tensor, &extent);
    *count = extent.rows * extent.columns;
    double *values = calloc((size_t)*count + 1, sizeof *values);
    for (int64_t i = 0; i < *count; i++)
        values[i] = element(data, extent.dtype, i);
    free(data);
    return values;
}

static reference reference_of(const ordo_block_job *job, ordo_block_runner *runner)
{
    reference r = { .job = *job };
    ordo_block_info info;
    CHECK_INT(ordo_block_query(runner, &info), ORDO_OK);
    r.p_used = info.p_used;
    for (int i = 0; i < ORDO_BLOCK_DX; i++) {
        r.in[i] = as_doubles(runner, (ordo_block_tensor)i, &r.count[i]);
        if (r.count[i] == 0) { /* a bare block has no gains */
            free(r.in[i]);
            r.in[i] = NULL;
        }
    }
    r.y = calloc((size_t)(job->batch * job->seq * job->embed), sizeof *r.y);
    return r;
}

static void reference_free(reference *r)
{
    for (int i = 0; i < ORDO_BLOCK_DX; i++)
        free(r->in[i]);
    free(r->y);
}

static double loss(const reference *r, const double *dy)
{
    double sum = 0;
    reference_forward(r);
    for (int64_t i = 0; i < r->count[ORDO_BLOCK_X]; i++)
        sum += r->y[i] * dy[i];
    return sum;
}

static double relative_error(const double *got, const double *expected, int64_t count)
{
    double wrong = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        wrong += (got[i] - expected[i]) * (got[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    return sqrt(wrong / size);
}

static void check_y(ordo_block_runner *runner, const reference *r, double most)
{
    int64_t count;
    double *y = as_doubles(runner, ORDO_BLOCK_Y, &count);
    reference_forward(r);
    CHECK(relative_error(y, r->y, count) <= most);
    free(y);
}

/* Central differences of the block in double, at a dozen elements of every tensor. */
static void check_gradients(ordo_block_runner *runner, const reference *r, uint64_t *state)
{
    int64_t count;
    double *dy = as_doubles(runner, ORDO_BLOCK_DY, &count);
    for (int i = 0; i < ORDO_BLOCK_DX; i++) {
        double *got = as_doubles(runner, (ordo_block_tensor)(ORDO_BLOCK_DX + i), &count);
        CHECK_INT(count, r->count[i]);
        for (int sample = 0; sample < 12 && count > 0; sample++) {
            const int64_t at = check_between(state, 0, count - 1);
            double *x = &r->in[i][at];
            const double before = *x, step = 1e-4;
            *x = before + step;
            const double up = loss(r, dy);
            *x = before - step;
            const double down = loss(r, dy);
            *x = before;
            const double slope = (up - down) / (2 * step);
            if (!(fabs(got[at] - slope) <= 2e-5 * (1 + fabs(slope))))
                CHECK_FAIL("gradient %d, element %" PRId64 ": %.9g, expected %.9g", i, at, got[at],
                           slope);
        }
        free(got);
    }
    free(dy);
}

TEST(outputs_and_gradients_are_those_of_a_block_in_double)
{
    uint64_t state = 11;
    for (int which = 0; which < 8; which++) {
        ordo_block_job job = small_job();
        job.seq = 11;
        job.gated = which & 1;
        job.bare = which >> 1 & 1;
        job.causal = which >> 2 & 1;
        job.dropout = which == 3 ? 0 : 0.25;
        job.modes = 1u << (which == 3 ? ORDO_BLOCK_NONE : ORDO_BLOCK_OVERLAPPED);
        ordo_block_runner *runner = runner_of(&job);
        reference r = reference_of(&job, runner);
        run(runner, which == 3 ? ORDO_BLOCK_NONE : ORDO_BLOCK_OVERLAPPED);
        check_y(runner, &r, 1e-6);
        check_gradients(runner, &r, &state);
        reference_free(&r);
        ordo_block_runner_destroy(runner);
    }
}

/* Every stored row is rounded to 8 bits, a dozen times in a row. */
TEST(bf16_is_close_to_double)
{
    ordo_block_job job = small_job();
    job.precision = ORDO_PRECISION_BF16;
    ordo_block_runner *half = runner_of(&job);
    reference r = reference_of(&job, half);
    run(half, ORDO_BLOCK_FUSED);
    check_y(half, &r, 0.006);
    job.precision = ORDO_PRECISION_F32;
    ordo_block_runner *whole = runner_of(&job);
    for (int i = 0; i < ORDO_BLOCK_DX; i++) { /* the same inputs and weights */
        float *values = calloc((size_t)r.count[i], sizeof *values);
        for (int64_t x = 0; x < r.count[i]; x++)
            values[x] = (float)r.in[i][x];
        CHECK_INT(ordo_block_write(whole, (ordo_block_tensor)i, values,
                                   (size_t)r.count[i] * sizeof *values),
                  ORDO_OK);
        free(values);
    }
    run(whole, ORDO_BLOCK_FUSED);
    for (int i = ORDO_BLOCK_DX; i <= ORDO_BLOCK_DWDOWN; i++) {
        int64_t count;
        double *a = as_doubles(half, (ordo_block_tensor)i, &count);
        double *b = as_doubles(whole, (ordo_block_tensor)i, &count);
        CHECK(relative_error(a, b, count) <= 0.02);
        free(a);
        free(b);
    }
    reference_free(&r);
    ordo_block_runner_destroy(half);
    ordo_block_runner_destroy(whole);
}

/* ---- times ---- */

TEST(modes_are_timed_by_turns)
{
    static const ordo_block_mode modes[] = { ORDO_BLOCK_NONE, ORDO_BLOCK_OVERLAPPED };
    ordo_block_job job = small_job();
    ordo_block_time times[2];
    ordo_block_runner *runner = runner_of(&job);
    CHECK_INT(ordo_block_measure(runner, modes, 2, 0.12, times), ORDO_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(times[i].samples >= 1 && times[i].passes >= times[i].samples);
        CHECK(times[i].fastest > 0 && times[i].fastest <= times[i].seconds);
        CHECK(times[i].seconds <= times[i].slowest);
        CHECK(times[i].watts < 0 && times[i].clock_ghz < 0); /* a host does not say */
    }
    CHECK_INT(ordo_block_measure(runner, modes, 2, 0, times), ORDO_OK);
    CHECK_INT(times[0].passes, 1);
    CHECK_INT(ordo_block_measure(runner, modes, 2, NAN, times), ORDO_ERR_ARGUMENT);
    ordo_block_runner_destroy(runner);
}

/* ---- refusals ---- */

static void refuses(const ordo_block_job *job, ordo_status status, const char *text)
{
    ordo_block_runner *runner = (ordo_block_runner *)&status;
    CHECK_REFUSED(ordo_block_runner_create(&runner, job), status, text);
    CHECK(runner == NULL);
}

#define REFUSES(status, text, ...)                                                                 \
    do {                                                                                           \
        ordo_block_job job = small_job();                                                          \
        __VA_ARGS__;                                                                               \
        refuses(&job, status, text);                                                               \
    } while (0)

TEST(bad_jobs_are_refused_by_name)
{
    REFUSES(ORDO_ERR_SHAPE, "heads 5: expected a divisor of embed 24", job.heads = 5);
    REFUSES(ORDO_ERR_SHAPE, "kv_heads 3: expected a divisor of heads 4", job.kv_heads = 3);
    REFUSES(ORDO_ERR_ARGUMENT, "seq 0", job.seq = 0);
    REFUSES(ORDO_ERR_ARGUMENT, "embed -1", job.embed = -1);
    REFUSES(ORDO_ERR_ARGUMENT, "dropout 1:", job.dropout = 1);
    REFUSES(ORDO_ERR_ARGUMENT, "dropout -0.5:", job.dropout = -0.5);
    REFUSES(ORDO_ERR_ARGUMENT, "dropout nan:", job.dropout = NAN);
    REFUSES(ORDO_ERR_ARGUMENT, "rounds 4", job.rounds = 4);
    REFUSES(ORDO_ERR_UNSUPPORTED, "dropout mode fused: on cuda bits of sliced with 3 rounds",
            job.rounds = 3, job.backend = ORDO_BACKEND_CUDA, job.precision = ORDO_PRECISION_BF16,
            job.mlp = 24, job.seq = 20);
    REFUSES(ORDO_ERR_ARGUMENT, "segments -1", job.segments = -1,
            job.modes = 1u << ORDO_BLOCK_PIPELINED);
    REFUSES(ORDO_ERR_ARGUMENT, "keep_bits_bytes 5: dropout mode pipelined in 2 segments",
            job.modes = 1u << ORDO_BLOCK_PIPELINED, job.limit_keep_bits = true,
            job.keep_bits_bytes = 5, job.seq = 100);
    REFUSES(ORDO_ERR_ARGUMENT, "segments 4", job.segments = 4);
    REFUSES(ORDO_ERR_ARGUMENT, "dropout 0", job.dropout = 0, job.modes = 1u << ORDO_BLOCK_FUSED);
    REFUSES(ORDO_ERR_ARGUMENT, "keep_bits_bytes 0: dropout mode", job.limit_keep_bits = true);
    REFUSES(ORDO_ERR_UNSUPPORTED, "precision fp8: backend cpu multiplies bf16 and f32",
            job.precision = ORDO_PRECISION_FP8);
    REFUSES(ORDO_ERR_UNSUPPORTED, "gemm cublaslt: backend cpu multiplies by ordo",
            job.gemm = ORDO_BLOCK_GEMM_CUBLASLT);
    REFUSES(ORDO_ERR_UNSUPPORTED, "dropout mode pipelined: bits of gemm cublaslt",
            job.backend = ORDO_BACKEND_CUDA, job.precision = ORDO_PRECISION_BF16, job.mlp = 24,
            job.seq = 20, job.gemm = ORDO_BLOCK_GEMM_CUBLASLT,
            job.modes = 1u << ORDO_BLOCK_PIPELINED);
    REFUSES(ORDO_ERR_UNSUPPORTED, "precision fp8: gemm ordo multiplies bf16",
            job.backend = ORDO_BACKEND_CUDA, job.precision = ORDO_PRECISION_FP8);
    REFUSES(ORDO_ERR_UNSUPPORTED, "sm_target and small_tiles", job.small_tiles = true);
    REFUSES(ORDO_ERR_ARGUMENT, "gemm 2", job.gemm = 2);
    REFUSES(ORDO_ERR_UNSUPPORTED, "not of compare", job.generator = ORDO_GENERATOR_COMPARE,
            job.modes = 1u << ORDO_BLOCK_PIPELINED);
    REFUSES(ORDO_ERR_UNSUPPORTED, "backend ref", job.backend = ORDO_BACKEND_REF);
    REFUSES(ORDO_ERR_ARGUMENT, "modes", job.modes = 1u << 9);
    REFUSES(ORDO_ERR_UNSUPPORTED, "precision f32: backend cuda", job.backend = ORDO_BACKEND_CUDA);
    REFUSES(ORDO_ERR_SHAPE, "the products of cuda need multiples of 8",
            job.backend = ORDO_BACKEND_CUDA, job.precision = ORDO_PRECISION_BF16);
    CHECK_INT(ordo_block_runner_create(NULL, NULL), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_block_forward(NULL, ORDO_BLOCK_NONE), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_block_backward(NULL), ORDO_ERR_ARGUMENT);
    ordo_block_runner_destroy(NULL);
}

/* Memory for the bits of one call is enough beside qkv, and for none in mode fused. */
TEST(the_memory_for_bits_decides_what_they_run_beside)
{
    ordo_block_job job = small_job();
    ordo_block_info info;
    ordo_block_runner *runner = runner_of(&job);
    CHECK_INT(ordo_block_query(runner, &info), ORDO_OK);
    CHECK_INT(info.beside, ORDO_BLOCK_BESIDE_ALL);
    CHECK_INT(info.bits_bytes, 2 * info.keep_bits_bytes);
    const uint64_t expected = run(runner, ORDO_BLOCK_OVERLAPPED);
    ordo_block_runner_destroy(runner);

    job.limit_keep_bits = true;
    job.keep_bits_bytes = info.keep_bits_bytes;
    runner = runner_of(&job);
    CHECK_INT(ordo_block_query(runner, &info), ORDO_OK);
    CHECK_INT(info.beside, ORDO_BLOCK_BESIDE_QKV);
    CHECK_INT(info.bits_bytes, info.keep_bits_bytes);
    CHECK(run(runner, ORDO_BLOCK_OVERLAPPED) == expected);
    ordo_block_runner_destroy(runner);

    job.beside = ORDO_BLOCK_BESIDE_MLP;
    refuses(&job, ORDO_ERR_ARGUMENT, "overlapped beside mlp");
    job.keep_bits_bytes = 0;
    job.beside = ORDO_BLOCK_BESIDE_DEFAULT;
    job.modes = 1u << ORDO_BLOCK_FUSED;
    runner = runner_of(&job);
    CHECK(run(runner, ORDO_BLOCK_FUSED) == expected);
    CHECK_REFUSED(ordo_block_forward(runner, ORDO_BLOCK_SEQUENTIAL), ORDO_ERR_ARGUMENT,
                  "mode sequential");
    ordo_block_runner_destroy(runner);
}

TEST(passes_and_copies_check_their_arguments)
{
    ordo_block_job job = small_job();
    ordo_block_runner *runner = runner_of(&job);
    float one;
    CHECK_REFUSED(ordo_block_backward(runner), ORDO_ERR_ARGUMENT, "no forward pass");
    CHECK_INT(ordo_block_read(runner, ORDO_BLOCK_Y, &one, sizeof one), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_block_write(runner, (ordo_block_tensor)99, &one, 4), ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_block_interfere(runner, 1, NULL), ORDO_ERR_UNSUPPORTED, "measured on cuda");
    CHECK_INT(ordo_block_trace_run(runner, NULL), ORDO_ERR_UNSUPPORTED);
    ordo_block_runner_destroy(runner);
    job.backward = false;
    job.bare = true;
    runner = runner_of(&job);
    CHECK_INT(ordo_block_forward(runner, ORDO_BLOCK_FUSED), ORDO_OK);
    CHECK_INT(ordo_block_backward(runner), ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_block_read(runner, ORDO_BLOCK_G1, &one, sizeof one), ORDO_ERR_ARGUMENT,
                  "has none");
    ordo_block_runner_destroy(runner);
}

CHECK_MAIN()
