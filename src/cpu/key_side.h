/* key_side.h: dK and dV of a backward pass: where the sums of a chain begin, and where they go.
 *
 * They begin from 0, or from the sums that the call carries; they are rounded to dk and dv, or left
 * unrounded and unscaled as the sums of the next part. Storing f32 is exact, so that a chain that
 * is continued has the bits of one that is not. */
#ifndef CPU_KEY_SIDE_H
#define CPU_KEY_SIDE_H

#include "cpu/pass.h"

/* Columns first .. end - 1 of a key tile that begins at column `col` of its sequence, as panels of
 * the pass's row lengths. */
typedef struct ordo_key_tile {
    int64_t b, kv_head, col;
    int first, end;
    float *dk, *dv; /* sums from the tile's column 0 on */
} ordo_key_tile;

void ordo_key_begin(const ordo_cpu_pass *pass, const ordo_key_tile *tile);
void ordo_key_end(const ordo_cpu_pass *pass, const ordo_key_tile *tile);

/* Columns of a padded sequence after its end: gradients 0, or sums as they were. */
void ordo_key_clear(const ordo_cpu_pass *pass, int64_t b, int64_t kv_head);

#endif
