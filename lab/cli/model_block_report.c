/* model_block_report.c: a priced block, for people and as JSON. */
#include "cli/model_block.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *const cli_gemm_names[ORDO_BLOCK_GEMMS] = { "qkv", "out", "up", "down" };

const cli_training_way cli_training_ways[CLI_TRAINING_WAYS] = {
    { "none_ms", "no dropout", offsetof(ordo_training, none) },
    { "sequential_keep_ms", "sequential, keep", offsetof(ordo_training, sequential_kept) },
    { "sequential_regenerate_ms", "sequential, regenerate",
      offsetof(ordo_training, sequential_regenerated) },
    { "fused_ms", "fused", offsetof(ordo_training, fused) },
    { "overlapped_keep_ms", "overlapped, keep", offsetof(ordo_training, overlapped_kept) },
    { "overlapped_regenerate_ms", "overlapped, regenerate",
      offsetof(ordo_training, overlapped_regenerated) },
    { "pipelined_ms", "pipelined, regenerate", offsetof(ordo_training, pipelined) },
};

double cli_training_seconds(const ordo_training *training, int way)
{
    double seconds;
    memcpy(&seconds, (const char *)training + cli_training_ways[way].at, sizeof seconds);
    return seconds;
}

enum { MIB = 1 << 20 };

static ordo_dropout_mode next_best(const ordo_block_report *r)
{
    ordo_dropout_mode next = r->best;
    double least = 0;
    for (int i = 0; i < ORDO_DROPOUT_MODES; i++) {
        const bool whole = i == ORDO_DROPOUT_MODE_SEQUENTIAL || i == ORDO_DROPOUT_MODE_OVERLAPPED;
        if (i == (int)r->best ||
            (whole ? !r->keep_bits_fit : i == ORDO_DROPOUT_MODE_PIPELINED && r->keep_bits_fit))
            continue;
        if (least == 0 || r->mode[i] < least) {
            least = r->mode[i];
            next = (ordo_dropout_mode)i;
        }
    }
    return next;
}

void cli_block_advice(const cli_priced_block *p, char *text, size_t capacity)
{
    const ordo_block_report *r = &p->report;
    const char *best = ordo_dropout_mode_name(r->best);
    const char *next = ordo_dropout_mode_name(next_best(r));
    const double cost = 100 * (r->mode[r->best] / r->none - 1);
    if (r->no_difference)
        snprintf(text, capacity, "%s, no difference to %s; dropout costs %.1f %% of the block",
                 best, next, cost);
    else
        snprintf(text, capacity, "%s, %.1f %% faster than %s; dropout costs %.1f %% of the block",
                 best, 100 * r->margin, next, cost);
}

/* ---- for people ---- */

static void print_kernel(const char *name, const ordo_kernel_time *t)
{
    double second = 0;
    int runner_up = -1;
    for (int i = 0; i < ORDO_LIMITERS; i++)
        if (i != (int)t->limiter && t->by[i] > second) {
            second = t->by[i];
            runner_up = i;
        }
    printf("  %-20s %11.4f ms   %-9s", name, t->seconds * 1e3, ordo_limiter_name(t->limiter));
    if (runner_up >= 0)
        printf("  then %s, %.0f %%", ordo_limiter_name((ordo_limiter)runner_up),
               100 * second / t->by[t->limiter]);
    puts("");
}

static void print_mode(const ordo_block_report *r, ordo_dropout_mode mode)
{
    printf("  %-20s %11.4f ms   %+6.1f %%   bits %10.1f MiB%s\n", ordo_dropout_mode_name(mode),
           r->mode[mode] * 1e3, 100 * (r->mode[mode] / r->none - 1), r->keep_bits_bytes[mode] / MIB,
           mode == r->best ? "   <- recommended" : "");
}

/* The way to train that is recommended, and the fastest of the others. */
typedef struct training_advice {
    int best, next;
    double margin; /* time of the other / time of that one - 1; negative if it is faster */
    bool no_difference;
} training_advice;

