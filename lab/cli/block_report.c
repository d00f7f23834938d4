/* block_report.c: prints the results of ordo block. */
#include "cli/block.h"

#include "kit/message.h"

#include <inttypes.h>
#include <stdio.h>

static const char *precision_name(ordo_precision precision)
{
    return precision == ORDO_PRECISION_FP8   ? "fp8"
           : precision == ORDO_PRECISION_F32 ? "f32"
                                             : "bf16";
}

static const char *gemm_name(const ordo_block_job *job)
{
    return job->gemm == ORDO_BLOCK_GEMM_CUBLASLT ? "cublaslt" : "ordo";
}

static const char *generator_name(const ordo_block_job *job)
{
    return job->generator == ORDO_GENERATOR_COMPARE ? "compare" : "sliced";
}

/* The digests that stand for the block: of a mode that drops, if one ran. */
static const cli_block_result *main_result(const cli_block_report *r)
{
    for (int i = 0; i < r->count; i++)
        if (r->modes[i].mode != ORDO_BLOCK_NONE)
            return &r->modes[i];
    return &r->modes[0];
}

/* ---- JSON ---- */

static void hex_json(cli_json *json, const char *key, uint64_t digest)
{
    char hex[24];
    snprintf(hex, sizeof hex, "%016" PRIx64, digest);
    cli_json_text(json, key, hex);
}

static void digests_json(cli_json *json, const cli_block_report *r, const cli_block_result *m)
{
    hex_json(json, "digest_o", m->o);
    if (r->job.backward) {
        hex_json(json, "digest_dx", m->dx);
        hex_json(json, "digest_dw", m->dw);
    }
}

static void known_json(cli_json *json, const char *key, double value)
{
    if (value >= 0)
        cli_json_real(json, key, value);
    else
        cli_json_null(json, key);
}

static void time_json(cli_json *json, const cli_block_report *r, const ordo_block_time *t)
{
    cli_json_real(json, "ms", t->seconds * 1e3);
    cli_json_real(json, "fastest_ms", t->fastest * 1e3);
    cli_json_real(json, "slowest_ms", t->slowest * 1e3);
    cli_json_real(json, "tflops", r->info.flops / t->seconds * 1e-12);
    cli_json_int(json, "samples", t->samples);
    cli_json_int(json, "passes", t->passes);
    known_json(json, "watts", t->watts);
    known_json(json, "clock_ghz", t->clock_ghz);
}

