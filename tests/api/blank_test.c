/* blank_test.c: where no query meets a key, results are written all the same: o = 0, lse = -inf,
 * gradients 0; no memory beside them is touched, and rows of no sequence are never read. */
#include "host_call.h"

enum { POISON = 0x5a };

/* Tensors of a problem, each an allocation of its own size, NULL if it has no element. */
typedef struct memory {
    ordo_call call;
    int64_t count[5]; /* elements of q, k, v, o and lse; dq, dk and dv are as q, k and v */
    float *q, *k, *v, *o, *dout, *dq, *dk, *dv;
} memory;

static float *array(int64_t count)
{
    float *data = count > 0 ? malloc((size_t)count * sizeof *data) : NULL;
    if (count > 0 && !data)
        exit(1);
    if (data)
        memset(data, POISON, (size_t)count * sizeof *data);
    return data;
}

static float *input(int64_t count, uint64_t seed)
{
    float *data = array(count);
    for (int64_t x = 0; x < count; x++)
        data[x] = (float)check_uniform(&seed);
    return data;
}

/* `p` is resolved; the first rows are those of any larger problem of the same seed. */
static memory *open_memory(const ordo_problem *p)
{
    memory *m = calloc(1, sizeof *m);
    if (!m)
        exit(1);
    const bool packed = p->layout == ORDO_PACKED;
    const int64_t rows = packed ? p->total_q : p->batch * p->q_len;
    const int64_t keys = packed ? p->total_kv : p->batch * (p->kv_len < 0 ? 0 : p->kv_len);
    m->count[0] = rows * p->heads * p->head_dim;
    m->count[1] = keys * p->kv_heads * p->head_dim;
    m->count[2] = keys * p->kv_heads * p->v_head_dim;
    m->count[3] = rows * p->heads * p->v_head_dim;
    m->count[4] = rows * p->heads;
    m->q = input(m->count[0], 1), m->k = input(m->count[1], 2), m->v = input(m->count[2], 3);
    m->dout = input(m->count[3], 4);
    m->o = array(m->count[3]), m->dq = array(m->count[0]);
    m->dk = array(m->count[1]), m->dv = array(m->count[2]);
    m->call = (ordo_call)ORDO_CALL_INIT;
    m->call.q.data = m->q, m->call.k.data = m->k, m->call.v.data = m->v, m->call.o.data = m->o;
    m->call.dout.data = m->dout, m->call.dq.data = m->dq, m->call.dk.data = m->dk;
    m->call.dv.data = m->dv;
    m->call.lse = array(m->count[4]);
    m->call.seed = 7;
    return m;
}

static void close_memory(memory *m)
{
    float *all[] = { m->q, m->k, m->v, m->o, m->dout, m->dq, m->dk, m->dv, m->call.lse };
    for (int x = 0; x < 9; x++)
        free(all[x]);
    free(m);
}

/* Both passes; false if one is refused. */
static bool run(const ordo_plan *plan, memory *m)
{
    const size_t bytes = ordo_plan_workspace(plan);
    m->call.workspace_bytes = bytes;
    m->call.workspace = bytes > 0 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    const bool fine = ordo_attention_forward(plan, &m->call) == ORDO_OK &&
                      ordo_attention_backward(plan, &m->call) == ORDO_OK;
    if (!fine)
        CHECK_FAIL("pass: %s", ordo_last_error());
    free(m->call.workspace);
    return fine;
}

static const ordo_backend host_backends[] = { ORDO_BACKEND_REF, ORDO_BACKEND_CPU };

static void check_all(const char *name, const float *got, int64_t from, int64_t count, float want)
{
    for (int64_t x = from; x < count; x++)
        if (!(got[x] == want) || !signbit(got[x]) != !signbit(want)) {
            CHECK_FAIL("%s[%" PRId64 "] is %g, expected %g", name, x, (double)got[x], (double)want);
            return;
        }
}

/* ---- rows behind the last end ---- */

