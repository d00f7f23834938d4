/* dropout.c: keep bits of a problem: checks, sizes, single elements, packed bits. */
#include "api/dropout.h"

#include "api/call.h"
#include "api/problem.h"
#include "base/checked.h"
#include "base/cores.h"
#include "base/environment.h"
#include "base/status.h"
#include "base/versioned.h"
#include "cpu/keep.h"
#include "plan/band.h"
#include "plan/sizes.h"

#include <inttypes.h>
#include <pthread.h>

enum {
    BLOCK_BYTES = 4 * ORDO_KEEP_WORDS,
    BLOCKS_A_THREAD = 1024, /* at least; a third of a millisecond of work */
    MOST_THREADS = 256,
};

static ordo_status check_lengths(const ordo_problem *p, const ordo_dropout_call *c)
{
    const bool packed = p->layout == ORDO_PACKED;
    if ((c->cu_q != NULL) != packed || (c->cu_kv != NULL) != packed) {
        const bool q = (c->cu_q != NULL) != packed;
        return ordo_fail(ORDO_ERR_ARGUMENT, "cu_%s %s: expected %s in %s layout", q ? "q" : "kv",
                         packed ? "NULL" : "given", packed ? "an array" : "NULL",
                         ordo_layout_name(p->layout));
    }
    if (!packed || c->on_device)
        return ORDO_OK;
    ORDO_TRY(ordo_check_ends("cu_q", c->cu_q, p->batch, p->total_q, p->q_len));
    return ordo_check_ends("cu_kv", c->cu_kv, p->batch, p->total_kv, p->kv_len);
}

static ordo_status check_experiment(ordo_problem *p, int rounds)
{
    if (rounds == 0)
        return ORDO_OK;
    if (rounds != 3 && rounds != 5)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "experiment_rounds %d: expected 3 or 5, or 0 (the problem's rounds)",
                         rounds);
    if (p->dropout.keying == ORDO_KEYING_FA2)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "experiment_rounds %d: expected 0 with dropout.keying 1 (fa2)", rounds);
    if (p->dropout.p > 0)
        p->dropout.rounds = rounds;
    return ORDO_OK;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The most blocks and elements of one head that packed sequences of these totals can have: each
 * begins a new line of blocks (a column of them), and none is longer than the longest. */
static void count_most(const ordo_problem *p, uint64_t *blocks, uint64_t *elements)
{
    const uint64_t down = (uint64_t)(p->total_q / ORDO_KEEP_ROWS + p->batch);
    const uint64_t across = (uint64_t)(p->total_kv / ORDO_KEEP_COLS + p->batch);
    *blocks = smaller(down * (uint64_t)((p->kv_len + ORDO_KEEP_COLS - 1) / ORDO_KEEP_COLS),
                      across * (uint64_t)((p->q_len + ORDO_KEEP_ROWS - 1) / ORDO_KEEP_ROWS));
    *elements = smaller((uint64_t)(p->total_q * p->kv_len), (uint64_t)(p->total_kv * p->q_len));
}

/* Blocks and elements of all sequences; false if the bits pass 2^60 bytes. */
static bool count_all(ordo_dropout_view *m)
{
    const ordo_problem *p = &m->problem;
    const bool packed = p->layout == ORDO_PACKED, unknown = packed && m->call.on_device;
    m->blocks = m->elements = 0;
    if (unknown && !ordo_problem_empty(p))
        count_most(p, &m->blocks, &m->elements);
    for (int64_t b = 0; b < (unknown ? 0 : packed ? p->batch : p->batch > 0); b++) {
        const ordo_dropout_sequence s = ordo_dropout_sequence_at(m, b);
        m->blocks += (uint64_t)s.head_blocks; /* lengths are below 2^31: no sum can wrap */
        m->elements += (uint64_t)(s.rows * s.cols);
    }
    uint64_t bytes = m->blocks, times = (uint64_t)p->heads;
    if (!ordo_mul_fits(&times, packed ? 1 : (uint64_t)p->batch) || !ordo_mul_fits(&bytes, times) ||
        !ordo_mul_fits(&bytes, BLOCK_BYTES) || bytes > UINT64_C(1) << 60)
        return false;
    m->blocks *= times;
    m->elements *= times;
    return true;
}

