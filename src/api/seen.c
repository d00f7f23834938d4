/* seen.c: make element masks of bytes, and find the ordinary masks that hide the same. */
#include "ordo/seen.h"

#include "api/block_mask.h"
#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "api/problem.h"
#include "base/blocks.h"
#include "base/checked.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "plan/band.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 };

/* ---- sizes ---- */

/* Where the arrays of a mask lie, in bytes from the begin of its memory. */
typedef struct places {
    uint64_t bits, start, key, end;
} places;

static ordo_status resolve(const ordo_problem *problem, ordo_problem *p, ordo_block_mask *mask)
{
    ORDO_TRY(ordo_problem_resolve(problem, p));
    if (!p->seen.on)
        return ordo_fail(ORDO_ERR_ARGUMENT, "problem.seen.on false: expected true");
    *mask = (ordo_block_mask)ORDO_BLOCK_MASK_INIT;
    mask->q_len = p->q_len;
    mask->kv_len = p->kv_len;
    mask->sequences = p->seen.per_sequence ? p->batch : 1;
    mask->heads = p->seen.per_head ? p->heads : 1;
    return ORDO_OK;
}

static ordo_status place_arrays(const ordo_block_mask *m, places *at)
{
    const uint64_t masks = (uint64_t)(m->sequences * m->heads);
    const uint64_t nq = (uint64_t)ordo_blocks_of(m->q_len),
                   nk = (uint64_t)ordo_blocks_of(m->kv_len);
    uint64_t entries = masks, starts = masks, bits = masks;
    if (!ordo_mul_fits(&entries, nq * nk) || entries > INT32_MAX ||
        !ordo_mul_fits(&starts, 4 * (nq + 1)) ||
        !ordo_mul_fits(&bits, (uint64_t)ordo_keep_blocks(m->q_len, m->kv_len)) ||
        !ordo_mul_fits(&bits, 4 * ORDO_KEEP_WORDS))
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "seen: %" PRId64 " x %" PRId64 " masks of %" PRIu64 " x %" PRIu64
                         " blocks: expected at most 2^31 - 1 blocks",
                         m->sequences, m->heads, nq, nk);
    *at = (places) { .bits = 0, .start = bits, .key = bits + starts };
    at->end = at->key + 4 * entries;
    return ORDO_OK;
}

ordo_status ordo_seen_bytes(const ordo_problem *problem, size_t *bytes)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_problem p;
    ordo_block_mask mask;
    places at;
    ORDO_TRY(ordo_check_pointer("bytes", bytes));
    ORDO_TRY(resolve(problem, &p, &mask));
    ORDO_TRY(place_arrays(&mask, &at));
    *bytes = (size_t)at.end;
    return ORDO_OK;
}

/* ---- bits ---- */

/* Up to 8 bytes, each as a bit of its own byte. */
static uint64_t bits_of(const unsigned char *from, int64_t stride, int count)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t x = 0;
    if (stride == 1 && count == 8)
        memcpy(&x, from, sizeof x);
    else
        for (int c = 0; c < count; c++)
            x |= (uint64_t)from[c * stride] << (8 * c);
    return ((((x & 0x7f * ones) + 0x7f * ones) | x) >> 7) & ones;
}

/* `columns` elements of a row as the four words of its block of keep bits. */
static void row_words(const unsigned char *from, int64_t stride, int columns, uint32_t words[4])
{
    for (int q = 0; q < 4; q++)
        words[q] = 0;
    for (int j = 0; 8 * j < columns; j++) {
        const int count = ordo_min32(columns - 8 * j, 8);
        const uint64_t seen = bits_of(from + 8 * j * stride, stride, count);
        for (int q = 0; q < 4; q++)
            words[q] |= (uint32_t)(seen >> (16 * q) & 0x101) << (16 * (j & 1) + 7 - j / 2);
    }
}

/* One block of 128 x 128 elements from (row, column) on; the number that are seen. */
static int pack_block(const unsigned char *from, const int64_t *strides, int64_t kv_len,
                      int64_t row, int rows, int64_t column, int columns, uint32_t *bits)
{
    int count = 0;
    for (int r = 0; r < rows; r++) {
        uint32_t words[4];
        row_words(from + (row + r) * strides[2] + column * strides[3], strides[3], columns, words);
        for (int64_t q = 0; q < 4; q++) {
            bits[ordo_keep_index(kv_len, row + r, column / ORDO_BLOCK, q)] = words[q];
            count += __builtin_popcount(words[q]);
        }
    }
    return count;
}

