/* model_predict.c: what the model predicts for a measured row. */
#include "cli/model_predict.h"

#include "cli/model_times.h"

#include <math.h>
#include <string.h>

/* Errors are reported for each kind of kernel. */
static const char *const groups[] = {
    "gemm", "rng", "memory", "attention", "attention-backward", "block", "training", "part", "other"
};
enum { GROUPS = sizeof groups / sizeof groups[0] };
_Static_assert((int)GROUPS == (int)CLI_GROUPS, "a name for each group");

const char *cli_validate_group(int group)
{
    return group < GROUPS ? groups[group] : NULL;
}

static int word_of(const char *word, const char *(*name)(int), int count, int fallback)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name(i), word) == 0)
            return i;
    return fallback;
}
static const char *precision_name(int i)
{
    return ordo_precision_name((ordo_precision)i);
}
static const char *generator_name(int i)
{
    return ordo_generator_name((ordo_generator)i);
}
static const char *mode_name(int i)
{
    return ordo_dropout_mode_name((ordo_dropout_mode)i);
}

static ordo_precision precision_of(const cli_measured_row *r)
{
    return (ordo_precision)word_of(r->precision, precision_name, ORDO_PRECISIONS, 0);
}

static int small(double x)
{
    return x >= 0 && x < 1000 ? (int)x : -1;
}

static ordo_rng rng_of(const cli_measured_row *r)
{
    return (ordo_rng) { small(r->rounds), small(r->bits),
                        (ordo_generator)word_of(r->generator, generator_name, ORDO_GENERATORS, 0) };
}

/* Convert to a size; a number that is none becomes -1, which the library refuses. */
static int64_t whole(double x)
{
    return x >= 0 && x < 1e15 ? (int64_t)x : -1;
}

static ordo_status predict_gemm(const ordo_model *model, const cli_measured_row *r,
                                ordo_kernel_time *time)
{
    ordo_gemm g = ORDO_GEMM_INIT;
    g.precision = precision_of(r);
    g.m = whole(r->m);
    g.n = whole(r->n);
    g.k = whole(r->k);
    return ordo_model_gemm(model, &g, time);
}

static ordo_status predict_attention(const ordo_model *model, const cli_measured_row *r,
                                     bool backward, ordo_kernel_time *time, const char **constant)
{
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    s.precision = precision_of(r);
    s.batch = whole(cli_at_least_one(r->batch));
    s.heads = whole(cli_at_least_one(r->heads));
    s.kv_heads = whole(r->kv_heads);
    s.q_len = whole(r->seq);
    s.kv_len = whole(r->kv_seq);
    s.head_dim = whole(r->head_dim);
    s.causal = cli_row_causal(r);
    s.backward = backward;
    s.utilization = r->utilization;
    s.rng = rng_of(r);
    s.keep = strcmp(r->keep, "made") == 0 || (r->dropout > 0 && !r->keep[0]) ? ORDO_KEEP_MADE
             : strcmp(r->keep, "given") == 0                                 ? ORDO_KEEP_GIVEN
                                                                             : ORDO_KEEP_NONE;
    const ordo_status status = ordo_model_attention_constant(model, &s, constant);
    return status == ORDO_OK ? ordo_model_attention(model, &s, time) : status;
}

