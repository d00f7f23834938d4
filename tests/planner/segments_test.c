/* segments_test.c: how a plan divides rows into segments, what memory their keep bits take, and
 * which segments are refused. */
#include "api/plan_requests.h"
#include "plan/segments.h"
#include "plan/sizes.h"
#include "plan/workspace.h"

#define GIB (UINT64_C(1) << 30)

static request dropping(void)
{
    request r = on_h200();
    r.problem.dropout.p = 0.1;
    return r;
}

static request long_context(void)
{
    request r = dropping();
    r.problem.batch = 1;
    r.problem.heads = 32;
    r.problem.q_len = 131072;
    return r;
}

/* 131072 rows, 32 heads: 64 GiB of bits, of which n segments have 2/n in memory. */
TEST(memory_of_the_bits)
{
    request r = long_context();
    const ordo_plan_info none = info_of(&r);
    CHECK_INT(none.keep_bits_bytes, 64 * GIB);
    CHECK_INT(none.segments, 0);
    CHECK_INT(none.segment_bytes, 0);
    CHECK_INT(none.dropout_mode, ORDO_DROPOUT_MODE_PIPELINED);
    for (int64_t n = 1; n <= 2048; n *= 2) {
        r.options.segments = n;
        const ordo_plan_info info = info_of(&r);
        CHECK_INT(info.segments, n);
        CHECK_INT(info.segment_bytes, n == 1 ? 64 * GIB : 128 * GIB / (uint64_t)n);
        CHECK_INT(info.keep_bits_bytes, 64 * GIB);
        CHECK_INT(info.dropout_mode, ORDO_DROPOUT_MODE_PIPELINED);
        CHECK(!info.keep_bits_reused);
        CHECK_TEXT(info.numeric_key, none.numeric_key);
        CHECK(info.forward_workspace_bytes > info.segment_bytes);
        CHECK(info.forward_workspace_bytes < info.segment_bytes + (1 << 20));
        /* what one pass needs, dq sums of one segment instead of all, and sums of dk and dv */
        const uint64_t sums = UINT64_C(2) * 131072 * 32 * 128 * 4;
        CHECK(info.backward_workspace_bytes <=
              info.segment_bytes + none.backward_workspace_bytes + sums + 4096);
    }
}

/* The fewest segments that fit; one byte less takes more of them. */
TEST(segments_by_memory)
{
    request r = long_context();
    static const struct {
        uint64_t memory;
        int64_t segments;
    } rows[] = {
        { 64 * GIB, 1 },    { 64 * GIB - 1, 3 }, { 32 * GIB, 4 },
        { 16 * GIB, 8 },    { 16 * GIB - 1, 9 }, { GIB, 128 },
        { 64 << 20, 2048 }, { 100 << 20, 2048 }, { 128 << 20, 1024 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        r.options.keep_bits_memory = rows[i].memory;
        const ordo_plan_info info = info_of(&r);
        CHECK_INT(info.segments, rows[i].segments);
        CHECK(info.segment_bytes <= rows[i].memory);
    }
    r.options.segments = 64; /* more than needed */
    r.options.keep_bits_memory = 16 * GIB;
    CHECK_INT(info_of(&r).segments, 64);
}

/* Every row is in one segment, and segments begin at tiles. */
TEST(segments_are_a_partition)
{
    uint64_t seed = 250;
    for (int x = 0; x < 300; x++) {
        request r = dropping();
        r.problem.head_dim = check_between(&seed, 0, 1) ? 64 : 128;
        r.problem.q_len = check_between(&seed, 1, 5000);
        ordo_plan *plan = make(&r);
        plan->segments = check_between(&seed, 1, 40);
        plan->segments = ordo_segment_count(plan, plan->segments);
        CHECK_INT(ordo_segment_count(plan, plan->segments), plan->segments);
        int64_t next = 0;
        for (int64_t i = 0; i < plan->segments; i++) {
            const ordo_plan part = ordo_segment_plan(plan, i);
            CHECK_INT(part.problem.shard.row0, next);
            CHECK_INT(next % plan->backward_tile.q, 0);
            CHECK_INT(ordo_segment_first(plan, i), next);
            CHECK(part.problem.q_len > 0);
            CHECK_INT(ordo_plan_lse_rows(&part), r.problem.q_len);
            next += part.problem.q_len;
        }
        CHECK_INT(next, r.problem.q_len);
        ordo_plan_destroy(plan);
    }
}

/* Tiles of 24 rows begin with a block of 16 only every 48 rows. */
TEST(blocks_of_bits_are_not_cut)
{
    request r = on_host();
    r.problem.dropout.p = 0.1;
    r.options.backward_tile = (ordo_tile) { 24, 64 };
    r.options.segments = 3;
    ordo_plan *plan = make(&r);
    CHECK_INT(ordo_segment_multiple(plan), 48);
    CHECK_INT(ordo_segment_first(plan, 1), 384);
    ordo_plan_destroy(plan);
}

/* The line of a plan says its segments; lines without them are as they were. */
TEST(lines)
{
    request r = dropping();
    char line[2048], again[2048];
    ordo_plan *plan = make(&r), *read = NULL;
    CHECK_INT(ordo_plan_print(plan, line, sizeof line, NULL), ORDO_OK);
    CHECK(strstr(line, "segments") == NULL);
    ordo_plan_destroy(plan);
    r.options.segments = 4;
    plan = make(&r);
    CHECK_INT(ordo_plan_print(plan, line, sizeof line, NULL), ORDO_OK);
    CHECK_HAS(line, " workers=132 segments=4 key=");
    CHECK_INT(ordo_plan_parse(&read, line), ORDO_OK);
    CHECK_INT(ordo_plan_print(read, again, sizeof again, NULL), ORDO_OK);
    CHECK_TEXT(again, line);
    CHECK_INT(ordo_plan_workspace(read), ordo_plan_workspace(plan));
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    CHECK_INT(ordo_plan_query(read, &info), ORDO_OK);
    CHECK_INT(info.dropout_mode, ORDO_DROPOUT_MODE_PIPELINED);
    ordo_plan_destroy(read);
    static const char *const wrong[][2] = { { "segments=0", "at byte" },
                                            { "segments=17", "segments 17" },
                                            { "segments=-1", "segments -1" } };
    for (int i = 0; i < 3; i++) {
        char text[2048];
        const char *at = strstr(line, "segments=4");
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - line), line, wrong[i][0], at + 10);
        CHECK(ordo_plan_parse(&read, text) != ORDO_OK);
        CHECK_HAS(ordo_last_error(), wrong[i][1]);
    }
    ordo_plan_destroy(plan);
}

