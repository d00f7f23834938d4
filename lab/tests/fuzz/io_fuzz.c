/* io_fuzz.c: any bytes as a problem of the I/O model, an algorithm and a cache.
 *
 * A run moves exactly the words of the closed form, never more fast memory than there is, never
 * fewer words than the bound, and computes what the oracle does. Caches of the same loops never
 * fill more lines than words are touched, and the curve of all sizes never rises. */
#include "fuzz/input.h"
#include "ordo/lab/io.h"

enum { MOST_CURVE = 64 };

static int64_t size_of(reader *r, int most)
{
    const int b = byte(r);
    return b == 255 ? INT64_MAX : b == 254 ? INT64_MIN : b == 253 ? -1 : b % (most + 1);
}

static ordo_io_problem read_problem(reader *r)
{
    ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
    p.pass = (ordo_io_pass)(byte(r) % 5);
    p.q_len = size_of(r, 12);
    p.kv_len = size_of(r, 12);
    p.head_dim = size_of(r, 6);
    p.v_head_dim = size_of(r, 6);
    p.heads = size_of(r, 4);
    p.kv_heads = size_of(r, 2);
    p.mask = (ordo_mask)(byte(r) % 4);
    p.window.on = byte(r) % 2;
    p.window.left = size_of(r, 8);
    p.window.right = size_of(r, 8);
    p.dropout_p = real(r);
    p.seed = (uint64_t)byte(r);
    p.cache_words = byte(r) == 255 ? size_of(r, 9) : 2 * byte(r);
    p.strip = size_of(r, 4);
    p.workspace_words = size_of(r, 200);
    return p;
}

static ordo_io_tiles read_tiles(reader *r)
{
    ordo_io_tiles t = { 0 };
    t.rows = size_of(r, 6);
    t.cols = size_of(r, 6);
    t.out_rows = size_of(r, 6);
    t.out_keys = size_of(r, 6);
    t.out_cols = size_of(r, 6);
    t.panel = size_of(r, 12);
    return t;
}

static void check_run(const ordo_io_problem *p, ordo_io_algorithm a, const ordo_io_tiles *tiles)
{
    ordo_io_report r;
    ordo_io_words words;
    ordo_io_bound bound;
    const bool known = ordo_io_predict(p, a, tiles, &words) == ORDO_OK;
    if (ordo_io_run(p, a, tiles, &r) != ORDO_OK)
        return;
    must(known && ordo_io_bound_best(p, &bound) == ORDO_OK);
    must(r.loads == words.loads && r.stores == words.stores);
    must(r.loads == r.predicted.loads && r.stores == r.predicted.stores);
    must(r.peak <= p->cache_words && r.peak <= words.cache);
    must((double)(r.loads + r.stores) >= bound.words);
    must(r.error <= (p->pass == ORDO_IO_GRADIENT ? 1e-6 : 1e-12));
}

static void check_caches(reader *r, const ordo_io_problem *p, ordo_io_algorithm a,
                         const ordo_io_tiles *tiles)
{
    ordo_io_report report;
    ordo_io_words inner, curve[MOST_CURVE] = { { 0 } };
    ordo_io_cache c = ORDO_IO_CACHE_INIT;
    c.replacement = (ordo_io_replacement)(byte(r) % 5);
    c.line = size_of(r, 8);
    c.ways = size_of(r, 8);
    c.budget = real(r);
    c.packed = byte(r) % 2;
    c.outer_words = size_of(r, 200);
    c.outer_ways = size_of(r, 5);
    if (ordo_io_cache_run(p, a, tiles, &c, &report, &inner) == ORDO_OK) {
        const int64_t line = c.line ? c.line : 1;
        must(inner.loads >= 0 && inner.stores >= 0 && report.accesses >= 0);
        must(inner.loads / line <= report.accesses && inner.stores / line <= report.accesses);
    }
    const int64_t count = byte(r) % (MOST_CURVE + 1);
    block exact = block_of(curve, (size_t)count * sizeof *curve);
    if (ordo_io_curve(p, a, tiles, c.line, c.packed, block_data(&exact), count, &report) ==
        ORDO_OK) {
        const ordo_io_words *w = block_data(&exact);
        for (int64_t x = 1; x < count; x++)
            must(w[x].loads <= w[x - 1].loads && w[x].stores <= w[x - 1].stores);
    }
    block_close(&exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = { data, data + size };
    ordo_io_problem p = read_problem(&r);
    const ordo_io_algorithm a = (ordo_io_algorithm)(byte(&r) % (ORDO_IO_ALGORITHM_COUNT + 2));
    const ordo_io_tiles tiles = read_tiles(&r);
    const ordo_io_tiles *given = byte(&r) % 2 ? &tiles : NULL;
    block mask = { 0 };
    if (byte(&r) % 3 == 1) {
        p.block_q = size_of(&r, 6);
        p.block_k = size_of(&r, 6);
        const int64_t kv_len = p.kv_len ? p.kv_len : p.q_len;
        if (p.block_q < 1 || p.block_k < 1 || p.q_len < 1 || kv_len < 1 || p.q_len > 12 ||
            kv_len > 12)
            return 0;
        mask = block_open(
            (size_t)(((p.q_len - 1) / p.block_q + 1) * ((kv_len - 1) / p.block_k + 1)), &r);
        p.blocks = block_data(&mask);
    }
    for (int x = -1; x <= ORDO_IO_BOUND_COUNT; x++) {
        ordo_io_bound bound;
        must(ordo_io_bound_at(&p, x, &bound) != ORDO_OK || (x >= 0 && x < ORDO_IO_BOUND_COUNT));
    }
    check_run(&p, a, given);
    check_caches(&r, &p, a, given);
    if (mask.memory)
        block_close(&mask);
    return 0;
}
