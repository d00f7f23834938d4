/* model_report.c: `ordo model report`: one block as a self-contained HTML page. */
#include "cli/model_block.h"
#include "cli/model_grid.h"
#include "kit/page.h"

#include <inttypes.h>
#include <string.h>

enum { MIB = 1 << 20, BAR_WIDTH = 370, BAR_HEIGHT = 15, NAME_WIDTH = 84 };

typedef struct page {
    cli_priced_block priced;
    cli_grid speedup, cost;
} page;

static const char style[] =
    ":root{--bar:#9db7d5;--binds:#b2182b}\n"
    "@media(prefers-color-scheme:dark){:root{--bar:#47658a;--binds:#e06457}}\n"
    ".advice{font-size:1.1rem;border-left:4px solid #2166ac;padding:.4rem 1rem}\n"
    ".bars{display:flex;flex-wrap:wrap;gap:1.5rem}\n"
    ".bars svg text{font:12px system-ui,sans-serif;fill:var(--ink)}.b{fill:var(--bar)}"
    ".b.binds{fill:var(--binds)}\n"
    "figure{margin:0}figcaption{font-weight:600}details{margin-top:1rem}\n";

static void write_question(FILE *out, const page *p)
{
    const cli_block_args *a = p->priced.args;
    const cli_model_args *m = p->priced.model;
    char advice[160];
    fputs("<h1>Attention dropout in a transformer block, priced</h1>\n<p>", out);
    cli_page_escape(out, ordo_machine_title(m->machine));
    fprintf(out,
            ", %s calibration%s. Batch %" PRId64 ", %" PRId64 " rows%s, width %" PRId64 ", %" PRId64
            " heads of %" PRId64 " on this rank, %s. Keep bits: Philox with %" PRId64
            " rounds, %" PRId64 " bits per element, %s.</p>\n",
            ordo_calibration_name((ordo_calibration)m->calibration),
            m->calibration == ORDO_CALIBRATION_PAPER ? ""
            : m->state == 1                          ? ", burst"
                                                     : ", steady state",
            a->batch, a->seq, a->causal ? " causal" : "", a->embed, p->priced.report.heads,
            a->head_dim, cli_block_precision(m, a), a->rounds, a->bits,
            ordo_generator_name((ordo_generator)a->generator));
    cli_block_advice(&p->priced, advice, sizeof advice);
    fprintf(out, "<p class=\"advice\" id=\"recommended\">Recommended: %s.</p>\n", advice);
}

static void write_modes(FILE *out, const ordo_block_report *r)
{
    fprintf(out,
            "<h2>Modes</h2>\n<table id=\"modes\">\n<tr><th>forward</th><th>ms</th><th>over no "
            "dropout</th><th>bits, MiB</th></tr>\n<tr><td>no dropout</td><td>%.4f</td><td></td>"
            "<td>0</td></tr>\n",
            r->none * 1e3);
    for (int i = 0; i < ORDO_DROPOUT_MODES; i++)
        fprintf(out, "<tr%s><td>%s</td><td>%.4f</td><td>%+.1f %%</td><td>%.1f</td></tr>\n",
                i == (int)r->best ? " class=\"best\"" : "",
                ordo_dropout_mode_name((ordo_dropout_mode)i), r->mode[i] * 1e3,
                100 * (r->mode[i] / r->none - 1), r->keep_bits_bytes[i] / MIB);
    fprintf(out, "</table>\n<p>Region %d: %s%s</p>\n", r->region,
            r->region == 3   ? "making the bits outlasts the GEMMs that could cover it."
            : r->region == 2 ? "making the bits hides under the GEMMs."
                             : "making the bits hides under the GEMMs with room to spare.",
            r->coresident
                ? ""
                : " The GEMMs and the kernel that makes the bits do not fit one multiprocessor "
                  "together, so only the idle "
                  "ends of the GEMMs' last waves are filled.");
}

