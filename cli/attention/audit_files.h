/* audit_files.h: the record of a pass in files: its tensors, its plan, and the rest of its call. */
#ifndef CLI_AUDIT_FILES_H
#define CLI_AUDIT_FILES_H

#include "kit/array.h"
#include "kit/numbers.h"
#include "ordo/ordo.h"

enum {
    CLI_AUDIT_Q,
    CLI_AUDIT_K,
    CLI_AUDIT_V,
    CLI_AUDIT_OUTPUT_O,
    CLI_AUDIT_LSE,
    CLI_AUDIT_DOUT,
    CLI_AUDIT_OUTPUT_DQ,
    CLI_AUDIT_DK,
    CLI_AUDIT_DV,
    CLI_AUDIT_DLSE,
    CLI_AUDIT_SLOPES,
    CLI_AUDIT_SINK,
    CLI_AUDIT_DSINK, /* one value per sequence */
    CLI_AUDIT_BIAS,
    CLI_AUDIT_DBIAS,
    CLI_AUDIT_TENSORS
};

typedef struct cli_audit_record {
    char *line, *inputs; /* the plan's line, and what else decides the bits */
    ordo_plan *plan;
    ordo_problem problem;
    cli_array arrays[CLI_AUDIT_TENSORS]; /* path NULL: not there */
    void *data[CLI_AUDIT_TENSORS];
    int32_t *q_numbers, *kv_numbers; /* packed: ends; padded: lengths */
    ordo_call call;
    bool forward, backward; /* which passes have their outputs here */
    bool seed, offset;      /* stated */
} cli_audit_record;

/* Read a record from `count` files: .safetensors with tensors of the names of ordo_call, and
 * .npy files named after their tensor; any other tensor is an error, because nobody would look at
 * it. `line` and `inputs` take the place of the metadata
 * "ordo.plan" and "ordo.inputs" unless NULL. Prints its error and returns an exit status: 4 if a
 * file is not what it should be, 3 if its plan cannot be made here. cli_audit_free() releases it in
 * either case. */
int cli_audit_read(cli_audit_record *record, const char *const *paths, size_t count,
                   const char *line, const char *inputs);
void cli_audit_free(cli_audit_record *record);

/* The name of a tensor, and the kind of unit (ordo_audit_kind) that compares it; -1: an input. */
const char *cli_audit_name(int which);
int cli_audit_kind_of(int which);

#endif
