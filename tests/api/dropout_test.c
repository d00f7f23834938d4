/* dropout_test.c: keep bits through the public functions: known answers, and that elements, packed
 * bits and rows agree however the work is divided, laid out or sharded. */
#include "base/keep.h"
#include "check.h"
#include "ordo/ordo.h"

static uint64_t fnv1a(const void *data, size_t count)
{
    const unsigned char *bytes = data;
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

static ordo_problem problem_of(int64_t batch, int64_t heads, int64_t rows, int64_t cols, double p)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.batch = batch;
    problem.heads = heads;
    problem.q_len = rows;
    problem.kv_len = cols;
    problem.head_dim = 8;
    problem.dropout.p = p;
    return problem;
}

static ordo_dropout_call call_of(uint64_t seed, uint64_t offset)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    call.seed = seed;
    call.offset = offset;
    return call;
}

static void must(ordo_status status)
{
    if (status != ORDO_OK)
        CHECK_FAIL("%s: %s", ordo_status_name(status), ordo_last_error());
}

/* All bits of a problem; the caller frees. */
static uint32_t *fill(const ordo_problem *p, const ordo_dropout_call *c, ordo_dropout_info *info)
{
    must(ordo_dropout_query(p, c, info));
    uint32_t *words = malloc(info->bytes);
    must(ordo_dropout_fill(p, c, 0, info->blocks, words, info->bytes));
    return words;
}

/* Rows of one head as bytes; the caller frees. */
static unsigned char *rows_of(const ordo_problem *p, const ordo_dropout_call *c,
                              const uint32_t *words, int64_t sequence, int64_t head, size_t *count)
{
    ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
    part.sequence = sequence;
    part.head = head;
    must(ordo_dropout_export(p, c, words, &part, NULL, 0, count));
    unsigned char *out = malloc(*count + 1);
    must(ordo_dropout_export(p, c, words, &part, out, *count, NULL));
    return out;
}

/* ---- known answers ---- */

typedef struct known {
    int rounds, bits, threshold;
    double p;
    uint64_t fnv1a;
    int kept;
} known;

/* Seed 0x0123456789abcdef, offset 7, 1 sequence, 2 heads, 256 x 256; hashes and counts come from
 * an independent program. */
static const known cases[] = {
    { 3, 8, 230, 0.1, 0xb66c5249c9da89ba, 114502 },
    { 5, 8, 230, 0.1, 0x1e0c622fbc49e777, 117911 },
    { 7, 8, 230, 0.1, 0x5d068e8830a21854, 117671 },
    { 10, 8, 230, 0.1, 0xfad5546f10bb7f3e, 117711 },
    { 7, 4, 14, 0.1, 0xf1ab936007a4fbe3, 114610 },
    { 7, 8, 128, 0.5, 0xb944c8c1ed899cab, 65446 },
    { 7, 16, 58982, 0.1, 0xa3e289681e47c680, 117893 },
    { 7, 8, 256, 0, 0x0d65b7532d396325, 131072 },
};

TEST(hashes_of_packed_bits_are_the_known_ones)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const known *k = &cases[i];
        ordo_problem p = problem_of(1, 2, 256, 256, k->p);
        ordo_dropout_call c = call_of(0x0123456789abcdef, 7);
        ordo_dropout_info info;
        p.dropout.bits = k->bits;
        if (k->rounds >= 7)
            p.dropout.rounds = k->rounds;
        else
            c.experiment_rounds = k->rounds;
        uint32_t *words = fill(&p, &c, &info);
        int kept = 0;
        for (uint64_t w = 0; w < info.bytes / 4; w++)
            kept += __builtin_popcount(words[w]);
        CHECK_INT(info.bytes, 16384);
        CHECK_INT(info.elements, 131072);
        CHECK_INT(kept, k->kept);
        CHECK(fnv1a(words, info.bytes) == k->fnv1a);
        if (k->p > 0) {
            CHECK_INT(info.rounds, k->rounds);
            CHECK_INT(info.bits, k->bits);
            CHECK_INT(info.threshold, k->threshold);
        }
        CHECK(info.scale == (double)(1 << k->bits) / k->threshold);
        CHECK_NEAR(info.p_used, 1 - (double)k->threshold / (1 << k->bits), 0);
        free(words);
    }
}

