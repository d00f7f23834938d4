/* overlap_test.c: the search for shared bytes against counting them. */
#include "api/overlap.h"
#include "check.h"

enum { ARENA = 1 << 14 };

/* Mark every byte; how many were marked before. */
static int mark(unsigned char *arena, const ordo_extent *x)
{
    int twice = 0;
    const int64_t *n = x->size, *s = x->stride;
    for (int64_t a = 0; a < n[0]; a++)
        for (int64_t b = 0; b < n[1]; b++)
            for (int64_t c = 0; c < n[2]; c++)
                for (int64_t d = 0; d < n[3]; d++)
                    for (int64_t w = 0; w < x->width; w++)
                        twice += arena[(int64_t)x->address + a * s[0] + b * s[1] + c * s[2] +
                                       d * s[3] + w]++;
    return twice;
}

static ordo_extent draw(uint64_t *state, bool nested)
{
    ordo_extent x = { .name = "x", .width = check_between(state, 0, 1) ? 2 : 4 };
    int64_t stride = x.width;
    for (int i = 3; i >= 0; i--) {
        x.size[i] = check_between(state, 1, 3);
        x.stride[i] = nested ? stride * check_between(state, 1, 2) : check_between(state, 0, 40);
        stride = x.stride[i] * x.size[i];
    }
    x.address = (uintptr_t)check_between(state, 0, 300);
    return x;
}

TEST(search_agrees_with_counting)
{
    static unsigned char arena[ARENA];
    uint64_t state = 5;
    int shared = 0, apart_but_interleaved = 0;
    for (int round = 0; round < 8000; round++) {
        ordo_extent a = draw(&state, round & 1), b = draw(&state, round & 2);
        if (round & 4) { /* the same strides, moved: where interleaving happens */
            const uintptr_t address = b.address;
            b = a;
            b.address = address;
        }
        int64_t a_bytes, b_bytes;
        CHECK(ordo_extent_bytes(&a, &a_bytes) && ordo_extent_bytes(&b, &b_bytes));
        memset(arena, 0, sizeof arena);
        const bool own_twice = mark(arena, &a) > 0;
        if (round & 1)
            CHECK(!own_twice && ordo_extent_nests(&a));
        if (ordo_extent_nests(&a))
            CHECK(!own_twice);

        bool expected = false;
        static unsigned char other[ARENA];
        memset(other, 0, sizeof other);
        mark(other, &b);
        for (int i = 0; i < ARENA; i++)
            expected = expected || (arena[i] && other[i]);
        if (ordo_extent_overlap(&a, &b) != expected || ordo_extent_overlap(&b, &a) != expected)
            CHECK_FAIL("round %d: expected %d", round, expected);
        shared += expected;
        apart_but_interleaved += !expected && a.address < b.address + (uintptr_t)b_bytes &&
                                 b.address < a.address + (uintptr_t)a_bytes;
    }
    CHECK(shared > 500 && apart_but_interleaved > 500);
}

/* (batch, row, 3, head, dim) of bf16: thirds are apart, and one element further they meet. */
TEST(thirds_of_one_buffer_are_apart)
{
    const int64_t b = 64, s = 1 << 20, h = 40, d = 128, row = 3 * h * d * 2;
    ordo_extent q = { "q", 1 << 20, 2, { b, s, h, d }, { s * row, row, d * 2, 2 } }, k = q;
    k.address += (uintptr_t)(h * d * 2);
    CHECK(!ordo_extent_overlap(&q, &k));
    k.address -= 2;
    CHECK(ordo_extent_overlap(&q, &k));
    k.address -= (uintptr_t)(h * d * 2 - 2);
    CHECK(ordo_extent_overlap(&q, &k)); /* the same tensor */
}

/* Heads of 192 and values of 128 side by side in a row: strides differ. */
TEST(fused_rows_of_different_head_sizes_are_apart)
{
    const int64_t s = 4096, h = 128, row = h * (192 + 128) * 2;
    const ordo_extent k = { "k", 4096, 2, { 1, s, h, 192 }, { s * row, row, 192 * 2, 2 } };
    ordo_extent v = { "v", 4096 + 128 * 192 * 2, 2, { 1, s, h, 128 }, { s * row, row, 256, 2 } };
    CHECK(!ordo_extent_overlap(&k, &v));
    v.address -= 2;
    CHECK(ordo_extent_overlap(&k, &v));
}

TEST(reach_that_does_not_fit_is_refused)
{
    int64_t bytes;
    const ordo_extent x = { "x", 0, 2, { 3, 1, 1, 1 }, { INT64_C(1) << 62, 0, 0, 0 } };
    CHECK(!ordo_extent_bytes(&x, &bytes));
}

CHECK_MAIN()
