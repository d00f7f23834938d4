/* identity_test.c: problems that must agree, because they are the same problem. */
#include "trial.h"

/* Equal dense sequences, all rules on. */
static ordo_problem equal_lengths(void)
{
    return (ordo_problem) {
        .batch = 3,
        .heads = 4,
        .kv_heads = 2,
        .q_len = 5,
        .kv_len = 7,
        .head_dim = 3,
        .v_head_dim = 2,
        .mask = ORDO_MASK_CAUSAL,
        .window = { true, 3, 0 },
        .softcap = 1.5,
        .alibi = true,
        .dropout = { .p = 0.25 },
    };
}

static void check_equal(const trial *a, const trial *b)
{
    CHECK_BITS(a->o, b->o, ordo_ref_count(&a->p, ORDO_REF_O));
    CHECK_BITS(a->lse, b->lse, ordo_ref_count(&a->p, ORDO_REF_LSE));
    CHECK_BITS(a->dq, b->dq, ordo_ref_count(&a->p, ORDO_REF_Q));
    CHECK_BITS(a->dk, b->dk, ordo_ref_count(&a->p, ORDO_REF_K));
    CHECK_BITS(a->dv, b->dv, ordo_ref_count(&a->p, ORDO_REF_V));
}

static void check_near(const double *a, const double *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (a[i] != b[i])
            CHECK_NEAR(a[i], b[i], 1e-14 * fmax(1, fabs(b[i])));
}

/* Element of a contiguous tensor, by coordinates. */
static double *element(const trial *t, const ordo_ref_tensor *x, int64_t b, int64_t row,
                       int64_t head, int64_t dim)
{
    const double *data = x->data;
    const bool keys = data == t->k || data == t->v || data == t->dk || data == t->dv;
    const int32_t *ends = keys ? t->cu_kv : t->cu_q;
    const int64_t first = t->p.layout == ORDO_PACKED ? ends[b] : 0;
    return (double *)x->data + b * x->stride[0] + (first + row) * x->stride[1] +
           head * x->stride[2] + dim;
}

/* The lse of packed sequences lies (head, row): copy all tensors by coordinates. */
static void copy(trial *to, const ordo_ref_tensor *x, const trial *from, const ordo_ref_tensor *y,
                 int64_t rows, int64_t heads, int64_t dim)
{
    for (int64_t b = 0; b < from->p.batch; b++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t d = 0; d < dim; d++)
                    *element(to, x, b, r, h, d) = *element(from, y, b, r, h, d);
}

static void copy_inputs(trial *to, const trial *from)
{
    const ordo_problem *p = &from->p;
    const int64_t keys = p->kv_len < to->p.kv_len ? p->kv_len : to->p.kv_len;
    copy(to, &to->c.q, from, &from->c.q, p->q_len, p->heads, p->head_dim);
    copy(to, &to->c.k, from, &from->c.k, keys, p->kv_heads, p->head_dim);
    copy(to, &to->c.v, from, &from->c.v, keys, p->kv_heads, p->v_head_dim);
    copy(to, &to->c.dout, from, &from->c.dout, p->q_len, p->heads, p->v_head_dim);
    copy(to, &to->c.dlse, from, &from->c.dlse, p->q_len, p->heads, 1);
    memcpy(to->slopes, from->slopes, sizeof to->slopes);
    to->c.seed = from->c.seed;
    to->c.offset = from->c.offset;
}

TEST(masks_that_hide_the_same_give_the_same_bits)
{
    ordo_problem p = equal_lengths();
    p.kv_len = p.q_len;
    p.window.on = false;
    p.window.left = p.window.right = 0;
    trial *causal = trial_create(&p, 4);
    p.mask = ORDO_MASK_CAUSAL_TOP_LEFT; /* equal on squares */
    trial *top_left = trial_create(&p, 4);
    p.mask = ORDO_MASK_FULL;
    p.window = (ordo_window) { true, -1, 0 };
    trial *window = trial_create(&p, 4);
    trial_run(causal);
    trial_run(top_left);
    trial_run(window);
    check_equal(causal, top_left);
    check_equal(causal, window);
    trial_destroy(causal);
    trial_destroy(top_left);
    trial_destroy(window);
}

/* Aligned top-left, keys past the last row are seen by nobody. */
TEST(top_left_ignores_keys_past_the_square)
{
    ordo_problem p = equal_lengths();
    p.mask = ORDO_MASK_CAUSAL_TOP_LEFT;
    trial *wide = trial_create(&p, 5);
    p.kv_len = p.q_len;
    p.mask = ORDO_MASK_CAUSAL;
    trial *square = trial_create(&p, 6);
    copy_inputs(square, wide);
    trial_run(wide);
    trial_run(square);
    CHECK_BITS(wide->o, square->o, ordo_ref_count(&square->p, ORDO_REF_O));
    CHECK_BITS(wide->dq, square->dq, ordo_ref_count(&square->p, ORDO_REF_Q));
    for (int64_t d = 0; d < p.head_dim; d++)
        CHECK(*element(wide, &wide->c.dk, 0, 6, 0, d) == 0);
    trial_destroy(wide);
    trial_destroy(square);
}

