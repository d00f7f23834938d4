/* A backward pass in parts of its rows, each continuing the f32 sums of dk and dv of the part
 * before it, where the grid has none: packed and padded batches whose lengths only the device
 * knows, and a NaN in one part, which spoils the keys that see it and no others.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "handmade_parts.h"

#include "base/half.h"

static int passed, failed;

static void report(const char *name, const char *what, size_t wrong)
{
    printf("%s %-34s %-12s %zu differ\n", wrong ? "FAIL" : "ok  ", name, what, wrong);
    fflush(stdout);
    passed += wrong == 0;
    failed += wrong != 0;
}

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
    report(shape.name, "both kinds", lost == 0 || finite == 0);
    for (const int count : { 2, 4, 8 }) {
        char what[40];
        c.cut(count);
        c.poison();
        c.backward_parts();
        const gradients got = gradients_of(c);
        snprintf(what, sizeof what, "%d parts", (int)c.parts.size());
        report(shape.name, what,
               differing(got.dq, want.dq) + nan_differing(c, got.dk, want.dk) +
                   nan_differing(c, got.dv, want.dv));
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
        report(z.name, what, wrong);
    }
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    const cut_shape shapes[] = {
        { .name = "NaN D 128", .dim = 128, .heads = 4, .q_len = 4096, .nan_row = 1500 },
        { .name = "NaN D 64 f16",
          .dim = 64,
          .heads = 4,
          .q_len = 4096,
          .f16 = true,
          .nan_row = 3000 },
        { .name = "NaN D 128, bits made",
          .dim = 128,
          .heads = 4,
          .q_len = 4096,
          .dropout = 0.1,
          .nan_row = 70 },
        { .name = "NaN D 256", .dim = 256, .heads = 4, .q_len = 2048, .nan_row = 1000 },
        { .name = "NaN D 512", .dim = 512, .heads = 4, .q_len = 2048, .nan_row = 1000 },
    };
    for (cut_shape z : shapes) {
        z.kv_heads = 2, z.kv_len = z.q_len, z.mask = ORDO_MASK_CAUSAL;
        check_nan(z);
    }
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
