/* The backward pass of head sizes 129 to 256 on a device: against the oracle in f64, and bit for
 * bit against itself: again, on other grids, and each sequence alone.
 *
 * Passes are filled by hand, o and lse by the oracle: nothing here needs the forward kernels. With
 * the argument "time": how fast, in TFLOP/s of five products.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include <algorithm>

#include "case.h"
#include "cuda/wide/pass.h"
extern "C" {
#include "api/problem.h"
#include "base/half.h"
#include "ref/attention.h"
}

struct lengths {
    int q, kv;
};

struct wide_shape {
    std::vector<lengths> sequences; /* dense: alike */
    int heads, kv_heads, head_dim;
    ordo_mask mask = ORDO_MASK_CAUSAL;
    ordo_layout layout = ORDO_DENSE;
    bool f16 = false;
    int left = -2, right = -2; /* -2: no window */
    double softcap = 0, drop = 0;
    bool alibi = false, dlse = false, made = false; /* made: bits inside the kernels */
    ordo_order order = ORDO_ORDER_ASCENDING;
    int first = 0; /* id of the first sequence: the same inputs and bits */
};

static double random_of(uint32_t what, uint32_t sequence, uint32_t row, uint32_t head, uint32_t d)
{
    double sum = 0;
    uint32_t h =
        what * 0x9e3779b9u + sequence * 0x85ebca6bu + row * 0xc2b2ae35u + head * 0x27d4eb2fu + d;
    for (int n = 0; n < 4; n++) { /* near enough to a normal distribution */
        h = (h ^ h >> 16) * 0x7feb352du;
        h = (h ^ h >> 15) * 0x846ca68bu;
        h ^= h >> 16;
        sum += (double)(h >> 8) * 0x1p-24 - 0.5;
    }
    return sum * sqrt(3.0);
}

struct wide_case : device_memory {
    wide_shape z;
    ordo_problem p;
    ordo_cuda_pass pass;
    int batch, q_most = 0, kv_most = 0, q_total = 0, kv_total = 0;
    std::vector<int32_t> cu_q, cu_kv, q_lens, kv_lens;
    std::vector<int64_t> ids;
    std::vector<double> q, k, v, o, lse, dout, dlse, dq, dk, dv;
    std::vector<float> slopes;
    std::vector<uint16_t> got_dq, got_dk, got_dv;

    uint16_t round(double x) const
    {
        return z.f16 ? ordo_f16_from_f64(x) : ordo_bf16_from_f64(x);
    }

    double widen(uint16_t x) const
    {
        return z.f16 ? (double)ordo_f32_from_f16(x) : (double)ordo_f32_from_bf16(x);
    }

    ordo_cuda_tensor tensor(const std::vector<double> &from, bool keys)
    {
        std::vector<uint16_t> rounded(from.size());
        for (size_t i = 0; i < from.size(); i++)
            rounded[i] = round(from[i]);
        const int64_t row = (int64_t)(keys ? z.kv_heads : z.heads) * z.head_dim;
        const int64_t rows = keys ? kv_most : q_most;
        return { upload(rounded), z.layout == ORDO_PACKED ? 0 : rows * row, row, z.head_dim };
    }

    /* Rows of sequence b in memory begin here. */
    int64_t row_of(bool keys, int b) const
    {
        if (z.layout == ORDO_PACKED)
            return keys ? cu_kv[b] : cu_q[b];
        return (int64_t)b * (keys ? kv_most : q_most);
    }

    void fill(std::vector<double> &x, bool keys, uint32_t what, double scale)
    {
        const int heads = keys ? z.kv_heads : z.heads, D = z.head_dim;
        if (z.layout == ORDO_PADDED) /* padding may be anything */
            std::fill(x.begin(), x.end(), NAN);
        for (int b = 0; b < batch; b++)
            for (int row = 0; row < (keys ? z.sequences[b].kv : z.sequences[b].q); row++)
                for (int h = 0; h < heads; h++)
                    for (int d = 0; d < D; d++)
                        x[((row_of(keys, b) + row) * heads + h) * D + d] =
                            widen(round(scale * random_of(what, b + z.first, row, h, d)));
    }

