/* Attention on the CPU: ratios, each taken in one run.
 *
 *   of the peak    forward and backward against the fused multiply-adds the same threads can do
 *   order          the backward pass ÷ the same code that adds in order of arrival
 *   dropout        with ÷ without: keep bits made inside, keep bits given
 *   threads        what each doubling of them keeps, with heads enough and with a single head
 *
 * A and B take turns, so that both meet the same weather; a ratio is taken in every round, and
 * its median printed with the middle half of the rounds. Inputs stay where they are: what fits a
 * cache is in it. B 1, H 8 and S 2048 where nothing else is said. */
#define _GNU_SOURCE
#include "attention/bench_peak.c"
#include "attention_unordered.h"
#include "kit/digest.c"
#include "kit/random.c"
#include "kit/tensors.c"
#include "kit/work.c"
#include "measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 64, MOST_CONTENDERS = 8, HEADS = 8, SEQ = 2048 };
#define PEAK_SECONDS 0.02

/* Where a ratio should be. Missing one is a word in the table, not a failure. */
#define TARGET_FORWARD  0.6  /* share of the peak, at least */
#define TARGET_BACKWARD 0.55 /* share of the peak, at least */
#define TARGET_ORDER    1.03 /* times the time without an order, at most */
#define TARGET_DROPOUT  1.10 /* times the time without dropout, at most */
#define TARGET_SCALING  0.9  /* share of twice the speed with twice the threads, at least */
#define TARGET_ONE_HEAD 0.75

/* ---- what is measured ---- */

typedef ordo_status pass_function(const ordo_plan *plan, const ordo_call *call);

/* A problem with its tensors. */
typedef struct subject {
    ordo_plan *plan;
    cli_tensors tensors;
    uint32_t *bits; /* keep bits, or NULL */
    void *workspace;
    double pairs;
} subject;

/* One of those that take turns. */
typedef struct contender {
    pass_function *pass; /* NULL: the peak */
    const subject *subject;
    int threads;
    bool given;                /* dropout bits are given */
    double value[MOST_ROUNDS]; /* seconds; the peak: operations a second */
} contender;

static double now_s(void)
{
    return measure_seconds(CLOCK_MONOTONIC);
}

static void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ordo_last_error());
    exit(1);
}

static ordo_problem problem_of(ordo_dtype dtype, int64_t heads, int64_t dim, bool causal,
                               double dropout)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = dtype;
    p.batch = 1;
    p.heads = heads;
    p.q_len = SEQ;
    p.head_dim = dim;
    p.mask = causal ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
    p.dropout.p = dropout;
    return p;
}

static ordo_call call_of(const contender *c)
{
    ordo_call call = cli_tensors_call(&c->subject->tensors);
    call.seed = 1;
    call.threads = c->threads;
    call.keep_bits = c->given ? c->subject->bits : NULL;
    call.workspace = c->subject->workspace;
    call.workspace_bytes = ordo_plan_workspace(c->subject->plan);
    return call;
}

static void make_bits(subject *s, const ordo_problem *p)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    call.seed = 1;
    if (ordo_dropout_query(p, &call, &info) != ORDO_OK)
        stop("dropout");
    s->bits = malloc((size_t)info.bytes);
    if (!s->bits ||
        ordo_dropout_fill(p, &call, 0, info.blocks, s->bits, (size_t)info.bytes) != ORDO_OK)
        stop("dropout");
}

static subject open_subject(ordo_problem p)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    subject s = { .plan = NULL };
    options.backend = ORDO_BACKEND_CPU;
    if (ordo_plan_create(&s.plan, &p, NULL, &options) != ORDO_OK ||
        !cli_tensors_make(&s.tensors, s.plan, NULL, NULL, NULL, 1, false))
        stop("plan");
    s.workspace = aligned_alloc(256, ordo_plan_workspace(s.plan)); /* a multiple of 256 */
    if (!s.workspace)
        stop("workspace");
    if (p.dropout.p > 0)
        make_bits(&s, &s.tensors.problem);
    s.pairs = cli_work_pairs(&s.tensors.problem, NULL, NULL, NULL);
    /* o and lse for the backward pass, and threads that are awake */
    const contender first = { .subject = &s };
    const ordo_call call = call_of(&first);
    if (ordo_attention_forward(s.plan, &call) != ORDO_OK)
        stop("forward");
    return s;
}

static void close_subject(subject *s)
{
    cli_tensors_free(&s->tensors);
    ordo_plan_destroy(s->plan);
    free(s->workspace);
    free(s->bits);
}

/* ---- rounds ---- */

static void take_turn(contender *c, int round)
{
    if (!c->pass) {
        c->value[round] = cli_peak_flops(c->threads, PEAK_SECONDS);
        return;
    }
    const ordo_call call = call_of(c);
    const double start = now_s();
    if (c->pass(c->subject->plan, &call) != ORDO_OK)
        stop("pass");
    c->value[round] = now_s() - start;
}

