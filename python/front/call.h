/* call.h: the arguments of an operator (ordo/torch/_front.py), read from PyTorch's stack and
 * compared with each other. */
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
    SEEN,  /* an element mask, as ordo::seen packs it */
    BIAS,  /* in the type of q too; its last axis is contiguous */
    PAGES, /* k and v are (page, row, head, dim), read where they lie, and kv_lens counts whole
            * sequences; of packed queries, without cu_kv */
    SINK,
    STARTS = 28, /* with PAGES; bits between are the other flags */
    MORE
};
/* What each has to be. Each letter is an axis: 2 numbers, e ends, b one per sequence, h one per
 * head, * any number, r rows, c columns; of matrices n sequences or 1, m heads or 1, w bytes of an
 * element mask; of block masks B sequences or 1, H heads or 1, as the starts have them, s starts of
 * rows of blocks. */
static const struct {
    const char *name;
    int32_t dtype;
    const char *axes;
    bool pair; /* it is given if and only if the next one is */
} tensors[MORE] = {
    [RNG] = { "rng", I64, "2" },
    [CU_Q] = { "cu_q", I32, "e", true },
    [CU_KV] = { "cu_kv", I32, "e" },
    [Q_LENS] = { "q_lens", I32, "b", true },
    [KV_LENS] = { "kv_lens", I32, "b" },
    [IDS] = { "sequence_ids", I64, "b" },
    [SLOPES] = { "slopes", F32, "h" }, /* or bh */
    [BITS] = { "bits", U8, "*" },
    [BLOCK_START] = { "block_mask.start", I32, "BHs", true },
    [BLOCK_KEY] = { "block_mask.key", I32, "*" },
    [BLOCK_FIRST] = { "block_mask.first", I32, "BHr", true },
    [BLOCK_LAST] = { "block_mask.last", I32, "BHr" },
    [SEEN] = { "seen", U8, "nmw" },
    [BIAS] = { "bias", F32, "nmrc" },
    [PAGES] = { "page_table", I32, "b*" },
    [SINK] = { "sink", F32, "h" },
    [STARTS] = { "kv_starts", I32, "b" },
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
    NEEDS_DBIAS = 1 << 27,
    KNOWN_FLAGS = (1 << MORE) - 1
};

enum size { LEFT, RIGHT, MAX_Q, MAX_KV, SHARD, SIZES = SHARD + 7 };

/* What a backward pass has beside q, k and v. Sums are f32, of the shapes of k and v. */
enum saved { SAVED_O, DOUT, SAVED_LSE, DLSE, DK_SUMS, DV_SUMS, SAVED };

/* Results of the passes. */
enum { O, LSE, KEPT, DRAWN };
enum { DQ, DK, DV, DSINK, DBIAS, RESULTS };

typedef struct request {
    int64_t flags, sizes[SIZES];
    double scale, softcap, dropout_p;
    tensor *q, *k, *v, *saved[SAVED], *more[MORE]; /* owned; NULL if not given */
    unsigned carry;                                /* what is done with the sums; 0: nothing */
    tensor *made[RESULTS];
    bool packed, paged, draws; /* draws: DRAW is taken */
    int64_t sequences;
    shape given[3];           /* q, k and v as they came */
    view x[3];                /* the same with rows first; packed: (row, head, dim) */
    view back[SAVED];         /* those of `saved`, as x has q */
    view list[MORE];          /* those of `more` that are given */
    shape o_shape, lse_shape; /* as they are handed over */
    bool o_heads_first;       /* o and dout are (batch, head, row, dim) */
} request;

/* Rows (0) or columns (1) of the longest sequence. */
static int64_t length_of(const request *r, int which)
{
    return r->packed ? r->sizes[MAX_Q + which] : r->x[which].shape.sizes[1];
}

static int64_t blocks_of(int64_t length)
{
    return (length + ORDO_BLOCK - 1) / ORDO_BLOCK;
}

/* Bytes of an element mask: bits, in blocks of 16 x 128; with starts and room for all keys. */
static int64_t seen_bits(int64_t rows, int64_t columns)
{
    return (rows + 15) / 16 * blocks_of(columns) * 256;
}

