/* backward_free_test.cu: the backward pass apart, beside the
 * ordered one: dK and dV have its bits, dQ its error, and dQ the same bits under every order and
 * number of workers. Outputs are poisoned first, so what is not written shows.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include <algorithm>

#include "backward_apart.h"
#include "base/half.h"
#include "handmade_pass.h"

static int passed, failed;

static void check(bool good, const char *name, const char *what)
{
    passed += good;
    failed += !good;
    if (!good)
        printf("FAIL %s: %s\n", name, what);
    fflush(stdout);
}

/* ---- the two forms ---- */

struct gradients {
    std::vector<uint16_t> dq, dk, dv;
};

static gradients gradients_of(device_case &c)
{
    MUST(cudaDeviceSynchronize());
    return { case_download((const uint16_t *)c.dq, c.q_count),
             case_download((const uint16_t *)c.dk, c.kv_count),
             case_download((const uint16_t *)c.dv, c.kv_count) };
}

static gradients ordered(device_case &c)
{
    c.poison();
    c.backward();
    return gradients_of(c);
}

static gradients apart(device_case &c)
{
    char why[300] = "";
    c.poison();
    must_ordo(backward_apart(&c.pass, why, sizeof why), why);
    return gradients_of(c);
}

static float number(uint16_t x)
{
    const uint32_t wide = (uint32_t)x << 16;
    float y;
    memcpy(&y, &wide, 4);
    return y;
}

static bool finite(uint16_t x)
{
    return (x & 0x7f80) != 0x7f80;
}

/* ---- dQ as f64 sums of the bf16 inputs, nothing fused ---- */

static __global__ void reference_scores(const bf16 *a, const bf16 *b, double *out, int q_len,
                                        int kv_len, int dim, int a_row, int b_row, double scale,
                                        int high, double hidden)
{
    const int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
    if (i >= q_len || j >= kv_len)
        return;
    double x = 0;
    for (int d = 0; d < dim; d++)
        x += (double)__bfloat162float(a[(size_t)i * a_row + d]) *
             (double)__bfloat162float(b[(size_t)j * b_row + d]);
    out[(size_t)i * kv_len + j] = j > i + high ? hidden : x * scale;
}

/* dS of one row, from its scores and dP. */
static __global__ void reference_ds(const double *scores, double *dp, int kv_len)
{
    const double *row = scores + (size_t)blockIdx.x * kv_len;
    double *drow = dp + (size_t)blockIdx.x * kv_len, max = -INFINITY, sum = 0, delta = 0;
    if (threadIdx.x)
        return;
    for (int j = 0; j < kv_len; j++)
        max = fmax(max, row[j]);
    for (int j = 0; j < kv_len && max > -INFINITY; j++) {
        sum += exp(row[j] - max);
        delta += exp(row[j] - max) * drow[j];
    }
    for (int j = 0; j < kv_len; j++)
        drow[j] = sum == 0 ? 0 : exp(row[j] - max) / sum * (drow[j] - delta / sum);
}

static __global__ void reference_product(const double *ds, const bf16 *k, double *dq, int kv_len,
                                         int k_row, int dq_row, double scale)
{
    const int i = blockIdx.x, d = threadIdx.x;
    double x = 0;
    for (int j = 0; j < kv_len; j++)
        x += ds[(size_t)i * kv_len + j] * (double)__bfloat162float(k[(size_t)j * k_row + d]);
    dq[(size_t)i * dq_row + d] = x * scale;
}

static std::vector<double> reference_dq(device_case &c)
{
    const case_shape &z = c.z;
    const int q_row = z.heads * z.head_dim, kv_row = z.kv_heads * z.head_dim, D = z.head_dim;
    const int high = c.pass.run.band.high;
    const size_t square = (size_t)z.q_len * z.kv_len;
    double *scores = c.take<double>(square), *dp = c.take<double>(square);
    double *dq = c.take<double>(c.q_count);
    const dim3 grid((z.kv_len + 15) / 16, (z.q_len + 15) / 16), block(16, 16);
    const double scale = 1.0 / sqrt((double)D);
    for (int b = 0; b < z.batch; b++)
        for (int h = 0; h < z.heads; h++) {
            const size_t at = (size_t)b * z.q_len * q_row + h * D;
            const size_t kv = (size_t)b * z.kv_len * kv_row + h / (z.heads / z.kv_heads) * D;
            reference_scores<<<grid, block>>>(c.q + at, c.k + kv, scores, z.q_len, z.kv_len, D,
                                              q_row, kv_row, scale, high, -INFINITY);
            reference_scores<<<grid, block>>>(c.dout + at, c.v + kv, dp, z.q_len, z.kv_len, D,
                                              q_row, kv_row, 1, high, 0);
            reference_ds<<<z.q_len, 32>>>(scores, dp, z.kv_len);
            reference_product<<<z.q_len, D>>>(dp, c.k + kv, dq + at, z.kv_len, kv_row, q_row,
                                              scale);
        }
    MUST(cudaDeviceSynchronize());
    return case_download(dq, c.q_count);
}

