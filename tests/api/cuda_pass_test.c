/* cuda_pass_test.c: a call of a cuda plan as the kernels get it, and what is refused before that.
 * That a pass says what the call does is the grid's, on passes that read nothing else
 * (fake_attention.h). */
#include "api/cuda_pass.h"
#include "cuda_call.h"

static ordo_cuda_pass pass_of(const fixture *f, ordo_pass which)
{
    ordo_cuda_pass pass;
    CHECK_INT(ordo_cuda_pass_make(f->plan, which, &f->call, &pass), ORDO_OK);
    return pass;
}

/* ---- contents ---- */

static void check_tensor(const ordo_cuda_tensor *t, const void *data, int64_t sequence, int64_t row,
                         int64_t head)
{
    CHECK(t->data == data);
    CHECK_INT(t->sequence, sequence);
    CHECK_INT(t->row, row);
    CHECK_INT(t->head, head);
}

/* Lengths, mask, heads and order as the planner and the simulator see them. */
TEST(a_run)
{
    request r = small();
    r.options.workers = 78;
    fixture *f = open_fixture(&r);
    ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
    const ordo_run *run = &pass.run;
    CHECK_INT(run->band.q_len, ROWS);
    CHECK_INT(run->band.kv_len, COLS);
    CHECK_INT(run->band.bq, 128);
    CHECK_INT(run->band.bk, 128);
    CHECK_INT(run->band.low, -ORDO_BAND_OPEN);
    CHECK_INT(run->band.high, COLS - ROWS);
    CHECK_INT(run->sequences, BATCH);
    CHECK_INT(run->kv_heads, KV_HEADS);
    CHECK_INT(run->group_heads, HEADS / KV_HEADS);
    CHECK_INT(run->head0, 0);
    CHECK_INT(run->order, ORDO_ORDER_DESCENDING);
    CHECK_INT(run->workers, 78);
    close_fixture(f);

    r.problem.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
    f = open_fixture(&r);
    pass = pass_of(f, ORDO_BACKWARD);
    CHECK_INT(pass.run.band.high, 0);
    close_fixture(f);

    r.problem.mask = ORDO_MASK_FULL;
    f = open_fixture(&r);
    pass = pass_of(f, ORDO_BACKWARD);
    CHECK_INT(pass.run.band.high, ORDO_BAND_OPEN);
    CHECK_INT(pass.run.order, ORDO_ORDER_ASCENDING);
    close_fixture(f);
}

/* Strides of pages are those of k and v; the table's default is that of its columns. */
TEST(keys_in_pages)
{
    const int32_t lens[BATCH] = { 0 }, table[BATCH * 16] = { 0 };
    request r = small();
    r.problem.layout = ORDO_PADDED;
    r.problem.paging = (ordo_paging) { 10, 30, 15 };
    fixture *f = open_fixture(&r);
    f->call.q_lens = f->call.kv_lens = f->call.kv_starts = lens;
    f->call.page_table = table;
    const ordo_cuda_pass pass = pass_of(f, ORDO_FORWARD);
    check_tensor(&pass.q, f->q, ROWS * HEADS * DIM, HEADS * DIM, DIM);
    check_tensor(&pass.k, f->k, 10 * KV_HEADS * DIM, KV_HEADS * DIM, DIM);
    check_tensor(&pass.v, f->v, 10 * KV_HEADS * DIM, KV_HEADS * DIM, DIM);
    CHECK(pass.ragged.kv_lens == lens);
    ordo_cuda_pages pages = ordo_cuda_pages_of(f->plan, &f->call);
    CHECK(pages.table == table && pages.starts == lens);
    CHECK_INT(pages.table_stride, 15);
    CHECK_INT(pages.rows, 10);
    CHECK_INT(pages.count, 30);
    f->call.page_table_stride = 16;
    pages = ordo_cuda_pages_of(f->plan, &f->call);
    CHECK_INT(pages.table_stride, 16);
    close_fixture(f);
}

