/* Tile-level masks against a look at every element. */
#include "plan/band.h"

#include "check.h"

static bool visible(const ordo_band *band, int r, int c)
{
    return r < band->q_len && c < band->kv_len && c - r >= band->low && c - r <= band->high;
}

static void compare(const ordo_band *band)
{
    const int nq = ordo_band_query_tiles(band), nk = ordo_band_key_tiles(band);
    CHECK_INT(nq, (band->q_len + band->bq - 1) / band->bq);
    CHECK_INT(nk, (band->kv_len + band->bk - 1) / band->bk);
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nk; j++) {
            int seen = 0;
            for (int r = i * band->bq; r < (i + 1) * band->bq; r++)
                for (int c = j * band->bk; c < (j + 1) * band->bk; c++)
                    seen += visible(band, r, c);
            const ordo_span keys = ordo_band_keys(band, i), queries = ordo_band_queries(band, j);
            CHECK((seen > 0) == (keys.first <= j && j <= keys.last));
            CHECK((seen > 0) == (queries.first <= i && i <= queries.last));
            if (seen > 0)
                CHECK(ordo_band_partial(band, i, j) == (seen < band->bq * band->bk));
        }
}

TEST(causal_square)
{
    const ordo_band band = { .q_len = 8, .kv_len = 8, .bq = 2, .bk = 2, .low = -8, .high = 0 };
    for (int i = 0; i < 4; i++) {
        CHECK_INT(ordo_band_keys(&band, i).first, 0);
        CHECK_INT(ordo_band_keys(&band, i).last, i);
        CHECK_INT(ordo_band_queries(&band, i).first, i);
        CHECK_INT(ordo_band_queries(&band, i).last, 3);
        CHECK(ordo_band_partial(&band, i, i));
    }
    CHECK(!ordo_band_partial(&band, 1, 0));
}

TEST(nothing_visible)
{
    const ordo_band early = { .q_len = 9, .kv_len = 4, .bq = 2, .bk = 2, .low = -99, .high = -5 };
    CHECK_INT(ordo_span_count(ordo_band_keys(&early, 0)), 0); /* rows before the first key */
    CHECK_INT(ordo_span_count(ordo_band_keys(&early, 4)), 2);
    const ordo_band none = { .q_len = 3, .kv_len = 3, .bq = 2, .bk = 2, .low = 7, .high = 9 };
    CHECK_INT(ordo_span_count(ordo_band_keys(&none, 1)), 0);
    CHECK_INT(ordo_span_count(ordo_band_queries(&none, 1)), 0);
}

/* A sequence of a packed batch may have no rows, or no columns. */
TEST(empty_sides_meet_nothing)
{
    for (int high = -5; high <= 5; high += 5) {
        const ordo_band no_keys = { 5, 0, 64, 128, -ORDO_BAND_OPEN, high };
        const ordo_band no_rows = { 0, 5, 64, 128, -ORDO_BAND_OPEN, high };
        CHECK_INT(ordo_span_count(ordo_band_keys(&no_keys, 0)), 0);
        CHECK_INT(ordo_span_count(ordo_band_queries(&no_rows, 0)), 0);
    }
    const ordo_band open = { 5, 0, 64, 128, -ORDO_BAND_OPEN, ORDO_BAND_OPEN };
    CHECK_INT(ordo_span_count(ordo_band_keys(&open, 0)), 0);
}

TEST(longest_lengths_do_not_overflow)
{
    const int most = ORDO_BAND_OPEN;
    const ordo_band open = {
        .q_len = most, .kv_len = most, .bq = 64, .bk = 128, .low = -most, .high = most
    };
    const int nq = ordo_band_query_tiles(&open), nk = ordo_band_key_tiles(&open);
    CHECK_INT(ordo_band_keys(&open, nq - 1).first, 0);
    CHECK_INT(ordo_band_keys(&open, nq - 1).last, nk - 1);
    CHECK_INT(ordo_band_queries(&open, 0).last, nq - 1);
    CHECK(!ordo_band_partial(&open, nq - 1, nk - 1));
    const ordo_band causal = {
        .q_len = most, .kv_len = most, .bq = 64, .bk = 128, .low = -most, .high = 0
    };
    CHECK_INT(ordo_band_keys(&causal, nq - 1).last, nk - 1);
    CHECK_INT(ordo_band_queries(&causal, nk - 1).first, nq - 2);
}

TEST(random_bands_against_every_element)
{
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        ordo_band band = { .q_len = (int)check_between(&seed, 0, 24),
                           .kv_len = (int)check_between(&seed, 0, 24),
                           .bq = (int)check_between(&seed, 1, 7),
                           .bk = (int)check_between(&seed, 1, 7),
                           .low = (int)check_between(&seed, -30, 20) };
        band.high = band.low + (int)check_between(&seed, -1, 40);
        if (check_between(&seed, 0, 3) == 0)
            band.low = -ORDO_BAND_OPEN;
        if (check_between(&seed, 0, 3) == 0)
            band.high = ORDO_BAND_OPEN;
        compare(&band);
    }
}

CHECK_MAIN()
