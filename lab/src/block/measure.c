/* measure.c: times of modes in steady state, taken alternately. */
#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "block/block.h"
#include "block/board.h"

enum { SAMPLES_MAX = 4096, PASSES_MAX = 1 << 20 };
static const double sample_seconds = 0.05, settle_seconds = 0.2;

/* The samples of one mode. */
typedef struct samples {
    ordo_block_mode mode;
    double seconds[SAMPLES_MAX]; /* seconds of one pass, in each sample */
    double held;                 /* seconds of all samples */
    int count, passes;           /* samples, and passes in each of them */
    double joules, clocks;       /* over all samples; negative if not known */
} samples;

static ordo_status pass(ordo_block_runner *r, ordo_block_mode mode)
{
    ORDO_TRY(ordo_block_forward(r, mode));
    return r->job.backward ? ordo_block_backward(r) : ORDO_OK;
}

/* `ghz`, if not NULL, gets the clock of the board once all passes are launched. */
static ordo_status passes(ordo_block_runner *r, ordo_block_mode mode, int count, double *seconds,
                          double *ghz)
{
    ORDO_TRY(r->ops->start_clock(r->device));
    for (int i = 0; i < count; i++)
        ORDO_TRY(pass(r, mode));
    if (ghz)
        *ghz = r->job.backend == ORDO_BACKEND_CUDA ? ordo_board_clock_ghz() : -1;
    return r->ops->stop_clock(r->device, seconds);
}

/* One sample: passes that are not counted, to settle the clock and fill the pipeline of overlapped
 * bits, and then those that are. */
static ordo_status take_sample(ordo_block_runner *r, samples *t)
{
    const bool board = r->job.backend == ORDO_BACKEND_CUDA;
    double seconds, ignored, clock;
    ORDO_TRY(passes(r, t->mode, 1 + t->passes / 5, &ignored, NULL));
    const double before = board ? ordo_board_joules() : -1;
    ORDO_TRY(passes(r, t->mode, t->passes, &seconds, &clock));
    const double after = board ? ordo_board_joules() : -1;
    t->seconds[t->count++] = seconds / t->passes;
    t->held += seconds;
    t->joules = before < 0 || after < before || t->joules < 0 ? -1 : t->joules + after - before;
    t->clocks = clock < 0 || t->clocks < 0 ? -1 : t->clocks + clock;
    return ORDO_OK;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ordo_block_time summary(samples *t)
{
    qsort(t->seconds, (size_t)t->count, sizeof t->seconds[0], ascending);
    const double low = t->seconds[(t->count - 1) / 2], high = t->seconds[t->count / 2];
    return (ordo_block_time) { .seconds = (low + high) / 2,
                               .fastest = t->seconds[0],
                               .slowest = t->seconds[t->count - 1],
                               .samples = t->count,
                               .passes = t->count * t->passes,
                               .watts = t->joules < 0 ? -1 : t->joules / t->held,
                               .clock_ghz = t->clocks < 0 ? -1 : t->clocks / t->count };
}

/* After a rest the clock of a board is up to a tenth higher than under a load that lasts: the mode
 * that is measured first would seem faster than the others. */
static ordo_status settle(ordo_block_runner *r, const samples *t, double seconds)
{
    double held = 0, once;
    while (held < fmin(seconds, settle_seconds)) {
        ORDO_TRY(passes(r, t->mode, t->passes, &once, NULL));
        held += once;
    }
    return ORDO_OK;
}

/* Every second round goes backwards: a mode inherits temperature and clock from the one before it,
 * and no mode shall always follow the same other. */
static ordo_status measure(ordo_block_runner *r, samples *all, int count, double seconds)
{
    for (int i = 0; i < count; i++) { /* how many passes make a sample */
        double once;
        all[i].passes = 1;
        if (seconds > 0)
            ORDO_TRY(passes(r, all[i].mode, 1, &once, NULL));
        ORDO_TRY(passes(r, all[i].mode, 1, &once, NULL));
        if (seconds > 0 && once < sample_seconds)
            all[i].passes = (int)fmin(sample_seconds / fmax(once, 1e-9), PASSES_MAX) + 1;
    }
    ORDO_TRY(settle(r, &all[0], seconds));
    bool short_of = true;
    for (int round = 0; short_of; round++) {
        short_of = false;
        for (int i = 0; i < count; i++) {
            samples *t = &all[round % 2 ? count - 1 - i : i];
            ORDO_TRY(take_sample(r, t));
            short_of |= t->held < seconds && t->count < SAMPLES_MAX;
        }
    }
    return ORDO_OK;
}

ordo_status ordo_block_measure(ordo_block_runner *r, const ordo_block_mode *modes, int count,
                               double seconds, ordo_block_time *times)
{
    ORDO_TRY(ordo_check_pointer("runner", r));
    ORDO_TRY(ordo_check_pointer("modes", modes));
    ORDO_TRY(ordo_check_pointer("times", times));
    ORDO_TRY(ordo_check_range("count", count, 1, 64));
    if (!(seconds >= 0 && seconds <= 3600))
        return ordo_fail(ORDO_ERR_ARGUMENT, "seconds %g: expected 0 to 3600", seconds);
    samples *all = calloc((size_t)count, sizeof *all);
    if (all == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "times: %zu bytes", (size_t)count * sizeof *all);
    for (int i = 0; i < count; i++)
        all[i].mode = modes[i];
    const ordo_status status = measure(r, all, count, seconds);
    for (int i = 0; i < count && status == ORDO_OK; i++)
        times[i] = summary(&all[i]);
    free(all);
    return status;
}
