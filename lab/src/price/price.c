/* price.c: the time of one kernel: the longest of its limiters.
 *
 *   mma      flop / (rate * efficiency); 4 D flop per score forward, 10 D backward
 *   l2       operands of each tile, once per step
 *   hbm      each operand once
 *   lanes    instructions of a kind / lanes of that kind
 *   shared   operands written once and read by each product, and staged results
 *
 * The calibration silicon adds four effects: ALU, wide multiplications and uniform instructions
 * share one dispatch slot of the ALU's width; part of the softmax does not overlap with the
 * products, and each tile has a start and an end; a wide multiplication takes tensor cycles from
 * its scheduler; and energy / power limit is one more limiter in steady state, which the governor
 * reaches after milliseconds. */
#include "price/price.h"

#include "base/keep.h"
#include "plan/family.h"

enum { SCHEDULERS = 4, START_ROWS = 128 };
enum { RNG_PIECE = 64, RNG_WARPS = 32 }; /* blocks of bits of a warp, and warps of a worker */

static double value(const ordo_model *model, ordo_constant constant)
{
    return ordo_model_value(model, constant);
}

ordo_priced ordo_price_finish(const ordo_model *model, ordo_kernel_time time, double joules)
{
    ordo_priced priced = { .time = time, .joules = joules };
    for (int i = 0; i < ORDO_LIMITERS; i++)
        if (time.by[i] > priced.clock_seconds) {
            priced.clock_seconds = time.by[i];
            priced.time.limiter = (ordo_limiter)i;
        }
    const double power = value(model, ORDO_C_POWER), launch = value(model, ORDO_C_LAUNCH) * 1e-9;
    priced.time.seconds = priced.clock_seconds;
    if (ordo_model_on(model, ORDO_C_STEADY) && power > 0 && joules > 0) {
        priced.time.by[ORDO_LIMIT_POWER] = joules / power;
        if (priced.time.by[ORDO_LIMIT_POWER] > priced.time.seconds) {
            priced.time.seconds = priced.time.by[ORDO_LIMIT_POWER];
            priced.time.limiter = ORDO_LIMIT_POWER;
        }
    }
    priced.clock_seconds += launch;
    priced.time.seconds += launch;
    return priced;
}

/* Times of the limiters inside a worker for `elements` of the given counts. */
static void lane_limits(const ordo_model *model, const ordo_kernel_counts *c, double elements,
                        ordo_constant clock, double *by)
{
    const double each = elements / ordo_price_clocks(model, clock);
    const double imad = ordo_price_over(c->imad, value(model, ORDO_C_IMAD)) +
                        ordo_price_over(c->imad_wide, value(model, ORDO_C_IMAD_WIDE));
    by[ORDO_LIMIT_ISSUE] =
        each * ordo_price_over(c->issue,
                               value(model, ORDO_C_ISSUE) * value(model, ORDO_C_ISSUE_EFFICIENCY));
    by[ORDO_LIMIT_ALU] = each * ordo_price_over(c->alu, value(model, ORDO_C_ALU));
    by[ORDO_LIMIT_IMAD] = each * imad;
    by[ORDO_LIMIT_FMA] = each * (ordo_price_over(c->fma, value(model, ORDO_C_FMA)) + imad);
    by[ORDO_LIMIT_MUFU] = each * ordo_price_over(c->mufu, value(model, ORDO_C_MUFU));
    by[ORDO_LIMIT_RF_READ] = each * ordo_price_over(c->rf_reads, value(model, ORDO_C_RF));
    by[ORDO_LIMIT_SHARED] = each * ordo_price_over(c->shared, ordo_price_shared_rate(model));
    if (ordo_model_on(model, ORDO_C_SHARED_SLOT))
        by[ORDO_LIMIT_SLOT] =
            each * ordo_price_over(c->alu + c->imad_wide + c->uniform,
                                   value(model, ORDO_C_ALU) * value(model, ORDO_C_SLOT_EFFICIENCY));
}

