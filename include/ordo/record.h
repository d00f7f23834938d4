/* ordo/record.h: compare the records of two training runs, as ordo.Recorder writes them.
 *
 * A record is a file of JSON lines: one header, then one line per recorded step with the digests of
 * the loss, of every weight and of every gradient in backward order, and with the inputs of the
 * step: batch ids, seeds and plan lines. docs/guide/recorder.md describes the format. A record may
 * be compared while it is being written. */
#ifndef ORDO_RECORD_H
#define ORDO_RECORD_H

#include "ordo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A comparison of two records, in memory. */
typedef struct ordo_comparison ordo_comparison;

/* What else is different where results differ first; bits of ordo_comparison_info.causes. */
enum {
    ORDO_CAUSE_REPEAT = 1u << 0,   /* one file holds the step twice, with different results */
    ORDO_CAUSE_TENSORS = 1u << 1,  /* a tensor that only one of the runs has: another model */
    ORDO_CAUSE_BATCH = 1u << 2,    /* other batch ids */
    ORDO_CAUSE_SEEDS = 1u << 3,    /* other seeds of dropout */
    ORDO_CAUSE_PLAN = 1u << 4,     /* another plan line; workers and predicted time do not count */
    ORDO_CAUSE_VERSION = 1u << 5,  /* another version of ordo, PyTorch, ... */
    ORDO_CAUSE_DEVICE = 1u << 6,   /* another device */
    ORDO_CAUSE_RANKS = 1u << 7,    /* another number of ranks */
    ORDO_CAUSE_WEIGHTS = 1u << 8,  /* the weights differ before the step computes */
    ORDO_CAUSE_NUMERICS = 1u << 9, /* none of these: equal inputs gave different results */
    ORDO_CAUSE_COUNT = 10
};

/* What a comparison found. Texts live as long as the comparison. */
typedef struct ordo_comparison_info {
    size_t size; /* sizeof(ordo_comparison_info) */
    bool equal;
    unsigned causes;       /* 0 if equal */
    const char *text;      /* the verdict for people, several lines */
    const char *hint;      /* the cause for people; "" if equal */
    int64_t steps;         /* recorded in both files, and compared */
    int64_t first, last;   /* numbers of the first and the last of these */
    int64_t tensors;       /* names of weights and gradients in either file */
    int64_t equal_steps;   /* compared steps before the first that differs */
    int64_t step;          /* the first that differs; 0 if equal */
    const char *different; /* what differs there first: "batch", "seeds", "weight NAME", "loss" or
                            * "gradient NAME"; "" if equal */
    const char *gradient;  /* the first gradient that differs there, in backward order, or "" */
    int64_t weights, other_weights;     /* at that step: compared, and different */
    int64_t gradients, other_gradients; /* likewise */
    int64_t steps_a, steps_b;           /* recorded in each file */
    int64_t ignored_a, ignored_b;       /* lines in each that cannot be read, but for those that a
                                         * kill truncated and a resumed run follows */
    bool incomplete_a, incomplete_b;    /* the last line is truncated: being written, or killed */
} ordo_comparison_info;

#define ORDO_COMPARISON_INFO_INIT ORDO_SIZED(ordo_comparison_info)

/* One compared step; a loss that is not recorded is NaN. */
typedef struct ordo_comparison_step {
    size_t size; /* sizeof(ordo_comparison_step) */
    int64_t step;
    double loss_a, loss_b;
    bool equal;
} ordo_comparison_step;

#define ORDO_COMPARISON_STEP_INIT ORDO_SIZED(ordo_comparison_step)

/* A weight or gradient at one step. */
typedef enum ordo_cell {
    ORDO_CELL_EQUAL = 0,
    ORDO_CELL_DIFFERENT = 1, /* also if one file has it and the other does not */
    ORDO_CELL_ABSENT = 2     /* in neither */
} ordo_cell;

/* Read two files and compare the steps that both have. Steps are compared in this order: batch ids,
 * seeds, weights, loss, gradients, tensors in the order in which A recorded them. What only one of
 * the files records at all (no batch ids, no weights) is not compared. Seeds are those of a rank,
 * and not compared between runs on different numbers of ranks. A step that a file holds twice with
 * different results is a difference.
 *
 * Returns ORDO_ERR_FILE if a file cannot be read, ORDO_ERR_PARSE if it is no record,
 * ORDO_ERR_UNSUPPORTED if it has another format or digest, ORDO_ERR_SHAPE if the files have no step
 * in common. The caller destroys the comparison. */
ORDO_API ordo_status ordo_comparison_create(ordo_comparison **comparison, const char *a,
                                            const char *b);
ORDO_API void ordo_comparison_destroy(ordo_comparison *comparison);

ORDO_API ordo_status ordo_comparison_query(const ordo_comparison *comparison,
                                           ordo_comparison_info *info);

/* Compared step number `index`, 0 .. steps - 1, ascending. */
ORDO_API ordo_status ordo_comparison_step_at(const ordo_comparison *comparison, int64_t index,
                                             ordo_comparison_step *step);

/* Name of tensor 0 .. tensors - 1, in the order in which they were recorded, and whether it is a
 * gradient or a weight. NULL if there is no such tensor. */
ORDO_API const char *ordo_comparison_tensor(const ordo_comparison *comparison, int64_t tensor,
                                            bool *gradient);

/* That tensor at compared step number `index`. ORDO_CELL_ABSENT if there is no such tensor or
 * step. */
ORDO_API ordo_cell ordo_comparison_cell(const ordo_comparison *comparison, int64_t tensor,
                                        int64_t index);

/* "repeat", "tensors", "batch", ...: the name of one bit of causes; "unknown" for other values. */
ORDO_API const char *ordo_cause_name(unsigned cause);

#ifdef __cplusplus
}
#endif
#endif
