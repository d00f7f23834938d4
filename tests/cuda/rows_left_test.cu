/* Packed batches whose ends leave rows to no sequence: before the first, between two, behind the
 * last, past the longest length, or because ends decrease. What lies there in the inputs is NaN.
 * Those rows get o = 0, lse = -inf and gradients 0; all others get the bits that they have in a
 * batch of the same sequences end to end. Without a device of compute capability 9.0: compiled, and
 * skipped. */
#include "handmade_call.h"
#include "host_table.h"

enum { HEADS = 4, KV_HEADS = 2 };

struct setting {
    int head_dim;
    bool f16;
    ordo_mask mask;
    int longest; /* as the problem says */
};

/* A packed tensor's second dimension: for each row the number whose values it has; -1: NaN. */
typedef std::vector<int> row_numbers;

struct packed_batch {
    std::vector<int32_t> cu_q, cu_kv;
    row_numbers q, kv;
};

/* What depends on tensor, row, head and column alone. */
static std::vector<uint16_t> values(const setting &z, uint32_t tensor, const row_numbers &rows,
                                    int heads)
{
    std::vector<uint16_t> x;
    for (const int row : rows)
        for (int h = 0; h < heads; h++)
            for (int d = 0; d < z.head_dim; d++) {
                const ordo_philox_words place = { { tensor, (uint32_t)row, (uint32_t)h,
                                                    (uint32_t)d } };
                const uint32_t drawn = ordo_philox(place, 1, 2, 7).w[0];
                const float value = row < 0 ? NAN : (float)(int32_t)drawn * 0x1p-30f;
                x.push_back(z.f16 ? ordo_f16_from_f32(value) : ordo_bf16_from_f32(value));
            }
    return x;
}

/* Both passes; the results are then on the host. */
static void run(const setting &z, const packed_batch &b, two_sided &t)
{
    ordo_problem &p = t.p;
    p.dtype = z.f16 ? ORDO_F16 : ORDO_BF16;
    p.layout = ORDO_PACKED;
    p.batch = (int64_t)b.cu_q.size() - 1;
    p.heads = HEADS;
    p.kv_heads = KV_HEADS;
    p.q_len = p.kv_len = z.longest;
    p.total_q = (int64_t)b.q.size();
    p.total_kv = (int64_t)b.kv.size();
    p.head_dim = z.head_dim;
    p.mask = z.mask;
    t.cu_q = b.cu_q, t.cu_kv = b.cu_kv;
    t.q = values(z, 1, b.q, HEADS), t.k = values(z, 2, b.kv, KV_HEADS);
    t.v = values(z, 3, b.kv, KV_HEADS), t.dout = values(z, 4, b.q, HEADS);
    t.o = t.dq = t.q;
    t.dk = t.dv = t.k;
    t.lse.assign(b.q.size() * HEADS, NAN);
    make_plan(t, ORDO_ORDER_DEFAULT);
    const ordo_call call = device_call(t, false);
    const ordo_cuda_pass forward = make_pass(t, ORDO_FORWARD, call);
    const ordo_cuda_pass backward = make_pass(t, ORDO_BACKWARD, call);
    must_ordo(ordo_cuda_launch_forward(&forward, NULL), ordo_cuda_why());
    must_ordo(ordo_cuda_launch_backward(&backward), ordo_cuda_why());
    MUST(cudaDeviceSynchronize());
    t.o = case_download((uint16_t *)call.o.data, t.o.size());
    t.dq = case_download((uint16_t *)call.dq.data, t.dq.size());
    t.dk = case_download((uint16_t *)call.dk.data, t.dk.size());
    t.dv = case_download((uint16_t *)call.dv.data, t.dv.size());
    t.lse = case_download(call.lse, t.lse.size());
}

/* Rows of `got` at which a tensor differs from the row of `want` that has the same number, or from
 * zeros. */
static size_t differing(const std::vector<uint16_t> &got, const row_numbers &rows,
                        const std::vector<uint16_t> &want, size_t width)
{
    const std::vector<uint16_t> zeros(width, 0);
    size_t wrong = 0;
    for (size_t r = 0; r < rows.size(); r++) {
        const uint16_t *expected = rows[r] < 0 ? zeros.data() : want.data() + rows[r] * width;
        wrong += memcmp(got.data() + r * width, expected, width * 2) != 0;
    }
    return wrong;
}

