/* wait.h: how the threads of one task wait for each other.
 *
 * Every wait ends, because a thread waits only for tickets that were drawn before its own, by
 * threads that are running. (Parts of a chain wait for each other in both directions; handoff.h
 * says why that ends.) */
#ifndef CPU_WAIT_H
#define CPU_WAIT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Spin until *count >= least (acquire); returns the count. */
static inline int ordo_cpu_wait(const atomic_int *count, int least)
{
    int now;
    for (int spin = 0; (now = atomic_load_explicit(count, memory_order_acquire)) < least; spin++)
        if (spin > 200)
            sched_yield(); /* there may be more threads than cores */
    return now;
}

/* State of panels that one thread fills and all threads read; zeroed before. */
typedef enum ordo_panel_state {
    ORDO_PANEL_EMPTY,
    ORDO_PANEL_FINITE, /* filled, all values finite */
    ORDO_PANEL_WILD    /* filled, some value is an infinity or NaN */
} ordo_panel_state;

/* Mark panels as filled (release). */
static inline void ordo_panel_fill(atomic_int *state, bool finite)
{
    atomic_store_explicit(state, finite ? ORDO_PANEL_FINITE : ORDO_PANEL_WILD,
                          memory_order_release);
}

/* Spin until panels are filled (acquire); returns whether all their values are finite. */
static inline bool ordo_panel_finite(const atomic_int *state)
{
    return ordo_cpu_wait(state, ORDO_PANEL_FINITE) == ORDO_PANEL_FINITE;
}

#endif
