/* sequences_test.c: the table of a packed or padded batch, by the text that the device compiles,
 * against what the rest of the library says of each sequence. */
#include "host_table.h"

#include "api/cuda_pass.h"
#include "api/dropout.h"
#include "base/philox.h"
#include "check.h"

enum { BATCH = 37, LONGEST = 300 };

/* Small numbers in order of asking. */
static int64_t draw(uint32_t *at, int64_t most)
{
    const ordo_philox_words counter = { { (*at)++, 5, 0, 0 } };
    return ordo_philox(counter, 1, 2, 7).w[0] % (most + 1);
}

typedef struct trial {
    ordo_plan *plan;
    ordo_call call;
    ordo_cuda_pass pass;
    int32_t cu_q[BATCH + 1], cu_kv[BATCH + 1], q_lens[BATCH], kv_lens[BATCH];
    int64_t ids[BATCH];
    ordo_cuda_sequence table[BATCH + 1];
} trial;

static ordo_problem problem_of(ordo_layout layout)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = ORDO_BF16;
    p.layout = layout;
    p.batch = BATCH;
    p.heads = 6;
    p.kv_heads = 2;
    p.q_len = LONGEST;
    p.kv_len = LONGEST + 50;
    p.head_dim = 64;
    return p;
}

/* Lengths of which some are 0 and some the longest. */
static void draw_lengths(trial *t, uint32_t seed)
{
    for (int b = 0; b < BATCH; b++) {
        t->q_lens[b] = (int32_t)draw(&seed, LONGEST + 60) - 30;
        t->q_lens[b] = t->q_lens[b] < 0 ? 0 : t->q_lens[b] > LONGEST ? LONGEST : t->q_lens[b];
        t->kv_lens[b] = (int32_t)draw(&seed, LONGEST + 50);
        t->cu_q[b + 1] = t->cu_q[b] + t->q_lens[b];
        t->cu_kv[b + 1] = t->cu_kv[b] + t->kv_lens[b];
        t->ids[b] = draw(&seed, 1000000);
    }
}

/* A plan, a pass and its table; nothing is launched, so that tensors may be any addresses. */
static void open_trial(trial *t, ordo_problem p)
{
    static _Alignas(256) char anywhere[1 << 24];
    ordo_machine *machine = NULL;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    const bool packed = p.layout == ORDO_PACKED, padded = p.layout == ORDO_PADDED;
    p.total_q = packed ? t->cu_q[BATCH] : 0;
    p.total_kv = packed ? t->cu_kv[BATCH] : 0;
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    if (ordo_plan_create(&t->plan, &p, machine, &options) != ORDO_OK) {
        printf("%s\n", ordo_last_error());
        exit(1);
    }
    ordo_machine_destroy(machine);
    ordo_call *c = &t->call;
    *c = (ordo_call)ORDO_CALL_INIT;
    c->q.data = c->k.data = c->v.data = c->o.data = c->dout.data = anywhere;
    c->dq.data = c->dk.data = c->dv.data = anywhere;
    c->lse = (float *)anywhere;
    c->workspace = anywhere;
    c->cu_q = packed ? t->cu_q : NULL;
    c->cu_kv = packed ? t->cu_kv : NULL;
    c->q_lens = padded ? t->q_lens : NULL;
    c->kv_lens = padded ? t->kv_lens : NULL;
    c->sequence_ids = t->ids;
    CHECK_INT(ordo_cuda_pass_make(t->plan, ORDO_BACKWARD, c, &t->pass), ORDO_OK);
    CHECK(t->pass.table == t->pass.batch.table);
    host_table(&t->pass, t->table);
    t->pass.batch.table = t->table;
}

/* The masks of a problem: every one, windows in and out of it. */
static void choose_mask(ordo_problem *p, int which)
{
    p->mask = (ordo_mask)(which % 3);
    if (which / 3 == 1)
        p->window = (ordo_window) { true, 40, 0 };
    if (which / 3 == 2)
        p->window = (ordo_window) { true, 7, 90 };
    if (which / 3 == 3)
        p->window = (ordo_window) { true, 0, -1 };
}

/* Bands as the planner, the simulators and the CPU backend get them. */
static void check_sequence(const trial *t, int32_t b)
{
    const ordo_problem *p = &t->plan->problem;
    const ordo_cuda_sequence s = ordo_batch_sequence(&t->pass.batch, b);
    const bool packed = p->layout == ORDO_PACKED;
    CHECK_INT(s.q_len, t->q_lens[b]);
    CHECK_INT(s.kv_len, t->kv_lens[b]);
    CHECK_INT(s.q_row, packed ? t->cu_q[b] : 0);
    CHECK_INT(s.kv_row, packed ? t->cu_kv[b] : 0);
    CHECK_INT(s.batch, packed ? 0 : b);
    CHECK_INT(s.diagonal, p->mask == ORDO_MASK_CAUSAL_TOP_LEFT ? 0 : s.kv_len - s.q_len);
    CHECK_INT(s.lse, packed ? t->cu_q[b] : b * p->heads * p->q_len);
    const ordo_band want = ordo_plan_band(t->plan, s.q_len, s.kv_len);
    const ordo_band got = ordo_sequence_band(&s, want.bq, want.bk);
    CHECK(memcmp(&got, &want, sizeof got) == 0);
}

