/* sm90/gemm/cluster.h: instructions for clusters of blocks, and the prefetch of a map. */
#ifndef CUDA_SM90_GEMM_CLUSTER_H
#define CUDA_SM90_GEMM_CLUSTER_H

#include "cuda/sm90/ptx.h"

ORDO_DEVICE uint32_t cluster_rank(void)
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

ORDO_DEVICE void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

/* What is added to an address of shared memory where another block of the cluster could be meant.
 */
ORDO_DEVICE uint32_t cluster_own(void)
{
    return cluster_rank() << 24;
}

/* Arrives at the barrier at that address in block `rank` of the cluster. Orders what this block's
 * products have read, no ordinary accesses of other blocks: a release to the cluster would wait for
 * every store to global memory. */
ORDO_DEVICE void mbar_arrive_at(uint32_t bar, uint32_t rank)
{
    asm volatile("{.reg .b32 at; mapa.shared::cluster.u32 at, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [at];}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

/* tma_load() to that place in every block of the cluster whose bit is set, and to its barrier. */
ORDO_DEVICE void tma_load_multicast(uint32_t to, const CUtensorMap *map, uint32_t bar, int dim,
                                    int row, int head, int sequence, uint16_t blocks,
                                    uint64_t policy)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(to),
        "l"(map), "r"(bar), "r"(dim), "r"(row), "r"(head), "r"(sequence), "h"(blocks), "l"(policy)
        : "memory");
}

/* Brings a map itself into the cache. */
ORDO_DEVICE void tma_prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#endif
