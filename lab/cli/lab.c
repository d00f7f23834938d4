/* lab.c: the laboratory's subcommands, and what its models say of a plan. */
#include "cli/lab.h"

#include <math.h>

#include "kit/lab.h"
#include "ordo/lab/io.h"
#include "ordo/lab/model.h"

static const cli_command commands[] = {
    { "schedule", "replay an order of sums on a timeline and draw it", cli_schedule },
    { "block", "run a transformer block in every dropout mode and compare digests", cli_block },
    { "model", "price kernels and transformer blocks by their limiters", cli_model },
    { "io", "count the words that attention moves, and bound them from below", cli_io },
};

static void price(const ordo_plan *plan, const ordo_machine *machine, cli_forecast *f)
{
    ordo_model *model = NULL;
    ordo_plan_price p;
    f->priced = ordo_model_create(&model, machine, ORDO_CALIBRATION_SILICON) == ORDO_OK &&
                ordo_model_plan(model, plan, &p) == ORDO_OK;
    ordo_model_destroy(model);
    if (!f->priced)
        return;
    f->forward_ns = p.forward.seconds * 1e9;
    f->backward_ns = p.backward.seconds * 1e9;
    f->utilization = p.utilization;
    f->rng_ns = p.rng.seconds * 1e9;
    f->forward_limiter = ordo_limiter_name(p.forward.limiter);
    f->backward_limiter = ordo_limiter_name(p.backward.limiter);
    f->rng_limiter = ordo_limiter_name(p.rng.limiter);
}

/* Bytes per score that each form of the backward pass moves. */
static void count_bytes(const ordo_problem *p, const ordo_machine *machine, cli_forecast *f)
{
    ordo_io_bytes bytes;
    f->counted = ordo_io_hopper_pair(machine, p->head_dim, p->v_head_dim, &bytes) == ORDO_OK;
    if (!f->counted)
        return;
    f->flash_bytes = bytes.flash_reduce;
    f->apart_bytes = bytes.apart;
    f->phase_bytes = bytes.phase;
    f->phase_hbm_bytes = bytes.phase_hbm;
    f->fewest = ordo_io_algorithm_name(bytes.fewest);
}

static void forecast(const ordo_plan *plan, const ordo_machine *machine, cli_forecast *f)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_problem problem = ORDO_PROBLEM_INIT;
    *f = (cli_forecast) { 0 };
    if (ordo_plan_query(plan, &info) != ORDO_OK || ordo_plan_problem(plan, &problem) != ORDO_OK)
        return;
    price(plan, machine, f);
    if (info.backend == ORDO_BACKEND_CUDA)
        count_bytes(&problem, machine, f);
}

const cli_laboratory *cli_lab(void)
{
    static const cli_laboratory lab = {
        .commands = commands,
        .count = sizeof commands / sizeof commands[0],
        .forecast = forecast,
        .memory_text = cli_io_advice_text,
        .memory_json = cli_io_advice_json,
    };
    return &lab;
}
