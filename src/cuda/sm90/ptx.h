/* sm90/ptx.h: one function per instruction of compute capability 9.0 that CUDA C does not offer:
 * mbarriers, bulk copies, tensor copies, registers per warpgroup, stores of matrices. */
#ifndef CUDA_SM90_PTX_H
#define CUDA_SM90_PTX_H

#include <cuda.h>
#include <stdint.h>

#include "cuda/tile/ptx.h"

/* Address of dynamic shared memory in a kernel without static shared memory. Kernels check it once,
 * at their start, so that every address in them is a constant. */
enum { ORDO_SMEM_BASE = 1024, ORDO_SMEM_MOST = 232448 };

ORDO_DEVICE void ordo_fault(void)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(0xfffffff0u), "r"(0) : "memory");
}

/* ---- mbarriers ---- */

ORDO_DEVICE void mbar_init(uint32_t bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

ORDO_DEVICE void mbar_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

ORDO_DEVICE void mbar_expect(uint32_t bar, uint32_t bytes) /* arrives, too */
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

ORDO_DEVICE void mbar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

ORDO_DEVICE bool mbar_try(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 1000; "
                 "selp.b32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done;
}

ORDO_DEVICE void mbar_wait(uint32_t bar, uint32_t parity)
{
    ordo_watch watch;
    for (uint32_t spins = 0; !mbar_try(bar, parity); spins++)
        watch.look(ORDO_WAIT_MBARRIER, bar, parity);
}

/* One arrival per warp: the warps of a warpgroup do not run in lockstep. */
ORDO_DEVICE void mbar_arrive_warp(uint32_t bar, uint32_t lane)
{
    __syncwarp();
    if (lane == 0)
        mbar_arrive(bar);
}

/* ---- copies ---- */

ORDO_DEVICE void tma_load(uint32_t to, const CUtensorMap *map, uint32_t bar, int dim, int row,
                          int head, int sequence, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(dim), "r"(row), "r"(head), "r"(sequence), "l"(policy)
                 : "memory");
}

ORDO_DEVICE void tma_prefetch(const CUtensorMap *map, int dim, int row, int head, int sequence)
{
    asm volatile(
        "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map),
        "r"(dim), "r"(row), "r"(head), "r"(sequence)
        : "memory");
}

ORDO_DEVICE void tma_store(const CUtensorMap *map, uint32_t from, int dim, int row, int head,
                           int sequence)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
                 " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(dim), "r"(row), "r"(head), "r"(sequence)
                 : "memory");
}

ORDO_DEVICE void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

ORDO_DEVICE void bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

ORDO_DEVICE void bulk_add_f32(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(from), "r"(bytes)
        : "memory");
}

ORDO_DEVICE void bulk_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The sources of all but the PENDING newest groups may be overwritten. */
template <int PENDING = 0> ORDO_DEVICE void bulk_wait_read(void)
{
    ordo_watch_note(ORDO_WAIT_COPIES, 0);
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
    ordo_watch_note(ORDO_WAIT_NONE, 0);
}

ORDO_DEVICE void bulk_wait(void) /* the writes are done */
{
    ordo_watch_note(ORDO_WAIT_COPIES, 1);
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    ordo_watch_note(ORDO_WAIT_NONE, 0);
}

ORDO_DEVICE uint64_t policy_evict_last(void)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

ORDO_DEVICE uint64_t policy_evict_first(void)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

ORDO_DEVICE uint64_t policy_evict_normal(void)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* ---- order ---- */

/* Makes ordinary stores to shared memory visible to wgmma and to bulk copies. */
ORDO_DEVICE void fence_shared_to_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

ORDO_DEVICE void fence_global_to_async(void)
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

ORDO_DEVICE bool elect_one(void)
{
    uint32_t chosen;
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p;}"
                 : "=r"(chosen));
    return chosen;
}

template <int REGISTERS> ORDO_DEVICE void registers_up(void)
{
    ordo_watch_note(ORDO_WAIT_REGISTERS, REGISTERS);
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
    ordo_watch_note(ORDO_WAIT_NONE, 0);
}

template <int REGISTERS> ORDO_DEVICE void registers_down(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* Returns the address of a barrier, made to depend on a word that was loaded and is not negative:
 * an arrival there waits for the load, which it would not do by itself (hopper-traps.md). */
ORDO_DEVICE uint32_t bar_after(uint32_t bar, int32_t word)
{
    asm volatile("{.reg .b32 sign; shr.u32 sign, %1, 31; add.u32 %0, %0, sign;}"
                 : "+r"(bar)
                 : "r"(word));
    return bar;
}

/* The counterpart of load_matrix4(). */
ORDO_DEVICE void store_matrix4(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

ORDO_DEVICE void store_matrix4_transposed(uint32_t at, uint32_t a, uint32_t b, uint32_t c,
                                          uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

#endif
