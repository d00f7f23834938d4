/* Matrix products on the device: the bits of pass/gemm.h, which the emulator's steps give, whatever
 * kernel computes them.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "handmade_gemm.h"

#include "base/philox.h"
extern "C" {
#include "emulator/dot.h"
}

/* ---- matrices ---- */

struct problem {
    int64_t m, n, k;
    bool a_rows, b_rows; /* a_rows_are_k, b_rows_are_k */
    ordo_dtype in = ORDO_BF16, out = ORDO_BF16;
    int sections = 1;
    bool bias = false, add = false;
    int pad = 0; /* elements of A and B, of their type, and of C between rows: multiples of 8 */
    /* Forced, if it is not the one that is chosen. */
    const char *name = "chosen";
    ordo_gemm_instance kernel = {};
};

/* Element (line, k) of operand `which`: the same whatever the storage. Some are zero, tiny or
 * large. */
static uint16_t element(ordo_dtype type, int which, int64_t line, int64_t k)
{
    const uint32_t x = mixed(which, line, k);
    const float value = (float)(int32_t)x * 0x1p-31f;
    return half_of(type, x % 37 == 0   ? 0.0f
                         : x % 41 == 0 ? value * 0x1p-14f
                         : x % 43 == 0 ? value * 256.0f
                                       : value);
}

struct stored {
    int64_t stride;
    std::vector<uint16_t> data;
};

/* `lines` of k as they are stored, NaN between the rows. */
static stored store(const problem &p, int which, int64_t first, int64_t lines, bool rows)
{
    const int64_t down = rows ? p.k : lines, across = rows ? lines : p.k;
    stored s = { (across + 7) / 8 * 8 + p.pad, {} };
    s.data.assign((size_t)(down * s.stride), 0x7fff);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t k = 0; k < p.k; k++)
            s.data[(size_t)(rows ? k * s.stride + line : line * s.stride + k)] =
                element(p.in, which, first + line, k);
    return s;
}

/* ---- what an element is ---- */

static uint32_t wanted(const problem &p, int64_t row, int64_t column)
{
    float sum[ORDO_GEMM_SECTIONS] = { 0.0f };
    const int64_t each = p.k / p.sections;
    for (int s = 0; s < p.sections; s++) {
        uint32_t c = 0;
        for (int64_t from = 0; from < each; from += 16) {
            uint16_t a[16] = { 0 }, b[16] = { 0 };
            for (int64_t x = 0; x < 16 && from + x < each; x++) {
                a[x] = element(p.in, 0, row, s * each + from + x);
                b[x] = element(p.in, 1, column, s * each + from + x);
            }
            c = ordo_emulator_dot(&ordo_emulator_hopper, p.in, a, b, c);
        }
        sum[s] = ordo_f32_of_bits(c);
    }
    return element_of(p, sum, row, column);
}

/* ---- one product on the device ---- */

/* Rows `first` and following of A. */
static result multiply(const problem &p, int64_t first = 0)
{
    device_memory memory;
    result r = result_before(p, first);
    const stored a = store(p, 0, first, p.m, p.a_rows), b = store(p, 1, 0, p.n, p.b_rows);
    ordo_cuda_gemm g = {};
    g.m = p.m, g.n = p.n, g.k = p.k, g.sections = p.sections;
    g.in = p.in, g.out = p.out, g.add = p.add;
    g.a = memory.upload(a.data), g.a_stride = a.stride, g.a_rows_are_k = p.a_rows;
    g.b = memory.upload(b.data), g.b_stride = b.stride, g.b_rows_are_k = p.b_rows;
    g.c = memory.upload(r.c), g.c_stride = r.stride;
    g.bias = p.bias ? memory.upload(bias_row(p)) : NULL;
    g.workspace = memory.take<uint8_t>((size_t)ordo_gemm_workspace(p.m, p.n, p.sections));
    const ordo_status status = p.kernel.kernel ? ordo_gemm_run(&g, &p.kernel) : ordo_wgmma_gemm(&g);
    must_ordo(status, ordo_cuda_why());
    MUST(cudaDeviceSynchronize());
    r.c = case_download((const uint8_t *)g.c, r.c.size());
    return r;
}

static void describe(char *text, size_t size, const problem &p, const char *what, long count)
{
    snprintf(text, size,
             "%s: %ld, m %ld n %ld k %ld, %s A, %s B, %s to %s, %d sections%s%s, pad %d, "
             "kernel %s",
             what, count, (long)p.m, (long)p.n, (long)p.k, p.a_rows ? "transposed" : "plain",
             p.b_rows ? "transposed" : "plain", ordo_dtype_name(p.in), ordo_dtype_name(p.out),
             p.sections, p.bias ? ", bias" : "", p.add ? ", add" : "", p.pad, p.name);
}

/* 300 drawn elements, the corners among them, and all bytes that no element has. */
static void check(const problem &p)
{
    const result r = multiply(p);
    long wrong = written_outside(p, r);
    for (int64_t x = 0; p.m > 0 && p.n > 0 && x < 300; x++) {
        const ordo_philox_words counter = { { (uint32_t)x, 1, 2, 3 } };
        const ordo_philox_words w = ordo_philox(counter, 8, 9, 7);
        const int64_t i = x < 4 ? (x & 1) * (p.m - 1) : w.w[0] % p.m;
        const int64_t j = x < 4 ? (x >> 1) * (p.n - 1) : w.w[1] % p.n;
        wrong += r.at(i, j) != wanted(p, i, j);
    }
    char text[400];
    describe(text, sizeof text, p, "elements that differ, and bytes outside", wrong);
    verdict(wrong == 0, "%s", text);
}

