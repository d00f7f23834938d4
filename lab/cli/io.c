/* io.c: `ordo io`: words that attention algorithms move between two memories. */
#include "cli/io.h"

#include "cli/lab.h"
#include "kit/args.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/problem_args.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 1 << 24,
    A_OCTAVE = 8, /* points of a sweep */
    MOST_POINTS = 600,
    MOST_BUDGET = 16
};
#define MOST_WORDS (INT64_C(1) << 50)

typedef struct request {
    int pass, mask;
    const char *algorithm, *window, *model, *sweep, *svg, *measured, *counted, *machine, *plan;
    int64_t n, kv, d, dv, batch, heads, kv_heads, cache, outer, strip, panel, workspace;
    cli_list tiles;
    double dropout, budget;
    uint64_t seed;
    bool predict, pack, ratio, devices, crossover, hbm, budget_given;
    cli_json_target json;

    /* After finish(). */
    ordo_io_problem problem;
    ordo_io_algorithm chosen;
    const char *block_mask;
    int64_t block;
    bool sparse;
    uint8_t *blocks; /* blocks of block_mask */
    bool all;
    ordo_io_cache through; /* replacement 0: explicit */
    int64_t from, to;      /* ends of a sweep */
} request;

/* ---- the request ---- */

static int read_model(request *r)
{
    const char *m = r->model;
    ordo_io_cache *c = &r->through;
    *c = (ordo_io_cache)ORDO_IO_CACHE_INIT;
    c->packed = r->pack;
    c->outer_words = r->outer;
    c->budget = r->budget;
    if (strcmp(m, "explicit") == 0)
        return r->pack || r->budget_given || r->outer
                   ? cli_usage(
                         "--pack, --budget, --outer: expected only with --model lru, assoc or opt")
                   : CLI_OK;
    if (r->budget_given && !(r->budget > 0 && r->budget <= MOST_BUDGET))
        return cli_usage("--budget %g: expected a part of M, above 0 and at most %d", r->budget,
                         MOST_BUDGET);
    if (r->predict)
        return cli_usage("--predict: only --model explicit has closed forms");
    if (strncmp(m, "lru", 3) == 0 || strncmp(m, "opt", 3) == 0) {
        c->replacement = *m == 'l' ? ORDO_IO_LRU : ORDO_IO_OPT;
        if (m[3] == '\0' || (m[3] == ':' && cli_read_size(m + 4, 1, 64, &c->line)))
            return CLI_OK;
    }
    c->replacement = ORDO_IO_ASSOC;
    if (strncmp(m, "assoc:", 6) == 0 && cli_read_pair(m + 6, ',', 1, MOST, &c->line, &c->ways))
        return CLI_OK;
    return cli_usage("--model %s: expected explicit, lru, lru:LINE, assoc:LINE,WAYS, opt or "
                     "opt:LINE, in words",
                     m);
}

static int read_sweep(request *r)
{
    char first[32];
    const char *from = r->sweep + 6, *dots = strstr(r->sweep, "..");
    if (strncmp(r->sweep, "cache=", 6) == 0 && dots && (size_t)(dots - from) < sizeof first) {
        memcpy(first, from, (size_t)(dots - from));
        first[dots - from] = '\0';
        if (cli_read_size(first, 1, MOST_WORDS, &r->from) &&
            cli_read_size(dots + 2, 1, MOST_WORDS, &r->to) && r->from < r->to)
            return CLI_OK;
    }
    return cli_usage("--sweep %s: expected cache=FROM..TO, such as cache=256..64k", r->sweep);
}

