/* ordo/attention.h: execute a plan on tensors, and ask what a backend can execute. */
#ifndef ORDO_ATTENTION_H
#define ORDO_ATTENTION_H

#include "ordo/blocks.h"
#include "ordo/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor indexed (batch, row, head, dim), or packed (row, head, dim), where the first stride is
 * ignored. Strides count elements. All zero means contiguous in that order; otherwise the last one
 * must be 1. */
typedef struct ordo_tensor {
    void *data;
    int64_t stride[4];
} ordo_tensor;

/* Flags of ordo_call.carry: a backward pass that continues the sums of an earlier call, or leaves
 * its own to a later one. */
enum {
    ORDO_CARRY_IN = 1u << 0, /* dk and dv begin from dk_sums and dv_sums instead of 0 */
    ORDO_CARRY_OUT = 1u << 1 /* the sums are stored there; dk and dv are not written */
};

/* Everything that a pass reads and writes. Outputs are overwritten, never added to. Outputs and
 * workspace must not overlap one another or anything that is read.
 *
 *   forward   reads q k v                                    writes o lse
 *   backward  reads q k v o lse dout, and dlse if not NULL   writes dq dk dv
 *
 * Either pass also reads `sink` if it is not NULL, and a backward pass then writes dsink and
 * dsink_parts if they are not. With problem.bias either pass reads `bias`, and a backward pass
 * writes dbias if it is not NULL.
 *
 * A backward pass computes the gradients whose tensors are given: with dq.data NULL only dk and dv,
 * with dk.data and dv.data NULL only dq. Their bits are those of a pass that computes all three.
 *
 * With `carry`, a backward pass over some rows of a sequence continues the sums dk and dv of the
 * part before it. Parts that together hold every row, run in the order in which the plan visits
 * rows, give the bits of one pass: first rows first under the orders ascending and spt, last rows
 * first under descending. The first part has ORDO_CARRY_OUT, the last one ORDO_CARRY_IN, those
 * between them have both. Sums are f32, neither rounded nor multiplied by the scale, so that
 * storing them is exact; each call reads and writes them in place. The forward pass ignores them.
 *
 *   dense         shard.row0 must be a multiple of backward_tile.q of the plan, and so must q_len,
 *                 unless the part ends with the sequence (ORDO_ERR_SHAPE)
 *   packed,       there is no row0: the mask follows from the rows and keys that the call has of
 *   padded        each sequence, and the caller must cut at multiples of backward_tile.q
 *   hidden keys   the sums of keys that no row of this part sees are not changed (they are 0
 *                 without ORDO_CARRY_IN), and the last part writes dk and dv from them
 *   other keys    the sums of keys that belong to no sequence are not changed either (0 without
 *                 ORDO_CARRY_IN), and the last part writes gradients 0
 *   not finite    a NaN makes the same keys NaN in parts as in one pass. cuda: finite dk or dv of
 *                 keys next to a NaN or infinity that the mask hides from them may differ by a
 *                 rounding error, because they are computed again, in fp64, over the rows of a call
 *   refused       the orders twin, spt+tail, shift and symmetric, which visit rows cyclically or
 *                 differently from head to head, and backend ref, which sums in fp64
 *                 (ORDO_ERR_UNSUPPORTED)
 *
 * `sink` adds one learned logit per query head to the softmax of each row. It has no key and no
 * value, and no mask, scale, softcap, slope or dropout applies to it:
 *
 *   lse_i  = log(exp(sink_h) + sum_j exp(logit_ij)),   P_ij = exp(logit_ij - lse_i)
 *   dsink  = -sum_i exp(sink_h - lse_i) (<o_i, dout_i> - dlse_i)   over the rows of all sequences
 *
 *   hidden keys   a row without a visible column has o = 0 and lse = sink_h. cuda: a problem that
 *                 has rows but no keys at all is refused (ORDO_ERR_UNSUPPORTED)
 *   -inf          a sink of -inf gives the bits of a call without a sink; its dsink is 0
 *   not finite    a sink that is NaN or +inf makes o and lse NaN in each row of its head that sees
 *                 a key
 *   backward      lse must be that of the forward pass, which includes the sink
 *   columns       if a sequence is cut by columns, the sink counts once, in the call that holds
 *                 column 0. Other calls must have NULL; with shard.col0 above 0 a sink is refused
 *                 (ORDO_ERR_ARGUMENT), because ordo_attention_combine() would count it twice
 *   order         dsink_parts: each block of 128 rows is added by one binary tree, then the blocks
 *                 in ascending order in f64, rounded once. dsink: the rounded values of dsink_parts
 *                 in ascending order of sequences in f64, rounded once; a caller that splits the
 *                 batch can repeat that sum. Backend ref adds everything in f64
 *   promise       o, lse, dq, dk and dv keep the levels of the plan. dsink_parts keeps them too,
 *                 except cut; dsink, which adds over the batch, keeps neither cut nor batch, and
 *                 split only for heads. Calls over parts of the rows give sums of those rows
 *   segments      a plan with segments runs with a sink, but refuses dsink and dsink_parts
 *                 (ORDO_ERR_UNSUPPORTED)
 *
 * `bias` is added to the logits of a problem with bias, and dbias is its gradient:
 *
 *   dbias(i,j) = sum of dS(i,j) over the sequences and the query heads that share the element,
 *   dS(i,j)    = P_ij * (keep_ij * (2^bits / T) * <dout_i, v_j> - <o_i, dout_i> + dlse_i)
 *
 *   hidden        a bias of -inf, or of any value below -2^100, hides its element exactly as a mask
 *                 does; a row that sees nothing has o = 0, lse = -inf and gradients 0
 *   not finite    NaN and +inf make what a score of that value makes
 *   axes          an axis that is shared has 1 element; its stride is not used
 *   order         f32. Heads that share an element are added to 0 in ascending order; where
 *                 sequences share it, too, these sums are added to 0 in ascending order of
 *                 sequences. Hidden elements add nothing. Backend ref adds in f64
 *   promise       o, lse, dq, dk and dv keep the levels of the plan; dbias: docs/guide/promise.md
 *   alone         a backward pass may compute dbias only
 *
 * lse and dlse are f32 and contiguous: (batch, heads, q_len), packed (heads, total_q).
 *
 * All pointers, including those to lengths, ids, slopes, sinks, seed and offset, are host pointers
 * for cuda plans device pointers and for all others host pointers.
 *
 * Rows that belong to no sequence, after the length of a padded sequence or after the last end of a
 * packed tensor, are written too: o = 0, lse = -inf and gradients 0.
 *
 * Invalid lengths (ends that do not begin at 0, that decrease or exceed the total, a sequence
 * longer than q_len or kv_len) are refused on the host before anything is written. The kernels of a
 * cuda plan read lengths on the stream, where they cannot be refused. There invalid lengths are
 * clamped: there is no access outside the tensors and the workspace, and rows that then belong to
 * no sequence are written as above. */
