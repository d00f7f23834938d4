/* family.c: the families. Every change of a tile, an order or a revision here is a "Bits: changed"
 * commit.
 *
 * Orders, all issued key tile outermost, waiting only on earlier work, without a group size: full
 * masks ascending. All others descending, whose long chains begin first: on a CPU, where
 * waiting costs next to nothing, few heads on many threads take up to a third less time than with
 * spt+tail; on a GPU it measures no less with heads of their own keys and 20 % more with shared
 * ones (docs/design/orders.md). The oracle sums element by element, upwards.
 *
 * Tiles of sm90 (plan/family_sm90.h): backward, the largest whose accumulators fit the registers of
 * two consumer warpgroups. Above 128 backward passes run in chains or by phases. CPU tiles: 128
 * columns are one block of keep bits; with 64 rows the panels of a step fit a second-level cache up
 * to head size 128. dtype is not a column: no family has rows that differ by it. */
#include "plan/family.h"

#include <stdio.h>
#include <string.h>

#include "base/blocks.h"
#include "plan/family_sm90.h"

/* clang-format off */
#define FORWARD(head_dim)  { ORDO_SM90_FORWARD_Q(head_dim), ORDO_SM90_FORWARD_K(head_dim) }
#define BACKWARD(head_dim) { ORDO_SM90_BACKWARD_Q(head_dim), ORDO_SM90_BACKWARD_K(head_dim) }
#define FLASH(tile) { tile, ORDO_FORM_FLASH, false }
#define CHAIN(tile) { tile, ORDO_FORM_CHAIN, true }
#define PHASE(tile) { tile, ORDO_FORM_PHASE, true }
#define ONE         { 1, 1 }
#define CPU         { 64, 128 }

static const ordo_family_row rows_sm90[] = {
    /*     forward              backward */
    {  64, FLASH(FORWARD(64)),  FLASH(BACKWARD(64)) },
    { 128, FLASH(FORWARD(128)), FLASH(BACKWARD(128)) },
    { 256, FLASH(FORWARD(256)), CHAIN(BACKWARD(256)) },
    { 576, PHASE(FORWARD(576)), PHASE(BACKWARD(576)) },
};
static const ordo_family_row rows_cpu[] = { { 576, FLASH(CPU), FLASH(CPU) } };
static const ordo_family_row rows_ref[] = { { 576, FLASH(ONE), FLASH(ONE) } };
/* clang-format on */

enum { SM90_ROWS = sizeof rows_sm90 / sizeof *rows_sm90 };

static const ordo_family families[] = {
    {
        .name = "sm90",
        .backend = ORDO_BACKEND_CUDA,
        /* 1: sums that a rounding error shrank in every key tile of the forward pass; 2: softcap by
         * exp2 alone, ALiBi after the scale */
        .revision = 3,
        .gemm_revision = 1,
        .capability = 90,
        .fraction_bits = 25,
        .sum_products = 16,
        .rows = rows_sm90,
        .row_count = SM90_ROWS,
        .kernels = ORDO_KERNELS_WGMMA,
        .full = ORDO_ORDER_ASCENDING,
        .other = ORDO_ORDER_DESCENDING,
        .head_dim_max = 576,
        .made_bits_max = 256,
        .block_mask_max = 128,
        .seen_max = 256,
        .cyclic_max = 128,
        .shared_bytes = ORDO_SM90_SHARED,
    },
    {
        .name = "cpu",
        .backend = ORDO_BACKEND_CPU,
        /* 1: heads that share keys one after the other; 2: others than full masks by spt+tail; 3:
         * tanh of softcap off by units of 1, not of itself */
        .revision = 4,
        .gemm_revision = 1,
        .rows = rows_cpu,
        .row_count = 1,
        .full = ORDO_ORDER_ASCENDING,
        .other = ORDO_ORDER_DESCENDING,
        .head_dim_max = 576,
        .made_bits_max = 576,
        .block_mask_max = 576,
        .seen_max = 576,
        .cyclic_max = 576,
    },
    {
        .name = "ref",
        .backend = ORDO_BACKEND_REF,
        .revision = 1,
        .rows = rows_ref,
        .row_count = 1,
        .full = ORDO_ORDER_ASCENDING,
        .other = ORDO_ORDER_ASCENDING,
        .head_dim_max = 576,
        .made_bits_max = 576,
        .block_mask_max = 576,
        .seen_max = 576,
        .cyclic_max = 576,
    },
};
enum { FAMILIES = sizeof families / sizeof *families };

const ordo_family *ordo_family_find(const char *name)
{
    for (int x = 0; x < FAMILIES; x++)
        if (strcmp(families[x].name, name) == 0)
            return &families[x];
    return NULL;
}

const ordo_family *ordo_family_of(int capability)
{
    for (int x = 0; x < FAMILIES; x++)
        if (families[x].backend == ORDO_BACKEND_CUDA && families[x].capability == capability)
            return &families[x];
    return NULL;
}

bool ordo_family_runs(const ordo_family *family, ordo_backend backend)
{
    return family->backend == backend ||
           (backend == ORDO_BACKEND_EMULATOR && family->capability == 90);
}

const ordo_family *ordo_family_first(ordo_backend backend)
{
    for (int x = 0; x < FAMILIES; x++)
        if (ordo_family_runs(&families[x], backend))
            return &families[x];
    return NULL;
}

void ordo_family_names(ordo_backend backend, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = 0;
    for (int x = 0; x < FAMILIES && used < capacity; x++)
        if (ordo_family_runs(&families[x], backend))
            used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "",
                                     families[x].name);
}

const ordo_family_row *ordo_family_row_of(const ordo_family *family, const ordo_problem *problem)
{
    const int64_t q = problem->head_dim, v = problem->v_head_dim, dim = q > v ? q : v;
    for (int x = 0; x < family->row_count; x++)
        if (dim <= family->rows[x].head_dim)
            return &family->rows[x];
    return NULL;
}

ordo_order ordo_family_order(const ordo_family *family, const ordo_problem *problem)
{
    const bool full =
        problem->mask == ORDO_MASK_FULL && !problem->window.on && !ordo_has_blocks(problem);
    return full ? family->full : family->other;
}

ordo_form ordo_family_form(const ordo_plan *plan)
{
    const ordo_family *family = ordo_family_find(plan->family);
    const ordo_family_row *row = family ? ordo_family_row_of(family, &plan->problem) : NULL;
    return row ? row->backward.form : ORDO_FORM_FLASH; /* refused later */
}
