/* machine_test.c: memory levels of machine files, what theory prefers there, bytes on Hopper. */
#include "check.h"
#include "ordo/lab.h"
#include "plan/family_sm90.h"
#include "plan/forms.h"

static ordo_machine *machine(const char *name)
{
    ordo_machine *m = NULL;
    CHECK(ordo_machine_create(&m, name) == ORDO_OK);
    return m;
}

TEST(levels_of_h200)
{
    static const struct {
        const char *name;
        int64_t words;
        double dim;
    } rows[] = { { "registers", 65536, 256 }, { "shared", 116224, 341 }, { "L2", 31457280, 5609 } };
    ordo_machine *m = machine("h200");
    ordo_io_level level;
    bool end = false;
    for (int i = 0; i < 3; i++) {
        CHECK(ordo_io_level_at(m, ORDO_BF16, i, &level, &end) == ORDO_OK);
        CHECK(!end);
        CHECK_TEXT(level.name, rows[i].name);
        CHECK_INT(level.bytes / level.word_bytes, rows[i].words);
        CHECK_NEAR(level.small_dim, rows[i].dim, 1);
        CHECK(level.scratchpad == (i < 2));
    }
    CHECK(ordo_io_level_at(m, ORDO_BF16, 3, &level, &end) == ORDO_OK);
    CHECK(end);
    ordo_machine_destroy(m);
}

/* Where M < d^2 happens, device by device: words of two bytes, of four in registers and on CPUs. */
TEST(device_table)
{
    static const struct {
        const char *machine, *level;
        int64_t words;
        double dim;
    } rows[] = {
        { "h100", "shared", 116224, 341 },
        { "h200", "shared", 116224, 341 },
        { "h200", "registers", 65536, 256 },
        { "a100", "shared", 83456, 289 },
        { "rtx4090", "shared", 50688, 225 },
        { "gtx1060", "shared", 24576, 157 },
        { "zen4", "L1", 8192, 90.5 },
        { "sapphire-rapids", "L1", 12288, 111 },
        { "neoverse-v1", "L1", 16384, 128 },
        { "neoverse-v1", "L2", 262144, 512 },
        { "sapphire-rapids", "L2", 524288, 724 },
        { "ascend", "operand", 32768, 181 },
        { "neoverse-v1", "registers", 128, 11.3 },
        { "zen4", "registers", 512, 22.6 },
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ordo_machine *m = machine(rows[r].machine);
        const bool cpu = ordo_machine_family_of(m) == ORDO_MACHINE_CPU;
        ordo_io_level level = { 0 };
        bool end = false, found = false;
        for (int i = 0; !end && !found; i++) {
            CHECK(ordo_io_level_at(m, cpu ? ORDO_F32 : ORDO_BF16, i, &level, &end) == ORDO_OK);
            found = !end && strcmp(level.name, rows[r].level) == 0;
        }
        CHECK(found);
        CHECK_INT(level.bytes / level.word_bytes, rows[r].words);
        CHECK_NEAR(level.small_dim, rows[r].dim, 0.5);
        ordo_machine_destroy(m);
    }
}

/* FlashAttention-3 ships 64 x 128, 64 x 96 and 64 x 80 for 128, 192 and 256. */
TEST(hopper_tiles_and_bytes)
{
    static const struct {
        int64_t d, cols;
        double add, rmw, apart, phase;
    } rows[] = {
        { 128, 128, 8, 12, 6, 14 },  { 192, 96, 16, 24, 12, 19 },   { 256, 80, 26, 38, 21, 24 },
        { 384, 56, 55, 82, 51, 51 }, { 512, 40, 102, 154, 83, 66 }, { 576, 32, 144, 216, 108, 74 },
    };
    ordo_machine *m = machine("h200");
    ordo_io_bytes b;
    int64_t crossover = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(ordo_io_hopper(m, rows[i].d, &b) == ORDO_OK);
        CHECK_INT(b.tile_q, 64);
        CHECK_INT(b.tile_k, rows[i].cols);
        CHECK_NEAR(b.flash_reduce, rows[i].add, 0.51);
        CHECK_NEAR(b.flash_rmw, rows[i].rmw, 0.51);
        CHECK_NEAR(b.apart, rows[i].apart, 0.51);
        CHECK_NEAR(b.phase, rows[i].phase, 0.51);
    }
    for (int64_t d = 64; d <= 576 && crossover == 0; d += 64)
        if (ordo_io_hopper(m, d, &b) == ORDO_OK && b.phase <= b.apart && b.phase <= b.flash_reduce)
            crossover = d;
    CHECK_INT(crossover, 384);
    ordo_machine_destroy(m);
    m = machine("a100");
    CHECK_REFUSED(ordo_io_hopper(m, 128, &b), ORDO_ERR_UNSUPPORTED, "a100");
    ordo_machine_destroy(m);
}

