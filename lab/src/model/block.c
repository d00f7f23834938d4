/* block.c: a transformer block, forward and backward, in every dropout mode.
 *
 *   sequential   GEMMs, then the bits, then attention that reads them
 *   fused        GEMMs, then attention that makes the bits
 *   overlapped   GEMMs and bits at the same time, then attention that reads them
 *   pipelined    bits and attention of a segment of rows beside GEMMs of others, as block.md in
 *                lab/docs defines: one segment's memory, but partial waves per segment
 *
 * In steady state the board's governor averages power over several kernels. With perfect averaging
 * a sequence would take the longer of the sum of times at full clock and the sum of energies over
 * the power limit: making bits, which draws little power, would be repaid by a higher clock.
 * Measured sequences lie between that and the sum of the kernels' own times; a fitted share says
 * where. */
#include "model/model.h"

#include <math.h>

/* Kernels in sequence. */
typedef struct sum {
    double seconds; /* sum of times, each kernel under the power limit */
    double clocked; /* at full clock */
    double joules;
} sum;

static void add(sum *s, const ordo_priced *kernel)
{
    s->seconds += kernel->time.seconds;
    s->clocked += kernel->clock_seconds;
    s->joules += kernel->joules;
}

static double total(const ordo_model *model, sum s)
{
    const double power = ordo_model_value(model, ORDO_C_POWER);
    if (!ordo_model_on(model, ORDO_C_STEADY) || power <= 0)
        return s.seconds;
    const double pooled = s.joules / power > s.clocked ? s.joules / power : s.clocked;
    return s.seconds - ordo_model_value(model, ORDO_C_POWER_CREDIT) * (s.seconds - pooled);
}

/* All kernels of a block on one rank. */
typedef struct parts {
    const ordo_model *model;
    const ordo_block *block;
    const ordo_kernel_counts *rng_counts;
    double elements;
    ordo_priced gemm[ORDO_BLOCK_GEMMS];
    ordo_priced attention, with_bits, fused, rng, memory;
    sum gemms;             /* all four */
    sum hiding;            /* those that can hide the bits */
    double tails;          /* idle time of the last waves of all, in seconds */
    double tail;           /* last waves of the GEMMs that hide */
    double gaps_of_passes; /* share of making the bits that runs beside other kernels of a pass */
    double gaps;           /* the same where the bits are made; a GEMM has none */
} parts;

/* Heads and rows of one rank. */
static int64_t heads_of(const ordo_block *b)
{
    return b->embed / b->head_dim / b->tensor_parallel;
}

static int64_t rows_of(const ordo_block *b)
{
    return b->seq / b->sequence_parallel;
}

/* Whether the bits can be made beside GEMM number i. */
static bool hides(const ordo_block *b, int i)
{
    switch (b->beside) {
    case ORDO_BLOCK_BESIDE_QKV: return i == ORDO_BLOCK_QKV;
    case ORDO_BLOCK_BESIDE_OUT: return i == ORDO_BLOCK_OUT;
    case ORDO_BLOCK_BESIDE_UP: return i == ORDO_BLOCK_UP;
    case ORDO_BLOCK_BESIDE_DOWN: return i == ORDO_BLOCK_DOWN;
    case ORDO_BLOCK_BESIDE_MLP: return i == ORDO_BLOCK_UP || i == ORDO_BLOCK_DOWN;
    default: return true;
    }
}

static bool hides_all(const ordo_block *b)
{
    return b->beside == ORDO_BLOCK_BESIDE_DEFAULT || b->beside == ORDO_BLOCK_BESIDE_ALL;
}

