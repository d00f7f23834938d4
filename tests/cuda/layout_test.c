/* The layouts of the CUDA kernels, without a device: layout.h against what the instructions are
 * documented to do, emulated here element by element. */
#include "cuda/sm90/descriptor.h"
#include "cuda/tile/fragment.h"
#include "cuda/tile/swizzle.h"

#include "base/keep.h"
#include "check.h"

enum { THREADS = 128, TILE_BYTES_MAX = 192 * 128 * 2 };

/* Every element has its own place and the tile has no holes. */
TEST(tile_is_a_bijection)
{
    static const int heights[] = { 8, 64, 80, 128, 192 };
    for (int h = 0; h < 5; h++)
        for (int columns = 64; columns <= 128; columns += 64) {
            const int rows = heights[h];
            bool taken[TILE_BYTES_MAX / 2] = { false };
            for (int row = 0; row < rows; row++)
                for (int column = 0; column < columns; column++) {
                    const uint32_t offset = ordo_tile_offset(rows, row, column);
                    CHECK(offset % 2 == 0 && offset < (uint32_t)(rows * columns * 2));
                    if (offset < (uint32_t)(rows * columns * 2)) {
                        CHECK(!taken[offset / 2]);
                        taken[offset / 2] = true;
                    }
                }
        }
}

/* The copy engine swaps 16-byte chunks: bits 4 to 6 of an address with bits 7 to 9 of it. */
static uint32_t swizzle(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

TEST(tile_is_what_the_copy_engine_writes)
{
    for (int row = 0; row < 128; row++)
        for (int column = 0; column < 128; column++) {
            const uint32_t panel = (uint32_t)(column / 64 * 128 * 128);
            const uint32_t plain = panel + (uint32_t)(row * 128 + column % 64 * 2);
            CHECK_INT(ordo_tile_offset(128, row, column), swizzle(plain));
        }
}

/* Eight lines at one column lie in eight different sixteenths of a 128-byte row of banks. */
TEST(eight_lines_have_no_bank_conflict)
{
    for (int row = 0; row < 64; row += 8)
        for (int column = 0; column < 128; column += 8) {
            unsigned banks = 0;
            for (int r = 0; r < 8; r++)
                banks |= 1u << ordo_tile_offset(64, row + r, column) % 128 / 16;
            CHECK_INT(banks, 0xff);
        }
}

/* ---- descriptors ---- */

TEST(descriptors_have_the_known_words)
{
    CHECK_INT(ORDO_DESCRIPTOR_HIGH, 0x40000040);
    CHECK_INT(ordo_descriptor_low(0, 16), 0x00010000);
    CHECK_INT(ordo_descriptor_low(0x400, 16), 0x00010040);
    CHECK_INT(ordo_descriptor_low(0, 64 * 128), 0x02000000);
    CHECK_INT(ordo_descriptor_low(0, 80 * 128), 0x02800000);
    CHECK_INT(ordo_descriptor_low(0, 128 * 128), 0x04000000);
    CHECK_INT(ordo_descriptor_low(0, 176 * 128), 0x05800000);
    CHECK_INT(ordo_descriptor_low(0x38000, 128 * 128), 0x04003800);
}

/* The address field has 14 bits: the largest shared address must not reach the next field. */
TEST(descriptor_fields_do_not_meet)
{
    const uint32_t last = 1024 + 232448 - 1024;
    CHECK(last >> 4 < 1 << 14);
    CHECK_INT(ordo_descriptor_low(last, 192 * 128) & 0xffff, last >> 4);
    CHECK_INT(ordo_descriptor_low(last, 192 * 128) >> 16, 192 * 8);
}

/* What a product reads: the byte of element (line, k), for an operand whose columns are k ... */
static uint32_t read_by_columns(uint32_t low, int line, int k)
{
    const uint32_t start = (low & 0x3fff) << 4, groups = (ORDO_DESCRIPTOR_HIGH & 0x3fff) << 4;
    return swizzle(start + (uint32_t)(line / 8) * groups + (uint32_t)(line % 8 * 128 + k * 2));
}

/* ... and for one whose rows are k. */
static uint32_t read_by_rows(uint32_t low, int line, int k)
{
    const uint32_t start = (low & 0x3fff) << 4, groups = (ORDO_DESCRIPTOR_HIGH & 0x3fff) << 4;
    const uint32_t panels = (low >> 16 & 0x3fff) << 4;
    return swizzle(start + (uint32_t)(line / 64) * panels + (uint32_t)(k / 8) * groups +
                   (uint32_t)(k % 8 * 128 + line % 64 * 2));
}

TEST(slices_by_columns_read_the_tile)
{
    const uint32_t base = 0x2400;
    for (int rows = 64; rows <= 192; rows += 64)
        for (int slice64 = 0; slice64 < rows / 64; slice64++) {
            const uint32_t low = ordo_descriptor_low(base + (uint32_t)slice64 * 64 * 128, 16);
            for (int line = 0; line < 64; line++)
                for (int column = 0; column < 128; column++) {
                    const uint32_t at = low + ordo_slice_by_columns(rows, column / 16);
                    CHECK_INT(read_by_columns(at, line, column % 16),
                              base + ordo_tile_offset(rows, slice64 * 64 + line, column));
                }
        }
}

TEST(slices_by_rows_read_the_tile)
{
    const uint32_t base = 0x2400;
    for (int rows = 64; rows <= 192; rows += 64) {
        const uint32_t low = ordo_descriptor_low(base, (uint32_t)rows * 128);
        for (int row = 0; row < rows; row++)
            for (int column = 0; column < 128; column++)
                CHECK_INT(read_by_rows(low + ordo_slice_by_rows(row / 16), column, row % 16),
                          base + ordo_tile_offset(rows, row, column));
    }
}

/* ---- registers ---- */

TEST(accumulators_cover_64_x_n_once)
{
    for (int n = 64; n <= 256; n *= 2) {
        bool taken[64][256] = { { false } };
        for (int t = 0; t < THREADS; t++)
            for (int i = 0; i < n / 2; i++) {
                const int row = ordo_accumulator_row(t, i), column = ordo_accumulator_column(t, i);
                CHECK(row >= 0 && row < 64 && column >= 0 && column < n);
                CHECK(!taken[row][column]);
                taken[row][column] = true;
            }
    }
}

/* Register j of a 64 x 16 operand holds, low half first: rows of lane / 4, eight further if j is
 * odd; columns of lane % 4, eight further if j is 2 or 3. */
TEST(accumulators_are_register_operands)
{
    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < 8; k++)
            for (int j = 0; j < 4; j++)
                for (int half = 0; half < 2; half++) {
                    const int lane = t % 32, i = 8 * k + 2 * j + half;
                    CHECK_INT(ordo_accumulator_row(t, i), t / 32 * 16 + lane / 4 + j % 2 * 8);
                    CHECK_INT(ordo_accumulator_column(t, i),
                              16 * k + lane % 4 * 2 + j / 2 * 8 + half);
                }
}

