/* tensors.h: tensors as PyTorch's C ABI shows them and as the library takes them; for front.c. */
#ifndef ORDO_TORCH_TENSORS_H
#define ORDO_TORCH_TENSORS_H

#include "torch_abi.h"

#include <ordo/attention.h>

#include <string.h>

typedef struct AtenTensorOpaque tensor;

/* The functions of the ABI; those of CUDA are NULL in a PyTorch without it. Those of node.h may be
 * NULL if its kernels are not registered. */
#define MEMBER(result, name, parameters) result(*name) parameters;
static struct {
    TORCH_FUNCTIONS(MEMBER)
    TORCH_NODE_FUNCTIONS(MEMBER)
    TORCH_CUDA_FUNCTIONS(MEMBER)
} torch;

enum { CUDA_ALIGN = 16 };

static int32_t cuda_type, f32_type, i32_type, i64_type, strided;

typedef struct shape {
    int64_t axes, sizes[4], strides[4]; /* behind the axes: 0 */
} shape;

/* A tensor as the front sees it. */
typedef struct view {
    shape shape;
    void *data;
    int32_t dtype, device_type, device;
} view;

/* Read a tensor; false if it has more than 4 axes, or is sparse, and so has no address. */
static bool look(tensor *x, view *seen)
{
    int64_t *sizes, *strides;
    int32_t layout;
    memset(seen, 0, sizeof *seen);
    if (torch.aoti_torch_get_layout(x, &layout) != TORCH_DONE || layout != strided)
        return false;
    if (torch.aoti_torch_get_dim(x, &seen->shape.axes) != TORCH_DONE || seen->shape.axes > 4 ||
        torch.aoti_torch_get_sizes(x, &sizes) != TORCH_DONE ||
        torch.aoti_torch_get_strides(x, &strides) != TORCH_DONE)
        return false;
    memcpy(seen->shape.sizes, sizes, (size_t)seen->shape.axes * sizeof *sizes);
    memcpy(seen->shape.strides, strides, (size_t)seen->shape.axes * sizeof *strides);
    return torch.aoti_torch_get_data_ptr(x, &seen->data) == TORCH_DONE &&
           torch.aoti_torch_get_dtype(x, &seen->dtype) == TORCH_DONE &&
           torch.aoti_torch_get_device_type(x, &seen->device_type) == TORCH_DONE &&
           torch.aoti_torch_get_device_index(x, &seen->device) == TORCH_DONE;
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

static bool is_contiguous(const shape *x)
{
    shape dense = contiguous(x->axes, x->sizes);
    for (int64_t i = 0; i < x->axes; i++)
        if (x->sizes[i] != 1 && x->strides[i] != dense.strides[i])
            return false;
    return true;
}

/* ---- heads first: q, k and v are (batch, head, row, dim), and so are their gradients; o and dout
 * are (batch, row, head, dim), of packed sequences too ---- */

/* Exchange axes 1 and 2. */
static shape turned(shape x)
{
    const int64_t size = x.sizes[1], stride = x.strides[1];
    x.sizes[1] = x.sizes[2], x.strides[1] = x.strides[2];
    x.sizes[2] = size, x.strides[2] = stride;
    return x;
}

/* (row, head, dim) in place of (batch, row, head, dim); false if there is no such view. */
static bool flatten(shape *x)
{
    if (x->axes != 4 || (x->sizes[0] != 1 && x->strides[0] != x->sizes[1] * x->strides[1]))
        return false;
    *x = (shape) { 3,
                   { x->sizes[0] * x->sizes[1], x->sizes[2], x->sizes[3] },
                   { x->strides[1], x->strides[2], x->strides[3] } };
    return true;
}

/* See q, k and v as the library has them; false if that is not possible. */
static bool turn(bool heads_first, bool packed, view x[3])
{
    for (int i = 0; heads_first && i < 3; i++) {
        if (x[i].shape.axes != 4)
            return false;
        x[i].shape = turned(x[i].shape);
        if (packed && !flatten(&x[i].shape))
            return false;
    }
    return true;
}

/* o as (batch, row, head, dim), if it is (row, head, dim) and contiguous. */
static shape split_rows(const shape *x, int64_t batch)
{
    if (x->axes == 4 || batch == 0)
        return *x;
    return contiguous(4,
                      (const int64_t[4]) { batch, x->sizes[0] / batch, x->sizes[1], x->sizes[2] });
}

/* A gradient of this shape, contiguous as the library writes it. */
static shape dense_like(const shape *x, bool heads_first)
{
    if (!heads_first)
        return contiguous(x->axes, x->sizes);
    const shape rows_first = turned(*x);
    return turned(contiguous(4, rows_first.sizes));
}

/* Describe the tensor to the library; false if the library does not take its address or strides. */
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

static tensor *allocate(const shape *of, int32_t dtype, const view *like)
{
    tensor *made = NULL;
    if (torch.aoti_torch_empty_strided(of->axes, of->sizes, of->strides, dtype, like->device_type,
                                       like->device, &made) != TORCH_DONE)
        return NULL;
    return made;
}

static void *data_of(tensor *x)
{
    void *data = NULL;
    return torch.aoti_torch_get_data_ptr(x, &data) == TORCH_DONE ? data : NULL;
}

/* The same tensor once more. */
static tensor *again(tensor *x)
{
    tensor *made = NULL;
    torch.aoti_torch_new_tensor_handle(x, &made);
    return made;
}

static void release(tensor *x)
{
    if (x)
        torch.aoti_torch_delete_tensor_object(x);
}

static void unpack(const StableIValue *stack, int tensors, tensor **given)
{
    for (int i = 0; i < tensors; i++)
        given[i] = (tensor *)(uintptr_t)stack[i];
}

#endif
