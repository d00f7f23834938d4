/* gemm.c: the time of a matrix product and of a copy: the longest of their limiters.
 *
 *   mma      2 m n k / (rate * efficiency)
 *   l2       operands of each tile, once a step; shared by a cluster
 *   hbm      each operand once
 *   shared   operands written once and read by each product */
#include "model/model.h"

static double value(const ordo_model *model, ordo_constant constant)
{
    return ordo_model_value(model, constant);
}

static double gemm_efficiency(const ordo_model *model, ordo_precision precision)
{
    return value(model, precision == ORDO_PRECISION_FP8   ? ORDO_C_GEMM_EFFICIENCY_FP8
                        : precision == ORDO_PRECISION_F32 ? ORDO_C_GEMM_EFFICIENCY_F32
                                                          : ORDO_C_GEMM_EFFICIENCY_16);
}

static double gemm_tiles(const ordo_model *model, const ordo_gemm *g)
{
    return (double)ordo_price_tiles((double)g->m, value(model, ORDO_C_GEMM_TILE_M)) *
           (double)ordo_price_tiles((double)g->n, value(model, ORDO_C_GEMM_TILE_N));
}

double ordo_gemm_tail(const ordo_model *model, const ordo_gemm *gemm)
{
    const double share = gemm_tiles(model, gemm) / value(model, ORDO_C_WORKERS);
    return 1 - share / ceil(share);
}

ordo_priced ordo_price_gemm(const ordo_model *model, const ordo_gemm *g)
{
    const double tm = value(model, ORDO_C_GEMM_TILE_M), tn = value(model, ORDO_C_GEMM_TILE_N);
    const double tk = value(model, ORDO_C_GEMM_TILE_K);
    const double bytes = ordo_precision_bytes(g->precision);
    const double steps = (double)ordo_price_tiles((double)g->k, tk), tiles = gemm_tiles(model, g);
    const double each =
        tiles * ordo_price_waves(model, tiles) / ordo_price_clocks(model, ORDO_C_CLOCK_TENSOR);
    const double rate =
        ordo_model_tensor(model, g->precision) * gemm_efficiency(model, g->precision);
    const double m = (double)g->m, n = (double)g->n, k = (double)g->k;
    ordo_kernel_time t = { 0 };
    t.by[ORDO_LIMIT_MMA] = each * steps * ordo_price_over(2 * tm * tn * tk, rate);
    t.by[ORDO_LIMIT_L2_READ] =
        each * steps *
        ordo_price_over((tm + tn) * tk * bytes / value(model, ORDO_C_GEMM_MULTICAST),
                        value(model, ORDO_C_L2_READ));
    /* The accumulator is read once per instruction, which covers 32 bytes of the inner
     * dimension. */
    t.by[ORDO_LIMIT_RF_READ] =
        each * steps * ordo_price_over(tm * tn * tk * bytes / 32, value(model, ORDO_C_RF));
    /* Operands are written once; then each group of rows reads its part of A and all of B. */
    t.by[ORDO_LIMIT_SHARED] =
        each * steps *
        ordo_price_over((tm + tn + tm + ordo_price_over(tm * tn, value(model, ORDO_C_MMA_ROWS))) *
                            tk * bytes,
                        ordo_price_shared_rate(model));
    t.by[ORDO_LIMIT_ISSUE] =
        each * ordo_price_over(value(model, ORDO_C_GEMM_ISSUE_STEP) * ORDO_WARP * steps +
                                   value(model, ORDO_C_GEMM_ISSUE_OUTPUT) * tm * tn,
                               value(model, ORDO_C_ISSUE) * value(model, ORDO_C_ISSUE_EFFICIENCY));
    t.by[ORDO_LIMIT_HBM_READ] =
        ordo_price_over((m * k + n * k) * bytes, value(model, ORDO_C_HBM_READ));
    if (ordo_model_on(model, ORDO_C_COUNT_WRITES)) /* results have 16 bits, or are f32 */
        t.by[ORDO_LIMIT_HBM_WRITE] =
            ordo_price_over(m * n * (bytes > 2 ? bytes : 2), value(model, ORDO_C_HBM_WRITE));
    return ordo_price_finish(model, t, 2 * m * n * k * ordo_model_flop_energy(model, g->precision));
}

/* Reads and writes share the memory: bytes read and written run at the rate of a copy. */
ordo_priced ordo_price_memory(const ordo_model *model, double read_bytes, double write_bytes)
{
    ordo_kernel_time t = { 0 };
    const double both = read_bytes < write_bytes ? read_bytes : write_bytes;
    const double reads = read_bytes - both, writes = write_bytes - both;
    t.by[read_bytes >= write_bytes ? ORDO_LIMIT_HBM_READ : ORDO_LIMIT_HBM_WRITE] =
        ordo_price_over(2 * both, value(model, ORDO_C_HBM_COPY)) +
        ordo_price_over(reads, value(model, ORDO_C_HBM_READ)) +
        ordo_price_over(writes, value(model, ORDO_C_HBM_WRITE));
    ordo_priced priced = ordo_price_finish(model, t, 0);
    priced.joules = priced.clock_seconds * value(model, ORDO_C_ORDINARY_POWER);
    return priced;
}
