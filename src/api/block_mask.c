/* block_mask.c: check block masks. */
#include "api/block_mask.h"

#include "base/blocks.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "plan/lists.h"
#include "plan/plan.h"

#include <inttypes.h>

/* Elements that ordo_block_mask_check() looks at: a few seconds. */
enum { CHECK_MAX = 1 << 28 };

/* ---- sizes ---- */

static ordo_status check_size(const char *name, int64_t value, int64_t expected)
{
    if (value != expected)
        return ordo_fail(ORDO_ERR_SHAPE, "block_mask.%s %" PRId64 ": expected %" PRId64, name,
                         value, expected);
    return ORDO_OK;
}

static ordo_status check_sizes(const ordo_problem *p, const ordo_block_mask *m)
{
    ORDO_TRY(check_size("q_len", m->q_len, p->q_len));
    ORDO_TRY(check_size("kv_len", m->kv_len, p->kv_len));
    ORDO_TRY(check_size("sequences", m->sequences, p->blocks.per_sequence ? p->batch : 1));
    ORDO_TRY(check_size("heads", m->heads, p->blocks.per_head ? p->heads : 1));
    if (m->entries < 0 || m->entries > p->blocks.entries)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "block_mask.entries %" PRId64 ": expected 0..%" PRId64
                         ", the blocks.entries of the problem",
                         m->entries, p->blocks.entries);
    if (!m->start || (!m->key && m->entries > 0))
        return ordo_fail(ORDO_ERR_ARGUMENT, "block_mask.%s NULL: expected an array",
                         m->start ? "key" : "start");
    if (!m->first != !m->last)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "block_mask.%s NULL, %s given: expected both arrays, or neither",
                         m->first ? "last" : "first", m->first ? "first" : "last");
    ORDO_TRY(ordo_check_aligned("block_mask.start", m->start, sizeof *m->start));
    ORDO_TRY(ordo_check_aligned("block_mask.key", m->key, sizeof *m->key));
    ORDO_TRY(ordo_check_aligned("block_mask.first", m->first, sizeof *m->first));
    return ordo_check_aligned("block_mask.last", m->last, sizeof *m->last);
}

/* ---- contents ---- */

/* Row i of a mask, whose starts are at start[0 ..]. */
static ordo_status check_row(const ordo_block_mask *m, int64_t number, int64_t i)
{
    const int64_t nk = ordo_blocks_of(m->kv_len), at = number * (ordo_blocks_of(m->q_len) + 1) + i;
    const int32_t begin = m->start[at], end = m->start[at + 1];
    if (begin < 0 || begin > m->entries || end < begin || end > m->entries)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "block_mask.start[%" PRId64 "] %" PRId32 ", [%" PRId64 "] %" PRId32
                         ": expected rows that do not decrease, within 0..%" PRId64,
                         at, begin, at + 1, end, m->entries);
    for (int32_t x = begin; x < end; x++) {
        const int32_t key = m->key[x] & ORDO_BLOCK_KEY;
        const int32_t before = x > begin ? m->key[x - 1] & ORDO_BLOCK_KEY : -1;
        if (m->key[x] < 0 || key >= nk || key <= before)
            return ordo_fail(ORDO_ERR_SHAPE,
                             "block_mask.key[%" PRId32 "] %" PRId32 ": expected %" PRId32
                             "..%" PRId64 ", ascending in a row, with or without ORDO_BLOCK_WHOLE",
                             x, m->key[x], before + 1, nk - 1);
    }
    return ORDO_OK;
}

