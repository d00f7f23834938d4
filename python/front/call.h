/* call.h: the arguments of an operator, read from PyTorch's stack and compared with each other.
 *
 *   ordo::forward (Tensor q, Tensor k, Tensor v, int flags, float scale, Tensor[] more, float
 *                  softcap, float dropout_p, SymInt[] sizes)
 *   ordo::backward(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,
 *                  int flags, ...)
 *
 * `more` holds the tensors that the lowest bits of `flags` name, in the order of the bits. `sizes`
 * is empty, or the numbers of enum size. Flags are a part of saved graphs: a bit never gets another
 * meaning. */
#ifndef ORDO_TORCH_CALL_H
#define ORDO_TORCH_CALL_H

#include "tensors.h"

/* Tensors beside q, k and v; bit i of `flags` says that tensor i is in `more`. */
enum more {
    RNG,
    CU_Q,
    CU_KV,
    Q_LENS,
    KV_LENS,
    IDS,
    SLOPES,
    BITS,
    BLOCK_START, /* to BLOCK_LAST: a block mask as ordo/blocks.h has it; its masks have two axes: */
    BLOCK_KEY,   /* sequences, or 1, and heads, or 1 */
    BLOCK_FIRST, /* with BLOCK_LAST, or neither */
    BLOCK_LAST,
    SINK = 15, /* 12 to 14 are for pages */
    MORE
};
static const char *const more_names[MORE] = {
    [RNG] = "rng",
    [CU_Q] = "cu_q",
    [CU_KV] = "cu_kv",
    [Q_LENS] = "q_lens",
    [KV_LENS] = "kv_lens",
    [IDS] = "sequence_ids",
    [SLOPES] = "slopes",
    [BITS] = "bits",
    [SINK] = "sink",
    [BLOCK_START] = "block_mask.start",
    [BLOCK_KEY] = "block_mask.key",
    [BLOCK_FIRST] = "block_mask.first",
    [BLOCK_LAST] = "block_mask.last",
};

/* The other flags; ordo/torch/_front.py. */
enum {
    CAUSAL = 1 << 16,
    TOP_LEFT = 1 << 17,
    FA2 = 1 << 18,
    HEADS_FIRST = 1 << 19, /* q, k, v and their gradients are (batch, head, row, dim), o and dout
                            * (batch, row, head, dim), of packed sequences too */
    LIKE_Q = 1 << 20,      /* with HEADS_FIRST o and dout too are (batch, head, row, dim), and
                            * results are laid out as q, k and v are */
    KEEP = 1 << 21,        /* forward: return the keep bits, if the backward pass is to read them */
    NO_DQ = 1 << 22,
    NO_DKV = 1 << 23,
    HIDDEN = 1 << 24, /* keep_bits: whatever the mode, with the bits that the mask hides */
    ASK = 1 << 25,    /* keep_bits: the line of the plan, as text, in place of bits */
    DRAW = 1 << 26,   /* eager_forward: draw seed and offset, once nothing is refused any more */
    KNOWN_FLAGS = (DRAW << 1) - 1,
    PLAN_FLAGS = CAUSAL | TOP_LEFT | FA2 | 1 << CU_Q | 1 << Q_LENS | 1 << SLOPES | 1 << RNG |
                 1 << BLOCK_START
};

enum size { LEFT, RIGHT, MAX_Q, MAX_KV, SHARD, SIZES = SHARD + 7 };

typedef struct request {
    int64_t flags, sizes[SIZES];
    double scale, softcap, dropout_p;
    tensor *q, *k, *v, *o, *lse, *dout, *dlse, *more[MORE]; /* owned; NULL if not given */
    struct StableListOpaque *more_list, *sizes_list;        /* owned */
    bool packed, unread;                                    /* unread: q, k and v */
    int64_t sequences;
    shape given[3];           /* of q, k and v as they came */
    view x[3];                /* the same with rows first; packed: (row, head, dim) */
    view list[MORE];          /* of what is given */
    shape o_shape, lse_shape; /* with rows first; as lse is */
} request;

