/* attention_fuzz.c: any bytes as a problem, a plan's options and a call on the CPU backend.
 *
 * Every byte is a field, in the order in which they are read below; past the end they are 0. What
 * the library refuses must leave all memory alone; what it accepts, if small, is run twice, on
 * different numbers of threads: the same bits, no byte outside the outputs touched. A plan with
 * segments gives the bits of one without. Under the
 * address sanitizer no byte outside any array is read either: each has an allocation of its exact
 * size, and the panels of the CPU backend have gaps between them (base/gap.h). */
#include "base/keep.h"
#include "fuzz/input.h"
#include "ordo/attention.h"
#include "ordo/seen.h"

enum { TENSORS = 8, MOST_BYTES = 1 << 20, MOST_BATCH = 8, MOST_HEADS = 16 };
enum { MOST_SIZE = 640, MOST_WORK = 1 << 19, MOST_WORKSPACE = 1 << 24 };

static ordo_problem read_problem(reader *r)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = (ordo_dtype)(byte(r) % 4);
    p.layout = (ordo_layout)(byte(r) % 4);
    p.batch = number(r, 4);
    p.heads = number(r, 6);
    p.kv_heads = number(r, 3);
    p.q_len = extent(r);
    p.kv_len = extent(r);
    p.total_q = extent(r);
    p.total_kv = extent(r);
    p.head_dim = extent(r);
    p.v_head_dim = extent(r);
    p.scale = real(r);
    p.mask = (ordo_mask)(byte(r) % 4);
    p.window = (ordo_window) { byte(r) % 2, number(r, 20), number(r, 20) };
    p.softcap = real(r);
    p.alibi = byte(r) % 2;
    p.dropout = (ordo_dropout) { real(r), byte(r) % 12, byte(r) % 18, (ordo_keying)(byte(r) % 3) };
    p.shard = read_shard(r);
    const int last = byte(r);
    p.extras = last == 255;
    if (last >= 224 && last < 255)
        p.seen = (ordo_seen_limits) { last < 250, last % 2, last / 2 % 2 };
    return p;
}

static ordo_plan_options read_options(reader *r)
{
    ordo_plan_options o = ORDO_PLAN_OPTIONS_INIT;
    const int first = byte(r);
    o.backend = first == 255 ? ORDO_BACKEND_CUDA : ORDO_BACKEND_CPU;
    if (first >= 192 && first < 224)
        o.segments = first - 191;
    else if (first >= 224 && first < 255)
        o.keep_bits_memory = (uint64_t)(first - 223) * 1024;
    o.forward_tile.q = extent(r);
    o.forward_tile.k = extent(r);
    o.backward_tile.q = extent(r);
    o.backward_tile.k = extent(r);
    o.order = (ordo_order)(byte(r) % (ORDO_ORDER_COUNT + 2));
    o.group = number(r, 3);
    o.split = number(r, 2);
    o.issue = (ordo_issue)(byte(r) % 4);
    o.section = number(r, 3);
    o.assign = (ordo_assign)(byte(r) % 4);
    o.workers = number(r, 9);
    return o;
}

/* ---- calls ---- */

typedef struct call_memory {
    ordo_call call;
    block tensors[TENSORS], lse, dlse; /* q k v dout, then outputs o dq dk dv */
    block lengths[4], ids, slopes, seed, offset, bits;
    block sink, dsink, dsink_parts;
    block seen; /* the arrays of the element mask */
    ordo_block_mask mask;
    void *work;
} call_memory;

/* Strides of a tensor: contiguous, wider, or anything; returns the bytes it reaches, or -1 if they
 * are too many for this. */
static int64_t read_strides(reader *r, const ordo_problem *p, bool keys, int64_t dim,
                            ordo_tensor *t)
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
    for (int x = packed; x < 4; x++) {
        if (sizes[x] <= 0)
            return 0;
        reach += (double)(sizes[x] - 1) * fabs((double)(contiguous ? tight : t->stride)[x]);
    }
    return reach * (double)width > MOST_BYTES ? -1 : (int64_t)reach * width;
}

static int64_t length_up_to(reader *r, int64_t most)
{
    return most < 248 ? byte(r) % (most + 1) : byte(r) * (most + 2) / 255; /* or one too many */
}

