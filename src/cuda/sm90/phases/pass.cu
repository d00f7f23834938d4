/* sm90/phases/pass.cu: both passes by phases. Forward: panel after panel P and lse, then O.
 * Backward: row statistics, then panel after panel P and dS, dV and dK, dQ; or, if the plan says
 * so, dV, dK and dS in one kernel, and dQ. */
#include "cuda/sm90/phases/pass.h"

#include <cuda_runtime.h>

#include "cuda/sm90/phases/instances.h"
#include "cuda/sm90/phases/leave.h"
#include "cuda/support/launch.h"
#include "cuda/support/repair.h"
#include "cuda/support/sequences.h"
#include "cuda/support/statistics.h"

/* Counters after the flag: one per kernel of a panel, zeroed together. */
enum { TICKET_SCORES = ORDO_NOT_FINITE + 1, TICKET_KEYS, TICKET_QUERIES, TICKET_END };

/* A pass, and the panel at hand. */
struct phase_pass {
    const ordo_cuda_pass &pass;
    bool backward;
    CUtensorMap q, k, v, dout, p, ds; /* boxes of 64 x 64; ds: of dS^T, if chained() */
    ordo_phase_panel panel;
    ordo_phase_lines lines; /* of a panel of chains */
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

/* ---- maps ---- */

static ordo_cuda_lengths lengths_of(const ordo_cuda_pass *pass, bool keys, int32_t columns)
{
    const ordo_run *run = &pass->run;
    const int64_t rows = keys ? pass->kv_rows : pass->q_rows;
    return { rows > 0 ? rows : 1, /* a map needs one */
             keys ? run->kv_heads : run->kv_heads * run->group_heads,
             pass->layout == ORDO_PACKED ? 1 : run->sequences, columns };
}

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
    const ordo_cuda_pass *pass = &x->pass;
    const ordo_cuda_phase &phase = pass->phase;
    const int64_t rows = (int64_t)phase.section * pass->run.group_heads * phase.tiles * PHASE_ROWS;
    const auto map = [&](CUtensorMap *to, const ordo_cuda_tensor &tensor, bool keys,
                         int32_t columns) {
        return ordo_cuda_map(to, &tensor, lengths_of(pass, keys, columns), PHASE_STEP);
    };
    CUDA_TRY(map(&x->q, pass->q, false, pass->head_dim));
    CUDA_TRY(map(&x->k, pass->k, true, pass->head_dim));
    CUDA_TRY(map(&x->v, pass->v, true, pass->v_head_dim));
    if (phase.p)
        CUDA_TRY(panel_map(&x->p, phase.p, rows, phase.columns));
    if (!x->backward)
        return ORDO_OK;
    CUDA_TRY(map(&x->dout, pass->dout, false, pass->v_head_dim));
    return chained(pass) ? panel_map(&x->ds, phase.ds, lines_in(phase.all_bytes), PHASE_ROWS)
                         : panel_map(&x->ds, phase.ds, rows, phase.columns);
}

/* ---- launches ---- */

static ordo_status launch(const phase_pass &x, ordo_phase_kernel kernel, ordo_launch kind,
                          const void *args)
{
    int blocks = 0; /* units are known on the device only, if lengths are */
    CUDA_TRY(ordo_cuda_blocks(x.pass.run.workers, INT32_MAX, &blocks));
    const ordo_cuda_grid grid = { (unsigned)blocks, PHASE_THREADS, kernel.shared_bytes, kind };
    return ordo_cuda_launch(kernel.kernel, args, grid, x.pass.stream);
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
    ordo_phase_common all = {};
    (ordo_pass_common &)all = ordo_pass_common_of(&x.pass, x.backward);
    all.ticket += ticket;
    all.panel = x.panel;
    all.together = together_of(&x.pass, x.panel.heads * all.group_heads);
    all.stat = x.pass.lse2;
    all.weight = x.pass.delta;
    return all;
}

static ordo_status launch_softmax(const phase_pass &x)
{
    ordo_phase_softmax args = {};
    args.q = x.q;
    args.k = x.k;
    args.all = common_of(x, TICKET_SCORES);
    args.columns = x.pass.phase.columns;
    args.p = x.pass.phase.p;
    args.shrink = x.pass.phase.shrink;
    args.out_scale = ordo_pass_dv_scale(&x.pass);
    args.sink = x.pass.sink;
    args.lse = x.pass.lse;
    return launch(x, ordo_phases_softmax(&x.pass, 0), ORDO_LAUNCH_PLAIN, &args);
}

