/* sm90/forward/roles.h: shared memory of the forward kernel, and its producer thread.
 *
 * The producer looks a ticket up once, while the consumers work on the unit before, and writes what
 * it found for them: four numbers in the dense kernel, whose sequences are all alike, and a record
 * in the varlen kernel, which runs batches of any layout. */
#ifndef CUDA_SM90_FORWARD_ROLES_H
#define CUDA_SM90_FORWARD_ROLES_H

#include "cuda/sm90/forward/args.h"
#include "cuda/sm90/pipeline.h"
#include "cuda/tile/swizzle.h"
#include "plan/family_sm90.h"

/* A unit of the dense kernel. */
struct forward_slot {
    int32_t row;         /* the tile's first one; -1: no more units */
    int32_t last;        /* key tile: they are walked from there down to the first */
    int32_t head, batch; /* query head, and its sequence */
};

/* A unit of the varlen kernel. */
struct forward_record {
    int32_t head;          /* query head; -1: no more units */
    int32_t batch;         /* the sequence in tensors */
    int32_t q_row, kv_row; /* its first ones in tensors */
    int32_t row;           /* the tile's first one, of the sequence */
    int32_t q_len, kv_len, low, high;
    int32_t first, last; /* key tiles, walked last to first. At least one */
    int32_t diagonal;
    float slope; /* ALiBi */
    uint32_t keep_head;
    int32_t keep_across;
    int64_t keep; /* the head's first block of bits */
    int64_t lse;  /* place of the head's row 0 */
};

/* What a unit has beside its record under a block mask: sm90/forward/blocks.h. */
struct forward_listed {
    const ordo_tile_word *words; /* rows of bits of the tile's queries, one after the other */
    int32_t rows;                /* how many of them exist */
    int32_t interval;            /* place of the tile's first row among the intervals */
    int64_t bits;                /* or of its first block among those of bits */
    int32_t kv_head;
    int32_t lowest[2]; /* key tile that a warpgroup sees; INT32_MAX: none */
};

/* What the varlen kernel reads beside a band: lists of a block mask, and bits of an element mask; a
 * bias; a table of pages. */
enum forward_kind { FORWARD_BAND, FORWARD_LISTS, FORWARD_ELEMENTS, FORWARD_BIAS, FORWARD_PAGES };

/* What a unit has beside its record if keys are in pages: sm90/forward/paged.h. */
struct forward_stored {
    int32_t sequence;
    int32_t batch, kv_row; /* not read: the table says where columns lie */
    int32_t start;         /* the first stored column */
    int32_t from, to;      /* columns that a row of the unit may see */
};

