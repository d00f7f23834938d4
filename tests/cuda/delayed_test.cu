/* The varlen backward kernels with random delays before every turn: the bits of the same passes
 * without delays, whatever the layout, the rule, the order of sums and the source of keep bits.
 * Such kernels are made for this test only; repeat_test.cu delays the dense ones. Without a device
 * of compute capability 9.0: compiled, and skipped. */
#include "cuda/sm90/backward/launch.h"
#include "cuda/sm90/backward/rows.h"
#include "handmade_batch.h"

static void check(const general_shape &z, ordo_layout layout, bool with_dlse, ordo_order order)
{
    backward_case c(z, layout, with_dlse, order);
    const gradients first = c.run();
    const ordo_backward_instance delayed = backward_varlen<ORDO_DQ_DELAYED, false>(
        ordo_pass_bucket(&c.pass), ordo_pass_keep_source(&c.pass));
    bool same = true;
    for (int n = 0; n < 2; n++) {
        c.poison();
        must_ordo(ordo_backward_run(&c.pass, delayed), ordo_cuda_why());
        same = same && c.result() == first;
    }
    verdict(
        same,
        "%s dim %d heads %d/%d, %zu sequences, the first %dx%d window %d,%d%s%s%s drop %d order %s",
        ordo_layout_name(layout), z.head_dim, z.heads, z.kv_heads, z.q_lens.size(), z.q_lens[0],
        z.kv_lens[0], z.left, z.right, z.softcap > 0 ? " softcap" : "", z.alibi ? " alibi" : "",
        with_dlse ? " dlse" : "", (int)z.keep, ordo_order_name(order));
}

static void check_sources(general_shape z, ordo_layout layout, bool with_dlse, ordo_order order)
{
    for (const ordo_keep_source source : { ORDO_KEEP_NONE, ORDO_KEEP_GIVEN, ORDO_KEEP_MADE }) {
        z.keep = source;
        check(z, layout, with_dlse, order);
    }
}

static void check_dim(int dim)
{
    const std::vector<int> q_lens = { 5, 200, 0, 131, 64, 1, 300 };
    const std::vector<int> kv_lens = { 300, 200, 7, 0, 130, 1, 129 };
    general_shape z = { dim, 4, 2, false, q_lens, kv_lens };
    check_sources(z, ORDO_PACKED, false, ORDO_ORDER_SPT);
    z.right = 0;
    check_sources(z, ORDO_PADDED, true, ORDO_ORDER_SPT_TAIL);
    z.left = 70;
    check_sources(z, ORDO_PACKED, false, ORDO_ORDER_DESCENDING);
    z.right = 20;
    z.softcap = 1.5f;
    check_sources(z, ORDO_PACKED, true, ORDO_ORDER_ASCENDING);
    z.alibi = true;
    check_sources(z, ORDO_PADDED, false, ORDO_ORDER_SPT);
    z = { dim, 4, 2, false, { 333, 333 }, { 400, 400 }, 90, 0 };
    z.rounds = 10;
    z.bits = 11;
    z.row0 = 48;
    z.col0 = 384;
    check_sources(z, ORDO_DENSE, true, ORDO_ORDER_SPT);
}

/* More chains than workers, whole tiles, every order. */
static void check_long(int dim)
{
    general_shape z = { dim, 6, 3, false, { 1500, 700, 2000 }, { 1500, 900, 2000 }, 400, 0 };
    check_sources(z, ORDO_PACKED, false, ORDO_ORDER_SPT_TAIL);
    z = { dim, 4, 4, false, { 1024, 1024 }, { 1024, 1024 }, -1, 0 };
    z.alibi = true; /* else the dense kernels would run it, whose statistics lie elsewhere */
    for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
        check(z, ORDO_DENSE, true, (ordo_order)order);
}

int main(void)
{
    if (device_is_missing())
        return 77;
    for (const int dim : { 128, 64, 8, 40, 72, 96, 120 })
        check_dim(dim);
    for (const int dim : { 128, 64 })
        check_long(dim);
    return report_all();
}
