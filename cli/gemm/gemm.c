/* gemm.c: `ordo gemm`: one matrix product on seeded inputs: its digest, its rows in any batch. */
#define _XOPEN_SOURCE 700
#include "commands.h"
#include "gemm/gemm_run.h"
#include "kit/device.h"
#include "kit/digest.h"
#include "kit/message.h"
#include "kit/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST = 1 << 24 };

typedef struct request {
    int64_t m, n, k, sections, threads;
    int form, dtype, out, device;
    bool bias, add, verify, force;
    double seconds;
    uint64_t seed;
    cli_json_target json;
} request;

typedef struct report {
    cli_gemm_job gemm;
    ordo_gemm_info info;
    const char *form;
    uint64_t digest;
    bool verified, timed;
    cli_gemm_verdict verdict;
    double seconds; /* time of one product */
} report;

static const char *const forms[] = { "forward", "dx", "dw" };

/* ---- what to do ---- */

static void describe(const request *r, report *to)
{
    static const ordo_dtype dtypes[] = { ORDO_BF16, ORDO_F16, ORDO_F32, ORDO_E4M3 },
                            outs[] = { ORDO_F32, ORDO_BF16, ORDO_F16 };
    static const ordo_backend backends[] = { ORDO_BACKEND_CPU, ORDO_BACKEND_CUDA,
                                             ORDO_BACKEND_EMULATOR };
    ordo_gemm_problem *p = &to->gemm.problem;
    *p = (ordo_gemm_problem)ORDO_GEMM_PROBLEM_INIT;
    p->m = r->m, p->n = r->n, p->k = r->k;
    p->dtype = dtypes[r->dtype];
    p->c_dtype = r->out > 0 ? outs[r->out - 1] : p->dtype == ORDO_E4M3 ? ORDO_BF16 : p->dtype;
    p->a_transposed = r->form == 2;
    p->b_transposed = r->form == 0;
    p->bias = r->bias, p->add = r->add;
    p->sections = (int)r->sections;
    to->gemm.backend = backends[r->device];
    to->gemm.seed = r->seed;
    to->gemm.threads = (int)r->threads;
    to->form = forms[r->form];
}

/* What would take hours or all the memory is refused before anything is allocated. */
static int check_size(const request *r)
{
    static const double most_of[] = { 2e13, 1e18, 5e11 };
    const double m = (double)r->m, n = (double)r->n, k = (double)r->k;
    const double flops = 2 * m * n * k * (r->verify ? 12 : 2), most = most_of[r->device];
    const double bytes = 4 * (m * k + n * k + 3 * m * n);
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    if (bytes > 0.8 * memory)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.3g GB of matrices, and this machine has %.3g GB of memory",
                         bytes / 1e9, memory / 1e9);
    if (flops > most && !r->force)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.2g floating-point operations, more than the %.2g that %s does in "
                         "a few minutes; --force runs it anyway",
                         flops, most,
                         r->device == 0   ? "cpu"
                         : r->device == 1 ? "cuda"
                                          : "emulator");
    return CLI_OK;
}

static int check_device(const request *r)
{
    const char *why = NULL;
    if (r->device != 1)
        return CLI_OK;
    if (r->threads > 0)
        return cli_usage("--threads: backend cuda has none");
    if (!ordo_backend_available(ORDO_BACKEND_CUDA, &why))
        return cli_error(CLI_UNSUPPORTED, "%s", why);
    return cli_library(ordo_device_select(cli_device_find()));
}

/* ---- the answer ---- */

static void text(const report *r)
{
    const ordo_gemm_problem *p = &r->gemm.problem;
    printf("product     %s: C %" PRId64 " x %" PRId64 ", k %" PRId64 ", %s to %s%s%s\n", r->form,
           p->m, p->n, p->k, ordo_dtype_name(p->dtype), ordo_dtype_name(p->c_dtype),
           p->bias ? ", bias" : "", p->add ? ", added" : "");
    printf("device      %s\n", ordo_backend_name(r->gemm.backend));
    printf("key         %s\n", r->info.numeric_key);
    printf("digest of c %016" PRIx64 "\n", r->digest);
    if (r->verified)
        printf("verified    %" PRId64 " elements of %" PRId64
               " products of rows and columns alone, in batches and in other places: %s\n",
               r->verdict.elements, r->verdict.products,
               r->verdict.differs ? "they differ" : "equal bits");
    if (r->timed)
        printf("time        %.4g ms, %.4g TFLOP/s\n", r->seconds * 1e3,
               2e-12 * (double)p->m * (double)p->n * (double)p->k / r->seconds);
}

static void fields(cli_json *json, const void *what)
{
    const report *r = what;
    const ordo_gemm_problem *p = &r->gemm.problem;
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, r->digest);
    cli_json_text(json, "device", ordo_backend_name(r->gemm.backend));
    cli_json_text(json, "form", r->form);
    cli_json_int(json, "m", p->m);
    cli_json_int(json, "n", p->n);
    cli_json_int(json, "k", p->k);
    cli_json_text(json, "dtype", ordo_dtype_name(p->dtype));
    cli_json_text(json, "c_dtype", ordo_dtype_name(p->c_dtype));
    cli_json_bool(json, "bias", p->bias);
    cli_json_bool(json, "add", p->add);
    cli_json_uint(json, "seed", r->gemm.seed);
    cli_json_text(json, "numeric_key", r->info.numeric_key);
    cli_json_text(json, "digest_c", digest);
    if (r->verified) {
        cli_json_bool(json, "equal", !r->verdict.differs);
        cli_json_int(json, "products_compared", r->verdict.products);
        cli_json_int(json, "elements_compared", r->verdict.elements);
    }
    if (r->timed)
        cli_json_real(json, "ms", r->seconds * 1e3);
}

