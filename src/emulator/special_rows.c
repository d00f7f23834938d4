/* special_rows.c: functions of rows, by the kernels of this machine. */
#include "emulator/kernels.h"
#include "emulator/special.h"

void ordo_emulator_ex2_row(float *x, int n)
{
    ordo_emulator_kernels_here()->ex2_row(x, n);
}

void ordo_emulator_round_row(uint16_t *to, const float *x, int n, ordo_dtype dtype)
{
    ordo_emulator_kernels_here()->round_row(to, x, n, dtype);
}
