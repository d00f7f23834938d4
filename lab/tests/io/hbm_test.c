/* hbm_test.c: L2 in parts, and passes replayed through it: counts by hand, limits, tiles. */
#include "check.h"
#include "io/l2.h"
#include "ordo/lab.h"

enum { GRANULE = ORDO_IO_GRANULE };

/* ---- the cache ---- */

/* Reads and writes of HBM in granules. */
static void moved(const ordo_io_l2 *l2, int64_t read, int64_t written)
{
    CHECK_INT(ordo_io_l2_read(l2), read * GRANULE);
    CHECK_INT(ordo_io_l2_written(l2), written * GRANULE);
}

TEST(one_part_evicts_what_was_used_least_recently)
{
    ordo_io_l2 l2;
    CHECK(ordo_io_l2_create(&l2, 2 * GRANULE, 1, 8) == ORDO_OK);
    ordo_io_l2_touch(&l2, 0, 1, ORDO_IO_L2_READ);
    ordo_io_l2_touch(&l2, 1, 2, ORDO_IO_L2_READ);
    ordo_io_l2_touch(&l2, 2, 1, ORDO_IO_L2_READ); /* held */
    moved(&l2, 2, 0);
    ordo_io_l2_touch(&l2, 0, 3, ORDO_IO_L2_WRITE); /* evicts 2, which is clean; fills nothing */
    ordo_io_l2_touch(&l2, 0, 1, ORDO_IO_L2_READ);
    moved(&l2, 2, 0);
    ordo_io_l2_touch(&l2, 0, 2, ORDO_IO_L2_READ); /* evicts 3, which is dirty */
    moved(&l2, 3, 1);
    ordo_io_l2_touch(&l2, 0, 3, ORDO_IO_L2_ADD); /* reads it back, and it is dirty again */
    moved(&l2, 4, 1);
    ordo_io_l2_finish(&l2);
    moved(&l2, 4, 2);
    CHECK_INT(l2.asked, 8); /* an addition counts twice */
    CHECK_INT(l2.first_reads, 2);
    CHECK_INT(l2.first_written, 1);
    ordo_io_l2_destroy(&l2);
}

/* A granule whose home is part 0: worker 0 reading it moves no copy. */
static int64_t at_home(int32_t part)
{
    for (int64_t granule = 0; granule < 64; granule++) {
        ordo_io_l2 l2;
        CHECK(ordo_io_l2_create(&l2, 4 * GRANULE, 2, 64) == ORDO_OK);
        ordo_io_l2_touch(&l2, part, granule, ORDO_IO_L2_READ);
        const bool found = l2.copies == 0;
        ordo_io_l2_destroy(&l2);
        if (found)
            return granule;
    }
    CHECK(false);
    return -1;
}

/* Two parts of one granule each: a copy takes the place of what is at home there, and a write makes
 * it invalid. */
TEST(parts_keep_copies)
{
    const int64_t a = at_home(0), b = at_home(1);
    ordo_io_l2 l2;
    CHECK(ordo_io_l2_create(&l2, 2 * GRANULE, 2, 64) == ORDO_OK);
    ordo_io_l2_touch(&l2, 1, b, ORDO_IO_L2_READ);
    ordo_io_l2_touch(&l2, 1, a, ORDO_IO_L2_READ); /* held at home and as a copy, which evicts b */
    moved(&l2, 2, 0);
    CHECK_INT(l2.copies, 1);
    ordo_io_l2_touch(&l2, 0, a, ORDO_IO_L2_READ);
    ordo_io_l2_touch(&l2, 1, a, ORDO_IO_L2_READ);
    ordo_io_l2_touch(&l2, 3, a, ORDO_IO_L2_READ); /* workers 1 and 3 share a part */
    moved(&l2, 2, 0);
    ordo_io_l2_touch(&l2, 1, b, ORDO_IO_L2_READ);
    moved(&l2, 3, 0);
    ordo_io_l2_touch(&l2, 1, a, ORDO_IO_L2_READ); /* comes from its home, not from HBM */
    moved(&l2, 3, 0);
    CHECK_INT(l2.copies, 2);
    ordo_io_l2_touch(&l2, 1, a, ORDO_IO_L2_WRITE); /* at home; the copy is gone */
    CHECK(!ordo_io_lru_holds(&l2.part[1], (uint32_t)a));
    ordo_io_l2_touch(&l2, 1, a, ORDO_IO_L2_READ);
    moved(&l2, 3, 0);
    CHECK_INT(l2.copies, 3);
    ordo_io_l2_destroy(&l2);
}

/* ---- passes ---- */