/* The bits and the list of one mask, whose entries follow those before it. */
static void pack_mask(const unsigned char *from, const int64_t *strides, int64_t q_len,
                      int64_t kv_len, uint32_t *bits, int32_t *start, int32_t *key,
                      int64_t *entries)
{
    start[0] = (int32_t)*entries;
    for (int64_t row = 0; row < q_len; row += ORDO_BLOCK) {
        const int rows = q_len - row < ORDO_BLOCK ? (int)(q_len - row) : ORDO_BLOCK;
        for (int64_t column = 0; column < kv_len; column += ORDO_BLOCK) {
            const int columns = kv_len - column < ORDO_BLOCK ? (int)(kv_len - column) : ORDO_BLOCK;
            const int count = pack_block(from, strides, kv_len, row, rows, column, columns, bits);
            const int32_t whole = count == rows * columns ? ORDO_BLOCK_WHOLE : 0;
            if (count > 0)
                key[(*entries)++] = (int32_t)(column / ORDO_BLOCK) | whole;
        }
        start[row / ORDO_BLOCK + 1] = (int32_t)*entries;
    }
}

/* The mask with its arrays in `memory`, still to be filled. */
static ordo_status lay_out(const ordo_block_mask *seen, const ordo_problem *problem,
                           const void *elements, const int64_t strides[4], void *memory,
                           size_t bytes, ordo_block_mask *m)
{
    ordo_problem p;
    places at;
    ORDO_TRY(resolve(problem, &p, m));
    ORDO_TRY(place_arrays(m, &at));
    ORDO_TRY(ordo_check_pointer("seen", seen));
    ORDO_TRY(ordo_check_pointer("strides", strides));
    ORDO_TRY(ordo_check_pointer("memory", memory));
    if (p.q_len > 0 && p.kv_len > 0)
        ORDO_TRY(ordo_check_pointer("elements", elements));
    ORDO_TRY(ordo_check_aligned("memory", memory, ALIGN));
    if (bytes < at.end)
        return ordo_fail(ORDO_ERR_SHAPE, "bytes %zu: expected %" PRIu64 " (ordo_seen_bytes)", bytes,
                         at.end);
    m->bits = memory;
    m->start = (const int32_t *)(void *)((char *)memory + at.start);
    m->key = (const int32_t *)(void *)((char *)memory + at.key);
    return ORDO_OK;
}

ordo_status ordo_seen_make(ordo_block_mask *seen, const ordo_problem *problem, const void *elements,
                           const int64_t strides[4], void *memory, size_t bytes)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_block_mask m;
    ORDO_TRY(lay_out(seen, problem, elements, strides, memory, bytes, &m));
    const int64_t starts = ordo_blocks_of(m.q_len) + 1;
    const int64_t words = ordo_keep_blocks(m.q_len, m.kv_len) * ORDO_KEEP_WORDS;
    memset(memory, 0, (size_t)((const char *)m.start - (char *)memory)); /* rows that pad a block */
    for (int64_t x = 0; x < m.sequences * m.heads; x++)
        pack_mask((const unsigned char *)elements + x / m.heads * strides[0] +
                      x % m.heads * strides[1],
                  strides, m.q_len, m.kv_len, (uint32_t *)memory + x * words,
                  (int32_t *)m.start + x * starts, (int32_t *)m.key, &m.entries);
    return ordo_versioned_answer(seen, &m, &ordo_block_mask_struct);
}

ordo_status ordo_seen_make_device(ordo_block_mask *seen, const ordo_problem *problem,
                                  const void *elements, const int64_t strides[4], void *memory,
                                  size_t bytes, void *stream)
{
    ORDO_DEFAULT_ENVIRONMENT;
    const ordo_cuda_module *module = NULL;
    ordo_block_mask m;
    ORDO_TRY(lay_out(seen, problem, elements, strides, memory, bytes, &m));
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    const int64_t masks = m.sequences * m.heads, rows = ordo_blocks_of(m.q_len);
    m.entries = masks * rows * ordo_blocks_of(m.kv_len);
    if (m.entries == 0) {
        const size_t starts = sizeof *m.start * (size_t)(masks * (rows + 1));
        ORDO_TRY(ordo_cuda_answer(module, module->fill((void *)m.start, 0, starts, stream)));
        return ordo_versioned_answer(seen, &m, &ordo_block_mask_struct);
    }
    const ordo_cuda_seen pack = {
        .elements = elements,
        .strides = { strides[0], strides[1], strides[2], strides[3] },
        .q_len = (int32_t)m.q_len,
        .kv_len = (int32_t)m.kv_len,
        .sequences = (int32_t)m.sequences,
        .heads = (int32_t)m.heads,
        .bits = memory,
        .start = (int32_t *)m.start,
        .key = (int32_t *)m.key,
        .stream = stream,
    };
    ORDO_TRY(ordo_cuda_answer(module, module->pack_seen(&pack)));
    return ordo_versioned_answer(seen, &m, &ordo_block_mask_struct);
}

