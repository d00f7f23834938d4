/* Products that an H200 computed: tests/data/emulator/products.bin, which tools/fingerprint.cu
 * --record wrote. Its operands are hostile: subnormal numbers, infinities and NaN, terms at the
 * limit of alignment, sums that cancel, the ends of the range of f32. And the hashes that the tool
 * knows models by. */
#include "check.h"
#include "emulator/dot.h"
#include "emulator/fingerprint.h"

enum { M = 64, N = 8, K = 16, TILES = 24 };

typedef struct tile {
    uint32_t f16;
    uint16_t a[M][K], b[K][N];
    uint32_t c[M][N], d[M][N];
} tile;

static tile tiles[TILES];

static bool read_record(void)
{
    FILE *file = fingerprint_open("tests/data/emulator/products.bin");
    const bool good = file && fread(tiles, sizeof tiles, 1, file) == 1 && fgetc(file) == EOF;
    if (file)
        (void)fclose(file);
    return good;
}

static uint32_t compute(const ordo_emulator_arithmetic *arithmetic, const tile *t, int i, int n)
{
    uint16_t column[K];
    for (int k = 0; k < K; k++)
        column[k] = t->b[k][n];
    return ordo_emulator_dot(arithmetic, t->f16 ? ORDO_F16 : ORDO_BF16, t->a[i], column,
                             t->c[i][n]);
}

static uint64_t hash_of(const ordo_emulator_arithmetic *arithmetic)
{
    uint64_t hash = FINGERPRINT_START;
    for (int x = 0; x < TILES * M * N; x++)
        hash = fingerprint_add(hash, compute(arithmetic, &tiles[x / (M * N)], x / N % M, x % N));
    return hash;
}

TEST(hopper_has_the_bits_of_the_device)
{
    CHECK(read_record());
    for (int x = 0; x < TILES * M * N; x++) {
        const tile *t = &tiles[x / (M * N)];
        const uint32_t got = compute(&ordo_emulator_hopper, t, x / N % M, x % N),
                       expected = t->d[x / N % M][x % N];
        if (got != expected)
            CHECK_FAIL("tile %d, output %d: %08x, the device has %08x", x / (M * N), x % (M * N),
                       got, expected);
    }
}

static uint64_t known(const char *name)
{
    char start[64];
    uint64_t value = 0;
    snprintf(start, sizeof start, "#define %s ", name);
    return fingerprint_numbers(start, &value, 1) == 1 ? value : 0;
}

TEST(the_tool_knows_the_models)
{
    const uint64_t hopper = hash_of(&ordo_emulator_hopper), ampere = hash_of(&ordo_emulator_ampere);
    printf("  hopper %016" PRIx64 ", ampere %016" PRIx64 "\n", hopper, ampere);
    CHECK(known("HASH_HOPPER") == hopper);
    CHECK(known("HASH_AMPERE") == ampere);
}

CHECK_MAIN()
