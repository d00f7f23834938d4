/* environment.h: the state of the calling thread in which everything is computed.
 *
 * A caller may have set another rounding, the flushing of subnormals, or traps. Thresholds, scales,
 * predictions and bits must not depend on that, so a public function that computes with floating
 * point, or reads or prints such numbers, begins with
 *
 *   ORDO_DEFAULT_ENVIRONMENT;
 *
 * From there to its end, whichever return that is, rounding is to nearest, subnormals are kept and
 * nothing traps. Then the caller's environment is back, with the flags that were raised before.
 *
 * Nor can the thread be cancelled there, which would leave locks taken, memory allocated and other
 * threads at work in it: pthread_cancel() acts after the function. */
#ifndef BASE_ENVIRONMENT_H
#define BASE_ENVIRONMENT_H

#include <fenv.h>
#include <pthread.h>
#include <stdint.h>

typedef struct ordo_environment {
    fenv_t callers;
    int cancel; /* whether the caller's thread may be cancelled */
#if defined(__aarch64__)
    uint64_t control; /* glibc's default environment keeps some of its bits: AHP, DN, FZ16, AH */
#endif
} ordo_environment;

static inline ordo_environment ordo_environment_enter(void)
{
    ordo_environment e;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &e.cancel);
    (void)fegetenv(&e.callers);
#if defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(e.control));
#endif
    (void)fesetenv(FE_DFL_ENV);
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(UINT64_C(0)) : "memory");
#endif
    return e;
}

static inline void ordo_environment_leave(const ordo_environment *e)
{
    (void)fesetenv(&e->callers);
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(e->control) : "memory");
#endif
    int inside;
    (void)pthread_setcancelstate(e->cancel, &inside);
}

#define ORDO_DEFAULT_ENVIRONMENT                                                                   \
    const ordo_environment callers_environment                                                     \
        __attribute__((cleanup(ordo_environment_leave), unused)) = ordo_environment_enter()

#endif
