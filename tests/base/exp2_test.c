/* exp2_test.c: ordo_exp2() and ordo_log() against MPFR, and the vector kernels against ordo_exp2().
 *
 * tests/base/exp2_long.c goes through every float; here are a million of them. */
#include "base/exp2.h"
#include "base/half.h"
#include "check.h"
#include "cpu/kernels.h"

#ifdef HAVE_MPFR
#include <mpfr.h>
#endif

TEST(values_that_are_exact)
{
    for (int n = -126; n <= 127; n++)
        CHECK(ordo_exp2((float)n) == ldexpf(1, n));
    CHECK(ordo_exp2(0.0f) == 1 && ordo_exp2(-0.0f) == 1);
    CHECK(ordo_exp2(0x1p-149f) == 1 && ordo_exp2(-0x1p-149f) == 1);
    CHECK(ordo_exp2(0x1p-26f) == 1 && ordo_exp2(-0x1p-26f) == 1);
}

TEST(values_at_the_ends)
{
    CHECK(ordo_exp2(128) == INFINITY && ordo_exp2(1000) == INFINITY);
    CHECK(ordo_exp2(3.4e38f) == INFINITY && ordo_exp2(INFINITY) == INFINITY);
    CHECK(ordo_exp2(nextafterf(128, 0)) < INFINITY);
    CHECK(ordo_exp2(nextafterf(128, 0)) > 0x1.ffff0p127f);
    CHECK(ordo_exp2(-126) == 0x1p-126f);
    CHECK(ordo_f32_bits(ordo_exp2(nextafterf(-126, -127))) == 0); /* +0, no subnormals */
    CHECK(ordo_f32_bits(ordo_exp2(-3.4e38f)) == 0);
    CHECK(ordo_f32_bits(ordo_exp2(-INFINITY)) == 0);
    CHECK(isnan(ordo_exp2(ordo_f32_of_bits(ORDO_F32_NAN))));
    CHECK(isnan(ordo_exp2(ordo_f32_of_bits(ORDO_F32_NAN | 0x80000000)))); /* as x86 makes it */
}

/* Softmax wants no probability above that of the largest logit. */
TEST(nothing_below_zero_exceeds_one)
{
    for (uint32_t bits = 0x80000000; bits < 0xc0000000; bits += 97)
        CHECK(ordo_exp2(ordo_f32_of_bits(bits)) <= 1);
}

/* ---- errors ---- */

enum { SWEEP = 1 << 20 };

#ifdef HAVE_MPFR
/* Input x of the sweep: -130 .. 1 evenly, every third around zero with its small exponents. */
static float input(int x, uint64_t *state)
{
    if (x % 3 == 0)
        return (float)(check_uniform(state) * exp2((double)check_between(state, -30, 0)));
    return (float)(-130 + 131 * ((double)x + check_uniform(state)) / SWEEP);
}

/* A unit in the last place of f32 at `exact`. */
static double unit(double exact)
{
    int exponent;
    (void)frexp(exact, &exponent);
    return ldexp(1, exponent - 24);
}
#endif

TEST(exp2_against_mpfr)
{
#ifdef HAVE_MPFR
    uint64_t state = 1;
    double worst = 0, worst_relative = 0, libm = 0;
    float at = 0;
    mpfr_t y;
    mpfr_init2(y, 80);
    for (int x = 0; x < SWEEP; x++) {
        const float f = input(x, &state);
        mpfr_set_flt(y, f, MPFR_RNDN);
        mpfr_exp2(y, y, MPFR_RNDN);
        const double exact = mpfr_get_d(y, MPFR_RNDN), got = (double)ordo_exp2(f);
        libm = fmax(libm, fabs(exp2((double)f) - exact) / exact);
        if (f < -126) {
            CHECK(got == 0);
            continue;
        }
        const double error = fabs(got - exact) / unit(exact);
        worst_relative = fmax(worst_relative, fabs(got - exact) / exact);
        if (error > worst) {
            worst = error;
            at = f;
        }
    }
    mpfr_clear(y);
    printf("  largest error %.4f ulp, at %a; relative %.4f * 2^-24\n", worst, (double)at,
           worst_relative * 0x1p24);
    CHECK(worst < 0.88);
    CHECK(worst > 0.5); /* nothing rounds that well: the yardstick is broken */
    CHECK(worst_relative < 1.25 * 0x1p-24);
    CHECK(libm < 0x1p-51); /* so that exp2_long.c may measure by it */
#else
    SKIP("built without MPFR");
#endif
}

