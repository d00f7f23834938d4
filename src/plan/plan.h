/* plan.h: a plan as data. src/planner fills it; backends, model and simulators read it. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "ordo/plan.h"
#include "plan/issue.h"

enum {
    ORDO_TILE_MAX = 4096, /* rows or columns of a tile */
    ORDO_SPLIT_MAX = 64,  /* accumulators a query tile */
    ORDO_WORKERS_MAX = 1 << 20,
    ORDO_LENGTH_MAX = ORDO_BAND_OPEN, /* of a sequence */
    ORDO_SEQUENCE_BYTES = 80          /* of an entry of a GPU's table of sequences */
};

struct ordo_plan {
    ordo_problem problem; /* resolved: every default filled in */
    ordo_backend backend;
    char family[16]; /* of backends with the same bits: "ref", "cpu", "sm90" */
    int revision;    /* numeric revision of that family */
    ordo_tile forward_tile, backward_tile;
    ordo_order order, order_asked;
    int64_t group; /* shift and symmetric: a size, or ORDO_GROUP_WAVES; else 0 */
    int64_t split;
    ordo_issue issue;
    int64_t section;
    ordo_assign assign;
    int64_t workers;
    int threshold;        /* dropout: keep if draw < threshold */
    int64_t predicted_ns; /* -1: unknown */
    char note[256];
};

/* Whether no query meets a key, because there are none: nothing is computed then. */
static inline bool ordo_problem_empty(const ordo_problem *p)
{
    const bool packed = p->layout == ORDO_PACKED;
    return p->batch == 0 || p->q_len == 0 || p->kv_len == 0 ||
           (packed && (p->total_q == 0 || p->total_kv == 0));
}

/* The mask of one sequence of `q_len` rows and `kv_len` columns, seen by backward tiles.
 * Lengths of a dense problem come from the problem (and its shard), those of a packed or padded
 * sequence from the call. */
ordo_band ordo_plan_band(const ordo_plan *plan, int64_t q_len, int64_t kv_len);

/* `sequences` sequences of these lengths as a run, ready for ordo_run_issue(). */
ordo_run ordo_plan_run(const ordo_plan *plan, int64_t sequences, int64_t q_len, int64_t kv_len);

/* Chains that must be resident together, for any lengths that the plan may meet; 0: none. */
int32_t ordo_plan_coresident(const ordo_plan *plan);

/* Floats from row to row of a CPU panel `n` wide: whole vectors of 16, and no multiple of 64, whose
 * columns would all fall into a few sets of a cache. */
static inline int ordo_panel_row(int64_t n)
{
    const int padded = (int)(n + 15) / 16 * 16;
    return padded % 64 == 0 ? padded + 16 : padded;
}

/* Columns of a head in the kernels of a GPU, that of the next size they are made for. */
static inline int ordo_plan_bucket(const ordo_plan *plan)
{
    const int64_t q = plan->problem.head_dim, v = plan->problem.v_head_dim, dim = q > v ? q : v;
    return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}

/* Parts of the backward pass's workspace, each a multiple of 256 bytes, in this order: an f32 dQ a
 * query row (times `split`; none on a GPU in bucket 256, whose kernels never store a part of dQ),
 * the row sums of dO.O, a turn counter a query tile, the ticket (and a flag); the query side as
 * panels, q, dout, both also transposed (CPU); lse in powers of two; whether a tile is ready (CPU);
 * the table of sequences (GPU). Rows are padded to whole tiles. */
typedef struct ordo_workspace {
    uint64_t dq, delta, turns, ticket, q, dout, qt, doutt, lse2, ready, table; /* bytes */
} ordo_workspace;

/* Their sizes for `tiles` query tiles in all sequences. False if a sum does not fit 64 bits. */
bool ordo_plan_parts(const ordo_plan *plan, uint64_t tiles, ordo_workspace *parts);

/* The next `bytes` of a workspace, for its parts in order. */
static inline void *ordo_workspace_cut(char **at, uint64_t bytes)
{
    void *piece = *at;
    *at = bytes > 0 ? *at + bytes : *at; /* there may be none */
    return piece;
}

/* Of the table of sequences that a GPU makes of a batch whose lengths, or ids for dropout, it alone
 * knows: an entry each and one for the totals. 0 of other batches. */
uint64_t ordo_plan_table_bytes(const ordo_plan *plan);

/* Query tiles of the backward pass in all sequences; of a packed batch no more than this, however
 * it is cut. False if they do not fit 64 bits. */
bool ordo_plan_query_tiles(const ordo_plan *plan, uint64_t *tiles);

/* Query tiles that go through a CPU's forward pass together, at most. */
enum { ORDO_ITEM_TILES = 8 };

/* Parts of the CPU forward pass's workspace: keys transposed and values as panels and a word a key
 * tile, where more query tiles meet a key tile than go together; else nothing. */
typedef struct ordo_key_parts {
    uint64_t kt, v, ready; /* bytes */
} ordo_key_parts;

/* Their sizes for `tiles` key tiles in all sequences. False if one does not fit 64 bits. */
bool ordo_plan_key_parts(const ordo_plan *plan, uint64_t tiles, ordo_key_parts *parts);

/* Workspace of the forward pass: on a GPU its ticket and flag, then the table; on a CPU its panels
 * of keys and values; none of an empty problem. False if it does not fit 64 bits. */
bool ordo_plan_forward_bytes(const ordo_plan *plan, uint64_t *bytes);

/* Workspace of the backward pass, never less than the forward's; none of an empty problem. False if
 * it does not fit 64 bits. */
bool ordo_plan_workspace_bytes(const ordo_plan *plan, uint64_t *bytes);

/* Levels of the promise that this plan keeps, as ORDO_PROMISE_... bits. */
unsigned ordo_plan_promise(const ordo_plan *plan);

/* "shift.g32/k1": the order's part of the numeric key. */
void ordo_order_key(ordo_order order, int64_t group, int64_t workers, int64_t split, char *text,
                    size_t capacity);

/* "sm90.r2/f128x128/b64x128/descending/k1/philox7x8": same key, same bits. */
void ordo_plan_key(const ordo_plan *plan, char *text, size_t capacity);

#endif
