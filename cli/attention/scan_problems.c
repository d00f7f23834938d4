/* scan_problems.c: the problems of a scan: lines of the registry, whose digests are known, and
 * drawn ones, whose results the emulator computes on the host while the devices work. */
#define _XOPEN_SOURCE 700
#include "attention/scan.h"
#include "kit/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 64, DRAWN = 24, WORD_BYTES = 256, PAUSE_NS = 50000000 };

uint64_t cli_scan_draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t cli_scan_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(cli_scan_draw(state) % (uint64_t)(high - low + 1));
}

/* ---- one problem ---- */

static int check_parsed(const cli_problem *p)
{
    static const char *const names[] = { "--batch",  "--cu-seqlens", "--cu-seqlens-kv",
                                         "--q-lens", "--kv-lens",    "--block-mask",
                                         "--seen",   "--threads",    "--json" };
    for (size_t x = 0; x < sizeof names / sizeof names[0]; x++)
        if (cli_problem_used(p, names[x]))
            return cli_usage("--problem: %s: expected one dense sequence; the scan copies it",
                             names[x]);
    if (p->dtype == ORDO_F32)
        return cli_usage("--problem: --dtype f32: expected bf16 or f16");
    return CLI_OK;
}

static int parse(cli_scan_problem *p)
{
    char *argv[WORDS + 1] = { (char[]) { "scan" } }, *rest = NULL;
    const cli_section section = cli_problem_section(&p->parsed);
    const cli_syntax syntax = { "scan --problem=\"--seq N [OPTIONS]\"",
                                "The options of a problem, as `ordo run` has them.", &section, 1,
                                "  ordo scan --problem=\"--seq 1000 --heads 4 --dtype bf16\"\n" };
    int argc = 1, status = CLI_OK;
    for (char *word = strtok_r(p->held, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (argc == WORDS)
            return cli_usage("--problem: expected at most %d words", WORDS - 1);
        argv[argc++] = word;
    }
    if (!cli_args_read(&syntax, argc, argv, &status))
        return status == CLI_OK ? CLI_USAGE : status; /* --help is no problem */
    CLI_TRY(check_parsed(&p->parsed));
    p->parsed.device = -1; /* the scan's own option says it */
    CLI_TRY(cli_problem_finish(&p->parsed));
    if (cli_problem_count(&p->parsed) != 1)
        return cli_usage("--problem: expected one problem, no lists");
    return CLI_OK;
}

ordo_problem cli_scan_problem_at(const cli_scan_problem *p, int64_t copies)
{
    ordo_problem problem = cli_problem_at(&p->parsed, 0);
    problem.batch = copies;
    return problem;
}

ordo_call cli_scan_problem_call(const cli_scan_problem *p, void *const out[CLI_OUTPUTS])
{
    cli_tensors tensors = p->tensors;
    memcpy(tensors.out, out, sizeof tensors.out);
    ordo_call call = cli_tensors_call(&tensors);
    call.seed = p->parsed.seed;
    call.offset = p->parsed.offset;
    return call;
}

static int make_plan(cli_scan_problem *p)
{
    const ordo_problem problem = cli_scan_problem_at(p, 1);
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *machine = NULL;
    options.backend = ORDO_BACKEND_EMULATOR;
    ordo_status status = ordo_machine_create(&machine, "h200");
    if (status == ORDO_OK)
        status = ordo_plan_create(&p->plan, &problem, machine, &options);
    ordo_machine_destroy(machine);
    CLI_TRY(cli_library(status));
    return cli_tensors_make(&p->tensors, p->plan, NULL, NULL, NULL, p->parsed.seed, false)
               ? CLI_OK
               : cli_out_of_memory();
}

static void count_units(cli_scan_problem *p)
{
    const ordo_call call = cli_scan_problem_call(p, p->tensors.out);
    ordo_audit_unit unit = ORDO_AUDIT_UNIT_INIT;
    for (int pass = 0; pass < 2; pass++) {
        if (ordo_audit_unit_count(p->plan, &call, (ordo_audit_pass)pass, &p->units[pass]) !=
            ORDO_OK)
            p->units[pass] = 0;
        for (int64_t i = 0; i < p->units[pass]; i++)
            if (ordo_audit_unit_describe(p->plan, &call, (ordo_audit_pass)pass, i, &unit) ==
                ORDO_OK)
                p->scores += (double)unit.scores;
    }
}

int cli_scan_problem_make(cli_scan_problem **problem, const char *words)
{
    cli_scan_problem *p = calloc(1, sizeof *p);
    if (p == NULL)
        return cli_out_of_memory();
    pthread_mutex_init(&p->lock, NULL);
    p->words = strdup(words);
    p->held = strdup(words);
    int status = p->words && p->held ? parse(p) : cli_out_of_memory();
    if (status == CLI_OK)
        status = make_plan(p);
    if (status != CLI_OK) {
        cli_scan_problem_free(p);
        return status;
    }
    count_units(p);
    *problem = p;
    return CLI_OK;
}

void cli_scan_problem_free(cli_scan_problem *p)
{
    if (p == NULL)
        return;
    cli_tensors_free(&p->tensors);
    cli_problem_free(&p->parsed);
    ordo_plan_destroy(p->plan);
    pthread_mutex_destroy(&p->lock);
    free(p->words);
    free(p->held);
    free(p);
}

ordo_status cli_scan_problem_take(cli_scan_problem *p)
{
    ordo_bytes spans[CLI_SCAN_OUTPUTS];
    for (int i = 0; i < CLI_SCAN_OUTPUTS; i++)
        spans[i] = (ordo_bytes) { p->tensors.out[i],
                                  cli_tensors_output_bytes(&p->tensors, (cli_output)i) };
    ordo_digest_call call = ORDO_DIGEST_CALL_INIT;
    call.backend = ORDO_BACKEND_CPU;
    call.threads = 1;
    call.count = CLI_SCAN_OUTPUTS;
    call.spans = spans;
    call.digests = p->digests;
    call.workspace_bytes = ordo_digest_workspace(spans, CLI_SCAN_OUTPUTS);
    call.workspace = malloc(call.workspace_bytes + 1);
    const ordo_status status = call.workspace ? ordo_digest_run(&call) : ORDO_ERR_MEMORY;
    free(call.workspace);
    p->known = status == ORDO_OK;
    return status;
}

ordo_status cli_scan_problem_emulate(cli_scan_problem *p)
{
    ordo_call call = cli_scan_problem_call(p, p->tensors.out);
    const size_t bytes = ordo_plan_workspace(p->plan);
    call.threads = 1;
    call.workspace = aligned_alloc(256, (bytes + 256) / 256 * 256);
    call.workspace_bytes = bytes;
    ordo_status status = ORDO_ERR_MEMORY;
    if (call.workspace)
        status = ordo_attention_forward(p->plan, &call);
    if (status == ORDO_OK)
        status = ordo_attention_backward(p->plan, &call);
    free(call.workspace);
    return status == ORDO_OK ? cli_scan_problem_take(p) : status;
}

/* A line of the registry: key | first | last | arguments | digests. */
static int of_registry(cli_scan_problem **problem, const char *line)
{
    char copy[1024], *field[5] = { 0 }, *at = copy;
    snprintf(copy, sizeof copy, "%s", line);
    for (int i = 0; i < 5 && at; i++) {
        char *end = strstr(at, " | ");
        field[i] = at;
        at = end ? end + 3 : NULL;
        if (end)
            *end = '\0';
    }
    uint64_t known[CLI_SCAN_OUTPUTS];
    *problem = NULL;
    if (field[4] == NULL || strcmp(field[2], "-") != 0 ||
        sscanf(field[4], "%" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &known[0],
               &known[1], &known[2], &known[3], &known[4]) != CLI_SCAN_OUTPUTS)
        return CLI_OK; /* a line of an earlier version, or one not known yet */
    CLI_TRY(cli_scan_problem_make(problem, field[3]));
    (*problem)->registered = true;
    memcpy((*problem)->of_registry, known, sizeof known);
    return CLI_OK;
}

/* ---- drawn problems ---- */

/* Shapes and features of all kernels; as many scores as the emulator computes in about a second. */
static void draw_words(uint64_t *draws, char *words, size_t capacity)
{
    static const int dims[] = { 64, 64, 64, 128, 128, 128, 40, 96, 192, 256, 320 };
    const int dim = dims[cli_scan_between(draws, 0, 10)];
    const int64_t heads = (int64_t)2 << cli_scan_between(draws, 0, 2);
    const int64_t group = (int64_t)1 << cli_scan_between(draws, 0, 1);
    const int64_t most = (dim > 128 ? 1400 : 2000) / (heads > 4 ? 2 : 1);
    const int64_t seq = cli_scan_between(draws, 65, most), keys = cli_scan_between(draws, 65, most);
    int used = snprintf(words, capacity,
                        "--dtype %s --heads %" PRId64 " --kv-heads %" PRId64 " --seq %" PRId64
                        " --dim %d --seed %" PRId64,
                        cli_scan_between(draws, 0, 2) ? "bf16" : "f16", heads, heads / group, seq,
                        dim, cli_scan_between(draws, 0, 1 << 30));
#define ADD(chance, ...)                                                                           \
    if (cli_scan_between(draws, 1, chance) == 1 && used < (int)capacity)                           \
    used += snprintf(words + used, capacity - (size_t)used, __VA_ARGS__)
    ADD(4, " --kv-seq %" PRId64, keys);
    ADD(2, " --mask causal");
    ADD(6, " --window %" PRId64 ",0", cli_scan_between(draws, 16, 512));
    ADD(8, " --softcap 20");
    ADD(8, " --alibi");
    ADD(3, " --dropout 0.1");
#undef ADD
}

/* A place for one more drawn problem, or that of the oldest if every device has run it. */
static bool find_place(cli_scan_catalogue *c, size_t *place)
{
    if (c->count < c->most) {
        *place = c->count;
        return true;
    }
    *place = c->oldest;
    return c->runs[c->oldest] >= 4 * c->devices;
}

static void put(cli_scan_catalogue *c, cli_scan_problem *problem)
{
    size_t place;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        if (c->stop || find_place(c, &place))
            break;
        pthread_mutex_unlock(&c->lock);
        nanosleep(&(struct timespec) { 0, PAUSE_NS }, NULL);
    }
    cli_scan_problem *old = c->stop ? problem : c->at[place];
    if (!c->stop) {
        if (place == c->count)
            c->count++;
        else if (++c->oldest == c->most)
            c->oldest = c->registered;
        c->at[place] = problem;
        c->runs[place] = 0;
        c->drawn++;
    }
    pthread_mutex_unlock(&c->lock);
    cli_scan_catalogue_release(c, old);
}

