/* io_crossover.c: `ordo io --crossover`: the forms of the backward pass over head size, predicted
 * and measured.
 *
 * Measured rates come from what bench/gpu/run phase_h200 --json writes: rows of a head size with
 * "figures" in TFLOP/s. "flash_bwd", "apart_bwd" and "phase_bwd" were measured in turns; "ours_bwd"
 * is the rate of the form that ordo uses, and counts where no figure names that form. Counted bytes
 * come from what bench/gpu/run counters_h200 --json writes: "sm" of the "figures" of a row's "form"
 * and "pass". Rows with a full mask and 8192 rows count. */
#include "cli/io_crossover.h"

#include "cli/io.h"
#include "kit/json_read.h"
#include "kit/message.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20, SEQ = 8192 };

const char *const cli_form_names[CLI_FORMS] = { "flash", "apart", "phase" };

/* ---- predicted ---- */

static int form_of(ordo_io_algorithm a)
{
    return a == ORDO_IO_PHASE   ? CLI_FORM_PHASE
           : a == ORDO_IO_APART ? CLI_FORM_APART
                                : CLI_FORM_FLASH;
}

static double known(double flops)
{
    return flops > 0 ? flops : NAN;
}

static void note_ahead(cli_ahead *ahead, int64_t head_dim, bool chained, bool first)
{
    int64_t *const least = chained ? &ahead->chains : &ahead->separate;
    if (first && *least == 0)
        *least = head_dim;
}

/* Head sizes in steps of 8, as the kernels take them. */
static int predict(cli_crossover *c, const ordo_machine *machine)
{
    for (int64_t d = CLI_CROSSOVER_FIRST; d <= CLI_CROSSOVER_LAST; d += 8) {
        ordo_io_bytes b;
        CLI_TRY(cli_library(ordo_io_hopper(machine, d, &b)));
        const bool chained = ordo_io_chained(d, d);
        if (chained)
            c->chains_last = d;
        note_ahead(&c->by_bytes, d, chained, b.fewest == ORDO_IO_PHASE);
        note_ahead(&c->by_rate, d, chained, b.phase_flops > b.flash_flops);
        if ((d - CLI_CROSSOVER_FIRST) % CLI_CROSSOVER_STEP != 0)
            continue;
        c->rows[(d - CLI_CROSSOVER_FIRST) / CLI_CROSSOVER_STEP] = (cli_crossover_row) {
            .head_dim = d,
            .bytes = { b.flash_reduce, b.apart, b.phase },
            .most = { known(b.flash_flops), known(b.apart_flops), known(b.phase_flops) },
            .measured = { NAN, NAN, NAN },
            .counted = { NAN, NAN, NAN },
            .fewest = b.fewest,
            .used = b.used,
            .chained = chained,
        };
    }
    return CLI_OK;
}

/* ---- measured ---- */

typedef struct figures {
    double dim, v_dim, seq;
    char mask[16], form[16], pass[16];
    double ours, forms[CLI_FORMS]; /* TFLOP/s; 0: not there */
    double sm;                     /* bytes per score */
} figures;

static bool read_figures(ordo_json *r, figures *f)
{
    char key[32], name[32];
    bool first = true;
    while (ordo_json_next(r, '}', &first)) {
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        double *to = strcmp(key, "ours_bwd") == 0 ? &f->ours
                     : strcmp(key, "sm") == 0     ? &f->sm
                                                  : NULL;
        for (int i = 0; i < CLI_FORMS && !to; i++) {
            snprintf(name, sizeof name, "%s_bwd", cli_form_names[i]);
            to = strcmp(key, name) == 0 ? &f->forms[i] : NULL;
        }
        const bool null = ordo_json_peek(r) == 'n'; /* not counted */
        if (!(to && !null ? cli_json_number(r, to) : ordo_json_skip(r)))
            return false;
    }
    return !r->bad;
}

