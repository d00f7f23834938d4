/* sm90/backward/rows.cu: dQ as rows of bf16 or f16, after the chains; and the arguments of these.
 */
#include "cuda/sm90/backward/rows.h"

#include "cuda/support/around.h"
#include "cuda/support/launch.h"
#include "cuda/tile/fragment.h"
#include "plan/family_sm90.h"

/* Number x of all query heads in the order in which their chains are issued. */
static __device__ __forceinline__ int32_t head_ended(const ordo_run &run, int32_t x)
{
    const int32_t first = ordo_run_heads(&run, 0), key = x / run.group_heads;
    const int32_t head =
        key < first ? ordo_run_head(&run, 0, key) : ordo_run_head(&run, 1, key - first);
    return head * run.group_heads + x % run.group_heads;
}

/* 128 threads per half tile of 64 x 64. A tile that no key adds to was never stored: its dq is
 * zero. */
template <int D, bool EARLY, bool VARLEN, bool F16>
static __global__ void __launch_bounds__(128) end_kernel(const __grid_constant__ ordo_row_args args)
{
    enum { ROWS = ORDO_SM90_BACKWARD_Q(D) };
    grid_let_next(); /* the repair: it waits by itself */
    const int half = blockIdx.x % 2, t = threadIdx.x, quad = t % 4;
    const int32_t all = head_ended(args.run, blockIdx.x / 2 / args.q_tiles);
    const int32_t i = blockIdx.x / 2 % args.q_tiles;
    const int64_t tile = (int64_t)all * args.q_tiles + i;
    if (VARLEN && EARLY) /* acquire: the table was written by another kernel */
        (void)load_acquire(args.turns);
    const tile_place at = place_of<ROWS, VARLEN>(args, all, i);
    const bool seen = at.keys > 0;
    if (EARLY) {
        ordo_watch watch;
        if (t == 0)
            for (uint32_t spins = 0; seen && load_acquire(args.turns + tile) != at.keys; spins++) {
                __nanosleep(500);
                watch.look(ORDO_WAIT_COUNTER, (uint64_t)(args.turns + tile), (uint32_t)at.keys);
            }
        __syncthreads();
        if (blockIdx.x == gridDim.x - 1) /* this kernel ends no sooner than the chains */
            grid_wait();
    }
    const float4 *from = (const float4 *)args.dq_sum + (2 * tile + half) * 1024 + t;
    uint32_t pairs[2][8]; /* rows r and r + 8, columns in eights: this thread's two of each */
    uint32_t taint = 0;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        const float4 x =
            seen ? from[ordo_partial_offset(0, 4 * c) / 4] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        pairs[0][c] = pack_pair<F16>(x.x * args.dq_scale, x.y * args.dq_scale);
        pairs[1][c] = pack_pair<F16>(x.z * args.dq_scale, x.w * args.dq_scale);
        taint = not_finite<F16>(not_finite<F16>(taint, pairs[0][c]), pairs[1][c]);
    }
    if (taint)
        args.ticket[ORDO_NOT_FINITE] = 1;
    const int row0 = at.row0 + (D == 64 ? half * 64 : 0) + ordo_accumulator_row(t, 0);
    const int column0 = D == 128 ? half * 64 : 0;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int g = 0; g < 2; g++) {
            /* Four threads exchange pairs, so that each has eight columns. */
            uint32_t out[4];
#pragma unroll
            for (int d = 0; d < 4; d++) {
                const int source = (quad + d) % 4, target = (quad + 4 - d) % 4;
                const uint32_t *mine = pairs[r] + 4 * g;
                const uint32_t sent = target == 0   ? mine[0]
                                      : target == 1 ? mine[1]
                                      : target == 2 ? mine[2]
                                                    : mine[3];
                const uint32_t got = __shfl_sync(~0u, sent, (t % 32 & 28) | source);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (e == source)
                        out[e] = got;
            }
            const int row = row0 + 8 * r, column = column0 + 32 * g + 8 * quad;
            if (row < at.q_len && (!VARLEN || column < args.head_dim))
                *(uint4 *)((char *)args.dq.data + 2 * (element(args.dq, at, row) + column)) =
                    make_uint4(out[0], out[1], out[2], out[3]);
        }
}

/* ---- launch ---- */

