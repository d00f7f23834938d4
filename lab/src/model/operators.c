/* operators.c: a list of kernels on streams, and the best place for the one that makes keep bits.
 *
 * Kernels of a stream run in the order of the list; a kernel also waits for those named in `after`.
 * Time advances from one end of a kernel to the next. Kernels that run at the same time share the
 * machine as follows.
 *
 *   products     a kernel of matrix products whose registers fill a multiprocessor lets no other
 *                kernel in: the one that started later waits, as on a second stream
 *   making bits  beside products that leave room: both slowed as in overlap.c; beside kernels that
 *                move bytes at the share of its speed that blocks have shown (gap_share)
 *   the rest     at full speed as long as the uses of each resource add up to no more than one;
 * else all of them slower by that factor */
#include "model/model.h"

#include <math.h>
#include <stdio.h>

#include "base/environment.h"
#include "base/status.h"

enum { WARP = 32, SCHEDULERS = 4 };

/* One kernel as the simulation sees it. */
typedef struct job {
    double seconds; /* alone */
    double use[ORDO_RESOURCES];
    double steal; /* making bits: tensor time that it takes from products beside it */
    bool products, bits;
    int64_t stream;
    int64_t start_with; /* moved bits: begin no earlier than this kernel; -1: not moved */
    double start, end, left;
    bool begun, done;
} job;

typedef struct job_list {
    const ordo_model *model;
    const ordo_operator *operators;
    size_t count, rng;
    job jobs[ORDO_OPERATORS_MOST];
} job_list;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static ordo_status price_one(const ordo_model *model, const ordo_operator *o,
                             ordo_kernel_time *time)
{
    switch (o->kind) {
    case ORDO_OPERATOR_GEMM: return ordo_model_gemm(model, &o->gemm, time);
    case ORDO_OPERATOR_ATTENTION: return ordo_model_attention(model, &o->attention, time);
    case ORDO_OPERATOR_RNG: return ordo_model_rng(model, &o->rng, o->elements, time);
    case ORDO_OPERATOR_MEMORY: return ordo_model_memory(model, o->read_bytes, o->write_bytes, time);
    case ORDO_OPERATOR_ALL_REDUCE:
    case ORDO_OPERATOR_MEASURED: break;
    }
    *time = (ordo_kernel_time) { .seconds = o->seconds };
    return ORDO_OK;
}

/* Ring all-reduce: each rank sends 2 (ranks - 1) / ranks of the bytes. */
static ordo_status price_all_reduce(const ordo_model *model, const ordo_operator *o, job *to)
{
    const double link = ordo_model_value(model, ORDO_C_LINK), ranks = (double)o->ranks;
    ORDO_TRY(ordo_check_range("ranks", o->ranks, 1, 1 << 20));
    if (!(o->read_bytes >= 0 && o->read_bytes <= 1e18))
        return ordo_fail(ORDO_ERR_ARGUMENT, "bytes %g: expected 0 to 1e18", o->read_bytes);
    if (link <= 0)
        return ordo_fail(ORDO_ERR_UNSUPPORTED, "machine \"%s\" does not give nvlink_bytes_per_s",
                         ordo_machine_name(model->machine));
    to->seconds = 2 * (ranks - 1) / ranks * o->read_bytes / link;
    to->use[ORDO_RESOURCE_LINK] = 1;
    return ORDO_OK;
}

/* Shares of the resources that a predicted kernel uses while it runs alone. */
static void uses_of(const ordo_kernel_time *t, double use[ORDO_RESOURCES])
{
    const double *by = t->by;
    use[ORDO_RESOURCE_TENSOR] = by[ORDO_LIMIT_MMA] / t->seconds;
    use[ORDO_RESOURCE_MEMORY] =
        larger(by[ORDO_LIMIT_HBM_READ], by[ORDO_LIMIT_HBM_WRITE]) / t->seconds;
    use[ORDO_RESOURCE_SLOTS] =
        larger(larger(by[ORDO_LIMIT_SLOT], by[ORDO_LIMIT_ALU]), by[ORDO_LIMIT_ISSUE]) / t->seconds;
}

