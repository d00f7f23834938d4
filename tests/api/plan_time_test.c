/* plan_time_test.c: a plan takes less than 100 us, whatever its problem. */
#include "api/plan_requests.h"
#include "timing.h"

enum { TRIES = 5, FACTOR = 10 }; /* a slow machine may take ten times that */

static double least_seconds(const request *r, const ordo_machine *machine)
{
    double least = 1;
    for (int x = 0; x < TRIES; x++) {
        ordo_plan *plan = NULL;
        const clock_t begin = clock();
        CHECK_INT(ordo_plan_create(&plan, &r->problem, machine, &r->options), ORDO_OK);
        const double seconds = seconds_since(begin);
        least = seconds < least ? seconds : least;
        ordo_plan_destroy(plan);
    }
    return least;
}

TEST(plans_take_less_than_100_us)
{
    static const char *const machines[] = { "h200", "neoverse-v1" };
    if (!release_build())
        SKIP("times of this build say nothing");
    double most = 0;
    for (int m = 0; m < 2; m++) {
        ordo_machine *machine = NULL;
        CHECK_INT(ordo_machine_create(&machine, machines[m]), ORDO_OK);
        for (int64_t rows = 1; rows <= 1 << 24; rows *= 4)
            for (int kind = 0; kind < 16; kind++) {
                request r = on_h200();
                r.machine = machines[m];
                r.problem.q_len = rows;
                r.problem.head_dim = kind & 1 ? 192 : 128;
                r.problem.mask = kind & 2 ? ORDO_MASK_FULL : ORDO_MASK_CAUSAL;
                r.problem.dropout.p = kind & 4 ? 0.1 : 0;
                if (kind & 8)
                    r = packed(r);
                const double seconds = least_seconds(&r, machine);
                most = seconds > most ? seconds : most;
                if (!(seconds < FACTOR * 100e-6))
                    CHECK_FAIL("%s, %lld rows, kind %d: %.0f us", machines[m], (long long)rows,
                               kind, 1e6 * seconds);
            }
        ordo_machine_destroy(machine);
    }
    printf("at most %.0f us\n", 1e6 * most);
}

CHECK_MAIN()