typedef struct ordo_call {
    size_t size; /* sizeof(ordo_call) */
    ordo_tensor q, k, v, o;
    ordo_tensor dout, dq, dk, dv;
    float *lse;
    const float *dlse;

    const int32_t *cu_q, *cu_kv;     /* packed: batch + 1 ends that begin with 0, do not decrease
                                      * and end with total_q and total_kv or less */
    const int32_t *q_lens, *kv_lens; /* padded: valid rows and columns of each sequence */
    const int64_t *sequence_ids;     /* batch ids for dropout; NULL = batch0, batch0 + 1, ... */

    const float *slopes;         /* ALiBi: one slope per query head */
    int64_t slopes_batch_stride; /* 0: all sequences use the same slopes */

    /* keep bits, ordered as in docs/design/dropout-bits.md, or NULL; plans with segments make their
     * own: NULL */
    union {
        const uint32_t *keep_bits;
        const uint32_t *mask_bits; /* the name of version 0.1.0; the next version removes it */
    };
    uint64_t seed, offset;
    const uint64_t *seed_ptr, *offset_ptr; /* read in place of seed and offset, unless NULL */

    void *workspace; /* ordo_plan_workspace(plan) bytes, 256-byte aligned; the next pass on the same
                      * stream may reuse it */
    size_t workspace_bytes;
    void *stream; /* cuda: a cudaStream_t */
    int threads;  /* cpu and emulator: 0 = as many as the process may use */

    float *dk_sums, *dv_sums; /* with carry: contiguous, (batch, kv_len, kv_heads, head_dim) and
                               * (..., v_head_dim); packed (total_kv, kv_heads, ...); cuda: aligned
                               * to 16 bytes */
    unsigned carry;           /* ORDO_CARRY_IN, ORDO_CARRY_OUT or both; 0 = none */

    /* cuda, plans with segments: a second cudaStream_t, on which the keep bits of the next segment
     * are made while a segment runs on `stream`. It waits for all earlier work on `stream`, and
     * later work on `stream` waits for it. NULL: the bits are made on `stream`. */
    void *side_stream;

    const float *sink;  /* one logit per query head; NULL = none */
    float *dsink;       /* backward, with sink: its gradient, one value per query head, or NULL */
    float *dsink_parts; /* the same of each sequence, (batch, heads), or NULL */

    /* block masks */
    const ordo_block_mask *block_mask; /* with problem.blocks; else NULL. The struct itself is in
                                        * host memory */

    /* Forward passes with problem.paging: columns x * page_rows .. of sequence b are rows 0 .. of
     * page page_table[b * page_table_stride + x]. kv_lens is required in both layouts and counts
     * whole sequences from column 0; cu_kv is NULL. Entries of columns that are not stored, before
     * kv_starts[b] or from kv_lens[b] on, are not read. On a device, whose numbers only kernels
     * read, a row that sees a column whose entry is no page is NaN. */
    const int32_t *page_table;
    int64_t page_table_stride; /* 0: table_columns */

    /* Forward passes with pages, or packed without dropout and block mask: the columns of a
     * sequence that are not stored, and hidden, as a cache of a window drops them; NULL: 0. Tiles
     * begin where those of the whole sequence do, so that its bits stay the same. Packed: cu_kv
     * counts what is stored, a sequence has kv_starts[b] columns more, and kv_len is the longest
     * whole one. Without pages backend cuda refuses them. */
    const int32_t *kv_starts;

    const ordo_block_mask *seen; /* with problem.seen: an element mask (ordo/seen.h); else NULL. The
                                  * struct itself is in host memory */
    /* With problem.bias: (batch or 1, heads or 1, q_len, kv_len). */
    ordo_tensor bias;
    float *dbias; /* backward: its gradient, contiguous, in the shape of bias; or NULL */
} ordo_call;