static ordo_status price_job(const ordo_model *model, const ordo_operator *o, job *to)
{
    ordo_kernel_time time = { 0 };
    *to = (job) { .stream = o->stream, .start_with = -1 };
    if ((unsigned)o->kind > ORDO_OPERATOR_MEASURED)
        return ordo_fail(ORDO_ERR_ARGUMENT, "kind %d: expected 0..%d", (int)o->kind,
                         (int)ORDO_OPERATOR_MEASURED);
    if (!(o->seconds >= 0 && o->seconds <= 1e9))
        return ordo_fail(ORDO_ERR_ARGUMENT, "seconds %g: expected 0 to 1e9", o->seconds);
    if (o->kind == ORDO_OPERATOR_MEASURED && o->seconds == 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "seconds 0: expected the time of a measured kernel");
    for (int i = 0; i < ORDO_RESOURCES; i++)
        if (!(o->use[i] >= 0 && o->use[i] <= 1))
            return ordo_fail(ORDO_ERR_ARGUMENT, "use %g: expected 0 to 1", o->use[i]);
    if (o->kind == ORDO_OPERATOR_ALL_REDUCE) {
        ORDO_TRY(price_all_reduce(model, o, to));
    } else {
        ORDO_TRY(price_one(model, o, &time));
        to->seconds = time.seconds;
        if (o->kind != ORDO_OPERATOR_MEASURED)
            uses_of(&time, to->use);
    }
    if (o->kind == ORDO_OPERATOR_MEASURED)
        for (int i = 0; i < ORDO_RESOURCES; i++)
            to->use[i] = o->use[i];
    if (o->seconds > 0)
        to->seconds = o->seconds;
    to->products = o->kind == ORDO_OPERATOR_GEMM || o->kind == ORDO_OPERATOR_ATTENTION ||
                   (o->kind == ORDO_OPERATOR_MEASURED && o->use[ORDO_RESOURCE_TENSOR] > 0);
    to->bits = o->kind == ORDO_OPERATOR_RNG;
    if (to->bits && !ordo_bits_by_f64(&o->rng))
        to->steal = o->elements * ordo_model_value(model, ORDO_C_WIDE_STEAL) *
                    ordo_rng_counts(&o->rng)->imad_wide / (WARP * SCHEDULERS) /
                    ordo_price_clocks(model, ORDO_C_CLOCK_TENSOR);
    return ORDO_OK;
}

/* ---- simulation ---- */

static bool waits_for(const ordo_operator *o, size_t other)
{
    for (size_t i = 0; i < o->after_count; i++)
        if ((size_t)o->after[i] == other)
            return true;
    return false;
}

/* Whether kernel i may begin: everything that it waits for is done. */
static bool may_begin(const job_list *l, size_t i)
{
    const job *j = &l->jobs[i];
    if (j->start_with >= 0) {
        const job *with = &l->jobs[j->start_with];
        if (!with->begun)
            return false;
    }
    for (size_t k = 0; k < l->count; k++) {
        const bool before = k < i && l->jobs[k].stream == j->stream;
        if ((before || waits_for(&l->operators[i], k)) && !l->jobs[k].done)
            return false;
    }
    return true;
}

static bool running(const job *j)
{
    return j->begun && !j->done;
}

/* Whether two kernels compete for multiprocessors that products fill. */
static bool compete(const job *a, const job *b)
{
    const bool linked = a->use[ORDO_RESOURCE_LINK] > 0 || b->use[ORDO_RESOURCE_LINK] > 0;
    return (a->products || b->products) && !linked;
}

/* Whether one makes bits beside products. */
static bool bits_beside(const job *a, const job *b)
{
    return (a->bits && b->products) || (a->products && b->bits);
}

