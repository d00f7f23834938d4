/* words_test.c: counted words equal the closed forms and the known answers; results are the
 * oracle's. */
#include "random_io.h"

/* Answers of an independent prototype; lab/tests/io/anchors.txt says how they were made. */
typedef struct anchor {
    int64_t n, d;
    bool causal;
    int64_t m;
    ordo_io_pass pass;
    ordo_io_algorithm algorithm;
    ordo_io_tiles tiles;
    int64_t loads, stores, peak;
} anchor;

static bool read_anchor(FILE *file, anchor *a)
{
    char line[256], pass[16], name[16];
    int causal;
    while (fgets(line, sizeof line, file)) {
        ordo_io_tiles *t = &a->tiles;
        *a = (anchor) { 0 };
        if (line[0] == '#')
            continue;
        const int got =
            sscanf(line,
                   "%" SCNd64 "%" SCNd64 "%d%" SCNd64 "%15s%15s%" SCNd64 "%" SCNd64 "%" SCNd64
                   "%" SCNd64 "%" SCNd64 "%" SCNd64 "%" SCNd64 "%" SCNd64,
                   &a->n, &a->d, &causal, &a->m, pass, name, &t->rows, &t->cols, &t->out_rows,
                   &t->out_keys, &t->out_cols, &a->loads, &a->stores, &a->peak);
        CHECK_INT(got, 14);
        a->causal = causal != 0;
        a->pass = strcmp(pass, "forward") == 0 ? ORDO_IO_FORWARD : ORDO_IO_BACKWARD;
        CHECK(ordo_io_algorithm_from_name(name, &a->algorithm) == ORDO_OK);
        return true;
    }
    return false;
}

TEST(known_answers)
{
    char path[1024];
    const char *source = getenv("ORDO_SOURCE");
    snprintf(path, sizeof path, "%s/lab/tests/io/anchors.txt", source ? source : ".");
    FILE *file = fopen(path, "r");
    int rows = 0;
    CHECK(file != NULL);
    for (anchor a; file && read_anchor(file, &a); rows++) {
        ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
        ordo_io_report r;
        p.pass = a.pass;
        p.q_len = a.n;
        p.head_dim = a.d;
        p.mask = a.causal ? ORDO_MASK_CAUSAL : ORDO_MASK_FULL;
        p.cache_words = a.m;
        CHECK(ordo_io_run(&p, a.algorithm, &a.tiles, &r) == ORDO_OK);
        CHECK_INT(r.loads, a.loads);
        CHECK_INT(r.stores, a.stores);
        CHECK_INT(r.peak, a.peak);
        CHECK_INT(r.predicted.loads, a.loads);
        CHECK_INT(r.predicted.stores, a.stores);
        CHECK(r.error < 1e-12);
    }
    CHECK_INT(rows, 31);
    if (file)
        fclose(file);
}

TEST(random_problems)
{
    uint64_t random = 20261115;
    double worst = 0;
    int runs = 0;
    for (int i = 0; i < 150; i++) {
        io_case c;
        io_random_case(&c, &random, 40, 16);
        runs += io_check_case(&c, &random, &worst);
    }
    printf("  %d runs, largest error %.1e\n", runs, worst);
    CHECK(runs > 1500);
}

/* Counts by tensor and by loop both add up to the whole. */
TEST(tensors_and_phases_add_up)
{
    ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
    p.pass = ORDO_IO_BACKWARD;
    p.q_len = 33;
    p.head_dim = 8;
    p.cache_words = 60;
    for (int a = 1; a <= ORDO_IO_ALGORITHM_COUNT; a++) {
        ordo_io_report r;
        int64_t loads[2] = { 0 }, stores[2] = { 0 };
        if (ordo_io_run(&p, (ordo_io_algorithm)a, NULL, &r) != ORDO_OK)
            continue;
        for (int i = 0; i < ORDO_IO_TENSORS && r.tensors[i].name; i++) {
            loads[0] += r.tensors[i].loads;
            stores[0] += r.tensors[i].stores;
        }
        for (int i = 0; i < ORDO_IO_LOOPS && r.loops[i].name; i++) {
            loads[1] += r.loops[i].loads;
            stores[1] += r.loops[i].stores;
        }
        for (int by = 0; by < 2; by++) {
            CHECK_INT(loads[by], r.loads);
            CHECK_INT(stores[by], r.stores);
        }
    }
}