/* ---- every kernel ---- */

/* Forces kernel number `kind`; false if there are no more. */
static bool use(problem *p, int kind)
{
    ordo_cuda_gemm g = {};
    g.m = p->m, g.in = p->in, g.a_rows_are_k = p->a_rows, g.b_rows_are_k = p->b_rows;
    const char *const name = ordo_gemm_kind(kind, &g, &p->kernel);
    p->name = name && p->kernel.kernel ? name : "chosen";
    return name != NULL;
}

static void check_kernels(void)
{
    static const int64_t sizes[][3] = { { 300, 520, 200 },  { 1, 1, 8 },      { 65, 33, 24 },
                                        { 257, 770, 1112 }, { 5, 1001, 264 }, { 64, 264, 3008 },
                                        { 129, 257, 72 },   { 16, 96, 16 },   { 13, 300, 640 } };
    for (const bool a_rows : { false, true })
        for (const bool b_rows : { false, true })
            for (const ordo_dtype in : { ORDO_BF16, ORDO_F16 })
                for (int kind = 0;; kind++) {
                    problem p = { 9, 301, 48 * 8, a_rows, b_rows };
                    p.in = p.out = in;
                    if (!use(&p, kind))
                        break;
                    for (const int sections : { 2, 4, 8 }) {
                        p.sections = sections;
                        p.out = sections == 4 ? ORDO_F32 : in;
                        p.add = sections == 4;
                        p.bias = sections != 2;
                        check(p);
                    }
                    for (const int64_t(&s)[3] : sizes) {
                        problem q = { s[0], s[1], s[2], a_rows, b_rows };
                        q.in = q.out = in;
                        use(&q, kind);
                        check(q);
                        q.out = ORDO_F32, q.pad = 8, q.bias = true;
                        check(q);
                        q.add = true, q.bias = false;
                        check(q);
                    }
                }
}

/* ---- what bits do not depend on ---- */

/* Rows alone, and in batches of other sizes and at other places. */
static void check_rows(bool b_rows, ordo_dtype out)
{
    problem p = { 300, 424, 1000, false, b_rows };
    p.out = out, p.bias = true;
    const result all = multiply(p);
    for (const int64_t batch : { 1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 200, 299 })
        for (const int64_t first : { (int64_t)0, (int64_t)1, 300 - batch }) {
            problem q = p;
            q.m = batch;
            const long wrong = differ(multiply(q, first), batch, p.n, all, first);
            char text[400];
            describe(text, sizeof text, q, "elements that depend on the batch", wrong);
            verdict(wrong == 0, "%s", text);
        }
}

/* Storage, columns of B, and exchanged operands: C^T = B^T A^T. */
static void check_storage(void)
{
    problem p = { 200, 328, 520, false, false };
    const result plain = multiply(p);
    for (int x = 1; x < 4; x++) {
        problem q = p;
        q.a_rows = x & 1, q.b_rows = x >> 1, q.pad = 16;
        const long wrong = differ(multiply(q), p.m, p.n, plain, 0);
        char text[400];
        describe(text, sizeof text, q, "elements that depend on the storage", wrong);
        verdict(wrong == 0, "%s", text);
    }
    for (const int64_t n : { 1, 8, 100, 256 }) {
        problem q = p;
        q.n = n;
        const long wrong = differ(multiply(q), p.m, n, plain, 0);
        char text[400];
        describe(text, sizeof text, q, "elements that depend on the columns", wrong);
        verdict(wrong == 0, "%s", text);
    }
}

/* The distance to a sum in fp64. A step truncates 17 terms at 2^-25 of the largest exponent and its
 * result at 2^-23, and neither is above the sum S of magnitudes: 21 2^-25 S per step. */
static void check_accuracy(void)
{
    problem p = { 128, 256, 4096, false, true };
    p.out = ORDO_F32;
    const result r = multiply(p);
    double worst = 0.0;
    for (int64_t x = 0; x < 500; x++) {
        const int64_t i = x * 7 % p.m, j = x * 11 % p.n;
        double sum = 0.0, size = 0.0;
        for (int64_t k = 0; k < p.k; k++) {
            const double term = (double)value_of(p.in, element(p.in, 0, i, k)) *
                                (double)value_of(p.in, element(p.in, 1, j, k));
            sum += term;
            size += fabs(term);
        }
        const double bound = (double)(p.k / 16) * 21 * 0x1p-25 * size;
        worst = fmax(worst, fabs((double)ordo_f32_of_bits(r.at(i, j)) - sum) / bound);
    }
    char text[400];
    snprintf(text, sizeof text, "error by its bound: %g", worst);
    printf("%s\n", text);
    verdict(worst <= 1.0, "%s", text);
}

/* ---- the edges ---- */

static void check_empty(void)
{
    for (const bool add : { false, true })
        for (const bool bias : { false, true })
            for (const int sections : { 1, 8 }) {
                problem p = { 70, 37, 0, false, true };
                p.out = ORDO_F32, p.add = add, p.bias = bias, p.sections = sections;
                check(p);
            }
    for (int x = 0; x < 2; x++) {
        problem p = { x ? 0 : 5, x ? 5 : 0, 64, false, false };
        check(p);
    }
}

int main(void)
{
    if (device_is_missing())
        return 77;
    check_kernels();
    for (const ordo_dtype out : { ORDO_BF16, ORDO_F32 })
        for (const bool b_rows : { false, true })
            check_rows(b_rows, out);
    check_storage();
    check_accuracy();
    check_empty();
    return report_all();
}
