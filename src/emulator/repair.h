/* repair.h: rows that came out NaN or infinite are computed again over the keys that they see, in
 * f64 and in ascending order, as the kernels that follow each pass on a device do it.
 *
 * The products of a pass multiply what a mask hides by zero, and zero times infinity is NaN: so one
 * such number in an input spoils rows of its tile that do not see it. */
#ifndef EMULATOR_REPAIR_H
#define EMULATOR_REPAIR_H

#include "emulator/pass.h"

/* Whether a row holds a NaN or an infinity. */
bool ordo_emulator_broken(const ordo_emulator_pass *pass, const uint16_t *row, int columns);

/* These return false, and leave the row, where the result would need functions of the compiler's
 * library in f64, which are not ported: where a row is neither NaN nor sees nothing. */

/* Compute o and lse of a row. */
bool ordo_emulator_repair_output(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                 int32_t row, uint16_t *o, float *lse);

/* Compute dq of a row. */
bool ordo_emulator_repair_query(const ordo_emulator_pass *pass, int64_t b, int64_t head,
                                int32_t row, uint16_t *dq);

/* Compute dk and dv of a key, as gradients (dk, dv) or, with carried sums, in the units of these
 * (dk_sums, dv_sums, which hold what came in, or nothing if the call has no ORDO_CARRY_IN). What is
 * NULL is not written. */
bool ordo_emulator_repair_key(const ordo_emulator_pass *pass, int64_t b, int64_t kv_head,
                              int32_t key, const float *dk_in, const float *dv_in, uint16_t *dk,
                              uint16_t *dv, float *dk_sums, float *dv_sums);

#endif
