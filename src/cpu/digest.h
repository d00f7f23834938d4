/* digest.h: xxh64-pieces on the CPU. */
#ifndef CPU_DIGEST_H
#define CPU_DIGEST_H

#include "ordo/digest.h"

/* Run a checked call. */
ordo_status ordo_cpu_digest(const ordo_digest_call *call);

#endif
