/* Units of the forward pass over batches of any lengths: every tile of every head of every sequence
 * comes once, sequences in order, the longest units of a section first. */
#include "cuda/pass/forward_order.h"

#include "check.h"

enum { SEQUENCES = 7, TILES_MOST = 64, HEADS_MOST = 12 };

static const int32_t lengths[SEQUENCES] = { 0, 300, 1, 0, 4000, 129, 0 };

/* Tiles are counted in `what` alone. */
static ordo_cuda_batch batch_of(ordo_cuda_sequence *table, ordo_before what, int32_t rows,
                                int32_t high)
{
    ordo_cuda_batch batch = { 0 };
    ordo_cuda_sequence s = { 0 };
    for (int b = 0; b < SEQUENCES; b++) {
        s.q_len = s.kv_len = lengths[b];
        s.low = -ORDO_BAND_OPEN;
        s.high = high;
        table[b] = s;
        *(what == ORDO_BEFORE_QUERY ? &s.query_tile : &s.forward_tile) +=
            (lengths[b] + rows - 1) / rows;
    }
    table[SEQUENCES] = s;
    batch.table = table;
    batch.sequences = SEQUENCES;
    return batch;
}

static void check_batch(ordo_before what, int32_t rows, int32_t columns, int32_t heads,
                        int32_t group, int32_t high, int32_t head_dim)
{
    ordo_cuda_sequence table[SEQUENCES + 1];
    const ordo_cuda_batch batch = batch_of(table, what, rows, high);
    const int64_t tiles = ordo_batch_before(&batch, what, SEQUENCES);
    static bool taken[SEQUENCES][HEADS_MOST][TILES_MOST];
    ordo_forward_issue_order order = { 0 };
    order.band.bq = rows;
    order.band.bk = columns;
    order.heads = heads;
    memset(taken, 0, sizeof taken);
    ordo_forward_place last = { 0, 0, TILES_MOST };
    for (int32_t ticket = 0; ticket < heads * tiles; ticket++) {
        const ordo_forward_place x =
            ordo_forward_issue_ragged(&order, &batch, what, head_dim, group, ticket);
        CHECK(x.sequence >= last.sequence && x.sequence < SEQUENCES);
        CHECK(x.head >= 0 && x.head < heads);
        CHECK(x.tile >= 0 && x.tile * rows < lengths[x.sequence]);
        if (x.sequence == last.sequence && x.tile > last.tile) /* the next section */
            CHECK(last.tile == 0 && x.head > last.head);
        CHECK(!taken[x.sequence][x.head][x.tile]);
        taken[x.sequence][x.head][x.tile] = true;
        last = x;
    }
}

TEST(every_unit_of_a_ragged_batch_comes_once)
{
    for (int32_t heads = 1; heads <= HEADS_MOST; heads++)
        for (int32_t group = 1; group <= heads; group++)
            if (heads % group == 0) {
                const ordo_before forward = ORDO_BEFORE_FORWARD, query = ORDO_BEFORE_QUERY;
                check_batch(forward, 192, 128, heads, group, 0, 64);
                check_batch(query, 128, 128, heads, group, ORDO_BAND_OPEN, 128);
                check_batch(forward, 128, 64, heads, group, 100, 256);
                /* Sections of one key head. */
                check_batch(query, 128, 64, heads, group, 0, 4096);
            }
}

/* Sections: all heads that fit 32 MiB of K and V, in equal parts; one head under a full mask. */
TEST(sections_are_what_the_cache_holds)
{
    ordo_band band = { 16384, 16384, 128, 128, -ORDO_BAND_OPEN, 0 };
    CHECK_INT(ordo_forward_section(&band, 128, 1, 16), 4); /* 8 MiB a key head */
    CHECK_INT(ordo_forward_section(&band, 128, 4, 16), 16);
    CHECK_INT(ordo_forward_section(&band, 128, 1, 6), 3);
    band.kv_len = 1 << 20;
    CHECK_INT(ordo_forward_section(&band, 128, 2, 16), 2);
    band.kv_len = 0;
    CHECK_INT(ordo_forward_section(&band, 64, 1, 16), 16);
    band.high = ORDO_BAND_OPEN;
    CHECK_INT(ordo_forward_section(&band, 64, 1, 16), 1);
}

CHECK_MAIN()
