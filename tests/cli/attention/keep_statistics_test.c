/* keep_statistics_test.c: keep bits of 7 and 10 rounds pass the battery on 2^22 bits and more; the
 * same battery finds 3 rounds out. Seeds are fixed, so the numbers are the same in every run. */
#include "attention/keep_statistics.c" /* NOLINT(bugprone-suspicious-include) */
#include "check.h"

/* 4 heads of 1024 x 1024: 2^22 elements, and about as many pairs of each kind. */
static ordo_problem square(int rounds, int bits, double p)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    problem.batch = 1;
    problem.heads = 4;
    problem.q_len = 1024;
    problem.head_dim = 8;
    problem.dropout = (ordo_dropout) { .p = p, .rounds = rounds, .bits = bits };
    return problem;
}

static cli_keep_statistics measure(const ordo_problem *p, uint64_t seed, int experiment)
{
    cli_keep_statistics s;
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    call.seed = seed;
    call.offset = 7;
    call.experiment_rounds = experiment;
    const ordo_status status = cli_keep_measure(p, &call, &s);
    if (status != ORDO_OK)
        CHECK_FAIL("%s: %s", ordo_status_name(status), ordo_last_error());
    return s;
}

static void check_clean(const cli_keep_statistics *s, const char *what)
{
    CHECK(s->enough && fabs(s->z) < CLI_RATE_LIMIT);
    if (!(fabs(s->z) < CLI_RATE_LIMIT))
        printf("  %s: keep rate z %.2f\n", what, s->z);
    for (int i = 0; i < CLI_LAGS; i++) {
        CHECK(s->lags[i].enough);
        if (!(fabs(s->lags[i].z) < CLI_LAG_LIMIT))
            CHECK_FAIL("%s: %s z %.2f", what, cli_lag_name((cli_lag)i), s->lags[i].z);
    }
    const char *which;
    CHECK(!cli_keep_suspicious(s, &which));
    CHECK(which == NULL);
}

TEST(seven_rounds_and_more_look_independent)
{
    static const struct {
        int rounds, bits;
        double p;
    } cases[] = { { 7, 8, 0.1 }, { 10, 8, 0.1 }, { 7, 4, 0.125 }, { 7, 16, 0.1 }, { 7, 1, 0.5 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint64_t seed = 1; seed <= 2; seed++) {
            char what[64];
            snprintf(what, sizeof what, "%d rounds, %d bits, p %g, seed %d", cases[i].rounds,
                     cases[i].bits, cases[i].p, (int)seed);
            const ordo_problem p = square(cases[i].rounds, cases[i].bits, cases[i].p);
            const cli_keep_statistics s = measure(&p, seed, 0);
            CHECK_INT(s.info.elements, 1 << 22);
            check_clean(&s, what);
        }
}

TEST(the_bits_of_fa2_look_independent)
{
    ordo_problem p = square(0, 0, 0.1);
    p.dropout.keying = ORDO_KEYING_FA2;
    const cli_keep_statistics s = measure(&p, 3, 0);
    check_clean(&s, "fa2");
}

/* If this passes bits of 3 rounds, the battery is no battery. */
TEST(three_rounds_are_found_out)
{
    const ordo_problem p = square(0, 8, 0.1);
    const cli_keep_statistics s = measure(&p, 1, 3);
    const char *which = NULL;
    CHECK_INT(s.info.rounds, 3);
    CHECK(cli_keep_suspicious(&s, &which) && which != NULL);
    CHECK(s.lags[CLI_LAG_ROW].correlation > 0.1);
    CHECK(s.lags[CLI_LAG_ROW].z > 100);
    CHECK(s.lags[CLI_LAG_SITE].z > 100);
    CHECK(s.lags[CLI_LAG_HEAD].z > 100);
    CHECK(s.lags[CLI_LAG_BLOCK].z > 100);
}

/* 5 rounds are better, and still found out from one call to the next. */
TEST(five_rounds_are_found_out)
{
    const ordo_problem p = square(0, 8, 0.1);
    const cli_keep_statistics s = measure(&p, 1, 5);
    CHECK(cli_keep_suspicious(&s, NULL));
}

/* Counts against a plain loop over elements, on ragged shapes. */
TEST(counts_are_those_of_a_plain_loop)
{
    static const int32_t cu_q[] = { 0, 37, 70 }, cu_kv[] = { 0, 130, 430 };
    ordo_problem p = square(7, 8, 0.25);
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    cli_keep_statistics s;
    p.layout = ORDO_PACKED;
    p.batch = 2;
    p.heads = 3;
    p.q_len = 37;
    p.kv_len = 300;
    p.total_q = 70;
    p.total_kv = 430;
    call.cu_q = cu_q;
    call.cu_kv = cu_kv;
    CHECK(cli_keep_measure(&p, &call, &s) == ORDO_OK);
    uint64_t kept = 0, pairs[CLI_LAGS] = { 0 }, both[CLI_LAGS] = { 0 };
    ordo_dropout_call site = call;
    site.offset = 1;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 3; h++)
            for (int64_t r = 0; r < cu_q[b + 1] - cu_q[b]; r++)
                for (int64_t c = 0; c < cu_kv[b + 1] - cu_kv[b]; c++) {
                    const int64_t rows = cu_q[b + 1] - cu_q[b], cols = cu_kv[b + 1] - cu_kv[b];
                    const struct {
                        bool there;
                        int64_t head, row, col;
                    } at[CLI_LAGS] = { { c % 2 == 0 && c + 1 < cols, h, r, c + 1 },
                                       { c % 8 < 6 && c + 2 < cols, h, r, c + 2 },
                                       { c + 128 < cols, h, r, c + 128 },
                                       { r % 16 < 15 && r + 1 < rows, h, r + 1, c },
                                       { h < 2, h + 1, r, c },
                                       { true, h, r, c } };
                    bool here;
                    CHECK(ordo_dropout_keep(&p, &call, b, h, r, c, &here) == ORDO_OK);
                    kept += here;
                    for (int i = 0; i < CLI_LAGS; i++) {
                        bool there = false;
                        if (!at[i].there)
                            continue;
                        CHECK(ordo_dropout_keep(&p, i == CLI_LAG_SITE ? &site : &call, b,
                                                at[i].head, at[i].row, at[i].col,
                                                &there) == ORDO_OK);
                        pairs[i]++;
                        both[i] += here && there;
                    }
                }
    CHECK_INT(s.kept, kept);
    for (int i = 0; i < CLI_LAGS; i++) {
        CHECK_INT(s.lags[i].pairs, pairs[i]);
        CHECK_INT(s.lags[i].both, both[i]);
    }
}

CHECK_MAIN()
