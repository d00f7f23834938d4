/* front.c: attention as operators of PyTorch, compiled against its stable C ABI.
 *
 * Python defines them (ordo/torch/_front.py) and owns autograd and the kernels of fake tensors
 * (ordo/torch/_node.py). Here are the kernels for tensors of the CPU and CUDA: call.h reads and
 * compares the arguments, plans.h finds or makes the plan, run.h runs the pass. What is refused is
 * an error of PyTorch's, "status: what was expected", before anything is written. */
#include "gemm.h"
#include "run.h"

#include <dlfcn.h>

static void (*delete_value)(void *); /* operator delete of C++ */

/* Release a request and hand `count` results over, or raise. What is NULL becomes a result that
 * does not exist. */
static void hand_over(StableIValue *stack, request *r, bool done, int count)
{
    release_request(r);
    for (int i = 0; i < count; i++) {
        if (!done)
            release(r->made[i]);
        else
            stack[i] = (StableIValue)(uintptr_t)(r->made[i] ? r->made[i] : undefined());
    }
    if (!done)
        torch.aoti_torch_check(false, "ordo", "ordo", 0, said); /* does not return */
}

/* Check a request, whose numbers are at `rest`, run it on its device, and hand the results over. */
static void run_request(StableIValue *stack, request *r, const StableIValue *rest,
                        bool (*run)(request *, cached_plan *), uint64_t results)
{
    struct CUDAGuardOpaque *guard = NULL;
    cached_plan *of = NULL;
    const bool done = read_rest(r, rest) && check_request(r) && guard_device(&r->x[0], &guard) &&
                      (of = plan_of(r)) && run(r, of);
    give_back(of);
    if (guard)
        torch.aoti_torch_delete_cuda_guard(guard);
    hand_over(stack, r, done, (int)results);
}

/* A request about q, k and v, of which the stack begins with three. */
static request query_of(const StableIValue *stack)
{
    return (
        request) { .q = tensor_of(stack[0]), .k = tensor_of(stack[1]), .v = tensor_of(stack[2]) };
}

/* ordo::forward has three results; eager_forward, a fourth: it draws. */
static void forward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments;
    request r = query_of(stack);
    r.draws = results > DRAWN;
    run_request(stack, &r, stack + 3, run_forward, results);
}

/* An optional tensor comes as a pointer to its value. */
static tensor *optional_of(StableIValue x)
{
    StableIValue *value = (StableIValue *)(uintptr_t)x;
    tensor *found = value ? tensor_of(*value) : NULL;
    delete_value(value);
    return found;
}

/* backward_part has the sums behind the tensors, and neither dsink nor dbias. */
static void backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments;
    request r = query_of(stack + 2);
    r.saved[DOUT] = tensor_of(stack[0]), r.saved[DLSE] = optional_of(stack[1]);
    r.saved[SAVED_O] = tensor_of(stack[5]), r.saved[SAVED_LSE] = tensor_of(stack[6]);
    const StableIValue *rest = stack + 7;
    if (results < RESULTS) {
        r.saved[DK_SUMS] = tensor_of(rest[0]), r.saved[DV_SUMS] = tensor_of(rest[1]);
        r.carry = (unsigned)rest[2];
        rest += 3;
    }
    run_request(stack, &r, rest, run_backward, results);
}

/* The line of a plan, as text on the CPU. */
static bool print_plan(const cached_plan *of, tensor **made)
{
    size_t bytes = 0;
    ordo_plan_print(of->plan, NULL, 0, &bytes);
    if (!allocate(flat((int64_t)bytes), U8, &(view) { .device_type = CPU }, made))
        return false;
    const ordo_status status = ordo_plan_print(of->plan, data_of(*made), bytes, NULL);
    return !status || library_refused(status);
}

static bool run_keep_bits(request *r, cached_plan *of)
{
    const bool hidden = r->flags & HIDDEN;
    const bool fits = of->bits_bytes && !of->pipelined && of->bits_bytes <= room_on(&r->x[0]);
    uint64_t bytes = 0;
    if (!size_bits(&of->key.problem, &bytes))
        return false;
    if (r->flags & ASK)
        return print_plan(of, &r->made[0]);
    return !(hidden || fits) || bits_tensor(of, r, hidden || r->flags & KEEP, bytes, &r->made[0]);
}

/* As forward(): the bits; none if the mode makes them inside a pass or there is no room, unless
 * HIDDEN. With KEEP those that the mask hides are made, too. With ASK the line of the plan. */
static void keep_bits(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments;
    request r = query_of(stack);
    run_request(stack, &r, stack + 3, run_keep_bits, results);
}

