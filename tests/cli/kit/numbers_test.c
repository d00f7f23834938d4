/* numbers_test.c: numbers as people type them: what is read, and what is refused. */
#include "check.h"
#include "kit/numbers.h"

static int64_t size_of(const char *text)
{
    int64_t value = -12345;
    return cli_read_size(text, -10, INT64_MAX, &value) ? value : -12345;
}

TEST(sizes)
{
    CHECK_INT(size_of("0"), 0);
    CHECK_INT(size_of("16k"), 16384);
    CHECK_INT(size_of("2M"), 2097152);
    CHECK_INT(size_of("-1"), -1);
    CHECK_INT(size_of("9223372036854775807"), INT64_MAX);
    static const char *const bad[] = { "",
                                       " 1",
                                       "1 ",
                                       "+1",
                                       "1k5",
                                       "1kk",
                                       "k",
                                       "-",
                                       "--1",
                                       "1.5",
                                       "0x10",
                                       "9223372036854775808",
                                       "-11",
                                       "9007199254740992k",
                                       "8796093022208m" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_INT(size_of(bad[i]), -12345);
}

TEST(lists)
{
    cli_list list = { 0 };
    CHECK(cli_read_list("1k,2,3", 0, 5000, &list));
    CHECK_INT(list.count, 3);
    CHECK_INT(list.values[0], 1024);
    CHECK_INT(list.values[2], 3);
    cli_list_free(&list);
    static const char *const bad[] = { "", ",", "1,", ",1", "1,,2", "1;2", "1,6000", "1,-1" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!cli_read_list(bad[i], 0, 5000, &list));
}

TEST(unsigned_and_real)
{
    uint64_t u = 0;
    double x = 0;
    CHECK(cli_read_u64("18446744073709551615", &u) && u == UINT64_MAX);
    CHECK(cli_read_u64("0xffffffffffffffff", &u) && u == UINT64_MAX);
    CHECK(!cli_read_u64("18446744073709551616", &u));
    CHECK(!cli_read_u64("0x1ffffffffffffffff", &u));
    CHECK(!cli_read_u64("0x", &u));
    CHECK(!cli_read_u64("0x-1", &u));
    CHECK(!cli_read_u64("-1", &u));
    CHECK(cli_read_real("-2.5e-3", &x) && x == -2.5e-3);
    CHECK(cli_read_real("0e-400", &x) && x == 0);
    static const char *const bad[] = { "", "nan", "inf", "1e400", "1e-400", " 1", "1 ", "1,5" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!cli_read_real(bad[i], &x));
}

TEST(pairs_and_ratios)
{
    int64_t a = 0, b = 0;
    CHECK(cli_read_pair("64x1k", 'x', 1, 4096, &a, &b) && a == 64 && b == 1024);
    CHECK(cli_read_pair("-1,0", ',', -1, 10, &a, &b) && a == -1 && b == 0);
    CHECK(!cli_read_pair("64", 'x', 1, 4096, &a, &b));
    CHECK(!cli_read_pair("64x", 'x', 1, 4096, &a, &b));
    CHECK(!cli_read_pair("0x4", 'x', 1, 4096, &a, &b));
    CHECK(cli_read_ratio("1.6", &a, &b) && a == 8 && b == 5);
    CHECK(cli_read_ratio("16/10", &a, &b) && a == 8 && b == 5);
    CHECK(cli_read_ratio("2", &a, &b) && a == 2 && b == 1);
    CHECK(cli_read_ratio("0.50", &a, &b) && a == 1 && b == 2);
    static const char *const bad[] = { "",
                                       "0",
                                       "1/0",
                                       "0/1",
                                       "-1",
                                       "1.",
                                       ".5",
                                       "1/2/3",
                                       "1.5/2",
                                       "99999999999",
                                       "1.00000000000000000000" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!cli_read_ratio(bad[i], &a, &b));
}

CHECK_MAIN()
