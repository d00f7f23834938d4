/* io_devices.c: `ordo io --devices`: head sizes and the memory levels of machine files. */
#include "cli/io.h"

#include "kit/message.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_LEVELS = 128 };

typedef struct device_level {
    char machine[32];
    ordo_io_level level;
    int64_t words;
} device_level;

typedef struct table {
    device_level levels[MOST_LEVELS];
    size_t count;
    char hopper[32]; /* the machine of the byte model; "" = none */
    ordo_io_bytes bytes[8];
} table;

static const int64_t head_sizes[] = { 64, 128, 192, 256, 384, 512, 576 };
enum { HEAD_SIZES = sizeof head_sizes / sizeof head_sizes[0] };

/* ---- gathering ---- */

static void add_levels(table *t, const ordo_machine *machine)
{
    const bool cpu = ordo_machine_family_of(machine) == ORDO_MACHINE_CPU;
    for (int i = 0; t->count < MOST_LEVELS; i++) {
        device_level *d = &t->levels[t->count];
        bool end;
        if (ordo_io_level_at(machine, cpu ? ORDO_F32 : ORDO_BF16, i, &d->level, &end) != ORDO_OK ||
            end)
            return;
        snprintf(d->machine, sizeof d->machine, "%s", ordo_machine_name(machine));
        d->words = d->level.bytes / d->level.word_bytes;
        t->count++;
    }
}

static void add_bytes(table *t, const ordo_machine *machine)
{
    for (int i = 0; i < HEAD_SIZES; i++)
        if (ordo_io_hopper(machine, head_sizes[i], &t->bytes[i]) != ORDO_OK)
            return;
    snprintf(t->hopper, sizeof t->hopper, "%s", ordo_machine_name(machine));
}

static int add_machine(table *t, const char *name)
{
    ordo_machine *machine;
    CLI_TRY(cli_library(ordo_machine_create(&machine, name)));
    add_levels(t, machine);
    if (!t->hopper[0])
        add_bytes(t, machine);
    ordo_machine_destroy(machine);
    return CLI_OK;
}

/* ---- text ---- */

static void print_levels(const table *t)
{
    puts("Where M < d^2: head sizes above sqrt(words) are small-cache at that level.\n");
    printf("%-15s %-10s %-10s %10s %6s %10s %8s   %s\n", "machine", "level", "kind", "bytes",
           "word", "words", "sqrt", "M/d^2 at 64, 128, 192, 256, 384, 512, 576");
    for (size_t i = 0; i < t->count; i++) {
        const device_level *d = &t->levels[i];
        printf("%-15s %-10s %-10s %10" PRId64 " %4" PRId64 " B %10" PRId64 " %8.0f  ", d->machine,
               d->level.name, d->level.scratchpad ? "scratchpad" : "cache", d->level.bytes,
               d->level.word_bytes, d->words, d->level.small_dim);
        for (int k = 0; k < HEAD_SIZES; k++)
            printf(" %.3g", (double)d->words / (double)(head_sizes[k] * head_sizes[k]));
        putchar('\n');
    }
}

static void print_bytes(const table *t)
{
    printf("\nBytes between L2 and shared memory per score, backward, on %s (a model; tiles follow "
           "from\nregisters and shared memory):\n\n",
           t->hopper);
    printf("%5s %9s %12s %10s %8s %8s %22s\n", "d", "tile", "flash, add", "flash, rmw", "apart",
           "phase", "flop/byte flash, phase");
    for (int i = 0; i < HEAD_SIZES; i++) {
        const ordo_io_bytes *b = &t->bytes[i];
        char tile[24];
        snprintf(tile, sizeof tile, "%" PRId64 "x%" PRId64, b->tile_q, b->tile_k);
        printf("%5" PRId64 " %9s %12.1f %10.1f %8.1f %8.1f %14.0f %7.0f\n", head_sizes[i], tile,
               b->flash_reduce, b->flash_rmw, b->apart, b->phase, b->flop_per_byte_flash,
               b->flop_per_byte_phase);
    }
}

static void print_table(const void *what)
{
    const table *t = what;
    print_levels(t);
    if (t->hopper[0])
        print_bytes(t);
}

/* ---- JSON ---- */

static void table_json(cli_json *json, const void *what)
{
    const table *t = what;
    cli_json_array(json, "levels");
    for (size_t i = 0; i < t->count; i++) {
        const device_level *d = &t->levels[i];
        cli_json_object(json, NULL);
        cli_json_text(json, "machine", d->machine);
        cli_json_text(json, "level", d->level.name);
        cli_json_text(json, "kind", d->level.scratchpad ? "scratchpad" : "cache");
        cli_json_int(json, "bytes", d->level.bytes);
        cli_json_int(json, "word_bytes", d->level.word_bytes);
        cli_json_int(json, "words", d->words);
        cli_json_real(json, "small_dim", d->level.small_dim);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
    cli_json_array(json, "bytes_per_score");
    for (int i = 0; t->hopper[0] && i < HEAD_SIZES; i++) {
        const ordo_io_bytes *b = &t->bytes[i];
        cli_json_object(json, NULL);
        cli_json_text(json, "machine", t->hopper);
        cli_json_int(json, "head_dim", head_sizes[i]);
        cli_json_int(json, "tile_q", b->tile_q);
        cli_json_int(json, "tile_k", b->tile_k);
        cli_json_real(json, "flash_reduce", b->flash_reduce);
        cli_json_real(json, "flash_rmw", b->flash_rmw);
        cli_json_real(json, "apart", b->apart);
        cli_json_real(json, "phase", b->phase);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

int cli_io_devices(const char *machine, const cli_json_target *target)
{
    table t = { .count = 0 };
    if (machine)
        CLI_TRY(add_machine(&t, machine));
    for (size_t i = 0; !machine && ordo_machine_builtin(i); i++)
        CLI_TRY(add_machine(&t, ordo_machine_builtin(i)));
    return cli_report_results(target,
                              &(cli_results) { "io", table_json, print_table, &t, sizeof t, 1 });
}
