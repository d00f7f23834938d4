/* sm90/gemm/kernel.h: C = A B, every element by one chain of products, or by the sum of several
 * (pass/gemm.h).
 *
 * A block owns one tile of C at a time. One producer thread loads stages of A and B, and goes on
 * with the next tile while the consumers end the last; each consumer warpgroup owns 64 rows and
 * all columns. The blocks of a cluster have tiles one below the other: each loads a part of B for
 * all of them. docs/design/gemm.md. */
#ifndef CUDA_SM90_GEMM_KERNEL_H
#define CUDA_SM90_GEMM_KERNEL_H

#include "cuda/sm90/gemm/cluster.h"
#include "cuda/sm90/gemm/epilogue.h"
#include "cuda/sm90/gemm/wgmma_e4m3.h"
#include "cuda/sm90/pipeline.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/tile/swizzle.h"

/* The first row and column of a block's tile, and its section. */
struct alignas(16) gemm_tile {
    int32_t row, column, section, reserved;
};

/* WARPGROUPS: that multiply. PANELS: of 64 of k in a stage. CLUSTER: blocks. */
template <int WARPGROUPS_, int COLUMNS_, int PANELS_, int STAGES_, int CLUSTER_> struct gemm_shape {
    enum {
        WARPGROUPS = WARPGROUPS_,
        ROWS = 64 * WARPGROUPS,
        COLUMNS = COLUMNS_,
        PANELS = PANELS_,
        STAGES = STAGES_,
        CLUSTER = CLUSTER_,
        CHUNK = 0, /* gemm_e4m3 */
        THREADS = 128 * (WARPGROUPS + 1),
        CONSUMER_REGISTERS = 232,
        PRODUCER_REGISTERS = 40,
        PLACES = 16, /* for units: each has a stage at least, so STAGES + 1 are in use */
        A_BYTES = ROWS * ORDO_LINE_BYTES, /* a panel of A */
        B_BYTES = COLUMNS * ORDO_LINE_BYTES,
        STAGE_BYTES = PANELS * (A_BYTES + B_BYTES),
        /* shared memory */
        RING = ORDO_SMEM_BASE,
        OUT = RING + STAGES * STAGE_BYTES,            /* GEMM_OUT_BYTES per consumer warp */
        FULL = OUT + 4 * WARPGROUPS * GEMM_OUT_BYTES, /* barriers, 8 bytes each */
        EMPTY = FULL + 8 * STAGES,
        PLACE = EMPTY + 8 * STAGES,
        BYTES = shared_ring<gemm_tile, PLACES, PLACE>::END - ORDO_SMEM_BASE
    };
    using places = shared_ring<gemm_tile, PLACES, PLACE>;
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
    static_assert((int)PLACES > (int)STAGES, "places");
    static_assert(COLUMNS / CLUSTER * ORDO_LINE_BYTES % 1024 == 0, "parts of B are whole swizzles");
    static_assert(WARPGROUPS == 1 ||
                      256 * CONSUMER_REGISTERS + 128 * PRODUCER_REGISTERS <= THREADS * 168,
                  "setmaxnreg would wait for ever");
};

/* The same of e4m3, two of which take the place of one of 16 bits. CHUNK: columns that are computed
 * together. */
template <class TILE, int CHUNK_> struct gemm_e4m3 : TILE {
    enum { CHUNK = CHUNK_, CHUNKS = TILE::COLUMNS / CHUNK };
    static_assert(TILE::COLUMNS % CHUNK == 0, "chunks");
};

template <class Z> ORDO_DEVICE uint32_t gemm_own(void)
{
    return Z::CLUSTER > 1 ? cluster_own() : 0;
}

template <class Z> ORDO_DEVICE void gemm_begin(void)
{
    extern __shared__ __align__(1024) char smem[];
    if (threadIdx.x == 0) {
        const uint32_t own = gemm_own<Z>();
        if ((uint32_t)__cvta_generic_to_shared(smem) != own + ORDO_SMEM_BASE)
            ordo_fault();
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(own + Z::FULL + 8 * s, 1);
            mbar_init(own + Z::EMPTY + 8 * s, 4 * Z::WARPGROUPS * Z::CLUSTER);
        }
        mbar_init_fence();
    }
    __syncthreads();
    if (Z::CLUSTER > 1)
        cluster_sync();
}

/* ---- loads: one thread ---- */

/* A box of B to all blocks of the cluster. */
template <class Z>
ORDO_DEVICE void gemm_share(uint32_t to, const CUtensorMap *map, uint32_t full, int dim, int row,
                            int section, uint64_t policy)
{
    if (Z::CLUSTER == 1)
        tma_load(to, map, full, dim, row, section, 0, policy);
    else
        tma_load_multicast(to, map, full, dim, row, section, 0, (1 << Z::CLUSTER) - 1, policy);
}

