/* grid_session.h: one run of grid_test: what was asked, what was found, and both in words. */
#ifndef TESTS_CUDA_GRID_SESSION_H
#define TESTS_CUDA_GRID_SESSION_H

#include "grid_fixed.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum {
    GRID_FEATURES = 24,
    REFUSALS_MAX = 64,
    TEXT_SIZE = 512,
    FAILURES_MAX = 100,
    SAY_SECONDS = 5
};

typedef struct refusal {
    char text[TEXT_SIZE]; /* numbers replaced, so that alike ones are counted together */
    int64_t count, first; /* combinations refused with it, and the first one's number */
} refusal;

typedef struct session {
    /* asked */
    grid_limits limits;
    int64_t count, only, repeats, seconds, hang, device_number;
    long threads;
    ordo_backend backend;
    bool cuda; /* that is the backend */
    bool
        fake; /* cuda is tests/api/fake_module.c, which knows no NaN and has no memory of its own */
    bool together, json;
    bool against;               /* compare with the emulator, and check nothing else */
    bool fixed;                 /* the combinations of grid_fixed.h, not drawn ones */
    const char *with, *without; /* words of a description, with commas between; or NULL */
    const char *wrong;          /* level whose results get a wrong bit: is it found? */

    /* shared by all threads, under `lock` */
    pthread_mutex_t lock, device;
    int64_t next;
    int64_t on_device; /* combination that has the device, what is checked, and since when */
    const char *level;
    double since;
    int64_t passed, failed, refused, in_part, left_out, passes;
    struct {
        const char *word;
        int64_t count; /* combinations with it in their description that passed */
    } features[GRID_FEATURES];
    double worst[GRID_TENSORS], mean[GRID_TENSORS], worst_dsink, worst_dbias;
    refusal refusals[REFUSALS_MAX];
    int refusal_count;
    char *failures[FAILURES_MAX];
    int failure_count;
    struct timespec start;
} session;

static inline double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

/* The command that does it again. */
static inline void say_again(const session *s, int64_t number, char *text, size_t size)
{
    (void)snprintf(text, size,
                   "grid_test --backend %s%s%s --seed %" PRIu64 " --longest %" PRId64
                   " --work %g --repeats %" PRId64 " --only %" PRId64,
                   ordo_backend_name(s->backend), s->against ? " --against emulator" : "",
                   s->fixed ? " --fixed" : "", s->limits.seed, s->limits.longest, s->limits.work,
                   s->repeats, number);
}

/* ---- summary ---- */

static inline void print_text(const session *s, double seconds)
{
    for (int x = 0; x < s->refusal_count; x++)
        printf("refused %" PRId64 " times: %s (--only %" PRId64 ")\n", s->refusals[x].count,
               s->refusals[x].text, s->refusals[x].first);
    for (int x = 0; s->against && s->features[x].word; x++)
        printf("%s %s %" PRId64, x ? "," : "passed with:", s->features[x].word,
               s->features[x].count);
    printf("%serrors over what is allowed, element and mean:", s->against ? "\n" : "");
    for (int x = GRID_OUTPUTS; x < GRID_TENSORS; x++)
        printf("  %s %.3g %.3g", grid_tensors[x].name, s->worst[x], s->mean[x]);
    printf("  dsink %.3g  dbias %.3g", s->worst_dsink, s->worst_dbias);
    printf("\n%s seed %" PRIu64 ": %" PRId64 " of %" PRId64 " combinations, %" PRId64
           " passed (%" PRId64 " of them in part), %" PRId64 " failed, %" PRId64
           " refused; %" PRId64 " passes, %.1f s\n",
           ordo_backend_name(s->backend), s->limits.seed, s->passed + s->failed + s->refused,
           s->count - s->left_out, s->passed, s->in_part, s->failed, s->refused, s->passes,
           seconds);
}

