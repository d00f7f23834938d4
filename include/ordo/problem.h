/* ordo/problem.h: what attention is to be computed: shapes, mask, scores, dropout; no pointers.
 *
 * Row i of queries, column j of keys, both inside one sequence. With bottom-right masks
 * (the default) diag = kv - q of that sequence, with top-left masks diag = 0:
 *
 *   visible(i,j)  0 <= j < kv;  causal: j <= i + diag;
 *                 window: -left <= j - i - diag <= right (inclusive, -1 = open)
 *   logit(i,j)    cap(scale * <q_i, k_j>) - slope_h * |i + diag - j| + bias(i,j)
 *   cap(x)        softcap * tanh(x / softcap) if softcap > 0, else x
 *   P             softmax of the logits over visible j;  lse its natural log-sum-exp
 *   O_i           sum_j P_ij * keep_ij * (2^bits / T) * v_j; see ordo/dropout.h
 *
 * A row without a visible column has o = 0, lse = -inf and gradients 0. Query head h uses key
 * head floor(h / (heads / kv_heads)). ordo_call.sink adds one logit per head to the softmax. See
 * docs/design/notation.md.
 *
 * A problem may be empty: no sequence (batch 0), no queries (q_len or total_q 0) or no keys
 * (ORDO_NO_KEYS). Its rows have no visible column, tensors without elements may have a NULL
 * address, and it needs no workspace. */
#ifndef ORDO_PROBLEM_H
#define ORDO_PROBLEM_H

#include "ordo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ordo_dtype { ORDO_F32 = 0, ORDO_BF16 = 1, ORDO_F16 = 2 } ordo_dtype;

/* How sequences lie in memory. */
typedef enum ordo_layout {
    ORDO_DENSE = 0,  /* every sequence has q_len rows and kv_len columns */
    ORDO_PACKED = 1, /* sequences one after another; call.cu_q and call.cu_kv give their ends */
    ORDO_PADDED = 2  /* as dense; call.q_lens and call.kv_lens give the valid lengths */
} ordo_layout;

typedef enum ordo_mask {
    ORDO_MASK_FULL = 0,
    ORDO_MASK_CAUSAL = 1,         /* aligned bottom-right: the last row sees everything */
    ORDO_MASK_CAUSAL_TOP_LEFT = 2 /* aligned top-left: the first row sees the first key */
} ordo_mask;

/* The function that gives each element its random bits. */
typedef enum ordo_keying {
    ORDO_KEYING_ORDO = 0, /* a function of (seed, offset, sequence, head, row, column) */
    ORDO_KEYING_FA2 = 1   /* the keep bits of FlashAttention-2 */
} ordo_keying;

/* Value of kv_len or total_kv for a problem without keys, because 0 means as many as queries. */
enum { ORDO_NO_KEYS = -1 };

typedef struct ordo_window {
    bool on;
    int64_t left, right; /* inclusive; -1 = open */
} ordo_window;

typedef struct ordo_dropout {
    double p;   /* probability of dropping; 0 = no dropout */
    int rounds; /* Philox rounds: 0 = 7, or 10 */
    int bits;   /* random bits per element: 0 = 8, or 1..16 */
    ordo_keying keying;
} ordo_dropout;

/* Position of this problem inside a larger one that is split over ranks or calls. All zero: the
 * problem is the whole. */
typedef struct ordo_shard {
    int64_t batch0, head0;     /* first sequence and first query head held here */
    int64_t row0, col0;        /* first row and column held here */
    int64_t heads_total;       /* 0 = heads */
    int64_t q_total, kv_total; /* whole sequence lengths; 0 = q_len, kv_len */
} ordo_shard;

/* Features of other libraries that ordo does not have. A problem that requests one is refused with
 * its name (ORDO_ERR_UNSUPPORTED), rather than computed without it. */
enum {
    ORDO_EXTRA_BIAS = 1u << 0,       /* an additive attention bias: it is bias instead */
    ORDO_EXTRA_SINKS = 1u << 1,      /* learned attention sinks: they are ordo_call.sink instead */
    ORDO_EXTRA_BLOCK_MASK = 1u << 2, /* a mask tensor of arbitrary elements: it is seen instead */
    ORDO_EXTRA_PAGED_KV = 1u << 3,   /* keys and values in a page table: they are paging instead */
    ORDO_EXTRA_FP8 = 1u << 4,        /* 8-bit floating-point inputs */
    ORDO_EXTRA_PROBABILITIES = 1u << 5 /* the matrix of probabilities as an output */
};