static int recommended_way(const ordo_block_report *r)
{
    const bool keep = r->training_reuses_keep_bits;
    if (r->training_best == ORDO_DROPOUT_MODE_FUSED)
        return CLI_TRAIN_FUSED;
    if (r->training_best == ORDO_DROPOUT_MODE_OVERLAPPED)
        return keep ? CLI_TRAIN_OVERLAPPED_KEEP : CLI_TRAIN_OVERLAPPED_REGENERATE;
    return keep ? CLI_TRAIN_SEQUENTIAL_KEEP : CLI_TRAIN_SEQUENTIAL_REGENERATE;
}

static training_advice advise_training(const cli_priced_block *p)
{
    const ordo_block_report *r = &p->report;
    training_advice a = { .best = recommended_way(r), .next = CLI_TRAIN_NONE };
    const double best = cli_training_seconds(&r->training, a.best);
    double least = INFINITY;
    for (int i = CLI_TRAIN_NONE + 1; i < CLI_TRAINING_WAYS; i++) {
        const double seconds = cli_training_seconds(&r->training, i);
        const bool fits = r->keep_bits_fit ? i != CLI_TRAIN_PIPELINED : i == CLI_TRAIN_FUSED;
        if (i != a.best && fits && seconds < least) {
            least = seconds;
            a.next = i;
        }
    }
    if (a.next != CLI_TRAIN_NONE)
        a.margin = least / best - 1;
    a.no_difference = a.next != CLI_TRAIN_NONE && a.margin <= p->noise;
    return a;
}

static void print_training(const cli_priced_block *p)
{
    const ordo_block_report *r = &p->report;
    const training_advice a = advise_training(p);
    puts("\nforward and backward; the backward pass keeps the bits or regenerates them");
    for (int i = 0; i < CLI_TRAINING_WAYS; i++) {
        const double seconds = cli_training_seconds(&r->training, i);
        printf("  %-24s %11.4f ms   %+6.1f %%\n", cli_training_ways[i].name, seconds * 1e3,
               100 * (seconds / r->training.none - 1));
    }
    printf("  recommended: %s", cli_training_ways[a.best].name);
    if (a.no_difference)
        printf("; no difference to %s", cli_training_ways[a.next].name);
    putchar('\n');
}

/* Measured times of the modes, and what they recommend. */
static void print_measured(const cli_priced_block *p)
{
    cli_timed_way ways[CLI_TIMED_WAYS];
    const cli_block_times *t = &p->measured;
    const cli_times_advice advice = cli_block_times_advice(t, p->noise);
    printf("\nmeasured, %s\n", p->file);
    if (!advice.best) {
        puts("  not measured: the file has no row of this block");
        return;
    }
    if (t->none > 0)
        printf("  %-20s %11.4f ms\n", "no dropout", t->none * 1e3);
    cli_block_ways(t, ways);
    for (int i = 0; i < CLI_TIMED_WAYS; i++)
        if (ways[i].seconds > 0) {
            printf("  %-20s %11.4f ms", ways[i].name, ways[i].seconds * 1e3);
            if (t->none > 0)
                printf("   %+6.1f %%", 100 * (ways[i].seconds / t->none - 1));
            putchar('\n');
        }
    printf("  recommended: %s", advice.best);
    if (advice.next && advice.no_difference)
        printf(", no difference to %s", advice.next);
    else if (advice.next)
        printf(", %.1f %% faster than %s", 100 * advice.margin, advice.next);
    putchar('\n');
}

static void print_question(const cli_priced_block *p)
{
    const cli_block_args *a = p->args;
    const cli_model_args *m = p->model;
    printf("%s, %s calibration", ordo_machine_title(m->machine),
           ordo_calibration_name((ordo_calibration)m->calibration));
    if (m->calibration == ORDO_CALIBRATION_SILICON)
        printf(", %s", m->state == 1 ? "burst" : "steady state");
    for (size_t i = 0; i < m->set.count; i++)
        printf(", %s", m->set.at[i]);
    printf("\nblock: %s, batch %" PRId64 ", %" PRId64 " rows%s, width %" PRId64 ", %" PRId64
           " heads of %" PRId64 " here; keep bits: Philox-%" PRId64 ", %" PRId64 " bits, %s\n",
           cli_block_precision(m, a), a->batch, a->seq, a->causal ? " causal" : "", a->embed,
           p->report.heads, a->head_dim, a->rounds, a->bits,
           ordo_generator_name((ordo_generator)a->generator));
}

