/* backward_free_test.cu: the two backward forms without turns beside the ordered one.
 *
 * Split: dK and dV have the ordered form's bits, dQ its error. Fixed point: the same bits of dQ
 * under every order and number of workers, no sum that wraps, and a table of what the units cost
 * on inputs chosen against them. */
#include <algorithm>

#include "case.h"
#include "cuda/backward_fixed.h"
#include "cuda/backward_split.h"

static int passed, failed;

static bool check(bool good, const char *name, const char *what)
{
    passed += good;
    failed += !good;
    if (!good) {
        printf("FAIL %s: %s\n", name, what);
        fflush(stdout);
    }
    return good;
}

/* ---- the forms ---- */

typedef std::vector<uint16_t> bits;

static bits bits_of(const bf16 *x, size_t count)
{
    return case_download((const uint16_t *)x, count);
}

struct gradients {
    bits dq, dk, dv;
};

static gradients gradients_of(device_case &c)
{
    MUST(cudaDeviceSynchronize());
    return { bits_of(c.dq, c.q_count), bits_of(c.dk, c.kv_count), bits_of(c.dv, c.kv_count) };
}

static gradients ordered(device_case &c)
{
    c.poison();
    c.backward();
    return gradients_of(c);
}

static gradients split(device_case &c)
{
    char why[300] = "";
    c.poison();
    must_ordo(ordo_sm90_backward_split(&c.pass, why, sizeof why), why);
    return gradients_of(c);
}

static ordo_fixed_work fixed_work(device_case &c)
{
    const ordo_band &band = c.pass.run.band;
    const size_t rows = (size_t)ordo_band_query_tiles(&band) * band.bq * c.z.heads * c.z.batch;
    const size_t parts = (size_t)(band.kv_len + ORDO_FIXED_KEYS - 1) / ORDO_FIXED_KEYS;
    return { c.take<float>(rows), c.take<float>(2 * parts * c.z.kv_heads * c.z.batch) };
}

static gradients fixed(device_case &c, const ordo_fixed_work &work)
{
    char why[300] = "";
    c.poison();
    must_ordo(ordo_sm90_backward_fixed(&c.pass, &work, why, sizeof why), why);
    return gradients_of(c);
}

static float number(uint16_t x)
{
    const uint32_t wide = (uint32_t)x << 16;
    float y;
    memcpy(&y, &wide, 4);
    return y;
}

/* ---- errors of dQ ---- */

struct row_errors {
    double size;               /* norm of dQ itself */
    double all;                /* of the whole tensor, relative to its norm */
    double median, most, peak; /* of a row relative to its own norm: 50 %, 99.9 %, 100 % */
    size_t bad;                /* elements that are not finite */
};

static row_errors errors_of(const bits &got, const std::vector<double> &want, int dim)
{
    std::vector<double> rows;
    double error = 0, size = 0;
    row_errors e = {};
    for (size_t at = 0; at < got.size(); at += (size_t)dim) {
        double row_error = 0, row_size = 0;
        for (size_t i = at; i < at + (size_t)dim; i++) {
            const double g = (double)number(got[i]);
            e.bad += !(fabs(g) <= 3.4e38);
            row_error += (g - want[i]) * (g - want[i]);
            row_size += want[i] * want[i];
        }
        error += row_error;
        size += row_size;
        if (row_size > 0) /* a row of one key has no gradient: only rounding is left */
            rows.push_back(sqrt(row_error / row_size));
    }
    std::sort(rows.begin(), rows.end());
    e.size = sqrt(size);
    e.all = sqrt(error / (size + 1e-300));
    if (!rows.empty()) {
        e.median = rows[rows.size() / 2];
        e.most = rows[(rows.size() - 1) * 999 / 1000];
        e.peak = rows.back();
    }
    return e;
}

/* An integer sum that wraps is off by 2^32 units, one that saturates by up to 2^31. Rounding every
 * partial costs half a unit, and f32 sums up to 2^-24 of what they pass through: 64 units. */
