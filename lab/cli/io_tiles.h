/* io_tiles.h: the tiles of an algorithm of the I/O model as text. */
#ifndef CLI_IO_TILES_H
#define CLI_IO_TILES_H

#include "ordo/lab/io.h"

enum { CLI_IO_TILES = 6 };

/* The tile sizes of an algorithm in the order in which the command takes them, the long side of
 * flash first; returns how many there are. */
size_t cli_io_tiles_list(ordo_io_pass pass, ordo_io_algorithm algorithm, const ordo_io_tiles *tiles,
                         int64_t list[CLI_IO_TILES]);

/* The same as text: "20,32,20,20,32". */
void cli_io_tiles_text(ordo_io_pass pass, ordo_io_algorithm algorithm, const ordo_io_tiles *tiles,
                       char *text, size_t capacity);

#endif
