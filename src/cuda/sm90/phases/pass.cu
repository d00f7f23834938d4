/* sm90/phases/pass.cu: both passes by phases. Forward: panel after panel P and lse, then O.
 * Backward: row statistics, then panel after panel P and dS, dV and dK, dQ; or, if the plan says
 * so, dV, dK and dS in one kernel, and dQ. */
#include "cuda/sm90/passes.h"

#include <cuda_runtime.h>

#include "cuda/sm90/phases/instances.h"
#include "cuda/support/around.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"
#include "cuda/support/statistics.h"

/* Counters after the flag: one per kernel of a panel, zeroed together. */
enum { TICKET_SCORES = ORDO_NOT_FINITE + 1, TICKET_KEYS, TICKET_QUERIES, TICKET_END };

/* A pass, and the panel at hand: what all its kernels read, and maps with boxes of 64 x 64. */
struct phase_pass : ordo_phase_maps, ordo_phase_common {
    bool backward;
    CUtensorMap p_map, ds_map; /* ds: of dS^T, if chained() */
};

/* Whether dK and dV are wanted. */
static bool by_keys(const ordo_cuda_pass *pass)
{
    return pass->dk.data || pass->carry.out;
}

/* Whether dV, dK and dS come from one kernel. dS of a pass of dq alone comes from the scores, which
 * make no keep bits and read no element mask. */
static bool chained(const ordo_cuda_pass *pass)
{
    return pass->form == ORDO_FORM_CHAIN &&
           (by_keys(pass) || ordo_pass_keep_source(pass) == ORDO_KEEP_MADE || pass->blocks.bits);
}

/* ---- maps ---- */

/* P, dS or dS^T: `rows` rows of `columns` columns. */
static ordo_status panel_map(CUtensorMap *map, uint16_t *data, int64_t rows, int32_t columns)
{
    const ordo_cuda_tensor tensor = { data, columns, columns, columns };
    return ordo_cuda_map(map, &tensor, { rows, 1, 1, columns }, PHASE_STEP);
}

/* Lines of dS^T that `bytes` hold. They are numbered in 32 bits. */
static int64_t lines_in(int64_t bytes)
{
    const int64_t lines = bytes / (PHASE_ROWS * (int64_t)sizeof(uint16_t));
    return lines < INT32_MAX ? lines : INT32_MAX;
}

static ordo_status make_maps(phase_pass *x)
{
    const ordo_cuda_phase &phase = x->phase;
    const int64_t rows = (int64_t)phase.section * x->run.group_heads * phase.tiles * PHASE_ROWS;
    const auto make = [&](CUtensorMap *to, const ordo_cuda_tensor &tensor, bool keys,
                          int32_t columns) {
        return ordo_cuda_map(to, &tensor, ordo_pass_lengths(x, keys, columns), PHASE_STEP);
    };
    CUDA_TRY(make(&x->map.q, x->q, false, x->head_dim));
    CUDA_TRY(make(&x->map.k, x->k, true, x->head_dim));
    CUDA_TRY(make(&x->map.v, x->v, true, x->v_head_dim));
    if (phase.p)
        CUDA_TRY(panel_map(&x->p_map, phase.p, rows, phase.columns));
    if (!x->backward)
        return ORDO_OK;
    CUDA_TRY(make(&x->map.dout, x->dout, false, x->v_head_dim));
    return chained(x) ? panel_map(&x->ds_map, phase.ds, lines_in(phase.all_bytes), PHASE_ROWS)
                      : panel_map(&x->ds_map, phase.ds, rows, phase.columns);
}

/* ---- launches ---- */

static ordo_status launch(const ordo_phase_common &x, ordo_phase_kernel kernel, ordo_launch kind,
                          const void *args)
{
    int blocks = 0; /* units are known on the device only, if lengths are */
    CUDA_TRY(ordo_cuda_blocks(x.run.workers, INT32_MAX, &blocks));
    const ordo_cuda_grid grid = { (unsigned)blocks, PHASE_THREADS, kernel.shared_bytes, kind };
    return ordo_cuda_launch(kernel.kernel, args, grid, x.stream);
}

/* Heads that are taken together: under a full mask one after the other, for units are of one length
 * then; else all, so that the longest units of all heads come first. */
static int32_t together_of(const ordo_cuda_pass *pass, int32_t heads)
{
    const ordo_band *band = &pass->run.band;
    return band->high == ORDO_BAND_OPEN && band->low == -ORDO_BAND_OPEN ? 1 : heads;
}

static ordo_phase_common common_of(const phase_pass &x, int ticket)
{
    ordo_phase_common all = x;
    all.together = together_of(&x, x.panel.heads * x.run.group_heads);
    all.next = x.ticket + ticket;
    return all;
}

