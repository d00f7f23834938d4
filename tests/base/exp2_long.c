/* exp2_long.c: the error of ordo_exp2() over every float that matters.
 *
 * The yardstick is the C library's exp2 in double, whose own error exp2_test.c finds below 2^-51
 * against MPFR: 2^-28 of what is measured here. */
#include "base/exp2.h"
#include "base/half.h"
#include "check.h"

/* Largest error in ulps, over bit patterns [begin, end). */
static double sweep(uint32_t begin, uint32_t end, float *at)
{
    double worst = 0;
    for (uint32_t bits = begin; bits < end; bits++) {
        const float x = ordo_f32_of_bits(bits);
        const double exact = exp2((double)x);
        int exponent;
        (void)frexp(exact, &exponent);
        const double error = fabs((double)ordo_exp2(x) - exact) * ldexp(1, 24 - exponent);
        if (error > worst) {
            worst = error;
            *at = x;
        }
    }
    return worst;
}

/* From 2^-26, below which the result is 1, to 128 and to -126. */
TEST(every_float)
{
    float above = 0, below = 0;
    const double positive = sweep(0x32800000, 0x43000000, &above);
    const double negative = sweep(0xb2800000, 0xc2fc0001, &below);
    printf("  largest error %.6f ulp at %a, %.6f ulp at %a\n", positive, (double)above, negative,
           (double)below);
    CHECK(positive > 0.5 && positive < 0.88);
    CHECK(negative > 0.5 && negative < 0.88);
}

CHECK_MAIN()
