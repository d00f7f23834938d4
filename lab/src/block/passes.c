/* passes.c: the forward and the backward pass of a block, over the operations of its backend.
 *
 * Keep bits: sequential makes them where attention needs them; overlapped starts to make them
 * before the products that it is to run beside, and joins before attention reads them. Beside out,
 * mlp or all, the bits are those of the next pass and go to the other place, because the backward
 * pass of this one still reads its own. Pipelined runs what comes after attention, under a causal
 * mask also the QKV projection, for one segment of rows beside bits and attention of another: the
 * bits of a row of a product do not depend on how many rows there are. */
#include <stdlib.h>

#include "base/status.h"
#include "block/block.h"

typedef ordo_block_runner runner;

/* Some rows of the batch. What is given rows takes the addresses of whole tensors. */
typedef struct span {
    int64_t first, count;
} span;

static span all_rows(const runner *r)
{
    return (span) { 0, r->rows };
}

static void *from_row(const runner *r, span rows, const void *tensor, int64_t columns)
{
    return ordo_block_from(r, tensor, rows.first * columns);
}

/* ---- products ---- */

static const ordo_block_tensor weights[] = { ORDO_BLOCK_WQKV, ORDO_BLOCK_WOUT, ORDO_BLOCK_WUP,
                                             ORDO_BLOCK_WDOWN };

/* out (rows x outputs) = in (rows x inputs) weight^T */
static ordo_status project(const runner *r, span rows, int weight, const void *in, void *out)
{
    const ordo_block_extent *w = &r->extents[weights[weight]];
    const block_product product = { .id = BLOCK_FORWARD * BLOCK_WEIGHTS + weight,
                                    .m = rows.count,
                                    .n = w->rows,
                                    .k = w->columns,
                                    .b_transposed = true,
                                    .drops = r->mode != ORDO_BLOCK_NONE,
                                    .a = from_row(r, rows, in, w->columns),
                                    .b = r->tensors[weights[weight]],
                                    .c = from_row(r, rows, out, w->rows) };
    return r->ops->multiply(r->device, &product);
}

/* din (rows x inputs) = dout weight */
static ordo_status input_gradient(const runner *r, span rows, int weight, const void *dout,
                                  void *din)
{
    const ordo_block_extent *w = &r->extents[weights[weight]];
    const block_product product = { .id = BLOCK_INPUT_GRADIENT * BLOCK_WEIGHTS + weight,
                                    .m = rows.count,
                                    .n = w->columns,
                                    .k = w->rows,
                                    .drops = r->mode != ORDO_BLOCK_NONE,
                                    .a = from_row(r, rows, dout, w->rows),
                                    .b = r->tensors[weights[weight]],
                                    .c = from_row(r, rows, din, w->columns) };
    return r->ops->multiply(r->device, &product);
}

/* dweight = dout^T in, sums over all rows */
static ordo_status weight_gradient(const runner *r, int weight, const void *in, const void *dout)
{
    const ordo_block_extent *w = &r->extents[weights[weight]];
    const block_product product = { .id = BLOCK_WEIGHT_GRADIENT * BLOCK_WEIGHTS + weight,
                                    .m = w->rows,
                                    .n = w->columns,
                                    .k = r->rows,
                                    .a_transposed = true,
                                    .drops = r->mode != ORDO_BLOCK_NONE,
                                    .a = dout,
                                    .b = in,
                                    .c = r->tensors[ORDO_BLOCK_DX + weights[weight]] };
    return r->ops->multiply(r->device, &product);
}

static ordo_status project_gradient(const runner *r, int weight, const void *in, const void *dout,
                                    void *din)
{
    ORDO_TRY(input_gradient(r, all_rows(r), weight, dout, din));
    return weight_gradient(r, weight, in, dout);
}

/* ---- norms and residuals ---- */

static ordo_status norm(const runner *r, span rows, ordo_block_tensor gain, const void *x, void *y,
                        float *factor)
{
    const int64_t columns = r->job.embed;
    if (r->job.bare)
        return ORDO_OK;
    const block_norm job = { .rows = rows.count,
                             .columns = columns,
                             .x = from_row(r, rows, x, columns),
                             .gain = r->tensors[gain],
                             .y = from_row(r, rows, y, columns),
                             .factor = factor + rows.first };
    return r->ops->norm(r->device, &job);
}

