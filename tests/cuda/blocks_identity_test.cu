/* Block masks whose results must have, bit by bit, those of other masks: the block mask of a causal
 * mask or of a window, documents that begin at blocks and a packed batch, chunks that are longer
 * than the sequence, one mask per head; and lists of nonsense, which must end. Without a device of
 * compute capability 9.0: compiled, and skipped. */
#include "handmade_batch.h"
extern "C" {
#include "api/cuda_pass.h"
}

enum { HEADS = 4, KV_HEADS = 2 };

static int failed;

struct setting {
    int head_dim;
    bool f16;
    ordo_order order;
    double dropout;
    ordo_mask mask;
    ordo_window window;
    std::vector<int32_t> ends; /* of packed sequences; empty: one dense sequence */
};

struct results {
    std::vector<uint16_t> o, dq, dk, dv;
    std::vector<float> lse;
};

struct on_device : device_memory {
    uint16_t *values(const setting &z, uint32_t tensor, int rows, int heads)
    {
        std::vector<uint16_t> x;
        for (int row = 0; row < rows; row++)
            for (int h = 0; h < heads; h++)
                for (int d = 0; d < z.head_dim; d++)
                    x.push_back(case_half(case_value(tensor, 0, row, h, d), z.f16));
        return upload(x);
    }

    /* A mask with its lists on the device. */
    ordo_block_mask mask(const ordo_block_mask *m)
    {
        ordo_block_mask there = *m;
        const int64_t masks = m->sequences * m->heads;
        std::vector<int32_t> start(m->start, m->start + masks * ((m->q_len + 127) / 128 + 1));
        std::vector<int32_t> key(m->key, m->key + m->entries);
        key.push_back(0);
        there.start = upload(start);
        there.key = upload(key);
        there.first = upload(std::vector<int32_t>(m->first, m->first + masks * m->q_len));
        there.last = upload(std::vector<int32_t>(m->last, m->last + masks * m->q_len));
        return there;
    }
};

static ordo_plan *plan_of(const setting &z, int rows, const ordo_block_mask *mask)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    p.dtype = z.f16 ? ORDO_F16 : ORDO_BF16;
    p.layout = z.ends.empty() ? ORDO_DENSE : ORDO_PACKED;
    p.batch = z.ends.empty() ? 1 : (int64_t)z.ends.size() - 1;
    p.heads = HEADS;
    p.kv_heads = KV_HEADS;
    p.q_len = p.kv_len = rows;
    p.total_q = p.total_kv = z.ends.empty() ? 0 : rows;
    p.head_dim = z.head_dim;
    p.mask = z.mask;
    p.window = z.window;
    p.dropout.p = z.dropout;
    if (mask)
        p.blocks = { mask->entries + 1, mask->sequences > 1, mask->heads > 1 };
    options.order = z.order;
    must_ordo(ordo_machine_create(&machine, "h200"), "machine");
    must_ordo(ordo_plan_create(&plan, &p, machine, &options), ordo_last_error());
    ordo_machine_destroy(machine);
    return plan;
}

/* Gradients that are not wanted stay as they were: all bits set. */
static results run(const setting &z, int rows, const ordo_block_mask *mask, bool queries = true,
                   bool keys = true)
{
    on_device memory;
    ordo_plan *plan = plan_of(z, rows, mask);
    ordo_call call = ORDO_CALL_INIT;
    ordo_cuda_pass pass;
    ordo_block_mask there = ORDO_BLOCK_MASK_INIT;
    char why[300] = "";
    const size_t q = (size_t)rows * HEADS * z.head_dim, kv = (size_t)rows * KV_HEADS * z.head_dim;
    call.q.data = memory.values(z, 1, rows, HEADS);
    call.k.data = memory.values(z, 2, rows, KV_HEADS);
    call.v.data = memory.values(z, 3, rows, KV_HEADS);
    call.dout.data = memory.values(z, 4, rows, HEADS);
    call.o.data = memory.upload(std::vector<uint16_t>(q, 0xffff));
    call.dq.data = memory.upload(std::vector<uint16_t>(q, 0xffff));
    call.dk.data = memory.upload(std::vector<uint16_t>(kv, 0xffff));
    call.dv.data = memory.upload(std::vector<uint16_t>(kv, 0xffff));
    call.lse = memory.upload(std::vector<float>((size_t)rows * HEADS, NAN));
    if (!z.ends.empty())
        call.cu_q = call.cu_kv = memory.upload(z.ends);
    if (mask) {
        there = memory.mask(mask);
        call.block_mask = &there;
    }
    call.seed = 7;
    call.workspace_bytes = ordo_plan_workspace(plan);
    call.workspace = memory.upload(std::vector<uint8_t>(call.workspace_bytes, 0xff));
    must_ordo(ordo_cuda_pass_make(plan, ORDO_FORWARD, &call, &pass), "forward");
    must_ordo(ordo_cuda_launch_forward(&pass, why, sizeof why), why);
    ordo_call wanted = call;
    if (!queries)
        wanted.dq.data = NULL;
    if (!keys)
        wanted.dk.data = wanted.dv.data = NULL;
    must_ordo(ordo_cuda_pass_make(plan, ORDO_BACKWARD, &wanted, &pass), "backward");
    must_ordo(ordo_cuda_launch_backward(&pass, why, sizeof why), why);
    MUST(cudaDeviceSynchronize());
    ordo_plan_destroy(plan);
    return { case_download((uint16_t *)call.o.data, q), case_download((uint16_t *)call.dq.data, q),
             case_download((uint16_t *)call.dk.data, kv),
             case_download((uint16_t *)call.dv.data, kv),
             case_download(call.lse, (size_t)rows * HEADS) };
}

