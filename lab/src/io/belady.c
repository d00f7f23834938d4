/* belady.c: the optimal cache (Belady): it evicts the cached line whose next use is furthest in the
 * future.
 *
 * The trace is read twice: backwards to find the next use of each access, then forwards with a heap
 * of the cached lines, the one with the furthest next use on top. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "io/cache.h"

#define NEVER UINT32_MAX

/* ---- the trace ---- */

static bool grow(ordo_io_trace *t)
{
    const size_t capacity = t->capacity ? 2 * t->capacity : 1 << 16;
    uint32_t *more =
        t->capacity < ORDO_IO_TRACE_MOST ? realloc(t->accesses, capacity * sizeof *more) : NULL;
    if (!more) {
        t->full = true;
        return false;
    }
    t->accesses = more;
    t->capacity = capacity;
    return true;
}

void ordo_io_trace_take(void *trace, const uint32_t *accesses, size_t count)
{
    ordo_io_trace *t = trace;
    for (size_t i = 0; i < count && !t->full; i++) {
        const uint32_t line = accesses[i] >> (1 + t->shift), write = accesses[i] & 1;
        /* A repeated access always hits: only its write is noted. In a line of one word a write is
         * recorded by itself, for a write miss fills nothing there. */
        if (t->count > 0 && t->accesses[t->count - 1] >> 1 == line &&
            (t->shift > 0 || write == 0)) {
            t->accesses[t->count - 1] |= write;
            continue;
        }
        if (t->count == t->capacity && !grow(t))
            return;
        t->accesses[t->count++] = line << 1 | write;
    }
}

void ordo_io_trace_release(ordo_io_trace *trace)
{
    free(trace->accesses);
}

/* ---- the cached lines, in a heap by next use ---- */

typedef struct heap {
    uint32_t *lines; /* in heap order: each has a later next use than its children */
    uint32_t *place; /* position of a line in the heap, plus one; 0 = not cached */
    uint32_t *use;   /* next use of a line */
    size_t count;
} heap;

static void put_at(heap *h, size_t i, uint32_t line)
{
    h->lines[i] = line;
    h->place[line] = (uint32_t)i + 1;
}

static void rise(heap *h, size_t i)
{
    const uint32_t line = h->lines[i];
    while (i > 0 && h->use[h->lines[(i - 1) / 2]] < h->use[line]) {
        put_at(h, i, h->lines[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put_at(h, i, line);
}

static void sink(heap *h, size_t i)
{
    const uint32_t line = h->lines[i];
    for (size_t child; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && h->use[h->lines[child + 1]] > h->use[h->lines[child]])
            child++;
        if (h->use[h->lines[child]] <= h->use[line])
            break;
        put_at(h, i, h->lines[child]);
    }
    put_at(h, i, line);
}

static uint32_t take_top(heap *h)
{
    const uint32_t top = h->lines[0];
    h->place[top] = 0;
    h->count--;
    if (h->count > 0) {
        put_at(h, 0, h->lines[h->count]);
        sink(h, 0);
    }
    return top;
}

/* ---- */

/* Next use of the line of each access. */
static void look_ahead(const ordo_io_trace *t, uint32_t *last, size_t lines, uint32_t *next)
{
    memset(last, 0xff, lines * sizeof *last);
    for (size_t i = t->count; i-- > 0;) {
        const uint32_t line = t->accesses[i] >> 1;
        next[i] = last[line];
        last[line] = (uint32_t)i;
    }
}

static void replay(const ordo_io_trace *t, heap *h, const uint32_t *next, uint8_t *dirty,
                   int64_t capacity, int64_t *fills, int64_t *writebacks)
{
    for (size_t i = 0; i < t->count; i++) {
        const uint32_t line = t->accesses[i] >> 1, write = t->accesses[i] & 1;
        h->use[line] = next[i];
        if (h->place[line]) {
            rise(h, h->place[line] - 1); /* its next use is later now */
        } else {
            if ((int64_t)h->count == capacity) {
                const uint32_t out = take_top(h);
                *writebacks += dirty[out];
                dirty[out] = 0;
            }
            *fills += !(write && t->shift == 0);
            h->count++;
            put_at(h, h->count - 1, line);
            rise(h, h->count - 1);
        }
        dirty[line] |= (uint8_t)write;
    }
}

ordo_status ordo_io_optimum(const ordo_io_trace *t, ordo_io_extent memory, int64_t capacity,
                            int64_t *fills, int64_t *writebacks)
{
    const size_t lines = ((size_t)memory.words >> t->shift) + 1;
    if (t->full)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "opt: the trace has more than %d accesses; expected a smaller problem",
                         ORDO_IO_TRACE_MOST);
    const size_t held = (size_t)capacity < lines ? (size_t)capacity : lines;
    heap h = { malloc((held + 1) * sizeof(uint32_t)), calloc(lines, sizeof(uint32_t)),
               malloc(lines * sizeof(uint32_t)), 0 };
    uint32_t *next = malloc((t->count + 1) * sizeof *next);
    uint8_t *dirty = calloc(lines, 1);
    const bool complete = h.lines && h.place && h.use && next && dirty;
    *fills = *writebacks = 0;
    if (complete) {
        look_ahead(t, h.use, lines, next);
        replay(t, &h, next, dirty, capacity, fills, writebacks);
        for (int64_t line = 0; line < memory.scratch >> t->shift; line++)
            *writebacks += dirty[line];
    }
    free(h.lines);
    free(h.place);
    free(h.use);
    free(next);
    free(dirty);
    return complete ? ORDO_OK : ordo_fail(ORDO_ERR_MEMORY, "opt: out of memory");
}
