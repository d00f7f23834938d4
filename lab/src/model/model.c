/* model.c: public functions of the performance model: check arguments and fill in defaults. */
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/blocks.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "price/price_plan.h"

/* Larger sizes are refused: values computed from them could overflow. */
enum { LONGEST = 1 << 28, WIDEST = 1 << 24, MOST = 1 << 24, DEEPEST = 1 << 16 };

static ordo_status check_precision(const ordo_model *model, ordo_precision precision)
{
    if ((unsigned)precision >= ORDO_PRECISIONS)
        return ordo_fail(ORDO_ERR_ARGUMENT, "precision %d: expected bf16, fp8, f16 or f32",
                         (int)precision);
    if (ordo_model_tensor(model, precision) <= 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "precision %s: machine \"%s\" states no rate for it",
                         ordo_precision_name(precision), ordo_machine_name(model->machine));
    return ORDO_OK;
}

static ordo_status check_utilization(double utilization)
{
    if (!(utilization >= 0 && utilization <= 1))
        return ordo_fail(ORDO_ERR_ARGUMENT, "utilization %g: expected 0 (none given) to 1",
                         utilization);
    return ORDO_OK;
}

/* List the combinations whose instructions are known, for a message. */
static void counted(char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ordo_kernel_counts_count() && used < capacity; i++) {
        const char *name = ordo_kernel_counts_at(i)->name;
        if (strncmp(name, "rng ", 4) != 0)
            continue;
        const int n =
            snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "", name + 4);
        used += n > 0 ? (size_t)n : 0;
    }
}

static ordo_status find_counts(const ordo_rng *rng, const ordo_kernel_counts **counts)
{
    if ((unsigned)rng->generator >= ORDO_GENERATORS)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "generator %d: expected sliced, swar, compare or sliced-any",
                         (int)rng->generator);
    if (rng->rounds < 0 || rng->rounds > 10)
        return ordo_fail(ORDO_ERR_ARGUMENT, "rounds %d: expected 1 to 10, or 0 for 7", rng->rounds);
    if (rng->bits < 0 || rng->bits > 32)
        return ordo_fail(ORDO_ERR_ARGUMENT, "bits %d: expected 1 to 32, or 0 for 8", rng->bits);
    *counts = ordo_rng_counts(rng);
    if (*counts)
        return ORDO_OK;
    char known[400];
    counted(known, sizeof known);
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "%d rounds, %d bits, %s: its instructions are not known; known are (rounds x "
                     "bits) %s",
                     rng->rounds ? rng->rounds : 7, rng->bits ? rng->bits : 8,
                     ordo_generator_name(rng->generator), known);
}

ordo_status ordo_model_gemm(const ordo_model *model, const ordo_gemm *gemm, ordo_kernel_time *time)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("gemm", gemm));
    ORDO_TRY(ordo_check_pointer("time", time));
    ordo_gemm g;
    static const ordo_struct kind = ORDO_STRUCT(ordo_gemm, "ordo_gemm", ORDO_GEMM_INIT, NULL);
    ORDO_TRY(ordo_versioned_copy(&g, gemm, &kind));
    ORDO_TRY(check_precision(model, g.precision));
    ORDO_TRY(ordo_check_range("m", g.m, 1, (int64_t)1 << 40));
    ORDO_TRY(ordo_check_range("n", g.n, 1, LONGEST));
    ORDO_TRY(ordo_check_range("k", g.k, 1, LONGEST));
    *time = ordo_price_gemm(model, &g).time;
    return ORDO_OK;
}

static ordo_status check_shape(const ordo_model *model, ordo_attention_shape *s)
{
    ORDO_TRY(check_precision(model, s->precision));
    if (s->kv_heads == 0)
        s->kv_heads = s->heads;
    if (s->kv_len == 0)
        s->kv_len = s->q_len;
    if (s->head_dim == 0)
        s->head_dim = 128;
    ORDO_TRY(ordo_check_range("batch", s->batch, 1, MOST));
    ORDO_TRY(ordo_check_range("heads", s->heads, 1, MOST));
    ORDO_TRY(ordo_check_range("kv_heads", s->kv_heads, 1, s->heads));
    ORDO_TRY(ordo_check_range("q_len", s->q_len, 1, LONGEST));
    ORDO_TRY(ordo_check_range("kv_len", s->kv_len, 1, LONGEST));
    ORDO_TRY(ordo_check_range("head_dim", s->head_dim, 1, DEEPEST));
    if (s->heads % s->kv_heads != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "kv_heads %lld: expected a divisor of heads %lld",
                         (long long)s->kv_heads, (long long)s->heads);
    if ((unsigned)s->keep > ORDO_KEEP_MADE)
        return ordo_fail(ORDO_ERR_ARGUMENT, "keep %d: expected none, given or made", (int)s->keep);
    return check_utilization(s->utilization);
}

