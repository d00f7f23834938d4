/* pass.h: what both passes share: addresses, lengths of sequences, tile geometry. */
#ifndef CPU_PASS_H
#define CPU_PASS_H

#include "base/gap.h"
#include "base/keep.h"
#include "cpu/kernels.h"
#include "ordo/attention.h"
#include "plan/lists.h"
#include "plan/workspace.h"

/* An arena of 64-byte aligned panels. If `base` is NULL, bytes are only counted. Under the address
 * sanitizer a gap follows each panel. */
typedef struct ordo_arena {
    char *base;
    size_t used;
} ordo_arena;

static inline void *ordo_arena_take(ordo_arena *arena, size_t words) /* words: 4 bytes each */
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
    int64_t kv_start;      /* its first stored column */
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
    int64_t queries;          /* query heads per key head */
    int dim, v_dim;           /* head sizes */
    int ld, v_ld;             /* the same, padded: floats between rows of a panel */
    ordo_keep keep;
    bool dropout;
    float keep_scale;
    bool dq, dk_dv;      /* backward: which of the gradients are computed */
    ordo_lists *lists;   /* (sequence, query head) or fewer, of a block mask; NULL: none */
    int64_t lists_count; /* those that are made */
    int delay_us;        /* testing: longest random delay before a turn */
} ordo_cpu_pass;

/* Fill in a pass from checked arguments. Returns ORDO_ERR_MEMORY, or an error if the variable
 * ORDO_CPU names kernels that this machine lacks. */
ordo_status ordo_cpu_pass_open(ordo_cpu_pass *pass, const ordo_plan *plan, const ordo_call *call);
void ordo_cpu_pass_close(ordo_cpu_pass *pass);

/* Rows of one head: the address of the first one, and the elements between two rows. */
typedef struct ordo_rows {
    void *data;
    int64_t stride;
} ordo_rows;

typedef enum ordo_side { ORDO_QUERIES, ORDO_KEYS } ordo_side;

/* The rows of (sequence b, head) from `row` on; of keys in pages, up to the end of a page. */
ordo_rows ordo_cpu_rows(const ordo_cpu_pass *pass, const ordo_tensor *tensor, ordo_side side,
                        int64_t dim, int64_t b, int64_t row, int64_t head);

/* Prefetch rows first .. end - 1 of `dim` elements each. */
void ordo_cpu_fetch(const ordo_cpu_pass *pass, ordo_rows rows, int first, int end, int dim);

/* Index of (b, head, row) in lse and dlse. */
int64_t ordo_cpu_lse_at(const ordo_cpu_pass *pass, int64_t b, int64_t head, int64_t row);

/* A tile in the coordinates of its sequence, trimmed to the columns that are visible to some row.
 * Trimming follows from the mask alone, so it is the same on every target. */
typedef struct ordo_patch {
    int64_t row, col; /* place of element (0, 0) */
    int rows, cols;   /* 0 columns: nothing visible */
    int skipped;      /* columns of the tile before col */
    ordo_scores scores;
} ordo_patch;

ordo_patch ordo_cpu_patch(const ordo_cpu_pass *pass, const ordo_band *band, int32_t i, int32_t j,
                          int64_t b, int64_t head, int ld);

/* Narrow a patch to columns first .. end - 1 of its tile. `partial` stays as it is. */
void ordo_cpu_patch_narrow(ordo_patch *patch, int first, int end);

/* Give a patch that stays as narrow as it is its bias and its keep bits, for `groups` groups of 16
 * rows. They are in `bias`, of ordo_cpu_bias_floats(), and `keep`, of ordo_cpu_keep_words(), while
 * the patch is used; both are for tiles of `bk` columns. */
void ordo_cpu_patch_load(const ordo_cpu_pass *pass, int64_t b, int64_t head, ordo_patch *patch,
                         float *bias, uint32_t *keep, int groups);
static inline size_t ordo_cpu_bias_floats(const ordo_cpu_pass *pass, size_t bk, int groups)
{
    return pass->problem->bias.on ? 16 * bk * (size_t)groups : 0;
}
static inline size_t ordo_cpu_keep_words(size_t bk, int groups)
{
    return (bk / ORDO_KEEP_COLS + 2) * (size_t)groups * ORDO_KEEP_WORDS;
}

/* c += a b over visible terms only. Term x of output row i is element (i, x) of the tile, or (x, i)
 * if `by_column`. It serves the rare partial tile that holds an infinity or NaN:
 * multiplied by a probability of zero, it would reach rows to which it is not visible. */
void ordo_cpu_product_careful(const ordo_scores *scores, bool by_column, int m, int n, int k,
                              const float *a, int a_row, int a_k, const float *b, int ldb, float *c,
                              int ldc);

/* Replace every NaN of a panel by the canonical one. ordo_exp2() reads an integer from the low bits
 * of its argument, and would read the payload of a NaN as one. */
void ordo_cpu_quiet(float *panel, int rows, int ld, int cols);

/* The sequence that a ticket belongs to: the last b with before(b) <= ticket. */
int64_t ordo_cpu_find(const ordo_cpu_pass *pass, int64_t ticket,
                      int64_t (*before)(const ordo_cpu_pass *pass, int64_t b));

ordo_status ordo_cpu_forward(const ordo_plan *plan, const ordo_call *call);
ordo_status ordo_cpu_backward(const ordo_plan *plan, const ordo_call *call);
ordo_status ordo_cpu_combine(const ordo_plan *plan, const ordo_combine *combine);

/* Row tiles that the backward pass processes together (docs/adr/0032-phases-inside-a-chain.md).
 * ordo_cpu_phase_force() sets the head size from which it does so, for tests and benchmarks; 0 =
 * its own choice. Neither changes a bit. */
int ordo_cpu_phase_depth(const ordo_cpu_pass *pass);
void ordo_cpu_phase_force(int head_dim);

#endif