static int finish(request *r)
{
    ordo_io_problem *p = &r->problem;
    *p = (ordo_io_problem)ORDO_IO_PROBLEM_INIT;
    r->all = strcmp(r->algorithm, "all") == 0;
    if (strcmp(r->algorithm, "split") == 0) {
        cli_error(CLI_OK, "note: --algorithm split will not be accepted by the next version; "
                          "expected apart");
        r->algorithm = "apart";
    }
    if (!r->all && ordo_io_algorithm_from_name(r->algorithm, &r->chosen) != ORDO_OK)
        return cli_usage("%s, or all", ordo_last_error());
    if (r->n == 0 || r->d == 0)
        return cli_usage("--%s: missing; expected a size", r->n == 0 ? "n" : "d");
    if (r->cache == 0 && !r->sweep)
        return cli_usage("--cache: missing; expected words of fast memory, or --sweep");
    if (r->cache != 0 && r->sweep)
        return cli_usage("--cache, --sweep: expected one of them");
    if (r->tiles.count > 0 && (r->all || r->chosen == ORDO_IO_BEST || r->sweep))
        return cli_usage("--tile-sizes: expected one algorithm by name, and no sweep");
    if (r->svg && !r->sweep)
        return cli_usage("--svg: expected only with --sweep");
    if (r->ratio && !(r->svg && r->sweep))
        return cli_usage("--ratio: expected only with --sweep and --svg");
    p->pass = (ordo_io_pass)(r->pass + ORDO_IO_FORWARD);
    p->q_len = r->n;
    p->kv_len = r->kv;
    p->head_dim = r->d;
    p->v_head_dim = r->dv;
    p->heads = r->heads;
    p->kv_heads = r->kv_heads;
    p->mask = (ordo_mask)r->mask;
    p->dropout_p = r->dropout;
    p->seed = r->seed;
    p->cache_words = r->cache;
    p->strip = r->strip;
    p->workspace_words = r->workspace;
    p->window.on = r->window != NULL;
    if (r->window && !cli_read_pair(r->window, ',', -1, MOST, &p->window.left, &p->window.right))
        return cli_usage("--window %s: expected two whole numbers, such as 128,0; -1 = open",
                         r->window);
    if (r->block > 0 && !r->block_mask)
        return cli_usage("--block: goes with --block-mask");
    if (r->block_mask)
        CLI_TRY(cli_io_blocks(r->block_mask, r->block, p, &r->blocks));
    const int status = r->sweep ? read_sweep(r) : CLI_OK;
    return status == CLI_OK ? read_model(r) : status;
}

/* The list of --tile-sizes as tiles; the long side of flash comes first. */
static int read_tiles(const request *r, ordo_io_tiles *t)
{
    static const struct {
        ordo_io_algorithm algorithm;
        size_t least, most;
        const char *expected;
    } shapes[] = {
        { ORDO_IO_FLASH, 1, 2, "the tile that stays, then the one that streams (1)" },
        { ORDO_IO_FLASH1, 1, 2, "columns, then rows (1)" },
        { ORDO_IO_APART, 2, 4, "columns of one kernel, rows of the other, then the streams (1,1)" },
        { ORDO_IO_MAT, 4, 4, "rows, columns of scores; rows, columns of output" },
        { ORDO_IO_PHASE, 5, 5, "rows, columns of scores; rows of dq, rows of dk and dv, columns" },
        { ORDO_IO_FUSED, 2, 2, "rows, columns of scores" },
    };
    const size_t count = r->tiles.count;
    const bool stays = r->problem.pass == ORDO_IO_FORWARD && r->chosen == ORDO_IO_FLASH;
    int64_t v[5] = { 0 };
    *t = (ordo_io_tiles) { .panel = r->panel };
    if (count == 0)
        return CLI_OK;
    size_t i = 0;
    while (i < sizeof shapes / sizeof shapes[0] && shapes[i].algorithm != r->chosen)
        i++;
    if (i == sizeof shapes / sizeof shapes[0] || r->problem.pass == ORDO_IO_GRADIENT)
        return cli_usage("--tile-sizes: %s %s has none to choose",
                         ordo_io_pass_name(r->problem.pass), r->algorithm);
    if (count < shapes[i].least || count > shapes[i].most)
        return cli_usage("--tile-sizes: %s expects %s", r->algorithm, shapes[i].expected);
    for (size_t k = 0; k < count; k++)
        v[k] = r->tiles.values[k];
    t->rows = v[0];
    t->cols = v[1];
    if (r->chosen == ORDO_IO_APART)
        *t = (ordo_io_tiles) { .cols = v[0], .out_rows = v[1], .rows = v[2], .out_cols = v[3] };
    else if (r->chosen == ORDO_IO_FLASH1 || (r->chosen == ORDO_IO_FLASH && !stays))
        *t = (ordo_io_tiles) { .cols = v[0], .rows = v[1] };
    else if (r->chosen == ORDO_IO_MAT) {
        t->out_rows = v[2];
        t->out_cols = v[3];
    } else if (r->chosen == ORDO_IO_PHASE) {
        t->out_rows = v[2];
        t->out_keys = v[3];
        t->out_cols = v[4];
    }
    return CLI_OK;
}

