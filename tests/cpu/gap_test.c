/* gap_test.c: under the address sanitizer nothing after a panel may be touched; else panels are
 * side by side. */
#include "check.h"
#include "cpu/pass.h"

TEST(panels_are_apart_under_the_address_sanitizer)
{
    enum { WORDS = 18 }; /* not whole lines */
    ordo_arena count = { NULL, 0 };
    (void)ordo_arena_take(&count, WORDS);
    (void)ordo_arena_take(&count, WORDS);
    CHECK_INT(count.used, 2 * (128 + ORDO_GAP));

    ordo_arena arena = { aligned_alloc(64, count.used), 0 };
    const char *first = ordo_arena_take(&arena, WORDS), *second = ordo_arena_take(&arena, WORDS);
    CHECK_INT(second - first, 128 + ORDO_GAP);
#ifdef ORDO_ASAN
    CHECK(!__asan_address_is_poisoned(first + 4 * WORDS - 1));
    CHECK(__asan_address_is_poisoned(first + 4 * WORDS));
    CHECK(__asan_address_is_poisoned(second - 1));
    CHECK(!__asan_address_is_poisoned(second));
    CHECK(__asan_address_is_poisoned(second + 4 * WORDS));
#endif
    free(arena.base);
}

CHECK_MAIN()