/* Rounds for about `seconds`; how many there were. */
static int take_turns(contender *all, int count, double seconds)
{
    const double start = now_s();
    int round = 0;
    for (; round < MOST_ROUNDS && (round < LEAST_ROUNDS || now_s() - start < seconds); round++)
        for (int i = 0; i < count; i++)
            take_turn(&all[i], round);
    return round;
}

static double median(const contender *c, int rounds)
{
    double values[MOST_ROUNDS];
    memcpy(values, c->value, (size_t)rounds * sizeof *values);
    return measure_spread(values, rounds).median;
}

/* a / b in each round. */
static spread ratio(const contender *a, const contender *b, int rounds)
{
    double values[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++)
        values[i] = a->value[i] / b->value[i];
    return measure_spread(values, rounds);
}

static double flops_of(const contender *c)
{
    const ordo_problem *p = &c->subject->tensors.problem;
    return c->pass == ordo_attention_forward ? cli_work_forward(p, c->subject->pairs)
                                             : cli_work_backward(p, c->subject->pairs);
}

/* ---- tables ---- */

static void print_ratio(spread r, const char *target)
{
    printf(" %7.3f   %6.3f .. %-6.3f  %s\n", r.median, r.low, r.high, target);
    fflush(stdout);
}

static const char *at_least(spread r, double target)
{
    return r.median >= target ? "met" : "short";
}

static const char *at_most(spread r, double target)
{
    return r.median <= target ? "met" : "short";
}

/* Operations a second of a pass over the peak's of the same round. */
static spread of_peak(const contender *pass, const contender *peak, int rounds)
{
    double values[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++)
        values[i] = flops_of(pass) / pass->value[i] / peak->value[i];
    return measure_spread(values, rounds);
}

static void print_of_peak(const contender *c, const contender *peak, int rounds, bool judged)
{
    const ordo_problem *p = &c->subject->tensors.problem;
    const spread r = of_peak(c, peak, rounds);
    printf("%-4s %-6s %4" PRId64 "  %-8s %3d %9.2f %8.1f ", ordo_dtype_name(p->dtype),
           ordo_mask_name(p->mask), p->head_dim,
           c->pass == ordo_attention_forward ? "forward" : "backward", c->threads,
           median(c, rounds) * 1e3, flops_of(c) / median(c, rounds) * 1e-9);
    const double target = c->pass == ordo_attention_forward ? TARGET_FORWARD : TARGET_BACKWARD;
    print_ratio(r, judged ? at_least(r, target) : "");
}

/* ---- the sections ---- */

static void bench_peak(int cores)
{
    printf("of the peak: %s, %d core%s; targets for f32: forward %.2f, backward %.2f\n",
           cli_peak_name(), cores, cores == 1 ? "" : "s", TARGET_FORWARD, TARGET_BACKWARD);
    printf("%-4s %-6s %4s  %-8s %3s %9s %8s  %7s   %s\n", "type", "mask", "dim", "pass", "thr",
           "ms", "GFLOP/s", "of peak", "middle half");
    for (int dim = 64; dim <= 128; dim *= 2)
        for (int causal = 1; causal >= 0; causal--) {
            subject s = open_subject(problem_of(ORDO_F32, HEADS, dim, causal, 0));
            contender c[] = {
                { .pass = ordo_attention_forward, .subject = &s, .threads = 1 },
                { .pass = ordo_attention_backward, .subject = &s, .threads = 1 },
                { .threads = 1 },
                { .pass = ordo_attention_forward, .subject = &s, .threads = cores },
                { .pass = ordo_attention_backward, .subject = &s, .threads = cores },
                { .threads = cores },
            };
            const int rounds = take_turns(c, 6, 4);
            for (int i = 0; i < 6; i++)
                if (c[i].pass && (i < 3 || cores > 1))
                    print_of_peak(&c[i], &c[i < 3 ? 2 : 5], rounds, true);
            close_subject(&s);
        }
    static const ordo_dtype halves[] = { ORDO_BF16, ORDO_F16 };
    for (int type = 0; type < 2; type++)
        for (int dim = 64; dim <= 128; dim *= 2)
            for (int causal = 1; causal >= 0; causal--) {
                subject s = open_subject(problem_of(halves[type], HEADS, dim, causal, 0));
                contender c[] = {
                    { .pass = ordo_attention_forward, .subject = &s, .threads = cores },
                    { .pass = ordo_attention_backward, .subject = &s, .threads = cores },
                    { .threads = cores },
                };
                const int rounds = take_turns(c, 3, 1);
                print_of_peak(&c[0], &c[2], rounds, false);
                print_of_peak(&c[1], &c[2], rounds, false);
                close_subject(&s);
            }
}