/* GEMM number i over `rows` rows; tensor-parallel ranks share its heads or its inner size. */
static ordo_gemm gemm_of(const ordo_block *b, int i, int64_t rows)
{
    const int64_t e = b->embed, ranks = b->tensor_parallel;
    const int64_t heads = e / b->head_dim, kv = 2 * b->kv_heads * b->head_dim;
    const int64_t n[] = { (heads * b->head_dim + kv) / ranks, e, 4 * e / ranks, e };
    const int64_t k[] = { e, e / ranks, e, 4 * e / ranks };
    return (ordo_gemm) { .size = sizeof(ordo_gemm),
                         .precision = b->precision,
                         .m = b->batch * rows,
                         .n = n[i],
                         .k = k[i] };
}

/* ordo's attention has no fp8: a block that multiplies weights in fp8 attends in bf16. The paper's
 * does not say otherwise than in the block's precision. */
static ordo_precision attention_precision(const ordo_model *model, const ordo_block *b)
{
    const bool own = model->calibration == ORDO_CALIBRATION_SILICON;
    return own && b->precision == ORDO_PRECISION_FP8 ? ORDO_PRECISION_BF16 : b->precision;
}

static ordo_attention_shape shape_of(const ordo_model *model, const ordo_block *b,
                                     ordo_keep_source drop)
{
    return (ordo_attention_shape) {
        .size = sizeof(ordo_attention_shape),
        .precision = attention_precision(model, b),
        .batch = b->batch,
        .heads = heads_of(b),
        .kv_heads = b->kv_heads / b->tensor_parallel,
        .q_len = rows_of(b),
        .kv_len = b->seq,
        .head_dim = b->head_dim,
        .causal = b->causal && rows_of(b) == b->seq,
        .keep = drop,
        .rng = b->rng,
    };
}

/* Share of the scores that a causal mask leaves, in whole tiles. */
static double causal_share(const ordo_model *model, const ordo_block *b)
{
    if (!b->causal)
        return 1;
    ordo_attention_shape s = shape_of(model, b, ORDO_KEEP_NONE);
    s.q_len = b->seq;
    s.causal = true;
    const int64_t bq = (int64_t)ordo_model_value(model, ORDO_C_ATTENTION_TILE_Q);
    const int64_t bk = (int64_t)ordo_model_value(model, ORDO_C_ATTENTION_TILE_K);
    const double live = ordo_live_elements(&s, bq, bk);
    s.causal = false;
    return live / ordo_live_elements(&s, bq, bk);
}

/* Time of attention. Rows of a rank are spread over the sequence: what a causal mask leaves of them
 * is `share` of all. */
static ordo_priced attention_of(const parts *p, ordo_attention_shape s, double share)
{
    ordo_priced priced = ordo_price_attention(p->model, &s);
    if (share < 1 && !s.causal) {
        priced.clock_seconds *= share;
        priced.joules *= share;
        priced.time.seconds *= share;
        for (int i = 0; i < ORDO_LIMITERS; i++)
            priced.time.by[i] *= share;
    }
    return priced;
}

/* Two norms, two residual sums, one activation four times as wide; 16-bit values. In fp8 the input
 * of each GEMM is then read once more and written with 8 bits. */
static ordo_priced memory_steps(const ordo_model *model, const ordo_block *b)
{
    const bool fp8 = b->precision == ORDO_PRECISION_FP8;
    const double rows = (double)b->batch * (double)b->seq / (double)b->sequence_parallel;
    const double ranks = (double)b->tensor_parallel, wide = 4 / ranks;
    const double inputs = fp8 ? 1 + 1 / ranks + 1 + wide : 0; /* all four GEMMs', in widths */
    const double unit = 2 * rows * (double)b->embed;
    ordo_priced priced = ordo_price_memory(model, (2 + 4 + wide + inputs) * unit,
                                           (2 + 2 + wide + inputs / 2) * unit);
    const double launches =
        (4 + (fp8 ? ORDO_BLOCK_GEMMS : 0)) * ordo_model_value(model, ORDO_C_LAUNCH) * 1e-9;
    priced.clock_seconds += launches;
    priced.time.seconds += launches;
    return priced;
}

