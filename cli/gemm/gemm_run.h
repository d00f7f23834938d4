/* gemm_run.h: one product on seeded inputs, whole or some of its rows and columns. */
#ifndef CLI_GEMM_RUN_H
#define CLI_GEMM_RUN_H

#include "ordo/ordo.h"

typedef struct cli_gemm {
    ordo_gemm_problem problem;
    ordo_backend backend;
    uint64_t seed;
    int threads;
} cli_gemm_job;

/* Which rows or columns of the whole product, in which order; ids NULL: 0, 1, 2, ... */
typedef struct cli_gemm_lines {
    int64_t count;
    const int64_t *ids;
} cli_gemm_lines;

/* A result: m rows of n elements, contiguous. */
typedef struct cli_gemm_result {
    int64_t m, n, width; /* bytes per element */
    unsigned char *data; /* free() releases it */
} cli_gemm_result;

/* Multiply these rows of A by these columns of B. Where `seconds` is not NULL, it gets the median
 * time of one product, measured for about *seconds. Prints its error and returns an exit status. */
int cli_gemm_execute(const cli_gemm_job *gemm, cli_gemm_lines rows, cli_gemm_lines columns,
                     cli_gemm_result *result, double *seconds);

/* What compared other selections of rows and columns with the whole. */
typedef struct cli_gemm_verdict {
    int64_t products, elements; /* that were compared */
    bool differs;
    int64_t row, column; /* the first that differs, and the number of rows that it was among */
    int64_t among;
} cli_gemm_verdict;

/* Rows alone, in drawn batches, all in reverse, and drawn columns. */
int cli_gemm_verify(const cli_gemm_job *gemm, const cli_gemm_result *whole,
                    cli_gemm_verdict *verdict);

#endif