static void read_lengths(reader *r, const ordo_problem *p, call_memory *m)
{
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t lens[2] = { p->q_len, p->kv_len }, totals[2] = { p->total_q, p->total_kv };
    int32_t values[4][MOST_BATCH + 1] = { 0 };
    for (int64_t b = 0; b <= p->batch; b++)
        for (int side = 0; side < 2; side++) {
            values[2 + side][b] = (int32_t)length_up_to(r, lens[side]);
            if (b == 0)
                continue;
            /* ends: right at the last, if that is not too far; nearly right before */
            const int64_t before = values[side][b - 1], most = before + lens[side];
            values[side][b] = (int32_t)(b < p->batch          ? before + length_up_to(r, lens[side])
                                        : totals[side] < most ? totals[side]
                                                              : most);
        }
    for (int x = 0; x < 4; x++)
        m->lengths[x] = block_of(values[x], (size_t)(p->batch + (x < 2)) * sizeof(int32_t));
    const int wrong = byte(r); /* now and then the arrays of another layout */
    if (packed != (wrong == 255)) {
        m->call.cu_q = block_data(&m->lengths[0]);
        m->call.cu_kv = block_data(&m->lengths[1]);
    }
    if ((p->layout == ORDO_PADDED) != (wrong == 254)) {
        m->call.q_lens = block_data(&m->lengths[2]);
        m->call.kv_lens = block_data(&m->lengths[3]);
    }
}

/* Ids, slopes and seeds. */
static void read_arrays(reader *r, const ordo_problem *p, call_memory *m)
{
    int64_t ids[MOST_BATCH];
    float slopes[MOST_BATCH * MOST_HEADS];
    for (int x = 0; x < MOST_BATCH; x++) /* few fields, so that mutations find the others */
        ids[x] = x < 4 ? number(r, 200) : ids[x - 4];
    m->ids = block_of(ids, (size_t)p->batch * sizeof *ids);
    m->call.sequence_ids = byte(r) % 2 ? block_data(&m->ids) : NULL;
    for (int x = 0; x < MOST_BATCH * MOST_HEADS; x++)
        slopes[x] = x < 4 ? (float)real(r) : slopes[x - 4];
    const bool present = p->alibi != (byte(r) == 255);
    m->call.slopes_batch_stride = byte(r) % (MOST_HEADS + 1);
    const int64_t last = (p->batch - 1) * m->call.slopes_batch_stride, end = last + p->heads;
    m->slopes = block_of(slopes, (size_t)(end > 0 ? end : 0) * sizeof *slopes);
    m->call.slopes = present ? block_data(&m->slopes) : NULL;
    const uint64_t seed = (uint64_t)byte(r), offset = (uint64_t)number(r, 255);
    m->seed = block_of(&seed, sizeof seed);
    m->offset = block_of(&offset, sizeof offset);
    m->call.seed_ptr = byte(r) % 2 ? block_data(&m->seed) : NULL;
    m->call.offset_ptr = byte(r) % 2 ? block_data(&m->offset) : NULL;
    m->call.offset = (uint64_t)number(r, 255);
}

/* A sink and where its gradients go, in one of four calls. */
static void read_sinks(reader *r, const ordo_problem *p, call_memory *m)
{
    const reader nothing = { NULL, NULL };
    const int kind = byte(r);
    float sinks[MOST_HEADS];
    for (int x = 0; x < MOST_HEADS; x++)
        sinks[x] = x < 4 ? (float)real(r) : sinks[x - 4];
    m->sink = block_of(sinks, (size_t)p->heads * sizeof *sinks);
    m->dsink = block_open((size_t)p->heads * sizeof *sinks, &nothing);
    m->dsink_parts = block_open((size_t)(p->batch * p->heads) * sizeof *sinks, &nothing);
    if (kind < 192)
        return;
    m->call.sink = kind == 255 ? NULL : block_data(&m->sink);
    m->call.dsink = kind % 2 ? block_data(&m->dsink) : NULL;
    m->call.dsink_parts = kind / 2 % 2 ? block_data(&m->dsink_parts) : NULL;
}

