/* choose.h: the choice of algorithm and tiles, shared by predictions, runs and cache runs. */
#ifndef IO_CHOOSE_H
#define IO_CHOOSE_H

#include "io/words.h"

/* Write the algorithm and tiles that a caller asks for, or the best ones, and the words of one key
 * head. Returns the errors of ordo_io_choose(). */
ordo_status ordo_io_decide(const ordo_io_shape *shape, ordo_io_algorithm algorithm,
                           const ordo_io_tiles *tiles, ordo_io_choice *choice);

#endif
