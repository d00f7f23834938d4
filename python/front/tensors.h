/* tensors.h: tensors as PyTorch's C ABI shows them and as the library takes them, and the words of
 * what is refused; for call.h and run.h. */
#ifndef ORDO_TORCH_TENSORS_H
#define ORDO_TORCH_TENSORS_H

#include "torch_abi.h"

#include <ordo/ordo.h>

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
static _Thread_local char said[512];

/* Set the error; returns false. */
#define REFUSE(status, ...) refuse(status ": " __VA_ARGS__)
__attribute__((format(printf, 1, 2))) static bool refuse(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(said, sizeof said, format, values);
    va_end(values);
    return false;
}

/* What is a part of an error, in memory of the statement that uses it. */
#define TEXT          ((char[TEXT_SIZE]) { 0 })
#define SIZES_OF(x)   numbers((x)->axes, (x)->sizes, TEXT)
#define STRIDES_OF(x) numbers((x)->axes, (x)->strides, TEXT)
#define DEVICE_OF(x)  device_name(x, TEXT)
enum { TEXT_SIZE = 100 };

static const char *numbers(int64_t count, const int64_t x[4], char *text)
{
    static const char *const formats[] = { "()", "(%ld,)", "(%ld, %ld)", "(%ld, %ld, %ld)",
                                           "(%ld, %ld, %ld, %ld)" };
    snprintf(text, TEXT_SIZE, formats[count], (long)x[0], (long)x[1], (long)x[2], (long)x[3]);
    return text;
}

static const char *type_name(int32_t dtype)
{
    static const char *const names[BF16 + 1] = {
        [U8] = "uint8",      [I8] = "int8",     [I16] = "int16",     [I32] = "int32",
        [I64] = "int64",     [F16] = "float16", [F32] = "float32",   [F64] = "float64",
        [8] = "complex32",   [9] = "complex64", [10] = "complex128", [BOOL] = "bool",
        [BF16] = "bfloat16",
    };
    return dtype >= 0 && dtype <= BF16 && names[dtype] ? names[dtype] : "another type";
}

static const char *device_name(const view *x, char *text)
{
    const char *format = x->device_type == CUDA   ? "cuda:%d"
                         : x->device_type == CPU  ? "cpu"
                         : x->device_type == META ? "meta"
                                                  : "type %d";
    snprintf(text, TEXT_SIZE, format, (int)(x->device_type == CUDA ? x->device : x->device_type));
    return text;
}

/* ---- shapes ---- */

/* Read a tensor; refuses one with more than 4 axes, or without strides, which has no address. */
static bool look(const char *name, tensor *x, view *seen)
{
    int64_t *sizes, *strides;
    int32_t layout = -1;
    memset(seen, 0, sizeof *seen);
    if (torch.aoti_torch_get_layout(x, &layout) != TORCH_DONE || layout != STRIDED ||
        torch.aoti_torch_get_dim(x, &seen->shape.axes) != TORCH_DONE ||
        torch.aoti_torch_get_sizes(x, &sizes) != TORCH_DONE ||
        torch.aoti_torch_get_strides(x, &strides) != TORCH_DONE ||
        torch.aoti_torch_get_data_ptr(x, &seen->data) != TORCH_DONE ||
        torch.aoti_torch_get_dtype(x, &seen->dtype) != TORCH_DONE ||
        torch.aoti_torch_get_device_type(x, &seen->device_type) != TORCH_DONE ||
        torch.aoti_torch_get_device_index(x, &seen->device) != TORCH_DONE)
        return REFUSE("unsupported", "%s.layout: expected torch.strided", name);
    if (seen->shape.axes > 4)
        return REFUSE("shape", "%s of %ld axes: expected 4 at most", name, (long)seen->shape.axes);
    memcpy(seen->shape.sizes, sizes, (size_t)seen->shape.axes * sizeof *sizes);
    memcpy(seen->shape.strides, strides, (size_t)seen->shape.axes * sizeof *strides);
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

static shape flat(int64_t count)
{
    return contiguous(1, (const int64_t[4]) { count });
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

/* Describe a tensor whose address and rows are multiples of `align` bytes; false if it is not. */
static bool describe_at(const view *x, int64_t align, ordo_tensor *made)
{
    *made = (ordo_tensor) { .data = x->data };
    if ((int64_t)((uintptr_t)x->data % (uintptr_t)align))
        return false;
    if (is_contiguous(&x->shape))
        return true;
    const int64_t *strides = x->shape.strides, axes = x->shape.axes;
    const int64_t bytes = (int64_t)torch.aoti_torch_dtype_element_size(x->dtype);
    for (int64_t i = 0; i < axes; i++) {
        if (i == axes - 1 ? strides[i] != 1 : strides[i] * bytes % align)
            return false;
        made->stride[4 - axes + i] = strides[i];
    }
    return true;
}

/* Describe the tensor to the library; false if it does not take its address or strides. */
static bool describe(const view *x, ordo_tensor *made)
{
    return describe_at(x, x->device_type == CUDA ? CUDA_ALIGN : 1, made);
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
    return REFUSE("memory", "%ld bytes on %s: not enough memory", (long)bytes, DEVICE_OF(on));
}

static bool allocate(shape of, int32_t dtype, const view *like, tensor **made)
{
    if (torch.aoti_torch_empty_strided(of.axes, of.sizes, of.strides, dtype, like->device_type,
                                       like->device, made) == TORCH_DONE)
        return true;
    *made = NULL;
    return no_memory(bytes_of(&of, dtype), like);
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

/* torch.empty_like(x): laid out as x is, if no two elements of it share a place and it has no
 * holes. */
static tensor *empty_like(tensor *x)
{
    tensor *like = NULL;
    if (torch.aoti_torch_new_tensor_handle(x, &like) != TORCH_DONE)
        return NULL;
    StableIValue all[6] = { (
        StableIValue)(uintptr_t)like }; /* and nothing for the other arguments */
    const int32_t done = torch.torch_call_dispatcher("aten::empty_like", "", all, TORCH_2_10);
    return done == TORCH_DONE ? (tensor *)(uintptr_t)all[0] : NULL;
}

/* A result that does not exist: None in Python. */
static tensor *undefined(void)
{
    tensor *made = NULL;
    torch.aoti_torch_new_uninitialized_tensor(&made);
    return made;
}

#endif
