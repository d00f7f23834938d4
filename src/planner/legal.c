/* legal.c: refuses the plans that no pass of their backend can run. Checks are grouped by what they
 * look at; each message names the field. */
#include "planner/legal.h"

#include <inttypes.h>

#include "base/blocks.h"
#include "base/keep.h"
#include "base/pages.h"
#include "base/status.h"
#include "plan/family.h"
#include "plan/lists.h"
#include "plan/sizes.h"
#include "plan/workspace.h"

/* ---- the problem ---- */

/* Everything computed from a plan counts heads in 32 bits. */
static ordo_status check_heads(const ordo_problem *p)
{
    const int64_t last_head = p->shard.head0 + p->heads;
    if (p->batch > ORDO_LENGTH_MAX / p->heads || last_head > ORDO_LENGTH_MAX)
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "batch %" PRId64 " x heads %" PRId64 ", head0 %" PRId64
                         ": expected at most 2^30",
                         p->batch, p->heads, p->shard.head0);
    return ORDO_OK;
}

ordo_status ordo_plan_no_family(const ordo_plan *plan)
{
    char names[64];
    ordo_family_names(plan->backend, names, sizeof names);
    return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %s: no kernels for %s; expected %s",
                     ordo_backend_name(plan->backend), plan->family, names);
}

/* The family has kernels, belongs to the backend and has the revision of this library. */
static ordo_status check_family(const ordo_plan *plan)
{
    const ordo_family *family = ordo_family_find(plan->family);
    if (!family || !ordo_family_runs(family, plan->backend))
        return ordo_plan_no_family(plan);
    if (plan->revision != family->revision)
        return ordo_fail(
            ORDO_ERR_UNSUPPORTED,
            "numeric revision %d of %s: this library has revision %d, whose bits differ",
            plan->revision, family->name, family->revision);
    return ORDO_OK;
}

/* What a problem calls its lists of blocks. */
static const char *lists_name(const ordo_problem *p)
{
    return p->seen.on ? "seen" : "block mask";
}

/* The kernel for keys in pages has the rows of all heads that share keys in one tile. */
static ordo_status check_cuda_pages(const ordo_problem *p)
{
    const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    if (dim > ORDO_PAGED_DIM_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64 ", paging.page_rows %" PRId64
                         ": backend cuda expects at most %d with pages; backend cpu runs it",
                         p->head_dim, p->v_head_dim, p->paging.page_rows, ORDO_PAGED_DIM_MAX);
    if (p->heads / p->kv_heads > ORDO_PAGED_GROUP_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "heads %" PRId64 ", kv_heads %" PRId64 ", paging.page_rows %" PRId64
                         ": backend cuda expects at most %d heads that share keys with pages; "
                         "backend cpu runs it",
                         p->heads, p->kv_heads, p->paging.page_rows, ORDO_PAGED_GROUP_MAX);
    return ORDO_OK;
}

/* The kernels with a bias have neither lists of blocks nor softcap, whose gradient would need the
 * bias once more. */
static ordo_status check_cuda_bias(const ordo_problem *p, int most)
{
    if (p->head_dim > most || p->v_head_dim > most)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64
                         ", bias.on true: backend cuda expects at most %d; backend cpu runs it",
                         p->head_dim, p->v_head_dim, most);
    if (ordo_has_blocks(p))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%s, bias.on true: backend cuda expects one of the two; a bias of -inf "
                         "hides, too, and backend cpu runs both",
                         lists_name(p));
    if (p->softcap != 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "softcap %g, bias.on true: backend cuda expects one of the two; backend "
                         "cpu runs both",
                         p->softcap);
    return ORDO_OK;
}

/* What the CUDA kernels cannot compute. */
static ordo_status check_cuda_problem(const ordo_plan *plan, const ordo_family *family)
{
    const ordo_problem *p = &plan->problem;
    const int most = p->seen.on ? family->seen_max : family->block_mask_max;
    if (ordo_has_blocks(p) && (p->head_dim > most || p->v_head_dim > most))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64
                         ", %s: backend %s expects at most %d; backend cpu runs it",
                         p->head_dim, p->v_head_dim, lists_name(p),
                         ordo_backend_name(plan->backend), most);
    if (ordo_paged(p) && plan->backend == ORDO_BACKEND_CUDA)
        ORDO_TRY(check_cuda_pages(p));
    if (p->bias.on && plan->backend == ORDO_BACKEND_CUDA)
        ORDO_TRY(check_cuda_bias(p, family->block_mask_max));
    if (p->dtype == ORDO_F32)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dtype f32: backend cuda has no f32 kernels; expected bf16 or f16");
    /* Logits have an absolute error of softcap 2^-21 (base/rule.h), and the gradient
     * divides a logit by softcap to get tanh back. Further out either error exceeds what 16 bits
     * hold. */
    if (p->softcap != 0 && !(p->softcap >= 0x1p-10 && p->softcap <= 0x1p14))
        return ordo_fail(
            ORDO_ERR_UNSUPPORTED,
            "softcap %g: backend cuda expects 0 (off) or 2^-10 to 2^14, where its tanh "
            "is accurate; backend cpu runs it",
            p->softcap);
    return ORDO_OK;
}

