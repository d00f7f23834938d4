/* bounds.h: lower bounds on the words moved, of one key head. */
#ifndef IO_BOUNDS_H
#define IO_BOUNDS_H

#include "io/shape.h"

/* Bound number `index`, 0 to ORDO_IO_BOUND_COUNT - 1; and the largest of those that hold. */
ordo_io_bound ordo_io_bound_of(const ordo_io_shape *shape, int index);
ordo_io_bound ordo_io_best_bound(const ordo_io_shape *shape);

#endif