/* 2 sequences x 4 heads x 1 tile of 128 rows. */
TEST(workspace_of_a_backward_pass)
{
    const request r = small();
    fixture *f = open_fixture(&r);
    const char *base = f->call.workspace;
    const int64_t rows = BATCH * HEADS * 128;
    const ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
    CHECK_INT((char *)pass.dq_sum - base, 0);
    CHECK_INT((char *)pass.delta - base, rows * DIM * 4);
    CHECK_INT((char *)pass.turns - (char *)pass.delta, rows * 4);
    CHECK_INT((char *)pass.ticket - (char *)pass.turns, 256);
    CHECK_INT((char *)pass.lse2 - (char *)pass.ticket, 256);
    CHECK_INT((char *)pass.carry.dk_broken - (char *)pass.lse2, rows * 4);
    CHECK(pass.carry.dv_broken - pass.carry.dk_broken >= BATCH * COLS * KV_HEADS);
    const char *end = base + f->call.workspace_bytes;
    CHECK(end - (char *)pass.carry.dv_broken >= BATCH * COLS * KV_HEADS);
    CHECK_INT(end - (char *)pass.carry.dk_broken, (2 * BATCH * COLS * KV_HEADS + 255) / 256 * 256);
    check_tensor(&pass.dout, f->dout, ROWS * HEADS * DIM, HEADS * DIM, DIM);
    check_tensor(&pass.dq, f->dq, ROWS * HEADS * DIM, HEADS * DIM, DIM);
    check_tensor(&pass.dk, f->dk, COLS * KV_HEADS * DIM, KV_HEADS * DIM, DIM);
    check_tensor(&pass.dv, f->dv, COLS * KV_HEADS * DIM, KV_HEADS * DIM, DIM);
    close_fixture(f);
}

/* By phases: P and dS of all heads, which are few, and sums of dK and dV. */
TEST(workspace_of_passes_by_phases)
{
    request r = small();
    r.problem.head_dim = 512;
    r.problem.v_head_dim = 264;
    fixture *f = open_fixture(&r);
    const int64_t tile = 128 * 256 * 2, rows = BATCH * COLS;
    ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
    CHECK(pass.phase.section == KV_HEADS && pass.phase.tiles == BATCH && pass.phase.columns == 256);
    CHECK_INT((char *)pass.phase.ds - (char *)pass.phase.p, BATCH * HEADS * tile);
    CHECK_INT((char *)pass.phase.dk - (char *)pass.phase.ds, BATCH * HEADS * tile);
    CHECK_INT((char *)pass.phase.dv - (char *)pass.phase.dk, rows * KV_HEADS * 512 * 4);
    const char *end = (char *)f->call.workspace + f->call.workspace_bytes;
    CHECK_INT((end - (char *)pass.phase.dv) / 256, (rows * KV_HEADS * 264 * 4 + 255) / 256);
    pass = pass_of(f, ORDO_FORWARD);
    CHECK_INT((char *)pass.delta - (char *)pass.ticket, 256);
    CHECK_INT((char *)pass.phase.p - (char *)pass.delta, BATCH * HEADS * 128 * 4);
    CHECK_INT((char *)pass.phase.shrink - (char *)pass.phase.p, BATCH * HEADS * tile);
    close_fixture(f);
}

/* Chained up to head size 256: dS alone is stored, and keep bits may be given or made inside. */
TEST(workspace_of_chained_passes)
{
    const int64_t tile = 128 * 256 * 2;
    for (int dropped = 0; dropped < 2; dropped++) {
        request r = small();
        r.problem.head_dim = 256;
        r.problem.v_head_dim = 192;
        r.problem.dropout.p = dropped ? 0.25 : 0.0;
        fixture *f = open_fixture(&r);
        f->call.keep_bits = NULL;
        ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
        CHECK(pass.form == ORDO_FORM_CHAIN && !pass.phase.p);
        CHECK_INT(ordo_pass_keep_source(&pass), dropped ? ORDO_KEEP_MADE : ORDO_KEEP_NONE);
        CHECK_INT((char *)pass.phase.dk - (char *)pass.phase.ds, BATCH * HEADS * tile);
        const char *end = (char *)f->call.workspace + f->call.workspace_bytes;
        const int64_t sums = BATCH * COLS * KV_HEADS * 192 * 4;
        CHECK_INT((end - (char *)pass.phase.dv) / 256, (sums + 255) / 256);
        close_fixture(f);
    }
}

