/* block_mask_make.c: make block masks. Documents, chunks and bands are intervals of columns per
 * row. */
#include "base/blocks.h"
#include "base/environment.h"
#include "base/mask.h"
#include "base/status.h"
#include "plan/band.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static ordo_status no_memory(void)
{
    return ordo_fail(ORDO_ERR_MEMORY, "block mask: out of memory");
}

void ordo_block_mask_destroy(ordo_block_mask *mask)
{
    if (!mask)
        return;
    free((void *)mask->start);
    free((void *)mask->key);
    free((void *)mask->first);
    free((void *)mask->last);
    free(mask);
}

/* ---- a mask that grows row by row ---- */

typedef struct maker {
    ordo_block_mask *mask;
    int32_t *start, *key, *first, *last; /* lists of the mask */
    int64_t room;                        /* for entries */
} maker;

static ordo_status maker_open(maker *m, int64_t q_len, int64_t kv_len, int64_t sequences,
                              int64_t heads)
{
    ORDO_TRY(ordo_check_range("q_len", q_len, 0, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("kv_len", kv_len, 0, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("sequences", sequences, 1, ORDO_LENGTH_MAX));
    ORDO_TRY(ordo_check_range("heads", heads, 1, ORDO_LENGTH_MAX / sequences));
    const size_t masks = (size_t)(sequences * heads), rows = (size_t)q_len;
    *m = (maker) { .mask = calloc(1, sizeof *m->mask), .room = 64 };
    if (!m->mask)
        return no_memory();
    m->start = calloc(masks, ((size_t)ordo_blocks_of(q_len) + 1) * sizeof *m->start);
    m->key = malloc((size_t)m->room * sizeof *m->key);
    m->first = calloc(masks, (rows + 1) * sizeof *m->first);
    m->last = calloc(masks, (rows + 1) * sizeof *m->last);
    *m->mask = (ordo_block_mask) { .size = sizeof *m->mask,
                                   .q_len = q_len,
                                   .kv_len = kv_len,
                                   .sequences = sequences,
                                   .heads = heads,
                                   .start = m->start,
                                   .key = m->key,
                                   .first = m->first,
                                   .last = m->last };
    if (m->start && m->key && m->first && m->last)
        return ORDO_OK;
    ordo_block_mask_destroy(m->mask);
    return no_memory();
}

static ordo_status maker_add(maker *m, int32_t entry)
{
    if (m->mask->entries == INT32_MAX)
        return ordo_fail(ORDO_ERR_OVERFLOW, "block mask: expected at most 2^31 - 1 entries");
    if (m->mask->entries == m->room) {
        int32_t *more = realloc(m->key, 2 * (size_t)m->room * sizeof *more);
        if (!more)
            return no_memory();
        m->mask->key = m->key = more;
        m->room *= 2;
    }
    m->key[m->mask->entries++] = entry;
    return ORDO_OK;
}

/* Give the mask to the caller, or destroy it. */
static ordo_status maker_close(const maker *m, ordo_status status, ordo_block_mask **mask)
{
    if (status == ORDO_OK)
        *mask = m->mask;
    else
        ordo_block_mask_destroy(m->mask);
    return status;
}

/* ---- intervals ---- */

/* What rows of one block row see: differences of the number of rows, by block of columns. */
typedef struct counts {
    int32_t *meet, *cover; /* nk + 1: rows that see some of a block, and all of it */
} counts;

static void count_row(const counts *n, int64_t kv_len, int32_t first, int32_t last)
{
    const int32_t from = (first + ORDO_BLOCK - 1) / ORDO_BLOCK;
    const int32_t to = last + 1 == kv_len ? last / ORDO_BLOCK + 1 : (last + 1) / ORDO_BLOCK;
    if (first > last)
        return;
    n->meet[first / ORDO_BLOCK]++;
    n->meet[last / ORDO_BLOCK + 1]--;
    if (from < to) {
        n->cover[from]++;
        n->cover[to]--;
    }
}

static ordo_status list_intervals(maker *m, const counts *n)
{
    const int64_t q_len = m->mask->q_len, kv_len = m->mask->kv_len, nk = ordo_blocks_of(kv_len);
    for (int64_t i = 0; i < ordo_blocks_of(q_len); i++) {
        const int64_t begin = i * ORDO_BLOCK;
        const int64_t end = begin + ORDO_BLOCK < q_len ? begin + ORDO_BLOCK : q_len;
        memset(n->meet, 0, (size_t)(nk + 1) * sizeof *n->meet);
        memset(n->cover, 0, (size_t)(nk + 1) * sizeof *n->cover);
        for (int64_t r = begin; r < end; r++)
            count_row(n, kv_len, m->first[r], m->last[r]);
        int32_t meet = 0, cover = 0;
        for (int64_t j = 0; j < nk; j++) {
            meet += n->meet[j];
            cover += n->cover[j];
            if (meet > 0)
                ORDO_TRY(maker_add(m, (int32_t)j | (cover == end - begin ? ORDO_BLOCK_WHOLE : 0)));
        }
        m->start[i + 1] = (int32_t)m->mask->entries;
    }
    return ORDO_OK;
}

/* Lists of the intervals that the maker holds. */
static ordo_status close_intervals(maker *m, ordo_block_mask **mask)
{
    const size_t nk = (size_t)ordo_blocks_of(m->mask->kv_len);
    int32_t *memory = malloc(2 * (nk + 1) * sizeof *memory);
    const counts n = { memory, memory ? memory + nk + 1 : NULL };
    const ordo_status status = memory ? list_intervals(m, &n) : no_memory();
    free(memory);
    return maker_close(m, status, mask);
}

ordo_status ordo_block_mask_from_intervals(ordo_block_mask **mask, int64_t q_len, int64_t kv_len,
                                           const int32_t *first, const int32_t *last)
{
    ORDO_DEFAULT_ENVIRONMENT;
    maker m;
    ORDO_TRY(ordo_check_pointer("mask", mask));
    *mask = NULL;
    if (q_len > 0) {
        ORDO_TRY(ordo_check_pointer("first", first));
        ORDO_TRY(ordo_check_pointer("last", last));
    }
    ORDO_TRY(ordo_check_aligned("first", first, sizeof *first));
    ORDO_TRY(ordo_check_aligned("last", last, sizeof *last));
    for (int64_t r = 0; r < q_len; r++)
        if (first[r] < 0 || first[r] > kv_len || last[r] < -1 || last[r] >= kv_len)
            return ordo_fail(ORDO_ERR_ARGUMENT,
                             "first[%" PRId64 "] %" PRId32 ", last %" PRId32
                             ": expected 0..%" PRId64 " and -1..%" PRId64,
                             r, first[r], last[r], kv_len, kv_len - 1);
    ORDO_TRY(maker_open(&m, q_len, kv_len, 1, 1));
    for (int64_t r = 0; r < q_len; r++) {
        m.first[r] = first[r];
        m.last[r] = last[r];
    }
    return close_intervals(&m, mask);
}

typedef struct document {
    int64_t id, begin;
} document;

static int by_id(const void *a, const void *b)
{
    const document *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* No id comes back after another one. */
static ordo_status check_documents(const int64_t *ids, int64_t length, int64_t count)
{
    document *all = malloc((size_t)(count + 1) * sizeof *all);
    ordo_status status = ORDO_OK;
    int64_t entries = 0;
    if (!all)
        return no_memory();
    for (int64_t r = 0; r < length; r++)
        if (ids[r] >= 0 && (r == 0 || ids[r] != ids[r - 1]))
            all[entries++] = (document) { ids[r], r };
    qsort(all, (size_t)entries, sizeof *all, by_id);
    for (int64_t x = 1; x < entries && status == ORDO_OK; x++)
        if (all[x].id == all[x - 1].id)
            status = ordo_fail(ORDO_ERR_UNSUPPORTED,
                               "ids[%" PRId64 "] %" PRId64 ": comes back after other documents, as "
                               "in ids[%" PRId64 "]; expected documents of consecutive rows",
                               all[x].begin, all[x].id, all[x - 1].begin);
    free(all);
    return status;
}

ordo_status ordo_block_mask_from_documents(ordo_block_mask **mask, int64_t length,
                                           const int64_t *ids)
{
    ORDO_DEFAULT_ENVIRONMENT;
    maker m;
    int64_t documents = 0;
    ORDO_TRY(ordo_check_pointer("mask", mask));
    *mask = NULL;
    if (length > 0)
        ORDO_TRY(ordo_check_pointer("ids", ids));
    ORDO_TRY(ordo_check_aligned("ids", ids, sizeof *ids));
    ORDO_TRY(maker_open(&m, length, length, 1, 1));
    for (int64_t begin = 0, end; begin < length; begin = end) {
        for (end = begin; end < length && ids[end] == ids[begin]; end++)
            ;
        for (int64_t r = begin; r < end; r++) {
            m.first[r] = ids[begin] < 0 ? 0 : (int32_t)begin;
            m.last[r] = ids[begin] < 0 ? -1 : (int32_t)end - 1;
        }
        documents += ids[begin] >= 0;
    }
    const ordo_status status = check_documents(ids, length, documents);
    return status == ORDO_OK ? close_intervals(&m, mask) : maker_close(&m, status, mask);
}

ordo_status ordo_block_mask_from_chunks(ordo_block_mask **mask, int64_t q_len, int64_t kv_len,
                                        int64_t chunk, int64_t offset)
{
    ORDO_DEFAULT_ENVIRONMENT;
    maker m;
    ORDO_TRY(ordo_check_pointer("mask", mask));
    *mask = NULL;
    ORDO_TRY(ordo_check_range("chunk", chunk, 1, INT64_MAX));
    ORDO_TRY(ordo_check_range("offset", offset, 0, kv_len < 0 ? 0 : kv_len));
    ORDO_TRY(maker_open(&m, q_len, kv_len, 1, 1));
    for (int64_t r = 0; r < q_len; r++) {
        const int64_t at = r + ordo_band_diagonal(ORDO_MASK_CAUSAL, q_len, kv_len);
        const int64_t first = at < offset ? 0 : at - (at - offset) % chunk;
        const int64_t end = at < offset ? offset : chunk >= kv_len - first ? kv_len : first + chunk;
        m.first[r] = at < 0 ? 0 : (int32_t)first; /* a row before the first column sees nothing */
        m.last[r] = at < 0 ? -1 : (int32_t)end - 1;
    }
    return close_intervals(&m, mask);
}

ordo_status ordo_block_mask_from_band(ordo_block_mask **mask, int64_t q_len, int64_t kv_len,
                                      ordo_mask kind, const ordo_window *window)
{
    ORDO_DEFAULT_ENVIRONMENT;
    maker m;
    int32_t low, high;
    const bool on = window && window->on;
    ORDO_TRY(ordo_check_pointer("mask", mask));
    *mask = NULL;
    ORDO_TRY(ordo_check_mask("kind", kind));
    if (on) {
        ORDO_TRY(ordo_check_range("window.left", window->left, -1, INT64_MAX));
        ORDO_TRY(ordo_check_range("window.right", window->right, -1, INT64_MAX));
    }
    ORDO_TRY(maker_open(&m, q_len, kv_len, 1, 1));
    const int64_t open = ORDO_BAND_OPEN, left = on ? window->left : -1;
    const int64_t right = on ? window->right : -1;
    ordo_band_limit(kind, ordo_band_diagonal(kind, q_len, kv_len), left < open ? left : -1,
                    right < open ? right : -1, &low, &high);
    for (int64_t r = 0; r < q_len; r++) {
        const int64_t first = r + low < 0 ? 0 : r + low, last = r + high;
        m.first[r] = (int32_t)(first > kv_len ? kv_len : first);
        m.last[r] = (int32_t)(last < 0 ? -1 : last >= kv_len ? kv_len - 1 : last);
    }
    return close_intervals(&m, mask);
}

/* ---- functions ---- */

/* One row of blocks: `seen` has q_len x kv_len marks of its rows. */
static ordo_status list_marks(maker *m, int64_t begin, int64_t rows, const bool *seen)
{
    const int64_t kv_len = m->mask->kv_len;
    for (int64_t r = begin; r < begin + rows; r++) {
        m->first[r] = (int32_t)kv_len;
        m->last[r] = -1;
    }
    for (int64_t left = 0; left < kv_len; left += ORDO_BLOCK) {
        const int64_t end = left + ORDO_BLOCK < kv_len ? left + ORDO_BLOCK : kv_len;
        int64_t count = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = left; c < end; c++)
                count += seen[r * kv_len + c];
        const bool whole = count == rows * (end - left);
        for (int64_t r = 0; r < rows && !whole; r++)
            for (int64_t c = left; c < end; c++)
                if (seen[r * kv_len + c]) {
                    if (m->first[begin + r] > c)
                        m->first[begin + r] = (int32_t)c;
                    m->last[begin + r] = (int32_t)c;
                }
        if (count > 0)
            ORDO_TRY(maker_add(m, (int32_t)(left / ORDO_BLOCK) | (whole ? ORDO_BLOCK_WHOLE : 0)));
    }
    return ORDO_OK;
}

/* What the row of blocks now says is what was marked. */
static ordo_status check_marks(const maker *m, int64_t begin, int64_t rows, const bool *seen)
{
    const int64_t kv_len = m->mask->kv_len;
    const ordo_block_view view = ordo_block_view_of(m->mask, 0, 0);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < kv_len; c++)
            if (ordo_block_sees(&view, begin + r, c) != seen[r * kv_len + c])
                return ordo_fail(ORDO_ERR_UNSUPPORTED,
                                 "row %" PRId64 ": sees columns %" PRId32 " and %" PRId32
                                 ", but not %" PRId64
                                 "; expected one interval of columns per row in partial blocks",
                                 begin + r, view.first[begin + r], view.last[begin + r], c);
    return ORDO_OK;
}

static ordo_status list_function(maker *m, ordo_block_rule *sees, void *context, bool *seen)
{
    const int64_t q_len = m->mask->q_len, kv_len = m->mask->kv_len;
    for (int64_t begin = 0; begin < q_len; begin += ORDO_BLOCK) {
        const int64_t rows = q_len - begin < ORDO_BLOCK ? q_len - begin : ORDO_BLOCK;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < kv_len; c++)
                seen[r * kv_len + c] = sees(context, begin + r, c);
        ORDO_TRY(list_marks(m, begin, rows, seen));
        m->start[begin / ORDO_BLOCK + 1] = (int32_t)m->mask->entries;
        ORDO_TRY(check_marks(m, begin, rows, seen));
    }
    return ORDO_OK;
}

