/* run.h: one pass: its results, workspace, keep bits, device and stream, and the launch. */
#ifndef ORDO_TORCH_RUN_H
#define ORDO_TORCH_RUN_H

#include "plans.h"

/* ---- what Python sets ---- */

/* Memory for keep bits on a device: the limit, what bits take that wait for a backward pass, and a
 * stream to make bits on. Python sets limit and stream when it is asked to. The last place is the
 * CPU's. How often bits were made, and passes ran in segments, is counted for tests. */
typedef struct memory {
    _Atomic bool known;
    _Atomic int64_t limit, kept;
    void *_Atomic side;
} memory;
ORDO_API extern struct front {
    void (*forget)(void);                    /* every plan and machine */
    void (*hold)(int device, int64_t bytes); /* count bits that are kept, or no longer are */
    void (*_Atomic ask)(int device);         /* -1: the CPU */
    memory memory[MAX_DEVICES + 1];
    _Atomic int64_t filled, segmented;
} ordo_torch_front; /* ordo/torch/_front.py has the same struct */

/* Of a device that has a plan. */
static memory *memory_on(const view *q)
{
    return &ordo_torch_front.memory[q->device_type == CUDA ? q->device : MAX_DEVICES];
}

static void hold(int device, int64_t bytes)
{
    ordo_torch_front.memory[device < 0 ? MAX_DEVICES : device].kept += bytes;
}

struct front ordo_torch_front = { forget, hold };

/* Bytes for bits beside those that are kept already. */
static uint64_t room_on(const view *q)
{
    memory *const on = memory_on(q);
    if (!on->known)
        ordo_torch_front.ask(q->device_type == CUDA ? q->device : -1);
    const int64_t room = on->limit - on->kept;
    return room > 0 ? (uint64_t)room : 0;
}

/* PyTorch's number of threads; of CUDA tensors 0. */
static int threads_on(const view *q)
{
    uint32_t threads = 0;
    torch.torch_get_num_threads(&threads);
    return q->device_type == CUDA ? 0 : (int)threads;
}

/* ---- keep bits ---- */

static bool stream_of(const view *q, void **stream)
{
    *stream = NULL;
    return q->device_type != CUDA ||
           torch.aoti_torch_get_current_cuda_stream(q->device, stream) == TORCH_DONE ||
           REFUSE("device", "%s: PyTorch has no current stream", DEVICE_OF(q));
}

static bool make_bits(const cached_plan *of, const request *r, bool hidden, void *made,
                      size_t bytes)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    ordo_status status;
    void *stream;
    if (!stream_of(&r->x[0], &stream))
        return false;
    call.cu_q = r->list[CU_Q].data, call.cu_kv = r->list[CU_KV].data;
    call.sequence_ids = r->list[IDS].data;
    call.seed_ptr = r->list[RNG].data, call.offset_ptr = call.seed_ptr + 1;
    call.on_device = of->key.device_type == CUDA;
    call.visible_only = !hidden;
    call.threads = threads_on(&r->x[0]);
    if (call.on_device) {
        status = ordo_dropout_fill_device(&of->key.problem, &call, made, bytes, stream);
    } else {
        status = ordo_dropout_query(&of->key.problem, &call, &info);
        if (!status)
            status = ordo_dropout_fill(&of->key.problem, &call, 0, info.blocks, made, bytes);
    }
    ordo_torch_front.filled++;
    return !status || library_refused(status);
}

/* A tensor with the bits of a call; NULL and no error if there is no memory for it. */
static bool bits_tensor(const cached_plan *of, const request *r, bool hidden, uint64_t bytes,
                        tensor **made)
{
    return !allocate(flat((int64_t)bytes), U8, &r->x[0], made) ||
           make_bits(of, r, hidden, data_of(*made), (size_t)bytes);
}

/* ---- the launch ---- */

/* The workspace of a call, and behind it, if `ahead`, that many bytes for its keep bits; false if
 * there is no memory. Tensors on the CPU need not begin where the library wants them to. */
static bool new_workspace(const view *q, size_t size, size_t ahead, ordo_call *call, tensor **made)
{
    const size_t first = (size + ALIGN - 1) / ALIGN * ALIGN;
    *made = NULL;
    call->workspace_bytes = size;
    if (!(size + ahead))
        return true;
    if (!allocate(flat((int64_t)(first + ahead + ALIGN)), U8, q, made))
        return false;
    char *const data = data_of(*made), *const at = data + -(uintptr_t)data % ALIGN;
    call->workspace = size ? at : NULL;
    if (ahead)
        call->keep_bits = (void *)(at + first);
    return true;
}

/* Run a pass with the plan in `parts` of rows, or, if `whole`, with bits that are made before it.
 * If there is no memory for that, the pass makes its own bits, if it can. Memory goes in the order
 * of the stream, so that it is released as soon as the pass is launched; inside a CUDA graph it is
 * the graph's own. */