/* ---- work ---- */

static double key_heads(const ordo_io_problem *p)
{
    const int64_t heads = p->heads > 0 ? p->heads : 1;
    return (double)(p->kv_heads > 0 ? p->kv_heads : heads);
}

/* Fill a row: closed form and bound, and the counts of a run. A sweep of the explicit model runs
 * nothing: its closed forms are exact. */
static ordo_status fill_row(const request *r, const ordo_io_tiles *tiles, cli_io_row *row)
{
    const ordo_io_problem *p = &row->problem;
    const ordo_io_tiles *sizes = tiles->rows || tiles->cols || tiles->panel ? tiles : NULL;
    ordo_io_choice choice;
    ordo_status status = ordo_io_bound_best(p, &row->bound);
    ordo_io_sparse form;
    if (status == ORDO_OK && r->sparse && (status = ordo_io_sparse_of(p, &form)) == ORDO_OK)
        row->sparse = key_heads(p) * ordo_io_sparse_form(&form);
    if (status == ORDO_OK)
        status = ordo_io_choose(p, row->algorithm, sizes, &choice);
    if (status != ORDO_OK)
        return status;
    row->algorithm = choice.algorithm;
    row->tiles = choice.tiles;
    row->predicted = choice.words;
    if (r->predict || (r->sweep && !r->through.replacement))
        return ORDO_OK;
    status = r->through.replacement ? ordo_io_cache_run(p, choice.algorithm, sizes, &r->through,
                                                        &row->report, &row->inner)
                                    : ordo_io_run(p, choice.algorithm, sizes, &row->report);
    if (status != ORDO_OK)
        return status;
    row->counted = true;
    row->tiles = row->report.tiles; /* a budget may have made them smaller */
    row->predicted = row->report.predicted;
    return ORDO_OK;
}

/* Whether an algorithm gets a row: the one named, or every one that the pass has. */
static bool wanted(const request *r, ordo_io_algorithm algorithm)
{
    if (r->all || (r->sweep && r->chosen == ORDO_IO_BEST))
        return ordo_io_has(r->problem.pass, algorithm);
    return algorithm == r->chosen;
}

/* Add the rows of one size of fast memory; returns how many there are. */
static size_t add_rows(const request *r, int64_t cache, const ordo_io_tiles *tiles,
                       cli_io_row *rows)
{
    size_t count = 0;
    for (int a = ORDO_IO_BEST; a <= ORDO_IO_ALGORITHM_COUNT; a++) {
        cli_io_row *row = &rows[count];
        if (!wanted(r, (ordo_io_algorithm)a))
            continue;
        *row = (cli_io_row) { .problem = r->problem, .model = r->model, .budget = r->budget };
        row->algorithm = (ordo_io_algorithm)a;
        row->problem.cache_words = cache;
        row->status = fill_row(r, tiles, row);
        if (row->status != ORDO_OK)
            snprintf(row->why, sizeof row->why, "%s", ordo_last_error());
        count++;
    }
    return count;
}

static size_t sweep_points(const request *r)
{
    const double octaves = log2((double)r->to / (double)r->from);
    const double points = 1 + ceil(octaves * A_OCTAVE);
    return points < MOST_POINTS ? (size_t)points : MOST_POINTS;
}

typedef struct table {
    const cli_io_row *rows;
    size_t count;
    bool ratio;
} table;

static void write_svg(FILE *out, const void *what)
{
    const table *t = what;
    cli_io_plot(out, t->rows, t->count, t->ratio);
}

static int show(const request *r, const cli_io_row *rows, size_t count)
{
    const table t = { rows, count, r->ratio };
    const int status = r->svg ? cli_report_file(r->svg, write_svg, &t) : CLI_OK;
    if (status != CLI_OK || (r->svg && !r->json.on))
        return status;
    return cli_io_show(&r->json, rows, count, r->sweep != NULL);
}

