/* ordo/lab/io.h: how many words attention must move, and how many each algorithm does move.
 *
 * Two levels of memory: a slow one without limit, a fast one of `cache_words` words; a word is a
 * matrix entry, arithmetic touches words in fast memory only, and the cost is the number of words
 * moved either way. docs/design/io.md tells the story; the four parts here are
 *
 *   bounds      what no algorithm can go below                     ordo_io_bound_best()
 *   words       what an algorithm moves, in closed form            ordo_io_predict(), _choose()
 *   simulation  the algorithm run on such a machine, every word    ordo_io_run()
 *               counted, its results compared with the oracle
 *   caches      the same loops through a cache that decides        ordo_io_cache_run(), _curve()
 *               by itself what it keeps */
#ifndef ORDO_LAB_IO_H
#define ORDO_LAB_IO_H

#include "ordo/machine.h"
#include "ordo/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ordo_io_pass {
    ORDO_IO_FORWARD = 1,  /* q, k, v -> o, lse */
    ORDO_IO_BACKWARD = 2, /* and o, lse, dout -> dq, dk, dv */
    ORDO_IO_GRADIENT = 3  /* dL/dX of the loss |softmax(A1 X A2') A3 Y - E|^2 / 2: Li et al. 2024 */
} ordo_io_pass;

typedef enum ordo_io_algorithm {
    ORDO_IO_BEST = 0,   /* of those that fit, the one that moves least */
    ORDO_IO_NAIVE = 1,  /* element by element, scores kept in slow memory */
    ORDO_IO_FLASH = 2,  /* forward: row block outside; backward: one kernel, column block outside */
    ORDO_IO_FLASH1 = 3, /* forward only: column block outside */
    ORDO_IO_SPLIT = 4,  /* backward only: a kernel for dk and dv, another for dq */
    ORDO_IO_MAT = 5,    /* forward only: scores kept in slow memory, by panels of rows */
    ORDO_IO_PHASE = 6,  /* backward and gradient: the small-cache form, by panels of rows */
    ORDO_IO_FUSED = 7   /* the small-cache form that keeps no scores in slow memory */
} ordo_io_algorithm;
enum { ORDO_IO_ALGORITHM_COUNT = 7 };

/* Whether a pass has an algorithm. False for ORDO_IO_BEST, which names none, and for unknown
 * values. */
ORDO_API bool ordo_io_has(ordo_io_pass pass, ordo_io_algorithm algorithm);

/* Attention of one key head and the query heads that share it. All key heads cost the same. */
typedef struct ordo_io_problem {
    size_t size; /* sizeof(ordo_io_problem) */
    ordo_io_pass pass;
    int64_t q_len, kv_len;        /* kv_len 0 = q_len */
    int64_t head_dim, v_head_dim; /* v_head_dim 0 = head_dim */
    int64_t heads, kv_heads;      /* 0 = 1, 0 = heads; counts are of all of them */
    ordo_mask mask;
    ordo_window window;
    const uint8_t *blocks; /* NULL, or a block-sparse mask on top: one byte a block, row-major, */
    int64_t block_q, block_k; /* 0 = nobody sees it; positions x columns of a block */
    double dropout_p;
    uint64_t seed;           /* of inputs and dropout */
    int64_t cache_words;     /* M */
    int64_t strip;           /* inner indices moved at a time: 0 = 1 */
    int64_t workspace_words; /* limit of what MAT and PHASE keep in slow memory: 0 = none */
} ordo_io_problem;

#define ORDO_IO_PROBLEM_INIT ORDO_SIZED(ordo_io_problem)

/* Tiles of an algorithm; 0 = chosen. Which ones an algorithm has:
 *
 *   FLASH    rows, cols (the inner one may be 1)        FUSED   rows, cols
 *   FLASH1   rows, cols                                 MAT     rows, cols, out_rows, out_cols,
 * panel SPLIT    rows, cols of the kernel for dk and dv;    PHASE   rows, cols, out_rows (dq),
 *            out_rows, out_cols of that for dq                  out_keys (dk, dv), out_cols, panel
 */
typedef struct ordo_io_tiles {
    int64_t rows, cols;
    int64_t out_rows, out_keys, out_cols;
    int64_t panel; /* rows whose scores are in slow memory together; 0 = what the limit allows */
} ordo_io_tiles;

