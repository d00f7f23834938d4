/* room.cu: keep bits by blocks that are small enough to run beside a product, and products that
 * leave room for such a block. The products are libordo's kernel (cuda/sm90/gemm/kernel.h), so they
 * have its bits.
 *
 * A multiprocessor has 65,536 registers. A block of 384 threads that is launched with 160 each
 * leaves 4,096: four warps of 32 per thread. nvcc before 12.4 cannot be told so. */
#include <cstdio>

#include "block/cuda/inside.cuh"
#include "cuda/sm90/gemm/gemm.h"
#include "cuda/sm90/gemm/launch.h"
#include "cuda/support/launch.h"

enum { ROOM_REGISTERS = 160, KEEP_THREADS = 128, KEEP_BLOCKS = 16 };

struct gemm_room : gemm_wide {
    enum { CONSUMER_REGISTERS = 224, PRODUCER_REGISTERS = 32 };
};
static_assert(256 * gemm_room::CONSUMER_REGISTERS + 128 * gemm_room::PRODUCER_REGISTERS <=
                  gemm_room::THREADS * ROOM_REGISTERS,
              "setmaxnreg would wait for ever");
static_assert(gemm_room::THREADS * ROOM_REGISTERS + KEEP_THREADS * 32 <= 65536, "registers");
/* Every block has 1 KB more than it asks for. */
static_assert(gemm_room::BYTES + 2 * 1024 <= 228 * 1024, "shared memory");

/* ---- kernels ---- */

typedef struct room_args {
    ordo_gemm_args gemm; /* products */
    keep_args keep;      /* bits */
    block_stamps stamps;
} room_args;

template <class MAKER>
static __global__ void __launch_bounds__(KEEP_THREADS, KEEP_BLOCKS)
    keep_kernel(const __grid_constant__ room_args args)
{
    make_units<MAKER>(args.keep, (blockIdx.x * KEEP_THREADS + threadIdx.x) / 32, args.stamps);
}

/* Notes when and where a block of a product ran, if there are stamps. */
template <class RUN>
static __device__ __forceinline__ void stamped(const block_stamps &stamps, RUN run)
{
    const bool notes = stamps.blocks && threadIdx.x == 0;
    if (notes)
        stamps.blocks[blockIdx.x].begin = now();
    run();
    if (notes) {
        stamps.blocks[blockIdx.x].end = now();
        stamps.blocks[blockIdx.x].sm = here();
    }
}

#ifdef __maxnreg__ // nvcc 12.4
template <bool A_ROWS, bool B_ROWS>
static __global__ void __cluster_dims__(gemm_room::CLUSTER) __maxnreg__(ROOM_REGISTERS)
    room_kernel(const __grid_constant__ room_args args)
{
    stamped(args.stamps, [&] { gemm_block<gemm_room, false, A_ROWS, B_ROWS>(args.gemm); });
}
#endif

/* ---- which ---- */

typedef struct maker_row {
    ordo_generator generator;
    int rounds;
    const void *alone, *beside;
} maker_row;

static const maker_row *maker_of(const block_keep *keep)
{
#define ROW(GENERATOR, ROUNDS, ALONE, BESIDE)                                                      \
    {                                                                                              \
        ORDO_GENERATOR_##GENERATOR, ROUNDS, (const void *)keep_kernel<ALONE<ROUNDS>>,              \
            (const void *)keep_kernel<BESIDE<ROUNDS>>                                              \
    }
    static const maker_row rows[] = { ROW(SLICED, 3, sliced_maker, sliced_maker),
                                      ROW(SLICED, 5, sliced_maker, sliced_maker),
                                      ROW(SLICED, 7, sliced_maker, sliced_by_f64),
                                      ROW(SLICED, 10, sliced_maker, sliced_maker),
                                      ROW(COMPARE, 3, compare_maker, compare_maker),
                                      ROW(COMPARE, 5, compare_maker, compare_maker),
                                      ROW(COMPARE, 7, compare_maker, compare_maker),
                                      ROW(COMPARE, 10, compare_maker, compare_maker) };
    const maker_row *row = rows;
    while (row->generator != keep->generator || row->rounds != keep->rounds)
        row++;
    return row;
}

/* NULL: this nvcc cannot compile one. */
static const void *room_kernel_of(const ordo_cuda_gemm *g)
{
#ifdef __maxnreg__
    if (g->a_rows_are_k)
        return g->b_rows_are_k ? (const void *)room_kernel<true, true>
                               : (const void *)room_kernel<true, false>;
    return g->b_rows_are_k ? (const void *)room_kernel<false, true>
                           : (const void *)room_kernel<false, false>;
#else
    (void)g;
    return NULL;
#endif
}

/* ---- launches ---- */

static __device__ uint32_t drawn;