template <class Z, bool A_ROWS, bool B_ROWS> ORDO_DEVICE void gemm_load(const ordo_gemm_args &args)
{
    /* Tiles of 64 rows are for few rows: what they load of B no other reads. */
    const uint64_t policy = Z::WARPGROUPS == 1 ? policy_evict_first() : policy_evict_normal();
    const uint32_t own = gemm_own<Z>(), rank = own >> 24;
    const int clusters = gridDim.x / Z::CLUSTER, bytes = args.a_bytes + Z::PANELS * Z::B_BYTES;
    pipeline_state<Z::STAGES> ring;
    uint32_t drawn = 0; /* units so far */
    for (int unit = blockIdx.x / Z::CLUSTER; unit < args.units; unit += clusters, drawn++) {
        const ordo_gemm_place place = ordo_gemm_issue(&args, unit);
        const int row = (place.row * Z::CLUSTER + rank) * Z::ROWS;
        const int column = place.column * Z::COLUMNS;
#pragma unroll 1
        for (int n = 0; n < args.stages; n++) {
            const uint32_t full = own + Z::FULL + 8 * ring.stage;
            const uint32_t at = own + Z::RING + ring.stage * Z::STAGE_BYTES;
            mbar_wait(own + Z::EMPTY + 8 * ring.stage, ring.parity ^ 1);
            if (n == 0) /* before the barrier that the consumers wait at */
                store_shared_int4(own + Z::places::at(drawn),
                                  make_int4(row, column, place.section, 0));
            mbar_expect(full, bytes);
#pragma unroll
            for (int p = 0; p < Z::PANELS; p++) {
                const uint32_t a = at + p * Z::A_BYTES;
                const uint32_t b = at + Z::PANELS * Z::A_BYTES + p * Z::B_BYTES;
                const int k = (n * Z::PANELS + p) * ORDO_PANEL_COLUMNS;
                if (!A_ROWS)
                    tma_load(a, &args.a, full, k, row, place.section, 0, policy);
                else
#pragma unroll
                    for (int x = 0; x < Z::ROWS; x += 64)
                        tma_load(a + x * ORDO_LINE_BYTES, &args.a, full, row + x, k, place.section,
                                 0, policy);
                /* This block's part of the columns. */
                const int part = rank * (Z::COLUMNS / Z::CLUSTER);
                if (!B_ROWS)
                    gemm_share<Z>(b + part * ORDO_LINE_BYTES, &args.b, full, k, column + part,
                                  place.section, policy);
                else
#pragma unroll
                    for (int x = 0; x < Z::COLUMNS / Z::CLUSTER; x += 64)
                        gemm_share<Z>(b + (part + x) * ORDO_LINE_BYTES, &args.b, full,
                                      column + part + x, k, place.section, policy);
            }
            ring.advance();
        }
    }
}

/* ---- products ---- */

template <class Z> ORDO_DEVICE void gemm_release(uint32_t stage)
{
    const uint32_t lane = threadIdx.x % 32;
    if (Z::CLUSTER == 1) {
        mbar_arrive_warp(Z::EMPTY + 8 * stage, lane);
    } else {
        __syncwarp();
        if (lane < Z::CLUSTER)
            mbar_arrive_at(Z::EMPTY + 8 * stage, lane);
    }
}

/* The sums of a tile of e4m3: of each panel's 128 of k a chain, which is added to the sum. The
 * columns take turns with one chain's registers, and the warpgroups with the matrix cores: while
 * one adds its chain, those of the others run. */
template <class Z>
ORDO_DEVICE void gemm_add_chains(float (&d)[Z::COLUMNS / 2], const ordo_gemm_args &args, int mine,
                                 pipeline_state<Z::STAGES> &ring)
{
    const uint32_t own = gemm_own<Z>();
#pragma unroll
    for (int i = 0; i < Z::COLUMNS / 2; i++)
        d[i] = 0.0f;
#pragma unroll 1
    for (int n = 0; n < args.stages; n++) {
        const uint32_t a = Z::RING + ring.stage * Z::STAGE_BYTES + mine * 64 * ORDO_LINE_BYTES;
        const uint32_t b = Z::RING + ring.stage * Z::STAGE_BYTES + Z::PANELS * Z::A_BYTES;
        const uint32_t a_low = ordo_descriptor_low(a, 16), b_low = ordo_descriptor_low(b, 16);
        mbar_wait(own + Z::FULL + 8 * ring.stage, ring.parity);
#pragma unroll
        for (int c = 0; c < Z::PANELS * Z::CHUNKS; c++) {
            const uint32_t a_c = a_low + c / Z::CHUNKS * (Z::A_BYTES / 16);
            const uint32_t b_c = b_low + c / Z::CHUNKS * (Z::B_BYTES / 16) +
                                 c % Z::CHUNKS * (Z::CHUNK * ORDO_LINE_BYTES / 16);
            float chain[Z::CHUNK / 2];
            wgmma_pin(chain);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
                wgmma_e4m3(chain, wgmma_by_columns(a_c, 0, k), wgmma_by_columns(b_c, 0, k), k > 0);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_pin(chain);
            if (c + 1 == Z::PANELS * Z::CHUNKS)
                gemm_release<Z>(ring.stage);
#pragma unroll
            for (int i = 0; i < Z::CHUNK / 2; i++) {
                float &sum = d[c % Z::CHUNKS * (Z::CHUNK / 2) + i];
                sum = __fadd_rn(sum, chain[i]);
            }
        }
        ring.advance();
    }
    if (args.scale) {
        const float scale = *args.scale;
#pragma unroll
        for (int i = 0; i < Z::COLUMNS / 2; i++)
            d[i] = __fmul_rn(d[i], scale);
    }
}

