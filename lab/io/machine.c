/* machine.c: the I/O model on machine files: memory levels, and bytes on a Hopper GPU. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/problem.h"
#include "base/environment.h"
#include "base/status.h"
#include "ordo/lab/io.h"
#include "plan/plan.h"

/* ---- levels ---- */

/* Share of a cache that tiles may fill. The miss rate jumps if tiles fill a fully associative LRU
 * cache; up to 0.85 of it does not. Sets and lines need a lower share. docs/design/io.md has the
 * measurements. */
static const double set_associative = 0.6;

static double value_or(const ordo_machine *machine, const char *key, double otherwise)
{
    double value;
    return ordo_machine_get(machine, key, &value) == ORDO_OK ? value : otherwise;
}

/* A memory level by the keys of a machine file; a key that is NULL is not known. Bandwidth is per
 * second for the device, or per clock for one worker. */
typedef struct level_keys {
    ordo_machine_family family;
    const char *name, *bytes, *bandwidth, *budget;
    bool scratchpad, accumulators; /* its words are f32, whatever the operands */
    double unit;                   /* bytes per unit of `bytes` */
} level_keys;

static const level_keys levels[] = {
    { ORDO_MACHINE_CUDA, "registers", "registers_per_worker", "shared_bytes_per_clk", NULL, true,
      true, 4 },
    { ORDO_MACHINE_CUDA, "shared", "shared_bytes_per_block", "l2_read_bytes_per_s", NULL, true,
      false, 1 },
    { ORDO_MACHINE_CUDA, "L2", "l2_bytes", "hbm_bytes_per_s", "l2_budget_bytes", false, false, 1 },
    { ORDO_MACHINE_NPU, "operand", "matrix_buffer_bytes", NULL, NULL, true, false, 1 },
    { ORDO_MACHINE_CPU, "registers", "registers_per_worker", "l1_read_bytes_per_clk", NULL, true,
      true, 4 },
    { ORDO_MACHINE_CPU, "L1", "l1_bytes", "l2_read_bytes_per_clk", NULL, false, true, 1 },
    { ORDO_MACHINE_CPU, "L2", "l2_bytes", "l3_read_bytes_per_clk", NULL, false, true, 1 },
    { ORDO_MACHINE_CPU, "L3", "l3_bytes", "dram_bytes_per_s", NULL, false, true, 1 },
};
enum { LEVELS = sizeof levels / sizeof levels[0], GPU_LINE = 32 };

/* Bandwidth into a level, summed over all workers. */
static double bytes_per_s(const ordo_machine *machine, const char *key)
{
    static const char per_clk[] = "_per_clk";
    const size_t length = strlen(key), tail = sizeof per_clk - 1;
    const double value = value_or(machine, key, 0);
    if (length < tail || strcmp(key + length - tail, per_clk) != 0)
        return value;
    return value * 1e9 * value_or(machine, "clock_ghz", 0) * value_or(machine, "workers", 0);
}

static void fill_level(const ordo_machine *machine, const level_keys *keys, ordo_dtype dtype,
                       ordo_io_level *level)
{
    const bool gpu = keys->family == ORDO_MACHINE_CUDA;
    const double bytes = keys->unit * value_or(machine, keys->bytes, 0);
    const double budget = keys->budget ? value_or(machine, keys->budget, bytes) : 0;
    *level = (ordo_io_level) {
        .name = keys->name,
        .scratchpad = keys->scratchpad,
        .bytes = (int64_t)bytes,
        .line_bytes = keys->scratchpad ? 0
                      : gpu            ? GPU_LINE
                                       : (int64_t)value_or(machine, "line_bytes", 64),
        .word_bytes = dtype == ORDO_F32 || keys->accumulators ? 4 : 2,
        .bytes_per_s = keys->bandwidth ? bytes_per_s(machine, keys->bandwidth) : 0,
        .budget = keys->scratchpad ? 1
                  : budget > 0     ? budget / bytes
                                   : set_associative,
    };
    level->small_dim = sqrt(bytes / (double)level->word_bytes);
}

ordo_status ordo_io_level_at(const ordo_machine *machine, ordo_dtype dtype, int index,
                             ordo_io_level *level, bool *end)
{
    ORDO_DEFAULT_ENVIRONMENT;
    if (!machine || !level || !end)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer, got NULL",
                         !machine ? "machine"
                         : level  ? "end"
                                  : "level");
    *end = false;
    for (int i = 0; i < LEVELS; i++) {
        double bytes;
        if (levels[i].family != ordo_machine_family_of(machine) ||
            ordo_machine_get(machine, levels[i].bytes, &bytes) != ORDO_OK || index-- > 0)
            continue;
        fill_level(machine, &levels[i], dtype, level);
        return ORDO_OK;
    }
    *end = true;
    return ORDO_OK;
}

/* ---- advice ---- */

enum {
    MMA_STEP = 16, /* inner indices of a matrix instruction on 16-bit operands */
    PANELS = 8     /* rows of a panel / sqrt M: panels then cost about 5 % */
};

static ordo_io_problem io_problem(const ordo_problem *p, ordo_io_pass pass,
                                  const ordo_io_advice *advice)
{
    ordo_io_problem io = ORDO_IO_PROBLEM_INIT;
    io.pass = pass;
    io.q_len = p->q_len;
    io.kv_len = p->kv_len;
    io.head_dim = p->head_dim;
    io.v_head_dim = p->v_head_dim;
    io.heads = p->heads;
    io.kv_heads = p->kv_heads;
    io.mask = p->mask;
    io.window = p->window;
    io.cache_words = advice->cache_words;
    io.strip = advice->strip;
    io.workspace_words = (int64_t)(2 * PANELS * sqrt((double)advice->cache_words)) * p->kv_len;
    return io;
}

