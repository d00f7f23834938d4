/* gemm.h: matrix products for PyTorch: ordo::gemm(Tensor a, Tensor b, Tensor? bias, int sections,
 * bool wide) -> Tensor, C = a b of the types and with the order of sums of ordo/gemm.h.
 *
 * a is (m, k) and b (k, n), with contiguous rows or columns: x and w.t() need no copy. What the
 * backend does not take, by its address or strides, is copied; so is a result whose rows are not
 * whole units of the hardware's copies. CPU tensors have the bits of an H200 if ORDO_EMULATE names
 * a machine. */
#ifndef ORDO_TORCH_GEMM_H
#define ORDO_TORCH_GEMM_H

#include "run.h"

typedef struct product {
    tensor *a, *b, *bias; /* owned; bias may be NULL */
    view x[2], row;
    ordo_gemm_problem problem;
    ordo_gemm_call call;
} product;

/* Describe a matrix whose rows are axis `axis`; false if it cannot be read so. */
static bool lies(const view *x, int axis, ordo_matrix *made)
{
    const int64_t rows = x->shape.sizes[axis], columns = x->shape.sizes[1 - axis];
    const int64_t bytes = (int64_t)torch.aoti_torch_dtype_element_size(x->dtype);
    const bool cuda = x->device_type == CUDA;
    const int64_t unit = cuda ? CUDA_ALIGN / bytes : 1;
    const int64_t step = rows > 1 ? x->shape.strides[axis] : (columns + unit - 1) / unit * unit;
    *made = (ordo_matrix) { x->data, step };
    return (columns <= 1 || x->shape.strides[1 - axis] == 1) && step >= columns &&
           (!cuda || ((uintptr_t)x->data % CUDA_ALIGN == 0 && step % unit == 0));
}

/* Sizes with rows of whole units. */
static shape padded(const view *x, int64_t rows, int64_t columns, int32_t dtype)
{
    const int64_t unit = CUDA_ALIGN / (int64_t)torch.aoti_torch_dtype_element_size(dtype);
    const int64_t step = x->device_type == CUDA ? (columns + unit - 1) / unit * unit : columns;
    return (shape) { 2, { rows, columns }, { step > 0 ? step : 1, 1 } };
}

/* Describe a matrix, after it has been copied if that is necessary. */
static bool fit_matrix(const char *name, tensor **x, view *seen, ordo_matrix *made,
                       bool *transposed)
{
    *transposed = false;
    if (lies(seen, 0, made))
        return true;
    *transposed = lies(seen, 1, made);
    if (*transposed)
        return true;
    const shape rows = padded(seen, seen->shape.sizes[0], seen->shape.sizes[1], seen->dtype);
    if (!copy(name, x, seen, &rows))
        return false;
    *made = (ordo_matrix) { seen->data, rows.strides[0] };
    return true;
}

static bool check_matrix(const char *name, const view *x)
{
    if (x->shape.axes != 2)
        return REFUSE("shape", "%s.shape %s: expected two axes", name, SIZES_OF(&x->shape));
    if (x->device_type == CPU || x->device_type == CUDA)
        return check_float(name, x);
    return REFUSE("unsupported", "%s.device %s: expected cpu or cuda", name, DEVICE_OF(x));
}