static ordo_problem problem_of(int64_t batch, int64_t heads, int64_t rows, int64_t dim)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = ORDO_BF16;
    p.batch = batch;
    p.heads = p.kv_heads = heads;
    p.q_len = p.kv_len = rows;
    p.head_dim = dim;
    p.mask = ORDO_MASK_FULL;
    return p;
}

static ordo_machine *h200(void)
{
    ordo_machine *m = NULL;
    CHECK(ordo_machine_create(&m, "h200") == ORDO_OK);
    return m;
}

static ordo_io_hbm replay(const ordo_machine *m, const ordo_problem *p, ordo_io_pass pass,
                          ordo_io_algorithm form, int64_t bytes)
{
    ordo_io_hbm hbm;
    CHECK(ordo_io_replay(m, p, pass, form, bytes, &hbm) == ORDO_OK);
    return hbm;
}

/* One head of 128 rows: two granules of rows. L2 holds everything, so that inputs are read once.
 *
 *   flash 64    one chain of one step: q, k, v, o, dout; sums, dq, dk, dv. Without L2: begin 4,
 *               the step 8 + 4 + 4, end 4 + 2
 *   apart 192   two units of 64 keys in two steps, one of 128 queries in two. Without L2: begin 12,
 *               keys 2 (6 + 2 * 6) + 12, queries 12 + 2 * 6 + 6
 *   phase 192   in chains: two units of 64 keys in two steps, one of 128 queries in two. Without
 *               L2: begin 12, chains 2 (6 + 2 (6 + 1)) + 12, queries 2 (2 + 3) + 6
 *   phase 128   forward: q, k, v; P of 2 x 2, factors of one granule, o. Without L2: softmax 2 (2 +
 *               2) + 4 + 1, outputs 2 (2 + 2) + 1 + 4 */
TEST(counts_by_hand)
{
    static const struct {
        ordo_io_pass pass;
        ordo_io_algorithm form;
        int64_t dim, read, written, most;
    } rows[] = {
        { ORDO_IO_BACKWARD, ORDO_IO_FLASH, 64, 10, 10, 26 },
        { ORDO_IO_BACKWARD, ORDO_IO_APART, 192, 30, 18, 90 },
        { ORDO_IO_BACKWARD, ORDO_IO_PHASE, 192, 30, 22, 80 },
        { ORDO_IO_FORWARD, ORDO_IO_PHASE, 128, 12, 9, 26 },
    };
    ordo_machine *m = h200();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ordo_problem p = problem_of(1, 1, 128, rows[i].dim);
        const ordo_io_hbm hbm = replay(m, &p, rows[i].pass, rows[i].form, 0);
        CHECK_INT(hbm.read_bytes, rows[i].read * GRANULE);
        CHECK_INT(hbm.written_bytes, rows[i].written * GRANULE);
        CHECK_INT(hbm.least_bytes, (rows[i].read + rows[i].written) * GRANULE);
        CHECK_INT(hbm.most_bytes, rows[i].most * GRANULE);
        CHECK_NEAR(hbm.scores, 128 * 128, 0);
    }
    ordo_machine_destroy(m);
}

/* What a cache lets through lies between all of it once and all of it, in every form; and the
 * kernels' shares add up. A cache for everything lets through the least. */
TEST(between_once_and_always)
{
    static const struct {
        ordo_io_pass pass;
        ordo_io_algorithm form;
        int64_t dims[3];
    } forms[] = {
        { ORDO_IO_BACKWARD, ORDO_IO_FLASH, { 64, 128, 128 } },
        { ORDO_IO_BACKWARD, ORDO_IO_APART, { 192, 256, 256 } },
        { ORDO_IO_BACKWARD, ORDO_IO_PHASE, { 192, 448, 576 } }, /* the first in chains */
        { ORDO_IO_FORWARD, ORDO_IO_PHASE, { 320, 512, 576 } },
    };
    ordo_machine *m = h200();
    uint64_t random = 22;
    for (int n = 0; n < 80; n++) {
        const int form = n % 4;
        const ordo_problem p =
            problem_of(check_between(&random, 1, 3), check_between(&random, 1, 5),
                       check_between(&random, 1, 1200), forms[form].dims[n / 4 % 3]);
        const int64_t bytes = check_between(&random, 2, 2000) * GRANULE;
        const ordo_io_hbm hbm = replay(m, &p, forms[form].pass, forms[form].form, bytes);
        const int64_t all = hbm.read_bytes + hbm.written_bytes;
        CHECK(hbm.least_bytes <= all);
        CHECK(all <= hbm.most_bytes);
        int64_t read = 0, written = 0;
        for (int i = 0; i < ORDO_IO_KERNELS && hbm.kernels[i].name; i++) {
            read += hbm.kernels[i].loads;
            written += hbm.kernels[i].stores;
        }
        CHECK_INT(read, hbm.read_bytes);
        CHECK_INT(written, hbm.written_bytes);
        const ordo_io_hbm held =
            replay(m, &p, forms[form].pass, forms[form].form, INT64_C(1) << 33);
        CHECK_INT(held.read_bytes + held.written_bytes, hbm.least_bytes);
        CHECK_INT(held.most_bytes, hbm.most_bytes);
    }
    ordo_machine_destroy(m);
}

