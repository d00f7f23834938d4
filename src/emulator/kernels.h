/* kernels.h: the loops over elements of the emulator, one table of functions per target.
 *
 * The bits are those of dot.h and special.h on every target. */
#ifndef EMULATOR_KERNELS_H
#define EMULATOR_KERNELS_H

#include "emulator/product.h"

typedef struct ordo_emulator_kernels {
    const char *name;

    /* Each computes what the function of that name in product.h or special.h does. */
    void (*product)(float *d, ptrdiff_t stride, int rows, const ordo_emulator_tile *a, int row0,
                    int a0, const ordo_emulator_tile *b, int b0, int column0, int columns,
                    int depth, bool add);
    void (*set)(float *value, int16_t *exponent, const uint16_t *elements, int n, ordo_dtype dtype);
    void (*ex2_row)(float *x, int n);
    void (*round_row)(uint16_t *to, const float *x, int n, ordo_dtype dtype);
} ordo_emulator_kernels;

/* The table for the target of this process (base/target.h); the generic one if ORDO_CPU names none
 * of this machine. Whoever begins a pass refuses that first, with ordo_target_name(). */
const ordo_emulator_kernels *ordo_emulator_kernels_here(void);

/* Return a table by name, for tests; NULL if this build or this machine lacks it. */
const ordo_emulator_kernels *ordo_emulator_kernels_named(const char *name);

/* Use this table in every later call, for tests; NULL: that of the process again. */
void ordo_emulator_kernels_force(const ordo_emulator_kernels *kernels);

extern const ordo_emulator_kernels ordo_emulator_kernels_generic;
#if defined(__aarch64__)
extern const ordo_emulator_kernels ordo_emulator_kernels_neon;
#elif defined(__x86_64__)
extern const ordo_emulator_kernels ordo_emulator_kernels_avx2;
extern const ordo_emulator_kernels ordo_emulator_kernels_avx512;
#endif

#endif
