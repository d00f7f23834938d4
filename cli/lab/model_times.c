/* model_times.c: times of a whole block by dropout mode, modelled or measured. */
#include "lab/model_times.h"

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

ordo_status cli_block_beside_qkv(const ordo_model *model, const ordo_block *block,
                                 const ordo_block_report *report, double *seconds)
{
    ordo_block first = *block;
    ordo_block_report part;
    first.overlap_qkv_only = true;
    const ordo_status status = ordo_model_block(model, &first, &part);
    if (status == ORDO_OK) /* what overlap saves there, it saves in the whole block */
        *seconds =
            report->mode[ORDO_DROPOUT_MODE_SEQUENTIAL] -
            (part.mode[ORDO_DROPOUT_MODE_SEQUENTIAL] - part.mode[ORDO_DROPOUT_MODE_OVERLAPPED]);
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
