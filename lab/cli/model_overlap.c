/* model_overlap.c: `ordo model overlap`: where in a list of kernels to make the keep bits. */
#include "cli/model.h"
#include "cli/model_operators.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    cli_model_args model;
    cli_preset_args preset;
    const char *path;
    cli_operators *kernels;
    ordo_operator_time times[ORDO_OPERATORS_MOST];
    ordo_overlap_report report;
    bool pairs;
    ordo_pair_report *of_pairs; /* pairs of kernels i < k, in order */
} request;

/* ---- pairs ---- */

static int price_pairs(request *r)
{
    const size_t count = r->kernels->count;
    size_t n = 0;
    r->of_pairs = calloc(count * count + 1, sizeof *r->of_pairs);
    if (!r->of_pairs)
        return cli_out_of_memory();
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++)
            CLI_TRY(cli_library(ordo_model_pair(r->model.model, &r->kernels->list[i],
                                                &r->kernels->list[k], &r->of_pairs[n++])));
    return CLI_OK;
}

static void print_pairs(const void *what)
{
    const request *r = what;
    const cli_operators *l = r->kernels;
    size_t n = 0;
    printf("%s, %s calibration: two kernels of %s by themselves\n\n%-22s %-22s %12s %12s %9s\n",
           ordo_machine_title(r->model.machine),
           ordo_calibration_name((ordo_calibration)r->model.calibration),
           r->path ? r->path : r->preset.name, "first", "second", "in turn us", "together us",
           "faster");
    for (size_t i = 0; i < l->count; i++)
        for (size_t k = i + 1; k < l->count; k++) {
            const ordo_pair_report *p = &r->of_pairs[n++];
            printf("%-22s %-22s %12.1f %12.1f %+7.1f %%%s\n", l->name[i], l->name[k],
                   p->in_turn * 1e6, p->together * 1e6, 100 * (p->in_turn / p->together - 1),
                   p->no_difference ? "" : "  together");
        }
    puts("\nby prediction, not measured; \"together\" where it gains more than measurements vary");
}

static void pairs_json(cli_json *json, const void *what)
{
    const request *r = what;
    const cli_operators *l = r->kernels;
    size_t n = 0;
    cli_json_array(json, "pairs");
    for (size_t i = 0; i < l->count; i++)
        for (size_t k = i + 1; k < l->count; k++) {
            const ordo_pair_report *p = &r->of_pairs[n++];
            cli_json_object(json, NULL);
            cli_json_text(json, "first", l->name[i]);
            cli_json_text(json, "second", l->name[k]);
            cli_json_real(json, "first_seconds", p->first);
            cli_json_real(json, "second_seconds", p->second);
            cli_json_real(json, "in_turn_seconds", p->in_turn);
            cli_json_real(json, "together_seconds", p->together);
            cli_json_bool(json, "no_difference", p->no_difference);
            cli_json_end_object(json);
        }
    cli_json_end_array(json);
    cli_json_bool(json, "measured", false);
}

/* ---- the keep bits ---- */

static void print_times(const void *what)
{
    const request *r = what;
    const cli_operators *l = r->kernels;
    const ordo_overlap_report *o = &r->report;
    printf("%s, %s calibration: %s\n\n%-22s %-18s %6s %10s %10s %10s %14s\n",
           ordo_machine_title(r->model.machine),
           ordo_calibration_name((ordo_calibration)r->model.calibration),
           r->path ? r->path : r->preset.name, "kernel", "kind", "stream", "alone us", "start",
           "end", "bits beside it");
    for (size_t i = 0; i < l->count; i++) {
        const ordo_operator_time *t = &r->times[i];
        printf("%-22s %-18s %6" PRId64 " %10.1f %10.1f %10.1f", l->name[i], l->kind[i],
               l->list[i].stream, t->seconds * 1e6, t->start * 1e6, t->end * 1e6);
        if (t->beside_seconds > 0)
            printf(" %11.1f us", t->beside_seconds * 1e6);
        puts("");
    }
    printf("\nbits where the list has them %.1f us", o->in_line * 1e6);
    if (o->fused > 0)
        printf(", made inside %s %.1f us", l->name[o->reader], o->fused * 1e6);
    if (o->beside >= 0)
        printf(", best beside %s %.1f us", l->name[o->beside],
               r->times[o->beside].beside_seconds * 1e6);
    printf("\nrecommended: %s", ordo_dropout_mode_name(o->mode));
    if (o->mode == ORDO_DROPOUT_MODE_OVERLAPPED)
        printf(", from the start of %s on: %.1f %% faster by prediction, not measured",
               l->name[o->beside], 100 * (o->in_line / o->seconds - 1));
    if (o->no_difference)
        fputs("; no difference to the best place beside another kernel", stdout);
    puts("");
}

