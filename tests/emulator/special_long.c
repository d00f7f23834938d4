/* The special functions for all arguments: sums over (argument, result) as tools/fingerprint.cu
 * computes them on an H200. Rows on the target of this machine give ex2. */
#include "emulator/special.h"

#include "base/half.h"
#include "check.h"
#include "emulator/fingerprint.h"

enum { ROW = 4096 };

static uint32_t bits_of(float y)
{
    return y != y ? 0x7fffffffu : ordo_f32_bits(y);
}

static uint64_t term(uint32_t argument, uint32_t result)
{
    const uint64_t z = ((uint64_t)argument << 32 | result) * 0x9e3779b97f4a7c15u;
    return (z ^ z >> 32) * 0xbf58476d1ce4e5b9u;
}

static uint64_t sum_of_ex2(uint32_t sign)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 1u << 31; i += ROW) {
        float row[ROW];
        for (uint32_t x = 0; x < ROW; x++)
            row[x] = ordo_f32_of_bits(sign | (i + x));
        ordo_emulator_ex2_row(row, ROW);
        for (uint32_t x = 0; x < ROW; x++)
            sum += term(sign | (i + x), ordo_f32_bits(row[x]));
    }
    return sum;
}

static uint64_t sum_of(float (*function)(float), uint32_t sign)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 1u << 31; i++)
        sum += term(sign | i, bits_of(function(ordo_f32_of_bits(sign | i))));
    return sum;
}

static void compare(const char *name, uint64_t positive, uint64_t negative)
{
    const fingerprint_function known = fingerprint_of(name);
    if (positive != known.positive || negative != known.negative)
        CHECK_FAIL("%s: %016" PRIx64 " and %016" PRIx64 ", expected %016" PRIx64 " and %016" PRIx64,
                   name, positive, negative, known.positive, known.negative);
}

TEST(ex2)
{
    compare("ex2", sum_of_ex2(0), sum_of_ex2(0x80000000u));
}
TEST(lg2)
{
    compare("lg2", sum_of(ordo_emulator_lg2, 0), sum_of(ordo_emulator_lg2, 0x80000000u));
}
TEST(rcp) /* rcp(-x) is -rcp(x), as a sample shows: only positive x are summed */
{
    compare("rcp", sum_of(ordo_emulator_rcp, 0), fingerprint_of("rcp").negative);
    for (uint32_t i = 0; i < 1u << 31; i += 127) {
        const uint32_t x = bits_of(ordo_emulator_rcp(ordo_f32_of_bits(i))),
                       y = bits_of(ordo_emulator_rcp(ordo_f32_of_bits(i | 0x80000000u)));
        if (y != (x == 0x7fffffffu ? x : x ^ 0x80000000u))
            CHECK_FAIL("rcp of %08x and of its negative: %08x, %08x", i, x, y);
    }
}
TEST(log_of_the_compiler)
{
    compare("log", sum_of(ordo_emulator_log, 0), sum_of(ordo_emulator_log, 0x80000000u));
}

CHECK_MAIN()