/* The tensors against each other, and the problem. */
static bool check_product(product *p, int64_t sections, bool wide)
{
    const view *a = &p->x[0], *b = &p->x[1];
    if (!look("a", p->a, &p->x[0]) || !check_matrix("a", a) || !look("b", p->b, &p->x[1]) ||
        !check_matrix("b", b))
        return false;
    const shape of_b = { 2, { a->shape.sizes[1], b->shape.sizes[1] }, { 0 } };
    if (!check_one("b", b, &of_b, a->dtype, a))
        return false;
    ordo_gemm_problem *made = &p->problem;
    *made = (ordo_gemm_problem)ORDO_GEMM_PROBLEM_INIT;
    made->m = a->shape.sizes[0], made->n = b->shape.sizes[1], made->k = a->shape.sizes[1];
    made->dtype = a->dtype == F16 ? ORDO_F16 : a->dtype == BF16 ? ORDO_BF16 : ORDO_F32;
    made->c_dtype = wide ? ORDO_F32 : made->dtype;
    made->sections = (int)sections;
    made->bias = p->bias != NULL;
    if (sections < 1 || sections > INT32_MAX)
        return REFUSE("argument", "sections %ld: expected 1, 2, 4 or 8", (long)sections);
    if (!p->bias)
        return true;
    const shape row = flat(made->n);
    if (!look("bias", p->bias, &p->row) ||
        !check_one("bias", &p->row, &row, wide ? F32 : a->dtype, a))
        return false;
    p->call.bias = p->row.data;
    return check_contiguous("bias", &p->row);
}

/* Make the plan and its workspace, and launch. */
static bool launch_product(product *p, ordo_backend backend)
{
    ordo_gemm_plan *plan = NULL;
    ordo_gemm_info info = ORDO_GEMM_INFO_INIT;
    tensor *work = NULL;
    ordo_status status = ordo_gemm_plan_create(&plan, &p->problem, backend);
    if (!status)
        status = ordo_gemm_plan_query(plan, &info);
    bool done = !status || library_refused(status);
    if (done && info.workspace_bytes) {
        done = allocate(flat((int64_t)info.workspace_bytes), U8, &p->x[0], &work);
        p->call.workspace = done ? data_of(work) : NULL;
        p->call.workspace_bytes = info.workspace_bytes;
    }
    if (done) {
        status = ordo_gemm_run(plan, &p->call);
        done = !status || library_refused(status);
    }
    release(work); /* the caching allocator reuses it in the order of the stream */
    ordo_gemm_plan_destroy(plan);
    return done;
}

/* The result, by a copy if its own rows cannot be written. */
static bool run_product(product *p, tensor **made)
{
    const view *a = &p->x[0];
    const bool cuda = a->device_type == CUDA;
    const int32_t type = p->problem.c_dtype == ORDO_F32 ? F32 : a->dtype;
    const char *const emulate = getenv("ORDO_EMULATE");
    bool transposed[2];
    tensor *rows = NULL;
    if (!fit_matrix("a", &p->a, &p->x[0], &p->call.a, &transposed[0]) ||
        !fit_matrix("b", &p->b, &p->x[1], &p->call.b, &transposed[1]) ||
        !stream_of(a, &p->call.stream))
        return false;
    p->problem.a_transposed = transposed[0], p->problem.b_transposed = transposed[1];
    p->call.threads = threads_on(a);
    const shape dense = contiguous(2, (const int64_t[4]) { p->problem.m, p->problem.n });
    const shape whole = padded(a, p->problem.m, p->problem.n, type);
    const bool copied = whole.strides[0] != dense.strides[0] && p->problem.m > 1;
    if (!allocate(dense, type, a, made) || (copied && !allocate(whole, type, a, &rows)))
        return false;
    p->call.c = (ordo_matrix) { data_of(copied ? rows : *made), whole.strides[0] };
    bool done = launch_product(p, cuda                  ? ORDO_BACKEND_CUDA
                                  : emulate && *emulate ? ORDO_BACKEND_EMULATOR
                                                        : ORDO_BACKEND_CPU);
    if (done && copied && torch.aoti_torch_copy_(*made, rows, 0) != TORCH_DONE)
        done = REFUSE("internal", "result: PyTorch cannot copy it");
    release(rows);
    return done;
}

static bool multiply(product *p, int64_t sections, bool wide, tensor **made)
{
    struct CUDAGuardOpaque *guard = NULL;
    const bool done =
        check_product(p, sections, wide) && guard_device(&p->x[0], &guard) && run_product(p, made);
    if (guard)
        torch.aoti_torch_delete_cuda_guard(guard);
    release(p->a), release(p->b), release(p->bias);
    return done;
}

#endif