/* ---- kinds ---- */

/* The intervals of columns that the rows of each sequence see, first > last: none. */
typedef struct intervals {
    const ordo_problem *problem;
    int64_t sequences; /* 1: all have the same */
    int32_t *first, *last;
} intervals;

/* The columns that a row sees through a band, if they are one interval. */
static bool row_interval(const ordo_block_view *view, const ordo_band *band, int32_t row,
                         int32_t *first, int32_t *last)
{
    const int64_t from = ordo_max32(0, row + band->low);
    const int64_t to = ordo_min32(band->kv_len - 1, row + band->high);
    *first = band->kv_len;
    *last = -1;
    for (int32_t x = view->start[row / ORDO_BLOCK]; x < view->start[row / ORDO_BLOCK + 1]; x++) {
        const int32_t entry = view->key[x], left = (entry & ORDO_BLOCK_KEY) * ORDO_BLOCK;
        uint32_t limit[4], own[4];
        ordo_columns_between(from - left, to - left, limit);
        if (ordo_block_partial(view, entry))
            ordo_block_columns(view, row, entry & ORDO_BLOCK_KEY, own);
        else
            ordo_columns_between(0, ORDO_BLOCK - 1, own);
        for (int32_t c = 0; c < ORDO_BLOCK; c++) {
            if (!(own[c / 32] & limit[c / 32] & UINT32_C(1) << c % 32))
                continue;
            if (*last >= 0 && *last != left + c - 1)
                return false;
            *first = *last < 0 ? left + c : *first;
            *last = left + c;
        }
    }
    return true;
}

/* The intervals of a sequence, in which all heads agree. */
static bool sequence_intervals(const intervals *x, const ordo_block_mask *m, int64_t b)
{
    const ordo_problem *p = x->problem;
    ordo_band band = { .q_len = (int32_t)p->q_len, .kv_len = (int32_t)p->kv_len };
    ordo_band_limit(p->mask, ordo_band_diagonal(p->mask, p->q_len, p->kv_len),
                    p->window.on ? p->window.left : -1, p->window.on ? p->window.right : -1,
                    &band.low, &band.high);
    for (int64_t head = 0; head < m->heads; head++) {
        const ordo_block_view view = ordo_block_view_of(m, b, head);
        for (int32_t r = 0; r < band.q_len; r++) {
            int32_t first, last, *own = x->first + b * p->q_len + r;
            int32_t *own_last = x->last + b * p->q_len + r;
            if (!row_interval(&view, &band, r, &first, &last) ||
                (head > 0 && (first != *own || last != *own_last)))
                return false;
            *own = first;
            *own_last = last;
        }
    }
    return true;
}

/* The valid lengths of a sequence that is as short as it can be. */
static void shortest(const intervals *x, int64_t b, int32_t *q_len, int32_t *kv_len)
{
    const int64_t rows = x->problem->q_len;
    *q_len = *kv_len = 0;
    for (int64_t r = 0; r < rows; r++) {
        const int32_t last = x->last[b * rows + r];
        if (last >= 0)
            *q_len = (int32_t)r + 1;
        *kv_len = ordo_max32(*kv_len, last + 1);
    }
}

/* The sides of a window that a row whose interval ends inside the sequence has. */
static void take_window(const intervals *x, int64_t b, int64_t diagonal, int32_t kv_len,
                        bool right_too, ordo_window *w)
{
    const int64_t rows = x->problem->q_len;
    for (int64_t r = 0; r < rows; r++) {
        const int32_t first = x->first[b * rows + r], last = x->last[b * rows + r];
        if (first > last)
            continue;
        if (w->left < 0 && first > 0)
            w->left = r + diagonal - first;
        if (right_too && w->right < 0 && last < kv_len - 1)
            w->right = last - r - diagonal;
    }
    w->on = w->left >= 0 || w->right >= 0;
}

static bool sequence_agrees(const intervals *x, int64_t b, const ordo_problem *as, int32_t q_len,
                            int32_t kv_len)
{
    const int64_t rows = x->problem->q_len;
    int32_t low, high;
    ordo_band_limit(as->mask, ordo_band_diagonal(as->mask, q_len, kv_len), as->window.left,
                    as->window.right, &low, &high);
    for (int32_t r = 0; r < rows; r++) {
        const int32_t first = ordo_max32(0, r + low), last = ordo_min32(kv_len - 1, r + high);
        const int32_t own = x->first[b * rows + r], own_last = x->last[b * rows + r];
        const bool none = r >= q_len || first > last;
        if (none ? own <= own_last : own != first || own_last != last)
            return false;
    }
    return true;
}

