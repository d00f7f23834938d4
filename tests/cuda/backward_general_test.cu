/* The backward pass for any layout, type, head size and rule on a device: against sums in f64, and
 * the same bits from every repeat, grid, layout and batch, from bits given and made inside, and
 * with random delays before every turn. Outputs are poisoned first, so what is not written shows.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "backward_case.h"
#include "cuda/backward/launch.h"

static int passed, failed;

static const char *layout_name(ordo_layout layout)
{
    return layout == ORDO_DENSE ? "dense" : layout == ORDO_PACKED ? "packed" : "padded";
}

static void report(bool ok, const char *what, const backward_case &c, const char *more = "")
{
    passed += ok;
    failed += !ok;
    if (ok && *more == 0)
        return; /* thousands of them */
    const general_shape &z = c.z;
    printf("%s %s: %s %s dim %d heads %d/%d, %zu sequences, the first %dx%d window %d,%d%s%s%s "
           "drop %d order %s%s\n",
           ok ? "ok  " : "FAIL", what, layout_name(c.layout), z.f16 ? "f16" : "bf16", z.head_dim,
           z.heads, z.kv_heads, z.q_lens.size(), z.q_lens[0], z.kv_lens[0], z.left, z.right,
           z.softcap > 0 ? " softcap" : "", z.alibi ? " alibi" : "", c.pass.dlse ? " dlse" : "",
           (int)z.keep, ordo_order_name(c.pass.run.order), more);
    fflush(stdout);
}

/* ---- against the reference ---- */

static void check_errors(backward_case &c)
{
    char text[120];
    const gradient_errors e = c.errors();
    double pairs = 0;
    for (int b = 0; b < c.sequences; b++)
        pairs += (double)c.z.q_lens[b] * c.z.kv_lens[b];
    /* passes_test.cu says why these; f16 rounds by an eighth of that, lse by f32. */
    const double most = (pairs < 20000 || c.z.left >= 0 ? 1e-2 : 5e-3) * (c.z.f16 ? 0.25 : 1);
    const bool ok = e.not_finite == 0 && e.dq < most && e.dk < most && e.dv < most;
    snprintf(text, sizeof text, ": dq %.2e dk %.2e dv %.2e, %zu not finite", e.dq, e.dk, e.dv,
             e.not_finite);
    report(ok, "f64", c, text);
}

/* ---- the same bits ---- */

static void backward_delayed(backward_case &c)
{
    char why[300] = "";
    must_ordo(backward_general<ORDO_DQ_DELAYED, false>(&c.pass, why, sizeof why), why);
}

static void check_bits(backward_case &c, const gradients &first)
{
    bool same = true;
    for (int n = 0; n < 3; n++)
        same = same && c.run() == first;
    report(same, "repeats", c);
    report(c.run(32) == first && c.run(1) == first, "grids of 132, 32 and 1", c);
    if (c.z.f16 || ordo_backward_plain(&c.pass))
        return;
    for (int n = 0; n < 2 && same; n++) {
        c.poison();
        backward_delayed(c);
        same = c.result() == first;
    }
    report(same, "random delays before every turn", c);
}

/* Each sequence alone, dense. */
static void check_alone(const general_shape &z, backward_case &batch, bool with_dlse,
                        ordo_order order)
{
    bool same = true;
    for (int b = 0; b < batch.sequences; b++) {
        if (z.q_lens[b] == 0 || z.kv_lens[b] == 0)
            continue;
        general_shape one = z;
        one.q_lens = { z.q_lens[b] };
        one.kv_lens = { z.kv_lens[b] };
        one.numbers = { batch.z.numbers[b] };
        backward_case alone(one, ORDO_DENSE, with_dlse, order);
        same = same && alone.run() == batch.result(b);
    }
    report(same, "alone and in a batch", batch);
}

/* A sequence of NaN beside others: their bits are the same. */
static void check_neighbours(const general_shape &z, const backward_case &whole, ordo_order order)
{
    backward_case c(z, ORDO_PACKED, whole.pass.dlse, order);
    c.run();
    std::vector<gradients> clean;
    for (int b = 0; b < c.sequences; b++)
        clean.push_back(c.result(b));
    const int bad = c.sequences / 2;
    c.spoil(bad, 0, z.q_lens[bad], 0, z.kv_lens[bad]);
    c.run();
    bool same = true;
    for (int b = 0; b < c.sequences; b++)
        same = same && (b == bad || c.result(b) == clean[(size_t)b]);
    report(same, "beside a sequence of NaN", c);
}

