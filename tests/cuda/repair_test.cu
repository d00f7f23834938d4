/* What surrounds the tuned kernels, without them: with every output NaN and the flag raised, the
 * repair computes a whole pass by itself, over the table and the clears of sequences.cu. Held
 * against the definition (src/ref) for every layout, mask, type, score rule and way of dropping;
 * and the table against the host's, for lengths that make sense and lengths that do not.
 *
 * repair_test [seed]. Without a device of compute capability 9.0: compiled, and skipped. */
#include "cuda/support/around.h"
#include "handmade_call.h"
#include "host_table.h"
extern "C" {
#include "ref/attention.h"
}

static void draw_lengths(dice &d, two_sided &t)
{
    const ordo_problem &p = t.p;
    if (p.layout == ORDO_DENSE)
        return;
    std::vector<int32_t> q(p.batch), kv(p.batch);
    for (int b = 0; b < p.batch; b++) {
        q[b] = d.to(6) ? d.to((int)p.q_len) : 0;
        kv[b] = d.to(6) ? d.to((int)p.kv_len) : 0;
        if (b == 0)
            q[b] = 1 + d.to((int)p.q_len - 1), kv[b] = 1 + d.to((int)p.kv_len - 1);
    }
    set_lengths(t, q, kv);
}

static void draw_dropout(dice &d, two_sided &t)
{
    ordo_problem &p = t.p;
    const int way = d.to(3); /* none, given, inside, inside with ids */
    if (way == 0)
        return;
    p.dropout.p = d.to(1) ? 0.1 : 0.17;
    p.dropout.rounds = d.to(1) ? 7 : 10;
    p.dropout.bits = d.to(2) ? 8 : 5;
    p.dropout.keying = way == 1 && d.to(2) == 0 ? ORDO_KEYING_FA2 : ORDO_KEYING_ORDO;
    if (p.dropout.keying == ORDO_KEYING_FA2)
        p.dropout.rounds = 7, p.dropout.bits = 8;
    p.shard.heads_total = 3 * p.heads, p.shard.head0 = p.heads, p.shard.batch0 = 5;
    t.seed = d.next(), t.offset = d.next() % 1000;
    for (int b = 0; b < p.batch && way != 2; b++)
        t.ids.push_back(d.to(100000));
    if (way == 1)
        give_bits(t);
}

static void draw_problem(dice &d, two_sided &t)
{
    static const int sizes[] = { 8, 40, 64, 96, 128, 136, 192, 256 };
    ordo_problem &p = t.p;
    p.dtype = d.to(1) ? ORDO_BF16 : ORDO_F16;
    p.layout = (ordo_layout)d.to(2);
    p.batch = 1 + d.to(3);
    p.kv_heads = 1 + d.to(1);
    p.heads = p.kv_heads * (1 + d.to(2));
    p.q_len = 1 + d.to(150);
    p.kv_len = 1 + d.to(150);
    p.head_dim = sizes[d.to(7)];
    p.mask = (ordo_mask)d.to(2);
    if (d.to(1))
        p.window = { true, d.to(60) - 1, p.mask == ORDO_MASK_FULL ? d.to(60) - 1 : 0 };
    p.softcap = d.to(2) ? 0 : 0.5;
    p.alibi = d.to(2) == 0;
    if (p.layout == ORDO_DENSE && d.to(1)) {
        p.shard.row0 = 16 * d.to(4), p.shard.col0 = 128 * d.to(1);
        p.shard.q_total = p.shard.row0 + p.q_len + d.to(50);
        p.shard.kv_total = p.shard.col0 + p.kv_len + d.to(50);
    }
    draw_lengths(d, t);
    draw_dropout(d, t);
    if (p.alibi)
        for (int64_t x = 0; x < p.batch * p.heads; x++)
            t.slopes.push_back(0.01f * (float)d.to(10));
}

/* ---- comparing ---- */

static size_t differing(const two_sided &t, const std::vector<uint16_t> &want, const void *from)
{
    const std::vector<uint16_t> got = case_download((const uint16_t *)from, want.size());
    const bool f16 = t.p.dtype == ORDO_F16;
    size_t wrong = 0;
    for (size_t x = 0; x < want.size(); x++) {
        const float a = f16 ? ordo_f32_from_f16(got[x]) : ordo_f32_from_bf16(got[x]);
        const float b = f16 ? ordo_f32_from_f16(want[x]) : ordo_f32_from_bf16(want[x]);
        wrong += !(fabsf(a - b) <= (f16 ? 0.002f : 0.016f) * fabsf(b) + 2e-5f);
    }
    return wrong;
}

static size_t lse_differing(const std::vector<float> &want, const float *from)
{
    const std::vector<float> got = case_download(from, want.size());
    size_t wrong = 0;
    for (size_t x = 0; x < want.size(); x++)
        wrong += want[x] == -INFINITY ? got[x] != -INFINITY
                                      : !(fabsf(got[x] - want[x]) <= 3e-6f * (1 + fabsf(want[x])));
    return wrong;
}

