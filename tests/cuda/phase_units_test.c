/* The passes by phases with one column instead of hundreds, walked on the host by the functions
 * that the kernels walk by: every tile of scores that some row sees is computed once, nothing is
 * read that was not written, and panels, sections of heads and their order change no bit; nor does
 * it whether chains compute the scores that they sum. */
#include "cuda/pass/panels.h"

#include "check.h"

enum {
    SEQUENCES = 6,
    KV_HEADS = 3,
    GROUP = 2,
    HEADS = KV_HEADS * GROUP,
    LONGEST = 530,
    COLUMNS = 768, /* LONGEST in whole tiles */
    TILES = 13,    /* query tiles of one head, over all sequences */
    KEYS = 1700,   /* room for the keys of all sequences */
    ROWS = 1400
};

static const int32_t q_lens[SEQUENCES] = { 5, 0, 530, 128, 300, 1 };
static const int32_t kv_lens[SEQUENCES] = { 260, 7, 530, 0, 513, 129 };

static ordo_cuda_sequence table[SEQUENCES + 1];
static float scores[HEADS * TILES * PHASE_ROWS][COLUMNS];
static bool computed[HEADS][TILES][COLUMNS / PHASE_KEYS];
static bool computed_block[HEADS][TILES][COLUMNS / PHASE_CHAIN_KEYS];

typedef struct sums {
    float o[HEADS][ROWS], dv[KV_HEADS][KEYS];
} sums;

typedef struct setting {
    ordo_cuda_batch batch;
    int32_t each, section, together; /* tiles of a panel, key heads; heads issued together */
    bool down;
    bool chained; /* scores and sums by keys in one kernel */
} setting;

static ordo_cuda_batch batch_of(bool causal, int32_t left)
{
    ordo_cuda_batch batch = { 0 };
    ordo_cuda_sequence s = { 0 };
    for (int b = 0; b < SEQUENCES; b++) {
        const int32_t middle = kv_lens[b] - q_lens[b];
        s.q_len = q_lens[b];
        s.kv_len = kv_lens[b];
        s.low = left < 0 ? -ORDO_BAND_OPEN : middle - left;
        s.high = causal ? middle : ORDO_BAND_OPEN;
        table[b] = s;
        s.q_row += q_lens[b];
        s.kv_row += kv_lens[b];
        s.query_tile += (q_lens[b] + PHASE_ROWS - 1) / PHASE_ROWS;
        s.key_tile += (kv_lens[b] + PHASE_KEYS - 1) / PHASE_KEYS;
    }
    table[SEQUENCES] = s;
    batch.table = table;
    batch.sequences = SEQUENCES;
    batch.tiles = s.query_tile + 2; /* an upper bound, as of a packed batch */
    return batch;
}

static float factor(int32_t a, int32_t b, int32_t c)
{
    const uint32_t h = ((uint32_t)a * 2654435761u ^ (uint32_t)b * 40503u) * 2246822519u +
                       (uint32_t)c * 3266489917u;
    return (float)((h ^ h >> 15) % 2001) / 1000.0f - 1.0f;
}

static bool sees(const ordo_cuda_sequence *s, int32_t row, int32_t key)
{
    return row < s->q_len && key < s->kv_len && key - row >= s->low && key - row <= s->high;
}

/* ---- the phases ---- */

static void score_tile(const setting *x, const ordo_phase_panel *panel, int32_t head, int32_t tile,
                       const ordo_cuda_sequence *s, int32_t j)
{
    const int32_t i = tile - s->query_tile;
    const ordo_band band = ordo_sequence_band(s, PHASE_ROWS, PHASE_KEYS);
    const bool partial = ordo_band_partial(&band, i, j);
    const int64_t slot = ordo_phase_slot(panel, GROUP, head, tile);
    (void)x;
    CHECK(slot >= 0 && slot < (int64_t)panel->heads * GROUP * panel->tiles);
    CHECK(!computed[head][tile][j]);
    computed[head][tile][j] = true;
    for (int32_t r = 0; r < PHASE_ROWS; r++)
        for (int32_t c = 0; c < PHASE_KEYS; c++) {
            const int32_t row = i * PHASE_ROWS + r, key = j * PHASE_KEYS + c;
            const bool seen = sees(s, row, key);
            CHECK(seen || partial); /* whole tiles are not masked */
            scores[slot * PHASE_ROWS + r][key] = seen ? factor(head, s->q_row + row, key) : 0.0f;
        }
}

