/* forms.c: counts the bytes that each form of the backward pass moves. */
#include "plan/forms.h"

#include "plan/phase.h"

enum {
    ROWS = 64,                /* rows of a wgmma instruction */
    COLUMNS = 8,              /* its columns are a multiple of this */
    ACCUMULATORS = 256 * 200, /* two consumer warpgroups, 200 registers per thread */
    STREAM = 32,              /* smallest number of streamed columns in the apart kernel for dq */
    PHASE_ROWS = 128,         /* tiles of the phase form, which are plain products */
    PHASE_COLS = 256,
    CHAIN_KEYS = ORDO_CHAIN_KEYS,
    FLASH_MOST = 128, /* the largest head sizes of flash kernels, apart ones and those by phases */
    APART_MOST = 256,
    PHASE_MOST = 576
};

/* Keys of a flash tile: dk and dv in registers with two score tiles; k, v, q, dout and the two
 * score tiles in shared memory, two bytes each. `columns` are those of k and v together. */
static int64_t flash_keys(int64_t columns, int64_t shared)
{
    const int64_t registers = ACCUMULATORS / (columns + 2 * ROWS);
    const int64_t room = (shared - 2 * ROWS * columns) / (2 * columns + 4 * ROWS);
    const int64_t least = registers < room ? registers : room;
    return least < COLUMNS ? 0 : least / COLUMNS * COLUMNS;
}

/* Rows of a tile of the apart kernel for dq: dq in registers with two thin score tiles. */
static int64_t apart_rows(int64_t d, int64_t columns, int64_t shared)
{
    int64_t rows = 0;
    for (int64_t r = ROWS; r * (d + 2 * STREAM) <= ACCUMULATORS &&
                           2 * r * columns + 2 * STREAM * columns + 4 * r * STREAM <= shared;
         r += ROWS)
        rows = r;
    return rows;
}

/* Both operands of each product once per tile of its result; P stored and read, dS stored. */
static ordo_traffic separate(int64_t products)
{
    return (ordo_traffic) { 2 * products * (PHASE_ROWS + PHASE_COLS) + 6 * PHASE_ROWS * PHASE_COLS,
                            (int64_t)PHASE_ROWS * PHASE_COLS };
}

/* The bytes of one query tile and the keys of one chain: q and dout are read, dS is stored, and the
 * product for dq reads dS and k. */
static ordo_traffic chained(int64_t d, int64_t dv)
{
    return (ordo_traffic) { 2 * (d + dv) * PHASE_ROWS + (2 + 2) * PHASE_ROWS * CHAIN_KEYS +
                                2 * d * CHAIN_KEYS,
                            (int64_t)PHASE_ROWS * CHAIN_KEYS };
}

ordo_form_counts ordo_forms_count(int64_t d, int64_t dv, int64_t shared)
{
    const int64_t columns = d + dv;
    const bool chains = ordo_form_chained(d, dv);
    const int64_t keys = flash_keys(columns, shared), rows = apart_rows(d, columns, shared);
    ordo_form_counts c = { .flash_rows = ROWS, .flash_keys = keys, .apart_rows = rows };
    /* Per key tile a row of q and of dout, two bytes an element, and dq in four: added, which is
     * one way, or read and written. */
    c.l2[ORDO_FORM_FLASH] = (ordo_traffic) { 2 * columns + 4 * d, keys };
    c.flash_stored = (ordo_traffic) { 2 * columns + (4 + 4) * d, keys };
    /* q and dout per key tile, then k and v per query tile. */
    if (keys > 0 && rows > 0)
        c.l2[ORDO_FORM_APART] = (ordo_traffic) { 2 * columns * (keys + rows), keys * rows };
    c.l2[ORDO_FORM_PHASE] =
        chains ? chained(d, dv) : separate(ordo_form_columns(ORDO_FORM_PHASE, d, dv));
    /* P and dS written once, P read by one product and dS by two; in chains dS alone, read once. */
    c.hbm[ORDO_FORM_PHASE] = chains ? 2 + 2 : 2 * 2 + 2 * 3;
    return c;
}

bool ordo_form_chained(int64_t d, int64_t dv)
{
    return d <= ORDO_CHAIN_D && dv <= ORDO_CHAIN_D;
}

int64_t ordo_form_columns(ordo_form form, int64_t d, int64_t dv)
{
    const int64_t scores = d + dv; /* S and dP; apart computes them twice */
    return scores + (form == ORDO_FORM_APART ? scores : 0) + dv + d + d;
}

bool ordo_form_exists(ordo_form form, int64_t head_dim)
{
    return form == ORDO_FORM_FLASH
               ? head_dim <= FLASH_MOST
               : head_dim > FLASH_MOST &&
                     head_dim <= (form == ORDO_FORM_APART ? APART_MOST : PHASE_MOST);
}

ordo_form ordo_form_fewest(const ordo_form_counts *c)
{
    const ordo_traffic flash = c->l2[ORDO_FORM_FLASH], phase = c->l2[ORDO_FORM_PHASE];
    const bool fits = flash.scores > 0;
    return fits && flash.bytes * phase.scores <= phase.bytes * flash.scores ? ORDO_FORM_FLASH
                                                                            : ORDO_FORM_PHASE;
}

ordo_form ordo_form_choose(const ordo_form_counts *c, int64_t head_dim)
{
    if (ordo_form_exists(ORDO_FORM_FLASH, head_dim))
        return ordo_form_fewest(c);
    return ORDO_FORM_PHASE;
}
