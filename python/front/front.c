/* front.c: the passes of the PyTorch front as operators, compiled against PyTorch's stable C ABI.
 *
 *   ordo::compiled_add       keep a plan: what its calls need, found again by shapes or by number
 *   ordo::compiled_forward   one forward pass: allocate o and lse, draw seed and offset, run
 *   ordo::compiled_lengths   the same of packed or padded sequences, their lengths given as tensors
 *   ordo::compiled_backward  one backward pass
 *   ordo::compiled_lengths_backward   that of compiled_lengths
 *   ordo::compiled_plain, ordo::compiled_plain_backward   the same without dropout or lists
 *
 * Python makes plans, checks arguments, owns autograd, and has another way to run every call
 * (ordo/torch/_call.py). An operator that cannot run a call as it stands declines, before it has
 * drawn or written anything, and Python goes that way. Its last result says so:
 *
 *   > 0   the pass ran, with the plan of this number
 *   0     declined; the tensors returned are those of q
 *   < 0   minus the status with which the library refused the call; ordo_last_error() says why
 *
 * Kept plans are never released: compiled_add() declines when there are MAX_PLANS of them. */
#include "plans.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef ordo_status pass_function(const ordo_plan *, const ordo_call *);

static pass_function *forward_pass, *backward_pass;

enum { ALIGN = 256 };

static const sequences no_lists;

/* ---- plans that are kept ---- */

/* (Tensor q, Tensor k, Tensor v, int plan, int rules, int drops, int forward, int backward, int
 * count, int max_q, int max_kv) -> int: keep a plan for tensors and sequences like these; returns
 * its number, 0 if it is not kept. */
static void add(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    tensor *given[3];
    view x[3];
    unpack(stack, 3, given);
    bool known = true;
    for (int i = 0; i < 3; i++)
        known = known && look(given[i], &x[i]) && x[i].shape.axes >= 3;
    int number = 0;
    if (known) {
        kept_plan made = { .plan = (const ordo_plan *)(uintptr_t)stack[3] };
        const sequences lists = { (int64_t)stack[8], (int64_t)stack[9], (int64_t)stack[10] };
        made.key = key_of((int64_t)stack[4], stack[5] != 0, lists, x);
        made.workspace[0] = (int64_t)stack[6], made.workspace[1] = (int64_t)stack[7];
        const int64_t axes = x[0].shape.axes, *q = x[0].shape.sizes;
        int64_t sizes[4];
        memcpy(sizes, q, sizeof sizes);
        sizes[axes - 1] = x[2].shape.sizes[axes - 1];
        made.o = contiguous(axes, sizes);
        sizes[axes - 3] = q[axes - 2], sizes[axes - 2] = q[axes - 3]; /* (batch, head, row) */
        made.lse = contiguous(axes - 1, sizes);
        number = keep(&made.key, &made);
    }
    for (int i = 0; i < 3; i++)
        release(given[i]);
    stack[0] = (StableIValue)number;
}

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

/* Addresses of keep bits and lists: bits, cu_q, cu_kv, q_lens, kv_lens, sequence_ids, slopes, and
 * the batch stride of the last; 0 where there is none. Python holds what they point to. */
enum { ADDRESSES = 8 };

static void set_lists(ordo_call *call, const StableIValue *address)
{
    call->mask_bits = (const uint32_t *)(uintptr_t)address[0];
    call->cu_q = (const int32_t *)(uintptr_t)address[1];
    call->cu_kv = (const int32_t *)(uintptr_t)address[2];
    call->q_lens = (const int32_t *)(uintptr_t)address[3];
    call->kv_lens = (const int32_t *)(uintptr_t)address[4];
    call->sequence_ids = (const int64_t *)(uintptr_t)address[5];
    call->slopes = (const float *)(uintptr_t)address[6];
    call->slopes_batch_stride = (int64_t)address[7];
}

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

/* Replace the arguments of an operator, of which it read `tensors`, by its results: `made` tensors
 * and a number. Where the pass did not run, tensors made for it go, and q stands for them. */
static void hand_over(StableIValue *stack, int tensors, tensor **given, tensor *q, int made,
                      tensor **results, int64_t result)
{
    for (int i = 0; i < made; i++) {
        if (result <= 0)
            release(results[i]);
        stack[i] = (StableIValue)(uintptr_t)(result > 0 && results[i] ? results[i] : again(q));
    }
    for (int i = 0; i < tensors; i++)
        release(given[i]);
    stack[made] = (StableIValue)result;
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

/* (Tensor q, Tensor k, Tensor v, Tensor rng, int which, int flags, ADDRESSES x int) -> (Tensor o,
 * Tensor lse, Tensor rng, int): rng is read with RNG_GIVEN only, and is what was given or drawn. */
static void forward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    enum { Q, K, V, RNG, GIVEN };
    tensor *given[GIVEN], *made[MADE] = { NULL };
    unpack(stack, GIVEN, given);
    const int64_t which = (int64_t)stack[GIVEN], flags = (int64_t)stack[GIVEN + 1];
    ordo_call call = ORDO_CALL_INIT;
    set_lists(&call, stack + GIVEN + 2);

    view x[3];
    const bool known = look_at(given, flags, x);
    const int number = known ? find(which, flags & (RNG_GIVEN | RNG_DRAWN), no_lists, x) : 0;
    const int64_t result = run_forward(number, flags, 0, x, given[RNG], &call, made);
    hand_over(stack, GIVEN, given, given[Q], MADE, made, result);
}