/* Copy a shape that can be priced, with its defaults filled in. */
static ordo_status take_shape(const ordo_model *model, const ordo_attention_shape *shape,
                              ordo_attention_shape *s)
{
    const ordo_kernel_counts *counts;
    static const ordo_nested nested[] = { ORDO_NESTED(ordo_attention_shape, rng), { 0 } };
    static const ordo_struct kind = ORDO_STRUCT(ordo_attention_shape, "ordo_attention_shape",
                                                ORDO_ATTENTION_SHAPE_INIT, nested);
    ORDO_TRY(ordo_versioned_copy(s, shape, &kind));
    ORDO_TRY(check_shape(model, s));
    return s->keep == ORDO_KEEP_MADE ? find_counts(&s->rng, &counts) : ORDO_OK;
}

ordo_status ordo_model_attention(const ordo_model *model, const ordo_attention_shape *shape,
                                 ordo_kernel_time *time)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("shape", shape));
    ORDO_TRY(ordo_check_pointer("time", time));
    ordo_attention_shape s;
    ORDO_TRY(take_shape(model, shape, &s));
    *time = ordo_price_attention(model, &s).time;
    return ORDO_OK;
}

ordo_status ordo_model_attention_constant(const ordo_model *model,
                                          const ordo_attention_shape *shape, const char **name)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("shape", shape));
    ORDO_TRY(ordo_check_pointer("name", name));
    ordo_attention_shape s;
    ORDO_TRY(take_shape(model, shape, &s));
    const bool cpu = ordo_machine_family_of(model->machine) == ORDO_MACHINE_CPU;
    *name = cpu ? NULL : ordo_constant_rows[ordo_price_time_constant(&s)].name;
    return ORDO_OK;
}

ordo_status ordo_model_rng(const ordo_model *model, const ordo_rng *rng, double elements,
                           ordo_kernel_time *time)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("rng", rng));
    ORDO_TRY(ordo_check_pointer("time", time));
    const ordo_kernel_counts *counts;
    ORDO_TRY(find_counts(rng, &counts));
    if (!(elements >= 1 && elements <= 1e24))
        return ordo_fail(ORDO_ERR_ARGUMENT, "elements %g: expected 1 to 1e24", elements);
    *time = ordo_price_rng(model, counts, elements).time;
    return ORDO_OK;
}

ordo_status ordo_model_memory(const ordo_model *model, double read_bytes, double write_bytes,
                              ordo_kernel_time *time)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("time", time));
    if (!(read_bytes >= 0 && write_bytes >= 0 && read_bytes + write_bytes <= 1e24))
        return ordo_fail(ORDO_ERR_ARGUMENT, "bytes %g and %g: expected 0 to 1e24", read_bytes,
                         write_bytes);
    if (ordo_model_value(model, ORDO_C_HBM_COPY) <= 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "machine \"%s\" does not give %s",
                         ordo_machine_name(model->machine), "dram_bytes_per_s");
    *time = ordo_price_memory(model, read_bytes, write_bytes).time;
    return ORDO_OK;
}

static ordo_status check_ranks(const ordo_block *b)
{
    const int64_t heads = b->embed / b->head_dim;
    if (b->embed % b->head_dim != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "head_dim %lld: expected a divisor of embed %lld",
                         (long long)b->head_dim, (long long)b->embed);
    if (b->kv_heads < 1 || heads % b->kv_heads != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "kv_heads %lld: expected a divisor of %lld heads",
                         (long long)b->kv_heads, (long long)heads);
    if (b->kv_heads % b->tensor_parallel != 0)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "tensor_parallel %lld: expected a divisor of %lld key heads",
                         (long long)b->tensor_parallel, (long long)b->kv_heads);
    if (b->seq % b->sequence_parallel != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "sequence_parallel %lld: expected a divisor of seq %lld",
                         (long long)b->sequence_parallel, (long long)b->seq);
    if (b->seq / b->sequence_parallel % b->segments != 0)
        return ordo_fail(ORDO_ERR_SHAPE, "segments %lld: expected a divisor of %lld rows",
                         (long long)b->segments, (long long)(b->seq / b->sequence_parallel));
    return ORDO_OK;
}

