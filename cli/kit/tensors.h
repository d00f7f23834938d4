/* tensors.h: the tensors of one call on the host: seeded inputs, outputs and their digests. */
#ifndef CLI_TENSORS_H
#define CLI_TENSORS_H

#include "ordo/ordo.h"

/* CLI_DSINK: of each sequence and head; has no elements without sinks, CLI_DBIAS without a bias. */
typedef enum cli_output {
    CLI_O,
    CLI_LSE,
    CLI_DQ,
    CLI_DK,
    CLI_DV,
    CLI_DSINK,
    CLI_DBIAS,
    CLI_OUTPUTS
} cli_output;

typedef struct cli_tensors {
    ordo_problem problem;     /* as the plan holds it, defaults filled in */
    const int32_t *q_numbers; /* packed: ends; padded: lengths; dense: NULL. Borrowed */
    const int32_t *kv_numbers;
    const ordo_block_mask *mask; /* blocks or elements, to be set after cli_tensors_make(); NULL:
                                  * none. Borrowed */
    const int64_t *ids;          /* ids of the sequences; NULL: 0, 1, 2, ... Borrowed */
    void *q, *k, *v, *dout;
    void *out[CLI_OUTPUTS];
    float *slopes, *sink, *bias;
    bool sinks;
} cli_tensors;

/* Allocate and fill. An input element depends on the seed, the tensor and its place (id of the
 * sequence, row, head, column), so a sequence has the same inputs in any batch and any layout.
 * `sinks`: with a sink for each head. False if memory ran out. */
bool cli_tensors_make(cli_tensors *tensors, const ordo_plan *plan, const int32_t *q_numbers,
                      const int32_t *kv_numbers, const int64_t *ids, uint64_t seed, bool sinks);
void cli_tensors_free(cli_tensors *tensors);

/* Everything but seeds, threads and workspace filled in. */
ordo_call cli_tensors_call(const cli_tensors *tensors);

/* Fill the outputs with NaNs, so that an element left unwritten is not taken for a result. */
void cli_tensors_poison(cli_tensors *tensors);

size_t cli_tensors_output_bytes(const cli_tensors *tensors, cli_output output);

/* The logical elements of one sequence in an output; lse has one column. */
typedef struct cli_extent {
    int64_t rows, heads, columns;
    size_t width;  /* bytes per element */
    int64_t first; /* row in memory */
} cli_extent;

cli_extent cli_tensors_extent(const cli_tensors *tensors, cli_output output, int64_t sequence);

/* The columns of one row and head, contiguous. */
const void *cli_tensors_at(const cli_tensors *tensors, cli_output output, const cli_extent *extent,
                           int64_t row, int64_t head);

/* XXH64 over the logical elements in (sequence, head, row, column) order, little endian;
 * of all sequences, or of one if sequence >= 0. 0: an output that has no elements for what the
 * problem is; of one sequence CLI_DBIAS has none where sequences share it. */
uint64_t cli_tensors_digest(const cli_tensors *tensors, cli_output output, int64_t sequence);

const char *cli_output_name(cli_output output);

#endif
