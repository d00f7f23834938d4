/* half_test.c: bf16 and f16 against every pattern, every halfway point and a second way of
 * rounding (nearest by comparison in exact arithmetic). */
#include "base/half.h"
#include "check.h"

static double value_bf16(uint16_t h)
{
    return (double)ordo_f32_from_bf16(h);
}

static double value_f16(uint16_t h)
{
    return (double)ordo_f32_from_f16(h);
}

/* A 16-bit format as the tests see it. */
typedef struct format {
    const char *name;
    uint16_t infinity, nan;
    double (*value)(uint16_t);
    uint16_t (*from_f64)(double);
    uint16_t (*from_f32)(float);
} format;

static const format formats[] = {
    { "bf16", 0x7f80, ORDO_BF16_NAN, value_bf16, ordo_bf16_from_f64, ordo_bf16_from_f32 },
    { "f16", 0x7c00, ORDO_F16_NAN, value_f16, ordo_f16_from_f64, ordo_f16_from_f32 },
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

TEST(values_are_what_the_formats_say)
{
    CHECK(value_bf16(0x3f80) == 1.0 && value_bf16(0xc000) == -2.0);
    CHECK(value_bf16(0x0001) == 0x1p-133 && value_bf16(0x0080) == 0x1p-126);
    CHECK(value_bf16(0x7f7f) == 0x1.fep127 && value_bf16(0xff80) == -(double)INFINITY);
    CHECK(value_f16(0x3c00) == 1.0 && value_f16(0xc000) == -2.0);
    CHECK(value_f16(0x0001) == 0x1p-24 && value_f16(0x03ff) == 0x1.ff8p-15);
    CHECK(value_f16(0x0400) == 0x1p-14 && value_f16(0x7bff) == 65504.0);
    CHECK(value_f16(0xfc00) == -(double)INFINITY);
    CHECK(signbit(value_f16(0x8000)) && signbit(value_bf16(0x8000)));
    CHECK_INT(ordo_f32_bits(ordo_f32_from_f16(0x7c01)), ORDO_F32_NAN);
    CHECK_INT(ordo_f32_bits(ordo_f32_from_bf16(0xffff)), ORDO_F32_NAN);
    CHECK_INT(ordo_f32_bits(ordo_f32_from_f64(-(double)NAN)), ORDO_F32_NAN);
}

TEST(every_pattern_survives_the_round_trip)
{
    for (int f = 0; f < FORMATS; f++)
        for (uint32_t h = 0; h < 0x10000; h++) {
            const format *t = &formats[f];
            const double x = t->value((uint16_t)h);
            const uint16_t expected = (h & 0x7fff) > t->infinity ? t->nan : (uint16_t)h;
            if (t->from_f64(x) != expected || t->from_f32((float)x) != expected)
                CHECK_FAIL("%s %04x comes back as %04x and %04x", t->name, h, t->from_f64(x),
                           t->from_f32((float)x));
        }
}

/* Between neighbours a < b: the midpoint goes to the even one, anything nearer goes to the
 * nearer one, even one double away from the midpoint (where float would round twice). */
TEST(halfway_points_go_to_even_and_no_further)
{
    for (int f = 0; f < FORMATS; f++)
        for (uint32_t h = 0; h < formats[f].infinity; h++) {
            const format *t = &formats[f];
            const uint16_t a = (uint16_t)h, b = (uint16_t)(h + 1), even = h & 1 ? b : a;
            const double low = t->value(a);
            const double step =
                b == t->infinity ? low - t->value((uint16_t)(h - 1)) : t->value(b) - low;
            const double middle = low + step / 2; /* exact: at most 12 significant bits */
            const double under = nextafter(middle, 0), over = nextafter(middle, INFINITY);
            if (t->from_f64(middle) != even || t->from_f64(under) != a || t->from_f64(over) != b)
                CHECK_FAIL("%s around %a: %04x %04x %04x", t->name, middle, t->from_f64(under),
                           t->from_f64(middle), t->from_f64(over));
            if (t->from_f64(-middle) != (even | 0x8000) || t->from_f64(-over) != (b | 0x8000))
                CHECK_FAIL("%s around %a", t->name, -middle);

            const float m = (float)middle; /* exact in f32, subnormals included */
            if (t->from_f32(m) != even || t->from_f32(nextafterf(m, 0)) != a ||
                t->from_f32(nextafterf(m, INFINITY)) != b)
                CHECK_FAIL("%s from f32 around %a", t->name, middle);
        }
}

TEST(one_rounding_where_two_would_differ)
{
    /* 1 + 2^-8 is halfway between bf16 neighbours; 2^-30 more must go up, but a float loses
     * the 2^-30 and ties to even, down. */
    CHECK_INT(ordo_bf16_from_f64(1 + 0x1p-8 + 0x1p-30), 0x3f81);
    CHECK_INT(ordo_bf16_from_f32((float)(1 + 0x1p-8 + 0x1p-30)), 0x3f80);
    CHECK_INT(ordo_f16_from_f64(1 + 0x1p-11 + 0x1p-40), 0x3c01);
    CHECK_INT(ordo_f16_from_f32((float)(1 + 0x1p-11 + 0x1p-40)), 0x3c00);
    /* The same below the normal range, and at the edge of zero. */
    CHECK_INT(ordo_f16_from_f64(0x1p-25 + 0x1p-60), 0x0001);
    CHECK_INT(ordo_f16_from_f64(0x1p-25), 0x0000);
    CHECK_INT(ordo_bf16_from_f64(0x1p-134), 0x0000);
    CHECK_INT(ordo_bf16_from_f64(0x1.0000000000001p-134), 0x0001);
    CHECK_INT(ordo_bf16_from_f64(-0x1p-135), 0x8000);
}

TEST(ends_of_the_range)
{
    CHECK_INT(ordo_f16_from_f64(65519.999999), 0x7bff);
    CHECK_INT(ordo_f16_from_f64(65520), 0x7c00); /* halfway to 2^16: ties to even, up */
    CHECK_INT(ordo_f16_from_f64(1e300), 0x7c00);
    CHECK_INT(ordo_f16_from_f64(-1e300), 0xfc00);
    CHECK_INT(ordo_bf16_from_f64(0x1.ffp127), 0x7f80);
    CHECK_INT(ordo_bf16_from_f64(nextafter(0x1.ffp127, 0)), 0x7f7f);
    CHECK_INT(ordo_bf16_from_f32(-0x1.fffffep127f), 0xff80);
    CHECK_INT(ordo_f16_from_f64(5e-324), 0);
    CHECK_INT(ordo_bf16_from_f64(-5e-324), 0x8000);
    CHECK_INT(ordo_bf16_from_f64(INFINITY), 0x7f80);
    CHECK_INT(ordo_f16_from_f32(-INFINITY), 0xfc00);
    CHECK_INT(ordo_bf16_from_f64(NAN), ORDO_BF16_NAN);
    CHECK_INT(ordo_f16_from_f32(-NAN), ORDO_F16_NAN);
    /* A signalling NaN whose payload lies only in the bits that rounding drops. */
    CHECK_INT(ordo_bf16_from_f32(ordo_f32_of_bits(0x7f800001)), ORDO_BF16_NAN);
}

CHECK_MAIN()
