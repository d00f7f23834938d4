/* plans.h: the plans of calls, made when they are first needed and found by what a call looks like:
 * its flags, numbers, shapes, type and device. Strides are no part of a plan.
 *
 * The cache has SETS sets of WAYS plans each; a full one loses the plan that was made first. A plan
 * that a call holds is destroyed when the call gives it back. */
#ifndef ORDO_TORCH_PLANS_H
#define ORDO_TORCH_PLANS_H

#include "call.h"

#include <pthread.h>
#include <stdlib.h>

enum { SETS = 2048, WAYS = 4, MAX_DEVICES = 64, SHARES = 48, ALIGN = 256 };

/* The functions of libordo that the front calls. */
#define LIBRARY_FUNCTIONS(F)                                                                       \
    F(ordo_attention_forward)                                                                      \
    F(ordo_attention_backward)                                                                     \
    F(ordo_backend_query)                                                                          \
    F(ordo_device_machine)                                                                         \
    F(ordo_dropout_fill)                                                                           \
    F(ordo_dropout_fill_device)                                                                    \
    F(ordo_dropout_query)                                                                          \
    F(ordo_gemm_plan_create)                                                                       \
    F(ordo_gemm_plan_destroy)                                                                      \
    F(ordo_gemm_plan_query)                                                                        \
    F(ordo_gemm_run)                                                                               \
    F(ordo_last_error)                                                                             \
    F(ordo_machine_create)                                                                         \
    F(ordo_machine_destroy)                                                                        \
    F(ordo_plan_create)                                                                            \
    F(ordo_plan_destroy)                                                                           \
    F(ordo_plan_print)                                                                             \
    F(ordo_plan_query)                                                                             \
    F(ordo_status_name)

#define LIBRARY_MEMBER(name) __typeof__(name) *name;
static struct {
    LIBRARY_FUNCTIONS(LIBRARY_MEMBER)
} library;

/* What a plan is found by. Compared as bytes: no padding. */
typedef struct call_key {
    int64_t flags, sizes[SIZES], sequences, axes, q[4], k[4], v[4], blocks[3];
    double scale, softcap, dropout_p;
    int32_t dtype, device_type, device, unused;
} call_key;

/* A plan in segments of rows, whose keep bits take `share` bytes at most; no plan: impossible. */
typedef struct segmented {
    uint64_t share;
    ordo_plan *plan;
    size_t workspace[2];
} segmented;

typedef struct cached_plan {
    call_key key;
    ordo_plan *plan;
    ordo_problem problem;
    size_t workspace[2]; /* bytes: forward, backward */
    bool empty;          /* nothing to compute: no sequence, row or key */
    uint64_t bits_bytes; /* of keep bits that are to be made before a pass; 0: it makes its own */
    bool bits_needed;    /* the pass cannot make them */
    bool reuses;         /* the backward pass is to read the bits of the forward pass */
    bool pipelined; /* bits are to be made in segments of rows, even if those of all rows fit */
    int shares;
    segmented segments[SHARES];
    int references; /* calls that run, and one of the cache */
} cached_plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set {
    cached_plan *plan[WAYS];
    unsigned made; /* the next one takes place made % WAYS */
} sets[SETS];
static ordo_machine *machines[MAX_DEVICES + 1]; /* the last: of CPU tensors */

static bool library_refused(ordo_status status)
{
    said.used = 0;
    say("%s: ", library.ordo_status_name(status));
    return say("%s", library.ordo_last_error());
}

static struct set *set_of(const call_key *key)
{
    uint64_t words[sizeof *key / 8], hash = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
    return &sets[hash % SETS];
}

/* ---- making ---- */

