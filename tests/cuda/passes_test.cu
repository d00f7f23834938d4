/* Both passes on a device against sums in f64: every mask, ragged lengths, shared keys, every
 * order. Outputs are poisoned first, so what is not written shows.
 *
 * Without a device of compute capability 9.0: compiled, and skipped. */
#include "case.h"

static int passed, failed;

static void check(const case_shape &z, uint32_t seed)
{
    device_case c(z, seed);
    c.forward();
    c.poison();
    c.backward();
    MUST(cudaDeviceSynchronize());
    const case_errors e = case_compare(c);
    /* bf16 rounds by 2^-9 at worst: once in P or dS, once in the output. Of a few numbers only, the
     * rounded O in delta shows where dP - delta cancels. */
    const double most = (double)z.q_len * z.kv_len < 10000 ? 1e-2 : 4e-3;
    const bool ok = e.not_finite == 0 && e.o < 3e-3 && e.lse < 1e-5 && e.dq < most && e.dk < most &&
                    e.dv < most;
    passed += ok;
    failed += !ok;
    printf("%s batch %d heads %d/%d %dx%d dim %d %s order %s: o %.2e lse %.1e dq %.2e dk %.2e "
           "dv %.2e, %zu not finite\n",
           ok ? "ok  " : "FAIL", z.batch, z.heads, z.kv_heads, z.q_len, z.kv_len, z.head_dim,
           ordo_mask_name(z.mask), ordo_order_name(c.pass.run.order), e.o, e.lse, e.dq, e.dk, e.dv,
           e.not_finite);
    fflush(stdout);
}

int main(void)
{
    if (!case_have_device()) {
        puts("skipped: no device of compute capability 9.0");
        return 77;
    }
    uint32_t seed = 1;
    for (const int dim : { 128, 64 })
        for (const ordo_mask mask :
             { ORDO_MASK_FULL, ORDO_MASK_CAUSAL, ORDO_MASK_CAUSAL_TOP_LEFT }) {
            check({ 1, 1, 1, 128, 128, dim, mask }, seed++);
            check({ 2, 4, 2, 256, 384, dim, mask }, seed++);
            check({ 1, 3, 3, 333, 333, dim, mask }, seed++);
            check({ 2, 4, 1, 1024, 777, dim, mask }, seed++);
            check({ 1, 8, 2, 500, 1200, dim, mask }, seed++);
            check({ 3, 5, 5, 640, 640, dim, mask }, seed++);
            check({ 1, 2, 2, 65, 1, dim, mask }, seed++);
            check({ 1, 2, 1, 2, 300, dim, mask }, seed++);
        }
    for (const int dim : { 128, 64 })
        for (int order = 1; order <= ORDO_ORDER_COUNT; order++)
            for (const ordo_mask mask : { ORDO_MASK_FULL, ORDO_MASK_CAUSAL }) {
                const bool groups = ordo_order_cyclic((ordo_order)order);
                check({ 1, 4, 2, 1024, 1024, dim, mask, (ordo_order)order, 0, groups ? 4 : 0 },
                      seed++);
            }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