/* An element mask of any bytes, now and then with a number of its lists changed. */
static void read_seen(reader *r, const ordo_problem *p, call_memory *m)
{
    const int64_t heads = p->seen.per_head ? p->heads : 1, head = p->q_len * p->kv_len;
    const int64_t masks = (p->seen.per_sequence ? p->batch : 1) * heads;
    const int64_t strides[] = { heads * head, head, p->kv_len, 1 };
    size_t bytes = 0;
    const int change = byte(r);
    m->seen = block_of(&change, 0);
    if (!p->seen.on || head == 0 || change == 254)
        return;
    block elements = block_open((size_t)(masks * head), r);
    for (int64_t x = 0; x < masks * head; x++)
        ((unsigned char *)block_data(&elements))[x] &= 1;
    m->mask = (ordo_block_mask)ORDO_BLOCK_MASK_INIT;
    if (ordo_seen_bytes(p, &bytes) != ORDO_OK)
        abort();
    unsigned char *memory = aligned_alloc(16, (bytes + 15) / 16 * 16);
    if (!memory ||
        ordo_seen_make(&m->mask, p, block_data(&elements), strides, memory, bytes) != ORDO_OK)
        abort();
    int32_t *lists = (int32_t *)(void *)(memory + ((const unsigned char *)m->mask.start - memory));
    if (change == 255)
        lists[byte(r) % (m->mask.key + m->mask.entries - m->mask.start)] = (int32_t)number(r, 9);
    block_close(&m->seen);
    m->seen = block_of(memory, bytes);
    const unsigned char *to = block_data(&m->seen);
    m->mask.start = (const void *)(to + ((const unsigned char *)m->mask.start - memory));
    m->mask.key = (const void *)(to + ((const unsigned char *)m->mask.key - memory));
    m->mask.bits = (const void *)to;
    m->call.seen = &m->mask;
    ordo_problem as = ORDO_PROBLEM_INIT;
    if (ordo_seen_kind(p, &m->mask, &as, NULL, NULL) != ORDO_OK && change != 255)
        abort();
    free(memory);
    block_close(&elements);
}

/* Words of keep bits that a call reads; at most those of a valid batch. */
static size_t keep_words(const ordo_problem *p, const call_memory *m)
{
    int64_t blocks = p->batch * ordo_keep_blocks(p->q_len, p->kv_len);
    if (p->layout == ORDO_PACKED) {
        const int32_t *q = block_data(&m->lengths[0]), *kv = block_data(&m->lengths[1]);
        blocks = 0;
        for (int64_t b = 0; b < p->batch; b++)
            if (q[b + 1] > q[b] && kv[b + 1] > kv[b])
                blocks += ordo_keep_blocks(q[b + 1] - q[b], kv[b + 1] - kv[b]);
    }
    return (size_t)(blocks * p->heads * ORDO_KEEP_WORDS);
}

/* False: too large to run. */
static bool read_call(reader *r, const ordo_problem *p, const ordo_plan *plan, call_memory *m)
{
    static const bool keys[TENSORS] = { false, true, true, false, false, false, true, true };
    const int64_t d = p->head_dim, v = p->v_head_dim;
    const int64_t dims[TENSORS] = { d, d, v, v, v, d, d, v };
    ordo_tensor *const tensors[TENSORS] = { &m->call.q, &m->call.k,  &m->call.v,  &m->call.dout,
                                            &m->call.o, &m->call.dq, &m->call.dk, &m->call.dv };
    const reader nothing = { NULL, NULL };
    bool fits = true;
    m->call = (ordo_call)ORDO_CALL_INIT;
    read_lengths(r, p, m);
    for (int x = 0; x < TENSORS; x++) {
        const int64_t bytes = read_strides(r, p, keys[x], dims[x], tensors[x]);
        fits = fits && bytes >= 0;
        m->tensors[x] = block_open((size_t)(bytes < 0 ? 0 : bytes), x < 4 ? r : &nothing);
        tensors[x]->data = block_data(&m->tensors[x]);
    }
    const int64_t rows = p->layout == ORDO_PACKED ? p->total_q : p->batch * p->q_len;
    m->lse = block_open((size_t)(rows * p->heads) * 4, &nothing);
    m->dlse = block_open((size_t)(rows * p->heads) * 4, r);
    m->call.lse = block_data(&m->lse);
    m->call.dlse = byte(r) % 2 ? block_data(&m->dlse) : NULL;
    m->call.workspace_bytes = ordo_plan_workspace(plan);
    if (posix_memalign(&m->work, 256, m->call.workspace_bytes) != 0)
        abort();
    m->call.workspace = m->work;
    read_arrays(r, p, m);
    m->bits = block_open(keep_words(p, m) * sizeof(uint32_t), r);
    const int which = byte(r);
    if (which == 255 || (which % 4 == 1 && p->dropout.p > 0))
        m->call.keep_bits = block_data(&m->bits);
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
    read_sinks(r, p, m);
    if (fits)
        read_seen(r, p, m);
    return fits;
}

