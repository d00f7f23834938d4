/* defaults.c: the table. Every change here is a "Bits: changed" commit.
 *
 * Orders, all issued key tile outermost, waiting only on earlier work, without a group size: full
 * masks ascending. Masks that cut descending, whose long chains begin first: on a CPU, where
 * waiting costs next to nothing, few heads on many threads take up to a third less time than with
 * spt+tail; on a GPU it measures no less with heads of their own keys and 20 % more with shared
 * ones (docs/design/orders.md).
 *
 * Tiles of sm90 (plan/sm90_tiles.h): backward, the largest whose accumulators fit the registers of
 * two consumer warpgroups. Above 128 backward passes run by phases; but phases make no keep bits,
 * so with dropout they run up to 256 in a split form of seven products. CPU tiles: 128 columns are
 * one block of keep bits; with 64 rows the panels of a step fit a second-level cache up to head
 * size 128. dtype is not a column: no family has rows that differ by it. */
#include "planner/defaults.h"

#include <string.h>

#include "plan/sm90_tiles.h"

#define FULL ORDO_ORDER_ASCENDING
#define DOWN ORDO_ORDER_DESCENDING

/* clang-format off */
#define FORWARD(head_dim)  { ORDO_SM90_FORWARD_Q(head_dim), ORDO_SM90_FORWARD_K(head_dim) }
#define BACKWARD(head_dim) { ORDO_SM90_BACKWARD_Q(head_dim), ORDO_SM90_BACKWARD_K(head_dim) }
/* clang-format on */

static const ordo_default table[] = {
    /* family  D    full   kept   forward       backward     order */
    { "sm90", 64, true, false, FORWARD(64), BACKWARD(64), FULL },
    { "sm90", 64, false, false, FORWARD(64), BACKWARD(64), DOWN },
    { "sm90", 128, true, false, FORWARD(128), BACKWARD(128), FULL },
    { "sm90", 128, false, false, FORWARD(128), BACKWARD(128), DOWN },
    { "sm90", 256, true, true, FORWARD(256), BACKWARD(576), FULL },
    { "sm90", 256, false, true, FORWARD(256), BACKWARD(576), DOWN },
    { "sm90", 256, true, false, FORWARD(256), BACKWARD(256), FULL },
    { "sm90", 256, false, false, FORWARD(256), BACKWARD(256), DOWN },
    { "sm90", 576, true, false, FORWARD(576), BACKWARD(576), FULL },
    { "sm90", 576, false, false, FORWARD(576), BACKWARD(576), DOWN },
    { "cpu", 576, true, false, { 64, 128 }, { 64, 128 }, FULL },
    { "cpu", 576, false, false, { 64, 128 }, { 64, 128 }, DOWN },
    /* The oracle sums element by element, upwards. */
    { "ref", 576, true, false, { 1, 1 }, { 1, 1 }, ORDO_ORDER_ASCENDING },
    { "ref", 576, false, false, { 1, 1 }, { 1, 1 }, ORDO_ORDER_ASCENDING },
};
enum { ROWS = sizeof table / sizeof *table };

int ordo_family_revision(const char *family)
{
    /* cpu 1: heads that share keys one after the other; 2: masks that cut by spt+tail; 3: tanh of
     * softcap off by units of 1, not of itself
     * sm90 1: sums that a rounding error shrank in every key tile of the forward pass; 2: softcap
     * by exp2 alone, ALiBi after the scale */
    return strcmp(family, "cpu") == 0 ? 4 : strcmp(family, "sm90") == 0 ? 3 : 1;
}

const ordo_default *ordo_default_find(const char *family, const ordo_problem *problem)
{
    const bool full =
        problem->mask == ORDO_MASK_FULL && !problem->window.on && problem->blocks.entries == 0;
    const int64_t dim =
        problem->head_dim > problem->v_head_dim ? problem->head_dim : problem->v_head_dim;
    for (int row = 0; row < ROWS; row++)
        if (strcmp(table[row].family, family) == 0 && table[row].full == full &&
            (!table[row].kept || problem->dropout.p == 0) && dim <= table[row].head_dim)
            return &table[row];
    return NULL;
}

int ordo_default_head_dim_max(const char *family)
{
    int most = 0;
    for (int row = 0; row < ROWS; row++)
        if (strcmp(table[row].family, family) == 0 && table[row].head_dim > most)
            most = table[row].head_dim;
    return most;
}