static ordo_status norm_gradient(const runner *r, ordo_block_tensor gain, const void *x,
                                 const float *factor, const void *add, void *dx)
{
    const block_norm_gradient job = { .rows = r->rows,
                                      .columns = r->job.embed,
                                      .x = x,
                                      .dy = r->at.scratch[0],
                                      .add = add,
                                      .gain = r->tensors[gain],
                                      .factor = factor,
                                      .dx = dx,
                                      .dgain = r->tensors[ORDO_BLOCK_DX + gain] };
    return r->job.bare ? ORDO_OK : r->ops->norm_gradient(r->device, &job);
}

/* sum = residual + in weight^T; a bare block has no residual. */
static ordo_status project_and_add(const runner *r, span rows, int weight, const void *in,
                                   const void *residual, void *sum)
{
    const int64_t columns = r->job.embed;
    if (r->job.bare)
        return project(r, rows, weight, in, sum);
    ORDO_TRY(project(r, rows, weight, in, r->at.scratch[0]));
    return r->ops->add(r->device, from_row(r, rows, sum, columns),
                       from_row(r, rows, residual, columns),
                       from_row(r, rows, r->at.scratch[0], columns), rows.count * columns);
}

static block_activation activation(const runner *r, span rows)
{
    return (block_activation) { .rows = rows.count,
                                .width = r->job.mlp,
                                .gated = r->job.gated,
                                .u = from_row(r, rows, r->at.u, r->up_columns),
                                .g = from_row(r, rows, r->at.g, r->job.mlp) };
}

/* ---- keep bits ---- */

static bool overlaps(const runner *r)
{
    return r->mode == ORDO_BLOCK_OVERLAPPED || r->mode == ORDO_BLOCK_OVERLAPPED_QKV;
}

static ordo_block_beside beside_of(const runner *r)
{
    return r->mode == ORDO_BLOCK_OVERLAPPED_QKV ? ORDO_BLOCK_BESIDE_QKV : r->job.beside;
}

static ordo_status make_bits(const runner *r, int place, bool beside)
{
    const block_bits bits = {
        .problem = &r->problem, .job = &r->job, .words = r->bits[place], .bytes = r->keep_bits_bytes
    };
    return r->ops->make_bits(r->device, &bits, beside);
}

/* Overlapped: at the start of the pass. */
static ordo_status bits_before_qkv(runner *r)
{
    if (!overlaps(r))
        return ORDO_OK;
    if (beside_of(r) == ORDO_BLOCK_BESIDE_QKV)
        return make_bits(r, r->current, true);
    if (!r->next_ready) /* the first pass has none before it */
        return make_bits(r, r->current, false);
    r->current = 1 - r->current;
    r->next_ready = false;
    return ORDO_OK;
}

/* Overlapped: begin with the bits of the next pass, if this is where. */
static ordo_status begin_next_bits(runner *r, ordo_block_beside where)
{
    const ordo_block_beside beside = beside_of(r);
    const bool here =
        beside == where || (beside == ORDO_BLOCK_BESIDE_ALL && where == ORDO_BLOCK_BESIDE_OUT);
    if (!overlaps(r) || !here)
        return ORDO_OK;
    r->next_ready = true;
    return make_bits(r, 1 - r->current, true);
}

static ordo_status end_next_bits(const runner *r, ordo_block_beside where)
{
    return overlaps(r) && beside_of(r) == where ? r->ops->join(r->device) : ORDO_OK;
}

/* ---- attention ---- */

ordo_status ordo_block_attend_all(const runner *r, bool drops, const uint32_t *words, bool backward)
{
    block_attention attention = { .plan = r->plans[drops], .call = r->call, .backward = backward };
    const block_bits bits = { .problem = &r->problem, .job = &r->job };
    attention.call.keep_bits = words;
    if (drops && !words && ordo_block_is_experiment(&r->job))
        return r->ops->attend_inside(r->device, &attention, &bits);
    return ordo_block_attend(&attention, r->call.stream);
}

static ordo_status attend_once(const runner *r, bool backward)
{
    const bool given = r->mode == ORDO_BLOCK_SEQUENTIAL || overlaps(r);
    return ordo_block_attend_all(r, r->mode != ORDO_BLOCK_NONE, given ? r->bits[r->current] : NULL,
                                 backward);
}