static ordo_io_words closed_form(int64_t d, ordo_io_algorithm algorithm, ordo_io_tiles tiles)
{
    ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
    ordo_io_words words = { 0 };
    p.pass = ORDO_IO_BACKWARD;
    p.q_len = p.kv_len = 1 << 16;
    p.head_dim = p.v_head_dim = d;
    p.heads = p.kv_heads = 1;
    p.cache_words = 1 << 22; /* the tiles are given */
    p.strip = 16;
    CHECK(ordo_io_predict(&p, algorithm, &tiles, &words) == ORDO_OK);
    return words;
}

/* The planner's bytes per score are the words of the closed forms with the same tiles: two bytes an
 * element, four of dq, whose stores are those of flash. What is left is moved once per row. Where
 * 256 columns do not divide the head size, the planner counts their share, and not whole tiles. */
TEST(planner_counts_what_the_closed_forms_count)
{
    static const int64_t dims[] = { 128, 192, 256, 320, 384, 448, 512, 576 };
    const double scores = 0x1p32;
    ordo_machine *m = machine("h200");
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        ordo_io_bytes b;
        CHECK(ordo_io_hopper(m, dims[i], &b) == ORDO_OK);
        const ordo_io_words flash =
            closed_form(dims[i], ORDO_IO_FLASH, (ordo_io_tiles) { .rows = 64, .cols = b.tile_k });
        const double dq = (double)flash.stores, once = 0.01;
        const double streamed = 2 * ((double)flash.loads - dq);
        CHECK_NEAR((streamed + 4 * dq) / scores / b.flash_reduce, 1, once);
        CHECK_NEAR((streamed + 8 * dq) / scores / b.flash_rmw, 1, once);
        const ordo_io_words apart = closed_form(
            dims[i], ORDO_IO_APART,
            (ordo_io_tiles) {
                .rows = 64, .cols = b.tile_k, .out_rows = b.apart_rows, .out_cols = 32 });
        CHECK_NEAR(2.0 * (double)(apart.loads + apart.stores) / scores / b.apart, 1, 1.5 * once);
        const ordo_io_words phase = closed_form(
            dims[i], ORDO_IO_PHASE,
            (ordo_io_tiles) {
                .rows = 128, .cols = 256, .out_rows = 128, .out_keys = 128, .out_cols = 256 });
        if (!ordo_io_chained(dims[i], dims[i])) /* chains: lab/tests/io/chains_test.c */
            CHECK_NEAR(2.0 * (double)(phase.loads + phase.stores) / scores / b.phase, 1,
                       dims[i] % 256 == 0 ? once : 0.2);
        const ordo_form_counts counts = ordo_forms_count(dims[i], dims[i], ORDO_SM90_SHARED);
        const ordo_form form = ordo_form_choose(&counts, dims[i]); /* the form that plans use */
        CHECK(b.used == (form == ORDO_FORM_PHASE   ? ORDO_IO_PHASE
                         : form == ORDO_FORM_APART ? ORDO_IO_APART
                                                   : ORDO_IO_FLASH));
        CHECK(b.fewest == (dims[i] > 320 || dims[i] == 256 ? ORDO_IO_PHASE : ORDO_IO_FLASH));
    }
    ordo_machine_destroy(m);
}

/* Rates at most: flash is bound by the tensor cores at 128 and by L2 above; apart computes seven
 * products for five; at 512 phase is the fastest, by 66 bytes at L2's rate. */
TEST(rates_of_the_forms)
{
    ordo_machine *m = machine("h200");
    ordo_io_bytes b;
    const double tensor = 132 * 1.58e9 * 4096, l2 = 9.017e12;
    CHECK(ordo_io_hopper(m, 128, &b) == ORDO_OK);
    CHECK_NEAR(b.flash_flops / tensor, 1, 1e-9);
    CHECK_NEAR(b.apart_flops / (tensor * 5 / 7), 1, 1e-9);
    CHECK_NEAR(b.phase_flops / (l2 * 1280 / 14), 1, 1e-9);
    CHECK(ordo_io_hopper(m, 512, &b) == ORDO_OK);
    CHECK_NEAR(b.flash_flops / (l2 * 5120 / 102.4), 1, 1e-9);
    CHECK_NEAR(b.phase_flops / (l2 * 5120 / 66), 1, 1e-9);
    CHECK(b.phase_flops > b.apart_flops && b.apart_flops > b.flash_flops);
    /* Values of 512 columns: 3 products of 576 and 2 of 512; apart computes S and dP twice. */
    CHECK(ordo_io_hopper_pair(m, 576, 512, &b) == ORDO_OK);
    CHECK_NEAR(b.phase_flops / (l2 * 2 * 2752 / 70.5), 1, 1e-9);
    CHECK_NEAR(b.flop_per_byte_flash, 2 * 2752 / 140.0, 1e-9);
    CHECK(ordo_io_hopper_pair(m, 128, 64, &b) == ORDO_OK);
    CHECK_NEAR(b.apart_flops / (tensor * 512 / 704), 1, 1e-9);
    CHECK(b.used == ORDO_IO_FLASH);
    CHECK(ordo_io_hopper_pair(m, 64, 192, &b) == ORDO_OK);
    CHECK(b.used == ORDO_IO_PHASE);
    CHECK_REFUSED(ordo_io_hopper_pair(m, 128, 0, &b), ORDO_ERR_ARGUMENT, "v_head_dim 0");
    ordo_machine_destroy(m);
}