/* Rows of the longest sequence. */
static int64_t rows_of(const request *r)
{
    return r->packed ? r->sizes[MAX_Q] : r->x[0].shape.sizes[1];
}

/* ---- reading ---- */

static tensor *tensor_of(StableIValue x)
{
    return (tensor *)(uintptr_t)x;
}

static double real_of(StableIValue x)
{
    double made;
    memcpy(&made, &x, sizeof made);
    return made;
}

/* Read what follows the tensors: flags, scale, more, softcap, dropout_p, sizes. */
static bool read_rest(request *r, const StableIValue *stack)
{
    r->flags = (int64_t)stack[0];
    r->scale = real_of(stack[1]);
    r->more_list = (struct StableListOpaque *)(uintptr_t)stack[2];
    r->softcap = real_of(stack[3]);
    r->dropout_p = real_of(stack[4]);
    r->sizes_list = (struct StableListOpaque *)(uintptr_t)stack[5];
    r->sizes[LEFT] = r->sizes[RIGHT] = -1;

    size_t count = 0, at = 0;
    if (torch.torch_list_size(r->more_list, &count) != TORCH_DONE)
        return REFUSE("internal", "more: PyTorch cannot read its length");
    for (; at < count; at++) { /* owned before anything is refused */
        StableIValue item = 0;
        if (torch.torch_list_get_item(r->more_list, at, &item) != TORCH_DONE)
            return REFUSE("internal", "more: PyTorch cannot read it");
        if (at < MORE)
            r->more[at] = tensor_of(item);
        else
            release(tensor_of(item));
    }
    if (r->flags & ~(int64_t)KNOWN_FLAGS)
        return REFUSE("unsupported", "flags %" PRId64 ": expected those of this version, below %d",
                      r->flags, KNOWN_FLAGS + 1);
    size_t named = 0;
    bool known = true;
    for (int i = 0; i < MORE; i++) {
        named += r->flags >> i & 1;
        known = known && (more_names[i] || !(r->flags >> i & 1));
    }
    if (named != count || !known)
        return REFUSE("argument", "more: %zu tensors: expected one per flag", count);
    for (int i = MORE - 1; i >= 0; i--) /* from the last: each goes up to its own place */
        if (r->flags >> i & 1 && --at != (size_t)i)
            r->more[i] = r->more[at], r->more[at] = NULL;
    if (r->flags & DRAW && r->more[RNG])
        return REFUSE("argument", "rng given: expected none to be drawn");
    if (r->flags & DRAW)
        r->flags |= 1 << RNG;
    if (torch.torch_list_size(r->sizes_list, &count) != TORCH_DONE || (count && count != SIZES))
        return REFUSE("argument", "sizes: %zu numbers: expected none or %d", count, SIZES);
    for (size_t i = 0; i < count; i++) {
        StableIValue item = 0;
        if (torch.torch_list_get_item(r->sizes_list, i, &item) != TORCH_DONE)
            return REFUSE("internal", "sizes: PyTorch cannot read them");
        r->sizes[i] = (int64_t)item;
    }
    return true;
}

static void release_request(request *r)
{
    tensor *const all[] = { r->q, r->k, r->v, r->o, r->lse, r->dout, r->dlse };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        release(all[i]);
    for (int i = 0; i < MORE; i++)
        release(r->more[i]);
    if (r->more_list)
        torch.torch_delete_list(r->more_list);
    if (r->sizes_list)
        torch.torch_delete_list(r->sizes_list);
}

/* ---- comparing ---- */

static bool same_sizes(const shape *x, const shape *y)
{
    return x->axes == y->axes && memcmp(x->sizes, y->sizes, sizeof x->sizes) == 0;
}

static bool wrong_shape(const char *name, const view *x, int64_t axes, const int64_t *expected)
{
    REFUSE("shape", "%s.shape ", name);
    say_numbers(x->shape.axes, x->shape.sizes);
    say(": expected ");
    return say_numbers(axes, expected);
}