/* Dropping makes no kernel faster, whatever constants were fitted to each kind. */
static void at_least(ordo_priced *priced, const ordo_priced *least)
{
    if (priced->time.seconds < least->time.seconds || priced->clock_seconds < least->clock_seconds)
        *priced = *least;
}

static parts price_parts(const ordo_model *model, const ordo_block *b,
                         const ordo_kernel_counts *counts)
{
    parts p = { .model = model, .block = b, .rng_counts = counts };
    const double share = causal_share(model, b);
    const bool cpu = ordo_machine_family_of(model->machine) == ORDO_MACHINE_CPU;
    for (int i = 0; i < ORDO_BLOCK_GEMMS; i++) {
        const ordo_gemm g = gemm_of(b, i, rows_of(b));
        p.gemm[i] = ordo_price_gemm(model, &g);
        const double tail = cpu ? 0 : p.gemm[i].time.seconds * ordo_gemm_tail(model, &g);
        add(&p.gemms, &p.gemm[i]);
        p.tails += tail;
        if (!hides(b, i))
            continue;
        add(&p.hiding, &p.gemm[i]);
        p.tail += tail;
    }
    p.elements =
        share * (double)b->batch * (double)heads_of(b) * (double)b->seq * (double)rows_of(b);
    p.attention = attention_of(&p, shape_of(model, b, ORDO_KEEP_NONE), share);
    p.with_bits = attention_of(&p, shape_of(model, b, ORDO_KEEP_GIVEN), share);
    p.fused = attention_of(&p, shape_of(model, b, ORDO_KEEP_MADE), share);
    at_least(&p.with_bits, &p.attention);
    at_least(&p.fused, &p.with_bits);
    const ordo_attention_shape shape = shape_of(model, b, ORDO_KEEP_NONE);
    p.rng = ordo_price_rng(model, counts,
                           shape.causal ? ordo_price_visible(model, &shape) : p.elements);
    if (ordo_model_on(model, ORDO_C_COUNT_MEMORY))
        p.memory = memory_steps(model, b);
    if (!cpu)
        p.gaps_of_passes = ordo_model_value(model, ORDO_C_GAP_SHARE);
    p.gaps = hides_all(b) ? p.gaps_of_passes : 0;
    return p;
}

/* Tensor time that the wide multiplications of making the bits would take. */
static double steal_of(const parts *p, double elements)
{
    if (ordo_bits_by_f64(&p->block->rng))
        return 0;
    const double per = ordo_model_value(p->model, ORDO_C_WIDE_STEAL) * p->rng_counts->imad_wide /
                       (32 * 4) * ordo_model_value(p->model, ORDO_C_RNG_SCALE);
    return elements * per /
           (ordo_model_value(p->model, ORDO_C_WORKERS) *
            ordo_model_value(p->model, ORDO_C_CLOCK_TENSOR) * 1e9);
}

/* Ring all-reduce of activations after projection and MLP; or keys and values of all rows. */
static double communication(const ordo_model *model, const ordo_block *b)
{
    const double link = ordo_model_value(model, ORDO_C_LINK);
    const double tensor = (double)b->tensor_parallel, sequence = (double)b->sequence_parallel;
    const double rows = (double)b->batch * (double)b->seq;
    if (link <= 0 || !ordo_model_on(model, ORDO_C_COUNT_MEMORY))
        return 0;
    const double reduced = 2 * 2 * (tensor - 1) / tensor * 2 * rows / sequence * (double)b->embed;
    const double gathered = (sequence - 1) / sequence * 2 * rows *
                            (double)(b->kv_heads * b->head_dim) / tensor *
                            ordo_precision_bytes(b->precision);
    return (reduced + gathered) / link;
}

static double keep_bits_bytes(const ordo_block *b, int64_t rows)
{
    return (double)b->batch * (double)heads_of(b) * (double)rows * (double)b->seq / 8;
}

