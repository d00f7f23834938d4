/* ordo/audit.h: compare what a GPU computed with what it should have computed, on a CPU, bit for
 * bit.
 *
 * A plan of the CUDA backend fixes the order of every sum, and the emulator knows the arithmetic of
 * the device. So a CPU recomputes any part of a pass, without a GPU, and the comparison has no
 * tolerance. A pass divides into units that need nothing of one another:
 *
 *   forward    ORDO_AUDIT_O      64 rows of o and lse of one query head
 *   backward   ORDO_AUDIT_DQ     a tile of rows of dq of one query head
 *              ORDO_AUDIT_DK_DV  a tile of rows of dk and dv of one key head
 *              ORDO_AUDIT_DSINK  dsink_parts of one sequence and query head
 *              ORDO_AUDIT_DBIAS  a tile of rows of one matrix of dbias
 *   either     ORDO_AUDIT_BLANK  all rows that belong to no sequence: their results are fixed
 *
 * Each needs only the inputs of the pass (ordo/attention.h): of a backward pass q, k, v, o, lse,
 * dout, and dlse if there is one. A backward audit takes o and lse as they are; whether they are
 * right, the forward audit says. A caller with little time checks units drawn at random.
 *
 * `plan` is a plan of backend cuda or emulator. `call` is the call of the pass with all pointers in
 * host memory, and holds the outputs, which are read and never written. Of a backward pass, units
 * exist for the gradients whose tensors are given. Every element of these is in one unit; dsink,
 * which is a sum of dsink_parts, is in none. Workspace and stream are ignored, and so are segments,
 * which change no bit. With `carry` the sums that a call began with are gone, so it is refused
 * (ORDO_ERR_UNSUPPORTED), like everything else that the emulator does not compute. */
#ifndef ORDO_AUDIT_H
#define ORDO_AUDIT_H

#include "ordo/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ordo_audit_pass { ORDO_AUDIT_FORWARD = 0, ORDO_AUDIT_BACKWARD = 1 } ordo_audit_pass;

typedef enum ordo_audit_kind {
    ORDO_AUDIT_O = 0,
    ORDO_AUDIT_DQ = 1,
    ORDO_AUDIT_DK_DV = 2,
    ORDO_AUDIT_DSINK = 3,
    ORDO_AUDIT_DBIAS = 4,
    ORDO_AUDIT_BLANK = 5
} ordo_audit_kind;

/* What a unit is. */
typedef struct ordo_audit_unit {
    size_t size; /* sizeof(ordo_audit_unit) */
    ordo_audit_kind kind;
    int64_t sequence, head; /* a query head, or of ORDO_AUDIT_DK_DV a key head; of ORDO_AUDIT_DBIAS
                             * its matrix */
    int64_t row, rows;      /* rows of the sequence; ORDO_AUDIT_BLANK: only their number */
    int64_t scores;         /* products q.k that it computes, hidden ones included: the work; none
                             * of ORDO_AUDIT_DSINK and ORDO_AUDIT_BLANK */
} ordo_audit_unit;

#define ORDO_AUDIT_UNIT_INIT ORDO_SIZED(ordo_audit_unit)

/* The first element of a unit that differs: dk before dv, lse after o, row by row. Rows after the
 * last sequence of a packed tensor are counted from the beginning of the tensor. */
typedef struct ordo_audit_difference {
    size_t size; /* sizeof(ordo_audit_difference) */
    bool differs;
    char tensor[8];                      /* "o", "lse", "dq", "dk", "dv", "dsink", "dbias" */
    int64_t sequence, row, head, column; /* place of the element; 0 where it has none */
    int64_t count;                       /* elements of the unit that differ */
    uint32_t found, expected;            /* bits: 16 of a tensor, 32 of what is f32 */
    double found_value, expected_value;
} ordo_audit_difference;

#define ORDO_AUDIT_DIFFERENCE_INIT ORDO_SIZED(ordo_audit_difference)

/* Set *count to the number of units of a pass. */
ORDO_API ordo_status ordo_audit_unit_count(const ordo_plan *plan, const ordo_call *call,
                                           ordo_audit_pass pass, int64_t *count);

/* Describe unit `index`, 0 .. count - 1; set unit->size before (ORDO_AUDIT_UNIT_INIT). */
ORDO_API ordo_status ordo_audit_unit_describe(const ordo_plan *plan, const ordo_call *call,
                                              ordo_audit_pass pass, int64_t index,
                                              ordo_audit_unit *unit);

/* Recompute units index .. index + count - 1 and compare them with the outputs of the call, on
 * call->threads threads. Set difference->size before (ORDO_AUDIT_DIFFERENCE_INIT). Returns ORDO_OK
 * whether they are equal or not: difference->differs says so, for the first of the units that
 * differs, whatever the number of threads. ORDO_ERR_UNSUPPORTED if none differs but one has a row
 * that the emulator does not know (ordo_attention_forward()). */
ORDO_API ordo_status ordo_audit_check(const ordo_plan *plan, const ordo_call *call,
                                      ordo_audit_pass pass, int64_t index, int64_t count,
                                      ordo_audit_difference *difference);

#ifdef __cplusplus
}
#endif
#endif
