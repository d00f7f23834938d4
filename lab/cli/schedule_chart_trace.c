/* schedule_chart_trace.c: schedules in the Trace Event format, which Perfetto opens.
 *
 * One process per order, one thread per worker, and one more where reductions overlap the
 * computation. A unit of time becomes a microsecond, the unit of the format. An arrow goes
 * from the turn before to each step that had to wait for it. */
#include "cli/schedule_chart.h"

#include <inttypes.h>

typedef struct trace {
    FILE *out;
    const cli_replay *replay;
    size_t process;
    bool overlap, filled;
} trace;

static void separate(trace *t)
{
    fputs(t->filled ? ",\n" : "\n", t->out);
    t->filled = true;
}

static int64_t thread_of(const trace *t, int64_t worker, int lane)
{
    return t->overlap ? 2 * worker + lane : worker;
}

static void name_thread(trace *t, int64_t worker, int lane)
{
    separate(t);
    fprintf(t->out,
            "{\"ph\":\"M\",\"pid\":%zu,\"tid\":%" PRId64
            ",\"name\":\"thread_name\",\"args\":{\"name\":\"worker %" PRId64 "%s\"}}",
            t->process, thread_of(t, worker, lane), worker, lane > 0 ? " reductions" : "");
}

static void name_threads(trace *t)
{
    separate(t);
    fprintf(t->out,
            "{\"ph\":\"M\",\"pid\":%zu,\"name\":\"process_name\",\"args\":{\"name\":\"%s: makespan "
            "%" PRId64 "\"}}",
            t->process, ordo_order_name(t->replay->info.order), t->replay->info.makespan);
    for (int64_t w = 0; w < t->replay->info.workers; w++) {
        name_thread(t, w, 0);
        if (t->overlap)
            name_thread(t, w, 1);
    }
}

static void write_interval(void *context, const ordo_timeline_step *s, const cli_interval *interval)
{
    static const char *const parts[] = { "compute", "wait", "reduce" };
    trace *t = context;
    const char *part = parts[interval->part];
    separate(t);
    fprintf(t->out,
            "{\"ph\":\"X\",\"pid\":%zu,\"tid\":%" PRId64 ",\"ts\":%" PRId64 ",\"dur\":%" PRId64
            ",\"cat\":\"%s\",\"name\":\"%s h%d k%d q%d\",\"args\":{\"head\":%d,\"key\":%d,"
            "\"query\":%d,\"turn\":%d,\"critical\":%s}}",
            t->process, thread_of(t, s->worker, interval->lane), interval->begin,
            interval->end - interval->begin, part, part, (int)s->head, (int)s->key, (int)s->query,
            (int)s->head, (int)s->key, (int)s->query, (int)s->turn, s->critical ? "true" : "false");
}

/* Arrows bind to the slice around their time, so one leaves just before a reduction ends. */
static void write_arrow(trace *t, const ordo_timeline_step *from, const ordo_timeline_step *to,
                        uint64_t index)
{
    const int lane = t->overlap ? 1 : 0;
    separate(t);
    fprintf(t->out,
            "{\"ph\":\"s\",\"pid\":%zu,\"tid\":%" PRId64 ",\"ts\":%" PRId64
            ".999,\"cat\":\"turn\",\"name\":\"turn\",\"id\":\"%zu.%" PRIu64 "\"},\n",
            t->process, thread_of(t, from->worker, lane), from->end - 1, t->process, index);
    fprintf(t->out,
            "{\"ph\":\"f\",\"bp\":\"e\",\"pid\":%zu,\"tid\":%" PRId64 ",\"ts\":%" PRId64
            ",\"cat\":\"turn\",\"name\":\"turn\",\"id\":\"%zu.%" PRIu64 "\"}",
            t->process, thread_of(t, to->worker, lane), to->start, t->process, index);
}

static void write_arrows(trace *t)
{
    const uint64_t count = ordo_timeline_step_count(t->replay->timeline);
    for (uint64_t i = 0; i < count; i++) {
        ordo_timeline_step from, to;
        if (ordo_timeline_step_at(t->replay->timeline, i, &to) != ORDO_OK)
            continue;
        if (to.waited_for < 0 || to.start <= to.ready)
            continue;
        if (ordo_timeline_step_at(t->replay->timeline, (uint64_t)to.waited_for, &from) == ORDO_OK &&
            from.end > 0)
            write_arrow(t, &from, &to, i);
    }
}

bool cli_chart_trace(FILE *out, const cli_chart *chart)
{
    trace t = { .out = out, .overlap = chart->schedule.overlap > 0 };
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
    for (size_t i = 0; i < chart->count; i++) {
        if (chart->replays[i].status != ORDO_OK)
            continue;
        t.replay = &chart->replays[i];
        t.process = i;
        name_threads(&t);
        if (!cli_chart_walk(t.replay, &chart->schedule, write_interval, &t))
            return false;
        write_arrows(&t);
    }
    fputs("\n]}\n", out);
    return true;
}
