/* machine.c: the I/O model on machine files: memory levels, and bytes on a Hopper GPU. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/problem.h"
#include "base/blocks.h"
#include "base/environment.h"
#include "base/status.h"
#include "ordo/lab/io.h"
#include "plan/forms.h"
#include "plan/plan.h"

/* ---- levels ---- */

/* Share of a cache that tiles may fill. The miss rate jumps if tiles fill a fully associative LRU
 * cache; up to 0.85 of it does not. Sets and lines need a lower share. lab/docs/io.md has the
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
    ORDO_TRY(ordo_check_pointer("machine", machine));
    ORDO_TRY(ordo_check_pointer("level", level));
    ORDO_TRY(ordo_check_pointer("end", end));
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
    ORDO_TRY(ordo_check_pointer("problem", problem));
    ORDO_TRY(ordo_check_pointer("advice", advice));
    ORDO_TRY(ordo_problem_resolve(problem, &p));
    if (p.layout != ORDO_DENSE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "layout %s: expected dense",
                         ordo_layout_name(p.layout));
    if (ordo_has_blocks(&p))
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "blocks.entries %" PRId64 ", seen %d: expected 0",
                         p.blocks.entries, p.seen.on);
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

enum { HOPPER = 90, SMALLEST = 8, LARGEST = 1 << 16 };

static double per_score(ordo_traffic t)
{
    return (double)t.bytes / (double)t.scores;
}

static ordo_io_algorithm algorithm_of(ordo_form form)
{
    static const ordo_io_algorithm of[ORDO_FORMS] = { ORDO_IO_FLASH, ORDO_IO_APART, ORDO_IO_PHASE };
    return of[form];
}

/* flop/s of a form if nothing but one limit holds it up: tensor cores, L2 or HBM. The
 * multiplications per score that count, those of five products, and those that are computed; bytes
 * per score. 0 if the machine gives no rates. */
static double roofline(const ordo_machine *machine, double multiplications, double computed,
                       double l2, double hbm)
{
    const double clocks =
        value_or(machine, "workers", 0) * 1e9 * value_or(machine, "clock_burst_ghz", 0);
    const double tensor =
        clocks * value_or(machine, "mma_flop_per_clk_bf16", 0) * multiplications / computed;
    const double flop = 2 * multiplications;
    const double by_l2 = value_or(machine, "l2_read_bytes_per_s", 0) * flop / l2;
    const double by_hbm = hbm > 0 ? value_or(machine, "hbm_bytes_per_s", 0) * flop / hbm : INFINITY;
    return fmin(tensor, fmin(by_l2, by_hbm));
}

ordo_status ordo_io_hopper(const ordo_machine *machine, int64_t head_dim, ordo_io_bytes *bytes)
{
    return ordo_io_hopper_pair(machine, head_dim, head_dim, bytes);
}

bool ordo_io_chained(int64_t head_dim, int64_t v_head_dim)
{
    return ordo_form_chained(head_dim, v_head_dim);
}

ordo_status ordo_io_hopper_pair(const ordo_machine *machine, int64_t head_dim, int64_t v_head_dim,
                                ordo_io_bytes *bytes)
{
    ORDO_DEFAULT_ENVIRONMENT;
    double arch = 0, shared = 0;
    ORDO_TRY(ordo_check_pointer("machine", machine));
    ORDO_TRY(ordo_check_pointer("bytes", bytes));
    if (ordo_machine_family_of(machine) != ORDO_MACHINE_CUDA ||
        ordo_machine_get(machine, "cuda_arch", &arch) != ORDO_OK || (int)arch != HOPPER)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "machine %s: the byte model is Hopper's; expected cuda_arch 90",
                         ordo_machine_name(machine));
    ORDO_TRY(ordo_machine_get(machine, "shared_bytes_per_block", &shared));
    const int64_t wider = head_dim > v_head_dim ? head_dim : v_head_dim;
    const int64_t less = head_dim < v_head_dim ? head_dim : v_head_dim;
    if (less < SMALLEST || wider > LARGEST)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64 ": expected %d to %d",
                         head_dim, v_head_dim, SMALLEST, LARGEST);
    const ordo_form_counts c = ordo_forms_count(head_dim, v_head_dim, (int64_t)shared);
    if (c.l2[ORDO_FORM_APART].scores == 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64 ": no flash tile fits",
                         head_dim, v_head_dim);
    const ordo_form used = ordo_form_choose(&c, wider);
    const double five = (double)ordo_form_columns(ORDO_FORM_FLASH, head_dim, v_head_dim);
    *bytes = (ordo_io_bytes) {
        .tile_q = c.flash_rows,
        .tile_k = c.flash_keys,
        .flash_reduce = per_score(c.l2[ORDO_FORM_FLASH]),
        .flash_rmw = per_score(c.flash_stored),
        .apart = per_score(c.l2[ORDO_FORM_APART]),
        .phase = per_score(c.l2[ORDO_FORM_PHASE]),
        .phase_hbm = (double)c.hbm[ORDO_FORM_PHASE],
        .apart_rows = c.apart_rows,
        .fewest = algorithm_of(ordo_form_fewest(&c)),
        .used = ordo_form_exists(used, wider) ? algorithm_of(used) : ORDO_IO_BEST,
    };
    bytes->flop_per_byte_flash = 2 * five / bytes->flash_reduce;
    bytes->flop_per_byte_phase = 2 * five / bytes->phase;
    double *const rates[ORDO_FORMS] = { &bytes->flash_flops, &bytes->apart_flops,
                                        &bytes->phase_flops };
    for (int i = 0; i < ORDO_FORMS; i++)
        *rates[i] =
            roofline(machine, five, (double)ordo_form_columns((ordo_form)i, head_dim, v_head_dim),
                     per_score(c.l2[i]), (double)c.hbm[i]);
    return ORDO_OK;
}
