/* A backward pass in parts of its rows, each continuing the f32 sums of dk and dv of the part
 * before it, where the grid has none: a NaN in one part spoils the keys that see it and no others.
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
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
