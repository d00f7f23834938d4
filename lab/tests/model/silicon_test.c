/* silicon_test.c: what was measured on an H200 shows in the calibration of that name. */
#include "check.h"
#include "ordo/lab/model.h"

#include <string.h>

static ordo_machine *machine;

/* Limiters alone: every kind of attention takes its price. */
static void by_limiters(ordo_model *model)
{
    static const char *const passes[] = { "forward", "backward" };
    static const char *const dims[] = { "64", "96", "128", "192", "256", "576" };
    static const char *const keeps[] = { "plain", "given", "made" };
    for (int i = 0; i < 2 * 6 * 3; i++) {
        char name[64], start[80];
        snprintf(name, sizeof name, "%s_%s_%s", passes[i / 18], dims[i / 3 % 6], keeps[i % 3]);
        snprintf(start, sizeof start, "%s_start", name);
        CHECK_INT(ordo_model_set(model, name, 1), ORDO_OK);
        CHECK_INT(ordo_model_set(model, start, 0), ORDO_OK);
    }
}

static ordo_model *h200(bool burst)
{
    ordo_model *model = NULL;
    if (!machine)
        CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    CHECK_INT(ordo_model_create(&model, machine, ORDO_CALIBRATION_SILICON), ORDO_OK);
    by_limiters(model);
    if (burst)
        CHECK_INT(ordo_model_set(model, "steady", 0), ORDO_OK);
    return model;
}