static bool check_type(const char *name, const view *x, int32_t dtype)
{
    if (x->dtype == dtype)
        return true;
    REFUSE("argument", "%s.dtype ", name);
    say_type(x->dtype);
    say(": expected ");
    return say_type(dtype);
}

static bool check_place(const char *name, const view *x, const view *q)
{
    if (x->device_type == q->device_type && x->device == q->device)
        return true;
    REFUSE("argument", "%s.device ", name);
    say_device(x->device_type, x->device);
    say(": expected that of q, ");
    return say_device(q->device_type, q->device);
}

/* A tensor of these sizes and this type, on the device of q. */
static bool check_one(const char *name, const view *x, const shape *as, int32_t dtype,
                      const view *q)
{
    if (!same_sizes(&x->shape, as))
        return wrong_shape(name, x, as->axes, as->sizes);
    return check_type(name, x, dtype) && check_place(name, x, q);
}

static bool check_list(const request *r, int at, int32_t dtype, int64_t count)
{
    const view *x = &r->list[at];
    const char *name = more_names[at];
    if (x->shape.axes != 1 || x->shape.sizes[0] != count)
        return wrong_shape(name, x, 1, &count);
    if (!check_type(name, x, dtype) || !check_place(name, x, &r->x[0]))
        return false;
    if (is_contiguous(&x->shape))
        return true;
    REFUSE("align", "%s.stride ", name);
    say_numbers(1, x->shape.strides);
    return say(": expected a contiguous tensor");
}

static bool check_slopes(const request *r)
{
    const view *x = &r->list[SLOPES];
    const int64_t heads = r->x[0].shape.sizes[r->packed ? 1 : 2];
    const bool one = x->shape.axes == 1 && x->shape.sizes[0] == heads;
    const bool each =
        x->shape.axes == 2 && x->shape.sizes[0] == r->sequences && x->shape.sizes[1] == heads;
    if (!one && !each) {
        REFUSE("shape", "slopes.shape ");
        say_numbers(x->shape.axes, x->shape.sizes);
        return say(": expected (%" PRId64 ",) or (%" PRId64 ", %" PRId64 ")", heads, r->sequences,
                   heads);
    }
    if (!check_type("slopes", x, f32_type) || !check_place("slopes", x, &r->x[0]))
        return false;
    return is_contiguous(&x->shape) ||
           REFUSE("align", "slopes.stride: expected a contiguous tensor");
}

/* A list of a block mask: (sequences or 1, heads or 1, count); the others have as many masks as the
 * starts. */
static bool check_block_list(const request *r, int at, int64_t count)
{
    const view *x = &r->list[at];
    const int64_t *masks = r->list[BLOCK_START].shape.sizes;
    const int64_t most[2] = { r->sequences, r->x[0].shape.sizes[r->packed ? 1 : 2] };
    int64_t as[4] = { masks[0], masks[1], count };
    for (int i = 0; i < 2; i++)
        if (as[i] != 1 || r->list[BLOCK_START].shape.axes != 3)
            as[i] = most[i];
    if (x->shape.axes != 3 || memcmp(x->shape.sizes, as, sizeof as) != 0)
        return wrong_shape(more_names[at], x, 3, as);
    return check_type(more_names[at], x, i32_type) && check_place(more_names[at], x, &r->x[0]) &&
           (is_contiguous(&x->shape) ||
            REFUSE("align", "%s: expected a contiguous tensor", more_names[at]));
}

static bool check_block_mask(const request *r)
{
    const int64_t flags = r->flags, rows = rows_of(r);
    const bool starts = flags >> BLOCK_START & 1, intervals = flags >> BLOCK_FIRST & 1;
    if (starts != (flags >> BLOCK_KEY & 1) || intervals != (flags >> BLOCK_LAST & 1) ||
        (intervals && !starts))
        return REFUSE("argument", "block_mask: expected start and key, and first and last or none");
    if (!starts)
        return true;
    const int64_t blocks = (rows + ORDO_BLOCK - 1) / ORDO_BLOCK,
                  *entries = r->list[BLOCK_KEY].shape.sizes;
    return check_block_list(r, BLOCK_START, blocks + 1) &&
           check_list(r, BLOCK_KEY, i32_type, entries[0]) &&
           (!intervals ||
            (check_block_list(r, BLOCK_FIRST, rows) && check_block_list(r, BLOCK_LAST, rows)));
}

