/* ordo/lab/io.h: an I/O model that counts the memory traffic of attention algorithms.
 *
 * The model has two levels of memory: slow memory without limit, and fast memory of `cache_words`
 * words. A word is one matrix entry. Arithmetic uses words in fast memory only, and the cost of an
 * algorithm is the number of words that it moves between the two memories. lab/docs/io.md
 * derives the results. The four parts of this header are
 *
 *   bounds      the least that any algorithm moves                 ordo_io_bound_best()
 *   words       what an algorithm moves, in closed form            ordo_io_predict(), _choose()
 *   simulation  the algorithm run in that model: every word is     ordo_io_run()
 *               counted, the results are compared with the oracle
 *   caches      the same loops through a cache with a              ordo_io_cache_run(), _curve()
 *               own replacement policy */
#ifndef ORDO_LAB_IO_H
#define ORDO_LAB_IO_H

#include "ordo/machine.h"
#include "ordo/plan.h"
#include "ordo/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ordo_io_pass {
    ORDO_IO_FORWARD = 1,  /* q, k, v -> o, lse */
    ORDO_IO_BACKWARD = 2, /* and o, lse, dout -> dq, dk, dv */
    ORDO_IO_GRADIENT = 3  /* dL/dX of L = |softmax(A1 X A2') A3 Y - E|^2 / 2: Li et al. 2024 */
} ordo_io_pass;

typedef enum ordo_io_algorithm {
    ORDO_IO_BEST = 0,   /* the algorithm that moves the fewest words, of those that fit */
    ORDO_IO_NAIVE = 1,  /* element by element; scores stay in slow memory */
    ORDO_IO_FLASH = 2,  /* outer loop over row blocks (forward) or column blocks (backward) */
    ORDO_IO_FLASH1 = 3, /* forward only: outer loop over column blocks */
    ORDO_IO_APART = 4,  /* backward only: one kernel for dk and dv, another for dq */
    ORDO_IO_MAT = 5,    /* forward only: scores stay in slow memory, one panel of rows at a time */
    ORDO_IO_PHASE = 6,  /* backward and gradient: for small caches, one panel of rows at a time */
    ORDO_IO_FUSED = 7   /* for small caches, without scores in slow memory */
} ordo_io_algorithm;
enum { ORDO_IO_ALGORITHM_COUNT = 7 };

/* Whether a pass has an algorithm. Returns false for ORDO_IO_BEST, which names none, and for
 * unknown values. */
ORDO_API bool ordo_io_has(ordo_io_pass pass, ordo_io_algorithm algorithm);

/* What is computed, and the sizes of both memories. The model treats one key head with the query
 * heads that share it; all key heads cost the same, and results are for all of them. */
typedef struct ordo_io_problem {
    size_t size; /* sizeof(ordo_io_problem) */
    ordo_io_pass pass;
    int64_t q_len, kv_len;        /* kv_len 0 = q_len */
    int64_t head_dim, v_head_dim; /* v_head_dim 0 = head_dim */
    int64_t heads, kv_heads;      /* heads 0 = 1, kv_heads 0 = heads */
    ordo_mask mask;
    ordo_window window;

    /* NULL, or a block-sparse mask in addition: one byte per block of block_q rows and block_k
     * columns, row-major; 0 hides the block. */
    const uint8_t *blocks;
    int64_t block_q, block_k;
    double dropout_p;
    uint64_t seed;           /* seed of the inputs and of dropout */
    int64_t cache_words;     /* words of fast memory: M */
    int64_t strip;           /* inner indices moved at a time; 0 = 1 */
    int64_t workspace_words; /* most words that MAT and PHASE keep in slow memory; 0 = no limit */
} ordo_io_problem;

#define ORDO_IO_PROBLEM_INIT ORDO_SIZED(ordo_io_problem)

/* Tiles of an algorithm. A field that is 0 is chosen. Each algorithm has these fields:
 *
 * - FLASH, FLASH1, FUSED: rows, cols; of FLASH and FLASH1 the inner one may be 1.
 * - APART: rows, cols of the kernel for dk and dv; out_rows, out_cols of the kernel for dq.
 * - MAT: rows, cols of the scores; out_rows, out_cols of the output; panel.
 * - PHASE: rows, cols of the scores; out_rows of dq, out_keys of dk and dv, out_cols of all three;
 *   panel.
 * - NAIVE, and every algorithm of the gradient: none. */
typedef struct ordo_io_tiles {
    int64_t rows, cols;
    int64_t out_rows, out_keys, out_cols;
    int64_t panel; /* rows whose scores are in slow memory at once; 0 = as workspace_words allows */
} ordo_io_tiles;

