/* wait.h: how the threads of one task wait for each other.
 *
 * Whoever waits, waits for a ticket drawn before its own, by a thread that runs: waits end. (Parts
 * of a chain wait for each other in both directions; handoff.h says why that ends.) */
#ifndef CPU_WAIT_H
#define CPU_WAIT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Wait until there are `least`; how many there are. What was written before them is seen. */
static inline int ordo_cpu_wait(const atomic_int *count, int least)
{
    int now;
    for (int spin = 0; (now = atomic_load_explicit(count, memory_order_acquire)) < least; spin++)
        if (spin > 200)
            sched_yield(); /* there may be more threads than cores */
    return now;
}

/* Panels that one thread fills and all read; zero before. */
typedef enum ordo_panel_state {
    ORDO_PANEL_EMPTY,
    ORDO_PANEL_FINITE,
    ORDO_PANEL_WILD
} ordo_panel_state;

static inline void ordo_panel_fill(atomic_int *state, bool finite)
{
    atomic_store_explicit(state, finite ? ORDO_PANEL_FINITE : ORDO_PANEL_WILD,
                          memory_order_release);
}

/* Wait until they are filled; whether all in them is finite. */
static inline bool ordo_panel_finite(const atomic_int *state)
{
    return ordo_cpu_wait(state, ORDO_PANEL_FINITE) == ORDO_PANEL_FINITE;
}

#endif