static inline void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static inline void print_json(const session *s, double seconds)
{
    printf("{\"backend\": \"%s\", \"seed\": %" PRIu64 ", \"longest\": %" PRId64
           ", \"work\": %g, \"repeats\": %" PRId64 ", \"count\": %" PRId64
           ",\n \"passed\": %" PRId64 ", \"in_part\": %" PRId64 ", \"failed\": %" PRId64
           ", \"refused\": %" PRId64 ", \"passes\": %" PRId64
           ", \"seconds\": %.1f,\n \"errors\": {",
           ordo_backend_name(s->backend), s->limits.seed, s->limits.longest, s->limits.work,
           s->repeats, s->count - s->left_out, s->passed, s->in_part, s->failed, s->refused,
           s->passes, seconds);
    for (int x = GRID_OUTPUTS; x < GRID_TENSORS; x++)
        printf("%s\"%s\": [%.3g, %.3g]", x == GRID_OUTPUTS ? "" : ", ", grid_tensors[x].name,
               fmin(s->worst[x], 1e300), fmin(s->mean[x], 1e300));
    printf(", \"dsink\": [%.3g, 0], \"dbias\": [%.3g, 0]", fmin(s->worst_dsink, 1e300),
           fmin(s->worst_dbias, 1e300));
    printf("},\n \"refusals\": [");
    for (int x = 0; x < s->refusal_count; x++) {
        printf("%s{\"count\": %" PRId64 ", \"only\": %" PRId64 ", \"message\": ", x ? ",\n  " : "",
               s->refusals[x].count, s->refusals[x].first);
        print_quoted(s->refusals[x].text);
        printf("}");
    }
    printf("],\n \"failures\": [");
    for (int x = 0; x < s->failure_count; x++) {
        printf("%s", x ? ",\n  " : "");
        print_quoted(s->failures[x]);
    }
    printf("]}\n");
}

/* ---- arguments ---- */

static inline void usage(FILE *to)
{
    fputs("usage: grid_test [options]: forward and backward over a grid of features, for bits\n"
          "  --backend NAME      what to test: cuda, cpu, ref or emulator (cuda)\n"
          "  --against emulator  compare bits with the emulator, and check nothing else\n"
          "  --device N          of the machine, from 0 on (0); exit 77 if it has fewer\n"
          "  --fixed             all fixed combinations (grid_fixed.h); none is drawn\n"
          "  --seed S            of the combinations (1)\n"
          "  --count N           combinations (2000)\n"
          "  --repeats R         of each (20)\n"
          "  --only N            this combination alone\n"
          "  --seconds T         begin none after that\n"
          "  --hang T            seconds after which a pass is one that does not end (30)\n"
          "  --longest ROWS      of a sequence (700)\n"
          "  --work MILLIONS     most of rows x columns x head size x heads (200)\n"
          "  --with WORDS        only combinations whose description has all of these: f16,packed\n"
          "  --without WORDS     only those whose description has none of these: softcap,alibi\n"
          "  --threads N         that draw and ask the oracle (all cores)\n"
          "  --together          all threads use the device at once\n"
          "  --wrong LEVEL       spoil a bit of what this level compares: it must be found\n"
          "  --json              print a summary as JSON\n",
          to);
}

static inline int64_t number_of(const char *name, const char *text, int64_t least)
{
    char *end = NULL;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    if (errno || end == text || *end || x < least) {
        fprintf(stderr, "grid_test: --%s %s: expected a number, %lld or more\n", name, text,
                (long long)least);
        exit(2);
    }
    return x;
}

static inline double millions_of(const char *text)
{
    char *end = NULL;
    const double x = strtod(text, &end);
    if (end == text || *end || !(x >= 0.01 && x <= 1e6)) {
        fprintf(stderr, "grid_test: --work %s: expected 0.01 .. 1e6\n", text);
        exit(2);
    }
    return x;
}