ordo_status ordo_block_mask_from_function(ordo_block_mask **mask, int64_t q_len, int64_t kv_len,
                                          ordo_block_rule *sees, void *context)
{
    ORDO_DEFAULT_ENVIRONMENT;
    maker m;
    ORDO_TRY(ordo_check_pointer("mask", mask));
    *mask = NULL;
    if (!sees)
        return ordo_check_pointer("sees", NULL);
    ORDO_TRY(maker_open(&m, q_len, kv_len, 1, 1));
    bool *seen = malloc((size_t)ORDO_BLOCK * ((size_t)kv_len + 1) * sizeof *seen);
    const ordo_status status = seen ? list_function(&m, sees, context, seen) : no_memory();
    free(seen);
    return maker_close(&m, status, mask);
}

/* ---- joining ---- */

static ordo_status check_single(const ordo_block_mask *one, const ordo_block_mask *first,
                                int64_t number)
{
    if (!one || !one->start || one->sequences != 1 || one->heads != 1 ||
        one->q_len != first->q_len || one->kv_len != first->kv_len)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "masks[%" PRId64 "]: expected one mask of %" PRId64 " x %" PRId64
                         ", as masks[0] is",
                         number, first->q_len, first->kv_len);
    if (one->size >= sizeof *one && one->bits)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "masks[%" PRId64 "].bits given: expected no element mask", number);
    for (int64_t i = 0; i < ordo_blocks_of(one->q_len); i++)
        if (one->start[i] < 0 || one->start[i + 1] < one->start[i] ||
            one->start[i + 1] > one->entries || (!one->key && one->entries > 0))
            return ordo_fail(ORDO_ERR_SHAPE,
                             "masks[%" PRId64 "].start[%" PRId64 "] to start[%" PRId64
                             "]: expected rows within its %" PRId64 " entries, none before another",
                             number, i, i + 1, (int64_t)one->entries);
    return ORDO_OK;
}

