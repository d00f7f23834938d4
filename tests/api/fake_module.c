/* fake_module.c: a CUDA module without a GPU: its device memory is the host's, its passes copy.
 *
 * A pass writes o = q, lse = row, dq = dout, dk = k, dv = v, by the strides it was given, and fills
 * the workspace it was given to the last element, a table of sequences as a device would.
 * FAKE_NAME, FAKE_CAPABILITY and FAKE_WORKERS describe its one device; FAKE_FLIP=N makes the Nth
 * backward pass, counted from 0, give a wrong bit. FAKE_ATTENTION makes its passes compute; with
 * FAKE_BLIND they, and what makes bits, touch no memory. */
#include "fake_module.h"

#include "../cuda/host_table.h"
#include "../cuda/host_tiles.h"
#include "base/half.h"
#include "base/xxh64.h"
#include "fake_attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__attribute__((visibility("default"))) extern fake_record fake_passes;
fake_record fake_passes;

static void launched(int kind, void *stream, const void *thing)
{
    if (fake_passes.launched < FAKE_LAUNCHES)
        fake_passes.launches[fake_passes.launched++] = (fake_launch) { kind, stream, thing };
}

static _Thread_local const char *reason = "";

static const char *why(void)
{
    return reason;
}

static ordo_status fail(ordo_status status, const char *text)
{
    reason = text;
    return status;
}

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

/* ---- the device ---- */

static ordo_status device_count(int *count)
{
    *count = 1;
    return ORDO_OK;
}

static ordo_status device_query(int index, ordo_device *d)
{
    const char *name = getenv("FAKE_NAME");
    if (index != 0)
        return fail(ORDO_ERR_ARGUMENT, "device with another index than 0");
    memset(d, 0, sizeof *d);
    snprintf(d->name, sizeof d->name, "%s", name ? name : "NVIDIA H200");
    d->major = number_of("FAKE_CAPABILITY", 90) / 10;
    d->minor = number_of("FAKE_CAPABILITY", 90) % 10;
    d->workers = number_of("FAKE_WORKERS", 132);
    return ORDO_OK;
}

static ordo_status device_check(int index)
{
    ordo_device d;
    return device_query(index, &d);
}

static ordo_status device_select(int index)
{
    return device_check(index);
}

/* ---- passes ---- */

static uint16_t *element(const ordo_cuda_tensor *t, int64_t b, int64_t row, int64_t head)
{
    return (uint16_t *)t->data + b * t->sequence + row * t->row + head * t->head;
}

static int64_t sequences_of(const ordo_cuda_pass *p) /* packed sequences are one in a tensor */
{
    return p->layout == ORDO_PACKED ? 1 : p->run.sequences;
}

static void copy_tensor(const ordo_cuda_pass *p, const ordo_cuda_tensor *to,
                        const ordo_cuda_tensor *from, int64_t rows, int64_t heads)
{
    for (int64_t b = 0; b < sequences_of(p) && to->data; b++)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t h = 0; h < heads; h++)
                memcpy(element(to, b, row, h), element(from, b, row, h), (size_t)p->head_dim * 2);
}

/* What both passes begin with; false if they may touch no memory. */
static bool begin_pass(const ordo_cuda_pass *p)
{
    fake_passes.last = *p;
    launched(FAKE_PASS, p->stream, p->keep_bits);
    if (getenv("FAKE_BLIND"))
        return false;
    *p->ticket = 1;
    if (p->table)
        host_table(p, p->table);
    host_tiles(p);
    return true;
}

