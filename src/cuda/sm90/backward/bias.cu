/* sm90/backward/bias.cu: the gradient of a bias, by a kernel of its own.
 *
 * A block has one tile of the gradient: 128 queries, 64 keys. It walks the sequences that share
 * the bias and in each the heads, both upwards, computes S and dP of each again, and adds dS: the
 * heads of a sequence in registers, the sequences in memory (docs/adr/0076). So no sum is shared
 * between blocks. A producer copies the next operands while those at hand are used. Where a tile
 * has one visit, two blocks share a multiprocessor instead: the copies of one lie under what the
 * other one computes. */
#include "cuda/sm90/backward/bias.h"

#include <math.h>

#include "base/half.h"
#include "cuda/sm90/pipeline.h"
#include "cuda/sm90/wgmma.h"
#include "cuda/support/common.h"
#include "cuda/support/launch.h"
#include "cuda/tile/bias.h"
#include "cuda/tile/fragment.h"
#include "plan/family_sm90.h"

struct bias_maps {
    struct {
        CUtensorMap q, dout, k, v;
    } map;
};

struct bias_args : bias_maps, ordo_pass_common {
    int32_t heads, q_tiles, key_tiles; /* of the gradient: heads, tiles of one of them */
};

/* Named barriers, one per warpgroup: it may issue its products. One computes while the other one's
 * run. */
enum { PINGPONG = 1 };

template <int D, bool ONCE> struct bias_shape {
    enum {
        ROWS = 128,
        KEYS = 64,
        WARPGROUPS = ROWS / 64,
        THREADS = 128 * (ONCE ? WARPGROUPS : WARPGROUPS + 1), /* the last one: the producer */
        CONSUMER_REGISTERS = 232,
        PRODUCER_REGISTERS = 40,
        BLOCKS = ONCE ? 2 : 1,               /* of a multiprocessor */
        STAT_ROWS = ORDO_SM90_BACKWARD_Q(D), /* of the tiles that row statistics are padded to */
        WORDS = ONCE ? 16 : 32,              /* of biases at a time */
        STAGES = ONCE ? 1 : 2,
        Q_BYTES = ROWS * D * 2,
        K_BYTES = KEYS * D * 2,
        /* shared memory */
        Q = ORDO_SMEM_BASE,
        DO = Q + STAGES * Q_BYTES,
        K = DO + STAGES * Q_BYTES,
        V = K + STAGES * K_BYTES,
        FULL = V + STAGES * K_BYTES,
        EMPTY = FULL + 8 * STAGES,
        BYTES = EMPTY + 8 * STAGES - ORDO_SMEM_BASE
    };
};

/* The visits of a tile, one after the other. */
struct bias_walk {
    const bias_args &args;
    int32_t i, j;                    /* the tile */
    int32_t sequence, sequences;     /* at hand, and behind the last one */
    int32_t head, first_head, heads; /* likewise */
    ordo_cuda_sequence s;

    /* From the sequence at hand on, the first that sees something of the tile. */
    template <class Z> __device__ __forceinline__ bool find(void)
    {
        for (; sequence < sequences; sequence++) {
            s = ordo_batch_sequence(&args.batch, sequence);
            const ordo_band band = ordo_sequence_band(&s, Z::ROWS, Z::KEYS);
            if (i * Z::ROWS >= s.q_len)
                continue;
            const ordo_span keys = ordo_band_keys(&band, i);
            if (keys.first <= j && j <= keys.last)
                return true;
        }
        return false;
    }

    template <class Z> __device__ __forceinline__ bool next(void)
    {
        if (++head < heads)
            return true;
        head = first_head;
        sequence++;
        return find<Z>();
    }
};

/* One thread copies the operands of a visit. */
template <class Z, int D>
ORDO_DEVICE void bias_copy(const bias_args &args, const bias_walk &at, uint32_t stage)
{
    const uint32_t full = Z::FULL + 8 * stage;
    const uint64_t policy = policy_evict_last();
    const int key_head = at.head / args.run.group_heads;
    const int row = at.s.q_row + at.i * Z::ROWS, key = at.s.kv_row + at.j * Z::KEYS;
    mbar_expect(full, 2 * Z::Q_BYTES + 2 * Z::K_BYTES);
    tma_load_tile<D>(Z::Q + stage * Z::Q_BYTES, &args.map.q, full, Z::ROWS, row, at.head,
                     at.s.batch, policy);
    tma_load_tile<D>(Z::DO + stage * Z::Q_BYTES, &args.map.dout, full, Z::ROWS, row, at.head,
                     at.s.batch, policy);
    tma_load_tile<D>(Z::K + stage * Z::K_BYTES, &args.map.k, full, Z::KEYS, key, key_head,
                     at.s.batch, policy);
    tma_load_tile<D>(Z::V + stage * Z::K_BYTES, &args.map.v, full, Z::KEYS, key, key_head,
                     at.s.batch, policy);
}

