/* keep_statistics.c: count kept elements and kept pairs of the bits of dropout, 32 at a time.
 *
 * Neighbours along any word of the counter stand at the same bit of two words, so a pair of words
 * is 32 pairs of elements; only the next column is another bit of the same word. */
#include "attention/keep_statistics.h"

#include <math.h>
#include <stdlib.h>

enum {
    CHUNK = 4096, /* blocks at a time: three buffers of 1 MiB */
    WORDS = 64,   /* a block */
    BLOCK_ROWS = 16,
    BLOCK_COLS = 128,
};

/* One head, and a run of its blocks with its neighbours. */
typedef struct head {
    int64_t rows, cols, across; /* across: blocks side by side */
    uint64_t first, blocks;     /* in storage order */
    bool last;                  /* no head after it in its sequence */
} head;

typedef struct buffers {
    uint32_t *here, *head, *site;
} buffers;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Word of a block in storage order. */
static int word_at(int row, int quad)
{
    return 2 * ((row & 7) * 4 + quad) + (row >> 3);
}

static int count(uint32_t bits)
{
    return __builtin_popcount(bits);
}

static void add(cli_lag_count *lag, uint32_t a, uint32_t b, uint32_t valid)
{
    lag->pairs += (uint64_t)count(valid);
    lag->both += (uint64_t)count(a & b & valid);
    lag->first += (uint64_t)count(a & valid);
    lag->second += (uint64_t)count(b & valid);
}

/* Which bits of a word of quad `quad` are columns of a block that has `cols` of them. */
static uint32_t valid_bits(int64_t cols, int quad)
{
    uint32_t bits = 0;
    for (int j = 0; j < 16; j++)
        for (int e = 0; e < 2; e++)
            if (8 * j + 2 * quad + e < cols)
                bits |= 1u << (8 * (2 * (j & 1) + e) + 7 - (j >> 1));
    return bits;
}

/* Columns of the block at `across` that the sequence has. */
static void valid_quads(const head *h, int64_t across, uint32_t valid[4])
{
    for (int q = 0; q < 4; q++)
        valid[q] = across < h->cols / BLOCK_COLS ? 0xffffffff
                                                 : valid_bits(h->cols - across * BLOCK_COLS, q);
}

/* Pairs inside one block, and with the same block of the next head and of the next call. */
static void count_block(cli_keep_statistics *s, const head *h, const uint32_t *here,
                        const uint32_t *next_head, const uint32_t *next_site,
                        const uint32_t valid[4], int64_t rows)
{
    for (int row = 0; row < rows; row++)
        for (int q = 0; q < 4; q++) {
            const int at = word_at(row, q);
            const uint32_t word = here[at], v = valid[q];
            s->kept += (uint64_t)count(word & v);
            add(&s->lags[CLI_LAG_COLUMN], word, word >> 8, v & v >> 8 & 0x00ff00ff);
            if (q < 3)
                add(&s->lags[CLI_LAG_QUAD], word, here[word_at(row, q + 1)], v & valid[q + 1]);
            if (row + 1 < rows)
                add(&s->lags[CLI_LAG_ROW], word, here[word_at(row + 1, q)], v);
            if (!h->last)
                add(&s->lags[CLI_LAG_HEAD], word, next_head[at], v);
            add(&s->lags[CLI_LAG_SITE], word, next_site[at], v);
        }
}

static void count_neighbour(cli_keep_statistics *s, const uint32_t *here, const uint32_t valid[4],
                            int64_t rows)
{
    for (int row = 0; row < rows; row++)
        for (int q = 0; q < 4; q++) /* bits past the last column are none of the problem */
            add(&s->lags[CLI_LAG_BLOCK], here[word_at(row, q)], here[WORDS + word_at(row, q)],
                valid[q]);
}

static void count_chunk(cli_keep_statistics *s, const head *h, uint64_t start, uint64_t blocks,
                        const buffers *b)
{
    for (uint64_t n = 0; n < blocks; n++) {
        const int64_t at = (int64_t)(start + n), across = at % h->across;
        const int64_t below = h->rows - at / h->across * BLOCK_ROWS;
        const int64_t rows = below < BLOCK_ROWS ? below : BLOCK_ROWS;
        uint32_t valid[4];
        valid_quads(h, across, valid);
        count_block(s, h, b->here + n * WORDS, b->head + n * WORDS, b->site + n * WORDS, valid,
                    rows);
        if (n + 1 < blocks && across + 1 < h->across) {
            valid_quads(h, across + 1, valid);
            count_neighbour(s, b->here + n * WORDS, valid, rows);
        }
    }
}

