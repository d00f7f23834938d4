/* cache.h: caches with a replacement policy, fed with the accesses of a run.
 *
 * All caches are write-back. A miss fills a line, except that a write to a line of one word fills
 * nothing. At the end dirty lines are written back, except those of scratch memory, whose contents
 * are no longer needed. */
#ifndef IO_CACHE_H
#define IO_CACHE_H

#include "io/fast.h"

/* The simulated memory: its size in words, and where scratch memory begins, whose contents are not
 * needed after the run. */
typedef struct ordo_io_extent {
    int64_t words, scratch;
} ordo_io_extent;

/* ---- least recently used: fully associative, or by sets ---- */

typedef struct ordo_io_lru {
    int shift;        /* words of a line = 1 << shift */
    int64_t capacity; /* lines */
    int64_t ways, sets;
    int64_t fills, writebacks;
    struct ordo_io_lru *outer; /* the next level, which receives the misses; or NULL */
    int64_t scratch;           /* first line of scratch memory */
    int64_t lines;             /* lines of memory */
    int64_t held;
    uint32_t head, tail;   /* fully associative: most and least recently used line */
    uint32_t *next, *prev; /* neighbours of each line of memory */
    uint8_t *state;        /* HELD and DIRTY of each line of memory */
    uint32_t *tags;        /* sets: lines, most recently used first */
} ordo_io_lru;

/* With `ways` 0 the cache is fully associative. Destroy it even if this fails. */
ordo_status ordo_io_lru_create(ordo_io_lru *lru, ordo_io_extent memory, int64_t capacity_words,
                               int64_t line, int64_t ways, ordo_io_lru *outer);
void ordo_io_lru_destroy(ordo_io_lru *lru);
void ordo_io_lru_take(void *lru, const uint32_t *accesses, size_t count);

/* Say whether a fully associative cache holds a line; forget a line without writing it back. */
bool ordo_io_lru_holds(const ordo_io_lru *lru, uint32_t line);
void ordo_io_lru_drop(ordo_io_lru *lru, uint32_t line);

/* Write back the dirty lines of this cache, then those of its outer level. */
void ordo_io_lru_finish(ordo_io_lru *lru);

/* ---- every size of fully associative LRU at once ---- */

typedef struct ordo_io_stack ordo_io_stack;

/* For caches of 1 to `most` lines. */
ordo_status ordo_io_stack_create(ordo_io_stack **stack, ordo_io_extent memory, int64_t line,
                                 int64_t most);
void ordo_io_stack_destroy(ordo_io_stack *stack);
void ordo_io_stack_take(void *stack, const uint32_t *accesses, size_t count);

/* Write the words filled and written back by a cache of i + 1 lines to curve[i]. Returns
 * ORDO_ERR_MEMORY if the stack could not grow during the run. */
ordo_status ordo_io_stack_finish(ordo_io_stack *stack, ordo_io_words *curve);

/* ---- Belady's optimum ---- */

enum { ORDO_IO_TRACE_MOST = 1 << 28 }; /* accesses, folded: 2 GiB with their next uses */

typedef struct ordo_io_trace {
    uint32_t *accesses; /* lines, times two, plus one for a write; repeats folded */
    size_t count, capacity;
    int shift;
    bool full; /* out of memory: the trace is incomplete */
} ordo_io_trace;

void ordo_io_trace_take(void *trace, const uint32_t *accesses, size_t count);
void ordo_io_trace_release(ordo_io_trace *trace);

/* Count the fills and write-backs, in lines, of a cache that evicts the line whose next use is
 * furthest in the future. No cache of that size has fewer misses; the policy ignores whether a line
 * is dirty. */
ordo_status ordo_io_optimum(const ordo_io_trace *trace, ordo_io_extent memory, int64_t capacity,
                            int64_t *fills, int64_t *writebacks);

#endif