/* Eight segments, or fewer if the rows do not divide or a segment would be less than a tile. */
static int64_t default_segments(int64_t rows)
{
    int64_t n = 8;
    while (n > 1 && (rows % n != 0 || rows / n < 128))
        n /= 2;
    return n;
}

static ordo_status check_block(const ordo_model *model, ordo_block *b)
{
    ORDO_TRY(check_precision(model, b->precision));
    b->batch = b->batch ? b->batch : 1;
    b->head_dim = b->head_dim ? b->head_dim : 128;
    b->tensor_parallel = b->tensor_parallel ? b->tensor_parallel : 1;
    b->sequence_parallel = b->sequence_parallel ? b->sequence_parallel : 1;
    ORDO_TRY(ordo_check_range("batch", b->batch, 1, MOST));
    ORDO_TRY(ordo_check_range("seq", b->seq, 1, LONGEST));
    ORDO_TRY(ordo_check_range("embed", b->embed, 1, WIDEST));
    ORDO_TRY(ordo_check_range("head_dim", b->head_dim, 1, DEEPEST));
    ORDO_TRY(ordo_check_range("tensor_parallel", b->tensor_parallel, 1, MOST));
    ORDO_TRY(ordo_check_range("sequence_parallel", b->sequence_parallel, 1, MOST));
    ORDO_TRY(ordo_check_range("beside", b->beside, 0, ORDO_BLOCK_BESIDE_ALL));
    b->kv_heads = b->kv_heads ? b->kv_heads : b->embed / b->head_dim;
    if (b->segments == 0)
        b->segments = default_segments(b->seq / b->sequence_parallel);
    ORDO_TRY(ordo_check_range("segments", b->segments, 1, LONGEST));
    ORDO_TRY(check_ranks(b));
    return check_utilization(b->utilization);
}

ordo_status ordo_model_block(const ordo_model *model, const ordo_block *block,
                             ordo_block_report *report)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("block", block));
    ORDO_TRY(ordo_check_pointer("report", report));
    ordo_block b;
    const ordo_kernel_counts *counts;
    static const ordo_nested nested[] = { ORDO_NESTED(ordo_block, rng), { 0 } };
    static const ordo_struct kind = ORDO_STRUCT(ordo_block, "ordo_block", ORDO_BLOCK_INIT, nested);
    ORDO_TRY(ordo_versioned_copy(&b, block, &kind));
    ORDO_TRY(check_block(model, &b));
    ORDO_TRY(find_counts(&b.rng, &counts));
    ordo_price_block(model, &b, counts, report);
    return ORDO_OK;
}

ordo_status ordo_model_plan(const ordo_model *model, const ordo_plan *plan, ordo_plan_price *price)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("price", price));
    if (ordo_has_blocks(&plan->problem))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "blocks.entries %" PRId64 ", seen %d: expected 0; what such a mask leaves "
                         "is known when a pass is called",
                         plan->problem.blocks.entries, plan->problem.seen.on);
    if (ordo_problem_empty(&plan->problem)) /* nothing to price, and no shape to check */
        return ordo_price_plan(model, plan, price);
    ordo_attention_shape s = ordo_plan_shape(&plan->problem);
    const ordo_kernel_counts *counts = NULL;
    ORDO_TRY(check_shape(model, &s));
    if (plan->problem.dropout.p > 0)
        ORDO_TRY(find_counts(&s.rng, &counts));
    return ordo_price_plan(model, plan, price);
}

/* Name number i of a list. */
static const char *name_at(const char *const *names, unsigned count, unsigned i)
{
    return i < count ? names[i] : "unknown";
}

const char *ordo_calibration_name(ordo_calibration calibration)
{
    static const char *const names[] = { "silicon", "paper" };
    return name_at(names, ORDO_CALIBRATIONS, (unsigned)calibration);
}

const char *ordo_precision_name(ordo_precision precision)
{
    static const char *const names[] = { "bf16", "fp8", "f16", "f32" };
    return name_at(names, ORDO_PRECISIONS, (unsigned)precision);
}

const char *ordo_limiter_name(ordo_limiter limiter)
{
    static const char *const names[] = { "mma",  "hbm-read", "hbm-write", "l2-read", "l2-add",
                                         "rf",   "issue",    "alu",       "fma",     "imad",
                                         "mufu", "shared",   "slot",      "power" };
    return name_at(names, ORDO_LIMITERS, (unsigned)limiter);
}

const char *ordo_generator_name(ordo_generator generator)
{
    static const char *const names[] = { "sliced", "swar", "compare", "sliced-any" };
    return name_at(names, ORDO_GENERATORS, (unsigned)generator);
}