#define ORDO_CALL_INIT ORDO_SIZED(ordo_call)

/* Run one pass. Every argument is checked before anything is written. Every sum runs in the order
 * that the plan fixes, so the same plan and inputs give the same bits, whatever the number of
 * threads, the stream or the load on the device.
 *
 * A pass of a cuda plan runs on the stream, on the current device. The call launches kernels
 * without allocating or waiting, and may be captured into a CUDA graph; a fault of a running kernel
 * shows at the next synchronisation. Addresses and strides of tensors must be multiples of 16
 * bytes, and strides below 2^40 bytes (ORDO_ERR_ALIGN). Head sizes outside ordo_backend_query() and
 * more than 2^28 tiles are refused (ORDO_ERR_UNSUPPORTED), although a plan can be made of them.
 *
 * A pass of an emulator plan computes what a cuda plan with the same numeric key computes on
 * compute capability 9.0, bit for bit, on the host, a few thousand times slower. Head sizes that
 * the kernels refuse are refused (ORDO_ERR_UNSUPPORTED). A NaN or infinity makes the same rows NaN;
 * finite rows that the device computes again next to one are not known and not written:
 * ORDO_ERR_UNSUPPORTED, after all others are. Memory for dS is allocated and freed inside the call.
 */
ORDO_API ordo_status ordo_attention_forward(const ordo_plan *plan, const ordo_call *call);
ORDO_API ordo_status ordo_attention_backward(const ordo_plan *plan, const ordo_call *call);

