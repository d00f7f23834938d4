/* misfit.h: says how a tensor differs from what a plan expects, in the words of check_one() in
 * ordo/torch/_inputs.py; for node.h. */
#ifndef ORDO_TORCH_MISFIT_H
#define ORDO_TORCH_MISFIT_H

#include "tensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct {
    char text[256];
    size_t used;
} said;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    const size_t room = sizeof said.text - said.used;
    va_list values;
    va_start(values, format);
    const int more = vsnprintf(said.text + said.used, room, format, values);
    va_end(values);
    if (more > 0)
        said.used += (size_t)more < room ? (size_t)more : room - 1;
}

static void say_sizes(int64_t axes, const int64_t *sizes)
{
    say("(");
    for (int64_t i = 0; i < axes; i++)
        say(i ? ", %" PRId64 : "%" PRId64, sizes[i]);
    say(axes == 1 ? ",)" : ")");
}

/* PyTorch's numbers of types; the rest goes by its number. */
static void say_type(int32_t dtype)
{
    static const char *const names[] = {
        [0] = "uint8",     [1] = "int8",         [2] = "int16",          [3] = "int32",
        [4] = "int64",     [5] = "float16",      [6] = "float32",        [7] = "float64",
        [8] = "complex32", [9] = "complex64",    [10] = "complex128",    [11] = "bool",
        [15] = "bfloat16", [23] = "float8_e5m2", [24] = "float8_e4m3fn",
    };
    const bool named =
        dtype >= 0 && dtype < (int32_t)(sizeof names / sizeof *names) && names[dtype];
    if (named)
        say("torch.%s", names[dtype]);
    else
        say("%d of PyTorch's numbers", (int)dtype);
}

static void say_device(int32_t type, int32_t index)
{
    if (type == cuda_type)
        say("cuda:%d", (int)index);
    else
        say("cpu"); /* kernels of the CPU and CUDA get no others */
}

/* NULL if the tensor has the sizes of `as`, this type, and the device of `place`; else what is
 * wrong, until the next call in this thread. `seen` is filled if it has. */
static const char *misfit(const char *name, tensor *x, const shape *as, int32_t dtype,
                          const view *place, view *seen)
{
    const bool known = look(x, seen) && seen->shape.axes == as->axes &&
                       memcmp(seen->shape.sizes, as->sizes, sizeof as->sizes) == 0;
    if (known && seen->dtype == dtype && seen->device_type == place->device_type &&
        seen->device == place->device)
        return NULL;
    said.used = 0;
    if (!known) {
        int64_t axes = 0, *sizes = NULL;
        torch.aoti_torch_get_dim(x, &axes);
        torch.aoti_torch_get_sizes(x, &sizes);
        say("%s.shape ", name);
        say_sizes(sizes ? axes : 0, sizes);
        say(": expected ");
        say_sizes(as->axes, as->sizes);
    } else if (seen->dtype != dtype) {
        say("%s.dtype ", name);
        say_type(seen->dtype);
        say(": expected ");
        say_type(dtype);
    } else {
        say("%s.device ", name);
        say_device(seen->device_type, seen->device);
        say(": expected ");
        say_device(place->device_type, place->device);
    }
    return said.text;
}

#endif
