/* A backward pass in parts of its rows, each continuing the f32 sums of dk and dv of the part
 * before it, has the bits of one pass: for every kernel (head sizes up to 64, 128, 256 and 576),
 * mask, type, score rule and way of dropping; dense, and packed and padded batches whose lengths
 * only the device knows. So has a pass that computes only dq, or only dk and dv. A NaN in one part
 * spoils the keys that see it, and no others.
 *
 * Prints the time of all parts divided by that of one call. Without a device of compute capability
 * 9.0: compiled, and skipped. */
#include "handmade_parts.h"

#include "base/half.h"

static int passed, failed;

static void report(const char *name, const char *what, size_t wrong, const char *note)
{
    printf("%s %-34s %-12s %zu differ%s\n", wrong ? "FAIL" : "ok  ", name, what, wrong, note);
    fflush(stdout);
    passed += wrong == 0;
    failed += wrong != 0;
}

static double milliseconds(const cut_case &c, void (cut_case::*launch)(void) const)
{
    cudaEvent_t from, to;
    float ms = 0, best = INFINITY;
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    for (int x = 0; x < 4; x++) {
        MUST(cudaEventRecord(from));
        (c.*launch)();
        MUST(cudaEventRecord(to));
        MUST(cudaEventSynchronize(to));
        MUST(cudaEventElapsedTime(&ms, from, to));
        best = ms < best ? ms : best;
    }
    MUST(cudaEventDestroy(from));
    MUST(cudaEventDestroy(to));
    return best;
}

/* ---- dense ---- */

/* One of the gradients alone. */
static void check_alone(cut_case &c, const gradients &want)
{
    ordo_call keys = c.call, queries = c.call;
    keys.dq.data = NULL;
    queries.dk.data = queries.dv.data = NULL;
    c.poison();
    run_call(c.plan, ORDO_BACKWARD, keys);
    const gradients dk = gradients_of(c);
    const bool dq_stays = dk.dq == std::vector<uint16_t>(dk.dq.size(), 0xffff);
    report(c.z.name, "dk, dv alone",
           differing(dk.dk, want.dk) + differing(dk.dv, want.dv) + !dq_stays, "");
    c.poison();
    run_call(c.plan, ORDO_BACKWARD, queries);
    const gradients dq = gradients_of(c);
    const bool dk_stays = dq.dk == std::vector<uint16_t>(dq.dk.size(), 0xffff) && dq.dv == dq.dk;
    report(c.z.name, "dq alone", differing(dq.dq, want.dq) + !dk_stays, "");
}

/* Every part has the whole's key. */
static size_t other_keys(const cut_case &c)
{
    size_t wrong = 0;
    for (const row_part &x : c.parts) {
        ordo_plan_info part = ORDO_PLAN_INFO_INIT;
        must_ordo(ordo_plan_query(x.plan, &part), "query");
        wrong += strcmp(part.numeric_key, c.info.numeric_key) != 0;
    }
    return wrong;
}

static void check_dense(const cut_shape &shape)
{
    cut_case c(shape);
    c.forward();
    c.poison();
    c.backward();
    const gradients want = gradients_of(c);
    const double whole = milliseconds(c, &cut_case::backward);
    for (const int count : { 1, 2, 4, 8 }) {
        char what[40], note[60];
        c.cut(count);
        c.poison();
        c.backward_parts();
        const size_t wrong = differing(gradients_of(c), want) + other_keys(c);
        snprintf(what, sizeof what, "%d parts", (int)c.parts.size());
        snprintf(note, sizeof note, ", time %.3f of one call",
                 milliseconds(c, &cut_case::backward_parts) / whole);
        report(shape.name, what, wrong, note);
    }
    check_alone(c, want);
}

/* ---- a NaN ---- */

static float number(const cut_shape &z, uint16_t x)
{
    return z.f16 ? ordo_f32_from_f16(x) : ordo_f32_from_bf16(x);
}

/* Keys that the repair may have computed, all in the key tiles that the row's query tile meets at
 * its cut: one pass sums them in f64 at once, parts in f32 from part to part, from weights that
 * were rounded. They must be NaN alike, and else near; all other keys must have equal bits. */
