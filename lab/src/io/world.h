/* world.h: the state of a simulated run: slow memory with seeded inputs, fast memory, dropout. */
#ifndef IO_WORLD_H
#define IO_WORLD_H

#include "base/keep.h"
#include "io/job.h"

typedef struct ordo_io_world {
    ordo_io_shape shape;
    ordo_io_algorithm algorithm;
    ordo_io_words predicted; /* words of one key head */
    ordo_io_fast fast;
    ordo_io_job job;
    ordo_dropout dropout;
    ordo_keep keep; /* keep bits of the first key head: query head r % group, row r / group */
    double *memory;
    uint8_t *kept;
    uint32_t *batch;
} ordo_io_world;

/* Lay out slow memory, draw the inputs from the problem's seed, and allocate `pool` words of fast
 * memory. For a backward pass the caller fills in o and lse. Destroy `world` even if this fails. */
ordo_status ordo_io_world_create(ordo_io_world *world, const ordo_io_problem *problem,
                                 const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                                 const ordo_io_tiles *tiles, int64_t pool);
void ordo_io_world_destroy(ordo_io_world *world);

/* Run the algorithm. Returns ORDO_ERR_INTERNAL if it used more fast memory than it may. */
ordo_status ordo_io_world_run(ordo_io_world *world);

#endif
