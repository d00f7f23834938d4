/* model_kernel.c: `ordo model kernel` and `ordo model constants`. */
#include "cli/model.h"

#include <string.h>

enum { GEMM, ATTENTION, ATTENTION_BACKWARD, RNG, MEMORY, LONGEST = 1 << 28 };

typedef struct request {
    cli_model_args model;
    int kernel; /* -1: not given */
    int precision, generator, keep;
    int64_t m, n, k;
    int64_t batch, heads, kv_heads, seq, kv_seq, head_dim, rounds, bits;
    bool causal;
    double utilization, read_bytes, write_bytes;
    ordo_kernel_time time;
    double flop;
} request;

static const char *const kernels[] = { "gemm", "attention", "attention-backward", "rng", "memory" };

static ordo_status price_gemm(request *r)
{
    ordo_gemm g = ORDO_GEMM_INIT;
    g.precision = (ordo_precision)r->precision;
    g.m = r->m;
    g.n = r->n;
    g.k = r->k;
    r->flop = 2 * (double)r->m * (double)r->n * (double)r->k;
    return ordo_model_gemm(r->model.model, &g, &r->time);
}

static ordo_status price_attention(request *r)
{
    ordo_attention_shape s = ORDO_ATTENTION_SHAPE_INIT;
    s.precision = (ordo_precision)r->precision;
    s.batch = r->batch;
    s.heads = r->heads;
    s.kv_heads = r->kv_heads;
    s.q_len = r->seq;
    s.kv_len = r->kv_seq;
    s.head_dim = r->head_dim;
    s.causal = r->causal;
    s.backward = r->kernel == ATTENTION_BACKWARD;
    s.keep = (ordo_keep_source)r->keep;
    s.rng = (ordo_rng) { (int)r->rounds, (int)r->bits, (ordo_generator)r->generator };
    s.utilization = r->utilization;
    const double columns = (double)(r->kv_seq ? r->kv_seq : r->seq);
    r->flop = (s.backward ? 10.0 : 4.0) * (double)r->batch * (double)r->heads * (double)r->seq *
              columns * (double)r->head_dim * (r->causal ? 0.5 : 1);
    return ordo_model_attention(r->model.model, &s, &r->time);
}

static ordo_status price_rng(request *r)
{
    const ordo_rng rng = { (int)r->rounds, (int)r->bits, (ordo_generator)r->generator };
    const double columns = (double)(r->kv_seq ? r->kv_seq : r->seq);
    return ordo_model_rng(r->model.model, &rng,
                          (double)r->batch * (double)r->heads * (double)r->seq * columns, &r->time);
}

/* The options of each kernel, each followed by a space. */
#define BITS  "--batch --heads --seq --kv-seq --rounds --bits --generator "
#define SHAPE BITS "--precision --kv-heads --head-dim --causal --keep "
static const char *const takes[] = {
    [GEMM] = "--kernel --precision --m --n --k ",
    [ATTENTION] = "--kernel " SHAPE,
    [ATTENTION_BACKWARD] = "--kernel --utilization " SHAPE,
    [RNG] = "--kernel " BITS,
    [MEMORY] = "--kernel --read --write ",
};

/* Options of other kernels would be ignored. */
static int check_options(const request *r, const cli_section *section)
{
    for (size_t i = 0; i < section->count; i++) {
        const char *name = section->options[i].name;
        char word[32];
        snprintf(word, sizeof word, "%s ", name);
        if (section->options[i].used && !strstr(takes[r->kernel], word))
            return cli_usage("%s: does not go with --kernel %s", name, kernels[r->kernel]);
    }
    return CLI_OK;
}

static int check(const request *r, const cli_section *section)
{
    if (r->kernel < 0)
        return cli_usage("--kernel: expected gemm, attention, attention-backward, rng or memory");
    CLI_TRY(check_options(r, section));
    if (r->kernel == GEMM && (r->m == 0 || r->n == 0 || r->k == 0))
        return cli_usage("--kernel gemm: expected --m, --n and --k");
    if (r->kernel > GEMM && r->kernel < MEMORY && r->seq == 0)
        return cli_usage("--kernel %s: expected --seq", kernels[r->kernel]);
    if (r->read_bytes < 0 || r->write_bytes < 0)
        return cli_usage("--%s %g: expected 0 or more bytes", r->read_bytes < 0 ? "read" : "write",
                         r->read_bytes < 0 ? r->read_bytes : r->write_bytes);
    if (r->kernel == MEMORY && !(r->read_bytes + r->write_bytes > 0))
        return cli_usage("--kernel memory: expected --read or --write");
    return CLI_OK;
}

