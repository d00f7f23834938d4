/* workspace.h: how many bytes of workspace a plan needs, and how a pass divides them.
 *
 * A workspace consists of parts, each a multiple of 256 bytes, in the order in which the structs
 * below list them. All functions that return bool return false if a size does not fit 64 bits; for
 * a plan that ordo_plan_create() made they never do. */
#ifndef PLAN_WORKSPACE_H
#define PLAN_WORKSPACE_H

#include "plan/phase.h"
#include "plan/segments.h"
#include "plan/sizes.h"

/* Bytes of each part of the backward pass's workspace. Rows are padded to whole tiles. */
typedef struct ordo_backward_parts {
    uint64_t dq;      /* the f32 sum of dQ per query row; none on CUDA at head sizes above 128 */
    uint64_t delta;   /* row sums of dO * O */
    uint64_t turns;   /* one turn counter per query tile */
    uint64_t ticket;  /* the ticket and a flag */
    uint64_t q;       /* CPU: queries as panels */
    uint64_t dout;    /* CPU: dO as panels */
    uint64_t qt;      /* CPU: queries transposed */
    uint64_t doutt;   /* CPU: dO transposed */
    uint64_t lse2;    /* lse in base 2 */
    uint64_t ready;   /* CPU: one flag per query tile: its panels are filled */
    uint64_t table;   /* CUDA: the table of sequences */
    uint64_t broken;  /* CUDA: a mark per row of dK and of dV, for sums that are carried out */
    uint64_t words;   /* CUDA, block mask: rows of bits, */
    uint64_t columns; /* and columns: cuda/pass/blocks.h */
    uint64_t p, ds;   /* CUDA, by phases: of a panel; no p if the pass is chained */
    uint64_t dk, dv;  /* CUDA, by phases: f32 sums of a section of key heads */
    ordo_phase_panels panels;
} ordo_backward_parts;

/* Parts of a backward pass with `tiles` query tiles in all sequences together. */
bool ordo_plan_backward_parts(const ordo_plan *plan, uint64_t tiles, ordo_backward_parts *parts);

/* Bytes of each part of the forward pass's workspace. Those of the CPU are 0 unless a key tile
 * meets more query tiles than one item takes together. */
typedef struct ordo_forward_parts {
    uint64_t kt;     /* CPU: keys transposed */
    uint64_t v;      /* CPU: values as panels */
    uint64_t ready;  /* CPU: one flag per key tile: its panels are filled */
    uint64_t ticket; /* CUDA: the ticket and a flag */
    uint64_t table;  /* CUDA: the table of sequences */
    uint64_t words;  /* CUDA, block mask: rows of bits (cuda/pass/blocks.h), */
    uint64_t spans;  /* and the first and last key tile of each */
    uint64_t weight; /* CUDA, by phases: the factor of the outputs of each query row */
    uint64_t p;      /* CUDA, by phases: of a panel */
    uint64_t shrink; /* CUDA, by phases: one f32 per row of each key tile of p */
    uint64_t spread; /* CUDA, keys in pages: scores of long sequences, cuda/pass/spread.h */
    ordo_phase_panels panels;
} ordo_forward_parts;

/* Key tiles of one head whose scores part `spread` holds, in whole runs: those of as many of the
 * longest sequences as can be long at once, as far as they fit 256 MiB; 0 if no call of the plan
 * has long ones. */
int64_t ordo_plan_spread_slots(const ordo_plan *plan);

/* Lines of a slot: rows of the query heads that share keys, rounded up to groups. */
int64_t ordo_plan_spread_lines(const ordo_problem *problem);

/* Parts of a forward pass with `tiles` key tiles in all sequences together. */
bool ordo_plan_forward_parts(const ordo_plan *plan, uint64_t tiles, ordo_forward_parts *parts);

/* Bytes of the table of sequences: one entry per sequence and one for the totals. A CUDA pass
 * fills it on the device if only the device knows the lengths, or the ids for dropout; 0 for other
 * plans. */
uint64_t ordo_plan_table_bytes(const ordo_plan *plan);

/* Query tiles of the backward pass in all sequences together. For a packed batch this is an upper
 * bound that holds for any lengths. */
bool ordo_plan_query_tiles(const ordo_plan *plan, uint64_t *tiles);

/* Key tiles likewise. */
bool ordo_plan_key_tiles(const ordo_plan *plan, uint64_t *tiles);

/* The same in blocks of ORDO_BLOCK keys, of which a key tile of the kernels has one or more. */
bool ordo_plan_key_blocks(const ordo_plan *plan, uint64_t *blocks);

/* Workspace of the forward pass. An empty problem needs none. */
bool ordo_plan_forward_bytes(const ordo_plan *plan, uint64_t *bytes);

/* Workspace that is enough for either pass. An empty problem needs none. */
bool ordo_plan_workspace_bytes(const ordo_plan *plan, uint64_t *bytes);

/* Bytes of each part of the workspace of a plan with segments, in this order: `buffers` times bits,
 * then what a pass over the longest segment needs, then for the backward pass the sums. */
typedef struct ordo_segment_parts {
    int buffers;
    uint64_t bits; /* bytes of one buffer, with the table that makes it on a device */
    uint64_t forward, backward;
    uint64_t dk, dv; /* f32 sums that go on from segment to segment */
} ordo_segment_parts;

bool ordo_segment_sizes(const ordo_plan *plan, ordo_segment_parts *parts);

#endif