static call_key key_of(const request *r)
{
    call_key key;
    memset(&key, 0, sizeof key);
    key.flags = r->flags & PLAN_FLAGS;
    memcpy(key.sizes, r->sizes, sizeof key.sizes);
    key.sequences = r->sequences;
    key.axes = r->x[0].shape.axes;
    memcpy(key.q, r->x[0].shape.sizes, sizeof key.q);
    memcpy(key.k, r->x[1].shape.sizes, sizeof key.k);
    memcpy(key.v, r->x[2].shape.sizes, sizeof key.v);
    if (r->flags >> BLOCK_START & 1) { /* room for other masks of about this size */
        const int64_t *masks = r->list[BLOCK_START].shape.sizes;
        key.blocks[0] = 1;
        while (key.blocks[0] < r->list[BLOCK_KEY].shape.sizes[0])
            key.blocks[0] *= 2;
        key.blocks[1] = masks[0] > 1, key.blocks[2] = masks[1] > 1;
    }
    key.scale = r->scale, key.softcap = r->softcap, key.dropout_p = r->dropout_p;
    key.dtype = r->x[0].dtype;
    key.device_type = r->x[0].device_type, key.device = r->x[0].device;
    return key;
}

/* 8 random bits per element, or 16 if p is closer than that to 0 or 1. */
static ordo_dropout dropout_of(const call_key *key)
{
    const double p = key->dropout_p;
    const bool fa2 = key->flags & FA2;
    const bool few = (p > 0 && p < 1. / 256) || (p > 255. / 256 && p < 1);
    return (ordo_dropout) { .p = p,
                            .bits = few && !fa2 ? 16 : 0,
                            .keying = fa2 ? ORDO_KEYING_FA2 : ORDO_KEYING_ORDO };
}

static ordo_problem problem_of(const call_key *key)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    const int64_t row = key->axes - 3, head = row + 1, dim = row + 2, *size = key->sizes;
    const bool packed = key->flags >> CU_Q & 1;
    const int64_t rows = key->q[row], columns = key->k[row] ? key->k[row] : ORDO_NO_KEYS;
    p.dtype = key->dtype == f32_type ? ORDO_F32 : key->dtype == bf16_type ? ORDO_BF16 : ORDO_F16;
    p.layout = packed ? ORDO_PACKED : key->flags >> Q_LENS & 1 ? ORDO_PADDED : ORDO_DENSE;
    p.batch = key->sequences;
    p.heads = key->q[head], p.kv_heads = key->k[head];
    p.q_len = packed ? size[MAX_Q] : rows, p.kv_len = packed ? size[MAX_KV] : columns;
    if (packed)
        p.total_q = rows, p.total_kv = columns;
    p.head_dim = key->q[dim], p.v_head_dim = key->v[dim];
    p.scale = key->scale, p.softcap = key->softcap;
    p.mask = key->flags & CAUSAL     ? ORDO_MASK_CAUSAL
             : key->flags & TOP_LEFT ? ORDO_MASK_CAUSAL_TOP_LEFT
                                     : ORDO_MASK_FULL;
    /* A causal mask ends every row already: there a window that is open to the left hides nothing.
     */
    p.window.on = size[LEFT] >= 0 || (size[RIGHT] >= 0 && p.mask == ORDO_MASK_FULL);
    if (p.window.on)
        p.window.left = size[LEFT], p.window.right = size[RIGHT];
    p.alibi = key->flags >> SLOPES & 1;
    p.dropout = dropout_of(key);
    if (key->q[row] && key->k[row] && key->sequences) /* else nothing is computed */
        p.blocks = (ordo_block_limits) { key->blocks[0], key->blocks[1], key->blocks[2] };
    const int64_t *shard = size + SHARD;
    p.shard = (ordo_shard) { shard[0], shard[1], shard[2], shard[3], shard[4], shard[5], shard[6] };
    return p;
}

/* What a plan is made for: a CUDA device, or the machine that ORDO_MACHINE names, which changes no
 * bit; for CPU tensors nothing, or the machine that ORDO_EMULATE names, whose bits they then get.
 */