ordo_status ordo_plan_legal_problem(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    ORDO_TRY(check_heads(p));
    ORDO_TRY(check_family(plan));
    const ordo_family *family = ordo_family_find(plan->family);
    const int most = family->head_dim_max;
    if (p->head_dim > most || p->v_head_dim > most)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64
                         ": backend %s expects at most %d",
                         p->head_dim, p->v_head_dim, ordo_backend_name(plan->backend), most);
    return ordo_plan_of_kernels(plan) ? check_cuda_problem(plan, family) : ORDO_OK;
}

/* ---- tiles ---- */

static ordo_status check_tile(const char *name, ordo_tile tile)
{
    if (tile.q < 1 || tile.q > ORDO_TILE_MAX || tile.k < 1 || tile.k > ORDO_TILE_MAX)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s_tile %" PRId64 "x%" PRId64 ": expected 1..%d rows and columns", name,
                         tile.q, tile.k, ORDO_TILE_MAX);
    return ORDO_OK;
}

ordo_status ordo_plan_legal_tiles(const ordo_plan *plan)
{
    ORDO_TRY(check_tile("forward", plan->forward_tile));
    return check_tile("backward", plan->backward_tile);
}

/* Lists give turns to orders that add keys upwards or downwards, in tiles that are parts of a
 * block.
 */
static ordo_status check_blocks(const ordo_plan *plan)
{
    const ordo_order order = plan->order_asked;
    const ordo_tile tiles[] = { plan->forward_tile, plan->backward_tile };
    if (!ordo_has_blocks(&plan->problem) || plan->backend == ORDO_BACKEND_REF)
        return ORDO_OK;
    if (order != ORDO_ORDER_ASCENDING && order != ORDO_ORDER_DESCENDING && order != ORDO_ORDER_SPT)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, %s: expected ascending, descending or spt",
                         ordo_order_name(order), lists_name(&plan->problem));
    for (int x = 0; x < 2 && !ordo_plan_of_kernels(plan); x++) { /* whose tiles are given */
        if (!ordo_lists_fit(tiles[x].q, tiles[x].k))
            return ordo_fail(ORDO_ERR_UNSUPPORTED,
                             "%s_tile %" PRId64 "x%" PRId64 ", %s: expected %d columns and rows "
                             "that divide %d",
                             x ? "backward" : "forward", tiles[x].q, tiles[x].k,
                             lists_name(&plan->problem), ORDO_BLOCK, ORDO_BLOCK);
    }
    return ORDO_OK;
}

/* ---- what each backend runs ---- */

/* The oracle has no tiles, and one order. */
static ordo_status check_ref(const ordo_plan *plan)
{
    const ordo_family *family = ordo_family_find(plan->family);
    if (plan->order_asked != ordo_family_order(family, &plan->problem) ||
        plan->backward_tile.q != 1 || plan->backward_tile.k != 1 || plan->forward_tile.q != 1 ||
        plan->forward_tile.k != 1)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "backend ref sums element by element, ascending: its "
                         "tiles and order cannot be chosen");
    return ORDO_OK;
}

/* No backend adds into more than one accumulator; only the simulator does. */
static ordo_status check_accumulators(const ordo_plan *plan)
{
    if (plan->accumulators != 1)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "split %" PRId64
                         ": backend %s expects 1: it adds into one accumulator per query tile",
                         plan->accumulators, ordo_backend_name(plan->backend));
    return ORDO_OK;
}

/* Any number of CPU threads must do, so no chain may wait on one that is issued later. */
static ordo_status check_cpu(const ordo_plan *plan)
{
    const int32_t together = ordo_plan_coresident(plan);
    if (together > 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, assign %s: %d chains must be resident together; backend cpu "
                         "expects an order whose chains wait only on earlier ones",
                         ordo_order_name(plan->order), ordo_assign_name(plan->assign), together);
    return ORDO_OK;
}

static ordo_status check_cuda_tile(const char *name, ordo_tile tile, ordo_tile expected)
{
    if (tile.q != expected.q || tile.k != expected.k)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%s_tile %" PRId64 "x%" PRId64 ": backend cuda expects %" PRId64
                         "x%" PRId64 " at this head size",
                         name, tile.q, tile.k, expected.q, expected.k);
    return ORDO_OK;
}