static void write_training(FILE *out, const ordo_training *t)
{
    fputs("<h2>Forward and backward</h2>\n<p>The backward pass keeps the bits of the forward pass, "
          "or regenerates them.</p>\n<table>\n<tr><th>mode</th><th>ms</th><th>over no "
          "dropout</th></tr>\n",
          out);
    for (int i = 0; i < CLI_TRAINING_WAYS; i++) {
        const double seconds = cli_training_seconds(t, i);
        fprintf(out, "<tr><td>%s</td><td>%.4f</td><td>%+.1f %%</td></tr>\n",
                cli_training_ways[i].name, seconds * 1e3, 100 * (seconds / t->none - 1));
    }
    fputs("</table>\n", out);
}

/* Limiters of a kernel as bars, the binding one marked. */
static void write_bars(FILE *out, const char *name, const ordo_kernel_time *t)
{
    int rows = 0;
    for (int i = 0; i < ORDO_LIMITERS; i++)
        rows += t->by[i] > 0;
    fprintf(
        out,
        "<figure><figcaption>%s: %.4f ms</figcaption><svg width=\"%d\" height=\"%d\" role=\"img\" "
        "aria-label=\"limiters of %s\">\n",
        name, t->seconds * 1e3, NAME_WIDTH + BAR_WIDTH + 90, rows * (BAR_HEIGHT + 4), name);
    int y = 0;
    for (int i = 0; i < ORDO_LIMITERS; i++) {
        if (t->by[i] <= 0)
            continue;
        const double width = BAR_WIDTH * t->by[i] / t->by[t->limiter];
        fprintf(out,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text><rect class=\"b%s\" x=\"%d\" "
                "y=\"%d\" width=\"%.1f\" height=\"%d\"/><text x=\"%.1f\" y=\"%d\">%.4f</text>\n",
                NAME_WIDTH - 8, y + 12, ordo_limiter_name((ordo_limiter)i),
                i == (int)t->limiter ? " binds" : "", NAME_WIDTH, y, width < 1 ? 1 : width,
                BAR_HEIGHT, NAME_WIDTH + width + 6, y + 12, t->by[i] * 1e3);
        y += BAR_HEIGHT + 4;
    }
    fputs("</svg></figure>\n", out);
}

static void write_limiters(FILE *out, const ordo_block_report *r)
{
    fputs("<h2>What binds each kernel</h2>\n<p>What each limiter would take alone, in ms; the "
          "longest binds.</p>\n<div class=\"bars\" id=\"limiters\">\n",
          out);
    for (int i = 0; i < ORDO_BLOCK_GEMMS; i++) {
        char name[24];
        snprintf(name, sizeof name, "GEMM %s", cli_gemm_names[i]);
        write_bars(out, name, &r->gemm[i]);
    }
    write_bars(out, "attention", &r->attention);
    write_bars(out, "attention, bits read", &r->attention_given);
    write_bars(out, "attention, bits made", &r->attention_made);
    write_bars(out, "attention backward", &r->attention_backward);
    write_bars(out, "making the bits", &r->rng);
    fputs("</div>\n", out);
}

static void write_constants(FILE *out, const ordo_model *model)
{
    ordo_model_constant c;
    fputs("<details><summary>Every constant, with its source</summary>\n<table>\n<tr><th>name</th>"
          "<th>value</th><th>unit</th><th>kind</th><th>source</th></tr>\n",
          out);
    for (size_t i = 0; ordo_model_constant_at(model, i, &c) == ORDO_OK; i++) {
        fprintf(out,
                "<tr><td>%s</td><td>%.6g</td><td class=\"text\">%s</td><td class=\"text\">%s</td>"
                "<td class=\"text\">",
                c.name, c.value, c.unit, c.kind);
        cli_page_escape(out, c.changed ? "set on the command line" : c.source);
        fputs("</td></tr>\n", out);
    }
    fputs("</table>\n</details>\n", out);
}