static ordo_status launch_scores(const phase_pass &x)
{
    const int32_t keys = PHASE_KEYS * PHASE_CHUNK, kv_len = x.pass.run.band.kv_len;
    ordo_phase_scores args = {};
    args.q = x.q;
    args.k = x.k;
    args.v = x.v;
    args.dout = x.dout;
    args.all = common_of(x, TICKET_SCORES);
    args.chunks = kv_len / keys + (kv_len % keys != 0);
    args.columns = x.pass.phase.columns;
    args.p = by_keys(&x.pass) ? x.pass.phase.p : NULL;
    args.ds = x.pass.phase.ds;
    return launch(x, ordo_phases_scores(&x.pass, 0), ORDO_LAUNCH_PLAIN, &args);
}

static ordo_phase_product product_of(const phase_pass &x, int ticket)
{
    ordo_phase_product args = {};
    args.all = common_of(x, ticket);
    args.kv_rows = x.pass.kv_rows;
    args.flag = x.pass.ticket + ORDO_NOT_FINITE;
    return args;
}

static ordo_status launch_outputs(const phase_pass &x)
{
    ordo_phase_product args = product_of(x, TICKET_QUERIES);
    ordo_phase_factors *f = &args.factors[0];
    f->a = x.p;
    f->b = x.v;
    f->out = x.pass.o;
    f->columns = x.pass.v_head_dim;
    args.shrink = x.pass.phase.shrink;
    args.columns = x.pass.phase.columns;
    return launch(x, ordo_phases_outputs(&x.pass, f->columns), ORDO_LAUNCH_PLAIN, &args);
}

/* `kind`: early only after the kernel by keys, which begins when all that is read here has been
 * written. */
