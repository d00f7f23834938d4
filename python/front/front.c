/* front.c: attention as operators of PyTorch, compiled against its stable C ABI.
 *
 *   ordo::forward        o, lse, and the keep bits that the backward pass reads
 *   ordo::backward       dq, dk, dv and dsink
 *   ordo::backward_part  the same of some rows, with sums that are carried on
 *   ordo::keep_bits      the keep bits of a call, made ahead of it
 *   ordo::draw           seed and offset
 *   ordo::gemm           a matrix product
 *   ordo::eager_forward, ordo::eager_backward    the same passes for _node.py alone, which has no
 *                        graph to make: without a formula of autograd, and seed and offset drawn
 *
 * Python defines them (ordo/torch/_front.py) and owns autograd and the kernels of fake tensors
 * (ordo/torch/_node.py). Here are the kernels for tensors of the CPU and CUDA: call.h reads and
 * compares the arguments, plans.h finds or makes the plan, run.h runs the pass. What is refused is
 * an error of PyTorch's, "status: what was expected", before anything is written. */
#include "gemm.h"
#include "run.h"

#include <dlfcn.h>

static void (*delete_value)(void *); /* operator delete of C++ */

/* Raise the error of this thread in PyTorch, through this function and the kernel. */
static void raise_error(void)
{
    torch.aoti_torch_check(false, "ordo", "ordo", 0, said.text);
}

/* Hand results over, or raise. What is NULL becomes a result that does not exist. */
static void hand_over(StableIValue *stack, request *r, bool done, int count, tensor **made)
{
    release_request(r);
    for (int i = 0; i < count; i++) {
        if (!done)
            release(made[i]);
        else
            stack[i] = (StableIValue)(uintptr_t)(made[i] ? made[i] : undefined());
    }
    if (!done)
        raise_error();
}

static void pass_forward(StableIValue *stack, int results)
{
    request r = { .q = tensor_of(stack[0]), .k = tensor_of(stack[1]), .v = tensor_of(stack[2]) };
    tensor *made[FORWARD_RESULTS] = { NULL };
    struct CUDAGuardOpaque *guard = NULL;
    bool done = read_rest(&r, stack + 3) && check_request(&r);
    if (done && r.flags & DRAW && results <= DRAWN)
        done = REFUSE("unsupported", "flags: only ordo::eager_forward draws seed and offset");
    done = done && guard_device(&r.x[0], &guard) && run_forward(&r, made);
    if (guard)
        torch.aoti_torch_delete_cuda_guard(guard);
    hand_over(stack, &r, done, results, made);
}

static void forward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    pass_forward(stack, DRAWN);
}

static void eager_forward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    pass_forward(stack, FORWARD_RESULTS);
}

/* An optional tensor comes as a pointer to its value. */
static tensor *optional_of(StableIValue x)
{
    StableIValue *value = (StableIValue *)(uintptr_t)x;
    tensor *found = value ? tensor_of(*value) : NULL;
    delete_value(value);
    return found;
}

/* The tensors of a backward pass. */
static request saved_of(const StableIValue *stack)
{
    request r = { .dout = tensor_of(stack[0]), .q = tensor_of(stack[2]) };
    r.dlse = optional_of(stack[1]);
    r.k = tensor_of(stack[3]), r.v = tensor_of(stack[4]);
    r.o = tensor_of(stack[5]), r.lse = tensor_of(stack[6]);
    return r;
}

enum { SAVED = 7 }; /* tensors of a backward pass */

static bool pass_back(request *r, const StableIValue *rest, const sums *carried,
                      tensor *made[GRADIENTS])
{
    struct CUDAGuardOpaque *guard = NULL;
    const bool done = read_rest(r, rest) && check_query(r) && check_request(r) &&
                      guard_device(&r->x[0], &guard) && run_backward(r, carried, made);
    if (guard)
        torch.aoti_torch_delete_cuda_guard(guard);
    return done;
}

static void backward(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    request r = saved_of(stack);
    tensor *made[GRADIENTS] = { NULL };
    const bool done = pass_back(&r, stack + SAVED, NULL, made);
    hand_over(stack, &r, done, GRADIENTS, made);
}

static void backward_part(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    request r = saved_of(stack);
    const StableIValue *own = stack + SAVED;
    const sums carried = { tensor_of(own[0]), tensor_of(own[1]), (int64_t)own[2] };
    tensor *made[GRADIENTS] = { NULL };
    const bool done = pass_back(&r, own + 3, &carried, made);
    release(carried.dk), release(carried.dv);
    hand_over(stack, &r, done, DSINK, made);
}

/* The line of a plan, as text on the CPU. */
static bool print_plan(const cached_plan *of, tensor **made)
{
    size_t bytes = 0;
    library.ordo_plan_print(of->plan, NULL, 0, &bytes);
    const shape flat = contiguous(1, (const int64_t[4]) { (int64_t)bytes });
    if (!allocate(&flat, u8_type, &(view) { .device_type = cpu_type }, made))
        return false;
    const ordo_status status = library.ordo_plan_print(of->plan, data_of(*made), bytes, NULL);
    return !status || library_refused(status);
}

static bool run_keep_bits(request *r, tensor **made)
{
    cached_plan *of = plan_of(r);
    if (!of)
        return false;
    const bool hidden = r->flags & HIDDEN;
    const bool fits = of->bits_bytes && !of->pipelined && of->bits_bytes <= room_on(&r->x[0]);
    uint64_t bytes = 0;
    bool done = size_bits(&of->problem, &bytes);
    if (done && r->flags & ASK)
        done = print_plan(of, made);
    else if (done && (hidden || fits))
        done = bits_tensor(of, r, hidden || r->flags & KEEP, (int64_t)bytes, made);
    give_back(of);
    return done;
}

