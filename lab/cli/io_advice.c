/* io_advice.c: `ordo plan --memory`: what the theory of I/O prefers at each memory level. */
#include "cli/io_tiles.h"
#include "cli/lab.h"

#include <inttypes.h>
#include <math.h>

/* Visit every level and pass; `visit` returns nothing, errors end the walk quietly: the plan
 * itself was made, and its problem may be one that the theory does not cover. */
static void walk(const ordo_machine *machine, const ordo_problem *problem, void *context,
                 void (*visit)(void *context, ordo_io_pass pass, const ordo_io_advice *advice))
{
    for (int pass = ORDO_IO_FORWARD; pass <= ORDO_IO_BACKWARD; pass++)
        for (int i = 0;; i++) {
            ordo_io_advice advice;
            bool end;
            if (ordo_io_advise(machine, problem, (ordo_io_pass)pass, i, &advice, &end) != ORDO_OK ||
                end)
                break;
            visit(context, (ordo_io_pass)pass, &advice);
        }
}

static void print_advice(void *context, ordo_io_pass pass, const ordo_io_advice *a)
{
    char tiles[96];
    (void)context;
    printf("  %-9s %-10s %9" PRId64 " %-10s", ordo_io_pass_name(pass), a->level.name,
           a->level.bytes, a->level.scratchpad ? "scratchpad" : "cache");
    printf(a->level.line_bytes > 0 ? " %4" PRId64 : "    -", a->level.line_bytes);
    printf(a->level.bytes_per_s > 0 ? " %7.0f" : "       -", 1e-9 * a->level.bytes_per_s);
    if (!a->fits) {
        puts(" nothing fits");
        return;
    }
    cli_io_tiles_text(pass, a->choice.algorithm, &a->choice.tiles, tiles, sizeof tiles);
    printf(" %-7s %-22s %12.5g", ordo_io_algorithm_name(a->choice.algorithm), tiles, a->bytes);
    printf(" %8.2f", (double)(a->choice.words.loads + a->choice.words.stores) / a->bound.words);
    if (a->ns > 0)
        printf(" %12.4g", 1e-3 * a->ns);
    putchar('\n');
}

void cli_io_advice_text(const ordo_machine *machine, const ordo_problem *problem)
{
    printf("\nmemory of %s: what moves the fewest words; the plan keeps its tiles\n\n",
           ordo_machine_name(machine));
    printf("  %-9s %-10s %9s %-10s %4s %7s %-7s %-22s %12s %8s %12s\n", "pass", "level", "bytes",
           "kind", "line", "GB/s", "best", "tiles", "bytes moved", "/bound", "least us");
    walk(machine, problem, NULL, print_advice);
}

static void advice_json(void *context, ordo_io_pass pass, const ordo_io_advice *a)
{
    cli_json *json = context;
    char tiles[96];
    cli_json_object(json, NULL);
    cli_json_text(json, "pass", ordo_io_pass_name(pass));
    cli_json_text(json, "level", a->level.name);
    cli_json_text(json, "kind", a->level.scratchpad ? "scratchpad" : "cache");
    cli_json_int(json, "bytes", a->level.bytes);
    cli_json_int(json, "line_bytes", a->level.line_bytes);
    cli_json_real(json, "bytes_per_s", a->level.bytes_per_s > 0 ? a->level.bytes_per_s : NAN);
    cli_json_int(json, "cache_words", a->cache_words);
    if (a->fits) {
        cli_io_tiles_text(pass, a->choice.algorithm, &a->choice.tiles, tiles, sizeof tiles);
        cli_json_text(json, "algorithm", ordo_io_algorithm_name(a->choice.algorithm));
        cli_json_text(json, "tiles", tiles);
        cli_json_int(json, "loads", a->choice.words.loads);
        cli_json_int(json, "stores", a->choice.words.stores);
        cli_json_real(json, "bytes_moved", a->bytes);
        cli_json_real(json, "bound", a->bound.words);
        cli_json_text(json, "bound_name", a->bound.name);
        cli_json_real(json, "ratio",
                      (double)(a->choice.words.loads + a->choice.words.stores) / a->bound.words);
        cli_json_real(json, "least_ns", a->ns > 0 ? a->ns : NAN);
    } else {
        cli_json_null(json, "algorithm");
    }
    cli_json_end_object(json);
}

void cli_io_advice_json(cli_json *json, const ordo_machine *machine, const ordo_problem *problem)
{
    cli_json_array(json, "memory");
    walk(machine, problem, json, advice_json);
    cli_json_end_array(json);
}
