/* model_block.c: `ordo model block` and `ordo model what-if`. */
#include "cli/model_block.h"

#include <string.h>

static int check_given(const cli_block_args *a)
{
    if (a->seq == 0 || a->embed == 0)
        return cli_usage("%s: missing; expected a number", a->seq == 0 ? "--seq" : "--embed");
    return CLI_OK;
}

static int price(cli_priced_block *p)
{
    const ordo_block block = cli_block_of(p->args);
    p->noise = cli_model_constant(p->model->model, "noise");
    return cli_library(ordo_model_block(p->model->model, &block, &p->report));
}

/* The measured times of this block, if a file is given. */
static int compare(cli_priced_block *p)
{
    cli_measured measured = { .count = 0 };
    const ordo_block block = cli_block_of(p->args);
    if (!p->file)
        return CLI_OK;
    const int status = cli_measured_read(&measured, p->file);
    if (status == CLI_OK)
        p->measured = cli_block_times_measured(&measured, &block);
    cli_measured_free(&measured);
    return status;
}

int cli_model_block(int argc, char **argv)
{
    cli_model_args model = { 0 };
    cli_block_args args = { 0 };
    const char *file = NULL;
    cli_option options[] = {
        OPT_TEXT("--measured", "FILE", &file,
                 "show measured times of this block, and what follows"),
    };
    const cli_section sections[] = { cli_block_section(&args), CLI_SECTION("Comparison", options),
                                     cli_model_section(&model) };
    const cli_syntax syntax = {
        "model block --seq N --embed N [OPTIONS]",
        "Price one transformer block: QKV, attention, projection, MLP, with attention dropout in\n"
        "every mode, and recommend one. The default generator is ordo's own; 32 bits, compared\n"
        "one by one, under all four GEMMs is the setting of arXiv 2410.07531.",
        sections, 3,
        "  ordo model block --machine h200 --seq 8k --embed 4k --causal --backward\n"
        "  ordo model block --machine h100 --precision fp8 --seq 8k --embed 4k --bits 32 \\\n"
        "      --generator compare --overlap all --json\n"
        "  ordo model block --seq 8k --embed 4k --set gemm_registers=160 --state burst\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        cli_priced_block priced = { .model = &model, .args = &args, .file = file };
        status = check_given(&args);
        if (status == CLI_OK)
            status = cli_model_finish(&model, cli_block_is_paper(&args) && !file);
        if (status == CLI_OK)
            status = price(&priced);
        if (status == CLI_OK)
            status = compare(&priced);
        if (status == CLI_OK)
            status = cli_model_show(&model, "block", cli_block_text, cli_block_fields, &priced);
    }
    cli_model_free(&model);
    return status;
}

/* ---- what if ---- */

typedef struct pair {
    cli_priced_block before, after;
} pair;

static void print_change(const char *name, double before, double after)
{
    if (before > 0 || after > 0)
        printf("  %-20s %11.4f ms %11.4f ms   %+6.1f %%\n", name, before * 1e3, after * 1e3,
               100 * (after / before - 1));
}

static void print_pair(const void *what)
{
    const pair *p = what;
    const ordo_block_report *a = &p->before.report, *b = &p->after.report;
    printf("%s, %s calibration; with", ordo_machine_title(p->before.model->machine),
           ordo_calibration_name((ordo_calibration)p->before.model->calibration));
    for (size_t i = 0; i < p->before.model->set.count; i++)
        printf("%s %s", i > 0 ? "," : "", p->before.model->set.at[i]);
    printf("\n\n  %-20s %14s %14s\n", "", "as it is", "what if");
    print_change("gemms", a->gemm_seconds, b->gemm_seconds);
    print_change("attention", a->attention.seconds, b->attention.seconds);
    print_change("attention backward", a->attention_backward.seconds,
                 b->attention_backward.seconds);
    print_change("rng", a->rng.seconds, b->rng.seconds);
    print_change("no dropout", a->none, b->none);
    for (int i = 0; i < ORDO_DROPOUT_MODES; i++)
        print_change(ordo_dropout_mode_name((ordo_dropout_mode)i), a->mode[i], b->mode[i]);
    printf("  %-20s %14s %14s\n", "attention bound by", ordo_limiter_name(a->attention.limiter),
           ordo_limiter_name(b->attention.limiter));
    printf("  %-20s %14s %14s\n", "rng bound by", ordo_limiter_name(a->rng.limiter),
           ordo_limiter_name(b->rng.limiter));
    printf("  %-20s %14d %14d\n", "region", a->region, b->region);
    printf("  %-20s %14s %14s\n", "recommended", ordo_dropout_mode_name(a->best),
           ordo_dropout_mode_name(b->best));
}

static void pair_json(cli_json *json, const void *what)
{
    const pair *p = what;
    cli_json_object(json, "before");
    cli_block_fields(json, &p->before);
    cli_json_end_object(json);
    cli_json_object(json, "after");
    cli_block_fields(json, &p->after);
    cli_json_end_object(json);
}

int cli_model_what_if(int argc, char **argv)
{
    cli_model_args model = { 0 };
    cli_block_args args = { 0 };
    const cli_section sections[] = { cli_block_section(&args), cli_model_section(&model) };
    const cli_syntax syntax = {
        "model what-if --seq N --embed N --set NAME=VALUE [--set ...] [OPTIONS]",
        "Price a block on a machine as it is and as it would be: tensor, hbm, l2 and clock stand\n"
        "for all their constants; `ordo model constants` lists every name.",
        sections, 2,
        "  ordo model what-if --seq 8k --embed 4k --set tensor=2x --set alu=1.5x\n"
        "  ordo model what-if --machine h100 --precision fp8 --seq 8k --embed 4k --bits 32 \\\n"
        "      --generator compare --set tensor=2x --set hbm=2x --set l2=2x --json\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        pair both = { { .model = &model, .args = &args }, { .model = &model, .args = &args } };
        status = check_given(&args);
        if (status == CLI_OK && model.set.count == 0)
            status = cli_usage("--set: expected at least one change, such as tensor=2x");
        if (status == CLI_OK)
            status = cli_model_open(&model, cli_block_is_paper(&args));
        if (status == CLI_OK)
            status = price(&both.before);
        if (status == CLI_OK)
            status = cli_model_apply_set(&model, model.model);
        if (status == CLI_OK)
            status = price(&both.after);
        if (status == CLI_OK)
            status = cli_model_show(&model, "what-if", print_pair, pair_json, &both);
    }
    cli_model_free(&model);
    return status;
}
