/* attention_fuzz.c: any bytes as a problem, a plan's options and a call on the CPU backend.
 *
 * Every byte is a field, in the order in which they are read below; past the end they are 0. What
 * the library refuses must leave all memory alone; what it accepts, if small, is run twice, on
 * different numbers of threads: the same bits, no byte outside the outputs touched. Under the
 * address sanitizer no byte outside any tensor is read either: each has an allocation of its own
 * size. */
#include "base/keep.h"
#include "ordo/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { POISON = 0xa5, TENSORS = 8, MOST_BYTES = 1 << 18, MOST_BATCH = 8, MOST_HEADS = 16 };

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static int byte(reader *r)
{
    return r->at < r->end ? *r->at++ : 0;
}

/* A size: mostly small, now and then a limit. */
static int64_t number(reader *r, int most)
{
    static const int64_t limits[] = { -1,      INT64_MIN, INT64_MAX,        1 << 30,
                                      1 << 16, INT32_MAX, INT64_C(1) << 32, INT64_C(1) << 59 };
    const int b = byte(r);
    return b >= 248 ? limits[b - 248] : b % (most + 1);
}

static double real(reader *r)
{
    static const double odd[] = { 0, 0.1, 0.17, 0.5, 1, 2.5, 30, -1, 0.999, 1e-30, 1e30, -0.0 };
    const int b = byte(r);
    return b < 12 ? odd[b] : b == 255 ? (double)NAN : b == 254 ? (double)INFINITY : b / 64.0;
}

static ordo_problem read_problem(reader *r)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = (ordo_dtype)(byte(r) % 4);
    p.layout = (ordo_layout)(byte(r) % 4);
    p.batch = number(r, 4);
    p.heads = number(r, 6);
    p.kv_heads = number(r, 3);
    p.q_len = number(r, 40);
    p.kv_len = number(r, 40);
    p.total_q = number(r, 60);
    p.total_kv = number(r, 60);
    p.head_dim = number(r, 40);
    p.v_head_dim = number(r, 40);
    p.scale = real(r);
    p.mask = (ordo_mask)(byte(r) % 4);
    p.window = (ordo_window) { byte(r) % 2, number(r, 20), number(r, 20) };
    p.softcap = real(r);
    p.alibi = byte(r) % 2;
    p.dropout = (ordo_dropout) { real(r), byte(r) % 12, byte(r) % 18, (ordo_keying)(byte(r) % 3) };
    p.shard.batch0 = number(r, 9);
    p.shard.head0 = number(r, 6);
    p.shard.heads_total = number(r, 12);
    p.shard.row0 = 16 * (byte(r) % 3) + byte(r) % 2;
    p.shard.col0 = 128 * (byte(r) % 2);
    p.shard.q_total = number(r, 120);
    p.shard.kv_total = number(r, 200);
    p.extras = byte(r) == 255;
    return p;
}

static ordo_plan_options read_options(reader *r)
{
    ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
    o.backend = byte(r) == 255 ? ORDO_BACKEND_CUDA : ORDO_BACKEND_CPU;
    o.forward_tile = (ordo_tile) { number(r, 40), number(r, 40) };
    o.backward_tile = (ordo_tile) { number(r, 40), number(r, 40) };
    o.order = (ordo_order)(byte(r) % (ORDO_ORDER_COUNT + 2));
    o.group = number(r, 3);
    o.split = number(r, 2);
    o.issue = (ordo_issue)(byte(r) % 4);
    o.section = number(r, 3);
    o.assign = (ordo_assign)(byte(r) % 4);
    o.workers = number(r, 9);
    return o;
}

/* ---- memory ---- */

/* An allocation with a guard on either side, and a copy of it to compare with. */
typedef struct block {
    unsigned char *memory, *copy;
    size_t bytes;
} block;

enum { GUARD = 64 };

