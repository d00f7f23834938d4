/* pass.h: a pass of a plan of family sm90 on the host: sequences, rows, masks and constants, as the
 * kernels see them.
 *
 * The orders of sums come from src/plan, the arithmetic from product.h and special.h, and the
 * constants of the score rule from headers that the kernels include, too. Nothing here is a
 * kernel's. A pass divides into units that need nothing of one another (units.h). */
#ifndef EMULATOR_PASS_H
#define EMULATOR_PASS_H

#include "base/blocks.h"
#include "base/keep.h"
#include "base/rule.h"
#include "ordo/attention.h"
#include "ordo/audit.h"
#include "plan/lists.h"
#include "plan/sizes.h"

/* One sequence of the batch. */
typedef struct ordo_emulator_sequence {
    int32_t q_len, kv_len;
    int64_t q_row, kv_row; /* its first ones in packed tensors, else 0 */
    int32_t kv_start;      /* its first stored column */
    int32_t low, high;     /* ends of its band */
    int32_t diagonal;      /* row i's own column is i + diagonal */
    uint32_t id;           /* for dropout */
    int64_t keep;          /* its first block of keep bits */
    int64_t keep_head;     /* blocks of one head */
    int64_t keep_columns;  /* columns of the stored bits */
    int64_t before[4];     /* units of the sequences before it, by ordo_audit_kind */
} ordo_emulator_sequence;

/* How the backward pass sums; a visit is one tile of queries met by one tile of keys. */
typedef struct ordo_emulator_visits {
    bool flash;     /* else by phases */
    int rows, keys; /* rows and keys of a visit */
    int32_t bucket; /* columns of the kernels, for the order of delta */
    bool dense;     /* run by the dense kernels: delta of a row that sees nothing is what it is */
} ordo_emulator_visits;

typedef struct ordo_emulator_pass {
    const ordo_plan *plan;
    const ordo_problem *problem;
    const ordo_call *call;
    ordo_pass which;
    ordo_emulator_sequence *sequences; /* batch + 1: the last one holds the totals */
    ordo_lists *lists;                 /* by (sequence, query head) or fewer; NULL: no block mask */
    int64_t lists_count;
    int32_t group;    /* query heads per key head */
    int dim, v_dim;   /* head sizes */
    int wide, v_wide; /* the same, in whole steps of a product */
    ordo_dtype dtype;
    bool f16;
    ordo_score_rule rule;
    bool has_rule;    /* the rule is applied before the softmax */
    float scale_log2; /* from what the rule leaves to a logit in base 2 */
    float natural;    /* and to a logit */
    ordo_keep keep;   /* how keep bits are made */
    bool dropout;
    float keep_scale; /* factor on kept elements; 1 without dropout */
    ordo_emulator_visits backward;
    bool dq, dk_dv;               /* backward: which gradients are computed */
    ordo_audit_difference *audit; /* compare with the outputs instead of writing them; or NULL */
    _Atomic bool *unknown;        /* set where a row is not finite and cannot be repaired here */
} ordo_emulator_pass;

/* Fill in a pass from checked arguments. ORDO_ERR_UNSUPPORTED names what the emulator does not
 * compute. */
ordo_status ordo_emulator_open(ordo_emulator_pass *pass, const ordo_plan *plan, ordo_pass which,
                               const ordo_call *call);
void ordo_emulator_close(ordo_emulator_pass *pass);

/* ---- rows ---- */

typedef enum ordo_emulator_side { ORDO_EMULATOR_QUERIES, ORDO_EMULATOR_KEYS } ordo_emulator_side;

/* Rows of one head of one sequence in a tensor: the first one, and elements from one to the next.
 */
typedef struct ordo_emulator_rows {
    uint16_t *data;
    int64_t stride;
} ordo_emulator_rows;

ordo_emulator_rows ordo_emulator_rows_of(const ordo_emulator_pass *pass, const ordo_tensor *tensor,
                                         ordo_emulator_side side, int64_t dim, int64_t b,
                                         int64_t head);

/* One row of a head; NULL after the end of its sequence, or if it is not stored. */
const uint16_t *ordo_emulator_row(const ordo_emulator_pass *pass, const ordo_tensor *tensor,
                                  ordo_emulator_side side, int64_t dim, int64_t b, int64_t head,
                                  int32_t row);

/* Index of (b, head, row 0) in lse and dlse. */
int64_t ordo_emulator_lse(const ordo_emulator_pass *pass, int64_t b, int64_t head);

/* The slope of ALiBi; 0: none. */
float ordo_emulator_slope(const ordo_emulator_pass *pass, int64_t b, int64_t head);

/* Write n elements of a row of an output, or compare them with what is there. */
void ordo_emulator_put(const ordo_emulator_pass *pass, const char *tensor, int64_t b, int64_t head,
                       int64_t row, uint16_t *to, const uint16_t *from, int n);
void ordo_emulator_put_lse(const ordo_emulator_pass *pass, int64_t b, int64_t head, int64_t row,
                           float lse);
void ordo_emulator_put_sink(const ordo_emulator_pass *pass, int64_t b, int64_t head, float part);
void ordo_emulator_put_bias(const ordo_emulator_pass *pass, int64_t b, int64_t head, int64_t row,
                            int64_t column, float sum);

/* ---- masks ---- */

/* The lists of a query head; NULL: there is no block mask. `lists` were made for tiles of the
 * backward pass, or of 64 rows for a forward pass. */
const ordo_lists *ordo_emulator_lists(const ordo_emulator_pass *pass, int64_t b, int64_t head);

/* Which of the `keys` (64, 128 or 256) from key0 on, a multiple of 64, a row sees: bit c % 32 of
 * word c / 32. A tile of keys is a block if there is a block mask. */
void ordo_emulator_sees(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                        int32_t key0, int32_t keys, uint32_t words[8]);

/* The keep bits of a row for the same keys, likewise. Rows past the end keep all. */
void ordo_emulator_kept(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                        int32_t key0, int32_t keys, uint32_t words[8]);

static inline bool ordo_emulator_bit(const uint32_t *words, int c)
{
    return words[c / 32] >> (c % 32) & 1;
}

/* ---- scores ---- */

/* The bias of a row and key; 0 past the end of either, and without a bias. */
float ordo_emulator_bias(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                         int32_t key);

/* n scores of one row, from key0 on, to what the rule gives. */
void ordo_emulator_apply_rule(const ordo_emulator_pass *pass, float *s, int n, int64_t b,
                              int64_t head, int32_t row, int32_t key0);

/* The derivative of softcap, from |p| and lse in base 2. */
float ordo_emulator_cap_gradient(const ordo_emulator_pass *pass, float p, float lse2, int64_t b,
                                 int64_t head, int32_t row, int32_t key);

/* lse in base 2 (+inf: the row sees nothing) and delta of `count` rows of a head from `row` on;
 * rows past the end have +inf and 0. */
void ordo_emulator_statistics(const ordo_emulator_pass *pass, int64_t b, int64_t head, int32_t row,
                              int count, float *lse2, float *delta);

/* ---- memory of one worker ---- */

/* A bump allocator of 64-byte aligned pieces. If `base` is NULL, bytes are only counted. */
typedef struct ordo_emulator_arena {
    char *base;
    size_t used;
} ordo_emulator_arena;

void *ordo_emulator_take(ordo_emulator_arena *arena, size_t bytes);

#endif