/* For tests of the promise: in CPU backward passes that begin after this call, in any thread of the
 * process, each thread sleeps for a random time of up to `us` microseconds before it adds to dq, so
 * that the order of arrival varies. 0, as at the start, is no delay; at most 999999. */
ORDO_API void ordo_delay_turns(int64_t us);

/* Results over disjoint sets of keys that are to be merged, as a ring over sequence shards computes
 * them. */
typedef struct ordo_combine {
    size_t size;                   /* sizeof(ordo_combine) */
    int64_t parts;                 /* 1 .. 4096 */
    const ordo_tensor *o_parts;    /* one tensor per part, with the shape and type of o */
    const float *const *lse_parts; /* one array per part, with the shape of lse */
    ordo_tensor o;
    float *lse;
    int threads; /* cpu: 0 = as many as the process may use */

    void *stream; /* cuda: a cudaStream_t */

    /* cuda, more than 96 parts: 40 bytes of device memory per part, 256-byte aligned. */
    void *workspace;
    size_t workspace_bytes;
} ordo_combine;

#define ORDO_COMBINE_INIT ORDO_SIZED(ordo_combine)

/* Merge parts: o = sum_p w_p o_p / sum_p w_p with w_p = exp(lse_p - max lse), added in the order of
 * the parts, and lse = max lse + log sum w. A part whose lse is -inf adds nothing; if all are,
 * o = 0 and lse = -inf. The plan gives shapes, type and backend. cpu and cuda give the same bits,
 * whatever the number of threads or the grid.
 *
 * For a cuda plan the kernel runs on the stream, as in a pass: tensors and lse are on the device,
 * while the arrays o_parts and lse_parts are on the host and are read before the call returns. */
ORDO_API ordo_status ordo_attention_combine(const ordo_plan *plan, const ordo_combine *combine);

/* Return whether a backend can execute in this process. If not and `why_not` is not NULL, it gets
 * the reason as a message for people; else "". For cuda this means that the module loads and finds
 * a device that its kernels run on (compute capability 9.0); it is found out once per process. */
ORDO_API bool ordo_backend_available(ordo_backend backend, const char **why_not);

/* What the passes of a backend accept, for callers that can adapt their tensors. */
typedef struct ordo_backend_limits {
    size_t size;               /* sizeof(ordo_backend_limits) */
    unsigned dtypes;           /* one bit per type: 1u << ORDO_BF16, ... */
    bool unequal_head_dims;    /* v_head_dim may differ from head_dim */
    bool makes_fa2_bits;       /* keying fa2 needs no call.keep_bits */
    int64_t head_dim_max;      /* largest head_dim and v_head_dim */
    int64_t head_dim_multiple; /* head_dim and v_head_dim are multiples of this. Columns of zeros
                                * fill q, k and v up to one and change no result, if the scale is
                                * given: its default depends on head_dim. */
    int64_t tensor_align;      /* addresses and strides of tensors, and keep_bits, are multiples of
                                * this many bytes; 0: of one element */
    int64_t made_bits_head_dim_max; /* above this head_dim or v_head_dim dropout needs
                                     * call.keep_bits */
    bool paged;                     /* problem.paging; without pages, cuda has no call.kv_starts */
} ordo_backend_limits;

#define ORDO_BACKEND_LIMITS_INIT ORDO_SIZED(ordo_backend_limits)

/* Fill in `limits`; set limits->size before (ORDO_BACKEND_LIMITS_INIT). The answer does not depend
 * on whether the backend is available. ORDO_ERR_ARGUMENT for ORDO_BACKEND_DEFAULT. */
ORDO_API ordo_status ordo_backend_query(ordo_backend backend, ordo_backend_limits *limits);

#ifdef __cplusplus
}
#endif
#endif
