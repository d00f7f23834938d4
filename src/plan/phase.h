/* phase.h: the panels of the passes by phases (ordo_plan_by_phases()), and their workspace.
 *
 * The workspace holds P, and in the backward pass dS, of one panel: `tiles` query tiles of each
 * query head that shares one of `section` key heads. A backward pass in chains
 * (ORDO_FORM_CHAIN) stores no P. Sums of dK and dV are continued from panel to panel in f32. A
 * panel has all query tiles of as many key heads as the workspace limit allows; if it does not
 * allow one, as many query tiles of one key head, but at least one. The panels change no bit. Plain
 * C, integers only. */
#ifndef PLAN_PHASE_H
#define PLAN_PHASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/for_lab.h"

/* Bytes of workspace by default, of all parts together: a power of two of scores, and a quarter GiB
 * for the rest, so that lengths that are powers of two do not just miss a head. */
#define ORDO_PHASE_BUDGET (INT64_C(5) << 28)

/* Backward passes whose heads have at most CHAIN_D columns run in chains: a unit is CHAIN_KEYS
 * keys, a step as many queries. These change no bit. */
enum { ORDO_CHAIN_D = 256, ORDO_CHAIN_KEYS = 64 };

typedef struct ordo_phase_problem {
    int64_t tiles;                /* query tiles of one head, of all sequences */
    int64_t tile_rows, tile_keys; /* rows and keys of a tile */
    int64_t kv_heads, group_heads;
    int64_t kv_len;      /* the longest */
    int64_t kv_rows;     /* key rows of all sequences */
    int64_t sum_columns; /* columns of dK and dV together; forward: 0 */
    bool backward;
    bool chained; /* backward: P is not stored */
} ordo_phase_problem;

typedef struct ordo_phase_panels {
    int64_t section; /* key heads */
    int64_t tiles;   /* query tiles of one head, of a panel */
    int64_t columns; /* columns of P and dS in a row: kv_len in whole tiles */
} ordo_phase_panels;

/* The panels whose P, dS and sums fit `budget` bytes, or the smallest ones. */
ORDO_FOR_LAB ordo_phase_panels ordo_phase_panels_of(const ordo_phase_problem *p, uint64_t budget);

#endif
