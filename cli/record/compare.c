/* compare.c: `ordo compare`: where the records of two training runs differ first. */
#include "record/compare.h"

#include "commands.h"
#include "kit/args.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/report.h"

typedef struct request {
    cli_comparison compare;
    cli_json_target json;
    const char *html;
} request;

static void fields(cli_json *json, const void *what)
{
    const cli_comparison *c = what;
    const ordo_comparison_info *i = &c->info;
    cli_json_bool(json, "equal", i->equal);
    cli_json_text(json, "a", c->path[0]);
    cli_json_text(json, "b", c->path[1]);
    cli_json_int(json, "steps", i->steps);
    cli_json_int(json, "first", i->first);
    cli_json_int(json, "last", i->last);
    cli_json_int(json, "tensors", i->tensors);
    cli_json_int(json, "equal_steps", i->equal_steps);
    if (i->equal)
        cli_json_null(json, "step");
    else
        cli_json_int(json, "step", i->step);
    cli_json_text(json, "different", *i->different ? i->different : NULL);
    cli_json_text(json, "gradient", *i->gradient ? i->gradient : NULL);
    cli_json_array(json, "causes");
    for (int bit = 0; bit < ORDO_CAUSE_COUNT; bit++)
        if (i->causes & 1u << bit)
            cli_json_text(json, NULL, ordo_cause_name(1u << bit));
    cli_json_end_array(json);
    cli_json_text(json, "hint", *i->hint ? i->hint : NULL);
    cli_json_int(json, "weights", i->weights);
    cli_json_int(json, "other_weights", i->other_weights);
    cli_json_int(json, "gradients", i->gradients);
    cli_json_int(json, "other_gradients", i->other_gradients);
    cli_json_int(json, "steps_a", i->steps_a);
    cli_json_int(json, "steps_b", i->steps_b);
    cli_json_int(json, "ignored_a", i->ignored_a);
    cli_json_int(json, "ignored_b", i->ignored_b);
    cli_json_bool(json, "incomplete_a", i->incomplete_a);
    cli_json_bool(json, "incomplete_b", i->incomplete_b);
}

static int write_page(const request *r)
{
    cli_file file;
    CLI_TRY(cli_file_open(&file, r->html));
    if (cli_compare_html(file.stream, &r->compare))
        return cli_file_commit(&file);
    cli_file_discard(&file);
    return cli_out_of_memory();
}

static int compare(request *r)
{
    cli_comparison *c = &r->compare;
    if (!c->path[1])
        return cli_usage("expected two records, such as ordo compare a.jsonl b.jsonl");
    CLI_TRY(cli_report_check(&r->json, r->html));
    cli_progress_start("reading and comparing");
    ordo_status status = ordo_comparison_create(&c->comparison, c->path[0], c->path[1]);
    if (status == ORDO_OK)
        status = ordo_comparison_query(c->comparison, &c->info);
    cli_progress_stop();
    CLI_TRY(cli_library(status));
    if (r->html) {
        cli_progress_start("drawing");
        const int written = write_page(r);
        cli_progress_stop();
        CLI_TRY(written);
    }
    if (r->json.on)
        CLI_TRY(cli_report_json(&r->json, "compare", fields, c));
    else if (!cli_is_stdout(r->html))
        fputs(c->info.text, stdout);
    if (!c->info.equal)
        return CLI_DIFFERENT;
    return c->info.ignored_a + c->info.ignored_b == 0 ? CLI_OK : CLI_UNREADABLE;
}

int cli_compare(int argc, char **argv)
{
    request r = { .compare.info = ORDO_COMPARISON_INFO_INIT };
    cli_option options[] = {
        OPT_OUTPUT("--html", "FILE", &r.html,
                   "write a page with both loss curves and a map of layers and steps"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = { CLI_SECTION("Output", options) };
    const cli_syntax syntax = {
        "compare A B [OPTIONS]",
        "Compare the records of two training runs, which ordo.Recorder wrote: every step that "
        "both\n"
        "have, digest by digest. Print up to which step they are equal, the first tensor that\n"
        "differs, gradients in backward order, and a hint at the cause. A run that is still being\n"
        "recorded may be compared. Exit status: 0 equal, 1 different, 2 a file is no record, 5 "
        "equal\n"
        "but for lines that cannot be read.",
        sections,
        1,
        "  ordo compare monday.jsonl tuesday.jsonl\n"
        "  ordo compare monday.jsonl tuesday.jsonl --html difference.html\n"
        "  ordo compare monday.jsonl tuesday.jsonl --json\n",
        r.compare.path,
        2
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status))
        status = compare(&r);
    ordo_comparison_destroy(r.compare.comparison);
    return status;
}