static ordo_block_report price(const ordo_model *model, ordo_block block)
{
    ordo_block_report report = { 0 };
    if (ordo_model_block(model, &block, &report) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    return report;
}

static ordo_block block_8k(ordo_precision precision)
{
    ordo_block block = ORDO_BLOCK_INIT;
    block.precision = precision;
    block.seq = 8192;
    block.embed = 4096;
    return block;
}

static double rng_us(const ordo_model *model, int rounds, int bits, ordo_generator generator)
{
    ordo_kernel_time time = { 0 };
    const ordo_rng rng = { rounds, bits, generator };
    CHECK_INT(ordo_model_rng(model, &rng, 0x1p31, &time), ORDO_OK);
    CHECK_INT(time.limiter, ORDO_LIMIT_SLOT);
    return time.seconds * 1e6;
}

/* ALU, wide multiplications and uniform instructions share one slot of 64 lanes; 2^31 elements,
 * measured times less 9.5 us of launch and synchronisation. */
TEST(generators_share_a_slot)
{
    ordo_model *model = h200(true);
    CHECK_INT(ordo_model_set(model, "rng_start", 0), ORDO_OK);
    CHECK_NEAR(rng_us(model, 7, 32, ORDO_GENERATOR_COMPARE) / (1279 - 9.5), 1, 0.05);
    CHECK_NEAR(rng_us(model, 7, 8, ORDO_GENERATOR_COMPARE) / (780 - 9.5), 1, 0.05);
    CHECK_NEAR(rng_us(model, 7, 8, ORDO_GENERATOR_SWAR) / (354 - 9.5), 1, 0.05);
    CHECK_NEAR(rng_us(model, 7, 8, ORDO_GENERATOR_SLICED_ANY) / (247 - 9.5), 1, 0.05);
    CHECK_NEAR(rng_us(model, 10, 8, ORDO_GENERATOR_SLICED_ANY) / (350 - 9.5), 1, 0.05);
    /* libordo's own kernel has fewer instructions: 16384 rows of h200-prices.json, twice as many
     * elements. */
    CHECK_NEAR(rng_us(model, 7, 8, ORDO_GENERATOR_SLICED) / (406.1 / 2), 1, 0.02);
    /* Without the shared slot it would be the pipes: 1.5 to 1.8 times too fast. */
    CHECK_INT(ordo_model_set(model, "shared_slot", 0), ORDO_OK);
    ordo_kernel_time time;
    const ordo_rng rng = { 7, 32, ORDO_GENERATOR_COMPARE };
    CHECK_INT(ordo_model_rng(model, &rng, 0x1p31, &time), ORDO_OK);
    CHECK(1269.5 / (time.seconds * 1e6) > 1.2);
    ordo_model_destroy(model);
}

/* Bursts run at the burst clock, seconds of load at the power limit: 714 and 1270 TFLOP/s. */
TEST(power_is_the_roof)
{
    ordo_model *steady = h200(false), *burst = h200(true);
    const double flop = 24 * 8192.0 * 4096 * 4096;
    for (int i = 0; i < 2; i++) {
        const ordo_precision precision = i ? ORDO_PRECISION_FP8 : ORDO_PRECISION_BF16;
        const ordo_block_report slow = price(steady, block_8k(precision));
        const ordo_block_report fast = price(burst, block_8k(precision));
        CHECK_INT(slow.gemm[0].limiter, ORDO_LIMIT_POWER);
        CHECK_INT(fast.gemm[0].limiter, ORDO_LIMIT_MMA);
        CHECK(fast.gemm[0].by[ORDO_LIMIT_POWER] == 0);
        CHECK_NEAR(flop / slow.gemm_seconds * 1e-12 / (i ? 1270 : 714), 1, 0.02);
        CHECK(slow.gemm_seconds / fast.gemm_seconds > 1.1);
    }
    /* A board with more power is bound by its tensor cores again. */
    CHECK_INT(ordo_model_scale(steady, "power", 2), ORDO_OK);
    CHECK_INT(price(steady, block_8k(ORDO_PRECISION_BF16)).gemm[0].limiter, ORDO_LIMIT_MMA);
    ordo_model_destroy(steady);
    ordo_model_destroy(burst);
}

/* 168 registers x 384 threads leave less than a warp of 32 registers on each scheduler. */
TEST(registers_decide_residency)
{
    ordo_model *model = h200(true);
    const ordo_block_report apart = price(model, block_8k(ORDO_PRECISION_BF16));
    CHECK(!apart.coresident);
    /* A share of the bits runs beside other kernels, the rest between the GEMMs. */
    const double hidden = apart.rng.seconds - apart.exposed;
    CHECK_NEAR(hidden / apart.rng.seconds, 0.13, 1e-9);
    CHECK_NEAR(apart.mode[ORDO_DROPOUT_MODE_SEQUENTIAL] - apart.mode[ORDO_DROPOUT_MODE_OVERLAPPED],
               hidden, 1e-12);
    CHECK_INT(ordo_model_set(model, "gap_share", 0), ORDO_OK);
    const ordo_block_report behind = price(model, block_8k(ORDO_PRECISION_BF16));
    CHECK_NEAR(behind.mode[ORDO_DROPOUT_MODE_OVERLAPPED], behind.mode[ORDO_DROPOUT_MODE_SEQUENTIAL],
               1e-12);
    CHECK(behind.exposed == behind.rng.seconds);
    CHECK(behind.gemm_beside_rng == apart.gemm_beside_rng); /* there are GEMMs alone */
    CHECK(behind.gemm_beside_rng > behind.gemm_then_rng);
    /* Beside QKV alone there are no gaps, and attention waits for the bits. */
    CHECK_INT(ordo_model_set(model, "gap_share", 0.13), ORDO_OK);
    ordo_block block = block_8k(ORDO_PRECISION_BF16);
    block.beside = ORDO_BLOCK_BESIDE_QKV;
    const ordo_block_report qkv = price(model, block);
    CHECK_NEAR(qkv.mode[ORDO_DROPOUT_MODE_OVERLAPPED] - qkv.mode[ORDO_DROPOUT_MODE_SEQUENTIAL],
               27.2e-6, 1e-9);
    CHECK_INT(ordo_model_set(model, "gap_share", 0), ORDO_OK);
    /* One that is free to run on fills some of them, but less than the keep bits take. */
    CHECK_INT(ordo_model_set(model, "tail_share", 1), ORDO_OK);
    CHECK_INT(ordo_model_set(model, "fork_join", 0), ORDO_OK);
    const ordo_block_report filled = price(model, block_8k(ORDO_PRECISION_BF16));
    CHECK(filled.mode[ORDO_DROPOUT_MODE_OVERLAPPED] < filled.mode[ORDO_DROPOUT_MODE_SEQUENTIAL]);
    CHECK(filled.exposed > 0 && filled.exposed < filled.rng.seconds);
    CHECK_INT(ordo_model_set(model, "gemm_registers", 161), ORDO_OK);
    CHECK(!price(model, block_8k(ORDO_PRECISION_BF16)).coresident);
    CHECK_INT(ordo_model_set(model, "gemm_registers", 160), ORDO_OK);
    const ordo_block_report together = price(model, block_8k(ORDO_PRECISION_BF16));
    CHECK(together.coresident);
    /* Stolen tensor cycles make that the worse choice: 1305 against 1208 us were measured, beside a
     * kernel that only multiplies, by four warps per multiprocessor, which end slower. */
    CHECK_INT(ordo_model_set(model, "gemm_efficiency", 1), ORDO_OK);
    block.rng.generator = ORDO_GENERATOR_SLICED_ANY;
    const ordo_block_report measured = price(model, block);
    CHECK_NEAR(measured.gemm_then_rng, 1208e-6, 0.01 * 1208e-6);
    CHECK_NEAR(measured.gemm_beside_rng, 1305e-6, 0.05 * 1305e-6);
    CHECK(measured.mode[ORDO_DROPOUT_MODE_OVERLAPPED] >
          measured.mode[ORDO_DROPOUT_MODE_SEQUENTIAL]);
    CHECK_INT(measured.best, ORDO_DROPOUT_MODE_SEQUENTIAL);
    /* By f64 nothing is stolen. */
    CHECK(together.mode[ORDO_DROPOUT_MODE_OVERLAPPED] <
          together.mode[ORDO_DROPOUT_MODE_SEQUENTIAL]);
    ordo_model_destroy(model);
}

/* GEMMs of a block and keep bits of 2^31 elements, seconds of load, us: alone, one after the other,
 * and beside each other, as h200-calibrate.json has them: beside is slower than behind, by less
 * than measurements vary. */
TEST(beside_is_what_was_measured)
{
    static const struct {
        ordo_precision precision;
        double gemm, then, beside;
    } rows[] = {
        { ORDO_PRECISION_BF16, 4602.4, 4808.1, 4828.7 },
        { ORDO_PRECISION_FP8, 2586.1, 2790.1, 2823.9 },
    };
    ordo_model *model = h200(false);
    for (size_t i = 0; i < 2; i++) {
        ordo_block block = block_8k(rows[i].precision);
        block.rng.generator = ORDO_GENERATOR_SLICED_ANY;
        const ordo_block_report r = price(model, block);
        CHECK_NEAR(r.gemm_seconds * 1e6 / rows[i].gemm, 1, 0.02);
        CHECK_NEAR(r.gemm_then_rng * 1e6 / rows[i].then, 1, 0.02);
        CHECK_NEAR(r.gemm_beside_rng * 1e6 / rows[i].beside, 1, 0.02);
        CHECK_NEAR(r.gemm_beside_rng / r.gemm_then_rng, rows[i].beside / rows[i].then, 0.003);
    }
    ordo_model_destroy(model);
}

/* Sequential over overlapped, whole blocks of 8192 x 4096, as h200-block.json has them: a second
 * stream makes no difference, and the model says so. */
TEST(whole_blocks_are_what_was_measured)
{
    static const struct {
        ordo_precision precision;
        double measured;
    } rows[] = { { ORDO_PRECISION_BF16, 1.003 }, { ORDO_PRECISION_FP8, 0.999 } };
    ordo_model *model = NULL;
    CHECK_INT(ordo_model_create(&model, machine, ORDO_CALIBRATION_SILICON), ORDO_OK);
    for (size_t i = 0; i < 2; i++) {
        const ordo_block_report r = price(model, block_8k(rows[i].precision));
        CHECK_NEAR(r.overlapped_over_sequential, rows[i].measured, 0.02);
        CHECK_INT(r.best, ORDO_DROPOUT_MODE_SEQUENTIAL);
        CHECK(r.no_difference);
        CHECK_INT(r.training_best, ORDO_DROPOUT_MODE_SEQUENTIAL);
    }
    ordo_model_destroy(model);
}

/* In the other run, h200.json, generators never waited for a block, and filled the tails. */
TEST(tails_can_be_filled)
{
    static const struct {
        ordo_precision precision;
        double beside; /* over the GEMMs alone */
    } rows[] = { { ORDO_PRECISION_BF16, 5058.0 / 4991 }, { ORDO_PRECISION_FP8, 2783.0 / 2716 } };
    ordo_model *model = h200(false);
    CHECK_INT(ordo_model_set(model, "tail_share", 1), ORDO_OK);
    CHECK_INT(ordo_model_set(model, "fork_join", 0), ORDO_OK);
    for (size_t i = 0; i < 2; i++) {
        const ordo_block_report r = price(model, block_8k(rows[i].precision));
        CHECK_NEAR(r.gemm_beside_rng / r.gemm_seconds / rows[i].beside, 1, 0.03);
        CHECK(r.gemm_beside_rng < r.gemm_then_rng);
    }
    ordo_model_destroy(model);
}

/* A fused generator takes 5.5 tensor cycles a wide multiplication from its scheduler: 420 of a
 * 128 x 128 tile at 0.59 of them per score, 440 at the 0.625 of the kernel that was counted. */
TEST(wide_multiplications_steal)
{
    ordo_model *model = h200(true);
    const ordo_block block = block_8k(ORDO_PRECISION_BF16);
    const ordo_block_report with = price(model, block);
    CHECK_INT(ordo_model_set(model, "wide_steal", 0), ORDO_OK);
    const ordo_block_report without = price(model, block);
    const double stolen = with.attention_made.seconds - without.attention_made.seconds;
    const double tiles = 32.0 * 64 * 64;
    CHECK_NEAR(stolen * 132 * 1.58e9 / tiles, 16384 * 0.625 / 32 / 4 * 5.5, 1);
    ordo_model_destroy(model);
    /* Those of bits that outlast a GEMM take 21.8 % of its tensor cycles while it runs. */
    model = h200(true);
    CHECK_INT(ordo_model_set(model, "coresident", 1), ORDO_OK);
    CHECK_INT(ordo_model_set(model, "fork_join", 0), ORDO_OK);
    ordo_block long_bits = block;
    long_bits.beside = ORDO_BLOCK_BESIDE_QKV;
    long_bits.rng = (ordo_rng) { 7, 32, ORDO_GENERATOR_COMPARE };
    const ordo_block_report outlast = price(model, long_bits);
    CHECK_NEAR((outlast.gemm_beside_rng - outlast.exposed) / outlast.gemm_seconds, 1 / (1 - 0.218),
               1e-9);
    CHECK_NEAR(outlast.exposed / outlast.rng.seconds, 0.79, 0.01);
    ordo_model_destroy(model);
}

TEST(utilization_stretches_the_backward_pass)
{
    ordo_model *model = h200(true);
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    ordo_kernel_time full = { 0 }, part = { 0 };
    s.batch = 2;
    s.heads = 16;
    s.q_len = 8192;
    s.backward = true;
    CHECK_INT(ordo_model_attention(model, &s, &full), ORDO_OK);
    s.utilization = 0.8;
    CHECK_INT(ordo_model_attention(model, &s, &part), ORDO_OK);
    CHECK_NEAR(part.by[ORDO_LIMIT_MMA] * 0.8 / full.by[ORDO_LIMIT_MMA], 1, 1e-12);
    CHECK_NEAR(part.by[ORDO_LIMIT_HBM_READ], full.by[ORDO_LIMIT_HBM_READ], 0);
    CHECK(full.by[ORDO_LIMIT_L2_ADD] > 0);
    /* Five products: 563 TFLOP/s were measured. */
    CHECK_NEAR(10 * 2 * 16 * 8192.0 * 8192 * 128 / full.seconds * 1e-12 / 563, 1, 0.05);
    ordo_model_destroy(model);
}

/* Seconds of products and what they do not hide, of one head of n x n scores at head size 128. */
static double product_seconds(const ordo_model *model, bool backward, int64_t n)
{
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    ordo_kernel_time time = { 0 };
    s.batch = 1;
    s.heads = 1;
    s.q_len = n;
    s.backward = backward;
    CHECK_INT(ordo_model_attention(model, &s, &time), ORDO_OK);
    return time.by[ORDO_LIMIT_MMA];
}

/* The fitted constants of attention, as lab/docs/model.md states them: a pass takes `score`
 * clocks per score and `tile` clocks per tile of 128 rows or columns. Two lengths tell the two
 * apart, whatever the clock: t(n) = n^2 score + n / 128 tile. */
TEST(fitted_constants)
{
    static const struct {
        bool backward;
        double efficiency, exposed, tile;
    } fits[] = { { false, 0.984, 0.0352, 3620 }, { true, 0.72, 0.0279, 9879 } };
    ordo_model *model = h200(true);
    for (size_t i = 0; i < 2; i++) {
        const double flop = fits[i].backward ? 10 * 128 : 4 * 128;
        const double score = flop / (4096 * fits[i].efficiency) + fits[i].exposed;
        const double n = 1024, t1 = product_seconds(model, fits[i].backward, 1024);
        const double t2 = product_seconds(model, fits[i].backward, 2048);
        const double by_score = (t2 - 2 * t1) / (2 * n * n), by_tile = (t1 - n * n * by_score) / 8;
        CHECK_NEAR(by_tile / by_score / (fits[i].tile / score), 1, 0.005);
    }
    ordo_model_destroy(model);
}

/* Each pass, class of head sizes and source of keep bits has a constant of its own, which
 * multiplies its time and no other, and one that adds a time for every 128 rows of a head. */
TEST(kinds_of_attention_have_factors)
{
    static const struct {
        int64_t dim;
        const char *name;
    } sizes[] = { { 40, "64" },   { 64, "64" },   { 65, "96" },   { 96, "96" },
                  { 97, "128" },  { 128, "128" }, { 192, "192" }, { 193, "256" },
                  { 256, "256" }, { 264, "576" }, { 512, "576" } };
    static const char *const keeps[] = { "plain", "given", "made" };
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    s.batch = 4;
    s.heads = 8;
    s.q_len = 4096;
    for (int i = 0; i < 11 * 3 * 2; i++) {
        char expected[64];
        const char *name = NULL, *other = NULL;
        ordo_kernel_time plain, scaled, same;
        ordo_model *model = h200(true);
        s.head_dim = sizes[i % 11].dim;
        s.keep = (ordo_keep_source)(i / 11 % 3);
        s.backward = i >= 33;
        snprintf(expected, sizeof expected, "%s_%s_%s", s.backward ? "backward" : "forward",
                 sizes[i % 11].name, keeps[s.keep]);
        CHECK_INT(ordo_model_attention_constant(model, &s, &name), ORDO_OK);
        CHECK_TEXT(name, expected);
        CHECK_INT(ordo_model_set(model, "launch", 0), ORDO_OK);
        CHECK_INT(ordo_model_attention(model, &s, &plain), ORDO_OK);
        CHECK_INT(ordo_model_set(model, name, 1.5), ORDO_OK);
        CHECK_INT(ordo_model_attention(model, &s, &scaled), ORDO_OK);
        CHECK_NEAR(scaled.seconds / plain.seconds, 1.5, 1e-12);
        s.backward = !s.backward;
        CHECK_INT(ordo_model_attention_constant(model, &s, &other), ORDO_OK);
        CHECK_INT(ordo_model_attention(model, &s, &plain), ORDO_OK);
        CHECK_INT(ordo_model_set(model, name, 1), ORDO_OK);
        CHECK_INT(ordo_model_attention(model, &s, &same), ORDO_OK);
        CHECK(strcmp(name, other) != 0 && same.seconds == plain.seconds);
        snprintf(expected, sizeof expected, "%s_start", other);
        CHECK_INT(ordo_model_set(model, expected, 1000), ORDO_OK); /* 4 x 8 heads, 32 tiles */
        CHECK_INT(ordo_model_attention(model, &s, &same), ORDO_OK);
        CHECK_NEAR(same.seconds - plain.seconds, 4 * 8 * 32 * 1e-6, 1e-12);
        ordo_model_destroy(model);
    }
}

/* The tiles of scores that are partial at the edge of a mask are those of the kernels: by phases
 * 128 x 256.
 */
TEST(partial_tiles_are_those_of_the_kernels)
{
    static const struct {
        int64_t dim, bq, bk;
        bool backward;
        ordo_keep_source keep;
    } rows[] = {
        { 64, 192, 128, false, ORDO_KEEP_NONE },  { 128, 128, 128, false, ORDO_KEEP_NONE },
        { 256, 128, 64, false, ORDO_KEEP_GIVEN }, { 512, 128, 256, false, ORDO_KEEP_GIVEN },
        { 128, 64, 128, true, ORDO_KEEP_NONE },   { 256, 128, 256, true, ORDO_KEEP_NONE },
        { 256, 128, 256, true, ORDO_KEEP_GIVEN }, { 512, 128, 256, true, ORDO_KEEP_GIVEN }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ordo_model *model = h200(true);
        ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
        ordo_kernel_time full, causal;
        double live = 0;
        s.batch = 2;
        s.heads = 4;
        s.q_len = s.kv_len = 1536;
        s.head_dim = rows[i].dim;
        s.backward = rows[i].backward;
        s.keep = rows[i].keep;
        CHECK_INT(ordo_model_attention(model, &s, &full), ORDO_OK);
        s.causal = true;
        CHECK_INT(ordo_model_attention(model, &s, &causal), ORDO_OK);
        for (int64_t row = rows[i].bq; row <= 1536; row += rows[i].bq) {
            const int64_t tiles = (row + rows[i].bk - 1) / rows[i].bk;
            live += (double)(rows[i].bq * tiles * rows[i].bk);
        }
        CHECK_NEAR(causal.by[ORDO_LIMIT_ALU] / full.by[ORDO_LIMIT_ALU], live / (1536.0 * 1536),
                   1e-9);
        ordo_model_destroy(model);
    }
}

/* Ranks that share heads or rows each hold their part of the bits and of the work. */
TEST(shards_divide_the_work)
{
    ordo_model *model = h200(true);
    ordo_block block = block_8k(ORDO_PRECISION_BF16);
    const ordo_block_report whole = price(model, block);
    block.tensor_parallel = 4;
    const ordo_block_report heads = price(model, block);
    block.tensor_parallel = 1;
    block.sequence_parallel = 4;
    const ordo_block_report rows = price(model, block);
    CHECK_INT(heads.heads, whole.heads / 4);
    CHECK_NEAR(heads.elements * 4, whole.elements, 0);
    CHECK_NEAR(rows.elements * 4, whole.elements, 0);
    CHECK_NEAR(heads.keep_bits_bytes[ORDO_DROPOUT_MODE_SEQUENTIAL] * 4,
               whole.keep_bits_bytes[ORDO_DROPOUT_MODE_SEQUENTIAL], 0);
    CHECK_NEAR(rows.keep_bits_bytes[ORDO_DROPOUT_MODE_SEQUENTIAL] * 4,
               whole.keep_bits_bytes[ORDO_DROPOUT_MODE_SEQUENTIAL], 0);
    CHECK_NEAR(rows.keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED] * 4,
               whole.keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED], 0);
    CHECK_NEAR(heads.gemm_seconds * 4 / whole.gemm_seconds, 1, 0.01);
    CHECK_NEAR(rows.gemm_seconds * 4 / whole.gemm_seconds, 1, 0.01);
    CHECK(heads.communication_seconds > 0 && rows.communication_seconds > 0);
    CHECK(whole.communication_seconds == 0);
    ordo_model_destroy(model);
}

