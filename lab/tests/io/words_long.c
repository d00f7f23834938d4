/* words_long.c: ten thousand random problems, every algorithm, counted to the word. */
#include "random_io.h"

TEST(ten_thousand_problems)
{
    uint64_t random = 410;
    double worst = 0;
    int runs = 0;
    for (int i = 0; i < 10000; i++) {
        io_case c;
        io_random_case(&c, &random, i % 20 ? 48 : 98, i % 20 ? 24 : 48);
        runs += io_check_case(&c, &random, &worst);
    }
    printf("  %d runs, largest error %.1e\n", runs, worst);
    CHECK(runs > 100000);
}

CHECK_MAIN()
