/* sm90/forward/pass.cu: launches the forward kernel that a pass needs. */
#include "cuda/sm90/passes.h"

#include "cuda/sm90/forward/instances.h"
#include "cuda/sm90/forward/run.h"
#include "cuda/support/around.h"
#include "cuda/support/launch.h"
#include "cuda/support/sequences.h"

/* Dense, whole head sizes, no window, no sink, nothing added to scores: the dense kernel's. */
static bool is_dense(const ordo_cuda_pass *pass)
{
    return pass->layout == ORDO_DENSE && !ordo_pass_has_rule(pass) && !pass->sink &&
           pass->run.band.low <= -ORDO_BAND_OPEN && pass->head_dim == ordo_pass_bucket(pass) &&
           pass->v_head_dim == ordo_pass_bucket(pass) && ordo_pass_bucket(pass) <= 128 &&
           !pass->blocks.start &&
           /* At 64 registers do not suffice. */
           (ordo_pass_keep_source(pass) != ORDO_KEEP_MADE || ordo_pass_bucket(pass) == 128);
}

/* Whether the copy engine copies pages, in pieces of at least ORDO_PAGED_ROWS keys. */
static bool has_pieces(const ordo_cuda_pages *pages)
{
    return pages->rows % ORDO_PAGED_ROWS == 0;
}

/* Softcap and ALiBi together, softcap at head size 64, and scales that are negative or extreme, are
 * decided at run time. */
static ordo_forward_rule rule_of(const ordo_cuda_pass *pass)
{
    const ordo_score_rule rule = ordo_score_rule_of(pass->scale, pass->softcap, pass->slopes);
    if (!ordo_pass_has_rule(pass))
        return ORDO_RULE_NONE;
    if (rule.cap > 0.0f)
        return rule.biased || ordo_pass_bucket(pass) == 64 ? ORDO_RULE_ANY : ORDO_RULE_CAP;
    return rule.to_log2 == 1.0f ? ORDO_RULE_ANY : ORDO_RULE_DISTANCE;
}

