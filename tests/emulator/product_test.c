/* Products of tiles have the bits of ordo_emulator_dot() on every target of this machine. */
#include "emulator/product.h"

#include "base/half.h"
#include "check.h"
#include "emulator/dot.h"
#include "emulator/hostile.h"
#include "emulator/kernels.h"

enum { ROWS = 5, COLUMNS = 64, DEPTH = 48, OUTPUTS = 1000000 };

static _Alignas(64) char memory[2][(ROWS + DEPTH) * COLUMNS * 8];

/* One product of drawn operands; the outputs computed. */
static int compare(hostile *h, bool add)
{
    static float d[ROWS][COLUMNS], expected[ROWS][COLUMNS];
    uint16_t a[ROWS][DEPTH], b[DEPTH][COLUMNS];
    ordo_emulator_tile x, y;
    ordo_emulator_tile_make(&x, ROWS, DEPTH, h->dtype, memory[0]);
    ordo_emulator_tile_make(&y, DEPTH, COLUMNS, h->dtype, memory[1]);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < DEPTH; k++)
            a[i][k] = hostile_half(h, 0);
        ordo_emulator_tile_set(&x, i, a[i], DEPTH);
    }
    for (int k = 0; k < DEPTH; k++) {
        for (int n = 0; n < COLUMNS; n++)
            b[k][n] = hostile_half(h, 1);
        ordo_emulator_tile_set(&y, k, b[k], COLUMNS);
    }
    for (int i = 0; i < ROWS; i++)
        for (int n = 0; n < COLUMNS; n++)
            d[i][n] = expected[i][n] = ordo_f32_of_bits(hostile_sum(h));
    ordo_emulator_product(&d[1][32], COLUMNS, ROWS - 1, &x, 1, 16, &y, 16, 32, 32, DEPTH - 16, add);
    for (int i = 1; i < ROWS; i++)
        for (int n = 32; n < COLUMNS; n++) {
            uint32_t sum = add ? ordo_f32_bits(expected[i][n]) : 0;
            for (int k = 16; k < DEPTH; k += 16) {
                uint16_t column[16];
                for (int l = 0; l < 16; l++)
                    column[l] = b[k + l][n];
                sum = ordo_emulator_dot(&ordo_emulator_hopper, h->dtype, &a[i][k], column, sum);
            }
            expected[i][n] = ordo_f32_of_bits(sum);
        }
    CHECK_BITS(&d[0][0], &expected[0][0], ROWS * COLUMNS); /* and nothing else was written */
    return (ROWS - 1) * 32;
}

static void compare_target(const char *name)
{
    const ordo_emulator_kernels *kernels = ordo_emulator_kernels_named(name);
    if (!kernels)
        return;
    ordo_emulator_kernels_force(kernels);
    uint64_t state = 2026;
    int outputs = 0;
    for (int round = 0; outputs < OUTPUTS && check_failures == 0; round++) {
        hostile h =
            hostile_make(&state, round & 1 ? ORDO_F16 : ORDO_BF16, round / 2 % HOSTILE_KINDS);
        outputs += compare(&h, round % 3 != 0);
    }
    printf("  %s: %d outputs, seed 2026\n", name, outputs);
    ordo_emulator_kernels_force(NULL);
}

TEST(every_target_has_the_bits_of_the_definition)
{
    static const char *const names[] = { "generic", "neon", "avx2", "avx512" };
    for (int x = 0; x < 4; x++)
        compare_target(names[x]);
}

/* The definition itself, where its rules meet. */
static uint32_t dot(ordo_dtype dtype, uint32_t c, int count, const uint16_t (*pairs)[2])
{
    uint16_t a[16] = { 0 }, b[16] = { 0 };
    for (int k = 0; k < count; k++) {
        a[k] = pairs[k][0];
        b[k] = pairs[k][1];
    }
    return ordo_emulator_dot(&ordo_emulator_hopper, dtype, a, b, c);
}

TEST(zeros_bring_no_exponent_and_no_sign)
{
    /* 0 * 2^127 beside 2^-20 */
    const uint16_t huge[][2] = { { 0x0000, 0x7f00 }, { 0x3580, 0x3f80 } };
    CHECK_INT(dot(ORDO_BF16, 0, 2, huge), 0x35800000);
    const uint16_t minus[][2] = { { 0x8000, 0x3f80 } };
    CHECK_INT(dot(ORDO_BF16, 0x80000000u, 1, minus), 0);
}

TEST(terms_are_cut_toward_zero_25_bits_behind_the_point)
{
    /* 1 + 2^-25 stays in the sum, 2^-26 does not; the result has 24 bits again. */
    const uint16_t kept[][2] = { { 0x3f80, 0x3f80 }, { 0xbf80, 0x3f80 }, { 0x3300, 0x3f80 } };
    CHECK_INT(dot(ORDO_BF16, 0, 3, kept), 0x33000000);
    const uint16_t lost[][2] = { { 0x3f80, 0x3f80 }, { 0xbf80, 0x3f80 }, { 0x3280, 0x3f80 } };
    CHECK_INT(dot(ORDO_BF16, 0, 3, lost), 0);
    const uint16_t down[][2] = { { 0xbf80, 0x3f80 }, { 0xb300, 0x3f80 } };
    CHECK_INT(dot(ORDO_BF16, 0, 2, down), 0xbf800000u);
}

TEST(what_underflows_is_plus_zero)
{
    const uint16_t tiny[][2] = { { 0x8001, 0x0080 } }; /* -2^-133 2^-126 */
    CHECK_INT(dot(ORDO_BF16, 0, 1, tiny), 0);
    const uint16_t below[][2] = { { 0x8080, 0x3280 } }; /* -2^-126 2^-26 */
    CHECK_INT(dot(ORDO_BF16, 0, 1, below), 0);
}

TEST(infinities_and_nan)
{
    const uint16_t times_zero[][2] = { { 0x7f80, 0x0000 } }, minus[][2] = { { 0x7f80, 0xbf80 } };
    CHECK_INT(dot(ORDO_BF16, 0, 1, times_zero), 0x7fffffff);
    CHECK_INT(dot(ORDO_BF16, 0, 1, minus), 0xff800000u);
    CHECK_INT(dot(ORDO_BF16, 0x7f800000u, 1, minus), 0x7fffffff);
    CHECK_INT(dot(ORDO_BF16, 0xffc00000u, 1, minus), 0x7fffffff);
    const uint16_t cancel[][2] = { { 0x7f7f, 0x7f7f }, { 0xff7f, 0x7f7f }, { 0x3f80, 0x3f80 } };
    CHECK_INT(dot(ORDO_BF16, 0, 3, cancel), 0);
    const uint16_t over[][2] = { { 0x7f7f, 0x7f7f } };
    CHECK_INT(dot(ORDO_BF16, 0, 1, over), 0x7f800000);
}

CHECK_MAIN()
