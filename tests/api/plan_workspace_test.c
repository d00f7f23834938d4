/* plan_workspace_test.c: the workspace of a plan, counted by hand. */
#include "plan_requests.h"

static uint64_t workspace(const request *r)
{
    ordo_plan *plan = make(r);
    const uint64_t bytes = ordo_plan_workspace(plan);
    ordo_plan_destroy(plan);
    return bytes;
}

/* 100 rows are 2 query tiles of 64; 2 sequences of 3 heads: 12 tiles, 768 rows. f32 dQ 768x128,
 * row sums 768 and as many lse, 12 counters and a ticket, each part rounded up to 256 bytes; of
 * sequences that only the device knows a table of two and the totals. A mark for each of the
 * 777 x 2 x 3 rows of dK and of dV: 9324 bytes; packed, of 1000 x 3: 6000. */
TEST(workspace_counted_by_hand)
{
    request r = on_h200();
    r.problem.heads = 3;
    r.problem.q_len = 100;
    r.problem.kv_len = 777;
    CHECK_INT(workspace(&r), 393216 + 2 * 3072 + 256 + 256 + 9472);
    r.problem.layout = ORDO_PADDED;
    CHECK_INT(workspace(&r), 393216 + 2 * 3072 + 256 + 256 + 256 + 9472);
    r.problem.layout = ORDO_PACKED; /* 150 rows in two sequences: at most 2 + 2 tiles */
    r.problem.total_q = 150;
    r.problem.total_kv = 1000;
    CHECK_INT(workspace(&r), 393216 + 2 * 3072 + 256 + 256 + 256 + 6144);
    r.problem.batch = 100; /* at most 2 + 100 tiles; 101 entries of 80 bytes */
    CHECK_INT(workspace(&r), 3 * 102 * 64 * (128 + 2) * 4 + 1280 + 256 + 8192 + 6144);
    r.problem.head_dim = 72; /* in the kernels of 128 */
    CHECK_INT(workspace(&r), 3 * 102 * 64 * (128 + 2) * 4 + 1280 + 256 + 8192 + 6144);
    r = on_host(); /* rows of dQ are whole vectors of 16 */
    r.problem.q_len = 65;
    r.problem.batch = 1;
    r.problem.heads = 2;
    r.problem.head_dim = 24;
    /* and the query side as panels: rows of 32, columns of 80, lse, flags */
    const int64_t panels = 2 * 256 * 32 * 4 + 2 * 4 * 24 * 80 * 4 + 1024 + 256;
    CHECK_INT(workspace(&r), 256 * 32 * 4 + 1024 + 256 + 256 + panels);
    r = on_ref();
    CHECK_INT(workspace(&r), 0);
}

/* A GPU's forward pass draws tickets too; a CPU's shares keys where more than eight query tiles
 * meet them. */
TEST(workspace_of_the_forward_pass)
{
    request r = on_h200();
    CHECK_INT(info_of(&r).forward_workspace_bytes, 256);
    r.problem.dropout.p = 0.1; /* ids may be listed on the device */
    CHECK_INT(info_of(&r).forward_workspace_bytes, 256 + 256);
    r.problem.dropout.p = 0;
    r.problem.layout = ORDO_PADDED;
    r.problem.batch = 100;
    CHECK_INT(info_of(&r).forward_workspace_bytes, 256 + 8192);
    r = on_host();
    r.problem.batch = 3;
    r.problem.heads = r.problem.kv_heads = 2;
    r.problem.q_len = 512;
    r.problem.kv_len = 300;
    r.problem.head_dim = 24;
    CHECK_INT(info_of(&r).forward_workspace_bytes, 0);
    r.problem.q_len = 513; /* three tiles of 128 keys: rows of 144 and 32, and a word */
    const int64_t keys = 3 * 2 * 3 * (24 * 144 + 128 * 32) * 4 + 256;
    CHECK_INT(info_of(&r).forward_workspace_bytes, keys);
    r.problem.q_len = 257; /* five tiles of each of two heads */
    r.problem.heads = 4;
    CHECK_INT(info_of(&r).forward_workspace_bytes, keys);
    r.problem.kv_len = 1 << 20; /* then it takes more than the backward pass */
    CHECK(info_of(&r).forward_workspace_bytes > (1 << 30));
    CHECK_INT(workspace(&r), info_of(&r).forward_workspace_bytes);
    r = on_ref();
    CHECK_INT(info_of(&r).forward_workspace_bytes, 0);
}

TEST(workspace_is_linear_in_sequence_length)
{
    request r = on_h200();
    uint64_t bytes[6];
    for (int x = 0; x < 6; x++) {
        r.problem.q_len = 65536 * (x + 1);
        bytes[x] = workspace(&r);
    }
    for (int x = 2; x < 6; x++)
        CHECK_INT(bytes[x] - bytes[x - 1], bytes[1] - bytes[0]);
    CHECK(bytes[1] > bytes[0]);
}

CHECK_MAIN()
