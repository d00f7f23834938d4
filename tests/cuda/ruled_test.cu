/* The forward kernels that know their rule of scores (sm90/forward/ruled.h) beside the others, bit
 * by bit: o and lse of dense batches beside the plain kernel; and, as no dropout changes lse, lse
 * of any batch and rule beside the general kernel with dropout. Without a device of compute
 * capability 9.0: compiled, and skipped. */
#include "handmade_batch.h"

static int passed, failed;

static void count(bool same, const char *beside, const general_shape &z, ordo_layout layout)
{
    passed += same;
    failed += !same;
    if (!same)
        printf(
            "FAIL beside the %s kernel: %s dim %d%s, %zu sequences, the first %dx%d, window %d,%d, "
            "softcap %g%s\n",
            beside, ordo_layout_name(layout), z.head_dim, z.f16 ? " f16" : "", z.q_lens.size(),
            z.q_lens[0], z.kv_lens[0], z.left, z.right, (double)z.softcap, z.alibi ? " alibi" : "");
}

static bool same_bits(const std::vector<float> &a, const std::vector<float> &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

static void beside_plain(int dim, bool f16, int right)
{
    general_shape z = { dim, 4, 2, f16, { 700, 700 }, { 900, 900 }, -1, right };
    general_case plain(z, ORDO_DENSE);
    z.left = ORDO_BAND_OPEN - 1; /* open, but not plain */
    general_case ruled(z, ORDO_DENSE);
    const bool lse = same_bits(plain.forward(), ruled.forward());
    count(lse && case_download(plain.o, plain.q_count) == case_download(ruled.o, ruled.q_count),
          "plain", z, ORDO_DENSE);
}

static void beside_general(general_shape z, ordo_layout layout)
{
    const std::vector<float> lse = general_case(z, layout).forward();
    for (const ordo_keep_source source : { ORDO_KEEP_GIVEN, ORDO_KEEP_MADE }) {
        z.keep = source;
        count(same_bits(general_case(z, layout).forward(), lse), "general", z, layout);
    }
}

static void check(int dim, bool f16)
{
    /* Logits beyond half of a softcap of 1; not beyond that of 30 or 100, which is not bounded. */
    const float caps[] = { 0, 1, 30, 100 };
    general_shape ragged = {
        dim, 4, 2, f16, { 5, 200, 0, 131, 1, 700 }, { 300, 200, 7, 0, 1, 500 }
    };
    general_shape dense = { dim, 2, 1, f16, { 600 }, { 800 } };
    for (const float cap : caps)
        for (const bool alibi : { false, true })
            for (const int left : { -1, 200 }) {
                ragged.softcap = dense.softcap = cap;
                ragged.alibi = dense.alibi = alibi;
                ragged.left = dense.left = left;
                ragged.right = dense.right = left < 0 ? 0 : 20;
                beside_general(ragged, ORDO_PACKED);
                beside_general(ragged, ORDO_PADDED);
                beside_general(dense, ORDO_DENSE);
            }
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    for (const int dim : { 128, 64 })
        for (const bool f16 : { false, true }) {
            beside_plain(dim, f16, -1);
            beside_plain(dim, f16, 0);
            check(dim, f16);
        }
    check(80, false);
    check(40, false);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
