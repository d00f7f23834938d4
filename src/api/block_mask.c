/* block_mask.c: check block masks and element masks. */
#include "api/block_mask.h"

#include "base/blocks.h"
#include "base/environment.h"
#include "base/status.h"
#include "plan/lists.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>

/* Elements that ordo_block_mask_check() looks at: a few seconds. */
enum { CHECK_MAX = 1 << 28 };

/* ---- sizes ---- */

/* What a mask is called in messages. */
static const char *name_of(const ordo_block_mask *m)
{
    return m->bits ? "seen" : "block_mask";
}

static ordo_status check_size(const ordo_block_mask *m, const char *name, int64_t value,
                              int64_t expected)
{
    if (value != expected)
        return ordo_fail(ORDO_ERR_SHAPE, "%s.%s %" PRId64 ": expected %" PRId64, name_of(m), name,
                         value, expected);
    return ORDO_OK;
}

static ordo_status check_pointers(const ordo_block_mask *m)
{
    const struct {
        const char *name;
        const void *data;
    } arrays[] = { { "start", m->start },
                   { "key", m->key },
                   { "first", m->first },
                   { "last", m->last },
                   { "bits", m->bits } };
    if (!m->start || (!m->key && m->entries > 0))
        return ordo_fail(ORDO_ERR_ARGUMENT, "%s.%s NULL: expected an array", name_of(m),
                         m->start ? "key" : "start");
    if (!m->first != !m->last)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s.%s NULL, %s given: expected both arrays, or neither", name_of(m),
                         m->first ? "last" : "first", m->first ? "first" : "last");
    if (m->first && m->bits)
        return ordo_fail(ORDO_ERR_ARGUMENT, "seen.first given: expected NULL with bits");
    for (size_t x = 0; x < sizeof arrays / sizeof arrays[0]; x++) {
        char name[24];
        snprintf(name, sizeof name, "%s.%s", name_of(m), arrays[x].name);
        ORDO_TRY(ordo_check_aligned(name, arrays[x].data, sizeof(int32_t)));
    }
    return ORDO_OK;
}

static ordo_status check_sizes(const ordo_problem *p, const ordo_block_mask *m)
{
    const int64_t most = p->seen.on ? INT32_MAX : p->blocks.entries;
    const bool per_sequence = p->seen.per_sequence || p->blocks.per_sequence;
    ORDO_TRY(check_size(m, "q_len", m->q_len, p->q_len));
    ORDO_TRY(check_size(m, "kv_len", m->kv_len, p->kv_len));
    ORDO_TRY(check_size(m, "sequences", m->sequences, per_sequence ? p->batch : 1));
    ORDO_TRY(check_size(m, "heads", m->heads, ordo_blocks_per_head(p) ? p->heads : 1));
    if (m->entries < 0 || m->entries > most)
        return ordo_fail(ORDO_ERR_SHAPE, "%s.entries %" PRId64 ": expected 0..%" PRId64 "%s",
                         name_of(m), m->entries, most,
                         p->seen.on ? "" : ", the blocks.entries of the problem");
    return check_pointers(m);
}

/* ---- contents ---- */

/* Row i of a mask, whose starts are at start[0 ..]. */
static ordo_status check_row(const ordo_block_mask *m, int64_t number, int64_t i)
{
    const int64_t nk = ordo_blocks_of(m->kv_len), at = number * (ordo_blocks_of(m->q_len) + 1) + i;
    const int32_t begin = m->start[at], end = m->start[at + 1];
    if (begin < 0 || begin > m->entries || end < begin || end > m->entries)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "%s.start[%" PRId64 "] %" PRId32 ", [%" PRId64 "] %" PRId32
                         ": expected rows that do not decrease, within 0..%" PRId64,
                         name_of(m), at, begin, at + 1, end, m->entries);
    for (int32_t x = begin; x < end; x++) {
        const int32_t key = m->key[x] & ORDO_BLOCK_KEY;
        const int32_t before = x > begin ? m->key[x - 1] & ORDO_BLOCK_KEY : -1;
        if (m->key[x] < 0 || key >= nk || key <= before)
            return ordo_fail(ORDO_ERR_SHAPE,
                             "%s.key[%" PRId32 "] %" PRId32 ": expected %" PRId32 "..%" PRId64
                             ", ascending in a row, with or without ORDO_BLOCK_WHOLE",
                             name_of(m), x, m->key[x], before + 1, nk - 1);
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

const ordo_struct ordo_block_mask_struct =
    ORDO_STRUCT(ordo_block_mask, "block_mask", ORDO_BLOCK_MASK_INIT, NULL);

ordo_status ordo_blocks_check(const ordo_problem *p, bool host, const ordo_block_mask *blocks,
                              const ordo_block_mask *seen, ordo_block_mask *out)
{
    const ordo_block_mask *in = p->seen.on ? seen : blocks;
    *out = (ordo_block_mask)ORDO_BLOCK_MASK_INIT;
    if (!blocks != (p->blocks.entries == 0))
        return ordo_fail(
            ORDO_ERR_ARGUMENT,
            blocks ? "block_mask given: expected NULL with blocks.entries 0 in the problem"
                   : "block_mask NULL: expected a mask, with blocks.entries in the problem");
    if (!seen != !p->seen.on)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         seen ? "seen given: expected NULL without seen.on in the problem"
                              : "seen NULL: expected a mask, with seen.on in the problem");
    if (!in)
        return ORDO_OK;
    ORDO_TRY(ordo_versioned_copy(out, in, &ordo_block_mask_struct));
    if (!out->bits != !p->seen.on)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         seen ? "seen.bits NULL: expected an array (ordo_seen_make)"
                              : "block_mask.bits given: expected NULL; such a mask is call.seen");
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
        band.bq = ORDO_BLOCK;
    band.bk = ORDO_BLOCK; /* as lists have them */
    ORDO_TRY(ordo_lists_create(&lists, &band, &view));
    const ordo_status status = ordo_lists_check(&lists, kind, &band, &view, pairs);
    ordo_lists_destroy(&lists);
    return status;
}

/* As the mask that the problem says. */
static ordo_status check_lists(const ordo_problem *p, const ordo_block_mask *mask,
                               ordo_block_mask *copy)
{
    const bool seen = p->seen.on;
    return ordo_blocks_check(p, true, seen ? NULL : mask, seen ? mask : NULL, copy);
}

static ordo_status check_mask(const ordo_plan *plan, const ordo_block_mask *mask, uint64_t *pairs)
{
    const ordo_problem *p = &plan->problem;
    ordo_block_mask m;
    uint64_t all = 0;
    ORDO_TRY(check_lists(p, mask, &m));
    const double elements = (double)(m.sequences * m.heads) * (double)p->q_len * (double)p->kv_len;
    if (elements > CHECK_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "block mask check: %.0f elements: expected at most %d", elements,
                         CHECK_MAX);
    for (int64_t b = 0; b < m.sequences; b++)
        for (int64_t head = 0; head < m.heads; head++)
            ORDO_TRY(check_turns(plan, &m, b, head, &all));
    if (pairs)
        *pairs = all;
    return ORDO_OK;
}

ordo_status ordo_block_mask_check_lists(const ordo_plan *plan, const ordo_block_mask *mask)
{
    ordo_block_mask copy;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("mask", mask));
    return check_lists(&plan->problem, mask, &copy);
}

ordo_status ordo_block_mask_check(const ordo_plan *plan, const ordo_block_mask *mask,
                                  uint64_t *pairs)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("plan", plan));
    ORDO_TRY(ordo_check_pointer("mask", mask));
    return check_mask(plan, mask, pairs);
}