static bool within_units(device_case &c, const ordo_fixed_work &work, const bits &a, const bits &b)
{
    const ordo_band &band = c.pass.run.band;
    const int padded = ordo_band_query_tiles(&band) * band.bq, D = c.z.head_dim;
    const std::vector<float> units =
        case_download(work.row_units, (size_t)padded * c.z.heads * c.z.batch);
    const double each = 65.0 * (double)ordo_band_key_tiles(&band) * (double)c.pass.scale;
    for (size_t i = 0; i < a.size(); i++) {
        const size_t row = i / ((size_t)D * c.z.heads), head = i / (size_t)D % (size_t)c.z.heads;
        const size_t sequence = row / (size_t)c.z.q_len, at = row % (size_t)c.z.q_len;
        const double unit =
            (double)units[(sequence * (size_t)c.z.heads + head) * (size_t)padded + at];
        const double x = (double)number(a[i]), y = (double)number(b[i]);
        if (!(fabs(x - y) <= each / unit + 0x1p-7 * fmax(fabs(x), fabs(y)))) {
            printf("row %zu head %zu: %g, ordered %g, unit %g\n", row, head, x, y, unit);
            return false;
        }
    }
    return true;
}

/* ---- many shapes ---- */

static const ordo_mask masks[] = { ORDO_MASK_FULL, ORDO_MASK_CAUSAL, ORDO_MASK_CAUSAL_TOP_LEFT };
static const char *const mask_names[] = { "full", "causal", "top-left" };

static void test_shape(case_shape z)
{
    char name[100];
    snprintf(name, sizeof name, "D %d %s %dx%d heads %d/%d", z.head_dim, mask_names[z.mask],
             z.q_len, z.kv_len, z.heads, z.kv_heads);
    device_case c(z);
    const ordo_fixed_work work = fixed_work(c);
    c.forward();
    const gradients a = ordered(c), b = split(c), f = fixed(c, work);
    check(a.dk == b.dk && a.dv == b.dv, name, "split: dK or dV differ from ordered");
    check(a.dk == f.dk && a.dv == f.dv, name, "fixed: dK or dV differ from ordered");
    check(within_units(c, work, f.dq, a.dq), name, "fixed: further from ordered than units allow");
    const std::vector<double> want = case_download(case_refer(c).dq, c.q_count);
    const row_errors ea = errors_of(a.dq, want, z.head_dim);
    const row_errors eb = errors_of(b.dq, want, z.head_dim);
    const row_errors ef = errors_of(f.dq, want, z.head_dim);
    check(ea.bad + eb.bad + ef.bad == 0, name, "dQ not finite");
    if (ea.size < 1e-9) /* every row sees one key or none: no gradient, only rounding */
        return;
    if (!check(eb.all <= 1e-2 && eb.all <= 1.2 * ea.all, name, "split: error of dQ") ||
        !check(ef.all <= 1e-2 && ef.all <= 1.2 * ea.all, name, "fixed: error of dQ"))
        printf("     ordered %.3e split %.3e fixed %.3e\n", ea.all, eb.all, ef.all);
}

static void test_shapes(void)
{
    static const int lengths[][2] = { { 1, 1 },     { 64, 64 },   { 65, 129 },    { 128, 128 },
                                      { 200, 333 }, { 333, 200 }, { 512, 512 },   { 1000, 1000 },
                                      { 1, 700 },   { 700, 1 },   { 2048, 2048 }, { 1111, 300 } };
    static const int heads[][2] = { { 3, 3 }, { 4, 1 }, { 4, 2 } };
    for (int D = 64; D <= 128; D += 64)
        for (ordo_mask mask : masks)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                const int *h = heads[i % 3];
                test_shape({ 2, h[0], h[1], lengths[i][0], lengths[i][1], D, mask,
                             ORDO_ORDER_DEFAULT, 0, 0, 0 });
            }
}

/* ---- equal bits of fixed point ---- */

static void test_bits(int D, ordo_mask mask)
{
    static const int workers[] = { 132, 114, 78, 32, 9 };
    char name[100];
    snprintf(name, sizeof name, "fixed bits, D %d %s", D, mask_names[mask]);
    device_case c({ 2, 4, 2, 1000, 1100, D, mask, ORDO_ORDER_ASCENDING, 0, 0, 0 });
    const ordo_fixed_work work = fixed_work(c);
    c.forward();
    const bits first = fixed(c, work).dq;
    int differ = 0;
    for (int repeat = 0; repeat < 50; repeat++)
        differ += fixed(c, work).dq != first;
    check(differ == 0, name, "repeats differ");
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++) {
        if (mask == ORDO_MASK_FULL ? order > ORDO_ORDER_SHIFT : order == ORDO_ORDER_SHIFT)
            continue;
        for (int count : workers) {
            c.again(count, (ordo_order)order);
            differ += fixed(c, work).dq != first;
        }
    }
    check(differ == 0, name, "orders or numbers of workers differ");
}