/* P and lse; or P and dS. */
static ordo_status launch_scores(const phase_pass &x)
{
    const int32_t keys = PHASE_KEYS * PHASE_CHUNK, kv_len = x.run.band.kv_len;
    ordo_phase_scores args = {};
    (ordo_phase_maps &)args = x;
    (ordo_phase_common &)args = common_of(x, TICKET_SCORES);
    args.chunks = kv_len / keys + (kv_len % keys != 0);
    args.out_scale = ordo_pass_dv_scale(&x);
    if (x.backward && !by_keys(&x))
        args.phase.p = NULL;
    return launch(x, x.backward ? ordo_phases_scores(&x, 0) : ordo_phases_softmax(&x, 0),
                  ORDO_LAUNCH_PLAIN, &args);
}

static ordo_status launch_outputs(const phase_pass &x)
{
    ordo_phase_product args = {};
    ordo_phase_factors *f = &args.factors[0];
    (ordo_phase_common &)args = common_of(x, TICKET_QUERIES);
    f->a = x.p_map;
    f->b = x.map.v;
    f->out = x.o;
    f->columns = x.v_head_dim;
    return launch(x, ordo_phases_outputs(&x, f->columns), ORDO_LAUNCH_PLAIN, &args);
}

/* `kind`: early only after the kernel by keys, which begins when all that is read here has been
 * written. */
static ordo_status launch_queries(const phase_pass &x, ordo_launch kind)
{
    ordo_phase_product args = {};
    ordo_phase_factors *f = &args.factors[0];
    (ordo_phase_common &)args = common_of(x, TICKET_QUERIES);
    f->a = x.ds_map;
    f->b = x.map.k;
    f->out = x.dq;
    f->columns = x.head_dim;
    f->scale = ordo_pass_dk_scale(&x);
    return launch(x,
                  x.blocks.bits ? ordo_phases_queries_seen(&x, f->columns)
                  : chained(&x) ? ordo_phases_queries_transposed(&x, f->columns)
                                : ordo_phases_queries(&x, f->columns),
                  kind, &args);
}

/* Whether a unit of the product by keys has whole rows of dK and dV, and so can store those that
 * are finite itself. */
static bool whole_rows(const ordo_cuda_pass *pass)
{
    const int columns = ordo_max32(pass->head_dim, pass->v_head_dim);
    return columns <= ordo_phase_width(columns);
}

/* dV or dK: `a` times `b`. `carried` and `broken`: the sums that a pass before left, or that are
 * left for the next one. */
static ordo_status factors_of(ordo_phase_factors *f, const phase_pass &x, const CUtensorMap &a,
                              const CUtensorMap &b, const ordo_cuda_tensor &out, int32_t columns,
                              float scale, float *sums, float *carried, uint8_t *broken)
{
    const bool whole = whole_rows(&x);
    f->a = a;
    f->b = b;
    f->out = x.carry.out ? ordo_cuda_tensor() : out;
    f->columns = columns;
    f->scale = scale;
    f->before = x.carry.in ? carried : NULL;
    f->sums = sums;
    f->left = x.carry.out && whole ? carried : NULL;
    f->broken = x.carry.out && whole ? broken : NULL;
    if (!x.carry.in || !whole)
        return ORDO_OK;
    return ordo_cuda_map_sums(&f->came, carried, ordo_pass_lengths(&x, true, columns), PHASE_STEP);
}

/* Arguments of the products by keys. */
static ordo_status keys_of(ordo_phase_product *args, const phase_pass &x)
{
    (ordo_phase_common &)*args = common_of(x, TICKET_KEYS);
    CUDA_TRY(factors_of(&args->factors[0], x, x.p_map, x.map.dout, x.dv, x.v_head_dim,
                        ordo_pass_dv_scale(&x), x.phase.dv, x.carry.dv, x.carry.dv_broken));
    CUDA_TRY(factors_of(&args->factors[1], x, x.ds_map, x.map.q, x.dk, x.head_dim,
                        ordo_pass_dk_scale(&x), x.phase.dk, x.carry.dk, x.carry.dk_broken));
    args->whole = whole_rows(&x);
    args->together = together_of(&x, x.panel.heads);
    args->down = x.run.order == ORDO_ORDER_DESCENDING;
    return ORDO_OK;
}

static ordo_status launch_keys(const phase_pass &x)
{
    ordo_phase_product args = {};
    CUDA_TRY(keys_of(&args, x));
    return launch(x, ordo_phases_keys(&x, ordo_max32(x.head_dim, x.v_head_dim)), ORDO_LAUNCH_PLAIN,
                  &args);
}

