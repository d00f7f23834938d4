/* heap.h: workers by the time they become free; ties go to the lowest worker. */
#ifndef PLANNER_HEAP_H
#define PLANNER_HEAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ordo_heap_entry {
    int64_t time;
    int32_t worker;
} ordo_heap_entry;

typedef struct ordo_heap {
    ordo_heap_entry *entry; /* a binary heap */
    int32_t *where;         /* index of a worker's entry, or -1 */
    int32_t count, capacity;
} ordo_heap;

bool ordo_heap_init(ordo_heap *heap, int32_t workers); /* false: out of memory */
void ordo_heap_free(ordo_heap *heap);
void ordo_heap_push(ordo_heap *heap, int64_t time, int32_t worker);
int32_t ordo_heap_pop(ordo_heap *heap);                 /* the first worker to be free */
void ordo_heap_remove(ordo_heap *heap, int32_t worker); /* a worker that is in it */

#endif