static ordo_status forward(const ordo_cuda_pass *p, const ordo_cuda_pages *pages)
{
    const int64_t rows = p->q_rows, heads = (int64_t)p->run.kv_heads * p->run.group_heads;
    fake_passes.forward++;
    fake_passes.paged = pages != NULL;
    fake_passes.last_pages = pages ? *pages : (ordo_cuda_pages) { .table = NULL };
    if (!begin_pass(p))
        return ORDO_OK;
    if (getenv("FAKE_ATTENTION")) {
        fake_attention_forward(p, pages);
        return ORDO_OK;
    }
    copy_tensor(p, &p->o, &p->q, rows, heads);
    for (int64_t x = 0; x < sequences_of(p) * heads * rows; x++)
        p->lse[x] = 0;
    for (int32_t b = 0; b < p->batch.sequences; b++) {
        const ordo_cuda_sequence s = ordo_batch_sequence(&p->batch, b);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t row = 0; row < s.q_len; row++)
                p->lse[s.lse + head * p->batch.lse_head + row] = (float)row;
    }
    return ORDO_OK;
}

static ordo_status backward(const ordo_cuda_pass *p)
{
    const ordo_band *band = &p->run.band;
    const int64_t heads = (int64_t)p->run.kv_heads * p->run.group_heads;
    const int64_t tiles = heads * p->batch.tiles;
    const int64_t columns = p->form == ORDO_FORM_FLASH ? ordo_pass_bucket(p) : 0; /* in dq_sum */
    if (!begin_pass(p))
        return ORDO_OK;
    for (int64_t x = 0; x < tiles; x++)
        p->turns[x] = 2;
    for (int64_t x = 0; x < tiles * band->bq; x++)
        p->delta[x] = p->lse2[x] = 3;
    for (int64_t x = 0; x < tiles * band->bq * columns; x++)
        p->dq_sum[x] = 4;
    if (*p->ticket != 1 || p->turns[tiles - 1] != 2 || p->delta[0] != 3)
        return ORDO_ERR_INTERNAL; /* parts of the workspace overlap */
    if (getenv("FAKE_ATTENTION")) {
        fake_attention_backward(p);
        return ORDO_OK;
    }
    copy_tensor(p, &p->dq, &p->dout, p->q_rows, heads);
    copy_tensor(p, &p->dk, &p->k, p->kv_rows, p->run.kv_heads);
    copy_tensor(p, &p->dv, &p->v, p->kv_rows, p->run.kv_heads);
    if (fake_passes.backward++ == number_of("FAKE_FLIP", -1) && p->dq.data)
        *element(&p->dq, 0, 5, 0) ^= 1;
    return ORDO_OK;
}

/* The words of one head by the definition. */
static bool needed(const ordo_cuda_bits *bits, uint32_t i, uint32_t j)
{
    const int64_t row = ORDO_KEEP_ROWS * (int64_t)i, column = ORDO_KEEP_COLS * (int64_t)j;
    return bits->table || !bits->visible_only ||
           (column + ORDO_KEEP_COLS - 1 >= row + bits->low &&
            column <= row + ORDO_KEEP_ROWS - 1 + bits->high);
}

static void head_bits(const ordo_cuda_bits *bits, const ordo_keep *keep, uint32_t bh, uint32_t down,
                      uint32_t across, uint32_t *words)
{
    for (uint32_t i = 0; i < down; i++)
        for (uint32_t j = 0; j < across; j++, words += ORDO_KEEP_WORDS)
            for (uint32_t w = 0; w < ORDO_KEEP_WORDS && needed(bits, i, j); w++)
                words[w] = ordo_keep_word(keep, bh, bits->row + 16 * i + w % 2 * 8 + w / 8,
                                          bits->block + j, w / 2 % 4);
}

