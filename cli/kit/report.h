/* report.h: where a command's answer goes: text on standard output, or JSON where --json says. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "kit/args.h"
#include "kit/json.h"

/* Writes what belongs to `what` into the object that is open. */
typedef void cli_fields(cli_json *json, const void *what);

/* Write a JSON document to where --json says: the heading of `command`, then the fields. Prints its
 * error and returns an exit status. */
int cli_report_json(const cli_json_target *target, const char *command, cli_fields *fields,
                    const void *what);

/* Results of a command: `count` items of `size` bytes each. */
typedef struct cli_results {
    const char *command;
    cli_fields *fields;              /* fields of one item */
    void (*print)(const void *item); /* the same for people */
    const void *items;
    size_t size, count;
} cli_results;

/* Print every result, or write them as JSON on request: one result's fields in the
 * document itself, several as the array "results". Prints its error and returns an exit status. */
int cli_report_results(const cli_json_target *target, const cli_results *results);

/* The array "results" of all items. */
void cli_results_json(cli_json *json, const cli_results *results);

/* Call `write` with a file that appears whole or not at all; NULL is standard output. Prints its
 * error and returns an exit status. */
int cli_report_file(const char *path, void (*write)(FILE *out, const void *what), const void *what);

/* Whether a path is standard output, and whether JSON goes there. */
bool cli_is_stdout(const char *path);
bool cli_json_on_stdout(const cli_json_target *target);

/* A usage error if both the file at `path` and JSON would go to standard output. */
int cli_report_check(const cli_json_target *target, const char *path);

#endif