static ordo_phase_kernel chain_of(const ordo_cuda_pass *pass)
{
    const bool narrow = pass->v_head_dim <= 128;
    const bool wide = pass->head_dim > 192 || pass->v_head_dim > 192;
    if (pass->blocks.bits)
        return wide ? ordo_phases_chain_seen_256(pass, 0) : ordo_phases_chain_seen_192(pass, 0);
    if (wide)
        return narrow ? ordo_phases_chain_256_128(pass, 0) : ordo_phases_chain_256(pass, 0);
    return narrow ? ordo_phases_chain_192_128(pass, 0) : ordo_phases_chain_192(pass, 0);
}

static ordo_status launch_chains(const phase_pass &x)
{
    ordo_phase_chains args = {};
    CUDA_TRY(keys_of(&args, x));
    args.map = { x.map.k, x.map.v };
    if (!x.dq.data)
        args.phase.ds = NULL;
    if (!by_keys(&x)) /* sums without columns: nothing is loaded or stored */
        args.factors[0].columns = args.factors[1].columns = 0;
    return launch(x, chain_of(&x), ORDO_LAUNCH_PLAIN, &args);
}

/* ---- passes ---- */

static ordo_status zero_tickets(const ordo_cuda_pass *pass, int first)
{
    CUDA_CALL(cudaMemsetAsync(pass->ticket + first, 0, (TICKET_END - first) * sizeof *pass->ticket,
                              (cudaStream_t)pass->stream));
    return ORDO_OK;
}

static ordo_status run_panel(const phase_pass &x)
{
    const bool keys = by_keys(&x), chains = chained(&x);
    CUDA_TRY(zero_tickets(&x, TICKET_SCORES));
    if (!x.backward) {
        CUDA_TRY(launch_scores(x));
        return launch_outputs(x);
    }
    CUDA_TRY(chains ? launch_chains(x) : launch_scores(x));
    if (keys && !chains)
        CUDA_TRY(launch_keys(x));
    if (!x.dq.data)
        return ORDO_OK;
    return launch_queries(x, keys && !chains ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN);
}

static ordo_status run_panels(phase_pass *x)
{
    const bool chains = x->backward && chained(x);
    const bool down = x->backward && x->run.order == ORDO_ORDER_DESCENDING;
    const int32_t tiles = x->batch.tiles, group_heads = x->run.group_heads;
    const ordo_phase_room room = { lines_in(x->phase.all_bytes), lines_in(x->phase.score_bytes) };
    int32_t section = x->phase.section;
    x->lines = ordo_phase_lines_of(&x->batch, x->phase.columns);
    if (chains) {
        int workers = 0;
        CUDA_TRY(ordo_cuda_blocks(x->run.workers, INT32_MAX, &workers));
        section = ordo_phase_section(&x->lines, &x->batch, section, x->run.kv_heads, group_heads,
                                     &room, workers);
    }
    for (int32_t head = 0; head < x->run.kv_heads; head += section) {
        const int32_t heads = ordo_min32(section, x->run.kv_heads - head);
        for (int32_t done = 0; done < tiles; done += x->panel.tiles) {
            x->panel = chains ? ordo_phase_panel_filled(&x->lines, heads * group_heads, &room, done,
                                                        tiles, down)
                              : ordo_phase_panel_at(done, x->phase.tiles, tiles, down);
            x->panel.head = head;
            x->panel.heads = heads;
            x->lines.before = ordo_phase_lines_before(&x->lines, x->panel.tile);
            x->lines.head = (int32_t)ordo_phase_panel_lines(&x->lines, &x->panel, 1);
            CUDA_TRY(run_panel(*x));
        }
        if (x->backward && x->carry.out && !whole_rows(x))
            CUDA_TRY(ordo_phase_leave(x, head, heads));
    }
    return ORDO_OK;
}

static ordo_status begin(phase_pass *x, const ordo_cuda_pass *pass, bool backward)
{
    (ordo_pass_common &)*x = ordo_pass_common_of(pass);
    x->backward = backward;
    CUDA_TRY(make_maps(x));
    return ordo_cuda_sequences(pass, 0);
}

ordo_status ordo_wgmma_forward_phases(const ordo_cuda_pass *pass)
{
    phase_pass x = {};
    CUDA_TRY(begin(&x, pass, false));
    CUDA_TRY(ordo_cuda_clear_forward(pass));
    CUDA_TRY(zero_tickets(pass, 0));
    CUDA_TRY(run_panels(&x));
    return ordo_repair_forward(pass, NULL);
}

ordo_status ordo_wgmma_backward_phases(const ordo_cuda_pass *pass)
{
    phase_pass x = {};
    CUDA_TRY(begin(&x, pass, true));
    CUDA_TRY(ordo_cuda_tiles(pass));
    CUDA_TRY(ordo_cuda_clear_backward(pass));
    CUDA_TRY(ordo_backward_begin(pass, false));
    CUDA_TRY(run_panels(&x));
    return ordo_repair_backward(pass);
}