static void bench_order(int cores)
{
    printf("\norder: backward, f32, dim 64, plan order ÷ order of arrival; target %.2f\n",
           TARGET_ORDER);
    for (int heads = HEADS; heads >= 1; heads -= HEADS - 1)
        for (int causal = 1; causal >= 0; causal--) {
            subject s = open_subject(problem_of(ORDO_F32, heads, 64, causal, 0));
            contender c[] = {
                { .pass = ordo_cpu_backward, .subject = &s, .threads = cores },
                { .pass = backward_unordered, .subject = &s, .threads = cores },
            };
            const int rounds = take_turns(c, 2, 2);
            const spread r = ratio(&c[0], &c[1], rounds);
            printf("%-6s %d head%-27s", causal ? "causal" : "full", heads, heads == 1 ? "" : "s");
            print_ratio(r, at_most(r, TARGET_ORDER));
            close_subject(&s);
        }
}

static void bench_dropout(int cores)
{
    static pass_function *const passes[] = { ordo_attention_forward, ordo_attention_backward };
    printf("\ndropout: f32, dim 64, p 0.1, with ÷ without; target %.2f\n", TARGET_DROPOUT);
    for (int causal = 1; causal >= 0; causal--) {
        subject without = open_subject(problem_of(ORDO_F32, HEADS, 64, causal, 0));
        subject with = open_subject(problem_of(ORDO_F32, HEADS, 64, causal, 0.1));
        for (int pass = 0; pass < 2; pass++) {
            contender c[] = {
                { .pass = passes[pass], .subject = &without, .threads = cores },
                { .pass = passes[pass], .subject = &with, .threads = cores },
                { .pass = passes[pass], .subject = &with, .threads = cores, .given = true },
            };
            const int rounds = take_turns(c, 3, 2);
            for (int i = 1; i < 3; i++) {
                const spread r = ratio(&c[i], &c[0], rounds);
                printf("%-6s %-8s bits %-19s", causal ? "causal" : "full",
                       pass ? "backward" : "forward", i == 1 ? "made inside" : "given");
                print_ratio(r, at_most(r, TARGET_DROPOUT));
            }
        }
        close_subject(&without);
        close_subject(&with);
    }
}

/* Each doubling of the threads, from one to all cores (the last step may be less than double). */
static void bench_doublings(int64_t heads, bool causal, pass_function *pass, int cores)
{
    subject s = open_subject(problem_of(ORDO_F32, heads, 64, causal, 0));
    contender c[MOST_CONTENDERS];
    int count = 0;
    for (int threads = 1; count < MOST_CONTENDERS; threads *= 2) {
        c[count++] = (contender) { .pass = pass,
                                   .subject = &s,
                                   .threads = threads < cores ? threads : cores };
        if (threads >= cores)
            break;
    }
    const int rounds = take_turns(c, count, 2);
    for (int i = 1; i < count; i++) {
        const double more = (double)c[i].threads / c[i - 1].threads;
        spread r = ratio(&c[i - 1], &c[i], rounds);
        char title[64];
        r.low /= more;
        r.median /= more;
        r.high /= more;
        snprintf(title, sizeof title, "%-8s %-6s %2d heads  %3d -> %d",
                 pass == ordo_attention_forward ? "forward" : "backward",
                 causal ? "causal" : "full", (int)heads, c[i - 1].threads, c[i].threads);
        printf("%-40s", title);
        const bool enough = heads >= c[i].threads;
        print_ratio(r, enough       ? at_least(r, TARGET_SCALING)
                       : heads == 1 ? at_least(r, TARGET_ONE_HEAD)
                                    : "");
    }
    close_subject(&s);
}

static void bench_scaling(int cores)
{
    static pass_function *const passes[] = { ordo_attention_forward, ordo_attention_backward };
    printf(
        "\nthreads: f32, dim 64, speed gained ÷ threads added; targets %.2f with a head a thread, "
        "%.2f with one head\n",
        TARGET_SCALING, TARGET_ONE_HEAD);
    for (int heads = HEADS; heads >= 1; heads -= HEADS - 1)
        for (int causal = 1; causal >= 0; causal--)
            for (int pass = 0; pass < 2; pass++)
                bench_doublings(heads, causal, passes[pass], cores);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        const bool help = strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr, "usage: attention\n"
                                        "Ratios of the CPU passes on one and on all cores, about a "
                                        "minute: share of the FMA peak,\n"
                                        "order, dropout, threads. `ordo bench attention` measures "
                                        "one problem of your choice.\n");
        return help ? 0 : 2;
    }
    const int cores = ordo_pool_threads(0);
    bench_peak(cores);
    bench_order(cores);
    bench_dropout(cores);
    if (cores > 1)
        bench_scaling(cores);
    return 0;
}