/* Time of a GEMM of one segment, in whole waves. An efficiency measured on whole GEMMs already
 * includes the partial wave of all rows, `all`; and partial waves cost nothing where power is the
 * limit. */
static double segment_gemm(const ordo_model *model, const ordo_gemm *g, ordo_gemm all)
{
    ordo_model whole = *model;
    whole.value[ORDO_C_WHOLE_WAVES] = 1;
    if (!ordo_model_on(model, ORDO_C_TAILS_COUNTED))
        return ordo_price_gemm(&whole, g).time.seconds;
    const double share = ordo_price_gemm(model, g).time.seconds;
    if (ordo_machine_family_of(model->machine) == ORDO_MACHINE_CPU)
        return share;
    const double waves =
        ordo_price_gemm(&whole, g).clock_seconds * (1 - ordo_gemm_tail(model, &all));
    return waves > share ? waves : share;
}

/* Products one after the other: their time, and the idle time of their last waves. */
typedef struct stretch {
    double seconds, tail;
} stretch;

/* GEMMs `first` to `last` over `rows` rows of the rank's. */
static stretch stretch_of(const parts *p, int first, int last, int64_t rows)
{
    const bool cpu = ordo_machine_family_of(p->model->machine) == ORDO_MACHINE_CPU;
    stretch s = { 0, 0 };
    for (int i = first; i <= last; i++) {
        const ordo_gemm g = gemm_of(p->block, i, rows);
        const double each = segment_gemm(p->model, &g, gemm_of(p->block, i, rows_of(p->block)));
        s.seconds += each;
        s.tail += cpu ? 0 : each * ordo_gemm_tail(p->model, &g);
    }
    return s;
}

/* Bits of a share of the scores beside products. */
static double bits_beside(const parts *p, double share, stretch products)
{
    const ordo_beside beside = {
        .gemm = products.seconds,
        .rng = share * p->rng.time.seconds,
        .steal = steal_of(p, share * p->elements),
        .tail = products.tail,
        .awaited = true,
    };
    return ordo_overlap(p->model, &beside).seconds;
}

/* Share of segment i of n: a causal mask leaves it 2i + 1 of n^2. */
static double share_of(const ordo_block *b, int64_t i, int64_t n)
{
    return (b->causal ? (double)(2 * i + 1) / (double)n : 1) / (double)n;
}

/* Time of one layer in `n` segments: with the bits of the first, QKV of the first (under a full
 * mask of all); with those of another, what follows attention of the segment before, and under a
 * causal mask QKV of the segment after. Attention that runs beside products takes as long as after
 * them: both need the tensor cores. */
static double pipelined(const parts *p, int64_t n)
{
    const ordo_block *b = p->block;
    ordo_model shares = *p->model;
    shares.value[ORDO_C_WHOLE_WAVES] = 0;
    const int64_t rows = rows_of(b) / n;
    const bool cpu = ordo_machine_family_of(p->model->machine) == ORDO_MACHINE_CPU;
    const bool ahead = b->causal && n > 1;
    const stretch qkv = stretch_of(p, ORDO_BLOCK_QKV, ORDO_BLOCK_QKV, ahead ? rows : rows_of(b));
    const stretch rest = stretch_of(p, ORDO_BLOCK_OUT, ORDO_BLOCK_DOWN, rows);
    parts other = *p;
    other.model = &shares;
    double attention =
        attention_of(&other, shape_of(p->model, b, ORDO_KEEP_GIVEN), causal_share(p->model, b))
            .time.seconds;
    const double tiles = (double)b->batch * (double)heads_of(b) *
                         ceil((double)rows / ordo_model_value(p->model, ORDO_C_ATTENTION_TILE_Q));
    const double waves = tiles / ordo_model_value(p->model, ORDO_C_WORKERS);
    attention *= cpu ? 1 : ceil(waves) / waves;
    const double launch = ordo_model_value(p->model, ORDO_C_SEGMENT_LAUNCH) * 1e-9;
    double seconds = attention + (double)n * launch + p->memory.time.seconds;
    seconds += rest.seconds + (ahead ? qkv.seconds : 0); /* after the last, and beside the first */
    for (int64_t i = 0; i < n; i++) {
        const bool both = ahead && i > 0 && i + 1 < n;
        stretch of = i == 0 ? qkv : rest;
        of.seconds += both ? qkv.seconds : 0;
        of.tail += both ? qkv.tail : 0;
        seconds += bits_beside(p, share_of(b, i, n), of);
    }
    return seconds;
}

