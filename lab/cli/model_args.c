/* model_args.c: options of `ordo model`, and the model that they describe. */
#include "cli/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1 << 28 };

cli_section cli_model_section(cli_model_args *a)
{
    a->machine_name = "h200";
    a->calibration = a->state = -1;
    const cli_option options[CLI_MODEL_COMMON] = {
        OPT_TEXT("--machine", "NAME|FILE", &a->machine_name,
                 "a built-in machine or a file (default h200)"),
        OPT_CHOICE("--calibration", "silicon|paper", &a->calibration,
                   "constants (default paper for 32-bit compare, else silicon)"),
        OPT_CHOICE("--state", "steady|burst", &a->state,
                   "silicon: under load for seconds or milliseconds (default steady)"),
        OPT_FLAG("--waves", &a->waves, "count whole waves of tiles"),
        OPT_WORDS("--set", "NAME=VALUE", &a->set,
                  "change a constant, or scale it: tensor=2x; repeatable"),
        OPT_JSON(&a->json),
    };
    memcpy(a->options, options, sizeof options);
    return (cli_section) { "Model", a->options, CLI_MODEL_COMMON };
}

cli_section cli_block_section(cli_block_args *a)
{
    a->batch = 1;
    a->head_dim = 128;
    a->rounds = 7;
    a->bits = 8;
    a->overlap = ORDO_BLOCK_BESIDE_ALL - 1;
    const cli_option options[CLI_MODEL_BLOCK] = {
        OPT_CHOICE("--precision", "bf16|fp8|f16|f32", &a->precision,
                   "of the products (default bf16); fp8: attention is bf16 in silicon"),
        OPT_INT("--seq", "N", &a->seq, 1, LONGEST, "rows per sequence"),
        OPT_INT("--embed", "N", &a->embed, 1, 1 << 24, "width of the model"),
        OPT_INT("--batch", "N", &a->batch, 1, 1 << 24, "sequences (default 1)"),
        OPT_INT("--head-dim", "N", &a->head_dim, 1, 1 << 16, "head size (default 128)"),
        OPT_INT("--kv-heads", "N", &a->kv_heads, 1, 1 << 24,
                "key heads (default as many as heads)"),
        OPT_INT("--rounds", "N", &a->rounds, 1, 10, "Philox rounds (default 7)"),
        OPT_INT("--bits", "N", &a->bits, 1, 32, "random bits per element (default 8)"),
        OPT_CHOICE("--generator", "sliced|swar|compare|sliced-any", &a->generator,
                   "how keep bits follow from random bits (default sliced)"),
        OPT_CHOICE("--overlap", "qkv|out|up|down|mlp|all", &a->overlap,
                   "GEMMs that can hide the making of bits (default all)"),
        OPT_FLAG("--causal", &a->causal, "causal mask"),
        OPT_FLAG("--backward", &a->backward, "price the backward pass too"),
        OPT_INT("--segments", "N", &a->segments, 1, LONGEST,
                "segments of the pipelined mode (default 8)"),
        OPT_INT("--tensor-parallel", "N", &a->tensor_parallel, 1, 1 << 20,
                "ranks that share the heads"),
        OPT_INT("--sequence-parallel", "N", &a->sequence_parallel, 1, 1 << 20,
                "ranks that share the rows"),
    };
    memcpy(a->options, options, sizeof options);
    return (cli_section) { "Block", a->options, CLI_MODEL_BLOCK };
}

const char *cli_block_precision(const cli_model_args *model, const cli_block_args *block)
{
    const bool own = model->calibration != ORDO_CALIBRATION_PAPER;
    return own && block->precision == ORDO_PRECISION_FP8
               ? "fp8 products, bf16 attention"
               : ordo_precision_name((ordo_precision)block->precision);
}

bool cli_block_is_paper(const cli_block_args *a)
{
    return a->bits == 32 && a->generator == ORDO_GENERATOR_COMPARE;
}

ordo_block cli_block_of(const cli_block_args *a)
{
    ordo_block b = ORDO_BLOCK_INIT;
    b.precision = (ordo_precision)a->precision;
    b.batch = a->batch;
    b.seq = a->seq;
    b.embed = a->embed;
    b.head_dim = a->head_dim;
    b.kv_heads = a->kv_heads;
    b.causal = a->causal;
    b.rng = (ordo_rng) { (int)a->rounds, (int)a->bits, (ordo_generator)a->generator };
    b.beside = (ordo_block_beside)(a->overlap + 1);
    b.segments = a->segments;
    b.tensor_parallel = a->tensor_parallel;
    b.sequence_parallel = a->sequence_parallel;
    return b;
}

