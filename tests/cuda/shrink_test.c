/* The running maximum of the forward kernels, by the text that the device compiles: sums are not
 * touched while the maximum stays, whatever it is, and never grow when it rises. */
#include "base/shrink.h"

#include "base/exp2.h"
#include "base/philox.h"
#include "check.h"

enum { TRIALS = 200000 };

/* Four words in order of asking. */
static ordo_philox_words draw(uint32_t at)
{
    const ordo_philox_words counter = { { at, 15, 0, 0 } };
    return ordo_philox(counter, 3, 4, 7);
}

/* Between 2^-exponent and 2^exponent. */
static float draw_size(uint32_t word, int exponent)
{
    const float part = 1.0f + (float)(word >> 9) * 0x1p-23f;
    return ldexpf(part, (int)(word % (2 * (uint32_t)exponent)) - exponent);
}

static float draw_scale(uint32_t n, uint32_t word)
{
    return n % 8 == 0 ? 1.0f : draw_size(word, 20); /* 1: logits come as powers of two */
}

TEST(a_maximum_that_stays_leaves_the_sums)
{
    for (uint32_t n = 0; n < TRIALS; n++) {
        const ordo_philox_words w = draw(n);
        const float max = w.w[2] & 1 ? draw_size(w.w[0], 20) : -draw_size(w.w[0], 20);
        const float scale = draw_scale(n, w.w[1]);
        const float shift = ordo_softmax_shift(max, scale);
        const float shrink = ordo_softmax_shrink(max, scale, shift);
        CHECK(shrink == 0.0f && ordo_exp2(shrink) == 1.0f);
    }
}

TEST(a_maximum_that_rises_shrinks_the_sums)
{
    for (uint32_t n = 0; n < TRIALS; n++) {
        const ordo_philox_words w = draw(n);
        const float old = w.w[2] & 1 ? draw_size(w.w[0], 10) : -draw_size(w.w[0], 10);
        const float scale = draw_scale(n, w.w[1]);
        const float max = n % 2 ? nextafterf(old, INFINITY) : old + draw_size(w.w[3], 10);
        const float shift = ordo_softmax_shift(max, scale);
        const float shrink = ordo_softmax_shrink(old, scale, shift);
        const double exact = ((double)old - (double)max) * (double)scale;
        CHECK(shrink <= 0.0f);
        CHECK(fabs((double)shrink - exact) <=
              0x1p-24 * (fabs((double)old) + 2 * fabs((double)max)) * (double)scale * 2);
    }
}

/* Rows that have seen no key: their sums, which are 0, stay so, and so do those of scores hidden by
 * the mask; the first key that is seen begins from nothing. */
TEST(rows_without_a_key)
{
    for (uint32_t n = 0; n < TRIALS / 10; n++) {
        const ordo_philox_words w = draw(n);
        const float scale = draw_scale(n, w.w[1]), none = -INFINITY;
        CHECK(ordo_softmax_shift(none, scale) == 0.0f);
        CHECK(ordo_softmax_shrink(none, scale, 0.0f) == -INFINITY);
        const float shift = ordo_softmax_shift(draw_size(w.w[0], 20), scale);
        CHECK(ordo_softmax_shrink(none, scale, shift) == -INFINITY);
        CHECK(ordo_exp2(ordo_softmax_shrink(none, scale, shift)) == 0.0f);
        CHECK(fmaf(none, scale, -shift) == -INFINITY);
    }
}

/* A row whose largest score comes in the first tile that is visited. */
static double drift_of(float max, float scale, int tiles)
{
    const float shift = ordo_softmax_shift(max, scale);
    const float each = 128 * ordo_exp2(fmaf(max - 12.0f / scale, scale, -shift));
    float sum = 1.0f;
    double want = 1.0;
    for (int t = 0; t < tiles; t++) {
        const float shrink = ordo_exp2(ordo_softmax_shrink(max, scale, shift));
        sum = fmaf(sum, shrink, each);
        want += (double)each;
    }
    return fabs(log((double)sum / want));
}

/* Over 64k keys what is lost is what a float sum of as many tiles loses, at any logit. */
TEST(errors_do_not_grow_with_logits)
{
    for (uint32_t n = 0; n < 200; n++) {
        const ordo_philox_words w = draw(n);
        const float scale = 0.18033688f * (1.0f + (float)(w.w[0] >> 9) * 0x1p-23f);
        CHECK(drift_of(440.0f + (float)(w.w[1] % 64), scale, 512) < 2e-5);
    }
}

/* Up to the bound the probability of the maximum itself, which f16 has to hold, is nearly 1; beyond
 * 2^29 there are maxima for which it is less than f16 can hold, so that there must be a bound. */
TEST(probability_of_the_maximum)
{
    float least = 1.0f;
    for (uint32_t n = 0; n < TRIALS; n++) {
        const ordo_philox_words w = draw(n);
        const float max = w.w[2] & 1 ? draw_size(w.w[0], 20) : -draw_size(w.w[0], 20);
        const float scale = draw_size(w.w[1], 20);
        const float p = ordo_exp2(fmaf(max, scale, -ordo_softmax_shift(max, scale)));
        if (!ordo_softmax_far(max, scale))
            CHECK(p > 0.707f && p < 1.415f);
        else if (fabsf(max * scale) < 0x1p30f)
            least = fminf(least, p);
    }
    CHECK(least < 0x1p-25f);
    CHECK(!ordo_softmax_far(0x1p24f, 1.0f) && !ordo_softmax_far(-0x1p24f, 1.0f));
    CHECK(ordo_softmax_far(0x1p25f, 1.0f) && ordo_softmax_far(-INFINITY, 1.0f));
}

CHECK_MAIN()