static bool target_of(const call_key *key, ordo_backend *backend, const ordo_machine **found)
{
    const bool cuda = key->device_type == cuda_type;
    const char *const variable = cuda ? "ORDO_MACHINE" : "ORDO_EMULATE";
    const char *const named = getenv(variable);
    const int at = cuda ? key->device : MAX_DEVICES;
    *found = NULL;
    *backend = cuda              ? ORDO_BACKEND_CUDA
               : named && *named ? ORDO_BACKEND_EMULATOR
                                 : ORDO_BACKEND_CPU;
    if (*backend == ORDO_BACKEND_CPU)
        return true;
    if (cuda && (at < 0 || at >= MAX_DEVICES))
        return REFUSE("unsupported", "cuda:%l: expected a number below %l", (int64_t)at,
                      (int64_t)MAX_DEVICES);
    pthread_mutex_lock(&lock);
    ordo_status status = ORDO_OK;
    if (!machines[at])
        status = named && *named ? library.ordo_machine_create(&machines[at], named)
                                 : library.ordo_device_machine(at, &machines[at]);
    *found = machines[at];
    pthread_mutex_unlock(&lock);
    if (status && named && *named)
        return REFUSE("argument", "%s: %s", variable, library.ordo_last_error());
    return !status || library_refused(status);
}

static bool create(const cached_plan *of, uint64_t keep_bits_memory, ordo_plan **plan,
                   ordo_plan_info *info)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    const ordo_machine *machine = NULL;
    *plan = NULL;
    if (!target_of(&of->key, &options.backend, &machine))
        return false;
    options.keep_bits_memory = keep_bits_memory;
    ordo_status status = library.ordo_plan_create(plan, &of->problem, machine, &options);
    if (!status)
        status = library.ordo_plan_query(*plan, info);
    return !status || library_refused(status);
}

