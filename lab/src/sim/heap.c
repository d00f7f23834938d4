/* heap.c: a binary heap with the position of each worker. */
#include "sim/heap.h"

#include <assert.h>
#include <stdlib.h>

bool ordo_heap_init(ordo_heap *heap, int32_t workers)
{
    heap->entry = malloc((size_t)workers * sizeof *heap->entry);
    heap->where = malloc((size_t)workers * sizeof *heap->where);
    heap->count = 0;
    heap->capacity = workers;
    for (int32_t w = 0; heap->where && w < workers; w++)
        heap->where[w] = -1;
    return heap->entry && heap->where;
}

void ordo_heap_free(ordo_heap *heap)
{
    free(heap->entry);
    free(heap->where);
    *heap = (ordo_heap) { 0 };
}

static bool before(ordo_heap_entry a, ordo_heap_entry b)
{
    return a.time < b.time || (a.time == b.time && a.worker < b.worker);
}

static void put(ordo_heap *heap, int32_t at, ordo_heap_entry entry)
{
    heap->entry[at] = entry;
    heap->where[entry.worker] = at;
}

static void rise(ordo_heap *heap, int32_t at, ordo_heap_entry entry)
{
    while (at > 0 && before(entry, heap->entry[(at - 1) / 2])) {
        put(heap, at, heap->entry[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(heap, at, entry);
}

static void sink(ordo_heap *heap, int32_t at, ordo_heap_entry entry)
{
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(heap->entry[child + 1], heap->entry[child]))
            child++;
        if (!before(heap->entry[child], entry))
            break;
        put(heap, at, heap->entry[child]);
        at = child;
    }
    put(heap, at, entry);
}

void ordo_heap_push(ordo_heap *heap, int64_t time, int32_t worker)
{
    assert(heap->count < heap->capacity && heap->where[worker] < 0);
    rise(heap, heap->count++, (ordo_heap_entry) { time, worker });
}

void ordo_heap_remove(ordo_heap *heap, int32_t worker)
{
    const int32_t at = heap->where[worker];
    assert(at >= 0);
    heap->where[worker] = -1;
    const ordo_heap_entry last = heap->entry[--heap->count];
    if (at == heap->count)
        return;
    if (at > 0 && before(last, heap->entry[(at - 1) / 2]))
        rise(heap, at, last);
    else
        sink(heap, at, last);
}

int32_t ordo_heap_pop(ordo_heap *heap)
{
    assert(heap->count > 0);
    const int32_t worker = heap->entry[0].worker;
    ordo_heap_remove(heap, worker);
    return worker;
}