TEST(causal_masks_halve_scores)
{
    ordo_model *model = h200(true);
    ordo_block block = block_8k(ORDO_PRECISION_BF16);
    const ordo_block_report full = price(model, block);
    block.causal = true;
    const ordo_block_report causal = price(model, block);
    CHECK_NEAR(causal.elements / full.elements, (64 + 1) / 128.0, 1e-12); /* 64 tiles a side */
    /* In one run 0.1565 and 0.2416 ms: lines of unequal length end unequally. */
    CHECK_NEAR(causal.rng.seconds / full.rng.seconds / (0.1565 / 0.2416), 1, 0.03);
    CHECK_NEAR(causal.gemm_seconds, full.gemm_seconds, 0);
    ordo_model_destroy(model);
}

/* More segments need less memory; bits that no memory holds leave fused or pipelined. */
TEST(pipelines_save_memory)
{
    ordo_model *model = h200(false);
    ordo_block block = block_8k(ORDO_PRECISION_BF16);
    block.segments = 4;
    const ordo_block_report four = price(model, block);
    block.segments = 16;
    const ordo_block_report sixteen = price(model, block);
    CHECK_NEAR(sixteen.keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED] * 4,
               four.keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED], 0);
    CHECK_NEAR(four.keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED] * 4,
               four.keep_bits_bytes[ORDO_DROPOUT_MODE_OVERLAPPED], 0);
    CHECK(sixteen.mode[ORDO_DROPOUT_MODE_PIPELINED] > four.mode[ORDO_DROPOUT_MODE_PIPELINED]);
    CHECK_INT(ordo_model_set(model, "memory", 1e6), ORDO_OK);
    const ordo_block_report small = price(model, block);
    CHECK(!small.keep_bits_fit);
    CHECK(small.best == ORDO_DROPOUT_MODE_FUSED || small.best == ORDO_DROPOUT_MODE_PIPELINED);
    CHECK_INT(small.training_best, ORDO_DROPOUT_MODE_FUSED);
    ordo_model_destroy(model);
}