/* Without L2 the kernels move what the forms' closed counts say: per score, and once per element
 * what does not grow with the scores. */
TEST(tiles_are_those_of_the_kernels)
{
    enum { ROWS = 2048 };
    const double once = 1.0 / ROWS;
    ordo_machine *m = h200();
    ordo_io_bytes bytes;
    ordo_problem p = problem_of(1, 2, ROWS, 512);
    ordo_io_hbm hbm = replay(m, &p, ORDO_IO_BACKWARD, ORDO_IO_PHASE, 0);
    CHECK(ordo_io_hopper(m, 512, &bytes) == ORDO_OK);
    /* The kernel keeps P in registers instead of reading it back; begin reads o and dout. */
    CHECK_NEAR((double)hbm.most_bytes / hbm.scores, bytes.phase - 2 + 512 * once * (4 + 6), 1e-9);
    p = problem_of(1, 2, ROWS, 128);
    hbm = replay(m, &p, ORDO_IO_BACKWARD, ORDO_IO_FLASH, 0);
    CHECK(ordo_io_hopper(m, 128, &bytes) == ORDO_OK);
    /* Sums of dq are read and written, but for the first of 16 turns; begin, K, V, end. */
    CHECK_NEAR((double)hbm.most_bytes / hbm.scores,
               bytes.flash_reduce + 4.0 * 15 / 16 + 128 * once * (4 + 4 + 6 + 4), 1e-9);
    p = problem_of(1, 2, ROWS, 256);
    hbm = replay(m, &p, ORDO_IO_BACKWARD, ORDO_IO_APART, 0);
    CHECK_NEAR((double)hbm.most_bytes / hbm.scores,
               4 * 256.0 / 64 + 4 * 256.0 / 128 + 256 * once * (4 + 4 + 4 + 6), 1e-9);
    /* Forward, 384 columns in two units: scores by 128 x 256, P stored and read twice, V
     * once per 128 rows, an f32 for 256 scores stored and read twice, o. */
    p = problem_of(1, 1, 2 * ROWS, 384);
    hbm = replay(m, &p, ORDO_IO_FORWARD, ORDO_IO_PHASE, 0);
    CHECK_NEAR((double)hbm.most_bytes / hbm.scores,
               2 * 384.0 / 128 + 2 * 384.0 / 256 + 2 + 2 * 2 + 2 * 384.0 / 128 + 3.0 / 64 +
                   384 * once,
               1e-9);
    ordo_machine_destroy(m);
}

/* Operands and sums of heads in flight that do not fit are moved again. */
TEST(smaller_caches_move_more)
{
    ordo_machine *m = h200();
    const ordo_problem p = problem_of(1, 4, 4096, 128);
    int64_t before = 0;
    for (int64_t mib = 64; mib >= 4; mib /= 2) {
        const ordo_io_hbm hbm = replay(m, &p, ORDO_IO_BACKWARD, ORDO_IO_FLASH, mib << 20);
        CHECK(hbm.read_bytes + hbm.written_bytes >= before);
        before = hbm.read_bytes + hbm.written_bytes;
    }
    const ordo_io_hbm held = replay(m, &p, ORDO_IO_BACKWARD, ORDO_IO_FLASH, 0);
    CHECK(before > 2 * (held.read_bytes + held.written_bytes));
    ordo_machine_destroy(m);
}

