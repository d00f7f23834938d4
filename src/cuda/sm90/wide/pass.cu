/* sm90/wide/pass.cu: the backward pass of head sizes 129 to 256: row statistics, dK and dV, dQ. */
#include "cuda/sm90/wide/pass.h"

#include <cuda_runtime.h>

#include "cuda/sm90/wide/wide.h"
#include "cuda/support/launch.h"
#include "cuda/support/repair.h"
#include "cuda/support/sequences.h"
#include "cuda/support/statistics.h"
#include "cuda/support/unseen.h"

enum { WIDE_CACHE = 32 << 20 }; /* bytes that a section of heads may read again and again */

/* Heads of `bytes` bytes each that the cache holds, in even sections; under a full mask one: units
 * are of one length then, and heads come one after the other. */
static int32_t section_of(const ordo_run *run, int32_t heads, int64_t bytes)
{
    if (run->band.high == ORDO_BAND_OPEN && run->band.low == -ORDO_BAND_OPEN)
        return 1;
    const int64_t most = WIDE_CACHE / (bytes > 0 ? bytes : 1);
    const int64_t sections = most > 1 ? (heads + most - 1) / most : heads;
    return (int32_t)((heads + sections - 1) / sections);
}

static ordo_status arguments(const ordo_cuda_pass *pass, ordo_wide_args *args, char *why,
                             size_t why_size)
{
    const ordo_run *run = &pass->run;
    const int32_t sequences = pass->layout == ORDO_PACKED ? 1 : run->sequences;
    const ordo_cuda_lengths q = { pass->q_rows, run->kv_heads * run->group_heads, sequences,
                                  pass->head_dim };
    const ordo_cuda_lengths kv = { pass->kv_rows, run->kv_heads, sequences, pass->head_dim };
    ordo_cuda_lengths values = kv, outputs = q;
    values.head_dim = outputs.head_dim = pass->v_head_dim;
    CUDA_TRY(ordo_cuda_map(&args->k, &pass->k, kv, WIDE_TILE, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->v, &pass->v, values, WIDE_TILE, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->q, &pass->q, q, WIDE_TILE, why, why_size));
    CUDA_TRY(ordo_cuda_map(&args->dout, &pass->dout, outputs, WIDE_TILE, why, why_size));
    if (pass->carry.in) {
        CUDA_TRY(ordo_cuda_map_sums(&args->dk_sums, pass->carry.dk, kv, WIDE_TILE, why, why_size));
        CUDA_TRY(
            ordo_cuda_map_sums(&args->dv_sums, pass->carry.dv, values, WIDE_TILE, why, why_size));
    }
    args->run = *run;
    args->batch = pass->batch;
    args->dq = pass->dq;
    args->dk = pass->dk;
    args->dv = pass->dv;
    args->head_dim = pass->head_dim;
    args->v_head_dim = pass->v_head_dim;
    const int64_t row_bytes =
        2 * ((int64_t)pass->head_dim + pass->v_head_dim); /* Q and dO, or K and V */
    args->key_section =
        section_of(run, run->kv_heads, run->band.q_len * row_bytes * run->group_heads);
    args->query_section =
        section_of(run, run->kv_heads, run->band.kv_len * row_bytes) * run->group_heads;
    args->rule = ordo_score_rule_of(pass->scale, pass->softcap, pass->slopes);
    args->slopes = pass->slopes;
    args->slopes_sequence = pass->slopes_sequence;
    args->keep_scale = pass->keep_scale;
    args->out_scale = ordo_pass_dk_scale(pass);
    args->keep_bits = pass->keep_bits;
    args->maker = ordo_keep_maker_of(pass);
    args->lse2 = pass->lse2;
    args->delta = pass->delta;
    args->key_ticket = pass->ticket;
    args->query_ticket = pass->turns; /* no turns here: a counter that is cleared anyway */
    args->flag = pass->ticket + ORDO_NOT_FINITE;
    args->carry = pass->carry;
    args->kv_rows = pass->kv_rows;
    return ORDO_OK;
}

static ordo_status launch(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    const bool narrow = pass->head_dim <= 192 && pass->v_head_dim <= 192;
    const ordo_wide_kernel keys = narrow ? ordo_wide_keys_192(pass) : ordo_wide_keys(pass);
    const ordo_wide_kernel queries = narrow ? ordo_wide_queries_192(pass) : ordo_wide_queries(pass);
    ordo_wide_args args;
    CUDA_TRY(arguments(pass, &args, why, why_size));
    int blocks = 0; /* units are known on the device only, if lengths are */
    CUDA_TRY(ordo_cuda_blocks(pass->run.workers, INT32_MAX, &blocks, why, why_size));
    ordo_cuda_grid grid = { (unsigned)blocks, WIDE_THREADS, keys.shared_bytes, ORDO_LAUNCH_EARLY };
    CUDA_TRY(ordo_backward_begin(pass, false, why, why_size));
    if (pass->dk.data || pass->carry.out)
        CUDA_TRY(ordo_cuda_launch(keys.kernel, &args, grid, pass->stream, why, why_size));
    else /* the queries kernel relies on the keys kernel's wait for the statistics */
        grid.kind = ORDO_LAUNCH_PLAIN;
    if (!pass->dq.data)
        return ORDO_OK;
    grid.shared_bytes = queries.shared_bytes;
    return ordo_cuda_launch(queries.kernel, &args, grid, pass->stream, why, why_size);
}

ordo_status ordo_wgmma_backward_apart(const ordo_cuda_pass *pass, char *why, size_t why_size)
{
    CUDA_TRY(ordo_cuda_sequences(pass, why, why_size));
    CUDA_TRY(ordo_cuda_clear_backward(pass, why, why_size));
    CUDA_TRY(launch(pass, why, why_size));
    CUDA_TRY(ordo_backward_unseen(pass, why, why_size));
    return ordo_repair_backward(pass, why, why_size);
}
