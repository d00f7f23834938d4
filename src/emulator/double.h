/* double.h: functions in f64 of a repair. The device's are those of its compiler's library, and not
 * ported: here only whether a result is NaN is used (repair.h), which the host's tell alike. */
#ifndef EMULATOR_DOUBLE_H
#define EMULATOR_DOUBLE_H

#include <math.h>

#define ordo_emulator_exp64  exp
#define ordo_emulator_tanh64 tanh
#define ordo_emulator_cosh64 cosh

#endif