    /* Of o, lse and dlse: what the oracle says, or what it said of `whole`, from sequence `at` on.
     */
    explicit wide_case(const wide_shape &shape, const wide_case *whole = NULL, int at = 0)
        : z(shape), batch((int)shape.sequences.size())
    {
        cu_q.push_back(0);
        cu_kv.push_back(0);
        for (const lengths &x : z.sequences) {
            q_most = std::max(q_most, x.q);
            kv_most = std::max(kv_most, x.kv);
            cu_q.push_back(q_total += x.q);
            cu_kv.push_back(kv_total += x.kv);
            q_lens.push_back(x.q);
            kv_lens.push_back(x.kv);
            ids.push_back(z.first + (int64_t)ids.size());
        }
        for (int h = 0; h < z.heads; h++)
            slopes.push_back(exp2f(-8.0f * (float)(h + 1) / (float)z.heads));
        describe();
        const size_t q_rows = z.layout == ORDO_PACKED ? q_total : (size_t)batch * q_most;
        const size_t kv_rows = z.layout == ORDO_PACKED ? kv_total : (size_t)batch * kv_most;
        for (std::vector<double> *x : { &q, &o, &dout, &dq })
            x->assign(q_rows * z.heads * z.head_dim, 0.0);
        for (std::vector<double> *x : { &k, &v, &dk, &dv })
            x->assign(kv_rows * z.kv_heads * z.head_dim, 0.0);
        lse.assign(q_rows * z.heads, 0.0);
        dlse.assign(q_rows * z.heads, 0.0);
        fill(q, false, 1, 1.0);
        fill(k, true, 2, 1.0);
        fill(v, true, 3, 1.0);
        fill(dout, false, 4, 1.0);
        if (z.dlse)
            for (size_t i = 0; i < dlse.size(); i++)
                dlse[i] = (double)(float)random_of(5, 0, (uint32_t)i, 0, 0);
        if (whole)
            repeat(*whole, at);
        else
            refer();
        make_pass();
    }

    void describe(void)
    {
        ordo_problem asked = ORDO_PROBLEM_INIT;
        asked.dtype = z.f16 ? ORDO_F16 : ORDO_BF16;
        asked.layout = z.layout;
        asked.batch = batch;
        asked.heads = z.heads;
        asked.kv_heads = z.kv_heads;
        asked.q_len = q_most;
        asked.kv_len = kv_most;
        if (z.layout == ORDO_PACKED) {
            asked.total_q = q_total;
            asked.total_kv = kv_total;
        }
        asked.head_dim = z.head_dim;
        asked.mask = z.mask;
        asked.softcap = z.softcap;
        asked.alibi = z.alibi;
        asked.dropout.p = z.drop;
        if (z.left > -2) {
            asked.window.on = true;
            asked.window.left = z.left;
            asked.window.right = z.right;
        }
        must_ordo(ordo_problem_resolve(&asked, &p), "problem");
    }

    void refer(void)
    {
        ordo_ref_call c = {};
        c.q = ordo_ref_array(&p, ORDO_REF_Q, q.data());
        c.k = ordo_ref_array(&p, ORDO_REF_K, k.data());
        c.v = ordo_ref_array(&p, ORDO_REF_V, v.data());
        c.o = ordo_ref_array(&p, ORDO_REF_O, o.data());
        c.lse = ordo_ref_array(&p, ORDO_REF_LSE, lse.data());
        c.dout = ordo_ref_array(&p, ORDO_REF_O, dout.data());
        if (z.dlse)
            c.dlse = ordo_ref_array(&p, ORDO_REF_LSE, dlse.data());
        c.dq = ordo_ref_array(&p, ORDO_REF_Q, dq.data());
        c.dk = ordo_ref_array(&p, ORDO_REF_K, dk.data());
        c.dv = ordo_ref_array(&p, ORDO_REF_V, dv.data());
        c.cu_q = cu_q.data();
        c.cu_kv = cu_kv.data();
        c.q_lens = q_lens.data();
        c.kv_lens = kv_lens.data();
        c.sequence_ids = ids.data();
        c.slopes = slopes.data();
        c.seed = 77;
        c.offset = 5;
        must_ordo(ordo_ref_forward_f64(&p, &c), "oracle");
        must_ordo(ordo_ref_backward_f64(&p, &c), "oracle");
    }