/* Sequences from a table, which is made first. */
static void ragged_bits(const ordo_cuda_bits *bits, const ordo_keep *keep)
{
    ordo_cuda_pass pass = { .layout = bits->layout, .ragged = bits->ragged };
    pass.run.kv_heads = bits->heads, pass.run.group_heads = 1;
    pass.run.band.q_len = bits->q_len, pass.run.band.kv_len = bits->kv_len;
    pass.q_rows = bits->q_rows, pass.kv_rows = bits->kv_rows;
    pass.batch.sequences = bits->sequences;
    host_table(&pass, bits->table);
    for (int32_t b = 0; b < bits->sequences; b++) {
        const ordo_cuda_sequence *s = &bits->table[b];
        const uint32_t across = (uint32_t)s->keep_across;
        for (int32_t head = 0; head < bits->heads && s->keep_head > 0; head++)
            head_bits(bits, keep, s->id * bits->bh_step + bits->head0 + (uint32_t)head,
                      (uint32_t)s->keep_head / across, across,
                      bits->words + (s->keep + head * s->keep_head) * ORDO_KEEP_WORDS);
    }
}

/* Keep bits by the definition; what is behind pointers is read when launched. */
static ordo_status dropout(const ordo_cuda_bits *bits)
{
    ordo_keep keep = bits->keep;
    uint32_t *words = bits->words;
    fake_passes.dropout++;
    launched(FAKE_BITS, bits->stream, bits->words);
    if (getenv("FAKE_BLIND"))
        return ORDO_OK;
    keep.seed = bits->seed_ptr ? *bits->seed_ptr : keep.seed;
    keep.offset = bits->offset_ptr ? *bits->offset_ptr : keep.offset;
    if (bits->table) {
        ragged_bits(bits, &keep);
        return ORDO_OK;
    }
    for (uint32_t head = 0; head < (uint32_t)(bits->sequences * bits->heads); head++) {
        const uint32_t heads = (uint32_t)bits->heads;
        head_bits(bits, &keep, bits->bh + head / heads * bits->bh_step + head % heads,
                  (uint32_t)bits->down, (uint32_t)bits->across, words);
        words += bits->down * bits->across * ORDO_KEEP_WORDS;
    }
    return ORDO_OK;
}

static ordo_status combine(const ordo_cuda_combine *combine)
{
    fake_passes.combine++;
    fake_passes.last_combine = *combine;
    return ORDO_OK;
}

static ordo_status pack_seen(const ordo_cuda_seen *seen)
{
    fake_passes.pack_seen++;
    fake_passes.last_seen = *seen;
    return ORDO_OK;
}

static ordo_status digest(const ordo_bytes *spans, int64_t count, uint64_t *pieces,
                          uint64_t *digests, void *stream)
{
    (void)stream;
    fake_passes.digest++;
    for (int64_t x = 0; x < count; x++) {
        const uint64_t many = ordo_pieces(spans[x].bytes);
        for (uint64_t at = 0; at < many; at++)
            pieces[at] = ordo_xxh64((const char *)spans[x].data + at * ORDO_PIECE_BYTES,
                                    ordo_piece_bytes(spans[x].bytes, at));
        digests[x] = ordo_xxh64(pieces, 8 * many);
        pieces += many;
    }
    return ORDO_OK;
}

static ordo_status sum(const ordo_sum *sum, void *stream)
{
    fake_passes.sum++;
    fake_passes.last_sum = *sum;
    fake_passes.last_sum_stream = stream;
    return ORDO_OK;
}

static float number_at(const void *data, ordo_dtype dtype, int64_t at)
{
    return dtype == ORDO_F32    ? ((const float *)data)[at]
           : dtype == ORDO_BF16 ? ordo_f32_from_bf16(((const uint16_t *)data)[at])
                                : ordo_f32_from_f16(((const uint16_t *)data)[at]);
}

/* One rounded chain per element, whatever the sections; nothing of e4m3. */
static ordo_status gemm(const ordo_cuda_gemm *g)
{
    fake_passes.gemm++;
    fake_passes.last_gemm = *g;
    if (g->in == ORDO_E4M3)
        return ORDO_OK;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            const int64_t at = i * g->c_stride + j;
            float sum = 0;
            for (int64_t x = 0; x < g->k; x++)
                sum += number_at(g->a, g->in,
                                 g->a_rows_are_k ? x * g->a_stride + i : i * g->a_stride + x) *
                       number_at(g->b, g->in,
                                 g->b_rows_are_k ? x * g->b_stride + j : j * g->b_stride + x);
            if (g->bias)
                sum += number_at(g->bias, g->out, j);
            if (g->add)
                sum += ((const float *)g->c)[at];
            if (g->out == ORDO_F32)
                ((float *)g->c)[at] = sum;
            else
                ((uint16_t *)g->c)[at] =
                    g->out == ORDO_BF16 ? ordo_bf16_from_f32(sum) : ordo_f16_from_f32(sum);
        }
    return ORDO_OK;
}

