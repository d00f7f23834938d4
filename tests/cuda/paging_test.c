/* paging_test.c: on CUDA, too, passes over keys in pages have the bits of the rows of one training
 * pass over the whole sequence. With FAKE_ATTENTION and the module that stands for a device: what
 * libordo asks of one. */
enum { SEQUENCES = 5, ROWS_MOST = 300, PAGE_MOST = 300, GROUP_MOST = 12 };

#include <stdint.h>

static int64_t most_keys;

#include "cpu/sampler.h"

#include "ordo/device.h"

enum { CASES = 300, FAKE_CASES = 8, COPIES = 16, LONG_KEYS = 6000, LONG_EACH = 20 };

/* Of a device some calls are drawn with sequences that it spreads over multiprocessors. */
static void set_lengths(int x)
{
    most_keys = !getenv("FAKE_ATTENTION") && x % LONG_EACH == LONG_EACH - 1 ? LONG_KEYS : 600;
}

/* Arrays of a call on the device. */
typedef struct copies {
    void *at[COPIES];
    int count;
} copies;

static void *copy_in(copies *all, const void *from, size_t bytes)
{
    void *to = NULL;
    if (!from || ordo_device_alloc(&to, bytes + 1) != ORDO_OK)
        return NULL;
    CHECK_INT(ordo_device_copy(to, from, bytes, NULL), ORDO_OK);
    return all->at[all->count++] = to;
}

/* Bytes of a tensor from its address on. */
static size_t bytes_of(const ordo_tensor *t, int64_t a, int64_t b, int64_t c, int64_t dim)
{
    if (t->stride[3] == 0)
        return (size_t)(a * b * c * dim) * 2;
    return (size_t)((a - 1) * t->stride[0] + (b - 1) * t->stride[1] + (c - 1) * t->stride[2] +
                    dim) *
           2;
}

static bool run(const ordo_problem *p, const ordo_plan *plan, ordo_call *call)
{
    const bool packed = p->layout == ORDO_PACKED, paged = p->paging.page_rows > 0;
    const int64_t rows = packed ? p->total_q : p->batch * p->q_len, b = p->batch;
    const int64_t pages = paged ? p->paging.pages : p->batch;
    const int64_t keys = paged ? p->paging.page_rows : p->kv_len;
    const int64_t line =
        call->page_table_stride ? call->page_table_stride : p->paging.table_columns;
    const size_t o = (size_t)(rows * p->heads * p->v_head_dim) * 2,
                 lse = (size_t)(rows * p->heads) * 4;
    copies all = { .count = 0 };
    ordo_call c = *call;
    c.q.data = copy_in(&all, c.q.data, (size_t)(rows * p->heads * p->head_dim) * 2);
    c.k.data = copy_in(&all, c.k.data, bytes_of(&c.k, pages, keys, p->kv_heads, p->head_dim));
    c.v.data = copy_in(&all, c.v.data, bytes_of(&c.v, pages, keys, p->kv_heads, p->v_head_dim));
    c.o.data = copy_in(&all, c.o.data, o);
    c.lse = copy_in(&all, c.lse, lse);
    c.cu_q = copy_in(&all, c.cu_q, (size_t)(b + 1) * 4);
    c.q_lens = copy_in(&all, c.q_lens, (size_t)b * 4);
    c.kv_lens = copy_in(&all, c.kv_lens, (size_t)b * 4);
    c.kv_starts = copy_in(&all, c.kv_starts, (size_t)b * 4);
    c.page_table = copy_in(&all, c.page_table, (size_t)(b * line) * 4);
    c.slopes = copy_in(&all, c.slopes, (size_t)p->heads * 4);
    c.sink = copy_in(&all, c.sink, (size_t)p->heads * 4);
    c.workspace_bytes = ordo_plan_workspace(plan);
    CHECK_INT(ordo_device_alloc(&c.workspace, c.workspace_bytes + 1), ORDO_OK);
    const bool ok = ordo_attention_forward(plan, &c) == ORDO_OK;
    CHECK_INT(ordo_device_copy(call->o.data, c.o.data, o, NULL), ORDO_OK);
    CHECK_INT(ordo_device_copy(call->lse, c.lse, lse, NULL), ORDO_OK);
    CHECK_INT(ordo_device_synchronise(NULL), ORDO_OK);
    for (int x = 0; x < all.count; x++)
        (void)ordo_device_free(all.at[x]);
    (void)ordo_device_free(c.workspace);
    return ok;
}

static bool forward(const ordo_problem *problem, ordo_backend backend, ordo_call *call)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_problem p = *problem;
    ordo_machine *machine = NULL;
    ordo_plan *plan = NULL;
    options.backend = backend;
    p.v_head_dim = p.v_head_dim ? p.v_head_dim : p.head_dim;
    const bool ok = ordo_device_machine(0, &machine) == ORDO_OK &&
                    ordo_plan_create(&plan, &p, machine, &options) == ORDO_OK &&
                    run(&p, plan, call);
    if (!ok)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_plan_destroy(plan);
    ordo_machine_destroy(machine);
    return ok;
}