static void add_counts(ordo_kernel_counts *sum, const ordo_kernel_counts *c, double factor)
{
    sum->issue += factor * c->issue;
    sum->alu += factor * c->alu;
    sum->fma += factor * c->fma;
    sum->imad += factor * c->imad;
    sum->imad_wide += factor * c->imad_wide;
    sum->uniform += factor * c->uniform;
    sum->mufu += factor * c->mufu;
    sum->rf_reads += factor * c->rf_reads;
}

double ordo_live_elements(const ordo_attention_shape *s, int64_t bq, int64_t bk)
{
    const double q = (double)s->q_len, kv = (double)s->kv_len;
    const double heads = (double)s->batch * (double)s->heads;
    if (!s->causal)
        return heads * q * kv;
    const double nk = (double)ordo_price_tiles(kv, (double)bk);
    double live = 0;
    for (int64_t row = 0; row < s->q_len; row += bq) {
        const int64_t end = row + bq < s->q_len ? row + bq : s->q_len;
        const double reach =
            (double)(end + ordo_mask_diagonal(ORDO_MASK_CAUSAL, s->q_len, s->kv_len));
        double columns = reach > 0 ? (double)ordo_price_tiles(reach, (double)bk) : 0;
        columns = columns < nk ? columns : nk;
        const double width = columns * (double)bk < kv ? columns * (double)bk : kv;
        live += width * (double)(end - row);
    }
    return heads * live;
}

/* Instructions other than the products: of attention, of applying keep bits, of making them. */
static ordo_kernel_counts attention_counts(const ordo_model *model, const ordo_attention_shape *s,
                                           const ordo_kernel_counts *rng)
{
    ordo_kernel_counts sum = { 0 };
    const double drop = s->keep != ORDO_KEEP_NONE ? value(model, ORDO_C_DROP) : 0;
    const ordo_kernel_counts *own = ordo_attention_counts(s->backward);
    add_counts(&sum, own, (1 + drop) * value(model, ORDO_C_ATTENTION_SCALE));
    sum.shared = own->shared +
                 own->shared_dim * (double)s->head_dim * ordo_precision_bytes(s->precision) / 2;
    if (s->backward && s->keep != ORDO_KEEP_NONE)
        sum.shared += value(model, ORDO_C_DROP_SHARED);
    if (s->keep != ORDO_KEEP_NONE) {
        const double alu = value(model, s->precision == ORDO_PRECISION_FP8 ? ORDO_C_DROP_ALU_FP8
                                                                           : ORDO_C_DROP_ALU_16);
        add_counts(&sum, &(ordo_kernel_counts) { .issue = alu, .alu = alu }, 1);
    }
    if (rng) {
        const double scale = value(model, ORDO_C_RNG_SCALE);
        add_counts(&sum, rng, scale);
        sum.rf_reads += value(model, ORDO_C_RNG_RF) * rng->issue * scale;
    }
    return sum;
}

/* Clocks per score that do not overlap with the products. */
static double exposed_clocks(const ordo_model *model, const ordo_attention_shape *s,
                             const ordo_kernel_counts *rng)
{
    const double alu = value(model, ORDO_C_ALU) * value(model, ORDO_C_SLOT_EFFICIENCY);
    double sum = value(model, s->backward ? ORDO_C_BACKWARD_EXPOSED : ORDO_C_ATTENTION_EXPOSED);
    if (s->keep != ORDO_KEEP_NONE)
        sum +=
            ordo_price_over(value(model, s->precision == ORDO_PRECISION_FP8 ? ORDO_C_DROP_ALU_FP8
                                                                            : ORDO_C_DROP_ALU_16),
                            alu);
    if (rng && ordo_model_on(model, ORDO_C_SHARED_SLOT)) {
        const double scale = value(model, ORDO_C_RNG_SCALE);
        sum += scale *
               value(model, s->backward ? ORDO_C_FUSED_EXPOSED_BACKWARD : ORDO_C_FUSED_EXPOSED) *
               (double)s->head_dim / 128 *
               ordo_price_over(rng->alu + rng->imad_wide + rng->uniform, alu);
        sum += scale * value(model, ORDO_C_WIDE_STEAL) * rng->imad_wide / (ORDO_WARP * SCHEDULERS);
    }
    return sum;
}

