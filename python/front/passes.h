/* passes.h: one pass on tensors that PyTorch shows: its results, workspace, stream, seed and
 * offset; for front.c and node.h. */
#ifndef ORDO_TORCH_PASSES_H
#define ORDO_TORCH_PASSES_H

#include "plans.h"

typedef ordo_status pass_function(const ordo_plan *, const ordo_call *);

static pass_function *forward_pass, *backward_pass;

enum { ALIGN = 256 };

static const sequences no_lists;

/* ---- workspace and launch ---- */

/* Workspaces of CPU passes: one per pass in flight, kept for the next pass, growing as needed. */
typedef struct block {
    struct block *next;
    size_t bytes; /* behind the first ALIGN, where this is */
} block;

static block *idle;

static block *take(size_t bytes)
{
    pthread_mutex_lock(&lock);
    block *found = idle;
    if (found)
        idle = found->next;
    pthread_mutex_unlock(&lock);
    if (found && found->bytes >= bytes)
        return found;
    free(found);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    found = aligned_alloc(ALIGN, ALIGN + bytes);
    if (found)
        found->bytes = bytes;
    return found;
}

static void give(block *used)
{
    pthread_mutex_lock(&lock);
    used->next = idle;
    idle = used;
    pthread_mutex_unlock(&lock);
}

/* Whether a call on this device can be run from here: the device is current. */
static bool at_hand(const view *q)
{
    int32_t current;
    if (q->device_type != cuda_type)
        return true;
    return torch.aoti_torch_cuda_caching_allocator_raw_delete &&
           torch.aoti_torch_get_current_device_index(&current) == TORCH_DONE &&
           current == q->device;
}