static void modes_json(cli_json *json, const cli_block_report *r)
{
    cli_json_array(json, "modes");
    for (int i = 0; i < r->count; i++) {
        cli_json_object(json, NULL);
        cli_json_text(json, "mode", ordo_block_mode_name(r->modes[i].mode));
        digests_json(json, r, &r->modes[i]);
        cli_json_bool(json, "repeats", r->modes[i].repeats);
        if (r->modes[i].timed)
            time_json(json, r, &r->modes[i].time);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
}

static void shape_json(cli_json *json, const cli_block_report *r)
{
    const ordo_block_job *job = &r->job;
    cli_json_text(json, "device", job->backend == ORDO_BACKEND_CUDA ? "cuda" : "cpu");
    cli_json_text(json, "precision", precision_name(job->precision));
    cli_json_text(json, "gemm", gemm_name(job));
    cli_json_int(json, "batch", job->batch);
    cli_json_int(json, "seq", job->seq);
    cli_json_int(json, "embed", job->embed);
    cli_json_int(json, "heads", job->heads);
    cli_json_int(json, "kv_heads", r->info.kv_heads);
    cli_json_int(json, "head_dim", r->info.head_dim);
    cli_json_int(json, "mlp", r->info.mlp);
    cli_json_bool(json, "gated", job->gated);
    cli_json_bool(json, "bare", job->bare);
    cli_json_bool(json, "causal", job->causal);
    cli_json_bool(json, "backward", job->backward);
    cli_json_real(json, "flops", r->info.flops);
    cli_json_text(json, "numeric_key", r->info.numeric_key);
}

static void fields(cli_json *json, const void *what)
{
    const cli_block_report *r = what;
    const ordo_block_job *job = &r->job;
    shape_json(json, r);
    cli_json_real(json, "dropout", job->dropout);
    cli_json_real(json, "p_used", r->info.p_used);
    cli_json_int(json, "rounds", job->rounds ? job->rounds : 7);
    cli_json_text(json, "generator", generator_name(job));
    cli_json_text(json, "beside", job->dropout > 0 ? ordo_block_beside_name(r->info.beside) : NULL);
    cli_json_text(json, "placement", ordo_block_placement_name(job->placement));
    cli_json_text(json, "backward_bits", job->regenerate ? "regenerate" : "keep");
    cli_json_int(json, "segments", r->info.segments);
    cli_json_uint(json, "keep_bits_bytes", r->info.keep_bits_bytes);
    cli_json_uint(json, "bits_bytes", r->info.bits_bytes);
    cli_json_uint(json, "seed", job->seed);
    cli_json_uint(json, "offset", job->offset);
    digests_json(json, r, main_result(r));
    if (r->compared)
        cli_json_bool(json, "digests_equal", r->equal);
    else
        cli_json_null(json, "digests_equal");
    modes_json(json, r);
    cli_block_beside_json(json, r);
}

/* ---- text ---- */

static void print_time(const cli_block_report *r, const ordo_block_time *t)
{
    printf("  %9.4f ms %8.2f TFLOP/s", t->seconds * 1e3, r->info.flops / t->seconds * 1e-12);
    if (t->watts >= 0)
        printf(" %5.0f W", t->watts);
    if (t->clock_ghz >= 0)
        printf(" %5.2f GHz", t->clock_ghz);
}

static void print_report(const cli_block_report *r)
{
    const ordo_block_job *job = &r->job;
    printf("block      %" PRId64 " x %" PRId64 " x %" PRId64 ", heads %" PRId64 "/%" PRId64
           " x %" PRId64 ", mlp %" PRId64 "%s%s%s\n",
           job->batch, job->seq, job->embed, job->heads, r->info.kv_heads, r->info.head_dim,
           r->info.mlp, job->gated ? " gated" : "", job->bare ? ", bare" : "",
           job->causal ? ", causal" : "");
    printf("device     %s, %s, products of %s, forward%s\n",
           job->backend == ORDO_BACKEND_CUDA ? "cuda" : "cpu",
           job->precision == ORDO_PRECISION_FP8 ? "fp8 products, bf16 attention"
                                                : precision_name(job->precision),
           gemm_name(job), job->backward ? " and backward" : "");
    if (job->dropout > 0)
        printf("dropout    %g (%g), generator %s, %d rounds, %" PRIu64
               " bytes of bits, overlapped beside %s, placement %s\n",
               job->dropout, r->info.p_used, generator_name(job), job->rounds ? job->rounds : 7,
               r->info.bits_bytes, ordo_block_beside_name(r->info.beside),
               ordo_block_placement_name(job->placement));
    if (job->rounds == 3 || job->rounds == 5)
        printf("           %d rounds are an experiment: such keep bits are correlated\n",
               job->rounds);
    printf("\n  %-14s  %-16s", "mode", "o");
    if (job->backward)
        printf("  %-16s  %-16s", "dx", "dw");
    printf("\n");
    for (int i = 0; i < r->count; i++) {
        const cli_block_result *m = &r->modes[i];
        printf("  %-14s  %016" PRIx64, ordo_block_mode_name(m->mode), m->o);
        if (job->backward)
            printf("  %016" PRIx64 "  %016" PRIx64, m->dx, m->dw);
        if (m->timed)
            print_time(r, &m->time);
        printf("\n");
    }
    if (r->compared)
        printf("\n%s\n", r->equal ? "All dropout modes have the same digests."
                                  : "The digests depend on the dropout mode.");
}

int cli_block_show(const cli_json_target *json, const cli_block_report *report)
{
    if (json->on)
        return cli_report_json(json, "block", fields, report);
    print_report(report);
    cli_block_beside_text(report);
    return CLI_OK;
}
