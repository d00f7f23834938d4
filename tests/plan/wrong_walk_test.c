/* The validator is given walks that are wrong in one respect each, and must name it.
 *
 * No order of ordo has these faults, so check.c is compiled here a second time, with the three
 * functions of a walk replaced by a table of this file. */
#include "check.h"
#include "ordo/status.h"
#include "plan/check.h"

enum { TILES = 3 };

/* What key tile j visits at step t, and its turn there; full mask, 3 x 3 tiles. */
static int step_count[TILES];
static int visited[TILES][TILES];
static int turn_at[TILES][TILES]; /* by query tile and key tile */

#define ordo_walk_steps(walk, j)    ((void)(walk), step_count[j])
#define ordo_walk_visit(walk, j, t) ((void)(walk), visited[j][t])
#define ordo_walk_turn(walk, i, j)  ((void)(walk), turn_at[i][j])
#define ordo_walk_check             check_table
#define ordo_run_check              check_run_unused
#define ordo_run_check_cost         check_cost_unused
uint64_t ordo_run_check_cost(const ordo_run *run, uint64_t tasks);
ordo_status ordo_walk_check(const ordo_walk *walk, uint64_t *pairs);
ordo_status ordo_run_check(const ordo_run *run, uint64_t *pairs);
#include "../../src/plan/check.c"

/* Ascending: every key tile visits all query tiles upwards, turns are key tiles. */
static void make_right(void)
{
    for (int j = 0; j < TILES; j++) {
        step_count[j] = TILES;
        for (int i = 0; i < TILES; i++) {
            visited[j][i] = i;
            turn_at[i][j] = j;
        }
    }
}

static ordo_status judge(int32_t high)
{
    const ordo_walk walk = { .band = { .q_len = TILES,
                                       .kv_len = TILES,
                                       .bq = 1,
                                       .bk = 1,
                                       .low = -ORDO_BAND_OPEN,
                                       .high = high },
                             .nq = TILES,
                             .nk = TILES };
    uint64_t pairs = 0;
    return check_table(&walk, &pairs);
}

TEST(right_walk)
{
    make_right();
    CHECK_INT(judge(ORDO_BAND_OPEN), ORDO_OK);
}

/* Two key tiles skip one query tile each; elsewhere all is well. */
TEST(missing_pair)
{
    make_right();
    step_count[2] =
        TILES - 1; /* never visits query tile 2, whose turns 0 and 1 are without a hole */
    CHECK_REFUSED(judge(ORDO_BAND_OPEN), ORDO_ERR_INTERNAL,
                  "query tile 2: 2 turns, 0 holes, expected 3");
}

/* A causal mask leaves query tile 0 one key, which adds in turn 1: turn 0 never comes. */
TEST(hole_in_turns)
{
    make_right();
    for (int j = 0; j < TILES; j++) {
        step_count[j] = TILES - j;
        for (int t = 0; t < TILES - j; t++)
            visited[j][t] = j + t;
    }
    CHECK_INT(judge(0), ORDO_OK);
    turn_at[0][0] = 1;
    CHECK_REFUSED(judge(0), ORDO_ERR_INTERNAL, "query tile 0: 1 turns, 1 holes, expected 1");
}

TEST(turn_taken_twice)
{
    make_right();
    turn_at[1][2] = 1;
    CHECK_REFUSED(judge(ORDO_BAND_OPEN), ORDO_ERR_INTERNAL, "query tile 1: turn 1 taken twice");
}

TEST(dead_tile_visited)
{
    make_right(); /* right for a full mask: a causal one hides query tile 0 from key tile 1 */
    CHECK_REFUSED(judge(0), ORDO_ERR_INTERNAL, "key tile 1 step 0: visits dead tile 0");
}

TEST(turn_out_of_range)
{
    make_right();
    turn_at[2][2] = TILES;
    CHECK_REFUSED(judge(ORDO_BAND_OPEN), ORDO_ERR_INTERNAL, "query tile 2 key tile 2: turn 3");
    turn_at[2][2] = -1;
    CHECK_REFUSED(judge(ORDO_BAND_OPEN), ORDO_ERR_INTERNAL, "turn -1");
}

/* Key tile 0 waits for key tile 1, which is pinned to the same worker. */
TEST(pinned_to_a_worker_that_waits)
{
    const ordo_run run = { .band = { .q_len = 2,
                                     .kv_len = 2,
                                     .bq = 1,
                                     .bk = 1,
                                     .low = -ORDO_BAND_OPEN,
                                     .high = ORDO_BAND_OPEN },
                           .sequences = 1,
                           .kv_heads = 1,
                           .group_heads = 1,
                           .order = ORDO_ORDER_ASCENDING,
                           .group = 1,
                           .issue = ORDO_ISSUE_HEAD,
                           .section = 1,
                           .assign = ORDO_ASSIGN_PINNED,
                           .workers = 1 };
    for (int j = 0; j < 2; j++) {
        step_count[j] = 2;
        for (int i = 0; i < 2; i++) {
            visited[j][i] = i;
            turn_at[i][j] = 1 - j;
        }
    }
    CHECK_REFUSED(check_residency(&run, 2, true), ORDO_ERR_INTERNAL,
                  "key tile 1 finds no free worker");
    CHECK_INT(check_residency(&run, 2, false), ORDO_OK);
}

CHECK_MAIN()