/* ---- the passes ---- */

static ordo_status attend(runner *r)
{
    ORDO_TRY(r->ops->join(r->device));
    if (r->mode == ORDO_BLOCK_SEQUENTIAL)
        ORDO_TRY(make_bits(r, r->current, false));
    return attend_once(r, false);
}

static ordo_status project_qkv(runner *r, span rows)
{
    return project(r, rows, BLOCK_QKV, r->at.n1, r->at.qkv);
}

/* What follows attention. */
static ordo_status finish(runner *r, span rows)
{
    const block_activations *at = &r->at;
    const block_activation act = activation(r, rows);
    ORDO_TRY(begin_next_bits(r, ORDO_BLOCK_BESIDE_OUT));
    ORDO_TRY(project_and_add(r, rows, BLOCK_OUT, at->a, r->tensors[ORDO_BLOCK_X], at->h));
    ORDO_TRY(end_next_bits(r, ORDO_BLOCK_BESIDE_OUT));
    ORDO_TRY(norm(r, rows, ORDO_BLOCK_G2, at->h, at->n2, at->factor2));
    ORDO_TRY(begin_next_bits(r, ORDO_BLOCK_BESIDE_MLP));
    ORDO_TRY(begin_next_bits(r, ORDO_BLOCK_BESIDE_UP));
    ORDO_TRY(project(r, rows, BLOCK_UP, at->n2, at->u));
    ORDO_TRY(end_next_bits(r, ORDO_BLOCK_BESIDE_UP));
    ORDO_TRY(r->ops->activate(r->device, &act));
    ORDO_TRY(begin_next_bits(r, ORDO_BLOCK_BESIDE_DOWN));
    ORDO_TRY(project_and_add(r, rows, BLOCK_DOWN, at->g, at->h, r->tensors[ORDO_BLOCK_Y]));
    ORDO_TRY(end_next_bits(r, ORDO_BLOCK_BESIDE_DOWN));
    return end_next_bits(r, ORDO_BLOCK_BESIDE_MLP);
}

/* Run it for the rows of a segment, of one sequence after the other. */
static ordo_status on_segment(runner *r, bool backward, int64_t nth,
                              ordo_status (*run)(runner *, span))
{
    const ordo_problem *segment = ordo_block_pipeline_segment(r, backward, nth);
    for (int64_t b = 0; b < r->job.batch; b++)
        ORDO_TRY(run(r, (span) { b * r->job.seq + segment->shard.row0, segment->q_len }));
    return ORDO_OK;
}

/* Beside attention of segment i, and its bits, run the products after attention of segment i - 1
 * and the projection of segment i + 1. Under a full mask attention sees the rows of all segments,
 * so that their projection comes before it. */
static ordo_status forward_in_segments(runner *r)
{
    const int64_t n = r->job.segments;
    const bool causal = r->job.causal;
    ORDO_TRY(ordo_block_pipeline_begin(r, false));
    ORDO_TRY(causal ? on_segment(r, false, 0, project_qkv) : project_qkv(r, all_rows(r)));
    for (int64_t i = 0; i < n; i++) {
        ORDO_TRY(ordo_block_pipeline_attend(r, false, i));
        if (i > 0)
            ORDO_TRY(on_segment(r, false, i - 1, finish));
        if (causal && i + 1 < n)
            ORDO_TRY(on_segment(r, false, i + 1, project_qkv));
    }
    ORDO_TRY(r->ops->join(r->device));
    return on_segment(r, false, n - 1, finish);
}

static ordo_status forward(runner *r)
{
    const block_activations *at = &r->at;
    ORDO_TRY(norm(r, all_rows(r), ORDO_BLOCK_G1, r->tensors[ORDO_BLOCK_X], at->n1, at->factor1));
    if (r->mode == ORDO_BLOCK_PIPELINED)
        return forward_in_segments(r);
    ORDO_TRY(bits_before_qkv(r));
    ORDO_TRY(project_qkv(r, all_rows(r)));
    ORDO_TRY(attend(r));
    return finish(r, all_rows(r));
}