/* Pack an element mask of bool, as block_mask_of() finds it again. */
static bool pack(const view *x, tensor **made)
{
    const int64_t *sizes = x->shape.sizes;
    if (x->shape.axes != 4)
        return REFUSE("shape", "seen.shape %s: expected four axes", SIZES_OF(&x->shape));
    if (x->dtype != BOOL)
        return REFUSE("argument", "seen.dtype torch.%s: expected torch.bool", type_name(x->dtype));
    if (x->device_type != CPU && x->device_type != CUDA)
        return REFUSE("unsupported", "seen.device %s: expected cpu or cuda", DEVICE_OF(x));
    const shape packed =
        contiguous(3, (const int64_t[4]) { sizes[0], sizes[1], seen_bytes(sizes[2], sizes[3]) });
    if (!allocate(packed, U8, x, made) || torch.aoti_torch_zero_(*made) != TORCH_DONE)
        return false;
    if (is_empty(&x->shape))
        return true;
    ordo_block_mask unused = ORDO_BLOCK_MASK_INIT;
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.batch = sizes[0], p.heads = sizes[1], p.head_dim = 1;
    p.q_len = sizes[2], p.kv_len = sizes[3];
    p.seen.on = true, p.seen.per_sequence = sizes[0] > 1, p.seen.per_head = sizes[1] > 1;
    void *const to = data_of(*made), *stream;
    const size_t bytes = (size_t)bytes_of(&packed, U8);
    const int64_t *strides = x->shape.strides;
    struct CUDAGuardOpaque *guard;
    if (!guard_device(x, &guard))
        return false;
    const bool launched = stream_of(x, &stream);
    const ordo_status status =
        !launched ? ORDO_OK
        : x->device_type == CUDA
            ? ordo_seen_make_device(&unused, &p, x->data, strides, to, bytes, stream)
            : ordo_seen_make(&unused, &p, x->data, strides, to, bytes);
    if (guard)
        torch.aoti_torch_delete_cuda_guard(guard);
    return launched && (!status || library_refused(status));
}

/* (Tensor) -> Tensor. */
static void of_one(StableIValue *stack, const char *name, bool (*make)(const view *, tensor **))
{
    request r = { .q = tensor_of(stack[0]) };
    view x;
    hand_over(stack, &r, look(name, r.q, &x) && make(&x, &r.made[0]), 1);
}

/* Seed and offset, on the device of a tensor. */
static void draw(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    of_one(stack, "like", draw_pair);
}

/* An element mask as the other operators take it. */
static void seen(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    of_one(stack, "seen", pack);
}

static void gemm(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    product p = { .a = tensor_of(stack[0]), .b = tensor_of(stack[1]), .call = ORDO_GEMM_CALL_INIT };
    request r = { .q = NULL };
    p.bias = optional_of(stack[2]);
    hand_over(stack, &r, multiply(&p, (int64_t)stack[3], stack[4] & 1, &r.made[0]), 1);
}

/* ---- registration ---- */

static const struct {
    const char *name;
    torch_kernel *kernel;
} operators[] = {
    { "forward", forward },
    { "eager_forward", forward },
    { "backward", backward },
    { "eager_backward", backward },
    { "backward_part", backward },
    { "keep_bits", keep_bits },
    { "draw", draw },
    { "seen", seen },
    { "gemm", gemm },
};

enum { REVISION = 12 }; /* version of the operators' arguments; as in ordo/torch/_front.py */

/* Register the kernels; once per process, after PyTorch has been loaded and the operators defined.
 * `revision` is what the caller expects. Returns NULL, or why it is not possible. */
ORDO_API const char *ordo_torch_start(int revision);

const char *ordo_torch_start(int revision)
{
    if (revision != REVISION)
        return "it is of another version than the package";
    void *found = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!found)
        return "libtorch_python.so is not loaded";
#define FIND(result, name, parameters) *(void **)&torch.name = dlsym(found, #name);
#define REQUIRE(result, name, parameters)                                                          \
    FIND(result, name, parameters)                                                                 \
    if (!torch.name)                                                                               \
        return #name "() is missing: PyTorch 2.10 has it";
    TORCH_FUNCTIONS(REQUIRE)
    TORCH_CUDA_FUNCTIONS(FIND)
    *(void **)&delete_value = dlsym(found, "_ZdlPv");
    if (!delete_value)
        return "operator delete is missing";
    struct TorchLibraryOpaque *kernels;
    /* For every device: others are refused by name. */
    if (torch.aoti_torch_library_init_impl("ordo", "CompositeExplicitAutograd", "ordo", 0,
                                           &kernels) != TORCH_DONE)
        return "the operators cannot be implemented";
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (torch.torch_library_impl(kernels, operators[i].name, operators[i].kernel, TORCH_2_10) !=
            TORCH_DONE)
            return "the operators cannot be implemented";
    return NULL;
}
