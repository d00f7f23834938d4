/* properties_test.c: what must hold for every block, on every machine, under both calibrations. */
#include "check.h"
#include "ordo/lab/model.h"

enum { TRIALS = 3000 };

static const ordo_rng counted[] = {
    { 7, 8, ORDO_GENERATOR_SLICED },   { 7, 4, ORDO_GENERATOR_SLICED },
    { 10, 8, ORDO_GENERATOR_SLICED },  { 7, 8, ORDO_GENERATOR_SWAR },
    { 7, 32, ORDO_GENERATOR_COMPARE }, { 3, 32, ORDO_GENERATOR_COMPARE },
};

static ordo_block random_block(uint64_t *seed)
{
    ordo_block b = ORDO_BLOCK_INIT;
    const int64_t dims[] = { 64, 128, 256 };
    b.batch = check_between(seed, 1, 8);
    b.head_dim = dims[check_between(seed, 0, 2)];
    b.embed = b.head_dim * 8 * check_between(seed, 1, 16);
    b.seq = 128 * check_between(seed, 1, 256);
    b.causal = check_between(seed, 0, 1) == 1;
    b.beside = (ordo_block_beside)check_between(seed, 0, ORDO_BLOCK_BESIDE_ALL);
    b.tensor_parallel = check_between(seed, 0, 2) == 0 ? 8 : 1;
    b.segments = 1;
    b.rng = counted[check_between(seed, 0, 5)];
    return b;
}

static void check_times(const ordo_kernel_time *t)
{
    CHECK(isfinite(t->seconds) && t->seconds > 0);
    for (int i = 0; i < ORDO_LIMITERS; i++)
        CHECK(t->by[i] >= 0 && t->by[i] <= t->seconds && t->by[i] <= t->by[t->limiter]);
}

static void check_report(const ordo_block_report *r, bool silicon)
{
    for (int i = 0; i < ORDO_BLOCK_GEMMS; i++)
        check_times(&r->gemm[i]);
    check_times(&r->attention);
    check_times(&r->attention_given);
    check_times(&r->attention_made);
    check_times(&r->rng);
    const double slack = 1 + 1e-12;
    CHECK(r->attention.seconds <= r->attention_given.seconds * slack);
    CHECK(r->attention_given.seconds <= r->attention_made.seconds * slack);
    for (int i = 0; i < ORDO_DROPOUT_MODES; i++)
        CHECK(r->none <= r->mode[i] * slack);
    CHECK(r->exposed >= 0 && r->exposed <= r->rng.seconds * slack);
    CHECK(r->region >= 1 && r->region <= 3 && (r->region == 3) == (r->exposed > 0));
    /* Without residency a second stream gains at most what it hides, and may lose what it costs to
     * start and await it; it is recommended only where it gains. */
    const double behind = r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL];
    const double beside = r->mode[ORDO_DROPOUT_MODE_OVERLAPPED];
    if (silicon && !r->coresident) {
        CHECK(beside >= behind - r->rng.seconds * slack);
        CHECK(beside <= behind + 28e-6);
    }
    CHECK(r->best != ORDO_DROPOUT_MODE_OVERLAPPED || beside <= behind);
    CHECK(!silicon || r->best != ORDO_DROPOUT_MODE_OVERLAPPED || beside * 1.02 < behind);
    CHECK(r->margin >= 0 && r->no_difference == (r->margin <= (silicon ? 0.02 : 0)));
    CHECK(r->training.none <= r->training.overlapped_kept * slack);
    CHECK(r->training.none <= r->training.pipelined * slack);
    CHECK(r->training_best != ORDO_DROPOUT_MODE_OVERLAPPED || !silicon ||
          r->training.overlapped_kept * 1.02 < r->training.sequential_kept);
    CHECK(r->training.sequential_kept <= r->training.sequential_regenerated * slack);
}

TEST(blocks_make_sense)
{
    static const char *const names[] = { "a100", "b200", "h100", "h200", "h800" };
    uint64_t seed = 20261115;
    printf("  seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 5; i++) {
        ordo_machine *machine = NULL;
        CHECK_INT(ordo_machine_create(&machine, names[i]), ORDO_OK);
        for (int c = 0; c < ORDO_CALIBRATIONS; c++) {
            ordo_model *model = NULL;
            CHECK_INT(ordo_model_create(&model, machine, (ordo_calibration)c), ORDO_OK);
            for (int t = 0; t < TRIALS / 10; t++) {
                const ordo_block block = random_block(&seed);
                ordo_block_report report;
                if (ordo_model_block(model, &block, &report) == ORDO_OK)
                    check_report(&report, c == ORDO_CALIBRATION_SILICON);
                else
                    CHECK_FAIL("%s", ordo_last_error());
            }
            ordo_model_destroy(model);
        }
        ordo_machine_destroy(machine);
    }
}

/* A faster part of the machine makes nothing slower. */
TEST(faster_is_not_slower)
{
    static const char *const parts[] = { "tensor", "hbm",   "l2",        "clock", "alu",
                                         "fma",    "imad",  "imad_wide", "mufu",  "rf",
                                         "issue",  "power", "shared" };
    ordo_machine *machine = NULL;
    uint64_t seed = 7;
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        ordo_model *model = NULL, *faster = NULL;
        CHECK_INT(ordo_model_create(&model, machine, ORDO_CALIBRATION_SILICON), ORDO_OK);
        CHECK_INT(ordo_model_create(&faster, machine, ORDO_CALIBRATION_SILICON), ORDO_OK);
        CHECK_INT(ordo_model_scale(faster, parts[p], 1.5), ORDO_OK);
        for (int t = 0; t < 50; t++) {
            const ordo_block block = random_block(&seed);
            ordo_block_report before, after;
            CHECK_INT(ordo_model_block(model, &block, &before), ORDO_OK);
            CHECK_INT(ordo_model_block(faster, &block, &after), ORDO_OK);
            const double slack = 1 + 1e-12;
            CHECK(after.gemm_seconds <= before.gemm_seconds * slack);
            CHECK(after.attention.seconds <= before.attention.seconds * slack);
            CHECK(after.attention_backward.seconds <= before.attention_backward.seconds * slack);
            CHECK(after.rng.seconds <= before.rng.seconds * slack);
            CHECK(after.none <= before.none * slack);
        }
        ordo_model_destroy(model);
        ordo_model_destroy(faster);
    }
    ordo_machine_destroy(machine);
}

CHECK_MAIN()
