/* family.h: a family is a set of devices whose plans have one name in the numeric key: the oracle,
 * CPUs, and one per compute capability of GPUs that has kernels.
 *
 * Everything that depends on the family is in its struct: tiles and forms by head size, default
 * orders, the arithmetic of its matrix instructions, and limits. Changing a row changes bits. */
#ifndef PLAN_FAMILY_H
#define PLAN_FAMILY_H

#include "base/for_lab.h"
#include "plan/plan.h"

/* Sets of CUDA kernels. A family has one set of bits, whichever of them runs it. */
typedef enum ordo_kernel_set { ORDO_KERNELS_WGMMA = 1 << 0 } ordo_kernel_set;

/* How one pass of a head size is divided. */
typedef struct ordo_tiling {
    ordo_tile tile; /* decides bits */
    ordo_form form; /* does not: forms that share a tile give the same bits */
    bool rounded_p; /* backward: dS is computed from P rounded to 16 bits; part of the tile */
} ordo_tiling;

typedef struct ordo_family_row {
    int head_dim; /* the row serves head sizes up to this; kernels of flash are compiled for it */
    ordo_tiling forward, backward;
} ordo_family_row;

typedef struct ordo_family {
    const char *name;
    ordo_backend backend;
    int revision;                    /* numeric revision; part of the key */
    int gemm_revision;               /* that of matrix products; 0: the family has none */
    int capability;                  /* CUDA: compute capability, 10 major + minor; else 0 */
    int fraction_bits, sum_products; /* CUDA: of one sum of a matrix instruction */
    const ordo_family_row *rows;     /* by ascending head size */
    int row_count;
    unsigned kernels;       /* CUDA: the sets that run it; the lowest bit is the default */
    ordo_order full, other; /* default orders of full masks, and of all others */
    int head_dim_max;       /* largest head size of any pass */
    int made_bits_max;      /* the same for passes that make keep bits */
    int block_mask_max;     /* the same with a block mask, or a bias */
    int seen_max;           /* and with an element mask */
    int cyclic_max;         /* the same with orders other than ascending and descending */
    int64_t shared_bytes;   /* CUDA: shared memory of one block */
} ordo_family;

/* The family of this name; NULL if there is none. */
const ordo_family *ordo_family_find(const char *name);

/* The family of GPUs of this compute capability (10 major + minor); NULL if they have no kernels.
 */
const ordo_family *ordo_family_of(int capability);

/* Whether a backend runs plans of a family: its own, and the emulator those of compute capability
 * 9.0, whose arithmetic it has. */
bool ordo_family_runs(const ordo_family *family, ordo_backend backend);

/* The first family of a backend. Backends ref, cpu and emulator have one each. */
ORDO_FOR_LAB const ordo_family *ordo_family_first(ordo_backend backend);

/* The names of all families of a backend, with commas between them. */
void ordo_family_names(ordo_backend backend, char *text, size_t capacity);

/* The row for a problem, by head size alone: never by batch, heads, lengths, workers or caches.
 * NULL if the family has none for this head size. */
ORDO_FOR_LAB const ordo_family_row *ordo_family_row_of(const ordo_family *family,
                                                       const ordo_problem *problem);

/* The default order of a problem, by its mask. */
ordo_order ordo_family_order(const ordo_family *family, const ordo_problem *problem);

/* The form of the backward pass that a plan takes unless it says another. */
ordo_form ordo_family_form(const ordo_plan *plan);

#endif
