/* hbm.c: bytes of HBM: the plan of a pass replayed through L2. */
#include "io/hbm.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/problem.h"
#include "base/blocks.h"
#include "base/environment.h"
#include "base/status.h"
#include "plan/phase.h"
#include "plan/plan.h"

/* At most: granules of a tensor, and granules that a product reads if it has no tiles. A replay
 * then takes some seconds and less than 1 GB. */
enum { MOST_GRANULES = 1 << 21, MOST_READS = 1 << 30, HOPPER = 90 };

static bool in_chains(const ordo_problem *p, ordo_io_pass pass, ordo_io_algorithm form)
{
    return pass == ORDO_IO_BACKWARD && form == ORDO_IO_PHASE &&
           ordo_io_chained(p->head_dim, p->v_head_dim);
}

/* Panels as plans have them: whole sequences of `section` heads. */
static ordo_status set_panels(ordo_io_hbm_job *job, ordo_io_pass pass)
{
    const bool backward = pass == ORDO_IO_BACKWARD;
    enum { ROWS = 128, KEYS = 256 };
    const ordo_problem *p = &job->problem;
    const ordo_phase_problem asked = { .tiles = p->batch * ((p->q_len + ROWS - 1) / ROWS),
                                       .tile_rows = ROWS,
                                       .tile_keys = KEYS,
                                       .kv_heads = p->kv_heads,
                                       .group_heads = 1,
                                       .kv_len = p->kv_len,
                                       .kv_rows = p->batch * p->kv_len,
                                       .sum_columns = backward ? p->head_dim + p->v_head_dim : 0,
                                       .backward = backward,
                                       .chained = in_chains(p, pass, ORDO_IO_PHASE) };
    const ordo_phase_panels panels = ordo_phase_panels_of(&asked, ORDO_PHASE_BUDGET);
    if (panels.tiles < asked.tiles)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "batch %" PRId64 ", q_len %" PRId64
                         ": expected all rows of a head in one panel of the workspace, got %" PRId64
                         " of %" PRId64 " tiles",
                         p->batch, p->q_len, panels.tiles, asked.tiles);
    job->section = (int32_t)panels.section;
    /* One f32 per row and key tile. */
    const int64_t factors = 4 * ROWS * ((p->kv_len + KEYS - 1) / KEYS);
    job->factors = (int32_t)((factors + ORDO_IO_GRANULE - 1) / ORDO_IO_GRANULE);
    return ORDO_OK;
}

/* Where each object begins. P and dS are those of one panel. */
static int64_t lay_out(ordo_io_hbm_job *job, bool phases)
{
    const int64_t rows = (int64_t)job->batch * job->rows;
    int64_t at = 0;
    for (int i = 0; i < ORDO_IO_OBJECTS; i++) {
        const bool scores = i == ORDO_IO_P || i == ORDO_IO_DS;
        const int64_t across =
            i == ORDO_IO_FACTORS ? job->factors : ordo_io_across(job, (ordo_io_object)i);
        job->base[i] = at;
        at += rows * (scores || i == ORDO_IO_FACTORS ? job->section : job->heads) *
              (scores && !phases ? 0 : across);
    }
    return job->base[ORDO_IO_OBJECTS] = at;
}