/* Give the call a workspace, its stream or its number of threads; false if that fails. */
static bool begin(ordo_call *call, int64_t bytes, const view *q)
{
    call->workspace_bytes = (size_t)bytes;
    if (q->device_type == cuda_type) {
        const uint64_t room = ((uint64_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
        return torch.aoti_torch_get_current_cuda_stream(q->device, &call->stream) == TORCH_DONE &&
               (!bytes || torch.aoti_torch_cuda_caching_allocator_raw_alloc(
                              room, &call->workspace) == TORCH_DONE);
    }
    uint32_t threads = 0;
    block *work = torch.torch_get_num_threads(&threads) == TORCH_DONE ? take((size_t)bytes) : NULL;
    if (!work)
        return false;
    call->threads = (int)threads;
    call->workspace = (char *)work + ALIGN;
    return true;
}

/* Release the workspace of a call that has been launched. The caching allocator reuses memory in
 * the order of the stream; inside a graph the memory is the graph's own. */
static void end(const ordo_call *call, const view *q)
{
    if (q->device_type != cuda_type)
        give((block *)((char *)call->workspace - ALIGN));
    else if (call->workspace)
        torch.aoti_torch_cuda_caching_allocator_raw_delete(call->workspace);
}

/* Seed and offset, drawn as torch.randint(2**32, (2,)) draws them; NULL if that fails. */
static tensor *draw(const view *like)
{
    const int64_t two[4] = { 2 };
    const shape pair = contiguous(1, two);
    tensor *made = allocate(&pair, i64_type, like);
    if (!made)
        return NULL;
    StableIValue stack[3] = { (StableIValue)(uintptr_t)made, UINT64_C(1) << 32, 0 };
    if (torch.torch_call_dispatcher("aten::random_", "to", stack, TORCH_2_10) != TORCH_DONE)
        return NULL;
    return (tensor *)(uintptr_t)stack[0];
}

/* ---- passes ---- */

/* Flags; ordo/torch/_compiled.py. */
enum { RNG_GIVEN = 1, RNG_DRAWN = 2, DLSE_GIVEN = 4, PACKED = 8, IDS_GIVEN = 16, HEADS_FIRST = 32 };

/* Whether a list has `count` elements of this type, contiguous, on the device of q. */
static bool is_list(const view *x, int32_t dtype, int64_t count, const view *q)
{
    return x->shape.axes == 1 && x->shape.sizes[0] == count && is_contiguous(&x->shape) &&
           x->dtype == dtype && x->device_type == q->device_type && x->device == q->device;
}

static bool set_rng(ordo_call *call, tensor *rng, const view *q)
{
    view pair;
    if (!rng || !look(rng, &pair) || !is_list(&pair, i64_type, 2, q) || !pair.data)
        return false;
    call->seed_ptr = pair.data;
    call->offset_ptr = call->seed_ptr + 1;
    return true;
}

enum { MADE = 3 }; /* by a forward pass: o, lse, seed and offset */

/* Run a forward pass on q, k and v as turn() left them; returns the operator's last result.
 * `number`: of the plan, 0 if there is none. `batch`: with HEADS_FIRST, that of q as given. */
static int64_t run_forward(int number, int64_t flags, int64_t batch, const view x[3], tensor *rng,
                           ordo_call *call, tensor *made[MADE])
{
    enum { Q, K, V };
    enum { O, LSE, DRAWN };
    const bool drops = flags & (RNG_GIVEN | RNG_DRAWN);
    if (!number || !at_hand(&x[Q]) || !describe(&x[Q], &call->q) || !describe(&x[K], &call->k) ||
        !describe(&x[V], &call->v))
        return 0;
    const kept_plan *of = plans[number];
    const shape o = flags & HEADS_FIRST ? split_rows(&of->o, batch) : of->o;
    made[O] = allocate(&o, x[Q].dtype, &x[Q]);
    made[LSE] = made[O] ? allocate(&of->lse, f32_type, &x[Q]) : NULL;
    if (!made[LSE] || !begin(call, of->workspace[0], &x[Q]))
        return 0;
    int64_t result = 0;
    if (drops) /* last of what may fail: a call that declines has drawn nothing */
        made[DRAWN] = flags & RNG_DRAWN ? draw(&x[Q]) : again(rng);
    if (!drops || set_rng(call, made[DRAWN], &x[Q])) {
        call->o.data = data_of(made[O]);
        call->lse = data_of(made[LSE]);
        const ordo_status status = forward_pass(of->plan, call);
        result = status ? -(int64_t)status : number;
    }
    end(call, &x[Q]);
    return result;
}

/* Read q, k and v of unpacked sequences. */
static bool look_at(tensor *const given[3], int64_t flags, view x[3])
{
    return look(given[0], &x[0]) && look(given[1], &x[1]) && look(given[2], &x[2]) &&
           turn(flags & HEADS_FIRST, false, x);
}

/* Tensors of a backward pass. */
enum {
    DOUT,
    SAVED_Q,
    SAVED_K,
    SAVED_V,
    SAVED_O,
    SAVED_LSE,
    PLAIN,
    DLSE = PLAIN,
    SAVED_RNG,
    TENSORS
};

/* Whether a tensor has these sizes and this type, on the device of q. */
static bool is_like(const view *x, const shape *of, int32_t dtype, const view *q)
{
    return x->shape.axes == of->axes && memcmp(x->shape.sizes, of->sizes, sizeof of->sizes) == 0 &&
           x->dtype == dtype && x->device_type == q->device_type && x->device == q->device;
}

/* Run a backward pass of plan `number`; returns the operator's last result. given[DLSE] and
 * given[SAVED_RNG] are NULL where there is none. Every tensor is compared with the plan, except for
 * strides: hooks of saved tensors and an assignment to .data may have replaced what the forward
 * pass saved. Who runs what is declined here says what is wrong: Python, or node.h before the pass.
 */
static int64_t run_backward(int64_t number, int64_t flags, tensor *const given[TENSORS],
                            ordo_call *call, tensor *made[3])
{
    view x[TENSORS];
    const view *q = &x[SAVED_Q];
    const kept_plan *of = plan_at(number);
    tensor *dlse = given[DLSE], *rng = given[SAVED_RNG];
    for (int i = 0; i < SAVED_RNG; i++)
        if (given[i] && !look(given[i], &x[i]))
            return 0;
    const shape like[3] = { x[SAVED_Q].shape, x[SAVED_K].shape, x[SAVED_V].shape };
    const bool packed = of && of->key.q.axes == 3;
    if (flags & HEADS_FIRST && packed && (!flatten(&x[SAVED_O].shape) || !flatten(&x[DOUT].shape)))
        return 0;
    if (!of || !turn(flags & HEADS_FIRST, packed, &x[SAVED_Q]) || !serves_strided(of, rng, q) ||
        !at_hand(q) || !is_like(&x[SAVED_O], &of->o, q->dtype, q) ||
        !is_like(&x[DOUT], &of->o, q->dtype, q) || !is_like(&x[SAVED_LSE], &of->lse, f32_type, q) ||
        !is_contiguous(&x[SAVED_LSE].shape) ||
        (dlse && (!is_like(&x[DLSE], &of->lse, f32_type, q) || !is_contiguous(&x[DLSE].shape))) ||
        !describe(q, &call->q) || !describe(&x[SAVED_K], &call->k) ||
        !describe(&x[SAVED_V], &call->v) || !describe(&x[SAVED_O], &call->o) ||
        !describe(&x[DOUT], &call->dout) || (rng && !set_rng(call, rng, q)))
        return 0;
    ordo_tensor *out[3] = { &call->dq, &call->dk, &call->dv };
    for (int i = 0; i < 3; i++) {
        const shape grad = dense_like(&like[i], flags & HEADS_FIRST);
        made[i] = allocate(&grad, q->dtype, q);
        if (!made[i])
            return 0;
        out[i]->data = data_of(made[i]);
    }
    if (!begin(call, of->workspace[1], q))
        return 0;
    call->lse = x[SAVED_LSE].data;
    call->dlse = dlse ? x[DLSE].data : NULL;
    const ordo_status status = backward_pass(of->plan, call);
    end(call, q);
    return status ? -(int64_t)status : number;
}

#endif