static void describe(const two_sided &t, char *text, size_t size)
{
    const ordo_problem &p = t.p;
    snprintf(text, size,
             "%s %s batch %d heads %d/%d %dx%d dim %d %s window %d,%d,%d softcap %g alibi %d "
             "dropout %g %s%s dlse %d shard %d,%d",
             ordo_dtype_name(p.dtype), ordo_layout_name(p.layout), (int)p.batch, (int)p.heads,
             (int)p.kv_heads, (int)p.q_len, (int)p.kv_len, (int)p.head_dim, ordo_mask_name(p.mask),
             (int)p.window.on, (int)p.window.left, (int)p.window.right, p.softcap, (int)p.alibi,
             p.dropout.p, t.words.empty() ? "inside" : "given", t.ids.empty() ? "" : ", ids",
             !t.dlse.empty(), (int)p.shard.row0, (int)p.shard.col0);
}

/* ---- carried sums ---- */

/* Sums after a pass that repaired every row: what came in, and the gradient before its factor. Rows
 * that belong to no sequence stay. */
static size_t sums_differing(const two_sided &t, const std::vector<float> &in,
                             const std::vector<uint16_t> &want, const float *from, float factor)
{
    const std::vector<float> got = case_download(from, in.size());
    const bool f16 = t.p.dtype == ORDO_F16;
    size_t wrong = 0;
    for (size_t x = 0; x < in.size(); x++) {
        const float b = f16 ? ordo_f32_from_f16(want[x]) : ordo_f32_from_bf16(want[x]);
        const float a = (got[x] - in[x]) * factor;
        wrong += !(fabsf(a - b) <= (f16 ? 0.002f : 0.016f) * fabsf(b) + 2e-5f + 1e-6f * factor);
    }
    return wrong;
}

/* A backward pass with sums in and out, all of whose rows are marked as broken: the workspace is
 * full of ones. */
static size_t check_carried(two_sided &t, dice &d)
{
    ordo_call device = device_call(t, true);
    ordo_cuda_pass pass;
    const int one = 1;
    std::vector<float> dk(t.dk.size()), dv(t.dv.size());
    for (size_t x = 0; x < dk.size(); x++)
        dk[x] = d.about_one(), dv[x] = d.about_one();
    device.dk_sums = t.up(dk), device.dv_sums = t.up(dv);
    device.carry = 0u | ORDO_CARRY_IN | ORDO_CARRY_OUT;
    device.dq.data = device.dk.data = device.dv.data = NULL;
    pass = make_pass(t, ORDO_BACKWARD, device);
    must_ordo(ordo_cuda_sequences(&pass, 0), ordo_cuda_why());
    MUST(cudaMemcpy(pass.ticket + ORDO_NOT_FINITE, &one, sizeof one, cudaMemcpyHostToDevice));
    must_ordo(ordo_cuda_clear_backward(&pass), ordo_cuda_why());
    must_ordo(ordo_repair_backward(&pass), ordo_cuda_why());
    MUST(cudaDeviceSynchronize());
    return sums_differing(t, dk, t.dk, device.dk_sums, ordo_pass_dk_scale(&pass)) +
           sums_differing(t, dv, t.dv, device.dv_sums, ordo_pass_dv_scale(&pass));
}

/* ---- whole passes ---- */

static void check_pass(uint32_t seed)
{
    two_sided t;
    dice d = { seed, 0 };
    ordo_cuda_pass pass;
    char text[400];
    const int one = 1;
    draw_problem(d, t);
    draw_tensors(d, t);
    make_plan(t, ORDO_ORDER_DEFAULT);
    describe(t, text, sizeof text);

    ordo_call host = host_call(t), device = device_call(t, false);
    must_ordo(ordo_ref_forward(&t.plan->problem, &host), "ref");
    pass = make_pass(t, ORDO_FORWARD, device);
    must_ordo(ordo_cuda_sequences(&pass, 0), ordo_cuda_why());
    MUST(cudaMemcpy(pass.ticket + ORDO_NOT_FINITE, &one, sizeof one, cudaMemcpyHostToDevice));
    must_ordo(ordo_cuda_clear_forward(&pass), ordo_cuda_why());
    must_ordo(ordo_repair_forward(&pass, NULL), ordo_cuda_why());
    MUST(cudaDeviceSynchronize());
    const size_t o = differing(t, t.o, device.o.data), lse = lse_differing(t.lse, device.lse);

    device = device_call(t, true);
    must_ordo(ordo_ref_backward(&t.plan->problem, &host), "ref");
    pass = make_pass(t, ORDO_BACKWARD, device);
    must_ordo(ordo_cuda_sequences(&pass, 0), ordo_cuda_why());
    MUST(cudaMemcpy(pass.ticket + ORDO_NOT_FINITE, &one, sizeof one, cudaMemcpyHostToDevice));
    must_ordo(ordo_cuda_clear_backward(&pass), ordo_cuda_why());
    must_ordo(ordo_repair_backward(&pass), ordo_cuda_why());
    MUST(cudaDeviceSynchronize());
    const size_t dq = differing(t, t.dq, device.dq.data), dk = differing(t, t.dk, device.dk.data);
    const size_t dv = differing(t, t.dv, device.dv.data);
    const size_t carried = check_carried(t, d);
    verdict(!o && !lse && !dq && !dk && !dv && !carried,
            "seed %u: %s: o %zu/%zu lse %zu/%zu dq %zu dk %zu/%zu dv %zu carried %zu", seed, text,
            o, t.o.size(), lse, t.lse.size(), dq, dk, t.dk.size(), dv, carried);
}