/* Both products of a visit: a warpgroup's 64 queries by all keys. */
template <class Z, int D, bool F16>
ORDO_DEVICE void bias_products(float (&s)[Z::KEYS / 2], float (&dp)[Z::KEYS / 2], uint32_t stage)
{
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const uint32_t mine = warpgroup * 64 * ORDO_LINE_BYTES;
    const uint32_t q_low = ordo_descriptor_low(Z::Q + stage * Z::Q_BYTES + mine, 16);
    const uint32_t do_low = ordo_descriptor_low(Z::DO + stage * Z::Q_BYTES + mine, 16);
    const uint32_t k_low = ordo_descriptor_low(Z::K + stage * Z::K_BYTES, 16);
    const uint32_t v_low = ordo_descriptor_low(Z::V + stage * Z::K_BYTES, 16);
    if (Z::STAGES > 1)
        named_sync(PINGPONG + warpgroup, 256);
    wgmma_pin(s);
    wgmma_pin(dp);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        wgmma_ss<F16, 0, 0>(s, wgmma_by_columns(q_low, Z::ROWS, k),
                            wgmma_by_columns(k_low, Z::KEYS, k), k > 0);
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        wgmma_ss<F16, 0, 0>(dp, wgmma_by_columns(do_low, Z::ROWS, k),
                            wgmma_by_columns(v_low, Z::KEYS, k), k > 0);
    wgmma_commit();
    if (Z::STAGES > 1)
        named_arrive(PINGPONG + (warpgroup ^ 1), 256);
    wgmma_wait<0>();
    wgmma_pin(s);
    wgmma_pin(dp);
}

/* Where a thread's elements are: rows `row` and 8 further, columns from `column` on. */
struct bias_place {
    int row, column;
};

/* The keep words of a thread's rows, whose elements are at the tops of their bytes. */
template <class Z, ordo_keep_source SOURCE>
ORDO_DEVICE uint2 bias_keep(const bias_args &args, const bias_walk &at, const bias_place &place)
{
    const int block = at.j * Z::KEYS / ORDO_KEEP_COLS, lane = threadIdx.x % 32;
    const int odd = at.j % (ORDO_KEEP_COLS / Z::KEYS) * 4;
    uint2 words = { 0, 0 };
    if constexpr (SOURCE == ORDO_KEEP_GIVEN) {
        const int down = min(place.row, at.s.q_len - 1) / ORDO_KEEP_ROWS;
        words = __ldg(
            (const uint2 *)args.keep_bits +
            (at.s.keep + at.head * at.s.keep_head + (int64_t)down * at.s.keep_across + block) * 32 +
            lane);
    }
    if constexpr (SOURCE == ORDO_KEEP_MADE) {
        const ordo_keep maker = keep_now(args);
        const uint32_t head = keep_head_of(args, at.s.id, at.head), row = args.row0 + place.row;
        words.x = keep_inside(maker, head, row, args.block0 + block, lane % 4);
        words.y = keep_inside(maker, head, row + 8, args.block0 + block, lane % 4);
    }
    return make_uint2(words.x << odd, words.y << odd);
}

/* The numbers of a thread's two rows that P and dS are made with. Of rows that do not exist: the
 * last one's. */
struct bias_rows {
    float lse2[2], delta[2];
};

template <class Z>
ORDO_DEVICE bias_rows bias_statistics(const bias_args &args, const bias_walk &at,
                                      const bias_place &place)
{
    const int64_t tile = (int64_t)at.head * args.batch.tiles + at.s.query_tile;
    bias_rows rows;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int64_t stat =
            tile * Z::STAT_ROWS + ordo_stat_place(min(place.row + 8 * r, at.s.q_len - 1));
        rows.lse2[r] = args.lse2[stat];
        rows.delta[r] = args.delta[stat];
    }
    return rows;
}