/* Time of its backward pass, of which attention takes `attention`: with the bits of the first
 * segment, the gradients before attention, of the projection those of the segment's rows; with
 * those of another, these of the segment after, at last the gradient of the weights. Traffic of the
 * sums that segments carry is not counted. */
static double pipelined_backward(const parts *p, int64_t n, double attention)
{
    const int64_t all = rows_of(p->block);
    const stretch mlp = stretch_of(p, ORDO_BLOCK_UP, ORDO_BLOCK_DOWN, all);
    const stretch qkv = stretch_of(p, ORDO_BLOCK_QKV, ORDO_BLOCK_QKV, all);
    const stretch out = stretch_of(p, ORDO_BLOCK_OUT, ORDO_BLOCK_OUT, all / n);
    const stretch weights = stretch_of(p, ORDO_BLOCK_OUT, ORDO_BLOCK_OUT, all);
    const double launch = ordo_model_value(p->model, ORDO_C_SEGMENT_LAUNCH) * 1e-9;
    double seconds = attention + (double)n * launch + 2 * qkv.seconds;
    seconds += n > 1 ? out.seconds : weights.seconds; /* beside attention of the first */
    for (int64_t i = 0; i < n; i++) {
        const stretch first = { 2 * mlp.seconds + out.seconds, 2 * mlp.tail + out.tail };
        seconds += bits_beside(p, share_of(p->block, i, n),
                               i == 0      ? first
                               : i + 1 < n ? out
                                           : weights);
    }
    return seconds;
}

/* Time of the block with the given attention, and with `rng` if it is not NULL. */
static double with_attention(const parts *p, const ordo_priced *attention, const ordo_priced *rng)
{
    sum s = p->gemms;
    add(&s, attention);
    add(&s, &p->memory);
    if (rng)
        add(&s, rng);
    return total(p->model, s);
}

/* Forward times of all modes. */
static void price_modes(const parts *p, ordo_block_report *r)
{
    const ordo_model *model = p->model;
    const ordo_block *b = p->block;
    const double fixed = r->communication_seconds;
    const double given = with_attention(p, &p->with_bits, NULL);
    const double sequential = with_attention(p, &p->with_bits, &p->rng);
    const double gemm = total(model, p->hiding);
    const ordo_beside alone = {
        .gemm = gemm,
        .rng = ordo_model_on(model, ORDO_C_STEADY) ? sequential - given : p->rng.clock_seconds,
        .steal = steal_of(p, p->elements),
        .tail = p->tail,
        .awaited = true,
    };
    ordo_beside beside = alone; /* in a block there are more kernels than GEMMs */
    beside.gaps = p->gaps;
    beside.awaited = !hides_all(b);
    const ordo_hidden hidden = ordo_overlap(model, &beside);
    r->gemm_seconds = gemm;
    r->none = fixed + with_attention(p, &p->attention, NULL);
    r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL] = fixed + sequential;
    r->mode[ORDO_DROPOUT_MODE_FUSED] = fixed + with_attention(p, &p->fused, NULL);
    r->mode[ORDO_DROPOUT_MODE_OVERLAPPED] = fixed + given - gemm + hidden.seconds;
    r->mode[ORDO_DROPOUT_MODE_PIPELINED] = fixed + pipelined(p, b->segments);
    r->exposed = hidden.exposed;
    r->gemm_then_rng = gemm + alone.rng;
    r->gemm_beside_rng = ordo_overlap(model, &alone).seconds;
    r->hidden_in_fused =
        1 - (p->fused.clock_seconds - p->with_bits.clock_seconds) / p->rng.clock_seconds;
    const double slow = ordo_bits_slow(model, p->rng.clock_seconds, alone.steal);
    r->region = hidden.exposed > 0 ? 3 : p->rng.clock_seconds * slow < 0.5 * gemm ? 1 : 2;
}