static ordo_status check_arrays(const ordo_dropout_call *c)
{
    ORDO_TRY(ordo_check_aligned("cu_q", c->cu_q, sizeof *c->cu_q));
    ORDO_TRY(ordo_check_aligned("cu_kv", c->cu_kv, sizeof *c->cu_kv));
    ORDO_TRY(ordo_check_aligned("sequence_ids", c->sequence_ids, sizeof *c->sequence_ids));
    ORDO_TRY(ordo_check_aligned("seed_ptr", c->seed_ptr, sizeof *c->seed_ptr));
    return ordo_check_aligned("offset_ptr", c->offset_ptr, sizeof *c->offset_ptr);
}

/* Seed and offset as values, where they can be read. */
static void follow(ordo_dropout_call *c, bool host)
{
    if (c->seed_ptr)
        c->seed = host ? *c->seed_ptr : 0;
    if (c->offset_ptr)
        c->offset = host ? *c->offset_ptr : 0;
}

/* The columns that are needed of each row, in the coordinates of the rows and columns held here. */
static ordo_status take_visible(ordo_dropout_view *m)
{
    const ordo_problem *p = &m->problem;
    const ordo_shard *s = &p->shard;
    if (m->call.visible_only != 0 && m->call.visible_only != 1)
        return ordo_fail(ORDO_ERR_ARGUMENT, "visible_only %" PRId64 ": expected 0 or 1",
                         m->call.visible_only);
    m->low = -ORDO_BAND_OPEN;
    m->high = ORDO_BAND_OPEN;
    if (m->call.visible_only && p->layout == ORDO_DENSE)
        ordo_band_limit(p->mask,
                        ordo_band_diagonal(p->mask, s->q_total, s->kv_total) + s->row0 - s->col0,
                        p->window.on ? p->window.left : -1, p->window.on ? p->window.right : -1,
                        &m->low, &m->high);
    return ORDO_OK;
}

ordo_status ordo_dropout_open(const ordo_problem *problem, const ordo_dropout_call *call, bool host,
                              ordo_dropout_view *m)
{
    ORDO_TRY(ordo_check_pointer("call", call));
    ORDO_TRY(ordo_problem_resolve(problem, &m->problem));
    static const ordo_struct kind =
        ORDO_STRUCT(ordo_dropout_call, "ordo_dropout_call", ORDO_DROPOUT_CALL_INIT, NULL);
    ORDO_TRY(ordo_versioned_copy(&m->call, call, &kind));
    if (host && m->call.on_device)
        return ordo_fail(
            ORDO_ERR_ARGUMENT,
            "on_device true: expected false, except for ordo_dropout_fill_device() and "
            "ordo_dropout_query()");
    ORDO_TRY(check_arrays(&m->call));
    follow(&m->call, host);
    ORDO_TRY(check_lengths(&m->problem, &m->call));
    ORDO_TRY(check_experiment(&m->problem, m->call.experiment_rounds));
    if (m->problem.dropout.p > 0)
        ORDO_TRY(ordo_check_keys(&m->problem, m->call.offset,
                                 m->call.on_device ? NULL : m->call.sequence_ids));
    if (m->call.threads < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "threads %d: expected 0 or more", m->call.threads);
    ORDO_TRY(take_visible(m));
    m->keep = ordo_keep_of(&m->problem.dropout, m->call.seed, m->call.offset);
    if (!count_all(m))
        return ordo_fail(ORDO_ERR_OVERFLOW,
                         "batch %" PRId64 " x heads %" PRId64 " x %" PRId64 " x %" PRId64
                         ": expected keep bits of at most 2^60 bytes",
                         m->problem.batch, m->problem.heads, m->problem.q_len, m->problem.kv_len);
    return ORDO_OK;
}

ordo_dropout_sequence ordo_dropout_sequence_at(const ordo_dropout_view *m, int64_t index)
{
    const ordo_problem *p = &m->problem;
    const ordo_dropout_call *c = &m->call;
    const bool packed = p->layout == ORDO_PACKED;
    const bool ids = c->sequence_ids && !c->on_device; /* else it alone knows them, and bh */
    const int64_t id = ids ? c->sequence_ids[index] : p->shard.batch0 + index;
    const int64_t rows = packed ? c->cu_q[index + 1] - c->cu_q[index] : p->q_len;
    const int64_t cols = packed ? c->cu_kv[index + 1] - c->cu_kv[index] : p->kv_len;
    return (ordo_dropout_sequence) {
        .rows = rows,
        .cols = cols,
        .across = (cols + ORDO_KEEP_COLS - 1) / ORDO_KEEP_COLS,
        .head_blocks = ordo_keep_blocks(rows, cols),
        .bh = (uint32_t)((uint64_t)id * (uint64_t)p->shard.heads_total + (uint64_t)p->shard.head0),
    };
}

