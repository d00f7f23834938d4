/* Products of e4m3 on the device: what pass/gemm.h says of them that needs no model of the sums of
 * the matrix cores. Of small integers they are exact; of any numbers an element has the same bits
 * in every kernel, batch and place, and lies near the sum in fp64.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "handmade_gemm.h"

extern "C" {
#include "emulator/dot.h"
}

enum { CHAIN = 128, NAN_BYTE = 0x7f };

/* ---- matrices ---- */

struct problem {
    int64_t m, n, k;
    ordo_dtype out = ORDO_F32;
    int sections = 1;
    bool bias = false, add = false, whole = false; /* whole: of small integers */
    float scale = 0.0f;                            /* 0: none */
    int pad = 0;         /* bytes between rows of A and B, elements of C */
    int64_t first_k = 0; /* of what k is a part */
    const char *name = "chosen";
    ordo_gemm_instance kernel = {}; /* forced, if it is not the one that is chosen */
};

static float number_of(uint8_t x)
{
    const int exponent = x >> 3 & 15, fraction = x & 7;
    const float size =
        exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    return (x & 0x7f) == NAN_BYTE ? NAN : x & 0x80 ? -size : size;
}

/* Element (line, k) of operand `which`: -3 to 3, or any finite number. */
static uint8_t element(const problem &p, int which, int64_t line, int64_t k)
{
    static const uint8_t integers[7] = { 0xc4, 0xc0, 0xb8, 0x00, 0x38, 0x40, 0x44 };
    const uint32_t x = mixed(which, line, k);
    const uint8_t any = (uint8_t)x;
    return p.whole ? integers[x % 7] : (any & 0x7f) == NAN_BYTE ? (uint8_t)0 : any;
}

struct stored {
    int64_t stride;
    std::vector<uint8_t> data;
};

/* `lines` of k, NaN between them. */
static stored store(const problem &p, int which, int64_t first, int64_t lines)
{
    stored s = { (p.k + 15) / 16 * 16 + p.pad, {} };
    s.data.assign((size_t)(lines * s.stride), NAN_BYTE);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t k = 0; k < p.k; k++)
            s.data[(size_t)(line * s.stride + k)] = element(p, which, first + line, p.first_k + k);
    return s;
}

/* ---- one product on the device ---- */

/* Rows `first` and following of A, of which row `poisoned` has a NaN. */
static result multiply(const problem &p, int64_t first = 0, int64_t poisoned = -1)
{
    device_memory memory;
    result r = result_before(p, first);
    stored a = store(p, 0, first, p.m);
    const stored b = store(p, 1, 0, p.n);
    if (poisoned >= 0)
        a.data[(size_t)(poisoned * a.stride + p.k / 2)] = NAN_BYTE;
    ordo_cuda_gemm g = {};
    g.m = p.m, g.n = p.n, g.k = p.k, g.sections = p.sections;
    g.in = ORDO_E4M3, g.out = p.out, g.add = p.add;
    g.a = memory.upload(a.data), g.a_stride = a.stride;
    g.b = memory.upload(b.data), g.b_stride = b.stride;
    g.c = memory.upload(r.c), g.c_stride = r.stride;
    g.bias = p.bias ? memory.upload(bias_row(p)) : NULL;
    g.scale = p.scale != 0.0f ? memory.upload(std::vector<float>(1, p.scale)) : NULL;
    g.workspace = memory.take<uint8_t>((size_t)ordo_gemm_workspace(p.m, p.n, p.sections));
    const ordo_status status = p.kernel.kernel ? ordo_gemm_run(&g, &p.kernel) : ordo_wgmma_gemm(&g);
    must_ordo(status, ordo_cuda_why());
    MUST(cudaDeviceSynchronize());
    r.c = case_download((const uint8_t *)g.c, r.c.size());
    return r;
}

static void tell(const problem &p, const char *what, long count)
{
    verdict(count == 0,
            "%s: %ld, m %ld n %ld k %ld to %s, %d sections%s%s, scale %g, pad %d, kernel %s", what,
            count, (long)p.m, (long)p.n, (long)p.k, ordo_dtype_name(p.out), p.sections,
            p.bias ? ", bias" : "", p.add ? ", add" : "", (double)p.scale, p.pad, p.name);
}

/* ---- small integers ---- */

