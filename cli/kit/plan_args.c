/* plan_args.c: options for explicit choices of a plan, and names of orders. */
#include "kit/plan_args.h"

#include "kit/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST INT64_C(1000000000000)
enum { LEVELS = 6 }; /* levels of the promise */

cli_section cli_choices_section(cli_choices *c)
{
    *c = (cli_choices) { .issue = -1, .assign = -1 };
    const cli_option table[CLI_CHOICE_OPTIONS] = {
        OPT_TEXT("--order", "NAME", &c->order, "order of the sums (default: ordo chooses)"),
        OPT_TEXT("--group", "N|waves", &c->group, "group size of orders shift and symmetric"),
        OPT_TEXT("--tile-forward", "QxK", &c->tile_forward,
                 "rows x columns of a tile of the forward pass"),
        OPT_TEXT("--tile-backward", "QxK", &c->tile_backward,
                 "rows x columns of a tile of the backward pass"),
        OPT_CHOICE("--issue", "head|key", &c->issue,
                   "issue order of chains: head by head, or key tile by key tile"),
        OPT_INT("--section", "N", &c->section, 1, MOST, "heads per section of --issue key"),
        OPT_CHOICE("--assign", "pinned|first-free", &c->assign,
                   "chains on fixed workers, or on the first free one"),
        OPT_INT("--workers", "N", &c->workers, 1, MOST,
                "workers to plan for (default those of the machine)"),
        OPT_INT("--segments", "N", &c->segments, 1, MOST,
                "segments of rows, with keep bits of two of them in memory"),
        OPT_INT("--keep-bits-memory", "BYTES", &c->keep_bits_memory, 1, MOST,
                "as many segments as fit their keep bits into this memory"),
        OPT_INT("--workspace-limit", "BYTES", &c->workspace_limit, 1, MOST,
                "bytes that a CUDA pass by phases fills (default 1.25 GiB)"),
        OPT_INT("--split", "1", &c->split, 1, 1, "accumulators per query tile"),
    };
    memcpy(c->options, table, sizeof table);
    return (cli_section) { "Choices (the first four are part of the numeric key, the others change "
                           "no bit)",
                           c->options, CLI_CHOICE_OPTIONS - 1 };
}

cli_section cli_choices_deprecated(cli_choices *c)
{
    cli_section section = cli_choices_section(c);
    section.count = CLI_CHOICE_OPTIONS;
    section.instead = "--plan with a line of ordo plan --line";
    return section;
}

static int read_tile(const char *word, const char *text, ordo_tile *tile)
{
    if (text == NULL || cli_read_pair(text, 'x', 1, MOST, &tile->q, &tile->k))
        return CLI_OK;
    return cli_usage("%s %s: expected rows x columns, such as 64x128", word, text);
}

int cli_choices_finish(const cli_choices *c, ordo_plan_options *options)
{
    CLI_TRY(c->order ? cli_read_order(c->order, &options->order) : CLI_OK);
    CLI_TRY(cli_read_group(c->group, &options->group));
    CLI_TRY(read_tile("--tile-forward", c->tile_forward, &options->forward_tile));
    CLI_TRY(read_tile("--tile-backward", c->tile_backward, &options->backward_tile));
    options->issue = (ordo_issue)(c->issue + 1); /* the words stand in the order of the enums */
    options->section = c->section;
    options->assign = (ordo_assign)(c->assign + 1);
    options->workers = c->workers;
    options->segments = c->segments;
    options->keep_bits_memory = (uint64_t)c->keep_bits_memory;
    options->workspace_limit = c->workspace_limit;
    return CLI_OK;
}

int cli_choices_of(const ordo_plan *plan, ordo_plan_options *options)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CLI_TRY(cli_library(ordo_plan_query(plan, &info)));
    options->backend = info.backend;
    options->forward_tile = info.forward_tile;
    options->backward_tile = info.backward_tile;
    options->order = info.order_asked;
    options->group = info.group;
    options->issue = info.issue;
    options->assign = info.assign;
    options->workers = info.workers;
    options->segments = info.segments;
    return CLI_OK;
}

int cli_read_order(const char *name, ordo_order *order)
{
    const char *names[ORDO_ORDER_COUNT];
    char all[256] = "";
    if (ordo_order_from_name(name, order) == ORDO_OK && *order != ORDO_ORDER_DEFAULT)
        return CLI_OK;
    for (int i = 0; i < ORDO_ORDER_COUNT; i++) {
        names[i] = ordo_order_name((ordo_order)(i + 1));
        strncat(all, i > 0 ? ", " : "", sizeof all - strlen(all) - 1);
        strncat(all, names[i], sizeof all - strlen(all) - 1);
    }
    const char *near = cli_nearest(name, names, ORDO_ORDER_COUNT);
    if (near)
        return cli_usage("--order %s: did you mean %s? Expected one of %s", name, near, all);
    return cli_usage("--order %s: expected one of %s", name, all);
}

int cli_read_group(const char *text, int64_t *group)
{
    if (text == NULL)
        *group = 0;
    else if (strcmp(text, "waves") == 0)
        *group = ORDO_GROUP_WAVES;
    else if (!cli_read_size(text, 1, MOST, group))
        return cli_usage("--group %s: expected a whole number above 0, or waves", text);
    return CLI_OK;
}

void cli_group_text(int64_t group)
{
    if (group == ORDO_GROUP_WAVES)
        fputs(", group waves", stdout);
    else if (group > 0)
        printf(", group %" PRId64, group);
}

void cli_group_json(cli_json *json, int64_t group)
{
    if (group == ORDO_GROUP_WAVES)
        cli_json_text(json, "group", "waves");
    else
        cli_json_int(json, "group", group);
}

/* The names of the levels, one after the other: the first index is 0, and NULL ends them. */
static const char *level_name(unsigned levels, int *index)
{
    while (*index < LEVELS && !(levels & 1u << *index))
        ++*index;
    return *index < LEVELS ? ordo_promise_name((ordo_promise)(1 << (*index)++)) : NULL;
}

void cli_levels_text(unsigned levels)
{
    const char *name;
    for (int i = 0; (name = level_name(levels, &i));)
        printf(" %s", name);
    puts(levels ? "" : " none");
}

void cli_levels_json(cli_json *json, const char *key, unsigned levels)
{
    const char *name;
    cli_json_array(json, key);
    json->compact = json->depth;
    for (int i = 0; (name = level_name(levels, &i));)
        cli_json_text(json, NULL, name);
    cli_json_end_array(json);
}

char *cli_plan_line(const ordo_plan *plan, int *exit_status)
{
    size_t needed = 0;
    (void)ordo_plan_print(plan, NULL, 0, &needed); /* too small on purpose: asks for the size */
    char *line = malloc(needed > 0 ? needed : 1);
    if (line == NULL) {
        *exit_status = cli_out_of_memory();
        return NULL;
    }
    const ordo_status printed = ordo_plan_print(plan, line, needed, NULL);
    if (printed == ORDO_OK)
        return line;
    *exit_status = cli_library(printed);
    free(line);
    return NULL;
}