/* The command fails if every row failed; it then reports the first error. */
static int verdict(const cli_io_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].status == ORDO_OK)
            return CLI_OK;
    return cli_error(cli_exit_of(rows[0].status), "%s", rows[0].why);
}

static int work(const request *r)
{
    const size_t points = r->sweep ? sweep_points(r) : 1;
    ordo_io_tiles tiles;
    int status = read_tiles(r, &tiles);
    if (status != CLI_OK)
        return status;
    cli_io_row *rows = calloc(points * ORDO_IO_ALGORITHM_COUNT, sizeof *rows);
    if (!rows)
        return cli_out_of_memory();
    size_t count = 0;
    cli_progress_start(r->sweep ? "sweeping" : "counting words");
    for (size_t i = 0; i < points; i++) {
        const double part = points > 1 ? (double)i / (double)(points - 1) : 0;
        const double m =
            r->sweep ? (double)r->from * pow((double)r->to / (double)r->from, part) : 0;
        count += add_rows(r, r->sweep ? (int64_t)llround(m) : r->cache, &tiles, rows + count);
    }
    cli_progress_stop();
    status = verdict(rows, count);
    if (status == CLI_OK)
        status = show(r, rows, count);
    free(rows);
    return status;
}

static int run_hbm(const request *r)
{
    cli_hbm_request asked = { .machine = r->machine,
                              .problem = ORDO_PROBLEM_INIT,
                              .pass = (ordo_io_pass)(r->pass + ORDO_IO_FORWARD) };
    ordo_problem *p = &asked.problem;
    asked.plan = r->plan;
    if (r->plan && (r->n || r->kv || r->d || r->dv || r->batch || r->heads || r->kv_heads ||
                    r->mask || r->pass || r->dropout > 0 || strcmp(r->algorithm, "best") != 0))
        return cli_usage("--plan: states the problem and the form; expected no --pass, --n, --kv, "
                         "--d, --dv, --batch, --heads, --kv-heads, --mask, --dropout and "
                         "--algorithm");
    if (!r->plan && (r->n == 0 || r->d == 0))
        return cli_usage("--%s: missing; expected a size", r->n == 0 ? "n" : "d");
    if (ordo_io_algorithm_from_name(r->algorithm, &asked.form) != ORDO_OK)
        return cli_usage("--algorithm %s: expected flash, apart, phase or best with --hbm",
                         r->algorithm);
    if (r->window || r->block_mask || r->block || r->sparse)
        return cli_usage("--window, --block-mask, --block, --sparse: --hbm replays full masks");
    if (r->cache || r->tiles.count || r->strip != 1 || r->panel || r->workspace || r->outer ||
        r->budget_given || r->pack || r->predict || r->sweep || r->svg || r->seed ||
        strcmp(r->model, "explicit") != 0)
        return cli_usage(
            "--hbm: goes with --pass, --n, --d, --batch, --heads, --algorithm, --plan, "
            "--machine and --json; the cache and the tiles are the machine's");
    if (r->plan)
        return cli_io_hbm(&asked, &r->json);
    p->dtype = ORDO_BF16;
    p->batch = r->batch > 0 ? r->batch : 1;
    p->heads = r->heads > 0 ? r->heads : 1;
    p->kv_heads = r->kv_heads > 0 ? r->kv_heads : p->heads;
    p->q_len = r->n;
    p->kv_len = r->kv > 0 ? r->kv : r->n;
    p->head_dim = r->d;
    p->v_head_dim = r->dv > 0 ? r->dv : r->d;
    p->mask = (ordo_mask)r->mask;
    p->dropout.p = r->dropout;
    return cli_io_hbm(&asked, &r->json);
}

