/* blocks_test.c: the rows and columns of bits that a CUDA pass makes of a block mask, by the text
 * that the device compiles: against the lists of the plan, and walked as the kernels walk them. */
#include "host_table.h"
#include "host_tiles.h"

#include "api/cuda_pass.h"
#include "base/blocks.h"
#include "check.h"
#include "grid_blocks.h"
#include "plan/lists.h"

enum { BATCH = 4, HEADS = 6, KV_HEADS = 2, ROWS = 900, COLUMNS = 5000 };

typedef struct trial {
    ordo_plan *plan;
    ordo_block_mask *mask;
    ordo_call call;
    ordo_cuda_pass pass;
    ordo_cuda_sequence table[BATCH + 1];
    int32_t cu_q[BATCH + 1], cu_kv[BATCH + 1];
    void *workspace;
} trial;

static ordo_problem draw_problem(trial *t, uint64_t *state, int64_t head_dim)
{
    static const int64_t lengths[] = { 700, 4300, 1, 128, 0, 300, 4993, 900 };
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = ORDO_BF16;
    p.layout = check_between(state, 0, 1) ? ORDO_PACKED : ORDO_DENSE;
    p.batch = BATCH;
    p.heads = HEADS;
    p.kv_heads = KV_HEADS;
    p.q_len = ROWS;
    p.kv_len = COLUMNS;
    p.head_dim = head_dim;
    p.mask = (ordo_mask)check_between(state, 0, 2);
    if (check_between(state, 0, 3) == 0)
        p.window = (ordo_window) { true, check_between(state, 0, 900), -1 };
    for (int b = 0; b < BATCH; b++) {
        const int64_t rows = lengths[check_between(state, 0, 7)];
        t->cu_q[b + 1] = t->cu_q[b] + (int32_t)(rows > ROWS ? ROWS : rows);
        t->cu_kv[b + 1] = t->cu_kv[b] + (int32_t)lengths[check_between(state, 0, 7)];
    }
    if (p.layout == ORDO_PACKED) {
        p.total_q = t->cu_q[BATCH];
        p.total_kv = t->cu_kv[BATCH];
    }
    return p;
}

static grid_blocks draw_blocks(uint64_t *state)
{
    grid_blocks x = { .kind = (grid_block_kind)check_between(state, 1, GRID_BLOCK_KINDS - 1),
                      .seed = check_random(state),
                      .per_sequence = check_between(state, 0, 1),
                      .per_head = check_between(state, 0, 1) };
    x.seen = x.kind == GRID_ELEMENTS || check_between(state, 0, 3) == 0;
    x.per_head = x.per_head && !(x.seen && x.per_sequence); /* many elements take long */
    x.size = x.kind == GRID_SPARSE ? check_between(state, 0, 256) : check_between(state, 1, ROWS);
    return x;
}

/* The bits of one pass; nothing is launched, so that tensors may be any addresses. */
static void make_pass(trial *t, ordo_pass which)
{
    static _Alignas(256) char anywhere[256];
    ordo_call *c = &t->call;
    *c = (ordo_call)ORDO_CALL_INIT;
    c->q.data = c->k.data = c->v.data = c->o.data = c->dout.data = anywhere;
    c->dq.data = c->dk.data = c->dv.data = anywhere;
    c->lse = (float *)anywhere;
    c->workspace = t->workspace;
    c->block_mask = t->mask;
    if (t->plan->problem.layout == ORDO_PACKED) {
        c->cu_q = t->cu_q;
        c->cu_kv = t->cu_kv;
    }
    CHECK_INT(ordo_cuda_pass_make(t->plan, which, c, &t->pass), ORDO_OK);
    if (t->pass.table)
        host_table(&t->pass, t->table);
    t->pass.batch.table = t->pass.table ? t->table : NULL;
    host_tiles(&t->pass);
}

