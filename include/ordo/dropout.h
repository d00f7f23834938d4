/* ordo/dropout.h: which elements dropout keeps: one by one, as packed bits, or row by row.
 *
 * Whether an element is kept is a pure function of
 *
 *   keep(seed, offset, sequence, head, row, column)
 *
 * and of the problem's dropout parameters: every backend, both passes and any later recomputation
 * agree bit for bit, however the work is divided. With bits made ahead of time a pass reads
 * call.keep_bits instead of generating them; it computes the same either way.
 *
 * An element is kept with probability threshold / 2^bits, exactly, and then multiplied by exactly
 * 2^bits / threshold. docs/design/dropout-bits.md defines the function, the order of the bits, and
 * what ORDO_KEYING_FA2 does differently. */
#ifndef ORDO_DROPOUT_H
#define ORDO_DROPOUT_H

#include "ordo/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where one pass of attention finds the keep bits. */
typedef enum ordo_keep_source {
    ORDO_KEEP_NONE = 0,  /* no dropout: nothing to keep or drop */
    ORDO_KEEP_GIVEN = 1, /* read from memory, made before the pass */
    ORDO_KEEP_MADE = 2   /* made inside the pass */
} ordo_keep_source;

/* Where the keep bits are made, seen from the whole training step. */
typedef enum ordo_dropout_mode {
    ORDO_DROPOUT_MODE_SEQUENTIAL = 0, /* by a separate kernel, before attention */
    ORDO_DROPOUT_MODE_FUSED = 1,      /* inside attention */
    ORDO_DROPOUT_MODE_OVERLAPPED = 2, /* by a kernel that runs during the GEMMs before attention */
    ORDO_DROPOUT_MODE_PIPELINED = 3   /* overlapped, by segments of rows: less memory for bits */
} ordo_dropout_mode;
enum { ORDO_DROPOUT_MODES = 4 };

/* What determines the bits, in addition to the problem. The problem gives the shape, the layout,
 * the dropout parameters and the position in a larger problem (shard). Padded sequences have bits
 * for all of q_len x kv_len, so their valid lengths are not needed. */
typedef struct ordo_dropout_call {
    size_t size; /* sizeof(ordo_dropout_call) */
    uint64_t seed;

    /* One value per dropout call, never reused with the same seed; below 2^32. Keying fa2: any
     * value, advanced by 32 * sequences * heads from call to call. */
    uint64_t offset;
    const int32_t *cu_q, *cu_kv; /* packed: batch + 1 ends, from 0, not decreasing; else NULL */
    const int64_t *sequence_ids; /* batch ids; NULL = batch0, batch0 + 1, ... */
    int threads;                 /* for ordo_dropout_fill(): 0 = as many as the process may use */

    /* 0 = the problem's rounds. 3 or 5 are for experiments with speed: such bits are correlated
     * between rows, heads and steps, and must not be used for training. */
    int experiment_rounds;

    /* Read in place of seed and offset, unless NULL. ordo_dropout_fill_device() reads them on the
     * device, so that each replay of a captured graph draws other bits (keying ordo uses the low
     * 32 bits of the offset); the other functions read them on the host. */
    const uint64_t *seed_ptr, *offset_ptr;

    /* For ordo_dropout_fill_device(): cu_q, cu_kv and sequence_ids are device pointers, whose
     * contents are unknown on the host. ordo_dropout_query() then gives the largest sizes that the
     * totals allow, and `bytes` includes a table after the bits. Other functions refuse it. */
    bool on_device;

    /* 1: for dense problems, the fill functions do not write blocks of 16 x 128 elements that the
     * mask and the window hide completely. Under a causal mask this is almost half the work. No
     * pass reads such blocks for its results. For other layouts, and for sequence ids with
     * on_device, every block is written. 0: every block is written. */
    int64_t visible_only;
} ordo_dropout_call;

#define ORDO_DROPOUT_CALL_INIT ORDO_SIZED(ordo_dropout_call)