static ordo_status args_of(const block_keep *keep, keep_args *args)
{
    uint32_t key0 = (uint32_t)keep->seed, key1 = (uint32_t)(keep->seed >> 32);
    *args = {};
    for (int r = 0; r < MOST_ROUNDS; r++, key0 += ORDO_PHILOX_W0, key1 += ORDO_PHILOX_W1) {
        args->key[2 * r] = key0;
        args->key[2 * r + 1] = key1;
    }
    args->offset = (uint32_t)keep->offset;
    args->words = keep->words;
    args->count = keep->count;
    args->limit = keep->threshold;
    args->sliced.draws = 2;
    for (int bit = 0; bit < ORDO_SLICED_WORDS; bit++)
        args->sliced.select[bit] = keep->threshold >> bit & 1 ? ~0u : 0;
    args->down = (uint32_t)((keep->seq + ORDO_KEEP_ROWS - 1) / ORDO_KEEP_ROWS);
    args->across = (uint32_t)((keep->seq + ORDO_KEEP_COLS - 1) / ORDO_KEEP_COLS);
    args->pieces = (args->across + SLICED_BLOCKS - 1) / SLICED_BLOCKS;
    args->causal = keep->causal;
    const uint64_t each = 32 * COMPARE_WORDS;
    const uint64_t units = keep->generator == ORDO_GENERATOR_COMPARE
                               ? (keep->count + each - 1) / each
                               : (uint64_t)keep->heads * args->down * args->pieces;
    if (units > INT32_MAX)
        return ordo_cuda_fail(ORDO_ERR_UNSUPPORTED, "%llu units of keep bits: more than 2^31",
                              (unsigned long long)units);
    args->units = (uint32_t)units;
    return ordo_cuda_status(cudaGetSymbolAddress((void **)&args->drawn, drawn),
                            "cudaGetSymbolAddress");
}

static ordo_status launch_keep(const block_keep *keep, block_keep_part part,
                               const block_stamps *stamps, void *stream)
{
    const bool beside = part == BLOCK_KEEP_BESIDE;
    const void *const kernel = beside ? maker_of(keep)->beside : maker_of(keep)->alone;
    room_args args = {};
    int blocks = 0;
    CUDA_TRY(args_of(keep, &args.keep));
    if (stamps)
        args.stamps = *stamps;
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, INT32_MAX, &blocks));
    if (part != BLOCK_KEEP_REST)
        CUDA_CALL(cudaMemsetAsync(args.keep.drawn, 0, sizeof drawn, (cudaStream_t)stream));
    /* As much shared memory as the product beside it, or one would wait for the other. */
    CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared));
    const ordo_cuda_grid grid = { (unsigned)blocks * (beside ? 1 : KEEP_BLOCKS), KEEP_THREADS, 0,
                                  ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(kernel, &args, grid, stream);
}

static ordo_cuda_gemm gemm_of(const block_product *p, void *stream)
{
    ordo_cuda_gemm g = {};
    g.m = p->m, g.n = p->n, g.k = p->k, g.sections = 1;
    g.in = g.out = ORDO_BF16;
    g.a = p->a, g.a_rows_are_k = p->a_transposed, g.a_stride = p->a_transposed ? p->m : p->k;
    g.b = p->b, g.b_rows_are_k = !p->b_transposed, g.b_stride = p->b_transposed ? p->k : p->n;
    g.c = p->c, g.c_stride = p->n;
    g.stream = stream;
    return g;
}

static ordo_status launch_room(const ordo_cuda_gemm *g, const block_stamps *stamps)
{
    const ordo_gemm_instance kernel = { room_kernel_of(g),  gemm_room::ROWS,
                                        gemm_room::COLUMNS, gemm_room::PANELS * ORDO_PANEL_COLUMNS,
                                        gemm_room::CLUSTER, gemm_room::THREADS,
                                        gemm_room::BYTES };
    if (kernel.kernel == NULL)
        return ordo_cuda_fail(ORDO_ERR_UNSUPPORTED, "placement beside: products that leave room "
                                                    "are compiled by nvcc 12.4 or later");
    room_args args = {};
    ordo_cuda_grid grid;
    int blocks = 0;
    CUDA_TRY(ordo_gemm_prepare(g, &kernel, &args.gemm, &grid));
    /* On every multiprocessor, or blocks of bits would gather on those that are free. */
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, (int64_t)args.gemm.units * kernel.cluster, &blocks));
    grid.blocks = (unsigned)(blocks / kernel.cluster * kernel.cluster);
    if (stamps)
        args.stamps = *stamps;
    return ordo_cuda_launch(kernel.kernel, &args, grid, g->stream);
}

static ordo_status told(ordo_status status, char *why, size_t n)
{
    if (status != ORDO_OK)
        snprintf(why, n, "%s", ordo_cuda_why());
    return status;
}

ordo_status block_cuda_keep(const block_keep *keep, block_keep_part part,
                            const block_stamps *stamps, void *stream, char *why, size_t n)
{
    return told(launch_keep(keep, part, stamps, stream), why, n);
}

ordo_status block_cuda_attend(const ordo_cuda_pass *pass, ordo_generator generator, bool backward,
                              char *why, size_t n)
{
    return told(backward ? block_cuda_backward_inside(pass, generator)
                         : block_cuda_forward_inside(pass, generator),
                why, n);
}

ordo_status block_cuda_multiply_beside(const block_product *p, const block_stamps *stamps,
                                       void *stream, char *why, size_t n)
{
    const ordo_cuda_gemm g = gemm_of(p, stream);
    return told(launch_room(&g, stamps), why, n);
}