/* Words moved. */
typedef struct ordo_io_words {
    int64_t loads, stores;
    int64_t cache;     /* fast memory needed */
    int64_t workspace; /* slow memory for scores */
} ordo_io_words;

/* ---- bounds ---- */

typedef struct ordo_io_bound {
    const char *name;  /* "large-cache", ... */
    const char *valid; /* in words: where it holds */
    double words;      /* may be negative: then it says nothing */
    bool holds;        /* a proven bound for this problem and M */
} ordo_io_bound;

enum { ORDO_IO_BOUND_COUNT = 6 };

/* The index-th form for this problem: "trivial", "large-cache", "small-cache", "multiplications",
 * then "asymptotic-large" and "asymptotic-small", which have no constant and bound nothing. */
ORDO_API ordo_status ordo_io_bound_at(const ordo_io_problem *problem, int index,
                                      ordo_io_bound *bound);

/* The largest of those that hold. */
ORDO_API ordo_status ordo_io_bound_best(const ordo_io_problem *problem, ordo_io_bound *bound);

/* Forms for sparse Q and K, without constants: the worst case over all inputs with so many
 * non-zeros. Not bounds for masked attention, and not for any one input. z_x = 0 leaves out X. */
typedef struct ordo_io_sparse {
    double z_in; /* the smaller of nnz(Q), nnz(K); of nnz(A1), nnz(A2) in the form with X */
    double z_qk; /* nnz(QK'); nnz(A1 X A2') */
    double z_x;  /* nnz(X), or 0 */
    double z_ax; /* nnz(A1 X) */
    double m;    /* words of fast memory */
} ordo_io_sparse;
/* NaN, with a message for ordo_last_error(), if `sparse` is NULL. */
ORDO_API double ordo_io_sparse_form(const ordo_io_sparse *sparse);

/* ---- words ---- */

typedef struct ordo_io_choice {
    ordo_io_algorithm algorithm;
    ordo_io_tiles tiles;
    ordo_io_words words;
} ordo_io_choice;

/* The best tiles of an algorithm, or with ORDO_IO_BEST the best algorithm too, and the words it
 * moves. `tiles`, if not NULL, are used instead; a panel alone is kept and the rest chosen.
 * ORDO_ERR_UNSUPPORTED if the pass has no such algorithm, or nothing fits fast memory. */
ORDO_API ordo_status ordo_io_choose(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                    const ordo_io_tiles *tiles, ordo_io_choice *choice);

/* Only the words of that. */
ORDO_API ordo_status ordo_io_predict(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                     const ordo_io_tiles *tiles, ordo_io_words *words);

/* ---- simulation ---- */

enum { ORDO_IO_TENSORS = 24, ORDO_IO_PHASES = 8 };

typedef struct ordo_io_traffic {
    const char *name; /* NULL: end of the list */
    int64_t loads, stores;
} ordo_io_traffic;

typedef struct ordo_io_report {
    ordo_io_algorithm algorithm;
    ordo_io_tiles tiles;
    int64_t loads, stores;
    int64_t peak;            /* most words in fast memory at once */
    ordo_io_words predicted; /* the closed form, of the same tiles */
    double error;            /* largest difference from the fp64 oracle over all results */
    int64_t accesses;        /* caches: words touched */
    ordo_io_traffic tensors[ORDO_IO_TENSORS]; /* those that were moved */
    ordo_io_traffic phases[ORDO_IO_PHASES];
} ordo_io_report;

/* Run an algorithm on seeded inputs, every word counted. ORDO_ERR_UNSUPPORTED if the tiles need
 * more than M words: before anything runs. */
ORDO_API ordo_status ordo_io_run(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                 const ordo_io_tiles *tiles, ordo_io_report *report);

/* ---- caches ---- */

typedef enum ordo_io_replacement {
    ORDO_IO_LRU = 1,   /* fully associative, least recently used goes */
    ORDO_IO_ASSOC = 2, /* `ways` lines a set, least recently used of the set goes */
    ORDO_IO_OPT = 3    /* Belady: the line needed last goes; replays a recorded trace */
} ordo_io_replacement;

