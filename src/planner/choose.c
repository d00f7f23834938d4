/* choose.c: from problem, machine and options to a plan. */
#include "planner/choose.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "plan/workspace.h"
#include "planner/defaults.h"
#include "planner/predict.h"

enum { GROUP_SHIFT = 32, GROUP_SYMMETRIC = 16 }; /* part of the numeric key: never the machine's */

/* ---- backend ---- */

static ordo_status choose_backend(ordo_plan *plan, const ordo_machine *machine, ordo_backend asked)
{
    const bool gpu = machine && ordo_machine_family_of(machine) == ORDO_MACHINE_CUDA;
    const bool npu = machine && ordo_machine_family_of(machine) == ORDO_MACHINE_NPU;
    plan->backend = asked ? asked : gpu ? ORDO_BACKEND_CUDA : ORDO_BACKEND_CPU;
    if (plan->backend == ORDO_BACKEND_REF) {
        snprintf(plan->family, sizeof plan->family, "ref");
        return ORDO_OK;
    }
    if (npu || (plan->backend == ORDO_BACKEND_CUDA) != gpu)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %s: machine %s is %s",
                         ordo_backend_name(plan->backend),
                         machine ? ordo_machine_name(machine) : "host",
                         npu   ? "an NPU, which has none"
                         : gpu ? "a GPU"
                               : "a CPU");
    if (!gpu) {
        snprintf(plan->family, sizeof plan->family, "cpu");
        return ORDO_OK;
    }
    double arch;
    ORDO_TRY(ordo_machine_get(machine, "cuda_arch", &arch));
    snprintf(plan->family, sizeof plan->family, "sm%d", (int)arch);
    return ORDO_OK;
}

/* The backend can do this problem, and its family and revision are this library's. Whatever is
 * computed from a plan after this counts heads in 32 bits. */
static ordo_status check_backend(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const int64_t last_head = p->shard.head0 + p->heads;
    if (p->batch > ORDO_LENGTH_MAX / p->heads || last_head > ORDO_LENGTH_MAX)
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "batch %" PRId64 " x heads %" PRId64 ", head0 %" PRId64 ": more than 2^30",
                         p->batch, p->heads, p->shard.head0);
    const int most = ordo_default_head_dim_max(plan->family);
    const bool cuda = strncmp(plan->family, "sm", 2) == 0;
    if (cuda != (plan->backend == ORDO_BACKEND_CUDA) || most == 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %s: no kernels for %s; expected %s",
                         ordo_backend_name(plan->backend), plan->family,
                         plan->backend == ORDO_BACKEND_CUDA ? "sm90"
                                                            : ordo_backend_name(plan->backend));
    if (!cuda && strcmp(plan->family, ordo_backend_name(plan->backend)) != 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "family %s: expected %s", plan->family,
                         ordo_backend_name(plan->backend));
    if (plan->revision != ordo_family_revision(plan->family))
        return ordo_fail(
            ORDO_ERR_UNSUPPORTED,
            "numeric revision %d of %s: this library has revision %d, whose bits differ",
            plan->revision, plan->family, ordo_family_revision(plan->family));
    if (plan->backend == ORDO_BACKEND_CPU && plan->split > 1)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "split %" PRId64 ": backend cpu adds into one accumulator a query tile",
                         plan->split);
    if (plan->backend == ORDO_BACKEND_CUDA && p->dtype == ORDO_F32)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "dtype f32: backend cuda has no f32 kernels; expected bf16 or f16");
    if (p->head_dim > most || p->v_head_dim > most)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ", v_head_dim %" PRId64
                         ": backend %s expects at most %d",
                         p->head_dim, p->v_head_dim, ordo_backend_name(plan->backend), most);
    return ORDO_OK;
}

/* ---- what decides bits ---- */

/* Symmetric needs a triangle; what stands in for it elsewhere has a name of its own. Of a packed
 * or padded batch the triangles are those sequences whose lengths are equal; the others walk
 * spt, each by its own lengths. */
static ordo_order replaced(const ordo_plan *plan)
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

static ordo_status check_tile(const char *name, ordo_tile tile)
{
    if (tile.q < 1 || tile.q > ORDO_TILE_MAX || tile.k < 1 || tile.k > ORDO_TILE_MAX)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s_tile %" PRId64 "x%" PRId64 ": expected 1 to %d rows and columns", name,
                         tile.q, tile.k, ORDO_TILE_MAX);
    return ORDO_OK;
}

