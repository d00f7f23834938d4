/* plans.h: the plans of calls, made when they are first needed and found by what a call looks like:
 * its flags, numbers, shapes, type and device. Strides are no part of a plan.
 *
 * The cache has SETS sets of WAYS plans each; a full one loses the plan that was made first. A plan
 * that a call holds is destroyed when the call gives it back. */
#ifndef ORDO_TORCH_PLANS_H
#define ORDO_TORCH_PLANS_H

#include "call.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SETS = 2048, WAYS = 4, MAX_DEVICES = 64, ALIGN = 256 };

/* What a plan is found by: all that it is made from. Compared as bytes, so that all of it is set to
 * 0 first. */
typedef struct plan_key {
    ordo_problem problem;
    int32_t device_type, device;
    uint64_t share; /* bytes of keep bits of a plan in segments of rows, at most; 0: of all rows */
} plan_key;

typedef struct cached_plan {
    plan_key key;
    ordo_plan *plan;     /* NULL: there is none in such segments */
    size_t workspace[2]; /* bytes: forward, backward */
    uint64_t bits_bytes; /* keep bits that are to be made before a pass; 0: it makes its own */
    bool bits_needed;    /* the pass cannot make them */
    bool reuses;         /* the backward pass is to read the bits of the forward pass */
    bool pipelined; /* bits are to be made in segments of rows, even if those of all rows fit */
    _Atomic int references; /* calls that run, and one of the cache */
} cached_plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set {
    cached_plan *plan[WAYS];
    unsigned made; /* the next one takes place made % WAYS */
} sets[SETS];
static ordo_machine *machines[MAX_DEVICES + 1]; /* the last: of CPU tensors */

static bool library_refused(ordo_status status)
{
    return refuse("%s: %s", ordo_status_name(status), ordo_last_error());
}

static struct set *set_of(const plan_key *key)
{
    uint64_t words[sizeof *key / 8], hash = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
    return &sets[hash % SETS];
}

/* ---- making ---- */

/* 8 random bits per element, or 16 if p is closer than that to 0 or 1. */
static void describe_dropout(const request *r, ordo_dropout *made)
{
    const double p = r->dropout_p;
    const bool few = (p > 0 && p < 1. / 256) || (p > 255. / 256 && p < 1), fa2 = r->flags & FA2;
    made->p = p;
    made->bits = few && !fa2 ? 16 : 0;
    made->keying = fa2 ? ORDO_KEYING_FA2 : ORDO_KEYING_ORDO;
}

/* What narrows the mask, a block mask or an element mask. */
static void describe_blocks(const request *r, ordo_problem *p)
{
    const int64_t *masks = r->list[BLOCK_START].shape.sizes, *seen = r->list[SEEN].shape.sizes;
    p->blocks.entries = r->flags >> BLOCK_START & 1; /* room for other masks of about this size */
    while (p->blocks.entries < r->list[BLOCK_KEY].shape.sizes[0])
        p->blocks.entries *= 2;
    p->blocks.per_sequence = masks[0] > 1, p->blocks.per_head = masks[1] > 1;
    p->seen.on = r->flags >> SEEN & 1;
    p->seen.per_sequence = seen[0] > 1, p->seen.per_head = seen[1] > 1;
}

static void describe_bias(const request *r, ordo_problem *p)
{
    const view *bias = &r->list[BIAS];
    p->bias.on = true;
    p->bias.per_sequence = bias->shape.sizes[0] != 1;
    p->bias.per_head = bias->shape.sizes[1] != 1;
    p->bias.dtype = bias->dtype == F32 ? ORDO_F32 : p->dtype;
}

/* Whether nothing is computed. */
static bool is_blank(const ordo_problem *p)
{
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t rows = packed ? p->total_q : p->q_len;
    const int64_t keys = packed && !p->paging.page_rows ? p->total_kv : p->kv_len;
    return p->batch == 0 || rows == 0 || keys == ORDO_NO_KEYS;
}

static void key_of(const request *r, plan_key *key)
{
    const int64_t *q = r->x[0].shape.sizes, *k = r->x[1].shape.sizes, *size = r->sizes;
    const int64_t row = r->x[0].shape.axes - 3, head = row + 1, dim = row + 2, page = r->paged;
    const int64_t rows = q[row], columns = k[row] ? k[row] : ORDO_NO_KEYS;
    const int32_t dtype = r->x[0].dtype;
    memset(key, 0, sizeof *key);
    key->device_type = r->x[0].device_type, key->device = r->x[0].device;
    ordo_problem *const p = &key->problem;
    p->size = sizeof *p;
    p->dtype = dtype == F32 ? ORDO_F32 : dtype == BF16 ? ORDO_BF16 : ORDO_F16;
    p->layout = r->packed ? ORDO_PACKED : r->flags >> Q_LENS & 1 ? ORDO_PADDED : ORDO_DENSE;
    p->batch = r->sequences;
    p->heads = q[head], p->kv_heads = k[page + head];
    p->q_len = r->packed ? size[MAX_Q] : rows, p->kv_len = r->packed ? size[MAX_KV] : columns;
    if (r->packed)
        p->total_q = rows, p->total_kv = r->paged ? 0 : columns;
    if (r->paged)
        p->paging = (ordo_paging) { k[1], k[0], r->list[PAGES].shape.sizes[1] };
    p->head_dim = q[dim], p->v_head_dim = r->x[2].shape.sizes[page + dim];
    p->scale = r->scale, p->softcap = r->softcap;
    p->mask = r->flags & CAUSAL     ? ORDO_MASK_CAUSAL
              : r->flags & TOP_LEFT ? ORDO_MASK_CAUSAL_TOP_LEFT
                                    : ORDO_MASK_FULL;
    /* A causal mask ends every row: a window that is open to the left hides nothing there. */
    p->window.on = size[LEFT] >= 0 || (size[RIGHT] >= 0 && p->mask == ORDO_MASK_FULL);
    if (p->window.on)
        p->window.left = size[LEFT], p->window.right = size[RIGHT];
    p->alibi = r->flags >> SLOPES & 1;
    describe_dropout(r, &p->dropout);
    if (!is_blank(p))
        describe_blocks(r, p);
    if (r->flags >> BIAS & 1)
        describe_bias(r, p);
    memcpy(&p->shard, size + SHARD, sizeof p->shard);
}