static ordo_status check_contents(const ordo_block_mask *m)
{
    const int64_t masks = m->sequences * m->heads;
    for (int64_t number = 0; number < masks; number++)
        for (int64_t i = 0; i < ordo_blocks_of(m->q_len); i++)
            ORDO_TRY(check_row(m, number, i));
    for (int64_t r = 0; m->first && r < masks * m->q_len; r++) {
        if (m->first[r] < 0 || m->first[r] > m->kv_len)
            return ordo_fail(ORDO_ERR_SHAPE,
                             "block_mask.first[%" PRId64 "] %" PRId32 ": expected 0..%" PRId64, r,
                             m->first[r], m->kv_len);
        if (m->last[r] < -1 || m->last[r] >= m->kv_len)
            return ordo_fail(ORDO_ERR_SHAPE,
                             "block_mask.last[%" PRId64 "] %" PRId32 ": expected -1..%" PRId64, r,
                             m->last[r], m->kv_len - 1);
    }
    return ORDO_OK;
}

ordo_status ordo_blocks_check(const ordo_problem *p, bool host, const ordo_block_mask *in,
                              ordo_block_mask *out)
{
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_block_mask, "block_mask", ORDO_BLOCK_MASK_INIT, NULL);
    *out = (ordo_block_mask)ORDO_BLOCK_MASK_INIT;
    if (!in != (p->blocks.entries == 0))
        return ordo_fail(
            ORDO_ERR_ARGUMENT,
            in ? "block_mask given: expected NULL with blocks.entries 0 in the problem"
               : "block_mask NULL: expected a mask, with blocks.entries in the problem");
    if (!in)
        return ORDO_OK;
    ORDO_TRY(ordo_versioned_copy(out, in, &kind));
    ORDO_TRY(check_sizes(p, out));
    return host ? check_contents(out) : ORDO_OK;
}

/* ---- turns ---- */

static ordo_status check_turns(const ordo_plan *plan, const ordo_block_mask *m, int64_t b,
                               int64_t head, uint64_t *pairs)
{
    const ordo_problem *p = &plan->problem;
    ordo_band band = ordo_plan_band(plan, p->q_len, p->kv_len);
    const ordo_walk_kind kind = ordo_order_walk(plan->order, &band, 0);
    const ordo_block_view view = ordo_block_view_of(m, b, head);
    ordo_lists lists;
    if (plan->backend == ORDO_BACKEND_REF) /* which has no tiles: as blocks */
        band.bq = band.bk = ORDO_BLOCK;
    ORDO_TRY(ordo_lists_create(&lists, &band, &view));
    const ordo_status status = ordo_lists_check(&lists, kind, &band, &view, pairs);
    ordo_lists_destroy(&lists);
    return status;
}

static ordo_status check_mask(const ordo_plan *plan, const ordo_block_mask *mask, uint64_t *pairs)
{
    const ordo_problem *p = &plan->problem;
    ordo_block_mask m;
    uint64_t seen = 0;
    ORDO_TRY(ordo_blocks_check(p, true, mask, &m));
    const double elements = (double)(m.sequences * m.heads) * (double)p->q_len * (double)p->kv_len;
    if (elements > CHECK_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "block mask check: %.0f elements: expected at most %d", elements,
                         CHECK_MAX);
    for (int64_t b = 0; b < m.sequences; b++)
        for (int64_t head = 0; head < m.heads; head++)
            ORDO_TRY(check_turns(plan, &m, b, head, &seen));
    if (pairs)
        *pairs = seen;
    return ORDO_OK;
}

static ordo_status check_given(const ordo_plan *plan, const ordo_block_mask *mask)
{
    if (!plan || !mask)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s NULL: expected a pointer", plan ? "mask" : "plan");
    return ORDO_OK;
}

ordo_status ordo_block_mask_check_lists(const ordo_plan *plan, const ordo_block_mask *mask)
{
    ordo_block_mask copy;
    ORDO_TRY(check_given(plan, mask));
    return ordo_blocks_check(&plan->problem, true, mask, &copy);
}

ordo_status ordo_block_mask_check(const ordo_plan *plan, const ordo_block_mask *mask,
                                  uint64_t *pairs)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(check_given(plan, mask));
    return check_mask(plan, mask, pairs);
}