static ordo_status predict_block(const ordo_model *model, const cli_measured_row *r, bool training,
                                 ordo_kernel_time *time)
{
    ordo_block b = ORDO_BLOCK_INIT;
    ordo_block_report report;
    b.precision = precision_of(r);
    b.batch = whole(cli_at_least_one(r->batch));
    b.seq = whole(r->seq);
    b.embed = whole(r->embed);
    b.head_dim = whole(r->head_dim);
    b.causal = cli_row_causal(r);
    b.rng = rng_of(r);
    b.beside = strcmp(r->overlap, "qkv") == 0 ? ORDO_BLOCK_BESIDE_QKV : ORDO_BLOCK_BESIDE_ALL;
    const ordo_status status = ordo_model_block(model, &b, &report);
    if (status != ORDO_OK)
        return status;
    const int mode = word_of(r->mode, mode_name, ORDO_DROPOUT_MODES, -1);
    const ordo_training *t = &report.training;
    *time = report.gemm[0];
    /* GEMMs without attention: alone, then the bits made, or the bits made beside them. */
    if (strcmp(r->mode, "gemm") == 0) {
        time->seconds = report.gemm_seconds;
    } else if (strcmp(r->mode, "gemm-then-rng") == 0) {
        time->seconds = report.gemm_then_rng;
    } else if (strcmp(r->mode, "gemm-beside-rng") == 0) {
        time->seconds = report.gemm_beside_rng;
    } else if (training) {
        time->seconds = mode == ORDO_DROPOUT_MODE_FUSED        ? t->fused
                        : mode == ORDO_DROPOUT_MODE_SEQUENTIAL ? t->sequential_kept
                        : mode == ORDO_DROPOUT_MODE_OVERLAPPED ? t->overlapped_kept
                        : mode == ORDO_DROPOUT_MODE_PIPELINED  ? t->pipelined
                                                               : t->none;
    } else if (strcmp(r->mode, "overlapped-qkv") == 0) {
        return cli_block_beside_qkv(model, &b, &time->seconds);
    } else {
        time->seconds = mode >= 0 ? report.mode[mode] : report.none;
    }
    return ORDO_OK;
}

/* The QKV projection, bits and attention alone, as Figure 13 of arXiv 2410.07531 has them. */
static ordo_status predict_part(const ordo_model *model, const cli_measured_row *r,
                                ordo_kernel_time *time)
{
    ordo_block b = ORDO_BLOCK_INIT;
    ordo_block_report report;
    b.precision = precision_of(r);
    b.seq = whole(r->seq);
    b.embed = whole(r->embed);
    b.causal = cli_row_causal(r);
    b.rng = rng_of(r);
    b.beside = ORDO_BLOCK_BESIDE_QKV;
    const ordo_status status = ordo_model_block(model, &b, &report);
    if (status != ORDO_OK)
        return status;
    const double given = report.attention_given.seconds, product = report.gemm_seconds;
    *time = report.gemm[0];
    switch (word_of(r->mode, mode_name, ORDO_DROPOUT_MODES, -1)) {
    case ORDO_DROPOUT_MODE_SEQUENTIAL: time->seconds = report.gemm_then_rng + given; break;
    case ORDO_DROPOUT_MODE_OVERLAPPED: time->seconds = report.gemm_beside_rng + given; break;
    case ORDO_DROPOUT_MODE_FUSED: time->seconds = product + report.attention_made.seconds; break;
    default: time->seconds = product + report.attention.seconds;
    }
    return ORDO_OK;
}

/* What the row states: where bits were made, the cores and the multiply-add rate. */
static ordo_status adjust(ordo_model *model, const cli_measured_row *r)
{
    static const char *const rates[] = { "tensor_f32", "tensor_bf16", "tensor_f16" };
    ordo_status status = ORDO_OK;
    if (strcmp(r->placement, "beside") == 0)
        status = ordo_model_set(model, "coresident", 1);
    if (status == ORDO_OK && strcmp(r->state, "burst") == 0)
        status = ordo_model_set(model, "steady", 0);
    if (status == ORDO_OK && r->overhead_seconds > 0) /* which holds the launch */
        status = ordo_model_set(model, "launch", 0);
    if (status == ORDO_OK && r->overhead_seconds > 0)
        status = ordo_model_set(model, "rng_start", 0);
    if (status != ORDO_OK || r->threads <= 0)
        return status;
    status = ordo_model_set(model, "workers", r->threads);
    const double clock = cli_model_constant(model, "clock_tensor");
    for (size_t i = 0; i < 3 && status == ORDO_OK && r->peak_flops > 0; i++)
        status = ordo_model_set(model, rates[i], r->peak_flops / r->threads / (clock * 1e9));
    return status;
}