static bool run_pass(cached_plan *of, const request *r, int pass, ordo_call *call, bool whole,
                     const cached_plan *parts)
{
    const view *q = &r->x[0];
    tensor *work;
    if (!stream_of(q, &call->stream))
        return false;
    while (!new_workspace(q, (parts ? parts : of)->workspace[pass], whole ? of->bits_bytes : 0,
                          call, &work)) {
        if (of->bits_needed || !(parts || whole))
            return false;
        parts = NULL, whole = false;
    }
    call->threads = threads_on(q);
    if (parts) { /* the stream of the pass waits for the second one */
        ordo_torch_front.segmented++;
        call->side_stream = memory_on(q)->side;
    }
    bool done = !whole || make_bits(of, r, false, (void *)call->keep_bits, (size_t)of->bits_bytes);
    if (done) {
        const ordo_plan *const plan = (parts ? parts : of)->plan;
        const ordo_status status =
            pass ? ordo_attention_backward(plan, call) : ordo_attention_forward(plan, call);
        done = !status || library_refused(status);
    }
    release(work);
    return done;
}

static ordo_block_mask block_mask_of(const request *r, const ordo_problem *p)
{
    const view *list = r->list;
    const int64_t *masks = list[p->seen.on ? SEEN : BLOCK_START].shape.sizes;
    ordo_block_mask made = ORDO_BLOCK_MASK_INIT;
    made.q_len = p->q_len, made.kv_len = p->kv_len;
    made.sequences = masks[0], made.heads = masks[1];
    if (p->seen.on) { /* bits, starts and keys end to end */
        const int64_t count = masks[0] * masks[1], rows = blocks_of(p->q_len);
        char *const lists = (char *)list[SEEN].data + count * seen_bits(p->q_len, p->kv_len);
        made.bits = list[SEEN].data;
        made.start = (const int32_t *)(void *)lists;
        made.key = made.start + count * (rows + 1);
        made.entries = count * rows * blocks_of(p->kv_len); /* at most */
    } else {
        made.entries = list[BLOCK_KEY].shape.sizes[0];
        made.start = list[BLOCK_START].data, made.key = list[BLOCK_KEY].data;
        made.first = list[BLOCK_FIRST].data, made.last = list[BLOCK_LAST].data;
    }
    return made;
}

/* Run a pass (0 forward, 1 backward) whose tensors are set: its lists, bits, workspace. */
static bool launch(cached_plan *of, const request *r, int pass, ordo_call *call)
{
    const view *list = r->list;
    describe(&r->x[0], &call->q), describe(&r->x[1], &call->k), describe(&r->x[2], &call->v);
    call->cu_q = list[CU_Q].data, call->cu_kv = list[CU_KV].data;
    call->q_lens = list[Q_LENS].data, call->kv_lens = list[KV_LENS].data;
    call->page_table = list[PAGES].data, call->kv_starts = list[STARTS].data;
    call->sequence_ids = list[IDS].data;
    call->slopes = list[SLOPES].data;
    call->slopes_batch_stride = list[SLOPES].shape.axes == 2 ? list[SLOPES].shape.sizes[1] : 0;
    call->sink = list[SINK].data;
    ordo_block_mask blocks = block_mask_of(r, &of->key.problem);
    call->block_mask = of->key.problem.blocks.entries ? &blocks : NULL;
    call->seen = of->key.problem.seen.on ? &blocks : NULL;
    if (list[BIAS].shape.axes && !describe_at(&list[BIAS], 1, &call->bias))
        return REFUSE("align", "bias.stride %s: expected a contiguous last axis",
                      STRIDES_OF(&list[BIAS].shape));
    if (list[RNG].data)
        call->seed_ptr = list[RNG].data, call->offset_ptr = call->seed_ptr + 1;
    bool whole = false;
    cached_plan *parts = NULL;
    if (list[BITS].data) {
        call->keep_bits = list[BITS].data;
    } else if (!call->keep_bits && of->bits_bytes) {
        const uint64_t room = room_on(&r->x[0]), bytes = of->bits_bytes;
        whole = bytes <= room && !of->pipelined;
        if (!whole) { /* the gradient of sinks is a sum over all rows: no segments */
            const uint64_t most = of->pipelined && bytes / 4 < room ? bytes / 4 : room;
            parts = call->sink ? NULL : segments_of(of, most);
            whole = of->bits_needed && !parts;
        }
    }
    const bool done = run_pass(of, r, pass, call, whole, parts);
    if (parts)
        give_back(parts);
    call->block_mask = call->seen = NULL;
    return done;
}

/* Make the device of the call current, if it is not. */
static bool guard_device(const view *q, struct CUDAGuardOpaque **guard)
{
    int32_t current;
    *guard = NULL;
    if (q->device_type != CUDA)
        return true;
    if (!torch.aoti_torch_create_cuda_guard)
        return REFUSE("unsupported", "%s: expected a PyTorch with CUDA", DEVICE_OF(q));
    if (torch.aoti_torch_get_current_device_index(&current) == TORCH_DONE && current == q->device)
        return true;
    return torch.aoti_torch_create_cuda_guard(q->device, guard) == TORCH_DONE ||
           REFUSE("device", "%s: PyTorch cannot make it current", DEVICE_OF(q));
}

/* ---- passes ---- */