/* stmatrix.x4 of slice k by one warp of a warpgroup. Lane 8j + r names line r of matrix j; lane
 * l holds elements 2 (l % 4) and the next of line l / 4, transposed: of column l / 4. */
static void store_matrices(uint16_t *tile, int warp, int k, bool transposed, const uint32_t *offset)
{
    for (int lane = 0; lane < 32; lane++)
        for (int j = 0; j < 4; j++)
            for (int half = 0; half < 2; half++) {
                const int t = warp % 4 * 32 + lane, i = 8 * k + 2 * j + half;
                const int value = (warp / 4 * 64 + ordo_accumulator_row(t, i)) * 128 +
                                  ordo_accumulator_column(t, i);
                const int along = lane % 4 * 2 + half, across = lane / 4;
                const int line = transposed ? along : across, element = transposed ? across : along;
                tile[offset[8 * j + line] / 2 + (uint32_t)element] = (uint16_t)value;
            }
}

/* 64 x 128 of one warpgroup, as O, dK and dV leave a kernel: the second and third warpgroup at
 * their rows of a taller tile. */
TEST(plain_stores_make_a_tile)
{
    for (int rows = 64; rows <= 192; rows += 64) {
        static uint16_t tile[TILE_BYTES_MAX / 2];
        for (int warp = 0; warp < rows / 16; warp++)
            for (int k = 0; k < 8; k++) {
                uint32_t offset[32];
                for (int lane = 0; lane < 32; lane++) {
                    offset[lane] = ordo_store_offset(rows, warp, lane, k);
                    const uint32_t at = 0x1c80 + ordo_store_offset(rows, warp, lane, 0);
                    CHECK_INT(ordo_store_slice(at, rows, k), 0x1c80 + offset[lane]);
                }
                store_matrices(tile, warp, k, false, offset);
            }
        for (int row = 0; row < rows; row++)
            for (int column = 0; column < 128; column++)
                CHECK_INT(tile[ordo_tile_offset(rows, row, column) / 2], row * 128 + column);
    }
}

/* A thread's columns 0, 1, 8, 9 .. counted one by one. */
TEST(columns_before_are_counted)
{
    for (int most = 16; most <= 32; most += 16)
        for (int x = -300; x < 300; x++) {
            int before = 0;
            for (int n = 0; n < most; n++)
                before += n / 2 * 8 + n % 2 < x;
            CHECK_INT(ordo_columns_before(x, most), before);
        }
    CHECK_INT(ordo_columns_before(1 << 30, 32), 32);
    CHECK_INT(ordo_columns_before(-(1 << 30), 32), 0);
}