/* ---- memory, streams, events ---- */

static ordo_status take(void **memory, size_t bytes)
{
    *memory = aligned_alloc(256, (bytes + 256) / 256 * 256);
    return *memory ? ORDO_OK : fail(ORDO_ERR_MEMORY, "out of memory");
}

static ordo_status give(void *memory)
{
    free(memory);
    return ORDO_OK;
}

static ordo_status copy(void *to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    memcpy(to, from, bytes);
    return ORDO_OK;
}

static ordo_status fill(void *memory, int byte, size_t bytes, void *stream)
{
    const size_t flush = 1 << 20; /* what is larger is filled to keep caches busy */
    const size_t most = getenv("FAKE_ATTENTION") ? bytes : flush;
    (void)stream;
    memset(memory, byte, bytes < most ? bytes : most);
    return ORDO_OK;
}

static ordo_status fill_words(void *memory, uint32_t word, size_t count, void *stream)
{
    (void)stream;
    for (size_t x = 0; x < count; x++)
        ((uint32_t *)memory)[x] = word;
    return ORDO_OK;
}

static ordo_status equal(const void *a, const void *b, size_t bytes, void *stream, bool *same)
{
    (void)stream;
    *same = memcmp(a, b, bytes) == 0;
    return ORDO_OK;
}

static ordo_status make(void **thing) /* a stream or an event */
{
    return take(thing, sizeof(struct timespec));
}

static ordo_status synchronise(void *stream)
{
    (void)stream;
    return ORDO_OK;
}

static ordo_status await(void *stream, void *event)
{
    launched(FAKE_WAIT, stream, event);
    return ORDO_OK;
}

static ordo_status record(void *event, void *stream)
{
    launched(FAKE_RECORD, stream, event);
    clock_gettime(CLOCK_MONOTONIC, event);
    return ORDO_OK;
}

static ordo_status elapsed(void *from, void *to, double *seconds)
{
    const struct timespec *a = from, *b = to;
    *seconds = (double)(b->tv_sec - a->tv_sec) + 1e-9 * (double)(b->tv_nsec - a->tv_nsec);
    return ORDO_OK;
}

const ordo_cuda_module *ordo_cuda_module_table(void)
{
    static const ordo_cuda_module table = {
        .abi = ORDO_CUDA_MODULE_ABI,
        .why = why,
        .size = sizeof table,
        .pass_size = sizeof(ordo_cuda_pass),
        .pages_size = sizeof(ordo_cuda_pages),
        .bits_size = sizeof(ordo_cuda_bits),
        .combine_size = sizeof(ordo_cuda_combine),
        .gemm_size = sizeof(ordo_cuda_gemm),
        .build = "fake",
        .device_count = device_count,
        .device_query = device_query,
        .device_check = device_check,
        .forward = forward,
        .backward = backward,
        .device_select = device_select,
        .alloc = take,
        .free = give,
        .copy = copy,
        .fill = fill,
        .equal = equal,
        .stream_create = make,
        .stream_destroy = give,
        .synchronise = synchronise,
        .event_create = make,
        .event_destroy = give,
        .event_record = record,
        .event_elapsed = elapsed,
        .dropout = dropout,
        .combine = combine,
        .fill_words = fill_words,
        .digest = digest,
        .sum = sum,
        .gemm = gemm,
        .event_wait = await,
        .pack_seen = pack_seen,
    };
    return &table;
}