/* Give the call its lists: x is q_lengths, kv_lengths and ids, `count` the ends or lengths. False
 * if they are not of that number, of their types and on the device of q. */
static bool set_lengths(ordo_call *call, bool packed, bool has_ids, int64_t count, const view x[3],
                        const view *q)
{
    if (!is_list(&x[0], i32_type, count, q) || !is_list(&x[1], i32_type, count, q) ||
        (has_ids && !is_list(&x[2], i64_type, count - packed, q)))
        return false;
    *(packed ? &call->cu_q : &call->q_lens) = x[0].data;
    *(packed ? &call->cu_kv : &call->kv_lens) = x[1].data;
    call->sequence_ids = has_ids ? x[2].data : NULL;
    return true;
}

/* (Tensor q, Tensor k, Tensor v, Tensor rng, Tensor q_lengths, Tensor kv_lengths, Tensor ids, int
 * max_q, int max_kv, int rules, int flags) -> as forward(): the lengths are cu_q and cu_kv with
 * PACKED, else q_lens and kv_lens; ids, of dropout, are read with IDS_GIVEN only. */
static void lengths(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    enum { Q, K, V, RNG, Q_LENGTHS, KV_LENGTHS, IDS, GIVEN };
    tensor *given[GIVEN], *made[MADE] = { NULL };
    unpack(stack, GIVEN, given);
    sequences lists = { 0, (int64_t)stack[GIVEN], (int64_t)stack[GIVEN + 1] };
    const int64_t rules = (int64_t)stack[GIVEN + 2], flags = (int64_t)stack[GIVEN + 3];
    const bool packed = flags & PACKED, has_ids = flags & IDS_GIVEN;
    ordo_call call = ORDO_CALL_INIT;

    view x[GIVEN];
    bool known = rules > 0;
    for (int i = 0; i < GIVEN; i++)
        known = known && (i == RNG || (i == IDS && !has_ids) || look(given[i], &x[i]));
    const int64_t batch = known ? x[Q].shape.sizes[0] : 0;
    known = known && turn(flags & HEADS_FIRST, packed, x);
    int number = 0;
    if (known) {
        lists.count = x[Q_LENGTHS].shape.sizes[0];
        known = set_lengths(&call, packed, has_ids, lists.count, &x[Q_LENGTHS], x);
        number = known ? find(rules, flags & (RNG_GIVEN | RNG_DRAWN), lists, x) : 0;
    }
    const int64_t result = run_forward(number, flags, batch, x, given[RNG], &call, made);
    hand_over(stack, GIVEN, given, given[Q], MADE, made, result);
}

/* (Tensor q, Tensor k, Tensor v, int rules, int flags) -> (Tensor o, Tensor lse, int): forward()
 * without dropout or lists, whose arguments would take as long as the rest of the call. */
static void plain_forward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    enum { Q, K, V, GIVEN };
    tensor *given[GIVEN], *made[MADE] = { NULL };
    unpack(stack, GIVEN, given);
    const int64_t flags = (int64_t)stack[GIVEN + 1] & HEADS_FIRST;
    ordo_call call = ORDO_CALL_INIT;

    view x[GIVEN];
    const bool known = look_at(given, flags, x);
    const int number = known ? find((int64_t)stack[GIVEN], false, no_lists, x) : 0;
    const int64_t result = run_forward(number, flags, 0, x, NULL, &call, made);
    hand_over(stack, GIVEN, given, given[Q], 2, made, result);
}

/* Tensors of a backward pass. */
enum { DOUT, Q, K, V, O, LSE, PLAIN, DLSE = PLAIN, RNG, GIVEN };

/* Whether a tensor has these sizes and this type, on the device of q. */
static bool is_like(const view *x, const shape *of, int32_t dtype, const view *q)
{
    return x->shape.axes == of->axes && memcmp(x->shape.sizes, of->sizes, sizeof of->sizes) == 0 &&
           x->dtype == dtype && x->device_type == q->device_type && x->device == q->device;
}