/* The block masks of a problem's calls (ordo/blocks.h). Lists are given with each call; these are
 * the sizes that a plan is made for. */
typedef struct ordo_block_limits {
    int64_t entries; /* most entries of all masks of a call together; 0: no block mask */
    bool per_sequence, per_head; /* whether each sequence, and each query head, has its own */
} ordo_block_limits;

/* The element masks of a problem's calls (ordo/seen.h): which elements are seen, one by one. Masks
 * are given with each call. */
typedef struct ordo_seen_limits {
    bool on;                     /* call.seen narrows the mask */
    bool per_sequence, per_head; /* whether each sequence, and each query head, has its own */
} ordo_seen_limits;

/* Keys and values in pages, as engines keep them: k and v are (page, row, head, dim), and each call
 * gives a table of pages per sequence (call.page_table). Forward passes only, layouts packed and
 * padded, without dropout, block mask or shard. */
typedef struct ordo_paging {
    int64_t page_rows; /* keys per page, 1 .. 65536; 0: no pages */
    int64_t pages;     /* the first axis of k and v */
    int64_t
        table_columns; /* columns of call.page_table; page_rows times these are kv_len or more */
} ordo_paging;

/* A number that is added to each logit after scale, softcap and ALiBi; each call gives them
 * (call.bias), and may ask for their gradient. Layouts dense and padded, without pages and
 * segments; on backend cuda head sizes up to 128, and neither softcap nor lists of blocks. */
typedef struct ordo_bias {
    bool on;
    bool per_sequence, per_head; /* whether each sequence, and each query head, has its own */
    ordo_dtype dtype;            /* ORDO_F32, or the type of q */
} ordo_bias;

/* A zeroed field means its default. `size` lets programs and libraries of different versions work
 * together; ORDO_PROBLEM_INIT sets it. */
typedef struct ordo_problem {
    size_t size; /* sizeof(ordo_problem) */
    ordo_dtype dtype;
    ordo_layout layout;
    int64_t batch;
    int64_t heads;
    int64_t kv_heads;          /* 0 = heads; must divide heads */
    int64_t q_len, kv_len;     /* rows and columns, maxima if packed or padded; kv_len 0 = q_len,
                                * ORDO_NO_KEYS = none */
    int64_t total_q, total_kv; /* packed only: rows of the tensors: all sequences, and any rows
                                * after the last end; total_kv 0 = total_q, or none if kv_len is
                                * ORDO_NO_KEYS; ORDO_NO_KEYS = none */
    int64_t head_dim;
    int64_t v_head_dim; /* 0 = head_dim */
    double scale;       /* 0 = 1/sqrt(head_dim); else its magnitude is 2^-126 to 2^127 */
    ordo_mask mask;
    ordo_window window;
    double softcap; /* 0 = off; else 2^-126 to 2^127 */
    bool alibi;     /* call.slopes holds one slope per query head */
    ordo_dropout dropout;
    ordo_shard shard;
    uint32_t extras; /* ORDO_EXTRA_... bits: each is refused by name */

    /* block masks */
    ordo_block_limits blocks; /* with entries: call.block_mask narrows the mask */

    /* pages: kv_len is the longest whole sequence, and total_kv is 0 or pages * page_rows */
    ordo_paging paging;

    ordo_seen_limits seen; /* element masks */
    ordo_bias bias;        /* call.bias is added to the logits */
} ordo_problem;

#define ORDO_PROBLEM_INIT ORDO_SIZED(ordo_problem)

/* Check a problem independently of any backend. Returns ORDO_OK, or a status and a message that
 * names the field, its value and what was expected. */
ORDO_API ordo_status ordo_problem_check(const ordo_problem *problem);

/* diag, as above, of a sequence of q_len rows and kv_len columns; a length below 0 counts as 0. */
ORDO_API int64_t ordo_mask_diagonal(ordo_mask mask, int64_t q_len, int64_t kv_len);

/* Names as the command spells them: "bf16", "causal-top-left", "packed", ...; "unknown" for other
 * values. */
ORDO_API const char *ordo_dtype_name(ordo_dtype dtype);
ORDO_API const char *ordo_mask_name(ordo_mask mask);
ORDO_API const char *ordo_layout_name(ordo_layout layout);

#ifdef __cplusplus
}
#endif
#endif
