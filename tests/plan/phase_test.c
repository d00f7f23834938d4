/* Panels of the passes by phases: whole heads where the budget allows, else as many tiles of one
 * key head as fit, down to one; and the workspace of a plan, which keeps to its limit and grows
 * with the length, not with its square. */
#include "plan/phase.h"

#include "check.h"

static const ordo_phase_problem long_one = { .tiles = 64,
                                             .tile_rows = 128,
                                             .tile_keys = 256,
                                             .kv_heads = 6,
                                             .group_heads = 2,
                                             .kv_len = 8000,
                                             .kv_rows = 8000,
                                             .sum_columns = 1024,
                                             .backward = true };

static uint64_t bytes_of(const ordo_phase_problem *p, const ordo_phase_panels *x)
{
    return (uint64_t)(x->section * p->group_heads * x->tiles * p->tile_rows * x->columns *
                      (p->backward && !p->chained ? 4 : 2)) +
           (uint64_t)(x->section * p->kv_rows * p->sum_columns * 4);
}

TEST(all_heads_where_they_fit)
{
    const ordo_phase_panels x = ordo_phase_panels_of(&long_one, UINT64_C(1) << 38);
    CHECK_INT(x.section, 6);
    CHECK_INT(x.tiles, 64);
    CHECK_INT(x.columns, 8192);
}

/* Four heads fit: two sections of three are as few, and even. */
TEST(sections_are_even)
{
    ordo_phase_panels four = { 4, 64, 8192 };
    const ordo_phase_panels x = ordo_phase_panels_of(&long_one, bytes_of(&long_one, &four));
    CHECK_INT(x.section, 3);
    CHECK_INT(x.tiles, 64);
}

TEST(panels_are_even_and_keep_to_the_budget)
{
    for (int64_t tiles = 1; tiles < 64; tiles++) {
        const ordo_phase_panels most = { 1, tiles, 8192 };
        const uint64_t budget = bytes_of(&long_one, &most) + 100;
        const ordo_phase_panels x = ordo_phase_panels_of(&long_one, budget);
        CHECK_INT(x.section, 1);
        CHECK(x.tiles <= tiles && bytes_of(&long_one, &x) <= budget);
        CHECK_INT((64 + x.tiles - 1) / x.tiles, (64 + tiles - 1) / tiles); /* as few panels */
    }
}

/* Without P twice as many tiles fit, and the sums are as long. */
TEST(chained_panels_have_no_p)
{
    ordo_phase_problem chained = long_one;
    chained.chained = true;
    const ordo_phase_panels half = { 1, 16, 8192 };
    const ordo_phase_panels x = ordo_phase_panels_of(&chained, bytes_of(&long_one, &half));
    CHECK_INT(ordo_phase_panels_of(&long_one, bytes_of(&long_one, &half)).tiles, 16);
    CHECK_INT(x.tiles, 32);
    CHECK_INT(bytes_of(&chained, &x), bytes_of(&long_one, &half));
}

TEST(one_tile_always_runs)
{
    for (uint64_t budget = 0; budget <= 1 << 20; budget += 1 << 18) {
        const ordo_phase_panels x = ordo_phase_panels_of(&long_one, budget);
        CHECK(x.section == 1 && x.tiles == 1 && x.columns == 8192);
    }
}

TEST(sizes_that_do_not_fit_64_bits)
{
    ordo_phase_problem huge = long_one;
    huge.tiles = huge.group_heads = huge.kv_len = huge.kv_rows = huge.sum_columns = 1 << 30;
    const ordo_phase_panels x = ordo_phase_panels_of(&huge, UINT64_MAX);
    CHECK(x.section == 1 && x.tiles == 1);
}

CHECK_MAIN()