    /* Place of (sequence, head, row 0) in lse. */
    int64_t lse_of(int b, int head) const
    {
        return z.layout == ORDO_PACKED ? (int64_t)head * q_total + cu_q[b]
                                       : ((int64_t)b * z.heads + head) * q_most;
    }

    void repeat(const wide_case &whole, int at)
    {
        for (int b = 0; b < batch; b++) {
            const int64_t row = (int64_t)z.heads * z.head_dim, rows = z.sequences[b].q;
            std::copy_n(&whole.o[whole.row_of(false, at + b) * row], rows * row,
                        &o[row_of(false, b) * row]);
            for (int h = 0; h < z.heads; h++) {
                std::copy_n(&whole.lse[whole.lse_of(at + b, h)], rows, &lse[lse_of(b, h)]);
                std::copy_n(&whole.dlse[whole.lse_of(at + b, h)], rows, &dlse[lse_of(b, h)]);
            }
        }
    }

    ordo_cuda_sequence sequence(int b) const
    {
        ordo_cuda_sequence s = {};
        const bool packed = z.layout == ORDO_PACKED;
        s.q_len = z.sequences[b].q;
        s.kv_len = z.sequences[b].kv;
        s.q_row = packed ? cu_q[b] : 0;
        s.kv_row = packed ? cu_kv[b] : 0;
        s.batch = packed ? 0 : b;
        s.diagonal = z.mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : s.kv_len - s.q_len;
        s.low = z.left >= 0 ? s.diagonal - z.left : -ORDO_BAND_OPEN;
        s.high = z.mask == ORDO_MASK_FULL ? ORDO_BAND_OPEN : s.diagonal;
        if (z.right >= 0)
            s.high = std::min(s.high, s.diagonal + z.right);
        s.id = (uint32_t)(z.first + b);
        s.lse = packed ? cu_q[b] : (int64_t)b * z.heads * q_most;
        const int rows = packed ? s.q_len : q_most, keys = packed ? s.kv_len : kv_most;
        s.keep_across = (keys + 127) / 128;
        s.keep_head = (int64_t)((rows + 15) / 16) * s.keep_across;
        return s;
    }

    /* With what comes before, and the totals behind the last. */
    std::vector<ordo_cuda_sequence> table(void) const
    {
        std::vector<ordo_cuda_sequence> t;
        ordo_cuda_sequence sum = {};
        for (int b = 0; b <= batch; b++) {
            ordo_cuda_sequence s = b < batch ? sequence(b) : ordo_cuda_sequence();
            s.forward_tile = sum.forward_tile;
            s.query_tile = sum.query_tile;
            s.key_tile = sum.key_tile;
            s.keep = sum.keep;
            t.push_back(s);
            sum.forward_tile += (s.q_len + 127) / 128;
            sum.query_tile += (s.q_len + 63) / 64;
            sum.key_tile += (s.kv_len + 63) / 64;
            sum.keep += s.keep_head * z.heads;
        }
        return t;
    }