#define INSTANCE(NAME)                                                                             \
    (pass->f16 ? ordo_forward_##NAME##_f16(source, rule) : ordo_forward_##NAME##_bf16(source, rule))

static ordo_forward_instance decode_instance_of(const ordo_cuda_pass *pass,
                                                const ordo_cuda_pages *pages)
{
    const ordo_keep_source source = ORDO_KEEP_NONE;
    const ordo_forward_rule rule = ORDO_RULE_ANY;
    const int32_t dim = pass->head_dim > pass->v_head_dim ? pass->head_dim : pass->v_head_dim;
    if (!has_pieces(pages))
        return dim <= 64    ? INSTANCE(gather_64)
               : dim <= 128 ? INSTANCE(gather_128)
               : dim <= 192 ? INSTANCE(gather_192)
                            : INSTANCE(gather_256);
    return dim <= 64    ? INSTANCE(decode_64)
           : dim <= 128 ? INSTANCE(decode_128)
           : dim <= 192 ? INSTANCE(decode_192)
                        : INSTANCE(decode_256);
}

/* The kernels of spread.h, in their order. */
typedef struct spread_instances {
    ordo_forward_instance choose, scores, weights, values;
} spread_instances;

static spread_instances spread_instances_of(const ordo_cuda_pass *pass,
                                            const ordo_cuda_pages *pages)
{
    const ordo_keep_source source = ORDO_KEEP_NONE;
    const ordo_forward_rule rule = ORDO_RULE_ANY;
    const int32_t dim = pass->head_dim > pass->v_head_dim ? pass->head_dim : pass->v_head_dim;
    const bool small = dim <= 128, gather = !has_pieces(pages);
    spread_instances all;
    all.choose = small ? ordo_forward_spread_choose_128(source, rule)
                       : ordo_forward_spread_choose_256(source, rule);
    all.weights = small ? INSTANCE(spread_weights_128) : INSTANCE(spread_weights_256);
    if (gather) {
        all.scores = dim <= 64    ? INSTANCE(spread_gather_64)
                     : dim <= 128 ? INSTANCE(spread_gather_128)
                     : dim <= 192 ? INSTANCE(spread_gather_192)
                                  : INSTANCE(spread_gather_256);
        all.values = small ? INSTANCE(spread_picked_128) : INSTANCE(spread_picked_256);
        return all;
    }
    all.scores = dim <= 64    ? INSTANCE(spread_scores_64)
                 : dim <= 128 ? INSTANCE(spread_scores_128)
                 : dim <= 192 ? INSTANCE(spread_scores_192)
                              : INSTANCE(spread_scores_256);
    all.values = small ? INSTANCE(spread_values_128) : INSTANCE(spread_values_256);
    return all;
}

static ordo_forward_instance paged_instance_of(const ordo_cuda_pass *pass)
{
    const ordo_keep_source source = ORDO_KEEP_NONE;
    const ordo_forward_rule rule = rule_of(pass);
    const int32_t dim = pass->head_dim > pass->v_head_dim ? pass->head_dim : pass->v_head_dim;
    return dim <= 64    ? INSTANCE(paged_64)
           : dim <= 128 ? INSTANCE(paged_128)
           : dim <= 192 ? INSTANCE(paged_192)
                        : INSTANCE(paged_256);
}

static ordo_forward_instance instance_of(const ordo_cuda_pass *pass)
{
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    const ordo_forward_rule rule = rule_of(pass);
    const bool small = ordo_pass_bucket(pass) == 64;
    const bool wide = pass->head_dim > 192 || pass->v_head_dim > 192;
    if (pass->bias.data)
        return small ? INSTANCE(bias_64) : INSTANCE(bias_128);
    if (pass->blocks.bits && ordo_pass_bucket(pass) > 128)
        return wide ? INSTANCE(seen_256) : INSTANCE(seen_192);
    if (pass->blocks.bits)
        return small ? INSTANCE(seen_64) : INSTANCE(seen_128);
    if (pass->blocks.start)
        return small ? INSTANCE(block_mask_64) : INSTANCE(block_mask_128);
    if (is_dense(pass))
        return small ? INSTANCE(dense_64) : INSTANCE(dense_128);
    if (ordo_pass_bucket(pass) <= 128 && source == ORDO_KEEP_NONE && rule != ORDO_RULE_ANY)
        return small ? INSTANCE(score_rule_64) : INSTANCE(score_rule_128);
    if (ordo_pass_bucket(pass) <= 128)
        return small ? INSTANCE(varlen_64) : INSTANCE(varlen_128);
    if (wide)
        return INSTANCE(varlen_256);
    return pass->v_head_dim <= 128 ? INSTANCE(varlen_192_128) : INSTANCE(varlen_192);
}

/* Long sequences: kernels that start early, each waits for the one before. */
static ordo_status launch_spread(const ordo_paged_args *decode, const ordo_cuda_tensor *v)
{
    const ordo_cuda_lengths stored = { decode->pages.rows, decode->run.kv_heads,
                                       decode->pages.count, decode->v_head_dim };
    ordo_paged_args mapped = *decode;
    const ordo_paged_args *const args = &mapped;
    CUDA_TRY(
        ordo_cuda_map_slices(&mapped.map.v, v, stored, ORDO_SPREAD_SLICE, 1 << decode->copy_shift));
    const ordo_cuda_pages *pages = &args->pages;
    const ordo_run *run = &args->run;
    const spread_instances kernels = spread_instances_of(args, pages);
    const int32_t most = (ORDO_SPREAD_UNITS - 1) / run->kv_heads; /* sequences */
    const int32_t slices = (args->v_head_dim + ORDO_SPREAD_SLICE - 1) / ORDO_SPREAD_SLICE;
    const unsigned units =
        (unsigned)((run->sequences < most ? run->sequences : most) * run->kv_heads * slices);
    const int64_t runs = (int64_t)pages->spread.slots / ORDO_SPREAD_RUN * run->kv_heads;
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(run->workers, INT32_MAX, &blocks));
    const struct {
        const ordo_forward_instance *kernel;
        unsigned blocks;
    } launches[] = { { &kernels.choose, 1 },
                     { &kernels.scores, (unsigned)blocks },
                     { &kernels.weights, (unsigned)(runs < 8 * blocks ? runs : 8 * blocks) },
                     { &kernels.values, units } };
    for (const auto &next : launches) {
        const ordo_cuda_grid grid = { next.blocks, next.kernel->threads, next.kernel->shared_bytes,
                                      ORDO_LAUNCH_EARLY };
        CUDA_TRY(ordo_cuda_launch(next.kernel->kernel, args, grid, args->stream));
    }
    return ORDO_OK;
}

