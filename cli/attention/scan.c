/* scan.c: `ordo scan`: does this device still give the bits that it must give? One thread for each
 * device keeps two batches in flight, of problems drawn from the catalogue. */
#define _XOPEN_SOURCE 700
#include "attention/scan.h"
#include "commands.h"
#include "kit/device.h"
#include "kit/message.h"
#include "kit/output.h"
#include "kit/report.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOCATED = 16,        /* differences of a device whose units are looked for */
    AGAIN_PASSES = 4096, /* most passes of a problem that differed, until it differs again */
    AGAIN_SECONDS = 20,
    REST_ONE_IN = 64 /* passes */
};
static const double DEFAULT_SECONDS = 60, BATCH_BYTES = 256e6;

typedef struct request {
    const char *device, *problem;
    double seconds, hours;
    int64_t passes, threads;
    uint64_t seed;
    bool first;
    cli_json_target json;
} request;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ---- one device ---- */

static void keep(cli_scan_device *d, ordo_status status)
{
    d->status = status;
    snprintf(d->message, sizeof d->message, "%s", ordo_last_error());
}

static void read_sensor(cli_scan_device *d)
{
    const cli_scan_reading r = d->last = cli_scan_sensor_read(&d->sensor);
    int64_t *const least[] = { &d->least.celsius, &d->least.mhz, &d->least.watts };
    int64_t *const most[] = { &d->most.celsius, &d->most.mhz, &d->most.watts };
    const int64_t now[] = { r.celsius, r.mhz, r.watts };
    for (int i = 0; i < 3; i++) {
        *least[i] = *least[i] < 0 || now[i] < *least[i] ? now[i] : *least[i];
        *most[i] = now[i] > *most[i] ? now[i] : *most[i];
    }
}

static bool ends(const cli_scan_device *d)
{
    const cli_scan_job *scan = d->scan;
    return interrupted || (scan->first && d->different > 0) ||
           cli_now() - scan->began >= scan->limit ||
           (scan->passes > 0 && d->launched >= scan->passes);
}

/* A quarter of the batches are one sequence, which leaves most of a device idle. */
static int64_t draw_copies(cli_scan_device *d, const cli_scan_problem *problem)
{
    double bytes = 0;
    for (int i = 0; i < CLI_SCAN_OUTPUTS; i++)
        bytes += 2 * (double)cli_tensors_output_bytes(&problem->tensors, (cli_output)i);
    const int64_t fit = (int64_t)(BATCH_BYTES / bytes) + 1;
    const int64_t most = fit < CLI_SCAN_COPIES ? fit : CLI_SCAN_COPIES;
    if (d->index == CLI_SCAN_HOST || cli_scan_between(&d->draws, 0, 3) == 0)
        return 1;
    return cli_scan_between(&d->draws, 1, most);
}

static void close_batch(cli_scan_device *d, cli_scan_batch *b)
{
    cli_scan_problem *problem = b->problem;
    cli_scan_batch_close(b);
    cli_scan_catalogue_release(&d->scan->catalogue, problem);
}

/* The batch of a place, opened, and again if another problem has taken the place. */
static ordo_status use_place(cli_scan_device *d, size_t place, cli_scan_batch **batch)
{
    cli_scan_batch *b = *batch = &d->batches[place];
    cli_scan_problem *problem = cli_scan_catalogue_hold(&d->scan->catalogue, place);
    if (b->problem == problem) {
        cli_scan_catalogue_release(&d->scan->catalogue, problem);
        return ORDO_OK;
    }
    if (b->problem)
        close_batch(d, b);
    const ordo_status status = cli_scan_batch_open(b, problem, draw_copies(d, problem), d->machine);
    if (status != ORDO_OK)
        cli_scan_catalogue_release(&d->scan->catalogue, problem);
    return status;
}

static void count_pass(cli_scan_device *d, const cli_scan_batch *b)
{
    d->passes++;
    d->units += b->copies * (b->problem->units[0] + b->problem->units[1]);
    d->scores += (double)b->copies * b->problem->scores;
    for (int i = 0; i < CLI_SCAN_OUTPUTS; i++)
        d->bytes += (double)b->copies * (double)b->bytes[i];
}