/* The bits of dropout are given there. */
TEST(passes_by_phases_make_no_bits)
{
    request r = small();
    static uint32_t bits[64];
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    r.problem.head_dim = 512;
    r.problem.dropout.p = 0.1;
    fixture *f = open_fixture(&r);
    ordo_cuda_pass pass;
    f->call.keep_bits = NULL;
    CHECK_REFUSED(ordo_cuda_pass_make(f->plan, ORDO_FORWARD, &f->call, &pass), ORDO_ERR_UNSUPPORTED,
                  "keep_bits NULL, head size 512");
    f->call.keep_bits = bits;
    pass = pass_of(f, ORDO_FORWARD);
    CHECK_INT(ordo_plan_query(f->plan, &info), ORDO_OK);
    CHECK_INT(info.dropout_mode, ORDO_DROPOUT_MODE_SEQUENTIAL);
    close_fixture(f);
}

/* ---- strides ---- */

static ordo_status with_strides(fixture *f, ordo_tensor *t, int64_t sequence, int64_t row,
                                int64_t head, ordo_cuda_pass *pass)
{
    const int64_t strides[4] = { sequence, row, head, 1 };
    memcpy(t->stride, strides, sizeof strides);
    return ordo_cuda_pass_make(f->plan, ORDO_BACKWARD, &f->call, pass);
}

TEST(strides_of_any_order)
{
    const request r = small();
    fixture *f = open_fixture(&r);
    ordo_tensor *q = &f->call.q;
    ordo_cuda_pass pass;
    CHECK_INT(with_strides(f, q, HEADS * ROWS * DIM, DIM, ROWS * DIM, &pass), ORDO_OK);
    check_tensor(&pass.q, f->q, HEADS * ROWS * DIM, DIM, ROWS * DIM); /* head, row */
    CHECK_INT(with_strides(f, q, DIM, BATCH * DIM, ROWS * BATCH * DIM, &pass), ORDO_OK);
    check_tensor(&pass.q, f->q, DIM, BATCH * DIM, ROWS * BATCH * DIM);
    CHECK_INT(with_strides(f, q, 0, 72, 8, &pass), ORDO_OK); /* inputs may overlap */
    CHECK_REFUSED(with_strides(f, q, 4, 72, 8, &pass), ORDO_ERR_ALIGN,
                  "q.stride[0] 4: backend cuda expects a multiple of 16 bytes");
    CHECK_REFUSED(with_strides(f, q, 8, 72, 12, &pass), ORDO_ERR_ALIGN, "q.stride[2] 12: ");
    CHECK_INT(with_strides(f, q, 8, (INT64_C(1) << 39) - 8, 64, &pass), ORDO_OK);
    CHECK_REFUSED(with_strides(f, q, 8, INT64_C(1) << 39, 64, &pass), ORDO_ERR_ALIGN,
                  "q.stride[1] 549755813888: backend cuda expects less than 2^40");
    memset(q->stride, 0, sizeof q->stride);
    CHECK_REFUSED(with_strides(f, &f->call.dv, 8, 72, 12, &pass), ORDO_ERR_ALIGN,
                  "dv.stride[2] 12: ");
    close_fixture(f);
}

/* A stride over one thing means nothing: it may be anything, and becomes something legal. */
TEST(strides_that_mean_nothing)
{
    request r = small();
    r.problem.batch = r.problem.heads = r.problem.kv_heads = r.problem.q_len = 1;
    fixture *f = open_fixture(&r);
    ordo_cuda_pass pass;
    CHECK_INT(with_strides(f, &f->call.q, 3, INT64_C(1) << 50, 7, &pass), ORDO_OK);
    check_tensor(&pass.q, f->q, DIM, DIM, DIM);
    CHECK_INT(with_strides(f, &f->call.k, 3, 72, 5, &pass), ORDO_OK); /* kv_len is 150 */
    check_tensor(&pass.k, f->k, DIM, 72, DIM);
    close_fixture(f);
}

