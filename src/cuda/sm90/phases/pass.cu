/* sm90/phases/pass.cu: both passes by phases. Forward: panel after panel P and lse, then O.
 * Backward: row statistics, then panel after panel P and dS, dV and dK, dQ; or, if the plan says
 * so, dV, dK and dS in one kernel, and dQ. */
#include "cuda/sm90/phases/pass.h"

#include <cuda_runtime.h>

#include "cuda/sm90/phases/args.h"
#include "cuda/sm90/phases/leave.h"
#include "cuda/support/launch.h"
#include "cuda/support/repair.h"
#include "cuda/support/sequences.h"
#include "cuda/support/statistics.h"

/* Counters after the flag: one per kernel of a panel, zeroed together. */
enum { TICKET_SCORES = ORDO_NOT_FINITE + 1, TICKET_KEYS, TICKET_QUERIES, TICKET_END };

/* ---- maps: boxes of 64 x 64 ---- */

struct phase_maps {
    CUtensorMap q, k, v, dout, p, ds; /* ds: of dS^T, if chained() */
};

/* Whether dK and dV are wanted. */
static bool by_keys(const ordo_cuda_pass *pass)
{
    return pass->dk.data || pass->carry.out;
}

/* Whether dV, dK and dS come from one kernel. dS of a pass of dq alone comes from the scores, which
 * make no keep bits. */
static bool chained(const ordo_cuda_pass *pass)
{
    return pass->form == ORDO_FORM_CHAIN &&
           (by_keys(pass) || ordo_pass_keep_source(pass) == ORDO_KEEP_MADE);
}

static ordo_status map_of(CUtensorMap *map, const ordo_cuda_pass *pass, const ordo_cuda_tensor *x,
                          bool keys, int32_t columns, char *why, size_t why_size)
{
    const ordo_run *run = &pass->run;
    const int64_t rows = keys ? pass->kv_rows : pass->q_rows;
    const ordo_cuda_lengths lengths = { rows > 0 ? rows : 1, /* a map needs one */
                                        keys ? run->kv_heads : run->kv_heads * run->group_heads,
                                        pass->layout == ORDO_PACKED ? 1 : run->sequences, columns };
    return ordo_cuda_map(map, x, lengths, PHASE_STEP, why, why_size);
}

/* P, dS or dS^T: `rows` rows of `columns` columns. */
static ordo_status panel_map(CUtensorMap *map, uint16_t *data, int64_t rows, int32_t columns,
                             char *why, size_t why_size)
{
    const ordo_cuda_tensor tensor = { data, columns, columns, columns };
    const ordo_cuda_lengths lengths = { rows, 1, 1, columns };
    return ordo_cuda_map(map, &tensor, lengths, PHASE_STEP, why, why_size);
}

/* Lines of dS^T that `bytes` hold. They are numbered in 32 bits. */
static int64_t lines_in(int64_t bytes)
{
    const int64_t lines = bytes / (PHASE_ROWS * (int64_t)sizeof(uint16_t));
    return lines < INT32_MAX ? lines : INT32_MAX;
}

static ordo_status make_maps(const ordo_cuda_pass *pass, bool backward, phase_maps *maps, char *why,
                             size_t why_size)
{
    const int32_t d = pass->head_dim, dv = pass->v_head_dim;
    const int64_t rows =
        (int64_t)pass->phase.section * pass->run.group_heads * pass->phase.tiles * PHASE_ROWS;
    CUDA_TRY(map_of(&maps->q, pass, &pass->q, false, d, why, why_size));
    CUDA_TRY(map_of(&maps->k, pass, &pass->k, true, d, why, why_size));
    CUDA_TRY(map_of(&maps->v, pass, &pass->v, true, dv, why, why_size));
    if (pass->phase.p)
        CUDA_TRY(panel_map(&maps->p, pass->phase.p, rows, pass->phase.columns, why, why_size));
    if (!backward)
        return ORDO_OK;
    CUDA_TRY(map_of(&maps->dout, pass, &pass->dout, false, dv, why, why_size));
    if (chained(pass))
        return panel_map(&maps->ds, pass->phase.ds, lines_in(pass->phase.all_bytes), PHASE_ROWS,
                         why, why_size);
    return panel_map(&maps->ds, pass->phase.ds, rows, pass->phase.columns, why, why_size);
}

