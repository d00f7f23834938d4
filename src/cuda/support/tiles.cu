/* support/tiles.cu: one block per query tile makes its row of bits: a warp per entry, and in
 * partial ones a lane per row. Then one warp per key tile collects its column. */
#include "cuda/support/around.h"

#include "cuda/support/launch.h"
#include "cuda/tile/ptx.h"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* Query tile i of sequence b under the list of a head. */
typedef struct row_place {
    const ordo_cuda_block_mask &blocks;
    ordo_band band;
    int64_t mask;
    int32_t i;
} row_place;

/* A partial tile, by the whole warp: whether something of it is visible, and all of it. */
ORDO_DEVICE ordo_row_sees partial_tile(const row_place &at, int32_t key, int lane)
{
    bool some = false, all = true;
    for (int32_t n = lane; n < at.blocks.rows; n += 32) {
        const int32_t r = at.i * at.blocks.rows + n;
        if (r >= at.band.q_len)
            continue;
        const ordo_row_sees sees = ordo_blocks_row(&at.blocks, at.mask, &at.band, r, key);
        some |= sees.some;
        all &= sees.all;
    }
    return { __any_sync(~0u, some) != 0, __all_sync(~0u, all) != 0 };
}

/* Sets the bits of the row, of which each warp of a block has some entries. Several entries may
 * have one tile, if the lists are wrong. */
ORDO_DEVICE void mark_row(const row_place &at, ordo_tile_word *words, int warp, int lane)
{
    const ordo_span seen = ordo_band_keys(&at.band, at.i);
    const ordo_span entries = ordo_blocks_entries(&at.blocks, at.mask, at.i);
    for (int64_t x = (int64_t)entries.first + warp; x <= entries.last; x += WARPS) {
        const int32_t entry = at.blocks.key[x], key = entry & ORDO_BLOCK_KEY;
        if (entry < 0 || key < seen.first || key > seen.last)
            continue;
        ordo_row_sees sees = { true, true };
        if (ordo_blocks_partial(&at.blocks, entry))
            sees = partial_tile(at, key, lane);
        if (!sees.some || lane > 0)
            continue;
        atomicOr(&words[key / ORDO_TILE_BITS].seen, 1u << key % ORDO_TILE_BITS);
        if (!sees.all)
            atomicOr(&words[key / ORDO_TILE_BITS].partial, 1u << key % ORDO_TILE_BITS);
    }
}

/* Writes `before` and `count` of every word. */
ORDO_DEVICE void count_row(ordo_tile_word *words, int32_t across, int lane)
{
    int32_t count = 0, before = 0;
    for (int32_t w = lane; w < across; w += 32)
        count += ordo_bits_count(__ldcg(&words[w].seen));
    for (int x = 16; x; x /= 2)
        count += __shfl_xor_sync(~0u, count, x);
    for (int32_t first = 0; first < across; first += 32) {
        const int32_t w = first + lane;
        const int32_t own = w < across ? ordo_bits_count(__ldcg(&words[w].seen)) : 0;
        int32_t sum = own;
        for (int x = 1; x < 32; x *= 2) {
            const int32_t other = __shfl_up_sync(~0u, sum, x);
            sum += lane >= x ? other : 0;
        }
        if (w < across) {
            words[w].before = before + sum - own;
            words[w].count = count;
        }
        before += __shfl_sync(~0u, sum, 31);
    }
}

/* The ends of a row. */
ORDO_DEVICE void span_row(ordo_span *to, const ordo_tile_word *words, int32_t across, int lane)
{
    ordo_span all = ordo_blocks_span(0, 0);
    for (int32_t w = lane; w < across; w += 32) {
        const ordo_span span = ordo_blocks_span(__ldcg(&words[w].seen), w);
        all.first = min(all.first, span.first);
        all.last = max(all.last, span.last);
    }
    all.first = __reduce_min_sync(~0u, all.first);
    all.last = __reduce_max_sync(~0u, all.last);
    if (lane == 0)
        *to = all;
}