TEST(addresses)
{
    const request r = small();
    fixture *f = open_fixture(&r);
    ordo_cuda_pass pass;
    ordo_tensor *tensors[] = { &f->call.q,    &f->call.k,  &f->call.v,  &f->call.o,
                               &f->call.dout, &f->call.dq, &f->call.dk, &f->call.dv };
    const char *names[] = { "q", "k", "v", "o", "dout", "dq", "dk", "dv" };
    for (int i = 0; i < 8; i++) {
        char says[64];
        tensors[i]->data = (char *)tensors[i]->data + 8;
        CHECK_INT(ordo_cuda_pass_make(f->plan, ORDO_BACKWARD, &f->call, &pass), ORDO_ERR_ALIGN);
        snprintf(says, sizeof says, "%s.data %p: backend cuda expects a multiple of 16", names[i],
                 tensors[i]->data);
        CHECK_HAS(ordo_last_error(), says);
        tensors[i]->data = (char *)tensors[i]->data - 8;
    }
    f->call.lse++; /* f32 one by one */
    pass = pass_of(f, ORDO_BACKWARD);
    close_fixture(f);
}

/* ---- what the kernels do not do ---- */

/* A plan can be made of it; neither pass runs it. */
#define REFUSE(change, ...)                                                                        \
    do {                                                                                           \
        request r = small();                                                                       \
        ordo_problem *p = &r.problem;                                                              \
        change;                                                                                    \
        refuse(&r, __VA_ARGS__);                                                                   \
    } while (0)

