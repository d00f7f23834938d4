/* bench_device.c: times of passes on a device, measured by its events.
 *
 * Runs are queued without waiting, so that the device never waits for the host: the flush before a
 * run gives the host time to launch it. Only the pass lies between the two events of a run. */
#include "attention/bench_device.h"

#include "kit/message.h"

#include <stdlib.h>

enum { FLUSH_BYTES = 256 << 20, LEAST_RUNS = 5, MOST_RUNS = 1000 };

typedef struct burst {
    const ordo_plan *plan;
    const cli_stage *stage;
    int what;
    void *flush;    /* more than the caches hold */
    void **events;  /* two per run */
    size_t created; /* so many of them */
} burst;

static ordo_status make_events(burst *b, size_t count)
{
    ordo_status status = ORDO_OK;
    for (; b->created < count && status == ORDO_OK; b->created += status == ORDO_OK)
        status = ordo_device_event_create(&b->events[b->created]);
    return status;
}

static ordo_status launch(const burst *b)
{
    const ordo_call *call = &b->stage->call;
    if (b->what == CLI_BITS)
        return cli_stage_launch_bits(b->stage);
    const ordo_status before = cli_stage_before_pass(b->stage);
    if (before != ORDO_OK)
        return before;
    return b->what == CLI_BACKWARD ? ordo_attention_backward(b->plan, call)
                                   : ordo_attention_forward(b->plan, call);
}

/* Queue `count` runs, then wait and read the times. */
static ordo_status run(burst *b, size_t count, double *samples)
{
    void *stream = b->stage->call.stream;
    ordo_status status = make_events(b, 2 * count);
    for (size_t i = 0; i < count && status == ORDO_OK; i++) {
        status = ordo_device_fill(b->flush, (int)(i % 256), FLUSH_BYTES, stream);
        if (status == ORDO_OK)
            status = ordo_device_event_record(b->events[2 * i], stream);
        if (status == ORDO_OK)
            status = launch(b);
        if (status == ORDO_OK)
            status = ordo_device_event_record(b->events[2 * i + 1], stream);
    }
    for (size_t i = 0; i < count && status == ORDO_OK; i++)
        status = ordo_device_event_elapsed(b->events[2 * i], b->events[2 * i + 1], &samples[i]);
    return status;
}

/* Runs that fill `seconds`, by the time of some that were. */
static size_t runs_for(double seconds, const double *samples, size_t count, size_t most)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += samples[i];
    const double runs = seconds * (double)count / (sum > 0 ? sum : 1e-9);
    return runs < LEAST_RUNS ? LEAST_RUNS : runs > (double)most ? most : (size_t)runs;
}

static ordo_status warm_up_and_run(burst *b, double seconds, double *samples, size_t *runs)
{
    const size_t most = *runs < MOST_RUNS ? *runs : MOST_RUNS;
    ordo_status status = run(b, LEAST_RUNS, samples);
    if (status == ORDO_OK)
        status = run(b, runs_for(seconds / 4, samples, LEAST_RUNS, most), samples);
    *runs = runs_for(seconds, samples, LEAST_RUNS, most);
    return status == ORDO_OK ? run(b, *runs, samples) : status;
}

int cli_bench_device(const ordo_plan *plan, const cli_stage *stage, int what, double seconds,
                     double *samples, size_t *runs)
{
    burst b = { .plan = plan, .stage = stage, .what = what };
    b.events = calloc(2 * (size_t)MOST_RUNS, sizeof *b.events);
    if (b.events == NULL)
        return cli_out_of_memory();
    ordo_status status = ordo_device_alloc(&b.flush, FLUSH_BYTES);
    if (status == ORDO_OK)
        status = warm_up_and_run(&b, seconds, samples, runs);
    const int exit_status = cli_library(status);
    for (size_t i = 0; i < b.created; i++)
        (void)ordo_device_event_destroy(b.events[i]);
    (void)ordo_device_free(b.flush);
    free(b.events);
    return exit_status;
}

double cli_bench_device_peak(const ordo_machine *machine)
{
    double workers, flop, ghz;
    if (ordo_machine_get(machine, "workers", &workers) != ORDO_OK ||
        ordo_machine_get(machine, "mma_flop_per_clk_bf16", &flop) != ORDO_OK ||
        ordo_machine_get(machine, "clock_datasheet_ghz", &ghz) != ORDO_OK)
        return 0;
    return workers * flop * ghz * 1e9;
}
