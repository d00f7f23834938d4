/* info.c: `ordo info`: what this build and this machine can do, and what a machine file says. */
#include "commands.h"
#include "kit/args.h"
#include "kit/message.h"
#include "kit/report.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 64, BACKENDS = 4 };

typedef struct backend_report {
    ordo_backend backend;
    bool available;
    const char *why_not;
} backend_report;

typedef struct report {
    ordo_build build;
    ordo_machine *machine; /* the requested one, or the host */
    bool asked;
    char host_error[256];
    backend_report backends[BACKENDS];
    char cuda_path[1024], cuda_error[512]; /* "" if not known, if there is none */
    bool counted;                          /* the driver says how many devices there are */
    int devices;
    ordo_device device[MOST_DEVICES];
} report;

static void look_for_devices(report *r)
{
    const char *path = NULL;
    int count = 0;
    const ordo_status status = ordo_device_count(&count, &path);
    snprintf(r->cuda_path, sizeof r->cuda_path, "%s", path ? path : "");
    if (status != ORDO_OK) {
        snprintf(r->cuda_error, sizeof r->cuda_error, "%s", ordo_last_error());
        return;
    }
    r->counted = true;
    for (int i = 0; i < count && i < MOST_DEVICES; i++)
        if (ordo_device_query(i, &r->device[r->devices]) == ORDO_OK)
            r->devices++;
        else
            snprintf(r->cuda_error, sizeof r->cuda_error, "device %d: %s", i, ordo_last_error());
}

static int gather(report *r, const char *machine)
{
    r->build = ordo_build_query();
    r->asked = machine != NULL;
    const ordo_status status = ordo_machine_create(&r->machine, machine ? machine : "host");
    if (status != ORDO_OK && machine)
        return cli_library(status);
    if (status != ORDO_OK) /* a host that cannot be probed is worth saying, not failing for */
        snprintf(r->host_error, sizeof r->host_error, "%s", ordo_last_error());
    if (r->asked)
        return CLI_OK;
    for (int i = 0; i < BACKENDS; i++) {
        backend_report *b = &r->backends[i];
        b->backend = (ordo_backend)(ORDO_BACKEND_REF + i);
        b->available = ordo_backend_available(b->backend, &b->why_not);
    }
    look_for_devices(r);
    return CLI_OK;
}

/* ---- text ---- */

/* A value as people read it: bytes in binary units, the rest in few digits. */
static void readable(char *text, size_t capacity, double value, const char *unit)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t u = 0;
    if (strcmp(unit, "B") != 0) {
        snprintf(text, capacity, "%.6g%s%s", value, *unit && strcmp(unit, "count") != 0 ? " " : "",
                 strcmp(unit, "count") == 0 ? "" : unit);
        return;
    }
    for (; value >= 1024 && u + 1 < sizeof units / sizeof units[0]; u++)
        value /= 1024;
    snprintf(text, capacity, "%.4g %s", value, units[u]);
}

static const char *family_name(const ordo_machine *machine)
{
    static const char *const names[] = { "cpu", "cuda", "npu" };
    return names[ordo_machine_family_of(machine)];
}

static void print_machine(const ordo_machine *machine)
{
    printf("%s: %s (%s)\n\n", ordo_machine_name(machine), ordo_machine_title(machine),
           family_name(machine));
    printf("%-28s %-16s %-9s %s\n", "key", "value", "kind", "source");
    for (size_t i = 0; i < ordo_machine_key_count(); i++) {
        const ordo_machine_key *key = ordo_machine_key_at(i);
        double value;
        char text[48];
        if (ordo_machine_get(machine, key->name, &value) != ORDO_OK)
            continue;
        const char *source = ordo_machine_source(machine, key->name);
        readable(text, sizeof text, value, key->unit);
        printf("%-28s %-16s %-9s %s\n", key->name, text, key->kind, source ? source : "-");
    }
}

/* The few numbers of the host that a reader looks for first. */
static void print_host(const ordo_machine *host)
{
    static const struct {
        const char *key, *label;
    } lines[] = {
        { "workers", "workers" }, { "clock_ghz", "clock" }, { "l1_bytes", "L1 data" },
        { "l2_bytes", "L2" },     { "l3_bytes", "L3" },     { "memory_bytes", "memory" },
    };
    printf("host       %s\n", ordo_machine_title(host));
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (size_t k = 0; k < ordo_machine_key_count(); k++) {
            const ordo_machine_key *key = ordo_machine_key_at(k);
            double value;
            char text[48];
            if (strcmp(key->name, lines[i].key) != 0 ||
                ordo_machine_get(host, key->name, &value) != ORDO_OK)
                continue;
            readable(text, sizeof text, value, key->unit);
            printf("  %-8s %s\n", lines[i].label, text);
        }
}

static void print_devices(const report *r)
{
    if (r->cuda_path[0])
        printf("cuda       module %s\n", r->cuda_path);
    if (r->cuda_error[0] && r->counted) /* else the list of backends has said why */
        printf("%s %s\n", r->cuda_path[0] ? "          " : "cuda      ", r->cuda_error);
    if (!r->cuda_error[0] && r->devices == 0)
        puts("           no device");
    for (int i = 0; i < r->devices; i++) {
        const ordo_device *d = &r->device[i];
        char memory[48], l2[48];
        readable(memory, sizeof memory, (double)d->memory_bytes, "B");
        readable(l2, sizeof l2, (double)d->l2_bytes, "B");
        printf("  %d        %s, sm_%d%d, %d workers, %s, L2 %s, %.2f GHz\n", i, d->name, d->major,
               d->minor, d->workers, memory, l2, d->clock_ghz);
    }
}

