/* tile/watchdog.h: in builds with ORDO_WATCHDOG, which warp waits for what.
 *
 * A wait that has lasted ten seconds writes a line to the report, and goes on. The report is memory
 * of the host at a fixed address (watchdog_host.h maps and prints it), so that it can be read while
 * a kernel hangs. Where nobody has mapped it, as in tests that launch kernels themselves, the write
 * faults: an error instead of a hang. (A trap instruction would make ptxas serialise wgmma.)
 *
 * Waits that the hardware offers no time limit for (named barriers, the kernel before, registers)
 * leave a note in memory of the device. A thread whose own wait has lasted adds the notes of its
 * block to the report.
 *
 * In other builds there is nothing here, and the machine code is the same as without it, if loops
 * count their attempts in a variable of their own: the compiler unrolls others differently. */
#ifndef CUDA_TILE_WATCHDOG_H
#define CUDA_TILE_WATCHDOG_H

#include <stdint.h>

#define ORDO_DEVICE static __device__ __forceinline__

typedef enum ordo_wait {
    ORDO_WAIT_NONE,
    ORDO_WAIT_MBARRIER, /* at: shared address; want: parity */
    ORDO_WAIT_COUNTER,  /* at: address; want: the value, or the least */
    ORDO_WAIT_NAMED,    /* at: number of the barrier */
    ORDO_WAIT_GRID,
    ORDO_WAIT_REGISTERS,
    ORDO_WAIT_COPIES
} ordo_wait;

#ifdef ORDO_WATCHDOG

#define ORDO_WATCH_REPORT 0x5a5a00000000ull
#ifndef ORDO_WATCH_NS
#define ORDO_WATCH_NS 10000000000ull
#endif
enum { ORDO_WATCH_BLOCKS = 256, ORDO_WATCH_WARPS = 16 };

/* The report of one warp of one block, which stands for all blocks whose number is the same modulo
 * ORDO_WATCH_BLOCKS. */
typedef struct ordo_watch_line {
    uint64_t now;   /* when it was written, ns; 0: never */
    uint64_t grid;  /* number of the launch */
    uint64_t at;    /* and its kind in `wait` */
    uint64_t state; /* contents of the mbarrier */
    uint32_t wait, want, block, lane;
    uint32_t note,
        reserved; /* kind << 16 | number: what the warp waited for without limit, if it did */
} ordo_watch_line;

[[maybe_unused]] static __device__ uint32_t ordo_watch_notes[ORDO_WATCH_BLOCKS][ORDO_WATCH_WARPS];

ORDO_DEVICE uint64_t ordo_watch_now(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

ORDO_DEVICE void ordo_watch_report(ordo_wait wait, uint64_t at, uint32_t want, uint64_t now)
{
    const uint32_t block = blockIdx.x % ORDO_WATCH_BLOCKS;
    volatile ordo_watch_line *const lines =
        (volatile ordo_watch_line *)ORDO_WATCH_REPORT + block * ORDO_WATCH_WARPS;
    volatile ordo_watch_line *const line = lines + threadIdx.x / 32;
    uint64_t grid, state = 0;
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid));
    if (wait == ORDO_WAIT_MBARRIER)
        asm volatile("ld.shared.b64 %0, [%1];" : "=l"(state) : "r"((uint32_t)at) : "memory");
    line->grid = grid;
    line->at = at;
    line->state = state;
    line->wait = wait;
    line->want = want;
    line->block = blockIdx.x;
    line->lane = threadIdx.x % 32;
#pragma unroll 1
    for (int w = 0; w < ORDO_WATCH_WARPS; w++)
        lines[w].note = *(volatile uint32_t *)&ordo_watch_notes[block][w];
    line->now = now;
}

/* One wait: look() is called once per attempt. */
struct ordo_watch {
    uint64_t since = 0;
    __device__ __forceinline__ void look(ordo_wait wait, uint64_t at, uint32_t want)
    {
        const uint64_t now = ordo_watch_now();
        since = since ? since : now;
        if (now - since > ORDO_WATCH_NS) {
            ordo_watch_report(wait, at, want, now);
            since = now;
        }
    }
};

ORDO_DEVICE void ordo_watch_note(ordo_wait wait, uint32_t number)
{
    *(volatile uint32_t *)&ordo_watch_notes[blockIdx.x % ORDO_WATCH_BLOCKS][threadIdx.x / 32] =
        (uint32_t)wait << 16 | number;
}

#else

struct ordo_watch {
    __device__ __forceinline__ void look(ordo_wait, uint64_t, uint32_t)
    {
    }
};

ORDO_DEVICE void ordo_watch_note(ordo_wait, uint32_t)
{
}

#endif
#endif