static void call_close(call_memory *m)
{
    for (int x = 0; x < TENSORS; x++)
        block_close(&m->tensors[x]);
    for (int x = 0; x < 4; x++)
        block_close(&m->lengths[x]);
    enum { OTHERS = 11 };
    block *const others[OTHERS] = { &m->lse,   &m->dlse,        &m->ids,  &m->slopes,
                                    &m->seed,  &m->offset,      &m->bits, &m->sink,
                                    &m->dsink, &m->dsink_parts, &m->seen };
    for (size_t x = 0; x < OTHERS; x++)
        block_close(others[x]);
    free(m->work);
}

/* ---- */

/* Inputs are never written; outputs only in their own memory, and only by a pass that ran. */
static void check_memory(const call_memory *m, bool forward, bool backward)
{
    bool fine = block_unchanged(&m->dlse) && block_unchanged(&m->bits) &&
                block_unchanged(&m->sink) && block_unchanged(&m->seen);
    for (int x = 0; x < 4; x++)
        fine = fine && block_unchanged(&m->tensors[x]);
    for (int x = 4; x < TENSORS; x++) {
        const bool ran = x == 4 ? forward : backward;
        fine = fine && (ran ? guards_unchanged(&m->tensors[x]) : block_unchanged(&m->tensors[x]));
    }
    fine = fine && (forward ? guards_unchanged(&m->lse) : block_unchanged(&m->lse));
    const block *const gradients[] = { &m->dsink, &m->dsink_parts };
    const bool present[] = { m->call.dsink != NULL, m->call.dsink_parts != NULL };
    for (int x = 0; x < 2; x++)
        fine = fine && (backward && present[x] ? guards_unchanged(gradients[x])
                                               : block_unchanged(gradients[x]));
    if (!fine)
        abort();
}

/* Gradients one by one, and with sums that are left for another part, over the results of a pass
 * that computed all. */
static void run_some(const ordo_problem *p, const ordo_plan *plan, const call_memory *m)
{
    const int64_t keys = p->layout == ORDO_PACKED ? p->total_kv : p->batch * p->kv_len;
    const int64_t rows = p->layout == ORDO_PACKED ? p->total_q : p->batch * p->q_len;
    const reader nothing = { NULL, NULL };
    if (keys == 0 || rows == 0)
        return;
    ordo_call dq = m->call, dk_dv = m->call, sums = m->call;
    dq.dk.data = dq.dv.data = NULL;
    dk_dv.dq.data = NULL;
    if (ordo_attention_backward(plan, &dq) != ORDO_OK ||
        ordo_attention_backward(plan, &dk_dv) != ORDO_OK)
        abort();
    block dk = block_open((size_t)(keys * p->kv_heads * p->head_dim) * 4, &nothing);
    block dv = block_open((size_t)(keys * p->kv_heads * p->v_head_dim) * 4, &nothing);
    sums.carry = ORDO_CARRY_OUT;
    sums.dk_sums = block_data(&dk);
    sums.dv_sums = block_data(&dv);
    const ordo_status status = ordo_attention_backward(plan, &sums);
    const bool fine = status == ORDO_OK ? guards_unchanged(&dk) && guards_unchanged(&dv)
                                        : block_unchanged(&dk) && block_unchanged(&dv);
    if (!fine || (status != ORDO_OK && status != ORDO_ERR_SHAPE && status != ORDO_ERR_UNSUPPORTED))
        abort();
    block_close(&dk);
    block_close(&dv);
}

enum { OUTPUTS = 7 }; /* lse o dq dk dv dsink dsink_parts */

