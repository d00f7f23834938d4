/* grid_test.c: the promise over the grid of features.
 *
 *   grid_test [--backend NAME] [--against emulator] [--device N] [--fixed] [--seed S] [--count N]
 *             [--repeats R] [--only N]
 *             [--seconds T] [--hang T] [--longest ROWS] [--work MILLIONS] [--with WORDS]
 *             [--without WORDS] [--threads N] [--together] [--json]
 *
 * Draws combinations of dtype, head size, lengths, groups of heads, mask, window, layout, dropout,
 * softcap, ALiBi, sinks, block or element mask, bias, gradient of lse and place in a larger
 * problem, or takes those of grid_fixed.h, and holds forward and backward of each
 *
 *   oracle    within the bounds of grid_bounds.h of backend ref; every output written, and nothing
 *             between them
 *   repeat    the same bits from every repeat, whatever the workspace holds
 *   portable  from plans for 132, 78 and 1 workers, with less workspace, and either order of issue
 *   batch     for one sequence alone, dense and packed, and beside others that are NaN
 *   layout    packed, padded and dense
 *   split     in two shards of heads, in two of the batch
 *   cut       of rows alone, of columns alone, of rows whose sums are carried, of a decoded row
 *   keep bits from bits given and bits made inside; the bits of the device and of the host
 *   segments  from passes in segments of rows that make their bits, on one stream or two
 *   dropped   and the positions read back are the exporter's
 *   lse       without dropout: that changes no lse
 *   sinks     with sinks of minus infinity
 *   blocks    under a block mask that shows what the mask and the window show
 *   seen      and under an element mask
 *   some      of dq alone, of dk and dv alone; what is not asked for is not written
 *   nan       with one NaN or infinity: it shows where the definition has it, and nowhere else
 *   nonsense  cuda: under lists of nonsense the passes end
 *
 * or, with --against emulator, that the emulator gives their bits, and nothing else.
 *
 * Every failure prints a line with the command that repeats it. What the backend refuses is counted
 * by message, and is no pass; a fixed combination that CUDA refuses has failed. Threads draw and
 * ask the oracle; one of them at a time has the device, unless --together. Exit 1 after a failure,
 * or if nothing passed; 77 without a device. */
#include "grid_compare.h"
#include "grid_levels.h"

#include <pthread.h>

static void check_oracle(trial *t)
{
    grid_errors e;
    char all[120];
    size_t used = 0;
    int first = 0;
    grid_compare(&t->c, &e);
    for (int x = GRID_OUTPUTS; x < GRID_TENSORS; x++) {
        used += (size_t)snprintf(all + used, sizeof all - used, " %s %zu", grid_tensors[x].name,
                                 e.wrong[x]);
        if (first == 0 && (e.element[x] > 1 || e.mean[x] > 1))
            first = x;
    }
    if (first > 0 && e.element[first] > 1) {
        const grid_place at = e.at[first];
        fail(t, "oracle",
             "%s(sequence %d, head %d, row %d, %d) is %.9g, exactly %.9g: %.3g times what is "
             "allowed; wrong elements:%s",
             grid_tensors[first].name, (int)at.sequence, (int)at.head, (int)at.row, (int)at.column,
             e.got[first], e.exact[first], e.element[first], all);
    } else if (first > 0) {
        fail(t, "oracle", "%s: root mean square error %.3g times what is allowed",
             grid_tensors[first].name, e.mean[first]);
    } else if (e.dsink > 1) {
        fail(t, "oracle", "dsink_parts[%d] is %.9g: %.3g times off what is allowed",
             (int)e.dsink_at, (double)t->c.dsink_parts[e.dsink_at], e.dsink);
    } else if (e.dbias > 1) {
        fail(t, "oracle", "dbias[%d] is %.9g: %.3g times off what is allowed", (int)e.dbias_at,
             (double)t->c.dbias[e.dbias_at], e.dbias);
    } else if (!e.dsink_summed && t->s->backend != ORDO_BACKEND_REF) { /* which sums in f64 */
        fail(t, "oracle", "dsink is not the sum of dsink_parts");
    }
    session *s = t->s;
    pthread_mutex_lock(&s->lock);
    for (int x = GRID_OUTPUTS; x < GRID_TENSORS; x++) {
        s->worst[x] = fmax(s->worst[x], e.element[x]);
        s->mean[x] = fmax(s->mean[x], e.mean[x]);
    }
    s->worst_dsink = fmax(s->worst_dsink, e.dsink);
    s->worst_dbias = fmax(s->worst_dbias, e.dbias);
    pthread_mutex_unlock(&s->lock);
}