/* Reads biases of a turn of a visit. Rows that do not exist have those of the last one. */
template <int TURN, class W>
ORDO_DEVICE void bias_read(W &words, const bias_args &args, const bias_walk &at,
                           const bias_place &place)
{
    const int64_t from = bias_at(args.bias, at.sequence, at.head) + place.column;
    const int last = args.run.band.q_len - 1;
    words.template load<TURN>(args.bias, from + min(place.row, last) * args.bias.row,
                              from + min(place.row + 8, last) * args.bias.row,
                              args.run.band.kv_len - place.column);
}

/* Whether the band and the ends of the sequence hide nothing of a tile. */
template <class Z> ORDO_DEVICE bool bias_whole(const bias_walk &at)
{
    const int row = at.i * Z::ROWS, column = at.j * Z::KEYS;
    return row + Z::ROWS <= at.s.q_len && column + Z::KEYS <= at.s.kv_len &&
           column - (row + Z::ROWS - 1) >= at.s.low && column + Z::KEYS - 1 - row <= at.s.high;
}

/* Adds the biases of a turn, which have been read, and reads and adds those of the turns after.
 * Returns the elements that they hide, as bits. */
template <int TURN, class W, int N>
ORDO_DEVICE uint32_t bias_add_all(float (&s)[N], W &words, const bias_args &args,
                                  const bias_walk &at, const bias_place &place)
{
    float least = INFINITY;
    uint32_t hidden = 0;
    words.template each<TURN>(args.bias, [&](int i, float bias) {
        s[i] = fmaf(bias, args.rule.slope, s[i]); /* whatever, if it hides */
        least = fminf(least, bias);
    });
    if (__any_sync(~0u, least < ORDO_BIAS_LEAST))
        words.template each<TURN>(args.bias, [&](int i, float bias) {
            hidden |= (uint32_t)(bias < ORDO_BIAS_LEAST) << i;
        });
    if constexpr (TURN + 1 < W::TURNS)
        if (TURN + 1 < words.turns(args.bias)) {
            bias_read<TURN + 1>(words, args, at, place);
            hidden |= bias_add_all<TURN + 1>(s, words, args, at, place);
        }
    return hidden;
}

/* Scores to logits with their bias. Returns the elements that are hidden, as bits. */
template <class Z, class W, int N>
ORDO_DEVICE uint32_t bias_logits(float (&s)[N], W &words, const bias_args &args,
                                 const bias_walk &at, const bias_place &place)
{
    apply_rule<-1, false>(s, bias_rule(args.rule), [&](float &slope) {
        slope = args.slopes[at.sequence * args.slopes_sequence + at.head];
        return place.row + at.s.diagonal - place.column;
    });
    uint32_t hidden = bias_add_all<0>(s, words, args, at, place);
    if (!bias_whole<Z>(at))
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int row = place.row + i / 2 % 2 * 8;
            const int column = place.column + ordo_accumulator_column(0, i);
            const bool seen = row < at.s.q_len && column < at.s.kv_len &&
                              column - row >= at.s.low && column - row <= at.s.high;
            hidden |= (uint32_t)!seen << i;
        }
    return hidden;
}

/* Adds the gradients of a visit's logits. */
template <ordo_keep_source SOURCE, int N>
ORDO_DEVICE void bias_sum(float (&sum)[N], const float (&s)[N], const float (&dp)[N],
                          uint32_t hidden, uint2 kept, const bias_rows &rows, float scale_log2)
{
    enum { DROP = SOURCE != ORDO_KEEP_NONE };
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (rows.lse2[r] == INFINITY) /* it sees nothing */
            hidden |= 0x33333333u << 2 * r;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int r = i / 2 % 2;
        float p = exp2_approx(fmaf(s[i], scale_log2, -rows.lse2[r]));
        if (DROP)
            p = mark_dropped(p, r ? kept.y : kept.x, keep_shift(i / 4, i % 2));
        const float ds = score_gradient<DROP>(p, dp[i], rows.delta[r]);
        sum[i] += hidden >> i & 1 ? 0.0f : ds;
    }
}