static inline void parse(session *s, int argc, char **argv)
{
    enum {
        BACKEND,
        AGAINST,
        DEVICE,
        FIXED,
        SEED,
        COUNT,
        REPEATS,
        ONLY,
        SECONDS,
        HANG,
        LONGEST,
        WORK,
        WITH,
        WITHOUT,
        THREADS,
        TOGETHER,
        WRONG,
        JSON,
        HELP
    };
    static const struct option options[] = {
        { "backend", 1, NULL, BACKEND }, { "against", 1, NULL, AGAINST },
        { "seed", 1, NULL, SEED },       { "count", 1, NULL, COUNT },
        { "repeats", 1, NULL, REPEATS }, { "only", 1, NULL, ONLY },
        { "seconds", 1, NULL, SECONDS }, { "hang", 1, NULL, HANG },
        { "longest", 1, NULL, LONGEST }, { "work", 1, NULL, WORK },
        { "with", 1, NULL, WITH },       { "without", 1, NULL, WITHOUT },
        { "threads", 1, NULL, THREADS }, { "together", 0, NULL, TOGETHER },
        { "wrong", 1, NULL, WRONG },     { "json", 0, NULL, JSON },
        { "help", 0, NULL, HELP },       { "fixed", 0, NULL, FIXED },
        { "device", 1, NULL, DEVICE },   { 0 },
    };
    for (int which; (which = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (which) {
        case BACKEND:
            for (s->backend = ORDO_BACKEND_EMULATOR;
                 s->backend > ORDO_BACKEND_DEFAULT &&
                 strcmp(optarg, ordo_backend_name(s->backend)) != 0;)
                s->backend--;
            s->cuda = s->backend == ORDO_BACKEND_CUDA;
            if (s->backend == ORDO_BACKEND_DEFAULT) {
                fprintf(stderr, "grid_test: --backend %s: expected cuda, cpu, ref or emulator\n",
                        optarg);
                exit(2);
            }
            break;
        case AGAINST:
            s->against = strcmp(optarg, "emulator") == 0;
            if (!s->against) {
                fprintf(stderr, "grid_test: --against %s: expected emulator\n", optarg);
                exit(2);
            }
            break;
        case DEVICE: s->device_number = number_of("device", optarg, 0); break;
        case FIXED: s->fixed = true; break;
        case SEED: s->limits.seed = (uint64_t)number_of("seed", optarg, 0); break;
        case COUNT: s->count = number_of("count", optarg, 1); break;
        case REPEATS: s->repeats = number_of("repeats", optarg, 0); break;
        case ONLY: s->only = number_of("only", optarg, 0); break;
        case SECONDS: s->seconds = number_of("seconds", optarg, 1); break;
        case HANG: s->hang = number_of("hang", optarg, 1); break;
        case LONGEST: s->limits.longest = number_of("longest", optarg, 1); break;
        case WORK: s->limits.work = millions_of(optarg); break;
        case WITH: s->with = optarg; break;
        case WITHOUT: s->without = optarg; break;
        case THREADS: s->threads = (long)number_of("threads", optarg, 1); break;
        case TOGETHER: s->together = true; break;
        case WRONG: s->wrong = optarg; break;
        case JSON: s->json = true; break;
        case HELP: usage(stdout); exit(0);
        default: usage(stderr); exit(2);
        }
    if (optind < argc) {
        fprintf(stderr, "grid_test: %s: not an option\n", argv[optind]);
        exit(2);
    }
    const bool kernels = s->backend == ORDO_BACKEND_CUDA || s->backend == ORDO_BACKEND_EMULATOR;
    s->limits.blocks = kernels ? 128 : INT64_MAX;
    s->limits.seen = kernels ? 256 : INT64_MAX;
    s->limits.bias = s->limits.blocks;
    s->limits.bias_alone = s->cuda;
    if (s->fixed)
        s->count = grid_fixed_count();
    if (s->only >= 0 && s->fixed && s->only >= s->count) {
        fprintf(stderr, "grid_test: --only %" PRId64 ": expected less than %" PRId64 "\n", s->only,
                s->count);
        exit(2);
    }
    if (s->only >= 0)
        s->count = 1;
}

#endif