/* D: columns of queries and keys; DV: of values and outputs. */
template <int D, int DV, bool VARLEN, forward_kind KIND = FORWARD_BAND> struct forward_shape {
    enum {
        LISTS = KIND == FORWARD_LISTS || KIND == FORWARD_ELEMENTS,
        PAGED = KIND == FORWARD_PAGES,
        BIAS = KIND == FORWARD_BIAS,
        /* Under a block mask the rows of a block: others would walk what only some of them see.
         * With a bias two warpgroups, which have more registers than three. */
        ROWS = LISTS || BIAS ? (int)ORDO_BLOCK : (int)ORDO_SM90_FORWARD_Q(D),
        COLUMNS = ORDO_SM90_FORWARD_K(D),
        CONSUMERS = ROWS / 64,    /* warpgroups */
        STAGES = D == 64 ? 4 : 2, /* each of K and V */
        THREADS = 128 * (CONSUMERS + 1),
        /* Together at most what the block starts with: 128 per thread if there are three consumer
         * warpgroups, else 168. */
        CONSUMER_REGISTERS = CONSUMERS == 3 ? 160
                             : D == 64      ? 224
                             : VARLEN       ? 232
                                            : 240,
        PRODUCER_REGISTERS = CONSUMERS == 3 ? 32
                             : D == 64      ? 56
                             : VARLEN       ? 40
                                            : 24,
        PANELS = D / ORDO_PANEL_COLUMNS,
        V_PANELS = DV / ORDO_PANEL_COLUMNS,
        Q_BYTES = ROWS * D * 2,
        O_BYTES = ROWS * DV * 2,
        K_BYTES = COLUMNS * D * 2,
        V_BYTES = COLUMNS * DV * 2,
        /* A warpgroup's tile of a bias: in 16 bits a stage, in 32 the two stages. */
        BIAS_STAGES = 2,
        BIAS_BYTES = BIAS ? 64 * COLUMNS * 2 : 0, /* a stage */
        BIASES_BYTES = CONSUMERS * BIAS_STAGES * BIAS_BYTES,
        /* What there is room for beside K, V and a bias: O in a buffer of its own, else in Q's
         * place; two buffers of Q, else one. */
        ROOM = ORDO_SMEM_MOST - ORDO_SMEM_BASE - 1024 - STAGES * (K_BYTES + V_BYTES) - BIASES_BYTES,
        O_IN_Q = 2 * Q_BYTES + O_BYTES > ROOM,
        Q_STAGES = O_IN_Q && 2 * Q_BYTES > ROOM ? 1 : 2,
        /* A record is read longer than the Q it came with: that of unit n + 4 is written after the
         * Q of unit n + 1 was released, and by then every warp has finished unit n. */
        RECORDS = 4,
        /* shared memory */
        Q = ORDO_SMEM_BASE,
        K = Q + Q_STAGES * Q_BYTES,
        V = K + STAGES * K_BYTES,
        BIASES = V + STAGES * V_BYTES,
        O = O_IN_Q ? Q : BIASES + BIASES_BYTES,
        Q_FULL = BIASES + BIASES_BYTES + (O_IN_Q ? 0 : O_BYTES), /* barriers, 8 bytes each */
        Q_EMPTY = Q_FULL + 16,
        K_FULL = Q_EMPTY + 16,
        K_EMPTY = K_FULL + 8 * STAGES,
        V_FULL = K_EMPTY + 8 * STAGES,
        V_EMPTY = V_FULL + 8 * STAGES,
        BIAS_FULL = V_EMPTY + 8 * STAGES,
        BIAS_EMPTY = BIAS_FULL + (BIAS ? 8 * CONSUMERS * BIAS_STAGES : 0),
        SLOT = BIAS_EMPTY + (BIAS ? 8 * CONSUMERS * BIAS_STAGES
                                  : 0), /* the units that the two Q belong to: slots or records */
        LISTED = SLOT + (VARLEN ? RECORDS * (int)sizeof(forward_record)
                                : 2 * (int)sizeof(forward_slot)), /* block masks: and more */
        TILE = LISTED + (LISTS ? RECORDS * (int)sizeof(forward_listed) : 0),
        STORED = TILE + (LISTS ? 4 * STAGES : 0), /* a word per stage of K; pages: and more */
        END = STORED + (PAGED ? RECORDS * (int)sizeof(forward_stored) : 0),
        BYTES = END - ORDO_SMEM_BASE
    };
    static_assert((int)BYTES <= (int)ORDO_SMEM_MOST, "shared memory");
    static_assert(ROWS % 64 == 0, "a consumer warpgroup has 64 rows");
    static_assert(DV <= D, "O leaves from Q's place");
    static_assert((int)ORDO_KEEP_COLS % COLUMNS == 0, "a tile's keep bits are of one block");
    static_assert((int)SLOT % 16 == 0 && sizeof(forward_slot) == 16, "slots are read as 16 bytes");
    using records = shared_ring<forward_record, RECORDS, SLOT>;
    using listed = shared_ring<forward_listed, RECORDS, LISTED>;
    using stored = shared_ring<forward_stored, RECORDS, STORED>;
};

/* A kernel begins: with barriers, and the repair that may follow it. `loads`: arrivals for a tile
 * of K or V. `followers`: loader warps that learn of a unit with its Q. Returns the warpgroup. */
template <class Z> ORDO_DEVICE int forward_begin(uint32_t loads = 1, uint32_t followers = 0)
{
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    block_begin([loads, followers] {
        for (int s = 0; s < Z::Q_STAGES; s++) {
            mbar_init(Z::Q_FULL + 8 * s, 1);
            mbar_init(Z::Q_EMPTY + 8 * s, 4 * Z::CONSUMERS + followers);
        }
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::K_FULL + 8 * s, loads);
            mbar_init(Z::V_FULL + 8 * s, loads);
            mbar_init(Z::K_EMPTY + 8 * s, 4 * Z::CONSUMERS);
            mbar_init(Z::V_EMPTY + 8 * s, 4 * Z::CONSUMERS);
        }
        for (int s = 0; s < (Z::BIAS ? Z::CONSUMERS * Z::BIAS_STAGES : 0); s++) {
            mbar_init(Z::BIAS_FULL + 8 * s, 1);
            mbar_init(Z::BIAS_EMPTY + 8 * s, 4);
        }
    });
    grid_let_next(); /* the repair: it waits by itself */
    return warpgroup;
}

/* Stage and parity of Q for unit number `drawn` of a block. */
template <class Z> ORDO_DEVICE uint32_t forward_q_stage(uint32_t drawn)
{
    return Z::Q_STAGES == 1 ? 0 : drawn & 1;
}

template <class Z> ORDO_DEVICE uint32_t forward_q_parity(uint32_t drawn)
{
    return Z::Q_STAGES == 1 ? drawn & 1 : drawn >> 1 & 1;
}