    void make_batch(void)
    {
        const std::vector<ordo_cuda_sequence> t = table();
        pass.batch.sequences = batch;
        pass.batch.tiles = t[batch].query_tile;
        pass.batch.lse_head = z.layout == ORDO_PACKED ? q_total : q_most;
        if (z.layout != ORDO_DENSE) {
            pass.batch.table = pass.table = upload(t);
            pass.ragged.cu_q = upload(cu_q);
            pass.ragged.cu_kv = upload(cu_kv);
            pass.ragged.q_lens = upload(q_lens);
            pass.ragged.kv_lens = upload(kv_lens);
            pass.ragged.ids = upload(ids);
            pass.ragged.forward_rows = 128;
            pass.ragged.backward_rows = pass.ragged.backward_keys = 64;
            pass.ragged.mask = z.mask;
            pass.ragged.left = std::max(z.left, -1);
            pass.ragged.right = std::max(z.right, -1);
            return;
        }
        pass.batch.first = t[0];
        pass.batch.step.batch = 1;
        pass.batch.step.id = 1;
        pass.batch.step.forward_tile = (q_most + 127) / 128;
        pass.batch.step.query_tile = (q_most + 63) / 64;
        pass.batch.step.key_tile = (kv_most + 63) / 64;
        pass.batch.step.keep = t[0].keep_head * z.heads;
        pass.batch.step.lse = (int64_t)z.heads * q_most;
    }

    void make_bits(void)
    {
        const std::vector<ordo_cuda_sequence> t = table();
        pass.keep = ordo_keep_of(&p.dropout, 77, 5);
        pass.keep_scale = (float)ordo_keep_scale(&p.dropout);
        pass.heads_total = z.heads;
        if (z.made)
            return;
        std::vector<uint32_t> words((size_t)t[batch].keep * 64, 0);
        for (int b = 0; b < batch; b++)
            for (int h = 0; h < z.heads; h++)
                for (int64_t at = 0; at < t[b].keep_head; at++)
                    for (uint32_t r = 0; r < 16; r++)
                        for (uint32_t quad = 0; quad < 4; quad++)
                            words[(t[b].keep + h * t[b].keep_head + at) * 64 +
                                  (r % 8 * 4 + quad) * 2 + r / 8] =
                                ordo_keep_word(&pass.keep, t[b].id * z.heads + h,
                                               (uint32_t)(at / t[b].keep_across * 16) + r,
                                               (uint32_t)(at % t[b].keep_across), quad);
        pass.keep_bits = upload(words);
    }

    void make_pass(void)
    {
        memset(&pass, 0, sizeof pass);
        const ordo_cuda_sequence s = sequence(0);
        pass.run.band = { q_most, kv_most, 64, 64, s.low, s.high };
        pass.run.sequences = batch;
        pass.run.kv_heads = z.kv_heads;
        pass.run.group_heads = z.heads / z.kv_heads;
        pass.run.order = z.order;
        pass.run.group = pass.run.section = 1;
        pass.run.workers = 132;
        pass.layout = (ordo_layout)z.layout;
        pass.head_dim = z.head_dim;
        pass.bucket = 256;
        pass.f16 = z.f16;
        pass.scale = (float)p.scale;
        pass.softcap = (float)z.softcap;
        pass.slopes = z.alibi ? upload(slopes) : NULL;
        pass.q = tensor(q, false);
        pass.o = tensor(o, false);
        pass.dout = tensor(dout, false);
        pass.k = tensor(k, true);
        pass.v = tensor(v, true);
        pass.dq = tensor(dq, false);
        pass.dk = tensor(dk, true);
        pass.dv = tensor(dv, true);
        pass.q_rows = z.layout == ORDO_PACKED ? q_total : q_most;
        pass.kv_rows = z.layout == ORDO_PACKED ? kv_total : kv_most;
        pass.lse = upload(std::vector<float>(lse.begin(), lse.end()));
        if (z.dlse)
            pass.dlse = upload(std::vector<float>(dlse.begin(), dlse.end()));
        make_batch();
        if (z.drop > 0)
            make_bits();
        const size_t tiles = (size_t)pass.batch.tiles * z.heads;
        pass.ticket = take<int32_t>(64);
        pass.turns = take<int32_t>(tiles);
        pass.delta = take<float>(tiles * 64);
        pass.lse2 = take<float>(tiles * 64);
    }

