/* sm90/phases/product.h: the last phase: the products of P and dS with V, K, dO and Q.
 *
 * By queries: O = P V or dQ = dS K of 128 queries of a query head. The sum runs over the keys in
 * ascending order; O is multiplied by each row's factor before a key tile is added. By keys:
 * dV = P^T dO and dK = dS^T Q of 128 keys of a key head. The sum runs over the query tiles in the
 * order of the plan, at each over the query heads of the group, and over the rows in ascending
 * order. The sums of a unit are continued from panel to panel, as f32 in the workspace. A unit has
 * N columns of the output. */
#ifndef CUDA_SM90_PHASES_PRODUCT_H
#define CUDA_SM90_PHASES_PRODUCT_H

#include "cuda/sm90/phases/pipe.h"
#include "cuda/tile/carry.h"
#include "cuda/tile/put_rows.h"

/* The record of a unit. */
struct product_unit {
    int32_t stages; /* -1: the end */
    int32_t line;   /* by queries the query tile of all sequences, by keys the unit's first key */
    int32_t head, sequence;
    int32_t factors; /* which of the arguments' */
    int32_t column;
    int32_t ends;  /* bit 0: the sums begin here, bit 1: they end */
    int32_t first; /* by queries: the first block of PHASE_STEP keys */
};

/* O; dQ; dQ from dS^T, of which each query tile has a row of 128 queries for every key; dV and dK;
 * dQ from dS^T under an element mask: keys of blocks that a query tile does not see have no dS. */
enum phase_kind { PHASE_OUTPUTS, PHASE_QUERIES, PHASE_TRANSPOSED, PHASE_BY_KEYS, PHASE_SEEN };

template <phase_kind KIND>
constexpr bool phase_transposed = KIND == PHASE_TRANSPOSED || KIND == PHASE_SEEN;

/* ---- loads ---- */

template <int N> ORDO_DEVICE int32_t product_parts(int32_t columns)
{
    return (columns + N - 1) / N;
}

