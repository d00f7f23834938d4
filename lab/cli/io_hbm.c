/* io_hbm.c: `ordo io --hbm`: bytes of HBM of a pass of ordo's Hopper kernels, by kernel. */
#include "cli/io.h"

#include "kit/message.h"

#include <inttypes.h>

typedef struct replayed {
    const char *machine, *order; /* order: of a plan, else NULL */
    ordo_problem problem;
    ordo_io_pass pass;
    ordo_io_algorithm form;
    ordo_io_hbm hbm;
} replayed;

static double per_score(const replayed *r, int64_t bytes)
{
    return (double)bytes / r->hbm.scores;
}

static void print_line(const replayed *r, const char *name, int64_t read, int64_t written)
{
    printf("%-12s %10.1f %10.1f %10.1f %12.3f\n", name, (double)read * 1e-6, (double)written * 1e-6,
           (double)(read + written) * 1e-6, per_score(r, read + written));
}

static void print_replayed(const void *what)
{
    const replayed *r = what;
    const ordo_problem *p = &r->problem;
    printf("%s %s on %s: batch %" PRId64 ", heads %" PRId64 ", %" PRId64
           " rows, head size %" PRId64,
           ordo_io_algorithm_name(r->form), ordo_io_pass_name(r->pass), r->machine, p->batch,
           p->heads, p->q_len, p->head_dim);
    if (p->v_head_dim != p->head_dim)
        printf(", values %" PRId64, p->v_head_dim);
    if (r->order)
        printf(", mask %s, order %s", ordo_mask_name(p->mask), r->order);
    puts("\n");
    printf("%-12s %10s %10s %10s %12s\n", "HBM, MB", "read", "written", "both", "B per score");
    for (int i = 0; i < ORDO_IO_KERNELS && r->hbm.kernels[i].name; i++)
        print_line(r, r->hbm.kernels[i].name, r->hbm.kernels[i].loads, r->hbm.kernels[i].stores);
    print_line(r, "pass", r->hbm.read_bytes, r->hbm.written_bytes);
    printf("\nIf L2 held everything %.3f B per score; without L2 %.3f.\n",
           per_score(r, r->hbm.least_bytes), per_score(r, r->hbm.most_bytes));
    if (r->hbm.ns > 0)
        printf("Chains by the simulation alone %.3f ms; the pass, with its traffic, %.3f ms.\n",
               r->hbm.chains_ns * 1e-6, r->hbm.ns * 1e-6);
}

static void replayed_json(cli_json *json, const void *what)
{
    const replayed *r = what;
    cli_json_text(json, "machine", r->machine);
    cli_json_text(json, "pass", ordo_io_pass_name(r->pass));
    cli_json_text(json, "form", ordo_io_algorithm_name(r->form));
    if (r->order)
        cli_json_text(json, "order", r->order);
    cli_json_int(json, "read_bytes", r->hbm.read_bytes);
    cli_json_int(json, "written_bytes", r->hbm.written_bytes);
    cli_json_int(json, "least_bytes", r->hbm.least_bytes);
    cli_json_int(json, "most_bytes", r->hbm.most_bytes);
    cli_json_real(json, "bytes_per_score", per_score(r, r->hbm.read_bytes + r->hbm.written_bytes));
    if (r->hbm.ns > 0) {
        cli_json_real(json, "chains_ns", r->hbm.chains_ns);
        cli_json_real(json, "ns", r->hbm.ns);
    }
    cli_json_array(json, "kernels");
    for (int i = 0; i < ORDO_IO_KERNELS && r->hbm.kernels[i].name; i++) {
        cli_json_object(json, NULL);
        cli_json_text(json, "name", r->hbm.kernels[i].name);
        cli_json_int(json, "read_bytes", r->hbm.kernels[i].loads);
        cli_json_int(json, "written_bytes", r->hbm.kernels[i].stores);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

/* The form by which ordo runs the pass, if none was named. */
static ordo_status form_of(const ordo_machine *machine, const cli_hbm_request *asked,
                           ordo_io_algorithm *form)
{
    ordo_io_bytes bytes = { .used = ORDO_IO_BEST };
    ordo_status status = ORDO_OK;
    *form = asked->form;
    if (*form == ORDO_IO_BEST && asked->pass == ORDO_IO_FORWARD)
        *form = ORDO_IO_PHASE;
    if (*form == ORDO_IO_BEST) {
        status = ordo_io_hopper_pair(machine, asked->problem.head_dim, asked->problem.v_head_dim,
                                     &bytes);
        *form = bytes.used;
    }
    return status;
}

static ordo_status replay(const ordo_machine *machine, const cli_hbm_request *asked, replayed *r)
{
    r->problem = asked->problem;
    r->pass = asked->pass;
    const ordo_status status = form_of(machine, asked, &r->form);
    return status != ORDO_OK ? status
                             : ordo_io_replay(machine, &r->problem, r->pass, r->form, 0, &r->hbm);
}

static ordo_status replay_plan(const ordo_machine *machine, const char *line, replayed *r)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_plan *plan = NULL;
    ordo_status status = ordo_plan_parse(&plan, line);
    if (status == ORDO_OK)
        status = ordo_plan_query(plan, &info);
    if (status == ORDO_OK)
        status = ordo_plan_problem(plan, &r->problem);
    if (status == ORDO_OK)
        status = ordo_io_replay_plan(machine, plan, 0, &r->hbm);
    r->pass = ORDO_IO_BACKWARD;
    r->form = ORDO_IO_FLASH;
    r->order = ordo_order_name(info.order);
    ordo_plan_destroy(plan);
    return status;
}

int cli_io_hbm(const cli_hbm_request *asked, const cli_json_target *target)
{
    replayed r = { .problem = ORDO_PROBLEM_INIT };
    ordo_machine *machine = NULL;
    CLI_TRY(cli_library(ordo_machine_create(&machine, asked->machine ? asked->machine : "h200")));
    r.machine = ordo_machine_title(machine);
    int status = cli_library(asked->plan ? replay_plan(machine, asked->plan, &r)
                                         : replay(machine, asked, &r));
    if (status == CLI_OK)
        status = cli_report_results(
            target, &(cli_results) { "io", replayed_json, print_replayed, &r, sizeof r, 1 });
    ordo_machine_destroy(machine);
    return status;
}