static ordo_problem packed(int64_t total_q, int64_t total_kv)
{
    return (ordo_problem) { .size = sizeof(ordo_problem),
                            .layout = ORDO_PACKED,
                            .batch = 2,
                            .heads = 4,
                            .kv_heads = 2,
                            .q_len = 5,
                            .kv_len = 6,
                            .total_q = total_q,
                            .total_kv = total_kv,
                            .head_dim = 4,
                            .v_head_dim = 3,
                            .mask = ORDO_MASK_CAUSAL,
                            .dropout.p = 0.25 };
}

/* What is behind the end would be seen in any result it touched. */
static void spoil(float *x, int64_t from, int64_t count)
{
    for (; from < count; from++)
        x[from] = NAN;
}

/* 30 and 20 rows are more than two sequences of 5 and 6 have. */
TEST(rows_behind_the_last_end)
{
    enum { Q = 7, KV = 9, MORE_Q = 30, MORE_KV = 20, HEADS = 4, KV_HEADS = 2, DIM = 4, V_DIM = 3 };
    const int32_t cu_q[] = { 0, 2, Q }, cu_kv[] = { 0, 6, KV };
    const ordo_problem exact = packed(Q, KV), more = packed(MORE_Q, MORE_KV);
    for (int b = 0; b < 2; b++) {
        ordo_plan *exact_plan = plan_of(&exact, host_backends[b]);
        ordo_plan *more_plan = plan_of(&more, host_backends[b]);
        memory *want = open_memory(&exact), *got = open_memory(&more);
        want->call.cu_q = got->call.cu_q = cu_q, want->call.cu_kv = got->call.cu_kv = cu_kv;
        spoil(got->q, want->count[0], got->count[0]), spoil(got->k, want->count[1], got->count[1]);
        spoil(got->v, want->count[2], got->count[2]);
        spoil(got->dout, want->count[3], got->count[3]);
        if (run(exact_plan, want) && run(more_plan, got)) {
            CHECK_BITS(got->o, want->o, want->count[3]);
            CHECK_BITS(got->dq, want->dq, want->count[0]);
            CHECK_BITS(got->dk, want->dk, want->count[1]);
            CHECK_BITS(got->dv, want->dv, want->count[2]);
            check_all("o", got->o, want->count[3], got->count[3], 0);
            check_all("dq", got->dq, want->count[0], got->count[0], 0);
            check_all("dk", got->dk, want->count[1], got->count[1], 0);
            check_all("dv", got->dv, want->count[2], got->count[2], 0);
            for (int h = 0; h < HEADS; h++) {
                const float *row = got->call.lse + h * MORE_Q;
                CHECK_BITS(row, want->call.lse + h * Q, Q);
                check_all("lse", row, Q, MORE_Q, -INFINITY);
            }
        }
        close_memory(want);
        close_memory(got);
        ordo_plan_destroy(exact_plan);
        ordo_plan_destroy(more_plan);
    }
}

/* Outputs with gaps between rows and between heads: the gaps stay. */
TEST(rows_behind_the_last_end_between_others)
{
    enum { ROWS = 6, HEADS = 2, DIM = 2, BY_HEAD = 3, BY_ROW = 9, SIZE = ROWS * BY_ROW };
    const int32_t cu[] = { 0, 2 };
    const ordo_problem p = { .size = sizeof p,
                             .layout = ORDO_PACKED,
                             .dtype = ORDO_BF16,
                             .batch = 1,
                             .heads = HEADS,
                             .q_len = 4,
                             .total_q = ROWS,
                             .head_dim = DIM };
    static const uint16_t in[ROWS * HEADS * DIM];
    for (int b = 0; b < 2; b++) {
        ordo_plan *plan = plan_of(&p, host_backends[b]);
        uint16_t o[SIZE];
        float lse[HEADS * ROWS];
        _Alignas(256) static unsigned char work[1 << 16];
        memset(o, POISON, sizeof o);
        ordo_call call = ORDO_CALL_INIT;
        call.q.data = call.k.data = call.v.data = (void *)in;
        call.o = (ordo_tensor) { o, { 0, BY_ROW, BY_HEAD, 1 } };
        call.lse = lse, call.cu_q = call.cu_kv = cu;
        call.workspace = work, call.workspace_bytes = sizeof work;
        CHECK_INT(ordo_attention_forward(plan, &call), ORDO_OK);
        for (int x = 0; x < SIZE; x++) {
            const bool inside = x % BY_ROW < HEADS * BY_HEAD && x % BY_ROW % BY_HEAD < DIM;
            CHECK_INT(o[x], inside ? 0 : POISON * 0x101);
        }
        ordo_plan_destroy(plan);
    }
}

