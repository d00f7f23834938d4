/* plan.c: processor time of ordo_plan_create() and ordo_plan_parse() by rows, in microseconds,
 * for a GPU that is named and for the host, which no machine (NULL) means.
 *
 * Every new length of a packed batch has a new plan, made on the host path of training. */
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"
#include "ordo/ordo.h"

enum { ROUNDS = 101 };

int main(void)
{
    ordo_machine *h200 = NULL;
    if (ordo_machine_create(&h200, "h200") != ORDO_OK)
        return 1;
    puts("| machine |    rows | dropout | create us | parse us |\n|---|---|---|---|---|");
    for (int row = 0; row < 18; row++) {
        const ordo_machine *machine = row < 12 ? h200 : NULL;
        const bool drops = row >= 6 && row < 12;
        double create[ROUNDS], parse[ROUNDS];
        ordo_problem p = ORDO_PROBLEM_INIT;
        p.dtype = ORDO_BF16;
        p.heads = 16;
        p.q_len = 512LL << 2 * (row % 6);
        p.head_dim = 128;
        p.mask = ORDO_MASK_CAUSAL;
        p.dropout.p = drops ? 0.1 : 0;
        for (int x = 0; x < ROUNDS; x++) {
            ordo_plan *plan = NULL, *read = NULL;
            char line[4096];
            const double begin = measure_seconds(CLOCK_THREAD_CPUTIME_ID);
            if (ordo_plan_create(&plan, &p, machine, NULL) != ORDO_OK)
                return 1;
            create[x] = measure_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
            if (ordo_plan_print(plan, line, sizeof line, NULL) != ORDO_OK)
                return 1;
            const double middle = measure_seconds(CLOCK_THREAD_CPUTIME_ID);
            if (ordo_plan_parse(&read, line) != ORDO_OK)
                return 1;
            parse[x] = measure_seconds(CLOCK_THREAD_CPUTIME_ID) - middle;
            ordo_plan_destroy(plan);
            ordo_plan_destroy(read);
        }
        printf("| %-7s | %7lld | %7s | %9.1f | %8.1f |\n", machine ? "h200" : "host",
               (long long)p.q_len, drops ? "0.1" : "0", 1e6 * measure_spread(create, ROUNDS).median,
               1e6 * measure_spread(parse, ROUNDS).median);
    }
    ordo_machine_destroy(h200);
    return 0;
}
