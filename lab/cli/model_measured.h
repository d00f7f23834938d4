/* model_measured.h: measured times as `ordo bench --json` and lab/bench/calibrate write them.
 *
 * A document with "results", each a kernel, its sizes and its "seconds". A row without "kernel" is
 * one of `ordo bench`: attention, its "problem" and "pass". Keys that say nothing about time are
 * passed over. */
#ifndef CLI_MODEL_MEASURED_H
#define CLI_MODEL_MEASURED_H

#include <stdbool.h>
#include <stddef.h>

enum { CLI_MEASURED_WORD = 32 };

/* A row as read; a zero or an empty word means that the key was not there. */
typedef struct cli_measured_row {
    char kernel[CLI_MEASURED_WORD], pass[CLI_MEASURED_WORD], precision[CLI_MEASURED_WORD],
        generator[CLI_MEASURED_WORD], keep[CLI_MEASURED_WORD], mode[CLI_MEASURED_WORD];
    char state[CLI_MEASURED_WORD], mask[CLI_MEASURED_WORD], overlap[CLI_MEASURED_WORD],
        placement[CLI_MEASURED_WORD], label[64];
    double m, n, k, batch, heads, kv_heads, seq, kv_seq, head_dim, embed;
    double rounds, bits, dropout, read_bytes, write_bytes, elements;
    double threads, peak_flops, utilization;
    double seconds, overhead_seconds;
    bool causal;
} cli_measured_row;

typedef struct cli_measured {
    char machine[256]; /* a name or a path; "" if the document names none */
    cli_measured_row *rows;
    size_t count;
} cli_measured;

/* Read a file, "-" for standard input; prints its error and returns an exit status. */
int cli_measured_read(cli_measured *measured, const char *path);
void cli_measured_free(cli_measured *measured);

#endif