TEST(sequences_are_what_the_plan_says)
{
    for (int packed = 0; packed < 2; packed++)
        for (int which = 0; which < 12; which++) {
            trial t = { 0 };
            ordo_problem p = problem_of(packed ? ORDO_PACKED : ORDO_PADDED);
            choose_mask(&p, which);
            draw_lengths(&t, (uint32_t)which * 1000);
            open_trial(&t, p);
            CHECK_INT(t.pass.batch.sequences, BATCH);
            CHECK_INT(t.pass.batch.lse_head, packed ? t.cu_q[BATCH] : p.q_len);
            for (int32_t b = 0; b < BATCH; b++)
                check_sequence(&t, b);
            ordo_plan_destroy(t.plan);
        }
}

/* Tiles before a sequence, and the sequence of a tile. */
TEST(tiles_are_counted_and_found)
{
    for (int packed = 0; packed < 2; packed++) {
        trial t = { 0 };
        int64_t forward = 0, query = 0, key = 0;
        draw_lengths(&t, 77);
        open_trial(&t, problem_of(packed ? ORDO_PACKED : ORDO_PADDED));
        const ordo_cuda_batch *batch = &t.pass.batch;
        for (int32_t b = 0; b <= BATCH; b++) {
            const ordo_cuda_sequence s = ordo_batch_sequence(batch, b);
            CHECK_INT(s.forward_tile, forward);
            CHECK_INT(s.query_tile, query);
            CHECK_INT(s.key_tile, key);
            if (b == BATCH)
                break;
            for (int32_t i = 0; i < (t.q_lens[b] + 191) / 192; i++, forward++)
                CHECK_INT(ordo_batch_find(batch, ORDO_BEFORE_FORWARD, forward), b);
            for (int32_t i = 0; i < (t.q_lens[b] + 127) / 128; i++, query++)
                CHECK_INT(ordo_batch_find(batch, ORDO_BEFORE_QUERY, query), b);
            for (int32_t j = 0; j < (t.kv_lens[b] + 127) / 128; j++, key++)
                CHECK_INT(ordo_batch_find(batch, ORDO_BEFORE_KEY, key), b);
        }
        CHECK(query <= batch->tiles);
        ordo_plan_destroy(t.plan);
    }
}

/* A pass in two kernels: a sequence has tiles of one of them. */
TEST(few_and_many_queries_are_counted_apart)
{
    enum { FEW = 64 };
    trial t = { 0 };
    int64_t few = 0, many = 0;
    draw_lengths(&t, 78);
    t.q_lens[1] = 0, t.q_lens[2] = FEW, t.q_lens[3] = FEW + 1;
    open_trial(&t, problem_of(ORDO_PADDED));
    t.pass.ragged.forward_rows = 16;
    host_table_apart(&t.pass, FEW, t.table);
    for (int32_t b = 0; b <= BATCH; b++) {
        CHECK_INT(t.table[b].forward_tile, few);
        CHECK_INT(t.table[b].query_tile, many);
        if (b == BATCH)
            break;
        for (int32_t i = 0; t.q_lens[b] <= FEW && i < (t.q_lens[b] + 15) / 16; i++, few++)
            CHECK_INT(ordo_batch_find(&t.pass.batch, ORDO_BEFORE_FORWARD, few), b);
        for (int32_t i = 0; t.q_lens[b] > FEW && i < (t.q_lens[b] + 127) / 128; i++, many++)
            CHECK_INT(ordo_batch_find(&t.pass.batch, ORDO_BEFORE_QUERY, many), b);
    }
    CHECK(few > 0 && many > 0);
    ordo_plan_destroy(t.plan);
}