static __global__ void __launch_bounds__(THREADS)
    rows_kernel(const __grid_constant__ ordo_cuda_pass pass)
{
    const ordo_cuda_block_mask &blocks = pass.blocks;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int per = pass.run.band.bq / blocks.rows;
    const int64_t rows = (int64_t)blocks.lists * blocks.tiles;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int32_t head = (int32_t)(row / blocks.tiles), tile = (int32_t)(row % blocks.tiles);
        ordo_tile_word *const words = blocks.words + row * blocks.across;
        for (int32_t w = threadIdx.x; w < blocks.across; w += THREADS)
            words[w] = { 0, 0, 0, 0 };
        __syncthreads();
        if (tile / per >= ordo_batch_before(&pass.batch, ORDO_BEFORE_QUERY, pass.batch.sequences))
            continue;
        const int32_t b = ordo_batch_find(&pass.batch, ORDO_BEFORE_QUERY, tile / per);
        const ordo_cuda_sequence s = ordo_batch_sequence(&pass.batch, b);
        const row_place at = { blocks, ordo_sequence_band(&s, blocks.rows, ORDO_BLOCK),
                               ordo_blocks_mask(&blocks, b, head), tile - s.query_tile * per };
        if (at.i * blocks.rows >= s.q_len) /* the second half of a sequence's last tile */
            continue;
        mark_row(at, words, warp, lane);
        __syncthreads();
        if (warp == 0 && blocks.spans)
            span_row(blocks.spans + row, words, blocks.across, lane);
        else if (warp == 0)
            count_row(words, blocks.across, lane);
    }
}

static __global__ void __launch_bounds__(THREADS)
    columns_kernel(const __grid_constant__ ordo_cuda_pass pass)
{
    const ordo_cuda_block_mask &blocks = pass.blocks;
    const int lane = threadIdx.x % 32, per = pass.run.band.bk / ORDO_BLOCK;
    const int64_t columns = (int64_t)blocks.lists * blocks.key_tiles;
    for (int64_t x = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; x < columns;
         x += (int64_t)gridDim.x * WARPS) {
        const int32_t head = (int32_t)(x / blocks.key_tiles);
        const int32_t tile = (int32_t)(x % blocks.key_tiles);
        if (tile / per >= ordo_batch_before(&pass.batch, ORDO_BEFORE_KEY, pass.batch.sequences))
            continue;
        const ordo_cuda_sequence s = ordo_batch_sequence(
            &pass.batch, ordo_batch_find(&pass.batch, ORDO_BEFORE_KEY, tile / per));
        const int32_t j = tile - s.key_tile * per;
        uint32_t *const column = ordo_blocks_column(&blocks, head, s.key_tile * per, j);
        const int32_t tiles = (s.q_len + blocks.rows - 1) / blocks.rows;
        int32_t count = 0;
        for (int32_t w = 0; w < blocks.down; w++) {
            const int32_t i = w * ORDO_TILE_BITS + lane;
            const bool seen =
                i < tiles &&
                ordo_bit(ordo_blocks_words(&blocks, head, s.query_tile, i)[j / ORDO_TILE_BITS].seen,
                         j);
            const uint32_t bits = __ballot_sync(~0u, seen);
            count += ordo_bits_count(bits);
            if (lane == 0)
                column[1 + w] = bits;
        }
        if (lane == 0)
            column[0] = (uint32_t)count;
    }
}

static ordo_status launch(const ordo_cuda_pass *pass, const void *kernel, int64_t blocks)
{
    const int64_t most = 1 << 20;
    const ordo_cuda_grid grid = { (unsigned)(blocks < most ? blocks : most), THREADS, 0,
                                  ORDO_LAUNCH_PLAIN };
    if (blocks == 0)
        return ORDO_OK;
    return ordo_cuda_launch(kernel, pass, grid, pass->stream);
}

ordo_status ordo_cuda_tiles(const ordo_cuda_pass *pass)
{
    const ordo_cuda_block_mask *x = &pass->blocks;
    if (!x->start)
        return ORDO_OK;
    CUDA_TRY(launch(pass, (const void *)rows_kernel, (int64_t)x->lists * x->tiles));
    if (!x->columns)
        return ORDO_OK;
    return launch(pass, (const void *)columns_kernel,
                  ((int64_t)x->lists * x->key_tiles + WARPS - 1) / WARPS);
}