/* The same command with the module that records multiprocessors, if it lies in the same folder;
 * what it says goes where this one's lines go. */
static void again_elsewhere(const cli_scan_device *d, const cli_scan_batch *b)
{
    char module[PATH_MAX], device[16], variable[PATH_MAX + 32], problem[512];
    extern char **environ;
    const char *path = d->scan->module, *slash = path ? strrchr(path, '/') : NULL;
    if (!slash ||
        snprintf(module, sizeof module, "%.*s/libordo_cuda_units.so", (int)(slash - path), path) >=
            (int)sizeof module ||
        access(module, R_OK) != 0)
        return;
    snprintf(device, sizeof device, "%d", d->index);
    snprintf(variable, sizeof variable, "ORDO_CUDA_MODULE=%s", module);
    snprintf(problem, sizeof problem, "--problem=%s", b->problem->words);
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **environment = calloc(count + 2, sizeof(char *));
    for (size_t i = 0; environment && i < count; i++)
        if (strncmp(environ[i], "ORDO_CUDA_MODULE=", 17) != 0)
            environment[kept++] = environ[i];
    char words[][12] = { "ordo", "scan", "--device", "--seconds", "20", "--first", "--json" };
    char *argv[] = { words[0], words[1], words[2],
                     device,   words[3], words[4],
                     problem,  words[5], d->scan->json ? words[6] : NULL,
                     NULL };
    pid_t child = 0;
    FILE *const lines = d->scan->json ? d->scan->json : stdout;
    posix_spawn_file_actions_t actions;
    if (environment && posix_spawn_file_actions_init(&actions) == 0) {
        environment[kept] = variable;
        fflush(lines);
        if (posix_spawn_file_actions_adddup2(&actions, fileno(lines), STDOUT_FILENO) == 0 &&
            posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environment) == 0)
            (void)waitpid(child, NULL, 0);
        posix_spawn_file_actions_destroy(&actions);
    }
    free(environment);
}

/* Run the problem alone until it differs again, and name the multiprocessor of the unit. */
static ordo_status again(cli_scan_device *d, cli_scan_batch *b)
{
    const double began = cli_now();
    cli_scan_difference found;
    bool differs = false;
    int64_t passes = 0;
    if (!d->sensor.units_clear || !d->sensor.units_processor) {
        again_elsewhere(d, b);
        return ORDO_OK;
    }
    for (size_t i = 0; i < d->scan->catalogue.most; i++) /* alone */
        if (d->batches[i].flying)
            (void)ordo_device_synchronise(d->batches[i].call.stream);
    while (!differs && passes < AGAIN_PASSES && !interrupted && cli_now() - began < AGAIN_SECONDS) {
        d->sensor.units_clear();
        passes++;
        d->again++;
        ordo_status status = cli_scan_batch_launch(b);
        if (status == ORDO_OK)
            status = cli_scan_batch_collect(b, &differs, &found);
        if (status != ORDO_OK)
            return status;
    }
    int processor = -1;
    if (differs) {
        cli_scan_locate(b, &found);
        if (found.located &&
            (found.what.kind == ORDO_AUDIT_O || found.what.kind == ORDO_AUDIT_DK_DV))
            processor = d->sensor.units_processor(found.pass == ORDO_AUDIT_BACKWARD, found.copy,
                                                  found.what.head, found.what.row);
    }
    cli_scan_show_processor(d->scan, d, differs ? &found : NULL, processor, passes);
    return ORDO_OK;
}

static ordo_status collect(cli_scan_device *d, cli_scan_batch *b)
{
    cli_scan_difference found;
    bool differs = false;
    const ordo_status status = cli_scan_batch_collect(b, &differs, &found);
    if (status != ORDO_OK || (d->scan->first && d->different > 0)) /* it was in flight */
        return status;
    count_pass(d, b);
    if (!differs)
        return ORDO_OK;
    const bool first = d->different++ == 0;
    if (first)
        d->first = d->passes;
    if (d->different > LOCATED)
        return ORDO_OK;
    read_sensor(d);
    cli_scan_locate(b, &found);
    cli_scan_show_difference(d->scan, d, b, &found);
    return first ? again(d, b) : ORDO_OK;
}

