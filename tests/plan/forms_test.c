/* forms_test.c: the forms of the backward pass by the bytes that they move. */
#include "check.h"
#include "plan/family.h"
#include "plan/family_sm90.h"
#include "plan/forms.h"

static double per_score(ordo_traffic t)
{
    return (double)t.bytes / (double)t.scores;
}

/* By hand, for equal head sizes: flash 8 d / keys, apart 4 d / keys + 4 d / rows, phase 10 d (1/128
 * + 1/256) + 6; in chains 4 d / 64 + 2 d / 128 + 4. For (d, v): flash (6 d + 2 v) / keys, apart 2
 * (d + v) (1 / keys + 1 / rows), phase 2 (3 d + 2 v) (1/128 + 1/256) + 6; in chains 2 (d + v) / 64
 * + 2 d / 128
 * + 4. */
TEST(known_counts)
{
    static const struct {
        int64_t d, v, keys, rows;
        double flash, stored, apart, phase;
    } known[] = {
        { 128, 128, 128, 256, 8, 12, 6, 14 },
        { 192, 192, 96, 192, 16, 24, 12, 19 },
        { 192, 128, 112, 192, 88.0 / 7, 136.0 / 7, 40.0 / 7 + 10.0 / 3, 17 },
        { 256, 256, 80, 128, 25.6, 38.4, 20.8, 24 },
        { 320, 320, 64, 128, 40, 60, 30, 43.5 },
        { 384, 384, 56, 64, 384.0 / 7, 576.0 / 7, 192.0 / 7 + 24, 51 },
        { 512, 512, 40, 64, 102.4, 153.6, 83.2, 66 },
        { 576, 512, 32, 64, 140, 212, 102, 70.5 },
        { 576, 576, 32, 64, 144, 216, 108, 73.5 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const ordo_form_counts c = ordo_forms_count(known[i].d, known[i].v, ORDO_SM90_SHARED);
        CHECK_INT(c.flash_keys, known[i].keys);
        CHECK_INT(c.apart_rows, known[i].rows);
        CHECK_NEAR(per_score(c.l2[ORDO_FORM_FLASH]), known[i].flash, 1e-12);
        CHECK_NEAR(per_score(c.flash_stored), known[i].stored, 1e-12);
        CHECK_NEAR(per_score(c.l2[ORDO_FORM_APART]), known[i].apart, 1e-12);
        CHECK_NEAR(per_score(c.l2[ORDO_FORM_PHASE]), known[i].phase, 1e-12);
    }
}

/* The committed table has the form of the count, at every head size; where kernels decide, and not
 * the count, it is known where: flash has none above 128. Phase moves fewer bytes than flash from
 * 232 to 256, in chains, and from 344 on. */
TEST(the_table_has_the_form_of_the_count)
{
    for (int64_t d = 8; d <= 576; d += 8) {
        const ordo_form_counts c = ordo_forms_count(d, d, ORDO_SM90_SHARED);
        const ordo_problem p = { .head_dim = d, .v_head_dim = d };
        const ordo_form form = ordo_family_row_of(ordo_family_find("sm90"), &p)->backward.form;
        const bool chain = ordo_form_chained(d, d) && !ordo_form_exists(ORDO_FORM_FLASH, d);
        CHECK_INT(form == ORDO_FORM_CHAIN, chain);
        CHECK_INT(ordo_form_choose(&c, d), chain ? ORDO_FORM_PHASE : form);
        CHECK(ordo_form_exists(ordo_form_choose(&c, d), d));
        CHECK_INT(ordo_form_fewest(&c) == ORDO_FORM_PHASE, (d >= 232 && d <= 256) || d >= 344);
    }
    CHECK(!ordo_form_exists(ORDO_FORM_PHASE, 584));
}

/* Less shared memory, smaller tiles: the crossover moves down. A tile that does not fit moves
 * nothing, and phase remains. */
TEST(less_shared_memory_prefers_phases)
{
    int64_t before = 0;
    for (int64_t shared = 32 << 10; shared <= ORDO_SM90_SHARED; shared += 8 << 10) {
        int64_t crossover = 8;
        ordo_form_counts c = ordo_forms_count(crossover, crossover, shared);
        while (ordo_form_fewest(&c) == ORDO_FORM_FLASH) {
            crossover += 8;
            c = ordo_forms_count(crossover, crossover, shared);
        }
        CHECK(crossover >= before);
        before = crossover;
    }
    const ordo_form_counts none = ordo_forms_count(2048, 2048, ORDO_SM90_SHARED);
    CHECK_INT(none.l2[ORDO_FORM_FLASH].scores, 0);
    CHECK_INT(none.l2[ORDO_FORM_APART].scores, 0);
    CHECK_INT(ordo_form_fewest(&none), ORDO_FORM_PHASE);
}

CHECK_MAIN()
