/* plan.h: a plan as data. src/planner fills it in; backends, model and simulators read it. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/for_lab.h"
#include "ordo/dropout.h"
#include "ordo/plan.h"
#include "plan/issue.h"

enum {
    ORDO_TILE_MAX = 4096,       /* rows or columns of a tile */
    ORDO_ACCUMULATORS_MAX = 64, /* accumulators per query tile */
    ORDO_WORKERS_MAX = 1 << 20,
    ORDO_LENGTH_MAX = ORDO_BAND_OPEN /* largest length of a sequence */
};

typedef enum ordo_pass { ORDO_FORWARD, ORDO_BACKWARD } ordo_pass;

struct ordo_plan {
    ordo_problem problem; /* resolved: every default filled in */
    ordo_backend backend;
    char family[16]; /* its name: plan/family.h */
    int revision;    /* numeric revision of that family */
    ordo_tile forward_tile, backward_tile;
    ordo_form forward_form, backward_form; /* how the passes are divided; not part of the key */
    ordo_order order, order_asked;
    int64_t group; /* shift and symmetric: a size, or ORDO_GROUP_WAVES; else 0 */
    int64_t accumulators;
    ordo_issue issue;
    int64_t section;
    ordo_assign assign;
    int64_t workers;
    int64_t segments;               /* segments of rows, with dropout: plan/segments.h; 0: none */
    int64_t lse_rows;               /* rows of a head in lse, dlse of a segment; 0: q_len */
    int64_t workspace_limit;        /* bytes; 0: the default */
    int threshold;                  /* dropout: keep if draw < threshold */
    ordo_dropout_mode dropout_mode; /* recommended; not part of the line */
    bool keep_bits_reused;          /* the backward pass reads the bits of the forward pass */
    char note[256];
};

/* Whether a problem has no query or no key, so that there is nothing to compute. */
static inline bool ordo_problem_empty(const ordo_problem *p)
{
    const bool packed = p->layout == ORDO_PACKED;
    return p->batch == 0 || p->q_len == 0 || p->kv_len == 0 ||
           (packed && (p->total_q == 0 || p->total_kv == 0));
}

/* Whether a plan has the tiles, orders and forms of the CUDA kernels: they run it, or the emulator,
 * which has their bits. */
static inline bool ordo_plan_of_kernels(const ordo_plan *plan)
{
    return plan->backend == ORDO_BACKEND_CUDA || plan->backend == ORDO_BACKEND_EMULATOR;
}

/* Rows of a head in lse and dlse of a dense or padded problem. */
static inline int64_t ordo_plan_lse_rows(const ordo_plan *plan)
{
    return plan->lse_rows ? plan->lse_rows : plan->problem.q_len;
}

/* The column of row 0 on the diagonal of a sequence, in the coordinates of the rows and columns
 * held here. Lengths as for ordo_plan_band(). */
int64_t ordo_plan_diagonal(const ordo_plan *plan, int64_t q_len, int64_t kv_len);

/* The mask of one sequence of `q_len` rows and `kv_len` columns in backward tiles. The lengths of a
 * dense problem come from the problem and its shard, those of a packed or padded sequence from the
 * call. */
ordo_band ordo_plan_band(const ordo_plan *plan, int64_t q_len, int64_t kv_len);

/* A run of `sequences` sequences of these lengths, for ordo_run_issue(). */
ORDO_FOR_LAB ordo_run ordo_plan_run(const ordo_plan *plan, int64_t sequences, int64_t q_len,
                                    int64_t kv_len);

/* The number of chains that must be resident together, for any lengths that a call may have; 0:
 * chains wait only on earlier ones. */
int32_t ordo_plan_coresident(const ordo_plan *plan);

/* Levels of the promise that this plan keeps, as ORDO_PROMISE_... bits. */
enum { ORDO_PROMISE_ALL = 2 * ORDO_PROMISE_CUT - 1 };
unsigned ordo_plan_promise(const ordo_plan *plan);

/* Whether sums of dk and dv can be carried from part to part of the rows: all heads visit query
 * tiles in one order, upwards or downwards, so that a part of the rows can continue the sums of the
 * part before it. Symmetric cannot, not even where it becomes spt: a part would, the whole sequence
 * might not. */
ORDO_FOR_LAB bool ordo_plan_carries(const ordo_plan *plan);

/* "shift.g32/k1": the order's part of the numeric key. */
ORDO_FOR_LAB void ordo_order_key(ordo_order order, int64_t group, int64_t workers,
                                 int64_t accumulators, char *text, size_t capacity);

/* "FAMILY.r3/f128x128/b64x128/descending/k1/philox7x8": same key, same bits. */
void ordo_plan_key(const ordo_plan *plan, char *text, size_t capacity);

/* "FAMILY.r3/keys128/last-first": what of it decides o and lse. */
void ordo_plan_forward_key(const ordo_plan *plan, char *text, size_t capacity);

#endif
