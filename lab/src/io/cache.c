/* cache.c: run the algorithms of the I/O model through caches. */
#include <inttypes.h>
#include <string.h>

#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "io/cache.h"
#include "io/run.h"

/* Make a world whose tiles are chosen for budget * M words. */
static ordo_status prepare(ordo_io_world *world, const ordo_io_problem *problem,
                           ordo_io_algorithm algorithm, const ordo_io_tiles *tiles, double budget)
{
    ordo_io_shape shape;
    ordo_io_choice choice;
    memset(world, 0, sizeof *world);
    ORDO_TRY(ordo_io_shape_of(problem, &shape));
    if (shape.pass == ORDO_IO_GRADIENT)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "pass gradient: expected forward or backward");
    ordo_io_shape room = shape;
    room.cache = (int64_t)(budget * (double)shape.cache);
    ORDO_TRY(ordo_io_decide(&room, algorithm, tiles, &choice));
    return ordo_io_world_create(world, problem, &shape, choice.algorithm, &choice.tiles,
                                choice.words.cache);
}

static ordo_io_extent memory_of(const ordo_io_world *world)
{
    return (ordo_io_extent) { world->fast.pool + world->fast.capacity, world->fast.pool };
}

/* Run and pass every access to a sink. */
static ordo_status observe(ordo_io_world *world, const ordo_io_problem *problem, bool packed,
                           const ordo_io_sink *sink, double *error)
{
    world->fast.sink = sink;
    world->fast.packed = packed;
    return ordo_io_execute(world, problem, error);
}

static void report_lines(ordo_io_report *r, const ordo_io_world *world, int64_t fills,
                         int64_t writebacks, int64_t line)
{
    ordo_io_fill_report(r, world);
    memset(r->tensors, 0, sizeof r->tensors); /* with a cache no words are staged */
    memset(r->loops, 0, sizeof r->loops);
    r->loads = fills * line * world->shape.copies;
    r->stores = writebacks * line * world->shape.copies;
}

static ordo_status run_lru(ordo_io_world *world, const ordo_io_problem *problem,
                           const ordo_io_cache *cache, ordo_io_report *report, ordo_io_words *inner)
{
    ordo_io_lru first = { 0 }, second = { 0 };
    const ordo_io_extent memory = memory_of(world);
    const bool chain = cache->outer_words > 0;
    const int64_t ways = cache->replacement == ORDO_IO_ASSOC ? cache->ways : 0;
    ordo_status status = ordo_io_lru_create(&first, memory, world->shape.cache, cache->line, ways,
                                            chain ? &second : NULL);
    if (status == ORDO_OK && chain)
        status = ordo_io_lru_create(&second, memory, cache->outer_words, cache->line,
                                    cache->outer_ways, NULL);
    if (status == ORDO_OK) {
        const ordo_io_sink sink = { ordo_io_lru_take, &first };
        status = observe(world, problem, cache->packed, &sink, &report->error);
    }
    if (status == ORDO_OK) {
        ordo_io_lru_finish(&first);
        if (chain)
            ordo_io_lru_finish(&second);
        const ordo_io_lru *last = chain ? &second : &first;
        report_lines(report, world, last->fills, last->writebacks, cache->line);
        if (inner)
            *inner = (ordo_io_words) { first.fills * cache->line * world->shape.copies,
                                       first.writebacks * cache->line * world->shape.copies,
                                       world->shape.cache, 0 };
    }
    ordo_io_lru_destroy(&first);
    ordo_io_lru_destroy(&second);
    return status;
}

/* Refuse a problem whose trace cannot fit before anything runs, by a lower bound on its accesses:
 * every live score enters one multiplication per column of the operands, and a multiplication reads
 * two words of different lines. Only packed operands may share a line, and then at most half of the
 * accesses repeat the one before. */
static ordo_status check_trace(const ordo_io_shape *s, bool packed)
{
    const int64_t products = s->pass == ORDO_IO_FORWARD ? s->dk + s->dv : 3 * s->dk + 2 * s->dv;
    const double least = (packed ? 1.0 : 2.0) * (double)products * (double)ordo_io_live_scores(s);
    if (least > ORDO_IO_TRACE_MOST)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "opt: %" PRId64 " x %" PRId64 " scores at head size %" PRId64
                         " are more than %.2g accesses, and a trace holds %d; expected fewer rows "
                         "or columns, or replacement lru",
                         s->rows, s->cols, s->dk, least, ORDO_IO_TRACE_MOST);
    return ORDO_OK;
}

