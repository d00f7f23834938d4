/* support/sequences.cu: the table of sequences, by one block that scans with one thread per
 * sequence; and zeros in rows that belong to no sequence. */
#include "cuda/support/sequences.h"

#include <math.h>

#include "cuda/pass/pages.h"
#include "cuda/support/launch.h"
#include "cuda/support/scan.h"

enum {
    MOST_THREADS = 512,
    CLEAR_WARPS = 8,
    CLEAR_THREADS = 32 * CLEAR_WARPS,
    CLEAR_BLOCKS = 8 /* per multiprocessor */
};

/* ---- the table ---- */

struct sequences_args : ordo_cuda_pass {
    int32_t few; /* ordo_sequence_counts() */
};

/* Sums over the sequences of earlier rounds; a round has one sequence per thread. */
struct carried {
    int64_t q_end, kv_end, forward_tile, query_tile, key_tile, keep;
};

ORDO_DEVICE ordo_rows rows_of(const ordo_cuda_pass &pass, const int32_t *ends,
                              const int32_t *lengths, int32_t b, int64_t rows, int32_t longest,
                              int64_t &carry, int64_t *scratch)
{
    const bool mine = b < pass.batch.sequences;
    if (pass.layout != ORDO_PACKED || !ends)
        return mine ? ordo_padded_rows(lengths, b, longest) : ordo_rows { 0, 0 };
    const int32_t begin =
        (int32_t)scan<largest>(mine ? ordo_clamp(ends[b], rows) : 0, carry, scratch);
    return mine ? ordo_packed_rows(begin, ends[b + 1], rows, longest) : ordo_rows { begin, 0 };
}

ORDO_DEVICE void one_round(const sequences_args &pass, int32_t b, carried &c, int64_t *scratch)
{
    const ordo_cuda_ragged &r = pass.ragged;
    const bool mine = b < pass.batch.sequences;
    const ordo_rows q =
        rows_of(pass, r.cu_q, r.q_lens, b, pass.q_rows, pass.run.band.q_len, c.q_end, scratch);
    const ordo_rows kv =
        rows_of(pass, r.cu_kv, r.kv_lens, b, pass.kv_rows, pass.run.band.kv_len, c.kv_end, scratch);
    ordo_cuda_sequence s = {};
    ordo_counts n = {};
    if (mine) {
        s = ordo_sequence_of(&pass, b, q, kv);
        n = ordo_sequence_counts(&pass, pass.few, &s);
    }
    s.forward_tile = (int32_t)(scan<sum>(n.forward_tile, c.forward_tile, scratch) - n.forward_tile);
    s.query_tile = (int32_t)(scan<sum>(n.query_tile, c.query_tile, scratch) - n.query_tile);
    s.key_tile = (int32_t)(scan<sum>(n.key_tile, c.key_tile, scratch) - n.key_tile);
    s.keep = scan<sum>(n.keep, c.keep, scratch) - n.keep; /* padded batch: equals b * n.keep */
    if (mine)
        pass.table[b] = s;
}

static __global__ void __launch_bounds__(MOST_THREADS, 1)
    sequences_kernel(const __grid_constant__ sequences_args pass)
{
    __shared__ int64_t scratch[MOST_THREADS / 32];
    carried c = {};
    for (int32_t first = 0; first < pass.batch.sequences; first += (int32_t)blockDim.x)
        one_round(pass, first + (int32_t)threadIdx.x, c, scratch);
    if (threadIdx.x != 0)
        return;
    ordo_cuda_sequence all = {};
    all.forward_tile = (int32_t)c.forward_tile;
    all.query_tile = (int32_t)c.query_tile;
    all.key_tile = (int32_t)c.key_tile;
    all.keep = c.keep;
    pass.table[pass.batch.sequences] = all;
    if (pass.ticket) /* and the flag after it: a pass has one launch less */
        pass.ticket[0] = pass.ticket[ORDO_NOT_FINITE] = 0;
    if (pass.few > 0)
        pass.ticket[ORDO_SECOND_TICKET] = 0;
}

ordo_status ordo_cuda_sequences(const ordo_cuda_pass *pass, int32_t few)
{
    sequences_args args = {};
    (ordo_cuda_pass &)args = *pass;
    args.few = few;
    const int32_t count = pass->batch.sequences;
    const unsigned most = MOST_THREADS, even = (unsigned)(count + 31) / 32 * 32;
    const ordo_cuda_grid grid = { 1, even < most ? even : most, 0, ORDO_LAUNCH_PLAIN };
    if (!pass->table)
        return ORDO_OK;
    return ordo_cuda_launch((const void *)sequences_kernel, &args, grid, pass->stream);
}

/* ---- rows that belong to no sequence ---- */

/* Which share of a slot's rows this warp clears: every block of one head looks at all slots, and
 * the blocks of a head share what they find. */
struct share {
    int32_t head;
    int64_t first, step; /* this lane's first element, and the distance to its next */
};

ORDO_DEVICE share share_of(int32_t heads)
{
    const int64_t nth = blockIdx.x / heads, blocks = gridDim.x / heads;
    return { (int32_t)(blockIdx.x % heads), nth * 32 + threadIdx.x % 32, blocks * 32 };
}