template <int N> struct product_loader {
    const ordo_phase_product &args;
    phase_loader<N> load = {};

    /* Boxes of A side by side (ACROSS: the sum runs over its rows) or one below the other; of B
     * side by side. */
    template <bool ACROSS>
    __device__ __forceinline__ void stage(const ordo_phase_factors &f, int a_column, int64_t a_row,
                                          int b_column, int b_row, int b_head, int batch, int valid)
    {
        using Z = phase_shape<N>;
        const int boxes = min(N, f.columns - b_column + PHASE_STEP - 1) / PHASE_STEP;
        load.take();
        store_shared(Z::VALID + 4 * load.ring.stage, valid);
        mbar_expect(load.full(), Z::A_BYTES + boxes * PHASE_BOX_BYTES);
#pragma unroll
        for (int n = 0; n < 2; n++)
            tma_load(load.a() + n * PHASE_BOX_BYTES, &f.a, load.full(),
                     a_column + (ACROSS ? n * PHASE_STEP : 0),
                     (int)a_row + (ACROSS ? 0 : n * PHASE_STEP), 0, 0, load.once);
#pragma unroll 1
        for (int n = 0; n < boxes; n++)
            tma_load(load.a() + Z::A_BYTES + n * PHASE_BOX_BYTES, &f.b, load.full(),
                     b_column + n * PHASE_STEP, b_row, b_head, batch, load.reused);
        load.ring.advance();
    }

    __device__ __forceinline__ void begin(const product_unit &unit)
    {
        load.tell(unit);
        if (unit.stages <= 0)
            load.pass();
    }

    template <phase_kind KIND>
    __device__ __forceinline__ void by_queries(const phase_query_tile &at, int32_t column)
    {
        const bool TRANSPOSED = phase_transposed<KIND>;
        const ordo_span keys = ordo_phase_keys(&at.s, at.i, PHASE_STEP);
        const int64_t line =
            TRANSPOSED
                ? ordo_phase_line(&args.lines, &args.panel, args.run.group_heads, at.head, at.tile)
                : ordo_phase_slot(&args.panel, args.run.group_heads, at.head, at.tile) * PHASE_ROWS;
        const auto sees = [&](int32_t j) {
            const int32_t block = j / (ORDO_BLOCK / PHASE_STEP);
            return KIND != PHASE_SEEN ||
                   ordo_bit(ordo_blocks_words(&args.blocks, at.head, at.s.query_tile,
                                              at.i)[block / ORDO_TILE_BITS]
                                .seen,
                            block);
        };
        int32_t stages = ordo_span_count(keys);
        if constexpr (KIND == PHASE_SEEN)
            for (int32_t j = keys.first; j <= keys.last; j++)
                stages -= !sees(j);
        begin({ stages, at.tile, at.head, at.sequence, 0, column, 3, keys.first });
#pragma unroll 1
        for (int32_t j = keys.first; j <= keys.last; j++) {
            if (!sees(j))
                continue;
            stage<TRANSPOSED>(args.factors[0], TRANSPOSED ? 0 : j * PHASE_STEP,
                              line + (TRANSPOSED ? j * PHASE_STEP : 0), column,
                              at.s.kv_row + j * PHASE_STEP, at.head / args.run.group_heads,
                              at.s.batch, at.s.kv_len - j * PHASE_STEP);
        }
    }

    template <phase_kind KIND> __device__ __forceinline__ void all_queries(void)
    {
        phase_query_tiles<true>(
            args, product_parts<N>(args.factors[0].columns),
            [&](const phase_query_tile &at) { by_queries<KIND>(at, at.part * N); });
        begin({ -1 });
    }

    /* Half of a key tile. */
    __device__ __forceinline__ void by_keys(int32_t half, int32_t head, int32_t factors,
                                            int32_t column)
    {
        const int32_t sequence = ordo_batch_find(&args.batch, ORDO_BEFORE_KEY, half / 2);
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, sequence);
        const int32_t block = half - 2 * s.key_tile, key = block * PHASE_ROWS;
        if (key >= s.kv_len)
            return;
        const ordo_phase_walk walk =
            ordo_phase_visits(&s, &args.panel, PHASE_ROWS, block, args.down);
        if (walk.count == 0 && !walk.begins)
            return;
        const ordo_phase_factors &f = args.factors[factors];
        if (walk.count == 0 && f.before && f.left) /* unseen: the sums stay where they are */
            return;
        if (walk.begins && f.before && args.whole) /* into L2, while stages are loaded */
            for (int32_t k = 0; k < PHASE_ROWS; k += PHASE_STEP)
                tma_prefetch(&f.came, 0, s.kv_row + key + k, head, s.batch);
        begin({ walk.count * args.run.group_heads * (PHASE_ROWS / PHASE_STEP), key, head, sequence,
                factors, column, walk.begins + 2 * walk.ends });
        int32_t i = walk.first;
#pragma unroll 1
        for (int32_t n = 0; n < walk.count; n++, i += walk.step)
#pragma unroll 1
            for (int32_t g = 0; g < args.run.group_heads * (PHASE_ROWS / PHASE_STEP); g++) {
                const int32_t q_head = head * args.run.group_heads + g / (PHASE_ROWS / PHASE_STEP);
                const int32_t down = g % (PHASE_ROWS / PHASE_STEP) * PHASE_STEP;
                const int32_t row = i * PHASE_ROWS + down;
                const int64_t slot =
                    ordo_phase_slot(&args.panel, args.run.group_heads, q_head, s.query_tile + i);
                stage<true>(f, key, slot * PHASE_ROWS + down, column, s.q_row + row, q_head,
                            s.batch, s.q_len - row);
            }
    }

    __device__ __forceinline__ void all_keys(void)
    {
        const int32_t tiles =
            2 * (int32_t)ordo_batch_before(&args.batch, ORDO_BEFORE_KEY, args.batch.sequences);
        const int32_t first = product_parts<N>(args.factors[0].columns);
        const int32_t parts = first + product_parts<N>(args.factors[1].columns);
        const int64_t total = (int64_t)tiles * args.panel.heads * parts;
        for (int64_t ticket = phase_draw(args); ticket < total; ticket = phase_draw(args)) {
            const ordo_phase_unit unit =
                ordo_phase_issue(tiles, args.panel.heads, args.together, parts, ticket);
            const bool second = unit.part >= first;
            by_keys(unit.tile, args.panel.head + unit.head, second,
                    (unit.part - (second ? first : 0)) * N);
        }
        begin({ -1 });
    }
};