/* ---- launches ---- */

static ordo_status launch(const ordo_cuda_pass *pass, ordo_phase_kernel kernel, ordo_launch kind,
                          const void *args, char *why, size_t why_size)
{
    int blocks = 0; /* units are known on the device only, if lengths are */
    CUDA_TRY(ordo_cuda_blocks(pass->run.workers, INT32_MAX, &blocks, why, why_size));
    const ordo_cuda_grid grid = { (unsigned)blocks, PHASE_THREADS, kernel.shared_bytes, kind };
    return ordo_cuda_launch(kernel.kernel, args, grid, pass->stream, why, why_size);
}

/* Heads that are taken together: under a full mask one after the other, for units are of one length
 * then; else all, so that the longest units of all heads come first. */
static int32_t together_of(const ordo_cuda_pass *pass, int32_t heads)
{
    const ordo_band *band = &pass->run.band;
    return band->high == ORDO_BAND_OPEN && band->low == -ORDO_BAND_OPEN ? 1 : heads;
}

static ordo_phase_common common_of(const ordo_cuda_pass *pass, const ordo_phase_panel *panel,
                                   int ticket)
{
    ordo_phase_common all = {};
    all.batch = pass->batch;
    all.panel = *panel;
    all.kv_heads = pass->run.kv_heads;
    all.group_heads = pass->run.group_heads;
    all.together = together_of(pass, panel->heads * all.group_heads);
    all.ticket = pass->ticket + ticket;
    all.stat = pass->lse2;
    all.weight = pass->delta;
    return all;
}

static ordo_status launch_softmax(const ordo_cuda_pass *pass, const phase_maps *maps,
                                  const ordo_phase_panel *panel, char *why, size_t why_size)
{
    ordo_phase_softmax args = {};
    args.q = maps->q;
    args.k = maps->k;
    args.all = common_of(pass, panel, TICKET_SCORES);
    args.head_dim = pass->head_dim;
    args.columns = pass->phase.columns;
    args.p = pass->phase.p;
    args.shrink = pass->phase.shrink;
    args.rule = ordo_score_rule_of(pass->scale, pass->softcap, pass->slopes);
    args.ruled = ordo_pass_ruled(pass);
    args.scale = args.ruled ? args.rule.natural : pass->scale;
    args.scale_log2 = args.ruled ? args.rule.to_log2 : pass->scale * (float)ORDO_LOG2_E;
    args.keep_scale = ordo_pass_dv_scale(pass);
    args.slopes = pass->slopes;
    args.slopes_sequence = pass->slopes_sequence;
    args.keep_bits = pass->keep_scale > 0.0f ? (const uint2 *)pass->keep_bits : NULL;
    args.sink = pass->sink;
    args.lse = pass->lse;
    return launch(pass, ordo_phase_softmax_kernel(pass->f16), ORDO_LAUNCH_PLAIN, &args, why,
                  why_size);
}