static size_t nan_differing(const cut_case &c, const std::vector<uint16_t> &a,
                            const std::vector<uint16_t> &b)
{
    const cut_shape &z = c.z;
    const int64_t bq = c.info.backward_tile.q, bk = c.info.backward_tile.k;
    const int64_t tile = z.nan_row / bq * bq, diagonal = z.kv_len - z.q_len;
    const int64_t from = (tile + diagonal) / bk * bk,
                  to = (tile + bq + diagonal + bk - 1) / bk * bk;
    const int64_t width = (int64_t)z.kv_heads * z.dim;
    float largest = 0;
    for (const uint16_t x : b)
        if (isfinite(number(z, x)))
            largest = fmaxf(largest, fabsf(number(z, x)));
    size_t wrong = 0;
    for (size_t x = 0; x < a.size(); x++) {
        const int64_t key = (int64_t)x / width % z.kv_len;
        const float m = number(z, a[x]), n = number(z, b[x]);
        const bool near = fabsf(m - n) <= (z.f16 ? 0x1p-10f : 0x1p-7f) * largest;
        wrong += a[x] != b[x] && (key < from || key >= to || !near);
    }
    return wrong;
}

static void check_nan(const cut_shape &shape)
{
    cut_case c(shape);
    c.forward();
    c.poison();
    c.backward();
    const gradients want = gradients_of(c);
    size_t lost = 0, finite = 0;
    for (const uint16_t x : want.dk)
        (isnan(number(shape, x)) ? lost : finite)++;
    report(shape.name, "both kinds", lost == 0 || finite == 0, "");
    for (const int count : { 2, 4, 8 }) {
        char what[40];
        c.cut(count);
        c.poison();
        c.backward_parts();
        const gradients got = gradients_of(c);
        snprintf(what, sizeof what, "%d parts", (int)c.parts.size());
        report(shape.name, what,
               differing(got.dq, want.dq) + nan_differing(c, got.dk, want.dk) +
                   nan_differing(c, got.dv, want.dv),
               "");
    }
}

/* ---- packed and padded ---- */

struct ragged_shape {
    const char *name;
    int dim, heads, kv_heads;
    bool f16, packed;
    std::vector<int> q_lens, kv_lens;
};

struct ragged_case : device_memory {
    ragged_shape z;
    int longest_q = 0, longest_kv = 0;
    size_t q_rows, kv_rows; /* of tensors: padded batch * longest, packed all and a few more */
    std::vector<uint16_t> q, k, v, dout, o;
    std::vector<float> lse;
    float *dk_sums, *dv_sums;

    explicit ragged_case(const ragged_shape &shape) : z(shape)
    {
        size_t q_sum = 0, kv_sum = 0;
        for (size_t b = 0; b < z.q_lens.size(); b++) {
            longest_q = std::max(longest_q, z.q_lens[b]), q_sum += z.q_lens[b];
            longest_kv = std::max(longest_kv, z.kv_lens[b]), kv_sum += z.kv_lens[b];
        }
        q_rows = z.packed ? q_sum : z.q_lens.size() * longest_q;
        kv_rows = z.packed ? kv_sum + 37 : z.kv_lens.size() * longest_kv;
        q = values(q_rows * z.heads * z.dim, 1), dout = values(q_rows * z.heads * z.dim, 4);
        k = values(kv_rows * z.kv_heads * z.dim, 2), v = values(kv_rows * z.kv_heads * z.dim, 3);
        dk_sums = take<float>(k.size()), dv_sums = take<float>(v.size());
    }

    std::vector<uint16_t> values(size_t count, uint32_t seed)
    {
        uint16_t *x = take<uint16_t>(count);
        case_fill<<<1024, 256>>>((bf16 *)x, count, seed, 1.0f);
        if (z.f16)
            parts_to_f16<<<1024, 256>>>(x, count);
        return case_download(x, count);
    }

    size_t row_at(const std::vector<int> &lens, int longest, size_t b) const
    {
        size_t at = 0;
        for (size_t x = 0; x < b; x++)
            at += z.packed ? lens[x] : longest;
        return at;
    }

