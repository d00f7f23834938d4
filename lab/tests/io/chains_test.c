/* chains_test.c: bytes of the backward pass in chains: the closed count and the replay against a
 * walk of every unit by the functions that the kernels walk by (cuda/pass/panels.h). */
#include "check.h"
#include "cuda/pass/panels.h"
#include "ordo/lab.h"
#include "plan/family_sm90.h"
#include "plan/forms.h"

typedef struct shape {
    int32_t batch, heads, rows, dim, v_dim; /* rows: a multiple of 128 */
} shape;

static ordo_cuda_batch batch_of(const shape *z)
{
    ordo_cuda_batch batch = { .sequences = z->batch, .tiles = z->batch * z->rows / PHASE_ROWS };
    batch.first.q_len = batch.first.kv_len = z->rows;
    batch.first.low = -ORDO_BAND_OPEN;
    batch.first.high = ORDO_BAND_OPEN;
    batch.step.query_tile = z->rows / PHASE_ROWS;
    batch.step.key_tile = (z->rows + PHASE_KEYS - 1) / PHASE_KEYS;
    return batch;
}

/* ---- the walk ---- */

/* Bytes of rows of a tensor, two per element. */
static int64_t bytes_of(int64_t rows, int64_t columns)
{
    return 2 * rows * columns;
}

/* A unit of the chains, as its loader takes it (cuda/sm90/phases/chain_load.h) and its consumers
 * store.
 */
static int64_t walk_chain(const shape *z, const ordo_cuda_batch *batch,
                          const ordo_phase_panel *panel, int32_t block)
{
    enum { OF_TILE = PHASE_KEYS / PHASE_CHAIN_KEYS, OF_ROWS = PHASE_ROWS / PHASE_CHAIN_KEYS };
    const int32_t sequence = ordo_batch_find(batch, ORDO_BEFORE_KEY, block / OF_TILE);
    const ordo_cuda_sequence s = ordo_batch_sequence(batch, sequence);
    const int32_t own = block - OF_TILE * s.key_tile;
    int64_t bytes = 0;
    if (own * PHASE_CHAIN_KEYS >= s.kv_len)
        return 0;
    const ordo_phase_walk walk = ordo_phase_visits(&s, panel, PHASE_CHAIN_KEYS, own, false);
    for (int32_t step = 0; step < walk.count * OF_ROWS; step++) {
        bytes +=
            bytes_of(PHASE_CHAIN_KEYS, z->dim) + bytes_of(PHASE_CHAIN_KEYS, z->v_dim); /* q, dO */
        bytes += bytes_of(PHASE_CHAIN_KEYS, PHASE_CHAIN_KEYS);                         /* dS */
    }
    bytes += bytes_of(PHASE_CHAIN_KEYS, z->dim + z->v_dim);       /* k, v */
    return bytes + bytes_of(PHASE_CHAIN_KEYS, z->dim + z->v_dim); /* dk, dv */
}

/* A unit of the product for dq (cuda/sm90/phases/product.h). */
static int64_t walk_queries(const shape *z, const ordo_cuda_batch *batch, int32_t tile)
{
    const int32_t sequence = ordo_batch_find(batch, ORDO_BEFORE_QUERY, tile);
    const ordo_cuda_sequence s = ordo_batch_sequence(batch, sequence);
    const ordo_span keys = ordo_phase_keys(&s, tile - s.query_tile, PHASE_STEP);
    int64_t bytes = 0;
    for (int32_t j = keys.first; j <= keys.last; j++)
        bytes += bytes_of(PHASE_ROWS, PHASE_STEP) + bytes_of(PHASE_STEP, z->dim); /* dS, k */
    return bytes + bytes_of(PHASE_ROWS, z->dim);                                  /* dq */
}

/* All bytes that the pass moves between multiprocessors and L2, without row statistics. */
static int64_t walk_pass(const shape *z)
{
    const ordo_cuda_batch batch = batch_of(z);
    const ordo_phase_panel panel = { .tiles = batch.tiles, .heads = z->heads, .opening = true };
    const int32_t blocks = PHASE_KEYS / PHASE_CHAIN_KEYS *
                           (int32_t)ordo_batch_before(&batch, ORDO_BEFORE_KEY, batch.sequences);
    int64_t bytes = 2 * bytes_of((int64_t)z->batch * z->heads * z->rows, z->v_dim); /* o, dout */
    for (int64_t ticket = 0; ticket < (int64_t)blocks * z->heads; ticket++)
        bytes +=
            walk_chain(z, &batch, &panel, ordo_phase_issue(blocks, z->heads, 1, 1, ticket).tile);
    for (int64_t ticket = 0; ticket < (int64_t)batch.tiles * z->heads; ticket++)
        bytes +=
            walk_queries(z, &batch, ordo_phase_issue(batch.tiles, z->heads, 1, 1, ticket).tile);
    return bytes;
}

/* ---- tests ---- */

static ordo_io_hbm replay(const ordo_machine *m, const shape *z, int64_t cache_bytes)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_io_hbm hbm;
    p.dtype = ORDO_BF16;
    p.batch = z->batch;
    p.heads = p.kv_heads = z->heads;
    p.q_len = p.kv_len = z->rows;
    p.head_dim = z->dim;
    p.v_head_dim = z->v_dim;
    p.mask = ORDO_MASK_FULL;
    CHECK(ordo_io_replay(m, &p, ORDO_IO_BACKWARD, ORDO_IO_PHASE, cache_bytes, &hbm) == ORDO_OK);
    return hbm;
}