    void run(int workers)
    {
        char why[300] = "";
        pass.run.workers = workers;
        MUST(cudaMemset(pass.dq.data, 0xff, dq.size() * 2)); /* poison: NaN */
        MUST(cudaMemset(pass.dk.data, 0xff, dk.size() * 2));
        MUST(cudaMemset(pass.dv.data, 0xff, dv.size() * 2));
        must_ordo(ordo_sm90_backward_wide(&pass, why, sizeof why), why);
        MUST(cudaDeviceSynchronize());
        got_dq = case_download((uint16_t *)pass.dq.data, dq.size());
        got_dk = case_download((uint16_t *)pass.dk.data, dk.size());
        got_dv = case_download((uint16_t *)pass.dv.data, dv.size());
    }
};

static int passed, failed;

/* Of the valid rows: those past a padded sequence's end are another kernel's. */
static double error_of(const wide_case &c, const std::vector<uint16_t> &got,
                       const std::vector<double> &want, bool keys)
{
    const int64_t row = (int64_t)(keys ? c.z.kv_heads : c.z.heads) * c.z.head_dim;
    double error = 0, size = 0;
    for (int b = 0; b < c.batch; b++) {
        const int64_t begin = c.row_of(keys, b) * row;
        const int64_t end = begin + (keys ? c.z.sequences[b].kv : c.z.sequences[b].q) * row;
        for (int64_t i = begin; i < end; i++) {
            const double d = c.widen(got[i]) - want[i];
            error += d == d ? d * d : INFINITY;
            size += want[i] * want[i] + 1e-2;
        }
    }
    return size > 0 ? sqrt(error / size) : 0;
}

static bool same_rows(const wide_case &a, int a_at, const wide_case &b, int b_at)
{
    const lengths n = a.z.sequences[a_at];
    auto same = [&](const std::vector<uint16_t> &x, const std::vector<uint16_t> &y, bool keys) {
        const int64_t row = (int64_t)(keys ? a.z.kv_heads : a.z.heads) * a.z.head_dim;
        const size_t count = (keys ? n.kv : n.q) * row * 2;
        return count == 0 ||
               !memcmp(&x[a.row_of(keys, a_at) * row], &y[b.row_of(keys, b_at) * row], count);
    };
    return same(a.got_dq, b.got_dq, false) && same(a.got_dk, b.got_dk, true) &&
           same(a.got_dv, b.got_dv, true);
}

static bool same_all(const wide_case &a, const wide_case &b)
{
    bool same = true;
    for (int s = 0; s < a.batch; s++)
        same = same && same_rows(a, s, b, s);
    return same;
}

static void check(const char *name, const wide_shape &z)
{
    printf("%s: ", name); /* before anything can hang */
    fflush(stdout);
    wide_case c(z);
    c.run(132);
    const double dq = error_of(c, c.got_dq, c.dq, false), dk = error_of(c, c.got_dk, c.dk, true);
    const double dv = error_of(c, c.got_dv, c.dv, true);
    const double most = z.f16 ? 2e-3 : 1e-2;
    wide_case first = c; /* what it wrote; its memory is the other's */
    first.owned.clear();
    bool same = true, alone = true;
    for (const int workers : { 132, 32, 1 }) {
        c.run(workers);
        same = same && same_all(first, c);
    }
    if (z.drop > 0) { /* bits given or made: the same */
        wide_shape other = z;
        other.made = !z.made;
        wide_case d(other, &c);
        d.run(132);
        same = same && same_all(first, d);
    }
    for (int b = 0; c.batch > 1 && b < c.batch; b++) {
        wide_shape one = z;
        if (z.sequences[b].q == 0 || z.sequences[b].kv == 0)
            continue;
        one.sequences = { z.sequences[b] };
        one.layout = ORDO_DENSE;
        one.first = z.first + b;
        wide_case d(one, &c, b);
        d.run(132);
        alone = alone && same_rows(c, b, d, 0);
    }
    const bool ok = dq < most && dk < most && dv < most && same && alone;
    passed += ok;
    failed += !ok;
    printf("%s %s dim %d heads %d/%d: dq %.2e dk %.2e dv %.2e%s%s\n", ok ? "ok" : "FAIL",
           z.f16 ? "f16" : "bf16", z.head_dim, z.heads, z.kv_heads, dq, dk, dv,
           same ? "" : ", OTHER BITS", alone ? "" : ", OTHER BITS ALONE");
    fflush(stdout);
}

