/* plan_info_test.c: programs that know other versions of ordo_plan_info. */
#include "plan_requests.h"

#include <stddef.h>

enum { GUARD = 0x5a };

/* A program that was compiled when the struct ended before `end`. */
static void ask_up_to(const ordo_plan *plan, const ordo_plan_info *all, size_t end)
{
    ordo_plan_info info;
    unsigned char *bytes = (unsigned char *)&info;
    memset(&info, GUARD, sizeof info);
    info.size = end;
    CHECK_INT(ordo_plan_query(plan, &info), ORDO_OK);
    CHECK_INT(info.size, end);
    CHECK(memcmp(bytes + sizeof info.size, (const unsigned char *)all + sizeof info.size,
                 end - sizeof info.size) == 0);
    for (size_t i = end; i < sizeof info; i++)
        if (bytes[i] != GUARD) {
            CHECK_FAIL("size %zu: byte %zu was written", end, i);
            break;
        }
}

TEST(an_older_program_gets_the_fields_that_it_knows)
{
    const request r = on_h200();
    ordo_plan *plan = make(&r);
    const ordo_plan_info all = info_of(&r);
    ask_up_to(plan, &all, offsetof(ordo_plan_info, dropout_mode));
    ask_up_to(plan, &all, offsetof(ordo_plan_info, segments));
    ask_up_to(plan, &all, sizeof all);
    ordo_plan_destroy(plan);
}

TEST(a_newer_program_gets_zeros_behind_the_fields)
{
    struct {
        ordo_plan_info info;
        uint64_t later[2];
    } newer = { .later = { 7, 7 } };
    const request r = on_h200();
    ordo_plan *plan = make(&r);
    newer.info.size = sizeof newer;
    CHECK_INT(ordo_plan_query(plan, &newer.info), ORDO_OK);
    CHECK_TEXT(newer.info.numeric_key, info_of(&r).numeric_key);
    CHECK(newer.later[0] == 0 && newer.later[1] == 0);
    ordo_plan_destroy(plan);
}

TEST(other_sizes_are_refused_and_nothing_is_written)
{
    static const struct {
        size_t size;
        const char *message;
    } wrong[] = {
        { 0, "info.size 0: expected" },
        { 1u << 20, "initialise with ORDO_PLAN_INFO_INIT" },
        { sizeof(ordo_plan_info) + 1, "info.size" },
        { offsetof(ordo_plan_info, numeric_key) + 8, "ends within numeric_key" },
        { offsetof(ordo_plan_info, note) + 16, "ends within note" },
        { offsetof(ordo_plan_info, forward_tile) + 8, "ends within forward_tile" },
        { offsetof(ordo_plan_info, backward_tile) + 8, "ends within backward_tile" },
    };
    const request r = on_h200();
    ordo_plan *plan = make(&r);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ordo_plan_info info = { .size = wrong[i].size, .workers = -5 };
        CHECK_INT(ordo_plan_query(plan, &info), ORDO_ERR_ARGUMENT);
        CHECK_HAS(ordo_last_error(), wrong[i].message);
        CHECK_INT(info.workers, -5);
    }
    ordo_plan_destroy(plan);
}

/* Keep bits of 128 GiB do not fit: by segments where sums can go on, inside the passes elsewhere.
 */
TEST(bits_that_do_not_fit)
{
    request r = on_h200();
    r.problem.q_len = 1 << 18;
    r.problem.dropout.p = 0.1;
    CHECK_INT(info_of(&r).dropout_mode, ORDO_DROPOUT_MODE_PIPELINED);
    r.options.order = ORDO_ORDER_SPT_TAIL;
    CHECK_INT(info_of(&r).dropout_mode, ORDO_DROPOUT_MODE_FUSED);
    r = on_h200();
    r.problem.q_len = 0;
    r.problem.dropout.p = 0.1;
    CHECK_INT(info_of(&r).dropout_mode, ORDO_DROPOUT_MODE_FUSED);
    CHECK(!info_of(&r).keep_bits_reused);
}

CHECK_MAIN()