static ordo_status run_optimum(ordo_io_world *world, const ordo_io_problem *problem,
                               const ordo_io_cache *cache, ordo_io_report *report,
                               ordo_io_words *inner)
{
    ordo_io_trace trace = { 0 };
    const ordo_io_sink sink = { ordo_io_trace_take, &trace };
    int64_t fills = 0, writebacks = 0;
    ORDO_TRY(check_trace(&world->shape, cache->packed));
    while ((int64_t)1 << trace.shift < cache->line)
        trace.shift++;
    ordo_status status = observe(world, problem, cache->packed, &sink, &report->error);
    if (status == ORDO_OK)
        status = ordo_io_optimum(&trace, memory_of(world), world->shape.cache / cache->line, &fills,
                                 &writebacks);
    if (status == ORDO_OK) {
        report_lines(report, world, fills, writebacks, cache->line);
        if (inner)
            *inner = (ordo_io_words) { report->loads, report->stores, world->shape.cache, 0 };
    }
    ordo_io_trace_release(&trace);
    return status;
}

static ordo_status check_cache(ordo_io_cache *c, int64_t words)
{
    enum { LONGEST_LINE = 64 };
    c->line = c->line ? c->line : 1;
    c->budget = c->budget == 0 ? 1 : c->budget;
    if ((unsigned)c->replacement < ORDO_IO_LRU || (unsigned)c->replacement > ORDO_IO_OPT)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "replacement %d: expected 1 (lru), 2 (assoc) or 3 (opt)",
                         (int)c->replacement);
    if (c->line < 1 || c->line > LONGEST_LINE || (c->line & (c->line - 1)) != 0 || c->line > words)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "line %" PRId64 ": expected a power of two, at most %d and M", c->line,
                         LONGEST_LINE);
    if (c->replacement == ORDO_IO_ASSOC)
        ORDO_TRY(ordo_check_range("ways", c->ways, 1, words / c->line));
    if (!(c->budget > 0 && c->budget <= 16))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "budget %g: expected a part of M, above 0 and at most 16", c->budget);
    if (c->outer_words != 0 && (c->replacement == ORDO_IO_OPT || c->outer_words < words))
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "outer_words %" PRId64 ": expected M or more, after lru or assoc",
                         c->outer_words);
    return ORDO_OK;
}

ordo_status ordo_io_cache_run(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                              const ordo_io_tiles *tiles, const ordo_io_cache *cache,
                              ordo_io_report *report, ordo_io_words *inner)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_io_cache c;
    ordo_io_world world;
    ORDO_TRY(ordo_check_pointer("problem", problem));
    ORDO_TRY(ordo_check_pointer("cache", cache));
    ORDO_TRY(ordo_check_pointer("report", report));
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_io_cache, "ordo_io_cache", ORDO_IO_CACHE_INIT, NULL);
    ORDO_TRY(ordo_versioned_copy(&c, cache, &kind));
    ORDO_TRY(check_cache(&c, problem->cache_words));
    memset(report, 0, sizeof *report);
    ordo_status status = prepare(&world, problem, algorithm, tiles, c.budget);
    if (status == ORDO_OK)
        status = c.replacement == ORDO_IO_OPT ? run_optimum(&world, problem, &c, report, inner)
                                              : run_lru(&world, problem, &c, report, inner);
    ordo_io_world_destroy(&world);
    return status;
}

ordo_status ordo_io_curve(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                          const ordo_io_tiles *tiles, int64_t line, bool packed,
                          ordo_io_words *curve, int64_t count, ordo_io_report *report)
{
    ORDO_DEFAULT_ENVIRONMENT;
    enum { MOST = 1 << 28 };
    ordo_io_world world;
    ordo_io_stack *stack = NULL;
    ORDO_TRY(ordo_check_pointer("curve", curve));
    ORDO_TRY(ordo_check_pointer("report", report));
    ORDO_TRY(ordo_check_range("count", count, 1, MOST));
    memset(report, 0, sizeof *report);
    ordo_status status = prepare(&world, problem, algorithm, tiles, 1);
    if (status == ORDO_OK)
        status = ordo_io_stack_create(&stack, memory_of(&world), line ? line : 1, count);
    if (status == ORDO_OK) {
        const ordo_io_sink sink = { ordo_io_stack_take, stack };
        status = observe(&world, problem, packed, &sink, &report->error);
    }
    if (status == ORDO_OK)
        status = ordo_io_stack_finish(stack, curve);
    for (int64_t i = 0; status == ORDO_OK && i < count; i++) {
        curve[i].loads *= world.shape.copies;
        curve[i].stores *= world.shape.copies;
    }
    if (status == ORDO_OK)
        report_lines(report, &world, 0, 0, 1);
    ordo_io_stack_destroy(stack);
    ordo_io_world_destroy(&world);
    return status;
}