    /* copy(sequence, row in the whole's tensors, row in those of a part) for all rows of a part. */
    template <class COPY>
    void each_row(const std::vector<int> &lens, int longest, int first, COPY copy) const
    {
        for (size_t b = 0; b < lens.size(); b++)
            for (int r = 0; r < lens[b]; r++)
                copy(b, row_at(z.q_lens, longest_q, b) + first + r, row_at(lens, longest, b) + r);
    }
};

struct ragged_part {
    std::vector<int> lens;
    int longest = 0, first = 0;
    size_t rows;
    std::vector<uint16_t> o, dq, dk, dv;
    std::vector<float> lse;
};

static std::vector<int32_t> ends_of(const std::vector<int> &lens)
{
    std::vector<int32_t> ends = { 0 };
    for (const int n : lens)
        ends.push_back(ends.back() + n);
    return ends;
}

/* Rows first .. first + most - 1 of every sequence; forward too if `c` has no results yet. */
static ragged_part run_ragged(ragged_case &c, int first, int most, unsigned carry)
{
    const ragged_shape &z = c.z;
    ragged_part part;
    device_memory memory;
    part.first = first;
    for (const int n : z.q_lens)
        part.lens.push_back(std::max(0, std::min(most, n - first)));
    part.longest = std::min(most, c.longest_q - first);
    part.rows = 0;
    for (const int n : part.lens)
        part.rows += z.packed ? n : part.longest;

    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = z.f16 ? ORDO_F16 : ORDO_BF16;
    p.layout = z.packed ? ORDO_PACKED : ORDO_PADDED;
    p.batch = (int64_t)z.q_lens.size(), p.heads = z.heads, p.kv_heads = z.kv_heads;
    p.q_len = part.longest, p.kv_len = c.longest_kv, p.head_dim = z.dim;
    if (z.packed)
        p.total_q = (int64_t)part.rows, p.total_kv = (int64_t)c.kv_rows;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = ORDO_BACKEND_CUDA, options.order = ORDO_ORDER_ASCENDING;
    must_ordo(ordo_machine_create(&machine, "h200"), "machine");
    must_ordo(ordo_plan_create(&plan, &p, machine, &options), z.name);
    ordo_machine_destroy(machine);

    const size_t width = (size_t)z.heads * z.dim;
    std::vector<uint16_t> q(part.rows * width), dout(q.size()), o(q.size(), 0xffff);
    std::vector<float> lse(part.rows * z.heads, NAN);
    const auto lse_at = [&](size_t b, size_t row, int h, const std::vector<int> &lens, int longest,
                            size_t rows) {
        return z.packed ? h * rows + row
                        : (b * z.heads + h) * longest + row - c.row_at(lens, longest, b);
    };
    c.each_row(part.lens, part.longest, first, [&](size_t b, size_t from, size_t to) {
        memcpy(&q[to * width], &c.q[from * width], width * 2);
        memcpy(&dout[to * width], &c.dout[from * width], width * 2);
        if (c.o.empty())
            return;
        memcpy(&o[to * width], &c.o[from * width], width * 2);
        for (int h = 0; h < z.heads; h++)
            lse[lse_at(b, to, h, part.lens, part.longest, part.rows)] =
                c.lse[lse_at(b, from, h, z.q_lens, c.longest_q, c.q_rows)];
    });
    ordo_call call = ORDO_CALL_INIT;
    call.q.data = memory.upload(q), call.dout.data = memory.upload(dout);
    call.o.data = memory.upload(o), call.lse = memory.upload(lse);
    call.k.data = memory.upload(c.k), call.v.data = memory.upload(c.v);
    call.dq.data = memory.take<uint16_t>(q.size());
    call.dk.data = memory.take<uint16_t>(c.k.size());
    call.dv.data = memory.take<uint16_t>(c.v.size());
    const std::vector<int32_t> q_ends = ends_of(part.lens), kv_ends = ends_of(z.kv_lens);
    (z.packed ? call.cu_q : call.q_lens) =
        memory.upload(z.packed ? q_ends : std::vector<int32_t>(part.lens.begin(), part.lens.end()));
    (z.packed ? call.cu_kv : call.kv_lens) = memory.upload(
        z.packed ? kv_ends : std::vector<int32_t>(z.kv_lens.begin(), z.kv_lens.end()));
    call.workspace_bytes = ordo_plan_workspace(plan);
    call.workspace = memory.take<uint8_t>(call.workspace_bytes);
    if (c.o.empty())
        run_call(plan, ORDO_FORWARD, call);
    call.carry = carry;
    if (carry)
        call.dk_sums = c.dk_sums, call.dv_sums = c.dv_sums;
    run_call(plan, ORDO_BACKWARD, call);
    MUST(cudaDeviceSynchronize());
    ordo_plan_destroy(plan);
    part.o = case_download((uint16_t *)call.o.data, q.size());
    part.lse = case_download(call.lse, lse.size());
    part.dq = case_download((uint16_t *)call.dq.data, q.size());
    part.dk = case_download((uint16_t *)call.dk.data, c.k.size());
    part.dv = case_download((uint16_t *)call.dv.data, c.v.size());
    return part;
}