/* The emulator gives the same bits. */
static bool check_against(trial *t)
{
    grid_case c;
    grid_part all = { .layout = t->c.problem.layout };
    ordo_plan *plan = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    grid_place at;
    int64_t sequence, head;
    grid_part_of(&c, &t->c, &all);
    const bool ran = fine(t, "emulator", grid_plan(&t->host, &c, 0, ORDO_ISSUE_DEFAULT, &plan)) &&
                     fine(t, "emulator", ordo_plan_query(plan, &info)) &&
                     fine(t, "emulator", grid_load(&t->host, &t->again, &c)) &&
                     fine(t, "emulator", grid_run(&t->host, &t->again, plan, 0xa5, 1));
    if (ran && strcmp(info.numeric_key, t->info.numeric_key) != 0)
        fail(t, "emulator", "key %s, of the backend %s", info.numeric_key, t->info.numeric_key);
    if (ran && !grid_fetch(&t->host, &t->again, &c))
        fail(t, "emulator", "written past the end of an output");
    if (ran && grid_differ(&t->c, &c, &all, &at))
        fail_at(t, "emulator", "bits of the emulator", &at);
    else if (ran && grid_sinks_differ(&t->c, &c, &all, &sequence, &head))
        fail(t, "emulator", "dsink_parts(sequence %d, head %d) has other bits", (int)sequence,
             (int)head);
    else if (ran && grid_bias_differs(&t->c, &c, &all, 0, 0))
        fail(t, "emulator", "dbias has other bits");
    else if (ran)
        check_padding(t, "emulator", &c);
    ordo_plan_destroy(plan);
    grid_close(&c);
    return ran;
}

/* Count what a combination has. */
static void count_features(session *s, const grid_case *c)
{
    char about[TEXT_SIZE];
    grid_describe(c, about, sizeof about);
    for (int x = 0; s->features[x].word; x++)
        s->features[x].count += strstr(about, s->features[x].word) != NULL;
}

/* Everything that runs on the backend. False if the combination does not run at all. */
static bool check_bits(trial *t)
{
    uint64_t state = t->c.seed;
    t->info = (ordo_plan_info)ORDO_PLAN_INFO_INIT;
    if (!fine(t, "plan", grid_plan(&t->lab, &t->c, 0, ORDO_ISSUE_DEFAULT, &t->plan)) ||
        !fine(t, "plan", ordo_plan_query(t->plan, &t->info)) ||
        !fine(t, "call", grid_load(&t->lab, &t->whole, &t->c)) ||
        !run(t, "call", &t->whole, &t->c, t->plan))
        return false;
    if (t->info.not_kept & ~(unsigned)ORDO_PROMISE_CUT) /* some orders */
        fail(t, "plan", "levels %#x are not kept: %s", t->info.not_kept, t->info.note);
    if (t->s->wrong && strcmp(t->s->wrong, "oracle") == 0)
        spoil(t, &t->whole, &t->c);
    if (!grid_fetch(&t->lab, &t->whole, &t->c))
        fail(t, "oracle", "written past the end of an output");
    if (t->s->against)
        return true;
    grid_keep_outputs(&t->lab, &t->whole);
    check_repeat(t);
    check_portable(t);
    check_form(t);
    check_some(t); /* before other images: keep bits are those of the last one loaded */
    check_batch(t, &state);
    check_layout(t);
    check_split(t, &state);
    check_keep_bits(t);
    check_dropped(t, &state);
    check_cut(t, &state);
    check_segments(t, &state);
    check_lse(t);
    check_no_sinks(t);
    check_blocks(t, false);
    check_blocks(t, true);
    check_nan(t, &state);
    check_nonsense(t, &state);
    return true;
}