/* Head sizes in chains: all pairs of those that have kernels of their own. */
static shape draw(uint64_t *random)
{
    static const int32_t dims[] = { 128, 192, 256 };
    shape z = { .batch = (int32_t)check_between(random, 1, 3),
                .heads = (int32_t)check_between(random, 1, 4),
                .rows = (int32_t)check_between(random, 1, 12) * 128 };
    z.dim = dims[check_between(random, 0, 2)];
    z.v_dim = dims[check_between(random, 0, 2)];
    return z;
}

/* Without L2 the replay moves what the walk does; with all of L2, every tensor once and dS once. */
TEST(replay_is_the_walk)
{
    ordo_machine *m = NULL;
    uint64_t random = 22;
    CHECK(ordo_machine_create(&m, "h200") == ORDO_OK);
    for (int n = 0; n < 40; n++) {
        const shape z = draw(&random);
        const ordo_io_hbm hbm = replay(m, &z, INT64_C(1) << 33);
        const int64_t rows = (int64_t)z.batch * z.heads * z.rows, both = z.dim + z.v_dim;
        const int64_t scores = bytes_of(rows, z.rows);
        CHECK_INT(hbm.most_bytes, walk_pass(&z));
        CHECK_INT(hbm.read_bytes, bytes_of(rows, 2 * both + z.v_dim)); /* q, k, v, dout; o */
        CHECK_INT(hbm.written_bytes, bytes_of(rows, z.dim + both) + scores);
        CHECK_TEXT(hbm.kernels[0].name, "begin");
        CHECK_TEXT(hbm.kernels[1].name, "chains");
        CHECK_TEXT(hbm.kernels[2].name, "queries");
        /* L2 of one granule per part holds nothing but copies: dS crosses HBM twice. */
        const ordo_io_hbm none = replay(m, &z, INT64_C(1) << 20);
        CHECK(none.kernels[2].loads >= scores - (INT64_C(1) << 20));
    }
    ordo_machine_destroy(m);
}

/* The count that plans and the crossover show is the walk, less what is moved once per row. */
TEST(count_is_the_walk)
{
    uint64_t random = 23;
    for (int n = 0; n < 40; n++) {
        const shape z = draw(&random);
        const double scores = (double)z.batch * z.heads * z.rows * (double)z.rows;
        const int64_t both = z.dim + z.v_dim;
        const int64_t once = 2 * z.v_dim + 2 * both + z.dim; /* o, dout; k, v, dk, dv; dq */
        const ordo_form_counts c = ordo_forms_count(z.dim, z.v_dim, ORDO_SM90_SHARED);
        const ordo_traffic t = c.l2[ORDO_FORM_PHASE];
        CHECK(ordo_form_chained(z.dim, z.v_dim));
        CHECK_NEAR((double)t.bytes / (double)t.scores,
                   (double)walk_pass(&z) / scores - 2.0 * (double)once / z.rows, 1e-9);
        CHECK_INT(c.hbm[ORDO_FORM_PHASE], 4);
    }
}

/* Chains end where one of the head sizes exceeds 256; values of another size are replayed in chains
 * only. */
TEST(limits)
{
    static const struct {
        int32_t dim, v_dim;
        bool chained;
    } rows[] = { { 256, 256, true },  { 192, 128, true },  { 128, 256, true },
                 { 264, 128, false }, { 128, 264, false }, { 8, 8, true } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_INT(ordo_io_chained(rows[i].dim, rows[i].v_dim), rows[i].chained);
    ordo_machine *m = NULL;
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_io_hbm hbm;
    CHECK(ordo_machine_create(&m, "h200") == ORDO_OK);
    p.dtype = ORDO_BF16;
    p.batch = p.heads = p.kv_heads = 1;
    p.q_len = p.kv_len = 256;
    p.mask = ORDO_MASK_FULL;
    static const struct {
        ordo_io_pass pass;
        ordo_io_algorithm form;
        int64_t dim, v_dim;
    } refused[] = { { ORDO_IO_BACKWARD, ORDO_IO_PHASE, 320, 256 },
                    { ORDO_IO_BACKWARD, ORDO_IO_PHASE, 192, 320 },
                    { ORDO_IO_BACKWARD, ORDO_IO_PHASE, 192, 136 },
                    { ORDO_IO_BACKWARD, ORDO_IO_APART, 192, 128 },
                    { ORDO_IO_BACKWARD, ORDO_IO_FLASH, 128, 64 },
                    { ORDO_IO_FORWARD, ORDO_IO_PHASE, 192, 128 } };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        p.head_dim = refused[i].dim;
        p.v_head_dim = refused[i].v_dim;
        CHECK_INT(ordo_io_replay(m, &p, refused[i].pass, refused[i].form, 0, &hbm),
                  ORDO_ERR_UNSUPPORTED);
        CHECK_HAS(ordo_last_error(), "v_head_dim");
    }
    ordo_machine_destroy(m);
}

CHECK_MAIN()