static uint64_t digest_of(const cli_gemm_result *result)
{
    cli_digest digest = cli_digest_start();
    cli_digest_add(&digest, result->data, (size_t)(result->m * result->n * result->width));
    return cli_digest_value(&digest);
}

static int query(report *to)
{
    ordo_gemm_plan *plan = NULL;
    to->info = (ordo_gemm_info)ORDO_GEMM_INFO_INIT;
    ordo_status status = ordo_gemm_plan_create(&plan, &to->gemm.problem, to->gemm.backend);
    if (status == ORDO_OK)
        status = ordo_gemm_plan_query(plan, &to->info);
    ordo_gemm_plan_destroy(plan);
    return cli_library(status);
}

static int run(const request *r)
{
    report found = { .verified = r->verify, .timed = r->seconds > 0, .seconds = r->seconds };
    cli_gemm_result whole = { 0 };
    const cli_gemm_lines rows = { r->m, NULL }, columns = { r->n, NULL };
    describe(r, &found);
    CLI_TRY(query(&found));
    CLI_TRY(check_size(r));
    CLI_TRY(check_device(r));
    int status =
        cli_gemm_execute(&found.gemm, rows, columns, &whole, found.timed ? &found.seconds : NULL);
    if (status == CLI_OK)
        found.digest = digest_of(&whole);
    if (status == CLI_OK && r->verify)
        status = cli_gemm_verify(&found.gemm, &whole, &found.verdict);
    free(whole.data);
    CLI_TRY(status);
    if (r->json.on)
        CLI_TRY(cli_report_json(&r->json, "gemm", fields, &found));
    if (!cli_json_on_stdout(&r->json))
        text(&found);
    if (found.verdict.differs)
        return cli_error(CLI_DIFFERENT,
                         "row %" PRId64 ", column %" PRId64 ": other bits among %" PRId64 " rows",
                         found.verdict.row, found.verdict.column, found.verdict.among);
    return CLI_OK;
}

int cli_gemm(int argc, char **argv)
{
    request r = { .m = -1, .n = -1, .k = -1 };
    cli_option product[] = {
        OPT_INT("--m", "N", &r.m, 0, LONGEST, "rows of A and C"),
        OPT_INT("--n", "N", &r.n, 0, LONGEST, "columns of B and C"),
        OPT_INT("--k", "N", &r.k, 0, LONGEST, "columns of A, rows of B"),
        OPT_CHOICE("--form", "forward|dx|dw", &r.form,
                   "as a linear layer stores them: x w^T (default), dy w, or dy^T x"),
        OPT_CHOICE("--dtype", "bf16|f16|f32|e4m3", &r.dtype,
                   "of A and B (default bf16); f32: cpu alone, e4m3: the others"),
        OPT_CHOICE("--out", "same|f32|bf16|f16", &r.out,
                   "type of C (default as A and B; of e4m3 bf16)"),
        OPT_FLAG("--bias", &r.bias, "add a row to every row"),
        OPT_FLAG("--add", &r.add, "add to what C holds; with --out f32"),
        OPT_INT("--sections", "N", &r.sections, 1, 8, "parts of k: 1 (default), 2, 4 or 8"),
        OPT_U64("--seed", "N", &r.seed, "of the inputs (default 0)"),
    };
    cli_option more[] = {
        OPT_CHOICE("--device", "cpu|cuda|emulator", &r.device, "where to run (default cpu)"),
        OPT_INT("--threads", "N", &r.threads, 1, 1024,
                "cpu, emulator (default as many as allowed)"),
        OPT_FLAG("--verify", &r.verify, "compare rows alone, in batches and in other places"),
        OPT_ABOVE("--time", "S", &r.seconds, "take the time of a product, for about S seconds"),
        OPT_FLAG("--force", &r.force, "run however long it takes"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = { CLI_SECTION("The product", product),
                                     CLI_SECTION("The run", more) };
    const cli_syntax syntax = {
        "gemm --m N --n N --k N [OPTIONS]",
        "Multiply two matrices of seeded numbers; print the numeric key and an XXH64 digest of "
        "the\n"
        "result. With --verify, rows are computed again alone, in drawn batches and in other "
        "places,\n"
        "and columns likewise; if a bit differs, the exit status is 1.",
        sections, 2,
        "  ordo gemm --m 64 --n 96 --k 256 --verify\n"
        "  ordo gemm --m 100 --n 48 --k 512 --form dw --out f32 --add --sections 8\n"
        "  ordo gemm --m 16 --n 32 --k 64 --dtype f16 --bias --device emulator --json\n"
    };
    int status = CLI_OK;
    if (!cli_args_read(&syntax, argc, argv, &status))
        return status;
    if (r.m < 0 || r.n < 0 || r.k < 0)
        return cli_usage("--%s: missing; expected a number", r.m < 0 ? "m" : r.n < 0 ? "n" : "k");
    if (r.seconds > 3600)
        return cli_usage("--time %g: expected more than 0, and 3600 at most", r.seconds);
    return run(&r);
}