static void check_all(void)
{
    const std::vector<lengths> square = { { 192, 192 } };
    for (const int dim : { 256, 136, 160, 192, 200 })
        for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL })
            for (const bool f16 : { false, true }) {
                wide_shape z = { square, 2, 2, dim, mask };
                z.f16 = f16;
                check(mask == ORDO_MASK_FULL ? "full" : "causal", z);
            }
    const std::vector<lengths> odd = { { 177, 333 }, { 177, 333 } };
    check("odd full", { odd, 2, 2, 256, ORDO_MASK_FULL });
    check("odd causal", { odd, 3, 1, 256, ORDO_MASK_CAUSAL });
    check("odd top-left", { { { 333, 100 } }, 4, 2, 192, ORDO_MASK_CAUSAL_TOP_LEFT });
    check("tall", { { { 300, 77 } }, 2, 1, 256, ORDO_MASK_CAUSAL });
    check("one", { { { 1, 1 } }, 1, 1, 256, ORDO_MASK_CAUSAL });
    for (const bool f16 : { false, true }) {
        wide_shape z = { { { 260, 260 }, { 260, 260 } }, 2, 1, 256 };
        z.f16 = f16;
        z.left = 70;
        z.right = 0;
        check("window", z);
        z.mask = ORDO_MASK_FULL;
        z.right = 33;
        check("window both", z);
        z.left = z.right = -2;
        z.order = ORDO_ORDER_DESCENDING;
        check("descending", z);
        z.softcap = 2;
        check("softcap", z);
        z.alibi = true;
        z.mask = ORDO_MASK_CAUSAL;
        check("softcap alibi", z);
        z.softcap = 0;
        check("alibi", z);
        z.dlse = true;
        check("alibi dlse", z);
        z.drop = 0.2;
        z.made = true;
        check("alibi dlse dropout", z);
        z.alibi = z.dlse = false;
        check("dropout", z);
        z.left = 100;
        z.right = -1;
        z.softcap = 3;
        check("dropout window softcap", z);
        const std::vector<lengths> ragged = { { 100, 100 }, { 1, 200 },  { 0, 70 },   { 65, 0 },
                                              { 130, 64 },  { 64, 130 }, { 257, 257 } };
        for (const ordo_layout layout : { ORDO_PACKED, ORDO_PADDED }) {
            wide_shape r = { ragged, 2, 1, 256 };
            r.f16 = f16;
            r.layout = layout;
            check(layout == ORDO_PACKED ? "packed" : "padded", r);
            r.mask = ORDO_MASK_FULL;
            r.head_dim = 200;
            check("ragged full", r);
            r.mask = ORDO_MASK_CAUSAL;
            r.left = 50;
            r.right = -1;
            r.drop = 0.1;
            check("ragged window dropout", r);
        }
    }
}