/* FlashAttention-2's keep bits of sequence 1, head 2 of 3, 64 x 128, seed 0x0123456789abcdef,
 * offset 0x100001000; from an independent program that follows its definition. */
TEST(bits_of_fa2_are_the_known_ones)
{
    static const struct {
        double p;
        int kept;
        uint32_t first;
        uint64_t fnv1a;
    } fa2[] = {
        { 0.1, 7363, 0xfbfffbff, 0xcc05a1c232fb8a68 },
        { 0.17, 6775, 0xfbff7bff, 0x778537a4a4537a08 },
    };
    for (int i = 0; i < 2; i++) {
        ordo_problem p = problem_of(2, 3, 64, 128, fa2[i].p);
        const ordo_dropout_call c = call_of(0x0123456789abcdef, 0x100001000);
        ordo_dropout_info info;
        p.dropout.keying = ORDO_KEYING_FA2;
        uint32_t *words = fill(&p, &c, &info);
        CHECK(info.keying == ORDO_KEYING_FA2);
        CHECK(info.scale == (double)(1.0f / (1.0f - (float)p.dropout.p)));
        for (int stored = 0; stored < 2; stored++) {
            size_t count = 0;
            unsigned char *rows = rows_of(&p, &c, stored ? words : NULL, 1, 2, &count);
            CHECK_INT(count, 64 * 128);
            int kept = 0;
            uint32_t first = 0;
            for (size_t e = 0; e < count; e++)
                kept += rows[e];
            for (int e = 0; e < 32; e++)
                first |= (uint32_t)rows[e] << e;
            CHECK_INT(kept, fa2[i].kept);
            CHECK_INT(first, fa2[i].first);
            CHECK(fnv1a(rows, count) == fa2[i].fnv1a);
            free(rows);
        }
        free(words);
    }
}

/* ---- elements, packed bits and rows agree ---- */

typedef struct trial {
    ordo_problem problem;
    ordo_dropout_call call;
    int32_t cu_q[8], cu_kv[8];
    int64_t ids[7];
} trial;

/* A ragged problem of any layout and keying; in `t`, which must stay where it is. */
static void random_trial(trial *t, uint64_t *s)
{
    t->problem = problem_of(check_between(s, 1, 7), check_between(s, 1, 5), check_between(s, 1, 70),
                            check_between(s, 1, 400), 0.3);
    ordo_problem *p = &t->problem;
    p->layout = (ordo_layout)check_between(s, 0, 2);
    p->dropout.keying = (ordo_keying)check_between(s, 0, 1);
    if (p->dropout.keying == ORDO_KEYING_ORDO) {
        p->dropout.rounds = check_between(s, 0, 1) ? 7 : 10;
        p->dropout.bits = (int)check_between(s, 2, 16);
    }
    p->shard.batch0 = check_between(s, 0, 100);
    p->shard.heads_total = p->heads + check_between(s, 0, 9);
    p->shard.head0 = check_between(s, 0, p->shard.heads_total - p->heads);
    if (p->layout == ORDO_DENSE) {
        p->shard.row0 = 16 * check_between(s, 0, 9);
        p->shard.col0 = 128 * check_between(s, 0, 9);
        p->shard.q_total = p->shard.row0 + p->q_len + check_between(s, 0, 99);
        p->shard.kv_total = p->shard.col0 + p->kv_len + check_between(s, 0, 99);
    }
    t->call = call_of(check_random(s), check_random(s) >> 33);
    if (check_between(s, 0, 1)) {
        for (int b = 0; b < 7; b++)
            t->ids[b] = check_between(s, 0, 1 << 20);
        t->call.sequence_ids = t->ids;
    }
    if (p->layout != ORDO_PACKED)
        return;
    t->cu_q[0] = t->cu_kv[0] = 0;
    for (int64_t b = 0; b < p->batch; b++) { /* empty sequences too, but not all of them */
        t->cu_q[b + 1] = t->cu_q[b] + (int32_t)check_between(s, b == 0, p->q_len);
        t->cu_kv[b + 1] = t->cu_kv[b] + (int32_t)check_between(s, b == 0, p->kv_len);
    }
    p->total_q = t->cu_q[p->batch];
    p->total_kv = t->cu_kv[p->batch];
    t->call.cu_q = t->cu_q;
    t->call.cu_kv = t->cu_kv;
}