static block block_open(size_t bytes, reader *fill)
{
    block b = { malloc(bytes + 2 * GUARD), malloc(bytes + 2 * GUARD), bytes };
    if (!b.memory || !b.copy)
        abort();
    memset(b.memory, POISON, bytes + 2 * GUARD);
    const reader start = *fill;
    for (size_t x = 0; x < bytes && start.at < start.end; x++)
        b.memory[GUARD + x] = start.at[x % (size_t)(start.end - start.at)];
    memcpy(b.copy, b.memory, bytes + 2 * GUARD);
    return b;
}

static void block_close(block *b)
{
    free(b->memory);
    free(b->copy);
}

static bool block_unchanged(const block *b)
{
    return memcmp(b->memory, b->copy, b->bytes + 2 * GUARD) == 0;
}

static bool guards_unchanged(const block *b)
{
    return memcmp(b->memory, b->copy, GUARD) == 0 &&
           memcmp(b->memory + GUARD + b->bytes, b->copy + GUARD + b->bytes, GUARD) == 0;
}

/* ---- calls ---- */

typedef struct call_memory {
    ordo_call call;
    block tensors[TENSORS], lse, dlse, work, bits; /* q k v dout, then outputs o dq dk dv */
    int32_t lengths[4][MOST_BATCH + 1];
    int64_t ids[MOST_BATCH];
    float slopes[MOST_BATCH * MOST_HEADS];
    uint64_t seed, offset;
} call_memory;

/* Strides of a tensor: contiguous, wider, or anything; returns the bytes it reaches, or 0 if they
 * are too many for this. */
static size_t read_strides(reader *r, const ordo_problem *p, bool keys, int64_t dim, ordo_tensor *t)
{
    const int64_t heads = keys ? p->kv_heads : p->heads, length = keys ? p->kv_len : p->q_len;
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t rows = packed ? (keys ? p->total_kv : p->total_q) : length;
    const int64_t width = p->dtype == ORDO_F32 ? 4 : 2;
    const int64_t tight[4] = { rows * heads * dim, heads * dim, dim, 1 };
    const int kind = byte(r) % 16;
    if (kind % 2 == 1) { /* gaps */
        t->stride[3] = 1;
        t->stride[2] = dim + byte(r) % 5;
        t->stride[1] = heads * t->stride[2] + byte(r) % 5;
        t->stride[0] = rows * t->stride[1] + byte(r) % 5;
    } else if (kind == 2) {
        for (int x = 0; x < 4; x++)
            t->stride[x] = number(r, 60);
    }
    bool contiguous = true;
    for (int x = packed; x < 4; x++)
        contiguous = contiguous && t->stride[x] == 0;
    const int64_t sizes[4] = { packed ? 1 : p->batch, rows, heads, dim };
    double reach = 1;
    for (int x = packed; x < 4 && sizes[0] > 0 && rows > 0; x++) /* else it has no element */
        reach += (double)(sizes[x] - 1) * fabs((double)(contiguous ? tight : t->stride)[x]);
    return reach * (double)width > MOST_BYTES ? 0 : (size_t)reach * (size_t)width;
}

static void read_lengths(reader *r, const ordo_problem *p, call_memory *m)
{
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t lens[2] = { p->q_len, p->kv_len }, totals[2] = { p->total_q, p->total_kv };
    for (int64_t b = 0; b <= p->batch; b++)
        for (int side = 0; side < 2; side++) {
            m->lengths[2 + side][b] = (int32_t)number(r, (int)lens[side]);
            if (b == 0)
                continue;
            /* ends: right at the last, if that is not too far; nearly right before */
            const int64_t before = m->lengths[side][b - 1], most = before + lens[side];
            m->lengths[side][b] = (int32_t)(b < p->batch ? before + byte(r) % (lens[side] + 1)
                                            : totals[side] < most ? totals[side]
                                                                  : most);
        }
    const int wrong = byte(r); /* now and then the arrays of another layout */
    if (packed != (wrong == 255)) {
        m->call.cu_q = m->lengths[0];
        m->call.cu_kv = m->lengths[1];
    }
    if ((p->layout == ORDO_PADDED) != (wrong == 254)) {
        m->call.q_lens = m->lengths[2];
        m->call.kv_lens = m->lengths[3];
    }
}

