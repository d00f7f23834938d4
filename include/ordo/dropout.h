/* ordo/dropout.h: which elements dropout keeps: one by one, as packed bits, or row by row.
 *
 * Whether an element is kept is a pure function of
 *
 *   keep(seed, offset, sequence, head, row, column)
 *
 * and of the problem's dropout parameters: every backend, both passes and any later recomputation
 * agree bit for bit, however the work is cut. With bits made ahead of time a pass reads
 * call.mask_bits instead of generating them; it computes the same either way.
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
    ORDO_DROPOUT_MODE_SEQUENTIAL = 0, /* by a kernel of their own, before attention */
    ORDO_DROPOUT_MODE_FUSED = 1,      /* inside attention */
    ORDO_DROPOUT_MODE_OVERLAPPED = 2, /* by a kernel that runs beside the GEMMs before attention */
    ORDO_DROPOUT_MODE_PIPELINED = 3   /* overlapped, by segments of rows: less memory for bits */
} ordo_dropout_mode;
enum { ORDO_DROPOUT_MODES = 4 };

/* What decides the bits beside the problem. The problem gives the shape, the layout, the
 * dropout parameters and the place in a larger problem (shard). Padded sequences have bits for
 * all of q_len x kv_len, so their valid lengths are not asked for. */
typedef struct ordo_dropout_call {
    size_t size; /* sizeof(ordo_dropout_call) */
    uint64_t seed;

    /* One value a dropout call, never reused with a seed; below 2^32. Keying fa2: any, advanced
     * by 32 * sequences * heads from call to call. */
    uint64_t offset;
    const int32_t *cu_q, *cu_kv; /* packed: batch + 1 ends, from 0, not decreasing; else NULL */
    const int64_t *sequence_ids; /* batch ids; NULL = batch0, batch0 + 1, ... */
    int threads;                 /* of ordo_dropout_fill(): 0 = all the process may use */

    /* 0 = the problem's rounds. 3 or 5: an experiment in speed, whose masks are correlated from
     * row to row, head to head and step to step. Not for training. */
    int experiment_rounds;

    /* If not NULL, read instead of seed and offset: by ordo_dropout_fill_device() on the device, so
     * that a captured graph draws other bits each replay (keying ordo takes the low half of the
     * offset); by the others on the host. */
    const uint64_t *seed_ptr, *offset_ptr;

    /* For ordo_dropout_fill_device(): cu_q, cu_kv and sequence_ids are device pointers, whose
     * contents nobody on the host knows. ordo_dropout_query() then answers with the most that the
     * totals allow, and `bytes` has room for a table behind the bits. Others refuse it. */
    bool on_device;
} ordo_dropout_call;

#define ORDO_DROPOUT_CALL_INIT ORDO_SIZED(ordo_dropout_call)

typedef struct ordo_dropout_info {
    uint64_t blocks;   /* of 16 rows x 128 columns, over all sequences and heads */
    uint64_t bytes;    /* of the packed bits: 256 a block; on_device: and of the table */
    uint64_t elements; /* rows x columns, over all sequences and heads */
    ordo_keying keying;
    int rounds, bits, threshold; /* keep if a draw of `bits` bits is below threshold */
    double p_used;               /* 1 - threshold / 2^bits */
    double scale;                /* of kept elements: 2^bits / threshold; fa2: 1 / (1 - p) */
} ordo_dropout_info;

/* Check the arguments; sizes and parameters. ORDO_ERR_OVERFLOW past 2^60 bytes. */
ORDO_API ordo_status ordo_dropout_query(const ordo_problem *problem, const ordo_dropout_call *call,
                                        ordo_dropout_info *info);

/* One element: `sequence` is an index in the batch; head, row and column count from the first
 * one held here, and the shard's origin is added. */
ORDO_API ordo_status ordo_dropout_keep(const ordo_problem *problem, const ordo_dropout_call *call,
                                       int64_t sequence, int64_t head, int64_t row, int64_t column,
                                       bool *keep);

/* Fill packed bits in storage order: the 64 words of each of blocks first .. first + count - 1.
 * words[0] belongs to block `first`; `bytes` says how much there is room for. Any cut of
 * 0 .. info.blocks gives the same words as one call for all; so does any number of threads.
 * Rows and columns that only fill up a block get bits of the same function. */
ORDO_API ordo_status ordo_dropout_fill(const ordo_problem *problem, const ordo_dropout_call *call,
                                       uint64_t first, uint64_t count, uint32_t *words,
                                       size_t bytes);

/* The same words for the whole problem, made by the current device on `stream`, a cudaStream_t:
 * `words` is in its memory, at a multiple of 16 bytes, and is what call.mask_bits of backend cuda
 * expects. Launches and returns. Arrays of the call are on the host, and sequences that differ from
 * the one before in length, or whose ids do not count on, cost a launch each; or, with on_device,
 * on the device, two launches in all, and nothing on the host waits for them. */
ORDO_API ordo_status ordo_dropout_fill_device(const ordo_problem *problem,
                                              const ordo_dropout_call *call, uint32_t *words,
                                              size_t bytes, void *stream);

/* A rectangle of one head, row by row. */
typedef enum ordo_dropout_format {
    ORDO_DROPOUT_BYTES = 0, /* one byte an element: 1 kept, 0 dropped */
    ORDO_DROPOUT_BITS = 1   /* 8 elements a byte, the first lowest; every row starts a byte */
} ordo_dropout_format;

typedef struct ordo_dropout_part {
    size_t size; /* sizeof(ordo_dropout_part) */
    int64_t sequence, head;
    int64_t row, rows; /* rows 0 = all from `row` on */
    int64_t col, cols; /* cols 0 = all from `col` on */
    ordo_dropout_format format;
} ordo_dropout_part;

#define ORDO_DROPOUT_PART_INIT ORDO_SIZED(ordo_dropout_part)

/* Write a rectangle row by row, without gaps; `part` NULL means all of sequence 0, head 0.
 * `words`, if not NULL, are the packed bits of the whole problem; else they are generated.
 * `needed`, if not NULL, gets the size; with `out` NULL nothing else happens. ORDO_ERR_SHAPE if
 * `bytes` is too small. */
ORDO_API ordo_status ordo_dropout_export(const ordo_problem *problem, const ordo_dropout_call *call,
                                         const uint32_t *words, const ordo_dropout_part *part,
                                         void *out, size_t bytes, size_t *needed);

/* The generator underneath: Philox4x32 with 1 to 10 rounds. */
ORDO_API ordo_status ordo_philox4x32(const uint32_t counter[4], const uint32_t key[2], int rounds,
                                     uint32_t words[4]);

ORDO_API const char *ordo_keying_name(ordo_keying keying); /* "ordo", "fa2" */

/* "sequential", "fused", "overlapped", "pipelined". */
ORDO_API const char *ordo_dropout_mode_name(ordo_dropout_mode mode);

#ifdef __cplusplus
}
#endif
#endif
