/* stage.c: the tensors of a call in the memory of its backend. */
#include "kit/stage.h"

#include "kit/message.h"

#include <stdlib.h>
#include <string.h>

enum { NOISE_FILLS = 64, NOISE_BYTES = 64 << 20 }; /* more than a second-level cache holds */

/* ---- a host ---- */

static int open_host(cli_stage *s, size_t workspace_bytes)
{
    s->pieces[0] = aligned_alloc(256, (workspace_bytes + 256) / 256 * 256); /* never 0 bytes */
    if (s->pieces[0] == NULL)
        return cli_out_of_memory();
    s->count = 1;
    s->call.workspace = s->pieces[0];
    memcpy(s->out, s->tensors->out, sizeof s->out);
    return CLI_OK;
}

/* ---- a device ---- */

/* Allocate device memory, and copy the bytes at `from` there unless it is NULL. */
static void *take(cli_stage *s, const void *from, size_t bytes, ordo_status *status)
{
    void *to = NULL;
    if (*status == ORDO_OK)
        *status = ordo_device_alloc(&to, bytes > 0 ? bytes : 1);
    if (*status != ORDO_OK)
        return NULL;
    s->pieces[s->count++] = to;
    if (from)
        *status = ordo_device_copy(to, from, bytes, s->call.stream);
    return to;
}

/* The same for an optional array of the call. */
static const void *take_if(cli_stage *s, const void *from, size_t bytes, ordo_status *status)
{
    return from ? take(s, from, bytes, status) : NULL;
}

/* Bits of one element mask: blocks of 16 rows and 128 columns. */
static size_t bits_bytes(const ordo_block_mask *mask)
{
    return (size_t)((mask->q_len + 15) / 16 * ((mask->kv_len + 127) / 128)) * 256;
}

/* The mask of blocks or elements with its arrays on the device. */
static void take_mask(cli_stage *s, ordo_status *status)
{
    const ordo_block_mask *from = s->call.seen ? s->call.seen : s->call.block_mask;
    if (!from)
        return;
    const size_t masks = (size_t)(from->sequences * from->heads), each = sizeof *from->start;
    const size_t starts = (size_t)((from->q_len + ORDO_BLOCK - 1) / ORDO_BLOCK) + 1;
    const size_t intervals = masks * (size_t)from->q_len * each;
    s->mask = *from;
    s->mask.start = take(s, from->start, masks * starts * each, status);
    s->mask.key =
        take(s, from->entries > 0 ? from->key : NULL, (size_t)from->entries * each, status);
    s->mask.first = take_if(s, from->first, intervals, status);
    s->mask.last = take_if(s, from->last, intervals, status);
    s->mask.bits = take_if(s, from->bits, masks * bits_bytes(from), status);
    *(from->bits ? &s->call.seen : &s->call.block_mask) = &s->mask;
}

static int open_device(cli_stage *s, size_t workspace_bytes)
{
    const cli_tensors *t = s->tensors;
    const size_t batch = (size_t)t->problem.batch, heads = (size_t)t->problem.heads;
    ordo_call *c = &s->call;
    ordo_status status = ordo_device_stream_create(&c->stream);
    if (status == ORDO_OK && s->dropout == CLI_PIPELINED)
        status = ordo_device_stream_create(&c->side_stream);
    c->q.data = take(s, t->q, cli_tensors_output_bytes(t, CLI_DQ), &status);
    c->k.data = take(s, t->k, cli_tensors_output_bytes(t, CLI_DK), &status);
    c->v.data = take(s, t->v, cli_tensors_output_bytes(t, CLI_DV), &status);
    c->dout.data = take(s, t->dout, cli_tensors_output_bytes(t, CLI_O), &status);
    for (int i = 0; i < CLI_OUTPUTS; i++)
        s->out[i] = take(s, NULL, cli_tensors_output_bytes(t, (cli_output)i), &status);
    c->o.data = s->out[CLI_O];
    c->lse = s->out[CLI_LSE];
    c->dq.data = s->out[CLI_DQ];
    c->dk.data = s->out[CLI_DK];
    c->dv.data = s->out[CLI_DV];
    c->dsink_parts = t->sinks ? s->out[CLI_DSINK] : NULL;
    if (c->bias.data) {
        c->bias.data = take(s, t->bias, cli_tensors_output_bytes(t, CLI_DBIAS), &status);
        c->dbias = s->out[CLI_DBIAS];
    }
    c->cu_q = take_if(s, c->cu_q, (batch + 1) * sizeof *c->cu_q, &status);
    c->cu_kv = take_if(s, c->cu_kv, (batch + 1) * sizeof *c->cu_kv, &status);
    c->q_lens = take_if(s, c->q_lens, batch * sizeof *c->q_lens, &status);
    c->kv_lens = take_if(s, c->kv_lens, batch * sizeof *c->kv_lens, &status);
    c->sequence_ids = take_if(s, c->sequence_ids, batch * sizeof *c->sequence_ids, &status);
    c->slopes = take_if(s, c->slopes, heads * sizeof *c->slopes, &status);
    c->sink = take_if(s, c->sink, heads * sizeof *c->sink, &status);
    take_mask(s, &status);
    c->workspace = take(s, NULL, workspace_bytes, &status);
    return cli_library(status);
}

/* ---- both ---- */

const char *cli_dropout_mode(cli_dropout dropout)
{
    return dropout == CLI_FUSED ? "fused" : dropout == CLI_PIPELINED ? "pipelined" : "sequential";
}

const char *cli_dropout_backward(cli_dropout dropout)
{
    return dropout == CLI_SEQUENTIAL_KEEP ? "keep" : "regenerate";
}

