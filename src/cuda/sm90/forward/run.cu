/* sm90/forward/run.cu: launches an instance of the forward kernels, and what is around it. */
#include "cuda/sm90/forward/run.h"

#include "cuda/support/around.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"

int32_t ordo_forward_copy_shift(const ordo_cuda_pages *pages, int32_t columns)
{
    int32_t shift = 0;
    while (((pages ? pages->rows : columns) | columns) % (2 << shift) == 0)
        shift++;
    return shift;
}

ordo_status ordo_forward_clear(const ordo_cuda_pass *pass)
{
    if (!pass->table)
        CUDA_CALL(
            cudaMemsetAsync(pass->ticket, 0, 2 * sizeof *pass->ticket, (cudaStream_t)pass->stream));
    return ORDO_OK;
}

ordo_status ordo_forward_map_keys(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages,
                                  int32_t columns, ordo_paged_args *args)
{
    const bool none = pass->kv_rows == 0; /* all keys are masked, but a tensor map needs memory */
    ordo_cuda_lengths stored = ordo_pass_lengths(pass, !none, pass->head_dim);
    args->copy_shift = ordo_forward_copy_shift(pages, columns);
    if (pages) {
        args->pages = *pages;
        stored.rows = pages->rows;
        stored.sequences = pages->count;
    }
    const int rows = 1 << args->copy_shift;
    CUDA_TRY(ordo_cuda_map(&args->map.k, none ? &pass->q : &pass->k, stored, rows));
    stored.head_dim = none ? pass->head_dim : pass->v_head_dim;
    return ordo_cuda_map(&args->map.v, none ? &pass->q : &pass->v, stored, rows);
}

ordo_status ordo_forward_launch(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages,
                                const ordo_forward_instance *kernel, ordo_launch kind)
{
    const int32_t heads = pass->run.kv_heads * pass->run.group_heads;
    ordo_paged_args args = {}; /* of kernels without pages the part that they know */
    (ordo_pass_common &)args = ordo_pass_common_of(pass);
    args.issue =
        ordo_forward_order(&pass->run, kernel->rows, kernel->columns, ordo_pass_bucket(pass));
    args.units = args.issue.q_tiles * args.issue.all_heads;
    args.select = ordo_keep_select_of(pass->keep.threshold);
    CUDA_TRY(ordo_cuda_map(&args.map.q, &pass->q, ordo_pass_lengths(pass, false, pass->head_dim),
                           kernel->rows));
    CUDA_TRY(ordo_forward_map_keys(pass, pages, kernel->columns, &args));
    CUDA_TRY(
        ordo_cuda_map(&args.map.o, &pass->o, ordo_pass_lengths(pass, false, pass->v_head_dim), 64));
    /* An upper bound for a packed batch: every sequence may have one partial tile. */
    const int64_t units = pass->layout == ORDO_PACKED
                              ? heads * (pass->q_rows / kernel->rows + pass->run.sequences)
                              : args.units;
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(pass->run.workers, units, &blocks));
    CUDA_TRY(ordo_forward_clear(pass));
    const ordo_cuda_grid grid = { (unsigned)blocks, kernel->threads, kernel->shared_bytes, kind };
    if (!pass->bias.data)
        return ordo_cuda_launch(kernel->kernel, &args, grid, pass->stream);
    ordo_forward_bias_args biased = {};
    (ordo_forward_args &)biased = args;
    biased.staged = ordo_cuda_bias_maps(pass);
    if (biased.staged)
        CUDA_TRY(ordo_cuda_map_bias(&biased.map_bias, pass));
    biased.bias.pairs |= biased.staged; /* how words of 16 bits are laid out */
    return ordo_cuda_launch(kernel->kernel, &biased, grid, pass->stream);
}

ordo_status ordo_forward_run(const ordo_cuda_pass *pass, ordo_forward_instance kernel)
{
    ordo_cuda_pass own = *pass; /* the table counts the tiles of this instance */
    own.ragged.forward_rows = kernel.rows;
    CUDA_TRY(ordo_cuda_sequences(&own, 0));
    CUDA_TRY(ordo_cuda_tiles(pass));
    CUDA_TRY(ordo_cuda_clear_forward(pass));
    CUDA_TRY(ordo_forward_launch(pass, NULL, &kernel, ORDO_LAUNCH_PLAIN));
    return ordo_repair_forward(pass, NULL);
}
