/* choose.c: from problem, machine and options to a plan. */
#include "planner/choose.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"
#include "plan/family.h"
#include "plan/forms.h"
#include "plan/segments.h"
#include "plan/workspace.h"
#include "planner/dropout_mode.h"
#include "planner/legal.h"

/* Default group sizes. They are part of the numeric key, so they never depend on the machine. */
enum { GROUP_SHIFT = 32, GROUP_SYMMETRIC = 16 };

/* ---- backend ---- */

static ordo_status take_family(ordo_plan *plan, const ordo_family *family)
{
    snprintf(plan->family, sizeof plan->family, "%s", family->name);
    plan->revision = family->revision;
    return ORDO_OK;
}

static ordo_status choose_backend(ordo_plan *plan, const ordo_machine *machine, ordo_backend wanted)
{
    const bool gpu = machine && ordo_machine_family_of(machine) == ORDO_MACHINE_CUDA;
    const bool npu = machine && ordo_machine_family_of(machine) == ORDO_MACHINE_NPU;
    plan->backend = wanted ? wanted : gpu ? ORDO_BACKEND_CUDA : ORDO_BACKEND_CPU;
    if (plan->backend == ORDO_BACKEND_REF)
        return take_family(plan, ordo_family_first(ORDO_BACKEND_REF));
    if (npu || ordo_plan_of_kernels(plan) != gpu)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "backend %s: machine %s is %s",
                         ordo_backend_name(plan->backend),
                         machine ? ordo_machine_name(machine) : "host",
                         npu   ? "an NPU, on which no backend runs; expected a CPU or a GPU"
                         : gpu ? "a GPU; expected a CPU"
                               : "a CPU; expected a GPU");
    if (!gpu)
        return take_family(plan, ordo_family_first(ORDO_BACKEND_CPU));
    double arch;
    ORDO_TRY(ordo_machine_get(machine, "cuda_arch", &arch));
    const ordo_family *family = ordo_family_of((int)arch);
    if (!family || !ordo_family_runs(family, plan->backend)) {
        snprintf(plan->family, sizeof plan->family, "sm%d", (int)arch);
        return ordo_plan_no_family(plan);
    }
    return take_family(plan, family);
}

/* ---- what decides bits ---- */

static ordo_status choose_numbers(ordo_plan *plan, const ordo_plan_options *o)
{
    const ordo_problem *p = &plan->problem;
    const ordo_family *family = ordo_family_find(plan->family);
    const ordo_family_row *row = ordo_family_row_of(family, p);
    const bool own_forward = o->forward_tile.q || o->forward_tile.k;
    const bool own_backward = o->backward_tile.q || o->backward_tile.k;
    plan->forward_tile = own_forward ? o->forward_tile : row->forward.tile;
    plan->backward_tile = own_backward ? o->backward_tile : row->backward.tile;
    ORDO_TRY(ordo_plan_legal_tiles(plan));
    plan->forward_form = row->forward.form;
    plan->backward_form = ordo_family_form(plan);
    plan->accumulators = o->split ? o->split : 1;
    plan->order_asked = o->order ? o->order : ordo_family_order(family, p);
    plan->order = ordo_plan_replaced_order(plan);
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

/* Limits of a section on a GPU: columns of keys, chains of few steps, and under full masks waves of
 * chains. */
enum { COLUMNS_IN_FLIGHT = 2048, FEW_STEPS = 8, WAVES = 2 };

/* The heads of a section. On a GPU few heads share the cache well, but their chains must not queue
 * for each other (measured on an H200). COLUMNS_IN_FLIGHT is the rule under other masks than full,
 * where fewer heads gain 2 % at 16k tokens but queue (0.95 of unordered), and twice that for chains
 * of few steps (6 to 10 %). Under a full mask, where all chains of a head walk in step and no more
 * of them are at work than they have steps, two waves of chains: 2 to 12 % faster from 4k tokens
 * on. Sections are even, for a last one of few heads would stall. On a CPU: one head per thread,
 * because nobody waits. */
static int64_t section_heads(const ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const int64_t heads = ordo_plan_section_max(p);
    if (!ordo_plan_of_kernels(plan))
        return heads < plan->workers ? heads : plan->workers;
    const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
    const bool runs = plan->segments > 1 && plan->segments <= p->q_len; /* checked later */
    const int64_t rows = runs ? ordo_segment_rows(plan, plan->segments) : p->q_len; /* in a run */
    const ordo_run run = ordo_plan_run(plan, p->batch, rows, p->kv_len);
    const int64_t all = ordo_max32(1, ordo_max32(ordo_run_heads(&run, 0), ordo_run_heads(&run, 1)));
    const bool full = run.band.low == -ORDO_BAND_OPEN && run.band.high == ORDO_BAND_OPEN;
    const int64_t keys = ordo_max32(1, ordo_band_key_tiles(&run.band));
    const int64_t steps =
        (int64_t)ordo_max32(1, ordo_band_query_tiles(&run.band)) * run.group_heads;
    const int64_t chains = keys < steps ? keys : steps;            /* at work at once in one head */
    const int64_t workers = plan->workers < 1                  ? 1 /* checked later */
                            : plan->workers > ORDO_WORKERS_MAX ? ORDO_WORKERS_MAX
                                                               : plan->workers;
    const int64_t few = workers * WAVES / chains < 2 ? 2 : workers * WAVES / chains;
    const int64_t many = COLUMNS_IN_FLIGHT / dim * (steps <= FEW_STEPS ? 2 : 1);
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
    plan->workspace_limit = o->workspace_limit;
    if (plan->issue == ORDO_ISSUE_HEAD && o->section != 0 && o->section != 1)
        return ordo_fail(ORDO_ERR_ARGUMENT, "section %" PRId64 ": issue head has no sections",
                         o->section);
    plan->section = plan->issue == ORDO_ISSUE_HEAD ? 1
                    : o->section                   ? o->section
                                                   : section_heads(plan);
    return ORDO_OK;
}

/* Segments as requested, or the fewest whose bits fit the memory for them. */
static ordo_status choose_segments(ordo_plan *plan, const ordo_plan_options *o)
{
    uint64_t bytes = 0;
    plan->segments = o->segments ? o->segments : o->keep_bits_memory > 0;
    if (o->keep_bits_memory == 0 || ordo_problem_empty(&plan->problem))
        return ORDO_OK;
    if (plan->problem.dropout.p == 0)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "keep_bits_memory %" PRIu64 ": expected 0 with dropout.p 0",
                         o->keep_bits_memory);
    ORDO_TRY(ordo_plan_legal_segments(plan));
    const int64_t fewest = ordo_segments_within(plan, o->keep_bits_memory);
    if (o->segments == 0) /* if none fit, those of the fewest rows for the message */
        plan->segments = fewest ? fewest : ordo_segment_count(plan, ORDO_LENGTH_MAX);
    if (fewest > 0 && plan->segments >= fewest)
        return ORDO_OK;
    const int64_t rows = ordo_segment_rows(plan, plan->segments);
    const int buffers = ordo_segment_buffers(plan->segments);
    if (!ordo_segment_bits(plan, rows, &bytes) || !ordo_mul_fits(&bytes, (uint64_t)buffers))
        bytes = UINT64_MAX;
    return ordo_fail(ORDO_ERR_ARGUMENT,
                     "keep_bits_memory %" PRIu64 ": the keep bits of %s %" PRId64
                     " rows take %" PRIu64 " bytes; expected that or more",
                     o->keep_bits_memory, buffers == 2 ? "two segments of" : "one segment of", rows,
                     bytes);
}