static ordo_status predict_kernel(const ordo_model *model, const cli_measured_row *r,
                                  ordo_kernel_time *time, const char **constant)
{
    const char *kernel = r->kernel;
    const bool bench = kernel[0] == '\0';
    if (strcmp(kernel, "gemm") == 0)
        return predict_gemm(model, r, time);
    if (strcmp(kernel, "rng") == 0) {
        const ordo_rng rng = rng_of(r);
        *constant = "rng";
        const double columns = r->kv_seq > 0 ? r->kv_seq : r->seq;
        const double elements = r->elements > 0 ? r->elements
                                                : cli_at_least_one(r->batch) *
                                                      cli_at_least_one(r->heads) * r->seq * columns;
        return ordo_model_rng(model, &rng, elements, time);
    }
    if (strcmp(kernel, "memory") == 0)
        return ordo_model_memory(model, r->read_bytes, r->write_bytes, time);
    if (strcmp(kernel, "block") == 0 || strcmp(kernel, "training") == 0)
        return predict_block(model, r, kernel[0] == 't', time);
    if (strcmp(kernel, "part") == 0)
        return predict_part(model, r, time);
    const bool backward =
        strcmp(kernel, "attention-backward") == 0 || strcmp(r->pass, "backward") == 0;
    if (backward || bench || strcmp(kernel, "attention") == 0)
        return predict_attention(model, r, backward, time, constant);
    *time = (ordo_kernel_time) { .seconds = NAN }; /* a kernel the model does not know */
    return ORDO_OK;
}

static int group_of(const cli_measured_row *r)
{
    const char *name = r->kernel[0] != '\0'               ? r->kernel
                       : strcmp(r->pass, "backward") == 0 ? "attention-backward"
                                                          : "attention";
    int i = 0;
    while (i < GROUPS - 1 && strcmp(groups[i], name) != 0)
        i++;
    return i;
}

/* The second constant of a kind. */
static const char *start_of(const char *constant, char name[64])
{
    snprintf(name, 64, "%s_start", constant);
    return name;
}

/* Keep bits by themselves have the second constant alone. */
bool cli_validate_start_only(const char *constant)
{
    return strcmp(constant, "rng") == 0;
}

static ordo_status set_kind(ordo_model *model, const cli_validated_row *r)
{
    char name[64];
    const ordo_status status = cli_validate_start_only(r->constant)
                                   ? ORDO_OK
                                   : ordo_model_set(model, r->constant, r->value);
    return status == ORDO_OK ? ordo_model_set(model, start_of(r->constant, name), r->start)
                             : status;
}

static void get_kind(const ordo_model *model, cli_validated_row *r)
{
    char name[64];
    r->value = cli_validate_start_only(r->constant) ? 1 : cli_model_constant(model, r->constant);
    r->start = cli_model_constant(model, start_of(r->constant, name));
}

int cli_validate_predict(const cli_validation *t, cli_validated_row *r)
{
    ordo_model *model = NULL;
    ordo_kernel_time time = { 0 };
    int status = cli_model_create(t->model, &model);
    if (status == CLI_OK)
        status = cli_model_apply_set(t->model, model);
    if (status == CLI_OK)
        status = cli_library(adjust(model, &r->is));
    if (status == CLI_OK && r->constant && r->value > 0) /* fitted */
        status = cli_library(set_kind(model, r));
    if (status == CLI_OK)
        status = cli_library(predict_kernel(model, &r->is, &time, &r->constant));
    if (status == CLI_OK && r->constant)
        get_kind(model, r);
    ordo_model_destroy(model);
    r->predicted = time.seconds + r->is.overhead_seconds;
    r->limiter = time.limiter;
    r->group = group_of(&r->is);
    r->kind = r->constant ? r->constant : groups[r->group];
    if (status == CLI_OK && !(r->is.seconds > 0))
        return cli_usage("%s: a result has no \"seconds\"", t->path);
    return status;
}

double cli_validate_error(const cli_validated_row *r)
{
    return r->predicted / r->is.seconds - 1;
}