/* Whether kernel i waits for one that began before it and leaves no room. */
static bool shut_out(const job_list *l, size_t i)
{
    const job *j = &l->jobs[i];
    const bool room = ordo_model_coresident(l->model);
    for (size_t k = 0; k < l->count; k++) {
        const job *other = &l->jobs[k];
        const bool earlier = other->start < j->start || (other->start == j->start && k < i);
        if (k != i && running(other) && earlier && compete(j, other) &&
            !(room && bits_beside(j, other)))
            return true;
    }
    return false;
}

/* The most speed of kernel i, if it makes bits, beside kernels that move bytes: where these wait
 * for memory all the time, what whole blocks have shown. */
static double covered(const job_list *l, size_t i)
{
    const double share = ordo_model_value(l->model, ORDO_C_GAP_SHARE);
    double most = 1;
    for (size_t k = 0; k < l->count && l->jobs[i].bits; k++) {
        const job *other = &l->jobs[k];
        if (k != i && running(other) && !other->products)
            most = fmin(most, 1 - (1 - share) * other->use[ORDO_RESOURCE_MEMORY]);
    }
    return most;
}

/* Speed of kernel i beside the others that run, relative to its speed alone. */
static double rate_of(const job_list *l, size_t i)
{
    const ordo_model *model = l->model;
    const job *j = &l->jobs[i];
    double use[ORDO_RESOURCES] = { 0 }, most = 1;
    if (shut_out(l, i))
        return 0;
    for (size_t k = 0; k < l->count; k++) {
        const job *other = &l->jobs[k];
        if (!running(other) || shut_out(l, k))
            continue;
        for (int r = 0; r < ORDO_RESOURCES; r++)
            use[r] += covered(l, k) * other->use[r];
        if (k == i || !bits_beside(j, other))
            continue;
        const job *bits = j->bits ? j : other;
        const double slow = ordo_bits_slow(model, bits->seconds, bits->steal);
        if (j->bits)
            return 1 / slow;
        const double factor = bits->steal > 0 ? 0 : ordo_model_value(model, ORDO_C_GEMM_SLOW);
        const double slowdown = (1 + factor) * (1 + ordo_model_value(model, ORDO_C_CARVE_OUT));
        return (1 - fmin(other->steal / (other->seconds * slow), 0.99)) / slowdown;
    }
    for (int r = 0; r < ORDO_RESOURCES; r++)
        if (j->use[r] > 0)
            most = larger(most, use[r]);
    return fmin(covered(l, i), 1 / most);
}

/* Run the list; its time, or -1 if kernels wait for each other. */
static double simulate(job_list *l)
{
    double now = 0;
    for (size_t i = 0; i < l->count; i++) {
        l->jobs[i].left = l->jobs[i].seconds;
        l->jobs[i].begun = l->jobs[i].done = false;
    }
    for (size_t ended = 0; ended < l->count;) {
        double rates[ORDO_OPERATORS_MOST], step = INFINITY;
        for (int pass = 0; pass < 2; pass++) /* bits may begin with a kernel that begins now */
            for (size_t i = 0; i < l->count; i++)
                if (!l->jobs[i].begun && may_begin(l, i)) {
                    l->jobs[i].begun = true;
                    l->jobs[i].start = now;
                }
        for (size_t i = 0; i < l->count; i++) {
            rates[i] = running(&l->jobs[i]) ? rate_of(l, i) : 0;
            if (rates[i] > 0)
                step = fmin(step, l->jobs[i].left / rates[i]);
        }
        if (!(step < INFINITY))
            return -1;
        now += step;
        for (size_t i = 0; i < l->count; i++) {
            job *j = &l->jobs[i];
            j->left -= rates[i] * step;
            if (running(j) && rates[i] > 0 && j->left <= 1e-12 * j->seconds) {
                j->done = true;
                j->end = now;
                ended++;
            }
        }
    }
    return now;
}

/* ---- places ---- */

/* Mark the kernels that run only after kernel `from`, directly or through others. The bits are left
 * out, since they are about to be moved. */
