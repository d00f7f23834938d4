/* scan_report.c: what a scan found, for people and as lines of JSON. */
#include "attention/scan.h"
#include "kit/message.h"
#include "kit/output.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const pass_names[] = { "forward", "backward" };

/* ---- JSON: one object in one line ---- */

static cli_json begin_line(cli_scan_job *scan, const char *event, const cli_scan_device *d)
{
    cli_json json = { .out = scan->json };
    cli_json_object(&json, NULL);
    json.compact = json.depth;
    cli_json_int(&json, "schema_version", 1);
    cli_json_text(&json, "command", "scan");
    cli_json_text(&json, "event", event);
    cli_json_int(&json, "device", d->index);
    cli_json_text(&json, "name", d->name);
    cli_json_real(&json, "seconds", cli_now() - scan->began);
    return json;
}

static void end_line(cli_json *json)
{
    cli_json_end_object(json);
    fflush(json->out);
}

static void known(cli_json *json, const char *key, int64_t value)
{
    if (value >= 0)
        cli_json_int(json, key, value);
    else
        cli_json_null(json, key);
}

static void reading_json(cli_json *json, const char *key, const cli_scan_reading *r)
{
    cli_json_object(json, key);
    known(json, "celsius", r->celsius);
    known(json, "mhz", r->mhz);
    known(json, "watts", r->watts);
    cli_json_end_object(json);
}

/* ---- the beginning ---- */

void cli_scan_show_begin(cli_scan_job *scan, const cli_scan_device *d)
{
    if (scan->json) {
        cli_json json = begin_line(scan, "begin", d);
        cli_json_real(&json, "limit", scan->limit);
        cli_json_int(&json, "multiprocessors", d->workers);
        cli_json_int(&json, "registry", (int64_t)scan->catalogue.registered);
        end_line(&json);
        return;
    }
    printf("device     %s", d->name);
    if (d->workers > 0)
        printf(", number %d, %d multiprocessors", d->index, d->workers);
    printf("\n");
    fflush(stdout);
}

/* ---- a difference ---- */

static void unit_text(const cli_scan_difference *f, char *text, size_t capacity)
{
    const bool keys = f->what.kind == ORDO_AUDIT_DK_DV;
    snprintf(text, capacity, "%s unit %" PRId64 ", %shead %" PRId64 ", %s %" PRId64 " to %" PRId64,
             pass_names[f->pass], f->unit, keys ? "key " : "", f->what.head, keys ? "keys" : "rows",
             f->what.row, f->what.row + f->what.rows - 1);
}

static void difference_json(cli_scan_job *scan, const cli_scan_device *d, const cli_scan_batch *b,
                            const cli_scan_difference *f)
{
    cli_json json = begin_line(scan, "difference", d);
    cli_json_int(&json, "pass", d->passes);
    cli_json_text(&json, "problem", b->problem->words);
    cli_json_int(&json, "sequences", b->copies);
    cli_json_int(&json, "different", f->copies);
    cli_json_int(&json, "sequence", f->copy);
    cli_json_array(&json, "outputs");
    for (int i = 0; i < CLI_SCAN_OUTPUTS; i++)
        if (f->outputs >> i & 1)
            cli_json_text(&json, NULL, cli_output_name((cli_output)i));
    cli_json_end_array(&json);
    reading_json(&json, "reading", &d->last);
    if (f->located) {
        char unit[160];
        unit_text(f, unit, sizeof unit);
        cli_json_text(&json, "unit", unit);
        cli_json_text(&json, "tensor", f->element.tensor);
        cli_json_int(&json, "row", f->element.row);
        cli_json_int(&json, "head", f->element.head);
        cli_json_int(&json, "column", f->element.column);
        cli_json_int(&json, "found_bits", f->element.found);
        cli_json_int(&json, "expected_bits", f->element.expected);
        cli_json_real(&json, "found", f->element.found_value);
        cli_json_real(&json, "expected", f->element.expected_value);
    } else {
        cli_json_null(&json, "unit");
        cli_json_text(&json, "why_not", f->reason);
    }
    end_line(&json);
}

static void difference_text(const cli_scan_device *d, const cli_scan_batch *b,
                            const cli_scan_difference *f)
{
    printf("DIFFERENT  %s, pass %" PRId64 ", sequence %" PRId64 " of %" PRId64 " (%" PRId64
           " differ):",
           d->label, d->passes, f->copy, b->copies, f->copies);
    for (int i = 0; i < CLI_SCAN_OUTPUTS; i++)
        if (f->outputs >> i & 1)
            printf(" %s", cli_output_name((cli_output)i));
    printf("\n           %s\n", b->problem->words);
    if (f->located) {
        const ordo_audit_difference *e = &f->element;
        const int digits = strcmp(e->tensor, "lse") == 0 ? 8 : 4;
        char unit[160];
        unit_text(f, unit, sizeof unit);
        printf("           %s\n           %s, row %" PRId64 ", head %" PRId64 ", column %" PRId64
               ": found %.9g (0x%0*" PRIx32 "), expected %.9g (0x%0*" PRIx32
               "); elements that differ: %" PRId64 "\n",
               unit, e->tensor, e->row, e->head, e->column, e->found_value, digits, e->found,
               e->expected_value, digits, e->expected, e->count);
    } else {
        printf("           no unit: %s\n", f->reason);
    }
    if (d->last.celsius >= 0)
        printf("           %" PRId64 " C, %" PRId64 " MHz, %" PRId64 " W\n", d->last.celsius,
               d->last.mhz, d->last.watts);
    fflush(stdout);
}