static ordo_kernel_time backward_time(const parts *p, ordo_keep_source keep)
{
    ordo_attention_shape s = shape_of(p->model, p->block, keep);
    s.backward = true;
    s.utilization = p->block->utilization;
    return attention_of(p, s, causal_share(p->model, p->block)).time;
}

static double backward_seconds(const parts *p, ordo_keep_source keep)
{
    return backward_time(p, keep).seconds;
}

/* Forward and backward pass. GEMMs take twice as long in the backward pass; three quarters of that,
 * projection and MLP, run before attention and can overlap with regenerating the bits. */
static void price_training(const parts *p, ordo_block_report *r)
{
    const ordo_model *model = p->model;
    ordo_training *t = &r->training;
    const double g = total(model, p->gemms), rng = p->rng.time.seconds;
    const double forward = p->attention.time.seconds, given = p->with_bits.time.seconds;
    const double fused = p->fused.time.seconds;
    const double factor = ordo_model_value(model, ORDO_C_BACKWARD_FACTOR);
    double backward = r->attention_backward.seconds;
    double backward_given = fmax(backward, backward_seconds(p, ORDO_KEEP_GIVEN));
    double backward_fused = fmax(backward_given, backward_seconds(p, ORDO_KEEP_MADE));
    if (factor > 0) {
        backward = factor * forward;
        backward_given = backward + 2 * (given - forward);
        backward_fused = backward_given + (fused - given);
    }
    const double fixed = 3 * (p->memory.time.seconds + r->communication_seconds);
    ordo_beside once = { .gemm = r->gemm_seconds,
                         .rng = rng,
                         .steal = steal_of(p, p->elements),
                         .tail = p->tail,
                         .gaps = p->gaps,
                         .awaited = !hides_all(p->block) };
    ordo_beside again = once;
    again.gemm = 1.5 * g;
    again.tail = 1.5 * p->tails;
    again.gaps = p->gaps_of_passes;
    again.awaited = true;
    const double first = ordo_overlap(model, &once).seconds + (g - r->gemm_seconds);
    const double second = ordo_overlap(model, &again).seconds;
    t->none = fixed + 3 * g + forward + backward;
    t->sequential_kept = fixed + 3 * g + rng + given + backward_given;
    t->sequential_regenerated = t->sequential_kept + rng;
    t->fused = fixed + 3 * g + fused + backward_fused;
    t->overlapped_kept = fixed + first + 2 * g + given + backward_given;
    t->overlapped_regenerated = fixed + first + second + 0.5 * g + given + backward_given;
    t->pipelined = r->mode[ORDO_DROPOUT_MODE_PIPELINED] + fixed * 2 / 3 +
                   pipelined_backward(p, p->block->segments, backward_given);
}

/* The fastest mode and the second. If the bits do not fit memory, only fused and pipelined remain.
 * A second stream must gain more than the noise of measurements. */