TEST(bits_of_training_on_cuda)
{
    const char *why = "";
    if (!ordo_backend_available(ORDO_BACKEND_CUDA, &why))
        SKIP(why);
    for (int x = 0; x < (getenv("FAKE_ATTENTION") ? FAKE_CASES : CASES); x++) {
        uint64_t seed = 9000 + (uint64_t)x;
        training t;
        sampling s;
        set_lengths(x);
        train(&t, ORDO_BACKEND_CUDA, x % 2 ? ORDO_BF16 : ORDO_F16, &seed);
        sample(&s, &t, true, &seed);
        if (forward(&s.problem, ORDO_BACKEND_CUDA, &s.call) && differing(&s, &t) > 0)
            CHECK_FAIL("case %d, pages of %" PRId64 ": %" PRId64 " elements differ", x,
                       s.problem.paging.page_rows, differing(&s, &t));
        sample_free(&s);
        train_free(&t);
    }
}

/* Whether row r of sequence b sees a column of a page of it. */
static bool sees_page(const sampling *s, int b, int64_t r, int64_t page)
{
    const ordo_problem *p = &s->problem;
    const int64_t row = s->end[b] - s->rows[b] + r, size = p->paging.page_rows;
    const int64_t low = p->window.on ? row - p->window.left : 0;
    const int64_t from = low > s->starts[b] ? low : s->starts[b];
    return (page + 1) * size > from && page * size <= row;
}

/* Rows that are not all NaN although they see the page, or not the training pass's. */
static int64_t wrong_rows(const sampling *s, const training *t, int b, int64_t page)
{
    const ordo_problem *p = &s->problem;
    const int64_t line = p->heads * p->v_head_dim;
    int64_t wrong = 0;
    for (int x = 0; x < SEQUENCES; x++)
        for (int64_t r = 0; r < s->rows[x]; r++) {
            const bool lost = x == b && sees_page(s, b, r, page);
            const uint16_t *o = s->o + (first_row(s, x) + r) * line;
            const uint16_t *all = t->o[x] + (s->end[x] - s->rows[x] + r) * line;
            const uint16_t infinity = p->dtype == ORDO_F16 ? 0x7c00 : 0x7f80;
            bool right = true;
            for (int64_t i = 0; i < line; i++)
                right = right && (lost ? (o[i] & 0x7fff) > infinity : o[i] == all[i]);
            wrong += !right;
        }
    return wrong;
}

TEST(rows_whose_page_is_none_are_nan)
{
    const char *why = "";
    if (!ordo_backend_available(ORDO_BACKEND_CUDA, &why))
        SKIP(why);
    if (getenv("FAKE_ATTENTION"))
        SKIP("what stands for a device knows no NaN");
    for (int x = 0; x < CASES / 5; x++) {
        uint64_t seed = 70 + (uint64_t)x;
        training t;
        sampling s;
        set_lengths(x);
        train(&t, ORDO_BACKEND_CUDA, x % 2 ? ORDO_BF16 : ORDO_F16, &seed);
        sample(&s, &t, true, &seed);
        const int b = (int)check_between(&seed, 0, SEQUENCES - 1);
        const int64_t page = check_between(&seed, 0, s.end[b] - 1) / s.problem.paging.page_rows;
        *entry(&s, b, page) = x % 3 ? -1 : (int32_t)s.problem.paging.pages;
        if (forward(&s.problem, ORDO_BACKEND_CUDA, &s.call) && wrong_rows(&s, &t, b, page) > 0)
            CHECK_FAIL("case %d, pages of %" PRId64 ": %" PRId64 " rows are wrong", x,
                       s.problem.paging.page_rows, wrong_rows(&s, &t, b, page));
        sample_free(&s);
        train_free(&t);
    }
}

static ordo_status plan_of(const ordo_problem *p)
{
    ordo_machine *machine = NULL;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    options.backend = ORDO_BACKEND_CUDA;
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    const ordo_status status = ordo_plan_create(&plan, p, machine, &options);
    ordo_plan_destroy(plan);
    ordo_machine_destroy(machine);
    return status;
}

TEST(refused_when_the_plan_is_made)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = ORDO_BF16;
    p.layout = ORDO_PADDED;
    p.batch = 2;
    p.heads = 64;
    p.kv_heads = 1;
    p.q_len = 1;
    p.kv_len = 512;
    p.head_dim = 256;
    p.paging = (ordo_paging) { 16, 64, 32 };
    CHECK_INT(plan_of(&p), ORDO_OK);
    p.heads = 65;
    CHECK_REFUSED(plan_of(&p), ORDO_ERR_UNSUPPORTED, "heads 65, kv_heads 1, paging.page_rows 16",
                  "at most 64 heads that share keys");
    p.heads = 64;
    p.v_head_dim = 264;
    CHECK_REFUSED(plan_of(&p), ORDO_ERR_UNSUPPORTED, "v_head_dim 264, paging.page_rows 16",
                  "at most 256 with pages");
}

CHECK_MAIN()
