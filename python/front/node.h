/* node.h: calls whose backward pass is run by a node of PyTorch's own; for front.c.
 *
 * PyTorch has an operator of attention that others may implement,
 * aten::_scaled_dot_product_fused_attention_overrideable, with a node of autograd in C++ that calls
 * a second operator, ..._backward. Here are kernels of both, for calls of ordo.torch alone. What
 * these need travels in arguments and results that mean something else to others:
 *
 *   dropout_p          -(MARK + the number of the rules), which is no probability
 *   is_causal          HEADS_FIRST
 *   return_debug_mask  RNG_DRAWN
 *   max_k              result: MARK + the number of the plan; 0 if the pass did not run
 *   max_q              result: the status with which the library refused the call; 0 if declined
 *   philox_seed        result: seed and offset, with dropout
 *
 * attn_bias and scale are not given, the other results are undefined tensors.
 *
 * A forward pass declines what it cannot run, and Python goes another way. A backward pass is
 * called by the node, with nobody to decline to: it copies what the library does not take as it
 * lies, and raises an error for everything else. */
#ifndef ORDO_TORCH_NODE_H
#define ORDO_TORCH_NODE_H

#include "misfit.h"
#include "passes.h"

#define OVERRIDEABLE "_scaled_dot_product_fused_attention_overrideable"

/* 2^22 numbers of rules from here: "ordo", exact in a double, and far from any probability. As in
 * ordo/torch/_compiled.py. */
#define MARK 0x6f72646fp22
enum { MARKED_RULES = 1 << 22 };

/* The number of the rules of a call of ordo.torch; 0 if it is somebody else's. */
static int64_t rules_of(StableIValue dropout_p)
{
    double marked;
    memcpy(&marked, &dropout_p, sizeof marked);
    marked = -marked - MARK;
    if (!(marked >= 1 && marked < MARKED_RULES))
        return 0;
    const int64_t rules = (int64_t)marked;
    return (double)rules == marked ? rules : 0;
}

/* ---- errors ---- */

static const char not_ours[] =
    "aten::" OVERRIDEABLE ": not implemented for this device; the kernel registered there serves "
    "calls of ordo.torch only";
static const char refused[] =
    "backward pass of attention: PyTorch failed to copy a tensor or to make its device current";
static const char memory[] = "backward pass of attention: out of memory";

/* at::_ops::empty_memory_format::call(), beyond the stable ABI: that turns what an allocation
 * throws into a code, and callers recognise memory that ran out by the type of the error.
 * Parameters as C++ passes them: a list, and five optional values of less than 8 bytes, 0 if not
 * given. */
typedef struct made_tensor {
    void *tensor, *unused[2]; /* so long that it is returned in memory, as a class of C++ is */
} made_tensor;
typedef made_tensor empty_function(const int64_t *sizes, size_t count, uint64_t dtype,
                                   uint64_t layout, uint64_t device, uint64_t pinned,
                                   uint64_t format);
#define EMPTY_FUNCTION                                                                             \
    "_ZN2at4_ops19empty_memory_format4callEN3c108ArrayRefINS2_6SymIntEEESt8optionalINS2_"          \
    "10ScalarTypeEES6_INS2_6LayoutEES6_INS2_6DeviceEES6_IbES6_INS2_12MemoryFormatEE"

static empty_function *empty;
static const char *(*last_error)(void);

/* Raise an error in PyTorch, through this function and the kernel: nothing is released. */
static void raise_error(const char *message)
{
    torch.aoti_torch_check(false, __func__, __FILE__, __LINE__, message);
}

/* Raise PyTorch's error of an allocation of so many bytes. */
static void raise_memory(int64_t bytes, int32_t device_type, int32_t device)
{
    enum { BYTE_TYPE = 0x100 }; /* its number is 0 */
    const uint64_t place =
        UINT64_C(0x10000) | (uint64_t)(uint8_t)device << 8 | (uint64_t)(uint8_t)device_type;
    const made_tensor found = empty(&bytes, 1, BYTE_TYPE, 0, place, 0, 0);
    tensor *owned; /* another thread has released memory since */
    if (torch.aoti_torch_new_uninitialized_tensor(&owned) == TORCH_DONE) {
        memcpy((void *)owned, &found.tensor, sizeof found.tensor);
        release(owned);
    }
    raise_error(memory);
}

static tensor *undefined(void)
{
    tensor *made = NULL;
    torch.aoti_torch_new_uninitialized_tensor(&made);
    return made;
}

/* ---- forward ---- */

/* (Tensor query, Tensor key, Tensor value, Tensor? attn_bias, float dropout_p, bool is_causal, bool
 * return_debug_mask, float? scale) -> (Tensor output, Tensor logsumexp, Tensor cum_seq_q, Tensor
 * cum_seq_k, int max_q, int max_k, Tensor philox_seed, Tensor philox_offset, Tensor
 * debug_attn_mask) */