/* False: too large to run. */
static bool read_call(reader *r, const ordo_problem *p, const ordo_plan *plan, call_memory *m)
{
    static const bool keys[TENSORS] = { false, true, true, false, false, false, true, true };
    const int64_t d = p->head_dim, v = p->v_head_dim;
    const int64_t dims[TENSORS] = { d, d, v, v, v, d, d, v };
    ordo_tensor *const tensors[TENSORS] = { &m->call.q, &m->call.k,  &m->call.v,  &m->call.dout,
                                            &m->call.o, &m->call.dq, &m->call.dk, &m->call.dv };
    reader nothing = { NULL, NULL };
    bool fits = true;
    m->call = (ordo_call)ORDO_CALL_INIT;
    read_lengths(r, p, m);
    for (int x = 0; x < TENSORS; x++) {
        const size_t bytes = read_strides(r, p, keys[x], dims[x], tensors[x]);
        fits = fits && bytes > 0;
        m->tensors[x] = block_open(bytes, x < 4 ? r : &nothing);
        tensors[x]->data = m->tensors[x].memory + GUARD;
    }
    const int64_t rows = p->layout == ORDO_PACKED ? p->total_q : p->batch * p->q_len;
    m->lse = block_open((size_t)(rows * p->heads) * 4, &nothing);
    m->dlse = block_open((size_t)(rows * p->heads) * 4, r);
    m->call.lse = (float *)(m->lse.memory + GUARD);
    m->call.dlse = byte(r) % 2 ? (const float *)(m->dlse.memory + GUARD) : NULL;
    const size_t need = ordo_plan_workspace(plan);
    m->work = (block) { aligned_alloc(256, (need + 1023) / 256 * 256), NULL, need };
    m->call.workspace = m->work.memory;
    m->call.workspace_bytes = need;
    for (int x = 0; x < MOST_BATCH; x++)
        m->ids[x] = number(r, 200);
    m->call.sequence_ids = byte(r) % 2 ? m->ids : NULL;
    for (int x = 0; x < MOST_BATCH * MOST_HEADS; x++)
        m->slopes[x] = (float)real(r);
    m->call.slopes = p->alibi != (byte(r) == 255) ? m->slopes : NULL;
    m->call.slopes_batch_stride = byte(r) % (MOST_HEADS + 1);
    m->seed = (uint64_t)byte(r);
    m->offset = (uint64_t)number(r, 255);
    m->call.seed_ptr = byte(r) % 2 ? &m->seed : NULL;
    m->call.offset_ptr = byte(r) % 2 ? &m->offset : NULL;
    m->call.offset = (uint64_t)number(r, 255);
    const int64_t blocks =
        (p->batch + 1) * p->heads * ordo_keep_blocks(p->q_len, p->kv_len); /* at least */
    m->bits = block_open((size_t)blocks * ORDO_KEEP_WORDS * 4, r);
    const int given = byte(r);
    if (given == 255 || (given % 4 == 1 && p->dropout.p > 0))
        m->call.mask_bits = (const uint32_t *)(m->bits.memory + GUARD);
    m->call.threads = byte(r) == 255 ? -1 : byte(r) % 5;
    switch (byte(r)) { /* now and then something is missing or crooked */
    case 255: m->call.k.data = NULL; break;
    case 254: m->call.q.data = (char *)m->call.q.data + 1; break;
    case 253: m->call.dv.data = m->call.dk.data; break;
    case 252: m->call.workspace_bytes /= 2; break;
    case 251: m->call.size = 16; break;
    case 250: m->call.lse = NULL; break;
    case 249: m->call.dq.data = m->call.q.data; break;
    case 248: m->call.workspace = (char *)m->call.workspace + 64; break;
    default: break;
    }
    return fits;
}