/* The gradient of what attention gave. */
static ordo_status out_gradient(runner *r, span rows)
{
    return input_gradient(r, rows, BLOCK_OUT, r->at.dh, r->at.scratch[0]);
}

/* Beside attention of a segment, and its bits, runs the product before attention of the next one;
 * beside the last, the gradient of the weights, which sums over all rows. */
static ordo_status attend_gradient_in_segments(runner *r)
{
    ORDO_TRY(on_segment(r, true, 0, out_gradient));
    for (int64_t nth = 0; nth < r->job.segments; nth++) {
        ORDO_TRY(ordo_block_pipeline_attend(r, true, nth));
        if (nth + 1 < r->job.segments)
            ORDO_TRY(on_segment(r, true, nth + 1, out_gradient));
    }
    ORDO_TRY(weight_gradient(r, BLOCK_OUT, r->at.a, r->at.dh));
    return r->ops->join(r->device);
}

/* The backward pass of the projection to h and of attention, to scratch[1]. */
static ordo_status attend_gradient(runner *r)
{
    if (r->mode == ORDO_BLOCK_PIPELINED)
        return attend_gradient_in_segments(r);
    ORDO_TRY(project_gradient(r, BLOCK_OUT, r->at.a, r->at.dh, r->at.scratch[0]));
    if (r->mode == ORDO_BLOCK_SEQUENTIAL && r->job.regenerate)
        ORDO_TRY(make_bits(r, r->current, false));
    if (overlaps(r) && r->job.regenerate)
        ORDO_TRY(r->ops->join(r->device));
    return attend_once(r, true);
}

/* scratch[0]: dg, dn2, da, dn1; scratch[1]: du, dqkv. */
static ordo_status backward(runner *r)
{
    const block_activations *at = &r->at;
    void *const *s = at->scratch;
    const void *dy = r->tensors[ORDO_BLOCK_DY];
    void *dx = r->tensors[ORDO_BLOCK_DX];
    const bool bare = r->job.bare;
    block_activation act = activation(r, all_rows(r));
    act.dg = s[0];
    act.du = s[1];
    if (r->mode == ORDO_BLOCK_PIPELINED)
        ORDO_TRY(ordo_block_pipeline_begin(r, true)); /* beside the products before attention */
    if (overlaps(r) && r->job.regenerate) {
        ORDO_TRY(r->ops->join(r->device));
        ORDO_TRY(make_bits(r, r->current, true)); /* beside the products before attention */
    }
    ORDO_TRY(project_gradient(r, BLOCK_DOWN, at->g, dy, s[0]));
    ORDO_TRY(r->ops->activate_gradient(r->device, &act));
    ORDO_TRY(project_gradient(r, BLOCK_UP, at->n2, s[1], bare ? at->dh : s[0]));
    ORDO_TRY(norm_gradient(r, ORDO_BLOCK_G2, at->h, at->factor2, dy, at->dh));
    ORDO_TRY(attend_gradient(r));
    ORDO_TRY(project_gradient(r, BLOCK_QKV, at->n1, s[1], bare ? dx : s[0]));
    return norm_gradient(r, ORDO_BLOCK_G1, r->tensors[ORDO_BLOCK_X], at->factor1, at->dh, dx);
}

ordo_status ordo_block_forward(ordo_block_runner *r, ordo_block_mode mode)
{
    ORDO_TRY(ordo_check_pointer("runner", r));
    ORDO_TRY(ordo_check_range("mode", mode, 0, ORDO_BLOCK_MODES - 1));
    if (!ordo_block_has_mode(&r->job, mode))
        return ordo_fail(ORDO_ERR_ARGUMENT, "mode %s: the job's modes are %#x, without it",
                         ordo_block_mode_name(mode), r->job.modes);
    r->mode = mode;
    r->ran = false;
    ORDO_TRY(forward(r));
    r->ran = true;
    return ORDO_OK;
}

ordo_status ordo_block_backward(ordo_block_runner *r)
{
    ORDO_TRY(ordo_check_pointer("runner", r));
    if (!r->job.backward)
        return ordo_fail(ORDO_ERR_ARGUMENT, "backward: the job does not ask for it");
    if (!r->ran)
        return ordo_fail(ORDO_ERR_ARGUMENT, "backward: no forward pass has run before it");
    return backward(r);
}