static void all_scores(const setting *x, const ordo_phase_panel *panel)
{
    const int32_t tiles = ordo_phase_tiles(&x->batch, panel), heads = panel->heads * GROUP;
    const int32_t chunks = (LONGEST + PHASE_KEYS * PHASE_CHUNK - 1) / (PHASE_KEYS * PHASE_CHUNK);
    for (int64_t ticket = 0; ticket < (int64_t)tiles * heads * chunks; ticket++) {
        const ordo_phase_unit unit = ordo_phase_issue(tiles, heads, x->together, chunks, ticket);
        const int32_t tile = panel->tile + unit.tile;
        const ordo_cuda_sequence *s = &table[ordo_batch_find(&x->batch, ORDO_BEFORE_QUERY, tile)];
        const ordo_span keys = ordo_phase_keys(s, tile - s->query_tile, PHASE_KEYS);
        const int32_t end = ordo_min32(keys.last + 1, (unit.part + 1) * PHASE_CHUNK);
        for (int32_t j = ordo_max32(keys.first, unit.part * PHASE_CHUNK); j < end; j++)
            score_tile(x, panel, panel->head * GROUP + unit.head, tile, s, j);
    }
}

static void by_queries(const setting *x, const ordo_phase_panel *panel, sums *out)
{
    const int32_t tiles = ordo_phase_tiles(&x->batch, panel), heads = panel->heads * GROUP;
    for (int64_t ticket = 0; ticket < (int64_t)tiles * heads; ticket++) {
        const ordo_phase_unit unit = ordo_phase_issue(tiles, heads, x->together, 1, ticket);
        const int32_t tile = panel->tile + tiles - 1 - unit.tile;
        const int32_t head = panel->head * GROUP + unit.head;
        const ordo_cuda_sequence *s = &table[ordo_batch_find(&x->batch, ORDO_BEFORE_QUERY, tile)];
        const int32_t i = tile - s->query_tile;
        const ordo_span keys = ordo_phase_keys(s, i, PHASE_STEP);
        const int64_t slot = ordo_phase_slot(panel, GROUP, head, tile);
        for (int32_t r = 0; r < PHASE_ROWS && i * PHASE_ROWS + r < s->q_len; r++) {
            float sum = 0;
            for (int32_t key = keys.first * PHASE_STEP; key < (keys.last + 1) * PHASE_STEP; key++)
                sum += scores[slot * PHASE_ROWS + r][key] *
                       (key < s->kv_len ? factor(7, s->kv_row + key, head / GROUP) : 0.0f);
            out->o[head][s->q_row + i * PHASE_ROWS + r] = sum;
        }
    }
}

/* The sums of keys first .. first + count - 1 over a walk. */
static void sum_keys(const ordo_phase_panel *panel, const ordo_phase_walk *walk,
                     const ordo_cuda_sequence *s, int32_t first, int32_t count, int32_t head,
                     sums *out)
{
    for (int32_t key = first; key < ordo_min32(first + count, s->kv_len); key++) {
        float *const at = &out->dv[head][s->kv_row + key];
        CHECK(walk->begins == isnan(*at)); /* the sums begin once, and go on after that */
        float sum = walk->begins ? 0.0f : *at;
        int32_t i = walk->first;
        for (int32_t n = 0; n < walk->count; n++, i += walk->step)
            for (int32_t q_head = head * GROUP; q_head < (head + 1) * GROUP; q_head++) {
                const int64_t slot = ordo_phase_slot(panel, GROUP, q_head, s->query_tile + i);
                for (int32_t r = 0; r < PHASE_ROWS; r++) {
                    const int32_t row = i * PHASE_ROWS + r;
                    sum += scores[slot * PHASE_ROWS + r][key] *
                           (row < s->q_len ? factor(q_head, 9, s->q_row + row) : 0.0f);
                }
            }
        *at = sum;
    }
}

static void walk_keys(const setting *x, const ordo_phase_panel *panel, int32_t half, int32_t head,
                      sums *out)
{
    const ordo_cuda_sequence *s = &table[ordo_batch_find(&x->batch, ORDO_BEFORE_KEY, half / 2)];
    const int32_t block = half - 2 * s->key_tile, first = block * PHASE_ROWS;
    if (first >= s->kv_len)
        return;
    const ordo_phase_walk walk = ordo_phase_visits(s, panel, PHASE_ROWS, block, x->down);
    if (walk.count == 0 && !walk.begins)
        return;
    sum_keys(panel, &walk, s, first, PHASE_ROWS, head, out);
}