static int run(request *r)
{
    if (r->devices + r->crossover + r->hbm > 1)
        return cli_usage("--devices, --crossover and --hbm: expected one of them");
    if ((r->batch || r->plan) && !r->hbm)
        return cli_usage("--%s: goes with --hbm", r->batch ? "batch" : "plan");
    if (r->hbm)
        return run_hbm(r);
    if ((r->measured || r->counted) && !r->crossover)
        return cli_usage("--%s: goes with --crossover", r->measured ? "measured" : "counted");
    if (r->devices)
        return cli_io_devices(r->machine, &r->json);
    if (r->crossover) {
        const cli_crossover_request asked = { r->machine, r->measured, r->counted, r->svg };
        CLI_TRY(cli_report_check(&r->json, r->svg));
        return cli_io_crossover(&asked, &r->json);
    }
    if (r->machine)
        return cli_usage("--machine: goes with --devices, --crossover and --hbm; `ordo plan "
                         "--memory` explains a problem's");
    CLI_TRY(finish(r));
    return work(r);
}

/* Tables of machines have no problem and no memory; both would be ignored. */
static int check_tables(const request *r, const cli_section sections[2])
{
    for (int i = 0; i < 2 && (r->devices || r->crossover); i++)
        if (cli_section_used(&sections[i]))
            return cli_usage("%s: does not go with --%s", cli_section_used(&sections[i]),
                             r->devices ? "devices" : "crossover");
    return CLI_OK;
}

