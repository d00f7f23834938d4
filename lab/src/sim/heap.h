/* heap.h: a priority queue of workers by the time at which they become free; of equal times the
 * lowest worker comes first. */
#ifndef SIM_HEAP_H
#define SIM_HEAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ordo_heap_entry {
    int64_t time;
    int32_t worker;
} ordo_heap_entry;

typedef struct ordo_heap {
    ordo_heap_entry *entry; /* a binary heap */
    int32_t *where;         /* index of the entry of each worker, or -1 */
    int32_t count, capacity;
} ordo_heap;

bool ordo_heap_init(ordo_heap *heap, int32_t workers); /* returns false if out of memory */
void ordo_heap_free(ordo_heap *heap);
void ordo_heap_push(ordo_heap *heap, int64_t time, int32_t worker);
int32_t ordo_heap_pop(ordo_heap *heap); /* removes the worker that is free first */
void ordo_heap_remove(ordo_heap *heap,
                      int32_t worker); /* removes this worker, which must be in the heap */

#endif
