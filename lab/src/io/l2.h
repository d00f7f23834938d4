/* l2.h: the L2 cache of a GPU, which the workers share, and the bytes that pass it to and from HBM.
 *
 * The cache may have parts, as Hopper's has two halves. Every granule of memory has one of them as
 * its home, and every worker is connected to one part. What a worker reads of another part is kept
 * in its own part, too; writes and additions happen at home. Each part evicts the granule that it
 * has used least recently; hints that kernels give with their loads are ignored.
 *
 * A granule is a box of 64 x 64 elements of two bytes, the unit of the kernels' copies. It is
 * written whole, so that a write fills nothing; an addition reads it first. */
#ifndef IO_L2_H
#define IO_L2_H

#include "io/cache.h"

enum { ORDO_IO_GRANULE_ROWS = 64, ORDO_IO_GRANULE = 8192, ORDO_IO_L2_PARTS = 16 };

typedef struct ordo_io_l2 {
    int32_t parts;
    ordo_io_lru part[ORDO_IO_L2_PARTS];
    uint8_t *seen;         /* for each granule: whether it was read first, or written */
    int64_t copies;        /* granules that came from another part; part[].fills has them, too */
    int64_t asked;         /* granules moved without a cache */
    int64_t first_reads;   /* with a cache that holds everything: granules read, */
    int64_t first_written; /* and written */
} ordo_io_l2;

/* A cache of `bytes` bytes in all, for `granules` granules of memory. Destroy it even if this
 * fails. */
ordo_status ordo_io_l2_create(ordo_io_l2 *l2, int64_t bytes, int32_t parts, int64_t granules);
void ordo_io_l2_destroy(ordo_io_l2 *l2);

typedef enum ordo_io_l2_kind { ORDO_IO_L2_READ, ORDO_IO_L2_WRITE, ORDO_IO_L2_ADD } ordo_io_l2_kind;

void ordo_io_l2_touch(ordo_io_l2 *l2, int32_t worker, int64_t granule, ordo_io_l2_kind touch);

/* Write back what is dirty. */
void ordo_io_l2_finish(ordo_io_l2 *l2);

/* Bytes read from HBM and written to it so far. */
int64_t ordo_io_l2_read(const ordo_io_l2 *l2);
int64_t ordo_io_l2_written(const ordo_io_l2 *l2);

#endif