void cli_block_text(const void *priced)
{
    const cli_priced_block *p = priced;
    const ordo_block_report *r = &p->report;
    char advice[160];
    print_question(p);
    puts("\nkernels, and what binds them");
    for (int i = 0; i < ORDO_BLOCK_GEMMS; i++) {
        char name[32];
        snprintf(name, sizeof name, "gemm %s%s", cli_gemm_names[i],
                 i > 0 && p->args->overlap == 0 ? " (not counted)" : "");
        print_kernel(name, &r->gemm[i]);
    }
    print_kernel("attention", &r->attention);
    print_kernel("attention, bits read", &r->attention_given);
    print_kernel("attention, bits made", &r->attention_made);
    print_kernel("making the bits", &r->rng);
    if (r->memory_seconds > 0)
        printf("  %-20s %11.4f ms\n", "norms, activation", r->memory_seconds * 1e3);
    if (r->communication_seconds > 0)
        printf("  %-20s %11.4f ms\n", "between ranks", r->communication_seconds * 1e3);
    puts("\nforward");
    printf("  %-20s %11.4f ms\n", "no dropout", r->none * 1e3);
    for (int i = 0; i < ORDO_DROPOUT_MODES; i++)
        print_mode(r, (ordo_dropout_mode)i);
    printf("  overlapped is %.3f x sequential, %.3f x fused in speed; region %d, %.4f ms of making "
           "the bits "
           "exposed\n",
           r->overlapped_over_sequential, r->overlapped_over_fused, r->region, r->exposed * 1e3);
    if (!r->coresident && ordo_machine_family_of(p->model->machine) == ORDO_MACHINE_CUDA)
        puts("  The GEMMs and the kernel that makes the bits do not fit one multiprocessor "
             "together:\n  bits made on a second stream run between the GEMMs");
    if (!r->keep_bits_fit)
        puts("  the bits of the whole block do not fit this machine's memory");
    cli_block_advice(p, advice, sizeof advice);
    printf("  recommended: %s\n", advice);
    if (p->args->backward)
        print_training(p);
    if (p->file)
        print_measured(p);
}

/* ---- for programs ---- */

static void shape_json(cli_json *json, const cli_priced_block *p)
{
    const cli_block_args *a = p->args;
    cli_json_text(json, "precision", ordo_precision_name((ordo_precision)a->precision));
    cli_json_int(json, "batch", a->batch);
    cli_json_int(json, "seq", a->seq);
    cli_json_int(json, "embed", a->embed);
    cli_json_int(json, "head_dim", a->head_dim);
    cli_json_int(json, "heads", p->report.heads);
    cli_json_bool(json, "causal", a->causal);
    cli_json_int(json, "rounds", a->rounds);
    cli_json_int(json, "bits", a->bits);
    cli_json_text(json, "generator", ordo_generator_name((ordo_generator)a->generator));
    cli_json_text(json, "overlap", a->overlap == 0 ? "qkv" : "all");
    cli_json_int(json, "segments", p->report.segments);
}

static void training_json(cli_json *json, const cli_priced_block *p)
{
    const ordo_block_report *r = &p->report;
    const training_advice a = advise_training(p);
    const bool keeps = r->training_best != ORDO_DROPOUT_MODE_FUSED && r->training_reuses_keep_bits;
    cli_json_object(json, "training");
    for (int i = 0; i < CLI_TRAINING_WAYS; i++)
        cli_json_real(json, cli_training_ways[i].key, cli_training_seconds(&r->training, i) * 1e3);
    cli_json_text(json, "recommended", ordo_dropout_mode_name(r->training_best));
    cli_json_text(json, "backward_bits", keeps ? "keep" : "regenerate");
    cli_json_real(json, "margin", a.margin);
    cli_json_bool(json, "no_difference", a.no_difference);
    cli_json_end_object(json);
}

