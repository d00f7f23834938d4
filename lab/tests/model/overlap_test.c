/* overlap_test.c: lists of kernels on streams, and the place that is found for keep bits. */
#include "check.h"
#include "ordo/lab/model.h"

static ordo_machine *machine;

static ordo_model *model_of(const char *name, ordo_calibration calibration)
{
    ordo_model *model = NULL;
    ordo_machine_destroy(machine);
    machine = NULL;
    CHECK_INT(ordo_machine_create(&machine, name), ORDO_OK);
    CHECK_INT(ordo_model_create(&model, machine, calibration), ORDO_OK);
    return model;
}

static ordo_operator measured(double us, int resource, double share, int64_t stream)
{
    ordo_operator o = { .kind = ORDO_OPERATOR_MEASURED, .seconds = us * 1e-6, .stream = stream };
    o.use[resource] = share;
    return o;
}

static ordo_operator gemm_of(ordo_precision precision, int64_t m, int64_t n, int64_t k)
{
    ordo_operator o = { .kind = ORDO_OPERATOR_GEMM, .gemm = ORDO_GEMM_INIT };
    o.gemm.precision = precision;
    o.gemm.m = m;
    o.gemm.n = n;
    o.gemm.k = k;
    return o;
}

static ordo_operator bits_of(ordo_rng rng, double elements)
{
    return (ordo_operator) { .kind = ORDO_OPERATOR_RNG, .rng = rng, .elements = elements };
}

static ordo_operator attention_of(ordo_precision precision, const int64_t *after)
{
    ordo_operator o = { .kind = ORDO_OPERATOR_ATTENTION,
                        .attention = ORDO_ATTENTION_SHAPE_INIT,
                        .after = after,
                        .after_count = 1 };
    o.attention.precision = precision;
    o.attention.batch = 1;
    o.attention.heads = 32;
    o.attention.q_len = 8192;
    o.attention.keep = ORDO_KEEP_GIVEN;
    return o;
}

static ordo_operator_time times[ORDO_OPERATORS_MOST];