static ordo_status count_head(cli_keep_statistics *s, const ordo_problem *p,
                              const ordo_dropout_call *call, const ordo_dropout_call *next,
                              const head *h, const buffers *b)
{
    const size_t bytes = (size_t)CHUNK * WORDS * sizeof *b->here;
    for (uint64_t start = 0; start < h->blocks; start += CHUNK) {
        const uint64_t left = h->blocks - start, blocks = left < CHUNK ? left : CHUNK;
        const uint64_t first = h->first + start;
        ordo_status status = ordo_dropout_fill(p, call, first, blocks, b->here, bytes);
        if (status == ORDO_OK && !h->last)
            status = ordo_dropout_fill(p, call, first + h->blocks, blocks, b->head, bytes);
        if (status == ORDO_OK)
            status = ordo_dropout_fill(p, next, first, blocks, b->site, bytes);
        if (status != ORDO_OK)
            return status;
        count_chunk(s, h, start, blocks, b);
    }
    return ORDO_OK;
}

/* The dropout call after this one: another offset; FlashAttention-2 advances it by 32 places for
 * each head of each sequence. */
static ordo_dropout_call next_call(const ordo_problem *p, const ordo_dropout_call *call)
{
    ordo_dropout_call next = *call;
    if (p->dropout.keying == ORDO_KEYING_FA2)
        next.offset += 32 * (uint64_t)p->batch * (uint64_t)p->heads;
    else
        next.offset = call->offset < UINT32_MAX ? call->offset + 1 : call->offset - 1;
    return next;
}

static ordo_status count_all(cli_keep_statistics *s, const ordo_problem *p,
                             const ordo_dropout_call *call, const buffers *b)
{
    const ordo_dropout_call next = next_call(p, call);
    uint64_t first = 0;
    for (int64_t i = 0; i < p->batch; i++) {
        const bool packed = p->layout == ORDO_PACKED;
        head h = { .rows = packed ? call->cu_q[i + 1] - call->cu_q[i] : p->q_len,
                   .cols = packed      ? call->cu_kv[i + 1] - call->cu_kv[i]
                           : p->kv_len ? p->kv_len
                                       : p->q_len };
        h.across = ceil_div(h.cols, BLOCK_COLS);
        h.blocks = (uint64_t)(ceil_div(h.rows, BLOCK_ROWS) * h.across);
        for (int64_t n = 0; n < p->heads; n++, first += h.blocks) {
            h.first = first;
            h.last = n + 1 == p->heads;
            const ordo_status status = count_head(s, p, call, &next, &h, b);
            if (status != ORDO_OK)
                return status;
        }
    }
    return ORDO_OK;
}

/* Under independence a kept element is 1 with probability p, and (a - p)(b - p) of a pair has
 * mean 0 and variance (p (1 - p))^2. Few expected events of the rarer kind say nothing. */
static void conclude(cli_keep_statistics *s)
{
    const double p = 1 - s->info.p_used, q = s->info.p_used, rare = p < q ? p : q;
    const double n = (double)s->info.elements;
    s->expected = p;
    s->rate = n > 0 ? (double)s->kept / n : p; /* as expected if there is no element */
    s->z = n > 0 ? ((double)s->kept - n * p) / sqrt(n * p * q) : 0;
    s->enough = n * rare >= 10;
    for (int i = 0; i < CLI_LAGS; i++) {
        cli_lag_count *l = &s->lags[i];
        const double pairs = (double)l->pairs;
        const double sum =
            (double)l->both - p * ((double)l->first + (double)l->second) + pairs * p * p;
        l->enough = pairs * rare * rare >= 10;
        l->correlation = l->pairs ? sum / (pairs * p * q) : 0;
        l->z = l->pairs ? sum / (sqrt(pairs) * p * q) : 0;
    }
}

ordo_status cli_keep_measure(const ordo_problem *problem, const ordo_dropout_call *call,
                             cli_keep_statistics *s)
{
    *s = (cli_keep_statistics) { 0 };
    ordo_status status = ordo_dropout_query(problem, call, &s->info);
    if (status != ORDO_OK)
        return status;
    buffers b;
    b.here = calloc((size_t)3 * CHUNK * WORDS, sizeof *b.here);
    if (b.here == NULL)
        return ORDO_ERR_MEMORY;
    b.head = b.here + (size_t)CHUNK * WORDS;
    b.site = b.head + (size_t)CHUNK * WORDS;
    status = count_all(s, problem, call, &b);
    free(b.here);
    if (status == ORDO_OK)
        conclude(s);
    return status;
}

bool cli_keep_suspicious(const cli_keep_statistics *s, const char **which)
{
    const char *found = s->enough && fabs(s->z) >= CLI_RATE_LIMIT ? "keep rate" : NULL;
    for (int i = 0; i < CLI_LAGS && found == NULL; i++)
        if (s->lags[i].enough && fabs(s->lags[i].z) >= CLI_LAG_LIMIT)
            found = cli_lag_name((cli_lag)i);
    if (which)
        *which = found;
    return found != NULL;
}

const char *cli_lag_name(cli_lag lag)
{
    static const char *const names[CLI_LAGS] = { "columns", "quads", "blocks",
                                                 "rows",    "heads", "sites" };
    return (unsigned)lag < CLI_LAGS ? names[lag] : "unknown";
}