/* Bits and ids as ordo_dropout_fill() stores and keys them. */
TEST(bits_are_where_they_are_stored)
{
    for (int packed = 0; packed < 2; packed++) {
        trial t = { 0 };
        ordo_problem p = problem_of(packed ? ORDO_PACKED : ORDO_PADDED);
        p.dropout.p = 0.1;
        p.shard.heads_total = 18, p.shard.head0 = 6, p.shard.batch0 = 9;
        draw_lengths(&t, 99);
        open_trial(&t, p);
        ordo_dropout_call drop = ORDO_DROPOUT_CALL_INIT;
        ordo_dropout_view view;
        drop.cu_q = t.call.cu_q, drop.cu_kv = t.call.cu_kv, drop.sequence_ids = t.ids;
        p.total_q = packed ? t.cu_q[BATCH] : 0, p.total_kv = packed ? t.cu_kv[BATCH] : 0;
        CHECK_INT(ordo_dropout_open(&p, &drop, true, &view), ORDO_OK);
        for (int32_t b = 0; b < BATCH; b++) {
            const ordo_dropout_sequence want = ordo_dropout_sequence_at(&view, b);
            CHECK_INT(t.table[b].keep, ordo_dropout_first_block(&view, b));
            CHECK_INT(t.table[b].keep_head, want.head_blocks);
            CHECK_INT(t.table[b].keep_across, want.across);
            CHECK_INT(t.table[b].id * t.pass.heads_total + t.pass.head0, want.bh);
        }
        CHECK_INT(t.table[BATCH].keep, view.blocks);
        ordo_plan_destroy(t.plan);
    }
}

/* Ends and lengths of any kind: whatever a table says lies inside. */
TEST(nothing_lies_outside)
{
    for (uint32_t round = 0; round < 300; round++) {
        trial t = { 0 };
        uint32_t at = round * 5000;
        const int32_t sizes[] = { 10, 400, 20000, INT32_MAX };
        draw_lengths(&t, at);
        open_trial(&t, problem_of(round % 2 ? ORDO_PACKED : ORDO_PADDED));
        const int64_t most = sizes[draw(&at, 3)];
        for (int b = 0; b <= BATCH; b++) {
            t.cu_q[b] = (int32_t)(draw(&at, most) - most / 4);
            t.cu_kv[b] = draw(&at, 5) ? t.cu_kv[b] : (int32_t)draw(&at, most);
        }
        for (int b = 0; b < BATCH; b++) {
            t.q_lens[b] = (int32_t)(draw(&at, most) - most / 4);
            t.kv_lens[b] = INT32_MIN;
        }
        host_table(&t.pass, t.table);
        int64_t end = 0;
        for (int b = 0; b < BATCH; b++) {
            const ordo_cuda_sequence *s = &t.table[b];
            CHECK(s->q_len >= 0 && s->q_len <= LONGEST);
            CHECK(s->kv_len >= 0 && s->kv_len <= LONGEST + 50);
            CHECK(s->q_row >= 0 && s->q_row + s->q_len <= t.pass.q_rows);
            CHECK(s->kv_row >= 0 && s->kv_row + s->kv_len <= t.pass.kv_rows);
            CHECK(round % 2 == 0 || s->q_row >= end);
            end = s->q_row + s->q_len;
        }
        CHECK(t.table[BATCH].query_tile <= t.pass.batch.tiles);
        ordo_plan_destroy(t.plan);
    }
}

/* How often each row of a tensor is written: by its sequence's part of a pass, or as a row that no
 * sequence has. */
static void count_writes(const ordo_cuda_pass *pass, bool keys, int sequence, uint8_t *writes)
{
    for (int32_t b = 0; b < BATCH; b++) {
        const ordo_cuda_sequence s = ordo_batch_sequence(&pass->batch, b);
        for (int32_t r = 0; s.batch == sequence && r < (keys ? s.kv_len : s.q_len); r++)
            writes[(keys ? s.kv_row : s.q_row) + r]++;
    }
    for (int32_t slot = 0; slot < ordo_left_slots(pass); slot++) {
        const ordo_rows left = ordo_left_rows(pass, slot, keys);
        CHECK(left.count >= 0);
        for (int32_t r = 0; ordo_left_sequence(pass, slot) == sequence && r < left.count; r++)
            writes[left.first + r]++;
    }
}

/* Lengths of any kind: those of a batch that ends before its tensors do, that is longer than it
 * says, or that decrease; and numbers that mean nothing. */
static void draw_anything(trial *t, uint32_t at, uint32_t kind)
{
    for (int b = 0; b <= BATCH && kind > 0; b++) {
        const int64_t most = kind == 1 ? 300 : kind == 2 ? 20000 : INT32_MAX;
        t->cu_q[b] = (int32_t)(draw(&at, most) - most / 4) + (kind == 1 ? 150 * b : 0);
        t->cu_kv[b] = (int32_t)(draw(&at, most) - most / 4) + (kind == 1 ? 180 * b : 0);
        t->q_lens[b % BATCH] = (int32_t)(draw(&at, most) - most / 4);
        t->kv_lens[b % BATCH] = (int32_t)(draw(&at, most) - most / 4);
    }
    for (int b = 0; b <= BATCH && kind == 0; b++) { /* nothing wrong, but rows behind the last */
        t->cu_q[b] = t->cu_q[b] / 2;
        t->cu_kv[b] = t->cu_kv[b] / 3;
    }
}

