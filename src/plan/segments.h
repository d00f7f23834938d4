/* segments.h: passes in segments of rows, so that only the keep bits of two segments are in memory
 * (docs/adr/0014-segments-are-a-choice-of-the-plan.md).
 *
 * A plan with `segments` divides the rows of a dense problem where a tile of the backward pass and
 * a block of keep bits begin. Each segment is a separate plan, with the tiles and the order of the
 * whole; the sums of dk and dv go on from one to the next. So the results have the bits of one
 * pass. */
#ifndef PLAN_SEGMENTS_H
#define PLAN_SEGMENTS_H

#include "plan/plan.h"

/* Segments begin at multiples of this many rows. */
int64_t ordo_segment_multiple(const ordo_plan *plan);

/* Rows of each of `segments` segments but the last, which may be shorter. */
int64_t ordo_segment_rows(const ordo_plan *plan, int64_t segments);

/* How many segments of these rows there are: `segments`, if so many can be had. */
int64_t ordo_segment_count(const ordo_plan *plan, int64_t segments);

/* Buffers of the bits of one segment: two, or the bits of all rows if there is one segment. */
static inline int ordo_segment_buffers(int64_t segments)
{
    return segments > 1 ? 2 : 1;
}

/* Bytes of the keep bits of a dense problem's `rows` rows; false if they do not fit 64 bits. */
bool ordo_segment_bits(const ordo_plan *plan, int64_t rows, uint64_t *bytes);

/* The fewest segments whose bits fit `memory` bytes; 0 if those of the shortest do not. */
int64_t ordo_segments_within(const ordo_plan *plan, uint64_t memory);

/* First row of a segment, and the segment as a plan without segments. */
int64_t ordo_segment_first(const ordo_plan *plan, int64_t segment);
ordo_plan ordo_segment_plan(const ordo_plan *plan, int64_t segment);

#endif