static void times_json(cli_json *json, const void *what)
{
    const request *r = what;
    const cli_operators *l = r->kernels;
    const ordo_overlap_report *o = &r->report;
    cli_json_array(json, "kernels");
    for (size_t i = 0; i < l->count; i++) {
        const ordo_operator_time *t = &r->times[i];
        cli_json_object(json, NULL);
        cli_json_text(json, "name", l->name[i]);
        cli_json_text(json, "kind", l->kind[i]);
        cli_json_int(json, "stream", l->list[i].stream);
        cli_json_real(json, "seconds", t->seconds);
        cli_json_real(json, "start", t->start);
        cli_json_real(json, "end", t->end);
        if (t->beside_seconds > 0)
            cli_json_real(json, "beside_seconds", t->beside_seconds);
        else
            cli_json_null(json, "beside_seconds");
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
    cli_json_real(json, "in_line_seconds", o->in_line);
    if (o->fused > 0)
        cli_json_real(json, "fused_seconds", o->fused);
    else
        cli_json_null(json, "fused_seconds");
    cli_json_real(json, "recommended_seconds", o->seconds);
    cli_json_text(json, "recommended", ordo_dropout_mode_name(o->mode));
    cli_json_text(json, "beside", o->beside >= 0 ? l->name[o->beside] : NULL);
    cli_json_bool(json, "no_difference", o->no_difference);
    cli_json_bool(json, "measured", false); /* the times of the list are predicted */
}

static int run(request *r, const cli_section *preset)
{
    if (!r->path == !r->preset.name)
        return cli_usage("expected a file of kernels, or --preset");
    if (r->path && cli_section_used(preset))
        return cli_usage("%s: of presets only; the file states its kernels",
                         cli_section_used(preset));
    r->kernels = calloc(1, sizeof *r->kernels);
    if (!r->kernels)
        return cli_out_of_memory();
    CLI_TRY(r->path ? cli_operators_read(r->kernels, r->path)
                    : cli_operators_preset(r->kernels, &r->preset));
    CLI_TRY(cli_model_finish(&r->model, r->preset.bits == 32));
    if (r->pairs) {
        CLI_TRY(price_pairs(r));
        return cli_model_show(&r->model, "overlap", print_pairs, pairs_json, r);
    }
    CLI_TRY(cli_library(ordo_model_overlap(r->model.model, r->kernels->list, r->kernels->count,
                                           r->times, &r->report)));
    return cli_model_show(&r->model, "overlap", print_times, times_json, r);
}

int cli_model_overlap(int argc, char **argv)
{
    request r = { .preset = {
                      .batch = 1, .seq = 8192, .tensor_parallel = 1, .rounds = 7, .bits = 8 } };
    cli_option options[] = {
        OPT_TEXT("--preset", "NAME", &r.preset.name,
                 "llama3-8b, llama3-70b, gpt3 or moe: one layer, instead of a file"),
        OPT_CHOICE("--precision", "bf16|fp8|f16|f32", &r.preset.precision, "of the products"),
        OPT_INT("--batch", "N", &r.preset.batch, 1, 1 << 20, "sequences of the preset"),
        OPT_INT("--seq", "N", &r.preset.seq, 1, 1 << 28, "rows of the preset"),
        OPT_FLAG("--causal", &r.preset.causal, "causal attention"),
        OPT_INT("--tensor-parallel", "N", &r.preset.tensor_parallel, 1, 1 << 10,
                "ranks that share the heads, with all-reduces"),
        OPT_INT("--rounds", "N", &r.preset.rounds, 1, 10, "of Philox"),
        OPT_INT("--bits", "N", &r.preset.bits, 1, 32, "random bits per element"),
        OPT_CHOICE("--generator", "sliced|swar|compare|sliced-any", &r.preset.generator,
                   "how they compare"),
    };
    cli_option output[] = {
        OPT_FLAG("--pairs", &r.pairs, "every two kernels: one after the other, and together"),
    };
    const cli_section sections[] = { CLI_SECTION("Preset", options), CLI_SECTION("Output", output),
                                     cli_model_section(&r.model) };
    const cli_syntax syntax = {
        "model overlap FILE.json|--preset NAME [OPTIONS]",
        "Find where in a list of kernels the keep bits of dropout are best made: where the list\n"
        "has them, on a second stream beside another kernel, or inside attention. With\n"
        "--pairs, any two kernels of the list by themselves, whether or not one makes bits.\n"
        "\n"
        "FILE is {\"kernels\": [..]}, - for standard input. A kernel has a \"kind\" and may have "
        "a\n"
        "\"name\", a \"stream\" (kernels of one stream run in order), names of others in "
        "\"after\",\n"
        "and measured \"seconds\" in place of the prediction:\n"
        "  gemm                           m, n, k, precision\n"
        "  attention, attention-backward  batch, heads, kv_heads, seq, kv_seq, head_dim, causal\n"
        "  rng                            heads, seq, .. or elements; rounds, bits, generator\n"
        "  norm, optimizer, memory        rows and width; parameters; read_bytes, write_bytes\n"
        "  all-reduce                     bytes, ranks\n"
        "  measured                       seconds; shares used: tensor, memory, slots, link",
        sections, 3,
        "  ordo model overlap --preset llama3-8b --seq 8k --causal\n"
        "  ordo model overlap --preset gpt3 --machine h100 --calibration paper --precision fp8 \\\n"
        "      --seq 32k --bits 32 --generator compare --json\n"
        "  ordo model overlap --preset moe --seq 4k --batch 2\n"
        "  ordo model overlap --preset llama3-8b --tensor-parallel 8 --pairs\n"
    };
    int status = CLI_OK;
    if (argc > 1 && (argv[1][0] != '-' || argv[1][1] == '\0')) {
        r.path = argv[1];
        argv++;
        argc--;
    }
    if (cli_args_read(&syntax, argc, argv, &status))
        status = run(&r, &sections[0]);
    free(r.of_pairs);
    free(r.kernels);
    cli_model_free(&r.model);
    return status;
}
