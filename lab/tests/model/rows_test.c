/* rows_test.c: two hundred blocks under the paper's calibration, against the committed answers of
 * an independent program: 1e-9 relative, and the same limiter. */
#include "check.h"
#include "ordo/lab/model.h"

enum { COLUMNS = 49, WIDEST = 1024 };

/* Columns of a row, the bars between its parts left out. */
enum {
    MACHINE,
    TENSOR,
    L2,
    HBM,
    BATCH,
    SEQ,
    EMBED,
    HEAD_DIM,
    PRECISION,
    ROUNDS,
    BITS,
    GENERATOR,
    QKV_ONLY,
    CONSTANTS, /* nine of them, as below */
    SEGMENTS = CONSTANTS + 9,
    GEMM,
    ATTENTION,
    WITH_BITS,
    RNG,
    FUSED,
    SEQUENTIAL,
    FUSION,
    OVERLAP,
    EXPOSED,
    REGION,
    HIDDEN,
    ATTENTION_LIMITER,
    RNG_LIMITER,
    FUSED_LIMITER,
    PIPELINED,
    PIPELINED_BYTES,
    TRAINING,
    END = TRAINING + 6
};

static const char *const constants[] = { "whole_waves", "refined",         "rng_slow",
                                         "drop",        "gemm_slow",       "attention_scale",
                                         "rng_scale",   "gemm_efficiency", "issue_efficiency" };

static int line_number;

static void near(const char *what, double got, const char *expected)
{
    if (strcmp(expected, "-") == 0)
        return;
    const double wanted = strtod(expected, NULL);
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted) + 1e-18))
        CHECK_FAIL("line %d: %s is %.12g, expected %s", line_number, what, got, expected);
}

static void same(const char *what, ordo_limiter got, const char *expected)
{
    if (strcmp(ordo_limiter_name(got), expected) != 0)
        CHECK_FAIL("line %d: %s is bound by %s, expected %s", line_number, what,
                   ordo_limiter_name(got), expected);
}

static int word_of(const char *word, const char *(*name)(int), int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name(i), word) == 0)
            return i;
    CHECK_FAIL("line %d: unknown word %s", line_number, word);
    return 0;
}

static const char *precision_name(int i)
{
    return ordo_precision_name((ordo_precision)i);
}

static const char *generator_name(int i)
{
    return ordo_generator_name((ordo_generator)i);
}

static ordo_block block_of(char **w)
{
    ordo_block b = ORDO_BLOCK_INIT;
    b.batch = strtoll(w[BATCH], NULL, 10);
    b.seq = strtoll(w[SEQ], NULL, 10);
    b.embed = strtoll(w[EMBED], NULL, 10);
    b.head_dim = strtoll(w[HEAD_DIM], NULL, 10);
    b.precision = (ordo_precision)word_of(w[PRECISION], precision_name, ORDO_PRECISIONS);
    b.rng.rounds = (int)strtol(w[ROUNDS], NULL, 10);
    b.rng.bits = (int)strtol(w[BITS], NULL, 10);
    b.rng.generator = (ordo_generator)word_of(w[GENERATOR], generator_name, ORDO_GENERATORS);
    b.beside = w[QKV_ONLY][0] == '1' ? ORDO_BLOCK_BESIDE_QKV : ORDO_BLOCK_BESIDE_ALL;
    b.segments = strtoll(w[SEGMENTS], NULL, 10);
    return b;
}