/* How many of the words, and how many of them a description has. */
static int count_words(const char *words, const char *about, int *found)
{
    int count = 0;
    *found = 0;
    for (size_t length; words && *words; words += length + (words[length] == ',')) {
        char word[TEXT_SIZE];
        length = strcspn(words, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, words);
        *found += strstr(about, word) != NULL;
        count++;
    }
    return count;
}

static bool asked_for(const session *s, const grid_case *c)
{
    char about[TEXT_SIZE];
    int found, bad;
    grid_describe(c, about, sizeof about);
    (void)count_words(s->without, about, &bad);
    return count_words(s->with, about, &found) == found && bad == 0;
}

static void check_combination(trial *t)
{
    session *s = t->s;
    t->plan = NULL;
    t->failed = t->refused = false;
    t->passes = 0;
    (s->fixed ? grid_fix : grid_draw)(&t->c, &s->limits, t->number);
    if (!asked_for(s, &t->c)) {
        pthread_mutex_lock(&s->lock);
        s->left_out++;
        pthread_mutex_unlock(&s->lock);
        grid_close(&t->c);
        return;
    }
    if (!s->together)
        pthread_mutex_lock(&s->device);
    bool ran = check_bits(t);
    pthread_mutex_lock(&s->lock);
    s->level = NULL;
    pthread_mutex_unlock(&s->lock);
    if (!s->together)
        pthread_mutex_unlock(&s->device);
    if (ran && s->against)
        ran = check_against(t);
    else if (ran)
        check_oracle(t);
    else if (s->fixed && s->cuda && !s->against && !t->failed)
        fail(t, "plan", "refused, but a fixed combination must run: %s", ordo_last_error());
    pthread_mutex_lock(&s->lock);
    s->failed += t->failed;
    s->refused += !t->failed && !ran;
    s->passed += !t->failed && ran;
    s->in_part += !t->failed && ran && t->refused;
    s->passes += t->passes;
    if (!t->failed && ran)
        count_features(s, &t->c);
    pthread_mutex_unlock(&s->lock);
    ordo_plan_destroy(t->plan);
    grid_close(&t->c);
}

/* ---- threads ---- */

static int64_t take_number(session *s)
{
    int64_t number = -1;
    pthread_mutex_lock(&s->lock);
    if (s->next < s->count && (s->seconds == 0 || seconds_since(&s->start) < (double)s->seconds))
        number = s->only >= 0 ? s->only : s->next;
    s->next += number >= 0;
    pthread_mutex_unlock(&s->lock);
    return number;
}

static void *work(void *argument)
{
    trial t = { .s = argument };
    t.lab.backend = t.s->backend;
    t.lab.cuda = t.s->cuda;
    t.host.backend = ORDO_BACKEND_EMULATOR;
    if (t.lab.cuda) {
        grid_must(ordo_device_select((int)t.s->device_number), "ordo_device_select");
        grid_must(ordo_device_stream_create(&t.lab.stream), "ordo_device_stream_create");
        grid_must(ordo_device_stream_create(&t.lab.side), "ordo_device_stream_create");
        grid_must(ordo_device_machine((int)t.s->device_number, &t.lab.machine),
                  "ordo_device_machine");
    }
    for (t.number = take_number(t.s); t.number >= 0; t.number = take_number(t.s))
        check_combination(&t);
    grid_piece *const pieces[] = { &t.lab.workspace, &t.lab.bits,     &t.lab.copy,
                                   &t.lab.sums,      &t.whole.memory, &t.other.memory };
    for (size_t x = 0; x < sizeof pieces / sizeof pieces[0]; x++)
        grid_release(&t.lab, pieces[x]);
    grid_piece *const others[] = { &t.host.workspace, &t.host.bits, &t.again.memory };
    for (size_t x = 0; x < sizeof others / sizeof others[0]; x++)
        grid_release(&t.host, others[x]);
    ordo_machine_destroy(t.lab.machine);
    if (t.lab.cuda) {
        grid_must(ordo_device_stream_destroy(t.lab.stream), "ordo_device_stream_destroy");
        grid_must(ordo_device_stream_destroy(t.lab.side), "ordo_device_stream_destroy");
    }
    return NULL;
}