static ordo_status launch_scores(const ordo_cuda_pass *pass, const phase_maps *maps,
                                 const ordo_phase_panel *panel, char *why, size_t why_size)
{
    const int32_t keys = PHASE_KEYS * PHASE_CHUNK;
    ordo_phase_scores args = {};
    args.q = maps->q;
    args.k = maps->k;
    args.v = maps->v;
    args.dout = maps->dout;
    args.all = common_of(pass, panel, TICKET_SCORES);
    args.head_dim = pass->head_dim;
    args.v_head_dim = pass->v_head_dim;
    args.chunks = pass->run.band.kv_len / keys + (pass->run.band.kv_len % keys != 0);
    args.columns = pass->phase.columns;
    args.p = by_keys(pass) ? pass->phase.p : NULL;
    args.ds = pass->phase.ds;
    args.rule = ordo_score_rule_of(pass->scale, pass->softcap, pass->slopes);
    args.ruled = ordo_pass_ruled(pass);
    args.slopes = pass->slopes;
    args.slopes_sequence = pass->slopes_sequence;
    args.keep_bits = pass->keep_scale > 0.0f ? (const uint2 *)pass->keep_bits : NULL;
    return launch(pass, ordo_phase_scores_kernel(pass->f16), ORDO_LAUNCH_PLAIN, &args, why,
                  why_size);
}

static ordo_phase_product product_of(const ordo_cuda_pass *pass, const ordo_phase_panel *panel,
                                     int ticket)
{
    ordo_phase_product args = {};
    args.all = common_of(pass, panel, ticket);
    args.kv_rows = pass->kv_rows;
    args.flag = pass->ticket + ORDO_NOT_FINITE;
    return args;
}

static ordo_status launch_outputs(const ordo_cuda_pass *pass, const phase_maps *maps,
                                  const ordo_phase_panel *panel, char *why, size_t why_size)
{
    ordo_phase_product args = product_of(pass, panel, TICKET_QUERIES);
    ordo_phase_factors *f = &args.factors[0];
    f->a = maps->p;
    f->b = maps->v;
    f->out = pass->o;
    f->columns = pass->v_head_dim;
    args.shrink = pass->phase.shrink;
    args.columns = pass->phase.columns;
    return launch(pass, ordo_phase_outputs_kernel(pass->f16, f->columns), ORDO_LAUNCH_PLAIN, &args,
                  why, why_size);
}

/* `kind`: early only after the kernel by keys, which begins when all that is read here has been
 * written. */
static ordo_status launch_queries(const ordo_cuda_pass *pass, const phase_maps *maps,
                                  const ordo_phase_panel *panel, const ordo_phase_lines *lines,
                                  ordo_launch kind, char *why, size_t why_size)
{
    ordo_phase_product args = product_of(pass, panel, TICKET_QUERIES);
    ordo_phase_factors *f = &args.factors[0];
    f->a = maps->ds;
    f->b = maps->k;
    f->out = pass->dq;
    f->columns = pass->head_dim;
    f->scale = ordo_pass_dk_scale(pass);
    args.lines = *lines;
    const ordo_phase_kernel kernel = chained(pass)
                                         ? ordo_phase_turned_kernel(pass->f16, f->columns)
                                         : ordo_phase_queries_kernel(pass->f16, f->columns);
    return launch(pass, kernel, kind, &args, why, why_size);
}

/* Whether a unit of the product by keys has whole rows of dK and dV, and so can store those that
 * are finite itself. */
static bool whole_rows(const ordo_cuda_pass *pass)
{
    const int columns = ordo_max32(pass->head_dim, pass->v_head_dim);
    return columns <= ordo_phase_width(columns);
}

/* The sums that a pass before left, in boxes of PHASE_STEP keys. */
static ordo_status map_came(CUtensorMap *map, const ordo_cuda_pass *pass, float *sums,
                            int32_t columns, char *why, size_t why_size)
{
    const ordo_cuda_lengths lengths = { pass->kv_rows > 0 ? pass->kv_rows : 1, pass->run.kv_heads,
                                        pass->layout == ORDO_PACKED ? 1 : pass->run.sequences,
                                        columns };
    return ordo_cuda_map_sums(map, sums, lengths, PHASE_STEP, why, why_size);
}

