/* bits_long.c: equal bits on the CPU backend, many more times than bits_test.c has time for.
 *
 * ORDO_TEST_SEED=n draws other problems than the usual ones. */
#include "attention_case.h"
#include "cpu/kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static atomic_bool loaded;

/* Other work: one that computes, one that also sleeps and wakes. */
static void *load(void *argument)
{
    const bool naps = argument != NULL;
    volatile float x = 1;
    while (atomic_load(&loaded)) {
        for (int i = 0; i < 20000; i++)
            x = x * 1.0001f;
        if (naps)
            nanosleep(&(struct timespec) { .tv_nsec = 50000 }, NULL);
    }
    return NULL;
}

static ordo_plan_options small_tiles(uint64_t *seed)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.forward_tile = (ordo_tile) { check_between(seed, 8, 64), check_between(seed, 16, 128) };
    options.backward_tile = (ordo_tile) { check_between(seed, 8, 48), check_between(seed, 16, 64) };
    return options;
}

TEST(a_thousand_repeats_under_load)
{
    pthread_t threads[2];
    uint64_t seed = case_seed(70);
    atomic_store(&loaded, true);
    for (int x = 0; x < 2; x++)
        CHECK(pthread_create(&threads[x], NULL, load, x ? &loaded : NULL) == 0);
    for (int combination = 0; combination < 8; combination++) {
        attention_case c;
        case_random(&c, &seed, 120);
        const ordo_plan_options options = small_tiles(&seed);
        ordo_plan *plan = case_plan(&c, combination % 2 ? &options : NULL);
        case_results one = case_first(&c, plan, 1);
        for (int repeat = 0; repeat < 1000; repeat++) {
            if (repeat % 5 == 0)
                ordo_delay_turns(5);
            CHECK(case_run(&c, plan, 1 + repeat % 9) == ORDO_OK);
            ordo_delay_turns(0);
            if (!case_same(&c, &one, "repeats"))
                break;
        }
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
    atomic_store(&loaded, false);
    for (int x = 0; x < 2; x++)
        pthread_join(threads[x], NULL);
}

/* Any combination of features, tiles and orders; generic code for one in ten. */
TEST(two_thousand_random_problems)
{
    static const ordo_order orders[] = { ORDO_ORDER_DEFAULT, ORDO_ORDER_ASCENDING,
                                         ORDO_ORDER_DESCENDING, ORDO_ORDER_SPT, ORDO_ORDER_TWIN };
    uint64_t seed = case_seed(71);
    for (int trial = 0; trial < 2000; trial++) {
        attention_case c;
        case_random(&c, &seed, trial % 20 ? 70 : 300);
        ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
        if (trial % 2)
            options = small_tiles(&seed);
        options.order = orders[trial % 5];
        ordo_plan *plan = case_plan(&c, &options);
        case_results one = case_first(&c, plan, 1);
        case_again(&c, plan, 3, &one, "3 threads");
        case_again(&c, plan, 8, &one, "8 threads");
        if (trial % 10 == 0) {
            ordo_cpu_kernels_force(ordo_cpu_kernels_named("generic"));
            case_again(&c, plan, 2, &one, "generic");
            ordo_cpu_kernels_force(NULL);
        }
        case_drop(&one);
        ordo_plan_destroy(plan);
        case_close(&c);
    }
}

CHECK_MAIN()