/* A pass that does not end cannot be stopped, but named. */
static void look_for_hang(const session *s)
{
    char again[TEXT_SIZE];
    if (!s->cuda || s->together || !s->level ||
        seconds_since(&s->start) - s->since < (double)s->hang)
        return;
    say_again(s, s->on_device, again, sizeof again);
    printf("FAIL hang: %s: a pass does not end; %s\n", s->level, again);
    fflush(stdout);
    _Exit(1);
}

/* Say how far it is, every few seconds, until told to stop. */
static void *say(void *argument)
{
    session *s = argument;
    double next = SAY_SECONDS;
    for (bool over = false; !over;) {
        nanosleep(&(struct timespec) { .tv_nsec = 50000000 }, NULL);
        pthread_mutex_lock(&s->lock);
        over = s->threads == 0;
        look_for_hang(s);
        if (!over && seconds_since(&s->start) > next) {
            next += SAY_SECONDS;
            fprintf(stderr,
                    "grid_test: %" PRId64 " of %" PRId64 ", %" PRId64 " failed, %" PRId64
                    " refused; at %" PRId64 "; %.0f s\n",
                    s->passed + s->failed + s->refused + s->left_out, s->count, s->failed,
                    s->refused, s->on_device, seconds_since(&s->start));
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void run_all(session *s)
{
    const long count = s->threads;
    pthread_t saying, *threads = calloc((size_t)count, sizeof *threads);
    if (!threads || pthread_create(&saying, NULL, say, s) != 0)
        abort();
    clock_gettime(CLOCK_MONOTONIC, &s->start);
    for (long x = 0; x < count; x++)
        if (pthread_create(&threads[x], NULL, work, s) != 0)
            abort();
    for (long x = 0; x < count; x++)
        pthread_join(threads[x], NULL);
    pthread_mutex_lock(&s->lock);
    s->threads = 0;
    pthread_mutex_unlock(&s->lock);
    pthread_join(saying, NULL);
    free(threads);
}

int main(int argc, char **argv)
{
    session s = {
        .limits = { .seed = 1, .longest = 700, .work = 200 },
        .count = 2000,
        .repeats = 20,
        .hang = 30,
        .only = -1,
        .threads = sysconf(_SC_NPROCESSORS_ONLN),
        .backend = ORDO_BACKEND_CUDA,
        .cuda = true,
        .features = { { "bf16" },      { "dense" },  { "packed" },  { "padded" },
                      { "causal" },    { "window" }, { "softcap" }, { "alibi" },
                      { "scale" },     { "given" },  { "inside" },  { "fa2" },
                      { "sinks" },     { "dlse" },   { "blocks" },  { "seen" },
                      { "chains" },    { "phases" }, { "strided" }, { "nan-padding" },
                      { "rows from" }, { "bias" } },
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .device = PTHREAD_MUTEX_INITIALIZER,
    };
    const char *why = "";
    parse(&s, argc, argv);
    s.fake = s.cuda && getenv("FAKE_ATTENTION") != NULL;
    if (s.fake) /* which adds no bias */
        s.limits.bias = 0;
    if (s.cuda && !ordo_backend_available(ORDO_BACKEND_CUDA, &why)) {
        printf("grid_test: skipped: %s\n", why);
        return 77;
    }
    int devices = 0;
    if (s.cuda && (ordo_device_count(&devices, NULL) != ORDO_OK || s.device_number >= devices)) {
        printf("skip: no device %d: %d found\n", (int)s.device_number, devices);
        return 77;
    }
    s.together = s.together || !s.cuda;
    run_all(&s);
    const double seconds = seconds_since(&s.start);
    (s.json ? print_json : print_text)(&s, seconds);
    for (int x = 0; x < s.failure_count; x++)
        free(s.failures[x]);
    return s.failed > 0 || s.passed == 0;
}