void cli_scan_show_difference(cli_scan_job *scan, const cli_scan_device *d, const cli_scan_batch *b,
                              const cli_scan_difference *found)
{
    pthread_mutex_lock(&scan->lock);
    if (scan->json)
        difference_json(scan, d, b, found);
    else
        difference_text(d, b, found);
    pthread_mutex_unlock(&scan->lock);
}

void cli_scan_show_processor(cli_scan_job *scan, const cli_scan_device *d,
                             const cli_scan_difference *f, int processor, int64_t passes)
{
    char unit[160] = "";
    if (f && f->located)
        unit_text(f, unit, sizeof unit);
    pthread_mutex_lock(&scan->lock);
    if (scan->json) {
        cli_json json = begin_line(scan, "again", d);
        cli_json_int(&json, "passes", passes);
        cli_json_bool(&json, "differs", f != NULL);
        cli_json_text(&json, "unit", *unit ? unit : NULL);
        known(&json, "multiprocessor", processor);
        end_line(&json);
    } else if (f == NULL) {
        printf("again      equal in %" PRId64 " passes of this problem alone\n", passes);
    } else {
        printf("again      different after %" PRId64 " passes of this problem alone: %s\n", passes,
               *unit ? unit : f->reason);
        if (processor >= 0)
            printf("           multiprocessor %d computed this unit\n", processor);
    }
    fflush(stdout);
    pthread_mutex_unlock(&scan->lock);
}

/* ---- the end ---- */

/* A module that injects faults: passes until the first difference, by its probability. */
typedef struct injected {
    int processor;
    double rate, expected;
} injected;

static bool injection(const cli_scan_device *d, injected *x)
{
    uint64_t units = 0, flips = 0;
    x->rate = d->sensor.units_rate ? d->sensor.units_rate(&x->processor, &units, &flips) : 0;
    if (x->rate <= 0 || d->passes == 0 || units == 0)
        return false;
    const double each = (double)units / (double)(d->passes + d->again); /* units of a pass */
    x->expected = 1 / -expm1(each * log1p(-x->rate));
    return true;
}

static void end_json(cli_scan_job *scan, const cli_scan_device *d)
{
    cli_json json = begin_line(scan, "end", d);
    injected x;
    cli_json_bool(&json, "healthy", d->different == 0 && d->status == ORDO_OK);
    cli_json_int(&json, "passes", d->passes);
    cli_json_int(&json, "different", d->different);
    known(&json, "first", d->first > 0 ? d->first : -1);
    cli_json_int(&json, "drawn", scan->catalogue.drawn);
    cli_json_int(&json, "units", d->units);
    cli_json_real(&json, "scores", d->scores);
    cli_json_real(&json, "bytes", d->bytes);
    cli_json_real(&json, "scores_per_second", d->scores / d->seconds);
    reading_json(&json, "least", &d->least);
    reading_json(&json, "most", &d->most);
    if (injection(d, &x)) {
        cli_json_real(&json, "injected", x.rate);
        cli_json_int(&json, "multiprocessor", x.processor);
        cli_json_real(&json, "expected_passes", x.expected);
    }
    cli_json_text(&json, "error", d->status == ORDO_OK ? NULL : d->message);
    end_line(&json);
}

static void range(const char *what, int64_t least, int64_t most, const char *unit)
{
    if (least >= 0)
        printf("%s%" PRId64 " to %" PRId64 " %s", what, least, most, unit);
}

static void end_text(const cli_scan_job *scan, const cli_scan_device *d)
{
    injected x;
    printf("time       %.1f s, %" PRId64 " passes", d->seconds, d->passes);
    if (scan->catalogue.registered > 0)
        printf(" of %zu problems of the registry and %" PRId64 " drawn ones",
               scan->catalogue.registered, scan->catalogue.drawn);
    putchar('\n');
    printf("compared   %.3g G scores (%.3g G/s), %.3g M units, %.3g GB of results\n",
           d->scores * 1e-9, d->scores / d->seconds * 1e-9, (double)d->units * 1e-6,
           d->bytes * 1e-9);
    if (d->least.celsius >= 0) {
        range("state      ", d->least.celsius, d->most.celsius, "C");
        range(", ", d->least.mhz, d->most.mhz, "MHz");
        range(", ", d->least.watts, d->most.watts, "W");
        putchar('\n');
    }
    if (injection(d, &x)) {
        printf("injected   with probability %g for a unit on multiprocessor %d: one pass in %.4g\n",
               x.rate, x.processor, x.expected);
        if (d->different > 0)
            printf("           found first in pass %" PRId64 ", then in one of %.4g\n", d->first,
                   (double)d->passes / (double)d->different);
    }
    if (d->status != ORDO_OK)
        printf("FAILED     %s: %s\n", d->label, d->message);
    else if (d->different > 0)
        printf("DIFFERENT  %s: %" PRId64 " of %" PRId64 " passes\n", d->label, d->different,
               d->passes);
    else
        printf("equal      %s: every bit of %" PRId64 " passes\n", d->label, d->passes);
}

void cli_scan_show_end(cli_scan_job *scan, const cli_scan_device *d)
{
    if (scan->json)
        end_json(scan, d);
    else
        end_text(scan, d);
}