/* A form follows from the tile. Chains may run as phases, which share their tile. */
static ordo_status check_form(const ordo_plan *plan)
{
    const ordo_form form = plan->backward_form, usual = ordo_family_form(plan);
    if (usual == ORDO_FORM_CHAIN && form == ORDO_FORM_PHASE && ordo_has_blocks(&plan->problem))
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "form phase, %s: backend %s expects chain",
                         lists_name(&plan->problem), ordo_backend_name(plan->backend));
    if (form == usual || (usual == ORDO_FORM_CHAIN && form == ORDO_FORM_PHASE))
        return ORDO_OK;
    return ordo_fail(ORDO_ERR_UNSUPPORTED,
                     "form %s, backward_tile %" PRId64 "x%" PRId64 ": backend %s expects %s",
                     ordo_form_name(form), plan->backward_tile.q, plan->backward_tile.k,
                     ordo_backend_name(plan->backend), ordo_form_name(usual));
}

/* The kernels of each head size are compiled for one pair of tiles. Forms other than flash keep dQ
 * of a tile in registers, and add its keys in ascending order. The chains of a packed or padded
 * batch have lengths that only the device knows: they must wait only on earlier ones. */
static ordo_status check_cuda(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const ordo_family *family = ordo_family_find(plan->family);
    const ordo_family_row *row = ordo_family_row_of(family, p);
    const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    const ordo_order order = plan->order;
    const bool plain = order == ORDO_ORDER_ASCENDING || order == ORDO_ORDER_DESCENDING;
    const bool spt = order == ORDO_ORDER_SPT || order == ORDO_ORDER_SPT_TAIL;
    ORDO_TRY(check_cuda_tile("forward", plan->forward_tile, row->forward.tile));
    ORDO_TRY(check_cuda_tile("backward", plan->backward_tile, row->backward.tile));
    if (dim > family->cyclic_max && !plain)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, head_dim %" PRId64
                         ": backend cuda expects ascending or descending above %d",
                         ordo_order_name(order), p->head_dim, family->cyclic_max);
    if (p->layout != ORDO_DENSE && !plain && !spt)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, layout %s: backend cuda expects ascending, descending, spt or "
                         "spt+tail there",
                         ordo_order_name(order), ordo_layout_name(p->layout));
    return ORDO_OK;
}

static ordo_status check_backend(const ordo_plan *plan)
{
    ORDO_TRY(check_form(plan));
    ORDO_TRY(check_accumulators(plan));
    if (plan->backend == ORDO_BACKEND_REF)
        return check_ref(plan);
    return plan->backend == ORDO_BACKEND_CPU ? check_cpu(plan) : check_cuda(plan);
}

/* ---- order, issue and residency ---- */

/* For a packed or padded batch the triangles are those sequences whose lengths are equal; the
 * others walk spt, each by its own lengths. */
ordo_order ordo_plan_replaced_order(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    if (plan->order_asked != ORDO_ORDER_SYMMETRIC)
        return plan->order_asked;
    const int64_t kv_len = p->layout == ORDO_DENSE ? p->kv_len : p->q_len;
    const ordo_band band = ordo_plan_band(plan, p->q_len, kv_len);
    switch (ordo_order_walk(plan->order_asked, &band, 0)) {
    case ORDO_WALK_SHIFT: return ORDO_ORDER_SHIFT;
    case ORDO_WALK_SPT: return ORDO_ORDER_SPT;
    default: return plan->order_asked;
    }
}

int64_t ordo_plan_section_max(const ordo_problem *p)
{
    return p->batch > 0 ? p->batch * p->kv_heads : 1;
}

static ordo_status check_order(const ordo_plan *plan)
{
    ORDO_TRY(ordo_check_range("order", plan->order_asked, 1, ORDO_ORDER_COUNT));
    const ordo_order expected = ordo_plan_replaced_order(plan);
    if (plan->order != expected)
        return ordo_fail(ORDO_ERR_ARGUMENT, "order %s for %s: expected %s",
                         ordo_order_name(plan->order), ordo_order_name(plan->order_asked),
                         ordo_order_name(expected));
    if (!ordo_order_cyclic(plan->order))
        return ordo_check_range("group", plan->group, 0, 0);
    return plan->group == ORDO_GROUP_WAVES
               ? ORDO_OK
               : ordo_check_range("group", plan->group, 1, ORDO_LENGTH_MAX);
}