static void mark_later(const job_list *l, size_t from, bool *later)
{
    bool more = true;
    later[from] = true;
    while (more) {
        more = false;
        for (size_t k = 0; k < l->count; k++)
            for (size_t i = 0; i < l->count && !later[k] && k != l->rng; i++) {
                const bool behind = i < k && l->jobs[i].stream == l->jobs[k].stream && i != l->rng;
                if (later[i] && (behind || waits_for(&l->operators[k], i)))
                    later[k] = more = true;
            }
    }
}

/* The kernel that reads the bits: the first that waits for them. */
static size_t reader_of(const job_list *l)
{
    for (size_t k = 0; k < l->count; k++)
        if (waits_for(&l->operators[k], l->rng))
            return k;
    return l->count;
}

/* A stream that no kernel of the list uses. */
static int64_t free_stream(const job_list *l)
{
    int64_t stream = 0;
    for (size_t i = 0; i < l->count; i++)
        stream = l->operators[i].stream >= stream ? l->operators[i].stream + 1 : stream;
    return stream;
}

static ordo_status fill_list(job_list *l, const ordo_model *model, const ordo_operator *operators,
                             size_t count)
{
    size_t generators = 0;
    if (count < 1 || count > ORDO_OPERATORS_MOST)
        return ordo_fail(ORDO_ERR_ARGUMENT, "count %zu: expected 1..%d kernels", count,
                         ORDO_OPERATORS_MOST);
    *l = (job_list) { .model = model, .operators = operators, .count = count };
    for (size_t i = 0; i < count; i++) {
        const ordo_operator *o = &operators[i];
        if (price_job(model, o, &l->jobs[i]) != ORDO_OK) {
            char said[400];
            snprintf(said, sizeof said, "%s", ordo_last_error());
            return ordo_fail(ORDO_ERR_ARGUMENT, "kernel %zu (%s): %s", i, o->name ? o->name : "",
                             said);
        }
        for (size_t k = 0; k < o->after_count; k++)
            if (o->after[k] < 0 || (size_t)o->after[k] >= count || (size_t)o->after[k] == i)
                return ordo_fail(ORDO_ERR_ARGUMENT,
                                 "kernel %zu (%s): after %lld: expected another of 0..%zu", i,
                                 o->name ? o->name : "", (long long)o->after[k], count - 1);
        if (o->kind == ORDO_OPERATOR_RNG) {
            l->rng = i;
            generators++;
        }
    }
    if (generators != 1)
        return ordo_fail(ORDO_ERR_ARGUMENT, "%zu kernels make keep bits: expected one", generators);
    if (reader_of(l) == count)
        return ordo_fail(ORDO_ERR_ARGUMENT, "kernel %zu (%s): expected a kernel after it", l->rng,
                         operators[l->rng].name ? operators[l->rng].name : "");
    return ORDO_OK;
}

/* Time with attention that makes its bits; 0 if the kernel that reads them is not predicted. */
static double fused_seconds(const job_list *list, size_t reader)
{
    job_list l = *list;
    ordo_operator fused = l.operators[reader];
    if (fused.kind != ORDO_OPERATOR_ATTENTION || fused.seconds > 0)
        return 0;
    ordo_kernel_time time;
    fused.attention.keep = ORDO_KEEP_MADE;
    fused.attention.rng = l.operators[l.rng].rng;
    if (ordo_model_attention(l.model, &fused.attention, &time) != ORDO_OK)
        return 0;
    l.jobs[reader].seconds = larger(time.seconds, l.jobs[reader].seconds);
    l.jobs[l.rng].seconds = 0;
    return simulate(&l);
}

/* Move the bits to a second stream, from the start of kernel k on, and run the list. */
static double run_beside(job_list *l, int64_t k)
{
    job *bits = &l->jobs[l->rng];
    bits->stream = free_stream(l);
    bits->start_with = k;
    bits->seconds += ordo_model_value(l->model, ORDO_C_FORK_JOIN) * 1e-9;
    return simulate(l);
}

