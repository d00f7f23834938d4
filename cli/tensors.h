/* tensors.h: the tensors of one call on the host: seeded inputs, outputs and their digests. */
#ifndef CLI_TENSORS_H
#define CLI_TENSORS_H

#include "ordo/ordo.h"

typedef enum cli_output { CLI_O, CLI_LSE, CLI_DQ, CLI_DK, CLI_DV, CLI_OUTPUTS } cli_output;

typedef struct cli_tensors {
    ordo_problem problem;     /* as the plan holds it, defaults filled in */
    const int32_t *q_numbers; /* packed: ends; padded: lengths; dense: NULL. Borrowed */
    const int32_t *kv_numbers;
    void *q, *k, *v, *dout;
    void *out[CLI_OUTPUTS];
    float *slopes;
    void *workspace;
    size_t workspace_bytes;
} cli_tensors;

/* Bytes all of it takes, roughly; a double, because it may be absurd. */
double cli_tensors_bytes(const ordo_problem *problem);

/* Multiplications and additions of a forward and a backward pass. */
double cli_tensors_flops(const ordo_problem *problem, const int32_t *q_numbers,
                         const int32_t *kv_numbers);

/* Allocate and fill. An input element depends on the seed, the tensor and its place
 * (sequence, row, head, column), so a sequence has the same inputs in any batch and any
 * layout. False if memory ran out. */
bool cli_tensors_make(cli_tensors *tensors, const ordo_plan *plan, const int32_t *q_numbers,
                      const int32_t *kv_numbers, uint64_t seed);
void cli_tensors_free(cli_tensors *tensors);

/* Everything but seeds and threads filled in. */
ordo_call cli_tensors_call(const cli_tensors *tensors);

/* Overwrite the outputs with NaNs, so that nothing unwritten passes for a result. */
void cli_tensors_poison(cli_tensors *tensors);

/* XXH64 over the logical elements in (sequence, head, row, column) order, little endian;
 * of all sequences, or of one if sequence >= 0. */
uint64_t cli_tensors_digest(const cli_tensors *tensors, cli_output output, int64_t sequence);

const char *cli_output_name(cli_output output);

#endif