static void *draw_problems(void *argument)
{
    cli_scan_catalogue *c = argument;
    char words[WORD_BYTES];
    (void)!nice(19); /* on Linux for this thread alone: what is idle suffices */
    for (;;) {
        pthread_mutex_lock(&c->lock);
        const bool stop = c->stop;
        draw_words(&c->draws, words, sizeof words);
        pthread_mutex_unlock(&c->lock);
        cli_scan_problem *problem = NULL;
        if (stop || cli_scan_problem_make(&problem, words) != CLI_OK)
            return NULL;
        problem->users = 1;
        if (cli_scan_problem_emulate(problem) == ORDO_OK)
            put(c, problem);
        else
            cli_scan_problem_free(problem); /* what the emulator does not compute */
    }
}

/* ---- all of them ---- */

static int add(cli_scan_catalogue *c, cli_scan_problem *problem)
{
    if (problem == NULL)
        return CLI_OK;
    problem->users = 1;
    c->at[c->count++] = problem;
    c->registered += problem->registered;
    return CLI_OK;
}

int cli_scan_catalogue_open(cli_scan_catalogue *c, const char *only, uint64_t seed, size_t threads,
                            size_t devices)
{
    size_t lines = 0;
    while (cli_scan_registry[lines])
        lines++;
    *c = (cli_scan_catalogue) { .draws = seed, .devices = (int64_t)devices };
    pthread_mutex_init(&c->lock, NULL);
    c->most = only ? 1 : lines + DRAWN;
    c->at = calloc(c->most, sizeof(cli_scan_problem *));
    c->runs = calloc(c->most, sizeof *c->runs);
    c->threads = calloc(threads + 1, sizeof *c->threads);
    if (!c->at || !c->runs || !c->threads)
        return cli_out_of_memory();
    cli_scan_problem *problem = NULL;
    if (only) {
        CLI_TRY(cli_scan_problem_make(&problem, only));
        CLI_TRY(add(c, problem));
        return cli_library(cli_scan_problem_emulate(problem));
    }
    for (size_t i = 0; i < lines; i++) {
        CLI_TRY(of_registry(&problem, cli_scan_registry[i]));
        CLI_TRY(add(c, problem));
    }
    c->most = c->count + DRAWN;
    c->oldest = c->registered;
    while (c->started < threads &&
           pthread_create(&c->threads[c->started], NULL, draw_problems, c) == 0)
        c->started++;
    return CLI_OK;
}

void cli_scan_catalogue_close(cli_scan_catalogue *c)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < c->started; i++)
        pthread_join(c->threads[i], NULL);
    for (size_t i = 0; c->at && i < c->count; i++)
        cli_scan_catalogue_release(c, c->at[i]);
    free(c->at);
    free(c->runs);
    free(c->threads);
    pthread_mutex_destroy(&c->lock);
}

cli_scan_problem *cli_scan_catalogue_hold(cli_scan_catalogue *c, size_t place)
{
    pthread_mutex_lock(&c->lock);
    cli_scan_problem *problem = c->at[place];
    problem->users++;
    c->runs[place]++;
    pthread_mutex_unlock(&c->lock);
    return problem;
}

void cli_scan_catalogue_release(cli_scan_catalogue *c, cli_scan_problem *problem)
{
    if (problem == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    const bool last = --problem->users == 0;
    pthread_mutex_unlock(&c->lock);
    if (last)
        cli_scan_problem_free(problem);
}
