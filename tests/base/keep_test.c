/* keep_test.c: Philox and the keep function against known answers.
 *
 * Rows of 7 and 10 rounds are the vectors that Random123 publishes (tests/kat_vectors); the
 * other rows, the words and the hashes come from an independent program. */
#include "base/keep.h"
#include "base/philox.h"
#include "check.h"

typedef struct vector {
    int rounds;
    uint32_t counter[4], key[2], output[4];
} vector;

#define ZERO                                                                                       \
    { 0, 0, 0, 0 },                                                                                \
    {                                                                                              \
        0, 0                                                                                       \
    }
#define ONES                                                                                       \
    { ~0u, ~0u, ~0u, ~0u },                                                                        \
    {                                                                                              \
        ~0u, ~0u                                                                                   \
    }
#define PI                                                                                         \
    { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },                                            \
    {                                                                                              \
        0xa4093822, 0x299f31d0                                                                     \
    }
#define NEXT                                                                                       \
    { 1, 0, 0, 0 },                                                                                \
    {                                                                                              \
        0, 0                                                                                       \
    }
#define SIDE                                                                                       \
    { 0, 1, 0, 0 },                                                                                \
    {                                                                                              \
        0, 0                                                                                       \
    }

static const vector vectors[] = {
    { 3, ZERO, { 0xaae8eb44, 0x02719033, 0xf734f9c9, 0x4942ddfb } },
    { 3, ONES, { 0x2bea920a, 0x93e4480b, 0x54976e00, 0x2bcdef8f } },
    { 3, PI, { 0x9a27db43, 0x0524dc72, 0xddfbdc94, 0x8e41df2e } },
    { 5, ZERO, { 0xf10446c0, 0xc841128b, 0x23f43d26, 0x6cb9f044 } },
    { 5, ONES, { 0x426f04bd, 0x7fb64153, 0xe8b29022, 0x07ae0473 } },
    { 5, PI, { 0x450b009c, 0x131e3741, 0x9654aad8, 0xa9fcac94 } },
    { 6, ZERO, { 0xc3b4ab98, 0xe922b5ea, 0x03be793c, 0x8bb43040 } },
    { 6, ONES, { 0xd2443dd6, 0x9d0db58e, 0x983c73cf, 0x855e6c47 } },
    { 6, PI, { 0xd0be47ee, 0x222f0768, 0x43e1d190, 0xe1001694 } },
    { 7, ZERO, { 0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48 } },
    { 7, ONES, { 0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662 } },
    { 7, PI, { 0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a } },
    { 8, ZERO, { 0x618f177a, 0x9920c1d7, 0x1ec12dc0, 0xc43b6eeb } },
    { 8, ONES, { 0x28d97217, 0xb1f63987, 0xd0e341af, 0xdac963e6 } },
    { 8, PI, { 0x734d1a7d, 0x3162ff36, 0xbfd3c78a, 0x9e5c404e } },
    { 10, ZERO, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
    { 10, ONES, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
    { 10, PI, { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    { 3, NEXT, { 0x68ef0533, 0x019d4dba, 0xf734f9c9, 0x4942ddfb } },
    { 5, NEXT, { 0x1327cf8c, 0xa4d52559, 0x87b40b3f, 0x0667557f } },
    { 7, NEXT, { 0x983a586e, 0xb0cc9511, 0x5850fbb9, 0x9cf9acd8 } },
    { 10, NEXT, { 0xf8e4cca4, 0x5cb200db, 0xb1a574eb, 0x097eff67 } },
    { 3, SIDE, { 0xaae8eb44, 0x02719033, 0x2565e69a, 0x4942ddfb } },
    { 5, SIDE, { 0xc416eed9, 0xc841128b, 0x987a6abe, 0x55305cf1 } },
    { 7, SIDE, { 0xba3c1d27, 0xac3cb973, 0x0cd8d31d, 0x9355a8b3 } },
    { 10, SIDE, { 0x6ad0c5ec, 0xea236249, 0x73a459f5, 0x074944b3 } },
};

TEST(philox_matches_the_published_vectors)
{
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const vector *v = &vectors[i];
        ordo_philox_words c;
        memcpy(c.w, v->counter, sizeof c.w);
        c = ordo_philox(c, v->key[0], v->key[1], v->rounds);
        if (memcmp(c.w, v->output, sizeof c.w) != 0)
            CHECK_FAIL("vector %zu (%d rounds): %08x %08x %08x %08x", i, v->rounds, c.w[0], c.w[1],
                       c.w[2], c.w[3]);
    }
}

#define SEED 0x0123456789abcdef
#define SITE 7

typedef struct keep_case {
    int rounds, bits;
    uint32_t threshold, word_far, word_first;
    uint64_t fnv1a;
    int kept;
} keep_case;

/* Words of (bh 3, row 1000, block 5, quad 2) and of (0, 0, 0, 0); FNV-1a and count of the
 * stored bits of 1 sequence, 2 heads, 256 x 256. */
static const keep_case cases[] = {
    { 3, 8, 230, 0xfffffeff, 0xfefff3fb, 0xb66c5249c9da89ba, 114502 },
    { 5, 8, 230, 0xeffeffff, 0xfffff5ff, 0x1e0c622fbc49e777, 117911 },
    { 7, 8, 230, 0xffb77fc7, 0xffaee7ff, 0x5d068e8830a21854, 117671 },
    { 10, 8, 230, 0xffbffcfb, 0xf7ff7dbd, 0xfad5546f10bb7f3e, 117711 },
    { 7, 4, 14, 0xddbffffb, 0xffdff7ff, 0xf1ab936007a4fbe3, 114610 },
    { 7, 8, 128, 0xc1277345, 0xd704816d, 0xb944c8c1ed899cab, 65446 },
    { 7, 16, 58982, 0xbf7dffff, 0xbebf5fff, 0xa3e289681e47c680, 117893 },
    { 7, 8, 256, 0xffffffff, 0xffffffff, 0x0d65b7532d396325, 131072 },
};

static uint64_t fnv1a(const uint32_t *words, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < count; i++)
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ (words[i] >> 8 * byte & 255)) * 0x100000001b3;
    return hash;
}

TEST(words_hashes_and_counts_are_the_known_ones)
{
    enum { S = 256, HEADS = 2 };
    const int64_t head_words = ordo_keep_blocks(S, S) * ORDO_KEEP_WORDS;
    static uint32_t stored[HEADS * S * S / 32];
    CHECK_INT(HEADS * head_words, sizeof stored / sizeof stored[0]);

    for (size_t m = 0; m < sizeof cases / sizeof cases[0]; m++) {
        const keep_case *c = &cases[m];
        const ordo_keep keep = { SEED, SITE, c->rounds, c->bits, c->threshold };
        CHECK_INT(ordo_keep_word(&keep, 3, 1000, 5, 2), c->word_far);
        CHECK_INT(ordo_keep_word(&keep, 0, 0, 0, 0), c->word_first);

        memset(stored, 0, sizeof stored);
        int kept = 0;
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t row = 0; row < S; row++)
                for (uint32_t block = 0; block < S / 128; block++)
                    for (uint32_t quad = 0; quad < 4; quad++) {
                        const uint32_t word = ordo_keep_word(&keep, h, row, block, quad);
                        stored[h * head_words + ordo_keep_index(S, row, block, quad)] = word;
                        kept += __builtin_popcount(word);
                    }
        CHECK(fnv1a(stored, HEADS * (size_t)head_words) == c->fnv1a);
        CHECK_INT(kept, c->kept);

        /* Element by element, generated and stored bits agree. */
        for (uint32_t row = 0; row < S; row += 3)
            for (uint32_t col = 0; col < S; col++)
                CHECK(ordo_keep_element(&keep, 1, row, col) ==
                      ordo_keep_stored(stored + head_words, S, row, col));
    }
}

