/* overlap.h: whether two strided tensors share a byte. */
#ifndef API_OVERLAP_H
#define API_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

enum { ORDO_AXES = 4 };

/* A tensor in memory. Strides are in bytes and not negative; sizes at least 1. */
typedef struct ordo_extent {
    const char *name;
    uintptr_t address;
    int64_t width; /* bytes per element */
    int64_t size[ORDO_AXES], stride[ORDO_AXES];
} ordo_extent;

/* Bytes from the first to past the last; false if that does not fit in 62 bits. */
bool ordo_extent_bytes(const ordo_extent *x, int64_t *bytes);

/* Whether every element has its own bytes. Sufficient, not necessary: true if the strides
 * nest, each reaching past all that the smaller ones span, as in any slice or permutation of
 * a contiguous tensor. */
bool ordo_extent_nests(const ordo_extent *x);

/* Whether the two share a byte. Exact for views that interleave, such as q, k and v as parts of
 * one buffer; strides so irregular that the search grows long count as sharing. */
bool ordo_extent_overlap(const ordo_extent *a, const ordo_extent *b);

#endif
