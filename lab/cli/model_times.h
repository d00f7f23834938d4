/* model_times.h: times of a whole block by dropout mode, modelled or measured. */
#ifndef CLI_MODEL_TIMES_H
#define CLI_MODEL_TIMES_H

#include "cli/model_measured.h"
#include "ordo/lab/model.h"

/* Forward pass of one block, in seconds; NAN: not known. */
typedef struct cli_block_times {
    double none, sequential, fused;
    double overlapped;     /* bits made beside all four GEMMs */
    double overlapped_qkv; /* bits made beside the first GEMM only; the block is the whole one */
} cli_block_times;

/* What a report says; overlapped_qkv is not known. */
cli_block_times cli_block_times_of(const ordo_block_report *report);

/* Time of the block if bits are made beside the first GEMM only. */
ordo_status cli_block_beside_qkv(const ordo_model *model, const ordo_block *block, double *seconds);

/* Times of the rows of kind "block" that have the sizes, precision and generator of `block`, in the
 * steady state. */
cli_block_times cli_block_times_measured(const cli_measured *measured, const ordo_block *block);

/* The times with dropout by name, in the order of the fields; those that are not known are NAN. */
enum { CLI_TIMED_WAYS = 4 };
typedef struct cli_timed_way {
    const char *name;
    double seconds;
} cli_timed_way;
void cli_block_ways(const cli_block_times *times, cli_timed_way ways[CLI_TIMED_WAYS]);

/* The fastest way with dropout among those that are known. A second stream is advised only where it
 * gains more than `noise` over sequential. */
typedef struct cli_times_advice {
    const char *best, *next; /* NULL: fewer times are known */
    double margin;           /* time of the second / time of the best - 1 */
    bool no_difference;      /* the margin is within `noise` */
} cli_times_advice;
cli_times_advice cli_block_times_advice(const cli_block_times *times, double noise);

#endif