static void write_page(FILE *out, const void *what)
{
    const page *p = what;
    const ordo_block_report *r = &p->priced.report;
    cli_page_start(out, "ordo model", style);
    write_question(out, p);
    write_modes(out, r);
    write_training(out, &r->training);
    write_limiters(out, r);
    fputs("<h2>Other shapes</h2>\n<div class=\"chart\" id=\"grids\">\n", out);
    cli_grid_svg(out, &p->speedup);
    cli_grid_svg(out, &p->cost);
    fputs("</div>\n", out);
    write_constants(out, p->priced.model->model);
    fprintf(out,
            "<p class=\"soft\">Made by ordo %s. Predictions, not measurements.</p>\n</body>\n"
            "</html>\n",
            ordo_build_query().version);
}

/* An axis around a size: a quarter to four times it, where whole heads and rows remain. */
static void around(char *text, size_t capacity, const char *name, int64_t size, int64_t unit)
{
    size_t used = (size_t)snprintf(text, capacity, "%s=", name);
    bool first = true;
    for (int64_t quarter = 1; quarter <= 16; quarter *= 2) {
        const int64_t value = size / 4 * quarter;
        if (size % 4 != 0 || value < unit || value % unit != 0 || value > 1 << 24)
            continue;
        used +=
            (size_t)snprintf(text + used, capacity - used, "%s%" PRId64, first ? "" : ",", value);
        first = false;
    }
    if (first)
        snprintf(text, capacity, "%s=%" PRId64, name, size);
}

static int fill(page *p)
{
    const cli_block_args *a = p->priced.args;
    char x[160], y[160];
    const ordo_block block = cli_block_of(a);
    CLI_TRY(cli_library(ordo_model_block(p->priced.model->model, &block, &p->priced.report)));
    const int64_t ranks = a->tensor_parallel ? a->tensor_parallel : 1;
    const int64_t rows = a->sequence_parallel ? a->sequence_parallel : 1;
    around(x, sizeof x, "seq", a->seq, 128 * rows * (a->segments ? a->segments : 1));
    /* With a number of key heads given, other widths would not have whole groups. */
    around(y, sizeof y, "embed", a->embed, a->kv_heads ? INT64_MAX : a->head_dim * ranks);
    int status = cli_grid_axes(&p->speedup, p->priced.model, a, x, y, "overlapped_over_sequential");
    if (status == CLI_OK)
        status = cli_grid_axes(&p->cost, p->priced.model, a, x, y, "dropout_cost");
    return status;
}

int cli_model_report(int argc, char **argv)
{
    cli_model_args model = { 0 };
    cli_block_args args = { 0 };
    const char *html = "-";
    cli_option options[] = {
        OPT_OUTPUT("--html", "FILE", &html, "where the page goes (default standard output)"),
    };
    const cli_section sections[] = { CLI_SECTION("Page", options), cli_block_section(&args),
                                     cli_model_section(&model) };
    const cli_syntax syntax = {
        "model report --seq N --embed N [--html FILE] [OPTIONS]",
        "A self-contained HTML page about one block: the recommendation, every mode, the limiters\n"
        "of each kernel, heat maps of the shapes around it, and every constant with its source.\n"
        "With --json the numbers instead.",
        sections, 3,
        "  ordo model report --seq 8k --embed 4k --causal\n"
        "  ordo model report --machine h100 --precision fp8 --seq 8k --embed 4k --json\n"
    };
    int status = CLI_OK;
    page p = { .priced = { .model = &model, .args = &args } };
    if (cli_args_read(&syntax, argc, argv, &status)) {
        if (args.seq == 0 || args.embed == 0)
            status =
                cli_usage("%s: missing; expected a number", args.seq == 0 ? "--seq" : "--embed");
        if (status == CLI_OK)
            status = cli_model_finish(&model, cli_block_is_paper(&args));
        if (status == CLI_OK)
            status = fill(&p);
        if (status == CLI_OK)
            status = model.json.on
                         ? cli_model_show(&model, "block", NULL, cli_block_fields, &p.priced)
                         : cli_report_file(html, write_page, &p);
    }
    cli_grid_free(&p.speedup);
    cli_grid_free(&p.cost);
    cli_model_free(&model);
    return status;
}