static ordo_status launch_queries(const phase_pass &x, ordo_launch kind)
{
    ordo_phase_product args = product_of(x, TICKET_QUERIES);
    ordo_phase_factors *f = &args.factors[0];
    f->a = x.ds;
    f->b = x.k;
    f->out = x.pass.dq;
    f->columns = x.pass.head_dim;
    f->scale = ordo_pass_dk_scale(&x.pass);
    args.lines = x.lines;
    return launch(x,
                  chained(&x.pass) ? ordo_phases_queries_transposed(&x.pass, f->columns)
                                   : ordo_phases_queries(&x.pass, f->columns),
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
    const ordo_cuda_carry &carry = x.pass.carry;
    const bool whole = whole_rows(&x.pass);
    f->a = a;
    f->b = b;
    f->out = carry.out ? ordo_cuda_tensor() : out;
    f->columns = columns;
    f->scale = scale;
    f->before = carry.in ? carried : NULL;
    f->sums = sums;
    f->left = carry.out && whole ? carried : NULL;
    f->broken = carry.out && whole ? broken : NULL;
    if (!carry.in || !whole)
        return ORDO_OK;
    return ordo_cuda_map_sums(&f->came, carried, lengths_of(&x.pass, true, columns), PHASE_STEP);
}

/* Arguments of the products by keys. */
static ordo_status keys_of(ordo_phase_product *args, const phase_pass &x)
{
    const ordo_cuda_pass &pass = x.pass;
    *args = product_of(x, TICKET_KEYS);
    CUDA_TRY(factors_of(&args->factors[0], x, x.p, x.dout, pass.dv, pass.v_head_dim,
                        ordo_pass_dv_scale(&pass), pass.phase.dv, pass.carry.dv,
                        pass.carry.dv_broken));
    CUDA_TRY(factors_of(&args->factors[1], x, x.ds, x.q, pass.dk, pass.head_dim,
                        ordo_pass_dk_scale(&pass), pass.phase.dk, pass.carry.dk,
                        pass.carry.dk_broken));
    args->whole = whole_rows(&pass);
    args->all.together = together_of(&pass, x.panel.heads);
    args->down = pass.run.order == ORDO_ORDER_DESCENDING;
    return ORDO_OK;
}

static ordo_status launch_keys(const phase_pass &x)
{
    const int columns = ordo_max32(x.pass.head_dim, x.pass.v_head_dim);
    ordo_phase_product args;
    CUDA_TRY(keys_of(&args, x));
    return launch(x, ordo_phases_keys(&x.pass, columns), ORDO_LAUNCH_PLAIN, &args);
}

static ordo_phase_kernel chain_of(const ordo_cuda_pass *pass)
{
    const bool narrow = pass->v_head_dim <= 128;
    if (pass->head_dim > 192 || pass->v_head_dim > 192)
        return narrow ? ordo_phases_chain_256_128(pass, 0) : ordo_phases_chain_256(pass, 0);
    return narrow ? ordo_phases_chain_192_128(pass, 0) : ordo_phases_chain_192(pass, 0);
}

static ordo_status launch_chains(const phase_pass &x)
{
    ordo_phase_chains args = {};
    CUDA_TRY(keys_of(&args.product, x));
    args.k = x.k;
    args.v = x.v;
    args.lines = x.lines;
    args.ds = x.pass.dq.data ? x.pass.phase.ds : NULL;
    if (!by_keys(&x.pass)) /* sums without columns: nothing is loaded or stored */
        args.product.factors[0].columns = args.product.factors[1].columns = 0;
    return launch(x, chain_of(&x.pass), ORDO_LAUNCH_PLAIN, &args);
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
    const bool keys = by_keys(&x.pass), chains = chained(&x.pass);
    CUDA_TRY(zero_tickets(&x.pass, TICKET_SCORES));
    if (!x.backward) {
        CUDA_TRY(launch_softmax(x));
        return launch_outputs(x);
    }
    CUDA_TRY(chains ? launch_chains(x) : launch_scores(x));
    if (keys && !chains)
        CUDA_TRY(launch_keys(x));
    if (!x.pass.dq.data)
        return ORDO_OK;
    return launch_queries(x, keys && !chains ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN);
}

static ordo_status run_panels(phase_pass *x)
{
    const ordo_cuda_pass *const pass = &x->pass;
    const ordo_cuda_phase &phase = pass->phase;
    const bool chains = x->backward && chained(pass);
    const bool down = x->backward && pass->run.order == ORDO_ORDER_DESCENDING;
    const int32_t tiles = pass->batch.tiles, group_heads = pass->run.group_heads;
    const ordo_phase_room room = { lines_in(phase.all_bytes), lines_in(phase.score_bytes) };
    int32_t section = phase.section;
    x->lines = ordo_phase_lines_of(&pass->batch, phase.columns);
    if (chains) {
        int workers = 0;
        CUDA_TRY(ordo_cuda_blocks(pass->run.workers, INT32_MAX, &workers));
        section = ordo_phase_section(&x->lines, &pass->batch, section, pass->run.kv_heads,
                                     group_heads, &room, workers);
    }
    for (int32_t head = 0; head < pass->run.kv_heads; head += section) {
        const int32_t heads = ordo_min32(section, pass->run.kv_heads - head);
        for (int32_t done = 0; done < tiles; done += x->panel.tiles) {
            x->panel = chains ? ordo_phase_panel_filled(&x->lines, heads * group_heads, &room, done,
                                                        tiles, down)
                              : ordo_phase_panel_at(done, phase.tiles, tiles, down);
            x->panel.head = head;
            x->panel.heads = heads;
            x->lines.before = ordo_phase_lines_before(&x->lines, x->panel.tile);
            x->lines.head = (int32_t)ordo_phase_panel_lines(&x->lines, &x->panel, 1);
            CUDA_TRY(run_panel(*x));
        }
        if (x->backward && pass->carry.out && !whole_rows(pass))
            CUDA_TRY(ordo_phase_leave(pass, head, heads));
    }
    return ORDO_OK;
}

ordo_status ordo_wgmma_forward_phases(const ordo_cuda_pass *pass)
{
    phase_pass x = { *pass, false, {}, {}, {}, {}, {}, {}, {}, {} };
    CUDA_TRY(make_maps(&x));
    CUDA_TRY(ordo_cuda_sequences(pass));
    CUDA_TRY(ordo_cuda_clear_forward(pass));
    CUDA_TRY(zero_tickets(pass, 0));
    CUDA_TRY(run_panels(&x));
    return ordo_repair_forward(pass);
}

ordo_status ordo_wgmma_backward_phases(const ordo_cuda_pass *pass)
{
    phase_pass x = { *pass, true, {}, {}, {}, {}, {}, {}, {}, {} };
    CUDA_TRY(make_maps(&x));
    CUDA_TRY(ordo_cuda_sequences(pass));
    CUDA_TRY(ordo_cuda_clear_backward(pass));
    CUDA_TRY(ordo_backward_begin(pass, false));
    CUDA_TRY(run_panels(&x));
    return ordo_repair_backward(pass);
}