template <int D> static const void *end_of(bool dense, bool early, bool f16)
{
    if (dense && !early) /* bf16: for measurements */
        return (const void *)end_kernel<D, false, false, false>;
    if (dense)
        return f16 ? (const void *)end_kernel<D, true, false, true>
                   : (const void *)end_kernel<D, true, false, false>;
    if (f16)
        return early ? (const void *)end_kernel<D, true, true, true>
                     : (const void *)end_kernel<D, false, true, true>;
    return early ? (const void *)end_kernel<D, true, true, false>
                 : (const void *)end_kernel<D, false, true, false>;
}

ordo_status ordo_backward_end(const ordo_cuda_pass *pass, bool early)
{
    ordo_row_args args = ordo_row_args_of(pass);
    const bool dense = ordo_backward_dense(pass);
    const ordo_cuda_grid grid = { (unsigned)(2 * args.tiles), 128, 0,
                                  early ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN };
    const void *kernel = ordo_pass_bucket(pass) == 64 ? end_of<64>(dense, early, pass->f16)
                                                      : end_of<128>(dense, early, pass->f16);
    if (args.tiles > 0 && pass->dq.data)
        CUDA_TRY(ordo_cuda_launch(kernel, &args, grid, pass->stream));
    CUDA_TRY(ordo_backward_unseen(pass));
    return ordo_repair_backward(pass);
}

ordo_status ordo_backward_arguments(const ordo_cuda_pass *pass, int rows, int keys,
                                    ordo_backward_args *args, int *blocks)
{
    const ordo_run *run = &pass->run;
    const ordo_cuda_lengths q = ordo_pass_lengths(pass, false, pass->head_dim);
    const ordo_cuda_lengths outputs = ordo_pass_lengths(pass, false, pass->v_head_dim);
    const ordo_cuda_lengths kv = ordo_pass_lengths(pass, true, pass->head_dim);
    const ordo_cuda_lengths values = ordo_pass_lengths(pass, true, pass->v_head_dim);
    (ordo_pass_common &)*args = ordo_pass_common_of(pass);
    CUDA_TRY(ordo_cuda_map(&args->map.q, &pass->q, q, rows));
    CUDA_TRY(ordo_cuda_map(&args->map.dout, &pass->dout, outputs, rows));
    CUDA_TRY(ordo_cuda_map(&args->map.k, &pass->k, kv, keys));
    CUDA_TRY(ordo_cuda_map(&args->map.v, &pass->v, values, keys));
    if (pass->dk.data) {
        CUDA_TRY(ordo_cuda_map(&args->map.dk, &pass->dk, kv, 64));
        CUDA_TRY(ordo_cuda_map(&args->map.dv, &pass->dv, values, 64));
    }
    if (pass->carry.in) {
        const int piece = ordo_backward_dense(pass) ? keys / ORDO_SUMS_PIECES : keys;
        CUDA_TRY(ordo_cuda_map_sums(&args->map.dk_sums, pass->carry.dk, kv, piece));
        CUDA_TRY(ordo_cuda_map_sums(&args->map.dv_sums, pass->carry.dv, values, piece));
    }
    args->first_class = ordo_run_tickets(run, 0);
    args->units = args->first_class + ordo_run_tickets(run, 1); /* ragged: no more than these */
    args->q_tiles = ordo_band_query_tiles(&run->band);
    args->keep_line = (int64_t)(run->band.kv_len + 127) / 128 * 64;
    args->dk_scale = ordo_pass_dk_scale(pass);
    if (pass->bias.data && ordo_cuda_bias_maps(pass))
        CUDA_TRY(ordo_cuda_map_bias(&args->map_bias, pass));
    CUDA_TRY(ordo_cuda_blocks(run->workers, args->units, blocks));
    if (*blocks == 0) /* no keys: the block draws a ticket and ends */
        *blocks = 1;
    return ORDO_OK;
}

ordo_status ordo_backward_run(const ordo_cuda_pass *pass, ordo_backward_instance instance)
{
    ordo_backward_args args = {};
    int blocks = 0;
    CUDA_TRY(ordo_backward_arguments(pass, instance.rows, instance.keys, &args, &blocks));
    /* Chains that wait for each other: the launch fails if the blocks cannot all be resident. */
    const bool together = ordo_run_coresident(&pass->run) > 0;
    const ordo_cuda_grid grid = { (unsigned)blocks, instance.threads, instance.shared_bytes,
                                  together ? ORDO_LAUNCH_TOGETHER : ORDO_LAUNCH_EARLY };
    CUDA_TRY(ordo_backward_begin(pass, false));
    CUDA_TRY(ordo_cuda_launch(instance.kernel, &args, grid, pass->stream));
    return ordo_backward_end(pass, !together);
}