static ordo_status check_issue(const ordo_plan *plan)
{
    ORDO_TRY(ordo_check_range("workers", plan->workers, 1, ORDO_WORKERS_MAX));
    ORDO_TRY(ordo_check_range("issue", plan->issue, ORDO_ISSUE_HEAD, ORDO_ISSUE_KEY));
    ORDO_TRY(ordo_check_range("assign", plan->assign, ORDO_ASSIGN_PINNED, ORDO_ASSIGN_FIRST_FREE));
    return ordo_check_range("section", plan->section, 1, ordo_plan_section_max(&plan->problem));
}

static ordo_status check_waves(const ordo_plan *plan)
{
    if (plan->group != ORDO_GROUP_WAVES)
        return ORDO_OK;
    if (plan->issue != ORDO_ISSUE_HEAD)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "group waves, issue key: waves are issued head "
                                               "after head; expected issue head");
    if (plan->problem.layout != ORDO_DENSE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "group waves, layout %s: waves need sequences of equal length; expected "
                         "layout dense",
                         ordo_layout_name(plan->problem.layout));
    return ORDO_OK;
}

static ordo_status check_residency(const ordo_plan *plan)
{
    const int32_t together = ordo_plan_coresident(plan);
    if (together > plan->workers)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, group %" PRId64 ": %d chains must be resident together, "
                         "workers %" PRId64 "; expected a smaller group or another order",
                         ordo_order_name(plan->order), plan->group, together, plan->workers);
    return ORDO_OK;
}

ordo_status ordo_plan_legal_segments(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    ORDO_TRY(ordo_check_range("segments", plan->segments, 1, ORDO_LENGTH_MAX));
    if (p->dropout.p == 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "segments %" PRId64 ": expected 0 with dropout.p 0",
                         plan->segments);
    if (p->layout != ORDO_DENSE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "segments %" PRId64 ", layout %s: expected layout dense", plan->segments,
                         ordo_layout_name(p->layout));
    if (ordo_has_blocks(p))
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "segments %" PRId64 ", %s: expected 0 segments",
                         plan->segments, lists_name(p));
    if (p->bias.on)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "segments %" PRId64 ", bias: expected 0 segments",
                         plan->segments);
    if (plan->backend == ORDO_BACKEND_REF)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "segments %" PRId64 ": backend ref has none; expected cpu or cuda",
                         plan->segments);
    if (!ordo_plan_carries(plan))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "segments %" PRId64 ", order %s: expected ascending, descending or spt, "
                         "whose rows come in one order",
                         plan->segments, ordo_order_name(plan->order_asked));
    return ORDO_OK;
}

/* A device counts the blocks of a mask in 32 bits. */
static ordo_status check_segment_blocks(const ordo_plan *plan)
{
    uint64_t bytes = 0;
    if (!ordo_segment_bits(plan, ordo_segment_rows(plan, plan->segments), &bytes) ||
        bytes > (uint64_t)INT32_MAX * 4 * ORDO_KEEP_WORDS)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "segments %" PRId64
                         ": backend cuda expects segments of at most 2^31 - 1 blocks of keep bits",
                         plan->segments);
    return ORDO_OK;
}

static ordo_status check_segments(const ordo_plan *plan)
{
    const int64_t rows = plan->problem.q_len;
    if (plan->segments == 0)
        return ORDO_OK;
    ORDO_TRY(ordo_plan_legal_segments(plan));
    if (rows > 0 && ordo_segment_count(plan, plan->segments) != plan->segments)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "segments %" PRId64 ": %" PRId64 " rows in multiples of %" PRId64
                         " are %" PRId64 " segments; expected that or fewer",
                         plan->segments, rows, ordo_segment_multiple(plan),
                         ordo_segment_count(plan, plan->segments));
    return plan->backend == ORDO_BACKEND_CUDA ? check_segment_blocks(plan) : ORDO_OK;
}

static ordo_status check_workspace(const ordo_plan *plan)
{
    uint64_t bytes;
    if (plan->workspace_limit < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "workspace_limit %" PRId64 ": expected bytes, or 0 for the default",
                         plan->workspace_limit);
    if (!ordo_plan_workspace_bytes(plan, &bytes) || bytes > (uint64_t)1 << 62)
        return ordo_fail(ORDO_ERR_OVERFLOW, "workspace: its size does not fit 62 bits");
    return ORDO_OK;
}

ordo_status ordo_plan_legal(const ordo_plan *plan)
{
    ORDO_TRY(ordo_plan_legal_problem(plan));
    ORDO_TRY(ordo_plan_legal_tiles(plan));
    ORDO_TRY(check_order(plan));
    ORDO_TRY(check_issue(plan));
    ORDO_TRY(check_waves(plan));
    ORDO_TRY(check_blocks(plan));
    ORDO_TRY(check_backend(plan));
    ORDO_TRY(check_residency(plan));
    ORDO_TRY(check_segments(plan));
    return check_workspace(plan);
}