/* ---- empty problems ---- */

enum { NONE = ORDO_NO_KEYS };

/* No sequence, no queries, no keys, in every layout. */
static const struct {
    ordo_layout layout;
    int64_t batch, q_len, kv_len, total_q, total_kv; /* as given */
    int64_t rows, keys;                              /* that tensors have */
} empty[] = {
    { ORDO_DENSE, 0, 5, 6, 0, 0, 0, 0 },      { ORDO_DENSE, 2, 0, 6, 0, 0, 0, 12 },
    { ORDO_DENSE, 2, 5, NONE, 0, 0, 10, 0 },  { ORDO_DENSE, 2, 0, 0, 0, 0, 0, 0 },
    { ORDO_DENSE, 0, 0, 0, 0, 0, 0, 0 },      { ORDO_PADDED, 0, 5, 6, 0, 0, 0, 0 },
    { ORDO_PADDED, 2, 5, NONE, 0, 0, 10, 0 }, { ORDO_PADDED, 2, 0, 6, 0, 0, 0, 12 },
    { ORDO_PACKED, 0, 5, 6, 0, 0, 0, 0 },     { ORDO_PACKED, 0, 5, 6, 3, 4, 3, 4 },
    { ORDO_PACKED, 2, 5, 6, 0, 0, 0, 0 },     { ORDO_PACKED, 2, 5, 6, 3, 4, 3, 4 },
    { ORDO_PACKED, 2, 0, 0, 0, 0, 0, 0 },     { ORDO_PACKED, 2, 0, 0, 3, 4, 3, 4 },
    { ORDO_PACKED, 2, 5, NONE, 3, 0, 3, 0 },  { ORDO_PACKED, 2, 5, 6, 3, NONE, 3, 0 },
    { ORDO_PACKED, 2, 5, 6, 0, 4, 0, 4 },
};
enum { EMPTY = sizeof empty / sizeof empty[0] };

static ordo_problem empty_problem(int i, bool everything)
{
    ordo_problem p = packed(empty[i].total_q, empty[i].total_kv);
    p.layout = empty[i].layout, p.batch = empty[i].batch;
    p.q_len = empty[i].q_len, p.kv_len = empty[i].kv_len;
    p.dropout.p = 0;
    if (everything)
        p.alibi = true, p.dropout.p = 0.1, p.window = (ordo_window) { true, 3, 0 }, p.softcap = 5;
    return p;
}

/* Only the ends say that there is nothing to do. */
static bool by_ends(const ordo_problem *p)
{
    return p->batch > 0 && p->q_len > 0 && p->kv_len > 0 && p->total_q > 0 && p->total_kv > 0;
}

/* The plan's line is read again, and so is its problem; both give the same plan. */
static void check_plan(const ordo_plan *plan)
{
    char line[2048], again[2048];
    ordo_problem shown = ORDO_PROBLEM_INIT;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_plan *other = NULL;
    uint64_t pairs = 9;
    CHECK_INT(ordo_plan_query(plan, &info), ORDO_OK);
    CHECK_INT(info.forward_workspace_bytes + info.backward_workspace_bytes, 0);
    CHECK_INT(ordo_plan_workspace(plan), 0);
    CHECK_INT(ordo_plan_check(plan, &pairs), ORDO_OK);
    CHECK_INT(pairs, 0);
    CHECK_INT(ordo_plan_print(plan, line, sizeof line, NULL), ORDO_OK);
    CHECK_INT(ordo_plan_parse(&other, line), ORDO_OK);
    CHECK_INT(ordo_plan_print(other, again, sizeof again, NULL), ORDO_OK);
    CHECK_TEXT(again, line);
    ordo_plan_destroy(other);
    CHECK_INT(ordo_plan_problem(plan, &shown), ORDO_OK);
    other = plan_of(&shown, info.backend);
    CHECK_INT(ordo_plan_print(other, again, sizeof again, NULL), ORDO_OK);
    CHECK_TEXT(again, line);
    ordo_plan_destroy(other);
}

