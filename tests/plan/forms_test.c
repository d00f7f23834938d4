/* forms_test.c: the forms of the backward pass by the bytes that they move. */
#include "check.h"
#include "plan/forms.h"
#include "plan/sizes.h"
#include "planner/defaults.h"

static double per_score(ordo_traffic t)
{
    return (double)t.bytes / (double)t.scores;
}

/* By hand: flash 8 d / keys, split 4 d / keys + 4 d / rows, phase 10 d (1/128 + 1/256) + 6. */
TEST(known_counts)
{
    static const struct {
        int64_t d, keys, rows;
        double flash, stored, split, phase;
    } known[] = {
        { 128, 128, 256, 8, 12, 6, 21 },
        { 256, 80, 128, 25.6, 38.4, 20.8, 36 },
        { 384, 56, 64, 384.0 / 7, 576.0 / 7, 192.0 / 7 + 24, 51 },
        { 512, 40, 64, 102.4, 153.6, 83.2, 66 },
        { 576, 32, 64, 144, 216, 108, 73.5 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const ordo_form_counts c = ordo_forms_count(known[i].d, ORDO_SM90_SHARED);
        CHECK_INT(c.flash_keys, known[i].keys);
        CHECK_INT(c.split_rows, known[i].rows);
        CHECK_NEAR(per_score(c.l2[ORDO_FORM_FLASH]), known[i].flash, 1e-12);
        CHECK_NEAR(per_score(c.flash_stored), known[i].stored, 1e-12);
        CHECK_NEAR(per_score(c.l2[ORDO_FORM_SPLIT]), known[i].split, 1e-12);
        CHECK_NEAR(per_score(c.l2[ORDO_FORM_PHASE]), known[i].phase, 1e-12);
    }
}

/* The committed table has the form of the count, at every head size; where kernels decide, and not
 * the count, it is known where: flash has none above 128. */
TEST(the_table_has_the_form_of_the_count)
{
    int64_t crossover = 0;
    for (int64_t d = 8; d <= 576; d += 8) {
        const ordo_form_counts c = ordo_forms_count(d, ORDO_SM90_SHARED);
        ordo_plan plan = { .backend = ORDO_BACKEND_CUDA,
                           .problem = { .head_dim = d, .v_head_dim = d } };
        plan.backward_tile = ordo_default_find("sm90", &plan.problem)->backward_tile;
        CHECK_INT(ordo_form_choose(&c, d), ordo_plan_form(&plan));
        CHECK(ordo_form_exists(ordo_form_choose(&c, d), d));
        if (crossover == 0 && ordo_form_fewest(&c) == ORDO_FORM_PHASE)
            crossover = d;
        CHECK_INT(crossover > 0, ordo_form_fewest(&c) == ORDO_FORM_PHASE); /* and stays there */
    }
    CHECK_INT(crossover, 344);
    CHECK(!ordo_form_exists(ORDO_FORM_PHASE, 584));
}

/* Less shared memory, smaller tiles: the crossover moves down. A tile that does not fit moves
 * nothing, and phase remains. */
TEST(less_shared_memory_prefers_phases)
{
    int64_t before = 0;
    for (int64_t shared = 32 << 10; shared <= ORDO_SM90_SHARED; shared += 8 << 10) {
        int64_t crossover = 8;
        ordo_form_counts c = ordo_forms_count(crossover, shared);
        while (ordo_form_fewest(&c) == ORDO_FORM_FLASH) {
            crossover += 8;
            c = ordo_forms_count(crossover, shared);
        }
        CHECK(crossover >= before);
        before = crossover;
    }
    const ordo_form_counts none = ordo_forms_count(2048, ORDO_SM90_SHARED);
    CHECK_INT(none.l2[ORDO_FORM_FLASH].scores, 0);
    CHECK_INT(none.l2[ORDO_FORM_SPLIT].scores, 0);
    CHECK_INT(ordo_form_fewest(&none), ORDO_FORM_PHASE);
}

CHECK_MAIN(RUN(known_counts), RUN(the_table_has_the_form_of_the_count),
           RUN(less_shared_memory_prefers_phases))