static void run_both(const ordo_plan *plan, const ordo_call *call)
{
    if (ordo_attention_forward(plan, call) != ORDO_OK ||
        ordo_attention_backward(plan, call) != ORDO_OK)
        abort();
}

/* The same call by the plan without segments, over the results. */
static void run_whole(const ordo_plan *whole, ordo_call call)
{
    call.workspace_bytes = ordo_plan_workspace(whole);
    if (posix_memalign(&call.workspace, 256, call.workspace_bytes) != 0)
        abort();
    run_both(whole, &call);
    free(call.workspace);
}

static void compare(const block *const outputs[OUTPUTS], const block again[OUTPUTS])
{
    for (int x = 0; x < OUTPUTS; x++)
        if (memcmp(block_data(&again[x]), block_data(outputs[x]), outputs[x]->bytes) != 0)
            abort();
}

/* `whole` is the plan without segments, or NULL. */
static void run(const ordo_problem *p, const ordo_plan *plan, const ordo_plan *whole,
                call_memory *m)
{
    const bool forward = ordo_attention_forward(plan, &m->call) == ORDO_OK;
    check_memory(m, forward, false);
    if (!forward)
        return;
    const bool backward = ordo_attention_backward(plan, &m->call) == ORDO_OK;
    check_memory(m, forward, backward);
    if (!backward)
        return;
    const block *const outputs[OUTPUTS] = { &m->lse,        &m->tensors[4], &m->tensors[5],
                                            &m->tensors[6], &m->tensors[7], &m->dsink,
                                            &m->dsink_parts };
    block again[OUTPUTS];
    for (int x = 0; x < OUTPUTS; x++)
        again[x] = block_of(block_data(outputs[x]), outputs[x]->bytes);
    /* once more, over the results, on another number of threads */
    m->call.threads = m->call.threads % 5 + 1;
    run_both(plan, &m->call);
    run_some(p, plan, m);
    compare(outputs, again);
    if (whole) {
        run_whole(whole, m->call);
        compare(outputs, again);
    }
    for (int x = 0; x < OUTPUTS; x++)
        block_close(&again[x]);
}

/* Small enough to take milliseconds: sizes, then the multiplications of one product. */
static bool is_small(const ordo_problem *p, const ordo_plan *plan)
{
    return p->batch < MOST_BATCH && p->heads <= MOST_HEADS && p->q_len <= MOST_SIZE &&
           p->kv_len <= MOST_SIZE && p->total_q <= 4 * MOST_SIZE && p->total_kv <= 4 * MOST_SIZE &&
           p->head_dim <= MOST_SIZE && p->v_head_dim <= MOST_SIZE &&
           p->batch * p->heads * p->q_len * p->kv_len * (p->head_dim + p->v_head_dim) <=
               MOST_WORK &&
           ordo_plan_workspace(plan) <= MOST_WORKSPACE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = { data, data + size };
    const ordo_problem asked = read_problem(&r);
    ordo_plan_options options = read_options(&r);
    ordo_plan *plan = NULL, *whole = NULL;
    ordo_problem p = ORDO_PROBLEM_INIT;
    if (ordo_plan_create(&plan, &asked, fuzz_host(), &options) != ORDO_OK) {
        if (plan != NULL)
            abort();
        return 0;
    }
    const bool segments = options.segments > 0 || options.keep_bits_memory > 0;
    options.segments = 0;
    options.keep_bits_memory = 0;
    if (ordo_plan_problem(plan, &p) != ORDO_OK ||
        (segments && ordo_plan_create(&whole, &asked, fuzz_host(), &options) != ORDO_OK))
        abort();
    p.kv_len = p.kv_len == ORDO_NO_KEYS ? 0 : p.kv_len;
    p.total_kv = p.total_kv == ORDO_NO_KEYS ? 0 : p.total_kv;
    if (is_small(&p, plan)) {
        call_memory *m = calloc(1, sizeof *m);
        if (!m)
            abort();
        if (read_call(&r, &p, plan, m))
            run(&p, plan, whole, m);
        call_close(m);
        free(m);
    }
    ordo_plan_destroy(whole);
    ordo_plan_destroy(plan);
    return 0;
}
