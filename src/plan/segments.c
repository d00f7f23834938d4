/* segments.c: divides the rows of a plan into segments. */
#include "plan/segments.h"

#include "base/checked.h"
#include "base/keep.h"

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

int64_t ordo_segment_multiple(const ordo_plan *plan)
{
    int64_t multiple = plan->backward_tile.q;
    while (multiple % ORDO_KEEP_ROWS != 0) /* a few times: tiles have at most ORDO_TILE_MAX rows */
        multiple += plan->backward_tile.q;
    return multiple;
}

int64_t ordo_segment_rows(const ordo_plan *plan, int64_t segments)
{
    const int64_t rows = plan->problem.q_len;
    return round_up((rows + segments - 1) / segments, ordo_segment_multiple(plan));
}

int64_t ordo_segment_count(const ordo_plan *plan, int64_t segments)
{
    const int64_t rows = ordo_segment_rows(plan, segments);
    return (plan->problem.q_len + rows - 1) / rows;
}

bool ordo_segment_bits(const ordo_plan *plan, int64_t rows, uint64_t *bytes)
{
    const ordo_problem *p = &plan->problem;
    *bytes = (uint64_t)ordo_keep_blocks(rows, p->kv_len);
    return ordo_mul_fits(bytes, (uint64_t)p->batch) && ordo_mul_fits(bytes, (uint64_t)p->heads) &&
           ordo_mul_fits(bytes, sizeof(uint32_t) * ORDO_KEEP_WORDS);
}

int64_t ordo_segments_within(const ordo_plan *plan, uint64_t memory)
{
    const int64_t rows = plan->problem.q_len, multiple = ordo_segment_multiple(plan);
    uint64_t whole, one;
    if (ordo_segment_bits(plan, rows, &whole) && whole <= memory)
        return 1;
    if (!ordo_segment_bits(plan, multiple, &one) || one > memory / 2)
        return 0;
    const uint64_t fit = memory / 2 / one, all = (uint64_t)(round_up(rows, multiple) / multiple);
    return (int64_t)((all + fit - 1) / fit);
}

int64_t ordo_segment_first(const ordo_plan *plan, int64_t segment)
{
    return segment * ordo_segment_rows(plan, plan->segments);
}

ordo_plan ordo_segment_plan(const ordo_plan *plan, int64_t segment)
{
    const int64_t first = ordo_segment_first(plan, segment);
    const int64_t rows = ordo_segment_rows(plan, plan->segments);
    const int64_t left = plan->problem.q_len - first;
    ordo_plan own = *plan;
    own.problem.q_len = left < rows ? left : rows;
    own.problem.shard.row0 += first;
    own.lse_rows = plan->problem.q_len;
    own.segments = 0;
    return own;
}