static int price(request *r)
{
    return cli_library(r->kernel == GEMM     ? price_gemm(r)
                       : r->kernel == RNG    ? price_rng(r)
                       : r->kernel == MEMORY ? ordo_model_memory(r->model.model, r->read_bytes,
                                                                 r->write_bytes, &r->time)
                                             : price_attention(r));
}

static void print_kernel(const void *what)
{
    const request *r = what;
    printf("%s on %s, %s calibration: %.4f ms, bound by %s", kernels[r->kernel],
           ordo_machine_title(r->model.machine),
           ordo_calibration_name((ordo_calibration)r->model.calibration), r->time.seconds * 1e3,
           ordo_limiter_name(r->time.limiter));
    if (r->flop > 0)
        printf(" (%.1f TFLOP/s)", r->flop / r->time.seconds * 1e-12);
    puts("\n");
    for (int i = 0; i < ORDO_LIMITERS; i++)
        if (r->time.by[i] > 0) {
            const double share = r->time.by[i] / r->time.seconds;
            printf("  %-9s %11.4f ms  ", ordo_limiter_name((ordo_limiter)i), r->time.by[i] * 1e3);
            for (int bar = 0; bar < (int)(40 * (share < 1 ? share : 1) + 0.5); bar++)
                putchar('#');
            puts("");
        }
}

static void kernel_json(cli_json *json, const void *what)
{
    const request *r = what;
    cli_json_text(json, "kernel", kernels[r->kernel]);
    cli_json_real(json, "ms", r->time.seconds * 1e3);
    cli_json_text(json, "limiter", ordo_limiter_name(r->time.limiter));
    if (r->flop > 0)
        cli_json_real(json, "flop", r->flop);
    cli_limiters_json(json, "limiters", &r->time);
}

int cli_model_kernel(int argc, char **argv)
{
    request r = { .kernel = -1, .batch = 1, .heads = 1, .head_dim = 128, .rounds = 7, .bits = 8 };
    cli_option options[] = {
        OPT_CHOICE("--kernel", "gemm|attention|attention-backward|rng|memory", &r.kernel,
                   "what to price"),
        OPT_CHOICE("--precision", "bf16|fp8|f16|f32", &r.precision, "precision (default bf16)"),
        OPT_INT("--m", "N", &r.m, 1, LONGEST, "gemm: rows of the result"),
        OPT_INT("--n", "N", &r.n, 1, LONGEST, "gemm: columns of the result"),
        OPT_INT("--k", "N", &r.k, 1, LONGEST, "gemm: depth"),
        OPT_INT("--batch", "N", &r.batch, 1, 1 << 24, "sequences (default 1)"),
        OPT_INT("--heads", "N", &r.heads, 1, 1 << 24, "query heads (default 1)"),
        OPT_INT("--kv-heads", "N", &r.kv_heads, 1, 1 << 24, "key heads (default --heads)"),
        OPT_INT("--seq", "N", &r.seq, 1, LONGEST, "query rows"),
        OPT_INT("--kv-seq", "N", &r.kv_seq, 1, LONGEST, "key rows (default --seq)"),
        OPT_INT("--head-dim", "N", &r.head_dim, 1, 1 << 16, "head size (default 128)"),
        OPT_FLAG("--causal", &r.causal, "causal mask"),
        OPT_CHOICE("--keep", "none|given|made", &r.keep,
                   "attention: keep bits read from memory, or made inside (default none)"),
        OPT_INT("--rounds", "N", &r.rounds, 1, 10, "Philox rounds (default 7)"),
        OPT_INT("--bits", "N", &r.bits, 1, 32, "random bits per element (default 8)"),
        OPT_CHOICE("--generator", "sliced|swar|compare|sliced-any", &r.generator,
                   "how keep bits follow from random bits (default sliced)"),
        OPT_ABOVE("--utilization", "X", &r.utilization,
                  "attention-backward: busy share of the workers under its order"),
        OPT_REAL("--read", "BYTES", &r.read_bytes, "memory: bytes read"),
        OPT_REAL("--write", "BYTES", &r.write_bytes, "memory: bytes written"),
    };
    const cli_section sections[] = { CLI_SECTION("Kernel", options), cli_model_section(&r.model) };
    const cli_syntax syntax = {
        "model kernel --kernel KIND [OPTIONS]",
        "Price one kernel: the time each limiter would take alone, and the one that binds.",
        sections, 2,
        "  ordo model kernel --kernel gemm --precision fp8 --m 8k --n 12k --k 4k\n"
        "  ordo model kernel --kernel attention-backward --heads 16 --seq 8k --causal --json\n"
        "  ordo model kernel --kernel rng --heads 32 --seq 8k --bits 4\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        status = check(&r, &sections[0]);
        if (status == CLI_OK)
            status =
                cli_model_finish(&r.model, r.bits == 32 && r.generator == ORDO_GENERATOR_COMPARE);
        if (status == CLI_OK)
            status = price(&r);
        if (status == CLI_OK)
            status = cli_model_show(&r.model, "kernel", print_kernel, kernel_json, &r);
    }
    cli_model_free(&r.model);
    return status;
}

