/* tensors.h: tensors as PyTorch's C ABI shows them and as the library takes them, and the words of
 * what is refused; for call.h and run.h. */
#ifndef ORDO_TORCH_TENSORS_H
#define ORDO_TORCH_TENSORS_H

#include "torch_abi.h"

#include <ordo/ordo.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct AtenTensorOpaque tensor;

/* The functions of the ABI; those of CUDA are NULL in a PyTorch without it. */
#define MEMBER(result, name, parameters) result(*name) parameters;
static struct {
    TORCH_FUNCTIONS(MEMBER)
    TORCH_CUDA_FUNCTIONS(MEMBER)
} torch;

enum { CUDA_ALIGN = 16 };

static int32_t cpu_type, cuda_type, f32_type, f16_type, bf16_type, u8_type, i32_type, i64_type;
static int32_t strided;

typedef struct shape {
    int64_t axes, sizes[4], strides[4]; /* behind the axes: 0 */
} shape;

/* A tensor as the front sees it. */
typedef struct view {
    shape shape;
    void *data;
    int32_t dtype, device_type, device;
} view;

/* ---- words ---- */

/* The error of the call that this thread runs: "status: what was expected". */
static _Thread_local struct {
    char text[512];
    size_t used;
} said;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
    const size_t room = sizeof said.text - said.used;
    va_list values;
    va_start(values, format);
    const int more = vsnprintf(said.text + said.used, room, format, values);
    va_end(values);
    if (more > 0)
        said.used += (size_t)more < room ? (size_t)more : room - 1;
}

static void put_numbers(int64_t count, const int64_t *numbers)
{
    put("(");
    for (int64_t i = 0; i < count; i++)
        put(i ? ", %" PRId64 : "%" PRId64, numbers[i]);
    put(count == 1 ? ",)" : ")");
}

/* PyTorch's numbers of types; the rest goes by its number. */
static void put_type(int32_t dtype)
{
    static const char *const names[] = {
        [0] = "uint8",     [1] = "int8",        [2] = "int16",          [3] = "int32",
        [4] = "int64",     [5] = "float16",     [6] = "float32",        [7] = "float64",
        [9] = "complex64", [11] = "bool",       [15] = "bfloat16",      [23] = "float8_e5m2",
        [8] = "complex32", [10] = "complex128", [24] = "float8_e4m3fn",
    };
    if (dtype >= 0 && dtype < (int32_t)(sizeof names / sizeof *names) && names[dtype])
        put("torch.%s", names[dtype]);
    else
        put("%d of PyTorch's numbers", (int)dtype);
}

static void put_device(const view *x)
{
    put(x->device_type == cuda_type  ? "cuda:%d"
        : x->device_type == cpu_type ? "cpu"
                                     : "type %d",
        (int)(x->device_type == cuda_type ? x->device : x->device_type));
}

/* Add to the error: %s text, %l an int64_t, %g a double, %S the sizes and %R the strides of a shape
 * *, %T a type of PyTorch's (int32_t), %D the device of a view *. Returns false. */
static bool say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (const char *at = format; *at; at++) {
        const shape *x;
        switch (*at == '%' ? *++at : 0) {
        case 's': put("%s", va_arg(values, const char *)); break;
        case 'l': put("%" PRId64, va_arg(values, int64_t)); break;
        case 'g': put("%g", va_arg(values, double)); break;
        case 'S': x = va_arg(values, const shape *), put_numbers(x->axes, x->sizes); break;
        case 'R': x = va_arg(values, const shape *), put_numbers(x->axes, x->strides); break;
        case 'T': put_type(va_arg(values, int32_t)); break;
        case 'D': put_device(va_arg(values, const view *)); break;
        default: put("%c", *at);
        }
    }
    va_end(values);
    return false;
}

/* Begin an error; returns false. */
#define REFUSE(status, ...) (said.used = 0, say(status ": "), say(__VA_ARGS__))

/* ---- shapes ---- */

/* Read a tensor; refuses one with more than 4 axes, or without strides, which has no address. */
static bool look(const char *name, tensor *x, view *seen)
{
    int64_t *sizes, *strides;
    int32_t layout;
    memset(seen, 0, sizeof *seen);
    if (torch.aoti_torch_get_layout(x, &layout) != TORCH_DONE || layout != strided)
        return REFUSE("unsupported", "%s.layout: expected torch.strided", name);
    if (torch.aoti_torch_get_dim(x, &seen->shape.axes) != TORCH_DONE ||
        torch.aoti_torch_get_sizes(x, &sizes) != TORCH_DONE ||
        torch.aoti_torch_get_strides(x, &strides) != TORCH_DONE)
        return REFUSE("unsupported", "%s: expected a plain tensor", name);
    if (seen->shape.axes > 4)
        return REFUSE("shape", "%s of %l axes: expected 4 at most", name, seen->shape.axes);
    memcpy(seen->shape.sizes, sizes, (size_t)seen->shape.axes * sizeof *sizes);
    memcpy(seen->shape.strides, strides, (size_t)seen->shape.axes * sizeof *strides);
    if (torch.aoti_torch_get_data_ptr(x, &seen->data) != TORCH_DONE ||
        torch.aoti_torch_get_dtype(x, &seen->dtype) != TORCH_DONE ||
        torch.aoti_torch_get_device_type(x, &seen->device_type) != TORCH_DONE ||
        torch.aoti_torch_get_device_index(x, &seen->device) != TORCH_DONE)
        return REFUSE("unsupported", "%s: expected a plain tensor", name);
    return true;
}