/* Arguments of the products by keys. */
static ordo_status keys_of(ordo_phase_product *args, const ordo_cuda_pass *pass,
                           const phase_maps *maps, const ordo_phase_panel *panel, char *why,
                           size_t why_size)
{
    const ordo_cuda_tensor none = {};
    *args = product_of(pass, panel, TICKET_KEYS);
    ordo_phase_factors *dv = &args->factors[0], *dk = &args->factors[1];
    dv->a = maps->p;
    dv->b = maps->dout;
    dv->out = pass->carry.out ? none : pass->dv;
    dv->columns = pass->v_head_dim;
    dv->scale = ordo_pass_dv_scale(pass);
    dv->before = pass->carry.in ? pass->carry.dv : NULL;
    dv->sums = pass->phase.dv;
    dk->a = maps->ds;
    dk->b = maps->q;
    dk->out = pass->carry.out ? none : pass->dk;
    dk->columns = pass->head_dim;
    dk->scale = ordo_pass_dk_scale(pass);
    dk->before = pass->carry.in ? pass->carry.dk : NULL;
    dk->sums = pass->phase.dk;
    args->whole = whole_rows(pass);
    if (pass->carry.in && args->whole) {
        CUDA_TRY(map_came(&dv->came, pass, pass->carry.dv, dv->columns, why, why_size));
        CUDA_TRY(map_came(&dk->came, pass, pass->carry.dk, dk->columns, why, why_size));
    }
    if (pass->carry.out && args->whole) {
        dv->left = pass->carry.dv;
        dv->broken = pass->carry.dv_broken;
        dk->left = pass->carry.dk;
        dk->broken = pass->carry.dk_broken;
    }
    args->all.together = together_of(pass, panel->heads);
    args->down = pass->run.order == ORDO_ORDER_DESCENDING;
    return ORDO_OK;
}

static ordo_status launch_keys(const ordo_cuda_pass *pass, const phase_maps *maps,
                               const ordo_phase_panel *panel, char *why, size_t why_size)
{
    ordo_phase_product args;
    CUDA_TRY(keys_of(&args, pass, maps, panel, why, why_size));
    const int columns = ordo_max32(pass->head_dim, pass->v_head_dim);
    return launch(pass, ordo_phase_keys_kernel(pass->f16, columns), ORDO_LAUNCH_PLAIN, &args, why,
                  why_size);
}

static ordo_status launch_chains(const ordo_cuda_pass *pass, const phase_maps *maps,
                                 const ordo_phase_panel *panel, const ordo_phase_lines *lines,
                                 char *why, size_t why_size)
{
    ordo_phase_chains args = {};
    CUDA_TRY(keys_of(&args.product, pass, maps, panel, why, why_size));
    args.k = maps->k;
    args.v = maps->v;
    args.lines = *lines;
    args.ds = pass->dq.data ? pass->phase.ds : NULL;
    args.rule = ordo_score_rule_of(pass->scale, pass->softcap, pass->slopes);
    args.ruled = ordo_pass_ruled(pass);
    args.slopes = pass->slopes;
    args.slopes_sequence = pass->slopes_sequence;
    args.keep_bits = pass->keep_bits;
    args.maker = ordo_keep_maker_of(pass);
    if (!by_keys(pass)) /* sums without columns: nothing is loaded or stored */
        for (int n = 0; n < 2; n++)
            args.product.factors[n].columns = 0;
    return launch(pass, ordo_phase_chain_kernel(pass), ORDO_LAUNCH_PLAIN, &args, why, why_size);
}

/* ---- passes ---- */

static ordo_status zero_tickets(const ordo_cuda_pass *pass, int first, char *why, size_t why_size)
{
    CUDA_CALL(cudaMemsetAsync(pass->ticket + first, 0, (TICKET_END - first) * sizeof *pass->ticket,
                              (cudaStream_t)pass->stream));
    return ORDO_OK;
}