static ordo_overlap_report place(const ordo_model *model, const ordo_operator *list, size_t count)
{
    ordo_overlap_report report = { 0 };
    if (ordo_model_overlap(model, list, count, times, &report) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    return report;
}

/* One GEMM of the paper's block and its attention are such a list: the same times in all three
 * modes. */
TEST(a_block_is_a_list)
{
    static const int64_t after[] = { 1 };
    const ordo_rng rng = { 7, 32, ORDO_GENERATOR_COMPARE };
    ordo_model *model = model_of("h100", ORDO_CALIBRATION_PAPER);
    for (int64_t seq = 2048; seq <= 32768; seq *= 4) {
        ordo_block block = ORDO_BLOCK_INIT;
        ordo_block_report whole = { 0 };
        block.precision = ORDO_PRECISION_FP8;
        block.seq = seq;
        block.embed = 4096;
        block.rng = rng;
        block.beside = ORDO_BLOCK_BESIDE_QKV;
        CHECK_INT(ordo_model_block(model, &block, &whole), ORDO_OK);
        ordo_operator list[] = { gemm_of(ORDO_PRECISION_FP8, seq, 3 * 4096, 4096),
                                 bits_of(rng, 32.0 * (double)seq * (double)seq),
                                 attention_of(ORDO_PRECISION_FP8, after) };
        list[2].attention.q_len = seq;
        const ordo_overlap_report r = place(model, list, 3);
        const double given = whole.attention_given.seconds;
        const double fused = whole.gemm_seconds + whole.attention_made.seconds;
        CHECK_NEAR(r.in_line / (whole.gemm_then_rng + given), 1, 1e-9);
        /* A block's GEMM is slowed to its end, a list's while the bits are made. */
        CHECK_NEAR(times[0].beside_seconds / (whole.gemm_beside_rng + given), 1,
                   whole.exposed > 0 ? 1e-9 : 0.005);
        CHECK_NEAR(r.fused / fused, 1, 1e-9);
        CHECK_INT(r.mode, whole.gemm_beside_rng + given < fused ? ORDO_DROPOUT_MODE_OVERLAPPED
                                                                : ORDO_DROPOUT_MODE_FUSED);
    }
    ordo_model_destroy(model);
}

/* On silicon products leave no room: beside them is behind them, and costs a second stream. How
 * much of the bits a kernel hides that only moves bytes is gap_share. */
TEST(memory_hides_what_products_do_not)
{
    static const int64_t after[] = { 2 };
    ordo_model *model = model_of("h200", ORDO_CALIBRATION_SILICON);
    ordo_operator moved = { .kind = ORDO_OPERATOR_MEMORY, .read_bytes = 1e9, .write_bytes = 1e9 };
    const ordo_operator list[] = { gemm_of(ORDO_PRECISION_BF16, 8192, 4096, 4096), moved,
                                   bits_of((ordo_rng) { 0 }, 0x1p31),
                                   attention_of(ORDO_PRECISION_BF16, after) };
    CHECK_INT(place(model, list, 4).mode, ORDO_DROPOUT_MODE_SEQUENTIAL);
    CHECK_INT(ordo_model_set(model, "gap_share", 1), ORDO_OK);
    const ordo_overlap_report r = place(model, list, 4);
    CHECK_NEAR(r.in_line, times[0].seconds + times[1].seconds + times[2].seconds + times[3].seconds,
               1e-12);
    CHECK(times[1].seconds > times[2].seconds + 27.2e-6);
    /* Less what both need of the memory: the bits are written. */
    CHECK(times[1].beside_seconds > r.in_line - times[2].seconds);
    CHECK(times[1].beside_seconds < r.in_line - times[2].seconds / 2);
    CHECK_INT(r.mode, ORDO_DROPOUT_MODE_OVERLAPPED);
    CHECK_INT(r.beside, 1);
    CHECK_NEAR(times[2].start, times[0].seconds, 1e-12);
    CHECK(r.fused > r.in_line && times[3].beside_seconds == 0 && times[2].beside_seconds == 0);

    const int64_t behind[] = { 1 };
    const ordo_operator products[] = { list[0], list[2],
                                       attention_of(ORDO_PRECISION_BF16, behind) };
    const ordo_overlap_report p = place(model, products, 3);
    CHECK_NEAR(times[0].beside_seconds, p.in_line + 27.2e-6, 1e-12);
    CHECK_INT(p.mode, ORDO_DROPOUT_MODE_SEQUENTIAL);
    CHECK_INT(p.beside, -1);
    ordo_model_destroy(model);
}

/* Two streams share a resource that both need more than half of; others run at full speed. */
TEST(resources_are_shared)
{
    static const int64_t after[] = { 2 };
    ordo_model *model = model_of("h200", ORDO_CALIBRATION_SILICON);
    ordo_operator list[] = { measured(100, ORDO_RESOURCE_MEMORY, 0.7, 0),
                             measured(50, ORDO_RESOURCE_MEMORY, 0.7, 1),
                             bits_of((ordo_rng) { 0 }, 0x1p20),
                             measured(10, ORDO_RESOURCE_TENSOR, 1, 0) };
    list[3].after = after;
    list[3].after_count = 1;
    CHECK_INT(ordo_model_set(model, "rng_start", 0), ORDO_OK); /* bits that take almost no time */
    (void)place(model, list, 4);
    CHECK_NEAR(times[1].end, 70e-6, 1e-12); /* 50 us at 1 / 1.4 of the speed */
    CHECK_NEAR(times[0].end, 120e-6, 1e-12);
    list[1] = measured(50, ORDO_RESOURCE_LINK, 1, 1);
    (void)place(model, list, 4);
    CHECK_NEAR(times[1].end, 50e-6, 1e-12);
    CHECK_NEAR(times[0].end, 100e-6, 1e-12);
    /* So few bits make no difference wherever they are. */
    list[0].seconds = 1;
    const ordo_overlap_report r = place(model, list, 4);
    CHECK(r.beside >= 0 ? r.no_difference && r.mode == ORDO_DROPOUT_MODE_SEQUENTIAL : 1);
    ordo_operator reduce = { .kind = ORDO_OPERATOR_ALL_REDUCE, .read_bytes = 1e8, .ranks = 8 };
    list[0] = reduce;
    (void)place(model, list, 4);
    CHECK_NEAR(times[0].seconds / (2 * 7.0 / 8 * 1e8 / 450e9), 1, 1e-9);
    ordo_model_destroy(model);
}

static void refuse(const ordo_model *model, const ordo_operator *list, size_t count,
                   const char *message)
{
    ordo_overlap_report report = { .beside = 77 };
    CHECK_INT(ordo_model_overlap(model, list, count, times, &report), ORDO_ERR_ARGUMENT);
    CHECK_HAS(ordo_last_error(), message);
    CHECK_INT(report.beside, 77);
}

TEST(bad_lists_are_refused)
{
    static const int64_t first[] = { 0 }, second[] = { 1 }, far[] = { 9 };
    ordo_model *model = model_of("h200", ORDO_CALIBRATION_SILICON);
    const ordo_operator bits = bits_of((ordo_rng) { 0 }, 0x1p20);
    const ordo_operator attention = attention_of(ORDO_PRECISION_BF16, first);
    ordo_operator list[3] = { bits, attention, attention };
    refuse(model, list, 0, "count 0: expected 1..256");
    refuse(model, list + 1, 1, "after 0: expected another");
    list[1].after_count = list[2].after_count = 0;
    refuse(model, list, 3, "expected a kernel after it");
    refuse(model, list + 1, 2, "0 kernels make keep bits: expected one");
    list[1] = list[2] = bits;
    refuse(model, list, 3, "3 kernels make keep bits: expected one");
    list[1] = attention;
    list[2] = attention;
    list[2].after = far;
    refuse(model, list, 3, "after 9: expected another of 0..2");
    list[2] = attention;
    list[0].after = second;
    list[0].after_count = 1;
    refuse(model, list, 3, "in a cycle");
    list[0] = bits;
    list[2] = measured(10, ORDO_RESOURCE_MEMORY, 1.5, 0);
    refuse(model, list, 3, "use 1.5: expected 0 to 1");
    list[2] = measured(0, ORDO_RESOURCE_MEMORY, 1, 0);
    refuse(model, list, 3, "kernel 2 (): seconds 0: expected the time");
    list[2] = gemm_of(ORDO_PRECISION_BF16, 0, 1, 1);
    list[2].name = "up";
    refuse(model, list, 3, "kernel 2 (up): m 0: expected 1..");
    ordo_overlap_report report;
    CHECK_INT(ordo_model_overlap(NULL, list, 3, times, &report), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_overlap(model, list, 3, NULL, &report), ORDO_ERR_ARGUMENT);
    ordo_model_destroy(model);
}

/* Any two kernels: what shares nothing runs at the same time, products share nothing with products,
 * and bits beside a product are what the list says of them. */
TEST(any_pair)
{
    const ordo_rng rng = { 7, 32, ORDO_GENERATOR_COMPARE };
    ordo_model *model = model_of("h100", ORDO_CALIBRATION_PAPER);
    CHECK_INT(ordo_model_set(model, "fork_join", 1000), ORDO_OK);
    const ordo_operator gemm = gemm_of(ORDO_PRECISION_FP8, 8192, 12288, 4096);
    const ordo_operator bits = bits_of(rng, 1e8);
    const ordo_operator link = { .kind = ORDO_OPERATOR_MEASURED,
                                 .seconds = 1e-4,
                                 .use = { [ORDO_RESOURCE_LINK] = 1 } };
    const ordo_operator half = { .kind = ORDO_OPERATOR_MEASURED,
                                 .seconds = 2e-4,
                                 .use = { [ORDO_RESOURCE_MEMORY] = 0.75 } };
    ordo_pair_report r = { 0 };
    CHECK_INT(ordo_model_pair(model, &gemm, &link, &r), ORDO_OK);
    CHECK_NEAR(r.in_turn, r.first + 1e-4, 1e-15);
    CHECK_NEAR(r.together, fmax(r.first, 1e-4) + 1e-6, 1e-12);
    CHECK(!r.no_difference);
    CHECK_INT(ordo_model_pair(model, &gemm, &gemm, &r), ORDO_OK);
    CHECK_NEAR(r.together, 2 * r.first + 1e-6, 1e-12);
    CHECK(r.no_difference);
    CHECK_INT(ordo_model_pair(model, &half, &half, &r), ORDO_OK); /* 1.5 of the memory */
    CHECK_NEAR(r.together, 3e-4 + 1e-6, 1e-12);
    CHECK_INT(ordo_model_pair(model, &gemm, &bits, &r), ORDO_OK);
    CHECK(r.together < r.in_turn && r.together > fmax(r.first, r.second));
    CHECK_INT(ordo_model_pair(model, &gemm, NULL, &r), ORDO_ERR_ARGUMENT);
    CHECK_INT(
        ordo_model_pair(model, &gemm, &(ordo_operator) { .kind = ORDO_OPERATOR_MEASURED }, &r),
        ORDO_ERR_ARGUMENT);
    CHECK_HAS(ordo_last_error(), "expected the time of a measured kernel");
    ordo_model_destroy(model);
    ordo_machine_destroy(machine);
}

CHECK_MAIN()
