/* cache_test.c: caches against each other and against plain definitions; the LRU cliff; speed. */
#include <time.h>

#include "io/cache.h"
#include "random_io.h"

/* ---- caches on random accesses ---- */

enum { WORDS = 256, ACCESSES = 4000 };

static void random_accesses(uint32_t *accesses, size_t count, uint64_t *random)
{
    uint32_t at = 0;
    for (size_t i = 0; i < count; i++) {
        at = check_between(random, 0, 3) ? (uint32_t)((at + check_random(random) % 8) % WORDS)
                                         : (uint32_t)(check_random(random) % WORDS);
        accesses[i] = at << 1 | (uint32_t)(check_random(random) % 3 == 0);
    }
}

static const ordo_io_extent memory = { WORDS, WORDS * 3 / 4 };

static void lru_counts(const uint32_t *accesses, int64_t words, int64_t line, int64_t ways,
                       int64_t *fills, int64_t *writebacks)
{
    ordo_io_lru lru;
    CHECK(ordo_io_lru_create(&lru, memory, words, line, ways, NULL) == ORDO_OK);
    ordo_io_lru_take(&lru, accesses, ACCESSES);
    ordo_io_lru_finish(&lru);
    *fills = lru.fills;
    *writebacks = lru.writebacks;
    ordo_io_lru_destroy(&lru);
}

/* One pass of the stack gives what LRU caches of every size give one by one. */
TEST(stack_equals_lru_of_every_size)
{
    uint64_t random = 3;
    for (int64_t line = 1; line <= 8; line *= 2) {
        uint32_t accesses[ACCESSES];
        ordo_io_words curve[WORDS];
        ordo_io_stack *stack;
        random_accesses(accesses, ACCESSES, &random);
        const int64_t most = line == 2 ? 20 : WORDS; /* distances beyond the end, too */
        CHECK(ordo_io_stack_create(&stack, memory, line, most) == ORDO_OK);
        ordo_io_stack_take(stack, accesses, ACCESSES);
        CHECK(ordo_io_stack_finish(stack, curve) == ORDO_OK);
        ordo_io_stack_destroy(stack);
        for (int64_t c = 1; c <= most; c++) {
            int64_t fills, writebacks;
            lru_counts(accesses, c * line, line, 0, &fills, &writebacks);
            CHECK_INT(curve[c - 1].loads, fills * line);
            CHECK_INT(curve[c - 1].stores, writebacks * line);
            if (c > 1)
                CHECK(curve[c - 1].loads <= curve[c - 2].loads);
        }
    }
}

/* A cache of one set is fully associative. */
TEST(one_set_is_fully_associative)
{
    uint64_t random = 4;
    uint32_t accesses[ACCESSES];
    random_accesses(accesses, ACCESSES, &random);
    for (int64_t lines = 1; lines <= 64; lines *= 2) {
        int64_t fills[2], writebacks[2];
        lru_counts(accesses, 4 * lines, 4, 0, &fills[0], &writebacks[0]);
        lru_counts(accesses, 4 * lines, 4, lines, &fills[1], &writebacks[1]);
        CHECK_INT(fills[0], fills[1]);
        CHECK_INT(writebacks[0], writebacks[1]);
    }
}

/* Fills of the optimum by trying every eviction. */
static int best_fills(const uint32_t *lines, int count, uint32_t held, int room)
{
    int fills = 0;
    for (int i = 0; i < count; i++) {
        const uint32_t bit = 1u << lines[i];
        if (held & bit)
            continue;
        fills++;
        if (__builtin_popcount(held) < room) {
            held |= bit;
            continue;
        }
        int least = count;
        for (int out = 0; out < 8; out++)
            if (held >> out & 1) {
                const int rest =
                    best_fills(lines + i + 1, count - i - 1, (held & ~(1u << out)) | bit, room);
                least = rest < least ? rest : least;
            }
        return fills + least;
    }
    return fills;
}

TEST(optimum_is_optimal)
{
    uint64_t random = 5;
    for (int i = 0; i < 300; i++) {
        enum { COUNT = 14 };
        uint32_t lines[COUNT], accesses[COUNT];
        for (int k = 0; k < COUNT; k++) {
            lines[k] = (uint32_t)check_between(&random, 0, 5);
            accesses[k] = lines[k] << 1;
        }
        ordo_io_trace trace = { 0 };
        int64_t fills, writebacks;
        ordo_io_trace_take(&trace, accesses, COUNT);
        const int room = (int)check_between(&random, 1, 4);
        CHECK(ordo_io_optimum(&trace, (ordo_io_extent) { 8, 8 }, room, &fills, &writebacks) ==
              ORDO_OK);
        CHECK_INT(fills, best_fills(lines, COUNT, 0, room));
        CHECK_INT(writebacks, 0);
        ordo_io_trace_release(&trace);
    }
}

/* ---- algorithms through caches ---- */

