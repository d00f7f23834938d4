/* Keep words by parts, as the forward kernel of head size 128 makes them, are those of the
 * definition: of random seeds, heads, rows, blocks and offsets, and of every threshold; and, for
 * the laboratory, of fewer rounds. */
#include "cuda/pass/keep_tile.h"

#include "check.h"

static uint32_t draw(uint32_t at, int word)
{
    const ordo_philox_words counter = { { at, 21, 0, 0 } };
    return ordo_philox(counter, 5, 6, 10).w[word];
}

static uint32_t by_parts(const ordo_keep *keep, uint32_t bh, uint32_t row, uint32_t block,
                         uint32_t quad)
{
    const ordo_keep_keys keys = ordo_keep_keys_of(keep->seed);
    const ordo_keep_select select = ordo_keep_select_of(keep->threshold);
    const ordo_keep_product line = ordo_keep_line(&keys, bh, row, quad);
    uint32_t kept = 0;
    for (int n = 0; n < 2; n++) {
        const ordo_keep_draw part =
            ordo_keep_draw_of(&keys, (uint32_t)keep->offset, bh, block, (uint32_t)n);
        kept =
            ordo_keep_compare(kept, ordo_keep_random(line, &part, &keys, keep->rounds), &select, n);
    }
    return kept;
}

TEST(words_are_those_of_the_definition)
{
    for (uint32_t n = 0; n < 100000; n++) {
        const ordo_keep keep = { (uint64_t)draw(4 * n, 0) << 32 | draw(4 * n, 1),
                                 draw(4 * n, 2),
                                 ORDO_KEEP_TILE_ROUNDS,
                                 ORDO_KEEP_TILE_BITS,
                                 1 + n % 255,
                                 ORDO_KEYING_ORDO };
        const uint32_t bh = draw(4 * n + 1, 0) >> (n % 32),
                       row = draw(4 * n + 1, 1) >> (2 + n % 30);
        const uint32_t block = draw(4 * n + 1, 2) >> (7 + n % 25), quad = n % 4;
        CHECK(ordo_keep_tile_makes(&keep));
        CHECK_INT(by_parts(&keep, bh, row, block, quad),
                  ordo_keep_word(&keep, bh, row, block, quad));
        ordo_keep fewer = keep;
        for (fewer.rounds = 3; fewer.rounds < ORDO_KEEP_TILE_ROUNDS; fewer.rounds++)
            CHECK_INT(by_parts(&fewer, bh, row, block, quad),
                      ordo_keep_word(&fewer, bh, row, block, quad));
    }
}

/* Counters that wrap: the largest block, row and head. */
TEST(ends_of_the_ranges)
{
    const ordo_keep keep = { UINT64_MAX,          UINT32_MAX, ORDO_KEEP_TILE_ROUNDS,
                             ORDO_KEEP_TILE_BITS, 230,        ORDO_KEYING_ORDO };
    for (uint32_t quad = 0; quad < 4; quad++)
        CHECK_INT(by_parts(&keep, UINT32_MAX, (1u << 30) - 1, UINT32_MAX, quad),
                  ordo_keep_word(&keep, UINT32_MAX, (1u << 30) - 1, UINT32_MAX, quad));
}

TEST(other_rounds_and_bits_are_not_made_so)
{
    ordo_keep keep = { 1, 2, 10, 8, 230, ORDO_KEYING_ORDO };
    CHECK(!ordo_keep_tile_makes(&keep));
    keep.rounds = 7;
    keep.bits = 16;
    CHECK(!ordo_keep_tile_makes(&keep));
}

CHECK_MAIN()