static bool read_row(ordo_json *r, figures *f)
{
    char key[32];
    bool first = true;
    while (ordo_json_next(r, '}', &first)) {
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        const bool read = strcmp(key, "dim") == 0     ? cli_json_number(r, &f->dim)
                          : strcmp(key, "seq") == 0   ? cli_json_number(r, &f->seq)
                          : strcmp(key, "v_dim") == 0 ? cli_json_number(r, &f->v_dim)
                          : strcmp(key, "mask") == 0  ? ordo_json_string(r, f->mask, sizeof f->mask)
                          : strcmp(key, "form") == 0  ? ordo_json_string(r, f->form, sizeof f->form)
                          : strcmp(key, "pass") == 0  ? ordo_json_string(r, f->pass, sizeof f->pass)
                          : strcmp(key, "figures") == 0 ? read_figures(r, f)
                                                        : ordo_json_skip(r);
        if (!read)
            return false;
    }
    return !r->bad;
}

/* Take a row over if it has one of the head sizes shown, for values too. */
static void take(cli_crossover *c, const figures *f)
{
    if (f->seq != SEQ || strcmp(f->mask, "full") != 0 || (f->v_dim > 0 && f->v_dim != f->dim))
        return;
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++) {
        cli_crossover_row *row = &c->rows[i];
        if ((double)row->head_dim != f->dim)
            continue;
        for (int form = 0; form < CLI_FORMS; form++)
            if (f->forms[form] > 0)
                row->measured[form] = f->forms[form] * 1e12;
        if (f->ours > 0 && isnan(row->measured[form_of(row->used)]))
            row->measured[form_of(row->used)] = f->ours * 1e12;
        for (int form = 0; form < CLI_FORMS && strcmp(f->pass, "backward") == 0; form++)
            if (f->sm > 0 && strcmp(f->form, cli_form_names[form]) == 0)
                row->counted[form] = f->sm;
    }
}

static bool read_document(ordo_json *r, void *into)
{
    char key[32];
    bool first = true, found = false;
    while (ordo_json_next(r, '}', &first)) {
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        if (strcmp(key, "rows") != 0) {
            if (!ordo_json_skip(r))
                return false;
            continue;
        }
        found = true;
        for (bool row = true; ordo_json_next(r, ']', &row);) {
            figures f = { .dim = 0 };
            if (!read_row(r, &f))
                return false;
            take(into, &f);
        }
        if (r->bad)
            return false;
    }
    return r->bad ? false : found ? ordo_json_done(r) : ordo_json_bad(r, "\"rows\" of head sizes");
}

/* ---- output ---- */

static bool any_measured(const cli_crossover *c)
{
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++)
        for (int form = 0; form < CLI_FORMS; form++)
            if (!isnan(c->rows[i].measured[form]))
                return true;
    return false;
}

static void print_rate(double flops)
{
    if (isnan(flops))
        printf(" %6s", "-");
    else
        printf(" %6.0f", flops * 1e-12);
}

static void print_row(const cli_crossover_row *r)
{
    printf("%5" PRId64, r->head_dim);
    for (int form = 0; form < CLI_FORMS; form++)
        printf(" %6.1f", r->bytes[form]);
    printf("  %-6s %-5s", ordo_io_algorithm_name(r->fewest), ordo_io_algorithm_name(r->used));
    for (int form = 0; form < CLI_FORMS; form++)
        print_rate(r->most[form]);
    fputs("   ", stdout);
    for (int form = 0; form < CLI_FORMS; form++)
        print_rate(r->measured[form]);
    putchar('\n');
}

static void print_ahead(const cli_crossover *c, const char *what, cli_ahead ahead)
{
    printf("Phase %s", what);
    if (ahead.chains > 0)
        printf(" from head size %" PRId64 " to %" PRId64 ", in chains%s", ahead.chains,
               c->chains_last, ahead.separate > 0 ? ", and" : "");
    if (ahead.separate > 0)
        printf(" from head size %" PRId64 " on", ahead.separate);
    puts(ahead.chains > 0 || ahead.separate > 0 ? "." : " at no head size.");
}

static void print_measured(const cli_crossover_row *r)
{
    for (int form = 0; form < CLI_FORMS; form++)
        if (!isnan(r->counted[form]))
            printf("Counted at %" PRId64 ": %s moves %.2f bytes per score, %.2f of the model's.\n",
                   r->head_dim, cli_form_names[form], r->counted[form],
                   r->counted[form] / r->bytes[form]);
    for (int form = 0; form < CLI_FORM_PHASE; form++) {
        const double ratio = r->measured[CLI_FORM_PHASE] / r->measured[form];
        if (!isnan(ratio))
            printf("Measured at %" PRId64 ": phase runs at %.2f of the rate of %s.\n", r->head_dim,
                   ratio, cli_form_names[form]);
    }
}