/* ---- errors of dQ, against these ---- */

struct distance {
    double error, size; /* root mean squares: of the error, of dQ itself */
    bool finite;
};

static distance distance_of(const std::vector<uint16_t> &got, const std::vector<double> &want)
{
    distance d = { 0, 0, true };
    for (size_t i = 0; i < got.size(); i++) {
        const double e = (double)number(got[i]) - want[i];
        d.finite &= finite(got[i]);
        d.error += e * e;
        d.size += want[i] * want[i];
    }
    d.error = sqrt(d.error / (double)got.size());
    d.size = sqrt(d.size / (double)got.size());
    return d;
}

/* Rows that see one key have no gradient, only rounding of some 1e-6: judged as it is. */
static void check_both(device_case &c, const char *name, double most)
{
    const double rounding = 1e-5;
    const gradients a = ordered(c), b = apart(c);
    const std::vector<double> want = reference_dq(c);
    const distance da = distance_of(a.dq, want), db = distance_of(b.dq, want);
    check(a.dk == b.dk, name, "dK differs from ordered");
    check(a.dv == b.dv, name, "dV differs from ordered");
    check(da.finite && db.finite, name, "dQ is not finite");
    const bool good =
        db.error <= most * db.size + rounding && db.error <= 1.2 * da.error + rounding;
    check(good, name, "error of dQ");
    if (!good)
        printf("     of %.3e: ordered %.3e apart %.3e\n", da.size, da.error, db.error);
}

/* ---- many shapes ---- */

static const ordo_mask masks[] = { ORDO_MASK_FULL, ORDO_MASK_CAUSAL, ORDO_MASK_CAUSAL_TOP_LEFT };

static void test_shapes(void)
{
    static const int lengths[][2] = { { 1, 1 },     { 64, 64 },   { 65, 129 },    { 128, 128 },
                                      { 200, 333 }, { 333, 200 }, { 512, 512 },   { 1000, 1000 },
                                      { 1, 700 },   { 700, 1 },   { 2048, 2048 }, { 1111, 300 } };
    static const int heads[][2] = { { 3, 3 }, { 4, 1 }, { 4, 2 } };
    for (const int dim : { 64, 128 })
        for (const ordo_mask mask : masks)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                const int *h = heads[i % 3];
                const case_shape z = { 2, h[0], h[1], lengths[i][0], lengths[i][1], dim, mask };
                char name[100];
                snprintf(name, sizeof name, "heads %d/%d %dx%d dim %d %s", z.heads, z.kv_heads,
                         z.q_len, z.kv_len, dim, ordo_mask_name(mask));
                device_case c(z, (uint32_t)i + 1);
                c.forward();
                check_both(c, name, 1e-2);
            }
}

/* ---- equal bits ---- */

static void test_bits(int dim, ordo_mask mask)
{
    device_case c({ 2, 4, 2, 1000, 1100, dim, mask, ORDO_ORDER_ASCENDING });
    c.forward();
    const gradients first = apart(c);
    int differ = 0;
    for (int repeat = 0; repeat < 50; repeat++) {
        const gradients again = apart(c);
        differ += again.dq != first.dq || again.dk != first.dk || again.dv != first.dv;
    }
    check(differ == 0, ordo_mask_name(mask), "repeats differ");
    for (const ordo_order order : { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING }) /* plain ones */
        for (const int workers : { 132, 114, 78, 32, 9 }) {
            c.again(workers, order);
            differ += apart(c).dq != first.dq;
        }
    check(differ == 0, ordo_mask_name(mask), "orders or numbers of workers differ in dQ");
}

