/* random_test.c: seeded inputs: rounding agrees with the library's, values look normal. */
#include "base/half.h"
#include "check.h"
#include "kit/random.c"

TEST(rounding_is_the_librarys)
{
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        const double x = ldexp(cli_random_normal(check_random(&seed)), -(i % 24));
        CHECK_INT(to_f16(x), ordo_f16_from_f64(x));
        CHECK_INT(to_bf16((float)x), ordo_bf16_from_f32((float)x));
    }
    CHECK_INT(to_f16(0), 0);
}

TEST(values_are_nearly_normal)
{
    enum { COUNT = 1 << 20 };
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const double x = cli_random_normal(cli_random_mix(i));
        sum += x;
        squares += x * x;
    }
    CHECK_NEAR(sum / COUNT, 0, 0.005);
    CHECK_NEAR(squares / COUNT, 1, 0.005);
}

CHECK_MAIN()