/* As forward(), without a look at q, k and v: the bits; none if the mode makes them inside a pass
 * or there is no room, unless HIDDEN. With KEEP those that the mask hides are made, too. With ASK
 * the line of the plan instead. */
static void keep_bits(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    request r = { .q = tensor_of(stack[0]), .k = tensor_of(stack[1]), .v = tensor_of(stack[2]) };
    tensor *made[1] = { NULL };
    struct CUDAGuardOpaque *guard = NULL;
    r.unread = true;
    bool done = read_rest(&r, stack + 3) && check_request(&r);
    if (done && r.flags & DRAW && !(r.flags & ASK))
        done = REFUSE("argument", "rng None: expected a tensor");
    done = done && guard_device(&r.x[0], &guard) && run_keep_bits(&r, made);
    if (guard)
        torch.aoti_torch_delete_cuda_guard(guard);
    hand_over(stack, &r, done, 1, made);
}

/* (Tensor like) -> Tensor: seed and offset. */
static void draw(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    request r = { .q = tensor_of(stack[0]) };
    view like;
    tensor *made[1] = { NULL };
    const bool done = look("like", r.q, &like) && draw_pair(&like, &made[0]);
    hand_over(stack, &r, done, 1, made);
}

static void gemm(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    product p = { .a = tensor_of(stack[0]), .b = tensor_of(stack[1]), .call = ORDO_GEMM_CALL_INIT };
    tensor *made[1] = { NULL };
    request none = { .q = NULL };
    p.bias = optional_of(stack[2]);
    const bool done = multiply(&p, (int64_t)stack[3], stack[4] & 1, &made[0]);
    hand_over(stack, &none, done, 1, made);
}

/* ---- registration ---- */

static const struct {
    const char *name;
    torch_kernel *kernel;
} operators[] = {
    { "forward", forward },
    { "eager_forward", eager_forward },
    { "backward", backward },
    { "eager_backward", backward },
    { "backward_part", backward_part },
    { "keep_bits", keep_bits },
    { "draw", draw },
    { "gemm", gemm },
};

static const char *find_functions(const char *path)
{
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
    found = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!found)
        return "libordo is not loaded";
#define FIND_OURS(name)                                                                            \
    *(void **)&library.name = dlsym(found, #name);                                                 \
    if (!library.name)                                                                             \
        return #name "() is missing: libordo is of another version";
    LIBRARY_FUNCTIONS(FIND_OURS)
    return NULL;
}

enum { REVISION = 9 }; /* of what the operators take; as in ordo/torch/_front.py */

/* Register the kernels, which call libordo at `path`; once per process, after PyTorch and libordo
 * have been loaded and the operators defined. `revision` is what the caller expects. Returns NULL,
 * or why it is not possible. */
ORDO_API const char *ordo_torch_start(int revision, const char *path);

const char *ordo_torch_start(int revision, const char *path)
{
    if (revision != REVISION)
        return "it is of another version than the package";
    const char *why_not = find_functions(path);
    if (why_not)
        return why_not;
    cpu_type = torch.aoti_torch_device_type_cpu();
    cuda_type = torch.aoti_torch_device_type_cuda();
    f32_type = torch.aoti_torch_dtype_float32();
    f16_type = torch.aoti_torch_dtype_float16();
    bf16_type = torch.aoti_torch_dtype_bfloat16();
    u8_type = torch.aoti_torch_dtype_uint8();
    i32_type = torch.aoti_torch_dtype_int32();
    i64_type = torch.aoti_torch_dtype_int64();
    strided = torch.aoti_torch_layout_strided();
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

/* Make every plan anew. */
ORDO_API void ordo_torch_forget(void);

void ordo_torch_forget(void)
{
    forget();
}

/* Set the memory for keep bits on a device, -1 the CPU, and the stream to make them on; unless
 * `known` it is asked for again. */
ORDO_API void ordo_torch_set_memory(int device, int64_t limit, void *side, bool known);

void ordo_torch_set_memory(int device, int64_t limit, void *side, bool known)
{
    const int at = place_of(device < 0 ? cpu_type : cuda_type, device);
    pthread_mutex_lock(&lock);
    memory[at].limit = limit, memory[at].side = side, memory[at].known = known;
    pthread_mutex_unlock(&lock);
}

/* Ask for the memory of every device, by this function, when it is next needed. */
ORDO_API void ordo_torch_ask_memory(ask_python *ask);

void ordo_torch_ask_memory(ask_python *ask)
{
    pthread_mutex_lock(&lock);
    ask_memory = ask;
    for (int at = 0; at <= MAX_DEVICES; at++)
        memory[at].known = false;
    pthread_mutex_unlock(&lock);
}

/* Count bits that wait for a backward pass, or no longer do. */
ORDO_API void ordo_torch_hold(int device, int64_t bytes);

void ordo_torch_hold(int device, int64_t bytes)
{
    const int at = place_of(device < 0 ? cpu_type : cuda_type, device);
    pthread_mutex_lock(&lock);
    memory[at].kept += bytes;
    pthread_mutex_unlock(&lock);
}

/* How often bits were made, and passes ran in segments, since the library was loaded. */
ORDO_API void ordo_torch_counts(int64_t found[2]);

void ordo_torch_counts(int64_t found[2])
{
    pthread_mutex_lock(&lock);
    found[0] = counts.filled, found[1] = counts.segmented;
    pthread_mutex_unlock(&lock);
}
