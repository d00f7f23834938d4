/* support/sink.cu: one block per sequence and head adds the terms of its rows, blocks of 128 rows
 * by one tree each and these upwards; then one thread per head adds the sequences. All in f64,
 * rounded where ordo/attention.h says so. */
#include "cuda/support/around.h"

#include "base/sink.h"
#include "cuda/support/launch.h"
#include "cuda/support/statistics.h"
#include "cuda/tile/fragment.h"

enum { TREES = 8, THREADS = TREES * ORDO_SINK_ROWS, SUM_THREADS = 128 };

struct sink_args : ordo_cuda_pass {
    int32_t heads;
    int32_t dense_tiles; /* query tiles per (sequence, head) if numbered so; else 0 */
};

/* Place of a row in delta. */
ORDO_DEVICE int64_t delta_place(const sink_args &args, const ordo_cuda_sequence &s, int32_t b,
                                int32_t head, int32_t row)
{
    const int64_t first = args.dense_tiles ? ((int64_t)b * args.heads + head) * args.dense_tiles
                                           : (int64_t)head * args.batch.tiles + s.query_tile;
    return (first + row / args.run.band.bq) * args.run.band.bq +
           ordo_stat_place(row % args.run.band.bq);
}

static __global__ void __launch_bounds__(THREADS)
    sink_parts_kernel(const __grid_constant__ sink_args args)
{
    __shared__ double terms[THREADS];
    const int t = threadIdx.x, in_tree = t % ORDO_SINK_ROWS;
    const int64_t units = (int64_t)args.batch.sequences * args.heads;
    for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const int32_t b = (int32_t)(unit / args.heads), head = (int32_t)(unit % args.heads);
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, b);
        const float sink = args.sink[head];
        const float *const lse = args.lse + s.lse + head * args.batch.lse_head;
        double sum = 0; /* kept by thread 0 */
        for (int32_t first = 0; first < s.q_len; first += THREADS) {
            const int32_t row = first + t;
            terms[t] = 0;
            if (row < s.q_len)
                terms[t] = ordo_sink_term(sink, lse[row],
                                          args.delta[delta_place(args, s, b, head, row)] *
                                              args.keep_scale);
            for (int half = ORDO_SINK_ROWS / 2; half > 0; half /= 2) {
                __syncthreads();
                if (in_tree < half)
                    terms[t] += terms[t + half];
            }
            __syncthreads();
            for (int tree = 0; t == 0 && tree < TREES; tree++)
                sum += terms[tree * ORDO_SINK_ROWS];
            __syncthreads();
        }
        if (t == 0)
            args.dsink_parts[unit] = ordo_f32_from_f64(sum);
    }
}

static __global__ void __launch_bounds__(SUM_THREADS)
    sink_sum_kernel(const __grid_constant__ sink_args args)
{
    const int32_t head = (int32_t)(blockIdx.x * SUM_THREADS + threadIdx.x);
    double sum = 0;
    if (head >= args.heads)
        return;
    for (int32_t b = 0; b < args.batch.sequences; b++)
        sum += (double)args.dsink_parts[(int64_t)b * args.heads + head];
    args.dsink[head] = ordo_f32_from_f64(sum);
}

ordo_status ordo_cuda_sink(const ordo_cuda_pass *pass)
{
    if (!pass->dsink_parts)
        return ORDO_OK;
    sink_args args;
    (ordo_cuda_pass &)args = *pass;
    args.heads = pass->run.kv_heads * pass->run.group_heads;
    args.dense_tiles = ordo_backward_dense(pass) ? ordo_band_query_tiles(&pass->run.band) : 0;
    args.keep_scale = ordo_pass_dv_scale(pass); /* delta was divided by it */
    int blocks = 0;
    CUDA_TRY(
        ordo_cuda_blocks(pass->run.workers, (int64_t)args.batch.sequences * args.heads, &blocks));
    const ordo_cuda_grid grid = { (unsigned)blocks, THREADS, 0, ORDO_LAUNCH_PLAIN };
    CUDA_TRY(ordo_cuda_launch((const void *)sink_parts_kernel, &args, grid, pass->stream));
    if (!pass->dsink)
        return ORDO_OK;
    const ordo_cuda_grid sum = { (unsigned)(args.heads + SUM_THREADS - 1) / SUM_THREADS,
                                 SUM_THREADS, 0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch((const void *)sink_sum_kernel, &args, sum, pass->stream);
}