static void print_text(const void *what)
{
    const report *r = what;
    if (r->asked) {
        print_machine(r->machine);
        return;
    }
    printf("ordo       %s, %s, %s, %s\n", r->build.version, r->build.target, r->build.compiler,
           r->build.flavour);
    if (r->machine)
        print_host(r->machine);
    else
        printf("host       cannot be probed: %s\n", r->host_error);
    fputs("machines  ", stdout);
    for (size_t i = 0; ordo_machine_builtin(i); i++)
        printf(" %s", ordo_machine_builtin(i));
    fputs("\nbackends\n", stdout);
    for (int i = 0; i < BACKENDS; i++) {
        const backend_report *b = &r->backends[i];
        printf("  %-8s %s%s%s\n", ordo_backend_name(b->backend), b->available ? "yes" : "no",
               b->available || !b->why_not ? "" : ": ",
               b->available || !b->why_not ? "" : b->why_not);
    }
    print_devices(r);
}

/* ---- JSON ---- */

static void values_json(cli_json *json, const ordo_machine *machine)
{
    cli_json_array(json, "values");
    for (size_t i = 0; i < ordo_machine_key_count(); i++) {
        const ordo_machine_key *key = ordo_machine_key_at(i);
        double value;
        if (ordo_machine_get(machine, key->name, &value) != ORDO_OK)
            continue;
        cli_json_object(json, NULL);
        json->compact = json->depth;
        cli_json_text(json, "key", key->name);
        cli_json_real(json, "value", value);
        cli_json_text(json, "unit", key->unit);
        cli_json_text(json, "kind", key->kind);
        cli_json_text(json, "source", ordo_machine_source(machine, key->name));
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

static void machine_json(cli_json *json, const char *key, const ordo_machine *machine)
{
    cli_json_object(json, key);
    cli_json_text(json, "name", ordo_machine_name(machine));
    cli_json_text(json, "title", ordo_machine_title(machine));
    cli_json_text(json, "family", family_name(machine));
    values_json(json, machine);
    cli_json_end_object(json);
}

static void backends_json(cli_json *json, const report *r)
{
    cli_json_array(json, "backends");
    for (int i = 0; i < BACKENDS; i++) {
        const backend_report *b = &r->backends[i];
        cli_json_object(json, NULL);
        cli_json_text(json, "name", ordo_backend_name(b->backend));
        cli_json_bool(json, "available", b->available);
        cli_json_text(json, "why_not", b->available ? NULL : b->why_not);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

static void devices_json(cli_json *json, const report *r)
{
    cli_json_object(json, "cuda");
    cli_json_text(json, "module", r->cuda_path[0] ? r->cuda_path : NULL);
    cli_json_text(json, "error", r->cuda_error[0] ? r->cuda_error : NULL);
    cli_json_array(json, "devices");
    for (int i = 0; i < r->devices; i++) {
        const ordo_device *d = &r->device[i];
        cli_json_object(json, NULL);
        cli_json_text(json, "name", d->name);
        cli_json_int(json, "major", d->major);
        cli_json_int(json, "minor", d->minor);
        cli_json_int(json, "workers", d->workers);
        cli_json_uint(json, "memory_bytes", d->memory_bytes);
        cli_json_uint(json, "l2_bytes", d->l2_bytes);
        cli_json_uint(json, "shared_bytes_per_block", d->shared_bytes_per_block);
        cli_json_real(json, "clock_ghz", d->clock_ghz);
        cli_json_int(json, "driver", d->driver);
        cli_json_int(json, "runtime", d->runtime);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
    cli_json_end_object(json);
}

static void report_json(cli_json *json, const void *what)
{
    const report *r = what;
    if (r->asked) {
        machine_json(json, "machine", r->machine);
        return;
    }
    cli_json_text(json, "version", r->build.version);
    cli_json_text(json, "target", r->build.target);
    cli_json_text(json, "compiler", r->build.compiler);
    cli_json_text(json, "flavour", r->build.flavour);
    if (r->machine)
        machine_json(json, "host", r->machine);
    else
        cli_json_null(json, "host");
    cli_json_array(json, "machines");
    for (size_t i = 0; ordo_machine_builtin(i); i++)
        cli_json_text(json, NULL, ordo_machine_builtin(i));
    cli_json_end_array(json);
    backends_json(json, r);
    devices_json(json, r);
}

int cli_info(int argc, char **argv)
{
    const char *machine = NULL;
    cli_json_target json = { 0 };
    cli_option options[] = {
        OPT_TEXT("--machine", "NAME|FILE", &machine, "print every number of this machine"),
        OPT_JSON(&json),
    };
    const cli_section sections[] = { CLI_SECTION("Options", options) };
    const cli_syntax syntax = { "info [OPTIONS]",
                                "Print what this build and this machine can do; with --machine, "
                                "what a machine's\nfile holds, each number with its source.",
                                sections, 1,
                                "  ordo info\n  ordo info --machine h200\n  ordo info --json\n" };
    int status = CLI_OK;
    if (!cli_args_read(&syntax, argc, argv, &status))
        return status;
    report *r = calloc(1, sizeof *r);
    if (r == NULL)
        return cli_out_of_memory();
    status = gather(r, machine);
    if (status == CLI_OK)
        status = cli_report_results(
            &json, &(cli_results) { "info", report_json, print_text, r, sizeof *r, 1 });
    ordo_machine_destroy(r->machine);
    free(r);
    return status;
}
