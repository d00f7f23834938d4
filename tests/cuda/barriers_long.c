/* barriers_long.c: tests/cuda/barriers_test.c in 10^7 schedules. */
#define BARRIER_SCHEDULES 10000000
#include "barriers_test.c"
