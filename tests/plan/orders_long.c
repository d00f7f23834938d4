/* Validity and freedom from deadlock on 100,000 random configurations of every order. */
#include "ordo/status.h"
#include "plan/check.h"
#include "schedules.h"

enum { ROUNDS = 100000 };

static void sweep(ordo_order order)
{
    const char *given = getenv("ORDO_TEST_SEED");
    uint64_t seed = (given ? strtoull(given, NULL, 0) : 20261115) * 8 + (uint64_t)order;
    printf("  %s: seed %" PRIu64 " (ORDO_TEST_SEED rotates it)\n", ordo_order_name(order), seed);
    for (int round = 0; round < ROUNDS && check_failures == 0; round++) {
        const ordo_run run = random_run(&seed, order, round % 100 == 0 ? 40 : 9);
        uint64_t pairs = 0;
        if (ordo_run_check(&run, &pairs) != ORDO_OK) {
            CHECK_FAIL("%s", ordo_last_error());
            print_run(&run);
        }
    }
}

TEST(ascending)
{
    sweep(ORDO_ORDER_ASCENDING);
}
TEST(descending)
{
    sweep(ORDO_ORDER_DESCENDING);
}
TEST(shift)
{
    sweep(ORDO_ORDER_SHIFT);
}
TEST(symmetric)
{
    sweep(ORDO_ORDER_SYMMETRIC);
}
TEST(spt)
{
    sweep(ORDO_ORDER_SPT);
}
TEST(twin)
{
    sweep(ORDO_ORDER_TWIN);
}
TEST(spt_tail)
{
    sweep(ORDO_ORDER_SPT_TAIL);
}

CHECK_MAIN()
