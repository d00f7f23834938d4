/* report.c: where a command's answer goes: text on standard output, or JSON where --json says. */
#include "kit/report.h"

#include "kit/message.h"
#include "kit/output.h"

#include <string.h>

typedef struct document {
    const char *command;
    cli_fields *fields;
    const void *what;
} document;

static void write_document(FILE *out, const void *what)
{
    const document *d = what;
    cli_json json = { .out = out };
    cli_json_object(&json, NULL);
    cli_json_int(&json, "schema_version", 1);
    cli_json_text(&json, "command", d->command);
    d->fields(&json, d->what);
    cli_json_end_object(&json);
}

int cli_report_json(const cli_json_target *target, const char *command, cli_fields *fields,
                    const void *what)
{
    const document d = { command, fields, what };
    return cli_report_file(target->path, write_document, &d);
}

static const void *item(const cli_results *r, size_t index)
{
    return (const char *)r->items + index * r->size;
}

void cli_results_json(cli_json *json, const cli_results *r)
{
    cli_json_array(json, "results");
    for (size_t i = 0; i < r->count; i++) {
        cli_json_object(json, NULL);
        r->fields(json, item(r, i));
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

static void results_fields(cli_json *json, const void *what)
{
    const cli_results *r = what;
    if (r->count == 1)
        r->fields(json, r->items);
    else
        cli_results_json(json, r);
}

int cli_report_results(const cli_json_target *target, const cli_results *r)
{
    if (target->on)
        return cli_report_json(target, r->command, results_fields, r);
    for (size_t i = 0; i < r->count; i++) {
        if (i > 0)
            puts("");
        r->print(item(r, i));
    }
    return CLI_OK;
}

int cli_report_file(const char *path, void (*write)(FILE *out, const void *what), const void *what)
{
    cli_file file;
    CLI_TRY(cli_file_open(&file, path ? path : "-"));
    write(file.stream, what);
    return cli_file_commit(&file);
}

bool cli_is_stdout(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

bool cli_json_on_stdout(const cli_json_target *target)
{
    return target->on && (target->path == NULL || cli_is_stdout(target->path));
}

int cli_report_check(const cli_json_target *target, const char *path)
{
    if (cli_is_stdout(path) && cli_json_on_stdout(target))
        return cli_usage("--json: standard output is taken; name a file, --json=FILE");
    return CLI_OK;
}