/* Above head size 128 the kernels have element masks alone. */
static bool open_trial(trial *t, uint64_t seed, ordo_order order, int64_t head_dim)
{
    uint64_t state = seed;
    ordo_machine *machine = NULL;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    *t = (trial) { .plan = NULL };
    ordo_problem p = draw_problem(t, &state, head_dim);
    grid_blocks blocks = draw_blocks(&state);
    if (head_dim > 128) {
        blocks.seen = true;
        blocks.per_head = blocks.per_head && !blocks.per_sequence;
    }
    t->mask = grid_block_mask(&blocks, &p);
    options.order = order;
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    const ordo_status status = ordo_plan_create(&t->plan, &p, machine, &options);
    ordo_machine_destroy(machine);
    CHECK_INT(status, ORDO_OK);
    if (status != ORDO_OK) {
        printf("%s\n", ordo_last_error());
        return false;
    }
    t->workspace = aligned_alloc(256, ordo_plan_workspace(t->plan) + 256);
    return t->workspace != NULL;
}

static void close_trial(trial *t)
{
    ordo_plan_destroy(t->plan);
    grid_block_destroy(t->mask);
    free(t->workspace);
}

/* ---- rows, columns and turns are those of the plan's lists ---- */

static void check_list(const trial *t, int32_t b, int32_t head, ordo_walk_kind kind)
{
    const ordo_cuda_block_mask *x = &t->pass.blocks;
    const ordo_cuda_sequence s = ordo_batch_sequence(&t->pass.batch, b);
    const ordo_band band = ordo_sequence_band(&s, x->rows, ORDO_BLOCK);
    const ordo_block_view view = ordo_block_view_of(t->mask, b, head);
    const int32_t before = ordo_blocks_before(x, &s, t->pass.run.band.bq);
    ordo_lists lists;
    CHECK_INT(ordo_lists_create(&lists, &band, &view), ORDO_OK);
    for (int32_t i = 0; i < lists.nq; i++) {
        const ordo_tile_word *const words = ordo_blocks_words(x, head, before, i);
        CHECK_INT(words->count, ordo_lists_count(&lists, i));
        for (int32_t j = 0; j < lists.nk; j++) {
            const ordo_tile_word *const word = words + j / ORDO_TILE_BITS;
            const int32_t turn = ordo_lists_turn(&lists, kind, i, j);
            CHECK_INT(ordo_bit(word->seen, j) ? ordo_blocks_turn(word, j, kind == ORDO_WALK_SPT)
                                              : -1,
                      turn);
        }
    }
    for (int32_t j = 0; x->columns && j < lists.nk; j++) {
        const int32_t keys_before = s.key_tile * (t->pass.run.band.bk / ORDO_BLOCK);
        const uint32_t *const column = ordo_blocks_column(x, head, keys_before, j);
        uint32_t count = 0;
        for (int32_t i = 0; i < lists.nq; i++) {
            const bool seen = ordo_lists_turn(&lists, kind, i, j) >= 0;
            CHECK_INT(ordo_bit(column[1 + i / ORDO_TILE_BITS], i), seen);
            count += seen;
        }
        CHECK_INT(column[0], count);
    }
    /* Elements that the bits leave are those of the mask, inside the band. */
    for (int32_t r = 0; r < s.q_len; r += 7)
        for (int32_t c = 0; c < s.kv_len; c += 3)
            if (c - r >= s.low && c - r <= s.high)
                CHECK_INT(ordo_blocks_sees(x, b, head, before, r, c), ordo_block_sees(&view, r, c));
    ordo_lists_destroy(&lists);
}

static void check_lists(const trial *t, ordo_walk_kind kind)
{
    for (int32_t b = 0; b < BATCH; b++)
        for (int32_t head = 0; head < HEADS; head++)
            check_list(t, b, head, kind);
}

TEST(bits_are_the_lists_of_the_plan)
{
    static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                         ORDO_ORDER_SPT };
    static const ordo_walk_kind kinds[] = { ORDO_WALK_ASCENDING, ORDO_WALK_DESCENDING,
                                            ORDO_WALK_SPT };
    for (uint64_t seed = 1; seed <= 12; seed++) {
        trial t;
        const int64_t wide = seed % 3 < 2 ? 200 : 128; /* where spt is not run */
        if (!open_trial(&t, seed, orders[seed % 3], seed % 2 ? 64 : wide))
            return;
        make_pass(&t, ORDO_BACKWARD);
        check_lists(&t, kinds[seed % 3]);
        make_pass(&t, ORDO_FORWARD);
        CHECK_INT(t.pass.blocks.rows, 64);
        check_lists(&t, kinds[seed % 3]);
        close_trial(&t);
    }
}