/* 128 x 64 scores of query tile i, in halves of 64 rows. */
static void score_block(const ordo_phase_panel *panel, int32_t head, const ordo_cuda_sequence *s,
                        int32_t i, int32_t block)
{
    const ordo_band band = ordo_sequence_band(s, PHASE_CHAIN_KEYS, PHASE_CHAIN_KEYS);
    const int64_t slot = ordo_phase_slot(panel, GROUP, head, s->query_tile + i);
    CHECK(slot >= 0 && slot < (int64_t)panel->heads * GROUP * panel->tiles);
    CHECK(!computed_block[head][s->query_tile + i][block]);
    computed_block[head][s->query_tile + i][block] = true;
    for (int32_t r = 0; r < PHASE_ROWS; r++)
        for (int32_t c = 0; c < PHASE_CHAIN_KEYS; c++) {
            const int32_t row = i * PHASE_ROWS + r, key = block * PHASE_CHAIN_KEYS + c;
            const bool seen = sees(s, row, key);
            CHECK(seen || ordo_band_partial(&band, row / PHASE_CHAIN_KEYS, block));
            scores[slot * PHASE_ROWS + r][key] = seen ? factor(head, s->q_row + row, key) : 0.0f;
        }
}

/* A chain of 64 keys: the scores that it sums, and the sums. */
static void walk_chain(const setting *x, const ordo_phase_panel *panel, int32_t unit, int32_t head,
                       sums *out)
{
    const int32_t each = PHASE_KEYS / PHASE_CHAIN_KEYS;
    const ordo_cuda_sequence *s = &table[ordo_batch_find(&x->batch, ORDO_BEFORE_KEY, unit / each)];
    const int32_t block = unit - each * s->key_tile, first = block * PHASE_CHAIN_KEYS;
    if (first >= s->kv_len)
        return;
    const ordo_phase_walk walk = ordo_phase_visits(s, panel, PHASE_CHAIN_KEYS, block, x->down);
    if (walk.count == 0 && !walk.begins)
        return;
    for (int32_t n = 0; n < walk.count; n++)
        for (int32_t q_head = head * GROUP; q_head < (head + 1) * GROUP; q_head++)
            score_block(panel, q_head, s, walk.first + n * walk.step, block);
    sum_keys(panel, &walk, s, first, PHASE_CHAIN_KEYS, head, out);
}

static void fill_nan(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = NAN;
}

static void run(const setting *x, sums *out)
{
    fill_nan(&out->o[0][0], sizeof out->o / sizeof(float));
    fill_nan(&out->dv[0][0], sizeof out->dv / sizeof(float));
    memset(computed, 0, sizeof computed);
    memset(computed_block, 0, sizeof computed_block);
    const int32_t tiles = x->batch.tiles;
    for (int32_t head = 0; head < KV_HEADS; head += x->section)
        for (int32_t done = 0; done < tiles; done += x->each) {
            ordo_phase_panel panel = ordo_phase_panel_at(done, x->each, tiles, x->down);
            panel.head = head;
            panel.heads = ordo_min32(x->section, KV_HEADS - head);
            fill_nan(&scores[0][0], sizeof scores / sizeof(float));
            if (!x->chained)
                all_scores(x, &panel);
            const int32_t units = (x->chained ? 4 : 2) * table[SEQUENCES].key_tile;
            for (int64_t ticket = 0; ticket < (int64_t)units * panel.heads; ticket++) {
                const ordo_phase_unit unit =
                    ordo_phase_issue(units, panel.heads, x->together, 1, ticket);
                (x->chained ? walk_chain : walk_keys)(x, &panel, unit.tile, panel.head + unit.head,
                                                      out);
            }
            by_queries(x, &panel, out);
        }
}

/* ---- what they must give ---- */

/* dV of a key by the order of the sums: query tiles up or down, at each the heads, rows upwards. */
static float exact_dv(const ordo_cuda_sequence *s, int32_t head, int32_t key, bool down)
{
    const int32_t tiles = (s->q_len + PHASE_ROWS - 1) / PHASE_ROWS;
    float sum = 0;
    for (int32_t n = 0; n < tiles; n++)
        for (int32_t q_head = head * GROUP; q_head < (head + 1) * GROUP; q_head++)
            for (int32_t r = 0; r < PHASE_ROWS; r++) {
                const int32_t row = (down ? tiles - 1 - n : n) * PHASE_ROWS + r;
                if (sees(s, row, key))
                    sum += factor(q_head, s->q_row + row, key) * factor(q_head, 9, s->q_row + row);
            }
    return sum;
}

