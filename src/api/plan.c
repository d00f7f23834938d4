/* plan.c: make, read, print and inspect plans. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/dropout.h"
#include "api/plan_text.h"
#include "api/problem.h"
#include "base/cores.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "plan/check.h"
#include "plan/sizes.h"
#include "plan/workspace.h"
#include "planner/choose.h"
#include "planner/legal.h"

enum { CHECK_MAX = 1 << 27 }; /* tile pairs ordo_plan_check() looks at: a few seconds */

static ordo_status choose_for(const char *name, ordo_plan *plan, const ordo_plan_options *options)
{
    ordo_machine *machine;
    ORDO_TRY(ordo_machine_create(&machine, name));
    const ordo_status status = ordo_plan_choose(plan, machine, options);
    ordo_machine_destroy(machine);
    return status;
}

/* The host is probed again only when the process may use another number of cores: a probe reads
 * dozens of files. A caller that finds another at work, which after a fork may never end, probes
 * for itself. */
static ordo_status choose_for_host(ordo_plan *plan, const ordo_plan_options *options)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ordo_machine *host;
    static int cores;
    if (pthread_mutex_trylock(&lock) != 0)
        return choose_for("host", plan, options);
    const int now = ordo_cores("", NULL);
    ordo_status status = ORDO_OK;
    if (!host || now != cores) {
        ordo_machine_destroy(host);
        host = NULL;
        cores = now;
        status = ordo_machine_create(&host, "host");
    }
    if (status == ORDO_OK)
        status = ordo_plan_choose(plan, host, options);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Check the arguments and choose. Without a machine the emulator plans for the one that it was
 * compared with, other backends for the host. */
static ordo_status make(ordo_plan *plan, const ordo_problem *problem, const ordo_machine *machine,
                        const ordo_plan_options *options)
{
    static const ordo_nested nested[] = { ORDO_NESTED(ordo_plan_options, forward_tile),
                                          ORDO_NESTED(ordo_plan_options, backward_tile),
                                          { 0 } };
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_plan_options, "ordo_plan_options", ORDO_PLAN_OPTIONS_INIT, nested);
    ordo_plan_options known = ORDO_PLAN_OPTIONS_INIT;
    if (options)
        ORDO_TRY(ordo_versioned_copy(&known, options, &kind));
    if ((unsigned)known.backend > ORDO_BACKEND_EMULATOR)
        return ordo_fail(ORDO_ERR_ARGUMENT, "backend %d: expected ref, cpu, cuda or emulator",
                         (int)known.backend);
    ORDO_TRY(ordo_check_range("order", (int)known.order, 0, ORDO_ORDER_COUNT));
    ORDO_TRY(ordo_check_range("issue", (int)known.issue, 0, ORDO_ISSUE_KEY));
    ORDO_TRY(ordo_check_range("assign", (int)known.assign, 0, ORDO_ASSIGN_FIRST_FREE));
    ORDO_TRY(ordo_problem_resolve(problem, &plan->problem));
    plan->threshold = ordo_dropout_threshold(&plan->problem);
    if (machine || known.backend == ORDO_BACKEND_REF)
        return ordo_plan_choose(plan, machine, &known);
    return known.backend == ORDO_BACKEND_EMULATOR ? choose_for("h200", plan, &known)
                                                  : choose_for_host(plan, &known);
}

static ordo_status read_back(ordo_plan *plan, const char *text)
{
    ORDO_TRY(ordo_plan_read(plan, text));
    plan->problem.size = sizeof plan->problem;
    ordo_plan filled = *plan;
    ORDO_TRY(ordo_problem_resolve(&plan->problem, &filled.problem));
    char asked[ORDO_PLAN_LINE_MAX], meant[ORDO_PLAN_LINE_MAX];
    ordo_plan_write(plan, asked);
    ordo_plan_write(&filled, meant);
    if (strcmp(asked, meant) != 0)
        return ordo_fail(ORDO_ERR_PARSE,
                         "plan: expected a value, not a default, in every field of its problem");
    plan->problem = filled.problem;
    plan->threshold = ordo_dropout_threshold(&plan->problem);
    ORDO_TRY(ordo_plan_legal(plan));
    ordo_plan_annotate(plan);
    plan->dropout_mode = ordo_plan_default_mode(plan);
    return ORDO_OK;
}

ordo_status ordo_plan_create(ordo_plan **plan, const ordo_problem *problem,
                             const ordo_machine *machine, const ordo_plan_options *options)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    *plan = NULL;
    ORDO_TRY(ordo_check_pointer("problem", problem));
    ordo_plan *created = calloc(1, sizeof *created);
    if (!created)
        return ordo_fail(ORDO_ERR_MEMORY, "plan: out of memory");
    const ordo_status status = make(created, problem, machine, options);
    if (status != ORDO_OK) {
        free(created);
        return status;
    }
    *plan = created;
    return ORDO_OK;
}

ordo_status ordo_plan_parse(ordo_plan **plan, const char *text)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    *plan = NULL;
    ORDO_TRY(ordo_check_pointer("text", text));
    ordo_plan *created = calloc(1, sizeof *created);
    if (!created)
        return ordo_fail(ORDO_ERR_MEMORY, "plan: out of memory");
    const ordo_status status = read_back(created, text);
    if (status != ORDO_OK) {
        free(created);
        return status;
    }
    *plan = created;
    return ORDO_OK;
}

void ordo_plan_destroy(ordo_plan *plan)
{
    free(plan);
}

ordo_status ordo_plan_print(const ordo_plan *plan, char *text, size_t capacity, size_t *needed)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    char line[ORDO_PLAN_LINE_MAX];
    const size_t size = ordo_plan_write(plan, line) + 1;
    if (needed)
        *needed = size;
    if (!text || capacity < size)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "capacity %zu: expected at least %zu, the size of the plan's line",
                         capacity, size);
    memcpy(text, line, size);
    return ORDO_OK;
}

