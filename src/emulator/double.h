/* double.h: stand-in. */
#ifndef EMULATOR_DOUBLE_H
#define EMULATOR_DOUBLE_H
#include <math.h>
#define ordo_emulator_exp64  exp
#define ordo_emulator_log64  log
#define ordo_emulator_tanh64 tanh
#define ordo_emulator_cosh64 cosh
#endif