static void compare(char **w, const ordo_block_report *r)
{
    near("gemm", r->gemm_seconds, w[GEMM]);
    near("attention", r->attention.seconds, w[ATTENTION]);
    near("with bits", r->attention_given.seconds, w[WITH_BITS]);
    near("rng", r->rng.seconds, w[RNG]);
    near("fused", r->attention_made.seconds, w[FUSED]);
    /* Where one GEMM hides the bits, the rows are of that GEMM and attention: without the others.
     */
    const bool one = w[QKV_ONLY][0] == '1';
    double others = 0;
    for (int i = 1; one && i < ORDO_BLOCK_GEMMS; i++)
        others += r->gemm[i].seconds;
    near("sequential", r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL] - others, w[SEQUENTIAL]);
    near("fusion", r->mode[ORDO_DROPOUT_MODE_FUSED] - others, w[FUSION]);
    near("overlap", r->mode[ORDO_DROPOUT_MODE_OVERLAPPED] - others, w[OVERLAP]);
    near("exposed", r->exposed, w[EXPOSED]);
    near("region", r->region, w[REGION]);
    CHECK_NEAR(r->hidden_in_fused, strtod(w[HIDDEN], NULL), 1e-9);
    same("attention", r->attention.limiter, w[ATTENTION_LIMITER]);
    same("rng", r->rng.limiter, w[RNG_LIMITER]);
    same("fused", r->attention_made.limiter, w[FUSED_LIMITER]);
    if (!one)
        near("pipelined", r->mode[ORDO_DROPOUT_MODE_PIPELINED], w[PIPELINED]);
    near("pipelined bytes", r->keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED], w[PIPELINED_BYTES]);
    const ordo_training *t = &r->training;
    const double training[] = { t->none,  t->sequential_kept, t->sequential_regenerated,
                                t->fused, t->overlapped_kept, t->overlapped_regenerated };
    for (int i = 0; i < (one ? 5 : 6); i++) /* bits made again hide under three GEMMs here */
        near("training", training[i] - 3 * others, w[TRAINING + i]);
}

static void check_row(char **w)
{
    ordo_machine *machine = NULL;
    ordo_model *model = NULL;
    ordo_block_report report;
    CHECK_INT(ordo_machine_create(&machine, w[MACHINE]), ORDO_OK);
    CHECK_INT(ordo_model_create(&model, machine, ORDO_CALIBRATION_PAPER), ORDO_OK);
    CHECK_INT(ordo_model_scale(model, "tensor", strtod(w[TENSOR], NULL)), ORDO_OK);
    CHECK_INT(ordo_model_scale(model, "l2", strtod(w[L2], NULL)), ORDO_OK);
    CHECK_INT(ordo_model_scale(model, "hbm", strtod(w[HBM], NULL)), ORDO_OK);
    CHECK_INT(ordo_model_set(model, "gemm_multicast", 2), ORDO_OK); /* as that program has it */
    for (int i = 0; i < 9; i++)
        CHECK_INT(ordo_model_set(model, constants[i], strtod(w[CONSTANTS + i], NULL)), ORDO_OK);
    const double efficiency = strtod(w[CONSTANTS + 7], NULL);
    CHECK_INT(ordo_model_set(model, "gemm_efficiency_fp8", efficiency), ORDO_OK);
    const ordo_block block = block_of(w);
    if (ordo_model_block(model, &block, &report) == ORDO_OK)
        compare(w, &report);
    else
        CHECK_FAIL("line %d: %s", line_number, ordo_last_error());
    ordo_model_destroy(model);
    ordo_machine_destroy(machine);
}

static int split(char *line, char **words)
{
    int count = 0;
    for (char *word = strtok(line, " \n"); word && count < COLUMNS; word = strtok(NULL, " \n"))
        if (strcmp(word, "|") != 0)
            words[count++] = word;
    return count;
}

TEST(rows_agree)
{
    const char *source = getenv("ORDO_SOURCE");
    char path[4096], line[WIDEST];
    char *words[COLUMNS];
    int rows = 0;
    snprintf(path, sizeof path, "%s/lab/tests/model/dropout_rows.txt", source ? source : ".");
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        line_number++;
        if (line[0] == '#')
            continue;
        const int count = split(line, words);
        if (count != END) {
            CHECK_FAIL("line %d: %d words, expected %d", line_number, count, END);
            break;
        }
        check_row(words);
        rows++;
    }
    fclose(file);
    CHECK_INT(rows, 200);
}

CHECK_MAIN()