TEST(whole_waves_cost)
{
    ordo_model *model = h200(true);
    ordo_gemm gemm = ORDO_GEMM_INIT;
    ordo_kernel_time share = { 0 }, whole = { 0 };
    gemm.m = 8192;
    gemm.n = 4096;
    gemm.k = 4096;
    CHECK_INT(ordo_model_gemm(model, &gemm, &share), ORDO_OK);
    CHECK_INT(ordo_model_set(model, "whole_waves", 1), ORDO_OK);
    CHECK_INT(ordo_model_gemm(model, &gemm, &whole), ORDO_OK);
    /* 64 x 16 tiles of 128 x 256 on 132 workers: 8 waves instead of 7.76. */
    CHECK_NEAR(whole.by[ORDO_LIMIT_MMA] / share.by[ORDO_LIMIT_MMA], 8 / (1024 / 132.0), 1e-12);
    ordo_model_destroy(model);
}

static ordo_kernel_time attention_time(const ordo_model *model, bool backward,
                                       ordo_keep_source drop)
{
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    ordo_kernel_time time = { 0 };
    s.batch = 1;
    s.heads = 32;
    s.q_len = 8192;
    s.backward = backward;
    s.keep = drop;
    CHECK_INT(ordo_model_attention(model, &s, &time), ORDO_OK);
    return time;
}