/* Lines of an operand as numbers. */
static std::vector<float> values(const problem &p, int which, int64_t lines)
{
    std::vector<float> x;
    for (int64_t line = 0; line < lines; line++)
        for (int64_t k = 0; k < p.k; k++)
            x.push_back(number_of(element(p, which, line, k)));
    return x;
}

/* `a`, `b`: the row of A and the column of B. */
static uint32_t wanted(const problem &p, int64_t row, int64_t column, const float *a,
                       const float *b)
{
    float sum[ORDO_GEMM_SECTIONS] = { 0.0f };
    const int64_t each = p.k / p.sections;
    for (int s = 0; s < p.sections; s++) {
        for (int64_t k = s * each; k < (s + 1) * each; k++)
            sum[s] += a[k] * b[k];
        if (p.scale != 0.0f && p.k > 0)
            sum[s] *= p.scale;
    }
    return element_of(p, sum, row, column);
}

static void check_exact(problem p)
{
    p.whole = true;
    const result r = multiply(p);
    const std::vector<float> a = values(p, 0, p.m), b = values(p, 1, p.n);
    long wrong = written_outside(p, r);
    const int64_t each = p.n > 64 ? 7 : 1; /* of wide products every seventh */
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = i % each; j < p.n; j += each)
            wrong += r.at(i, j) != wanted(p, i, j, a.data() + i * p.k, b.data() + j * p.k);
    tell(p, "elements that differ, and bytes outside", wrong);
}

/* Forces kernel number `kind`; false if there are no more. */
static bool use(problem *p, int kind)
{
    ordo_cuda_gemm g = {};
    g.m = p->m, g.in = ORDO_E4M3;
    const char *const name = ordo_gemm_kind(kind, &g, &p->kernel);
    p->name = name && p->kernel.kernel ? name : "chosen";
    return name != NULL;
}

static void check_kernels(void)
{
    static const int64_t sizes[][3] = { { 300, 520, 200 },  { 1, 1, 2 },      { 65, 33, 34 },
                                        { 257, 770, 1112 }, { 5, 1001, 264 }, { 64, 264, 3008 },
                                        { 129, 257, 130 },  { 16, 96, 16 },   { 13, 300, 642 } };
    for (int kind = 0;; kind++) {
        problem p = { 9, 301, CHAIN * 16 };
        if (!use(&p, kind))
            break;
        for (const int sections : { 2, 4, 8 }) {
            p.sections = sections;
            p.out = sections == 4 ? ORDO_F32 : sections == 2 ? ORDO_F16 : ORDO_BF16;
            p.add = sections == 4;
            p.bias = sections != 2;
            p.scale = 0.37f;
            check_exact(p);
        }
        for (const int64_t(&s)[3] : sizes)
            for (const ordo_dtype out : { ORDO_BF16, ORDO_F16, ORDO_F32 }) {
                problem q = { s[0], s[1], s[2], out };
                use(&q, kind);
                check_exact(q);
                q.pad = 16, q.bias = true, q.scale = -0.0123f, q.add = out == ORDO_F32;
                check_exact(q);
            }
    }
    for (const int sections : { 1, 8 }) {
        problem p = { 70, 37, 0 };
        p.bias = true, p.scale = 2.0f, p.sections = sections;
        check_exact(p);
    }
}

/* ---- any numbers: what bits do not depend on ---- */

/* Rows alone, in batches of other sizes and at other places; every kernel; fewer columns. */
static void check_rows(ordo_dtype out)
{
    problem p = { 300, 424, 1000, out };
    p.bias = true, p.scale = 0.7f;
    const result all = multiply(p);
    for (const int64_t batch : { 1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 200, 299 })
        for (const int64_t first : { (int64_t)0, (int64_t)1, 300 - batch })
            for (int kind = -1;; kind++) {
                problem q = p;
                q.m = batch;
                if (kind >= 0 && (out != ORDO_BF16 || !use(&q, kind)))
                    break;
                tell(q, "elements that depend on the batch",
                     differ(multiply(q, first), batch, p.n, all, first));
            }
    for (const int64_t n : { 1, 8, 100, 256 }) {
        problem q = p;
        q.n = n, q.pad = 32;
        tell(q, "elements that depend on the columns", differ(multiply(q), p.m, n, all, 0));
    }
}

/* Sections are products of a part of k each, and the tree over them; a chain that k cuts short is
 * one of zeros. */