TEST(every_row_is_written_once)
{
    for (uint32_t round = 0; round < 160; round++) {
        static uint8_t writes[BATCH * (LONGEST + 50)];
        const bool packed = round % 2;
        trial t = { 0 };
        draw_lengths(&t, round * 5000);
        open_trial(&t, problem_of(packed ? ORDO_PACKED : ORDO_PADDED));
        draw_anything(&t, round * 5000 + 1000, round / 2 % 4);
        host_table(&t.pass, t.table);
        for (int keys = 0; keys < 2; keys++)
            for (int sequence = 0; sequence < (packed ? 1 : BATCH); sequence++) {
                const int64_t rows = keys ? t.pass.kv_rows : t.pass.q_rows;
                int64_t wrong = 0;
                memset(writes, 0, sizeof writes);
                count_writes(&t.pass, keys, sequence, writes);
                for (int64_t r = 0; r < rows; r++)
                    wrong += writes[r] != 1;
                for (int64_t r = rows; r < (int64_t)sizeof writes; r++)
                    wrong += writes[r] != 0;
                CHECK_INT(wrong, 0);
            }
        ordo_plan_destroy(t.plan);
    }
}

/* No sequence at all: all rows are left. */
TEST(no_sequence)
{
    ordo_cuda_pass pass = { .layout = ORDO_PACKED, .q_rows = 70, .kv_rows = 90 };
    CHECK_INT(ordo_left_slots(&pass), 1);
    const ordo_rows q = ordo_left_rows(&pass, 0, false), kv = ordo_left_rows(&pass, 0, true);
    CHECK(q.first == 0 && q.count == 70 && kv.first == 0 && kv.count == 90);
}

static ordo_problem shard_of(int mask)
{
    ordo_problem p = problem_of(ORDO_DENSE);
    p.mask = (ordo_mask)mask;
    p.window = (ordo_window) { true, 100, -1 };
    p.dropout.p = 0.1;
    p.shard =
        (ordo_shard) { .batch0 = 3, .row0 = 160, .col0 = 256, .q_total = 1000, .kv_total = 1700 };
    return p;
}

/* A dense batch in closed form, and the same one as a table because its ids are listed. */
TEST(a_dense_batch)
{
    for (int mask = 0; mask < 3; mask++) {
        trial t = { 0 };
        open_trial(&t, shard_of(mask));
        CHECK_INT(t.pass.layout, ORDO_PADDED);
        CHECK(t.pass.ragged.ids == t.ids && !t.pass.ragged.q_lens);
        for (int b = 0; b < BATCH; b++)
            t.ids[b] = 3 + b;
        host_table(&t.pass, t.table);
        t.call.sequence_ids = NULL;
        ordo_cuda_pass dense;
        CHECK_INT(ordo_cuda_pass_make(t.plan, ORDO_BACKWARD, &t.call, &dense), ORDO_OK);
        CHECK_INT(dense.layout, ORDO_DENSE);
        CHECK(!dense.table && !dense.batch.table);
        CHECK_INT(dense.batch.tiles, t.pass.batch.tiles);
        CHECK_INT(dense.batch.lse_head, t.pass.batch.lse_head);
        for (int b = 0; b < BATCH; b++) {
            const ordo_cuda_sequence s = ordo_batch_sequence(&dense.batch, b);
            CHECK_INT(s.batch, t.table[b].batch);
            CHECK_INT(s.q_len, t.table[b].q_len);
            CHECK_INT(s.kv_len, t.table[b].kv_len);
            CHECK_INT(s.low, t.table[b].low);
            CHECK_INT(s.high, t.table[b].high);
            CHECK_INT(s.diagonal, t.table[b].diagonal);
            CHECK_INT(s.id, t.table[b].id);
            CHECK_INT(s.lse, t.table[b].lse);
            CHECK_INT(s.keep, t.table[b].keep);
            CHECK_INT(s.keep_head, t.table[b].keep_head);
            CHECK_INT(s.keep_across, t.table[b].keep_across);
            CHECK_INT(s.forward_tile, t.table[b].forward_tile);
            CHECK_INT(s.query_tile, t.table[b].query_tile);
            CHECK_INT(s.key_tile, t.table[b].key_tile);
        }
        const ordo_band band = ordo_plan_band(t.plan, LONGEST, LONGEST + 50);
        CHECK_INT(dense.batch.first.low, band.low);
        CHECK_INT(dense.batch.first.high, band.high);
        ordo_plan_destroy(t.plan);
    }
}

CHECK_MAIN()