/* Bytes of the keep bits of a problem; packed: at most. */
static bool size_bits(const ordo_problem *p, uint64_t *bytes)
{
    static const int32_t unread;
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    call.cu_q = call.cu_kv = p->layout == ORDO_PACKED ? &unread : NULL;
    call.on_device = true; /* for the largest size that the totals allow */
    const ordo_status status = library.ordo_dropout_query(p, &call, &info);
    if (status)
        return library_refused(status);
    *bytes = (info.bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
    return true;
}

/* Where the keep bits of the calls of a plan are made; changes no bit. auto: as the plan
 * recommends. fused: inside each pass. sequential: before the forward pass, and reused by the
 * backward pass as far as set_keep_bits_memory() allows, else made again. overlapped: the same, and
 * prepare_dropout() makes them on another stream. pipelined: by each pass in segments of rows, with
 * the bits of two segments in memory: a quarter of those of all rows, or less. */
static bool choose_bits(cached_plan *of, const ordo_plan_info *info)
{
    static const char *const modes[] = { "auto", "fused", "sequential", "overlapped", "pipelined" };
    enum { AUTO, FUSED, PIPELINED = 4, MODES };
    const char *named = getenv("ORDO_DROPOUT_MODE");
    int mode = 0;
    while (named && mode < MODES && strcmp(named, modes[mode]) != 0)
        mode++;
    if (mode == MODES)
        return REFUSE("argument",
                      "ORDO_DROPOUT_MODE '%s': expected auto, fused, sequential, overlapped, "
                      "pipelined",
                      named);
    const bool drops = of->key.dropout_p > 0 && !of->empty;
    const bool fused =
        mode == FUSED || (mode == AUTO && info->dropout_mode == ORDO_DROPOUT_MODE_FUSED);
    of->pipelined = mode == PIPELINED;
    of->reuses = mode == AUTO ? info->keep_bits_reused : mode != FUSED && mode != PIPELINED;
    const ordo_problem *p = &of->problem;
    if (drops && of->key.device_type == cuda_type) {
        ordo_backend_limits limits = ORDO_BACKEND_LIMITS_INIT;
        library.ordo_backend_query(ORDO_BACKEND_CUDA, &limits);
        const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
        of->bits_needed =
            (of->key.flags & FA2 && !limits.makes_fa2_bits) || dim > limits.made_bits_head_dim_max;
    }
    if (!drops || (fused && !of->bits_needed))
        return true;
    return size_bits(p, &of->bits_bytes);
}

static void destroy(cached_plan *of)
{
    for (int i = 0; i < of->shares; i++)
        library.ordo_plan_destroy(of->segments[i].plan);
    library.ordo_plan_destroy(of->plan);
    free(of);
}

/* NULL if the library refuses the problem. */
static cached_plan *make_plan(const call_key *key)
{
    cached_plan *made = calloc(1, sizeof *made);
    if (!made) {
        no_memory(sizeof *made, &(view) { .device_type = cpu_type });
        return NULL;
    }
    const int64_t row = key->axes - 3;
    made->key = *key;
    made->references = 1;
    made->empty = key->sequences == 0 || key->q[row] == 0 || key->k[row] == 0;
    made->problem = problem_of(key);
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    if (create(made, 0, &made->plan, &info) && choose_bits(made, &info)) {
        made->workspace[0] = (size_t)info.forward_workspace_bytes;
        made->workspace[1] = (size_t)info.backward_workspace_bytes;
        return made;
    }
    destroy(made);
    return NULL;
}

/* ---- the cache ---- */

static void give_back(cached_plan *of)
{
    pthread_mutex_lock(&lock);
    const bool last = --of->references == 0;
    pthread_mutex_unlock(&lock);
    if (last)
        destroy(of);
}

static cached_plan *look_up(const struct set *in, const call_key *key)
{
    for (int i = 0; i < WAYS; i++)
        if (in->plan[i] && memcmp(&in->plan[i]->key, key, sizeof *key) == 0) {
            in->plan[i]->references++;
            return in->plan[i];
        }
    return NULL;
}

/* Put a plan, or none, into a place of a set; the one that was there is given back. */
static void replace(struct set *in, unsigned at, cached_plan *by)
{
    pthread_mutex_lock(&lock);
    cached_plan *old = in->plan[at];
    in->plan[at] = by;
    pthread_mutex_unlock(&lock);
    if (old)
        give_back(old);
}

/* The plan of a call, which gives it back; NULL if the library refuses the call. */
static cached_plan *plan_of(const request *r)
{
    const call_key key = key_of(r);
    struct set *const in = set_of(&key);
    pthread_mutex_lock(&lock);
    cached_plan *found = look_up(in, &key);
    pthread_mutex_unlock(&lock);
    cached_plan *made = found ? NULL : make_plan(&key);
    if (!made)
        return found;
    pthread_mutex_lock(&lock);
    found = look_up(in, &key); /* two threads may make one plan: the first stays */
    const unsigned at = found ? 0 : in->made++ % WAYS;
    pthread_mutex_unlock(&lock);
    if (found) {
        give_back(made);
        return found;
    }
    made->references++;
    replace(in, at, made);
    return made;
}

/* Forget every plan and machine. */
static void forget(void)
{
    for (int i = 0; i < SETS * WAYS; i++)
        replace(&sets[i / WAYS], (unsigned)i % WAYS, NULL);
    pthread_mutex_lock(&lock);
    for (int i = 0; i <= MAX_DEVICES; i++) {
        library.ordo_machine_destroy(machines[i]);
        machines[i] = NULL;
    }
    pthread_mutex_unlock(&lock);
}

static const segmented *find_segments(const cached_plan *of, uint64_t share)
{
    for (int i = 0; i < of->shares; i++)
        if (of->segments[i].share == share)
            return &of->segments[i];
    return NULL;
}

/* The plan in segments whose bits take at most `room` bytes, a power of two of which is a part of
 * those of all rows, so that few plans serve a room that varies. NULL if there is none: of packed
 * or padded sequences, or if there is no room for the bits of two tiles. */
static const segmented *segments_of(cached_plan *of, uint64_t room)
{
    uint64_t share = of->bits_bytes;
    while (share > room)
        share /= 2;
    pthread_mutex_lock(&lock);
    const segmented *found = find_segments(of, share);
    pthread_mutex_unlock(&lock);
    if (!found) {
        segmented made = { .share = share };
        ordo_plan_info info = ORDO_PLAN_INFO_INIT;
        if (share && create(of, share, &made.plan, &info)) {
            made.workspace[0] = (size_t)info.forward_workspace_bytes;
            made.workspace[1] = (size_t)info.backward_workspace_bytes;
        }
        pthread_mutex_lock(&lock);
        found = find_segments(of, share); /* another thread may have been faster */
        if (!found && of->shares < SHARES) {
            of->segments[of->shares] = made;
            found = &of->segments[of->shares++];
            made.plan = NULL;
        }
        pthread_mutex_unlock(&lock);
        library.ordo_plan_destroy(made.plan);
    }
    return found && found->plan ? found : NULL;
}

#endif