static void node_forward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    enum { Q, K, V, GIVEN, BIAS = GIVEN, DROPOUT_P, CAUSAL, DEBUG_MASK, SCALE };
    tensor *given[GIVEN], *made[MADE] = { NULL };
    unpack(stack, GIVEN, given);
    const int64_t rules = rules_of(stack[DROPOUT_P]);
    const int64_t flags = (stack[CAUSAL] ? HEADS_FIRST : 0) | (stack[DEBUG_MASK] ? RNG_DRAWN : 0);
    if (!rules || stack[BIAS] || stack[SCALE]) {
        if (stack[BIAS]) /* the 8 bytes around an optional value are lost: the ABI frees none */
            release(*(tensor **)(uintptr_t)stack[BIAS]);
        for (int i = 0; i < GIVEN; i++)
            release(given[i]);
        raise_error(not_ours);
        return;
    }
    ordo_call call = ORDO_CALL_INIT;
    view x[GIVEN];
    const bool known = look_at(given, flags, x);
    const int number = known ? find(rules, flags & RNG_DRAWN, no_lists, x) : 0;
    const int64_t result = run_forward(number, flags, 0, x, NULL, &call, made);
    for (int i = 0; i < GIVEN; i++)
        release(given[i]);
    for (int i = 0; i < MADE; i++) {
        if (result <= 0)
            release(made[i]);
        if (result <= 0 || !made[i])
            made[i] = undefined();
    }
    stack[0] = (StableIValue)(uintptr_t)made[0];
    stack[1] = (StableIValue)(uintptr_t)made[1];
    stack[2] = (StableIValue)(uintptr_t)undefined();
    stack[3] = (StableIValue)(uintptr_t)undefined();
    stack[4] = (StableIValue)(result < 0 ? -result : 0);
    stack[5] = (StableIValue)(result > 0 ? (int64_t)MARK + result : 0);
    stack[6] = (StableIValue)(uintptr_t)made[2];
    stack[7] = (StableIValue)(uintptr_t)undefined();
    stack[8] = (StableIValue)(uintptr_t)undefined();
}

/* ---- backward ---- */

/* Replace the tensor by a contiguous copy unless it has these strides, or `any` that the library
 * takes. Returns NULL, or what is wrong. */
static const char *fit(const char *name, tensor **x, const shape *as, bool any, int32_t dtype,
                       const view *place)
{
    view seen;
    ordo_tensor unused;
    const char *wrong = misfit(name, *x, as, dtype, place, &seen);
    if (wrong)
        return wrong;
    if (describe(&seen, &unused) &&
        (any || memcmp(seen.shape.strides, as->strides, sizeof as->strides) == 0))
        return NULL;
    const shape dense = contiguous(as->axes, as->sizes); /* `as` may overlap itself, if expanded */
    tensor *copy = allocate(&dense, dtype, &seen);
    if (!copy)
        return memory;
    if (torch.aoti_torch_copy_(copy, *x, 0) != TORCH_DONE) {
        release(copy);
        return refused;
    }
    release(*x);
    *x = copy;
    return NULL;
}

/* Replace an undefined gradient of the output by zeros: nobody used it. Returns NULL, or what is
 * wrong. */
static const char *define_gradient(tensor **dout, const kept_plan *of, const view *place)
{
    bool defined = false;
    if (torch.aoti_torch_is_defined(*dout, &defined) == TORCH_DONE && defined)
        return NULL;
    tensor *zeros = allocate(&of->o, of->key.dtype[0], place);
    if (!zeros)
        return memory;
    release(*dout);
    *dout = zeros;
    return torch.aoti_torch_zero_(zeros) == TORCH_DONE ? NULL : refused;
}

/* Bring the tensors of a backward pass into the form that the plan knows: hooks of saved tensors,
 * and an assignment to .data, may have replaced them. Returns NULL, or what is wrong. */
static const char *fit_all(tensor *given[TENSORS], const kept_plan *of, const view *place,
                           bool heads_first)
{
    static const char *const names[3] = { "q", "k", "v" };
    const look_key *key = &of->key;
    const shape *saved[3] = { &key->q, &key->k, &key->v };
    const int64_t two[4] = { 2 };
    const shape pair = contiguous(1, two);
    const char *wrong = NULL;
    if (key->drops)
        wrong = fit("rng", &given[SAVED_RNG], &pair, false, i64_type, place);
    for (int i = 0; !wrong && i < 3; i++) {
        const shape as = heads_first ? turned(*saved[i]) : *saved[i];
        wrong = fit(names[i], &given[SAVED_Q + i], &as, false, key->dtype[i], place);
    }
    if (!wrong)
        wrong = fit("o", &given[SAVED_O], &of->o, true, key->dtype[0], place);
    if (!wrong)
        wrong = define_gradient(&given[DOUT], of, place);
    if (!wrong)
        wrong = fit("dout", &given[DOUT], &of->o, true, key->dtype[0], place);
    if (!wrong)
        wrong = fit("lse", &given[SAVED_LSE], &of->lse, false, f32_type, place);
    return wrong;
}