static float exact_o(const ordo_cuda_sequence *s, int32_t head, int32_t row)
{
    float sum = 0;
    for (int32_t key = 0; key < s->kv_len; key++)
        if (sees(s, row, key))
            sum += factor(head, s->q_row + row, key) * factor(7, s->kv_row + key, head / GROUP);
    return sum;
}

static void check_sums(const sums *got, bool down)
{
    for (int b = 0; b < SEQUENCES; b++) {
        const ordo_cuda_sequence *s = &table[b];
        for (int32_t head = 0; head < KV_HEADS; head++)
            for (int32_t key = 0; key < s->kv_len; key++)
                CHECK(got->dv[head][s->kv_row + key] == exact_dv(s, head, key, down));
        for (int32_t head = 0; head < HEADS; head++)
            for (int32_t row = 0; row < s->q_len; row++)
                CHECK(got->o[head][s->q_row + row] == exact_o(s, head, row));
    }
}

static void check_same(const sums *got, const sums *want)
{
    CHECK(memcmp((const char *)got->dv, (const char *)want->dv, sizeof got->dv) == 0);
    CHECK(memcmp((const char *)got->o, (const char *)want->o, sizeof got->o) == 0);
}

static void check_mask(bool causal, int32_t left)
{
    static sums whole, got;
    for (int down = 0; down < 2; down++) {
        setting x = { batch_of(causal, left), 100, KV_HEADS, 1, down, false };
        run(&x, &whole);
        check_sums(&whole, down);
        for (x.each = 1; x.each <= 5; x.each += 2) {
            x.section = x.each == 1 ? 1 : 2;
            x.together = x.each == 3 ? 4 : 2;
            run(&x, &got);
            check_same(&got, &whole);
        }
        x.each = x.section = 2;
        x.chained = true;
        run(&x, &got);
        check_same(&got, &whole);
    }
}

TEST(panels_change_no_bit_full)
{
    check_mask(false, -1);
}

TEST(panels_change_no_bit_causal)
{
    check_mask(true, -1);
}

TEST(panels_change_no_bit_window)
{
    check_mask(true, 70);
}

TEST(every_unit_comes_once)
{
    for (int32_t heads = 1; heads <= 5; heads++)
        for (int32_t together = 1; together <= heads; together++)
            for (int32_t parts = 1; parts <= 3; parts++) {
                bool taken[4][5][3] = { 0 };
                for (int64_t ticket = 0; ticket < 4 * heads * parts; ticket++) {
                    const ordo_phase_unit u = ordo_phase_issue(4, heads, together, parts, ticket);
                    CHECK(u.tile >= 0 && u.tile < 4 && u.head < heads && u.part < parts);
                    CHECK(!taken[u.tile][u.head][u.part]);
                    taken[u.tile][u.head][u.part] = true;
                }
            }
}

/* ---- dS^T of the chains ---- */

enum { LINES_MOST = 1 << 16 };

/* Every block of 64 keys that a query tile of a panel sees has lines of its own in `room`. */
static void check_lines(const ordo_cuda_batch *batch, const ordo_phase_lines *lines,
                        const ordo_phase_panel *panel, int64_t room)
{
    static bool taken[LINES_MOST];
    memset(taken, 0, sizeof taken);
    CHECK(room <= LINES_MOST);
    for (int32_t head = panel->head * 2; head < (panel->head + panel->heads) * 2; head++)
        for (int32_t tile = panel->tile; tile < panel->tile + panel->tiles; tile++) {
            const ordo_cuda_sequence s =
                ordo_batch_sequence(batch, ordo_batch_find(batch, ORDO_BEFORE_QUERY, tile));
            const ordo_span keys = ordo_phase_keys(&s, tile - s.query_tile, PHASE_CHAIN_KEYS);
            const int64_t first = ordo_phase_line(lines, panel, 2, head, tile);
            for (int32_t j = keys.first; j <= keys.last; j++)
                for (int32_t key = 64 * j; key < 64 * j + 64; key++) {
                    CHECK(first + key >= 0 && first + key < room);
                    CHECK(!taken[first + key]);
                    taken[first + key] = true;
                }
        }
}

