/* handoff.h: one chain that several threads share.
 *
 * If there are so few chains that the longest one would decide the time of the pass, each chain is
 * divided by columns into parts. A part has its own rows of dK and dV. A partial dQ is one sum over
 * all columns, in ascending order: the first part starts it at zero, each next part continues it,
 * and the last part adds it to dQ in its turn. So the number of parts changes no bit.
 *
 * A part passes its partials to the next part through a few slots, and waits while these are full.
 * Waiting ends: the parts of a chain have consecutive tickets, and there are at least as many
 * threads as parts, so all chains with earlier tickets have all their parts running and complete.
 */
#ifndef CPU_HANDOFF_H
#define CPU_HANDOFF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cpu/wait.h"

enum { ORDO_PARTS_MAX = 4, ORDO_SLOTS = 4, ORDO_PART_COLUMNS = 32 };

/* The channel from one part of a chain to the next. It is zeroed before the chain begins. */
typedef struct ordo_handoff {
    float *_Atomic slots;   /* memory of the sending thread */
    atomic_int sent, taken; /* partials sent and received so far */
} ordo_handoff;

/* The number of parts of each of `chains` chains with at most `columns` columns on `workers`
 * threads. There should be two parts per worker, because the longest chain of a causal mask takes
 * twice the mean time. */
static inline int ordo_cpu_parts(int64_t chains, int workers, int64_t columns)
{
    int parts = 1;
    while (chains > 0 && parts < ORDO_PARTS_MAX && 2 * parts <= workers &&
           chains * parts < 2 * (int64_t)workers && columns >= 2 * parts * ORDO_PART_COLUMNS)
        parts *= 2;
    return parts;
}

/* Wait until the slot of step n is free, and return it. */
static inline float *ordo_handoff_room(ordo_handoff *to, float *slots, size_t floats, int n)
{
    atomic_store_explicit(&to->slots, slots, memory_order_release);
    ordo_cpu_wait(&to->taken, n + 1 - ORDO_SLOTS);
    return slots + (size_t)(n % ORDO_SLOTS) * floats;
}

/* Publish the partial of step n. */
static inline void ordo_handoff_give(ordo_handoff *to, int n)
{
    atomic_store_explicit(&to->sent, n + 1, memory_order_release);
}

/* Wait for the partial of step n and copy it to `part`. */
static inline void ordo_handoff_take(ordo_handoff *from, float *part, size_t floats, int n)
{
    ordo_cpu_wait(&from->sent, n + 1);
    const float *slots = atomic_load_explicit(&from->slots, memory_order_acquire);
    memcpy(part, slots + (size_t)(n % ORDO_SLOTS) * floats, floats * sizeof *part);
    atomic_store_explicit(&from->taken, n + 1, memory_order_release);
}

/* Wait until all partials have been received; the slots may then be reused. */
static inline void ordo_handoff_end(ordo_handoff *to, int steps)
{
    ordo_cpu_wait(&to->taken, steps);
}

#endif
