/* lists_test.c: turns that follow from lists, and a checker that notices when they are wrong. */
#include "block_case.h"
#include "plan/lists.h"

static const ordo_walk_kind kinds[] = { ORDO_WALK_ASCENDING, ORDO_WALK_DESCENDING, ORDO_WALK_SPT };

/* Lists of a mask that is a band have the tiles and turns of the band itself. */
TEST(lists_of_a_band)
{
    uint64_t seed = case_seed(51);
    for (int trial = 0; trial < 60; trial++) {
        const int64_t q_len = check_between(&seed, 1, 700), kv_len = check_between(&seed, 1, 700);
        const ordo_window window = { trial % 2, check_between(&seed, 0, 300),
                                     check_between(&seed, 0, 300) };
        ordo_band open = {
            (int32_t)q_len, (int32_t)kv_len, 64, 128, -ORDO_BAND_OPEN, ORDO_BAND_OPEN
        };
        ordo_walk walk = { .band = open, .kind = kinds[trial % 3] };
        ordo_block_mask *mask = NULL;
        ordo_lists lists;
        case_must(ordo_block_mask_from_band(&mask, q_len, kv_len, ORDO_MASK_CAUSAL, &window));
        ordo_band_limit(ORDO_MASK_CAUSAL, kv_len - q_len, window.on ? window.left : -1,
                        window.on ? window.right : -1, &walk.band.low, &walk.band.high);
        const ordo_block_view view = ordo_block_view_of(mask, 0, 0);
        case_must(ordo_lists_create(&lists, &open, &view));
        for (int32_t i = 0; i < lists.nq; i++) {
            const ordo_span keys = ordo_band_keys(&walk.band, i);
            CHECK_INT(ordo_lists_count(&lists, i), ordo_span_count(keys));
            for (int32_t j = 0; j < lists.nk; j++)
                CHECK_INT(ordo_lists_turn(&lists, walk.kind, i, j),
                          j >= keys.first && j <= keys.last ? ordo_walk_turn(&walk, i, j) : -1);
        }
        uint64_t pairs = 0;
        CHECK_INT(ordo_lists_check(&lists, walk.kind, &open, &view, &pairs), ORDO_OK);
        CHECK_INT(pairs, lists.start[lists.nq]);
        ordo_lists_destroy(&lists);
        ordo_block_mask_destroy(mask);
    }
}

/* A list with one key tile too many, too few, or in another place. */
TEST(wrong_lists_are_found)
{
    uint64_t seed = case_seed(52);
    int wrong = 0;
    for (int trial = 0; trial < 90; trial++) {
        const ordo_band band = { 500, 600, 64, 128, trial % 4 < 2 ? -ORDO_BAND_OPEN : -200, 90 };
        ordo_block_mask *mask = block_random_one(&seed, 500, 600, trial % BLOCK_KINDS);
        if (trial % 2)
            block_thin(mask, &seed);
        const ordo_block_view view = ordo_block_view_of(mask, 0, 0);
        ordo_lists lists;
        uint64_t pairs = 0;
        case_must(ordo_lists_create(&lists, &band, &view));
        const ordo_walk_kind kind = kinds[trial % 3];
        CHECK_INT(ordo_lists_check(&lists, kind, &band, &view, &pairs), ORDO_OK);
        const int64_t entries = lists.start[lists.nq];
        const int32_t i = (int32_t)check_between(&seed, 0, lists.nq - 1);
        if (entries > 0 && trial / 3 % 2 == 0) { /* another tile in place of one */
            int32_t *key = &lists.key[check_between(&seed, 0, entries - 1)];
            *key = *key == 0 ? 1 : *key - 1;
        } else if (i > 0 &&
                   lists.start[i] < lists.start[i + 1]) { /* a row takes one from the next */
            lists.start[i]++;
        } else {
            ordo_lists_destroy(&lists);
            ordo_block_mask_destroy(mask);
            continue;
        }
        CHECK_INT(ordo_lists_check(&lists, kind, &band, &view, &pairs), ORDO_ERR_INTERNAL);
        wrong++;
        ordo_lists_destroy(&lists);
        ordo_block_mask_destroy(mask);
    }
    CHECK(wrong > 40);
}

CHECK_MAIN()
