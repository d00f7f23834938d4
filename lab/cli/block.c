/* block.c: `ordo block`: run a transformer block in dropout modes, compare digests, take times. */
#define _XOPEN_SOURCE 700
#include "cli/block.h"

#include "cli/lab.h"
#include "kit/device.h"
#include "kit/digest.h"
#include "kit/message.h"
#include "kit/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONGEST = 1 << 24, WIDEST = 1 << 20, ALL_MODES = 5 };

typedef struct request {
    int device, precision, gemm, mode, beside, backward_bits, generator, placement;
    int64_t seq, embed, heads, kv_heads, batch, mlp, segments, rounds, bits, threads, sm_target;
    bool gated, bare, causal, backward, check, force, small_tiles, interference, trace;
    double dropout, seconds;
    uint64_t seed, offset, keep_bits_memory;
    bool limit_keep_bits;
    cli_json_target json;
} request;

/* In the order of --dropout-mode; the last runs with `all` only. */
static const ordo_block_mode mode_of[ORDO_BLOCK_MODES] = {
    ORDO_BLOCK_NONE,       ORDO_BLOCK_FUSED,     ORDO_BLOCK_SEQUENTIAL,
    ORDO_BLOCK_OVERLAPPED, ORDO_BLOCK_PIPELINED, ORDO_BLOCK_OVERLAPPED_QKV
};

/* ---- the job ---- */

static int check_request(request *r)
{
    const struct {
        const char *name;
        int64_t value;
    } needed[] = { { "--seq", r->seq }, { "--embed", r->embed }, { "--heads", r->heads } };
    for (int i = 0; i < 3; i++)
        if (needed[i].value == 0)
            return cli_usage("%s: missing; expected a number", needed[i].name);
    if (r->seconds > 3600)
        return cli_usage("--time %g: expected more than 0, and 3600 at most", r->seconds);
    if (r->gemm < 0)
        r->gemm = r->precision == 1 || r->sm_target > 0 || r->small_tiles;
    if (r->mode < 0)
        r->mode = r->dropout == 0 ? 0 : ALL_MODES;
    if (r->mode != 0 && r->dropout == 0)
        return cli_usage("--dropout: missing or 0; expected a probability for --dropout-mode %s",
                         r->mode == ALL_MODES ? "all" : ordo_block_mode_name(mode_of[r->mode]));
    return CLI_OK;
}

/* Bits of experiments are made inside by the cpu, and by few kernels. */
static bool can_fuse(const request *r)
{
    const bool compare = r->generator != 0;
    const bool experiment = compare || (r->rounds > 0 && r->rounds < 7);
    return !experiment || r->device == 0 ||
           (r->embed == 128 * r->heads && (compare || r->bits == 0 || r->bits == 8));
}

static unsigned modes_of(const request *r)
{
    unsigned modes = 0;
    if (r->mode < ALL_MODES)
        modes |= 1u << mode_of[r->mode];
    if (r->mode == ALL_MODES)
        modes |= 1u << ORDO_BLOCK_NONE;
    if (r->mode == ALL_MODES && r->beside != 0) /* else it is overlapped itself */
        modes |= 1u << ORDO_BLOCK_OVERLAPPED_QKV;
    if (r->mode == ALL_MODES || (r->check && r->dropout > 0)) {
        modes |= 1u << ORDO_BLOCK_SEQUENTIAL | 1u << ORDO_BLOCK_OVERLAPPED;
        modes |=
            r->generator == 0 && r->gemm == 0 && r->placement == 0 ? 1u << ORDO_BLOCK_PIPELINED : 0;
        modes |= can_fuse(r) ? 1u << ORDO_BLOCK_FUSED : 0;
    }
    return modes;
}

