/* critical_test.c: the critical path of random runs explains their makespan. */
#include "sim/critical.h"

#include "schedules.h"
#include "tests/sim/random_costs.h"

static bool on_path(const ordo_record *record, const ordo_critical *path, uint64_t count)
{
    /* Every edge joins events that touch in time. */
    for (uint64_t x = 0; x + 1 < count; x++) {
        const ordo_step *late = &record->steps[path[x].step];
        const ordo_step *early = &record->steps[path[x + 1].step];
        if (path[x].edge == ORDO_EDGE_TURN &&
            (early->query != late->query || early->head != late->head || early->end > late->start))
            return false;
        if (path[x].edge == ORDO_EDGE_WORKER && early->worker != late->worker)
            return false;
    }
    return count > 0 && path[count - 1].edge == ORDO_EDGE_START &&
           record->steps[path[count - 1].step].begin == 0;
}

TEST(critical_path_explains_the_makespan)
{
    uint64_t seed = 12;
    for (int round = 0; round < 500; round++) {
        const ordo_order order = (ordo_order)check_between(&seed, 1, ORDO_ORDER_COUNT);
        const ordo_run run = random_run(&seed, order, 7);
        const ordo_costs costs = random_costs(&seed);
        ordo_times times;
        ordo_record record = { 0 };
        ordo_critical *path = NULL;
        uint64_t count = 0;
        CHECK(ordo_timeline_simulate(&run, 1, &costs, &times, &record) == ORDO_OK);
        CHECK(ordo_timeline_trace(&record, &costs, &path, &count) == ORDO_OK);
        CHECK_INT(record.count, times.tasks);
        if (record.count > 0) {
            CHECK(on_path(&record, path, count));
            CHECK_INT(record.steps[path[0].step].end, times.makespan);
        }
        free(record.steps);
        free(path);
    }
}

CHECK_MAIN()