uint64_t ordo_dropout_bytes(const ordo_dropout_view *m)
{
    const uint64_t entries = (uint64_t)m->problem.batch + 1;
    if (m->blocks == 0)
        return 0;
    const uint64_t table = m->call.on_device ? entries * ORDO_SEQUENCE_BYTES : 0;
    return m->blocks * BLOCK_BYTES + (table + 255) / 256 * 256;
}

uint64_t ordo_dropout_first_block(const ordo_dropout_view *m, int64_t index)
{
    const uint64_t heads = (uint64_t)m->problem.heads;
    if (m->problem.layout != ORDO_PACKED)
        return m->blocks / (uint64_t)m->problem.batch * (uint64_t)index;
    uint64_t first = 0;
    for (int64_t b = 0; b < index; b++)
        first += heads * (uint64_t)ordo_dropout_sequence_at(m, b).head_blocks;
    return first;
}

void ordo_dropout_blocks(const ordo_dropout_view *m, const ordo_dropout_sequence *s, int64_t head,
                         int64_t down, int64_t across, int64_t count, uint32_t *words)
{
    const ordo_shard *shard = &m->problem.shard;
    ordo_keep_fill(&m->keep, s->bh + (uint32_t)head,
                   (uint32_t)(shard->row0 + down * ORDO_KEEP_ROWS),
                   (uint32_t)(shard->col0 / ORDO_KEEP_COLS + across), count, words);
}

ordo_status ordo_dropout_query(const ordo_problem *problem, const ordo_dropout_call *call,
                               ordo_dropout_info *info)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_dropout_view m;
    ORDO_TRY(ordo_check_pointer("info", info));
    ORDO_TRY(ordo_dropout_open(problem, call, false, &m));
    *info = (ordo_dropout_info) {
        .blocks = m.blocks,
        .bytes = ordo_dropout_bytes(&m),
        .elements = m.elements,
        .keying = m.keep.keying,
        .rounds = m.keep.rounds,
        .bits = m.keep.bits,
        .threshold = (int)m.keep.threshold,
        .p_used = 1 - (double)m.keep.threshold / (double)(1u << m.keep.bits),
        .scale = ordo_keep_scale(&m.problem.dropout),
    };
    return ORDO_OK;
}

static ordo_status check_place(const char *name, int64_t value, int64_t count)
{
    if (value < 0 || value >= count)
        return ordo_fail(ORDO_ERR_ARGUMENT,
                         "%s %" PRId64 ": expected less than %" PRId64 ", 0 or more", name, value,
                         count);
    return ORDO_OK;
}

ordo_status ordo_dropout_keep(const ordo_problem *problem, const ordo_dropout_call *call,
                              int64_t sequence, int64_t head, int64_t row, int64_t column,
                              bool *keep)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_dropout_view m;
    ORDO_TRY(ordo_check_pointer("keep", keep));
    ORDO_TRY(ordo_dropout_open(problem, call, true, &m));
    ORDO_TRY(check_place("sequence", sequence, m.problem.batch));
    ORDO_TRY(check_place("head", head, m.problem.heads));
    const ordo_dropout_sequence s = ordo_dropout_sequence_at(&m, sequence);
    ORDO_TRY(check_place("row", row, s.rows));
    ORDO_TRY(check_place("column", column, s.cols));
    *keep =
        ordo_keep_element(&m.keep, s.bh + (uint32_t)head, (uint32_t)(m.problem.shard.row0 + row),
                          (uint32_t)(m.problem.shard.col0 + column));
    return ORDO_OK;
}

/* ---- packed bits ---- */

/* A range of blocks in storage order, and where its words go. */
typedef struct range {
    const ordo_dropout_view *view;
    uint64_t first, count;
    uint32_t *words;
} range;

/* Make those of `count` adjacent blocks of a line that its rows need. */
static void fill_line(const ordo_dropout_view *m, const ordo_dropout_sequence *s, int64_t head,
                      int64_t down, int64_t across, int64_t count, uint32_t *words)
{
    const int64_t row = down * ORDO_KEEP_ROWS;
    const int64_t from = row + m->low, last = row + ORDO_KEEP_ROWS - 1 + m->high;
    int64_t first = across, end = last < 0 ? 0 : last / ORDO_KEEP_COLS + 1;
    if (from > first * ORDO_KEEP_COLS)
        first = from / ORDO_KEEP_COLS;
    if (end > across + count)
        end = across + count;
    if (first < end)
        ordo_dropout_blocks(m, s, head, down, first, end - first,
                            words + (first - across) * ORDO_KEEP_WORDS);
}

