/* sm90/gemm/run.cu: launches a GEMM kernel, and what follows it if there are sections. */
#include "cuda/sm90/gemm/gemm.h"
#include "cuda/support/launch.h"
#include "cuda/tile/swizzle.h"

/* Rows of C whose tiles run at the same time, and of C that a tensor store writes. */
enum { ROWS_TOGETHER = 2048, STORED_ROWS = 16 };

/* e4m3 counts two by two as an element of 16 bits. */
static int64_t elements(const ordo_cuda_gemm *g, int64_t x)
{
    return g->in == ORDO_E4M3 ? x / 2 : x;
}

/* `lines`: m or n. */
static ordo_status map_of(CUtensorMap *map, const ordo_cuda_gemm *g, const void *data,
                          int64_t stride, bool rows_are_k, int64_t lines, int box)
{
    const int64_t each = elements(g, g->k / g->sections);
    const int64_t section = g->sections == 1 ? stride : rows_are_k ? each * stride : each;
    const ordo_cuda_tensor tensor = { (void *)data, section, stride, section };
    const ordo_cuda_lengths lengths = { rows_are_k ? each : lines, g->sections, 1,
                                        (int)(rows_are_k ? lines : each) };
    return ordo_cuda_map(map, &tensor, lengths, rows_are_k ? ORDO_PANEL_COLUMNS : box);
}

static ordo_gemm_end end_of(const ordo_cuda_gemm *g)
{
    ordo_gemm_end end = {};
    end.m = (int32_t)g->m;
    end.n = (int32_t)g->n;
    if (g->sections > 1) {
        end.c = (char *)g->workspace;
        end.c_bytes = 4 * ordo_gemm_columns(g->n);
        end.sections = g->m * end.c_bytes;
        end.out = ORDO_F32;
    } else {
        end.c = (char *)g->c;
        end.c_bytes = g->c_stride * (g->out == ORDO_F32 ? 4 : 2);
        end.bias = g->bias;
        end.out = g->out;
        end.add = g->add;
    }
    return end;
}

static int64_t parts(int64_t x, int64_t of)
{
    return (x + of - 1) / of;
}

ordo_status ordo_gemm_prepare(const ordo_cuda_gemm *g, const ordo_gemm_instance *kernel,
                              ordo_gemm_args *args, ordo_cuda_grid *grid)
{
    const int64_t rows = parts(g->m, kernel->rows * kernel->cluster);
    const int64_t columns = parts(g->n, kernel->columns), units = rows * columns * g->sections;
    if (units > INT32_MAX)
        return ordo_cuda_fail(ORDO_ERR_UNSUPPORTED, "m %lld, n %lld: more than 2^31 tiles",
                              (long long)g->m, (long long)g->n);
    /* Few rows of A come without the rest of the tile. */
    const int box = (int)(g->m < kernel->rows ? g->m : kernel->rows);
    *args = {};
    CUDA_TRY(map_of(&args->a, g, g->a, elements(g, g->a_stride), g->a_rows_are_k, g->m, box));
    CUDA_TRY(map_of(&args->b, g, g->b, elements(g, g->b_stride), g->b_rows_are_k, g->n,
                    kernel->columns / kernel->cluster));
    args->end = end_of(g);
    if (args->end.out != ORDO_F32 && g->n % 8 == 0) {
        const ordo_cuda_tensor c = { g->c, g->c_stride, g->c_stride, g->c_stride };
        const ordo_cuda_lengths lengths = { g->m, 1, 1, (int)g->n };
        CUDA_TRY(ordo_cuda_map(&args->c, &c, lengths, STORED_ROWS));
    }
    args->a_bytes = (g->a_rows_are_k ? kernel->rows : box) * kernel->depth * 2;
    args->stages = (int32_t)parts(elements(g, g->k / g->sections), kernel->depth);
    args->units = (int32_t)units;
    args->rows = (int32_t)rows;
    args->columns = (int32_t)columns;
    args->group = ROWS_TOGETHER / (kernel->rows * kernel->cluster);
    args->scale = g->scale;
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, units * kernel->cluster, &blocks));
    /* All blocks have the same number of units, or one less: the power of others is theirs. */
    const int64_t rounds = parts(units, blocks / kernel->cluster);
    *grid = { (unsigned)(parts(units, rounds) * kernel->cluster), kernel->threads,
              kernel->shared_bytes, ORDO_LAUNCH_EARLY };
    return ORDO_OK;
}

ordo_status ordo_gemm_run(const ordo_cuda_gemm *g, const ordo_gemm_instance *kernel)
{
    ordo_gemm_args args;
    ordo_cuda_grid grid;
    CUDA_TRY(ordo_gemm_prepare(g, kernel, &args, &grid));
    CUDA_TRY(ordo_cuda_launch(kernel->kernel, &args, grid, g->stream));
    return g->sections > 1 ? ordo_gemm_sections(g) : ORDO_OK;
}
