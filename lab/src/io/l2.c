/* l2.c: simulates the parts of L2 and counts the bytes that pass them. */
#include "io/l2.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { READ_FIRST = 1, WRITTEN = 2 };

ordo_status ordo_io_l2_create(ordo_io_l2 *l2, int64_t bytes, int32_t parts, int64_t granules)
{
    const ordo_io_extent memory = { granules, granules };
    memset(l2, 0, sizeof *l2);
    for (; l2->parts < parts; l2->parts++)
        ORDO_TRY(ordo_io_lru_create(&l2->part[l2->parts], memory, bytes / parts / ORDO_IO_GRANULE,
                                    1, 0, NULL));
    l2->seen = calloc((size_t)granules, 1);
    return l2->seen ? ORDO_OK : ordo_fail(ORDO_ERR_MEMORY, "cache: out of memory");
}

void ordo_io_l2_destroy(ordo_io_l2 *l2)
{
    for (int32_t i = 0; i < ORDO_IO_L2_PARTS; i++)
        ordo_io_lru_destroy(&l2->part[i]);
    free(l2->seen);
}

/* Neighbours are spread over the parts as if by chance, as hardware hashes addresses. */
static int32_t home_of(const ordo_io_l2 *l2, int64_t granule)
{
    const uint64_t hash = (uint64_t)granule * UINT64_C(0x9e3779b97f4a7c15);
    return (int32_t)((hash >> 40) % (uint64_t)l2->parts);
}

static void take(ordo_io_lru *part, int64_t granule, unsigned write)
{
    const uint32_t access = (uint32_t)granule << 1 | write;
    ordo_io_lru_take(part, &access, 1);
}

static void note(ordo_io_l2 *l2, int64_t granule, ordo_io_l2_kind touch)
{
    uint8_t *seen = &l2->seen[granule];
    l2->asked += touch == ORDO_IO_L2_ADD ? 2 : 1;
    if (touch != ORDO_IO_L2_WRITE && *seen == 0) {
        l2->first_reads++;
        *seen |= READ_FIRST;
    }
    if (touch != ORDO_IO_L2_READ && !(*seen & WRITTEN)) {
        l2->first_written++;
        *seen |= WRITTEN;
    }
}

void ordo_io_l2_touch(ordo_io_l2 *l2, int32_t worker, int64_t granule, ordo_io_l2_kind touch)
{
    const int32_t home = home_of(l2, granule), mine = worker % l2->parts;
    note(l2, granule, touch);
    if (touch != ORDO_IO_L2_READ) {
        for (int32_t i = 0; i < l2->parts; i++) /* copies are no longer valid */
            if (i != home)
                ordo_io_lru_drop(&l2->part[i], (uint32_t)granule);
        if (touch == ORDO_IO_L2_ADD)
            take(&l2->part[home], granule, 0);
        take(&l2->part[home], granule, 1);
        return;
    }
    if (mine != home && !ordo_io_lru_holds(&l2->part[mine], (uint32_t)granule)) {
        take(&l2->part[home], granule, 0);
        l2->copies++;
    }
    take(&l2->part[mine], granule, 0);
}

void ordo_io_l2_finish(ordo_io_l2 *l2)
{
    for (int32_t i = 0; i < l2->parts; i++)
        ordo_io_lru_finish(&l2->part[i]);
}

int64_t ordo_io_l2_read(const ordo_io_l2 *l2)
{
    int64_t fills = -l2->copies;
    for (int32_t i = 0; i < l2->parts; i++)
        fills += l2->part[i].fills;
    return fills * ORDO_IO_GRANULE;
}

int64_t ordo_io_l2_written(const ordo_io_l2 *l2)
{
    int64_t writebacks = 0;
    for (int32_t i = 0; i < l2->parts; i++)
        writebacks += l2->part[i].writebacks;
    return writebacks * ORDO_IO_GRANULE;
}