/* Bytes an SM and tile at head size 128, as the kernels' products, copies and staging add up; at
 * 128 a clock they stay behind the products, until shared memory is slower or the products faster.
 */
TEST(shared_memory_is_counted)
{
    ordo_model *model = h200(true);
    const double scores = 32.0 * 8192 * 8192, clk = 132 * 1.58e9, clk_backward = 132 * 1.55e9;
    const double forward = attention_time(model, false, ORDO_KEEP_NONE).by[ORDO_LIMIT_SHARED];
    const double products = 2 * 8 * (2048 + 4096) + 2 * 8 * 4096, copies = 2 * 32768;
    CHECK_NEAR(forward * clk * 128 / scores, (products + copies) / (128 * 128), 1e-9);

    const double backward = attention_time(model, true, ORDO_KEEP_NONE).by[ORDO_LIMIT_SHARED];
    const double both = 3 * 2 * 8 * (2048 + 2048), one = 2 * 2 * 4 * 4096; /* S dP dQ; dV dK */
    const double in = 2 * 64 * 128 * 2, ds = 64 * 128 * 2, dq = 2 * 64 * 128 * 4;
    const double stats = 512 + 8 * 512; /* lse, delta: in once, out to 8 warps */
    const double bytes = both + one + in + ds + dq + stats;
    CHECK_NEAR(backward * clk_backward * 128 / scores, bytes / (64 * 128), 1e-9);
    const double bits = attention_time(model, true, ORDO_KEEP_GIVEN).by[ORDO_LIMIT_SHARED];
    CHECK_NEAR((bits - backward) * clk_backward * 128 / scores, (1024 + 8 * 1024) / (64 * 128.0),
               1e-9);

    /* 128 x 256 out of shared memory by 64 x 256: as many bytes as there are, at full rate. */
    ordo_gemm gemm = ORDO_GEMM_INIT;
    ordo_kernel_time time = { 0 };
    gemm.m = gemm.n = gemm.k = 8192;
    CHECK_INT(ordo_model_gemm(model, &gemm, &time), ORDO_OK);
    CHECK_NEAR(time.by[ORDO_LIMIT_SHARED] / time.by[ORDO_LIMIT_MMA], 0.946, 1e-9);
    CHECK_INT(time.limiter, ORDO_LIMIT_MMA);
    CHECK_INT(ordo_model_scale(model, "shared", 0.5), ORDO_OK);
    CHECK_INT(ordo_model_gemm(model, &gemm, &time), ORDO_OK);
    CHECK_INT(time.limiter, ORDO_LIMIT_SHARED);
    CHECK_INT(attention_time(model, true, ORDO_KEEP_NONE).limiter, ORDO_LIMIT_SHARED);
    ordo_model_destroy(model);
}