static void choose(ordo_block_report *r, double noise)
{
    double best = INFINITY, next = INFINITY;
    for (int i = 0; i < ORDO_DROPOUT_MODES; i++) {
        const bool whole = i == ORDO_DROPOUT_MODE_SEQUENTIAL || i == ORDO_DROPOUT_MODE_OVERLAPPED;
        if (whole ? !r->keep_bits_fit : i == ORDO_DROPOUT_MODE_PIPELINED && r->keep_bits_fit)
            continue;
        if (r->mode[i] < best) {
            next = best;
            best = r->mode[i];
            r->best = (ordo_dropout_mode)i;
        } else if (r->mode[i] < next) {
            next = r->mode[i];
        }
    }
    if (r->best == ORDO_DROPOUT_MODE_OVERLAPPED &&
        r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL] <= best * (1 + noise)) {
        r->best = ORDO_DROPOUT_MODE_SEQUENTIAL;
        next = best = r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL];
    }
    r->margin = next / best - 1;
    r->no_difference = r->margin <= noise;
    const ordo_training *t = &r->training;
    const struct {
        ordo_dropout_mode mode;
        bool kept;
        double seconds;
    } ways[] = {
        { ORDO_DROPOUT_MODE_FUSED, false, t->fused },
        { ORDO_DROPOUT_MODE_SEQUENTIAL, false, t->sequential_regenerated },
        { ORDO_DROPOUT_MODE_SEQUENTIAL, true, t->sequential_kept },
        { ORDO_DROPOUT_MODE_OVERLAPPED, false, t->overlapped_regenerated },
        { ORDO_DROPOUT_MODE_OVERLAPPED, true, t->overlapped_kept },
    };
    double least = INFINITY;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) { /* overlapped last */
        const bool beside = ways[i].mode == ORDO_DROPOUT_MODE_OVERLAPPED;
        const bool fits = r->keep_bits_fit || ways[i].mode == ORDO_DROPOUT_MODE_FUSED;
        const bool again = r->training_best == ways[i].mode && least < INFINITY;
        const double most = beside && !again ? least / (1 + noise) : least;
        if (ways[i].seconds < most && fits) {
            least = ways[i].seconds;
            r->training_best = ways[i].mode;
            r->training_reuses_keep_bits = ways[i].kept;
        }
    }
}

void ordo_price_block(const ordo_model *model, const ordo_block *b,
                      const ordo_kernel_counts *counts, ordo_block_report *r)
{
    const parts p = price_parts(model, b, counts);
    *r = (ordo_block_report) {
        .heads = heads_of(b),
        .elements = p.elements,
        .attention = p.attention.time,
        .attention_given = p.with_bits.time,
        .attention_made = p.fused.time,
        .rng = p.rng.time,
        .memory_seconds = p.memory.time.seconds,
        .communication_seconds = communication(model, b),
        .segments = b->segments,
        .coresident = ordo_model_coresident(model),
    };
    for (int i = 0; i < ORDO_BLOCK_GEMMS; i++)
        r->gemm[i] = p.gemm[i].time;
    r->attention_backward = backward_time(&p, ORDO_KEEP_NONE);
    const int64_t rows = rows_of(b);
    r->keep_bits_bytes[ORDO_DROPOUT_MODE_SEQUENTIAL] =
        r->keep_bits_bytes[ORDO_DROPOUT_MODE_OVERLAPPED] = keep_bits_bytes(b, rows);
    r->keep_bits_bytes[ORDO_DROPOUT_MODE_PIPELINED] = keep_bits_bytes(b, rows / b->segments);
    const double memory = ordo_model_value(model, ORDO_C_MEMORY);
    r->keep_bits_fit = memory <= 0 || r->keep_bits_bytes[ORDO_DROPOUT_MODE_SEQUENTIAL] <= memory;
    price_modes(&p, r);
    r->overlapped_over_sequential =
        r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL] / r->mode[ORDO_DROPOUT_MODE_OVERLAPPED];
    r->overlapped_over_fused =
        r->mode[ORDO_DROPOUT_MODE_FUSED] / r->mode[ORDO_DROPOUT_MODE_OVERLAPPED];
    r->fused_over_sequential =
        r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL] / r->mode[ORDO_DROPOUT_MODE_FUSED];
    price_training(&p, r);
    choose(r, ordo_model_value(model, ORDO_C_NOISE));
}
