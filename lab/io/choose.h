/* choose.h: what the files of the I/O laboratory's public face share. */
#ifndef IO_CHOOSE_H
#define IO_CHOOSE_H

#include "io/words.h"

/* The algorithm and tiles that a caller asked for, or the best; words of one key head. */
ordo_status ordo_io_decide(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                           const ordo_io_tiles *tiles, ordo_io_choice *choice);

#endif