static ordo_block_job job_of(const request *r)
{
    static const ordo_precision precisions[] = { ORDO_PRECISION_BF16, ORDO_PRECISION_FP8,
                                                 ORDO_PRECISION_F32 };
    ordo_block_job job = ORDO_BLOCK_JOB_INIT;
    job.backend = r->device == 0 ? ORDO_BACKEND_CPU : ORDO_BACKEND_CUDA;
    job.precision = precisions[r->precision];
    job.batch = r->batch;
    job.seq = r->seq;
    job.embed = r->embed;
    job.heads = r->heads;
    job.kv_heads = r->kv_heads;
    job.mlp = r->mlp;
    job.gated = r->gated;
    job.bare = r->bare;
    job.causal = r->causal;
    job.backward = r->backward;
    job.dropout = r->dropout;
    job.rounds = (int)r->rounds;
    job.bits = (int)r->bits;
    job.generator = r->generator == 0 ? ORDO_GENERATOR_SLICED : ORDO_GENERATOR_COMPARE;
    job.seed = r->seed;
    job.offset = r->offset;
    job.modes = modes_of(r);
    job.beside = (ordo_block_beside)(r->beside + 1);
    job.regenerate = r->backward_bits == 1;
    job.limit_keep_bits = r->limit_keep_bits;
    job.keep_bits_bytes = r->keep_bits_memory;
    job.segments = r->segments;
    job.threads = (int)r->threads;
    job.sm_target = (int)r->sm_target;
    job.small_tiles = r->small_tiles;
    job.placement = (ordo_block_placement)r->placement;
    job.gemm = r->gemm == 1 ? ORDO_BLOCK_GEMM_CUBLASLT : ORDO_BLOCK_GEMM_ORDO;
    return job;
}

/* What would take hours or all the memory is refused before anything is allocated. */
static int check_size(const request *r)
{
    const double rows = (double)r->batch * (double)r->seq, embed = (double)r->embed;
    const double mlp = r->mlp ? (double)r->mlp : 4 * embed, up = (r->gated ? 2 : 1) * mlp;
    const double weights = embed * (4 * embed + mlp + up);
    const double passes = 2 * ORDO_BLOCK_MODES * (r->backward ? 3 : 1);
    const double flops = passes * (2 * rows * weights + 4 * rows * (double)r->seq * embed);
    const double most = r->device == 0 ? 2e13 : 5e17;
    const double bytes = (r->precision == 2 ? 4 : 2) * (r->backward ? 2 : 1) *
                         (weights + rows * (8 * embed + mlp + 2 * up));
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    if (r->device == 0 && bytes > 0.8 * memory)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.3g GB of tensors, and this machine has %.3g GB of memory",
                         bytes / 1e9, memory / 1e9);
    if (flops > most && !r->force)
        return cli_error(CLI_UNSUPPORTED,
                         "about %.2g floating-point operations, more than the %.2g that %s does in "
                         "a few minutes; --force runs it anyway",
                         flops, most, r->device == 0 ? "cpu" : "cuda");
    return CLI_OK;
}

/* ---- running ---- */

static int add_tensor(ordo_block_runner *runner, ordo_block_tensor tensor, cli_digest *digest)
{
    ordo_block_extent extent;
    CLI_TRY(cli_library(ordo_block_extent_of(runner, tensor, &extent)));
    if (extent.rows == 0)
        return CLI_OK;
    void *data = malloc(extent.bytes);
    if (data == NULL)
        return cli_out_of_memory();
    const ordo_status status = ordo_block_read(runner, tensor, data, extent.bytes);
    if (status == ORDO_OK)
        cli_digest_add(digest, data, extent.bytes);
    free(data);
    return cli_library(status);
}

/* The digest of tensors first .. last, one after the other. */
static int digest_tensors(ordo_block_runner *runner, ordo_block_tensor first,
                          ordo_block_tensor last, uint64_t *value)
{
    cli_digest digest = cli_digest_start();
    for (int i = first; i <= (int)last; i++)
        CLI_TRY(add_tensor(runner, (ordo_block_tensor)i, &digest));
    *value = cli_digest_value(&digest);
    return CLI_OK;
}

static int run_once(ordo_block_runner *runner, const request *r, cli_block_result *result)
{
    ordo_status status = ordo_block_forward(runner, result->mode);
    if (status == ORDO_OK && r->backward)
        status = ordo_block_backward(runner);
    CLI_TRY(cli_library(status));
    CLI_TRY(digest_tensors(runner, ORDO_BLOCK_Y, ORDO_BLOCK_Y, &result->o));
    if (!r->backward)
        return CLI_OK;
    CLI_TRY(digest_tensors(runner, ORDO_BLOCK_DX, ORDO_BLOCK_DX, &result->dx));
    return digest_tensors(runner, ORDO_BLOCK_DG1, ORDO_BLOCK_DWDOWN, &result->dw);
}

static bool same(const cli_block_result *a, const cli_block_result *b)
{
    return a->o == b->o && a->dx == b->dx && a->dw == b->dw;
}

/* Twice: bits that overlap with the pass before are first used by the second run. */
static int run_mode(ordo_block_runner *runner, const request *r, cli_block_result *result)
{
    cli_block_result again = *result;
    cli_progress_start(ordo_block_mode_name(result->mode));
    int status = run_once(runner, r, result);
    if (status == CLI_OK)
        status = run_once(runner, r, &again);
    cli_progress_stop();
    result->repeats = same(result, &again);
    return status;
}

