/* flip_module.c: preloaded into the command, makes a backward pass give another bit.
 *
 * FLIP_CALL says which call of ordo_attention_backward(), counted from 0; FLIP_ELEMENT which
 * element of dq (f32), whose lowest bit is then inverted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "ordo/ordo.h"

typedef ordo_status backward(const ordo_plan *plan, const ordo_call *call);

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : -1;
}

__attribute__((visibility("default"))) ordo_status ordo_attention_backward(const ordo_plan *plan,
                                                                           const ordo_call *call)
{
    static long calls;
    backward *real;
    *(void **)&real = dlsym(RTLD_NEXT, "ordo_attention_backward"); /* as POSIX writes it */
    const ordo_status status = real(plan, call);
    if (calls++ == number_of("FLIP_CALL"))
        ((uint32_t *)call->dq.data)[number_of("FLIP_ELEMENT")] ^= 1;
    return status;
}
