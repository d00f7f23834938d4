/* handoff.h: a chain that several threads share.
 *
 * Where chains are few, as many as keep all threads busy only as long as the longest of them lasts,
 * each is cut into parts by its columns. A part has its own rows of dK and dV. A partial dQ is one
 * sum over all columns, upwards: the first part begins it at zero, the next one goes on where that
 * stopped, the last one adds the whole in its turn. So parts change no bit.
 *
 * A part gives its partials to the next in a few slots, and waits if those are full. Parts of a
 * chain are drawn one after the other, and there are at least as many threads: what is waited for
 * has been drawn, or will be, because all chains drawn before it have all their parts and end. */
#ifndef CPU_HANDOFF_H
#define CPU_HANDOFF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu/wait.h"

enum { ORDO_PARTS_MAX = 4, ORDO_SLOTS = 4, ORDO_PART_COLUMNS = 32 };

/* From one part of a chain to the next; zero before the chain begins. */
typedef struct ordo_handoff {
    float *_Atomic slots;   /* of the thread that has the part */
    atomic_int made, taken; /* partials so far */
} ordo_handoff;

/* Parts of each of `chains` chains of at most `columns` columns on `workers` threads: under a
 * causal mask the longest chain takes twice the mean, so two parts a worker. */
static inline int ordo_cpu_parts(int64_t chains, int workers, int64_t columns)
{
    int parts = 1;
    while (chains > 0 && parts < ORDO_PARTS_MAX && 2 * parts <= workers &&
           chains * parts < 2 * (int64_t)workers && columns >= 2 * parts * ORDO_PART_COLUMNS)
        parts *= 2;
    return parts;
}

/* Where the partial of step n is made, once its slot is free. */
static inline float *ordo_handoff_room(ordo_handoff *to, float *slots, size_t floats, int n)
{
    atomic_store_explicit(&to->slots, slots, memory_order_release);
    ordo_cpu_wait(&to->taken, n + 1 - ORDO_SLOTS);
    return slots + (size_t)(n % ORDO_SLOTS) * floats;
}

static inline void ordo_handoff_give(ordo_handoff *to, int n)
{
    atomic_store_explicit(&to->made, n + 1, memory_order_release);
}

/* A copy of the partial of step n, once it is made. */
static inline void ordo_handoff_take(ordo_handoff *from, float *part, size_t floats, int n)
{
    ordo_cpu_wait(&from->made, n + 1);
    const float *slots = atomic_load_explicit(&from->slots, memory_order_acquire);
    memcpy(part, slots + (size_t)(n % ORDO_SLOTS) * floats, floats * sizeof *part);
    atomic_store_explicit(&from->taken, n + 1, memory_order_release);
}

/* The slots are the thread's again. */
static inline void ordo_handoff_end(ordo_handoff *to, int steps)
{
    ordo_cpu_wait(&to->taken, steps);
}

#endif
