/* keep_report.c: statistics of the keep bits of dropout, for people and as JSON. */
#include "attention/keep_report.h"

#include "kit/problem_args.h"

#include <inttypes.h>

static void print_z(double z, bool enough, int limit)
{
    if (!enough)
        printf("   too few to judge");
    else
        printf(" %9.2f%s", z, z >= limit || z <= -limit ? "   SUSPICIOUS" : "");
    puts("");
}

static void print_one(const void *report)
{
    const cli_keep_report *r = report;
    const cli_keep_statistics *s = &r->statistics;
    const ordo_dropout_info *info = &s->info;
    char text[512];
    cli_problem_describe(&r->problem, text, sizeof text);
    printf("problem    %s\n", text);
    printf("keying     %s, %d rounds%s, %d bits, keep below %d: p %.10g, scale %.10g\n",
           ordo_keying_name(info->keying), info->rounds,
           r->call.experiment_rounds ? " (an experiment)" : "", info->bits, info->threshold,
           info->p_used, info->scale);
    printf("seed       %" PRIu64 ", offset %" PRIu64 "\n", r->call.seed, r->call.offset);
    printf("bits       %" PRIu64 " bytes, %" PRIu64 " blocks of 16 x 128\n", info->bytes,
           info->blocks);
    printf("kept       %" PRIu64 " of %" PRIu64 "\n\n", s->kept, info->elements);
    printf("                      of        value     expected         z\n");
    printf("keep rate  %13" PRIu64 " %12.8f %12.8f", info->elements, s->rate, s->expected);
    print_z(s->z, s->enough, CLI_RATE_LIMIT);
    for (int i = 0; i < CLI_LAGS; i++) {
        const cli_lag_count *l = &s->lags[i];
        printf("%-10s %13" PRIu64 " %12.8f %12d", cli_lag_name((cli_lag)i), l->pairs,
               l->correlation, 0);
        print_z(l->z, l->enough, CLI_LAG_LIMIT);
    }
}

static void lag_json(cli_json *json, const char *name, const cli_lag_count *l)
{
    cli_json_object(json, NULL);
    cli_json_text(json, "name", name);
    cli_json_uint(json, "pairs", l->pairs);
    cli_json_uint(json, "both_kept", l->both);
    cli_json_real(json, "correlation", l->correlation);
    cli_json_real(json, "z", l->z);
    cli_json_bool(json, "enough", l->enough);
    cli_json_end_object(json);
}

static void report_json(cli_json *json, const void *report)
{
    const cli_keep_report *r = report;
    const cli_keep_statistics *s = &r->statistics;
    const ordo_dropout_info *info = &s->info;
    cli_problem_json(json, "problem", &r->problem);
    cli_json_text(json, "keying", ordo_keying_name(info->keying));
    cli_json_int(json, "rounds", info->rounds);
    cli_json_bool(json, "experiment", r->call.experiment_rounds != 0);
    cli_json_int(json, "bits", info->bits);
    cli_json_int(json, "threshold", info->threshold);
    cli_json_real(json, "p_used", info->p_used);
    cli_json_real(json, "scale", info->scale);
    cli_json_uint(json, "seed", r->call.seed);
    cli_json_uint(json, "offset", r->call.offset);
    cli_json_uint(json, "blocks", info->blocks);
    cli_json_uint(json, "bytes", info->bytes);
    cli_json_uint(json, "elements", info->elements);
    cli_json_uint(json, "kept", s->kept);
    cli_json_real(json, "keep_rate", s->rate);
    cli_json_real(json, "keep_rate_expected", s->expected);
    cli_json_real(json, "keep_rate_z", s->z);
    cli_json_bool(json, "keep_rate_enough", s->enough);
    cli_json_array(json, "lags");
    for (int i = 0; i < CLI_LAGS; i++)
        lag_json(json, cli_lag_name((cli_lag)i), &s->lags[i]);
    cli_json_end_array(json);
    cli_json_bool(json, "suspicious", cli_keep_suspicious(s, NULL));
}

int cli_keep_show(const cli_json_target *target, const cli_keep_report *reports, size_t count)
{
    return cli_report_results(
        target, &(cli_results) { "keep", report_json, print_one, reports, sizeof *reports, count });
}
