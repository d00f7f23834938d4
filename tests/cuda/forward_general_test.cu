/* The general forward kernel against sums in f64: types, head sizes, layouts, windows, softcap,
 * ALiBi, dropout; and the bits: repeats, grids, layouts, alone and in a batch, bits given and made
 * inside. Without a device of compute capability 9.0: compiled, and skipped. */
#include "general_case.h"

static int passed, failed;

static void report(bool ok, const general_shape &z, const char *what, const general_errors &e)
{
    passed += ok;
    failed += !ok;
    if (ok)
        return;
    printf("FAIL %s: %s dim %d window %d,%d cap %g alibi %d drop %d: o %.2e worst %.2e lse %.2e "
           "wrong %zu\n",
           what, z.f16 ? "f16" : "bf16", z.head_dim, z.left, z.right, z.softcap, z.alibi,
           (int)z.keep, e.o, e.worst, e.lse, e.wrong);
    fflush(stdout);
}

static general_result check_numbers(general_case &c, const char *what)
{
    const general_result got = c.forward();
    const general_errors e = c.compare(got);
    const double unit = c.z.f16 ? 0x1p-11 : 0x1p-8;
    report(e.wrong == 0 && e.o < unit && e.worst < 16 * unit && e.lse < 2e-5, c.z, what, e);
    return got;
}

/* One sequence of a batch, alone. */
static general_shape alone(const general_shape &z, int b)
{
    general_shape one = z;
    one.q_lens = { z.q_lens[b] };
    one.kv_lens = { z.kv_lens[b] };
    one.numbers = { b };
    return one;
}

static void check_shape(const general_shape &z)
{
    general_case packed(z, ORDO_PACKED), padded(z, ORDO_PADDED);
    const general_result first = check_numbers(packed, "packed");
    bool same = true;
    for (const int workers : { 132, 132, 32, 1 })
        same = same && packed.forward(workers) == first;
    report(same, z, "repeats and grids of 132, 32, 1", {});
    report(padded.forward() == first, z, "padded as packed", {});
    general_result all;
    for (int b = 0; b < packed.sequences; b++) {
        if (z.q_lens[b] == 0 || z.kv_lens[b] == 0) { /* dense batches have no such ones */
            all.o.insert(all.o.end(), (size_t)z.q_lens[b] * z.heads * z.head_dim, 0);
            all.lse.insert(all.lse.end(), (size_t)z.q_lens[b] * z.heads, -INFINITY);
            continue;
        }
        general_case one(alone(z, b), ORDO_DENSE);
        const general_result part = one.forward();
        all.o.insert(all.o.end(), part.o.begin(), part.o.end());
        all.lse.insert(all.lse.end(), part.lse.begin(), part.lse.end());
    }
    report(all == first, z, "alone as in the batch", {});
    if (z.keep == ORDO_KEEP_GIVEN) {
        general_shape inside = z;
        inside.keep = ORDO_KEEP_MADE;
        general_case made(inside, ORDO_PACKED);
        report(made.forward() == first, z, "bits made inside as given", {});
    }
}

/* Sequences of equal lengths: dense, packed and padded. */
static void check_equal(general_shape z)
{
    general_case dense(z, ORDO_DENSE), packed(z, ORDO_PACKED), padded(z, ORDO_PADDED);
    const general_result first = check_numbers(dense, "dense");
    report(dense.forward(7) == first, z, "dense, a grid of 7", {});
    report(packed.forward() == first, z, "packed as dense", {});
    report(padded.forward() == first, z, "padded as dense", {});
}

/* Every feature of one type and head size. */
static void check_size(bool f16, int head_dim)
{
    const std::vector<int> q = { 200, 0, 1, 333, 64, 130 }, kv = { 200, 77, 129, 300, 0, 257 };
    general_shape z = { head_dim, 4, 2, f16, q, kv };
    check_shape(z);
    z.right = 0; /* causal */
    z.keep = ORDO_KEEP_GIVEN;
    check_shape(z);
    z.left = 100;
    z.row0 = 48;
    z.col0 = 256;
    z.bits = 10;
    z.rounds = 10;
    z.alibi = true;
    z.softcap = 5.0f;
    check_shape(z);
    z.keep = ORDO_KEEP_NONE;
    z.left = 30;
    z.right = 40;
    z.softcap = 0.0f;
    check_shape(z);
    general_shape equal = { head_dim, 4, 1, f16, { 300, 300, 300 }, { 500, 500, 500 }, 170, 0 };
    equal.keep = ORDO_KEEP_MADE;
    check_equal(equal);
    equal.keep = ORDO_KEEP_NONE;
    equal.left = equal.right = -1;
    equal.softcap = 2.0f;
    check_equal(equal);
}

/* Long enough for windows of many tiles, and for several units a block. */
static void check_long(bool f16, int head_dim, bool all)
{
    general_shape z = { head_dim, 8, 4, f16, { 1500, 40, 2300 }, { 1500, 900, 2000 } };
    z.left = 300;
    check_shape(z);
    for (const int left : { -1, 0, 63, 300, 1024 })
        for (const int right : { -1, 0, 200 })
            if (all || (left == 1024 && right == 0)) {
                z.left = left;
                z.right = right;
                check_shape(z);
            }
}

/* With an argument: all windows of long sequences. */
int main(int argc, char **)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    for (const bool f16 : { false, true })
        for (const int head_dim : { 8, 40, 64, 72, 96, 120, 128, 160, 192, 200, 256 }) {
            const int before = failed;
            check_size(f16, head_dim);
            if (head_dim == 64 || head_dim == 128 || head_dim == 256)
                check_long(f16, head_dim, argc > 1);
            printf("%s %s head size %d\n", failed == before ? "ok  " : "FAIL", f16 ? "f16" : "bf16",
                   head_dim);
            fflush(stdout);
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
