/* model_times.c: times of a whole block by dropout mode, modelled or measured. */
#include "cli/model_times.h"

#include <math.h>
#include <string.h>

cli_block_times cli_block_times_of(const ordo_block_report *r)
{
    return (cli_block_times) {
        .none = r->none,
        .sequential = r->mode[ORDO_DROPOUT_MODE_SEQUENTIAL],
        .fused = r->mode[ORDO_DROPOUT_MODE_FUSED],
        .overlapped = r->mode[ORDO_DROPOUT_MODE_OVERLAPPED],
        .overlapped_qkv = NAN,
    };
}

ordo_status cli_block_beside_qkv(const ordo_model *model, const ordo_block *block, double *seconds)
{
    ordo_block first = *block;
    ordo_block_report report;
    first.beside = ORDO_BLOCK_BESIDE_QKV;
    const ordo_status status = ordo_model_block(model, &first, &report);
    if (status == ORDO_OK)
        *seconds = report.mode[ORDO_DROPOUT_MODE_OVERLAPPED];
    return status;
}

static bool is(double stated, double wanted, double fallback)
{
    return (stated > 0 ? stated : fallback) == wanted;
}

static bool matches(const cli_measured_row *r, const ordo_block *b)
{
    return strcmp(r->kernel, "block") == 0 && r->seconds > 0 && strcmp(r->state, "burst") != 0 &&
           strcmp(r->precision, ordo_precision_name(b->precision)) == 0 &&
           strcmp(r->generator, ordo_generator_name(b->rng.generator)) == 0 &&
           r->rounds == b->rng.rounds && r->bits == b->rng.bits && r->seq == (double)b->seq &&
           r->embed == (double)b->embed && is(r->batch, (double)b->batch, 1) &&
           is(r->head_dim, (double)b->head_dim, 128) &&
           (r->causal || strncmp(r->mask, "causal", 6) == 0) == b->causal;
}

cli_block_times cli_block_times_measured(const cli_measured *measured, const ordo_block *block)
{
    cli_block_times t = { NAN, NAN, NAN, NAN, NAN };
    const struct {
        const char *mode;
        double *at;
    } modes[] = {
        { "none", &t.none },
        { "sequential", &t.sequential },
        { "fused", &t.fused },
        { "overlapped", &t.overlapped },
        { "overlapped-qkv", &t.overlapped_qkv },
    };
    for (size_t i = 0; i < measured->count; i++)
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++)
            if (matches(&measured->rows[i], block) &&
                strcmp(measured->rows[i].mode, modes[m].mode) == 0)
                *modes[m].at = measured->rows[i].seconds;
    return t;
}

void cli_block_ways(const cli_block_times *t, cli_timed_way ways[CLI_TIMED_WAYS])
{
    ways[0] = (cli_timed_way) { "sequential", t->sequential };
    ways[1] = (cli_timed_way) { "fused", t->fused };
    ways[2] = (cli_timed_way) { "overlapped", t->overlapped };
    ways[3] = (cli_timed_way) { "overlapped-qkv", t->overlapped_qkv };
}

/* The fastest way but one; -1: none is known. */
static int fastest(const cli_timed_way *ways, int but)
{
    int best = -1;
    for (int i = 0; i < CLI_TIMED_WAYS; i++)
        if (i != but && ways[i].seconds > 0 && (best < 0 || ways[i].seconds < ways[best].seconds))
            best = i;
    return best;
}

cli_times_advice cli_block_times_advice(const cli_block_times *t, double noise)
{
    cli_timed_way ways[CLI_TIMED_WAYS];
    cli_times_advice advice = { .best = NULL };
    cli_block_ways(t, ways);
    int best = fastest(ways, -1);
    if (best < 0)
        return advice;
    int next = fastest(ways, best);
    if (best >= 2 && t->sequential <= ways[best].seconds * (1 + noise)) {
        next = best; /* it gains nothing over making the bits first */
        best = 0;
    }
    advice.best = ways[best].name;
    if (next < 0)
        return advice;
    advice.next = ways[next].name;
    advice.margin = ways[next].seconds / ways[best].seconds - 1;
    advice.no_difference = advice.margin <= noise;
    return advice;
}
