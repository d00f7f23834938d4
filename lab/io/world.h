/* world.h: everything a simulated run needs: slow memory with seeded inputs, fast memory, dropout.
 */
#ifndef IO_WORLD_H
#define IO_WORLD_H

#include "base/keep.h"
#include "io/job.h"

typedef struct ordo_io_world {
    ordo_io_shape shape;
    ordo_io_algorithm algorithm;
    ordo_io_words predicted; /* of one key head */
    ordo_io_fast fast;
    ordo_io_job job;
    ordo_dropout dropout;
    ordo_keep keep; /* of the first key head: query head r % group, row r / group */
    double *memory;
    uint8_t *kept;
    uint32_t *batch;
} ordo_io_world;

/* Slow memory laid out, inputs drawn from `seed`; o and lse are the caller's to fill in for a
 * backward pass. `pool` words of fast memory. `world` may be destroyed whatever the status. */
ordo_status ordo_io_world_create(ordo_io_world *world, const ordo_io_problem *problem,
                                 const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                                 const ordo_io_tiles *tiles, int64_t pool);
void ordo_io_world_destroy(ordo_io_world *world);

/* Run the algorithm; ORDO_ERR_INTERNAL if it took more than its share of fast memory. */
ordo_status ordo_io_world_run(ordo_io_world *world);

#endif