static void check_results(int i, const memory *m)
{
    CHECK_INT(m->count[4], empty[i].rows * 4);
    CHECK_INT(m->count[1], empty[i].keys * 2 * 4);
    check_all("o", m->o, 0, m->count[3], 0);
    check_all("lse", m->call.lse, 0, m->count[4], -INFINITY);
    check_all("dq", m->dq, 0, m->count[0], 0);
    check_all("dk", m->dk, 0, m->count[1], 0);
    check_all("dv", m->dv, 0, m->count[2], 0);
}

static void check_merge(const ordo_plan *plan, memory *m)
{
    const ordo_tensor part = m->call.dout;
    float *lse = input(m->count[4], 5);
    const float *lse_part = lse;
    ordo_combine merge = ORDO_COMBINE_INIT;
    merge.parts = 1, merge.o_parts = &part, merge.lse_parts = &lse_part;
    merge.o = m->call.o, merge.lse = m->call.lse;
    CHECK_INT(ordo_attention_combine(plan, &merge), ORDO_OK);
    if (m->count[4] > 0)
        CHECK_BITS(m->o, m->dout, m->count[3]); /* one part is the result */
    free(lse);
}

static void check_bits(const ordo_problem *p, const ordo_call *call)
{
    ordo_dropout_call c = ORDO_DROPOUT_CALL_INIT;
    ordo_dropout_info info;
    c.cu_q = call->cu_q, c.cu_kv = call->cu_kv, c.sequence_ids = call->sequence_ids;
    for (int on_device = 0; on_device < 2; on_device++) {
        c.on_device = on_device;
        CHECK_INT(ordo_dropout_query(p, &c, &info), ORDO_OK);
        if (!on_device || !by_ends(p)) {
            CHECK_INT(info.blocks, 0);
            CHECK_INT(info.bytes, 0);
            CHECK_INT(ordo_dropout_fill_device(p, &c, NULL, 0, NULL), ORDO_OK);
        }
    }
    c.on_device = false;
    CHECK_INT(ordo_dropout_fill(p, &c, 0, 0, NULL, 0), ORDO_OK);
}

TEST(empty_problems)
{
    const int32_t ends[3] = { 0 };
    const float slopes[4] = { 0 };
    const int64_t ids[2] = { 4, 2 };
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < EMPTY; i++)
            for (int everything = 0; everything < 2; everything++) {
                const int before = check_failures;
                const ordo_problem p = empty_problem(i, everything);
                ordo_plan *plan = plan_of(&p, host_backends[b]);
                ordo_problem resolved = ORDO_PROBLEM_INIT;
                CHECK_INT(ordo_plan_problem(plan, &resolved), ORDO_OK);
                if (resolved.total_kv == NONE)
                    resolved.total_kv = 0;
                memory *m = open_memory(&resolved);
                if (p.layout == ORDO_PACKED)
                    m->call.cu_q = m->call.cu_kv = ends;
                if (p.layout == ORDO_PADDED && p.batch > 0)
                    m->call.q_lens = m->call.kv_lens = ends;
                if (everything && p.batch > 0)
                    m->call.slopes = slopes, m->call.sequence_ids = ids;
                if (!by_ends(&p))
                    check_plan(plan);
                if (run(plan, m))
                    check_results(i, m);
                check_merge(plan, m);
                if (everything)
                    check_bits(&p, &m->call);
                close_memory(m);
                ordo_plan_destroy(plan);
                if (check_failures > before)
                    CHECK_FAIL("in problem %d, backend %d, everything %d", i, b, everything);
            }
}

/* No keys on a shard of a sequence that has some elsewhere. */
TEST(a_shard_without_keys)
{
    ordo_problem p = empty_problem(2, false);
    p.shard.kv_total = 40, p.shard.q_total = 20, p.shard.col0 = 40, p.shard.row0 = 15;
    CHECK_INT(ordo_problem_check(&p), ORDO_OK);
    p.shard.col0 = 41;
    CHECK_INT(ordo_problem_check(&p), ORDO_ERR_ARGUMENT);
}

CHECK_MAIN()
