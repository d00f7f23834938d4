/* Uses the laboratory from outside: it answers, and libordo has the message of its failures. */
#include <ordo/lab.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    ordo_schedule schedule = ORDO_SCHEDULE_INIT;
    ordo_order order;
    schedule.key_tiles = schedule.heads = schedule.workers = 4;
    schedule.compute = schedule.reduce = 1;
    const ordo_status good = ordo_schedule_auto(&schedule, &order);
    schedule.compute = 0;
    const ordo_status bad = ordo_schedule_auto(&schedule, &order);
    printf("ordo_lab: %s; %s\n", ordo_status_name(good), ordo_last_error());
    return good != ORDO_OK || bad != ORDO_ERR_ARGUMENT || !strstr(ordo_last_error(), "compute 0");
}