/* Bytes of Q, K, V and the other operands of the pass; of the keep bits if it reads them. */
static void attention_memory(const ordo_model *model, const ordo_attention_shape *s, double *by)
{
    const double bytes = ordo_precision_bytes(s->precision), d = (double)s->head_dim;
    const double b = (double)s->batch, h = (double)s->heads, hk = (double)s->kv_heads;
    const double q = b * h * (double)s->q_len * d, kv = b * hk * (double)s->kv_len * d;
    double read = bytes * (q + 2 * kv), write = 0;
    if (ordo_model_on(model, ORDO_C_COUNT_WRITES)) {
        if (s->keep == ORDO_KEEP_GIVEN)
            read += b * h * (double)s->q_len * (double)s->kv_len / 8;
        write = bytes * q;
        if (s->backward) { /* reads O and dO too; writes dQ, dK and dV */
            read += 2 * bytes * q;
            write = bytes * (q + 2 * kv);
        }
    }
    by[ORDO_LIMIT_HBM_READ] = ordo_price_over(read, value(model, ORDO_C_HBM_READ));
    by[ORDO_LIMIT_HBM_WRITE] = ordo_price_over(write, value(model, ORDO_C_HBM_WRITE));
}

static double attention_efficiency(const ordo_model *model, bool backward)
{
    return value(model, backward ? ORDO_C_BACKWARD_EFFICIENCY : ORDO_C_ATTENTION_EFFICIENCY);
}

/* Limiters that depend on the tiles: products, L2 reads and additions. */
static void attention_tiles(const ordo_model *model, const ordo_attention_shape *s,
                            const ordo_kernel_counts *rng, double elements, double *by)
{
    const bool backward = s->backward;
    const double bq = value(model, backward ? ORDO_C_BACKWARD_TILE_Q : ORDO_C_ATTENTION_TILE_Q);
    const double bk = value(model, ORDO_C_BACKWARD_TILE_K);
    const double all =
        ordo_price_clocks(model, backward ? ORDO_C_CLOCK_BACKWARD : ORDO_C_CLOCK_TENSOR);
    const double d = (double)s->head_dim, bytes = ordo_precision_bytes(s->precision);
    const double flop = backward ? 10 * d : 4 * d;
    const double rate =
        ordo_model_tensor(model, s->precision) * attention_efficiency(model, backward);
    const double owners =
        (double)s->batch *
        (backward ? (double)s->kv_heads * (double)ordo_price_tiles((double)s->kv_len, bk)
                  : (double)s->heads * (double)ordo_price_tiles((double)s->q_len, bq));
    const double start =
        value(model, backward ? ORDO_C_BACKWARD_TILE_CLK : ORDO_C_ATTENTION_TILE_CLK);
    by[ORDO_LIMIT_MMA] = (elements * (ordo_price_over(flop, rate) + exposed_clocks(model, s, rng)) +
                          owners * start) /
                         all;
    /* The forward pass reads K and V once per tile of rows, the backward pass Q and dO once per
     * tile of keys. */
    by[ORDO_LIMIT_L2_READ] =
        elements *
        ordo_price_over(2 * d * bytes / (backward ? bk : bq), value(model, ORDO_C_L2_READ)) / all;
    if (backward)
        by[ORDO_LIMIT_L2_ADD] =
            elements * ordo_price_over(4 * d / bk, value(model, ORDO_C_L2_ADD)) / all;
}

