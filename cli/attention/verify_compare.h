/* verify_compare.h: the first element in which two results differ. */
#ifndef CLI_VERIFY_COMPARE_H
#define CLI_VERIFY_COMPARE_H

#include "kit/json.h"
#include "kit/tensors.h"

typedef struct cli_difference {
    cli_output output;
    int64_t sequence, row, head, column; /* column -1: lse has none */
    uint32_t expected, got;              /* bit patterns, 16 or 32 bits */
    int bits;
    uint64_t count, elements; /* elements of this output that differ, and all of them */
} cli_difference;

/* Sequence `at` of `got` against sequence `sequence` of `expected`, which must have the same
 * lengths. True if some output differs; the first one is described. */
bool cli_compare_sequence(const cli_tensors *expected, int64_t sequence, const cli_tensors *got,
                          int64_t at, cli_difference *difference);

/* All sequences, in their places, in the outputs whose bits (1u << CLI_O, ...) are set. */
bool cli_compare_some(const cli_tensors *expected, const cli_tensors *got, unsigned outputs,
                      cli_difference *difference);

/* All sequences, in their places. */
bool cli_compare_all(const cli_tensors *expected, const cli_tensors *got,
                     cli_difference *difference);

void cli_difference_text(const ordo_problem *problem, const cli_difference *difference, char *text,
                         size_t capacity);
void cli_difference_json(cli_json *json, const char *key, const cli_difference *difference);

#endif