/* ---- what is not finite shows in the same rows ---- */

static std::vector<bool> bad_rows(const std::vector<uint16_t> &x, int dim)
{
    std::vector<bool> bad(x.size() / (size_t)dim);
    for (size_t i = 0; i < x.size(); i++)
        if (!finite(x[i]))
            bad[i / (size_t)dim] = true;
    return bad;
}

static void test_not_finite(int dim)
{
    static const char *const names[] = { "NaN in V", "inf in V",  "NaN in K",
                                         "NaN in Q", "inf in dO", "NaN in dO" };
    for (int what = 0; what < 6; what++) {
        device_case c({ 1, 2, 2, 640, 640, dim, ORDO_MASK_CAUSAL });
        bf16 *const tensors[] = { c.v, c.v, c.k, c.q, c.dout, c.dout };
        const bf16 value = __float2bfloat16(what == 1 || what == 4 ? INFINITY : NAN);
        MUST(cudaMemcpy(tensors[what] + (size_t)300 * 2 * dim + 5, &value, 2,
                        cudaMemcpyHostToDevice));
        c.forward();
        const std::vector<uint16_t> dq = apart(c).dq;
        const std::vector<bool> a = bad_rows(ordered(c).dq, dim), b = bad_rows(dq, dim);
        const auto rows = std::count(a.begin(), a.end(), true);
        check(rows > 0 && rows < (long)a.size(), names[what], "nothing shows, or everything");
        check(a == b, names[what], "in other rows than ordered");
        check(std::all_of(dq.begin(), dq.end(),
                          [](uint16_t x) { return (x & 0x7fff) <= 0x7f80 || x == ORDO_BF16_NAN; }),
              names[what], "a NaN that is not the canonical one");
    }
}

/* ---- inputs of uneven size ---- */

/* A row, or from `row` on all of them with `all`: times 2^power, with `all` times 2^(power u), u in
 * [0, 1) by row and head. Then `add` to column 0. */
static __global__ void change(bf16 *x, int rows, int heads, int dim, int row, bool all, float power,
                              float add)
{
    const int at = row + (int)blockIdx.x, head = blockIdx.y, d = threadIdx.x;
    if (at >= rows || (at != row && !all))
        return;
    uint32_t h = (uint32_t)(at * heads + head) * 2654435761u;
    h = (h ^ h >> 15) * 0x846ca68bu;
    const float u = all ? (float)((h ^ h >> 16) >> 8) * 0x1p-24f : 1.0f;
    bf16 *const to = x + ((size_t)at * heads + head) * dim + d;
    *to = __float2bfloat16(__bfloat162float(*to) * exp2f(power * u) + (d == 0 ? add : 0.0f));
}

static void test_uneven(int dim, ordo_mask mask)
{
    static const char *const names[] = { "one V row x 2^20", "V row x 2^20 without weight",
                                         "one K row x 2^4", "dO rows spread over 2^20",
                                         "V rows spread over 2^20" };
    for (int what = 0; what < 5; what++) {
        const int S = 1024;
        device_case c({ 1, 1, 1, S, S, dim, mask }, 7);
        auto to = [&](bf16 *x, int row, bool all, float power, float add) {
            change<<<S, dim>>>(x, S, 1, dim, row, all, power, add);
        };
        if (what == 1) { /* column 0 of Q is about 8: a key with -64 there is never looked at */
            to(c.q, 0, true, 0, 8);
            to(c.k, 3, false, 0, -64);
        }
        if (what <= 1)
            to(c.v, 3, false, 20, 0);
        else if (what == 2)
            to(c.k, 3, false, 4, 0);
        else
            to(what == 3 ? c.dout : c.v, 0, true, -20, 0);
        c.forward();
        check_both(c, names[what], 3e-2); /* ordered: up to 1e-2 where one key takes it all */
    }
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    test_shapes();
    for (const int dim : { 64, 128 }) {
        test_bits(dim, ORDO_MASK_FULL);
        test_bits(dim, ORDO_MASK_CAUSAL);
        test_not_finite(dim);
        test_uneven(dim, ORDO_MASK_FULL);
        test_uneven(dim, ORDO_MASK_CAUSAL);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
