/* philox_test.c: Philox against Random123, the authors' own, on random counters and keys. */
#include "base/philox.h"
#include "check.h"
#include "ordo/dropout.h"

#if defined(__has_include)
#if __has_include(<Random123/philox.h>)
#include <Random123/philox.h>
#define HAS_RANDOM123
#endif
#endif

TEST(every_number_of_rounds_is_that_of_random123)
{
#ifdef HAS_RANDOM123
    uint64_t state = 20260101;
    printf("  seed %" PRIu64 "\n", state);
    for (int rounds = 1; rounds <= 10; rounds++)
        for (int trial = 0; trial < 4000; trial++) {
            const uint64_t a = check_random(&state), b = check_random(&state),
                           k = check_random(&state);
            const philox4x32_ctr_t counter = { { (uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b,
                                                 (uint32_t)(b >> 32) } };
            const philox4x32_key_t key = { { (uint32_t)k, (uint32_t)(k >> 32) } };
            const philox4x32_ctr_t theirs = philox4x32_R((unsigned)rounds, counter, key);
            uint32_t ours[4];
            CHECK(ordo_philox4x32(counter.v, key.v, rounds, ours) == ORDO_OK);
            CHECK_BITS(ours, theirs.v, 4);
        }
#else
    SKIP("Random123 is not installed (librandom123-dev)");
#endif
}

TEST(bad_arguments_are_refused_by_name)
{
    const uint32_t counter[4] = { 0 }, key[2] = { 0 };
    uint32_t words[4];
    CHECK_REFUSED(ordo_philox4x32(counter, key, 0, words), ORDO_ERR_ARGUMENT,
                  "rounds 0: expected 1..10");
    CHECK_REFUSED(ordo_philox4x32(counter, key, 11, words), ORDO_ERR_ARGUMENT, "rounds 11");
    CHECK_REFUSED(ordo_philox4x32(NULL, key, 7, words), ORDO_ERR_ARGUMENT, "counter NULL");
    CHECK_REFUSED(ordo_philox4x32(counter, NULL, 7, words), ORDO_ERR_ARGUMENT, "key NULL");
    CHECK_REFUSED(ordo_philox4x32(counter, key, 7, NULL), ORDO_ERR_ARGUMENT, "words NULL");
}

CHECK_MAIN()