static void print_crossover(const void *what)
{
    const cli_crossover *c = what;
    printf("Backward pass on %s by head size, full mask: bytes per score between L2 and shared\n"
           "memory, and TFLOP/s (five products counted) at most, by tensor cores, L2 and HBM.\n\n",
           c->title);
    printf("%26s  %-12s%21s   %21s\n", "bytes per score", "of five", "TFLOP/s at most", "measured");
    printf("%5s %6s %6s %6s  %-6s %-5s %6s %6s %6s    %6s %6s %6s\n", "d", "flash", "apart",
           "phase", "fewest", "used", "flash", "apart", "phase", "flash", "apart", "phase");
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++)
        print_row(&c->rows[i]);
    printf("\nUp to head size %" PRId64 " phase runs in chains, above in separate kernels.\n",
           c->chains_last);
    print_ahead(c, "moves fewer bytes than flash", c->by_bytes);
    print_ahead(c, "has the higher rate at most", c->by_rate);
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++)
        print_measured(&c->rows[i]);
    if (!any_measured(c))
        puts(c->measured ? "Not measured: the file has no row of 8192 rows with a full mask."
                         : "Not measured: --measured FILE takes rates from a file.");
}

static void forms_json(cli_json *json, const char *key, const double *values)
{
    cli_json_object(json, key);
    for (int form = 0; form < CLI_FORMS; form++)
        cli_json_real(json, cli_form_names[form], values[form]);
    cli_json_end_object(json);
}

static void crossover_json(cli_json *json, const void *what)
{
    const cli_crossover *c = what;
    cli_json_text(json, "machine", c->title);
    cli_json_text(json, "measured", any_measured(c) ? c->measured : "not measured");
    cli_json_text(json, "counted", c->counted ? c->counted : "not counted");
    cli_json_int(json, "chains_to", c->chains_last);
    cli_json_int(json, "fewer_bytes_in_chains_from", c->by_bytes.chains);
    cli_json_int(json, "fewer_bytes_from", c->by_bytes.separate);
    cli_json_int(json, "faster_at_most_in_chains_from", c->by_rate.chains);
    cli_json_int(json, "faster_at_most_from", c->by_rate.separate);
    cli_json_array(json, "rows");
    for (int i = 0; i < CLI_CROSSOVER_ROWS; i++) {
        const cli_crossover_row *r = &c->rows[i];
        cli_json_object(json, NULL);
        cli_json_int(json, "head_dim", r->head_dim);
        forms_json(json, "bytes_per_score", r->bytes);
        forms_json(json, "counted_bytes_per_score", r->counted);
        cli_json_text(json, "fewest", ordo_io_algorithm_name(r->fewest));
        cli_json_text(json, "used", ordo_io_algorithm_name(r->used));
        forms_json(json, "most_flops", r->most);
        forms_json(json, "measured_flops", r->measured);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

int cli_io_crossover(const cli_crossover_request *r, const cli_json_target *target)
{
    cli_crossover c = { .measured = r->measured, .counted = r->counted };
    ordo_machine *machine = NULL;
    CLI_TRY(cli_library(ordo_machine_create(&machine, r->machine ? r->machine : "h200")));
    c.title = ordo_machine_title(machine);
    int status = predict(&c, machine);
    if (status == CLI_OK && r->measured)
        status = cli_json_file(r->measured, MOST_BYTES, read_document, &c);
    if (status == CLI_OK && r->counted)
        status = cli_json_file(r->counted, MOST_BYTES, read_document, &c);
    if (status == CLI_OK && r->svg)
        status = cli_report_file(r->svg, cli_crossover_svg, &c);
    if (status == CLI_OK && (target->on || !r->svg))
        status = cli_report_results(
            target, &(cli_results) { "io", crossover_json, print_crossover, &c, sizeof c, 1 });
    ordo_machine_destroy(machine);
    return status;
}