static void call_close(call_memory *m)
{
    for (int x = 0; x < TENSORS; x++)
        block_close(&m->tensors[x]);
    block_close(&m->lse);
    block_close(&m->dlse);
    block_close(&m->work);
    block_close(&m->bits);
}

/* ---- */

/* Inputs are never written; outputs only in their own memory, and only by a pass that ran. */
static void check_memory(const call_memory *m, bool forward, bool backward)
{
    bool fine = block_unchanged(&m->dlse) && block_unchanged(&m->bits);
    for (int x = 0; x < 4; x++)
        fine = fine && block_unchanged(&m->tensors[x]);
    for (int x = 4; x < TENSORS; x++) {
        const bool ran = x == 4 ? forward : backward;
        fine = fine && (ran ? guards_unchanged(&m->tensors[x]) : block_unchanged(&m->tensors[x]));
    }
    fine = fine && (forward ? guards_unchanged(&m->lse) : block_unchanged(&m->lse));
    if (!fine)
        abort();
}

static void run(const ordo_plan *plan, call_memory *m)
{
    const bool forward = ordo_attention_forward(plan, &m->call) == ORDO_OK;
    check_memory(m, forward, false);
    if (!forward)
        return;
    const bool backward = ordo_attention_backward(plan, &m->call) == ORDO_OK;
    check_memory(m, forward, backward);
    if (!backward)
        return;
    /* once more, over the results, on another number of threads */
    block again[TENSORS + 1];
    const block *outputs[TENSORS + 1] = { &m->lse };
    for (int x = 4; x < TENSORS; x++)
        outputs[x - 3] = &m->tensors[x];
    for (int x = 0; x < 5; x++) {
        again[x] = (block) { malloc(outputs[x]->bytes + 1), NULL, outputs[x]->bytes };
        memcpy(again[x].memory, outputs[x]->memory + GUARD, outputs[x]->bytes);
    }
    m->call.threads = m->call.threads % 3 + 1;
    if (ordo_attention_forward(plan, &m->call) != ORDO_OK ||
        ordo_attention_backward(plan, &m->call) != ORDO_OK)
        abort();
    for (int x = 0; x < 5; x++) {
        if (memcmp(again[x].memory, outputs[x]->memory + GUARD, outputs[x]->bytes) != 0)
            abort();
        free(again[x].memory);
    }
}

static bool is_small(const ordo_problem *p, const ordo_plan *plan)
{
    return p->batch <= MOST_BATCH - 1 && p->heads <= MOST_HEADS && p->q_len <= 128 &&
           p->kv_len <= 128 && p->total_q <= 512 && p->total_kv <= 512 && p->head_dim <= 64 &&
           p->v_head_dim <= 64 && ordo_plan_workspace(plan) <= 64 * MOST_BYTES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = { data, data + size };
    const ordo_problem asked = read_problem(&r);
    const ordo_plan_options options = read_options(&r);
    ordo_plan *plan = NULL;
    ordo_problem p = ORDO_PROBLEM_INIT;
    if (ordo_plan_create(&plan, &asked, NULL, &options) != ORDO_OK) {
        if (plan != NULL)
            abort();
        return 0;
    }
    if (ordo_plan_problem(plan, &p) != ORDO_OK)
        abort();
    p.kv_len = p.kv_len == ORDO_NO_KEYS ? 0 : p.kv_len;
    p.total_kv = p.total_kv == ORDO_NO_KEYS ? 0 : p.total_kv;
    if (is_small(&p, plan)) {
        call_memory *m = calloc(1, sizeof *m);
        if (!m)
            abort();
        if (read_call(&r, &p, plan, m))
            run(plan, m);
        call_close(m);
        free(m);
    }
    ordo_plan_destroy(plan);
    return 0;
}
