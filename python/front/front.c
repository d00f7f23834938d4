/* front.c: the passes of the PyTorch front as operators, compiled against PyTorch's stable C ABI.
 *
 *   ordo::compiled_add       keep a plan: what its calls need, found again by shapes or by number
 *   ordo::compiled_forward   one forward pass: allocate o and lse, draw seed and offset, run
 *   ordo::compiled_lengths   the same of packed or padded sequences, their lengths given as tensors
 *   ordo::compiled_backward  one backward pass
 *   ordo::compiled_lengths_backward   that of compiled_lengths
 *   ordo::compiled_plain, ordo::compiled_plain_backward   the same without dropout or lists
 *
 * node.h adds kernels of an operator of PyTorch's, which has a node of autograd in C++.
 *
 * Python makes plans, checks arguments, owns autograd otherwise, and has another way to run every
 * call (ordo/torch/_call.py). An operator that cannot run a call as it stands declines, before it
 * has drawn or written anything, and Python goes that way. Its last result says so:
 *
 *   > 0   the pass ran, with the plan of this number
 *   0     declined; the tensors returned are those of q
 *   < 0   minus the status with which the library refused the call; ordo_last_error() says why
 *
 * Kept plans are never released: compiled_add() declines when there are MAX_PLANS of them. */
#include "node.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- passes ---- */

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

/* The tensors that a pass with these flags reads; NULL for the others. */
static void leave_out(int64_t flags, tensor *const given[TENSORS], tensor *read[TENSORS])
{
    for (int i = 0; i < TENSORS; i++)
        read[i] = given[i];
    if (!(flags & DLSE_GIVEN))
        read[DLSE] = NULL;
    if (!(flags & RNG_GIVEN))
        read[SAVED_RNG] = NULL;
}

/* (Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor dlse, Tensor rng, int
 * number, int flags, ADDRESSES x int) -> (Tensor dq, Tensor dk, Tensor dv, int): dlse is read with
 * DLSE_GIVEN, rng with RNG_GIVEN. What the addresses point to is as the plan has it: Python sees to
 * that. */
static void backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    tensor *given[TENSORS], *read[TENSORS], *made[3] = { NULL };
    unpack(stack, TENSORS, given);
    const int64_t number = (int64_t)stack[TENSORS], flags = (int64_t)stack[TENSORS + 1];
    leave_out(flags, given, read);
    ordo_call call = ORDO_CALL_INIT;
    set_lists(&call, stack + TENSORS + 2);
    const int64_t result = run_backward(number, flags, read, &call, made);
    hand_over(stack, TENSORS, given, given[SAVED_Q], 3, made, result);
}

/* (Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor dlse, Tensor rng, Tensor
 * q_lengths, Tensor kv_lengths, Tensor ids, int number, int flags) -> as backward(): of a call of
 * lengths(), with the lists that it got; ids are read with IDS_GIVEN only. */
static void lengths_backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    enum { Q_LENGTHS = TENSORS, KV_LENGTHS, IDS, ALL };
    tensor *given[ALL], *read[TENSORS], *made[3] = { NULL };
    unpack(stack, ALL, given);
    const int64_t number = (int64_t)stack[ALL], flags = (int64_t)stack[ALL + 1];
    leave_out(flags, given, read);
    ordo_call call = ORDO_CALL_INIT;
    const kept_plan *of = plan_at(number);
    view q, x[3];
    const bool known =
        of && look(given[SAVED_Q], &q) && look(given[Q_LENGTHS], &x[0]) &&
        look(given[KV_LENGTHS], &x[1]) && look(given[IDS], &x[2]) &&
        set_lengths(&call, of->key.q.axes == 3, flags & IDS_GIVEN, of->key.lists.count, x, &q);
    const int64_t result = known ? run_backward(number, flags, read, &call, made) : 0;
    hand_over(stack, ALL, given, given[SAVED_Q], 3, made, result);
}

/* (Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, int number, int flags) -> as
 * backward(), without dropout, lists or dlse. */
static void plain_backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    tensor *given[TENSORS] = { NULL }, *made[3] = { NULL };
    unpack(stack, PLAIN, given);
    ordo_call call = ORDO_CALL_INIT;
    const int64_t number = (int64_t)stack[PLAIN], flags = (int64_t)stack[PLAIN + 1] & HEADS_FIRST;
    const int64_t result = run_backward(number, flags, given, &call, made);
    hand_over(stack, PLAIN, given, given[SAVED_Q], 3, made, result);
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
    TORCH_NODE_FUNCTIONS(FIND)
    TORCH_CUDA_FUNCTIONS(FIND)
    *(void **)&empty = dlsym(library, EMPTY_FUNCTION);
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

enum { REVISION = 4 }; /* of what the operators take; as in ordo/torch/_compiled.py */

/* Define the operators, which run these functions of libordo; once per process, after PyTorch has
 * been loaded. `revision` is what the caller expects. Returns NULL, or why it is not possible. */
ORDO_API const char *ordo_torch_start(int revision, pass_function *to_forward,
                                      pass_function *to_backward, const char *(*why)(void));

const char *ordo_torch_start(int revision, pass_function *to_forward, pass_function *to_backward,
                             const char *(*why)(void))
{
    if (revision != REVISION)
        return "libordo_torch.so is of another version than the package";
    const char *why_not = find_functions();
    if (why_not)
        return why_not;
    forward_pass = to_forward;
    backward_pass = to_backward;
    last_error = why;
    cuda_type = torch.aoti_torch_device_type_cuda();
    f32_type = torch.aoti_torch_dtype_float32();
    i32_type = torch.aoti_torch_dtype_int32();
    i64_type = torch.aoti_torch_dtype_int64();
    strided = torch.aoti_torch_layout_strided();
    return define();
}

/* Register the kernels of node.h, which the caller has found to be missing. Once per process, after
 * ordo_torch_start(). Returns NULL, or why it is not possible. */
ORDO_API const char *ordo_torch_start_node(void);

const char *ordo_torch_start_node(void)
{
    if (!empty)
        return "PyTorch has no " EMPTY_FUNCTION "()";
#define NEED(result, name, parameters)                                                             \
    if (!torch.name)                                                                               \
        return "PyTorch has no " #name "()";
    TORCH_NODE_FUNCTIONS(NEED)
    return register_node();
}