/* clear(sequence in tensors, rows) for every slot that has rows, by one warp each. */
template <class CLEAR>
ORDO_DEVICE void each_slot(const ordo_cuda_pass &pass, bool keys, CLEAR clear)
{
    const int32_t slots = ordo_left_slots(&pass);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int64_t first = warp; first < slots; first += CLEAR_THREADS) {
        const int64_t slot = first + lane * CLEAR_WARPS; /* the next slot is another warp's */
        ordo_rows left = { 0, 0 };
        if (slot < slots)
            left = ordo_left_rows(&pass, (int32_t)slot, keys);
        for (uint32_t found = __ballot_sync(~0u, left.count > 0); found; found &= found - 1) {
            const int from = __ffs(found) - 1;
            const ordo_rows rows = { __shfl_sync(~0u, left.first, from),
                                     __shfl_sync(~0u, left.count, from) };
            clear(ordo_left_sequence(&pass, (int32_t)(first + from * CLEAR_WARPS)), rows);
        }
    }
}

ORDO_DEVICE void clear_rows(const ordo_cuda_tensor &x, int32_t columns, int32_t sequence,
                            ordo_rows rows, const share &mine)
{
    const int32_t chunks = columns / 8; /* 16 bytes each */
    uint16_t *base =
        (uint16_t *)x.data + sequence * x.sequence + mine.head * x.head + rows.first * x.row;
    for (int64_t i = mine.first; i < (int64_t)rows.count * chunks; i += mine.step)
        *(uint4 *)(base + i / chunks * x.row + i % chunks * 8) = make_uint4(0, 0, 0, 0);
}

static __global__ void __launch_bounds__(CLEAR_THREADS)
    clear_forward_kernel(const __grid_constant__ ordo_cuda_pass pass)
{
    const int32_t heads = pass.run.kv_heads * pass.run.group_heads;
    const share mine = share_of(heads);
    each_slot(pass, false, [&](int32_t sequence, ordo_rows rows) {
        clear_rows(pass.o, pass.v_head_dim, sequence, rows, mine);
        float *lse = pass.lse + ((int64_t)sequence * heads + mine.head) * pass.batch.lse_head;
        for (int64_t i = mine.first; i < rows.count; i += mine.step)
            lse[rows.first + i] = -INFINITY;
    });
}

ORDO_DEVICE void clear_sums(const ordo_cuda_pass &pass, float *sums, int32_t columns,
                            int32_t sequence, ordo_rows rows, const share &mine)
{
    const int32_t chunks = columns / 4; /* 16 bytes each */
    for (int64_t i = mine.first; i < (int64_t)rows.count * chunks; i += mine.step) {
        const int64_t row = ordo_carry_row(pass.kv_rows, pass.run.kv_heads, sequence,
                                           rows.first + (int32_t)(i / chunks), mine.head);
        ((float4 *)sums)[row * chunks + i % chunks] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

static __global__ void __launch_bounds__(CLEAR_THREADS)
    clear_backward_kernel(const __grid_constant__ ordo_cuda_pass pass)
{
    const share mine = share_of(pass.run.kv_heads * pass.run.group_heads);
    if (pass.dq.data)
        each_slot(pass, false, [&](int32_t sequence, ordo_rows rows) {
            clear_rows(pass.dq, pass.head_dim, sequence, rows, mine);
        });
    if (mine.head >= pass.run.kv_heads)
        return;
    each_slot(pass, true, [&](int32_t sequence, ordo_rows rows) {
        if (pass.carry.out && !pass.carry.in) { /* else they stay */
            clear_sums(pass, pass.carry.dk, pass.head_dim, sequence, rows, mine);
            clear_sums(pass, pass.carry.dv, pass.v_head_dim, sequence, rows, mine);
        }
        if (pass.dk.data) {
            clear_rows(pass.dk, pass.head_dim, sequence, rows, mine);
            clear_rows(pass.dv, pass.v_head_dim, sequence, rows, mine);
        }
    });
}

/* As many blocks as run at once, in whole sets of one per head. */
static ordo_status clear(const ordo_cuda_pass *pass, const void *kernel)
{
    const int64_t heads = (int64_t)pass->run.kv_heads * pass->run.group_heads;
    int processors = 0;
    if (pass->layout == ORDO_DENSE)
        return ORDO_OK;
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, INT32_MAX, &processors));
    const int64_t per_head = (int64_t)processors * CLEAR_BLOCKS / heads;
    const ordo_cuda_grid grid = { (unsigned)(heads * (per_head > 1 ? per_head : 1)), CLEAR_THREADS,
                                  0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(kernel, pass, grid, pass->stream);
}

ordo_status ordo_cuda_clear_forward(const ordo_cuda_pass *pass)
{
    return clear(pass, (const void *)clear_forward_kernel);
}

ordo_status ordo_cuda_clear_backward(const ordo_cuda_pass *pass)
{
    return clear(pass, (const void *)clear_backward_kernel);
}
