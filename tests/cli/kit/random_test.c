/* random_test.c: seeded inputs: rounding agrees with the library's, values look normal. */
#include "base/half.h"
#include "check.h"
#include "kit/random.c"

TEST(rounding_is_the_librarys)
{
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        const double x = ldexp(cli_random_normal(check_random(&seed)), -(i % 24));
        CHECK_INT(to_small(x, 11, -13, 0x8000), ordo_f16_from_f64(x));
        CHECK_INT(to_bf16((float)x), ordo_bf16_from_f32((float)x));
    }
    CHECK_INT(to_small(0, 11, -13, 0x8000), 0);
}

static double e4m3(int bits) /* without sign */
{
    return bits < 8 ? bits * 0x1p-9 : ldexp(8 + bits % 8, bits / 8 - 10);
}

/* The nearest number, of two the one with an even last bit. */
TEST(e4m3_is_rounded_to_nearest)
{
    uint64_t seed = 2;
    for (int i = 0; i < 100000; i++) {
        const double x = ldexp(cli_random_normal(check_random(&seed)), 3 - i % 16);
        const int bits = (int)to_small(x, 4, -5, 0x80), size = bits & 0x7f;
        const double error = fabs(e4m3(size) - fabs(x));
        CHECK_INT(bits >> 7, x < 0);
        CHECK(error < fabs(e4m3(size + 1) - fabs(x)) + (size % 2 == 0 ? 0x1p-40 : 0));
        CHECK(size == 0 || error < fabs(e4m3(size - 1) - fabs(x)) + (size % 2 == 0 ? 0x1p-40 : 0));
    }
    CHECK_INT(to_small(0x1.1p0, 4, -5, 0x80), 0x38); /* ties */
    CHECK_INT(to_small(0x1.3p0, 4, -5, 0x80), 0x3a);
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