static void refuse(request r, int64_t segments, uint64_t memory, ordo_status status,
                   const char *message)
{
    ordo_plan *plan = NULL;
    r.options.segments = segments;
    r.options.keep_bits_memory = memory;
    CHECK_INT(create(&r, &plan), status);
    CHECK_HAS(ordo_last_error(), message);
    ordo_plan_destroy(plan);
}

TEST(refusals)
{
    request r = dropping();
    refuse(r, 17, 0, ORDO_ERR_SHAPE,
           "segments 17: 1024 rows in multiples of 64 are 16 segments; expected that or fewer");
    refuse(r, 9, 0, ORDO_ERR_SHAPE, "are 8 segments");
    refuse(r, -1, 0, ORDO_ERR_ARGUMENT, "segments -1: expected 1..");
    refuse(
        r, 0, 1, ORDO_ERR_ARGUMENT,
        "keep_bits_memory 1: the keep bits of two segments of 64 rows take 262144 bytes; expected "
        "that or more");
    refuse(r, 0, 262143, ORDO_ERR_ARGUMENT,
           "keep_bits_memory 262143: the keep bits of two segments");
    refuse(r, 2, 262144, ORDO_ERR_ARGUMENT,
           "keep_bits_memory 262144: the keep bits of two segments of 512 rows take 2097152 bytes");
    refuse(r, 1, 262144, ORDO_ERR_ARGUMENT,
           "the keep bits of one segment of 1024 rows take 2097152");
    refuse(on_h200(), 2, 0, ORDO_ERR_ARGUMENT, "segments 2: expected 0 with dropout.p 0");
    refuse(on_h200(), 0, 64, ORDO_ERR_ARGUMENT, "keep_bits_memory 64: expected 0 with dropout.p 0");
    refuse(on_h200(), 0, 1 << 20, ORDO_ERR_ARGUMENT, "expected 0 with dropout.p 0");
    refuse(packed(r), 2, 0, ORDO_ERR_UNSUPPORTED,
           "segments 2, layout packed: expected layout dense");
    refuse(packed(r), 0, 1 << 20, ORDO_ERR_UNSUPPORTED, "layout packed");
    request blocks = r;
    blocks.problem.blocks.entries = 4;
    refuse(blocks, 2, 0, ORDO_ERR_UNSUPPORTED, "segments 2, block mask: expected 0 segments");
    r.options.order = ORDO_ORDER_TWIN;
    refuse(r, 2, 0, ORDO_ERR_UNSUPPORTED, "segments 2, order twin: expected ascending, descending");
    r = on_ref();
    r.problem.dropout.p = 0.1;
    refuse(r, 2, 0, ORDO_ERR_UNSUPPORTED, "backend ref");
    r = long_context(); /* more blocks than a device counts */
    r.problem.batch = 16;
    refuse(r, 2, 0, ORDO_ERR_UNSUPPORTED, "at most 2^31 - 1 blocks");
}

/* By phases fewer rows leave room for panels of more heads, so that the last segment, which is
 * shorter, may take more than the others: the workspace is enough for each of them. */
TEST(every_segment_fits_the_workspace)
{
    static const struct {
        int64_t dim, heads, segments;
    } rows[] = { { 512, 8, 11 }, { 512, 16, 6 }, { 256, 8, 7 }, { 576, 4, 5 }, { 128, 16, 7 } };
    for (int x = 0; x < 5; x++) {
        request r = dropping();
        ordo_segment_parts parts;
        r.problem.batch = 1;
        r.problem.heads = r.problem.kv_heads = rows[x].heads;
        r.problem.q_len = r.problem.kv_len = 16384;
        r.problem.head_dim = rows[x].dim;
        r.options.segments = rows[x].segments;
        ordo_plan *plan = make(&r);
        CHECK(ordo_segment_sizes(plan, &parts));
        for (int64_t n = 0; n < plan->segments; n++) {
            const ordo_plan one = ordo_segment_plan(plan, n);
            uint64_t forward = 0, backward = 0;
            CHECK(ordo_plan_forward_bytes(&one, &forward) && forward <= parts.forward);
            CHECK(ordo_plan_workspace_bytes(&one, &backward) && backward <= parts.backward);
        }
        CHECK(ordo_plan_needs_bits(plan) == (rows[x].dim > 256));
        ordo_plan_destroy(plan);
    }
}

CHECK_MAIN()
