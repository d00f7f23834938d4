/* target.h: which set of vector instructions the loops over elements use.
 *
 * A folder that has such loops compiles one body per target and keeps one table of functions for
 * each; the bits do not depend on the target. Names, fastest first: avx512 (AVX-512F and BW), avx2
 * (with FMA), neon, generic. */
#ifndef BASE_TARGET_H
#define BASE_TARGET_H

#include <stdbool.h>

#include "ordo/status.h"

/* Whether this build and this machine have the target. */
bool ordo_target_runs(const char *name);

/* The target of this process: the fastest one, or the one that the variable ORDO_CPU names. The
 * choice is made once. ORDO_ERR_UNSUPPORTED if ORDO_CPU names another word. */
ordo_status ordo_target_name(const char **name);

#endif