template <class Z, bool F16, bool A_ROWS, bool B_ROWS>
ORDO_DEVICE void gemm_multiply(const ordo_gemm_args &args)
{
    const uint32_t own = gemm_own<Z>();
    const int mine = __shfl_sync(~0u, threadIdx.x / 128, 0) - 1, clusters = gridDim.x / Z::CLUSTER;
    const uint32_t out = own + Z::OUT + (threadIdx.x / 32 - 4) * GEMM_OUT_BYTES;
    pipeline_state<Z::STAGES> ring;
    uint32_t drawn = 0;
    for (int unit = blockIdx.x / Z::CLUSTER; unit < args.units; unit += clusters, drawn++) {
        float d[Z::COLUMNS / 2];
        if constexpr (Z::CHUNK > 0) {
            gemm_add_chains<Z>(d, args, mine, ring);
        } else {
            uint32_t last = 0;
            wgmma_pin(d);
#pragma unroll 1
            for (int n = 0; n < args.stages; n++) {
                const uint32_t a =
                    Z::RING + ring.stage * Z::STAGE_BYTES + mine * 64 * ORDO_LINE_BYTES;
                const uint32_t b = Z::RING + ring.stage * Z::STAGE_BYTES + Z::PANELS * Z::A_BYTES;
                const uint32_t a_low = ordo_descriptor_low(a, 16);
                const uint32_t b_low = ordo_descriptor_low(b, B_ROWS ? 64 * ORDO_LINE_BYTES : 16);
                mbar_wait(own + Z::FULL + 8 * ring.stage, ring.parity);
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < 4 * Z::PANELS; k++) {
                    const uint32_t a_k = a_low + k / 4 * (Z::A_BYTES / 16);
                    const uint32_t b_k = b_low + k / 4 * (Z::B_BYTES / 16);
                    wgmma_ss<F16, A_ROWS, B_ROWS>(
                        d, A_ROWS ? wgmma_by_rows(a_k, k % 4) : wgmma_by_columns(a_k, 0, k % 4),
                        B_ROWS ? wgmma_by_rows(b_k, k % 4) : wgmma_by_columns(b_k, 0, k % 4),
                        n > 0 || k > 0);
                }
                wgmma_commit();
                wgmma_wait<1>();
                if (n > 0)
                    gemm_release<Z>(last);
                last = ring.stage;
                ring.advance();
            }
            wgmma_wait<0>();
            wgmma_pin(d);
            gemm_release<Z>(last);
        }
        const int4 place = load_shared_int4(own + Z::places::at(drawn));
        gemm_store(d, args, place.x + mine * 64, place.y, place.z, out);
    }
    if (threadIdx.x % 32 == 0)
        bulk_wait_read();
    __syncwarp();
}

/* A block of a kernel. */
template <class Z, bool F16, bool A_ROWS, bool B_ROWS>
ORDO_DEVICE void gemm_block(const ordo_gemm_args &args)
{
    if (threadIdx.x == 64) {
        tma_prefetch_map(&args.a);
        tma_prefetch_map(&args.b);
        tma_prefetch_map(&args.c);
    }
    gemm_begin<Z>();
    grid_let_next();
    grid_wait();
    if (threadIdx.x < 128) {
        if (Z::WARPGROUPS > 1)
            registers_down<Z::PRODUCER_REGISTERS>();
        if (threadIdx.x < 32 && elect_one())
            gemm_load<Z, A_ROWS, B_ROWS>(args);
        __syncwarp();
    } else {
        if (Z::WARPGROUPS > 1)
            registers_up<Z::CONSUMER_REGISTERS>();
        gemm_multiply<Z, F16, A_ROWS, B_ROWS>(args);
    }
    /* A block stays while others load into it or arrive at its barriers. */
    if (Z::CLUSTER > 1)
        cluster_sync();
}

template <class Z, bool F16, bool A_ROWS, bool B_ROWS>
static __global__ void __cluster_dims__(Z::CLUSTER) __launch_bounds__(Z::THREADS, 1)
    gemm_kernel(const __grid_constant__ ordo_gemm_args args)
{
    gemm_block<Z, F16, A_ROWS, B_ROWS>(args);
}

template <class Z, bool F16, bool A_ROWS, bool B_ROWS> static ordo_gemm_instance gemm_instance(void)
{
    return { (const void *)gemm_kernel<Z, F16, A_ROWS, B_ROWS>,
             Z::ROWS,
             Z::COLUMNS,
             Z::PANELS * ORDO_PANEL_COLUMNS,
             Z::CLUSTER,
             Z::THREADS,
             Z::BYTES };
}

#endif
