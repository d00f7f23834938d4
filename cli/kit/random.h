/* random.h: seeded numbers for inputs, the same on every machine. */
#ifndef CLI_RANDOM_H
#define CLI_RANDOM_H

#include "ordo/gemm.h"

/* A function of all bits of x. Keys of numbers are made with it, from seeds and places. */
uint64_t cli_random_mix(uint64_t x);

/* The number of a key, nearly normal, with mean 0 and variance 1. */
double cli_random_normal(uint64_t key);

/* data[index] = that number, rounded once to a type of ordo/problem.h or ordo/gemm.h. */
void cli_random_put(void *data, ordo_dtype dtype, int64_t index, uint64_t key);

#endif