/* Describe a result to the library, with rows first; false if it does not take its strides. */
static bool describe_result(const request *r, tensor *x, bool heads_first, ordo_tensor *made)
{
    view seen;
    return look("result", x, &seen) && view_rows(r, &seen, heads_first) && describe(&seen, made);
}

/* A result of these sizes: with LIKE_Q laid out as x if it is of these sizes, and the library can
 * write that; else contiguous with rows first. */
static bool new_result(const request *r, tensor *x, const shape *x_sizes, const shape *sizes,
                       bool heads_first, tensor **made, ordo_tensor *described)
{
    if (r->flags & LIKE_Q && same_sizes(x_sizes, sizes) && (*made = empty_like(x)) &&
        describe_result(r, *made, heads_first, described))
        return true;
    release(*made);
    *made = NULL;
    return allocate(dense_like(sizes, heads_first), r->x[0].dtype, &r->x[0], made) &&
           describe_result(r, *made, heads_first, described);
}

/* Seed and offset, as torch.randint(2**32, (2,)) draws them. */
static bool draw_pair(const view *like, tensor **made)
{
    if (!allocate(flat(2), I64, like, made))
        return false;
    StableIValue drawn[3] = { (StableIValue)(uintptr_t)*made, UINT64_C(1) << 32, 0 };
    const bool done =
        torch.torch_call_dispatcher("aten::random_", "to", drawn, TORCH_2_10) == TORCH_DONE;
    *made = done ? tensor_of(drawn[0]) : NULL;
    return done || REFUSE("internal", "aten::random_ failed");
}

/* Run a forward pass; KEPT is NULL if no bits are kept, DRAWN if nothing is drawn. */
static bool run_forward(request *r, cached_plan *of)
{
    tensor **const made = r->made;
    const view *q = &r->x[0];
    ordo_call call = ORDO_CALL_INIT;
    if (!new_result(r, r->q, &r->given[0], &r->o_shape, r->o_heads_first, &made[O], &call.o) ||
        !allocate(r->lse_shape, F32, q, &made[LSE]))
        return false;
    call.lse = data_of(made[LSE]);
    if (r->flags & DRAW) {
        if (!draw_pair(q, &made[DRAWN]))
            return false;
        r->list[RNG].data = data_of(made[DRAWN]);
    }
    /* Room for the bits of one call is left: bits that are made again. */
    const bool reuse =
        r->flags & KEEP && of->reuses && of->bits_bytes && 2 * of->bits_bytes <= room_on(q);
    bool done = true;
    if (reuse && r->list[BITS].data) { /* an empty tensor: those that were given */
        done = allocate(flat(0), U8, q, &made[KEPT]);
    } else if (reuse) {
        done = bits_tensor(of, r, false, of->bits_bytes, &made[KEPT]);
        call.keep_bits = made[KEPT] ? data_of(made[KEPT]) : NULL;
    }
    return done && launch(of, r, 0, &call);
}

static bool check_bits(const request *r, const cached_plan *of)
{
    const shape as = flat((int64_t)of->bits_bytes);
    return !r->list[BITS].data || check_one("bits", &r->list[BITS], &as, U8, &r->x[0]);
}

/* The gradient of a list, f32 and contiguous. */
static bool new_gradient(const request *r, int list, tensor **made, float **at)
{
    const shape *x = &r->list[list].shape;
    const bool done = allocate(contiguous(x->axes, x->sizes), F32, &r->x[0], made);
    *at = done ? data_of(*made) : NULL;
    return done;
}

/* Run a backward pass; gradients that are not wanted are NULL. */
static bool run_backward(request *r, cached_plan *of)
{
    tensor **const made = r->made;
    const view *back = r->back;
    ordo_call call = ORDO_CALL_INIT;
    const bool heads_first = r->flags & HEADS_FIRST;
    tensor *const like[3] = { r->q, r->k, r->v };
    ordo_tensor *const out[3] = { &call.dq, &call.dk, &call.dv };
    bool done = check_bits(r, of);
    for (int i = 0; done && i < 3; i++)
        done = r->flags & (i == DQ ? NO_DQ : NO_DKV) ||
               new_result(r, like[i], &r->given[i], &r->given[i], heads_first, &made[i], out[i]);
    if (done && r->more[SINK])
        done = new_gradient(r, SINK, &made[DSINK], &call.dsink);
    if (done && r->flags & NEEDS_DBIAS)
        done = new_gradient(r, BIAS, &made[DBIAS], &call.dbias);
    /* A gradient of no elements has no address, which means "not wanted" to the library. */
    const bool any = call.dq.data || call.dk.data || call.dv.data || call.dsink || call.dbias ||
                     (r->flags & (NO_DQ | NO_DKV | NEEDS_DBIAS)) == (NO_DQ | NO_DKV);
    describe(&back[SAVED_O], &call.o), describe(&back[DOUT], &call.dout);
    call.lse = back[SAVED_LSE].data, call.dlse = back[DLSE].data;
    call.carry = r->carry, call.dk_sums = back[DK_SUMS].data, call.dv_sums = back[DV_SUMS].data;
    return done && (!any || launch(of, r, 1, &call));
}

#endif