static double through(const ordo_io_problem *p, ordo_io_algorithm a, ordo_io_cache c)
{
    ordo_io_report r;
    if (ordo_io_cache_run(p, a, NULL, &c, &r, NULL) != ORDO_OK)
        return NAN;
    CHECK(r.error < 1e-12);
    return (double)(r.loads + r.stores);
}

static double explicit_words(const ordo_io_problem *p, ordo_io_algorithm a)
{
    ordo_io_words w;
    CHECK(ordo_io_predict(p, a, NULL, &w) == ORDO_OK);
    return (double)(w.loads + w.stores);
}

/* Results do not depend on the cache; more memory never fills more; the optimum fills least; what
 * leaves the second level of a chain is no more than what leaves the first. */
TEST(algorithms_through_caches)
{
    for (int pass = ORDO_IO_FORWARD; pass <= ORDO_IO_BACKWARD; pass++)
        for (int a = 1; a <= ORDO_IO_ALGORITHM_COUNT; a++)
            for (int packed = 0; packed < 2; packed++) {
                const ordo_io_problem p = io_attention((ordo_io_pass)pass, 40, 16, 256);
                ordo_io_cache c = ORDO_IO_CACHE_INIT;
                ordo_io_report lru, opt, chain, curve;
                ordo_io_words inner, sizes[512];
                c.replacement = ORDO_IO_LRU;
                c.budget = 0.85;
                c.packed = packed;
                if (ordo_io_cache_run(&p, (ordo_io_algorithm)a, NULL, &c, &lru, NULL) != ORDO_OK)
                    continue;
                CHECK(lru.error < 1e-12);
                CHECK(ordo_io_curve(&p, (ordo_io_algorithm)a, &lru.tiles, 1, packed, sizes, 512,
                                    &curve) == ORDO_OK);
                CHECK_INT(sizes[255].loads + sizes[255].stores, lru.loads + lru.stores);
                for (int i = 1; i < 512; i++)
                    CHECK(sizes[i].loads <= sizes[i - 1].loads);
                c.replacement = ORDO_IO_OPT;
                CHECK(ordo_io_cache_run(&p, (ordo_io_algorithm)a, NULL, &c, &opt, NULL) == ORDO_OK);
                CHECK(opt.loads <= lru.loads);
                c.replacement = ORDO_IO_LRU;
                c.outer_words = 1024;
                CHECK(ordo_io_cache_run(&p, (ordo_io_algorithm)a, NULL, &c, &chain, &inner) ==
                      ORDO_OK);
                CHECK_INT(inner.loads, lru.loads);
                CHECK_INT(inner.stores, lru.stores);
                CHECK(chain.loads <= inner.loads);
            }
}

/* Rows of an independent prototype. Of tiles that move equally many words staged, it may choose
 * others, which do not move equally many through a cache: so they agree to 6 %, most to the digit.
 */
TEST(known_rows)
{
    static const ordo_io_algorithm columns[7] = { ORDO_IO_FLASH, ORDO_IO_MAT,   ORDO_IO_FUSED,
                                                  ORDO_IO_FLASH, ORDO_IO_APART, ORDO_IO_PHASE,
                                                  ORDO_IO_FUSED };
    char path[1024], line[256];
    const char *source = getenv("ORDO_SOURCE");
    int rows = 0, same = 0;
    snprintf(path, sizeof path, "%s/lab/tests/io/lru_rows.txt", source ? source : ".");
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file)) {
        char *at = line;
        ordo_io_cache c = ORDO_IO_CACHE_INIT;
        if (line[0] == '#')
            continue;
        const int64_t m = strtoll(at, &at, 10);
        c.replacement = ORDO_IO_LRU;
        c.budget = 0.85;
        rows++;
        for (int i = 0; i < 7; i++) {
            const double wanted = strtod(at, &at);
            const ordo_io_problem p =
                io_attention(i < 3 ? ORDO_IO_FORWARD : ORDO_IO_BACKWARD, 96, 32, m);
            const double got = through(&p, columns[i], c) / (96.0 * 96);
            CHECK(isnan(got) == (wanted == 0));
            if (wanted != 0)
                CHECK_NEAR(got, wanted, 0.06 * wanted);
            same += fabs(got - wanted) <= 0.0051;
        }
    }
    CHECK_INT(rows, 6);
    CHECK(same >= 20);
    if (file)
        fclose(file);
}

/* Tiles that fill M exactly are fine in a scratchpad; under LRU the strip that just died is still
 * more recent than the block needed next. A budget of 0.85 M avoids it. */
TEST(lru_cliff_and_budget)
{
    const int64_t n = 128, d = 32;
    static const ordo_io_algorithm backward[] = { ORDO_IO_APART, ORDO_IO_PHASE };
    ordo_io_cache exact = ORDO_IO_CACHE_INIT, careful = ORDO_IO_CACHE_INIT;
    exact.replacement = careful.replacement = ORDO_IO_LRU;
    careful.budget = 0.85;
    for (size_t i = 0; i < 2; i++) {
        const ordo_io_problem p = io_attention(ORDO_IO_BACKWARD, n, d, d * d);
        const double words = explicit_words(&p, backward[i]);
        const double cliff = through(&p, backward[i], exact) / words;
        const double budget = through(&p, backward[i], careful) / words;
        printf("  %s: %.1f of the explicit count, with budget %.2f\n",
               ordo_io_algorithm_name(backward[i]), cliff, budget);
        CHECK(cliff > 4);
        CHECK(budget < 1.5);
    }
}

