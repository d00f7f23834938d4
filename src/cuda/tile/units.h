/* tile/units.h: in builds with ORDO_FAULTS, which multiprocessor computed which unit, and faults.
 *
 * One thread of each consumer warpgroup notes its 64 rows of o, or of dk and dv, in memory of the
 * host at a fixed address (units_host.h maps and reads it). Units of one multiprocessor have one
 * bit of an accumulator inverted, each with a probability: what a broken register or adder would
 * do. Lists are indexed by multiprocessor and warpgroup; a block takes a whole multiprocessor, so
 * that nobody else writes them. The forward kernels to head size 256 and the backward kernels to
 * 128 take part.
 *
 * In other builds there is nothing here, and the machine code is the same as without it. */
#ifndef CUDA_TILE_UNITS_H
#define CUDA_TILE_UNITS_H

#ifdef ORDO_FAULTS

#include <stdint.h>

#define ORDO_UNITS 0x5a5c00000000ull

enum { ORDO_UNIT_PROCESSORS = 256, ORDO_UNIT_GROUPS = 3, ORDO_UNIT_ENTRIES = 512 };

typedef struct ordo_unit_place {
    int32_t sequence, head, row; /* backward pass: the key head, the first key */
} ordo_unit_place;

typedef struct ordo_unit_list {
    uint32_t count; /* since units were cleared; the last ORDO_UNIT_ENTRIES are there */
    uint32_t flips; /* never cleared, as `all` */
    uint64_t all;
    ordo_unit_place at[ORDO_UNIT_ENTRIES];
} ordo_unit_list;

typedef struct ordo_units {
    uint32_t processor, threshold, bit, reserved; /* threshold: probability of a fault times 2^32 */
    ordo_unit_list of[2][ORDO_UNIT_PROCESSORS][ORDO_UNIT_GROUPS];
} ordo_units;

static __device__ __forceinline__ float ordo_unit_done(float x, int backward, int32_t sequence,
                                                       int32_t head, int32_t row)
{
    volatile ordo_units *const units = (volatile ordo_units *)ORDO_UNITS;
    uint32_t processor;
    uint64_t z;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(z));
    volatile ordo_unit_list *const list =
        &units
             ->of[backward][processor % ORDO_UNIT_PROCESSORS][threadIdx.x / 128 % ORDO_UNIT_GROUPS];
    const uint32_t count = list->count;
    volatile ordo_unit_place *const at = &list->at[count % ORDO_UNIT_ENTRIES];
    at->sequence = sequence;
    at->head = head;
    at->row = row;
    list->count = count + 1;
    list->all = list->all + 1;
    if (processor != units->processor)
        return x;
    z ^= clock64() ^ (uint64_t)threadIdx.x << 32; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    if ((uint32_t)(z ^ z >> 31) >= units->threshold)
        return x;
    list->flips = list->flips + 1;
    return __uint_as_float(__float_as_uint(x) ^ 1u << units->bit);
}

/* By every thread: `x`, an accumulator of the unit's first row; `leads`, whether it is the one. */
#define ORDO_UNIT_DONE(x, leads, backward, sequence, head, row)                                    \
    do {                                                                                           \
        if (leads)                                                                                 \
            x = ordo_unit_done(x, backward, sequence, head, row);                                  \
    } while (0)

#else

#define ORDO_UNIT_DONE(x, leads, backward, sequence, head, row) (void)0

#endif
#endif