int cli_model_apply(ordo_model *model, const char *change)
{
    char name[64], text[64];
    const size_t length = strcspn(change, "=");
    const char *value = change + length + (change[length] == '=');
    const size_t digits = strlen(value);
    if (change[length] != '=' || length == 0 || length >= sizeof name || digits == 0 ||
        digits >= sizeof text)
        return cli_usage("--set %s: expected NAME=VALUE or NAME=FACTORx, such as tensor=2x",
                         change);
    memcpy(name, change, length);
    name[length] = '\0';
    memcpy(text, value, digits + 1);
    const bool factor = text[digits - 1] == 'x';
    if (factor)
        text[digits - 1] = '\0';
    double number;
    if (!cli_read_real(text, &number))
        return cli_usage("--set %s: '%s' is not a number, nor a factor such as 2x", change, value);
    return cli_library(factor ? ordo_model_scale(model, name, number)
                              : ordo_model_set(model, name, number));
}

int cli_model_apply_set(const cli_model_args *a, ordo_model *model)
{
    int status = CLI_OK;
    for (size_t i = 0; i < a->set.count && status == CLI_OK; i++)
        status = cli_model_apply(model, a->set.at[i]);
    return status;
}

int cli_model_create(const cli_model_args *a, ordo_model **model)
{
    ordo_status status = ordo_model_create(model, a->machine, (ordo_calibration)a->calibration);
    if (status == ORDO_OK && a->state == 1)
        status = ordo_model_set(*model, "steady", 0);
    if (status == ORDO_OK && a->waves)
        status = ordo_model_set(*model, "whole_waves", 1);
    return cli_library(status);
}

int cli_model_open(cli_model_args *a, bool paper)
{
    CLI_TRY(cli_library(ordo_machine_create(&a->machine, a->machine_name)));
    /* A CPU has only one. */
    const bool cpu = ordo_machine_family_of(a->machine) == ORDO_MACHINE_CPU;
    if (a->calibration < 0)
        a->calibration = paper && !cpu ? ORDO_CALIBRATION_PAPER : ORDO_CALIBRATION_SILICON;
    if (a->calibration == ORDO_CALIBRATION_PAPER && a->state >= 0)
        return cli_usage("--state: the paper's calibration has no power limit");
    return cli_model_create(a, &a->model);
}

double cli_model_constant(const ordo_model *model, const char *name)
{
    for (size_t i = 0; i < ordo_model_constant_count(); i++) {
        ordo_model_constant c;
        if (ordo_model_constant_at(model, i, &c) == ORDO_OK && strcmp(c.name, name) == 0)
            return c.value;
    }
    return NAN;
}

int cli_model_finish(cli_model_args *a, bool paper)
{
    const int status = cli_model_open(a, paper);
    return status == CLI_OK ? cli_model_apply_set(a, a->model) : status;
}

void cli_model_free(cli_model_args *a)
{
    ordo_model_destroy(a->model);
    ordo_machine_destroy(a->machine);
}

void cli_limiters_json(cli_json *json, const char *key, const ordo_kernel_time *t)
{
    cli_json_object(json, key);
    cli_json_real(json, "ms", t->seconds * 1e3);
    cli_json_text(json, "limiter", ordo_limiter_name(t->limiter));
    cli_json_object(json, "by_ms");
    for (int i = 0; i < ORDO_LIMITERS; i++)
        if (t->by[i] > 0)
            cli_json_real(json, ordo_limiter_name((ordo_limiter)i), t->by[i] * 1e3);
    cli_json_end_object(json);
    cli_json_end_object(json);
}

typedef struct part_report {
    const cli_model_args *args;
    const char *part;
    cli_fields *fields;
    const void *what;
} part_report;

static void part_fields(cli_json *json, const void *what)
{
    const part_report *r = what;
    const cli_model_args *a = r->args;
    cli_json_text(json, "part", r->part);
    cli_json_text(json, "machine", ordo_machine_name(a->machine));
    cli_json_text(json, "calibration", ordo_calibration_name((ordo_calibration)a->calibration));
    if (a->calibration == ORDO_CALIBRATION_SILICON)
        cli_json_text(json, "state", a->state == 1 ? "burst" : "steady");
    cli_json_array(json, "set");
    for (size_t i = 0; i < a->set.count; i++)
        cli_json_text(json, NULL, a->set.at[i]);
    cli_json_end_array(json);
    r->fields(json, r->what);
}

int cli_model_show(const cli_model_args *a, const char *part, void (*print)(const void *what),
                   cli_fields *fields, const void *what)
{
    const part_report r = { a, part, fields, what };
    if (a->json.on)
        return cli_report_json(&a->json, "model", part_fields, &r);
    print(what);
    return CLI_OK;
}
