/* schedule_chart_html.c: a self-contained page: the figures, the chart, and what each order does.
 */
#include "cli/schedule_chart.h"
#include "kit/page.h"

#include <inttypes.h>

/* Indexed by ordo_order. */
static const char *const about[ORDO_ORDER_COUNT + 1] = {
    [ORDO_ORDER_ASCENDING] =
        "Key tiles add in the order 0, 1, 2 ..., each walking its query tiles upwards. Under a "
        "full "
        "mask every worker starts on the same query tile and they queue up once; under a causal "
        "mask each worker is last in line on its very first tile.",
    [ORDO_ORDER_DESCENDING] =
        "Key tiles add in the order 0, 1, 2 ..., each walking its query tiles downwards. Under a "
        "causal mask the short chains end early, and the next head starts in their place.",
    [ORDO_ORDER_SHIFT] =
        "Key tile j starts at query tile j and wraps round, so that in one step no two workers "
        "meet. For full masks; the tiles of a group must run at the same time.",
    [ORDO_ORDER_SYMMETRIC] =
        "Key tiles u and n-1-u, a long and a short one, make pairs of equal length; the pairs "
        "rotate through the dense part and fold the triangle into the rest. For causal masks; the "
        "pairs of a group must run at the same time.",
    [ORDO_ORDER_SPT] =
        "The last key tile adds first, each walking its query tiles upwards from the diagonal. "
        "Under a causal mask nobody waits for a turn; what is lost is the uneven end.",
    [ORDO_ORDER_TWIN] =
        "Even key heads as spt, odd ones as descending: the long chains of one head fill the gaps "
        "that the short chains of the other leave.",
    [ORDO_ORDER_SPT_TAIL] =
        "spt, but every fourth key head descending and issued last, longest chain first: those "
        "heads level the uneven end.",
};

static void write_question(FILE *out, const ordo_schedule *s)
{
    fprintf(out,
            "<h1>Orders of sums, replayed</h1>\n<p>Mask %s, %" PRId64 " key tiles, %" PRId64
            " heads on %" PRId64 " workers. A step computes for %" PRId64
            ", waits for its turn at its query tile, then adds for %" PRId64,
            ordo_mask_name(s->mask), s->key_tiles, s->heads, s->workers, s->compute, s->reduce);
    if (s->latency > 0)
        fprintf(out, "; the next may start %" PRId64 " later", s->latency);
    if (s->overlap > 0)
        fprintf(out, "; up to %" PRId64 " additions run during the computation", s->overlap);
    fputs(". The order of the sums fixes every bit of the result; the picture shows what each "
          "order costs in time.</p>\n",
          out);
}

static void write_table(FILE *out, const cli_chart *chart)
{
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < chart->count; i++)
        if (chart->replays[i].status == ORDO_OK && chart->replays[i].info.makespan < best)
            best = chart->replays[i].info.makespan;
    fputs("<table>\n<tr><th>order</th><th>makespan</th><th>lower bound</th><th>utilization</th>"
          "<th>waiting</th><th>tail</th><th>needed together</th></tr>\n",
          out);
    for (size_t i = 0; i < chart->count; i++) {
        const cli_replay *r = &chart->replays[i];
        if (r->status != ORDO_OK) {
            fprintf(out, "<tr class=\"soft\"><td>%s</td><td class=\"text\" colspan=\"6\">",
                    ordo_order_name(r->order));
            cli_page_escape(out, r->why);
            fputs("</td></tr>\n", out);
            continue;
        }
        const ordo_timeline_info *info = &r->info;
        fprintf(out,
                "<tr%s><td>%s</td><td>%" PRId64 "</td><td>%" PRId64
                "</td><td>%.1f %%</td><td>%" PRId64 "</td><td>%" PRId64 "</td><td>%" PRId64
                "</td></tr>\n",
                info->makespan == best ? " class=\"best\"" : "", ordo_order_name(info->order),
                info->makespan, info->lower_bound, 100 * info->utilization, info->stall, info->tail,
                info->coresident);
    }
    fputs("</table>\n", out);
}

static void write_orders(FILE *out, const cli_chart *chart)
{
    bool told[ORDO_ORDER_COUNT + 1] = { false };
    fputs("<h2>The orders</h2>\n<dl>\n", out);
    for (size_t i = 0; i < chart->count; i++) {
        const cli_replay *r = &chart->replays[i];
        const ordo_order order = r->status == ORDO_OK ? r->info.order : r->order;
        if ((int)order < 1 || (int)order > ORDO_ORDER_COUNT || told[order] || about[order] == NULL)
            continue;
        told[order] = true;
        fprintf(out, "<dt>%s</dt><dd>", ordo_order_name(order));
        cli_page_escape(out, about[order]);
        if (r->status == ORDO_OK && r->info.note[0] != '\0') {
            fputs(" <span class=\"soft\">", out);
            cli_page_escape(out, r->info.note);
            fputs("</span>", out);
        }
        fputs("</dd>\n", out);
    }
    fputs("</dl>\n", out);
}

bool cli_chart_html(FILE *out, const cli_chart *chart)
{
    cli_page_start(out, "ordo schedule",
                   "dt{font-weight:600;margin-top:.8rem}dd{margin:0;max-width:46rem}\n");
    write_question(out, &chart->schedule);
    write_table(out, chart);
    fputs("<h2>Who does what when</h2>\n<div class=\"chart\">\n", out);
    if (!cli_chart_svg(out, chart))
        return false;
    fputs("</div>\n", out);
    write_orders(out, chart);
    fprintf(out, "<p class=\"soft\">Made by ordo %s.</p>\n</body>\n</html>\n",
            ordo_build_query().version);
    return true;
}