/* ---- NaN and inf ---- */

static std::vector<bool> bad_rows(const bits &x, int dim)
{
    std::vector<bool> bad(x.size() / (size_t)dim);
    for (size_t i = 0; i < x.size(); i++)
        if (!(fabsf(number(x[i])) <= 3.4e38f))
            bad[i / (size_t)dim] = true;
    return bad;
}

static void poke(bf16 *x, size_t at, float value)
{
    const bf16 v = __float2bfloat16(value);
    MUST(cudaMemcpy(x + at, &v, 2, cudaMemcpyHostToDevice));
}

static void test_not_finite(int D)
{
    static const char *const names[] = { "NaN in V", "inf in V",  "NaN in K",
                                         "NaN in Q", "inf in dO", "NaN in dO" };
    for (int what = 0; what < 6; what++) {
        device_case c({ 1, 2, 2, 640, 640, D, ORDO_MASK_CAUSAL, ORDO_ORDER_DEFAULT, 0, 0, 0 });
        const ordo_fixed_work work = fixed_work(c);
        bf16 *const tensors[] = { c.v, c.v, c.k, c.q, c.dout, c.dout };
        poke(tensors[what], (size_t)300 * 2 * D + 5, what == 1 || what == 4 ? INFINITY : NAN);
        c.forward();
        const std::vector<bool> a = bad_rows(ordered(c).dq, D), b = bad_rows(split(c).dq, D);
        const std::vector<bool> f = bad_rows(fixed(c, work).dq, D);
        check(std::count(a.begin(), a.end(), true) > 0, names[what], "ordered: nothing shows");
        if (!check(a == b, names[what], "split: other rows than ordered") ||
            !check(a == f, names[what], "fixed: other rows than ordered"))
            printf("     D %d rows: ordered %d split %d fixed %d\n", D,
                   (int)std::count(a.begin(), a.end(), true),
                   (int)std::count(b.begin(), b.end(), true),
                   (int)std::count(f.begin(), f.end(), true));
    }
}

/* ---- inputs against the units ---- */

/* Rows `from`, from + step, ... of a tensor, columns [c0, c1) of every head: times 2^power, or
 * with `spread` times 2^(power u), u in [0, 1) by row and head. Then `add` to column c0. */
static __global__ void change(bf16 *x, int rows, int heads, int dim, int from, int step, int c0,
                              int c1, float power, int spread, float add)
{
    const int row = from + (int)blockIdx.x * step, head = blockIdx.y, d = threadIdx.x;
    if (row >= rows || d < c0 || d >= c1)
        return;
    uint32_t h = (uint32_t)(row * heads + head) * 2654435761u;
    h = (h ^ h >> 15) * 0x846ca68bu;
    const float u = spread ? (float)((h ^ h >> 16) >> 8) * 0x1p-24f : 1.0f;
    bf16 *const at = x + ((size_t)row * heads + head) * dim + d;
    *at = __float2bfloat16(__bfloat162float(*at) * exp2f(power * u) + (d == c0 ? add : 0.0f));
}

struct changes {
    device_case &c;

    void operator()(bf16 *x, int from, int step, int c0, int c1, float power, int spread = 0,
                    float add = 0.0f)
    {
        const int heads = x == c.q || x == c.dout ? c.z.heads : c.z.kv_heads;
        const int rows = x == c.q || x == c.dout ? c.z.q_len : c.z.kv_len;
        change<<<dim3((unsigned)((rows - from + step - 1) / step), (unsigned)heads),
                 c.z.head_dim>>>(x, rows, heads, c.z.head_dim, from, step, c0, c1, power, spread,
                                 add);
        MUST(cudaGetLastError());
    }
};

enum { ONE = 1 << 30 }; /* a step that leaves one row */

static const char *const hard_names[] = {
    "random",
    "random, almost uniform weights",
    "one V row x 2^10",
    "one V row x 2^20",
    "last V row x 2^20",
    "one K row x 2^4",
    "one K row x 2^10",
    "V row x 2^10 without weight",
    "V row x 2^20 without weight",
    "every other dO row x 2^-20",
    "all weight on one key",
    "dO rows spread over 2^20",
    "V rows spread over 2^20",
    "dO, V, Q rows spread over 2^20",
    "dO beside V: 2^-5 of it meets V",
    "dO beside V: 2^-10 of it meets V",
};
enum { HARD = sizeof hard_names / sizeof *hard_names };