/* Attention that is given the bits reads them: one per score, beside Q, K and V of 16 bits. */
TEST(given_bits_are_read)
{
    ordo_model *model = h200(true);
    const double none = attention_time(model, false, ORDO_KEEP_NONE).by[ORDO_LIMIT_HBM_READ];
    const double given = attention_time(model, false, ORDO_KEEP_GIVEN).by[ORDO_LIMIT_HBM_READ];
    const double inputs = 3 * 2 * 32.0 * 8192 * 128, bits = 32.0 * 8192 * 8192 / 8;
    CHECK_NEAR(given / none, (inputs + bits) / inputs, 1e-12);
    ordo_model_destroy(model);
}

/* Two norms, two sums, an activation; in fp8 the inputs of the four GEMMs, seven widths in all, are
 * read once more and written with half of the bytes. */
TEST(fp8_quantises_its_inputs)
{
    ordo_model *model = h200(false);
    const double unit = 2.0 * 8192 * 4096;
    CHECK_INT(ordo_model_set(model, "launch", 0), ORDO_OK);
    ordo_kernel_time bf16 = { 0 }, fp8 = { 0 };
    CHECK_INT(ordo_model_memory(model, 10 * unit, 8 * unit, &bf16), ORDO_OK);
    CHECK_INT(ordo_model_memory(model, 17 * unit, 11.5 * unit, &fp8), ORDO_OK);
    CHECK_NEAR(price(model, block_8k(ORDO_PRECISION_BF16)).memory_seconds / bf16.seconds, 1, 1e-12);
    CHECK_NEAR(price(model, block_8k(ORDO_PRECISION_FP8)).memory_seconds / fp8.seconds, 1, 1e-12);
    ordo_model_destroy(model);
}

/* ordo multiplies weights in fp8, but attends in bf16; the paper's calibration does not. */
TEST(blocks_in_fp8_attend_in_bf16)
{
    ordo_model *model = h200(false), *paper = NULL;
    const ordo_block_report fp8 = price(model, block_8k(ORDO_PRECISION_FP8));
    const ordo_block_report bf16 = price(model, block_8k(ORDO_PRECISION_BF16));
    CHECK(fp8.attention.seconds == bf16.attention.seconds);
    CHECK(fp8.attention_made.seconds == bf16.attention_made.seconds);
    CHECK(fp8.attention_backward.seconds == bf16.attention_backward.seconds);
    CHECK(fp8.gemm[0].seconds < 0.7 * bf16.gemm[0].seconds);
    CHECK_INT(ordo_model_create(&paper, machine, ORDO_CALIBRATION_PAPER), ORDO_OK);
    CHECK(price(paper, block_8k(ORDO_PRECISION_FP8)).attention.seconds <
          price(paper, block_8k(ORDO_PRECISION_BF16)).attention.seconds);
    ordo_model_destroy(paper);
    ordo_model_destroy(model);
}

CHECK_MAIN()
