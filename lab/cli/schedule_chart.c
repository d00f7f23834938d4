/* schedule_chart.c: what the pictures of a schedule share: intervals of time, and cells. */
#include "cli/schedule_chart.h"

#include <stdlib.h>

static void emit(cli_visit *visit, void *context, const ordo_timeline_step *step, cli_part part,
                 int lane, int64_t begin, int64_t end)
{
    const bool critical = step->critical && (part == CLI_REDUCE || step->start == step->ready);
    const cli_interval interval = { part, lane, begin, end, critical && part != CLI_WAIT };
    if (end > begin)
        visit(context, step, &interval);
}

/* With overlap a step is ready when it has handed its result over: computed, and a buffer free.
 * What exceeds the cost of computing was spent waiting for the buffer. */
static void walk_overlapped(const ordo_schedule *schedule, const ordo_timeline_step *s,
                            int64_t *reduced, cli_visit *visit, void *context)
{
    int64_t cost = schedule->compute;
    if (schedule->compute_partial > cost)
        cost = schedule->compute_partial;
    const int64_t computed = s->ready - s->begin > cost ? s->begin + cost : s->ready;
    const int64_t queued = *reduced > s->ready ? *reduced : s->ready;
    emit(visit, context, s, CLI_COMPUTE, 0, s->begin, computed);
    emit(visit, context, s, CLI_WAIT, 0, computed, s->ready);
    emit(visit, context, s, CLI_WAIT, 1, queued, s->start);
    emit(visit, context, s, CLI_REDUCE, 1, s->start, s->end);
    *reduced = s->end;
}

bool cli_chart_walk(const cli_replay *replay, const ordo_schedule *schedule, cli_visit *visit,
                    void *context)
{
    /* End of each worker's last reduction. */
    int64_t *reduced = calloc((size_t)replay->info.workers, sizeof *reduced);
    if (reduced == NULL)
        return false;
    const uint64_t count = ordo_timeline_step_count(replay->timeline);
    for (uint64_t i = 0; i < count; i++) {
        ordo_timeline_step s;
        if (ordo_timeline_step_at(replay->timeline, i, &s) != ORDO_OK)
            continue;
        if (schedule->overlap > 0) {
            walk_overlapped(schedule, &s, &reduced[s.worker], visit, context);
            continue;
        }
        emit(visit, context, &s, CLI_COMPUTE, 0, s.begin, s.ready);
        emit(visit, context, &s, CLI_WAIT, 0, s.ready, s.start);
        emit(visit, context, &s, CLI_REDUCE, 0, s.start, s.end);
    }
    free(reduced);
    return true;
}

/* Add an interval to the cells that it crosses. */
static void fill(void *context, const ordo_timeline_step *step, const cli_interval *interval)
{
    cli_cells *cells = context;
    if (interval->lane != 0 || step->worker % cells->stride != 0)
        return;
    cli_cell *row = cells->cells + step->worker / cells->stride * cells->columns;
    const double begin = (double)interval->begin, end = (double)interval->end;
    for (int64_t x = (int64_t)(begin / cells->width); x < cells->columns; x++) {
        const double left = (double)x * cells->width, right = left + cells->width;
        const double inside = (end < right ? end : right) - (begin > left ? begin : left);
        if (left >= end)
            break;
        if (inside <= 0)
            continue;
        if (interval->part == CLI_WAIT) {
            row[x].stalled += inside;
            continue;
        }
        row[x].busy += inside;
        row[x].critical |= interval->critical;
        if (inside > row[x].longest) {
            row[x].longest = inside;
            row[x].head = step->head;
        }
    }
}

bool cli_cells_make(cli_cells *cells, const cli_replay *replay, const ordo_schedule *schedule,
                    int64_t most_rows, int64_t columns, double width)
{
    const int64_t workers = replay->info.workers;
    const int64_t stride = (workers + most_rows - 1) / most_rows;
    const int64_t rows = (workers + stride - 1) / stride;
    *cells = (cli_cells) { NULL, rows, columns, stride, width };
    cells->cells = calloc((size_t)(rows * columns), sizeof *cells->cells);
    if (cells->cells && cli_chart_walk(replay, schedule, fill, cells))
        return true;
    cli_cells_free(cells);
    return false;
}

cli_state cli_cells_state(const cli_cells *cells, int64_t row, int64_t column)
{
    const cli_cell *c = &cells->cells[row * cells->columns + column];
    const double idle = cells->width - c->busy - c->stalled;
    /* A cell on the critical path is shown even where other things fill more of it. */
    if (c->critical || (c->busy >= c->stalled && c->busy >= idle))
        return CLI_BUSY;
    return c->stalled >= idle ? CLI_STALLED : CLI_IDLE;
}

void cli_cells_free(cli_cells *cells)
{
    free(cells->cells);
    cells->cells = NULL;
}

int64_t cli_chart_longest(const cli_chart *chart)
{
    int64_t longest = 1;
    for (size_t i = 0; i < chart->count; i++)
        if (chart->replays[i].status == ORDO_OK && chart->replays[i].info.makespan > longest)
            longest = chart->replays[i].info.makespan;
    return longest;
}