static bool check_lists(const request *r)
{
    const int64_t flags = r->flags, batch = r->sequences;
    const bool ends = flags >> CU_Q & 1, lengths = flags >> Q_LENS & 1;
    if (ends != (flags >> CU_KV & 1) || lengths != (flags >> KV_LENS & 1))
        return REFUSE("argument", "cu_q, cu_kv, q_lens, kv_lens: expected both of a kind or none");
    if (ends && lengths)
        return REFUSE("argument", "cu_q, q_lens: expected one of them");
    if (r->dropout_p > 0 && !(flags >> RNG & 1))
        return REFUSE("argument", "rng None: expected a tensor with dropout_p %g", r->dropout_p);
    if ((flags >> RNG & 1 && !(flags & DRAW) && !check_list(r, RNG, i64_type, 2)) ||
        (ends && (!check_list(r, CU_Q, i32_type, batch + 1) ||
                  !check_list(r, CU_KV, i32_type, batch + 1))) ||
        (lengths &&
         (!check_list(r, Q_LENS, i32_type, batch) || !check_list(r, KV_LENS, i32_type, batch))) ||
        (flags >> IDS & 1 && !check_list(r, IDS, i64_type, batch)) ||
        (flags >> SLOPES & 1 && !check_slopes(r)))
        return false;
    return check_block_mask(r) &&
           (!(flags >> SINK & 1) ||
            check_list(r, SINK, f32_type, r->x[0].shape.sizes[r->packed ? 1 : 2]));
}

static bool check_axes(const request *r, const char *name, const view *x)
{
    const bool first = r->flags & HEADS_FIRST;
    if (x->shape.axes == (r->packed && !first ? 3 : 4))
        return true;
    REFUSE("shape", "%s.shape ", name);
    say_numbers(x->shape.axes, x->shape.sizes);
    return say(": expected %s", first       ? "(batch, head, row, dim)"
                                : r->packed ? "(row, head, dim) with cu_q"
                                            : "(batch, row, head, dim)");
}

static bool check_float(const char *name, const view *x)
{
    if (x->dtype == f32_type || x->dtype == bf16_type || x->dtype == f16_type)
        return true;
    REFUSE("argument", "%s.dtype ", name);
    say_type(x->dtype);
    return say(": expected torch.float32, torch.bfloat16 or torch.float16");
}

/* A copy in place of a tensor whose strides or address the library does not take. */
static bool fit(const char *name, tensor **x, view *seen, bool heads_first)
{
    ordo_tensor unused;
    view rows = *seen;
    if (heads_first)
        rows.shape = transposed(rows.shape);
    if (describe(&rows, &unused))
        return true;
    const shape dense = dense_like(&seen->shape, heads_first);
    tensor *copy;
    if (!allocate(&dense, seen->dtype, seen, &copy))
        return false;
    if (torch.aoti_torch_copy_(copy, *x, 0) != TORCH_DONE) {
        release(copy);
        return REFUSE("internal", "%s: PyTorch cannot copy it", name);
    }
    release(*x);
    *x = copy;
    seen->shape = dense;
    seen->data = data_of(copy);
    return true;
}

/* See a tensor with rows first, packed rows end to end; copied where there is no such view. */
static bool turn(const char *name, const request *r, tensor **x, view *seen, bool heads_first)
{
    if (!fit(name, x, seen, heads_first))
        return false;
    view rows = *seen;
    if (heads_first)
        rows.shape = transposed(rows.shape);
    if (r->packed && rows.shape.axes == 4 && !flatten(&rows.shape)) {
        seen->shape.strides[3] = 0; /* which the library takes of none: fit() copies */
        if (!fit(name, x, seen, heads_first))
            return false;
        rows = *seen;
        if (heads_first)
            rows.shape = transposed(rows.shape);
        flatten(&rows.shape);
    }
    *seen = rows;
    return true;
}

