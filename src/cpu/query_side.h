/* query_side.h: the query side of a backward pass, in the workspace.
 *
 * Every query tile is prepared once for all chains that visit it: q and dout as panels, both also
 * transposed, the row sums of dO * O, lse in base 2, its dQ and the number of
 * chains that have added to it. */
#ifndef CPU_QUERY_SIDE_H
#define CPU_QUERY_SIDE_H

#include <stdatomic.h>

#include "cpu/blocks.h"
#include "cpu/wait.h"

typedef struct ordo_query_side {
    const ordo_cpu_pass *pass;
    int64_t tiles;     /* query tiles of all sequences */
    int64_t group;     /* rows of a tile, padded to 16 */
    int ld;            /* floats between rows of dq */
    int ld_t;          /* floats between rows of the transposed panels */
    float *dq;         /* (head, tile, row, dim), f32 */
    float *q, *dout;   /* (head, tile, row, dim), f32 panels */
    float *qt, *doutt; /* (head, tile, dim, row): the same, transposed */
    float *delta;      /* (head, tile, row): row sums of dO * O, minus dlse */
    float *lse2;       /* (head, tile, row): lse in base 2, +inf where lse is -inf */
    atomic_int *ready; /* (head, tile): ordo_panel_state of q and dout */
    atomic_int *turns; /* (head, tile): additions that are complete */
} ordo_query_side;

/* Divide the workspace of the pass into these arrays, and mark all tiles as not ready. The pass
 * must outlive `side`. */
void ordo_query_side_open(ordo_query_side *side, const ordo_cpu_pass *pass);

/* The number of tickets of the preparation, and the work of one ticket. `scratch` holds one tile of
 * rows of v_ld floats. */
int64_t ordo_query_side_tickets(const ordo_query_side *side);
void ordo_query_side_prepare(const ordo_query_side *side, int64_t ticket, float *scratch);

/* Index of (sequence, head, query tile) in the arrays. The tiles of a head that is visited in
 * descending order are stored in that order, so that memory is read at ascending addresses. */
static inline int64_t ordo_query_place(const ordo_query_side *side, int64_t b, int64_t head,
                                       int32_t i)
{
    const ordo_sequence *s = &side->pass->sequences[b];
    const ordo_walk walk = ordo_run_walk(&s->run, (int32_t)(head / side->pass->queries));
    const int32_t place = walk.kind == ORDO_WALK_DESCENDING ? walk.nq - 1 - i : i;
    return head * side->tiles + s->tile + place;
}

/* The panels of one query tile. */
typedef struct ordo_query_tile {
    float *dq, *q, *dout, *qt, *doutt, *delta, *lse2;
} ordo_query_tile;

static inline ordo_query_tile ordo_query_tile_at(const ordo_query_side *side, int64_t place)
{
    const ordo_cpu_pass *p = side->pass;
    const int64_t row = place * p->plan->backward_tile.q;
    return (ordo_query_tile) { .dq = side->dq + row * side->ld,
                               .q = side->q + row * p->ld,
                               .dout = side->dout + row * p->v_ld,
                               .qt = side->qt + place * p->dim * side->ld_t,
                               .doutt = side->doutt + place * p->v_dim * side->ld_t,
                               .delta = side->delta + place * side->group,
                               .lse2 = side->lse2 + place * side->group };
}

static inline int ordo_query_rows(const ordo_band *band, int32_t i)
{
    return ordo_min32(band->bq, band->q_len - i * band->bq);
}

/* Number of key tiles that add into a query tile. */
static inline int32_t ordo_query_keys(const ordo_query_side *side, int64_t b, int64_t head,
                                      int32_t i)
{
    const ordo_lists *lists = ordo_cpu_lists(side->pass, b, head);
    return lists ? ordo_lists_count(lists, i)
                 : ordo_span_count(ordo_band_keys(&side->pass->sequences[b].run.band, i));
}

/* Round rows of dQ and write them to the caller's tensor, if there is one; `dq` NULL: write zeros.
 */
void ordo_query_write(const ordo_query_side *side, int64_t b, int64_t head, int64_t row, int rows,
                      const float *dq);

/* Zero the rows of a panel whose logits are all -inf (lse2 = +inf). They contribute nothing, but
 * the product of a zero probability and an infinity would be NaN. */
void ordo_query_blank(float *panel, int ld, const float *lse2, int rows);

#endif