static int64_t seen_bytes(int64_t rows, int64_t columns)
{
    return seen_bits(rows, columns) + 4 * (blocks_of(rows) * (blocks_of(columns) + 1) + 1);
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

/* Read a list of at most `most` items, which are the caller's, and release it. */
static bool read_list(const char *name, StableIValue from, size_t most, bool of_tensors,
                      StableIValue *items, size_t *count)
{
    struct StableListOpaque *const list = (struct StableListOpaque *)(uintptr_t)from;
    bool done = torch.torch_list_size(list, count) == TORCH_DONE;
    for (size_t i = 0; done && i < *count; i++) {
        StableIValue item = 0;
        done = torch.torch_list_get_item(list, i, &item) == TORCH_DONE;
        if (i < most)
            items[i] = item;
        else if (of_tensors)
            release(tensor_of(item));
    }
    torch.torch_delete_list(list);
    return (done && *count <= most) || REFUSE("argument", "%s: expected %zu at most", name, most);
}

/* Read what follows the tensors: flags, scale, more, softcap, dropout_p, sizes. */
static bool read_rest(request *r, const StableIValue *stack)
{
    StableIValue items[MORE] = { 0 }, numbers[SIZES];
    size_t count = 0, named = 0;
    r->flags = (int64_t)stack[0];
    r->scale = real_of(stack[1]), r->softcap = real_of(stack[3]), r->dropout_p = real_of(stack[4]);
    bool done = read_list("more", stack[2], MORE, true, items, &count);
    for (int i = 0; i < MORE; i++)
        if (tensors[i].name && r->flags >> i & 1)
            r->more[i] = tensor_of(items[named++]);
    for (size_t i = named; i < MORE; i++)
        release(tensor_of(items[i]));
    if (done && named != count)
        done = REFUSE("argument", "more: %zu tensors: expected one per flag", count);
    size_t sizes = 0;
    done = read_list("sizes", stack[5], SIZES, false, numbers, &sizes) && done;
    if (!done)
        return false;
    if (r->flags & ~(int64_t)KNOWN_FLAGS)
        return REFUSE("unsupported", "flags %ld: expected those of this version, below %d",
                      (long)r->flags, KNOWN_FLAGS + 1);
    if (r->flags & DRAW && !r->draws)
        return REFUSE("unsupported", "flags: only ordo::eager_forward draws seed and offset");
    if (r->flags & DRAW && r->more[RNG])
        return REFUSE("argument", "rng given: expected none to be drawn");
    if (r->flags & DRAW)
        r->flags |= 1 << RNG;
    if (sizes && sizes != SIZES)
        return REFUSE("argument", "sizes: %zu numbers: expected none or %d", sizes, SIZES);
    r->sizes[LEFT] = r->sizes[RIGHT] = -1;
    for (size_t i = 0; i < sizes; i++)
        r->sizes[i] = (int64_t)numbers[i];
    return true;
}

static void release_request(request *r)
{
    release(r->q), release(r->k), release(r->v);
    for (int i = 0; i < SAVED; i++)
        release(r->saved[i]);
    for (int i = 0; i < MORE; i++)
        release(r->more[i]);
}

/* ---- comparing ---- */

static bool same_sizes(const shape *x, const shape *y)
{
    return x->axes == y->axes && memcmp(x->sizes, y->sizes, sizeof x->sizes) == 0;
}

static bool check_contiguous(const char *name, const view *x)
{
    return is_contiguous(&x->shape) || REFUSE("align", "%s.stride %s: expected a contiguous tensor",
                                              name, STRIDES_OF(&x->shape));
}

/* A tensor of these sizes and this type, on the device of q. */
static bool check_one(const char *name, const view *x, const shape *as, int32_t dtype,
                      const view *q)
{
    if (!same_sizes(&x->shape, as))
        return REFUSE("shape", "%s.shape %s: expected %s", name, SIZES_OF(&x->shape), SIZES_OF(as));
    if (x->dtype != dtype)
        return REFUSE("argument", "%s.dtype torch.%s: expected torch.%s", name, type_name(x->dtype),
                      type_name(dtype));
    return (x->device_type == q->device_type && x->device == q->device) ||
           REFUSE("argument", "%s.device %s: expected that of q, %s", name, DEVICE_OF(x),
                  DEVICE_OF(q));
}

static bool check_more(const request *r, int at)
{
    const view *x = &r->list[at];
    const int64_t heads = r->x[0].shape.sizes[r->packed ? 1 : 2], batch = r->sequences;
    const int64_t rows = length_of(r, 0), columns = length_of(r, 1), *own = x->shape.sizes;
    const int64_t *masks = r->list[BLOCK_START].shape.sizes;
    const char *axes = at == SLOPES && x->shape.axes == 2 ? "bh" : tensors[at].axes;
    const int32_t dtype = at == BIAS && x->dtype == r->x[0].dtype ? x->dtype : tensors[at].dtype;
    shape as = { .axes = (int64_t)strlen(axes) };
    const int64_t known[] = { ['2'] = 2,
                              ['e'] = batch + 1,
                              ['b'] = batch,
                              ['h'] = heads,
                              ['B'] = masks[0] == 1 ? 1 : batch,
                              ['H'] = masks[1] == 1 ? 1 : heads,
                              ['s'] = blocks_of(rows) + 1,
                              ['r'] = rows,
                              ['c'] = columns,
                              ['n'] = own[0] == 1 ? 1 : batch,
                              ['m'] = own[1] == 1 ? 1 : heads,
                              ['w'] = seen_bytes(rows, columns) };
    for (int i = 0; axes[i]; i++)
        as.sizes[i] = axes[i] == '*' ? own[i] : known[(unsigned char)axes[i]];
    return check_one(tensors[at].name, x, &as, dtype, &r->x[0]) &&
           (at == BIAS || check_contiguous(tensors[at].name, x));
}

static bool check_lists(const request *r)
{
    const int64_t flags = r->flags;
    for (int i = 0; i < MORE; i++)
        if (tensors[i].pair && !r->paged && (flags >> i ^ flags >> (i + 1)) & 1)
            return REFUSE("argument", "%s, %s: expected both or none", tensors[i].name,
                          tensors[i + 1].name);
    if (flags >> STARTS & 1 && !r->paged)
        return REFUSE("argument", "kv_starts given, page_table None: expected both");
    if (r->packed && flags >> Q_LENS & 1)
        return REFUSE("argument", "cu_q, q_lens: expected one of them");
    if (r->dropout_p > 0 && !(flags & (1 << RNG | ASK)))
        return REFUSE("argument", "rng None: expected a tensor with dropout_p %g", r->dropout_p);
    if (flags >> BLOCK_FIRST & 1 && !(flags >> BLOCK_START & 1))
        return REFUSE("argument", "block_mask.start None: expected a tensor");
    if (flags & NEEDS_DBIAS && !(flags >> BIAS & 1))
        return REFUSE("argument", "bias None: expected a tensor");
    for (int i = 0; i < MORE; i++)
        if (r->more[i] && !check_more(r, i))
            return false;
    return true;
}

/* What a call with pages has beside them. */
static bool check_paged(const request *r)
{
    const int64_t needed = 1 << CU_Q | 1 << KV_LENS | 1 << PAGES;
    const int64_t known =
        needed | 1 << SLOPES | 1 << SINK | 1 << STARTS | CAUSAL | TOP_LEFT | KEEP | ASK;
    if (r->saved[DOUT])
        return REFUSE("unsupported", "page_table given: no gradients");
    return ((r->flags & needed) == needed && !(r->flags & ~known)) ||
           REFUSE("unsupported",
                  "flags %ld: expected cu_q, kv_lens and no other than slopes, sink and kv_starts "
                  "with page_table",
                  (long)r->flags);
}

static bool check_axes(const request *r, const char *name, const view *x)
{
    const bool first = r->flags & HEADS_FIRST, pages = r->paged && x != r->x;
    return x->shape.axes == (r->packed && !first && !pages ? 3 : 4) ||
           REFUSE("shape", "%s.shape %s: expected %s", name, SIZES_OF(&x->shape),
                  first       ? "(batch, head, row, dim)"
                  : pages     ? "(page, row, head, dim) with page_table"
                  : r->packed ? "(row, head, dim) with cu_q"
                              : "(batch, row, head, dim)");
}

static bool check_float(const char *name, const view *x)
{
    return x->dtype == F32 || x->dtype == BF16 || x->dtype == F16 ||
           REFUSE("argument",
                  "%s.dtype torch.%s: expected torch.float32, torch.bfloat16 or torch.float16",
                  name, type_name(x->dtype));
}

/* A copy, laid out like `as`, in place of a tensor. */
static bool copy(const char *name, tensor **x, view *seen, const shape *as)
{
    tensor *made;
    if (!allocate(*as, seen->dtype, seen, &made))
        return false;
    if (torch.aoti_torch_copy_(made, *x, 0) != TORCH_DONE) {
        release(made);
        return REFUSE("internal", "%s: PyTorch cannot copy it", name);
    }
    release(*x);
    *x = made;
    seen->shape = *as;
    seen->data = data_of(made);
    return true;
}

/* See a tensor with rows first, packed rows end to end; false where there is no such view that the
 * library takes. */
static bool view_rows(const request *r, view *seen, bool heads_first)
{
    view rows = *seen;
    ordo_tensor unused;
    if (heads_first)
        rows.shape = transposed(rows.shape);
    if ((r->packed && rows.shape.axes == 4 && !flatten(&rows.shape)) || !describe(&rows, &unused))
        return false;
    *seen = rows;
    return true;
}

/* The same, of a copy where the tensor itself cannot be seen so. */
static bool turn(const char *name, const request *r, tensor **x, view *seen, bool heads_first)
{
    const shape dense = dense_like(&seen->shape, heads_first);
    return view_rows(r, seen, heads_first) ||
           (copy(name, x, seen, &dense) && view_rows(r, seen, heads_first));
}

/* See q, k or v as the library has it; keys in pages are never copied. */
static bool see(const char *name, const request *r, tensor **x, view *seen)
{
    ordo_tensor unused;
    if (!r->paged || seen == r->x)
        return turn(name, r, x, seen, r->flags & HEADS_FIRST);
    return describe(seen, &unused) ||
           REFUSE("align",
                  "%s.stride %s: expected a contiguous last axis, and on CUDA rows of 16 "
                  "bytes, with page_table",
                  name, STRIDES_OF(&seen->shape));
}

/* Compare what a backward pass gets beside q, k and v, and see it as the library has it. */
static bool check_saved(request *r)
{
    static const char *const names[] = { "o", "dout", "lse", "dlse", "dk_sums", "dv_sums" };
    const view *q = &r->x[0];
    for (int i = 0; i < SAVED; i++) {
        view *x = &r->back[i];
        const bool rows = i < SAVED_LSE, sums = i >= DK_SUMS;
        const shape *as = rows ? &r->o_shape : sums ? &r->given[1 + i - DK_SUMS] : &r->lse_shape;
        if (!r->saved[i] || (sums && !r->carry))
            continue;
        if (!look(names[i], r->saved[i], x) ||
            !check_one(names[i], x, as, rows ? q->dtype : F32, q))
            return false;
        if (rows   ? !turn(names[i], r, &r->saved[i], x, r->o_heads_first)
            : sums ? !check_contiguous(names[i], x)
                   : !is_contiguous(&x->shape) && !copy(names[i], &r->saved[i], x, as))
            return false;
    }
    return true;
}

/* Compare all tensors with each other, and see them as the library has them. */
static bool check_request(request *r)
{
    static const char *const names[3] = { "q", "k", "v" };
    tensor **const given[3] = { &r->q, &r->k, &r->v };
    const bool first = r->flags & HEADS_FIRST;
    r->packed = r->flags >> CU_Q & 1, r->paged = r->flags >> PAGES & 1;
    if (r->paged && !check_paged(r))
        return false;
    view *const q = &r->x[0], *const v = &r->x[2];
    for (int i = 0; i < 3; i++) {
        view *x = &r->x[i];
        if (!look(names[i], *given[i], x) || !check_axes(r, names[i], x) ||
            !check_float(names[i], x))
            return false;
        r->given[i] = x->shape;
    }
    if (q->device_type != CPU && q->device_type != CUDA)
        return REFUSE("unsupported", "device %s: expected cpu or cuda", DEVICE_OF(q));
    if (q->device_type == CUDA && q->dtype == F32)
        return REFUSE(
            "unsupported",
            "q.dtype torch.float32 on CUDA: expected torch.bfloat16 or torch.float16; "
            "run under torch.autocast(\"cuda\", torch.bfloat16), or convert q, k and v by "
            ".to(torch.bfloat16)");
    const int64_t axes = q->shape.axes;
    for (int i = 1; i < 3; i++) { /* the batch and the head size of q, and v as k */
        shape as = r->given[1];
        as.sizes[0] = axes == 4 && !(r->packed && first) ? q->shape.sizes[0] : as.sizes[0];
        as.sizes[as.axes - 1] =
            i == 1 ? q->shape.sizes[axes - 1] : v->shape.sizes[v->shape.axes - 1];
        if (!check_one(names[i], &r->x[i], &as, q->dtype, q))
            return false;
    }
    for (int i = 0; i < 3; i++)
        if (!see(names[i], r, given[i], &r->x[i]))
            return false;
    for (int i = 0; i < MORE; i++)
        if (r->more[i] && !look(tensors[i].name, r->more[i], &r->list[i]))
            return false;
    r->sequences = r->packed ? r->list[CU_Q].shape.sizes[0] - 1 : q->shape.sizes[0];
    if (r->sequences < 0)
        return REFUSE("shape", "cu_q.shape (0,): expected (batch + 1,)");
    r->o_heads_first = first && r->flags & LIKE_Q;
    shape o = r->given[0], lse = q->shape;
    o.sizes[o.axes - 1] = v->shape.sizes[v->shape.axes - 1];
    r->o_shape = first && !r->o_heads_first ? transposed(o) : o;
    const int64_t rows = lse.axes - 3, heads = lse.axes - 2;
    lse.sizes[rows] = q->shape.sizes[heads], lse.sizes[heads] = q->shape.sizes[rows];
    r->lse_shape = contiguous(lse.axes - 1, lse.sizes); /* (batch, head, row) */
    return check_lists(r) && check_saved(r);
}

#endif