/* Words moved, and the memory that takes. */
typedef struct ordo_io_words {
    int64_t loads, stores;
    int64_t cache;     /* words of fast memory needed */
    int64_t workspace; /* words of slow memory for scores */
} ordo_io_words;

/* ---- bounds ---- */

typedef struct ordo_io_bound {
    const char *name;  /* "products", ... */
    const char *valid; /* the condition under which it holds, as text */
    double words;      /* 0 bounds nothing */
    bool holds;        /* whether it is proven for this problem and M, if `valid` is true */
} ordo_io_bound;

enum { ORDO_IO_BOUND_COUNT = 6 };

/* Evaluate lower bound number `index` for a problem. In order they are "trivial", "rows", "updates"
 * and "products", which hold for every M and mask, then "asymptotic-large" and "asymptotic-small",
 * which have no constants and bound nothing. Those of the gradient assume, where `valid` says so,
 * that each entry of o = softmax(A1 X A2') A3 Y is computed once. Returns ORDO_ERR_ARGUMENT for
 * another index or a bad problem. */
ORDO_API ordo_status ordo_io_bound_at(const ordo_io_problem *problem, int index,
                                      ordo_io_bound *bound);

/* The largest of the bounds that hold. */
ORDO_API ordo_status ordo_io_bound_best(const ordo_io_problem *problem, ordo_io_bound *bound);

/* Arguments of the asymptotic bound for sparse Q and K: the worst case over all inputs with these
 * numbers of non-zeros. It is no bound for masked attention nor for one given input. */
typedef struct ordo_io_sparse {
    double z_in; /* the smaller of nnz(Q) and nnz(K); with X, of nnz(A1) and nnz(A2) */
    double z_qk; /* nnz(QK'); with X, nnz(A1 X A2') */
    double z_x;  /* nnz(X); 0 = the form without X */
    double z_ax; /* nnz(A1 X) */
    double m;    /* words of fast memory */
} ordo_io_sparse;

/* Return the words of that bound, without its constant. Returns NaN, with a message for
 * ordo_last_error(), if `sparse` is NULL. */
ORDO_API double ordo_io_sparse_form(const ordo_io_sparse *sparse);

/* Fill in those arguments for Q and K (gradient: A1, A2 and X) without zeros and a product with as
 * many non-zeros as the problem has live scores, all of one key head. The errors are those of
 * ordo_io_bound_at(). */
ORDO_API ordo_status ordo_io_sparse_of(const ordo_io_problem *problem, ordo_io_sparse *sparse);

/* ---- words ---- */

typedef struct ordo_io_choice {
    ordo_io_algorithm algorithm;
    ordo_io_tiles tiles;
    ordo_io_words words;
} ordo_io_choice;

/* Choose the tiles of an algorithm that move the fewest words, and with ORDO_IO_BEST the algorithm
 * too. If `tiles` is not NULL, those are used instead; if only their panel is set, it is kept and
 * the others are chosen. Returns ORDO_ERR_UNSUPPORTED if the pass has no such algorithm or no tiles
 * fit fast memory, ORDO_ERR_ARGUMENT for bad sizes, or for tiles without an algorithm. */
ORDO_API ordo_status ordo_io_choose(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                    const ordo_io_tiles *tiles, ordo_io_choice *choice);

/* The words of ordo_io_choose() alone, with the same errors. */
ORDO_API ordo_status ordo_io_predict(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                     const ordo_io_tiles *tiles, ordo_io_words *words);

/* ---- simulation ---- */

enum { ORDO_IO_TENSORS = 24, ORDO_IO_LOOPS = 8 };

/* Words moved of one tensor or in one loop over tiles. */
typedef struct ordo_io_traffic {
    const char *name; /* NULL ends the list */
    int64_t loads, stores;
} ordo_io_traffic;

typedef struct ordo_io_report {
    ordo_io_algorithm algorithm;
    ordo_io_tiles tiles;
    int64_t loads, stores;
    int64_t peak;            /* largest number of words in fast memory at once */
    ordo_io_words predicted; /* by the closed form, for the same tiles */
    double error;            /* largest difference from the fp64 oracle over all results */
    int64_t accesses;        /* cache runs: number of accesses */
    ordo_io_traffic tensors[ORDO_IO_TENSORS]; /* the tensors that were moved */
    ordo_io_traffic loops[ORDO_IO_LOOPS];
} ordo_io_report;

/* Run an algorithm on seeded inputs and count every word that it moves. `algorithm` and `tiles` are
 * as in ordo_io_choose(). Returns ORDO_ERR_UNSUPPORTED before anything runs if the tiles need more
 * than M words. */