/* Whether a mask with a window on these sides hides the same in sequences of these lengths. */
static bool agrees(const intervals *x, ordo_problem *as, ordo_mask mask, bool left, bool right,
                   const int32_t *q_lens, const int32_t *kv_lens)
{
    const ordo_problem *p = x->problem;
    const int64_t whole = ordo_band_diagonal(p->mask, p->q_len, p->kv_len);
    as->mask = mask;
    as->window = (ordo_window) { .left = -1, .right = -1 };
    for (int64_t b = 0; left && b < x->sequences; b++)
        take_window(x, b, ordo_band_diagonal(mask, q_lens[b], kv_lens[b]), kv_lens[b], right,
                    &as->window);
    for (int64_t b = 0; b < x->sequences; b++)
        if (!sequence_agrees(x, b, as, q_lens[b], kv_lens[b]) ||
            (p->alibi && ordo_band_diagonal(mask, q_lens[b], kv_lens[b]) != whole))
            return false;
    if (!as->window.on)
        as->window = (ordo_window) { .on = false };
    return true;
}

static bool find_kind(const intervals *x, ordo_problem *as, const int32_t *q_lens,
                      const int32_t *kv_lens)
{
    return agrees(x, as, ORDO_MASK_FULL, false, false, q_lens, kv_lens) ||
           agrees(x, as, ORDO_MASK_CAUSAL, true, false, q_lens, kv_lens) ||
           agrees(x, as, ORDO_MASK_CAUSAL_TOP_LEFT, true, false, q_lens, kv_lens) ||
           agrees(x, as, ORDO_MASK_FULL, true, true, q_lens, kv_lens);
}

/* With the lengths of the problem, or the shortest ones. `lengths`: two for each sequence. */
static bool find_lengths(const intervals *x, ordo_problem *as, bool padded, int32_t *lengths)
{
    int32_t *q_lens = lengths, *kv_lens = lengths + x->sequences;
    for (int64_t b = 0; b < x->sequences; b++) {
        q_lens[b] = (int32_t)x->problem->q_len;
        kv_lens[b] = (int32_t)x->problem->kv_len;
        if (padded)
            shortest(x, b, &q_lens[b], &kv_lens[b]);
    }
    return find_kind(x, as, q_lens, kv_lens);
}

static ordo_status prove(const ordo_problem *p, const ordo_block_mask *m, ordo_problem *as,
                         int32_t *q_lens, int32_t *kv_lens)
{
    const size_t sequences = (size_t)m->sequences, rows = (size_t)p->q_len;
    int32_t *memory = calloc(sequences + 1, 2 * (rows + 1) * sizeof *memory);
    if (!memory)
        return ordo_fail(ORDO_ERR_MEMORY, "seen: %zu x %zu rows: out of memory", sequences, rows);
    int32_t *lengths = memory + 2 * sequences * rows;
    const intervals x = { p, m->sequences, memory, memory + sequences * rows };
    ordo_problem found = *p;
    bool one = true, padded = false;
    for (int64_t b = 0; b < m->sequences && one; b++)
        one = sequence_intervals(&x, m, b);
    found.seen = (ordo_seen_limits) { .on = false };
    one = one && (find_lengths(&x, &found, false, lengths) ||
                  (padded = q_lens && find_lengths(&x, &found, true, lengths)));
    if (one)
        *as = found;
    for (int64_t b = 0; padded && b < p->batch; b++) {
        as->layout = ORDO_PADDED;
        q_lens[b] = lengths[m->sequences > 1 ? b : 0];
        kv_lens[b] = lengths[m->sequences + (m->sequences > 1 ? b : 0)];
    }
    free(memory);
    return ORDO_OK;
}

ordo_status ordo_seen_kind(const ordo_problem *problem, const ordo_block_mask *seen,
                           ordo_problem *as, int32_t *q_lens, int32_t *kv_lens)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_problem p, found;
    ordo_block_mask m;
    ORDO_TRY(ordo_check_pointer("seen", seen));
    ORDO_TRY(ordo_check_pointer("as", as));
    if (!q_lens != !kv_lens)
        return ordo_check_pointer(q_lens ? "kv_lens" : "q_lens", NULL);
    ORDO_TRY(resolve(problem, &p, &m));
    ORDO_TRY(ordo_blocks_check(&p, true, NULL, seen, &m));
    found = p;
    const ordo_shard *s = &p.shard;
    if (p.layout == ORDO_DENSE && s->q_total == p.q_len && s->kv_total == p.kv_len)
        ORDO_TRY(prove(&p, &m, &found, q_lens, kv_lens));
    found = ordo_problem_original(&found);
    return ordo_versioned_answer(as, &found, &ordo_problem_struct);
}