/* ---- note ---- */

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

/* What of the level `cut` is left. */
static void note_cut(ordo_plan *plan)
{
    if (plan->backend == ORDO_BACKEND_REF)
        note(plan, "cut holds without carried sums: backend ref sums in fp64");
    else if (ordo_order_cyclic(plan->order_asked))
        note(plan, "cut holds for rows of o and lse only: %s is cyclic",
             ordo_order_name(plan->order_asked));
    else
        note(plan, "cut holds without carried sums: %s visits rows differently by head",
             ordo_order_name(plan->order_asked));
}

static int64_t rounded(ordo_traffic t)
{
    return (t.bytes + t.scores / 2) / t.scores;
}

/* Why this form, by the bytes that it and flash tiles move, and what the workspace holds. */
static void note_phases(ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const bool chained = plan->backward_form == ORDO_FORM_CHAIN;
    const ordo_form_counts counts =
        ordo_forms_count(p->head_dim, p->v_head_dim, ordo_family_find(plan->family)->shared_bytes);
    const ordo_traffic flash = counts.l2[ORDO_FORM_FLASH], phase = counts.l2[ORDO_FORM_PHASE];
    const bool fewest = ordo_form_fewest(&counts) == ORDO_FORM_PHASE;
    uint64_t tiles = 0;
    ordo_backward_parts parts = { 0 };
    if (ordo_problem_empty(p) || !ordo_plan_query_tiles(plan, &tiles) ||
        !ordo_plan_backward_parts(plan, tiles, &parts))
        return;
    note(plan,
         "by phases: %" PRId64 " bytes per score from L2, flash tiles would move %" PRId64
         "%s; %s of %" PRId64 " query tiles of %" PRId64 " key heads%s",
         rounded(phase), rounded(flash), fewest ? "" : " but have no kernels above head size 128",
         chained ? "room for dS" : "P and dS", parts.panels.tiles, parts.panels.section,
         chained ? "" : " at a time");
}

void ordo_plan_annotate(ordo_plan *plan)
{
    const ordo_problem *p = &plan->problem;
    const ordo_run run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len);
    plan->note[0] = 0;
    if (plan->order != plan->order_asked)
        note(plan,
             "order %s replaced by %s: it folds causal triangles with a whole number of "
             "query tiles per key tile",
             ordo_order_name(plan->order_asked), ordo_order_name(plan->order));
    if (plan->group == ORDO_GROUP_WAVES)
        note(plan, "waves follow the number of workers and the place in the batch: portable, "
                   "batch, split and cut are not kept");
    else if (!ordo_plan_carries(plan))
        note_cut(plan);
    if (ordo_plan_by_phases(plan, ORDO_BACKWARD))
        note_phases(plan);
    if (plan->order == ORDO_ORDER_TWIN && plan->assign == ORDO_ASSIGN_PINNED &&
        !ordo_run_mirrored(&run))
        note(plan, "twin cannot be pinned in pairs here: issued in turn instead");
}

/* ---- */

ordo_status ordo_plan_choose(ordo_plan *plan, const ordo_machine *machine,
                             const ordo_plan_options *options)
{
    ORDO_TRY(choose_backend(plan, machine, options->backend));
    ORDO_TRY(ordo_plan_legal_problem(plan));
    ORDO_TRY(choose_numbers(plan, options));
    ORDO_TRY(choose_segments(plan, options));
    ORDO_TRY(choose_rest(plan, machine, options)); /* sections follow the rows of a segment */
    ORDO_TRY(ordo_plan_legal(plan));
    ordo_plan_annotate(plan);
    ordo_plan_advise(plan, machine);
    return ORDO_OK;
}