static ordo_priced attention_cpu(const ordo_model *model, const ordo_attention_shape *s,
                                 const ordo_kernel_counts *rng, double elements)
{
    ordo_kernel_time t = { 0 };
    const double flop = (s->backward ? 10.0 : 4.0) * (double)s->head_dim;
    const double rate =
        ordo_model_tensor(model, s->precision) * attention_efficiency(model, s->backward);
    t.by[ORDO_LIMIT_MMA] =
        elements * ordo_price_over(flop, rate) / ordo_price_clocks(model, ORDO_C_CLOCK_TENSOR);
    if (rng)
        t.by[ORDO_LIMIT_MMA] += ordo_price_rng(model, rng, elements).clock_seconds;
    attention_memory(model, s, t.by);
    return ordo_price_finish(model, t, 0);
}

static bool on_cpu(const ordo_model *model)
{
    return ordo_machine_family_of(model->machine) == ORDO_MACHINE_CPU;
}

/* Energy of the products per flop; of what dropout adds, by the time that it takes. */
static double attention_energy(const ordo_model *model, const ordo_attention_shape *s,
                               const ordo_kernel_counts *rng, double elements)
{
    const double flop = elements * (s->backward ? 10.0 : 4.0) * (double)s->head_dim;
    const double joules = flop * ordo_model_flop_energy(model, s->precision);
    if (joules <= 0)
        return 0;
    ordo_attention_shape plain = *s;
    plain.keep = ORDO_KEEP_NONE;
    const double added = exposed_clocks(model, s, rng) - exposed_clocks(model, &plain, NULL);
    return joules + elements * added / ordo_price_clocks(model, ORDO_C_CLOCK_TENSOR) *
                        value(model, ORDO_C_ORDINARY_POWER);
}

/* Waiting workers lengthen the time of all limiters except the memories. */
static void stretch(double *by, double utilization)
{
    for (int i = 0; i < ORDO_LIMITERS; i++)
        if (i != ORDO_LIMIT_HBM_READ && i != ORDO_LIMIT_HBM_WRITE && i != ORDO_LIMIT_L2_READ &&
            i != ORDO_LIMIT_L2_ADD)
            by[i] /= utilization;
}

ordo_constant ordo_price_time_constant(const ordo_attention_shape *s)
{
    static const int64_t sizes[ORDO_PRICE_SIZES - 1] = { 64, 96, 128, 192, 256 };
    int at = s->backward ? ORDO_PRICE_SIZES : 0;
    for (int i = 0; i < ORDO_PRICE_SIZES - 1; i++)
        at += s->head_dim > sizes[i];
    return (ordo_constant)(ORDO_C_TIME + at * (ORDO_KEEP_MADE + 1) + (int)s->keep);
}

/* Rows and columns of a tile of scores, partial at the edge of a mask: on a GPU those of the first
 * family, whichever the machine is. */
static void tile_of(const ordo_model *model, const ordo_attention_shape *s, int64_t *bq,
                    int64_t *bk)
{
    if (model->calibration == ORDO_CALIBRATION_PAPER || on_cpu(model)) {
        *bq = (int64_t)value(model, s->backward ? ORDO_C_BACKWARD_TILE_Q : ORDO_C_ATTENTION_TILE_Q);
        *bk = (int64_t)value(model, s->backward ? ORDO_C_BACKWARD_TILE_K : ORDO_C_ATTENTION_TILE_K);
        return;
    }
    const ordo_family *family = ordo_family_first(ORDO_BACKEND_CUDA);
    const ordo_problem p = { .head_dim = s->head_dim, .v_head_dim = s->head_dim };
    const ordo_family_row *found = ordo_family_row_of(family, &p);
    const ordo_family_row *row = found ? found : &family->rows[family->row_count - 1];
    const ordo_tiling *tiling = s->backward ? &row->backward : &row->forward;
    *bq = tiling->tile.q;
    *bk = tiling->tile.k;
}

/* What a kind takes for every 128 rows of a head in addition to its price: starts of units,
 * launches. */