ORDO_API ordo_status ordo_io_run(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                 const ordo_io_tiles *tiles, ordo_io_report *report);

/* ---- caches ---- */

typedef enum ordo_io_replacement {
    ORDO_IO_LRU = 1,   /* fully associative, evicts the least recently used line */
    ORDO_IO_ASSOC = 2, /* sets of `ways` lines, evicts the least recently used of the set */
    ORDO_IO_OPT = 3    /* Belady: evicts the line used furthest in the future, from a trace */
} ordo_io_replacement;

typedef struct ordo_io_cache {
    size_t size; /* sizeof(ordo_io_cache) */
    ordo_io_replacement replacement;
    int64_t line;        /* words per line; 0 = 1 */
    int64_t ways;        /* lines per set of ORDO_IO_ASSOC */
    double budget;       /* tiles are chosen for budget * M words: above 0, at most 16; 0 = 1 */
    bool packed;         /* operands are copied to contiguous memory before use */
    int64_t outer_words; /* words of a second level after the first; 0 = none */
    int64_t outer_ways;  /* lines per set there; 0 = fully associative */
} ordo_io_cache;

#define ORDO_IO_CACHE_INIT ORDO_SIZED(ordo_io_cache)

/* Run the same loops through a cache of M words. Loads count the words of lines filled, stores the
 * words of lines written back. With an outer level the report has the traffic beyond that level,
 * and `inner`, if not NULL, receives the traffic between the levels. A write miss of a one-word
 * line fills nothing. ORDO_IO_OPT records a trace of at most 2^28 accesses; a problem that needs
 * more is refused with ORDO_ERR_UNSUPPORTED before anything runs. */
ORDO_API ordo_status ordo_io_cache_run(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                       const ordo_io_tiles *tiles, const ordo_io_cache *cache,
                                       ordo_io_report *report, ordo_io_words *inner);

/* Simulate fully associative LRU caches of every size in one pass (Mattson's stack algorithm). The
 * loads and stores of a cache of i + 1 lines go to curve[i], for i below `count`. The tiles are the
 * same for all sizes: `tiles` if all of them are given, else those chosen for M. */
ORDO_API ordo_status ordo_io_curve(const ordo_io_problem *problem, ordo_io_algorithm algorithm,
                                   const ordo_io_tiles *tiles, int64_t line, bool packed,
                                   ordo_io_words *curve, int64_t count, ordo_io_report *report);

/* ---- machines ---- */

typedef struct ordo_io_level {
    const char *name; /* "registers", "shared", "L1", "L2", ... */
    bool scratchpad;  /* the program decides what it holds; false = a cache */
    int64_t bytes, line_bytes, word_bytes;
    double bytes_per_s; /* into it, summed over all workers; 0 = not known */
    double budget;      /* the share of it that tiles may fill */
    double small_dim;   /* square root of its words; larger head sizes are small-cache */
} ordo_io_level;

/* Query memory level `index` of a machine, innermost first, for operands of `dtype`. Sets *end, and
 * nothing else, past the last level. */
ORDO_API ordo_status ordo_io_level_at(const ordo_machine *machine, ordo_dtype dtype, int index,
                                      ordo_io_level *level, bool *end);

/* What the model recommends for one pass at one memory level. The tiles of a plan, which decide
 * bits, never come from here but from a committed table; register and cache blocks inside them
 * may. */
typedef struct ordo_io_advice {
    ordo_io_level level;
    int64_t cache_words;   /* words of the level that tiles may fill */
    int64_t strip;         /* one cache line, or one step of a matrix instruction */
    bool fits;             /* whether an algorithm fits; else choice, bytes and ns are not set */
    ordo_io_choice choice; /* for all heads and sequences */
    ordo_io_bound bound;   /* likewise */
    double bytes;          /* moved into and out of the level */
    double ns;             /* bytes / bandwidth; 0 = not known */
} ordo_io_advice;

/* Recommend an algorithm and tiles for a dense problem at memory level `index`. Sets *end past the
 * last level. MAT and PHASE get a workspace for a few hundred rows of scores. Returns
 * ORDO_ERR_UNSUPPORTED for packed, padded and empty problems, and for those with block masks. */
ORDO_API ordo_status ordo_io_advise(const ordo_machine *machine, const ordo_problem *problem,
                                    ordo_io_pass pass, int index, ordo_io_advice *advice,
                                    bool *end);

/* Bytes moved between L2 and shared memory per score of the backward pass on a Hopper GPU, as a
 * model: 2-byte operands in shared memory, 4-byte accumulators in registers. The phase form is that
 * of separate kernels, or of chains where ordo_io_chained() says so. */