/* With a plan the mask may be causal. */
static ordo_status check_problem(const ordo_problem *p, ordo_io_pass pass, ordo_io_algorithm form,
                                 bool plan)
{
    static const struct {
        ordo_io_algorithm form;
        int64_t from, to;
    } sizes[] = { { ORDO_IO_FLASH, 64, 128 },
                  { ORDO_IO_APART, 192, 256 },
                  { ORDO_IO_PHASE, 128, 576 } };
    size_t i = 0;
    while (i < 3 && sizes[i].form != form)
        i++;
    if (i == 3 || (pass != ORDO_IO_BACKWARD && (pass != ORDO_IO_FORWARD || form != ORDO_IO_PHASE)))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "pass %s, form %s: expected backward by flash, apart or phase, or forward "
                         "by phase",
                         ordo_io_pass_name(pass), ordo_io_algorithm_name(form));
    const bool mask = p->mask == ORDO_MASK_FULL || (plan && p->mask == ORDO_MASK_CAUSAL);
    if (p->layout != ORDO_DENSE || !mask || p->window.on || ordo_has_blocks(p) || p->dropout.p > 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "problem: expected a dense layout and a full mask%s, without window, "
                         "block mask, seen and dropout",
                         plan ? " or a causal one" : "");
    if (p->dtype == ORDO_F32)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "dtype f32: expected bf16 or f16");
    if (p->kv_heads != p->heads || p->kv_len != p->q_len)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "kv_heads %" PRId64 ", kv_len %" PRId64
                         ": expected those of queries, %" PRId64 " and %" PRId64,
                         p->kv_heads, p->kv_len, p->heads, p->q_len);
    if (p->v_head_dim != p->head_dim && (!in_chains(p, pass, form) || p->v_head_dim % 64 != 0))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "v_head_dim %" PRId64 ": expected head_dim, %" PRId64
                         ", or in chains a multiple of 64",
                         p->v_head_dim, p->head_dim);
    if (p->head_dim % 64 != 0 || p->head_dim < sizes[i].from || p->head_dim > sizes[i].to)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "head_dim %" PRId64 ": expected a multiple of 64 from %" PRId64
                         " to %" PRId64 " in the form %s",
                         p->head_dim, sizes[i].from, sizes[i].to, ordo_io_algorithm_name(form));
    if (ordo_problem_empty(p))
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "batch %" PRId64 ", q_len %" PRId64
                         ": expected 1 or more, for an empty problem moves nothing",
                         p->batch, p->q_len);
    const double granules = (double)p->batch * (double)p->heads * ceil((double)p->q_len / 64) *
                            (double)p->head_dim / 64;
    if (granules > MOST_GRANULES || granules * (double)p->q_len > MOST_READS)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "batch %" PRId64 ", heads %" PRId64 ", q_len %" PRId64
                         ": too many rows and heads to replay; expected fewer",
                         p->batch, p->heads, p->q_len);
    return ORDO_OK;
}

/* Size and parts of L2, and workers. */
static ordo_status read_machine(ordo_io_hbm_job *job, int64_t *cache_bytes, int32_t *parts)
{
    double arch = 0, workers = 0, bytes = 0, halves = 1;
    if (ordo_machine_family_of(job->machine) != ORDO_MACHINE_CUDA ||
        ordo_machine_get(job->machine, "cuda_arch", &arch) != ORDO_OK || (int)arch != HOPPER)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "machine %s: the forms are Hopper's; expected cuda_arch 90",
                         ordo_machine_name(job->machine));
    ORDO_TRY(ordo_machine_get(job->machine, "workers", &workers));
    ORDO_TRY(ordo_machine_get(job->machine, "l2_bytes", &bytes));
    ORDO_TRY(ordo_machine_get(job->machine, "l2_parts", &halves));
    job->workers = (int32_t)workers;
    *parts = (int32_t)halves;
    if (*cache_bytes == 0)
        *cache_bytes = (int64_t)bytes;
    const int64_t least = (int64_t)*parts * ORDO_IO_GRANULE;
    if (*cache_bytes < least)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "cache_bytes %" PRId64 ": expected %" PRId64 " or more, or 0",
                         *cache_bytes, least);
    return ORDO_OK;
}

static ordo_status run_usual_plan(ordo_io_hbm_job *job)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_CUDA;
    ORDO_TRY(ordo_plan_create(&plan, &job->problem, job->machine, &options));
    const ordo_status status = ordo_io_flash_backward(job, plan);
    ordo_plan_destroy(plan);
    return status;
}