/* ---- constants ---- */

static void print_constants(const void *what)
{
    const cli_model_args *a = what;
    ordo_model_constant c;
    for (size_t i = 0; ordo_model_constant_at(a->model, i, &c) == ORDO_OK; i++)
        printf("%-22s %14.6g %-9s %-9s %s\n%47s%s\n", c.name, c.value, c.unit, c.kind, c.about, "",
               c.changed ? "set on the command line" : c.source);
    puts("\ninstructions per lane and element; bytes of shared memory per element, and per head "
         "column");
    printf("  %-20s %7s %6s %6s %6s %6s %8s %5s %6s %7s %7s  %s\n", "kernel", "issue", "alu", "fma",
           "imad", "wide", "uniform", "mufu", "rf", "shared", "column", "kind");
    for (size_t i = 0; i < ordo_kernel_counts_count(); i++) {
        const ordo_kernel_counts *k = ordo_kernel_counts_at(i);
        printf(
            "  %-20s %7.2f %6.2f %6.2f %6.2f %6.2f %8.3f %5.2f %6.2f %7.3f %7.4f  %s\n      %s\n",
            k->name, k->issue, k->alu, k->fma, k->imad, k->imad_wide, k->uniform, k->mufu,
            k->rf_reads, k->shared, k->shared_dim, k->kind, k->source);
    }
}

static void counts_json(cli_json *json, const ordo_kernel_counts *k)
{
    cli_json_object(json, NULL);
    cli_json_text(json, "name", k->name);
    cli_json_real(json, "issue", k->issue);
    cli_json_real(json, "alu", k->alu);
    cli_json_real(json, "fma", k->fma);
    cli_json_real(json, "imad", k->imad);
    cli_json_real(json, "imad_wide", k->imad_wide);
    cli_json_real(json, "uniform", k->uniform);
    cli_json_real(json, "mufu", k->mufu);
    cli_json_real(json, "rf_reads", k->rf_reads);
    cli_json_real(json, "shared", k->shared);
    cli_json_real(json, "shared_dim", k->shared_dim);
    cli_json_text(json, "kind", k->kind);
    cli_json_text(json, "source", k->source);
    cli_json_end_object(json);
}

static void constants_json(cli_json *json, const void *what)
{
    const cli_model_args *a = what;
    ordo_model_constant c;
    cli_json_array(json, "constants");
    for (size_t i = 0; ordo_model_constant_at(a->model, i, &c) == ORDO_OK; i++) {
        cli_json_object(json, NULL);
        cli_json_text(json, "name", c.name);
        cli_json_real(json, "value", c.value);
        cli_json_text(json, "unit", c.unit);
        cli_json_text(json, "kind", c.kind);
        cli_json_text(json, "source", c.source);
        cli_json_text(json, "about", c.about);
        cli_json_bool(json, "changed", c.changed);
        cli_json_end_object(json);
    }
    cli_json_end_array(json);
    cli_json_array(json, "kernels");
    for (size_t i = 0; i < ordo_kernel_counts_count(); i++)
        counts_json(json, ordo_kernel_counts_at(i));
    cli_json_end_array(json);
}

int cli_model_constants(int argc, char **argv)
{
    cli_model_args args = { 0 };
    const cli_section sections[] = { cli_model_section(&args) };
    const cli_syntax syntax = {
        "model constants [OPTIONS]",
        "Every number the model uses under a calibration: value, unit, kind, source.", sections, 1,
        "  ordo model constants --machine h200\n"
        "  ordo model constants --machine h100 --calibration paper --json\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status)) {
        status = cli_model_finish(&args, false);
        if (status == CLI_OK)
            status = cli_model_show(&args, "constants", print_constants, constants_json, &args);
    }
    cli_model_free(&args);
    return status;
}