/* A batch in both ragged layouts; with bits given and made inside. */
static void check(general_shape z, bool with_dlse = false, ordo_order order = ORDO_ORDER_SPT)
{
    backward_case packed(z, ORDO_PACKED, with_dlse, order);
    const gradients first = packed.run();
    check_errors(packed);
    check_bits(packed, first);
    packed.run();
    check_alone(z, packed, with_dlse, order);
    backward_case padded(z, ORDO_PADDED, with_dlse, order);
    report(padded.run() == first, "packed and padded", padded);
    report(padded.padding_is_zero(), "padding", padded);
    check_neighbours(z, packed, order);
    if (z.keep == ORDO_KEEP_GIVEN) {
        z.keep = ORDO_KEEP_MADE;
        backward_case inside(z, ORDO_PACKED, with_dlse, order);
        const gradients made = inside.run();
        report(made == first, "bits given and made inside", inside);
        check_bits(inside, made);
        backward_case too(z, ORDO_PADDED, with_dlse, order);
        report(too.run() == first, "bits given and made inside", too);
    }
}

/* Sequences of one length: dense, as plain instances run it if they can, as general ones do, and
 * packed. */
static void check_dense(general_shape z, bool with_dlse = false, ordo_order order = ORDO_ORDER_SPT)
{
    backward_case dense(z, ORDO_DENSE, with_dlse, order);
    const gradients first = dense.run();
    check_errors(dense);
    check_bits(dense, first);
    if (ordo_backward_plain(&dense.pass)) {
        dense.pass.dlse = dense.upload(std::vector<float>(dense.lse_count, 0.0f));
        report(dense.run() == first, "plain and general", dense);
        check_bits(dense, first);
    }
    if (order == ORDO_ORDER_SHIFT || order == ORDO_ORDER_SYMMETRIC || order == ORDO_ORDER_TWIN)
        return; /* not for ragged ones */
    backward_case packed(z, ORDO_PACKED, with_dlse, order);
    report(packed.run() == first, "dense and packed", packed);
}

static general_shape shape_of(int dim, bool f16, int heads, int kv_heads, std::vector<int> q_lens,
                              std::vector<int> kv_lens, int left, int right)
{
    general_shape z = {};
    z.head_dim = dim;
    z.heads = heads;
    z.kv_heads = kv_heads;
    z.f16 = f16;
    z.q_lens = q_lens;
    z.kv_lens = kv_lens;
    z.left = left;
    z.right = right;
    return z;
}

static void check_dim(int dim, bool f16)
{
    const std::vector<int> q_lens = { 5, 200, 0, 131, 64, 1, 300 };
    const std::vector<int> kv_lens = { 300, 200, 7, 0, 130, 1, 129 };
    general_shape z = shape_of(dim, f16, 4, 2, q_lens, kv_lens, -1, -1);
    check(z);
    z.right = 0;
    check(z, true, ORDO_ORDER_SPT_TAIL);
    z.left = 70;
    z.keep = ORDO_KEEP_GIVEN;
    check(z, false, ORDO_ORDER_DESCENDING);
    z.right = 20;
    z.softcap = 1.5f;
    check(z, true, ORDO_ORDER_ASCENDING);
    z.keep = ORDO_KEEP_NONE;
    check(z);
    z.alibi = true;
    check(z);
    z.softcap = 0;
    z.left = z.right = -1;
    check(z);
    z = shape_of(dim, f16, 4, 2, { 333, 333 }, { 400, 400 }, -1, 0);
    check_dense(z);
    z.keep = ORDO_KEEP_GIVEN;
    check_dense(z);
    z.keep = ORDO_KEEP_MADE;
    z.rounds = 10;
    z.bits = 11;
    z.row0 = 48;
    z.col0 = 384;
    check_dense(z);
    z.keep = ORDO_KEEP_NONE;
    z.left = 90;
    check_dense(z, true);
}

/* More chains than workers, tiles that no side cuts, every order. */
static void check_long(int dim, bool f16)
{
    general_shape z = shape_of(dim, f16, 6, 3, { 1500, 700, 2000 }, { 1500, 900, 2000 }, 400, 0);
    check(z, false, ORDO_ORDER_SPT_TAIL);
    z.left = -1;
    z.keep = ORDO_KEEP_GIVEN;
    check(z);
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        check_dense(shape_of(dim, f16, 4, 4, { 1024, 1024 }, { 1024, 1024 }, -1, 0), true,
                    (ordo_order)order);
}

int main(int argc, char **argv)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    const bool brief = argc > 1 && strcmp(argv[1], "brief") == 0;
    for (const int dim : { 128, 64, 8, 40, 72, 96, 120 })
        for (const bool f16 : { false, true })
            if (!brief || dim == 64 || dim == 128 || f16)
                check_dim(dim, f16);
    for (const int dim : { 128, 64 })
        for (const bool f16 : { false, true })
            if (!brief || !f16)
                check_long(dim, f16);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