/* Run a backward pass of plan `number`; returns the operator's last result. given[DLSE] and
 * given[RNG] are NULL where there is none. Every tensor is compared with the plan: hooks of saved
 * tensors and an assignment to .data may have replaced what the forward pass saved. Python, which
 * runs what is declined here, says what is wrong. */
static int64_t run_backward(int64_t number, int64_t flags, tensor *const given[GIVEN],
                            ordo_call *call, tensor *made[3])
{
    view x[GIVEN];
    const view *q = &x[Q];
    const kept_plan *of = plan_at(number);
    tensor *dlse = given[DLSE], *rng = given[RNG];
    for (int i = 0; i < RNG; i++)
        if (given[i] && !look(given[i], &x[i]))
            return 0;
    const shape like[3] = { x[Q].shape, x[K].shape, x[V].shape };
    const bool packed = of && of->key.q.axes == 3;
    if (flags & HEADS_FIRST && packed && (!flatten(&x[O].shape) || !flatten(&x[DOUT].shape)))
        return 0;
    if (!of || !turn(flags & HEADS_FIRST, packed, &x[Q]) || !serves(of, rng, q) || !at_hand(q) ||
        !is_like(&x[O], &of->o, q->dtype, q) || !is_like(&x[DOUT], &of->o, q->dtype, q) ||
        !is_like(&x[LSE], &of->lse, f32_type, q) || !is_contiguous(&x[LSE].shape) ||
        (dlse && (!is_like(&x[DLSE], &of->lse, f32_type, q) || !is_contiguous(&x[DLSE].shape))) ||
        !describe(q, &call->q) || !describe(&x[K], &call->k) || !describe(&x[V], &call->v) ||
        !describe(&x[O], &call->o) || !describe(&x[DOUT], &call->dout) ||
        (rng && !set_rng(call, rng, q)))
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
    call->lse = x[LSE].data;
    call->dlse = dlse ? x[DLSE].data : NULL;
    const ordo_status status = backward_pass(of->plan, call);
    end(call, q);
    return status ? -(int64_t)status : number;
}

/* The tensors that a pass with these flags reads; NULL for the others. */
static void leave_out(int64_t flags, tensor *const given[GIVEN], tensor *read[GIVEN])
{
    for (int i = 0; i < GIVEN; i++)
        read[i] = given[i];
    if (!(flags & DLSE_GIVEN))
        read[DLSE] = NULL;
    if (!(flags & RNG_GIVEN))
        read[RNG] = NULL;
}

/* (Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor dlse, Tensor rng, int
 * number, int flags, ADDRESSES x int) -> (Tensor dq, Tensor dk, Tensor dv, int): dlse is read with
 * DLSE_GIVEN, rng with RNG_GIVEN. What the addresses point to is as the plan has it: Python sees to
 * that. */
static void backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    tensor *given[GIVEN], *read[GIVEN], *made[3] = { NULL };
    unpack(stack, GIVEN, given);
    const int64_t number = (int64_t)stack[GIVEN], flags = (int64_t)stack[GIVEN + 1];
    leave_out(flags, given, read);
    ordo_call call = ORDO_CALL_INIT;
    set_lists(&call, stack + GIVEN + 2);
    const int64_t result = run_backward(number, flags, read, &call, made);
    hand_over(stack, GIVEN, given, given[Q], 3, made, result);
}

/* (Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor dlse, Tensor rng, Tensor
 * q_lengths, Tensor kv_lengths, Tensor ids, int number, int flags) -> as backward(): of a call of
 * lengths(), with the lists that it got; ids are read with IDS_GIVEN only. */
static void lengths_backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    enum { Q_LENGTHS = GIVEN, KV_LENGTHS, IDS, ALL };
    tensor *given[ALL], *read[GIVEN], *made[3] = { NULL };
    unpack(stack, ALL, given);
    const int64_t number = (int64_t)stack[ALL], flags = (int64_t)stack[ALL + 1];
    leave_out(flags, given, read);
    ordo_call call = ORDO_CALL_INIT;
    const kept_plan *of = plan_at(number);
    view q, x[3];
    const bool known =
        of && look(given[Q], &q) && look(given[Q_LENGTHS], &x[0]) &&
        look(given[KV_LENGTHS], &x[1]) && look(given[IDS], &x[2]) &&
        set_lengths(&call, of->key.q.axes == 3, flags & IDS_GIVEN, of->key.lists.count, x, &q);
    const int64_t result = known ? run_backward(number, flags, read, &call, made) : 0;
    hand_over(stack, ALL, given, given[Q], 3, made, result);
}

/* (Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, int number, int flags) -> as
 * backward(), without dropout, lists or dlse. */