/* ---- the walk of a unit of the forward pass ---- */

static void check_unit(const trial *t, int32_t b, int32_t head, int32_t first, int32_t count)
{
    const ordo_cuda_block_mask *x = &t->pass.blocks;
    const ordo_cuda_sequence s = ordo_batch_sequence(&t->pass.batch, b);
    const int32_t before = ordo_blocks_before(x, &s, t->pass.run.band.bq);
    const ordo_tile_word *const words = ordo_blocks_words(x, head, before, first);
    int32_t tile = (s.kv_len + ORDO_BLOCK - 1) / ORDO_BLOCK, walked = 0, listed = 0;
    ordo_span all = ordo_blocks_span(0, 0);
    for (int32_t n = 0; n < count; n++) {
        const ordo_span own = x->spans[ordo_blocks_row_at(x, head, before, first + n)];
        all.first = ordo_min32(all.first, own.first);
        all.last = ordo_max32(all.last, own.last);
    }
    for (int32_t j = 0; j < tile; j++) {
        bool seen = false;
        for (int32_t n = 0; n < count; n++)
            seen |= ordo_bit(words[n * x->across + j / ORDO_TILE_BITS].seen, j);
        listed += seen;
    }
    for (int32_t last = -1; (tile = ordo_blocks_below(words, x->across, count, tile)) >= 0;
         last = tile) {
        if (last < 0)
            CHECK_INT(tile, all.last);
        else
            CHECK(tile < last);
        walked++;
        if (tile == all.first)
            break;
    }
    CHECK_INT(walked, listed);
}

TEST(units_walk_what_their_warpgroups_see)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        trial t;
        if (!open_trial(&t, seed, ORDO_ORDER_DEFAULT, seed % 2 ? 64 : 128))
            return;
        make_pass(&t, ORDO_FORWARD);
        for (int32_t b = 0; b < BATCH; b++) {
            const ordo_cuda_sequence s = ordo_batch_sequence(&t.pass.batch, b);
            const int32_t tiles = (s.q_len + 63) / 64, each = seed % 2 ? 3 : 2;
            for (int32_t i = 0; i < tiles; i += each)
                for (int32_t head = 0; head < HEADS; head++)
                    check_unit(&t, b, head, i, tiles - i < each ? tiles - i : each);
        }
        close_trial(&t);
    }
}

/* ---- the chains of the backward pass ---- */

/* One chain as the planner of the kernel walks it: each step finds its turn done, so that no chain
 * waits for one with a later ticket. */
static void walk_chain(const trial *t, int32_t b, int32_t head, int32_t key, int32_t *turns,
                       int64_t *pairs)
{
    const ordo_cuda_block_mask *x = &t->pass.blocks;
    const ordo_cuda_sequence s = ordo_batch_sequence(&t->pass.batch, b);
    const bool descending = t->pass.run.order == ORDO_ORDER_DESCENDING;
    const int32_t group = HEADS / KV_HEADS, own = x->lists > 1 ? group : 1;
    const uint32_t *const column = ordo_blocks_column(x, head * group, s.key_tile, key);
    const int64_t stride = (int64_t)x->key_tiles * (x->down + 1);
    int32_t steps = 0, last = -1;
    for (int32_t n = 0; n < own; n++)
        steps += (int32_t)column[n * stride];
    steps *= own == 1 ? group : 1;
    for (int32_t i = descending ? x->down * ORDO_TILE_BITS : -1; steps > 0;) {
        i = ordo_blocks_visit(column, stride, own, x->down, i, descending);
        CHECK(i >= 0 && (last < 0 || (descending ? i < last : i > last)));
        if (i < 0)
            return;
        last = i;
        for (int32_t q = head * group; q < (head + 1) * group; q++) {
            const ordo_tile_word word =
                ordo_blocks_words(x, q, s.query_tile, i)[key / ORDO_TILE_BITS];
            if (!ordo_bit(word.seen, key))
                continue;
            int32_t *const turn = turns + (int64_t)q * t->pass.batch.tiles + s.query_tile + i;
            CHECK_INT(ordo_blocks_turn(&word, key, t->pass.run.order == ORDO_ORDER_SPT), *turn);
            ++*turn;
            ++*pairs;
            steps--;
        }
    }
    CHECK_INT(steps, 0);
    if (last >= 0)
        CHECK_INT(ordo_blocks_visit(column, stride, own, x->down, last, descending), -1);
}

