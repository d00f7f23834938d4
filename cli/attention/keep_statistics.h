/* keep_statistics.h: statistical tests of the keep bits of dropout.
 *
 * Two things are measured: the rate of kept elements, and the correlation of neighbours, where
 * "neighbour" means one step along each word of the generator's counter. A generator with too few
 * rounds shows in the second. z counts standard deviations from what independent draws give. */
#ifndef CLI_KEEP_STATISTICS_H
#define CLI_KEEP_STATISTICS_H

#include "ordo/ordo.h"

typedef enum cli_lag {
    CLI_LAG_COLUMN, /* the next column, of pairs 2m and 2m + 1 */
    CLI_LAG_QUAD,   /* two columns on: the next quad */
    CLI_LAG_BLOCK,  /* 128 columns on: the next block */
    CLI_LAG_ROW,    /* the next row */
    CLI_LAG_HEAD,   /* the next head */
    CLI_LAG_SITE,   /* the next dropout call */
    CLI_LAGS
} cli_lag;

typedef struct cli_lag_count {
    uint64_t pairs, both, first, second; /* pairs; where both, the first, the second are kept */
    double correlation, z;
    bool enough; /* pairs to judge by */
} cli_lag_count;

typedef struct cli_keep_statistics {
    ordo_dropout_info info;
    uint64_t kept;
    double rate, expected, z;
    bool enough;
    cli_lag_count lags[CLI_LAGS];
} cli_keep_statistics;

/* Limits of |z|: independent draws exceed them once in 16 thousand and in 1.7 million cases. */
enum { CLI_RATE_LIMIT = 4, CLI_LAG_LIMIT = 5 };

/* Make the bits (of this offset and of the next call's) block by block and count. */
ordo_status cli_keep_measure(const ordo_problem *problem, const ordo_dropout_call *call,
                             cli_keep_statistics *statistics);

/* Returns whether a statistic exceeds its limit; `which`, if not NULL, gets its name. */
bool cli_keep_suspicious(const cli_keep_statistics *statistics, const char **which);

const char *cli_lag_name(cli_lag lag);

#endif
