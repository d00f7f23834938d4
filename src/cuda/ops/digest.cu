/* ops/digest.cu: xxh64-pieces. Four threads hash one piece, one per lane of XXH64, so that a warp
 * works on eight pieces; a second launch hashes the pieces' digests of each span in the same way.
 *
 * The functions are those of the CPU (base/xxh64.h): the digests do not depend on the grid. A
 * thread reads AHEAD words before it uses them, because a lane is one chain of multiplications and
 * could not hide the latency of memory by itself. */
#include "cuda/ops/ops.h"

#include "base/xxh64.h"
#include "cuda/support/launch.h"
#include "cuda/tile/ptx.h"

enum {
    LANES = ORDO_XXH64_LANES,
    THREADS = 64,
    GROUPS = THREADS / LANES, /* ranges of bytes per block */
    AHEAD = 16,
    FEW = 160 /* spans that fit the 4096 bytes of a launch's parameters */
};

typedef struct digest_span {
    const unsigned char *data;
    uint64_t bytes;
    int64_t first; /* its first piece among those of the launch */
} digest_span;

typedef struct digest_args {
    uint64_t *pieces, *digests;
    int64_t ranges; /* to hash: pieces, or spans */
    int32_t count;
    digest_span at[FEW];
} digest_args;
static_assert(sizeof(digest_args) <= 4096, "parameters of a launch");

typedef struct range {
    const unsigned char *data;
    uint64_t bytes;
} range;

/* Piece number `x` of the launch. */
ORDO_DEVICE range piece_at(const digest_args &args, int64_t x)
{
    int low = 0, high = args.count; /* the last span whose first piece is not after x */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (args.at[middle].first <= x)
            low = middle;
        else
            high = middle;
    }
    const uint64_t piece = (uint64_t)(x - args.at[low].first);
    return { args.at[low].data + piece * ORDO_PIECE_BYTES,
             ordo_piece_bytes(args.at[low].bytes, piece) };
}

/* The digests of the pieces of span `x`. */
ORDO_DEVICE range digests_at(const digest_args &args, int64_t x)
{
    return { (const unsigned char *)(args.pieces + args.at[x].first),
             8 * ordo_pieces(args.at[x].bytes) };
}

/* The lane's value after all whole blocks of the range. */
ORDO_DEVICE uint64_t hash_lane(const range &r, int lane)
{
    const uint64_t *words = (const uint64_t *)r.data + lane;
    const uint64_t blocks = r.bytes / ORDO_XXH64_BLOCK;
    uint64_t value = ordo_xxh64_first(lane), x = 0;
    for (; x + AHEAD <= blocks; x += AHEAD) {
        uint64_t word[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            word[i] = words[LANES * (x + i)];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            value = ordo_xxh64_round(value, word[i]);
    }
    for (; x < blocks; x++)
        value = ordo_xxh64_round(value, words[LANES * x]);
    return value;
}

/* Every thread of the warp takes part in the exchange, also one without a range. */
template <bool PIECES>
static __global__ void __launch_bounds__(THREADS)
    digest_kernel(const __grid_constant__ digest_args args)
{
    const int lane = threadIdx.x % LANES;
    const int64_t x = (int64_t)blockIdx.x * GROUPS + threadIdx.x / LANES;
    range r = { NULL, 0 };
    if (x < args.ranges)
        r = PIECES ? piece_at(args, x) : digests_at(args, x);
    const unsigned long long own = hash_lane(r, lane);
    const uint64_t lanes[LANES] = { __shfl_sync(~0u, own, 0, LANES),
                                    __shfl_sync(~0u, own, 1, LANES),
                                    __shfl_sync(~0u, own, 2, LANES),
                                    __shfl_sync(~0u, own, 3, LANES) };
    if (lane != 0 || x >= args.ranges)
        return;
    const unsigned char *rest = r.data + r.bytes / ORDO_XXH64_BLOCK * ORDO_XXH64_BLOCK;
    (PIECES ? args.pieces : args.digests)[x] = ordo_xxh64_finish(lanes, rest, r.bytes);
}

static ordo_status launch(const void *kernel, const digest_args *args, void *stream)
{
    const ordo_cuda_grid grid = { (unsigned)((args->ranges + GROUPS - 1) / GROUPS), THREADS, 0,
                                  ORDO_LAUNCH_PLAIN };
    if (args->ranges == 0)
        return ORDO_OK;
    return ordo_cuda_launch(kernel, args, grid, stream);
}

ordo_status ordo_cuda_digest(const ordo_bytes *spans, int64_t count, uint64_t *pieces,
                             uint64_t *digests, void *stream)
{
    for (int64_t begin = 0; begin < count; begin += FEW) {
        digest_args args;
        args.pieces = pieces;
        args.digests = digests + begin;
        args.count = count - begin < FEW ? (int32_t)(count - begin) : (int32_t)FEW;
        args.ranges = 0;
        for (int32_t x = 0; x < args.count; x++) {
            const ordo_bytes *span = &spans[begin + x];
            args.at[x].data = (const unsigned char *)span->data;
            args.at[x].bytes = span->bytes;
            args.at[x].first = args.ranges;
            args.ranges += (int64_t)ordo_pieces(span->bytes);
        }
        pieces += args.ranges;
        CUDA_TRY(launch((const void *)digest_kernel<true>, &args, stream));
        args.ranges = args.count;
        CUDA_TRY(launch((const void *)digest_kernel<false>, &args, stream));
    }
    return ORDO_OK;
}
