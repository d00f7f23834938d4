/* model_predict.h: measured rows, their predictions, and constants fitted to half of them.
 */
#ifndef CLI_MODEL_PREDICT_H
#define CLI_MODEL_PREDICT_H

#include <string.h>

#include "cli/model.h"
#include "cli/model_measured.h"

typedef struct cli_validated_row {
    cli_measured_row is;
    double predicted;
    ordo_limiter limiter;
    int group;
    const char *kind;     /* kind of kernel: its constant if it has one, else its group's name */
    const char *constant; /* that its time is multiplied by; "rng": only _start; NULL: none */
    double value, start;  /* values of that constant, and of the one with _start after its name */
    bool held_out;        /* not used by the fit */
} cli_validated_row;

/* A kind of kernel after a fit to half of its rows. */
typedef struct cli_holdout_kind {
    const char *name, *constant;
    double value, start;         /* values of its two constants, fitted */
    size_t rows, fitted;         /* all, and those of the fit */
    double pp, pu, uu, p, u;     /* sums over those of the fit, see model_holdout.c */
    double before, after, worst; /* sums of errors of the other rows; the largest, with sign */
} cli_holdout_kind;

typedef struct cli_validation {
    cli_model_args *model;
    const char *path;
    cli_measured measured;
    cli_validated_row *rows;
    size_t count;
    cli_holdout_kind *kinds; /* NULL: errors of groups alone */
    size_t kind_count;
    bool fitted; /* the kinds, to half of their rows */
} cli_validation;

/* Errors are reported for each group of kernels: its name, NULL after the last. */
enum { CLI_GROUPS = 9 };
const char *cli_validate_group(int group);

static inline bool cli_row_causal(const cli_measured_row *r)
{
    return r->causal || strncmp(r->mask, "causal", 6) == 0;
}

static inline double cli_at_least_one(double x)
{
    return x > 0 ? x : 1;
}

/* Whether a kind has no constant that its time is multiplied by, but one with _start. */
bool cli_validate_start_only(const char *constant);

/* Predict one row; with the row's `value` and `start` of its constants if `value` is set. */
int cli_validate_predict(const cli_validation *validation, cli_validated_row *row);

/* Relative, with sign. */
double cli_validate_error(const cli_validated_row *row);

/* Blocks in mode overlapped compared with the same blocks in mode `base`. */
typedef struct cli_ratios {
    const char *base;
    size_t count;
    double absolute, deviation; /* errors of the ratio base / overlapped: mean, and its deviation */
    double measured_seconds, predicted_seconds; /* overlapped minus base, medians */
} cli_ratios;
cli_ratios cli_validate_ratios(const cli_validation *validation, const char *base);
void cli_ratios_print(const cli_validation *validation);
void cli_ratios_json(cli_json *json, const cli_validation *validation);

/* Report ratios whose mean error is larger than `most` percent. */
int cli_ratios_most(const cli_validation *validation, double most);

/* Errors of each kind with the constants as they stand. Allocates `kinds`. */
int cli_holdout_kinds(cli_validation *validation);

/* Fit the constants of each kind to half of its rows, which were predicted, and predict all rows
 * again with them. Allocates `kinds`. */
int cli_holdout_fit(cli_validation *validation);
void cli_holdout_print(const cli_validation *validation);
void cli_holdout_json(cli_json *json, const cli_validation *validation);

/* Report kinds whose mean error, of rows that were not used by a fit, is larger than `most`
 * percent, or that have no such row. */
int cli_holdout_most(const cli_validation *validation, double most);

#endif