static int64_t rows_at(const trial *t, int64_t b)
{
    return t->problem.layout == ORDO_PACKED ? t->cu_q[b + 1] - t->cu_q[b] : t->problem.q_len;
}

static int64_t cols_at(const trial *t, int64_t b)
{
    return t->problem.layout == ORDO_PACKED ? t->cu_kv[b + 1] - t->cu_kv[b] : t->problem.kv_len;
}

TEST(elements_bits_and_rows_agree)
{
    uint64_t state = 31;
    printf("  seed %" PRIu64 "\n", state);
    for (int n = 0; n < 60; n++) {
        trial t;
        ordo_dropout_info info;
        random_trial(&t, &state);
        uint32_t *words = fill(&t.problem, &t.call, &info);
        const uint32_t *at = words;
        uint64_t elements = 0;
        for (int64_t b = 0; b < t.problem.batch; b++)
            for (int64_t h = 0; h < t.problem.heads; h++) {
                const int64_t rows = rows_at(&t, b), cols = cols_at(&t, b);
                size_t count, again;
                unsigned char *made = rows_of(&t.problem, &t.call, NULL, b, h, &count);
                unsigned char *read = rows_of(&t.problem, &t.call, words, b, h, &again);
                CHECK_INT(count, rows * cols);
                CHECK_INT(again, count);
                CHECK_BITS(made, read, count);
                for (int64_t e = 0; e < rows * cols; e += check_between(&state, 1, 37)) {
                    bool keep = false;
                    must(ordo_dropout_keep(&t.problem, &t.call, b, h, e / cols, e % cols, &keep));
                    CHECK(made[e] == keep);
                    CHECK(ordo_keep_stored(at, cols, e / cols, e % cols) == keep);
                }
                at += ordo_keep_blocks(rows, cols) * ORDO_KEEP_WORDS;
                elements += (uint64_t)(rows * cols);
                free(made);
                free(read);
            }
        CHECK_INT((const char *)at - (const char *)words, info.bytes);
        CHECK_INT(info.bytes, 256 * info.blocks);
        CHECK_INT(info.elements, elements);
        free(words);
    }
}

TEST(rectangles_in_bytes_and_bits)
{
    uint64_t state = 32;
    printf("  seed %" PRIu64 "\n", state);
    for (int n = 0; n < 200; n++) {
        trial t;
        size_t count, size = 0;
        random_trial(&t, &state);
        ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
        part.sequence = check_between(&state, 0, t.problem.batch - 1);
        part.head = check_between(&state, 0, t.problem.heads - 1);
        const int64_t rows = rows_at(&t, part.sequence), cols = cols_at(&t, part.sequence);
        unsigned char *whole = rows_of(&t.problem, &t.call, NULL, part.sequence, part.head, &count);
        part.row = check_between(&state, 0, rows);
        part.col = check_between(&state, 0, cols);
        part.rows = check_between(&state, 0, rows - part.row);
        part.cols = check_between(&state, 0, cols - part.col);
        part.format = (ordo_dropout_format)check_between(&state, 0, 1);
        const bool bits = part.format == ORDO_DROPOUT_BITS;
        const int64_t height = part.rows ? part.rows : rows - part.row;
        const int64_t width = part.cols ? part.cols : cols - part.col;
        const int64_t stride = bits ? (width + 7) / 8 : width;

        must(ordo_dropout_export(&t.problem, &t.call, NULL, &part, NULL, 0, &size));
        CHECK_INT(size, height * stride);
        unsigned char *out = malloc(size + 1);
        memset(out, 0xa5, size + 1);
        must(ordo_dropout_export(&t.problem, &t.call, NULL, &part, out, size, &size));
        CHECK_INT(out[size], 0xa5);
        for (int64_t r = 0; r < height; r++)
            for (int64_t c = 0; c < (bits ? 8 * stride : stride); c++) {
                const int got = bits ? out[r * stride + c / 8] >> c % 8 & 1 : out[r * stride + c];
                const int want =
                    c < width ? whole[(part.row + r) * cols + part.col + c] : 0; /* unused bits */
                CHECK_INT(got, want);
            }
        free(out);
        free(whole);
    }
}

