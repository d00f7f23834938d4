/* bias.h: the gradient of a bias on the CPU. */
#ifndef CPU_BIAS_H
#define CPU_BIAS_H

#include "cpu/query_side.h"

/* Write dbias of the call, if it is given, from the query side that `rows` has prepared: dS of all
 * sequences and heads that share an element, added as ordo/attention.h says. A tile of dbias is
 * summed by one thread: threads change no bit. ORDO_ERR_MEMORY. */
ordo_status ordo_cpu_bias_gradient(const ordo_query_side *rows);

#endif