/* Sums of keys that belong to no sequence: how many are not `value`. All of them become `next`. */
static size_t mark_others(const ragged_case &c, float *sums, float value, float next)
{
    const size_t width = (size_t)c.z.kv_heads * c.z.dim;
    std::vector<float> x = case_download(sums, c.kv_rows * width);
    std::vector<bool> owned(c.kv_rows);
    for (size_t b = 0; b < c.z.kv_lens.size(); b++)
        for (int row = 0; row < c.z.kv_lens[b]; row++)
            owned[c.row_at(c.z.kv_lens, c.longest_kv, b) + row] = true;
    size_t wrong = 0;
    for (size_t at = 0; at < x.size(); at++)
        if (!owned[at / width]) {
            wrong += x[at] != value;
            x[at] = next;
        }
    MUST(cudaMemcpy(sums, x.data(), x.size() * sizeof x[0], cudaMemcpyHostToDevice));
    return wrong;
}

static void check_ragged(const ragged_shape &z)
{
    ragged_case c(z);
    const ragged_part want = run_ragged(c, 0, c.longest_q, 0);
    const size_t width = (size_t)z.heads * z.dim;
    c.o = want.o, c.lse = want.lse;
    for (const int step : { 1024, 512, 256 }) {
        size_t wrong = 0;
        char what[40];
        MUST(cudaMemset(c.dk_sums, 0xff, c.k.size() * 4));
        MUST(cudaMemset(c.dv_sums, 0xff, c.v.size() * 4));
        for (int first = 0; first < c.longest_q; first += step) {
            const bool last = first + step >= c.longest_q;
            const ragged_part got = run_ragged(c, first, step, carry_of(first > 0, !last));
            c.each_row(got.lens, got.longest, first, [&](size_t, size_t from, size_t to) {
                wrong += memcmp(&got.dq[to * width], &want.dq[from * width], width * 2) != 0;
            });
            if (last)
                wrong += differing(got.dk, want.dk) + differing(got.dv, want.dv);
            else /* the first part makes them 0, later ones leave them */
                for (float *sums : { c.dk_sums, c.dv_sums })
                    wrong += mark_others(c, sums, first > 0 ? 7.5f : 0.0f, 7.5f);
        }
        snprintf(what, sizeof what, "%d rows each", step);
        report(z.name, what, wrong, "");
    }
}

/* ---- */

