/* plan_fuzz.c: any bytes as a plan's line. Either a message, or a plan that prints a line
 * which reads back as the same plan. */
#include "ordo/plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *print(const ordo_plan *plan)
{
    size_t needed = 0;
    (void)ordo_plan_print(plan, NULL, 0, &needed);
    char *text = malloc(needed > 0 ? needed : 1);
    if (text == NULL || ordo_plan_print(plan, text, needed, NULL) != ORDO_OK)
        abort();
    return text;
}

static void round_trip(const ordo_plan *plan)
{
    ordo_plan *again = NULL;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT, info_again = ORDO_PLAN_INFO_INIT;
    char *line = print(plan);
    if (ordo_plan_parse(&again, line) != ORDO_OK)
        abort();
    char *line_again = print(again);
    if (strcmp(line, line_again) != 0)
        abort();
    if (ordo_plan_query(plan, &info) != ORDO_OK || ordo_plan_query(again, &info_again) != ORDO_OK)
        abort();
    if (strcmp(info.numeric_key, info_again.numeric_key) != 0 || info.kept != info_again.kept)
        abort();
    free(line_again);
    free(line);
    ordo_plan_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    ordo_plan *plan = NULL;
    if (ordo_plan_parse(&plan, text) == ORDO_OK) {
        round_trip(plan);
        ordo_plan_destroy(plan);
    } else if (plan != NULL) {
        abort();
    }
    free(text);
    return 0;
}
