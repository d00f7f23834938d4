/* plan_contract.c: `ordo plan --contract`: what two parties compare before they expect equal bits.
 *
 * The semantics are the fields of the plan's line, less those that the numeric key states already
 * and those that a kept level of the promise proves irrelevant. A field that this file does not
 * know is therefore compared. */
#include "attention/plan_report.h"

#include <inttypes.h>
#include <string.h>

typedef struct level {
    ordo_promise bit;
    const char *against; /* what the bits do not depend on if the level is kept */
} level;

static const level levels[] = {
    { ORDO_PROMISE_REPEAT, "the run, the stream, the load on the device, timing" },
    { ORDO_PROMISE_PORTABLE, "the number of SMs or threads; on CPUs also the instruction set" },
    { ORDO_PROMISE_BATCH, "the batch around a sequence, its position, padding or packing" },
    { ORDO_PROMISE_SPLIT, "how batch and groups of heads are split over ranks" },
    { ORDO_PROMISE_CUT, "how rows and columns of a sequence are spread over calls" },
    { ORDO_PROMISE_KEEP_BITS, "the backend and the pass, for the elements that dropout drops" },
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* Fields of a plan's line that are not compared if one of the levels is kept. The numeric key
 * states the first row or the machine may choose it, whatever the plan keeps. */
static const struct {
    unsigned kept;
    const char *fields;
} irrelevant[] = {
    { ~0u, " ordo-plan/1 backend family revision fq fk bq bk order asked group split issue section "
           "assign workers key " },
    { ORDO_PROMISE_BATCH, " layout batch batch0 total_q total_kv " },
    { ORDO_PROMISE_SPLIT, " heads kv_heads head0 heads_total " },
    { ORDO_PROMISE_CUT, " q_len kv_len row0 col0 q_total kv_total " },
};

/* Whole lengths are compared with the inputs, so a whole sequence needs no place in the line. */
static bool is_whole(const ordo_problem *p)
{
    return p->layout != ORDO_DENSE ||
           (p->shard.row0 == 0 && p->shard.col0 == 0 && p->q_len == p->shard.q_total &&
            (p->kv_len < 0 || p->kv_len == p->shard.kv_total));
}

static bool is_irrelevant(const char *name, unsigned kept)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    for (size_t i = 0; i < sizeof irrelevant / sizeof *irrelevant; i++)
        if ((irrelevant[i].kept & kept) && strstr(irrelevant[i].fields, word))
            return true;
    return false;
}

/* The fields to compare, separated by spaces. What does not fit a line of 2000 bytes is left out;
 * lines of plans have half of that. */
static void semantics(const cli_plan_report *r, char *text, size_t capacity)
{
    const unsigned kept = r->info.kept | (is_whole(&r->problem) ? ORDO_PROMISE_CUT : 0u);
    const int64_t kv_heads = r->problem.kv_heads;
    size_t used = (size_t)snprintf(text, capacity, "queries_per_key_head=%" PRId64,
                                   kv_heads > 0 ? r->problem.heads / kv_heads : 1);
    for (const char *field = r->line; *field;) {
        const size_t length = strcspn(field, " ");
        char name[48];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(field, "= "), field);
        if (!is_irrelevant(name, kept) && used + length + 2 < capacity)
            used += (size_t)snprintf(text + used, capacity - used, " %.*s", (int)length, field);
        field += length + strspn(field + length, " ");
    }
}

static const char *inputs(const ordo_problem *p)
{
    return p->dropout.p > 0
               ? "q, k, v, dout and their lengths; seed, offset, sequence id and head of dropout"
               : "q, k, v, dout and their lengths";
}

static void print_levels(const char *title, unsigned kept)
{
    puts(title);
    for (int i = 0; i < LEVELS; i++)
        if (kept & (unsigned)levels[i].bit)
            printf("  %-12s %s\n", ordo_promise_name(levels[i].bit), levels[i].against);
    if (kept == 0)
        puts("  none");
}

static void print_one(const void *report)
{
    const cli_plan_report *r = report;
    char text[2000];
    if (r->status != ORDO_OK) {
        printf("refused: %s\n", r->why);
        return;
    }
    semantics(r, text, sizeof text);
    printf("compare\n  semantics    %s\n  numeric key  %s\n  inputs       %s\n", text,
           r->info.numeric_key, inputs(&r->problem));
    print_levels("proven not to matter", r->info.kept);
    print_levels("may matter", r->info.not_kept);
}

static void levels_json(cli_json *json, const char *key, unsigned kept)
{
    cli_json_object(json, key);
    for (int i = 0; i < LEVELS; i++)
        if (kept & (unsigned)levels[i].bit)
            cli_json_text(json, ordo_promise_name(levels[i].bit), levels[i].against);
    cli_json_end_object(json);
}

static void report_json(cli_json *json, const void *report)
{
    const cli_plan_report *r = report;
    char text[2000];
    if (r->status != ORDO_OK) {
        cli_json_text(json, "error", ordo_status_name(r->status));
        cli_json_text(json, "message", r->why);
        return;
    }
    semantics(r, text, sizeof text);
    cli_json_text(json, "semantics", text);
    cli_json_text(json, "numeric_key", r->info.numeric_key);
    cli_json_text(json, "inputs", inputs(&r->problem));
    levels_json(json, "does_not_matter", r->info.kept);
    levels_json(json, "may_matter", r->info.not_kept);
}

int cli_plan_contract(const cli_json_target *target, const cli_plan_report *reports, size_t count)
{
    const cli_results results = { "plan", report_json, print_one, reports, sizeof *reports, count };
    return cli_report_results(target, &results);
}
