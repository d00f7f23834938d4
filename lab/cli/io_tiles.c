/* io_tiles.c: the tiles of an algorithm of the I/O model as text. */
#include "cli/io_tiles.h"

#include <inttypes.h>
#include <stdio.h>

size_t cli_io_tiles_list(ordo_io_pass pass, ordo_io_algorithm algorithm, const ordo_io_tiles *t,
                         int64_t list[CLI_IO_TILES])
{
    const bool forward = pass == ORDO_IO_FORWARD;
    size_t n = 0;
    if (pass == ORDO_IO_GRADIENT)
        return 0;
    switch (algorithm) {
    case ORDO_IO_FLASH:
        list[n++] = forward ? t->rows : t->cols;
        list[n++] = forward ? t->cols : t->rows;
        break;
    case ORDO_IO_FLASH1:
        list[n++] = t->cols;
        list[n++] = t->rows;
        break;
    case ORDO_IO_APART:
        list[n++] = t->cols;
        list[n++] = t->out_rows;
        list[n++] = t->rows;
        list[n++] = t->out_cols;
        break;
    case ORDO_IO_FUSED:
    case ORDO_IO_MAT:
    case ORDO_IO_PHASE:
        list[n++] = t->rows;
        list[n++] = t->cols;
        break;
    default: break;
    }
    if (algorithm == ORDO_IO_MAT || algorithm == ORDO_IO_PHASE) {
        list[n++] = t->out_rows;
        if (algorithm == ORDO_IO_PHASE)
            list[n++] = t->out_keys;
        list[n++] = t->out_cols;
    }
    return n;
}

void cli_io_tiles_text(ordo_io_pass pass, ordo_io_algorithm algorithm, const ordo_io_tiles *tiles,
                       char *text, size_t capacity)
{
    int64_t list[CLI_IO_TILES];
    const size_t count = cli_io_tiles_list(pass, algorithm, tiles, list);
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%" PRId64, i ? "," : "", list[i]);
}
