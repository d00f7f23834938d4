/* io_hbm.c: `ordo io --hbm`: bytes of HBM of a pass of ordo's Hopper kernels, by kernel. */
#include "cli/io.h"

#include "kit/message.h"

#include <inttypes.h>

typedef struct replayed {
    const char *machine;
    const cli_hbm_request *asked;
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
    const ordo_problem *p = &r->asked->problem;
    printf("%s %s on %s: batch %" PRId64 ", heads %" PRId64 ", %" PRId64
           " rows, head size %" PRId64,
           ordo_io_algorithm_name(r->form), ordo_io_pass_name(r->asked->pass), r->machine, p->batch,
           p->heads, p->q_len, p->head_dim);
    if (p->v_head_dim != p->head_dim)
        printf(", values %" PRId64, p->v_head_dim);
    puts("\n");
    printf("%-12s %10s %10s %10s %12s\n", "HBM, MB", "read", "written", "both", "B per score");
    for (int i = 0; i < ORDO_IO_KERNELS && r->hbm.kernels[i].name; i++)
        print_line(r, r->hbm.kernels[i].name, r->hbm.kernels[i].loads, r->hbm.kernels[i].stores);
    print_line(r, "pass", r->hbm.read_bytes, r->hbm.written_bytes);
    printf("\nIf L2 held everything %.3f B per score; without L2 %.3f.\n",
           per_score(r, r->hbm.least_bytes), per_score(r, r->hbm.most_bytes));
}

static void replayed_json(cli_json *json, const void *what)
{
    const replayed *r = what;
    cli_json_text(json, "machine", r->machine);
    cli_json_text(json, "pass", ordo_io_pass_name(r->asked->pass));
    cli_json_text(json, "form", ordo_io_algorithm_name(r->form));
    cli_json_int(json, "read_bytes", r->hbm.read_bytes);
    cli_json_int(json, "written_bytes", r->hbm.written_bytes);
    cli_json_int(json, "least_bytes", r->hbm.least_bytes);
    cli_json_int(json, "most_bytes", r->hbm.most_bytes);
    cli_json_real(json, "bytes_per_score", per_score(r, r->hbm.read_bytes + r->hbm.written_bytes));
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

int cli_io_hbm(const cli_hbm_request *asked, const cli_json_target *target)
{
    replayed r = { .asked = asked };
    ordo_machine *machine = NULL;
    CLI_TRY(cli_library(ordo_machine_create(&machine, asked->machine ? asked->machine : "h200")));
    r.machine = ordo_machine_title(machine);
    int status = cli_library(form_of(machine, asked, &r.form));
    if (status == CLI_OK)
        status =
            cli_library(ordo_io_replay(machine, &asked->problem, asked->pass, r.form, 0, &r.hbm));
    if (status == CLI_OK)
        status = cli_report_results(
            target, &(cli_results) { "io", replayed_json, print_replayed, &r, sizeof r, 1 });
    ordo_machine_destroy(machine);
    return status;
}