ordo_status ordo_io_advise(const ordo_machine *machine, const ordo_problem *problem,
                           ordo_io_pass pass, int index, ordo_io_advice *advice, bool *end)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_problem p;
    if (!problem || !advice)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer, got NULL",
                         problem ? "advice" : "problem");
    ORDO_TRY(ordo_problem_resolve(problem, &p));
    if (p.layout != ORDO_DENSE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "layout %s: expected dense",
                         ordo_layout_name(p.layout));
    if (ordo_problem_empty(&p))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "batch %" PRId64 ", q_len %" PRId64 ", kv_len %" PRId64
                         ": expected 1 or more, for an empty problem moves nothing",
                         p.batch, p.q_len, p.kv_len);
    memset(advice, 0, sizeof *advice);
    ordo_io_level *level = &advice->level;
    ORDO_TRY(ordo_io_level_at(machine, p.dtype, index, level, end));
    if (*end)
        return ORDO_OK;
    const int64_t words = level->bytes / level->word_bytes;
    advice->cache_words = (int64_t)((double)words * level->budget);
    advice->strip = !level->scratchpad       ? level->line_bytes / level->word_bytes
                    : level->word_bytes == 2 ? MMA_STEP
                                             : 1;
    const ordo_io_problem io = io_problem(&p, pass, advice);
    ORDO_TRY(ordo_io_bound_best(&io, &advice->bound));
    const ordo_status status = ordo_io_choose(&io, ORDO_IO_BEST, NULL, &advice->choice);
    if (status != ORDO_OK && status != ORDO_ERR_UNSUPPORTED)
        return status;
    advice->fits = status == ORDO_OK;
    advice->bound.words *= (double)p.batch;
    advice->choice.words.loads *= p.batch;
    advice->choice.words.stores *= p.batch;
    advice->bytes = (double)level->word_bytes *
                    (double)(advice->choice.words.loads + advice->choice.words.stores);
    if (level->bytes_per_s > 0)
        advice->ns = 1e9 * advice->bytes / level->bytes_per_s;
    return ORDO_OK;
}

/* ---- bytes on Hopper ---- */

enum {
    HOPPER = 90,
    ROWS = 64,                /* rows of a wgmma instruction */
    COLUMNS = 8,              /* its columns are a multiple of this */
    ACCUMULATORS = 256 * 200, /* two consumer warpgroups, 200 registers per thread */
    STREAM = 32,              /* smallest number of streamed columns in the split kernel for dq */
    PHASE_ROWS = 128,         /* tiles of the phase algorithm, which are plain products */
    PHASE_COLS = 256,
    PRODUCTS = 5
};

/* Backward flash: dk and dv in registers with two score tiles; k, v, q, dout and the two score
 * tiles in shared memory, two bytes each. */
static int64_t flash_columns(int64_t d, double shared)
{
    const int64_t registers = ACCUMULATORS / (2 * d + 2 * ROWS);
    const int64_t room = ((int64_t)shared - 4 * ROWS * d) / (4 * d + 4 * ROWS);
    const int64_t least = registers < room ? registers : room;
    return least < COLUMNS ? 0 : least / COLUMNS * COLUMNS;
}

/* Split: dq in registers with two thin score tiles. */
static int64_t split_rows(int64_t d, double shared)
{
    int64_t rows = 0;
    for (int64_t r = ROWS; r * (d + 2 * STREAM) <= ACCUMULATORS &&
                           4 * r * d + 4 * STREAM * d + 4 * r * STREAM <= (int64_t)shared;
         r += ROWS)
        rows = r;
    return rows;
}

ordo_status ordo_io_hopper(const ordo_machine *machine, int64_t head_dim, ordo_io_bytes *bytes)
{
    ORDO_DEFAULT_ENVIRONMENT;
    double arch = 0, shared = 0;
    if (!machine || !bytes)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s: expected a pointer, got NULL",
                         machine ? "bytes" : "machine");
    if (ordo_machine_family_of(machine) != ORDO_MACHINE_CUDA ||
        ordo_machine_get(machine, "cuda_arch", &arch) != ORDO_OK || (int)arch != HOPPER)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "machine %s: the byte model is Hopper's; expected cuda_arch 90",
                         ordo_machine_name(machine));
    ORDO_TRY(ordo_machine_get(machine, "shared_bytes_per_block", &shared));
    if (head_dim < COLUMNS || head_dim > ACCUMULATORS)
        return ordo_fail(ORDO_ERR_ARGUMENT, "head_dim %" PRId64 ": expected %d to %d", head_dim,
                         COLUMNS, ACCUMULATORS);
    const int64_t cols = flash_columns(head_dim, shared), rows = split_rows(head_dim, shared);
    const double d = (double)head_dim, flop = 2 * PRODUCTS * d;
    if (cols == 0 || rows == 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "head_dim %" PRId64 ": no flash tile fits",
                         head_dim);
    *bytes = (ordo_io_bytes) {
        .tile_q = ROWS,
        .tile_k = cols,
        .flash_reduce = d * (4 + 4) / (double)cols,
        .flash_rmw = d * (4 + 8) / (double)cols,
        .split = 4 * d / (double)cols + 4 * d / (double)rows,
        .phase = 2 * PRODUCTS * d * (1.0 / PHASE_ROWS + 1.0 / PHASE_COLS) + 6,
    };
    bytes->flop_per_byte_flash = flop / bytes->flash_reduce;
    bytes->flop_per_byte_phase = flop / bytes->phase;
    return ORDO_OK;
}