TEST(any_cut_gives_the_same_words)
{
    uint64_t state = 33;
    printf("  seed %" PRIu64 "\n", state);
    for (int n = 0; n < 60; n++) {
        trial t;
        ordo_dropout_info info;
        random_trial(&t, &state);
        uint32_t *one = fill(&t.problem, &t.call, &info), *many = malloc(info.bytes);
        for (uint64_t at = 0; at < info.blocks;) {
            const uint64_t count =
                (uint64_t)check_between(&state, 0, (int64_t)(info.blocks - at)) % 40;
            must(ordo_dropout_fill(&t.problem, &t.call, at, count, many + 64 * at, 256 * count));
            at += count;
        }
        CHECK_BITS(one, many, info.bytes / 4);
        free(one);
        free(many);
    }
}

/* ---- layouts and shards ---- */

/* A sequence has its keep bits in any batch and any layout, as long as it keeps its id. */
TEST(packed_padded_and_dense_agree)
{
    for (int keying = 0; keying < 2; keying++) {
        static const int32_t cu_q[] = { 0, 20, 20, 57 }, cu_kv[] = { 0, 150, 160, 161 };
        static const int64_t ids[] = { 0, 1, 2 }, moved[] = { 2, 0, 1 };
        ordo_problem dense = problem_of(3, 2, 37, 150, 0.25), packed = dense, padded = dense;
        dense.dropout.keying = packed.dropout.keying = padded.dropout.keying = (ordo_keying)keying;
        packed.layout = ORDO_PACKED;
        packed.total_q = 57;
        packed.total_kv = 161;
        padded.layout = ORDO_PADDED;
        ordo_dropout_call c = call_of(1, 2), in_pack = c, reordered = c;
        in_pack.cu_q = cu_q;
        in_pack.cu_kv = cu_kv;
        in_pack.sequence_ids = ids;
        reordered.sequence_ids = moved;
        for (int64_t b = 0; b < 3; b++)
            for (int64_t h = 0; h < 2; h++) {
                size_t n;
                unsigned char *d = rows_of(&dense, &c, NULL, b, h, &n);
                unsigned char *q = rows_of(&padded, &c, NULL, b, h, &n);
                unsigned char *r = rows_of(&dense, &reordered, NULL, (b + 1) % 3, h, &n);
                CHECK_BITS(d, q, n);
                CHECK_BITS(d, r, n);
                unsigned char *s = rows_of(&packed, &in_pack, NULL, b, h, &n);
                const int32_t rows = cu_q[b + 1] - cu_q[b], cols = cu_kv[b + 1] - cu_kv[b];
                CHECK_INT(n, rows * cols);
                for (int32_t row = 0; row < rows; row++)
                    CHECK_BITS(s + row * cols, d + (size_t)row * 150, cols);
                free(d);
                free(q);
                free(r);
                free(s);
            }
    }
}

/* Shards of heads, batch, rows and columns are pieces of the whole. */
TEST(shards_are_pieces_of_the_whole)
{
    enum { B = 4, H = 6, Q = 96, K = 512 };
    for (int keying = 0; keying < 2; keying++) {
        ordo_problem whole = problem_of(B, H, Q, K, 0.25);
        whole.dropout.keying = (ordo_keying)keying;
        const ordo_dropout_call c = call_of(3, 4);
        ordo_problem shard = problem_of(2, 3, 32, 256, 0.25);
        shard.dropout.keying = (ordo_keying)keying;
        for (int piece = 0; piece < 2 * 2 * 3 * 2; piece++) {
            const int64_t b0 = piece % 2 * 2, h0 = piece / 2 % 2 * 3;
            const int64_t row0 = piece / 4 % 3 * 32, col0 = piece / 12 * 256;
            shard.shard = (ordo_shard) { .batch0 = b0,
                                         .head0 = h0,
                                         .row0 = row0,
                                         .col0 = col0,
                                         .heads_total = H,
                                         .q_total = Q,
                                         .kv_total = K };
            for (int64_t b = 0; b < 2; b++)
                for (int64_t h = 0; h < 3; h++) {
                    size_t n;
                    unsigned char *part = rows_of(&shard, &c, NULL, b, h, &n);
                    unsigned char *all = rows_of(&whole, &c, NULL, b0 + b, h0 + h, &n);
                    for (int64_t r = 0; r < 32; r++)
                        CHECK_BITS(part + r * 256, all + (row0 + r) * K + col0, 256);
                    free(part);
                    free(all);
                }
        }
    }
}