/* A device rests now and then, so that load, clock and temperature come and go. */
static ordo_status rest(cli_scan_device *d, cli_scan_batch **flying)
{
    if (d->index == CLI_SCAN_HOST || cli_scan_between(&d->draws, 1, REST_ONE_IN) > 1 || !*flying)
        return ORDO_OK;
    const ordo_status status = collect(d, *flying);
    const long ms = (long)cli_scan_between(&d->draws, 1, 30);
    *flying = NULL;
    nanosleep(&(struct timespec) { 0, ms * 1000000 }, NULL);
    return status;
}

/* First each place once, in order. */
static size_t draw_place(cli_scan_device *d)
{
    cli_scan_catalogue *c = &d->scan->catalogue;
    pthread_mutex_lock(&c->lock);
    const int64_t count = (int64_t)c->count;
    pthread_mutex_unlock(&c->lock);
    return (size_t)(d->launched < count ? d->launched : cli_scan_between(&d->draws, 0, count - 1));
}

/* While one batch runs, the one before it is compared and the next one is launched. */
static ordo_status scan_passes(cli_scan_device *d)
{
    cli_scan_batch *flying = NULL, *next = NULL;
    ordo_status status = ORDO_OK;
    double read = 0;
    while (status == ORDO_OK && !ends(d)) {
        if (cli_now() - read > 1) {
            read_sensor(d);
            read = cli_now();
        }
        status = rest(d, &flying);
        const size_t place = draw_place(d);
        if (status == ORDO_OK && flying == &d->batches[place]) {
            status = collect(d, flying);
            flying = NULL;
        }
        if (status == ORDO_OK)
            status = use_place(d, place, &next);
        if (status == ORDO_OK)
            status = cli_scan_batch_launch(next);
        d->launched++;
        if (status == ORDO_OK && flying)
            status = collect(d, flying);
        flying = next;
    }
    return status == ORDO_OK && flying ? collect(d, flying) : status;
}

static void *scan_device(void *argument)
{
    cli_scan_device *d = argument;
    ordo_status status = d->machine ? ordo_device_select(d->index) : ORDO_OK;
    if (status == ORDO_OK)
        status = scan_passes(d);
    if (status != ORDO_OK)
        keep(d, status);
    read_sensor(d);
    d->seconds = cli_now() - d->scan->began;
    for (size_t i = 0; i < d->scan->catalogue.most; i++)
        if (d->batches[i].problem)
            close_batch(d, &d->batches[i]);
    return NULL;
}

/* ---- all devices ---- */

static int open_device(cli_scan_job *scan, int index, uint64_t seed)
{
    cli_scan_device *d = &scan->devices[scan->count];
    ordo_device found;
    *d = (cli_scan_device) { .scan = scan,
                             .index = index,
                             .draws = seed + (uint64_t)index + 1,
                             .least = { -1, -1, -1 },
                             .most = { -1, -1, -1 },
                             .last = { -1, -1, -1 } };
    if (index == CLI_SCAN_HOST) {
        snprintf(d->name, sizeof d->name, "the emulator of this host");
        snprintf(d->label, sizeof d->label, "emulator");
    } else {
        CLI_TRY(cli_library(ordo_device_query(index, &found)));
        if (found.major != 9 || found.minor != 0)
            return cli_error(CLI_UNSUPPORTED,
                             "--device %d: %s has compute capability %d.%d; a scan expects 9.0, "
                             "whose kernels the emulator knows",
                             index, found.name, found.major, found.minor);
        snprintf(d->name, sizeof d->name, "%s", found.name);
        snprintf(d->label, sizeof d->label, "device %d", index);
        d->workers = found.workers;
        CLI_TRY(cli_library(ordo_device_machine(index, &d->machine)));
    }
    cli_scan_sensor_open(&d->sensor, index, scan->module);
    scan->count++;
    return CLI_OK;
}

