/* record.h: the file of a recorded run in memory. docs/guide/recorder.md describes the format.
 *
 * If a step was recorded more than once, as after a restart, its last record counts. */
#ifndef RECORD_RECORD_H
#define RECORD_RECORD_H

#include "ordo/status.h"
#include "record/names.h"

/* What a header line says of the process that wrote the lines after it. Texts are JSON. */
typedef struct ordo_record_session {
    char *versions, *device; /* NULL: not said */
    int64_t ranks, rank;     /* 1 and 0 if not said */
} ordo_record_session;

typedef struct ordo_record_digest {
    uint32_t name; /* index into the names */
    uint64_t value;
} ordo_record_digest;

typedef struct ordo_record_step {
    int64_t step;
    size_t session;              /* index */
    char *batch, *seeds, *plans; /* JSON without blanks; NULL: not recorded. Plan lines are without
                                  * what does not touch a bit: workers and predicted time. */
    bool has_loss;
    uint64_t loss;
    double loss_value;           /* NaN: not recorded */
    ordo_record_digest *digests; /* weights, then gradients, each in recorded order */
    size_t count;
} ordo_record_step;

typedef struct ordo_record {
    ordo_record_session *sessions;
    ordo_record_step *steps; /* ascending */
    size_t session_count, session_room, count, room;
    int64_t ignored,
        first_ignored;    /* lines that are neither header nor step; number of the first */
    int64_t truncated;    /* lines that a kill cut short: the header of a later process follows */
    int64_t last_ignored; /* number */
    bool incomplete;      /* the last line is truncated: still being written, or was killed */
    ordo_record_step *changed; /* the first that a different record replaced; or NULL */
} ordo_record;

/* Read a file. Names are added to `names`. Returns ORDO_ERR_FILE if it cannot be read,
 * ORDO_ERR_PARSE if its first line is no header, ORDO_ERR_UNSUPPORTED for another version or
 * digest; the record can be freed in any case. */
ordo_status ordo_record_read(ordo_record *record, const char *path, ordo_names *names);
void ordo_record_free(ordo_record *record);

/* What differs between two records of one step. Only what both have is compared; a tensor that one
 * of them lacks counts if the other has some of its kind. */
typedef struct ordo_step_difference {
    bool any;
    bool batch, seeds, loss;
    size_t weights, gradients;             /* compared, with those that only one has */
    size_t other_weights, other_gradients; /* how many of these differ */
    uint32_t weight, gradient;             /* names of the first of these, in recorded order */
    size_t missing;                        /* tensors that only one has */
    uint32_t missing_name;
} ordo_step_difference;

ordo_step_difference ordo_step_compare(const ordo_record_step *a, const ordo_record_step *b,
                                       const ordo_names *names, bool with_seeds);

/* The record of a step; NULL if there is none. */
const ordo_record_step *ordo_record_find(const ordo_record *record, int64_t step);

/* The digest of a name in a step; NULL if it has none. `hint` is where the search begins. */
const ordo_record_digest *ordo_step_digest(const ordo_record_step *step, uint32_t name,
                                           size_t hint);

#endif
