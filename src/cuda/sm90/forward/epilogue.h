/* sm90/forward/epilogue.h: the epilogue of a unit: row sums and lse, and O divided by its row sums,
 * to memory. */
#ifndef CUDA_SM90_FORWARD_EPILOGUE_H
#define CUDA_SM90_FORWARD_EPILOGUE_H

#include "cuda/sm90/forward/math.h"
#include "cuda/tile/units.h"

/* Named barriers, one per consumer warpgroup. PINGPONG: it may issue its products. OWN: all its
 * threads have arrived. */
enum { PINGPONG = 1, OWN = 5 };

/* What a warpgroup writes at the end of a unit. */
struct forward_end {
    int first, row;  /* the warpgroup's first row in the sequence, and the thread's */
    int q_len;       /* queries of the sequence */
    int tensor_row;  /* `first` in tensors */
    int head, batch; /* likewise */
    int64_t lse;     /* place of the head's row 0 */
    int o_buffer;    /* which of the two in Q's place; 0 if O has one of its own */
};

/* Stores the rows of a warpgroup's tile that its sequence has, from shared memory, 16 bytes per
 * thread. */
template <class Z>
ORDO_DEVICE void store_rows(const ordo_forward_args &args, const char *tile, const forward_end &end)
{
    const int chunks = args.v_head_dim / 8; /* 8 columns each, in one row */
    const int count = min(64, end.q_len - end.first) * chunks;
    uint16_t *const to = (uint16_t *)args.o.data + end.batch * args.o.sequence +
                         end.head * args.o.head + end.tensor_row * args.o.row;
    for (int x = threadIdx.x % 128; x < count; x += 128) {
        const int row = x / chunks, column = x % chunks * 8;
        *(uint4 *)(to + row * args.o.row + column) =
            *(const uint4 *)(tile + ordo_tile_offset(Z::ROWS, row, column));
    }
}

/* The factors of O of a thread's two rows, and whether each row sees no key. */
struct forward_weights {
    float weight[2];
    bool sees_nothing[2];
};

/* Adds the sums of the four threads of each row, and in the varlen kernel the head's sink; stores
 * lse, which needs nothing else. Rows that f16 cannot hold become NaN, so that they are repaired.
 */
template <bool DROP, bool VARLEN, bool F16>
ORDO_DEVICE forward_weights forward_sums(const ordo_forward_args &args, const row_state &state,
                                         const forward_end &end)
{
    forward_weights rows;
    const float sink = VARLEN && args.sink ? args.sink[end.head] : -INFINITY;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = state.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        /* A sum of 0 under another maximum: a score has overflowed f32. */
        rows.sees_nothing[r] = sum == 0.0f && state.max[r] == -INFINITY;
        if (F16 && ordo_softmax_far(state.max[r], args.scale_log2))
            sum = NAN;
        const bool sunk = VARLEN && sink != -INFINITY; /* NaN is a sink */
        row_with_sink row = { sum, 1.0f, 0.0f };
        if (sunk)
            row = with_sink(state.max[r], sum, args.scale_log2, sink);
        rows.weight[r] = (DROP ? args.keep_scale : 1.0f) * row.shrink / row.sum;
        const int at = end.row + 8 * r;
        if (threadIdx.x % 4 == 0 && at < end.q_len)
            args.lse[end.lse + at] = rows.sees_nothing[r] ? sink
                                     : sunk ? fmaf(row.top, (float)ORDO_LN_2, logf(row.sum))
                                            : fmaf(state.max[r], args.to_logit, logf(sum));
    }
    return rows;
}

/* O has left Q's place. */
template <class Z> ORDO_DEVICE void forward_release_q(uint32_t q_stage, int mine)
{
    if (threadIdx.x % 128 == 0)
        bulk_wait_read();
    named_sync(OWN + mine, 128);
    mbar_arrive_warp(Z::Q_EMPTY + 8 * q_stage, threadIdx.x % 32);
}

/* Divides O by the row sums, rounds and stores it. */
template <int D, int DV, bool VARLEN, bool F16, forward_kind KIND = FORWARD_BAND>
ORDO_DEVICE void forward_epilogue(const ordo_forward_args &args, const char *smem,
                                  float (&o)[DV / 2], const forward_weights &rows,
                                  const forward_end &end, int mine)
{
    using Z = forward_shape<D, DV, VARLEN, KIND>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const bool leader = threadIdx.x % 128 == 0;
    const uint32_t o_at = Z::O + end.o_buffer * Z::Q_BYTES + mine * 64 * ORDO_LINE_BYTES;
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            if (i / 2 % 2 == r)
                o[i] *= rows.weight[r];
        if (rows.sees_nothing[r])
#pragma unroll
            for (int i = 0; i < DV / 2; i++)
                if (i / 2 % 2 == r)
                    asm volatile("mov.b32 %0, 0;" : "=f"(o[i])); /* rare: a branch */
    }
    ORDO_UNIT_DONE(o[0], leader, 0, end.batch, end.head, end.tensor_row);
    if (leader)
        bulk_wait_read(); /* O of the unit before has been stored */
    named_sync(OWN + mine, 128);
    const uint32_t line_at = o_at + ordo_store_offset(Z::ROWS, warp, lane, 0);
    uint32_t taint = 0;
#pragma unroll
    for (int c = 0; c < DV / 16; c++) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            pairs[i] = pack_pair<F16>(o[8 * c + 2 * i], o[8 * c + 2 * i + 1]);
            taint = not_finite<F16>(taint, pairs[i]);
        }
        store_matrix4(ordo_store_slice(line_at, Z::ROWS, c), pairs[0], pairs[1], pairs[2],
                      pairs[3]);
    }
    if (taint && (!VARLEN || end.row < end.q_len))
        args.ticket[ORDO_NOT_FINITE] = 1;
    /* A tensor store of a partial tile would overwrite the next sequence. */
    if (VARLEN && args.batch.table && end.first + 64 > end.q_len) {
        named_sync(OWN + mine, 128);
        store_rows<Z>(args, smem + (o_at - ORDO_SMEM_BASE), end);
        named_sync(OWN + mine, 128);
    } else {
        fence_shared_to_async();
        named_sync(OWN + mine, 128);
        if (leader) {
#pragma unroll
            for (int q = 0; q < Z::V_PANELS; q++)
                tma_store(&args.map.o, o_at + q * Z::ROWS * ORDO_LINE_BYTES, q * ORDO_PANEL_COLUMNS,
                          end.tensor_row, end.head, end.batch);
            bulk_commit();
        }
    }
}

#endif