/* Try every kernel that does not run after the bits are read; the best one to start them with, or
 * -1 if none is faster than `in_line`. Of places that differ by less than a thousandth the last,
 * because it needs the memory of the bits for the shortest time. */
static int64_t try_places(const job_list *l, size_t reader, double in_line,
                          ordo_operator_time *times)
{
    bool later[ORDO_OPERATORS_MOST] = { false };
    double least = in_line;
    int64_t best = -1;
    mark_later(l, reader, later);
    for (size_t k = 0; k < l->count; k++) {
        times[k] = (ordo_operator_time) { .seconds = l->jobs[k].seconds };
        if (k == l->rng || later[k])
            continue;
        job_list moved = *l;
        times[k].beside_seconds = run_beside(&moved, (int64_t)k);
        if (times[k].beside_seconds < 0)
            times[k].beside_seconds = 0; /* it waits for the bits */
        else
            least = fmin(least, times[k].beside_seconds);
    }
    for (size_t k = 0; k < l->count && least < in_line; k++)
        if (times[k].beside_seconds > 0 && times[k].beside_seconds <= 1.001 * least)
            best = (int64_t)k;
    return best;
}

ordo_status ordo_model_overlap(const ordo_model *model, const ordo_operator *operators,
                               size_t count, ordo_operator_time *times, ordo_overlap_report *report)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("operators", operators));
    ORDO_TRY(ordo_check_pointer("times", times));
    ORDO_TRY(ordo_check_pointer("report", report));
    job_list l;
    ORDO_TRY(fill_list(&l, model, operators, count));
    const size_t reader = reader_of(&l);
    const double noise = 1 + ordo_model_value(model, ORDO_C_NOISE);
    ordo_overlap_report r = { .rng = (int64_t)l.rng, .reader = (int64_t)reader, .beside = -1 };
    r.in_line = simulate(&l);
    if (r.in_line < 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "after: kernels wait for each other in a cycle");
    r.seconds = r.in_line;
    r.mode = ORDO_DROPOUT_MODE_SEQUENTIAL;
    r.beside = try_places(&l, reader, r.in_line, times);
    job_list best = l;
    if (r.beside >= 0) {
        const double beside = times[r.beside].beside_seconds;
        r.no_difference = r.in_line <= beside * noise;
        if (!r.no_difference) {
            r.seconds = beside;
            r.mode = ORDO_DROPOUT_MODE_OVERLAPPED;
            (void)run_beside(&best, r.beside);
        }
    }
    r.fused = fused_seconds(&l, reader);
    if (r.fused > 0 && r.fused < r.seconds) {
        r.mode = ORDO_DROPOUT_MODE_FUSED;
        r.seconds = r.fused;
    }
    for (size_t k = 0; k < count; k++) {
        times[k].start = best.jobs[k].start;
        times[k].end = best.jobs[k].end;
    }
    *report = r;
    return ORDO_OK;
}

ordo_status ordo_model_pair(const ordo_model *model, const ordo_operator *first,
                            const ordo_operator *second, ordo_pair_report *report)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("model", model));
    ORDO_TRY(ordo_check_pointer("first", first));
    ORDO_TRY(ordo_check_pointer("second", second));
    ORDO_TRY(ordo_check_pointer("report", report));
    ordo_operator both[] = { *first, *second };
    job_list l = { .model = model, .operators = both, .count = 2 };
    for (size_t i = 0; i < 2; i++) {
        both[i].after = NULL;
        both[i].after_count = 0;
        both[i].stream = (int64_t)i;
        ORDO_TRY(price_job(model, &both[i], &l.jobs[i]));
    }
    ordo_pair_report r = { .first = l.jobs[0].seconds, .second = l.jobs[1].seconds };
    r.in_turn = r.first + r.second;
    r.together = simulate(&l) + ordo_model_value(model, ORDO_C_FORK_JOIN) * 1e-9;
    r.no_difference = r.in_turn <= r.together * (1 + ordo_model_value(model, ORDO_C_NOISE));
    *report = r;
    return ORDO_OK;
}