/* Adds the sums of a sequence to the gradient, which `begins` with them. */
template <int N>
ORDO_DEVICE void bias_put(const float (&sum)[N], float scale, bool begins, float *tile,
                          const bias_args &args, const bias_place &place)
{
    const int32_t q_len = args.run.band.q_len, kv_len = args.run.band.kv_len;
    const bool pairs = kv_len % 2 == 0 && (uintptr_t)tile % 8 == 0;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const int row = place.row + i / 2 % 2 * 8;
        const int column = place.column + ordo_accumulator_column(0, i);
        float *const to = tile + (int64_t)row * kv_len + column;
        const bool there = row < q_len && column < kv_len;
        const bool both = there && column + 1 < kv_len;
        float2 all = { 0.0f, 0.0f };
        if (!begins && there)
            all.x = to[0];
        if (!begins && both)
            all.y = to[1];
        all.x += sum[i] * scale;
        all.y += sum[i + 1] * scale;
        all = { all.x == all.x ? all.x : __uint_as_float(ORDO_F32_NAN),
                all.y == all.y ? all.y : __uint_as_float(ORDO_F32_NAN) };
        if (both && pairs) {
            *(float2 *)to = all;
            continue;
        }
        if (there)
            to[0] = all.x;
        if (both)
            to[1] = all.y;
    }
}

/* A visit: adds the gradients of its logits. `again`: its biases are those of the visit before. */
template <class Z, int D, ordo_keep_source SOURCE, bool F16, class W>
ORDO_DEVICE void bias_visit(float (&sum)[Z::KEYS / 2], W &words, const bias_args &args,
                            const bias_walk &now, const bias_place &place, uint32_t n, bool again)
{
    const uint32_t stage = n % Z::STAGES;
    float s[Z::KEYS / 2], dp[Z::KEYS / 2];
    if (!again)
        bias_read<0>(words, args, now, place);
    const bias_rows rows = bias_statistics<Z>(args, now, place);
    const uint2 kept = bias_keep<Z, SOURCE>(args, now, place);
    mbar_wait(Z::FULL + 8 * stage, n / Z::STAGES & 1);
    bias_products<Z, D, F16>(s, dp, stage);
    if (Z::STAGES > 1)
        mbar_arrive_warp(Z::EMPTY + 8 * stage, threadIdx.x % 32);
    const uint32_t hidden = bias_logits<Z>(s, words, args, now, place);
    bias_sum<SOURCE>(sum, s, dp, hidden, kept, rows, args.scale_log2);
}

/* The producer copies the operands of all visits. */
template <class Z, int D> ORDO_DEVICE void bias_produce(const bias_args &args, bias_walk &at)
{
    if (threadIdx.x / 32 != 4 * Z::WARPGROUPS || !elect_one())
        return;
    bool more = at.find<Z>();
    for (uint32_t n = 0; more; n++) {
        const uint32_t stage = n % Z::STAGES;
        mbar_wait(Z::EMPTY + 8 * stage, (n / Z::STAGES & 1) ^ 1);
        bias_copy<Z, D>(args, at, stage);
        more = at.next<Z>();
    }
}

/* ONCE: no tile has more than one visit. */
template <int D, ordo_keep_source SOURCE, bool F16, bool ONCE>
static __global__ void __launch_bounds__(bias_shape<D, ONCE>::THREADS, bias_shape<D, ONCE>::BLOCKS)
    bias_kernel(const __grid_constant__ bias_args args)
{
    using Z = bias_shape<D, ONCE>;
    block_begin([] {
        for (int s = 0; s < Z::STAGES; s++) {
            mbar_init(Z::FULL + 8 * s, 1);
            mbar_init(Z::EMPTY + 8 * s, 4 * Z::WARPGROUPS);
        }
    });
    const int64_t tile = blockIdx.x / args.key_tiles;
    const int32_t j = blockIdx.x % args.key_tiles, i = tile % args.q_tiles;
    const int32_t matrix = tile / args.q_tiles; /* of the gradient */
    const int32_t sequence = matrix / args.heads, head = matrix % args.heads;
    const bool own_sequence = args.bias.per_sequence, own_head = args.bias.per_head;
    bias_walk now = { args,
                      i,
                      j,
                      own_sequence ? sequence : 0,
                      own_sequence ? sequence + 1 : args.batch.sequences,
                      own_head ? head : 0,
                      own_head ? head : 0,
                      own_head ? head + 1 : args.run.kv_heads * args.run.group_heads,
                      {} };
    if constexpr (!ONCE) {
        if (__shfl_sync(~0u, threadIdx.x / 128, 0) == Z::WARPGROUPS) {
            registers_down<Z::PRODUCER_REGISTERS>();
            return bias_produce<Z, D>(args, now);
        }
        registers_up<Z::CONSUMER_REGISTERS>();
    }
    const bias_place place = { i * Z::ROWS + ordo_accumulator_row(threadIdx.x, 0),
                               j * Z::KEYS + ordo_accumulator_column(threadIdx.x, 0) };
    float *const to = args.bias.grad + (int64_t)matrix * args.run.band.q_len * args.run.band.kv_len;
    const float scale = SOURCE == ORDO_KEEP_NONE ? 1.0f : args.keep_scale;
    float sum[Z::KEYS / 2];
    clear(sum);
    bias_words<F16, Z::KEYS / 2, Z::WORDS> words;
    bool more = now.find<Z>();
    if constexpr (ONCE) {
        if (more && threadIdx.x == 0)
            bias_copy<Z, D>(args, now, 0);
        if (more)
            bias_visit<Z, D, SOURCE, F16>(sum, words, args, now, place, 0, false);
        return bias_put(sum, scale, true, to, args, place);
    }
    bool begins = true, again = false;
    if (threadIdx.x / 128 == 0)
        named_arrive(PINGPONG, 256);
    for (uint32_t n = 0; more; n++) {
        bias_visit<Z, D, SOURCE, F16>(sum, words, args, now, place, n, again);
        more = now.next<Z>();
        again = args.bias.head == 0;
        if (now.head == now.first_head) { /* the sequence has ended */
            bias_put(sum, scale, begins, to, args, place);
            begins = again = false;
            clear(sum);
        }
    }
    if (begins) /* nothing is seen */
        bias_put(sum, scale, true, to, args, place);
}