static void measured_json(cli_json *json, const cli_priced_block *p)
{
    cli_timed_way ways[CLI_TIMED_WAYS];
    const cli_times_advice advice = cli_block_times_advice(&p->measured, p->noise);
    if (!advice.best) {
        cli_json_text(json, "measured", "not measured");
        return;
    }
    cli_json_object(json, "measured");
    cli_json_text(json, "file", p->file);
    cli_json_real(json, "none_ms", p->measured.none * 1e3);
    cli_block_ways(&p->measured, ways);
    static const char *const keys[CLI_TIMED_WAYS] = { "sequential_ms", "fused_ms", "overlapped_ms",
                                                      "overlapped_qkv_ms" };
    for (int i = 0; i < CLI_TIMED_WAYS; i++)
        cli_json_real(json, keys[i], ways[i].seconds * 1e3);
    cli_json_text(json, "recommended", advice.best);
    cli_json_real(json, "margin", advice.margin);
    cli_json_bool(json, "no_difference", advice.no_difference);
    cli_json_end_object(json);
}

static void kernels_json(cli_json *json, const ordo_block_report *r)
{
    cli_json_object(json, "limiters");
    for (int i = 0; i < ORDO_BLOCK_GEMMS; i++) {
        char name[32];
        snprintf(name, sizeof name, "gemm_%s", cli_gemm_names[i]);
        cli_limiters_json(json, name, &r->gemm[i]);
    }
    cli_limiters_json(json, "attention", &r->attention);
    cli_limiters_json(json, "attention_given", &r->attention_given);
    cli_limiters_json(json, "attention_made", &r->attention_made);
    cli_limiters_json(json, "attention_backward", &r->attention_backward);
    cli_limiters_json(json, "rng", &r->rng);
    cli_json_end_object(json);
}

void cli_block_fields(cli_json *json, const void *priced)
{
    const cli_priced_block *p = priced;
    const ordo_block_report *r = &p->report;
    shape_json(json, p);
    cli_json_real(json, "gemm_ms", r->gemm_seconds * 1e3);
    cli_json_real(json, "attention_ms", r->attention.seconds * 1e3);
    cli_json_real(json, "attention_given_ms", r->attention_given.seconds * 1e3);
    cli_json_real(json, "attention_made_ms", r->attention_made.seconds * 1e3);
    cli_json_real(json, "rng_ms", r->rng.seconds * 1e3);
    cli_json_real(json, "memory_ms", r->memory_seconds * 1e3);
    cli_json_real(json, "communication_ms", r->communication_seconds * 1e3);
    cli_json_real(json, "none_ms", r->none * 1e3);
    for (int i = 0; i < ORDO_DROPOUT_MODES; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_ms", ordo_dropout_mode_name((ordo_dropout_mode)i));
        cli_json_real(json, key, r->mode[i] * 1e3);
    }
    cli_json_real(json, "exposed_ms", r->exposed * 1e3);
    cli_json_real(json, "overlapped_over_sequential", r->overlapped_over_sequential);
    cli_json_real(json, "overlapped_over_fused", r->overlapped_over_fused);
    cli_json_real(json, "fused_over_sequential", r->fused_over_sequential);
    cli_json_real(json, "hidden_in_fused", r->hidden_in_fused);
    cli_json_real(json, "keep_bits_bytes", r->keep_bits_bytes[ORDO_DROPOUT_MODE_OVERLAPPED]);
    cli_json_real(json, "pipelined_keep_bits_bytes",
                  r->keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED]);
    cli_json_bool(json, "keep_bits_fit", r->keep_bits_fit);
    cli_json_bool(json, "coresident", r->coresident);
    cli_json_int(json, "region", r->region);
    cli_json_text(json, "recommended", ordo_dropout_mode_name(r->best));
    cli_json_real(json, "margin", r->margin);
    cli_json_bool(json, "no_difference", r->no_difference);
    if (p->args->backward)
        training_json(json, p);
    if (p->file)
        measured_json(json, p);
    kernels_json(json, r);
}