static double start_seconds(const ordo_model *model, const ordo_attention_shape *s,
                            ordo_constant kind)
{
    return value(model, ORDO_C_START + (kind - ORDO_C_TIME)) * 1e-9 * (double)s->batch *
           (double)s->heads * (double)ordo_price_tiles((double)s->q_len, START_ROWS);
}

ordo_priced ordo_price_attention(const ordo_model *model, const ordo_attention_shape *s)
{
    const ordo_kernel_counts *rng = s->keep == ORDO_KEEP_MADE ? ordo_rng_counts(&s->rng) : NULL;
    const bool backward = s->backward;
    int64_t bq, bk;
    tile_of(model, s, &bq, &bk);
    const double elements = ordo_live_elements(s, bq, bk);
    if (on_cpu(model))
        return attention_cpu(model, s, rng, elements);

    ordo_kernel_time t = { 0 };
    const ordo_kernel_counts counts = attention_counts(model, s, rng);
    lane_limits(model, &counts, elements, backward ? ORDO_C_CLOCK_BACKWARD : ORDO_C_CLOCK_TENSOR,
                t.by);
    attention_tiles(model, s, rng, elements, t.by);
    attention_memory(model, s, t.by);
    const double rows = (double)s->batch * (double)s->heads *
                        (double)ordo_price_tiles((double)s->q_len, (double)bq);
    const ordo_constant kind = ordo_price_time_constant(s);
    const double measured = value(model, kind);
    const double factor = ordo_price_waves(model, rows) * measured;
    for (int i = 0; i < ORDO_LIMITERS; i++)
        t.by[i] *= factor;
    if (backward && s->utilization > 0)
        stretch(t.by, s->utilization);
    ordo_priced priced =
        ordo_price_finish(model, t, measured * attention_energy(model, s, rng, elements));
    const double start = start_seconds(model, s, kind);
    priced.clock_seconds += start;
    priced.time.seconds += start;
    return priced;
}

double ordo_price_visible(const ordo_model *model, const ordo_attention_shape *s)
{
    const double visible = ordo_live_elements(s, ORDO_KEEP_ROWS, ORDO_KEEP_COLS);
    const double all = (double)s->batch * (double)s->heads * (double)s->q_len * (double)s->kv_len;
    if (on_cpu(model) || model->calibration == ORDO_CALIBRATION_PAPER)
        return visible;
    const double across = (double)ordo_price_tiles((double)s->kv_len, ORDO_KEEP_COLS);
    const double longest = fmin(across, RNG_PIECE) * ORDO_KEEP_ROWS * ORDO_KEEP_COLS;
    const double idle = value(model, ORDO_C_WORKERS) * RNG_WARPS * longest / 2;
    return fmin(all, visible + idle);
}

ordo_priced ordo_price_rng(const ordo_model *model, const ordo_kernel_counts *rng, double elements)
{
    ordo_kernel_time t = { 0 };
    if (on_cpu(model)) {
        t.by[ORDO_LIMIT_ALU] = elements * value(model, ORDO_C_RNG_CPU_CLK) *
                               ordo_rng_cpu_cost(rng) /
                               ordo_price_clocks(model, ORDO_C_CLOCK_ORDINARY);
    } else {
        ordo_kernel_counts counts = { 0 };
        add_counts(&counts, rng, value(model, ORDO_C_RNG_SCALE));
        counts.rf_reads = value(model, ORDO_C_RNG_RF) * counts.issue;
        lane_limits(model, &counts, elements, ORDO_C_CLOCK_ORDINARY, t.by);
    }
    t.by[ORDO_LIMIT_HBM_WRITE] = ordo_price_over(elements / 8, value(model, ORDO_C_HBM_WRITE));
    ordo_priced priced = ordo_price_finish(model, t, 0);
    const double start = on_cpu(model) ? 0 : value(model, ORDO_C_RNG_START) * 1e-9;
    priced.clock_seconds += start;
    priced.time.seconds += start;
    priced.joules = priced.clock_seconds * value(model, ORDO_C_ORDINARY_POWER);
    return priced;
}