/* ---- launch ---- */

template <int D, bool ONCE, bool F16> static const void *kernel_of(ordo_keep_source source)
{
    return source == ORDO_KEEP_NONE    ? (const void *)bias_kernel<D, ORDO_KEEP_NONE, F16, ONCE>
           : source == ORDO_KEEP_GIVEN ? (const void *)bias_kernel<D, ORDO_KEEP_GIVEN, F16, ONCE>
                                       : (const void *)bias_kernel<D, ORDO_KEEP_MADE, F16, ONCE>;
}

template <int D, bool ONCE> static ordo_status launch(const ordo_cuda_pass *pass)
{
    using Z = bias_shape<D, ONCE>;
    const ordo_cuda_lengths q = ordo_pass_lengths(pass, false, pass->head_dim);
    const ordo_cuda_lengths outputs = ordo_pass_lengths(pass, false, pass->v_head_dim);
    const ordo_cuda_lengths kv = ordo_pass_lengths(pass, true, pass->head_dim);
    const ordo_cuda_lengths values = ordo_pass_lengths(pass, true, pass->v_head_dim);
    const ordo_keep_source source = ordo_pass_keep_source(pass);
    bias_args args = {};
    (ordo_pass_common &)args = ordo_pass_common_of(pass);
    args.heads = pass->bias.per_head ? pass->run.kv_heads * pass->run.group_heads : 1;
    args.q_tiles = (pass->run.band.q_len + Z::ROWS - 1) / Z::ROWS;
    args.key_tiles = (pass->run.band.kv_len + Z::KEYS - 1) / Z::KEYS;
    const int64_t matrices = args.heads * (pass->bias.per_sequence ? pass->batch.sequences : 1);
    const int64_t blocks = matrices * args.q_tiles * args.key_tiles;
    if (blocks == 0)
        return ORDO_OK;
    CUDA_TRY(ordo_cuda_map(&args.map.q, &pass->q, q, Z::ROWS));
    CUDA_TRY(ordo_cuda_map(&args.map.dout, &pass->dout, outputs, Z::ROWS));
    CUDA_TRY(ordo_cuda_map(&args.map.k, &pass->k, kv, Z::KEYS));
    CUDA_TRY(ordo_cuda_map(&args.map.v, &pass->v, values, Z::KEYS));
    const ordo_cuda_grid grid = { (unsigned)blocks, Z::THREADS, Z::BYTES, ORDO_LAUNCH_PLAIN };
    return ordo_cuda_launch(pass->f16 ? kernel_of<D, ONCE, true>(source)
                                      : kernel_of<D, ONCE, false>(source),
                            &args, grid, pass->stream);
}

ordo_status ordo_backward_bias(const ordo_cuda_pass *pass)
{
    const bool once = pass->bias.per_head && (pass->bias.per_sequence || pass->run.sequences == 1);
    if (ordo_pass_bucket(pass) == 64)
        return once ? launch<64, true>(pass) : launch<64, false>(pass);
    return once ? launch<128, true>(pass) : launch<128, false>(pass);
}
