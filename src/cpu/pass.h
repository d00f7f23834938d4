/* pass.h: what both passes share: where elements are, how long sequences are, tile geometry. */
#ifndef CPU_PASS_H
#define CPU_PASS_H

#include "base/keep.h"
#include "cpu/gap.h"
#include "cpu/kernels.h"
#include "ordo/attention.h"
#include "plan/workspace.h"

/* Memory cut into panels: 64-byte aligned pieces of `base`, or only counted if that is NULL. Under
 * the address sanitizer a gap follows each. */
typedef struct ordo_arena {
    char *base;
    size_t used;
} ordo_arena;

static inline void *ordo_arena_take(ordo_arena *arena, size_t words) /* of 4 bytes */
{
    char *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used += (words + 15) / 16 * 64 + ORDO_GAP;
    if (piece)
        ordo_gap_close(piece + 4 * words, arena->base + arena->used);
    return piece;
}

/* One sequence of the batch. */
typedef struct ordo_sequence {
    int64_t q_len, kv_len; /* valid rows and columns */
    int64_t q_row, kv_row; /* its first row and column in packed memory, else 0 */
    int64_t tile;          /* query tiles of the sequences before it */
    int64_t item;          /* forward items of the sequences before it; set by the forward pass */
    int64_t key_tile;      /* forward key tiles of the sequences before it; likewise */
    int64_t block;         /* blocks of keep bits of the sequences before it */
    uint32_t id;           /* for dropout */
    ordo_run run;          /* its backward chains */
    int64_t tickets[2];    /* chains of the sequences before it, by class */
} ordo_sequence;

typedef struct ordo_cpu_pass {
    const ordo_plan *plan;
    const ordo_problem *problem;
    const ordo_call *call;
    const ordo_kernels *kernels;
    void *workspace;          /* the call's; under the address sanitizer, larger memory with gaps */
    ordo_sequence *sequences; /* batch + 1: the last one holds the totals */
    int64_t queries;          /* query heads a key head */
    int dim, v_dim;           /* head sizes */
    int ld, v_ld;             /* panels' rows: the same, padded */
    ordo_keep keep;
    bool dropout;
    float keep_scale;
    int delay_us; /* testing: longest random delay before a turn */
} ordo_cpu_pass;

/* Fill in a pass from checked arguments; ORDO_ERR_MEMORY, or no kernels for ORDO_CPU. */
ordo_status ordo_cpu_pass_open(ordo_cpu_pass *pass, const ordo_plan *plan, const ordo_call *call);
void ordo_cpu_pass_close(ordo_cpu_pass *pass);

/* Address of (sequence b, row, head) and the distance between rows, in elements. `heads` and
 * `length` describe the tensor: heads x dim elements a row, `length` rows a sequence. */
typedef struct ordo_rows {
    void *data;
    int64_t stride;
} ordo_rows;

typedef enum ordo_side { ORDO_QUERIES, ORDO_KEYS } ordo_side;

ordo_rows ordo_cpu_rows(const ordo_cpu_pass *pass, const ordo_tensor *tensor, ordo_side side,
                        int64_t dim, int64_t b, int64_t row, int64_t head);

/* Ask for rows first .. end - 1 from memory, `dim` elements each, before they are needed. */
void ordo_cpu_fetch(const ordo_cpu_pass *pass, ordo_rows rows, int first, int end, int dim);

/* Index of (b, head, row) in lse and its like. */
int64_t ordo_cpu_lse_at(const ordo_cpu_pass *pass, int64_t b, int64_t head, int64_t row);

/* A tile in the coordinates of its sequence, trimmed to the columns that some of its rows see;
 * trimming follows from the mask alone, so it is the same on every target. */
typedef struct ordo_patch {
    int64_t row, col; /* of element (0, 0) */
    int rows, cols;   /* 0 columns: nothing visible */
    int skipped;      /* columns of the tile before col */
    ordo_scores scores;
} ordo_patch;

ordo_patch ordo_cpu_patch(const ordo_cpu_pass *pass, const ordo_band *band, int32_t i, int32_t j,
                          int64_t b, int64_t head, int ld);

/* What columns first .. end - 1 of the tile have of it. `cut` stays. */
void ordo_cpu_patch_narrow(ordo_patch *patch, int first, int end);

/* Keep bits of a patch as ordo_scores.keep wants them, `groups` of 16 rows a block of columns; and
 * the words that takes for tiles `bk` wide. */
void ordo_cpu_keep_tile(const ordo_cpu_pass *pass, int64_t b, int64_t head, const ordo_patch *patch,
                        uint32_t *words, int groups);
static inline size_t ordo_cpu_keep_words(size_t bk, int groups)
{
    return (bk / ORDO_KEEP_COLS + 2) * (size_t)groups * ORDO_KEEP_WORDS;
}

/* c += a b over the terms that are visible: output row i sums x from i + low to i + high. For the
 * rare tile that is cut by the mask and holds an inf or NaN, which a zero probability would
 * spread to rows that must not see it. */
void ordo_cpu_product_careful(int m, int n, int k, const float *a, int a_row, int a_k,
                              const float *b, int ldb, float *c, int ldc, int64_t low,
                              int64_t high);

/* Make every NaN of a panel the canonical one. exp2 takes an integer from the low bits of its
 * argument, and a NaN's payload would pass for one: scores must not have any. */
void ordo_cpu_quiet(float *panel, int rows, int ld, int cols);

/* The sequence a ticket belongs to: the last b with before(b) <= ticket. */
int64_t ordo_cpu_find(const ordo_cpu_pass *pass, int64_t ticket,
                      int64_t (*before)(const ordo_cpu_pass *pass, int64_t b));

ordo_status ordo_cpu_forward(const ordo_plan *plan, const ordo_call *call);
ordo_status ordo_cpu_backward(const ordo_plan *plan, const ordo_call *call);
ordo_status ordo_cpu_combine(const ordo_plan *plan, const ordo_combine *combine);

/* Row tiles that the backward pass takes together; and from which head size on, for tests and
 * benchmarks, 0 = its own choice. Changes no bit. */
int ordo_cpu_phase_depth(const ordo_cpu_pass *pass);
void ordo_cpu_phase_force(int head_dim);

#endif
