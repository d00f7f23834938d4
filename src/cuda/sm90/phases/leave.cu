/* sm90/phases/leave.cu: copy the sums of dK and dV that are carried out from the workspace to the
 * caller, row by row, and only rows that are finite throughout. For head sizes above 256: several
 * blocks compute the columns of a row, and none knows whether those of the others are finite. */
#include "cuda/sm90/phases/args.h"
#include "cuda/sm90/ptx.h"
#include "cuda/support/launch.h"

enum { WARPS = 8, THREADS = 32 * WARPS };

typedef struct ordo_phase_left {
    ordo_cuda_pass pass;
    int32_t head, heads; /* key heads of the section */
} ordo_phase_left;

/* One row of `columns` f32 by one warp: copied, or marked as broken and left. */
ORDO_DEVICE bool leave_row(float *to, const float *from, uint8_t *broken, int columns, int lane)
{
    float nan = 0.0f; /* or NaN: x * 0 is 0 for all others */
    for (int c = 4 * lane; c < columns; c += 128) {
        const float4 x = __ldcg((const float4 *)(from + c));
        nan = fmaf(x.x, 0.0f, fmaf(x.y, 0.0f, fmaf(x.z, 0.0f, fmaf(x.w, 0.0f, nan))));
    }
    const bool bad = __any_sync(~0u, nan != 0.0f);
    for (int c = 4 * lane; c < columns && !bad; c += 128)
        *(float4 *)(to + c) = __ldcg((const float4 *)(from + c));
    if (bad && lane == 0)
        *broken = 1;
    return bad;
}

static __global__ void __launch_bounds__(THREADS, 1)
    phase_leave(const __grid_constant__ ordo_phase_left args)
{
    const ordo_cuda_pass &pass = args.pass;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t tiles = ordo_batch_before(&pass.batch, ORDO_BEFORE_KEY, pass.batch.sequences);
    for (int64_t unit = blockIdx.x; unit < tiles * args.heads; unit += gridDim.x) {
        const int32_t tile = (int32_t)(unit % tiles), head = (int32_t)(unit / tiles);
        const ordo_cuda_sequence s =
            ordo_batch_sequence(&pass.batch, ordo_batch_find(&pass.batch, ORDO_BEFORE_KEY, tile));
        const int32_t first = (tile - s.key_tile) * PHASE_KEYS;
        for (int32_t x = warp; x < min((int32_t)PHASE_KEYS, s.kv_len - first); x += WARPS) {
            const int32_t row = s.kv_row + first + x;
            const int64_t from = ordo_carry_row(pass.kv_rows, args.heads, s.batch, row, head);
            const int64_t to =
                ordo_carry_row(pass.kv_rows, pass.run.kv_heads, s.batch, row, args.head + head);
            const bool dk =
                leave_row(pass.carry.dk + to * pass.head_dim, pass.phase.dk + from * pass.head_dim,
                          pass.carry.dk_broken + to, pass.head_dim, lane);
            const bool dv = leave_row(pass.carry.dv + to * pass.v_head_dim,
                                      pass.phase.dv + from * pass.v_head_dim,
                                      pass.carry.dv_broken + to, pass.v_head_dim, lane);
            if ((dk || dv) && lane == 0)
                pass.ticket[ORDO_NOT_FINITE] = 1;
        }
    }
}

ordo_status ordo_phase_leave(const ordo_cuda_pass *pass, int32_t head, int32_t heads)
{
    const ordo_phase_left args = { *pass, head, heads };
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(pass->run.workers, INT32_MAX, &blocks));
    const ordo_cuda_grid grid = { 4u * (unsigned)blocks, THREADS, 0, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch((const void *)phase_leave, &args, grid, pass->stream);
}