/* `lines`: of a panel of chains. */
static ordo_status run_panel(const ordo_cuda_pass *pass, const phase_maps *maps,
                             const ordo_phase_panel *panel, const ordo_phase_lines *lines,
                             bool backward, char *why, size_t why_size)
{
    CUDA_TRY(zero_tickets(pass, TICKET_SCORES, why, why_size));
    if (!backward) {
        CUDA_TRY(launch_softmax(pass, maps, panel, why, why_size));
        return launch_outputs(pass, maps, panel, why, why_size);
    }
    if (chained(pass)) {
        CUDA_TRY(launch_chains(pass, maps, panel, lines, why, why_size));
        return pass->dq.data
                   ? launch_queries(pass, maps, panel, lines, ORDO_LAUNCH_PLAIN, why, why_size)
                   : ORDO_OK;
    }
    CUDA_TRY(launch_scores(pass, maps, panel, why, why_size));
    if (by_keys(pass))
        CUDA_TRY(launch_keys(pass, maps, panel, why, why_size));
    if (!pass->dq.data)
        return ORDO_OK;
    return launch_queries(pass, maps, panel, lines,
                          by_keys(pass) ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN, why, why_size);
}

static ordo_status run_panels(const ordo_cuda_pass *pass, const phase_maps *maps, bool backward,
                              char *why, size_t why_size)
{
    const ordo_cuda_phase *x = &pass->phase;
    const bool down = backward && pass->run.order == ORDO_ORDER_DESCENDING;
    const int32_t tiles = pass->batch.tiles;
    const ordo_phase_room room = { lines_in(x->all_bytes), lines_in(x->score_bytes) };
    ordo_phase_lines lines = ordo_phase_lines_of(&pass->batch, x->columns);
    int32_t section = x->section;
    if (backward && chained(pass)) {
        int workers = 0;
        CUDA_TRY(ordo_cuda_blocks(pass->run.workers, INT32_MAX, &workers, why, why_size));
        section = ordo_phase_section(&lines, &pass->batch, section, pass->run.kv_heads,
                                     pass->run.group_heads, &room, workers);
    }
    for (int32_t head = 0; head < pass->run.kv_heads; head += section) {
        const int32_t heads = ordo_min32(section, pass->run.kv_heads - head);
        for (int32_t done = 0; done < tiles;) {
            ordo_phase_panel panel =
                backward && chained(pass)
                    ? ordo_phase_panel_filled(&lines, heads * pass->run.group_heads, &room, done,
                                              tiles, down)
                    : ordo_phase_panel_at(done, x->tiles, tiles, down);
            panel.head = head;
            panel.heads = heads;
            lines.before = ordo_phase_lines_before(&lines, panel.tile);
            lines.head = (int32_t)ordo_phase_panel_lines(&lines, &panel, 1);
            CUDA_TRY(run_panel(pass, maps, &panel, &lines, backward, why, why_size));
            done += panel.tiles;
        }
        if (backward && pass->carry.out && !whole_rows(pass))
            CUDA_TRY(ordo_phase_leave(pass, head, heads, why, why_size));
    }
    return ORDO_OK;
}

ordo_status ordo_wgmma_forward_phases(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    phase_maps maps = {};
    CUDA_TRY(make_maps(pass, false, &maps, why, why_size));
    CUDA_TRY(ordo_cuda_sequences(pass, why, why_size));
    CUDA_TRY(ordo_cuda_clear_forward(pass, why, why_size));
    CUDA_TRY(zero_tickets(pass, 0, why, why_size));
    CUDA_TRY(run_panels(pass, &maps, false, why, why_size));
    return ordo_repair_forward(pass, why, why_size);
}

ordo_status ordo_wgmma_backward_phases(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    phase_maps maps = {};
    CUDA_TRY(make_maps(pass, true, &maps, why, why_size));
    CUDA_TRY(ordo_cuda_sequences(pass, why, why_size));
    CUDA_TRY(ordo_cuda_clear_backward(pass, why, why_size));
    CUDA_TRY(ordo_backward_begin(pass, false, why, why_size));
    CUDA_TRY(run_panels(pass, &maps, true, why, why_size));
    return ordo_repair_backward(pass, why, why_size);
}