static size_t lse_differing(const two_sided &got, const row_numbers &rows, const two_sided &want,
                            size_t want_rows)
{
    size_t wrong = 0;
    for (size_t h = 0; h < HEADS; h++)
        for (size_t r = 0; r < rows.size(); r++) {
            const float expected = rows[r] < 0 ? -INFINITY : want.lse[h * want_rows + rows[r]];
            wrong += got.lse[h * rows.size() + r] != expected;
        }
    return wrong;
}

/* Number the rows of clamped sequences one after the other; the same sequences end to end. */
static packed_batch number_rows(const setting &z, packed_batch &b)
{
    packed_batch tight = { { 0 }, { 0 }, {}, {} };
    ordo_cuda_pass pass = {};
    std::vector<ordo_cuda_sequence> table(b.cu_q.size());
    pass.layout = ORDO_PACKED;
    pass.run.band.q_len = pass.run.band.kv_len = z.longest;
    pass.run.kv_heads = pass.run.group_heads = 1;
    pass.batch.sequences = (int32_t)table.size() - 1;
    pass.q_rows = (int64_t)b.q.size();
    pass.kv_rows = (int64_t)b.kv.size();
    pass.ragged.cu_q = b.cu_q.data();
    pass.ragged.cu_kv = b.cu_kv.data();
    pass.ragged.forward_rows = pass.ragged.backward_rows = pass.ragged.backward_keys = 64;
    host_table(&pass, table.data());
    for (int32_t s = 0; s < pass.batch.sequences; s++) {
        for (int32_t r = 0; r < table[s].q_len; r++) {
            b.q[table[s].q_row + r] = (int)tight.q.size();
            tight.q.push_back((int)tight.q.size());
        }
        for (int32_t r = 0; r < table[s].kv_len; r++) {
            b.kv[table[s].kv_row + r] = (int)tight.kv.size();
            tight.kv.push_back((int)tight.kv.size());
        }
        tight.cu_q.push_back((int32_t)tight.q.size());
        tight.cu_kv.push_back((int32_t)tight.kv.size());
    }
    return tight;
}

static void check(const char *what, const setting &z, std::vector<int32_t> cu_q,
                  std::vector<int32_t> cu_kv, int total)
{
    packed_batch b = { cu_q, cu_kv, row_numbers(total, -1), row_numbers(total, -1) };
    const packed_batch tight = number_rows(z, b);
    two_sided want, got;
    run(z, tight, want);
    run(z, b, got);
    const size_t row = (size_t)HEADS * z.head_dim, kv_row = (size_t)KV_HEADS * z.head_dim;
    const size_t o = differing(got.o, b.q, want.o, row), dq = differing(got.dq, b.q, want.dq, row);
    const size_t dk = differing(got.dk, b.kv, want.dk, kv_row);
    const size_t dv = differing(got.dv, b.kv, want.dv, kv_row);
    const size_t lse = lse_differing(got, b.q, want, tight.q.size());
    verdict(!o && !lse && !dq && !dk && !dv,
            "%s, %s head size %d, %zu of %d rows: wrong o %zu lse %zu dq %zu dk %zu dv %zu", what,
            z.f16 ? "f16" : "bf16", z.head_dim, tight.q.size(), total, o, lse, dq, dk, dv);
}

/* More sequences than a block has threads, with a gap after each. */
static void check_many(const setting &z)
{
    std::vector<int32_t> ends(1, 3);
    for (int s = 0; s < 700; s++) /* every other one is empty, and a gap is what is too long */
        ends.push_back(ends.back() + (s % 2 ? 0 : 5 + s % 11));
    check("700 sequences", z, ends, ends, ends.back() + 17);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    for (const bool f16 : { false, true })
        for (const int head_dim : { 64, 80, 128, 256 }) {
            const setting z = { head_dim, f16, ORDO_MASK_CAUSAL, 200 };
            check("a tail", z, { 0, 100, 250, 250, 260 }, { 0, 90, 200, 210, 333 }, 500);
            check("a gap in front", z, { 40, 100, 250, 390 }, { 7, 60, 200, 390 }, 390);
            check("too long", z, { 0, 300, 420, 590 }, { 0, 150, 390, 590 }, 590);
            check("decreasing", z, { 0, 200, 100, 300, -5, 999 }, { 0, 100, 90, 300, 200, 450 },
                  600);
            check_many({ head_dim, f16, ORDO_MASK_FULL, 10 });
        }
    return report_all();
}