static ordo_status choose_numbers(ordo_plan *plan, const ordo_plan_options *o)
{
    const ordo_default *row = ordo_default_find(plan->family, &plan->problem);
    const bool own_forward = o->forward_tile.q || o->forward_tile.k;
    const bool own_backward = o->backward_tile.q || o->backward_tile.k;
    plan->forward_tile = own_forward ? o->forward_tile : row->forward_tile;
    plan->backward_tile = own_backward ? o->backward_tile : row->backward_tile;
    ORDO_TRY(check_tile("forward", plan->forward_tile));
    ORDO_TRY(check_tile("backward", plan->backward_tile)); /* before a band is made of it */
    plan->split = o->split ? o->split : 1;
    plan->order_asked = o->order ? o->order : row->order;
    plan->order = replaced(plan);
    if (ordo_order_cyclic(plan->order)) {
        const bool shift = plan->order == ORDO_ORDER_SHIFT;
        plan->group = o->group ? o->group : shift ? GROUP_SHIFT : GROUP_SYMMETRIC;
    } else if (o->group != 0) {
        return ordo_fail(ORDO_ERR_ARGUMENT, "group %" PRId64 ": order %s has no groups", o->group,
                         ordo_order_name(plan->order));
    }
    return ORDO_OK;
}

/* ---- what does not ---- */

/* Of a section on a GPU: head size x query heads, at most; and waves of chains, under full masks.
 */
enum { COLUMNS_IN_FLIGHT = 2048, WAVES = 2 };

/* Heads that a section may have: all of them, or one of an empty batch. */
static int64_t most_section(const ordo_problem *p)
{
    return p->batch > 0 ? p->batch * p->kv_heads : 1;
}

/* Of a GPU, as measured on an H200: few heads share the cache well, but their chains must not queue
 * for each other. Under a full mask, where all chains walk in step, two waves of chains: 2 to 12 %
 * faster from 4k tokens on than COLUMNS_IN_FLIGHT. That is the limit for short sequences, and the
 * rule under masks that cut, where fewer heads gain 2 % at 16k tokens but queue (0.95 of
 * unordered). Sections are even, for a last one of few heads would stall. Of a CPU: a head a
 * thread, and nobody waits. */
static int64_t section_heads(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const int64_t heads = most_section(p);
    if (plan->backend != ORDO_BACKEND_CUDA)
        return heads < plan->workers ? heads : plan->workers;
    const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    const ordo_run run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len);
    const int64_t all = ordo_max32(1, ordo_max32(ordo_run_heads(&run, 0), ordo_run_heads(&run, 1)));
    const bool full = run.band.low == -ORDO_BAND_OPEN && run.band.high == ORDO_BAND_OPEN;
    const int64_t keys = ordo_max32(1, ordo_band_key_tiles(&run.band));
    const int64_t workers = plan->workers < 1                  ? 1 /* checked later */
                            : plan->workers > ORDO_WORKERS_MAX ? ORDO_WORKERS_MAX
                                                               : plan->workers;
    const int64_t few = workers * WAVES / keys < 2 ? 2 : workers * WAVES / keys;
    const int64_t many = COLUMNS_IN_FLIGHT / (dim * (p->heads / p->kv_heads));
    const int64_t fit = full && few < many ? few : many;
    const int64_t most = fit < 1 ? 1 : fit > all ? all : fit;
    const int64_t sections = (all + most - 1) / most;
    return (all + sections - 1) / sections;
}

static ordo_status choose_rest(ordo_plan *plan, const ordo_machine *machine,
                               const ordo_plan_options *o)
{
    double workers = 1;
    if (machine && plan->backend != ORDO_BACKEND_REF)
        ORDO_TRY(ordo_machine_get(machine, "workers", &workers));
    plan->workers = o->workers ? o->workers : (int64_t)workers;
    const bool by_key = plan->backend != ORDO_BACKEND_REF && plan->group != ORDO_GROUP_WAVES;
    plan->issue = o->issue ? o->issue : by_key ? ORDO_ISSUE_KEY : ORDO_ISSUE_HEAD;
    plan->assign = o->assign ? o->assign : ORDO_ASSIGN_FIRST_FREE;
    if (plan->issue == ORDO_ISSUE_HEAD && o->section != 0 && o->section != 1)
        return ordo_fail(ORDO_ERR_ARGUMENT, "section %" PRId64 ": issue head has no sections",
                         o->section);
    plan->section = plan->issue == ORDO_ISSUE_HEAD ? 1
                    : o->section                   ? o->section
                                                   : section_heads(plan);
    return ORDO_OK;
}

/* ---- legality ---- */

static ordo_status between(const char *field, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s %" PRId64 ": expected %" PRId64 " to %" PRId64,
                         field, value, low, high);
    return ORDO_OK;
}

/* The oracle has no tiles, and no order but one. */
static ordo_status check_oracle(const ordo_plan *plan)
{
    const ordo_default *row = ordo_default_find("ref", &plan->problem);
    if (plan->order_asked != row->order || plan->split != 1 || plan->backward_tile.q != 1 ||
        plan->backward_tile.k != 1 || plan->forward_tile.q != 1 || plan->forward_tile.k != 1)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "backend ref sums element by element, ascending: its "
                         "tiles, order and split cannot be chosen");
    return ORDO_OK;
}

