/* compare.h: what the files of `ordo compare` share. */
#ifndef CLI_RECORD_COMPARE_H
#define CLI_RECORD_COMPARE_H

#include "ordo/ordo.h"

#include <stdio.h>

typedef struct cli_comparison {
    const char *path[2]; /* A and B */
    ordo_comparison *comparison;
    ordo_comparison_info info;
} cli_comparison;

/* A page with the verdict, both loss curves and a map of layers and steps. False if memory ran
 * out; the caller checks the stream for errors when it closes it. */
bool cli_compare_html(FILE *out, const cli_comparison *compare);

/* The two drawings of the page, as SVG. */
void cli_compare_curves(FILE *out, const cli_comparison *compare);
bool cli_compare_map(FILE *out, const cli_comparison *compare);

#endif
