/* plan.c: processor time of ordo_plan_create() and ordo_plan_parse() by rows, in microseconds,
 * for a GPU that is named, without and with dropout, and for the host, which no machine (NULL)
 * means.
 *
 * Every new length of a packed batch has a new plan, made on the host path of training. */
#include <stdio.h>
#include <stdlib.h>

#include "measure.h"
#include "ordo/ordo.h"

enum { ROUNDS = 101, LENGTHS = 6 };

/* Median times of one problem, in microseconds; false if a function fails. */
static bool measure(const ordo_problem *p, const ordo_machine *machine, double *create_us,
                    double *parse_us)
{
    double create[ROUNDS], parse[ROUNDS];
    for (int x = 0; x < ROUNDS; x++) {
        ordo_plan *plan = NULL, *read = NULL;
        char line[4096];
        const double begin = measure_seconds(CLOCK_THREAD_CPUTIME_ID);
        if (ordo_plan_create(&plan, p, machine, NULL) != ORDO_OK)
            return false;
        create[x] = measure_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
        if (ordo_plan_print(plan, line, sizeof line, NULL) != ORDO_OK)
            return false;
        const double middle = measure_seconds(CLOCK_THREAD_CPUTIME_ID);
        if (ordo_plan_parse(&read, line) != ORDO_OK)
            return false;
        parse[x] = measure_seconds(CLOCK_THREAD_CPUTIME_ID) - middle;
        ordo_plan_destroy(plan);
        ordo_plan_destroy(read);
    }
    *create_us = 1e6 * measure_spread(create, ROUNDS).median;
    *parse_us = 1e6 * measure_spread(parse, ROUNDS).median;
    return true;
}

int main(void)
{
    ordo_machine *h200 = NULL;
    if (ordo_machine_create(&h200, "h200") != ORDO_OK)
        return 1;
    const struct {
        const char *name;
        const ordo_machine *machine;
        double dropout;
    } rows[] = { { "h200", h200, 0 }, { "h200, dropout", h200, 0.1 }, { "host", NULL, 0 } };
    puts("| create / parse, us | 512 rows | 2k | 8k | 32k | 128k | 512k |");
    puts("|---|---|---|---|---|---|---|");
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        printf("| %s |", rows[row].name);
        for (int length = 0; length < LENGTHS; length++) {
            double create, parse;
            ordo_problem p = ORDO_PROBLEM_INIT;
            p.dtype = ORDO_BF16;
            p.heads = 16;
            p.q_len = 512LL << 2 * length;
            p.head_dim = 128;
            p.mask = ORDO_MASK_CAUSAL;
            p.dropout.p = rows[row].dropout;
            if (!measure(&p, rows[row].machine, &create, &parse))
                return 1;
            printf(" %.1f / %.1f |", create, parse);
        }
        putchar('\n');
    }
    ordo_machine_destroy(h200);
    return 0;
}