static void plain_backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    tensor *given[GIVEN] = { NULL }, *made[3] = { NULL };
    unpack(stack, PLAIN, given);
    ordo_call call = ORDO_CALL_INIT;
    const int64_t number = (int64_t)stack[PLAIN], flags = (int64_t)stack[PLAIN + 1] & HEADS_FIRST;
    const int64_t result = run_backward(number, flags, given, &call, made);
    hand_over(stack, PLAIN, given, given[Q], 3, made, result);
}

/* ---- registration ---- */

#define LISTS                                                                                      \
    "int bits=0, int cu_q=0, int cu_kv=0, int q_lens=0, int kv_lens=0, int sequence_ids=0, "       \
    "int slopes=0, int slopes_stride=0"

static const struct {
    const char *name, *schema;
    torch_kernel *kernel;
} operators[] = {
    { "compiled_add",
      "compiled_add(Tensor q, Tensor k, Tensor v, int plan, int rules, int drops, int forward, "
      "int backward, int count, int max_q, int max_kv) -> int",
      add },
    { "compiled_forward",
      "compiled_forward(Tensor q, Tensor k, Tensor v, Tensor rng, int which, int flags=0, " LISTS
      ") -> (Tensor, Tensor, Tensor, int)",
      forward },
    { "compiled_lengths",
      "compiled_lengths(Tensor q, Tensor k, Tensor v, Tensor rng, Tensor q_lengths, Tensor "
      "kv_lengths, Tensor ids, int max_q, int max_kv, int rules, int flags) -> (Tensor, Tensor, "
      "Tensor, int)",
      lengths },
    { "compiled_plain",
      "compiled_plain(Tensor q, Tensor k, Tensor v, int rules, int flags=0) -> (Tensor, Tensor, "
      "int)",
      plain_forward },
    { "compiled_backward",
      "compiled_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor "
      "dlse, Tensor rng, int number, int flags=0, " LISTS ") -> (Tensor, Tensor, Tensor, int)",
      backward },
    { "compiled_lengths_backward",
      "compiled_lengths_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
      "Tensor dlse, Tensor rng, Tensor q_lengths, Tensor kv_lengths, Tensor ids, int number, int "
      "flags) -> (Tensor, Tensor, Tensor, int)",
      lengths_backward },
    { "compiled_plain_backward",
      "compiled_plain_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, "
      "int number, int flags=0) -> (Tensor, Tensor, Tensor, int)",
      plain_backward },
};

static const char *find_functions(void)
{
    void *library = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return "libtorch_python.so is not loaded";
#define FIND(result, name, parameters) *(void **)&torch.name = dlsym(library, #name);
#define REQUIRE(result, name, parameters)                                                          \
    FIND(result, name, parameters)                                                                 \
    if (!torch.name)                                                                               \
        return #name "() is missing: PyTorch 2.10 has it";
    TORCH_FUNCTIONS(REQUIRE)
    TORCH_CUDA_FUNCTIONS(FIND)
    return NULL;
}

static const char *define(void)
{
    struct TorchLibraryOpaque *library;
    if (torch.aoti_torch_library_init_fragment("ordo", __FILE__, __LINE__, &library) != TORCH_DONE)
        return "the operators cannot be defined";
    enum { COUNT = sizeof operators / sizeof *operators };
    for (int i = 0; i < COUNT; i++)
        if (torch.aoti_torch_library_def(library, operators[i].schema) != TORCH_DONE)
            return "the operators cannot be defined";
    /* For every device: a list may be on any, and is refused by Python then. */
    if (torch.aoti_torch_library_init_impl("ordo", "CompositeExplicitAutograd", __FILE__, __LINE__,
                                           &library) != TORCH_DONE)
        return "the operators cannot be implemented";
    for (int i = 0; i < COUNT; i++)
        if (torch.torch_library_impl(library, operators[i].name, operators[i].kernel, TORCH_2_10) !=
            TORCH_DONE)
            return "the operators cannot be implemented";
    return NULL;
}

enum { REVISION = 3 }; /* of what the operators take; as in ordo/torch/_compiled.py */

/* Define the operators, which run these functions of libordo; once per process, after PyTorch has
 * been loaded. `revision` is what the caller expects. Returns NULL, or why it is not possible. */
ORDO_API const char *ordo_torch_start(int revision, pass_function *to_forward,
                                      pass_function *to_backward);

const char *ordo_torch_start(int revision, pass_function *to_forward, pass_function *to_backward)
{
    if (revision != REVISION)
        return "libordo_torch.so is of another version than the package";
    const char *why_not = find_functions();
    if (why_not)
        return why_not;
    forward_pass = to_forward;
    backward_pass = to_backward;
    cuda_type = torch.aoti_torch_device_type_cuda();
    f32_type = torch.aoti_torch_dtype_float32();
    i32_type = torch.aoti_torch_dtype_int32();
    i64_type = torch.aoti_torch_dtype_int64();
    strided = torch.aoti_torch_layout_strided();
    return define();
}