/* Compare q, k, v and the lists with each other, and see them as the library has them. */
static bool check_request(request *r)
{
    static const char *const names[3] = { "q", "k", "v" };
    tensor **const given[3] = { &r->q, &r->k, &r->v };
    const bool first = r->flags & HEADS_FIRST;
    r->packed = r->flags >> CU_Q & 1;
    view *q = &r->x[0];
    for (int i = 0; i < 3; i++) {
        view *x = &r->x[i];
        if (!look(names[i], *given[i], x) || !check_axes(r, names[i], x) ||
            !check_float(names[i], x))
            return false;
        if (x->dtype != q->dtype) {
            REFUSE("argument", "%s.dtype ", names[i]);
            say_type(x->dtype);
            say(": expected that of q, ");
            return say_type(q->dtype);
        }
        if (!check_place(names[i], x, q))
            return false;
    }
    if (q->device_type != cpu_type && q->device_type != cuda_type) {
        REFUSE("unsupported", "device ");
        say_device(q->device_type, q->device);
        return say(": expected cpu or cuda");
    }
    if (q->device_type == cuda_type && q->dtype == f32_type)
        return REFUSE(
            "unsupported",
            "q.dtype torch.float32 on CUDA: expected torch.bfloat16 or torch.float16; "
            "run under torch.autocast(\"cuda\", torch.bfloat16), or convert q, k and v by "
            ".to(torch.bfloat16)");
    const view *k = &r->x[1], *v = &r->x[2];
    const int64_t axes = q->shape.axes, batch_axes = axes - 3;
    if (memcmp(k->shape.sizes, v->shape.sizes, (size_t)(axes - 1) * sizeof(int64_t)) != 0) {
        wrong_shape("v", v, axes - 1, k->shape.sizes);
        return say(" as k has");
    }
    if (k->shape.sizes[axes - 1] != q->shape.sizes[axes - 1]) {
        REFUSE("shape", "k.shape ");
        say_numbers(axes, k->shape.sizes);
        return say(": expected the head size of q, %" PRId64, q->shape.sizes[axes - 1]);
    }
    if (batch_axes && !r->packed && k->shape.sizes[0] != q->shape.sizes[0]) {
        REFUSE("shape", "k.shape ");
        say_numbers(axes, k->shape.sizes);
        return say(": expected the batch of q, %" PRId64, q->shape.sizes[0]);
    }
    for (int i = 0; i < 3; i++) {
        r->given[i] = r->x[i].shape;
        if (r->unread) /* no strides or address to copy for */
            r->x[i].shape = contiguous(axes, r->given[i].sizes), r->x[i].data = NULL;
        if (!turn(names[i], r, given[i], &r->x[i], first))
            return false;
    }
    for (int i = 0; i < MORE; i++)
        if (r->more[i] && !look(more_names[i], r->more[i], &r->list[i]))
            return false;
    r->sequences = r->packed ? r->list[CU_Q].shape.sizes[0] - 1 : q->shape.sizes[0];
    if (r->sequences < 0)
        return REFUSE("shape", "cu_q.shape (0,): expected (batch + 1,)");
    const int64_t rows_axes = q->shape.axes, *sizes = q->shape.sizes;
    int64_t out[4] = { 0 };
    memcpy(out, sizes, sizeof out);
    out[rows_axes - 1] = v->shape.sizes[rows_axes - 1];
    r->o_shape = contiguous(rows_axes, out);
    out[rows_axes - 3] = sizes[rows_axes - 2], out[rows_axes - 2] = sizes[rows_axes - 3];
    r->lse_shape = contiguous(rows_axes - 1, out); /* (batch, head, row) */
    return check_lists(r);
}

#endif