static ordo_status launch_decode(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages,
                                 const ordo_forward_instance *kernel, int32_t queries)
{
    const ordo_run *run = &pass->run;
    ordo_paged_args args = {};
    (ordo_pass_common &)args = ordo_pass_common_of(pass);
    args.queries = queries;
    args.batch.step.forward_tile = ordo_tiles_of(run->band.q_len, queries);
    const ordo_cuda_tensor q = { pass->q.data, pass->q.sequence, pass->q.head, pass->q.row };
    ordo_cuda_lengths queried = ordo_pass_lengths(pass, false, pass->head_dim);
    const int64_t heads = queried.heads;
    queried.heads = queried.rows;
    queried.rows = heads;
    CUDA_TRY(ordo_cuda_map(&args.map.q, &q, queried, run->group_heads));
    CUDA_TRY(ordo_forward_map_keys(pass, pages, kernel->columns, &args));
    /* An upper bound for a packed batch: every sequence may have one partial tile. */
    const int64_t tiles = pass->layout == ORDO_PACKED
                              ? pass->q_rows / queries + run->sequences
                              : (int64_t)args.batch.step.forward_tile * run->sequences;
    int blocks = 0;
    CUDA_TRY(ordo_cuda_blocks(run->workers, run->kv_heads * tiles, &blocks));
    CUDA_TRY(ordo_forward_clear(pass));
    const bool spread = args.pages.spread.slots > 0;
    if (spread)
        CUDA_TRY(launch_spread(&args, &pass->v));
    const ordo_cuda_grid grid = { (unsigned)blocks, kernel->threads, kernel->shared_bytes,
                                  spread ? ORDO_LAUNCH_EARLY : ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(kernel->kernel, &args, grid, pass->stream);
}

/* Keys in pages: decode.h for sequences of few queries, and beside it the varlen kernel for those
 * of many, if a pass may have both; only the device knows. */
static ordo_status forward_pages(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages)
{
    const bool many = pass->run.band.q_len > ORDO_PAGED_FEW && has_pieces(pages);
    const ordo_forward_instance first = decode_instance_of(pass, pages);
    const ordo_forward_instance second = paged_instance_of(pass);
    const int32_t queries = ORDO_PAGED_LINES / pass->run.group_heads;
    ordo_cuda_pass own = *pass; /* the table counts the tiles of these instances */
    own.ragged.forward_rows = queries;
    own.ragged.backward_rows = second.rows;
    CUDA_TRY(ordo_cuda_sequences(&own, many ? ORDO_PAGED_FEW : 0));
    CUDA_TRY(ordo_cuda_clear_forward(pass));
    CUDA_TRY(launch_decode(pass, pages, &first, queries));
    if (many)
        CUDA_TRY(ordo_forward_launch(pass, pages, &second, ORDO_LAUNCH_EARLY));
    return ordo_repair_forward(pass, pages);
}

ordo_status ordo_wgmma_forward_flash(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages)
{
    if (pass->layout == ORDO_PACKED && pass->q_rows == 0)
        return ORDO_OK; /* nothing to write */
    if (pages)
        return forward_pages(pass, pages);
    return ordo_forward_run(pass, instance_of(pass));
}