static int open_devices(cli_scan_job *scan, const request *r)
{
    const char *which = r->device;
    int count = 0;
    int64_t number = 0;
    if (which && strcmp(which, "emulator") == 0) {
        scan->devices = calloc(1, sizeof *scan->devices);
        return scan->devices ? open_device(scan, CLI_SCAN_HOST, r->seed) : cli_out_of_memory();
    }
    const bool all = which && strcmp(which, "all") == 0;
    if (which && !all && !cli_read_size(which, 0, 1023, &number))
        return cli_usage("--device %s: expected the number of a device, all or emulator", which);
    if (ordo_device_count(&count, &scan->module) != ORDO_OK)
        return cli_error(CLI_UNSUPPORTED, "%s; --device emulator scans this host's arithmetic",
                         ordo_last_error());
    if (count == 0)
        return cli_error(CLI_UNSUPPORTED,
                         "no CUDA device; --device emulator scans this host's arithmetic");
    if (number >= count)
        return cli_error(CLI_UNSUPPORTED, "--device %" PRId64 ": expected 0 to %d", number,
                         count - 1);
    scan->devices = calloc((size_t)count, sizeof *scan->devices);
    if (scan->devices == NULL)
        return cli_out_of_memory();
    if (!all)
        return open_device(scan,
                           which                   ? (int)number
                           : cli_device_find() < 0 ? 0
                                                   : cli_device_find(),
                           r->seed);
    for (int i = 0; i < count; i++)
        CLI_TRY(open_device(scan, i, r->seed));
    return CLI_OK;
}

static void show_progress(const cli_scan_job *scan)
{
    const cli_scan_device *d = scan->devices;
    int64_t passes = 0, different = 0;
    for (size_t i = 0; i < scan->count; i++) {
        passes += d[i].passes;
        different += d[i].different;
    }
    fprintf(stderr, "\r%s: %.0f of %.0f s, %" PRId64 " passes, %" PRId64 " different ",
            cli_message_prefix(), cli_now() - scan->began, scan->limit, passes, different);
    if (d->last.celsius >= 0 && scan->count == 1)
        fprintf(stderr, "%" PRId64 " C %" PRId64 " MHz ", d->last.celsius, d->last.mhz);
}

