/* execute.c: what the commands that execute plans share. */
#define _XOPEN_SOURCE 700
#include "kit/execute.h"

#include "kit/device.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/work.h"

#include <unistd.h>

int cli_choose_backend(const cli_problem *words, ordo_backend *backend)
{
    const char *why = NULL;
    *backend = words->backend;
    if (*backend == ORDO_BACKEND_DEFAULT && words->machine &&
        ordo_machine_family_of(words->machine) == ORDO_MACHINE_CUDA)
        *backend = ORDO_BACKEND_CUDA;
    if (*backend == ORDO_BACKEND_DEFAULT)
        *backend =
            ordo_backend_available(ORDO_BACKEND_CPU, &why) ? ORDO_BACKEND_CPU : ORDO_BACKEND_REF;
    if (!ordo_backend_available(*backend, &why))
        return cli_error(CLI_UNSUPPORTED, "%s",
                         why ? why : "the backend asked for is not available here");
    if (*backend != ORDO_BACKEND_CUDA)
        return CLI_OK;
    if (words->threads.count > 0)
        return cli_usage("--threads: backend cuda has none; --workers limits its grid");
    const ordo_status selected = ordo_device_select(cli_device_find());
    return cli_library(selected);
}

int cli_choose_mode(int asked, ordo_backend backend, cli_dropout_mode *mode)
{
    *mode = asked >= 0                     ? (cli_dropout_mode)asked
            : backend == ORDO_BACKEND_CUDA ? CLI_GIVEN
                                           : CLI_FUSED;
    if (backend != ORDO_BACKEND_CUDA && *mode != CLI_FUSED)
        return cli_usage("--dropout-mode %s: backend %s makes bits while it uses them, fused",
                         cli_dropout_mode_name(*mode), ordo_backend_name(backend));
    return CLI_OK;
}

const char *cli_mode_shown(ordo_backend backend, const ordo_problem *problem, cli_dropout_mode mode)
{
    const bool shown = backend == ORDO_BACKEND_CUDA && problem->dropout.p > 0;
    return shown ? cli_dropout_mode_name(mode) : NULL;
}

/* What a backend does in a few minutes on a small machine. */
static double flops_allowed(ordo_backend backend)
{
    return backend == ORDO_BACKEND_REF ? 2e11 : backend == ORDO_BACKEND_CUDA ? 5e16 : 2e13;
}

int cli_check_size(const cli_problem *words, const ordo_problem *p, ordo_backend backend,
                   double runs, double copies, bool force)
{
    const double pairs = cli_work_pairs(p, words->q_numbers, words->kv_numbers);
    const double flops = runs * (cli_work_forward(p, pairs) + cli_work_backward(p, pairs));
    const double bytes = copies * cli_work_bytes(p);
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    if (bytes > 0.8 * memory)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.3g GB of tensors, and this machine has %.3g GB of memory",
                         bytes / 1e9, memory / 1e9);
    if (flops > flops_allowed(backend) && !force)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.2g floating-point operations, more than the %.2g that %s does in "
                         "a few minutes; --force runs it all the same",
                         flops, flops_allowed(backend), ordo_backend_name(backend));
    return CLI_OK;
}

static int time_pass(const ordo_plan *plan, const cli_stage *stage, bool backward, double *seconds)
{
    int status = stage->hammer ? cli_hammer_strike(stage->hammer) : CLI_OK;
    if (status != CLI_OK)
        return status;
    cli_progress_start(backward ? "backward" : "forward");
    const double before = cli_now();
    ordo_status ran = cli_stage_before_pass(stage);
    if (ran == ORDO_OK)
        ran = backward ? ordo_attention_backward(plan, &stage->call)
                       : ordo_attention_forward(plan, &stage->call);
    status = ran == ORDO_OK ? cli_stage_wait(stage) : cli_library(ran);
    if (seconds)
        *seconds = cli_now() - before;
    cli_progress_stop();
    return status;
}

int cli_execute(const ordo_plan *plan, cli_stage *stage, bool backward, double *forward_s,
                double *backward_s)
{
    int status = cli_stage_bits(stage);
    if (status == CLI_OK)
        status = cli_stage_poison(stage);
    if (status == CLI_OK)
        status = time_pass(plan, stage, false, forward_s);
    if (status == CLI_OK && backward)
        status = time_pass(plan, stage, true, backward_s);
    return status;
}