/* The slot of a unit: written when its Q stage is empty, read when it is full. */
template <class Z> ORDO_DEVICE void forward_slot_write(uint32_t drawn, const forward_slot &slot)
{
    store_shared_int4(Z::SLOT + 16 * forward_q_stage<Z>(drawn),
                      make_int4(slot.row, slot.last, slot.head, slot.batch));
}

template <class Z> ORDO_DEVICE forward_slot forward_slot_read(uint32_t drawn)
{
    const int4 slot = load_shared_int4(Z::SLOT + 16 * forward_q_stage<Z>(drawn));
    return { slot.x, slot.y, slot.z, slot.w };
}

/* Tickets of the pass; how many a packed or padded batch has only the table knows. */
template <bool VARLEN> ORDO_DEVICE int forward_units(const ordo_forward_args &args)
{
    if (VARLEN && args.batch.table)
        return args.issue.heads * args.batch.table[args.batch.sequences].forward_tile;
    return args.units;
}

template <int D, int DV, forward_kind KIND = FORWARD_BAND>
ORDO_DEVICE ordo_forward_place forward_describe(const ordo_forward_args &args, int ticket,
                                                forward_record *to)
{
    using Z = forward_shape<D, DV, true, KIND>;
    ordo_forward_place place;
    if (args.batch.table) {
        place = ordo_forward_issue_ragged(&args.issue, &args.batch,
                                          Z::PAGED ? ORDO_BEFORE_QUERY : ORDO_BEFORE_FORWARD, D,
                                          args.run.group_heads, ticket);
    } else {
        const ordo_forward_unit unit = ordo_forward_issue(&args.issue, ticket);
        place = { unit.head / args.issue.heads, unit.head % args.issue.heads, unit.tile };
    }
    const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, place.sequence);
    const ordo_band band = ordo_sequence_band(&s, Z::ROWS, Z::COLUMNS);
    const ordo_span keys = ordo_band_keys(&band, place.tile);
    const bool sees_nothing = keys.last < keys.first; /* walks one key tile and masks all of it */
    to->head = place.head;
    to->batch = s.batch;
    to->q_row = s.q_row;
    to->kv_row = s.kv_row;
    to->row = place.tile * Z::ROWS;
    to->q_len = s.q_len;
    to->kv_len = s.kv_len;
    to->low = s.low;
    to->high = s.high;
    to->first = sees_nothing ? 0 : keys.first;
    to->last = sees_nothing ? 0 : keys.last;
    to->diagonal = s.diagonal;
    to->slope = 0.0f;
    if (args.slopes)
        to->slope = args.slopes[place.sequence * args.slopes_sequence + place.head];
    to->keep_head = keep_head_of(args, s.id, place.head);
    to->keep_across = s.keep_across;
    to->keep = s.keep + place.head * s.keep_head;
    to->lse = s.lse + place.head * args.batch.lse_head;
    return place;
}

/* Where the loads of a unit begin. */
struct forward_from {
    int q_row, kv_row, head, kv_head, batch, first, last;
};

template <int D, int DV, bool VARLEN>
ORDO_DEVICE forward_from forward_loads(const ordo_forward_args &args, int ticket,
                                       const forward_record *record)
{
    using Z = forward_shape<D, DV, VARLEN>;
    if constexpr (VARLEN)
        return { record->q_row + record->row,
                 record->kv_row,
                 record->head,
                 record->head / args.run.group_heads,
                 record->batch,
                 record->first,
                 record->last };
    const ordo_forward_unit unit = ordo_forward_issue(&args.issue, ticket);
    const int head = unit.head % args.issue.heads;
    return { unit.tile * Z::ROWS,          0, head,         head / args.run.group_heads,
             unit.head / args.issue.heads, 0, unit.keys - 1 };
}

/* The next tile of a bias, of every warpgroup. `pieces`: how many a warpgroup has been given. */
template <class Z>
ORDO_DEVICE void forward_load_bias(const ordo_forward_bias_args &args, const forward_record &record,
                                   int tile, uint32_t &pieces)
{
    enum { BOX = 64 * ORDO_LINE_BYTES, BOXES = Z::BIAS_BYTES / BOX };
    const int columns = ORDO_LINE_BYTES / (args.bias.f32 ? 4 : 2);
    const int head = args.bias.head ? record.head : 0;
    const int sequence = args.bias.sequence ? record.batch : 0;
    const uint64_t policy = args.bias.head ? policy_evict_first() : policy_evict_last();
#pragma unroll 1
    for (int mine = 0; mine < Z::CONSUMERS; mine++) {
        uint32_t n = pieces;
#pragma unroll 1
        for (int box = 0; box * columns < Z::COLUMNS; n++) {
            const uint32_t stage = mine * Z::BIAS_STAGES + n % Z::BIAS_STAGES;
            mbar_wait(Z::BIAS_EMPTY + 8 * stage, (n / Z::BIAS_STAGES & 1) ^ 1);
            mbar_expect(Z::BIAS_FULL + 8 * stage, Z::BIAS_BYTES);
#pragma unroll
            for (int b = 0; b < BOXES; b++, box++)
                tma_load(Z::BIASES + stage * Z::BIAS_BYTES + b * BOX, &args.map_bias,
                         Z::BIAS_FULL + 8 * stage, tile * Z::COLUMNS + box * columns,
                         record.row + mine * 64, head, sequence, policy);
        }
    }
    pieces += args.bias.f32 ? 2 : 1;
}

