/* schedule_chart_ascii.c: a schedule as text, one line per worker.
 *
 * A letter is the head at work, a dot a worker that waits for its turn, a blank one that
 * has nothing to do; capitals are on the critical path. */
#include "cli/schedule_chart.h"

#include "kit/numbers.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_ROWS = 64, MARGIN = 6, NARROWEST = 20 };

static void print_row(FILE *out, const cli_cells *cells, int64_t row)
{
    const cli_cell *c = cells->cells + row * cells->columns;
    fprintf(out, "%4" PRId64 " |", row * cells->stride);
    for (int64_t x = 0; x < cells->columns; x++) {
        const char letter = (char)((c[x].critical ? 'A' : 'a') + c[x].head % 26);
        const cli_state state = cli_cells_state(cells, row, x);
        putc(state == CLI_BUSY ? letter : state == CLI_STALLED ? '.' : ' ', out);
    }
    fputs("|\n", out);
}

static bool print_replay(FILE *out, const cli_replay *r, const ordo_schedule *schedule,
                         int64_t columns, double width)
{
    cli_cells cells;
    if (!cli_cells_make(&cells, r, schedule, MOST_ROWS, columns, width))
        return false;
    fprintf(out, "\n%s: makespan %" PRId64 ", utilization %.1f %%\n",
            ordo_order_name(r->info.order), r->info.makespan, 100 * r->info.utilization);
    for (int64_t row = 0; row < cells.rows; row++)
        print_row(out, &cells, row);
    if (cells.stride > 1)
        fprintf(out, "(every %" PRId64 "th of %" PRId64 " workers)\n", cells.stride,
                r->info.workers);
    cli_cells_free(&cells);
    return true;
}

bool cli_chart_ascii(FILE *out, const cli_chart *chart, int width)
{
    const int64_t longest = cli_chart_longest(chart);
    const bool overlap = chart->schedule.overlap > 0;
    int64_t columns = width - MARGIN - 2 > NARROWEST ? width - MARGIN - 2 : NARROWEST;
    /* A short schedule gets whole columns a unit of time, so that equal steps look equal. */
    if (longest <= columns)
        columns = columns / longest * longest;
    const double unit = (double)longest / (double)columns;
    for (size_t i = 0; i < chart->count; i++)
        if (chart->replays[i].status == ORDO_OK &&
            !print_replay(out, &chart->replays[i], &chart->schedule, columns, unit))
            return false;
    fprintf(
        out,
        "\nA letter is the head at work%s%s, '.' waits for its turn, blank is idle; capitals are\n"
        "on the critical path. One column is %.4g of time.\n",
        chart->schedule.heads > 26 ? " (after z comes a again)" : "",
        overlap ? " (reductions run during it)" : "", unit);
    return true;
}

int cli_terminal_width(void)
{
    const char *text = getenv("COLUMNS");
    int64_t width = 100;
    if (text)
        (void)cli_read_size(text, 20, 1000, &width);
    return (int)width;
}