/* The panels of `heads` key heads of two query heads each, in `places`. Returns how many. */
static int check_filled(const ordo_cuda_batch *batch, int32_t columns, int32_t heads,
                        ordo_phase_room places, bool down)
{
    ordo_phase_lines lines = ordo_phase_lines_of(batch, columns);
    int panels = 0;
    for (int32_t done = 0; done < batch->tiles; panels++) {
        ordo_phase_panel panel =
            ordo_phase_panel_filled(&lines, 2 * heads, &places, done, batch->tiles, down);
        CHECK(panel.tiles >= 1 && panel.tile == (down ? batch->tiles - done - panel.tiles : done));
        CHECK(panel.opening == (done == 0));
        panel.head = 1;
        panel.heads = heads;
        lines.before = ordo_phase_lines_before(&lines, panel.tile);
        lines.head = (int32_t)ordo_phase_panel_lines(&lines, &panel, 1);
        const int64_t need = ordo_phase_panel_lines(&lines, &panel, 2 * heads);
        CHECK(need <= (panel.tiles == batch->tiles ? places.whole : places.part) ||
              panel.tiles == 1);
        check_lines(batch, &lines, &panel, need);
        done += panel.tiles;
    }
    return panels;
}

static ordo_cuda_batch dense_batch(int32_t q_len, int32_t kv_len, int32_t low, int32_t high)
{
    ordo_cuda_batch batch = { 0 };
    batch.first.q_len = q_len;
    batch.first.kv_len = kv_len;
    batch.first.low = low;
    batch.first.high = high;
    batch.step.batch = 1;
    batch.step.query_tile = (q_len + PHASE_ROWS - 1) / PHASE_ROWS;
    batch.step.key_tile = (kv_len + PHASE_KEYS - 1) / PHASE_KEYS;
    batch.sequences = 2;
    batch.tiles = 2 * batch.step.query_tile;
    return batch;
}

