/* hbm_chains.c: the flash form (src/cuda/backward): row statistics, chains, and the rounding of dq.
 * The chains wait for one another's turns: their order comes from the planner's simulation. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "io/hbm.h"
#include "plan/plan.h"
#include "price/step_cost.h"
#include "sim/simulate.h"

enum { MOST_STEPS = 1 << 22 };

/* ---- row statistics, rounding of dq ---- */

/* A unit is 64 rows of a head. */
static void begin_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const ordo_io_box row = { (int32_t)(unit % job->rows), 1, 0, job->v_columns };
    (void)step;
    ordo_io_touch_box(job, worker, ORDO_IO_O, (int32_t)(unit / job->rows), row, ORDO_IO_L2_READ);
    ordo_io_touch_box(job, worker, ORDO_IO_DOUT, (int32_t)(unit / job->rows), row, ORDO_IO_L2_READ);
}

void ordo_io_begin(ordo_io_hbm_job *job)
{
    const int64_t units = (int64_t)job->batch * job->heads * job->rows;
    ordo_io_kernel_run(job, &(ordo_io_kernel) { "begin", units, 1, begin_step });
}

static void end_step(ordo_io_hbm_job *job, int64_t unit, int32_t step, int32_t worker)
{
    const int32_t head = (int32_t)(unit / job->rows), row = (int32_t)(unit % job->rows);
    const ordo_io_box sums = { row, 1, 0, 2 * job->columns }, dq = { row, 1, 0, job->columns };
    (void)step;
    ordo_io_touch_box(job, worker, ORDO_IO_DQ_SUM, head, sums, ORDO_IO_L2_READ);
    ordo_io_touch_box(job, worker, ORDO_IO_DQ, head, dq, ORDO_IO_L2_WRITE);
}

/* ---- chains ---- */

/* What a step of a chain does at one time: its loads when it begins, its addition when its turn
 * comes. */
typedef struct event {
    int64_t time;
    uint32_t step;
    uint32_t adds;
} event;

static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (int)x->adds - (int)y->adds;
}

/* Tile sizes in granules, and the run. */
typedef struct chain_tile {
    int32_t queries, keys;
    const ordo_run *run;
} chain_tile;

static void load_step(ordo_io_hbm_job *job, const ordo_step *s, chain_tile t, bool first)
{
    const ordo_io_box rows = { s->query * t.queries, t.queries, 0, job->columns };
    const ordo_io_box keys = { s->key * t.keys, t.keys, 0, job->columns };
    ordo_io_touch_box(job, s->worker, ORDO_IO_Q, s->head, rows, ORDO_IO_L2_READ);
    ordo_io_touch_box(job, s->worker, ORDO_IO_DOUT, s->head, rows, ORDO_IO_L2_READ);
    if (!first)
        return;
    ordo_io_touch_box(job, s->worker, ORDO_IO_K, s->head, keys, ORDO_IO_L2_READ);
    ordo_io_touch_box(job, s->worker, ORDO_IO_V, s->head, keys, ORDO_IO_L2_READ);
}

static void add_step(ordo_io_hbm_job *job, const ordo_step *s, chain_tile t, bool last)
{
    const ordo_io_box sums = { s->query * t.queries, t.queries, 0, 2 * job->columns };
    const ordo_io_box keys = { s->key * t.keys, t.keys, 0, job->columns };
    ordo_io_touch_box(job, s->worker, ORDO_IO_DQ_SUM, s->head, sums,
                      s->turn == 0 ? ORDO_IO_L2_WRITE : ORDO_IO_L2_ADD);
    if (!last)
        return;
    ordo_io_touch_box(job, s->worker, ORDO_IO_DK, s->head, keys, ORDO_IO_L2_WRITE);
    ordo_io_touch_box(job, s->worker, ORDO_IO_DV, s->head, keys, ORDO_IO_L2_WRITE);
}

static int32_t steps_of(const ordo_run *run, const ordo_step *s)
{
    return ordo_span_count(ordo_band_queries(&run->band, s->key));
}