template <class T> static size_t differing(const std::vector<T> &a, const std::vector<T> &b)
{
    size_t wrong = 0;
    for (size_t x = 0; x < a.size(); x++)
        wrong += memcmp(&a[x], &b[x], sizeof(T)) != 0;
    return wrong;
}

static void compare(const char *what, const setting &z, int rows, const results &want,
                    const results &got)
{
    const size_t o = differing(got.o, want.o), lse = differing(got.lse, want.lse);
    const size_t dq = differing(got.dq, want.dq), dk = differing(got.dk, want.dk);
    const size_t dv = differing(got.dv, want.dv);
    const bool ok = !o && !lse && !dq && !dk && !dv;
    failed += !ok;
    printf("%s %s, %s head size %d, %s, dropout %g, %d rows: wrong o %zu lse %zu dq %zu dk %zu dv "
           "%zu\n",
           ok ? "ok  " : "FAIL", what, z.f16 ? "f16" : "bf16", z.head_dim, ordo_order_name(z.order),
           z.dropout, rows, o, lse, dq, dk, dv);
    fflush(stdout);
}

/* A mask takes the place of the setting's own band. */
static void check_band(const char *what, const setting &z, int rows)
{
    ordo_block_mask *mask = NULL, *each = NULL;
    must_ordo(ordo_block_mask_from_band(&mask, rows, rows, z.mask, z.window.on ? &z.window : NULL),
              "mask");
    const ordo_block_mask *const heads[HEADS] = { mask, mask, mask, mask };
    must_ordo(ordo_block_mask_join(&each, heads, 1, HEADS), "join");
    setting open = z;
    open.mask = ORDO_MASK_FULL;
    open.window = {};
    const results want = run(z, rows, NULL);
    compare(what, z, rows, want, run(open, rows, mask));
    compare("one per head", z, rows, want, run(open, rows, each));
    results alone = want;
    alone.dk.assign(want.dk.size(), 0xffff);
    alone.dv.assign(want.dv.size(), 0xffff);
    compare("dq alone", z, rows, alone, run(open, rows, mask, true, false));
    alone = want;
    alone.dq.assign(want.dq.size(), 0xffff);
    compare("dk and dv alone", z, rows, alone, run(open, rows, mask, false, true));
    ordo_block_mask_destroy(each);
    ordo_block_mask_destroy(mask);
}

static void check_chunks(const setting &z, int rows)
{
    ordo_block_mask *mask = NULL;
    must_ordo(ordo_block_mask_from_chunks(&mask, rows, rows, rows + 5, 0), "chunks");
    compare("long chunks", z, rows, run(z, rows, NULL), run(z, rows, mask));
    ordo_block_mask_destroy(mask);
}

static void check_documents(const setting &z, const std::vector<int32_t> &ends)
{
    const int rows = ends.back();
    std::vector<int64_t> ids(rows);
    ordo_block_mask *mask = NULL;
    for (size_t d = 0; d + 1 < ends.size(); d++)
        for (int r = ends[d]; r < ends[d + 1]; r++)
            ids[r] = (int64_t)d;
    must_ordo(ordo_block_mask_from_documents(&mask, rows, ids.data()), "documents");
    setting packed = z;
    packed.ends = ends;
    compare("documents", z, rows, run(packed, rows, NULL), run(z, rows, mask));
    ordo_block_mask_destroy(mask);
}

/* Results are undefined; both passes end, which is all that is checked. */
static void check_nonsense(const setting &z, int rows)
{
    ordo_block_mask *mask = NULL;
    uint32_t state = 12345;
    must_ordo(ordo_block_mask_from_chunks(&mask, rows, rows, 300, 0), "chunks");
    auto draw = [&] { return (int32_t)(state = state * 1664525u + 1013904223u); };
    for (int64_t x = 0; x <= (rows + 127) / 128; x++)
        ((int32_t *)mask->start)[x] = draw() % 3 ? draw() : draw() % (int32_t)(mask->entries + 1);
    for (int64_t x = 0; x < mask->entries; x++)
        ((int32_t *)mask->key)[x] = draw() % 3 ? draw() : draw() % 9;
    for (int64_t x = 0; x < rows; x++) {
        ((int32_t *)mask->first)[x] = draw();
        ((int32_t *)mask->last)[x] = draw();
    }
    const results once = run(z, rows, mask);
    compare("nonsense, twice", z, rows, once, run(z, rows, mask));
    ordo_block_mask_destroy(mask);
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    for (const bool f16 : { false, true })
        for (const int head_dim : { 64, 80, 128, 40 })
            for (const ordo_order order :
                 { ORDO_ORDER_DESCENDING, ORDO_ORDER_ASCENDING, ORDO_ORDER_SPT }) {
                if (f16 && order != ORDO_ORDER_DESCENDING)
                    continue;
                const setting causal = { head_dim, f16, order, 0.0, ORDO_MASK_CAUSAL, {}, {} };
                setting window = causal, dropped = causal;
                window.window = { true, 200, 70 };
                window.mask = ORDO_MASK_FULL;
                dropped.dropout = 0.3;
                check_band("causal", causal, 1000);
                check_band("causal", dropped, 1000);
                check_band("window", window, 1000);
                check_chunks(causal, 700);
                check_documents(causal, { 0, 384, 512, 1408, 1409 });
                check_nonsense(causal, 900);
            }
    return failed > 0;
}