static void make_hard(device_case &c, int which)
{
    changes to = { c };
    const int D = c.z.head_dim, last = c.z.kv_len - 1;
    switch (which) {
    case 2: to(c.v, 5, ONE, 0, D, 10); break;
    case 3: to(c.v, 5, ONE, 0, D, 20); break;
    case 4: to(c.v, last, ONE, 0, D, 20); break;
    case 5: to(c.k, 7, ONE, 0, D, 4); break;
    case 6: to(c.k, 7, ONE, 0, D, 10); break;
    case 7:
    case 8:
    case 10: /* column 0 of Q is 8 and more: the key with -64 there is never looked at */
        to(c.q, 0, 1, 0, 1, 0, 0, 8.0f);
        to(c.k, 3, ONE, 0, 1, 0, 0, which == 10 ? 64.0f : -64.0f);
        if (which != 10)
            to(c.v, 3, ONE, 0, D, which == 7 ? 10 : 20);
        break;
    case 9: to(c.dout, 1, 2, 0, D, -20); break;
    case 11: to(c.dout, 0, 1, 0, D, -20, 1); break;
    case 12: to(c.v, 0, 1, 0, D, -20, 1); break;
    case 13:
        to(c.dout, 0, 1, 0, D, -20, 1);
        to(c.v, 0, 1, 0, D, -20, 1);
        to(c.q, 0, 1, 0, D, -20, 1);
        break;
    case 14:
    case 15: /* V lives in one half of the columns, dO in the other */
        to(c.v, 0, 1, D / 2, D, -120);
        to(c.dout, 0, 1, 0, D / 2, which == 14 ? -5 : -10);
        break;
    default: break;
    }
}

static void hard_line(int which, int S, int D, ordo_mask mask)
{
    device_case c({ 1, 1, 1, S, S, D, mask, ORDO_ORDER_DEFAULT, 0, 0, 0 }, 7,
                  which == 1 ? 0.1f : 1.0f);
    const ordo_fixed_work work = fixed_work(c);
    make_hard(c, which);
    c.forward();
    const gradients a = ordered(c), f = fixed(c, work);
    check(within_units(c, work, f.dq, a.dq), hard_names[which], "further off than units allow");
    const std::vector<double> want = case_download(case_refer(c).dq, c.q_count);
    const row_errors ea = errors_of(a.dq, want, D), ef = errors_of(f.dq, want, D);
    check(ea.bad + ef.bad == 0, hard_names[which], "not finite");
    printf("%-34s %5d %3d %-6s %8.1e %8.1e %8.1e  %8.1e %8.1e %8.1e  %5.2f %6.2f\n",
           hard_names[which], S, D, mask_names[mask], ea.all, ea.median, ea.most, ef.all, ef.median,
           ef.most, ef.all / ea.all, ef.most / ea.most);
    fflush(stdout);
    if (which == 0)
        check(ef.all <= 1e-2 && ef.all <= 1.2 * ea.all && ef.most <= 1.2 * ea.most,
              hard_names[which], "error of dQ");
}

static void table(void)
{
    printf("relative error of dQ: all rows together; of a row, median and 99.9 %%\n"
           "%-34s %5s %3s %-6s %-27s %-27s %s\n",
           "input", "S", "D", "mask", "ordered f32", "fixed point", "fixed/ordered all, 99.9 %");
    for (int which = 0; which < HARD; which++) {
        hard_line(which, 2048, 128, ORDO_MASK_FULL);
        hard_line(which, 2048, 64, ORDO_MASK_CAUSAL);
    }
    for (int which : { 0, 1, 3, 8, 14 })
        hard_line(which, 16384, 128, ORDO_MASK_FULL);
    hard_line(0, 16384, 64, ORDO_MASK_CAUSAL);
}

int main(void)
{
    if (!case_have_device()) {
        printf("skip: no CUDA device of capability 9.0\n0 passed, 0 failed, 1 skipped\n");
        return 77;
    }
    test_shapes();
    for (int D = 64; D <= 128; D += 64) {
        test_bits(D, ORDO_MASK_FULL);
        test_bits(D, ORDO_MASK_CAUSAL);
        test_not_finite(D);
    }
    table();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed ? 1 : 0;
}