static ordo_status run_form(ordo_io_hbm_job *job, ordo_io_pass pass, ordo_io_algorithm form,
                            const ordo_plan *plan)
{
    if (form == ORDO_IO_FLASH)
        return plan ? ordo_io_flash_backward(job, plan) : run_usual_plan(job);
    if (pass == ORDO_IO_FORWARD) {
        ordo_io_phases_forward(job);
        return ORDO_OK;
    }
    ordo_io_begin(job);
    if (form == ORDO_IO_APART)
        ordo_io_apart_backward(job);
    else if (in_chains(&job->problem, pass, form))
        ordo_io_chains_backward(job);
    else
        ordo_io_phases_backward(job);
    return ORDO_OK;
}

/* Pairs of a query and a key of one head that a mask shows; lengths are equal. */
static double pairs(const ordo_problem *p)
{
    const double n = (double)p->q_len;
    return p->mask == ORDO_MASK_CAUSAL ? n * (n + 1) / 2 : n * n;
}

/* A resolved problem; `plan`: NULL or what runs it. */
static ordo_status replay(ordo_io_hbm_job *job, ordo_io_pass pass, ordo_io_algorithm form,
                          const ordo_plan *plan, int64_t cache_bytes)
{
    int32_t parts = 1;
    const ordo_problem *p = &job->problem;
    ordo_io_hbm *hbm = job->result;
    ORDO_TRY(check_problem(p, pass, form, plan != NULL));
    ORDO_TRY(read_machine(job, &cache_bytes, &parts));
    job->batch = (int32_t)p->batch;
    job->heads = (int32_t)p->heads;
    job->rows = (int32_t)((p->q_len + ORDO_IO_GRANULE_ROWS - 1) / ORDO_IO_GRANULE_ROWS);
    job->columns = (int32_t)(p->head_dim / ORDO_IO_GRANULE_ROWS);
    job->v_columns = (int32_t)(p->v_head_dim / ORDO_IO_GRANULE_ROWS);
    if (form == ORDO_IO_PHASE)
        ORDO_TRY(set_panels(job, pass));
    const int64_t granules = lay_out(job, form == ORDO_IO_PHASE);
    memset(hbm, 0, sizeof *hbm);
    ordo_status status = ordo_io_l2_create(&job->l2, cache_bytes, parts, granules);
    if (status == ORDO_OK)
        status = run_form(job, pass, form, plan);
    if (status == ORDO_OK) {
        ordo_io_l2_finish(&job->l2);
        ordo_io_kernel_end(job, "left in L2");
        hbm->least_bytes = (job->l2.first_reads + job->l2.first_written) * ORDO_IO_GRANULE;
        hbm->most_bytes = job->l2.asked * ORDO_IO_GRANULE;
        hbm->scores = (double)(p->batch * p->heads) * pairs(p);
    }
    ordo_io_l2_destroy(&job->l2);
    return status;
}

ordo_status ordo_io_replay(const ordo_machine *machine, const ordo_problem *problem,
                           ordo_io_pass pass, ordo_io_algorithm form, int64_t cache_bytes,
                           ordo_io_hbm *hbm)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_hbm_job job = { .machine = machine, .result = hbm };
    ORDO_TRY(ordo_check_pointer("machine", machine));
    ORDO_TRY(ordo_check_pointer("problem", problem));
    ORDO_TRY(ordo_check_pointer("hbm", hbm));
    ORDO_TRY(ordo_problem_resolve(problem, &job.problem));
    return replay(&job, pass, form, NULL, cache_bytes);
}

ordo_status ordo_io_replay_plan(const ordo_machine *machine, const ordo_plan *plan,
                                int64_t cache_bytes, ordo_io_hbm *hbm)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("machine", machine));
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("hbm", hbm));
    if (!ordo_plan_of_kernels(plan) || plan->backward_form != ORDO_FORM_FLASH)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "plan: expected one of the CUDA kernels, whose backward pass is by flash");
    ordo_io_hbm_job job = { .machine = machine, .result = hbm, .problem = plan->problem };
    return replay(&job, ORDO_IO_BACKWARD, ORDO_IO_FLASH, plan, cache_bytes);
}