static shape contiguous(int64_t axes, const int64_t *sizes)
{
    shape made = { .axes = axes };
    int64_t step = 1;
    for (int64_t i = axes - 1; i >= 0; i--) {
        made.sizes[i] = sizes[i];
        made.strides[i] = step;
        step *= sizes[i] > 1 ? sizes[i] : 1;
    }
    return made;
}

static bool is_empty(const shape *x)
{
    for (int64_t i = 0; i < x->axes; i++)
        if (x->sizes[i] == 0)
            return true;
    return false;
}

static bool is_contiguous(const shape *x)
{
    const shape dense = contiguous(x->axes, x->sizes);
    for (int64_t i = 0; i < x->axes; i++)
        if (x->sizes[i] != 1 && x->strides[i] != dense.strides[i])
            return is_empty(x);
    return true;
}

/* Exchange axes 1 and 2, of (batch, head, row, dim). */
static shape transposed(shape x)
{
    const int64_t size = x.sizes[1], stride = x.strides[1];
    x.sizes[1] = x.sizes[2], x.strides[1] = x.strides[2];
    x.sizes[2] = size, x.strides[2] = stride;
    return x;
}

/* (row, head, dim) in place of (batch, row, head, dim); false if there is no such view. */
static bool flatten(shape *x)
{
    if (x->axes != 4 || (x->sizes[0] != 1 && x->sizes[1] != 1 && !is_empty(x) &&
                         x->strides[0] != x->sizes[1] * x->strides[1]))
        return false;
    const int64_t step = x->sizes[1] == 1 ? x->strides[0] : x->strides[1];
    *x = (shape) { 3,
                   { x->sizes[0] * x->sizes[1], x->sizes[2], x->sizes[3] },
                   { step, x->strides[2], x->strides[3] } };
    return true;
}

/* A tensor like x, contiguous as the library writes it: with rows first. */
static shape dense_like(const shape *x, bool heads_first)
{
    if (!heads_first || x->axes != 4)
        return contiguous(x->axes, x->sizes);
    const shape rows_first = transposed(*x);
    return transposed(contiguous(4, rows_first.sizes));
}

/* x with its strides if no two elements share a place and there are no holes; else contiguous: what
 * torch.empty_like() makes. */
static shape laid_like(const shape *x)
{
    bool taken[4] = { false };
    int64_t step = 1;
    for (int64_t n = 0; n < x->axes; n++) {
        int64_t found = -1;
        for (int64_t i = x->axes - 1; i >= 0 && found < 0; i--)
            if (!taken[i] && (x->sizes[i] == 1 || x->strides[i] == step))
                found = i;
        if (found < 0)
            return contiguous(x->axes, x->sizes);
        taken[found] = true;
        step *= x->sizes[found];
    }
    return *x;
}

/* Describe the tensor to the library; false if it does not take its address or strides. */
static bool describe(const view *x, ordo_tensor *made)
{
    *made = (ordo_tensor) { .data = x->data };
    const bool cuda = x->device_type == cuda_type;
    if (cuda && (uintptr_t)x->data % CUDA_ALIGN)
        return false;
    if (is_contiguous(&x->shape))
        return true;
    const int64_t *strides = x->shape.strides, axes = x->shape.axes;
    const int64_t bytes = (int64_t)torch.aoti_torch_dtype_element_size(x->dtype);
    for (int64_t i = 0; i < axes; i++) {
        if (i == axes - 1 ? strides[i] != 1 : cuda && strides[i] * bytes % CUDA_ALIGN)
            return false;
        made->stride[4 - axes + i] = strides[i];
    }
    return true;
}

/* ---- tensors that are made ---- */

static int64_t bytes_of(const shape *x, int32_t dtype)
{
    int64_t bytes = (int64_t)torch.aoti_torch_dtype_element_size(dtype);
    for (int64_t i = 0; i < x->axes; i++)
        bytes *= x->sizes[i];
    return bytes;
}

/* Python allocates so much there once more, which raises PyTorch's own error. */
static bool no_memory(int64_t bytes, const view *on)
{
    return REFUSE("memory", "%l bytes on %D: not enough memory", bytes, on);
}

static bool allocate(const shape *of, int32_t dtype, const view *like, tensor **made)
{
    if (torch.aoti_torch_empty_strided(of->axes, of->sizes, of->strides, dtype, like->device_type,
                                       like->device, made) == TORCH_DONE)
        return true;
    *made = NULL;
    return no_memory(bytes_of(of, dtype), like);
}

static void *data_of(tensor *x)
{
    void *data = NULL;
    return torch.aoti_torch_get_data_ptr(x, &data) == TORCH_DONE ? data : NULL;
}

static void release(tensor *x)
{
    if (x)
        torch.aoti_torch_delete_tensor_object(x);
}

/* A result that does not exist: None in Python. */
static tensor *undefined(void)
{
    tensor *made = NULL;
    torch.aoti_torch_new_uninitialized_tensor(&made);
    return made;
}

#endif