static void trap(int number, struct sigaction *old)
{
    struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    sigemptyset(&action.sa_mask);
    sigaction(number, NULL, old);
    if (old->sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

/* Start the threads, and wait for them: an interrupt ends the passes, not the report. */
static void run_devices(cli_scan_job *scan)
{
    struct sigaction old[2];
    size_t started = 0;
    const bool terminal = isatty(STDERR_FILENO);
    trap(SIGINT, &old[0]);
    trap(SIGTERM, &old[1]);
    scan->began = cli_now();
    for (size_t i = 0; i < scan->count; i++)
        cli_scan_show_begin(scan, &scan->devices[i]);
    while (started < scan->count && pthread_create(&scan->devices[started].thread, NULL,
                                                   scan_device, &scan->devices[started]) == 0)
        started++;
    for (size_t i = started; i < scan->count; i++) {
        scan->devices[i].status = ORDO_ERR_MEMORY;
        snprintf(scan->devices[i].message, sizeof scan->devices[i].message, "no thread for it");
    }
    while (terminal && !interrupted && cli_now() - scan->began < scan->limit) {
        nanosleep(&(struct timespec) { 0, 500000000 }, NULL);
        show_progress(scan);
    }
    for (size_t i = 0; i < started; i++)
        pthread_join(scan->devices[i].thread, NULL);
    if (terminal)
        fputs("\r\033[K", stderr);
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
}

static int verdict(const cli_scan_job *scan)
{
    int status = interrupted ? 130 : CLI_OK;
    for (size_t i = 0; i < scan->count; i++)
        if (scan->devices[i].status != ORDO_OK)
            status =
                cli_error(CLI_FAILED, "%s: %s", scan->devices[i].name, scan->devices[i].message);
    for (size_t i = 0; i < scan->count; i++)
        if (scan->devices[i].different > 0)
            status = CLI_DIFFERENT;
    return status;
}

static int run_scan(cli_scan_job *scan, const request *r)
{
    const int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int64_t threads = r->threads >= 0 ? r->threads : cores > 1 ? cores - 1 : 1;
    CLI_TRY(open_devices(scan, r));
    CLI_TRY(cli_scan_catalogue_open(&scan->catalogue, r->problem, r->seed, (size_t)threads,
                                    scan->count));
    for (size_t i = 0; i < scan->count; i++) {
        scan->devices[i].batches = calloc(scan->catalogue.most, sizeof *scan->devices[i].batches);
        if (scan->devices[i].batches == NULL)
            return cli_out_of_memory();
    }
    run_devices(scan);
    for (size_t i = 0; i < scan->count; i++)
        cli_scan_show_end(scan, &scan->devices[i]);
    return verdict(scan);
}

static void close_scan(cli_scan_job *scan)
{
    if (scan->catalogue.at)
        cli_scan_catalogue_close(&scan->catalogue);
    for (size_t i = 0; i < scan->count; i++) {
        free(scan->devices[i].batches);
        ordo_machine_destroy(scan->devices[i].machine);
    }
    free(scan->devices);
    pthread_mutex_destroy(&scan->lock);
}

static int run_request(const request *r)
{
    cli_scan_job scan = { .passes = r->passes, .first = r->first };
    cli_file file = { NULL };
    scan.limit = r->hours > 0 ? r->hours * 3600 : r->seconds > 0 ? r->seconds : DEFAULT_SECONDS;
    if (r->hours > 0 && r->seconds > 0)
        return cli_usage("--hours and --seconds: expected one of them");
    pthread_mutex_init(&scan.lock, NULL);
    if (r->json.on) {
        CLI_TRY(cli_file_open(&file, r->json.path ? r->json.path : "-"));
        scan.json = file.stream;
    }
    int status = run_scan(&scan, r);
    close_scan(&scan);
    if (r->json.on) {
        if (scan.began > 0) { /* also for a device that failed */
            const int written = cli_file_commit(&file);
            status = written == CLI_OK ? status : written;
        } else {
            cli_file_discard(&file);
        }
    }
    return status;
}

int cli_scan(int argc, char **argv)
{
    request r = { .threads = -1 };
    cli_option options[] = {
        OPT_TEXT("--device", "N|all|emulator", &r.device,
                 "what to scan (default: the first GPU that the kernels run on)"),
        OPT_ABOVE("--seconds", "N", &r.seconds, "how long (default 60)"),
        OPT_ABOVE("--hours", "N", &r.hours, "how long, in hours"),
        OPT_INT("--passes", "N", &r.passes, 1, INT64_MAX, "end after N passes of each device"),
        OPT_FLAG("--first", &r.first, "end at the first difference"),
        OPT_TEXT("--problem", "WORDS", &r.problem,
                 "run this problem alone: --problem=\"OPTIONS\" of `ordo run`"),
        OPT_INT("--threads", "N", &r.threads, 0, 1024,
                "of the host, which compute what drawn problems must give (default: cores - 1)"),
        OPT_U64("--seed", "N", &r.seed, "of the draws (default 0)"),
        OPT_JSON(&r.json),
    };
    const cli_section sections[] = { CLI_SECTION("Options", options) };
    const cli_syntax syntax = {
        "scan [OPTIONS]",
        "Is this GPU healthy? Run problems whose bits are known beforehand - those of the "
        "registry,\n"
        "then drawn ones that the emulator computes on idle cores of the host - and compare every\n"
        "bit. At a difference: the unit, the element, both values, temperature and clock. With\n"
        "--json a line of JSON for each event. Exit status: 0 all bits equal, 1 different, 2 "
        "usage,\n"
        "3 nothing here that can be scanned, 4 the device failed; 130 after Ctrl-C, which prints "
        "the\n"
        "table so far.",
        sections, 1,
        "  ordo scan\n"
        "  ordo scan --device all --hours 8 --json >>scan.jsonl\n"
        "  ordo scan --device 0 --problem=\"--seq 1000 --heads 4 --dim 128 --dtype bf16\" --passes "
        "1000\n"
        "  ordo scan --device emulator --seconds 10\n"
    };
    int status = CLI_OK;
    if (cli_args_read(&syntax, argc, argv, &status))
        status = run_request(&r);
    return status;
}