static void refuse(const request *r, const char *says)
{
    fixture *f = open_fixture(r);
    ordo_cuda_pass pass;
    CHECK_INT(ordo_cuda_pass_make(f->plan, ORDO_FORWARD, &f->call, &pass), ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(ordo_last_error(), says);
    CHECK_INT(ordo_cuda_pass_make(f->plan, ORDO_BACKWARD, &f->call, &pass), ORDO_ERR_UNSUPPORTED);
    CHECK_HAS(ordo_last_error(), says);
    close_fixture(f);
}

TEST(problems_refused_by_name)
{
    REFUSE(p->head_dim = 60, "head_dim 60: backend cuda expects a multiple of 8; columns of zeros "
                             "up to 64 change no result, and backend cpu runs it");
    REFUSE(p->head_dim = 201, "head_dim 201: backend cuda expects a multiple of 8; columns of "
                              "zeros up to 208");
    REFUSE(p->v_head_dim = 60, "v_head_dim 60: backend cuda expects a multiple of 8");
    REFUSE((p->dropout.p = 0.25, p->dropout.keying = ORDO_KEYING_FA2),
           "keep_bits NULL, dropout.keying fa2: backend cuda expects bits made by "
           "ordo_dropout_fill_device()");
}

/* Chains of ragged batches wait on nothing later. */
TEST(orders_of_ragged_batches)
{
    const ordo_order orders[] = { ORDO_ORDER_ASCENDING, ORDO_ORDER_DESCENDING, ORDO_ORDER_SPT,
                                  ORDO_ORDER_SPT_TAIL };
    for (int x = 0; x < 4; x++) {
        request r = small();
        r.problem.layout = ORDO_PADDED;
        r.options.order = orders[x];
        fixture *f = open_fixture(&r);
        const ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
        CHECK_INT(pass.run.order, orders[x]);
        close_fixture(f);
    }
}

/* ---- what else a pass says ---- */

static uint64_t forward_bytes(const ordo_plan *plan)
{
    uint64_t bytes = 0;
    CHECK(ordo_plan_forward_bytes(plan, &bytes));
    return bytes;
}

TEST(head_sizes_have_buckets_and_forms)
{
    static const int sizes[][2] = { { 8, 64 },    { 64, 64 },   { 72, 128 },  { 96, 128 },
                                    { 128, 128 }, { 136, 256 }, { 192, 256 }, { 256, 256 },
                                    { 264, 576 }, { 576, 576 } };
    for (int x = 0; x < 10; x++) {
        request r = small();
        r.problem.head_dim = sizes[x][0];
        r.problem.q_len = r.problem.kv_len = 1; /* the fixture's memory is never touched */
        fixture *f = open_fixture(&r);
        const ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
        CHECK_INT(pass.head_dim, sizes[x][0]);
        CHECK_INT(ordo_pass_bucket(&pass), sizes[x][1]);
        CHECK_INT(pass.form, sizes[x][1] < 256    ? ORDO_FORM_FLASH
                             : sizes[x][1] == 256 ? ORDO_FORM_CHAIN
                                                  : ORDO_FORM_PHASE);
        CHECK_INT(pass_of(f, ORDO_FORWARD).form,
                  sizes[x][1] <= 256 ? ORDO_FORM_FLASH : ORDO_FORM_PHASE);
        CHECK(pass.capability == 90 && pass.kernels == ORDO_KERNELS_WGMMA);
        const int64_t rows = BATCH * HEADS * pass.run.band.bq;
        const int64_t dq = sizes[x][1] >= 256 ? 0 : rows * sizes[x][1] * 4;
        CHECK_INT((char *)pass.delta - (char *)pass.dq_sum, dq);
        close_fixture(f);
    }
}

/* Sums of single sequences go to the caller, or to the workspace if only their sum is wanted. */
TEST(sinks)
{
    const request r = small();
    fixture *f = open_fixture(&r);
    float sink[HEADS], dsink[HEADS], parts[BATCH * HEADS];
    ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
    CHECK(!pass.sink && !pass.dsink && !pass.dsink_parts);
    f->call.sink = sink;
    CHECK(pass_of(f, ORDO_FORWARD).sink == sink);
    CHECK(!pass_of(f, ORDO_BACKWARD).dsink_parts);
    f->call.dsink = dsink;
    pass = pass_of(f, ORDO_BACKWARD);
    CHECK(pass.sink == sink && pass.dsink == dsink && (void *)pass.dsink_parts == pass.turns);
    CHECK((char *)pass.ticket - (char *)pass.turns >= (ptrdiff_t)sizeof parts);
    f->call.dsink_parts = parts;
    CHECK(pass_of(f, ORDO_BACKWARD).dsink_parts == parts);
    f->call.dsink = NULL;
    pass = pass_of(f, ORDO_BACKWARD);
    CHECK(!pass.dsink && pass.dsink_parts == parts);
    close_fixture(f);
}

/* Strides of what is shared are 0; pairs can be loaded where all of them begin at an even place. */
TEST(biases)
{
    _Alignas(16) static float bias[HEADS * ROWS * (COLS + 2)], dbias[HEADS * ROWS * COLS];
    request r = small();
    r.problem.bias = (ordo_bias) { true, false, true, ORDO_F32 };
    fixture *f = open_fixture(&r);
    f->call.bias.data = bias;
    ordo_cuda_bias x = pass_of(f, ORDO_FORWARD).bias;
    CHECK(x.data == bias && !x.grad && x.f32 && x.pairs && !x.per_sequence && x.per_head);
    CHECK_INT(x.sequence, 0);
    CHECK_INT(x.head, ROWS * COLS);
    CHECK_INT(x.row, COLS);
    f->call.bias.data = bias + 1;
    CHECK(!pass_of(f, ORDO_FORWARD).bias.pairs);
    f->call.bias = (ordo_tensor) { bias, { 7, ROWS * (COLS + 1), COLS + 1, 1 } };
    CHECK(!pass_of(f, ORDO_FORWARD).bias.pairs);
    f->call.bias = (ordo_tensor) { bias, { 7, ROWS * (COLS + 2), COLS + 2, 1 } };
    f->call.dbias = dbias;
    x = pass_of(f, ORDO_BACKWARD).bias;
    CHECK(x.pairs && x.grad == dbias);
    CHECK_INT(x.sequence, 0);
    CHECK_INT(x.row, COLS + 2);
    close_fixture(f);

    r.problem.kv_len--;
    r.problem.bias = (ordo_bias) { true, true, false, r.problem.dtype };
    f = open_fixture(&r);
    f->call.bias = (ordo_tensor) { bias, { ROWS * COLS, 7, COLS, 1 } };
    x = pass_of(f, ORDO_FORWARD).bias;
    CHECK(!x.f32 && !x.pairs && x.per_sequence && !x.per_head); /* the last pair is half a pair */
    CHECK_INT(x.sequence, ROWS * COLS);
    CHECK_INT(x.head, 0);
    close_fixture(f);
}

TEST(a_packed_pass)
{
    request r = small();
    r.problem.layout = ORDO_PACKED;
    r.problem.total_q = ROWS + 20, r.problem.total_kv = COLS + 7;
    r.problem.window = (ordo_window) { true, 20, 0 };
    fixture *f = open_fixture(&r);
    int32_t ends[BATCH + 1];
    f->call.cu_q = ends, f->call.cu_kv = ends + 1;
    f->call.q.stride[0] = 3; /* which packed tensors ignore */
    for (int which = ORDO_FORWARD; which <= ORDO_BACKWARD; which++) {
        const ordo_cuda_pass pass = pass_of(f, (ordo_pass)which);
        CHECK_INT(pass.layout, ORDO_PACKED);
        check_tensor(&pass.q, f->q, DIM, HEADS * DIM, DIM);
        check_tensor(&pass.k, f->k, DIM, KV_HEADS * DIM, DIM);
        CHECK_INT(pass.q_rows, ROWS + 20);
        CHECK_INT(pass.kv_rows, COLS + 7);
        CHECK_INT(pass.batch.sequences, BATCH);
        CHECK_INT(pass.batch.tiles, (ROWS + 20) / 128 + BATCH);
        CHECK_INT(pass.batch.lse_head, ROWS + 20);
        CHECK(pass.ragged.cu_q == ends && pass.ragged.cu_kv == ends + 1);
        CHECK(!pass.ragged.q_lens && !pass.ragged.kv_lens && !pass.ragged.ids);
        CHECK_INT(pass.ragged.forward_rows, 192);
        CHECK_INT(pass.ragged.backward_rows, 128);
        CHECK_INT(pass.ragged.backward_keys, 128);
        CHECK_INT(pass.ragged.mask, ORDO_MASK_CAUSAL);
        CHECK_INT(pass.ragged.left, 20);
        CHECK_INT(pass.ragged.right, 0);
        CHECK_INT(pass.ragged.shift, 0);
        CHECK(pass.table && pass.batch.table == pass.table);
        const char *end = (const char *)(pass.table + BATCH + 1);
        const char *behind = which == ORDO_FORWARD
                                 ? (const char *)f->call.workspace + forward_bytes(f->plan)
                                 : (const char *)pass.carry.dk_broken;
        CHECK(end <= behind);
        CHECK(end + 256 > behind);
        const int64_t marks = (COLS + 7) * KV_HEADS;
        if (which == ORDO_BACKWARD)
            CHECK_INT((const char *)f->call.workspace + f->call.workspace_bytes - behind,
                      (2 * marks + 255) / 256 * 256);
    }
    close_fixture(f);
}

TEST(dropout_bits_and_scale)
{
    request r = small();
    fixture *f = open_fixture(&r);
    ordo_cuda_pass pass = pass_of(f, ORDO_FORWARD);
    CHECK(pass.keep_scale == 0 && !pass.keep_bits); /* none */
    close_fixture(f);

    r.problem.dropout.p = 0.1;
    f = open_fixture(&r);
    f->call.keep_bits = (const uint32_t *)f->q; /* any address */
    for (int which = ORDO_FORWARD; which <= ORDO_BACKWARD; which++) {
        pass = pass_of(f, (ordo_pass)which);
        CHECK(pass.keep_scale == (float)(256.0 / 230));
        CHECK(pass.keep_bits == f->call.keep_bits);
    }
    f->call.keep_bits += 2;
    CHECK_REFUSED(ordo_cuda_pass_make(f->plan, ORDO_FORWARD, &f->call, &pass), ORDO_ERR_ALIGN,
                  "keep_bits 0x", "backend cuda expects a multiple of 16 bytes");
    close_fixture(f);

    r.problem.dropout.keying = ORDO_KEYING_FA2;
    f = open_fixture(&r);
    f->call.keep_bits = (const uint32_t *)f->q;
    pass = pass_of(f, ORDO_BACKWARD);
    CHECK(pass.keep_scale == 1.0f / (1.0f - 0.1f));
    close_fixture(f);
}

/* Bits that the kernels make themselves: how, for which heads and rows, and what stands behind
 * pointers that only the device can follow. */
TEST(dropout_made_inside)
{
    request r = small();
    r.problem.dropout = (ordo_dropout) { .p = 0.17, .rounds = 10, .bits = 6 };
    r.problem.shard = (ordo_shard) { .batch0 = 7,
                                     .head0 = 4,
                                     .heads_total = 12,
                                     .row0 = 32,
                                     .col0 = 128,
                                     .q_total = 1000,
                                     .kv_total = 2000 };
    const uint64_t *nowhere = (const uint64_t *)(uintptr_t)4096; /* never followed */
    fixture *f = open_fixture(&r);
    f->call.seed = 99, f->call.offset = 5;
    f->call.seed_ptr = nowhere, f->call.offset_ptr = nowhere + 1;
    ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
    CHECK(!pass.keep_bits);
    CHECK(pass.keep_scale == (float)(64.0 / 53));
    CHECK_INT(pass.keep.seed, 99);
    CHECK_INT(pass.keep.offset, 5);
    CHECK_INT(pass.keep.rounds, 10);
    CHECK_INT(pass.keep.bits, 6);
    CHECK_INT(pass.keep.threshold, 53);
    CHECK(pass.seed_ptr == nowhere && pass.offset_ptr == nowhere + 1);
    CHECK_INT(pass.heads_total, 12);
    CHECK_INT(pass.head0, 4);
    CHECK_INT(pass.row0, 32);
    CHECK_INT(pass.block0, 1);
    CHECK_INT(pass.layout, ORDO_DENSE);
    CHECK_INT(pass.batch.first.id, 7);
    CHECK_INT(pass.batch.first.diagonal, 1000 + 32 - 128);
    CHECK(!pass.table);
    f->call.sequence_ids = (const int64_t *)nowhere; /* listed: a table */
    pass = pass_of(f, ORDO_FORWARD);
    CHECK_INT(pass.layout, ORDO_PADDED);
    CHECK(pass.ragged.ids == f->call.sequence_ids);
    CHECK_INT(pass.ragged.shift, 1000 + 32 - 128 - (COLS - ROWS));
    CHECK(pass.table &&
          (char *)(pass.table + BATCH + 1) <= (char *)f->call.workspace + forward_bytes(f->plan));
    f->call.keep_bits = (const uint32_t *)f->q; /* read instead: ids say nothing */
    CHECK_INT(pass_of(f, ORDO_FORWARD).layout, ORDO_DENSE);
    close_fixture(f);
}

/* More tiles than 2^16 are fine; more than 2^28 are not. Nothing of this size is allocated. */
TEST(many_tiles)
{
    request r = small();
    fixture *f = open_fixture(&r);
    ordo_plan *kept = f->plan;
    r.problem.batch = 1 << 18, r.problem.heads = r.problem.kv_heads = 64;
    r.problem.q_len = 128 * 16, r.problem.kv_len = 128;
    f->plan = make(&r);
    ordo_cuda_pass pass = pass_of(f, ORDO_BACKWARD);
    ordo_plan_destroy(f->plan);
    r.problem.q_len++;
    f->plan = make(&r);
    CHECK_REFUSED(ordo_cuda_pass_make(f->plan, ORDO_BACKWARD, &f->call, &pass),
                  ORDO_ERR_UNSUPPORTED, "batch 262144 x heads 64 x 17 query tiles");
    pass = pass_of(f, ORDO_FORWARD); /* forward tiles have 192 rows */
    ordo_plan_destroy(f->plan);
    r.problem.q_len = 128, r.problem.kv_len = 128 * 16 + 1;
    f->plan = make(&r);
    CHECK_REFUSED(ordo_cuda_pass_make(f->plan, ORDO_BACKWARD, &f->call, &pass),
                  ORDO_ERR_UNSUPPORTED, "17 key tiles");
    ordo_plan_destroy(f->plan);
    r.problem.layout = ORDO_PACKED; /* as many as the rows have, and one more per sequence */
    r.problem.q_len = r.problem.kv_len = 1 << 20;
    r.problem.batch = 1000, r.problem.total_kv = 1000;
    r.problem.total_q = 128 * ((1 << 22) - 1000);
    f->plan = make(&r);
    pass = pass_of(f, ORDO_BACKWARD);
    ordo_plan_destroy(f->plan);
    r.problem.total_q += 128;
    f->plan = make(&r);
    CHECK_REFUSED(ordo_cuda_pass_make(f->plan, ORDO_BACKWARD, &f->call, &pass),
                  ORDO_ERR_UNSUPPORTED, "heads 64 x 4194305 query tiles in 1000 sequences");
    ordo_plan_destroy(f->plan);
    f->plan = kept;
    close_fixture(f);
}

CHECK_MAIN()
