/* model_test.c: the public face of the model: what it lists, what it takes, what it refuses. */
#include "check.h"
#include "ordo/lab.h"

static ordo_machine *machine_of(const char *name)
{
    ordo_machine *machine = NULL;
    CHECK_INT(ordo_machine_create(&machine, name), ORDO_OK);
    return machine;
}

static ordo_model *model_of(const ordo_machine *machine, ordo_calibration calibration)
{
    ordo_model *model = NULL;
    if (ordo_model_create(&model, machine, calibration) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    return model;
}

TEST(every_machine_under_every_calibration)
{
    const char *name;
    for (size_t i = 0; (name = ordo_machine_builtin(i)) != NULL; i++) {
        ordo_machine *machine = machine_of(name);
        const bool cpu = ordo_machine_family_of(machine) == ORDO_MACHINE_CPU;
        const bool npu = ordo_machine_family_of(machine) == ORDO_MACHINE_NPU;
        for (int c = 0; c < ORDO_CALIBRATIONS; c++) {
            ordo_model *model = NULL;
            ordo_block block = ORDO_BLOCK_INIT;
            ordo_block_report report;
            const bool refused = npu || (cpu && c == ORDO_CALIBRATION_PAPER);
            CHECK_INT(ordo_model_create(&model, machine, (ordo_calibration)c),
                      refused ? ORDO_ERR_UNSUPPORTED : ORDO_OK);
            if (refused)
                continue;
            block.precision = cpu ? ORDO_PRECISION_F32 : ORDO_PRECISION_BF16;
            block.seq = 4096;
            block.embed = 4096;
            CHECK_INT(ordo_model_block(model, &block, &report), ORDO_OK);
            CHECK(report.none > 0 && report.none <= report.mode[report.best]);
            for (int m = 0; m < ORDO_DROPOUT_MODES; m++)
                CHECK(isfinite(report.mode[m]) && report.mode[m] > 0);
            ordo_model_destroy(model);
        }
        ordo_machine_destroy(machine);
    }
}

/* Every constant has a name of its own, a kind, a source and something to say. */
TEST(constants_are_traceable)
{
    ordo_machine *machine = machine_of("h200");
    for (int c = 0; c < ORDO_CALIBRATIONS; c++) {
        ordo_model *model = model_of(machine, (ordo_calibration)c);
        ordo_model_constant a, b;
        for (size_t i = 0; i < ordo_model_constant_count(); i++) {
            CHECK_INT(ordo_model_constant_at(model, i, &a), ORDO_OK);
            CHECK(strlen(a.name) > 0 && strlen(a.source) > 3 && strlen(a.about) > 3);
            CHECK(strcmp(a.kind, "physical") == 0 || strcmp(a.kind, "counted") == 0 ||
                  strcmp(a.kind, "fitted") == 0 || strcmp(a.kind, "choice") == 0);
            CHECK(!a.changed && isfinite(a.value));
            for (size_t k = 0; k < i; k++) {
                CHECK_INT(ordo_model_constant_at(model, k, &b), ORDO_OK);
                CHECK(strcmp(a.name, b.name) != 0);
            }
        }
        CHECK_INT(ordo_model_constant_at(model, ordo_model_constant_count(), &a),
                  ORDO_ERR_ARGUMENT);
        ordo_model_destroy(model);
    }
    for (size_t i = 0; i < ordo_kernel_counts_count(); i++) {
        const ordo_kernel_counts *k = ordo_kernel_counts_at(i);
        CHECK(k->issue > 0 && strlen(k->source) > 10);
        CHECK(strcmp(k->kind, "counted") == 0 || strcmp(k->kind, "fitted") == 0);
    }
    CHECK(ordo_kernel_counts_at(ordo_kernel_counts_count()) == NULL);
    ordo_machine_destroy(machine);
}

TEST(constants_can_be_changed)
{
    ordo_machine *machine = machine_of("h100");
    ordo_model *model = model_of(machine, ORDO_CALIBRATION_PAPER);
    ordo_gemm gemm = ORDO_GEMM_INIT;
    ordo_kernel_time before, after;
    gemm.m = gemm.n = gemm.k = 8192;
    CHECK_INT(ordo_model_gemm(model, &gemm, &before), ORDO_OK);
    CHECK_INT(ordo_model_scale(model, "tensor", 2), ORDO_OK);
    CHECK_INT(ordo_model_gemm(model, &gemm, &after), ORDO_OK);
    CHECK_NEAR(after.by[ORDO_LIMIT_MMA] * 2, before.by[ORDO_LIMIT_MMA], 1e-15);
    CHECK_REFUSED(ordo_model_set(model, "tensor", 4096), ORDO_ERR_ARGUMENT, "expected a factor");
    CHECK_REFUSED(ordo_model_set(model, "gemm_eficiency", 0.5), ORDO_ERR_ARGUMENT,
                  "did you mean \"gemm_efficiency\"?");
    CHECK_INT(ordo_model_set(model, "zzz", 0.5), ORDO_ERR_ARGUMENT);
    CHECK_REFUSED(ordo_model_set(model, "gemm_efficiency", 1.5), ORDO_ERR_ARGUMENT,
                  "gemm_efficiency = 1.5: expected 0.001 to 1");
    CHECK_INT(ordo_model_set(model, "gemm_efficiency", NAN), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_scale(model, "alu", 0), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_scale(model, "alu", -1), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_scale(model, "alu", INFINITY), ORDO_ERR_ARGUMENT);
    ordo_model_destroy(model);
    ordo_machine_destroy(machine);
}

static void refuse(const ordo_model *model, ordo_block block, ordo_status status, const char *why)
{
    ordo_block_report report = { .region = 77 };
    CHECK_INT(ordo_model_block(model, &block, &report), status);
    CHECK_HAS(ordo_last_error(), why);
    CHECK_INT(report.region, 77); /* nothing written */
}

TEST(blocks_are_checked)
{
    ordo_machine *machine = machine_of("h200"), *old = machine_of("a100");
    ordo_model *model = model_of(machine, ORDO_CALIBRATION_SILICON);
    ordo_model *lacks = model_of(old, ORDO_CALIBRATION_SILICON);
    ordo_block good = ORDO_BLOCK_INIT, b;
    good.seq = good.embed = 4096;

    b = good, b.seq = 0;
    refuse(model, b, ORDO_ERR_ARGUMENT, "seq 0: expected 1..");
    b = good, b.seq = INT64_MAX;
    refuse(model, b, ORDO_ERR_ARGUMENT, "seq 9223372036854775807");
    b = good, b.embed = -1;
    refuse(model, b, ORDO_ERR_ARGUMENT, "embed -1");
    b = good, b.head_dim = 96;
    refuse(model, b, ORDO_ERR_SHAPE, "head_dim 96: expected a divisor of embed 4096");
    b = good, b.kv_heads = 5;
    refuse(model, b, ORDO_ERR_SHAPE, "kv_heads 5: expected a divisor of 32 heads");
    b = good, b.tensor_parallel = 3;
    refuse(model, b, ORDO_ERR_SHAPE, "tensor_parallel 3");
    b = good, b.sequence_parallel = 3;
    refuse(model, b, ORDO_ERR_SHAPE, "sequence_parallel 3");
    b = good, b.segments = 3;
    refuse(model, b, ORDO_ERR_SHAPE, "segments 3");
    b = good, b.precision = (ordo_precision)9;
    refuse(model, b, ORDO_ERR_ARGUMENT, "precision 9");
    b = good, b.precision = ORDO_PRECISION_FP8;
    refuse(lacks, b, ORDO_ERR_UNSUPPORTED, "precision fp8: machine \"a100\" states no rate for it");
    b = good, b.rng.bits = 5;
    refuse(model, b, ORDO_ERR_UNSUPPORTED,
           "7 rounds, 5 bits, sliced: its instructions are not known");
    b = good, b.rng.rounds = 8;
    refuse(model, b, ORDO_ERR_UNSUPPORTED,
           "8 rounds, 8 bits, sliced: its instructions are not known");
    b = good, b.rng.rounds = 11;
    refuse(model, b, ORDO_ERR_ARGUMENT, "rounds 11");
    b = good, b.rng.generator = (ordo_generator)4;
    refuse(model, b, ORDO_ERR_ARGUMENT, "generator 4");
    b = good, b.utilization = 1.5;
    refuse(model, b, ORDO_ERR_ARGUMENT, "utilization 1.5");
    b = good, b.size = 0;
    refuse(model, b, ORDO_ERR_ARGUMENT, "ORDO_BLOCK_INIT");
    b = good, b.seq = 1 << 28, b.embed = 1 << 24, b.causal = true; /* large, not absurd */
    ordo_block_report report;
    CHECK_INT(ordo_model_block(model, &b, &report), ORDO_OK);
    CHECK(isfinite(report.mode[report.best]));
    ordo_model_destroy(model);
    ordo_model_destroy(lacks);
    ordo_machine_destroy(machine);
    ordo_machine_destroy(old);
}

TEST(kernels_are_checked)
{
    ordo_machine *machine = machine_of("h200");
    ordo_model *model = model_of(machine, ORDO_CALIBRATION_SILICON);
    ordo_gemm gemm = ORDO_GEMM_INIT;
    ordo_attention_shape shape = ORDO_ATTENTION_SHAPE_INIT;
    ordo_kernel_time time;
    const ordo_rng rng = { 0 };
    CHECK_INT(ordo_model_gemm(model, &gemm, &time), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_gemm(NULL, &gemm, &time), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_gemm(model, NULL, &time), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_gemm(model, &gemm, NULL), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_attention(model, &shape, &time), ORDO_ERR_ARGUMENT);
    shape.batch = shape.heads = 4;
    shape.q_len = 1000;
    CHECK_INT(ordo_model_attention(model, &shape, &time), ORDO_OK);
    shape.kv_heads = 3;
    CHECK_INT(ordo_model_attention(model, &shape, &time), ORDO_ERR_SHAPE);
    shape.kv_heads = 2;
    shape.keep = (ordo_keep_source)7;
    CHECK_INT(ordo_model_attention(model, &shape, &time), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_rng(model, &rng, 0, &time), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_rng(model, &rng, NAN, &time), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_memory(model, -1, 0, &time), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_memory(model, 1e9, 1e9, &time), ORDO_OK);
    double copy = 0;
    CHECK_INT(ordo_machine_get(machine, "hbm_copy_bytes_per_s", &copy), ORDO_OK);
    CHECK_NEAR(2e9 / time.by[time.limiter] / copy, 1, 1e-12);
    CHECK_INT(ordo_model_create(NULL, machine, ORDO_CALIBRATION_PAPER), ORDO_ERR_ARGUMENT);
    ordo_model *none = model;
    CHECK_INT(ordo_model_create(&none, NULL, ORDO_CALIBRATION_PAPER), ORDO_ERR_ARGUMENT);
    CHECK_INT(ordo_model_create(&none, machine, (ordo_calibration)2), ORDO_ERR_ARGUMENT);
    CHECK(none == NULL);
    ordo_model_destroy(NULL);
    ordo_model_destroy(model);
    ordo_machine_destroy(machine);
}

/* A GPU's file without lanes cannot be priced, and the message says what it lacks. */
TEST(machines_without_rates_are_refused)
{
    static const char text[] =
        "name = toy\ntitle = Toy\nfamily = cuda\n"
        "workers = 4 count | made up | 2026-11\nclock_ghz = 1 GHz | made up | 2026-11\n"
        "cuda_arch = 90 | made up | 2026-11\n"
        "mma_flop_per_clk_bf16 = 1024 flop/clk | made up | 2026-11\n"
        "mma_flop_per_clk_f16 = 1024 flop/clk | made up | 2026-11\n"
        "mma_efficiency = 0.5 | made up | 2026-11\n"
        "reduce_bytes_per_clk = 8 B/clk | made up | 2026-11\n"
        "flag_latency_clk = 100 clk | made up | 2026-11\nl2_bytes = 1048576 B | made up | 2026-11\n"
        "l2_budget_bytes = 1048576 B | made up | 2026-11\n"
        "shared_bytes_per_block = 65536 B | made up | 2026-11\n"
        "registers_per_worker = 65536 count | made up | 2026-11\n"
        "hbm_bytes_per_s = 1e12 B/s | made up | 2026-11\n";
    ordo_machine *machine = NULL;
    ordo_model *model = NULL;
    CHECK_INT(ordo_machine_parse(&machine, text, sizeof text - 1, "toy"), ORDO_OK);
    CHECK_REFUSED(ordo_model_create(&model, machine, ORDO_CALIBRATION_SILICON),
                  ORDO_ERR_UNSUPPORTED, "machine \"toy\" does not give issue_per_clk, alu_lanes");
    CHECK(model == NULL);
    ordo_machine_destroy(machine);
}

TEST(plans_are_priced)
{
    ordo_machine *machine = machine_of("h200");
    ordo_model *model = model_of(machine, ORDO_CALIBRATION_SILICON);
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_plan *plan = NULL;
    ordo_plan_price price, windowed;
    problem.dtype = ORDO_BF16;
    problem.batch = 1;
    problem.heads = 32;
    problem.q_len = 8192;
    problem.head_dim = 128;
    problem.mask = ORDO_MASK_CAUSAL;
    problem.dropout.p = 0.1;
    CHECK_INT(ordo_plan_create(&plan, &problem, machine, NULL), ORDO_OK);
    CHECK_INT(ordo_model_plan(model, plan, &price), ORDO_OK);
    CHECK(price.utilization > 0.5 && price.utilization <= 1);
    CHECK(price.backward.seconds > 2 * price.forward.seconds);
    CHECK(price.rng.seconds > 0 && price.rng.seconds < price.forward.seconds);
    /* Bits made once beat wide multiplications inside both passes. */
    CHECK_INT(price.mode, ORDO_DROPOUT_MODE_SEQUENTIAL);
    ordo_plan_destroy(plan);

    problem.window.on = true;
    problem.window.left = 512;
    problem.window.right = 0;
    CHECK_INT(ordo_plan_create(&plan, &problem, machine, NULL), ORDO_OK);
    CHECK_INT(ordo_model_plan(model, plan, &windowed), ORDO_OK);
    CHECK(windowed.forward.seconds < price.forward.seconds / 4);
    CHECK(windowed.rng.seconds < price.rng.seconds / 4); /* bits that it hides are not made */
    ordo_plan_destroy(plan);

    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = ORDO_BACKEND_REF;
    CHECK_INT(ordo_plan_create(&plan, &problem, machine, &options), ORDO_OK);
    CHECK_INT(ordo_model_plan(model, plan, &price), ORDO_ERR_UNSUPPORTED);
    CHECK_INT(ordo_model_plan(model, NULL, &price), ORDO_ERR_ARGUMENT);
    ordo_plan_destroy(plan);
    ordo_model_destroy(model);
    ordo_machine_destroy(machine);
}

/* No sequence, no query, no key; packed without a row. */
TEST(empty_plans_cost_nothing)
{
    ordo_machine *machine = machine_of("h200");
    ordo_model *model = model_of(machine, ORDO_CALIBRATION_SILICON);
    for (int x = 0; x < 4; x++) {
        ordo_problem problem = ORDO_PROBLEM_INIT;
        ordo_plan *plan = NULL;
        ordo_plan_price price = { .utilization = -1 };
        problem.dtype = ORDO_BF16;
        problem.layout = x == 3 ? ORDO_PACKED : ORDO_DENSE;
        problem.batch = x != 0;
        problem.heads = 2;
        problem.q_len = x == 1 || x == 3 ? 0 : 64;
        problem.kv_len = x >= 2 ? ORDO_NO_KEYS : 64;
        problem.head_dim = 64;
        problem.dropout.p = 0.1;
        CHECK_INT(ordo_plan_create(&plan, &problem, machine, NULL), ORDO_OK);
        CHECK_INT(ordo_model_plan(model, plan, &price), ORDO_OK);
        CHECK(price.forward.seconds == 0 && price.backward.seconds == 0 && price.utilization == 1);
        ordo_plan_destroy(plan);
    }
    ordo_model_destroy(model);
    ordo_machine_destroy(machine);
}

TEST(names)
{
    CHECK_TEXT(ordo_calibration_name(ORDO_CALIBRATION_PAPER), "paper");
    CHECK_TEXT(ordo_precision_name(ORDO_PRECISION_FP8), "fp8");
    CHECK_TEXT(ordo_limiter_name(ORDO_LIMIT_POWER), "power");
    CHECK_TEXT(ordo_limiter_name((ordo_limiter)ORDO_LIMITERS), "unknown");
    CHECK_TEXT(ordo_generator_name(ORDO_GENERATOR_SLICED), "sliced");
    CHECK_TEXT(ordo_dropout_mode_name(ORDO_DROPOUT_MODE_OVERLAPPED), "overlapped");
}

CHECK_MAIN()