TEST(log_against_mpfr)
{
#ifdef HAVE_MPFR
    uint64_t state = 2;
    double worst = 0, at = 0;
    mpfr_t exact, difference;
    mpfr_init2(exact, 160);
    mpfr_init2(difference, 160);
    for (int x = 0; x < 1 << 17; x++) {
        const double m = 1 + 0.5 * (1 + check_uniform(&state));
        const int near[] = { -1, 0, 0, (int)check_between(&state, -126, 30) };
        double value = ldexp(m, near[x % 4]);
        if (x % 8 == 0) /* near 1, where the logarithm vanishes */
            value = 1 + check_uniform(&state) * exp2((double)check_between(&state, -50, -1));
        if (value == 1) {
            CHECK(ordo_log(value) == 0);
            continue;
        }
        mpfr_set_d(exact, value, MPFR_RNDN);
        mpfr_log(exact, exact, MPFR_RNDN);
        mpfr_sub_d(difference, exact, ordo_log(value), MPFR_RNDN);
        mpfr_div(difference, difference, exact, MPFR_RNDN);
        const double error = fabs(mpfr_get_d(difference, MPFR_RNDN));
        if (error > worst) {
            worst = error;
            at = value;
        }
    }
    mpfr_clear(exact);
    mpfr_clear(difference);
    mpfr_free_cache();
    printf("  largest relative error %.3g, at %a\n", worst, at);
    CHECK(worst < 1e-15);
    CHECK(worst > 0x1p-54);
#else
    SKIP("built without MPFR");
#endif
}

/* ---- vectors ---- */

enum { ROWS = 16, COLS = 64 };

/* The kernel's exp2, laid bare: P of the backward pass with lse 0 and scale 1 is exp2(s), and p of
 * the forward pass with a logit of 0 in every row is exp2(s) for the others, all below it. */
static void compare(const ordo_kernels *kernels, const float *x, bool forward)
{
    _Alignas(64) float s[COLS * ROWS], dp[COLS * ROWS] = { 0 };
    _Alignas(64) float zero[ROWS] = { 0 }, m[ROWS], l[ROWS] = { 0 }, alpha[ROWS];
    const ordo_scores scores = {
        .rows = ROWS, .cols = COLS, .ld = ROWS, .scale2 = 1, .keep_scale = 1
    };
    for (int r = 0; r < ROWS; r++)
        m[r] = -INFINITY;
    memcpy(s, x, sizeof s);
    for (int i = 0; forward && i < COLS * ROWS; i++)
        s[i] = i < ROWS ? 0 : s[i] > 0 ? -s[i] : s[i]; /* NaN stays */
    float expected[COLS * ROWS];
    for (int i = 0; i < COLS * ROWS; i++)
        expected[i] = ordo_exp2(s[i]);
    if (forward)
        kernels->softmax(&scores, s, m, l, alpha);
    else
        kernels->gradients(&scores, s, dp, zero, zero);
    for (int i = 0; i < COLS * ROWS; i++)
        if (isnan(expected[i]) ? !isnan(s[i]) : ordo_f32_bits(s[i]) != ordo_f32_bits(expected[i]))
            CHECK_FAIL("%s: exp2(%a) is %a, expected %a", kernels->name, (double)x[i], (double)s[i],
                       (double)expected[i]);
}

TEST(every_target_has_the_bits_of_the_scalar)
{
    static const char *const targets[] = { "generic", "neon", "avx2", "avx512" };
    static const uint32_t special[] = {
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x7f800000, 0xff800000, 0x7fc00000,
        0xffc00000, 0x42fe0000, 0x43000000, 0x43000001, 0xc2fc0000, 0xc2fc0001, 0xc2fbffff,
        0x7f7fffff, 0xff7fffff, 0x3f000000, 0xbf000000, 0x3effffff, 0xbf000001
    };
    int found = 0;
    for (int t = 0; t < 4; t++) {
        const ordo_kernels *kernels = ordo_cpu_kernels_named(targets[t]);
        if (!kernels)
            continue;
        found++;
        printf("  %s\n", targets[t]);
        uint64_t state = 3;
        for (int round = 0; round < 400; round++) {
            float x[COLS * ROWS];
            for (int i = 0; i < COLS * ROWS; i++) {
                x[i] = (float)(check_uniform(&state) * (round % 2 ? 130 : 3));
                if (round < 2)
                    x[i] = ordo_f32_of_bits(special[check_between(&state, 0, 19)]);
            }
            compare(kernels, x, false);
            compare(kernels, x, true);
        }
    }
    CHECK(found > 0);
}

CHECK_MAIN()
