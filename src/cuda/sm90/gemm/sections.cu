/* sm90/gemm/sections.cu: the tree of the sections' sums (pass/gemm.h), one thread per four columns
 * of a row. */
#include "cuda/sm90/gemm/epilogue.h"
#include "cuda/sm90/gemm/gemm.h"
#include "cuda/support/launch.h"

enum { THREADS = 256 };

typedef struct sections_args {
    ordo_gemm_end end;
    const float *sums;
    int64_t section; /* floats from one to the next */
    int32_t columns; /* columns of a row of sums */
} sections_args;

/* COUNT sums of one element, `step` apart; of none, +0. */
template <int COUNT> ORDO_DEVICE void add_sections(float (&x)[4], const float *sums, int64_t step)
{
    float4 s[COUNT > 0 ? COUNT : 1];
    s[0] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        s[i] = *(const float4 *)(sums + i * step);
#pragma unroll
    for (int by = 1; by < COUNT; by *= 2)
#pragma unroll
        for (int i = 0; i + by < COUNT; i += 2 * by)
            s[i] = make_float4(__fadd_rn(s[i].x, s[i + by].x), __fadd_rn(s[i].y, s[i + by].y),
                               __fadd_rn(s[i].z, s[i + by].z), __fadd_rn(s[i].w, s[i + by].w));
    x[0] = s[0].x, x[1] = s[0].y, x[2] = s[0].z, x[3] = s[0].w;
}

template <int COUNT>
static __global__ void __launch_bounds__(THREADS)
    sections_kernel(const __grid_constant__ sections_args args)
{
    const ordo_gemm_end &end = args.end;
    const int64_t fours = (int64_t)end.m * (args.columns / 4);
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < fours;
         at += (int64_t)gridDim.x * THREADS) {
        float x[4];
        add_sections<COUNT>(x, args.sums + 4 * at, args.section);
        const int64_t row = at / (args.columns / 4);
        const int32_t column = (int32_t)(at % (args.columns / 4)) * 4;
        char *const to = end.c + row * end.c_bytes;
        for (int32_t i = 0; i < 4 && column + i < end.n; i++) {
            float y = x[i];
            if (end.bias)
                y = __fadd_rn(y, gemm_value(end.bias, end.out, column + i));
            if (end.add)
                y = __fadd_rn(((const float *)to)[column + i], y);
            if (end.out == ORDO_F32)
                ((float *)to)[column + i] = y;
            else
                ((uint16_t *)to)[column + i] =
                    (uint16_t)(end.out == ORDO_F16 ? pack_pair<true>(y, y)
                                                   : pack_pair<false>(y, y));
        }
    }
}

ordo_status ordo_gemm_sections(const ordo_cuda_gemm *g)
{
    sections_args args = {};
    args.end.c = (char *)g->c;
    args.end.c_bytes = g->c_stride * (g->out == ORDO_F32 ? 4 : 2);
    args.end.m = (int32_t)g->m;
    args.end.n = (int32_t)g->n;
    args.end.bias = g->bias;
    args.end.out = g->out;
    args.end.add = g->add;
    args.sums = (const float *)g->workspace;
    args.columns = (int32_t)ordo_gemm_columns(g->n);
    args.section = g->m * args.columns;
    const void *const kernel = g->k == 0          ? (const void *)sections_kernel<0>
                               : g->sections == 2 ? (const void *)sections_kernel<2>
                               : g->sections == 4 ? (const void *)sections_kernel<4>
                                                  : (const void *)sections_kernel<8>;
    int blocks = 0;
    const int64_t units = (g->m * (args.columns / 4) + THREADS - 1) / THREADS;
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, (units + 7) / 8, &blocks));
    const ordo_cuda_grid grid = { 8 * (unsigned)blocks, THREADS, 0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(kernel, &args, grid, g->stream);
}