int cli_io(int argc, char **argv)
{
    request r = { .algorithm = "best", .model = "explicit", .strip = 1 };
    cli_option problem[] = {
        OPT_CHOICE("--pass", "forward|backward|gradient", &r.pass,
                   "pass (default forward); gradient: dL/dX of Li et al."),
        OPT_INT("--n", "N", &r.n, 1, MOST, "rows of queries"),
        OPT_INT("--kv", "N", &r.kv, 1, MOST, "rows of keys (default --n)"),
        OPT_INT("--d", "D", &r.d, 1, 65536, "head size"),
        OPT_INT("--dv", "D", &r.dv, 1, 65536, "head size of values (default --d)"),
        OPT_INT("--batch", "N", &r.batch, 1, MOST, "of --hbm: sequences (default 1)"),
        OPT_INT("--heads", "N", &r.heads, 1, MOST, "query heads (default 1)"),
        OPT_INT("--kv-heads", "N", &r.kv_heads, 1, MOST, "key heads (default --heads)"),
        OPT_CHOICE("--mask", cli_mask_words(), &r.mask,
                   "which keys a query row sees (default full)"),
        OPT_TEXT("--window", "L,R", &r.window,
                 "keys to the left and right that a row sees; -1 = all"),
        OPT_TEXT("--block-mask", "chunk:N|documents:N,N..|FILE", &r.block_mask,
                 "narrow the mask to chunks, to documents, or by a file"),
        OPT_INT("--block", "B", &r.block, 1, MOST,
                "rows and columns of a block, visible as a whole (default 128)"),
        OPT_FLAG("--sparse", &r.sparse,
                 "print the form for sparse Q and K with as many live scores"),
        OPT_REAL("--dropout", "P", &r.dropout, "dropout probability; it moves no word (default 0)"),
        OPT_U64("--seed", "N", &r.seed, "seed of inputs and dropout (default 0)"),
    };
    cli_option machine[] = {
        OPT_INT("--cache", "M", &r.cache, 1, MOST_WORDS, "words of fast memory"),
        OPT_TEXT("--algorithm", "NAME|best|all", &r.algorithm,
                 "naive, flash, flash1, apart, mat, phase, fused"),
        OPT_LIST("--tile-sizes", "A,B,...", &r.tiles, 1, MOST,
                 "tile sizes instead of the best ones, in the order above"),
        OPT_INT("--strip", "W", &r.strip, 1, 65536, "inner indices moved at a time (default 1)"),
        OPT_INT("--panel", "R", &r.panel, 1, MOST, "mat, phase: rows per panel (default all)"),
        OPT_INT("--workspace", "W", &r.workspace, 1, MOST_WORDS,
                "mat, phase: workspace in slow memory, in words"),
        OPT_TEXT("--model", "explicit|lru|assoc:LINE,WAYS|opt", &r.model,
                 "who places words in fast memory: the algorithm (explicit), or a cache"),
        OPT_REAL("--budget", "X", &r.budget,
                 "caches: choose tiles for X times M words (default 1)"),
        OPT_INT("--outer", "M", &r.outer, 1, MOST_WORDS,
                "lru, assoc: add a second level of M words, and count its traffic"),
        OPT_FLAG("--pack", &r.pack, "caches: copy operands to contiguous memory first"),
    };
    cli_option output[] = {
        OPT_FLAG("--predict", &r.predict, "print closed forms only, run nothing"),
        OPT_TEXT("--sweep", "cache=A..B", &r.sweep, "every algorithm at cache sizes from A to B"),
        OPT_OUTPUT("--svg", "FILE", &r.svg, "draw the sweep as a log-log plot; or the crossover"),
        OPT_FLAG("--ratio", &r.ratio, "draw words as multiples of the lower bound"),
        OPT_FLAG("--devices", &r.devices, "print the memory levels of machines instead"),
        OPT_FLAG("--crossover", &r.crossover,
                 "print what forms of the backward pass move on Hopper, by head size"),
        OPT_FLAG("--hbm", &r.hbm,
                 "replay a pass of the Hopper kernels through L2, and print bytes of HBM"),
        OPT_TEXT("--plan", "LINE", &r.plan,
                 "of --hbm: the backward pass of this plan, a line of ordo plan --line"),
        OPT_TEXT("--measured", "FILE", &r.measured,
                 "of --crossover: draw rates of bench/gpu/run phase_h200, too"),
        OPT_TEXT("--counted", "FILE", &r.counted,
                 "of --crossover: draw bytes of bench/gpu/run counters_h200, too"),
        OPT_TEXT("--machine", "NAME|FILE", &r.machine,
                 "of --devices, --crossover, --hbm: this machine (the last two: h200)"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = { CLI_SECTION("Attention", problem),
                                     CLI_SECTION("Memory", machine),
                                     CLI_SECTION("Output", output) };
    const cli_syntax syntax = {
        "io --n N --d D --cache M [OPTIONS]",
        "Run an attention algorithm on a machine with a slow memory and M words of fast memory, "
        "and\n"
        "count every word that moves between them; print the closed form and the count, and "
        "the\n"
        "lower bounds below: the regime (M against d^2), each bound with its constants, and the\n"
        "orders of growth. A sweep uses the closed forms.\n"
        "\n"
        "--tile-sizes takes, and the output prints, the sizes of an algorithm in this order:\n"
        "  flash   forward:  ROWS that stay, COLUMNS that stream (default 1)\n"
        "          backward: COLUMNS that stay, ROWS that stream (default 1)\n"
        "  flash1  COLUMNS that stay, ROWS that stream (default 1)\n"
        "  apart   COLUMNS that stay for dk and dv, ROWS that stay for dq, then what streams: "
        "ROWS\n"
        "          for dk and dv, COLUMNS for dq (default 1,1)\n"
        "  mat     ROWS, COLUMNS of a tile of scores, ROWS, COLUMNS of a tile of the output\n"
        "  phase   ROWS, COLUMNS of a tile of scores, ROWS of a tile of dq, ROWS of a tile of dk "
        "and\n"
        "          dv, COLUMNS of a tile of all three\n"
        "  fused   ROWS, COLUMNS of a tile of scores",
        sections, 3,
        "  ordo io --pass backward --algorithm phase --n 96 --d 32 --cache 700 --tile-sizes "
        "20,32,20,20,32\n"
        "  ordo io --pass backward --algorithm all --n 512 --d 64 --cache 4096 --predict\n"
        "  ordo io --n 256 --d 32 --cache 1k --mask causal --block-mask chunk:64 --block 32 "
        "--sparse\n"
        "  ordo io --n 96 --d 32 --cache 1k --model lru --budget 0.85\n"
        "  ordo io --pass backward --n 8k --d 128 --sweep cache=1k..1m --svg words.svg\n"
        "  ordo io --devices\n"
        "  ordo io --crossover --machine h200 --svg crossover.svg\n"
        "  ordo io --hbm --pass backward --algorithm flash --n 8k --d 128 --heads 16 --batch 2\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        r.budget_given = cli_args_used(&syntax, "--budget");
        status = check_tables(&r, sections);
        if (status == CLI_OK)
            status = run(&r);
    }
    cli_list_free(&r.tiles);
    free(r.blocks);
    return status;
}
