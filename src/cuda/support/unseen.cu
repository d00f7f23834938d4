/* support/unseen.cu: one warp per row of a key that no query sees. Scaled and rounded as the chains
 * do it. */
#include "cuda/support/around.h"

#include "cuda/support/launch.h"
#include "cuda/tile/ptx.h"

enum { WARPS = 8, THREADS = 32 * WARPS, BLOCKS = 8 /* per multiprocessor */ };

/* A row of the gradient, four columns per thread at a time. Nonzero if it is not finite. */
template <bool F16>
ORDO_DEVICE uint32_t finish_row(uint16_t *to, const float *sums, float scale, int columns, int lane)
{
    uint32_t taint = 0;
    for (int c = 4 * lane; c < columns; c += 128) {
        const float4 x = __ldcg((const float4 *)(sums + c));
        const uint2 pairs = { pack_pair<F16>(x.x * scale, x.y * scale),
                              pack_pair<F16>(x.z * scale, x.w * scale) };
        taint = not_finite<F16>(not_finite<F16>(taint, pairs.x), pairs.y);
        *(uint2 *)(to + c) = pairs;
    }
    return taint;
}

ORDO_DEVICE void zero_row(float *sums, int columns, int lane)
{
    for (int c = 4 * lane; c < columns; c += 128)
        *(float4 *)(sums + c) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/* Key `row` of key head `head`, in the tensors. */
template <bool F16>
ORDO_DEVICE void unseen_row(const ordo_cuda_pass &pass, int32_t sequence, int32_t row, int32_t head,
                            int lane)
{
    const ordo_cuda_carry &carry = pass.carry;
    const int64_t at = ordo_carry_row(pass.kv_rows, pass.run.kv_heads, sequence, row, head);
    float *const dk = carry.dk + at * pass.head_dim, *const dv = carry.dv + at * pass.v_head_dim;
    if (carry.out) {
        zero_row(dk, pass.head_dim, lane);
        zero_row(dv, pass.v_head_dim, lane);
        return;
    }
    const auto to = [&](const ordo_cuda_tensor &x) {
        return (uint16_t *)x.data + sequence * x.sequence + head * x.head + row * x.row;
    };
    const uint32_t taint =
        finish_row<F16>(to(pass.dk), dk, ordo_pass_dk_scale(&pass), pass.head_dim, lane) |
        finish_row<F16>(to(pass.dv), dv, ordo_pass_dv_scale(&pass), pass.v_head_dim, lane);
    if (taint)
        pass.ticket[ORDO_NOT_FINITE] = 1;
}

/* Whether some query head of a key head sees key tile j of a sequence. */
ORDO_DEVICE bool seen_tile(const ordo_cuda_pass &pass, const ordo_cuda_sequence &s, int32_t j,
                           int32_t head)
{
    const ordo_band band = ordo_sequence_band(&s, pass.run.band.bq, pass.run.band.bk);
    if (!pass.blocks.start)
        return ordo_span_count(ordo_band_queries(&band, j)) > 0;
    for (int32_t g = 0; g < pass.run.group_heads; g++)
        if (*ordo_blocks_column(&pass.blocks, head * pass.run.group_heads + g, s.key_tile, j) > 0)
            return true;
    return false;
}

template <bool F16>
static __global__ void __launch_bounds__(THREADS)
    unseen_kernel(const __grid_constant__ ordo_cuda_pass pass)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t heads = pass.run.kv_heads, bk = pass.run.band.bk;
    const int64_t tiles = ordo_batch_before(&pass.batch, ORDO_BEFORE_KEY, pass.batch.sequences);
    for (int64_t unit = blockIdx.x; unit < tiles * heads; unit += gridDim.x) {
        const int32_t tile = (int32_t)(unit / heads), head = (int32_t)(unit % heads);
        const ordo_cuda_sequence s =
            ordo_batch_sequence(&pass.batch, ordo_batch_find(&pass.batch, ORDO_BEFORE_KEY, tile));
        const int32_t first = (tile - s.key_tile) * bk, count = min(bk, s.kv_len - first);
        if (seen_tile(pass, s, tile - s.key_tile, head))
            continue;
        for (int32_t x = warp; x < count; x += WARPS)
            unseen_row<F16>(pass, s.batch, s.kv_row + first + x, head, lane);
    }
}

/* Whether all keys of a dense batch are seen: those that rows of a band see follow each other. */
static bool all_seen(const ordo_band *band)
{
    const int32_t tiles = ordo_band_key_tiles(band);
    return tiles == 0 || (ordo_span_count(ordo_band_queries(band, 0)) > 0 &&
                          ordo_span_count(ordo_band_queries(band, tiles - 1)) > 0);
}

ordo_status ordo_backward_unseen(const ordo_cuda_pass *pass)
{
    int processors = 0;
    if (pass->carry.in == pass->carry.out ||
        (pass->layout == ORDO_DENSE && !pass->blocks.start && all_seen(&pass->run.band)))
        return ORDO_OK;
    CUDA_TRY(ordo_cuda_blocks(INT32_MAX, INT32_MAX, &processors));
    const ordo_cuda_grid grid = { (unsigned)(processors * BLOCKS), THREADS, 0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(pass->f16 ? (const void *)unseen_kernel<true>
                                      : (const void *)unseen_kernel<false>,
                            pass, grid, pass->stream);
}
