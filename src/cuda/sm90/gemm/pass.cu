/* sm90/gemm/pass.cu: which kernel runs a product. All give the same bits. */
#include "cuda/sm90/gemm/gemm.h"
#include "cuda/sm90/gemm/instances.h"
#include "cuda/support/launch.h"

enum { FEW_ROWS = 64 };

#define KIND(NAME)                                                                                 \
    {                                                                                              \
#NAME,                                                                                     \
        {                                                                                          \
            ordo_gemm_##NAME##_bf16, ordo_gemm_##NAME##_f16, ordo_gemm_##NAME##_e4m3               \
        }                                                                                          \
    }

static const struct {
    const char *name;
    ordo_gemm_instance (*of[3])(bool a_rows_are_k, bool b_rows_are_k);
} kinds[] = {
    KIND(wide), KIND(narrow), KIND(rows_128), KIND(rows_96), KIND(rows_64), KIND(rows_32)
};

const char *ordo_gemm_kind(int kind, const ordo_cuda_gemm *g, ordo_gemm_instance *kernel)
{
    if (kind >= (int)(sizeof kinds / sizeof *kinds))
        return NULL;
    *kernel = kinds[kind].of[g->in - ORDO_BF16](g->a_rows_are_k, g->b_rows_are_k);
    if (kernel->rows <= FEW_ROWS && g->m > FEW_ROWS)
        kernel->kernel = NULL;
    return kinds[kind].name;
}

/* The time of a kernel, for products of one shape, as docs/design/gemm.md derives it: of many rows
 * the columns of the tiles that a block computes, of few rows the columns that it loads or, if that
 * takes longer, what all blocks load from L2. */
static double price(const ordo_cuda_gemm *g, const ordo_gemm_instance *kernel, int blocks)
{
    const int64_t down =
        (g->m + kernel->rows * kernel->cluster - 1) / (kernel->rows * kernel->cluster);
    const int64_t tiles = down * ((g->n + kernel->columns - 1) / kernel->columns) * g->sections;
    const int64_t clusters = blocks / kernel->cluster;
    const double columns = (double)((tiles + clusters - 1) / clusters * kernel->columns);
    if (kernel->rows > FEW_ROWS)
        return columns * (kernel->columns < 256 ? 1.1 : 1.0);
    const double loaded = (double)(tiles * (kernel->columns + g->m)) / (2.3 * blocks);
    return columns > loaded ? columns : loaded;
}

ordo_status ordo_wgmma_gemm(const ordo_cuda_gemm *g)
{
    if (g->m == 0 || g->n == 0)
        return ORDO_OK;
    if (g->k == 0)
        return ordo_gemm_sections(g);
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, INT32_MAX, &blocks));
    ordo_gemm_instance kernel, best = {};
    double least = 0.0;
    for (int kind = 0; ordo_gemm_kind(kind, g, &kernel); kind++) {
        /* Kernels for few rows are better than the others wherever they run. */
        if (!kernel.kernel ||
            (best.kernel && kernel.rows == best.rows && price(g, &kernel, blocks) >= least))
            continue;
        best = kernel;
        least = price(g, &kernel, blocks);
    }
    return ordo_gemm_run(g, &best);
}