static ordo_status add_mask(maker *m, const ordo_block_mask *one, int64_t number)
{
    const int64_t q_len = one->q_len, nq = ordo_blocks_of(q_len), at = number * (nq + 1);
    for (int64_t r = 0; r < q_len; r++) {
        m->first[number * q_len + r] = one->first ? one->first[r] : 0;
        m->last[number * q_len + r] = one->last ? one->last[r] : (int32_t)one->kv_len - 1;
    }
    m->start[at] = (int32_t)m->mask->entries;
    for (int64_t i = 0; i < nq; i++) {
        for (int32_t x = one->start[i]; x < one->start[i + 1]; x++)
            ORDO_TRY(maker_add(m, one->key[x]));
        m->start[at + i + 1] = (int32_t)m->mask->entries;
    }
    return ORDO_OK;
}

ordo_status ordo_block_mask_join(ordo_block_mask **mask, const ordo_block_mask *const *masks,
                                 int64_t sequences, int64_t heads)
{
    ORDO_DEFAULT_ENVIRONMENT;
    maker m;
    ORDO_TRY(ordo_check_pointer("mask", mask));
    *mask = NULL;
    ORDO_TRY(ordo_check_pointer("masks", masks));
    ORDO_TRY(ordo_check_pointer("masks[0]", masks[0]));
    ORDO_TRY(maker_open(&m, masks[0]->q_len, masks[0]->kv_len, sequences, heads));
    ordo_status status = ORDO_OK;
    for (int64_t x = 0; x < sequences * heads && status == ORDO_OK; x++) {
        status = check_single(masks[x], masks[0], x);
        if (status == ORDO_OK)
            status = add_mask(&m, masks[x], x);
    }
    return maker_close(&m, status, mask);
}