/* ---- sums of dK and dV in f32 ---- */

/* This thread's first pair of columns of its row r, 0 or 1, of rows whose first is number `first`,
 * `step` apart. Hidden from the optimizer, which would keep the offsets of all pairs in registers.
 */
ORDO_DEVICE const float *product_row(const float *sums, int64_t first, int step, int columns,
                                     int column, int row)
{
    const float *at = sums + (first + (int64_t)row * step) * columns + column;
    asm volatile("" : "+l"(at));
    return at;
}

template <phase_kind KIND, bool F16, int N> struct product_math {
    static const bool KEYS = KIND == PHASE_BY_KEYS;
    const ordo_phase_product &args;
    phase_consumer<N> pipe;

    __device__ __forceinline__ const ordo_phase_factors &factors(const product_unit &u) const
    {
        return args.factors[u.factors];
    }

    /* Sums of a unit's rows that exist: loaded into d, or stored from it. `heads` and `head`: key
     * heads of the sums, and which. */
    template <bool LOAD>
    __device__ __forceinline__ void sums(float (&d)[N / 2], const float *from, int heads, int head,
                                         const product_unit &u) const
    {
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, u.sequence);
        const int64_t first = ordo_carry_row(args.kv_rows, heads, s.batch, s.kv_row + u.line, head);
        const int column = u.column + ordo_accumulator_column(pipe.x, 0);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = pipe.row() + 8 * r;
            const float *const at =
                product_row(from, first, heads, factors(u).columns, column, row);
            const int columns = u.line + row < s.kv_len ? factors(u).columns - u.column : 0;
#pragma unroll
            for (int c = 0; c < N / 8; c++)
                if (LOAD)
                    carry_load_pair(at + 8 * c, 8 * c, columns, d[4 * c + 2 * r],
                                    d[4 * c + 2 * r + 1]);
                else
                    carry_store_pair((float *)at + 8 * c, 8 * c, columns, d[4 * c + 2 * r],
                                     d[4 * c + 2 * r + 1]);
        }
    }

    __device__ __forceinline__ void begin(float (&d)[N / 2], const product_unit &u) const
    {
        clear(d);
        if (KEYS && !(u.ends & 1))
            sums<true>(d, factors(u).sums, args.panel.heads, u.head - args.panel.head, u);
        else if (KEYS && factors(u).before)
            sums<true>(d, factors(u).before, args.run.kv_heads, u.head, u);
        /* x + -0 is x. Accumulators that a branch has loaded would make ptxas serialise products.
         */
        if (KEYS)
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                asm volatile("add.rn.f32 %0, %0, 0f80000000;" : "+f"(d[i]));
    }

    /* Rows of sums that are carried out: all columns of a row are this unit's. */
    __device__ __forceinline__ void leave(const float (&d)[N / 2], const ordo_cuda_sequence &s,
                                          const product_unit &u) const
    {
        const int heads = args.run.kv_heads, row = u.line + pipe.mine * 64;
        const carry_tile tile = { ordo_carry_row(args.kv_rows, heads, s.batch, s.kv_row + row,
                                                 u.head),
                                  heads, s.kv_len - row, factors(u).columns };
        if (carry_store(d, factors(u).left, factors(u).broken, tile, pipe.x))
            args.ticket[ORDO_NOT_FINITE] = 1;
    }

    __device__ __forceinline__ void end(float (&d)[N / 2], const product_unit &u) const
    {
        const ordo_cuda_sequence s = ordo_batch_sequence(&args.batch, u.sequence);
        const int down = pipe.mine * 64;
        if (KEYS && (u.ends & 2) && factors(u).left) {
            leave(d, s, u);
            return;
        }
        if (KEYS && (!(u.ends & 2) || !factors(u).out.data)) {
            sums<false>(d, factors(u).sums, args.panel.heads, u.head - args.panel.head, u);
            return;
        }
        float scale[2] = { factors(u).scale, factors(u).scale };
        if (KIND == PHASE_OUTPUTS)
#pragma unroll
            for (int r = 0; r < 2; r++)
                scale[r] = args.delta[phase_stat(args, u.head, u.line, pipe.row() + 8 * r)];
        const int row = (KEYS ? u.line : (u.line - s.query_tile) * PHASE_ROWS) + down;
        char *const to =
            row_address(factors(u).out, s.batch, (KEYS ? s.kv_row : s.q_row) + row, u.head) +
            2 * u.column;
        if (put_rows<F16>(d, scale, to, 2 * factors(u).out.row, (KEYS ? s.kv_len : s.q_len) - row,
                          factors(u).columns - u.column))
            args.ticket[ORDO_NOT_FINITE] = 1;
    }

    __device__ __forceinline__ void add(float (&d)[N / 2], int stages)
    {
        pipe.template multiply<F16, KEYS || phase_transposed<KIND>, true>(d, stages, true,
                                                                          args.batch.table != NULL);
    }

    /* The same tile by tile, with the factors of the next tile between them. */
    __device__ __forceinline__ void add_tiles(float (&d)[N / 2], const product_unit &u)
    {
        enum { EACH = PHASE_KEYS / PHASE_STEP };
        const int64_t slot = ordo_phase_slot(&args.panel, args.run.group_heads, u.head, u.line);
        const float *const shrink =
            args.phase.shrink + phase_shrink(slot, args.phase.columns, 0, pipe.row());
        const int end = u.first + u.stages;
#pragma unroll 1
        for (int from = u.first; from < end;) {
            const int next = from / EACH + 1, to = min(end, next * EACH);
            float factor[2] = { 1.0f, 1.0f };
            if (to < end) {
                factor[0] = shrink[next * PHASE_ROWS];
                factor[1] = shrink[next * PHASE_ROWS + 8];
            }
            add(d, to - from);
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                d[i] *= factor[i / 2 % 2];
            from = to;
        }
    }

    __device__ __forceinline__ void run(void)
    {
        for (;;) {
            float d[N / 2];
            const product_unit u = pipe.template told<product_unit>();
            if (u.stages < 0)
                break;
            if (u.stages == 0)
                pipe.pass();
            begin(d, u);
            if constexpr (KIND == PHASE_OUTPUTS)
                add_tiles(d, u);
            else
                add(d, u.stages);
            end(d, u);
        }
    }
};

template <phase_kind KIND, bool F16, int N>
__global__ void __launch_bounds__(PHASE_THREADS, 1)
    phase_product(const __grid_constant__ ordo_phase_product args)
{
    const bool keys = KIND == PHASE_BY_KEYS;
    if (keys)
        grid_let_next(); /* dQ fills up multiprocessors that are done */
    phase_roles<N>(
        [&] {
            product_loader<N> loader { args };
            if (KIND == PHASE_OUTPUTS && args.factors[0].columns > N) /* several units read P */
                loader.load.once = policy_evict_normal();
            if (keys) {
                loader.all_keys();
            } else {
                loader.template all_queries<KIND>();
                grid_wait(); /* this kernel ends no sooner than the one by keys */
            }
        },
        [&](const phase_consumer<N> &pipe) {
            product_math<KIND, F16, N> { args, pipe }.run();
        });
}

#endif