/* The steps of all chains in the order of time. */
static ordo_status replay_steps(ordo_io_hbm_job *job, const ordo_record *record, chain_tile t)
{
    event *events = malloc(2 * record->count * sizeof *events);
    const int64_t chains = (int64_t)job->batch * job->heads * (job->rows / t.keys + 1);
    int32_t *loaded = calloc((size_t)chains, sizeof *loaded);
    int32_t *added = calloc((size_t)chains, sizeof *added);
    if (events && loaded && added) {
        for (uint64_t i = 0; i < record->count; i++) {
            events[2 * i] = (event) { record->steps[i].begin, (uint32_t)i, 0 };
            events[2 * i + 1] = (event) { record->steps[i].start, (uint32_t)i, 1 };
        }
        qsort(events, 2 * record->count, sizeof *events, by_time);
        for (uint64_t i = 0; i < 2 * record->count; i++) {
            const ordo_step *s = &record->steps[events[i].step];
            const int64_t chain = (int64_t)s->head * (job->rows / t.keys + 1) + s->key;
            if (events[i].adds)
                add_step(job, s, t, ++added[chain] == steps_of(t.run, s));
            else
                load_step(job, s, t, loaded[chain]++ == 0);
        }
    }
    const bool complete = events && loaded && added;
    free(events);
    free(loaded);
    free(added);
    return complete ? ORDO_OK : ordo_fail(ORDO_ERR_MEMORY, "steps: out of memory");
}

static ordo_status run_chains(ordo_io_hbm_job *job, const ordo_plan *plan, int64_t *clocks)
{
    const ordo_problem *p = &job->problem;
    const ordo_run run = ordo_plan_run(plan, p->batch, p->q_len, p->kv_len);
    const chain_tile tile = { run.band.bq / ORDO_IO_GRANULE_ROWS,
                              run.band.bk / ORDO_IO_GRANULE_ROWS, &run };
    const int64_t steps = (int64_t)job->batch * job->heads * ordo_band_query_tiles(&run.band) *
                          ordo_band_key_tiles(&run.band);
    ordo_costs costs;
    ordo_times times;
    ordo_record record = { 0 };
    if (steps > MOST_STEPS)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "batch %" PRId64 ", heads %" PRId64 ", q_len %" PRId64 ": %" PRId64
                         " steps; expected at most %d",
                         p->batch, p->heads, p->q_len, steps, MOST_STEPS);
    ORDO_TRY(ordo_step_cost(plan, job->machine, &costs));
    ordo_status status = ordo_timeline_simulate(&run, 1, &costs, &times, &record);
    if (status == ORDO_OK)
        status = replay_steps(job, &record, tile);
    free(record.steps);
    ordo_io_kernel_end(job, "chains");
    *clocks = times.makespan;
    return status;
}

/* ---- time ---- */

/* The pass takes the simulated time of the chains, a share of the time in which HBM would move what
 * the chains do not find in L2 (the rest lies under their products), and what the two kernels of
 * rows take, which move little else. lab/bench/fit_orders fitted the shares to half of the rows of
 * lab/bench/measured/h200-orders.json. */
static const double CHAINS = 1.01, TRAFFIC = 0.37, ROWS = 2.0;

static ordo_status add_times(ordo_io_hbm_job *job, int64_t clocks, int64_t row_granules)
{
    double ghz = 0, bytes_per_s = 0;
    ordo_io_hbm *h = job->result;
    ORDO_TRY(ordo_machine_get(job->machine, "clock_ghz", &ghz));
    ORDO_TRY(ordo_machine_get(job->machine, "hbm_bytes_per_s", &bytes_per_s));
    int64_t moved = 0;
    for (int i = 0; i < ORDO_IO_KERNELS && h->kernels[i].name; i++)
        if (strcmp(h->kernels[i].name, "chains") == 0)
            moved = h->kernels[i].loads + h->kernels[i].stores;
    h->chains_ns = (double)clocks / ghz;
    h->ns = CHAINS * h->chains_ns + TRAFFIC * (double)moved / bytes_per_s * 1e9 +
            ROWS * (double)(row_granules * ORDO_IO_GRANULE) / bytes_per_s * 1e9;
    return ORDO_OK;
}

ordo_status ordo_io_flash_backward(ordo_io_hbm_job *job, const ordo_plan *plan)
{
    const int64_t units = (int64_t)job->batch * job->heads * job->rows;
    int64_t clocks = 0;
    ordo_io_begin(job);
    int64_t row_granules = job->l2.asked;
    ORDO_TRY(run_chains(job, plan, &clocks));
    const int64_t asked = job->l2.asked;
    ordo_io_kernel_run(job, &(ordo_io_kernel) { "end", units, 1, end_step });
    row_granules += job->l2.asked - asked;
    return add_times(job, clocks, row_granules);
}