/* What a plan is made for: a CUDA device, or the machine that ORDO_MACHINE names, which changes no
 * bit; for CPU tensors nothing, or the machine that ORDO_EMULATE names, whose bits they get. */
static bool target_of(const plan_key *key, ordo_backend *backend, const ordo_machine **found)
{
    const bool cuda = key->device_type == CUDA;
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
        return REFUSE("unsupported", "cuda:%d: expected a number below %d", at, MAX_DEVICES);
    ordo_status status = ORDO_OK;
    if (!machines[at])
        status = named && *named ? ordo_machine_create(&machines[at], named)
                                 : ordo_device_machine(at, &machines[at]);
    *found = machines[at];
    if (status && named && *named)
        return REFUSE("argument", "%s: %s", variable, ordo_last_error());
    return !status || library_refused(status);
}

static bool create(cached_plan *of, ordo_plan_info *info)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    const ordo_machine *machine = NULL;
    if (!target_of(&of->key, &options.backend, &machine))
        return false;
    options.keep_bits_memory = of->key.share;
    ordo_status status = ordo_plan_create(&of->plan, &of->key.problem, machine, &options);
    if (!status)
        status = ordo_plan_query(of->plan, info);
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
    const ordo_status status = ordo_dropout_query(p, &call, &info);
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
    const ordo_problem *p = &of->key.problem;
    const bool drops = p->dropout.p > 0 && !is_blank(p);
    const bool fused =
        mode == FUSED || (mode == AUTO && info->dropout_mode == ORDO_DROPOUT_MODE_FUSED);
    of->pipelined = mode == PIPELINED;
    of->reuses = mode == AUTO ? info->keep_bits_reused : mode != FUSED && mode != PIPELINED;
    if (drops && of->key.device_type == CUDA) {
        ordo_backend_limits limits = ORDO_BACKEND_LIMITS_INIT;
        ordo_backend_query(ORDO_BACKEND_CUDA, &limits);
        const int64_t dim = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
        of->bits_needed = (p->dropout.keying == ORDO_KEYING_FA2 && !limits.makes_fa2_bits) ||
                          dim > limits.made_bits_head_dim_max;
    }
    if (!drops || (fused && !of->bits_needed))
        return true;
    return size_bits(p, &of->bits_bytes);
}

/* What is NULL is left alone. */
static void give_back(cached_plan *of)
{
    if (of && --of->references == 0) {
        ordo_plan_destroy(of->plan);
        free(of);
    }
}

/* NULL if the library refuses the problem. */
static cached_plan *make_plan(const plan_key *key)
{
    cached_plan *made = calloc(1, sizeof *made);
    if (!made) {
        no_memory(sizeof *made, &(view) { .device_type = CPU });
        return NULL;
    }
    memcpy(&made->key, key, sizeof *key);
    made->references = 1;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    if (create(made, &info) ? key->share || choose_bits(made, &info) : key->share > 0) {
        made->workspace[0] = (size_t)info.forward_workspace_bytes;
        made->workspace[1] = (size_t)info.backward_workspace_bytes;
        return made;
    }
    give_back(made);
    return NULL;
}

/* ---- the cache ---- */

/* The plan that is found by a key, made if there is none. The lock is held meanwhile, so that calls
 * of several threads make one. */
static cached_plan *find_plan(const plan_key *key)
{
    struct set *const in = set_of(key);
    cached_plan *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WAYS && !found; i++)
        if (in->plan[i] && memcmp(&in->plan[i]->key, key, sizeof *key) == 0)
            found = in->plan[i];
    if (!found && (found = make_plan(key))) {
        cached_plan **const place = &in->plan[in->made++ % WAYS];
        give_back(*place);
        *place = found;
    }
    if (found)
        found->references++;
    pthread_mutex_unlock(&lock);
    return found;
}

/* The plan of a call, which gives it back; NULL if the library refuses the call. */
static cached_plan *plan_of(const request *r)
{
    plan_key key;
    key_of(r, &key);
    return find_plan(&key);
}

/* Forget every plan and machine. */
static void forget(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SETS * WAYS; i++) {
        give_back(sets[i / WAYS].plan[i % WAYS]);
        sets[i / WAYS].plan[i % WAYS] = NULL;
    }
    for (int i = 0; i <= MAX_DEVICES; i++) {
        ordo_machine_destroy(machines[i]);
        machines[i] = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* The plan in segments whose bits take at most `room` bytes, a power of two of which is a part of
 * those of all rows, so that few plans serve a room that varies. The call gives it back. NULL if
 * there is none: of packed or padded sequences, or without room for the bits of two tiles. */
static cached_plan *segments_of(const cached_plan *of, uint64_t room)
{
    plan_key key;
    memcpy(&key, &of->key, sizeof key);
    key.share = of->bits_bytes;
    while (key.share > room)
        key.share /= 2;
    cached_plan *const found = key.share ? find_plan(&key) : NULL;
    if (!found || found->plan)
        return found;
    give_back(found);
    return NULL;
}

#endif