static cut_shape with(cut_shape z, const char *name, void (*change)(cut_shape &))
{
    z.name = name;
    change(z);
    return z;
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    const cut_shape full = { "", 128, 4, 4, 4096, 4096 };
    const cut_shape causal = { "", 128, 4, 2, 4096, 4096, ORDO_MASK_CAUSAL };
    const cut_shape wide = { "", 256, 4, 2, 2048, 2048, ORDO_MASK_CAUSAL };
    using S = cut_shape &;
    for (const cut_shape &z : {
             with(full, "full D 128", [](S) {}),
             with(full, "full D 64", [](S s) { s.dim = 64; }),
             with(full, "full D 128, uneven, batch 2",
                  [](S s) { s.batch = 2, s.q_len = 3001, s.kv_len = 2777; }),
             with(full, "full D 96, uneven",
                  [](S s) { s.dim = 96, s.q_len = 3001, s.kv_len = 2777; }),
             with(causal, "causal D 128, grouped", [](S) {}),
             with(causal, "causal D 64, grouped", [](S s) { s.dim = 64; }),
             with(causal, "causal D 128 f16", [](S s) { s.f16 = true; }),
             with(causal, "causal D 72 f16, batch 2",
                  [](S s) { s.f16 = true, s.dim = 72, s.batch = 2, s.q_len = s.kv_len = 2048; }),
             with(causal, "causal, more keys", [](S s) { s.q_len = 2048; }),
             with(causal, "causal D 64 f16, more queries",
                  [](S s) { s.dim = 64, s.f16 = true, s.kv_len = 2000; }),
             with(causal, "causal, bits given", [](S s) { s.dropout = 0.1, s.given = true; }),
             with(causal, "causal, bits made", [](S s) { s.dropout = 0.1; }),
             with(causal, "causal D 64, bits given",
                  [](S s) { s.dim = 64, s.dropout = 0.1, s.given = true; }),
             with(causal, "causal D 64, bits made", [](S s) { s.dim = 64, s.dropout = 0.1; }),
             with(causal, "window 300", [](S s) { s.left = 300; }),
             with(full, "full, window 700", [](S s) { s.left = 700; }),
             with(causal, "dlse", [](S s) { s.dlse = true; }),
             with(causal, "softcap, alibi, dlse",
                  [](S s) { s.softcap = 20, s.alibi = s.dlse = true; }),
             with(
                 causal, "D 64 softcap, alibi, dlse, made",
                 [](S s) { s.dim = 64, s.softcap = 20, s.alibi = s.dlse = true, s.dropout = 0.1; }),
             with(wide, "causal D 256", [](S) {}),
             with(wide, "full D 192, uneven",
                  [](S s) {
                      s.mask = ORDO_MASK_FULL, s.dim = 192, s.q_len = 2001, s.kv_len = 1999;
                  }),
             with(wide, "causal D 192 f16, bits given",
                  [](S s) { s.dim = 192, s.f16 = true, s.dropout = 0.1, s.given = true; }),
             with(wide, "window 200 D 256, bits made, dlse",
                  [](S s) { s.left = 200, s.dropout = 0.1, s.dlse = true; }),
             with(wide, "D 256 softcap, alibi", [](S s) { s.softcap = 20, s.alibi = true; }),
             with(wide, "causal D 512", [](S s) { s.dim = 512; }),
             with(wide, "full D 576 f16, uneven",
                  [](S s) {
                      s.mask = ORDO_MASK_FULL, s.dim = 576, s.f16 = true, s.q_len = 1001;
                      s.kv_len = 777;
                  }),
             with(wide, "window 200 D 320, bits given",
                  [](S s) { s.dim = 320, s.left = 200, s.dropout = 0.1, s.given = true; }),
             with(wide, "D 264 softcap, alibi, dlse",
                  [](S s) { s.dim = 264, s.softcap = 20, s.alibi = s.dlse = true; }),
         })
        check_dense(z);
    for (const cut_shape &z : {
             with(causal, "NaN D 128", [](S s) { s.nan_row = 1500; }),
             with(causal, "NaN D 64 f16", [](S s) { s.dim = 64, s.f16 = true, s.nan_row = 3000; }),
             with(causal, "NaN D 128, bits made", [](S s) { s.dropout = 0.1, s.nan_row = 70; }),
             with(wide, "NaN D 256", [](S s) { s.nan_row = 1000; }),
             with(wide, "NaN D 512", [](S s) { s.dim = 512, s.nan_row = 1000; }),
         })
        check_nan(z);
    const std::vector<int> q = { 700, 1500, 0, 2048, 333 }, kv = { 900, 64, 500, 2000, 1 };
    check_ragged({ "packed D 128", 128, 4, 2, false, true, q, kv });
    check_ragged({ "packed D 64 f16", 64, 4, 4, true, true, q, kv });
    check_ragged({ "packed D 256", 256, 2, 1, false, true, q, kv });
    check_ragged({ "padded D 96", 96, 4, 2, false, false, q, kv });
    check_ragged({ "padded D 192", 192, 2, 2, true, false, q, kv });
    check_ragged({ "packed D 512", 512, 2, 1, false, true, q, kv });
    check_ragged({ "padded D 320 f16", 320, 2, 2, true, false, q, kv });
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