/* The paper's gradient; totals no worse than the prototype's with its own tiles. */
TEST(gradient_of_the_paper)
{
    static const struct {
        int64_t n, d, m, phase, flash; /* loads + stores; 0: not run there */
    } rows[] = {
        { 40, 12, 60, 35888 + 5824, 0 },
        { 40, 12, 144, 21672 + 5824, 29072 + 2624 },
        { 64, 16, 600, 36288 + 13696, 30848 + 5504 },
        { 37, 11, 400, 13397 + 4968, 9919 + 2230 },
        { 96, 24, 300, 161664 + 30720, 275520 + 12288 },
        { 128, 16, 2048, 96128 + 43520, 48384 + 10752 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
        ordo_io_words words;
        double worst = 0;
        p.pass = ORDO_IO_GRADIENT;
        p.q_len = rows[i].n;
        p.head_dim = rows[i].d;
        p.cache_words = rows[i].m;
        CHECK(io_check_run(&p, ORDO_IO_PHASE, NULL, &worst));
        CHECK(ordo_io_predict(&p, ORDO_IO_PHASE, NULL, &words) == ORDO_OK);
        CHECK(words.loads + words.stores <= rows[i].phase);
        if (rows[i].flash == 0)
            continue;
        CHECK(io_check_run(&p, ORDO_IO_FLASH, NULL, &worst));
        CHECK(ordo_io_predict(&p, ORDO_IO_FLASH, NULL, &words) == ORDO_OK);
        CHECK(words.loads + words.stores <= rows[i].flash);
    }
}

/* A block mask costs per live tile: with aligned tiles, density times the dense tiles. */
TEST(blocks_cost_per_live_tile)
{
    static const uint8_t blocks[16] = { 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 1 };
    ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
    ordo_io_words words;
    double worst = 0;
    const ordo_io_tiles tiles = { .rows = 16, .cols = 16 };
    p.pass = ORDO_IO_FORWARD;
    p.q_len = 64;
    p.head_dim = 32;
    p.cache_words = 400;
    p.blocks = blocks;
    p.block_q = p.block_k = 16;
    CHECK(io_check_run(&p, ORDO_IO_FUSED, &tiles, &worst));
    CHECK(ordo_io_predict(&p, ORDO_IO_FUSED, &tiles, &words) == ORDO_OK);
    /* Seven live tiles: q, k, v strips each; o comes back for all but the first of a row. */
    CHECK_INT(words.loads, 7 * 3 * 16 * 32 + (7 - 4) * 16 * 32);
    CHECK_INT(words.stores, 7 * 16 * 32 + 64);
}

TEST(a_pass_has_what_can_be_chosen)
{
    for (int pass = ORDO_IO_FORWARD; pass <= ORDO_IO_GRADIENT; pass++)
        for (int a = ORDO_IO_NAIVE; a <= ORDO_IO_ALGORITHM_COUNT; a++) {
            ordo_io_problem p = ORDO_IO_PROBLEM_INIT;
            ordo_io_choice choice;
            p.pass = (ordo_io_pass)pass;
            p.q_len = 64;
            p.head_dim = 16;
            p.cache_words = 1 << 16;
            const ordo_status status = ordo_io_choose(&p, (ordo_io_algorithm)a, NULL, &choice);
            CHECK_INT(ordo_io_has((ordo_io_pass)pass, (ordo_io_algorithm)a), status == ORDO_OK);
        }
    CHECK(!ordo_io_has(ORDO_IO_FORWARD, ORDO_IO_BEST));
    CHECK(!ordo_io_has((ordo_io_pass)0, ORDO_IO_FLASH));
    CHECK(!ordo_io_has((ordo_io_pass)(ORDO_IO_GRADIENT + 1), ORDO_IO_FLASH));
}

CHECK_MAIN()