TEST(thresholds_round_to_nearest)
{
    CHECK_INT(ordo_keep_threshold(0, 8), 256);
    CHECK_INT(ordo_keep_threshold(0.1, 8), 230);
    CHECK_INT(ordo_keep_threshold(0.1, 4), 14);
    CHECK_INT(ordo_keep_threshold(0.1, 16), 58982);
    CHECK_INT(ordo_keep_threshold(0.5, 1), 1);
    CHECK_INT(ordo_keep_threshold(0.999, 8), 0);
    CHECK_INT(ordo_keep_threshold(0.001, 8), 256);
}

TEST(one_element_worked_by_hand)
{
    const ordo_keep keep = { SEED, SITE, 7, 8, 230 };
    CHECK_INT(ordo_keep_block(200), 1);
    CHECK_INT(ordo_keep_quad(200), 0);
    CHECK_INT(ordo_keep_bit(200), 19);
    CHECK(ordo_keep_element(&keep, 1, 37, 200));
}

/* Kept exactly when the number whose bit i is the complement of random word i is below the
 * threshold; this is the other definition of the chain. */
TEST(the_chain_is_a_comparison)
{
    for (int bits = 1; bits <= 16; bits++) {
        const uint32_t full = 1u << bits;
        const uint32_t thresholds[] = { 1, full / 2, full / 2 + 1, full - 1 };
        for (int t = 0; t < 4; t++) {
            const ordo_keep keep = { 99, 5, 7, bits, thresholds[t] };
            const uint32_t draws = (uint32_t)(bits + 3) / 4;
            for (uint32_t row = 0; row < 8; row++)
                for (uint32_t lane = 0; lane < 32; lane++) {
                    uint32_t number = 0;
                    for (uint32_t i = 0; i < (uint32_t)bits; i++) {
                        const ordo_philox_words c = { { 2 * draws + i / 4, row * 4 + 1, 6, 5 } };
                        const uint32_t random = ordo_philox(c, 99, 0, 7).w[i % 4];
                        number |= (~random >> lane & 1) << i;
                    }
                    const uint32_t word = ordo_keep_word(&keep, 6, row, 2, 1);
                    CHECK((word >> lane & 1) == (number < thresholds[t]));
                }
        }
    }
}

/* Every element of a ragged shape has its own bit. */
TEST(storage_is_one_bit_an_element)
{
    const int64_t rows = 37, cols = 300, words = ordo_keep_blocks(rows, cols) * ORDO_KEEP_WORDS;
    CHECK_INT(words, 3 * 3 * 64);
    uint32_t *seen = calloc((size_t)words, sizeof *seen);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < cols; col++) {
            const uint32_t c = (uint32_t)col;
            const int64_t index = ordo_keep_index(cols, row, ordo_keep_block(c), ordo_keep_quad(c));
            CHECK(index >= 0 && index < words);
            CHECK((seen[index] >> ordo_keep_bit(c) & 1) == 0);
            seen[index] |= 1u << ordo_keep_bit(c);
        }
    free(seen);
}

/* FlashAttention-2 rounds p and 1 - p to single precision: of p = 0.6 it keeps a byte up to 101,
 * where double precision has 102. */
TEST(thresholds_of_fa2)
{
    CHECK_INT(ordo_keep_threshold_fa2(0.1), 230);
    CHECK_INT(ordo_keep_threshold_fa2(0.5), 128);
    CHECK_INT(ordo_keep_threshold_fa2(0.6), 102);
    CHECK_INT(ordo_keep_threshold_fa2(0.8), 51);
}

CHECK_MAIN()