TEST(refusals)
{
    ordo_machine *m = h200(), *a100 = NULL;
    ordo_io_hbm hbm;
    ordo_problem p = problem_of(1, 2, 256, 128);
#define REFUSES(machine, form, bytes, status, text)                                                \
    CHECK_REFUSED(ordo_io_replay(machine, &p, ORDO_IO_BACKWARD, form, bytes, &hbm), status, text)
    CHECK(ordo_machine_create(&a100, "a100") == ORDO_OK);
    REFUSES(a100, ORDO_IO_FLASH, 0, ORDO_ERR_UNSUPPORTED, "cuda_arch 90");
    REFUSES(m, ORDO_IO_FLASH, GRANULE, ORDO_ERR_ARGUMENT, "cache_bytes 8192");
    REFUSES(m, ORDO_IO_FLASH, -1, ORDO_ERR_ARGUMENT, "cache_bytes -1");
    REFUSES(m, ORDO_IO_NAIVE, 0, ORDO_ERR_UNSUPPORTED, "form naive");
    REFUSES(m, ORDO_IO_APART, 0, ORDO_ERR_UNSUPPORTED, "head_dim 128: expected a multiple of 64");
    p.mask = ORDO_MASK_CAUSAL;
    REFUSES(m, ORDO_IO_FLASH, 0, ORDO_ERR_UNSUPPORTED, "full mask");
    p = problem_of(1, 2, 256, 128);
    p.kv_heads = 1;
    REFUSES(m, ORDO_IO_FLASH, 0, ORDO_ERR_UNSUPPORTED, "kv_heads 1");
    p = problem_of(1, 2, 256, 128);
    p.dtype = ORDO_F32;
    REFUSES(m, ORDO_IO_FLASH, 0, ORDO_ERR_UNSUPPORTED, "dtype f32");
    p = problem_of(1, 2, 0, 128);
    REFUSES(m, ORDO_IO_FLASH, 0, ORDO_ERR_UNSUPPORTED, "empty problem");
    p = problem_of(64, 64, 65536, 128);
    REFUSES(m, ORDO_IO_FLASH, 0, ORDO_ERR_UNSUPPORTED, "too many rows and heads");
    p = problem_of(1, 1, 65536, 512);
    REFUSES(m, ORDO_IO_PHASE, 0, ORDO_ERR_UNSUPPORTED, "in one panel");
    p = problem_of(1, 1, 128, 96);
    REFUSES(m, ORDO_IO_FLASH, 0, ORDO_ERR_UNSUPPORTED, "head_dim 96");
    ordo_machine_destroy(a100);
    ordo_machine_destroy(m);
}

static ordo_io_hbm of_order(ordo_machine *m, const ordo_problem *p, ordo_order order)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    ordo_io_hbm hbm = { 0 };
    options.backend = ORDO_BACKEND_CUDA;
    options.order = order;
    CHECK(ordo_plan_create(&plan, p, m, &options) == ORDO_OK);
    CHECK(ordo_io_replay_plan(m, plan, 0, &hbm) == ORDO_OK);
    ordo_plan_destroy(plan);
    return hbm;
}

/* Under a causal mask the chains of spt drift apart, until none finds what another has loaded;
 * those of descending do not (docs/design/orders.md). Under a full mask they all keep step. */
TEST(orders_have_bytes_of_their_own)
{
    ordo_machine *m = h200();
    ordo_problem p = problem_of(1, 16, 8192, 128);
    const ordo_io_hbm usual = replay(m, &p, ORDO_IO_BACKWARD, ORDO_IO_FLASH, 0);
    const ordo_io_hbm full = of_order(m, &p, ORDO_ORDER_ASCENDING);
    CHECK_INT(full.read_bytes, usual.read_bytes);
    CHECK_INT(full.written_bytes, usual.written_bytes);
    CHECK_INT(of_order(m, &p, ORDO_ORDER_SPT).most_bytes, full.most_bytes);
    CHECK_NEAR(full.ns, usual.ns, 0);
    CHECK(full.ns > full.chains_ns && full.chains_ns > 0);
    p.mask = ORDO_MASK_CAUSAL;
    const ordo_io_hbm down = of_order(m, &p, ORDO_ORDER_DESCENDING);
    const ordo_io_hbm spt = of_order(m, &p, ORDO_ORDER_SPT);
    CHECK_NEAR(down.scores, 16.0 * 8192 * 8193 / 2, 0);
    CHECK_INT(spt.most_bytes, down.most_bytes);
    CHECK_INT(spt.least_bytes, down.least_bytes);
    CHECK(spt.read_bytes > 4 * down.read_bytes);
    CHECK(spt.ns > 1.15 * down.ns);
    ordo_machine_destroy(m);
}

TEST(plans_that_are_not_replayed)
{
    ordo_machine *m = h200();
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_problem p = problem_of(1, 2, 256, 256);
    ordo_plan *plan = NULL;
    ordo_io_hbm hbm;
    options.backend = ORDO_BACKEND_CUDA;
    CHECK(ordo_plan_create(&plan, &p, m, &options) == ORDO_OK);
    CHECK_REFUSED(ordo_io_replay_plan(m, plan, 0, &hbm), ORDO_ERR_UNSUPPORTED, "by flash");
    ordo_plan_destroy(plan);
    p = problem_of(1, 2, 256, 128);
    p.window = (ordo_window) { true, 64, 0 };
    CHECK(ordo_plan_create(&plan, &p, m, &options) == ORDO_OK);
    CHECK_REFUSED(ordo_io_replay_plan(m, plan, 0, &hbm), ORDO_ERR_UNSUPPORTED, "causal one");
    ordo_plan_destroy(plan);
    ordo_machine_destroy(m);
}

CHECK_MAIN()