static ordo_status check_ranges(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    ORDO_TRY(check_tile("forward", plan->forward_tile));
    ORDO_TRY(check_tile("backward", plan->backward_tile));
    ORDO_TRY(between("order", plan->order_asked, 1, ORDO_ORDER_COUNT));
    if (plan->order != replaced(plan))
        return ordo_fail(ORDO_ERR_ARGUMENT, "order %s for %s: expected %s",
                         ordo_order_name(plan->order), ordo_order_name(plan->order_asked),
                         ordo_order_name(replaced(plan)));
    ORDO_TRY(between("split", plan->split, 1, ORDO_SPLIT_MAX));
    ORDO_TRY(between("workers", plan->workers, 1, ORDO_WORKERS_MAX));
    ORDO_TRY(between("issue", plan->issue, ORDO_ISSUE_HEAD, ORDO_ISSUE_KEY));
    ORDO_TRY(between("assign", plan->assign, ORDO_ASSIGN_PINNED, ORDO_ASSIGN_FIRST_FREE));
    ORDO_TRY(between("section", plan->section, 1, most_section(p)));
    if (!ordo_order_cyclic(plan->order))
        ORDO_TRY(between("group", plan->group, 0, 0));
    else if (plan->group != ORDO_GROUP_WAVES)
        ORDO_TRY(between("group", plan->group, 1, ORDO_LENGTH_MAX));
    uint64_t bytes;
    if (!ordo_plan_workspace_bytes(plan, &bytes) || bytes > (uint64_t)1 << 62)
        return ordo_fail(ORDO_ERR_OVERFLOW, "workspace: its size does not fit 62 bits");
    return ORDO_OK;
}

static ordo_status check_waves(const ordo_plan *plan)
{
    if (plan->group != ORDO_GROUP_WAVES)
        return ORDO_OK;
    if (plan->issue != ORDO_ISSUE_HEAD)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "group waves, issue key: waves are issued head "
                                               "after head");
    if (plan->problem.layout != ORDO_DENSE)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "group waves, layout %s: waves need sequences of equal length",
                         ordo_layout_name(plan->problem.layout));
    return ORDO_OK;
}

static ordo_status check_residency(const ordo_plan *plan)
{
    const int32_t together = ordo_plan_coresident(plan);
    if (together == 0)
        return ORDO_OK;
    if (plan->backend == ORDO_BACKEND_CPU)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, assign %s: %d chains must be resident together; backend cpu "
                         "runs orders that wait only on earlier work",
                         ordo_order_name(plan->order), ordo_assign_name(plan->assign), together);
    if (together > plan->workers)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "order %s, group %" PRId64 ": %d chains must be resident together, "
                         "workers %" PRId64 "; expected a smaller group or another order",
                         ordo_order_name(plan->order), plan->group, together, plan->workers);
    return ORDO_OK;
}

ordo_status ordo_plan_legal(const ordo_plan *plan)
{
    ORDO_TRY(check_backend(plan));
    if (plan->backend == ORDO_BACKEND_REF)
        ORDO_TRY(check_oracle(plan));
    ORDO_TRY(check_ranges(plan));
    ORDO_TRY(check_waves(plan));
    return check_residency(plan);
}

/* ---- */

__attribute__((format(printf, 2, 3))) static void note(ordo_plan *plan, const char *format, ...)
{
    const size_t used = strlen(plan->note);
    char *rest = plan->note + used;
    const size_t room = sizeof plan->note - used;
    va_list args;
    va_start(args, format);
    if (used > 0 && room > 2)
        memcpy(rest, "; ", 3);
    vsnprintf(rest + strlen(rest), room - strlen(rest), format, args);
    va_end(args);
}

void ordo_plan_annotate(ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const ordo_run run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len);
    plan->note[0] = 0;
    if (plan->order != plan->order_asked)
        note(plan,
             "order %s replaced by %s: it folds causal triangles with a whole number of "
             "query tiles a key tile",
             ordo_order_name(plan->order_asked), ordo_order_name(plan->order));
    if (plan->group == ORDO_GROUP_WAVES)
        note(plan, "waves follow the number of workers and the place in the batch: portable, "
                   "batch and split are not kept");
    if (plan->order == ORDO_ORDER_TWIN && plan->assign == ORDO_ASSIGN_PINNED &&
        !ordo_run_mirrored(&run))
        note(plan, "twin cannot be pinned in pairs here: issued in turn instead");
}

ordo_status ordo_plan_choose(ordo_plan *plan, const ordo_machine *machine,
                             const ordo_plan_options *options)
{
    ORDO_TRY(choose_backend(plan, machine, options->backend));
    plan->revision = ordo_family_revision(plan->family);
    ORDO_TRY(check_backend(plan));
    ORDO_TRY(choose_numbers(plan, options));
    ORDO_TRY(choose_rest(plan, machine, options));
    ORDO_TRY(ordo_plan_legal(plan));
    ordo_plan_annotate(plan);
    plan->predicted_ns = ordo_plan_predict(plan, machine);
    return ORDO_OK;
}