static void check_sections(void)
{
    problem p = { 40, 72, 4 * CHAIN * 3 };
    p.sections = 4, p.scale = 0.7f;
    const result all = multiply(p);
    result part[4];
    for (int s = 0; s < 4; s++) {
        problem q = p;
        q.sections = 1, q.k = p.k / 4, q.first_k = s * q.k;
        part[s] = multiply(q);
    }
    long wrong = 0;
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            float x[4];
            for (int s = 0; s < 4; s++)
                x[s] = ordo_f32_of_bits(part[s].at(i, j));
            wrong += ordo_f32_bits((x[0] + x[1]) + (x[2] + x[3])) != all.at(i, j);
        }
    tell(p, "elements that are not the tree of the sections", wrong);

    /* Chains are added in f32, the first to 0. */
    problem q = { 40, 72, 2 * CHAIN + 50 };
    const result whole = multiply(q);
    result chain[3];
    for (int c = 0; c < 3; c++) {
        problem z = q;
        z.k = c < 2 ? CHAIN : 50, z.first_k = c * CHAIN;
        chain[c] = multiply(z);
    }
    wrong = 0;
    for (int64_t i = 0; i < q.m; i++)
        for (int64_t j = 0; j < q.n; j++) {
            float x = 0.0f;
            for (int c = 0; c < 3; c++)
                x += ordo_f32_of_bits(chain[c].at(i, j));
            wrong += ordo_f32_bits(x) != whole.at(i, j);
        }
    tell(q, "elements that are not the sum of their chains", wrong);
}

/* The bits of the emulator's step, whose rule this is the proof of. */
static void check_emulated(void)
{
    for (const int64_t k : { 32, 128, 130, 1000, 4096 }) {
        problem p = { 130, 260, k };
        const result r = multiply(p);
        long wrong = 0;
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = i % 13; j < p.n; j += 13) {
                float sum = 0.0f;
                for (int64_t from = 0; from < k; from += CHAIN) {
                    uint32_t chain = 0;
                    for (int64_t x = from; x < from + CHAIN && x < k; x += 32) {
                        uint8_t a[32] = { 0 }, b[32] = { 0 };
                        for (int64_t y = 0; y < 32 && x + y < k; y++) {
                            a[y] = element(p, 0, i, x + y);
                            b[y] = element(p, 1, j, x + y);
                        }
                        chain = ordo_emulator_dot_e4m3(&ordo_emulator_hopper_e4m3, a, b, chain);
                    }
                    sum += ordo_f32_of_bits(chain);
                }
                wrong += r.at(i, j) != ordo_f32_bits(sum);
            }
        tell(p, "elements that the emulator computes otherwise", wrong);
    }
}

/* A NaN is one of its row alone. */
static void check_nan(void)
{
    problem p = { 70, 100, 300 };
    const result clean = multiply(p), r = multiply(p, 0, 9);
    long wrong = 0;
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
            wrong += r.at(i, j) != (i == 9 ? 0x7fffffffu : clean.at(i, j));
    tell(p, "elements of a product with one NaN", wrong);
}

/* The distance to a sum in fp64. If a step keeps 13 bits behind the point of its largest exponent,
 * as publications say, it truncates 33 terms at 2^-13 of that and its result likewise, and none is
 * above the sum S of magnitudes of its chain: 34 2^-13 S per step, four steps per chain. The
 * additions in f32 are negligible beside it. */
static void check_accuracy(void)
{
    problem p = { 128, 256, 4096 };
    const result r = multiply(p);
    double worst = 0.0, mean = 0.0;
    for (int64_t x = 0; x < 500; x++) {
        const int64_t i = x * 7 % p.m, j = x * 11 % p.n;
        double sum = 0.0, size = 0.0;
        for (int64_t k = 0; k < p.k; k++) {
            const double term =
                (double)number_of(element(p, 0, i, k)) * (double)number_of(element(p, 1, j, k));
            sum += term;
            size += fabs(term);
        }
        const double error = fabs((double)ordo_f32_of_bits(r.at(i, j)) - sum) / size;
        worst = fmax(worst, error), mean += error / 500;
    }
    printf("error by the sum of magnitudes: mean %.2e, worst %.2e, bound %.2e\n", mean, worst,
           4 * 34 * 0x1p-13);
    verdict(worst <= 4 * 34 * 0x1p-13, "error by the sum of magnitudes: %g", worst);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    check_kernels();
    for (const ordo_dtype out : { ORDO_BF16, ORDO_F16, ORDO_F32 })
        check_rows(out);
    check_sections();
    check_emulated();
    check_nan();
    check_accuracy();
    return report_all();
}