/* ---- tables ---- */

static std::vector<int32_t> draw_numbers(dice &d, int count, int kind, bool ends)
{
    std::vector<int32_t> x(count);
    int32_t sum = 0;
    for (int32_t &e : x) {
        e = kind == 2 ? (int32_t)d.next() : kind == 1 ? d.to(4000) - 500 : sum;
        sum += d.to(3) ? d.to(100) : 0;
        if (kind == 0 && !ends)
            e = d.to(300);
    }
    return x;
}

static void check_table(dice &d, int batch, bool packed, int kind)
{
    ordo_cuda_pass pass;
    memset(&pass, 0, sizeof pass);
    const std::vector<int32_t> q = draw_numbers(d, batch + 1, kind, packed);
    const std::vector<int32_t> kv = draw_numbers(d, batch + 1, kind, packed);
    two_sided memory;
    pass.layout = packed ? ORDO_PACKED : ORDO_PADDED;
    pass.run.kv_heads = 2, pass.run.group_heads = 3;
    pass.run.band.q_len = 300, pass.run.band.kv_len = 310;
    pass.batch.sequences = batch;
    pass.q_rows = packed ? 60 * batch : 300, pass.kv_rows = packed ? 55 * batch : 310;
    pass.ragged.forward_rows = 128, pass.ragged.backward_rows = 64, pass.ragged.backward_keys = 96;
    pass.ragged.mask = ORDO_MASK_CAUSAL, pass.ragged.left = 20, pass.ragged.right = -1;
    pass.ragged.batch0 = 3;
    (packed ? pass.ragged.cu_q : pass.ragged.q_lens) = q.data();
    (packed ? pass.ragged.cu_kv : pass.ragged.kv_lens) = kv.data();
    std::vector<ordo_cuda_sequence> want(batch + 1);
    memset(want.data(), 0, want.size() * sizeof want[0]); /* what lies between members, too */
    host_table(&pass, want.data());
    (packed ? pass.ragged.cu_q : pass.ragged.q_lens) = memory.up(q);
    (packed ? pass.ragged.cu_kv : pass.ragged.kv_lens) = memory.up(kv);
    pass.table = memory.up(std::vector<ordo_cuda_sequence>(batch + 1));
    must_ordo(ordo_cuda_sequences(&pass, 0), ordo_cuda_why());
    const std::vector<ordo_cuda_sequence> got = case_download(pass.table, batch + 1);
    int wrong = 0;
    for (int b = 0; b <= batch; b++) {
        const ordo_cuda_sequence &x = got[b], &y = want[b];
        wrong += x.q_len != y.q_len || x.kv_len != y.kv_len || x.q_row != y.q_row ||
                 x.kv_row != y.kv_row || x.batch != y.batch || x.low != y.low || x.high != y.high ||
                 x.diagonal != y.diagonal || x.id != y.id || x.forward_tile != y.forward_tile ||
                 x.query_tile != y.query_tile || x.key_tile != y.key_tile ||
                 x.keep_across != y.keep_across || x.keep != y.keep || x.keep_head != y.keep_head ||
                 x.lse != y.lse;
    }
    verdict(wrong == 0, "table of %d %s, kind %d: %d entries differ", batch,
            packed ? "packed" : "padded", kind, wrong);
}

int main(int count, char **words)
{
    if (device_is_missing())
        return 77;
    const uint32_t seed = count > 1 ? (uint32_t)strtoul(words[1], NULL, 10) : 1;
    dice d = { seed, 0 };
    for (const int batch : { 1, 2, 31, 32, 33, 1023, 1024, 1025, 5000 })
        for (int packed = 0; packed < 2; packed++)
            for (int kind = 0; kind < 3; kind++)
                check_table(d, batch, packed, kind);
    for (uint32_t x = 0; x < 300; x++)
        check_pass(seed * 100000 + x);
    return report_all();
}