typedef struct ordo_io_bytes {
    int64_t tile_q, tile_k;         /* tile of flash: the largest that fit on the chip */
    double flash_reduce, flash_rmw; /* dq added in L2; dq loaded, added and stored */
    double apart, phase;
    double flop_per_byte_flash, flop_per_byte_phase;
    double phase_hbm;   /* bytes per score that phase moves to and from HBM: P and dS, or dS */
    int64_t apart_rows; /* rows of a tile of the apart kernel for dq */
    /* flop/s at most, five products counted: by the tensor cores, of which apart needs seven
     * products, by L2, and by HBM. 0 if the machine does not give these rates. */
    double flash_flops, apart_flops, phase_flops;
    ordo_io_algorithm fewest; /* FLASH or PHASE: moves fewer bytes; both compute five products */
    ordo_io_algorithm used;   /* by ordo's kernels; ORDO_IO_BEST: none takes this head size */
} ordo_io_bytes;

/* Count the bytes of each form of the backward pass; the planner counts them in the same way.
 * Returns ORDO_ERR_UNSUPPORTED for other machines and for head sizes too large for any tile. */
ORDO_API ordo_status ordo_io_hopper(const ordo_machine *machine, int64_t head_dim,
                                    ordo_io_bytes *bytes);

/* The same for values of another head size than queries and keys. */
ORDO_API ordo_status ordo_io_hopper_pair(const ordo_machine *machine, int64_t head_dim,
                                         int64_t v_head_dim, ordo_io_bytes *bytes);

/* Whether ordo runs a backward pass by phases in chains at these head sizes: one kernel for scores,
 * dk and dv, which stores dS, and one for dq. */
ORDO_API bool ordo_io_chained(int64_t head_dim, int64_t v_head_dim);

/* Bytes between L2 and HBM of one pass on a Hopper GPU. */
enum { ORDO_IO_KERNELS = 6 };
typedef struct ordo_io_hbm {
    int64_t read_bytes, written_bytes;
    int64_t least_bytes; /* if L2 held everything: inputs once, what is written once */
    int64_t most_bytes;  /* without L2: all that the kernels ask for */
    double scores;       /* pairs of a query and a key, of all heads and sequences */
    double chains_ns;    /* backward by flash: what the chains take by the simulation alone, */
    double ns;           /* and the pass, with its traffic; other forms: 0 */
    /* In bytes, by kernel; a name that is NULL ends the list. The last one, "left in L2", is what
     * is still to be written when the pass ends. */
    ordo_io_traffic kernels[ORDO_IO_KERNELS];
} ordo_io_hbm;

/* Replay a pass of ordo's kernels through L2, and count what passes it. `form` is FLASH (head sizes
 * 64 and 128), APART (192 and 256) or PHASE (128 to 576), in the forward pass PHASE only. Backward
 * passes by PHASE are replayed in chains where ordo_io_chained() says so. The tiles, the order of
 * the units and the panels of the workspace are those of plans; the workers of the machine take the
 * units as the kernels do, the chains of flash with the times of the planner's simulation, all
 * others in step. L2 has `cache_bytes` bytes, 0 = l2_bytes of the machine, in l2_parts parts, each
 * of which evicts what it has used least recently and keeps copies of what its workers read of the
 * others. It is empty when the pass begins. Row statistics, turns and hints of kernels to the cache
 * are ignored.
 *
 * The problem is dense, of bf16 or f16, with a full mask, as many key heads as query heads, equal
 * lengths and head sizes that are multiples of 64; values may have another head size in
 * chains only. Returns ORDO_ERR_UNSUPPORTED for others, for
 * other machines, for a machine that does not state one of these keys and for problems that are too
 * large to replay; ORDO_ERR_ARGUMENT for a cache too small for one granule of 8 KiB per part. */
ORDO_API ordo_status ordo_io_replay(const ordo_machine *machine, const ordo_problem *problem,
                                    ordo_io_pass pass, ordo_io_algorithm form, int64_t cache_bytes,
                                    ordo_io_hbm *hbm);

/* The same for the backward pass of a plan in the form FLASH, in its order of sums and with its
 * issue order and workers; the mask may be causal. The plan must be one of ordo's Hopper kernels.
 */
ORDO_API ordo_status ordo_io_replay_plan(const ordo_machine *machine, const ordo_plan *plan,
                                         int64_t cache_bytes, ordo_io_hbm *hbm);

ORDO_API const char *ordo_io_pass_name(ordo_io_pass pass);
ORDO_API const char *ordo_io_algorithm_name(ordo_io_algorithm algorithm);
ORDO_API ordo_status ordo_io_algorithm_from_name(const char *name, ordo_io_algorithm *algorithm);

#ifdef __cplusplus
}
#endif
#endif
