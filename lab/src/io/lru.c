/* lru.c: caches that evict the least recently used line: one linked list, or one short list per
 * set. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "io/cache.h"

enum { HELD = 1, DIRTY = 2, LONGEST_LINE = 64 };
#define NONE UINT32_MAX

static int shift_of(int64_t line)
{
    int shift = 0;
    while ((int64_t)1 << shift < line)
        shift++;
    return shift;
}

ordo_status ordo_io_lru_create(ordo_io_lru *c, ordo_io_extent memory, int64_t words, int64_t line,
                               int64_t ways, ordo_io_lru *outer)
{
    *c = (ordo_io_lru) { .shift = shift_of(line), .ways = ways, .outer = outer };
    if (line < 1 || line > LONGEST_LINE || (line & (line - 1)) != 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "line %" PRId64 ": expected a power of two, 1 to %d",
                         line, LONGEST_LINE);
    c->capacity = words / line;
    if (c->capacity < 1 || ways < 0 || ways > c->capacity)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "cache of %" PRId64 " lines, ways %" PRId64
                         ": expected a line or more, and no more ways than lines",
                         c->capacity, ways);
    if (ways > 0 && c->capacity > UINT32_MAX)
        return ordo_fail(ORDO_ERR_MEMORY, "cache of %" PRId64 " lines in sets: expected below 2^32",
                         c->capacity);
    c->lines = (memory.words + line - 1) / line;
    c->scratch = memory.scratch / line;
    c->head = c->tail = NONE;
    c->state = calloc((size_t)c->lines, 1);
    bool complete = c->state != NULL;
    if (ways == 0) {
        c->next = malloc((size_t)c->lines * sizeof *c->next);
        c->prev = malloc((size_t)c->lines * sizeof *c->prev);
        complete = complete && c->next && c->prev;
    } else {
        c->sets = c->capacity / ways;
        c->tags = malloc((size_t)(c->sets * ways) * sizeof *c->tags);
        complete = complete && c->tags;
        if (c->tags)
            memset(c->tags, 0xff, (size_t)(c->sets * ways) * sizeof *c->tags);
    }
    return complete ? ORDO_OK : ordo_fail(ORDO_ERR_MEMORY, "cache: out of memory");
}

void ordo_io_lru_destroy(ordo_io_lru *c)
{
    free(c->state);
    free(c->next);
    free(c->prev);
    free(c->tags);
}

/* ---- one access ---- */

/* An outer level may have longer lines, so addresses are converted. */
static void pass_on(ordo_io_lru *c, uint32_t line, unsigned write)
{
    const uint32_t access = line << c->shift << 1 | write;
    ordo_io_lru_take(c->outer, &access, 1);
}

static void fill(ordo_io_lru *c, uint32_t line, unsigned write)
{
    if (write && c->shift == 0)
        return;
    c->fills++;
    if (c->outer)
        pass_on(c, line, 0);
}

static void evict(ordo_io_lru *c, uint32_t line)
{
    if (c->state[line] & DIRTY) {
        c->writebacks++;
        if (c->outer)
            pass_on(c, line, 1);
    }
    c->state[line] = 0;
}

static void unlink_line(ordo_io_lru *c, uint32_t line)
{
    const uint32_t before = c->prev[line], after = c->next[line];
    c->next[before] = after; /* the head is unlinked only if it is alone */
    if (after != NONE)
        c->prev[after] = before;
    else
        c->tail = before;
}

static void drop_tail(ordo_io_lru *c)
{
    const uint32_t last = c->tail;
    c->tail = c->prev[last];
    if (c->tail != NONE)
        c->next[c->tail] = NONE;
    else
        c->head = NONE;
    c->held--;
    evict(c, last);
}

static void access_list(ordo_io_lru *c, uint32_t line, unsigned write)
{
    if (line != c->head) {
        if (c->state[line] & HELD) {
            unlink_line(c, line);
        } else {
            if (c->held == c->capacity)
                drop_tail(c);
            fill(c, line, write);
            c->held++;
            c->state[line] = HELD;
        }
        c->prev[line] = NONE;
        c->next[line] = c->head;
        if (c->head != NONE)
            c->prev[c->head] = line;
        else
            c->tail = line;
        c->head = line;
    }
    if (write)
        c->state[line] |= DIRTY;
}

static void access_set(ordo_io_lru *c, uint32_t line, unsigned write)
{
    uint32_t *tags = c->tags + (int64_t)(line % (uint64_t)c->sets) * c->ways;
    int64_t way = 0;
    while (way < c->ways - 1 && tags[way] != line && tags[way] != NONE)
        way++;
    if (tags[way] != line) {
        if (tags[way] != NONE)
            evict(c, tags[way]);
        fill(c, line, write);
        c->state[line] = HELD;
    }
    memmove(tags + 1, tags, (size_t)way * sizeof *tags);
    tags[0] = line;
    if (write)
        c->state[line] |= DIRTY;
}

void ordo_io_lru_take(void *lru, const uint32_t *accesses, size_t count)
{
    ordo_io_lru *c = lru;
    const int shift = c->shift + 1;
    if (c->ways)
        for (size_t i = 0; i < count; i++)
            access_set(c, accesses[i] >> shift, accesses[i] & 1);
    else
        for (size_t i = 0; i < count; i++)
            access_list(c, accesses[i] >> shift, accesses[i] & 1);
}

bool ordo_io_lru_holds(const ordo_io_lru *c, uint32_t line)
{
    return (c->state[line] & HELD) != 0;
}

void ordo_io_lru_drop(ordo_io_lru *c, uint32_t line)
{
    if (!ordo_io_lru_holds(c, line))
        return;
    if (line != c->head) {
        unlink_line(c, line);
    } else {
        c->head = c->next[line];
        if (c->head != NONE)
            c->prev[c->head] = NONE;
        else
            c->tail = NONE;
    }
    c->held--;
    c->state[line] = 0;
}

void ordo_io_lru_finish(ordo_io_lru *c)
{
    for (int64_t line = 0; line < c->scratch && line < c->lines; line++)
        if (c->state[line] & DIRTY)
            evict(c, (uint32_t)line);
}
