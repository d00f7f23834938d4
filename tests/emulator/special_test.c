/* The special functions: known values, and rows on every target as single numbers. */
#include "emulator/special.h"

#include "base/half.h"
#include "check.h"
#include "emulator/fingerprint.h"
#include "emulator/kernels.h"

static const char *const targets[] = { "generic", "neon", "avx2", "avx512" };
enum { COUNT = 1 << 16 };

static float values[COUNT + 3];

/* Any bits, arguments of usual size, and whole numbers. */
static void draw(uint64_t *state)
{
    for (int i = 0; i < COUNT + 3; i++) {
        const uint64_t random = check_random(state);
        values[i] = ordo_f32_of_bits((uint32_t)random);
        if (random >> 32 & 3)
            values[i] = (float)check_uniform(state) * 150.0f;
        if ((random >> 34 & 7) == 0)
            values[i] = floorf(values[i]);
    }
}

TEST(rows_of_ex2_are_single_values)
{
    uint64_t state = 7;
    for (int x = 0; x < 4; x++) {
        const ordo_emulator_kernels *kernels = ordo_emulator_kernels_named(targets[x]);
        float row[COUNT + 3];
        if (!kernels)
            continue;
        ordo_emulator_kernels_force(kernels);
        draw(&state);
        memcpy(row, values, sizeof row);
        ordo_emulator_ex2_row(row, COUNT + 3);
        for (int i = 0; i < COUNT + 3; i++)
            values[i] = ordo_emulator_ex2(values[i]);
        CHECK_BITS(row, values, COUNT + 3);
        ordo_emulator_kernels_force(NULL);
    }
}

TEST(rows_are_rounded_as_single_values)
{
    uint64_t state = 8;
    for (int x = 0; x < 8; x++) {
        const ordo_emulator_kernels *kernels = ordo_emulator_kernels_named(targets[x / 2]);
        const ordo_dtype dtype = x & 1 ? ORDO_F16 : ORDO_BF16;
        uint16_t row[COUNT + 3], single[COUNT + 3];
        if (!kernels)
            continue;
        ordo_emulator_kernels_force(kernels);
        draw(&state);
        for (int i = 0; i < COUNT; i += 5) /* around the ends of f16 */
            values[i] *= i & 1 ? 0x1p-20f : 0x1p9f;
        ordo_emulator_round_row(row, values, COUNT + 3, dtype);
        for (int i = 0; i < COUNT + 3; i++)
            single[i] = ordo_emulator_round(values[i], dtype);
        CHECK_BITS(row, single, COUNT + 3);
        ordo_emulator_kernels_force(NULL);
    }
}

/* Results of 2^23 fractions, as on an H200. */
static void compare_fractions(const char *name, float (*function)(float))
{
    const fingerprint_function known = fingerprint_of(name);
    uint64_t hash = FINGERPRINT_START;
    for (uint32_t i = 0; i < 1u << 23; i++)
        hash = fingerprint_add(
            hash, ordo_f32_bits(function(ordo_f32_of_bits((uint32_t)known.first + i))));
    if (hash != known.fractions)
        CHECK_FAIL("%s: %016" PRIx64 ", expected %016" PRIx64, name, hash, known.fractions);
}

TEST(fractions_have_the_fingerprints_of_an_h200)
{
    compare_fractions("ex2", ordo_emulator_ex2);
    compare_fractions("lg2", ordo_emulator_lg2);
    compare_fractions("rcp", ordo_emulator_rcp);
    compare_fractions("log", ordo_emulator_log);
}

#define CHECK_F32(got, bits) CHECK_INT(ordo_f32_bits(got), bits)

TEST(known_values)
{
    CHECK_F32(ordo_emulator_ex2(-3.0f), 0x3e000000);
    CHECK_F32(ordo_emulator_ex2(-0x1p-140f), 0x3f800000);
    CHECK_F32(ordo_emulator_ex2(128.0f), 0x7f800000);
    CHECK_F32(ordo_emulator_ex2(-127.0f), 0);
    CHECK_F32(ordo_emulator_ex2(NAN), 0x7fffffff);
    CHECK_F32(ordo_emulator_lg2(1.0f), 0);
    CHECK_F32(ordo_emulator_lg2(0.25f), 0xbfffffffu);
    CHECK_F32(ordo_emulator_lg2(-0x1p-140f), 0xff800000u);
    CHECK_F32(ordo_emulator_lg2(-1.0f), 0x7fffffff);
    CHECK_F32(ordo_emulator_rcp(4.0f), 0x3e800000);
    CHECK_F32(ordo_emulator_rcp(-0x1p127f), 0x80000000u);
    CHECK_F32(ordo_emulator_rcp(-INFINITY), 0x80000000u);
    CHECK_F32(ordo_emulator_rcp(0x1p-140f), 0x7f800000);
    CHECK_F32(ordo_emulator_log(1.0f), 0);
    CHECK_F32(ordo_emulator_log(0.0f), 0xff800000u);
    CHECK_F32(ordo_emulator_log(-0.0f), 0xff800000u);
    CHECK_F32(ordo_emulator_log(INFINITY), 0x7f800000);
    CHECK(isnan(ordo_emulator_log(-1.0f)));
    CHECK_NEAR(ordo_emulator_log(0x1p-140f), log(0x1p-140), 1e-5);
    CHECK_INT(ordo_emulator_round(NAN, ORDO_BF16), 0x7fff);
    CHECK_INT(ordo_emulator_round(NAN, ORDO_F16), 0x7fff);
    CHECK_INT(ordo_emulator_round(65520.0f, ORDO_F16), 0x7c00);
}

CHECK_MAIN()