static int time_modes(ordo_block_runner *runner, const request *r, cli_block_report *report)
{
    ordo_block_mode modes[ORDO_BLOCK_MODES];
    ordo_block_time times[ORDO_BLOCK_MODES];
    for (int i = 0; i < report->count; i++)
        modes[i] = report->modes[i].mode;
    if (r->seconds == 0)
        return CLI_OK;
    cli_progress_start("times");
    const ordo_status status = ordo_block_measure(runner, modes, report->count, r->seconds, times);
    cli_progress_stop();
    for (int i = 0; i < report->count && status == ORDO_OK; i++) {
        report->modes[i].timed = true;
        report->modes[i].time = times[i];
    }
    return cli_library(status);
}

static int run_modes(ordo_block_runner *runner, const request *r, cli_block_report *report)
{
    const cli_block_result *first = NULL; /* that drops */
    report->equal = true;
    for (int i = 0; i < ORDO_BLOCK_MODES; i++) {
        cli_block_result *result = &report->modes[report->count];
        if (!(report->job.modes >> mode_of[i] & 1))
            continue;
        *result = (cli_block_result) { .mode = mode_of[i] };
        CLI_TRY(run_mode(runner, r, result));
        report->count++;
        if (result->mode == ORDO_BLOCK_NONE)
            continue;
        report->compared |= first != NULL;
        first = first ? first : result;
        report->equal &= same(first, result);
    }
    return time_modes(runner, r, report);
}

static int measure_beside(ordo_block_runner *runner, const request *r, cli_block_report *report)
{
    const double seconds = r->seconds > 0 ? r->seconds : 2;
    if (r->interference)
        CLI_TRY(cli_library(ordo_block_interfere(runner, seconds, &report->interference)));
    report->has_interference = r->interference;
    if (r->trace)
        CLI_TRY(cli_library(ordo_block_trace_run(runner, &report->trace)));
    report->has_trace = r->trace;
    return CLI_OK;
}

static int judge(const cli_block_report *report)
{
    for (int i = 0; i < report->count; i++)
        if (!report->modes[i].repeats)
            return cli_error(CLI_DIFFERENT, "dropout mode %s: a second run has other digests",
                             ordo_block_mode_name(report->modes[i].mode));
    if (report->has_trace && !report->trace.same_words)
        return cli_error(CLI_DIFFERENT, "the kernel of the trace made other keep bits");
    if (!report->equal)
        return cli_error(CLI_DIFFERENT, "the digests depend on the dropout mode");
    return CLI_OK;
}

static int run_request(request *r)
{
    ordo_block_runner *runner = NULL;
    CLI_TRY(check_request(r));
    CLI_TRY(check_size(r));
    cli_block_report report = { .job = job_of(r) };
    if (r->device == 1) {
        const char *why = NULL;
        if (!ordo_backend_available(ORDO_BACKEND_CUDA, &why))
            return cli_error(CLI_UNSUPPORTED, "%s", why);
        CLI_TRY(cli_library(ordo_device_select(cli_device_find())));
    }
    int status = cli_library(ordo_block_runner_create(&runner, &report.job));
    if (status == CLI_OK)
        status = cli_library(ordo_block_query(runner, &report.info));
    if (status == CLI_OK)
        status = run_modes(runner, r, &report);
    if (status == CLI_OK)
        status = measure_beside(runner, r, &report);
    ordo_block_runner_destroy(runner);
    if (status == CLI_OK)
        status = cli_block_show(&r->json, &report);
    return status == CLI_OK ? judge(&report) : status;
}

/* ---- the command ---- */