static void time_one(ordo_mask mask, int seq, bool dropped)
{
    const int heads = 8, D = 256, batch = 16384 / seq;
    const size_t count = (size_t)16384 * heads * D;
    device_memory memory;
    auto tensor = [&](uint32_t seed) {
        bf16 *const x = memory.take<bf16>(count);
        case_fill<<<1024, 256>>>(x, count, seed, 1.0f);
        return ordo_cuda_tensor { x, (int64_t)seq * heads * D, heads * D, D };
    };
    auto array = [&](size_t words, uint32_t value) -> void * {
        return memory.upload(std::vector<uint32_t>(words, value));
    };
    ordo_cuda_pass pass;
    memset(&pass, 0, sizeof pass);
    const int high = mask == ORDO_MASK_FULL ? (int)ORDO_BAND_OPEN : 0;
    pass.run.band = { seq, seq, 64, 64, -ORDO_BAND_OPEN, high };
    pass.run.sequences = pass.batch.sequences = batch;
    pass.run.kv_heads = heads;
    pass.run.group_heads = 1;
    pass.run.order = ORDO_ORDER_ASCENDING;
    pass.run.group = pass.run.section = 1;
    pass.run.workers = 132;
    pass.head_dim = pass.bucket = D;
    pass.scale = 1.0f / 16.0f;
    pass.q = tensor(1);
    pass.k = tensor(2);
    pass.v = tensor(3);
    pass.dout = tensor(4);
    pass.o = tensor(5);
    pass.dq = tensor(6);
    pass.dk = tensor(7);
    pass.dv = tensor(8);
    pass.q_rows = pass.kv_rows = seq;
    const float lse = logf((float)seq) + 0.5f;
    uint32_t lse_bits;
    memcpy(&lse_bits, &lse, 4);
    pass.lse = (float *)array((size_t)16384 * heads, lse_bits);
    ordo_cuda_sequence &first = pass.batch.first, &step = pass.batch.step;
    first.q_len = first.kv_len = seq;
    first.low = -ORDO_BAND_OPEN;
    first.high = high;
    first.keep_across = seq / 128;
    first.keep_head = (int64_t)seq / 16 * first.keep_across;
    step.batch = 1;
    step.id = 1;
    step.query_tile = step.key_tile = seq / 64;
    step.lse = (int64_t)heads * seq;
    pass.batch.tiles = 16384 / 64;
    pass.batch.lse_head = seq;
    const size_t rows = (size_t)16384 * heads;
    pass.ticket = (int32_t *)array(64, 0);
    pass.turns = (int32_t *)array(rows / 64, 0);
    pass.delta = (float *)array(rows, 0);
    pass.lse2 = (float *)array(rows, 0);
    if (dropped) {
        const ordo_dropout d = { 0.1, 7, 8, ORDO_KEYING_ORDO };
        pass.keep = ordo_keep_of(&d, 1, 0);
        pass.keep_scale = (float)ordo_keep_scale(&d);
        pass.heads_total = heads;
    }
    uint8_t *const flush = memory.take<uint8_t>(256 << 20);
    cudaEvent_t from, to;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    std::vector<float> times;
    char why[300] = "";
    for (int n = 0; n < 24; n++) {
        MUST(cudaMemsetAsync(flush, n, 256 << 20));
        MUST(cudaEventRecord(from));
        must_ordo(ordo_sm90_backward_wide(&pass, why, sizeof why), why);
        MUST(cudaEventRecord(to));
        MUST(cudaEventSynchronize(to));
        float ms;
        MUST(cudaEventElapsedTime(&ms, from, to));
        if (n >= 4)
            times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    const float ms = times[times.size() / 2];
    const double flops = 10.0 * seq * seq * D * heads * batch * (mask == ORDO_MASK_FULL ? 1 : 0.5);
    printf("%-6s S %5d B %d H %d D %d%s: %.3f ms (%.3f .. %.3f), %.0f TFLOP/s\n",
           ordo_mask_name(mask), seq, batch, heads, D, dropped ? " dropout inside" : "", ms,
           times.front(), times.back(), flops / ms * 1e-9);
    fflush(stdout);
    MUST(cudaEventDestroy(from));
    MUST(cudaEventDestroy(to));
}

int main(int argc, char **argv)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "time")) {
        for (const ordo_mask mask : { ORDO_MASK_CAUSAL, ORDO_MASK_FULL })
            for (const int seq : { 4096, 8192, 16384 })
                time_one(mask, seq, false);
        time_one(ORDO_MASK_CAUSAL, 8192, true);
        return 0;
    }
    check_all();
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