/* Words per score at n = 8192, from an independent prototype (its mode "dev"). */
TEST(reference_predictions)
{
    static const struct {
        int64_t m, d;
        double flash, mat, fused, back_flash, apart, phase, back_fused;
    } rows[] = {
        { 116224, 256, 2.38, 4.16, 3.69, 9.42, 8.36, 11.0, 12.7 },
        { 116224, 512, 9.38, 7.31, 7.38, 37.6, 32.7, 19.0, 25.3 },
        { 50688, 256, 5.38, 5.69, 5.63, 21.6, 19.0, 14.7, 19.3 },
        { 16384, 128, 4.19, 5.09, 4.98, 16.7, 14.7, 13.3, 17.1 },
        { 16384, 256, 16.6, 9.19, 9.97, 68.7, 60.2, 23.5, 34.2 },
    };
    static const ordo_io_algorithm forward[] = { ORDO_IO_FLASH, ORDO_IO_MAT, ORDO_IO_FUSED };
    static const ordo_io_algorithm backward[] = { ORDO_IO_FLASH, ORDO_IO_APART, ORDO_IO_PHASE,
                                                  ORDO_IO_FUSED };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const double wanted[7] = { rows[r].flash,      rows[r].mat,   rows[r].fused,
                                   rows[r].back_flash, rows[r].apart, rows[r].phase,
                                   rows[r].back_fused };
        for (int i = 0; i < 7; i++) {
            ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
            ordo_io_words words;
            p.pass = i < 3 ? ORDO_IO_FORWARD : ORDO_IO_BACKWARD;
            p.q_len = 8192;
            p.head_dim = rows[r].d;
            p.cache_words = rows[r].m;
            CHECK(ordo_io_predict(&p, i < 3 ? forward[i] : backward[i - 3], NULL, &words) ==
                  ORDO_OK);
            const double got = (double)(words.loads + words.stores) / (8192.0 * 8192);
            CHECK_NEAR(got, wanted[i], 0.006 * wanted[i]);
        }
    }
}

TEST(advice)
{
    ordo_problem p = ORDO_PROBLEM_INIT;
    ordo_io_advice advice;
    bool end;
    ordo_machine *m = machine("h200");
    p.dtype = ORDO_BF16;
    p.batch = 2;
    p.heads = 8;
    p.kv_heads = 2;
    p.q_len = 8192;
    p.head_dim = 128;
    CHECK(ordo_io_advise(m, &p, ORDO_IO_BACKWARD, 1, &advice, &end) == ORDO_OK);
    CHECK(!end && advice.fits);
    CHECK(advice.choice.algorithm == ORDO_IO_APART || advice.choice.algorithm == ORDO_IO_FLASH);
    CHECK(advice.ns > 0);
    const double one = advice.bytes;
    p.batch = 4;
    CHECK(ordo_io_advise(m, &p, ORDO_IO_BACKWARD, 1, &advice, &end) == ORDO_OK);
    CHECK_NEAR(advice.bytes, 2 * one, 1);
    p.head_dim = 512; /* M = 0.44 d^2 */
    CHECK(ordo_io_advise(m, &p, ORDO_IO_BACKWARD, 1, &advice, &end) == ORDO_OK);
    CHECK_INT(advice.choice.algorithm, ORDO_IO_PHASE);
    CHECK(advice.choice.words.workspace < 8192 * (int64_t)8192);
    p.kv_len = ORDO_NO_KEYS;
    CHECK_REFUSED(ordo_io_advise(m, &p, ORDO_IO_BACKWARD, 1, &advice, &end), ORDO_ERR_UNSUPPORTED,
                  "kv_len 0: expected 1 or more");
    ordo_machine_destroy(m);
}

CHECK_MAIN()