/* dS: two warpgroups hold 128 keys x `rows` queries, the tile is queries x keys. */
TEST(transposed_stores_make_a_tile)
{
    for (int rows = 64; rows <= 128; rows += 64) {
        static uint16_t tile[TILE_BYTES_MAX / 2];
        for (int warp = 0; warp < 8; warp++)
            for (int k = 0; k < rows / 16; k++) {
                uint32_t offset[32];
                for (int lane = 0; lane < 32; lane++) {
                    offset[lane] = ordo_store_transposed_offset(rows, warp, lane, k);
                    const uint32_t at = ordo_store_transposed_offset(rows, warp, lane, 0);
                    CHECK_INT(ordo_store_transposed_slice(at, k), offset[lane]);
                }
                store_matrices(tile, warp, k, true, offset);
            }
        for (int query = 0; query < rows; query++)
            for (int key = 0; key < 128; key++)
                CHECK_INT(tile[ordo_tile_offset(rows, query, key) / 2], key * 128 + query);
    }
}

/* Each store of four matrices writes 512 bytes in four groups of eight lines: no group may touch
 * a bank twice. */
TEST(matrix_stores_have_no_bank_conflict)
{
    for (int transposed = 0; transposed < 2; transposed++)
        for (int warp = 0; warp < 4; warp++)
            for (int k = 0; k < 4; k++)
                for (int group = 0; group < 4; group++) {
                    unsigned banks = 0;
                    for (int r = 0; r < 8; r++) {
                        const int lane = group * 8 + r;
                        const uint32_t at = transposed
                                                ? ordo_store_transposed_offset(64, warp, lane, k)
                                                : ordo_store_offset(64, warp, lane, k);
                        CHECK_INT(at % 16, 0);
                        banks |= 1u << at % 128 / 16;
                    }
                    CHECK_INT(banks, 0xff);
                }
}

/* ---- dQ partials and row statistics ---- */

TEST(partials_go_out_and_come_back)
{
    static int half_tile[64 * 64];
    memset(half_tile, -1, sizeof half_tile);
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < 32; i++) {
            const int place = ordo_partial_offset(t, i);
            CHECK(place >= 0 && place < 64 * 64);
            CHECK_INT(half_tile[place], -1);
            half_tile[place] = ordo_accumulator_row(t, i) * 64 + ordo_accumulator_column(t, i);
        }
    bool seen[64 * 64] = { false };
    for (int place = 0; place < 64 * 64; place++)
        if (half_tile[place] >= 0)
            seen[half_tile[place]] = true;
    for (int x = 0; x < 64 * 64; x++)
        CHECK(seen[x]);
}

/* Four registers are one 16-byte store, and eight neighbours fill a row of banks. */
TEST(partials_are_stores_without_conflicts)
{
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < 32; i += 4) {
            CHECK_INT(ordo_partial_offset(t, i) % 4, 0);
            for (int e = 1; e < 4; e++)
                CHECK_INT(ordo_partial_offset(t, i + e), ordo_partial_offset(t, i) + e);
            CHECK_INT(ordo_partial_offset(t / 8 * 8, i) % 32, 0);
            CHECK_INT(ordo_partial_offset(t, i), ordo_partial_offset(t / 8 * 8, i) + t % 8 * 4);
        }
}

/* Scores are held transposed: a thread's accumulator columns are query rows, four of each 16. */
TEST(statistics_come_by_four)
{
    bool taken[128] = { false };
    for (int row = 0; row < 128; row++) {
        const int place = ordo_stat_place(row);
        CHECK(place >= 0 && place < 128 && !taken[place]);
        taken[place] = true;
    }
    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < 8; k++)
            for (int e = 0; e < 4; e++) {
                const int row = ordo_accumulator_column(t, 8 * k + e / 2 * 4 + e % 2);
                CHECK_INT(ordo_stat_place(row), 16 * k + t % 4 * 4 + e);
            }
}

/* ---- keep bits of accumulators whose rows are keys ---- */

TEST(keep_bits_of_keys_are_two_of_a_word)
{
    uint32_t words[ORDO_KEEP_WORDS], random = 1;
    for (uint32_t i = 0; i < ORDO_KEEP_WORDS; i++)
        words[i] = random = random * 1664525 + 1013904223;
    for (uint32_t slice = 0; slice < 8; slice++)
        for (uint32_t lane = 0; lane < 32; lane++)
            for (int i = 0; i < 8; i++) {
                const int key = 16 * (int)slice + ordo_accumulator_row((int)lane, i);
                const int query = ordo_accumulator_column((int)lane, i);
                const uint32_t at = ordo_keep_key_offset(lane) / 4 + i % 2 * 8 + i / 4 % 2;
                const uint32_t shift = ordo_keep_key_shift(slice, lane) - (i & 2 ? 16 : 0);
                CHECK_INT(words[at] << shift >> 31,
                          ordo_keep_stored(words, ORDO_KEEP_COLS, query, key));
            }
}

CHECK_MAIN()