typedef struct ordo_io_cache {
    size_t size; /* sizeof(ordo_io_cache) */
    ordo_io_replacement replacement;
    int64_t line, ways;  /* words a line: 0 = 1; ways of ASSOC */
    double budget;       /* tiles are chosen for budget * M: above 0, at most 16; 0 = 1 */
    bool packed;         /* operands are copied side by side before use */
    int64_t outer_words; /* a second level of so many words behind the first: 0 = none */
    int64_t outer_ways;  /* 0 = fully associative */
} ordo_io_cache;

#define ORDO_IO_CACHE_INIT ORDO_SIZED(ordo_io_cache)

/* Run the same loops through a cache of M words. Loads are lines filled, stores lines written
 * back, both times the words of a line; with an outer level they are what crosses that one, and
 * `inner`, if not NULL, gets what crosses the first. A write miss of a one-word line fills nothing.
 * ORDO_IO_OPT records a trace of at most 2^28 accesses; a problem that is bound to need more is
 * refused with ORDO_ERR_UNSUPPORTED before anything runs. */
ORDO_API ordo_status ordo_io_cache_run(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                       const ordo_io_tiles *tiles, const ordo_io_cache *cache,
                                       ordo_io_report *report, ordo_io_words *inner);

/* The fully associative LRU cache of every size at once, in one pass (Mattson's stack). Loads and
 * stores for caches of 1, 2, ... `count` lines go to curve[0..count-1]; `tiles` must be given in
 * full or are chosen for M. */
ORDO_API ordo_status ordo_io_curve(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                   const ordo_io_tiles *tiles, int64_t line, bool packed,
                                   ordo_io_words *curve, int64_t count, ordo_io_report *report);

/* ---- machines ---- */

typedef struct ordo_io_level {
    const char *name; /* "registers", "shared", "L1", "L2", ... */
    bool scratchpad;  /* the program decides what is there; else a cache does */
    int64_t bytes, line_bytes, word_bytes;
    double bytes_per_s; /* into it, all workers' together; 0 = not known */
    double budget;      /* part of it that tiles may fill */
    double small_dim;   /* the head size whose square is its words: larger ones are small-cache */
} ordo_io_level;

/* Memory levels of a machine, innermost first, for operands of `dtype`; `end` past the last. */
ORDO_API ordo_status ordo_io_level_at(const ordo_machine *machine, ordo_dtype dtype, int index,
                                      ordo_io_level *level, bool *end);

/* What the theory says of one pass at one level. The plan's tiles, which decide bits, come from a
 * committed table and never from here; what blocks inside them may. */
typedef struct ordo_io_advice {
    ordo_io_level level;
    int64_t cache_words;   /* of the level, that tiles may fill */
    int64_t strip;         /* a line, or a step of a matrix unit */
    bool fits;             /* some algorithm has tiles that small; else what follows is not set */
    ordo_io_choice choice; /* words of all heads and sequences */
    ordo_io_bound bound;   /* likewise */
    double bytes;          /* moved into and out of the level */
    double ns;             /* that over the bandwidth; 0 = not known */
} ordo_io_advice;

/* Level `index` of the machine for a dense problem; `end` past the last. MAT and PHASE get a
 * workspace of a few hundred rows of scores, not of all of them. */
ORDO_API ordo_status ordo_io_advise(const ordo_machine *machine, const ordo_problem *problem,
                                    ordo_io_pass pass, int index, ordo_io_advice *advice,
                                    bool *end);

/* Bytes between L2 and shared memory per score of the backward pass on a GPU: operands of two
 * bytes in shared memory, accumulators of four in registers. A model, with its tiles. */
typedef struct ordo_io_bytes {
    int64_t tile_q, tile_k;         /* of flash: what registers and shared memory allow */
    double flash_reduce, flash_rmw; /* dq added in L2, or loaded and stored */
    double split, phase;
    double flop_per_byte_flash, flop_per_byte_phase;
} ordo_io_bytes;
ORDO_API ordo_status ordo_io_hopper(const ordo_machine *machine, int64_t head_dim,
                                    ordo_io_bytes *bytes);

ORDO_API const char *ordo_io_pass_name(ordo_io_pass pass);
ORDO_API const char *ordo_io_algorithm_name(ordo_io_algorithm algorithm);
ORDO_API ordo_status ordo_io_algorithm_from_name(const char *name, ordo_io_algorithm *algorithm);

#ifdef __cplusplus
}
#endif
#endif