int cli_block(int argc, char **argv)
{
    request r = { .gemm = -1, .mode = -1, .beside = -1, .batch = 1 };
    cli_option shape[] = {
        OPT_INT("--seq", "N", &r.seq, 1, LONGEST, "rows per sequence"),
        OPT_INT("--embed", "N", &r.embed, 1, WIDEST, "width of the model"),
        OPT_INT("--heads", "N", &r.heads, 1, WIDEST, "query heads; must divide the width"),
        OPT_INT("--kv-heads", "N", &r.kv_heads, 1, WIDEST, "key heads (default as many as heads)"),
        OPT_INT("--batch", "N", &r.batch, 1, 1 << 16, "sequences (default 1)"),
        OPT_INT("--mlp", "N", &r.mlp, 1, 4 * WIDEST, "hidden width (default 4 * embed)"),
        OPT_FLAG("--gated", &r.gated, "silu(u1) * u2 instead of gelu(u)"),
        OPT_FLAG("--bare", &r.bare, "without norms and residuals"),
        OPT_FLAG("--causal", &r.causal, "causal mask"),
        OPT_CHOICE("--precision", "bf16|fp8|f32", &r.precision,
                   "of the products (default bf16); cuda: fp8 (attention bf16), cpu: f32"),
    };
    cli_option dropout[] = {
        OPT_REAL("--dropout", "P", &r.dropout, "probability of dropping (default 0)"),
        OPT_CHOICE("--dropout-mode", "none|fused|sequential|overlapped|pipelined|all", &r.mode,
                   "how keep bits are made (default all)"),
        OPT_CHOICE("--overlap", "qkv|out|up|down|mlp|all", &r.beside,
                   "overlapped: beside which products (default all)"),
        OPT_CHOICE("--placement", "stream|beside", &r.placement,
                   "overlapped: on a second stream (default), or beside products"),
        OPT_CHOICE("--backward-bits", "keep|regenerate", &r.backward_bits,
                   "read the forward bits (default), or make them again"),
        OPT_INT("--segments", "N", &r.segments, 1, LONGEST, "segments of rows, of mode pipelined"),
        OPT_U64("--keep-bits-memory", "BYTES", &r.keep_bits_memory, "most memory for keep bits"),
        OPT_INT("--rounds", "N", &r.rounds, 1, 10, "of Philox: 7 (default), 10; experiments: 3, 5"),
        OPT_INT("--bits", "N", &r.bits, 1, 32, "random bits per element (default 8)"),
        OPT_CHOICE("--generator", "sliced|compare", &r.generator,
                   "ordo's own (default), or 32 bits compared one by one"),
        OPT_U64("--seed", "N", &r.seed, "of inputs, weights and keep bits (default 0)"),
        OPT_U64("--offset", "N", &r.offset, "of keep bits (default 0)"),
    };
    cli_option more[] = {
        OPT_CHOICE("--device", "cpu|cuda", &r.device, "where to run (default cpu)"),
        OPT_FLAG("--backward", &r.backward, "run the backward pass too"),
        OPT_FLAG("--check", &r.check, "run every mode and compare, though one is named"),
        OPT_ABOVE("--time", "S", &r.seconds, "take times: S seconds or more per mode, alternately"),
        OPT_FLAG("--interference", &r.interference,
                 "cuda: a product and the making of keep bits beside each other"),
        OPT_FLAG("--trace", &r.trace, "cuda: when both ran, by the clock of the device"),
        OPT_INT("--threads", "N", &r.threads, 1, 1024, "cpu (default as many as allowed)"),
        OPT_CHOICE("--gemm", "ordo|cublaslt", &r.gemm,
                   "cuda: whose products (default ordo; fp8 and the next two: cublaslt)"),
        OPT_INT("--sm-target", "N", &r.sm_target, 1, 1 << 16,
                "cuda: SMs that a product of cublaslt may use"),
        OPT_FLAG("--small-tiles", &r.small_tiles, "cuda: cublaslt with the smallest tiles"),
        OPT_FLAG("--force", &r.force, "run however long it takes"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = { CLI_SECTION("Block", shape), CLI_SECTION("Dropout", dropout),
                                     CLI_SECTION("The run", more) };
    const cli_syntax syntax = {
        "block --seq N --embed N --heads N [OPTIONS]",
        "Run a transformer block on seeded inputs: QKV projection, attention, output projection "
        "and\n"
        "MLP, with norms and residuals. Prints XXH64 digests of the output, of dx, and of all "
        "weight\n"
        "gradients. Every dropout mode runs twice; if digests differ, the exit status is 1.",
        sections, 3,
        "  ordo block --seq 64 --embed 64 --heads 4 --causal --backward --dropout 0.1\n"
        "  ordo block --seq 100 --embed 48 --heads 6 --kv-heads 2 --mlp 96 --gated --precision "
        "f32\n"
        "  ordo block --seq 64 --embed 64 --heads 4 --dropout 0.1 --dropout-mode overlapped \\\n"
        "      --overlap qkv --check --time 0.1 --json\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        for (size_t i = 0; r.dropout == 0 && i < sizeof dropout / sizeof dropout[0]; i++)
            if (dropout[i].used && dropout[i].target != &r.dropout &&
                dropout[i].target != &r.mode && dropout[i].target != &r.seed)
                return cli_usage("%s: expected only with --dropout above 0", dropout[i].name);
        r.limit_keep_bits = cli_args_used(&syntax, "--keep-bits-memory");
        status = run_request(&r);
    }
    return status;
}
