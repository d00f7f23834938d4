/* sum.h: the tree sum of arrays, by threads. */
#ifndef CPU_SUM_H
#define CPU_SUM_H

#include "ordo/sum.h"

/* Run a checked sum. */
ordo_status ordo_cpu_sum(const ordo_sum *sum);

#endif