TEST(shared_key_heads_equal_repeated_ones)
{
    ordo_problem p = equal_lengths();
    trial *shared = trial_create(&p, 7);
    p.kv_heads = p.heads;
    trial *repeated = trial_create(&p, 7);
    const int64_t group = 2;
    const ordo_ref_tensor *from[] = { &shared->c.k, &shared->c.v };
    const ordo_ref_tensor *to[] = { &repeated->c.k, &repeated->c.v };
    const int64_t dims[] = { 3, 2 };

    copy(repeated, &repeated->c.dout, shared, &shared->c.dout, 5, 4, 2);
    copy(repeated, &repeated->c.dlse, shared, &shared->c.dlse, 5, 4, 1);
    memcpy(repeated->slopes, shared->slopes, sizeof shared->slopes);
    repeated->c.seed = shared->c.seed;
    repeated->c.offset = shared->c.offset;
    for (int x = 0; x < 2; x++)
        for (int64_t b = 0; b < 3; b++)
            for (int64_t j = 0; j < 7; j++)
                for (int64_t h = 0; h < 4; h++)
                    for (int64_t d = 0; d < dims[x]; d++)
                        *element(repeated, to[x], b, j, h, d) =
                            *element(shared, from[x], b, j, h / group, d);
    trial_run(shared);
    trial_run(repeated);
    CHECK_BITS(shared->o, repeated->o, ordo_ref_count(&p, ORDO_REF_O));
    CHECK_BITS(shared->dq, repeated->dq, ordo_ref_count(&p, ORDO_REF_Q));
    for (int64_t h = 0; h < 2; h++)
        for (int64_t j = 0; j < 7; j++)
            CHECK_NEAR(*element(shared, &shared->c.dk, 1, j, h, 2),
                       *element(repeated, &repeated->c.dk, 1, j, 2 * h, 2) +
                           *element(repeated, &repeated->c.dk, 1, j, 2 * h + 1, 2),
                       1e-14);
    trial_destroy(shared);
    trial_destroy(repeated);
}

/* Copy rows [row0, row0 + rows) of a (1, rows, heads, dim) array. */
static void slice(double *to, const double *from, int64_t row0, int64_t rows, int64_t width)
{
    memcpy(to, from + row0 * width, (size_t)(rows * width) * sizeof *to);
}

/* Keys split over three shards: partial results combine to the whole; with the whole's o and
 * lse, each shard gives its dk and dv, and the dq of the shards add up. */
TEST(keys_split_over_shards_combine_to_the_whole)
{
    ordo_problem p = equal_lengths();
    p.batch = 1;
    p.heads = p.kv_heads = 1;
    p.q_len = 40;
    p.kv_len = 300;
    p.window.left = 140;
    trial *whole = trial_create(&p, 8);
    trial_run(whole);

    const int64_t starts[] = { 0, 128, 256, 300 };
    double o_parts[3 * 40 * 2], lse_parts[3 * 40], o[40 * 2], lse[40], dq[40 * 3] = { 0 };
    p.shard.q_total = 40;
    p.shard.kv_total = 300;
    for (int s = 0; s < 3; s++) {
        p.shard.col0 = starts[s];
        p.kv_len = starts[s + 1] - starts[s];
        trial *part = trial_create(&p, 9);
        memcpy(part->slopes, whole->slopes, sizeof part->slopes);
        part->c.seed = whole->c.seed;
        part->c.offset = whole->c.offset;
        slice(part->q, whole->q, 0, 40, 3);
        slice(part->dout, whole->dout, 0, 40, 2);
        slice(part->dlse, whole->dlse, 0, 40, 1);
        slice(part->k, whole->k, starts[s], p.kv_len, 3);
        slice(part->v, whole->v, starts[s], p.kv_len, 2);
        CHECK(ordo_ref_forward_f64(&part->p, &part->c) == ORDO_OK);
        memcpy(o_parts + s * 80, part->o, 80 * sizeof *o);
        memcpy(lse_parts + s * 40, part->lse, 40 * sizeof *lse);

        memcpy(part->o, whole->o, 80 * sizeof *o);
        memcpy(part->lse, whole->lse, 40 * sizeof *lse);
        CHECK(ordo_ref_backward_f64(&part->p, &part->c) == ORDO_OK);
        check_near(part->dk, whole->dk + starts[s] * 3, p.kv_len * 3);
        check_near(part->dv, whole->dv + starts[s] * 2, p.kv_len * 2);
        for (int i = 0; i < 120; i++)
            dq[i] += part->dq[i];
        trial_destroy(part);
    }
    ordo_ref_combine(3, 40, 2, o_parts, lse_parts, o, lse);
    check_near(o, whole->o, 80);
    check_near(lse, whole->lse, 40);
    check_near(dq, whole->dq, 120);
    trial_destroy(whole);
}

TEST(combine_skips_parts_that_saw_nothing)
{
    const double o_parts[] = { NAN, 4, 2 }, none[] = { NAN, NAN, NAN };
    const double lse_parts[] = { -INFINITY, 1, 1 };
    const double lse_none[] = { -INFINITY, -INFINITY, -INFINITY };
    double o, lse;
    ordo_ref_combine(3, 1, 1, o_parts, lse_parts, &o, &lse);
    CHECK(o == 3);
    CHECK_NEAR(lse, 1 + log(2), 1e-15);
    ordo_ref_combine(3, 1, 1, none, lse_none, &o, &lse);
    CHECK(o == 0 && lse == -INFINITY);
}

CHECK_MAIN()
