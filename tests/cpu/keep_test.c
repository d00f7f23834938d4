/* keep_test.c: each kernel of keep bits makes the words of ordo_keep_word(). */
#include "base/keep.h"
#include "check.h"
#include "cpu/keep.h"

enum { BLOCKS = 5 };

/* Any generator: all rounds that are ever asked for, all widths, both keyings. */
static ordo_keep random_keep(uint64_t *state)
{
    static const int rounds[] = { 3, 5, 7, 10 };
    ordo_keep keep = { .seed = check_random(state),
                       .offset = check_random(state) >> 32,
                       .rounds = rounds[check_between(state, 0, 3)],
                       .bits = (int)check_between(state, 1, 16) };
    if (check_between(state, 0, 2) == 0) {
        keep.keying = ORDO_KEYING_FA2;
        keep.rounds = 7;
        keep.bits = 8;
        keep.offset = check_random(state);
        if (check_between(state, 0, 1)) /* lanes carry into the upper half of the counter */
            keep.offset |= 0xffffffe0;
    }
    keep.threshold = (uint32_t)check_between(state, 1, (1 << keep.bits) - 1);
    return keep;
}

static void compare(const ordo_keep_kernel *kernel, const ordo_keep *keep, uint32_t bh,
                    uint32_t row, uint32_t block)
{
    uint32_t words[BLOCKS * ORDO_KEEP_WORDS + 1];
    words[BLOCKS * ORDO_KEEP_WORDS] = 77;
    kernel->fill(keep, bh, row, block, BLOCKS, words);
    CHECK_INT(words[BLOCKS * ORDO_KEEP_WORDS], 77);
    for (uint32_t r = 0; r < ORDO_KEEP_ROWS; r++)
        for (uint32_t b = 0; b < BLOCKS; b++)
            for (uint32_t q = 0; q < 4; q++) {
                const uint32_t want = ordo_keep_word(keep, bh, row + r, block + b, q);
                const uint32_t got = words[ordo_keep_index(BLOCKS * ORDO_KEEP_COLS, r, b, q)];
                if (got != want)
                    CHECK_FAIL("%s, keying %d, %d rounds, %d bits, T %u, row %u block %u quad %u: "
                               "%08x, expected %08x",
                               kernel->name, (int)keep->keying, keep->rounds, keep->bits,
                               keep->threshold, r, b, q, got, want);
            }
}

TEST(every_kernel_makes_the_words_of_the_definition)
{
    for (size_t k = 0; ordo_keep_kernel_at(k); k++) {
        uint64_t state = 4711;
        printf("  %s, seed %" PRIu64 "\n", ordo_keep_kernel_at(k)->name, state);
        for (int trial = 0; trial < 300; trial++) {
            const ordo_keep keep = random_keep(&state);
            const uint32_t bh = (uint32_t)(check_random(&state) >> check_between(&state, 32, 63));
            const uint32_t row = (uint32_t)check_between(&state, 0, (1 << 26) - 1) * 16;
            const uint32_t block = (uint32_t)check_between(&state, 0, (1 << 23) - BLOCKS);
            compare(ordo_keep_kernel_at(k), &keep, bh, row, block);
        }
    }
}

/* Every threshold of 8 bits, in both keyings. */
TEST(every_threshold)
{
    for (size_t k = 0; ordo_keep_kernel_at(k); k++)
        for (int keying = 0; keying < 2; keying++)
            for (uint32_t t = 1; t < 256; t++) {
                const ordo_keep keep = { 5, 6, 7, 8, t, (ordo_keying)keying };
                compare(ordo_keep_kernel_at(k), &keep, t, 16 * t, t);
            }
}

TEST(keeping_all_is_all_ones)
{
    const ordo_keep keeps[] = { { .bits = 0, .threshold = 1 },
                                { .rounds = 7, .bits = 8, .threshold = 256 } };
    for (int i = 0; i < 2; i++) {
        uint32_t words[2 * ORDO_KEEP_WORDS] = { 0 };
        ordo_keep_fill(&keeps[i], 1, 16, 3, 2, words);
        for (int w = 0; w < 2 * ORDO_KEEP_WORDS; w++)
            CHECK(words[w] == 0xffffffff);
    }
}

TEST(columns_in_order)
{
    uint64_t state = 9;
    for (int trial = 0; trial < 100; trial++) {
        uint32_t quads[4], columns[4];
        for (int q = 0; q < 4; q++)
            quads[q] = (uint32_t)check_random(&state);
        ordo_keep_columns(quads, columns);
        for (uint32_t c = 0; c < 128; c++)
            CHECK((columns[c / 32] >> c % 32 & 1) ==
                  (quads[ordo_keep_quad(c)] >> ordo_keep_bit(c) & 1));
    }
}

CHECK_MAIN()
