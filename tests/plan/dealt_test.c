/* Workers that take a ticket ahead, as the blocks of a device do: cyclic orders complete if tickets
 * are dealt, and would not if they were drawn. */
#include "plan/check.h"
#include "schedules.h"

enum { NO_TICKET = -1 };

typedef struct worker {
    int64_t now, ahead; /* tickets: being run, and taken meanwhile; NO_TICKET without */
    int32_t nth, g, t;  /* key tile of the unit, query head, step */
} worker;

typedef struct play {
    const ordo_run *run;
    worker *workers;
    int32_t *done; /* turns done, by (head, query head, query tile) */
    int64_t drawn, total;
    bool dealt;
} play;

static ordo_unit unit_of(const play *p, int64_t ticket)
{
    const int64_t first = ordo_run_tickets(p->run, 0);
    return ticket < first ? ordo_run_issue(p->run, 0, ticket)
                          : ordo_run_issue(p->run, 1, ticket - first);
}

static int64_t take(play *p, int32_t w, int64_t last)
{
    int64_t ticket = p->drawn;
    if (p->dealt)
        ticket = last == NO_TICKET ? w : last + p->run->workers;
    else
        p->drawn++;
    return ticket < p->total ? ticket : NO_TICKET;
}

/* One step of a worker; false if it must wait, or has nothing left. */
static bool step(play *p, int32_t w)
{
    worker *me = &p->workers[w];
    if (me->now == NO_TICKET)
        return false;
    const ordo_unit unit = unit_of(p, me->now);
    const ordo_walk walk = ordo_run_walk(p->run, unit.head);
    if (me->nth == unit.keys) {
        const int64_t next = me->ahead;
        *me = (worker) { .now = next };
        me->ahead = next == NO_TICKET ? NO_TICKET : take(p, w, next);
        return true;
    }
    const int32_t j = unit.key[me->nth];
    if (me->t == ordo_walk_steps(&walk, j)) {
        me->nth++, me->t = 0;
        return true;
    }
    const int32_t i = ordo_walk_visit(&walk, j, me->t);
    int32_t *turn = &p->done[(unit.head * p->run->group_heads + me->g) * walk.nq + i];
    if (*turn != ordo_walk_turn(&walk, i, j))
        return false;
    ++*turn;
    if (++me->g == p->run->group_heads)
        me->g = 0, me->t++;
    return true;
}

/* Whether all units are done. The lowest worker that can go on does, so that others start late. */
static bool completes(const ordo_run *run, bool dealt)
{
    const int32_t nq = ordo_band_query_tiles(&run->band);
    play p = { .run = run, .dealt = dealt };
    p.total = ordo_run_tickets(run, 0) + ordo_run_tickets(run, 1);
    p.workers = calloc((size_t)run->workers, sizeof *p.workers);
    p.done = calloc((size_t)(run->sequences * run->kv_heads * run->group_heads * nq) + 1,
                    sizeof *p.done);
    if (!p.workers || !p.done)
        exit(1);
    for (int32_t w = 0; w < run->workers; w++) {
        p.workers[w].now = take(&p, w, NO_TICKET);
        p.workers[w].ahead =
            p.workers[w].now == NO_TICKET ? NO_TICKET : take(&p, w, p.workers[w].now);
    }
    for (int32_t w = 0; w < run->workers; w++)
        if (step(&p, w))
            w = -1;
    bool done = true;
    for (int32_t w = 0; w < run->workers; w++)
        done = done && p.workers[w].now == NO_TICKET;
    free(p.workers);
    free(p.done);
    return done;
}

TEST(dealt_tickets_complete)
{
    uint64_t seed = 11;
    int cyclic = 0;
    for (int round = 0; round < 2000; round++) {
        const ordo_run run = random_run(&seed, (ordo_order)(1 + round % ORDO_ORDER_COUNT), 6);
        cyclic += ordo_run_dealt(&run);
        if (!completes(&run, ordo_run_dealt(&run))) {
            CHECK_FAIL("a worker waits for ever");
            print_run(&run);
            return;
        }
    }
    CHECK(cyclic > 200);
}

/* Must fail: the first worker takes two chains of a group. */
TEST(drawn_tickets_of_a_cyclic_order_do_not)
{
    ordo_run run = square_run(false, 6, 1, ORDO_ORDER_SHIFT);
    run.group = 6;
    run.workers = 6;
    CHECK(ordo_run_dealt(&run));
    CHECK(completes(&run, true));
    CHECK(!completes(&run, false));
}

CHECK_MAIN()