/* Tickets in the order in which blocks draw them. */
static void walk_all(const trial *t)
{
    const ordo_cuda_block_mask *x = &t->pass.blocks;
    const int64_t tiles = (int64_t)HEADS * t->pass.batch.tiles;
    int32_t *turns = calloc((size_t)tiles + 1, sizeof *turns);
    int64_t pairs = 0, listed = 0;
    for (int32_t b = 0; b < BATCH && turns; b++) {
        ordo_run run = t->pass.run;
        const ordo_cuda_sequence s = ordo_batch_sequence(&t->pass.batch, b);
        run.sequences = 1;
        run.band = ordo_sequence_band(&s, run.band.bq, run.band.bk);
        for (int64_t ticket = 0; ticket < ordo_run_tickets(&run, 0); ticket++) {
            const ordo_unit unit = ordo_run_issue(&run, 0, ticket);
            CHECK_INT(unit.keys, 1);
            walk_chain(t, b, unit.head, unit.key[0], turns, &pairs);
        }
        for (int32_t head = 0; head < HEADS; head++)
            for (int32_t i = 0; i * x->rows < s.q_len; i++) {
                const int32_t count = ordo_blocks_words(x, head, s.query_tile, i)->count;
                CHECK_INT(turns[(int64_t)head * t->pass.batch.tiles + s.query_tile + i], count);
                listed += count;
            }
    }
    CHECK_INT(pairs, listed);
    free(turns);
}

TEST(chains_find_their_turns_done)
{
    static const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING,
                                         ORDO_ORDER_SPT };
    for (uint64_t seed = 1; seed <= 18; seed++) {
        trial t;
        if (!open_trial(&t, seed, orders[seed % 3], seed % 2 ? 64 : 128))
            return;
        make_pass(&t, ORDO_BACKWARD);
        walk_all(&t);
        close_trial(&t);
    }
}

/* ---- lists that are wrong ---- */

/* Any lists at all lead to bits of tiles that exist and to turns that come. */
TEST(wrong_lists_are_clamped)
{
    for (uint64_t seed = 1; seed <= 18; seed++) {
        uint64_t state = seed;
        trial t;
        if (!open_trial(&t, seed, ORDO_ORDER_DEFAULT, seed % 2 ? 64 : 128))
            return;
        int32_t *const start = (int32_t *)t.mask->start, *const key = (int32_t *)t.mask->key;
        int32_t *const first = (int32_t *)t.mask->first, *const last = (int32_t *)t.mask->last;
        const int64_t masks = t.mask->sequences * t.mask->heads;
        for (int64_t x = 0; x < masks * ((ROWS + 127) / 128 + 1); x++)
            if (check_between(&state, 0, 2) == 0)
                start[x] = (int32_t)check_random(&state);
            else if (check_between(&state, 0, 2) == 0)
                start[x] = (int32_t)check_between(&state, 0, t.mask->entries);
        for (int64_t x = 0; x < t.mask->entries; x++)
            if (check_between(&state, 0, 2) == 0)
                key[x] = (int32_t)check_random(&state);
            else if (check_between(&state, 0, 2) == 0)
                key[x] = (int32_t)check_between(&state, 0, COLUMNS / 128);
        for (int64_t x = 0; first && x < masks * ROWS; x++) {
            first[x] = (int32_t)check_random(&state);
            last[x] = (int32_t)check_random(&state);
        }
        make_pass(&t, ORDO_BACKWARD);
        walk_all(&t);
        close_trial(&t);
    }
}

CHECK_MAIN()