/* Walk the range by runs of blocks side by side. Each block's words depend on its place in the
 * whole alone, so a range may begin and end anywhere. */
static void fill_range(const range *r)
{
    const ordo_dropout_view *m = r->view;
    const uint64_t end = r->first + r->count;
    uint64_t base = 0, at = r->first;
    uint32_t *words = r->words;
    int64_t b = 0;
    if (m->problem.layout != ORDO_PACKED && r->count > 0) {
        b = (int64_t)(r->first / (m->blocks / (uint64_t)m->problem.batch));
        base = ordo_dropout_first_block(m, b);
    }
    for (; at < end; b++) {
        const ordo_dropout_sequence s = ordo_dropout_sequence_at(m, b);
        const uint64_t next = base + (uint64_t)m->problem.heads * (uint64_t)s.head_blocks;
        while (at < end && at < next) {
            const int64_t here = (int64_t)(at - base), block = here % s.head_blocks;
            const int64_t across = block % s.across;
            int64_t run = s.across - across;
            if ((uint64_t)run > end - at)
                run = (int64_t)(end - at);
            fill_line(m, &s, here / s.head_blocks, block / s.across, across, run, words);
            words += run * ORDO_KEEP_WORDS;
            at += (uint64_t)run;
        }
        base = next;
    }
}

static void *fill_thread(void *argument)
{
    fill_range(argument);
    return NULL;
}

static int threads_for(uint64_t count, int wanted)
{
    const uint64_t useful = count / BLOCKS_A_THREAD;
    if (useful <= 1 || wanted == 1)
        return 1;
    const uint64_t most = (uint64_t)(wanted ? wanted : ordo_cores("", NULL));
    const uint64_t threads = most < useful ? most : useful;
    return (int)(threads < MOST_THREADS ? threads : MOST_THREADS);
}

/* One equal part per thread. If a thread cannot be created, this one does its part. */
static void fill_threads(const range *all, int threads)
{
    pthread_t thread[MOST_THREADS];
    range part[MOST_THREADS];
    bool started[MOST_THREADS];
    for (int t = 0; t < threads; t++) {
        const uint64_t share = all->count / (uint64_t)threads, from = share * (uint64_t)t;
        part[t] =
            (range) { all->view, all->first + from, t < threads - 1 ? share : all->count - from,
                      all->words + from * ORDO_KEEP_WORDS };
        started[t] = t > 0 && pthread_create(&thread[t], NULL, fill_thread, &part[t]) == 0;
    }
    for (int t = 0; t < threads; t++)
        if (!started[t])
            fill_range(&part[t]);
    for (int t = 0; t < threads; t++)
        if (started[t])
            pthread_join(thread[t], NULL);
}

ordo_status ordo_dropout_room(const uint32_t *words, size_t bytes, uint64_t needed, size_t align)
{
    if (!words)
        return ordo_fail(ORDO_ERR_ARGUMENT, "words NULL: expected room for %" PRIu64 " bytes",
                         needed);
    ORDO_TRY(ordo_check_aligned("words", words, align));
    if (bytes < needed)
        return ordo_fail(ORDO_ERR_SHAPE, "bytes %zu: expected at least %" PRIu64, bytes, needed);
    return ORDO_OK;
}

ordo_status ordo_dropout_fill(const ordo_problem *problem, const ordo_dropout_call *call,
                              uint64_t first, uint64_t count, uint32_t *words, size_t bytes)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_dropout_view m;
    ORDO_TRY(ordo_dropout_open(problem, call, true, &m));
    if (first > m.blocks || count > m.blocks - first)
        return ordo_fail(ORDO_ERR_SHAPE,
                         "first %" PRIu64 ", count %" PRIu64 ": expected a range within 0..%" PRIu64
                         " blocks",
                         first, count, m.blocks);
    if (count == 0)
        return ORDO_OK;
    ORDO_TRY(ordo_dropout_room(words, bytes, count * BLOCK_BYTES, sizeof *words));
    const range all = { &m, first, count, words };
    fill_threads(&all, threads_for(count, m.call.threads));
    return ORDO_OK;
}