const char *cli_dropout_text(cli_dropout dropout)
{
    static const char *const texts[] = { "sequential, keep", "sequential, regenerate", "fused",
                                         "pipelined" };
    return texts[dropout];
}

int cli_stage_open(cli_stage *s, const ordo_plan *plan, cli_tensors *tensors, cli_dropout dropout)
{
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    *s = (cli_stage) { .tensors = tensors, .call = cli_tensors_call(tensors), .dropout = dropout };
    CLI_TRY(cli_library(ordo_plan_query(plan, &info)));
    s->device = info.backend == ORDO_BACKEND_CUDA;
    s->call.workspace_bytes = ordo_plan_workspace(plan);
    const int status =
        s->device ? open_device(s, s->call.workspace_bytes) : open_host(s, s->call.workspace_bytes);
    if (status != CLI_OK)
        cli_stage_close(s);
    return status;
}

void cli_stage_close(cli_stage *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->device)
            (void)ordo_device_free(s->pieces[i]); /* a fault has been reported by then */
        else
            free(s->pieces[i]);
    if (s->device)
        (void)ordo_device_stream_destroy(s->call.stream);
    if (s->call.side_stream)
        (void)ordo_device_stream_destroy(s->call.side_stream);
    *s = (cli_stage) { 0 };
}

static ordo_dropout_call drop_call(const cli_stage *s)
{
    const ordo_call host = cli_tensors_call(s->tensors); /* its arrays are the host's */
    ordo_dropout_call drop = ORDO_DROPOUT_CALL_INIT;
    drop.seed = s->call.seed;
    drop.offset = s->call.offset;
    drop.cu_q = host.cu_q;
    drop.cu_kv = host.cu_kv;
    drop.sequence_ids = host.sequence_ids;
    return drop;
}

ordo_status cli_stage_launch_bits(const cli_stage *s)
{
    const ordo_dropout_call drop = drop_call(s);
    return ordo_dropout_fill_device(&s->tensors->problem, &drop, s->bits, s->bits_bytes,
                                    s->call.stream);
}

ordo_status cli_stage_before_pass(const cli_stage *s)
{
    return s->call.keep_bits && s->dropout == CLI_SEQUENTIAL_REGENERATE ? cli_stage_launch_bits(s)
                                                                        : ORDO_OK;
}

int cli_stage_bits(cli_stage *s)
{
    const ordo_dropout_call drop = drop_call(s);
    ordo_dropout_info info;
    ordo_status status = ORDO_OK;
    s->call.keep_bits = NULL;
    if (!s->device || s->tensors->problem.dropout.p == 0 || s->dropout == CLI_FUSED ||
        s->dropout == CLI_PIPELINED)
        return CLI_OK;
    if (s->bits == NULL) {
        status = ordo_dropout_query(&s->tensors->problem, &drop, &info);
        s->bits = take(s, NULL, status == ORDO_OK ? info.bytes : 0, &status);
        s->bits_bytes = status == ORDO_OK ? info.bytes : 0;
    }
    if (status == ORDO_OK && s->dropout == CLI_SEQUENTIAL_KEEP)
        status = cli_stage_launch_bits(s);
    s->call.keep_bits = s->bits;
    return cli_library(status);
}

int cli_stage_poison(const cli_stage *s)
{
    ordo_status status = ORDO_OK;
    if (!s->device)
        cli_tensors_poison(s->tensors);
    for (int i = 0; i < CLI_OUTPUTS && s->device && status == ORDO_OK; i++)
        status = ordo_device_fill(
            s->out[i], 0xff, cli_tensors_output_bytes(s->tensors, (cli_output)i), s->call.stream);
    return cli_library(status);
}

int cli_stage_wait(const cli_stage *s)
{
    return s->device ? cli_library(ordo_device_synchronise(s->call.stream)) : CLI_OK;
}

int cli_stage_fetch(const cli_stage *s)
{
    const cli_tensors *t = s->tensors;
    ordo_status status = ORDO_OK;
    for (int i = 0; i < CLI_OUTPUTS && s->device && status == ORDO_OK; i++)
        status = ordo_device_copy(t->out[i], s->out[i], cli_tensors_output_bytes(t, (cli_output)i),
                                  s->call.stream);
    return cli_library(status);
}

int cli_stage_equal(const cli_stage *a, const cli_stage *b, bool *equal)
{
    ordo_status status = ORDO_OK;
    *equal = true;
    for (int i = 0; i < CLI_OUTPUTS && *equal && status == ORDO_OK; i++)
        status = ordo_device_equal(a->out[i], b->out[i],
                                   cli_tensors_output_bytes(a->tensors, (cli_output)i),
                                   b->call.stream, equal);
    return cli_library(status);
}

/* ---- other work ---- */

int cli_noise_open(cli_noise *h)
{
    *h = (cli_noise) { 0 };
    ordo_status status = ordo_device_stream_create(&h->stream);
    if (status == ORDO_OK)
        status = ordo_device_alloc(&h->memory, NOISE_BYTES);
    const int exit_status = cli_library(status);
    if (status != ORDO_OK)
        cli_noise_close(h);
    return exit_status;
}

void cli_noise_close(cli_noise *h)
{
    (void)ordo_device_free(h->memory);
    (void)ordo_device_stream_destroy(h->stream);
    *h = (cli_noise) { 0 };
}

int cli_noise_launch(const cli_noise *h)
{
    ordo_status status = ORDO_OK;
    for (int i = 0; i < NOISE_FILLS && status == ORDO_OK; i++)
        status = ordo_device_fill(h->memory, i, NOISE_BYTES, h->stream);
    return cli_library(status);
}
