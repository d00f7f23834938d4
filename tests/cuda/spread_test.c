/* Long sequences of passes with few rows, which kernels spread over multiprocessors: which plans
 * have room for them, and the arithmetic of slots, by the text that the device compiles. */
#include "check.h"
#include "cuda/pass/spread.h"
#include "cuda/tile/fragment.h"
#include "ordo/machine.h"
#include "plan/workspace.h"

enum { COLUMNS = 128 };

static ordo_problem few_rows(int64_t kv_len)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    p.dtype = ORDO_BF16;
    p.layout = ORDO_PADDED;
    p.batch = 3;
    p.heads = 32;
    p.kv_heads = 8;
    p.q_len = 1;
    p.kv_len = kv_len;
    p.head_dim = COLUMNS;
    p.paging = (ordo_paging) { 16, 4 * kv_len, kv_len / 16 + 1 };
    return p;
}

/* Slots of a plan for a problem; its workspace has room for them. */
static int64_t slots_of(ordo_problem p)
{
    ordo_machine *machine = NULL;
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    ordo_plan *plan = NULL;
    ordo_forward_parts parts;
    CHECK_INT(ordo_machine_create(&machine, "h200"), ORDO_OK);
    options.backend = ORDO_BACKEND_CUDA;
    if (ordo_plan_create(&plan, &p, machine, &options) != ORDO_OK)
        CHECK_FAIL("%s", ordo_last_error());
    ordo_machine_destroy(machine);
    const int64_t slots = ordo_plan_spread_slots(plan);
    CHECK(ordo_plan_forward_parts(plan, 0, &parts));
    const ordo_cuda_spread spread = { (char *)0 + 4096, (int32_t)slots,
                                      (int32_t)ordo_plan_spread_lines(&plan->problem) };
    const char *end = ordo_spread_group(&spread, (int32_t)p.kv_heads, (int32_t)plan->forward_tile.k,
                                        slots * p.kv_heads, 0);
    CHECK_INT(parts.spread, slots ? (uint64_t)(end - (char *)spread.workspace) : 0);
    CHECK(parts.spread <= ORDO_SPREAD_LIST_BYTES + (uint64_t)ORDO_SPREAD_BYTES_MAX);
    CHECK_INT(slots % ORDO_SPREAD_RUN, 0);
    CHECK(ordo_plan_workspace(plan) >= parts.spread);
    ordo_plan_destroy(plan);
    return slots;
}

TEST(plans_have_room_for_long_sequences)
{
    ordo_problem p = few_rows(8192);
    CHECK_INT(slots_of(p), 3 * 64);
    p.batch = 64; /* at most 6 sequences of 8 key heads are long at once */
    CHECK_INT(slots_of(p), 6 * 64);
    p.q_len = 4;
    CHECK_INT(slots_of(p), 6 * 64);
    p.q_len = 5; /* 20 lines */
    CHECK_INT(slots_of(p), 0);
    p = few_rows(15 * COLUMNS);
    CHECK_INT(slots_of(p), 0);
    p = few_rows(15 * COLUMNS + 1);
    CHECK_INT(slots_of(p), 3 * 16);
    p.head_dim = 256; /* tiles of 64 keys */
    CHECK_INT(slots_of(p), 3 * 32);
    p = few_rows(8192);
    p.heads = p.kv_heads = 56;
    CHECK_INT(slots_of(p), 0);
    p = few_rows(8192);
    p.paging = (ordo_paging) { 0 };
    CHECK_INT(slots_of(p), 0);
    p = few_rows(1 << 20);
    p.batch = 6;
    CHECK_INT(slots_of(p), 8128); /* 256 MiB: of 4,128 bytes each in 8 heads */
}

TEST(a_unit_is_long_by_its_share)
{
    CHECK(!ordo_spread_is_long(ORDO_SPREAD_LEAST - 1, 1));
    CHECK(ordo_spread_is_long(ORDO_SPREAD_LEAST, ORDO_SPREAD_LEAST * 55));
    CHECK(!ordo_spread_is_long(ORDO_SPREAD_LEAST, ORDO_SPREAD_LEAST * 56));
}

TEST(slots_are_found)
{
    const int32_t tiles[] = { 16, 17, 64, 31, 1 };
    ordo_spread_list list = { 0, 0, { { 0, 0 } } };
    for (int x = 0; x < 5; x++) {
        list.at[x].sequence = 7 * x;
        list.at[x].slot = list.slots;
        list.slots += ordo_spread_slots(tiles[x]);
        list.count++;
    }
    CHECK_INT(list.slots, 16 + 32 + 64 + 32 + 16);
    for (int32_t head = 0; head < 3; head++)
        for (int x = 0; x < 5; x++)
            for (int32_t tile = 0; tile < ordo_spread_slots(tiles[x]); tile++) {
                const int64_t first = (int64_t)head * list.slots + list.at[x].slot;
                const ordo_spread_at at = ordo_spread_find(&list, first + tile);
                CHECK_INT(at.number, x);
                CHECK_INT(at.key_head, head);
                CHECK_INT(at.tile, tile);
                CHECK_INT(at.first, first);
            }
}

/* Scores by number fill a group; as words they are the register operand of the products: of slice k
 * the words 2 k and 2 k + 1 of a line, whose columns are 16 k + 2 q + e and 8 on. */
TEST(places_of_a_group)
{
    static unsigned char scores[COLUMNS * 8 * 4], weights[COLUMNS * 8 * 4];
    for (int lane = 0; lane < 32; lane++)
        for (int j = 0; j < COLUMNS / 8; j++) {
            const int column = ordo_accumulator_column(lane, 4 * j);
            CHECK_INT(column, j / 2 * 16 + j % 2 * 8 + lane % 4 * 2);
            for (int e = 0; e < 2; e++)
                scores[ordo_spread_place((2 * j + e) / 4, lane) +
                       (uint32_t)((2 * j + e) % 4 * 4)]++;
            weights[ordo_spread_place(j / 4, lane) + (uint32_t)(j % 4 * 4)]++;
        }
    for (int what = 0; what < ORDO_SPREAD_NUMBERS; what++)
        for (int lane = 0; lane < 32; lane++)
            weights[ordo_spread_number_place(COLUMNS, (ordo_spread_number)what, lane)]++;
    CHECK_INT(ordo_spread_group_bytes(COLUMNS), (int)sizeof scores);
    for (uint32_t x = 0; x < sizeof scores; x++) {
        CHECK_INT(scores[x], x % 4 == 0);
        CHECK_INT(weights[x], x % 4 == 0 && x < ordo_spread_record_bytes(COLUMNS));
    }
}

CHECK_MAIN()