static int64_t bytes_of(const shape *x, int32_t dtype)
{
    int64_t bytes = (int64_t)torch.aoti_torch_dtype_element_size(dtype);
    for (int64_t i = 0; i < x->axes; i++)
        bytes *= x->sizes[i];
    return bytes;
}

/* Run the pass, with the device of the plan current. Returns NULL, or what is wrong. */
static const char *run_on_device(int64_t number, bool heads_first, tensor *given[TENSORS],
                                 tensor *made[3])
{
    const kept_plan *of = plan_at(number);
    const view place = { .device_type = of->key.device_type[0], .device = of->key.device[0] };
    struct CUDAGuardOpaque *guard = NULL;
    if (!at_hand(&place) &&
        (!torch.aoti_torch_create_cuda_guard ||
         torch.aoti_torch_create_cuda_guard(place.device, &guard) != TORCH_DONE))
        return refused;
    ordo_call call = ORDO_CALL_INIT;
    const char *wrong = fit_all(given, of, &place, heads_first);
    if (!wrong) {
        const int64_t flags = (heads_first ? HEADS_FIRST : 0) | (of->key.drops ? RNG_GIVEN : 0);
        const int64_t result = run_backward(number, flags, given, &call, made);
        wrong = result > 0 ? NULL : result < 0 ? last_error() : memory;
    }
    if (guard)
        torch.aoti_torch_delete_cuda_guard(guard);
    return wrong;
}

/* Raise the error of a backward pass; everything has been released. */
static void raise_backward(const char *wrong, const kept_plan *of)
{
    if (wrong == memory) {
        const look_key *key = &of->key;
        const int64_t bytes = of->workspace[1] + bytes_of(&key->q, key->dtype[0]) +
                              bytes_of(&key->k, key->dtype[1]) + bytes_of(&key->v, key->dtype[2]);
        raise_memory(bytes, key->device_type[0], key->device[0]);
    }
    raise_error(wrong);
}

/* (Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor attn_bias, bool[4]
 * grad_input_mask, Tensor out, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, int max_q, int
 * max_k, float dropout_p, bool is_causal, Tensor philox_seed, Tensor philox_offset, float? scale)
 * -> (Tensor, Tensor, Tensor, Tensor): dq, dk and dv, whatever the mask, and none of attn_bias. */
static void node_backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    enum { GRAD_OUT, Q, K, V, BIAS, MASK, OUT, LOGSUMEXP, CUM_Q, CUM_K };
    enum { MAX_K = CUM_K + 2, DROPOUT_P, CAUSAL, SEED, OFFSET, SCALE };
    static const int taken[PLAIN] = { GRAD_OUT, Q, K, V, OUT, LOGSUMEXP }; /* from DOUT on */
    static const int unread[] = { BIAS, CUM_Q, CUM_K, OFFSET };
    tensor *given[TENSORS] = { NULL }, *made[3] = { NULL };
    for (int i = 0; i < PLAIN; i++)
        given[i] = (tensor *)(uintptr_t)stack[taken[i]];
    given[SAVED_RNG] = (tensor *)(uintptr_t)stack[SEED];
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        release((tensor *)(uintptr_t)stack[unread[i]]);
    torch.torch_delete_list((struct StableListOpaque *)(uintptr_t)stack[MASK]);

    const int64_t rules = rules_of(stack[DROPOUT_P]);
    const int64_t number = (int64_t)stack[MAX_K] - (int64_t)MARK;
    const kept_plan *of = plan_at(number);
    const char *wrong = not_ours;
    if (rules && !stack[SCALE] && of && of->key.rules == rules && of->key.lists.count == 0) {
        if (!of->key.drops)
            release(given[SAVED_RNG]), given[SAVED_RNG] = NULL;
        wrong = run_on_device(number, stack[CAUSAL], given, made);
    }
    for (int i = 0; i < TENSORS; i++)
        release(given[i]);
    if (wrong) {
        for (int i = 0; i < 3; i++)
            release(made[i]);
        raise_backward(wrong, of);
        return;
    }
    for (int i = 0; i < 3; i++)
        stack[i] = (StableIValue)(uintptr_t)made[i];
    stack[3] = (StableIValue)(uintptr_t)undefined();
}

/* Register the kernels. Returns NULL, or why that is not possible. */
static const char *register_node(void)
{
    static const char *const devices[] = { "CPU", "CUDA" };
    for (int i = 0; i < 2; i++) {
        struct TorchLibraryOpaque *library;
        if (torch.aoti_torch_library_init_impl("aten", devices[i], __FILE__, __LINE__, &library) !=
                TORCH_DONE ||
            torch.torch_library_impl(library, OVERRIDEABLE, node_forward, TORCH_2_10) !=
                TORCH_DONE ||
            torch.torch_library_impl(library, OVERRIDEABLE "_backward", node_backward,
                                     TORCH_2_10) != TORCH_DONE)
            return "the kernels of aten::" OVERRIDEABLE " cannot be registered";
    }
    return NULL;
}

#endif