/* Offsets, seeds, heads and sequences have keep bits of their own. */
TEST(every_key_changes_the_bits)
{
    const ordo_problem p = problem_of(2, 2, 64, 256, 0.5);
    size_t n;
    ordo_dropout_call c = call_of(1, 1), seed = call_of(2, 1), far = call_of(1 + (1ull << 32), 1);
    ordo_dropout_call site = call_of(1, 2);
    unsigned char *bits_of[] = {
        rows_of(&p, &c, NULL, 0, 0, &n),   rows_of(&p, &seed, NULL, 0, 0, &n),
        rows_of(&p, &far, NULL, 0, 0, &n), rows_of(&p, &site, NULL, 0, 0, &n),
        rows_of(&p, &c, NULL, 0, 1, &n),   rows_of(&p, &c, NULL, 1, 0, &n),
    };
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++) {
            int same = 0;
            for (size_t e = 0; e < n; e++)
                same += bits_of[i][e] == bits_of[j][e];
            CHECK(same > 0.45 * (double)n && same < 0.55 * (double)n);
        }
    for (int i = 0; i < 6; i++)
        free(bits_of[i]);
}

/* ---- refusals ---- */

/* A call that is fine but for one change. */
#define REFUSE(function, change, status, ...)                                                      \
    do {                                                                                           \
        ordo_problem p = problem_of(2, 2, 32, 128, 0.1);                                           \
        ordo_dropout_call c = call_of(1, 2);                                                       \
        ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;                                           \
        change;                                                                                    \
        CHECK_REFUSED_AS(#change, function(&p, &c, &part), ORDO_ERR_##status, __VA_ARGS__);        \
    } while (0)

static ordo_status query(const ordo_problem *p, const ordo_dropout_call *c,
                         const ordo_dropout_part *part)
{
    ordo_dropout_info info;
    (void)part;
    return ordo_dropout_query(p, c, &info);
}

TEST(bad_calls_are_refused_by_name)
{
    const ordo_problem problem = problem_of(2, 2, 32, 128, 0.1);
    const ordo_dropout_call call = call_of(1, 2);
    const int64_t ids[] = { 0, -1 }, large[] = { 0, INT64_C(1) << 31 };
    ordo_dropout_info info;
    CHECK_REFUSED(ordo_dropout_query(NULL, &call, &info), ORDO_ERR_ARGUMENT, "problem NULL");
    CHECK_REFUSED(ordo_dropout_query(&problem, NULL, &info), ORDO_ERR_ARGUMENT, "call NULL");
    CHECK_REFUSED(ordo_dropout_query(&problem, &call, NULL), ORDO_ERR_ARGUMENT, "info NULL");
    REFUSE(query, c.size = 0, ARGUMENT, "ORDO_DROPOUT_CALL_INIT");
    REFUSE(query, c.threads = -1, ARGUMENT, "threads -1: expected 0");
    REFUSE(query, c.visible_only = 2, ARGUMENT, "visible_only 2: expected 0 or 1");
    REFUSE(query, c.offset = 1ull << 32, ARGUMENT, "offset 4294967296: expected");
    REFUSE(query, c.experiment_rounds = 4, ARGUMENT, "experiment_rounds 4: expected 3 or 5");
    REFUSE(query, c.experiment_rounds = 7, ARGUMENT, "experiment_rounds 7");
    REFUSE(query, (p.dropout.keying = ORDO_KEYING_FA2, c.experiment_rounds = 3), ARGUMENT, "fa2");
    REFUSE(query, p.dropout.rounds = 3, UNSUPPORTED, "experiment_rounds");
    REFUSE(query, c.sequence_ids = ids, ARGUMENT, "sequence_ids[1] -1");
    REFUSE(query, c.sequence_ids = large, ARGUMENT, "expected 0..2147483647");
    REFUSE(query, (p.shard.row0 = 8, p.shard.q_total = 64), SHAPE, "shard.row0 8");
}

TEST(bad_lengths_are_refused_by_name)
{
    const int32_t q[] = { 0, 10, 20 }, kv[] = { 0, 10, 30 }, wrong[] = { 0, 11, 10 };
    ordo_problem p = problem_of(2, 2, 16, 32, 0.1);
    ordo_dropout_call c = call_of(1, 2);
    ordo_dropout_info info;
    c.cu_q = q;
    CHECK_REFUSED(ordo_dropout_query(&p, &c, &info), ORDO_ERR_ARGUMENT,
                  "cu_q given: expected NULL in dense layout");
    p.layout = ORDO_PACKED;
    p.total_q = 20;
    p.total_kv = 30;
    CHECK_REFUSED(ordo_dropout_query(&p, &c, &info), ORDO_ERR_ARGUMENT,
                  "cu_kv NULL: expected an array in packed layout");
    c.cu_kv = kv;
    must(ordo_dropout_query(&p, &c, &info));
    c.cu_kv = wrong;
    CHECK_REFUSED(ordo_dropout_query(&p, &c, &info), ORDO_ERR_SHAPE, "cu_kv[2] 10");
    c.cu_kv = kv;
    p.total_kv = 29;
    CHECK_REFUSED(ordo_dropout_query(&p, &c, &info), ORDO_ERR_SHAPE,
                  "expected at most the total, 29");
    p.total_kv = 31; /* a column behind the last end has no bits */
    ordo_dropout_info more;
    must(ordo_dropout_query(&p, &c, &more));
    CHECK_INT(more.blocks, info.blocks);
    c.cu_q = (const void *)((const char *)q + 2);
    CHECK_REFUSED(ordo_dropout_query(&p, &c, &info), ORDO_ERR_ALIGN, "expected a multiple of 4");
    c.cu_q = q;
    c.seed_ptr = (const void *)((const char *)&p.scale + 4);
    CHECK_REFUSED(ordo_dropout_query(&p, &c, &info), ORDO_ERR_ALIGN, "expected a multiple of 8");
}

TEST(bad_ranges_are_refused_by_name)
{
    const ordo_problem p = problem_of(2, 2, 32, 128, 0.1);
    const ordo_dropout_call c = call_of(1, 2);
    uint32_t words[8 * 64 + 1];
    CHECK(ordo_dropout_fill(&p, &c, 0, 8, words, sizeof words) == ORDO_OK);
    CHECK(ordo_dropout_fill(&p, &c, 8, 0, NULL, 0) == ORDO_OK);
    CHECK_REFUSED(ordo_dropout_fill(&p, &c, 0, 9, words, sizeof words), ORDO_ERR_SHAPE,
                  "first 0, count 9: expected a range within 0..8");
    CHECK_REFUSED(ordo_dropout_fill(&p, &c, UINT64_MAX, 2, words, sizeof words), ORDO_ERR_SHAPE,
                  "first");
    CHECK_REFUSED(ordo_dropout_fill(&p, &c, 0, 8, NULL, sizeof words), ORDO_ERR_ARGUMENT,
                  "words NULL");
    CHECK_REFUSED(ordo_dropout_fill(&p, &c, 0, 8, words, 2047), ORDO_ERR_SHAPE,
                  "bytes 2047: expected at least 2048");
    CHECK_REFUSED(
        ordo_dropout_fill(&p, &c, 0, 8, (uint32_t *)((char *)words + 2), sizeof words - 2),
        ORDO_ERR_ALIGN, "expected a multiple of 4");

    bool keep;
    CHECK_REFUSED(ordo_dropout_keep(&p, &c, 2, 0, 0, 0, &keep), ORDO_ERR_ARGUMENT, "sequence 2");
    CHECK_REFUSED(ordo_dropout_keep(&p, &c, 0, -1, 0, 0, &keep), ORDO_ERR_ARGUMENT, "head -1");
    CHECK_REFUSED(ordo_dropout_keep(&p, &c, 0, 0, 32, 0, &keep), ORDO_ERR_ARGUMENT, "row 32");
    CHECK_REFUSED(ordo_dropout_keep(&p, &c, 0, 0, 0, 128, &keep), ORDO_ERR_ARGUMENT, "column 128");
    CHECK_REFUSED(ordo_dropout_keep(&p, &c, 0, 0, 0, 0, NULL), ORDO_ERR_ARGUMENT, "keep NULL");

    const ordo_dropout_part part = ORDO_DROPOUT_PART_INIT;
    unsigned char out[32 * 128];
    CHECK(ordo_dropout_export(&p, &c, NULL, &part, out, sizeof out, NULL) == ORDO_OK);
    CHECK(ordo_dropout_export(&p, &c, NULL, NULL, out, sizeof out, NULL) == ORDO_OK);
    CHECK_REFUSED(ordo_dropout_export(&p, &c, NULL, &part, out, 4095, NULL), ORDO_ERR_SHAPE,
                  "bytes 4095: expected at least 4096");
    CHECK_REFUSED(ordo_dropout_export(&p, &c, NULL, &part, NULL, 0, NULL), ORDO_ERR_ARGUMENT,
                  "out NULL");
}

static ordo_status export_part(const ordo_problem *p, const ordo_dropout_call *c,
                               const ordo_dropout_part *part)
{
    unsigned char out[32 * 128];
    return ordo_dropout_export(p, c, NULL, part, out, sizeof out, NULL);
}

TEST(bad_parts_are_refused_by_name)
{
    REFUSE(export_part, part.sequence = 2, ARGUMENT, "part.sequence 2: expected 0..1");
    REFUSE(export_part, part.head = 2, ARGUMENT, "part.head 2");
    REFUSE(export_part, part.row = 33, ARGUMENT, "part.row 33: expected 0..32");
    REFUSE(export_part, (part.col = 1, part.cols = 128), ARGUMENT,
           "part.cols 128: expected 1..127");
    REFUSE(export_part, part.format = (ordo_dropout_format)2, ARGUMENT, "part.format 2");
    REFUSE(export_part, part.size = 1, ARGUMENT, "ORDO_DROPOUT_PART_INIT");
}

TEST(sizes_that_do_not_fit)
{
    const int64_t most = INT64_C(1) << 30;
    ordo_problem p = problem_of(1, 1, most, most, 0.1);
    const ordo_dropout_call c = call_of(1, 2);
    ordo_dropout_info info;
    p.head_dim = 1;
    must(ordo_dropout_query(&p, &c, &info));
    CHECK_INT(info.bytes, INT64_C(1) << 57);
    CHECK_INT(info.elements, INT64_C(1) << 60);
    p.heads = 64;
    CHECK_REFUSED(ordo_dropout_query(&p, &c, &info), ORDO_ERR_OVERFLOW, "at most 2^60 bytes");
}

/* Whether a row of a block needs one of its columns, element by element. */
static bool block_visible(const ordo_problem *p, int64_t down, int64_t across)
{
    const int64_t diagonal = p->mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : p->kv_len - p->q_len;
    for (int64_t r = 16 * down; r < 16 * down + 16; r++)
        for (int64_t c = 128 * across; c < 128 * across + 128; c++) {
            const int64_t away = c - r - diagonal;
            if ((p->mask == ORDO_MASK_FULL || away <= 0) &&
                (!p->window.on || ((p->window.left < 0 || away >= -p->window.left) &&
                                   (p->window.right < 0 || away <= p->window.right))))
                return true;
        }
    return false;
}

TEST(hidden_blocks_are_left_as_they_are)
{
    uint64_t seed = 270;
    for (int x = 0; x < 60; x++) {
        ordo_problem p = problem_of(1 + x % 2, 2, check_between(&seed, 1, 700),
                                    check_between(&seed, 1, 900), 0.1);
        ordo_dropout_call c = call_of(3, 4);
        ordo_dropout_info info;
        p.mask = (ordo_mask)(x % 3);
        if (x % 4 == 0)
            p.window =
                (ordo_window) { true, check_between(&seed, -1, 300), check_between(&seed, -1, 90) };
        must(ordo_dropout_query(&p, &c, &info));
        uint32_t *all = malloc(info.bytes), *some = malloc(info.bytes);
        memset(some, 0x5a, info.bytes);
        must(ordo_dropout_fill(&p, &c, 0, info.blocks, all, info.bytes));
        c.visible_only = 1;
        c.threads = 1 + x % 3;
        const uint64_t part = info.blocks * (uint64_t)(x % 5) / 4; /* in one call or two */
        must(ordo_dropout_fill(&p, &c, 0, part, some, info.bytes));
        must(ordo_dropout_fill(&p, &c, part, info.blocks - part, some + 64 * part,
                               info.bytes - 256 * part));
        const int64_t across = (p.kv_len + 127) / 128, lines = (p.q_len + 15) / 16;
        for (uint64_t b = 0; b < info.blocks; b++) {
            const int64_t place = (int64_t)b % (across * lines);
            uint32_t left[64];
            memset(left, 0x5a, sizeof left);
            const bool visible = block_visible(&p, place / across, place % across);
            CHECK(memcmp(some + 64 * b, visible ? all + 64 * b : left, 256) == 0);
        }
        free(all);
        free(some);
    }
}

CHECK_MAIN()