typedef struct ordo_dropout_info {
    uint64_t blocks;   /* number of 16 rows x 128 columns, over all sequences and heads */
    uint64_t bytes;    /* size of the packed bits: 256 per block; on_device: and the table */
    uint64_t elements; /* rows x columns, over all sequences and heads */
    ordo_keying keying;
    int rounds, bits, threshold; /* keep if a draw of `bits` bits is below threshold */
    double p_used;               /* 1 - threshold / 2^bits */
    double scale;                /* factor of kept elements: 2^bits / threshold; fa2: 1 / (1 - p) */
} ordo_dropout_info;

/* Check the arguments and fill in sizes and parameters. Returns ORDO_ERR_OVERFLOW if the bits need
 * more than 2^60 bytes. */
ORDO_API ordo_status ordo_dropout_query(const ordo_problem *problem, const ordo_dropout_call *call,
                                        ordo_dropout_info *info);

/* Compute whether one element is kept. `sequence` is an index in the batch; head, row and column
 * count from the first one held here, and the origin of the shard is added to them. */
ORDO_API ordo_status ordo_dropout_keep(const ordo_problem *problem, const ordo_dropout_call *call,
                                       int64_t sequence, int64_t head, int64_t row, int64_t column,
                                       bool *keep);

/* Fill packed bits in storage order: the 64 words of each of blocks first .. first + count - 1.
 * words[0] belongs to block `first`; `bytes` is the size of `words`. Calls over parts of
 * 0 .. info.blocks give the same words as one call for all blocks, with any number of threads.
 * Rows and columns that only pad a block, and those that the mask hides, get bits of the same
 * function, unless call.visible_only. */
ORDO_API ordo_status ordo_dropout_fill(const ordo_problem *problem, const ordo_dropout_call *call,
                                       uint64_t first, uint64_t count, uint32_t *words,
                                       size_t bytes);

/* Fill the words of the whole problem on the current device and `stream`, a cudaStream_t. `words`
 * is device memory, 16-byte aligned, and is what call.keep_bits of backend cuda expects. The call
 * launches kernels and does not wait for them. Arrays of `call` are on the host, and there is one
 * launch for each run of sequences of equal length and consecutive ids; with on_device they are on
 * the device, and there are two launches in all. */
ORDO_API ordo_status ordo_dropout_fill_device(const ordo_problem *problem,
                                              const ordo_dropout_call *call, uint32_t *words,
                                              size_t bytes, void *stream);

/* How ordo_dropout_export() writes elements. */
typedef enum ordo_dropout_format {
    ORDO_DROPOUT_BYTES = 0, /* one byte per element: 1 kept, 0 dropped */
    ORDO_DROPOUT_BITS = 1   /* 8 elements per byte, lowest bit first; every row starts a new byte */
} ordo_dropout_format;

/* A rectangle of one head. */
typedef struct ordo_dropout_part {
    size_t size; /* sizeof(ordo_dropout_part) */
    int64_t sequence, head;
    int64_t row, rows; /* rows 0 = all from `row` on */
    int64_t col, cols; /* cols 0 = all from `col` on */
    ordo_dropout_format format;
} ordo_dropout_part;

#define ORDO_DROPOUT_PART_INIT ORDO_SIZED(ordo_dropout_part)

/* Write a rectangle row by row, without gaps; `part` NULL means all of sequence 0, head 0.
 * `words`, if not NULL, are the packed bits of the whole problem; otherwise they are generated.
 * `needed`, if not NULL, gets the size in bytes; if `out` is NULL nothing is written. Returns
 * ORDO_ERR_SHAPE if `bytes` is too small. */
ORDO_API ordo_status ordo_dropout_export(const ordo_problem *problem, const ordo_dropout_call *call,
                                         const uint32_t *words, const ordo_dropout_part *part,
                                         void *out, size_t bytes, size_t *needed);

/* The underlying generator: Philox4x32 with 1 to 10 rounds. */
ORDO_API ordo_status ordo_philox4x32(const uint32_t counter[4], const uint32_t key[2], int rounds,
                                     uint32_t words[4]);

ORDO_API const char *ordo_keying_name(ordo_keying keying); /* "ordo", "fa2" */

/* "sequential", "fused", "overlapped", "pipelined". */
ORDO_API const char *ordo_dropout_mode_name(ordo_dropout_mode mode);

#ifdef __cplusplus
}
#endif
#endif