/* Below d^2 the phase form moves fewer words than flash through LRU as well, above 2 d^2 more. */
TEST(crossover_survives_lru)
{
    const int64_t n = 128, d = 32;
    ordo_io_cache c = ORDO_IO_CACHE_INIT;
    c.replacement = ORDO_IO_LRU;
    c.budget = 0.85;
    for (int f = 1; f <= 16; f *= 2) { /* M / d^2 = f / 4 */
        const ordo_io_problem p = io_attention(ORDO_IO_BACKWARD, n, d, f * d * d / 4);
        const double phase = through(&p, ORDO_IO_PHASE, c);
        const double flash = fmin(through(&p, ORDO_IO_FLASH, c), through(&p, ORDO_IO_APART, c));
        printf("  M = %.2f d^2: phase %.2f, flash %.2f n^2\n", f / 4.0, phase / (double)(n * n),
               flash / (double)(n * n));
        if (f <= 2)
            CHECK(phase < flash);
        if (f >= 8)
            CHECK(phase > flash);
    }
}

/* Long lines and few ways ruin thin strips; wide strips, packed, bring most of it back. */
TEST(lines_and_packing)
{
    ordo_io_problem p = io_attention(ORDO_IO_BACKWARD, 96, 64, 64 * 64 / 4);
    ordo_io_cache thin = ORDO_IO_CACHE_INIT;
    thin.replacement = ORDO_IO_ASSOC;
    thin.line = 8;
    thin.ways = 8;
    thin.budget = 0.5;
    const double bad = through(&p, ORDO_IO_PHASE, thin);
    p.strip = 8;
    thin.packed = true;
    const double good = through(&p, ORDO_IO_PHASE, thin);
    printf("  phase, lines of 8, 8 ways: %.0f n^2 thin, %.0f n^2 wide and packed\n",
           bad / (96.0 * 96), good / (96.0 * 96));
    CHECK(good < bad / 2);
}

/* ---- speed ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a cache cannot be asked for is refused before anything runs. */
TEST(refusals)
{
    const ordo_io_problem small = io_attention(ORDO_IO_FORWARD, 16, 8, 64);
    const ordo_io_problem large = io_attention(ORDO_IO_BACKWARD, 1 << 13, 128, 1 << 10);
    ordo_io_cache c = ORDO_IO_CACHE_INIT;
    ordo_io_report r;
    c.replacement = ORDO_IO_OPT;
    const double budgets[] = { -1, -1e-300, 16.5, INFINITY, NAN };
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        c.budget = budgets[i];
        CHECK(ordo_io_cache_run(&small, ORDO_IO_FLASH, NULL, &c, &r, NULL) == ORDO_ERR_ARGUMENT);
        CHECK(strstr(ordo_last_error(), "budget") != NULL);
    }
    c.budget = 0;
    CHECK(ordo_io_cache_run(&small, ORDO_IO_FLASH, NULL, &c, &r, NULL) == ORDO_OK);
    const double start = now(); /* the trace would take minutes */
    CHECK(ordo_io_cache_run(&large, ORDO_IO_FLASH, NULL, &c, &r, NULL) == ORDO_ERR_UNSUPPORTED);
    CHECK(strstr(ordo_last_error(), "a trace holds 268435456") != NULL);
    CHECK(now() - start < 5);
}

/* The rates are printed: lab/docs/results.md holds those of a quiet core. A shared core can be many
 * times slower, so only a rate that an algorithm of another order would have is a failure. */
TEST(speed)
{
    const ordo_io_problem p = io_attention(ORDO_IO_BACKWARD, 192, 64, 64 * 64);
    ordo_io_cache c = ORDO_IO_CACHE_INIT;
    ordo_io_report r;
    c.replacement = ORDO_IO_LRU;
    c.budget = 0.85;
    double start = now();
    CHECK(ordo_io_cache_run(&p, ORDO_IO_PHASE, NULL, &c, &r, NULL) == ORDO_OK);
    const double lru = (double)r.accesses / (now() - start);
    enum { COUNT = 1 << 15 };
    ordo_io_words *curve = malloc(COUNT * sizeof *curve);
    start = now();
    CHECK(ordo_io_curve(&p, ORDO_IO_PHASE, &r.tiles, 1, false, curve, COUNT, &r) == ORDO_OK);
    const double stack = (double)r.accesses / (now() - start);
    printf("  %.0f million accesses: LRU %.1f, stack %.1f million a second\n",
           1e-6 * (double)r.accesses, 1e-6 * lru, 1e-6 * stack);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(lru > 2e6);
    CHECK(stack > 1e6);
#endif
    free(curve);
}

CHECK_MAIN()