ordo_status ordo_plan_problem(const ordo_plan *plan, ordo_problem *problem)
{
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("problem", problem));
    const ordo_problem original = ordo_problem_original(&plan->problem);
    return ordo_versioned_answer(problem, &original, &ordo_problem_struct);
}

size_t ordo_plan_workspace(const ordo_plan *plan)
{
    uint64_t bytes = 0;
    if (plan)
        (void)ordo_plan_workspace_bytes(plan, &bytes); /* fits: the plan is legal */
    return (size_t)bytes;
}

/* Bytes of the keep bits; UINT64_MAX if they are more than can be made. */
static uint64_t keep_bits_bytes(const ordo_problem *p)
{
    if (p->dropout.p <= 0)
        return 0;
    ordo_dropout_view view;
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    static const int32_t unread[1]; /* with on_device, lengths are not read */
    char said[512];
    call.on_device = p->layout == ORDO_PACKED;
    call.cu_q = call.cu_kv = call.on_device ? unread : NULL;
    snprintf(said, sizeof said, "%s", ordo_last_error());
    const ordo_problem original = ordo_problem_original(p);
    if (ordo_dropout_open(&original, &call, false, &view) == ORDO_OK)
        return view.blocks * 4 * ORDO_KEEP_WORDS;
    ordo_set_error("%s", said);
    return UINT64_MAX;
}

/* Bytes of the keep bits that passes in segments have in memory. */
static uint64_t segment_bytes(const ordo_plan *plan)
{
    uint64_t bytes = 0;
    if (plan->segments == 0 || ordo_problem_empty(&plan->problem))
        return 0;
    (void)ordo_segment_bits(plan, ordo_segment_plan(plan, 0).problem.q_len, &bytes); /* as made */
    return bytes * (uint64_t)ordo_segment_buffers(plan->segments);
}

static const ordo_nested info_nested[] = {
    ORDO_NESTED(ordo_plan_info, forward_tile), ORDO_NESTED(ordo_plan_info, backward_tile),
    ORDO_NESTED(ordo_plan_info, numeric_key),  ORDO_NESTED(ordo_plan_info, note),
    ORDO_NESTED(ordo_plan_info, forward_key),  { 0 }
};

ordo_status ordo_plan_query(const ordo_plan *plan, ordo_plan_info *info)
{
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_plan_info, "info", ORDO_PLAN_INFO_INIT, info_nested);
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("info", info));
    const ordo_problem *p = &plan->problem;
    const ordo_run run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len);
    const unsigned kept = ordo_plan_promise(plan);
    uint64_t forward_bytes = 0;
    (void)ordo_plan_forward_bytes(plan, &forward_bytes); /* fits: the plan is legal */
    ordo_plan_info found = {
        .backend = plan->backend,
        .forward_tile = plan->forward_tile,
        .backward_tile = plan->backward_tile,
        .query_tiles = ordo_band_query_tiles(&run.band),
        .key_tiles = ordo_band_key_tiles(&run.band),
        .order = plan->order,
        .order_asked = plan->order_asked,
        .group = plan->group,
        .split = plan->accumulators,
        .issue = plan->issue,
        .section = plan->section,
        .assign = plan->assign,
        .workers = plan->workers,
        .coresident = ordo_plan_coresident(plan),
        .forward_workspace_bytes = forward_bytes,
        .backward_workspace_bytes = ordo_plan_workspace(plan),
        .kept = kept,
        .not_kept = kept ^ ORDO_PROMISE_ALL,
        .dropout_rounds = p->dropout.rounds,
        .dropout_bits = p->dropout.bits,
        .dropout_threshold = plan->threshold,
        .unused = -1,
        .dropout_mode = plan->dropout_mode,
        .keep_bits_reused = plan->keep_bits_reused,
        .keep_bits_bytes = keep_bits_bytes(p),
        .segments = plan->segments,
        .segment_bytes = segment_bytes(plan),
        .backward_form = plan->backward_form,
    };
    if (p->dropout.bits > 0)
        found.dropout_p_used = 1 - (double)plan->threshold / (double)(1 << p->dropout.bits);
    ordo_plan_key(plan, found.numeric_key, sizeof found.numeric_key);
    ordo_plan_forward_key(plan, found.forward_key, sizeof found.forward_key);
    memcpy(found.note, plan->note, sizeof found.note);
    return ordo_versioned_answer(info, &found, &kind);
}

ordo_status ordo_plan_check(const ordo_plan *plan, uint64_t *pairs)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    const ordo_problem *p = &plan->problem;
    if (ordo_problem_empty(p)) {
        if (pairs)
            *pairs = 0;
        return ORDO_OK;
    }
    ordo_run run = ordo_plan_run(plan, 1, p->q_len, p->kv_len);
    uint64_t cost = ordo_run_check_cost(&run, 0);
    if (cost <= CHECK_MAX) /* then its live tiles can be counted */
        cost += ordo_run_tasks(&run);
    if (cost > CHECK_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "plan check: %llu tile pairs per sequence: expected at most %d",
                         (unsigned long long)cost, CHECK_MAX);
    /* Sequences are alike: as many as stay within the limit show what all of them do. */
    const uint64_t fit = CHECK_MAX / cost;
    run.sequences = (int32_t)((uint64_t)p->batch < fit ? (uint64_t)p->batch : fit);
    if (run.section > run.sequences * run.kv_heads)
        run.section = run.sequences * run.kv_heads;
    uint64_t seen = 0;
    ORDO_TRY(ordo_run_check(&run, &seen));
    if (pairs)
        *pairs = seen;
    return ORDO_OK;
}