TEST(lines_of_dense_batches_do_not_meet)
{
    static const int32_t lengths[] = { 1, 64, 128, 129, 700, 1024 };
    static const int32_t bands[][2] = { { -ORDO_BAND_OPEN, ORDO_BAND_OPEN },
                                        { -ORDO_BAND_OPEN, 0 },
                                        { -ORDO_BAND_OPEN, -65 },
                                        { -ORDO_BAND_OPEN, 300 },
                                        { -70, 0 },
                                        { -300, 64 },
                                        { 40, 191 },
                                        { 0, 0 } };
    for (size_t q = 0; q < sizeof lengths / sizeof *lengths; q++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            for (size_t b = 0; b < sizeof bands / sizeof *bands; b++)
                for (int64_t room = 1; room <= LINES_MOST; room *= 16) {
                    const ordo_cuda_batch batch =
                        dense_batch(lengths[q], lengths[k], bands[b][0], bands[b][1]);
                    check_filled(&batch, 1024, 1 + (int32_t)(q % 2),
                                 (ordo_phase_room) { room, room - room / 4 }, q % 2);
                }
}

TEST(lines_of_ragged_batches_do_not_meet)
{
    const ordo_cuda_batch batch = batch_of(true, -1);
    const ordo_phase_lines lines = ordo_phase_lines_of(&batch, COLUMNS);
    CHECK_INT(lines.columns, COLUMNS);
    for (int32_t tiles = 1; tiles <= 2 * TILES; tiles *= 2) {
        const int64_t room = 2 * COLUMNS * (int64_t)tiles;
        const int panels = check_filled(&batch, COLUMNS, 1, (ordo_phase_room) { room, room }, true);
        CHECK_INT(panels, (batch.tiles + tiles - 1) / tiles);
    }
}

/* A causal mask takes half of the workspace, and one diagonal. */
TEST(lines_of_a_causal_mask_are_half)
{
    const ordo_cuda_batch causal = dense_batch(1024, 1024, -ORDO_BAND_OPEN, 0);
    const ordo_cuda_batch full = dense_batch(1024, 1024, -ORDO_BAND_OPEN, ORDO_BAND_OPEN);
    CHECK_INT(ordo_phase_lines_of(&full, 0).sequence, 8 * 1024);
    CHECK_INT(ordo_phase_lines_of(&causal, 0).sequence, 128 * (8 * 9 / 2));
    const int64_t all = 2 * 2 * 128 * 36;
    CHECK_INT(check_filled(&causal, 0, 1, (ordo_phase_room) { all, all / 2 }, true), 1);
    CHECK_INT(check_filled(&causal, 0, 1, (ordo_phase_room) { all - 1, all - 1 }, true), 2);
}

/* ---- how evenly the chains end ---- */

enum { WORKERS = 132, LONG = 16384, LONG_TILES = LONG / PHASE_ROWS };

/* Steps of the units of a panel of one key head, drawn in order by WORKERS workers: the work of all
 * is added to *work. Returns when the last one ends. */
static int64_t schedule(const ordo_cuda_batch *batch, const ordo_phase_panel *panel, int32_t group,
                        int64_t *work)
{
    const ordo_cuda_sequence s = ordo_batch_sequence(batch, 0);
    int64_t busy[WORKERS] = { 0 }, end = 0;
    for (int32_t block = 0; block < s.kv_len / PHASE_CHAIN_KEYS; block++) {
        const ordo_phase_walk walk = ordo_phase_visits(&s, panel, PHASE_CHAIN_KEYS, block, true);
        int first = 0;
        for (int w = 1; w < WORKERS; w++)
            first = busy[w] < busy[first] ? w : first;
        busy[first] += (int64_t)walk.count * group * (PHASE_ROWS / PHASE_CHAIN_KEYS);
        *work += (int64_t)walk.count * group * (PHASE_ROWS / PHASE_CHAIN_KEYS);
        end = busy[first] > end ? busy[first] : end;
    }
    return end;
}

/* Four query heads of one key head, 16k causal: with P beside dS and whole rows of both, the
 * default workspace held a quarter of the tiles, and workers were busy for 0.66 of the time. */
TEST(chains_of_grouped_heads_end_together)
{
    ordo_cuda_batch batch = dense_batch(LONG, LONG, -ORDO_BAND_OPEN, 0);
    batch.sequences = 1;
    batch.tiles = LONG_TILES;
    const ordo_phase_lines lines = ordo_phase_lines_of(&batch, LONG);
    const int64_t part = (int64_t)32 * 4 * 2 * LONG; /* 32 tiles of P and dS, 4 heads */
    const ordo_phase_room room = { part + LONG * 512 * 4 / 256, part };
    int64_t work = 0, end = 0;
    for (int32_t done = 0; done < LONG_TILES; done += 32) {
        const ordo_phase_panel quarter = ordo_phase_panel_at(done, 32, LONG_TILES, true);
        end += schedule(&batch, &quarter, 4, &work);
    }
    CHECK(100 * work > 65 * WORKERS * end && 100 * work < 67 * WORKERS * end);
    const ordo_phase_panel panel = ordo_phase_panel_filled(&lines, 4, &room, 0, LONG_TILES, true);
    CHECK_INT(panel.tiles, LONG_TILES);
    work = 0;
    end = schedule(&batch, &panel, 4, &work);
    CHECK(100 * work > 97 * WORKERS * end);
}

TEST(sections_of_chains_have_two_units_for_each_worker)
{
    ordo_cuda_batch batch = dense_batch(8192, 8192, -ORDO_BAND_OPEN, 0);
    batch.sequences = 1;
    batch.tiles = 64;
    const ordo_phase_lines lines = ordo_phase_lines_of(&batch, 8192);
    const int64_t head = 4 * lines.sequence; /* four query heads */
    for (int32_t fit = 1; fit <= 9; fit++) {
        const ordo_phase_room room = { fit * head, head };
        const int32_t section = ordo_phase_section(&lines, &batch, 1, 8, 4, &room, WORKERS);
        CHECK_INT(section, fit == 1 ? 1 : 2); /* 128 units per head */
        CHECK_INT(ordo_phase_section(&lines, &batch, 1, 5, 4, &room, 8 * WORKERS),
                  fit < 5 ? (fit == 4 ? 3 : fit) : 5); /* two of 3 and 2 are as few as 4 and 1 */
        CHECK_INT(ordo_phase_section(&lines, &batch, 4, 8, 4, &room, WORKERS), 4);
        CHECK_INT(ordo_phase_section(&lines, &batch, 1, 8, 4, &room, 64), 1);
    }
    batch = batch_of(true, -1);
    const ordo_phase_lines ragged = ordo_phase_lines_of(&batch, COLUMNS);
    const ordo_phase_room room = { 1 << 30, 1 << 30 };
    CHECK_INT(ordo_phase_section(&ragged, &batch, 1, 8, 4, &room, WORKERS), 1);
}

CHECK_MAIN()