template <int D, int DV, bool VARLEN, forward_kind KIND = FORWARD_BAND, class ARGS>
ORDO_DEVICE void forward_load(const ARGS &args, char *smem)
{
    using Z = forward_shape<D, DV, VARLEN, KIND>;
    const uint64_t evict_last = policy_evict_last(), evict_first = policy_evict_first();
    const int units = forward_units<VARLEN>(args);
    int k_stage = 0, k_parity = 1, v_stage = 0, v_parity = 1;
    uint32_t drawn = 0;  /* units so far */
    uint32_t pieces = 0; /* of biases */
    if constexpr (VARLEN)
        if ((int)blockIdx.x < units)
            forward_describe<D, DV, KIND>(args, blockIdx.x, Z::records::of(smem, 0));
    for (int ticket = blockIdx.x; ticket < units; drawn++) {
        const uint32_t q_stage = forward_q_stage<Z>(drawn), q_full = Z::Q_FULL + 8 * q_stage;
        const forward_from from =
            forward_loads<D, DV, VARLEN>(args, ticket, Z::records::of(smem, drawn));
        auto load_k = [&](int tile) {
            mbar_wait(Z::K_EMPTY + 8 * k_stage, k_parity);
            mbar_expect(Z::K_FULL + 8 * k_stage, Z::K_BYTES);
            tma_load_tile<D>(Z::K + k_stage * Z::K_BYTES, &args.map.k, Z::K_FULL + 8 * k_stage,
                             Z::COLUMNS, from.kv_row + tile * Z::COLUMNS, from.kv_head, from.batch,
                             evict_last);
            if (++k_stage == Z::STAGES) {
                k_stage = 0;
                k_parity ^= 1;
            }
        };
        auto load_bias = [&](int tile) {
            if constexpr (Z::BIAS)
                if (args.staged)
                    forward_load_bias<Z>(args, *Z::records::of(smem, drawn), tile, pieces);
        };
        load_k(from.last); /* its stage is free before Q's */
        load_bias(from.last);
        mbar_wait(Z::Q_EMPTY + 8 * q_stage, forward_q_parity<Z>(drawn) ^ 1);
        if constexpr (!VARLEN)
            forward_slot_write<Z>(drawn, { from.q_row, from.last, from.head, from.batch });
        mbar_expect(q_full, Z::Q_BYTES);
        tma_load_tile<D>(Z::Q + q_stage * Z::Q_BYTES, &args.map.q, q_full, Z::ROWS, from.q_row,
                         from.head, from.batch, evict_first);
        const int next = (int)gridDim.x + atomicAdd(args.ticket, 1);
        /* The varlen kernel reads it from the record at each use, to save a register. */
        const int &first = VARLEN ? Z::records::of(smem, drawn)->first : from.first;
        for (int tile = from.last; tile >= first; tile--) {
            if (tile > first)
                load_k(tile - 1);
            mbar_wait(Z::V_EMPTY + 8 * v_stage, v_parity);
            mbar_expect(Z::V_FULL + 8 * v_stage, Z::V_BYTES);
            tma_load_tile<DV>(Z::V + v_stage * Z::V_BYTES, &args.map.v, Z::V_FULL + 8 * v_stage,
                              Z::COLUMNS, from.kv_row + tile * Z::COLUMNS, from.kv_head, from.batch,
                              evict_last);
            if (++v_stage == Z::STAGES) {
                v_stage = 0;
                v_parity ^= 1;
            }
            if (tile > first)
                load_bias(tile - 1);
            if constexpr (VARLEN) /* in the shadow of the loads issued so far */
                if (tile == from.last && next < units)
                    forward_describe<D, DV, KIND>(args, next, Z::records::of(smem, drawn + 1));
        }
        ticket = next;
    }
    const uint32_t q_stage = forward_q_stage<Z>(drawn);
    mbar_wait(Z::Q_EMPTY + 8 * q_stage, forward_q_parity<Z>(drawn) ^ 1);
    if constexpr (VARLEN)
        Z::records::of(smem, drawn)->head = -1; /* no more */
    else
        forward_slot_write<Z>(drawn, { -1, 0, 0, 0 });
    mbar_arrive(Z::Q_FULL + 8 * q_stage);
}

#endif
