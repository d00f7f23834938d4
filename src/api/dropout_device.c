/* dropout_device.c: keep bits made by a device. */
#include "api/cuda_module.h"
#include "api/cuda_pass.h"
#include "api/dropout.h"
#include "base/environment.h"
#include "base/status.h"

#include <inttypes.h>

enum { COPY_BYTES = 16 }; /* what the passes copy bits by */

/* Sequences from `first` on that one launch makes: of one shape, their ids counting on. */
static int64_t count_alike(const ordo_dropout_view *m, int64_t first)
{
    const ordo_dropout_sequence a = ordo_dropout_sequence_at(m, first);
    int64_t count = 1;
    for (; first + count < m->problem.batch; count++) {
        const ordo_dropout_sequence b = ordo_dropout_sequence_at(m, first + count);
        const uint32_t step = (uint32_t)(count * m->problem.shard.heads_total);
        if (b.rows != a.rows || b.cols != a.cols || b.bh != a.bh + step)
            break;
    }
    return count;
}

static ordo_cuda_bits launch_of(const ordo_dropout_view *m, int64_t first, int64_t count,
                                uint32_t *words, void *stream)
{
    const ordo_dropout_sequence s = ordo_dropout_sequence_at(m, first);
    const ordo_shard *shard = &m->problem.shard;
    return (ordo_cuda_bits) {
        .keep = m->keep,
        .seed_ptr = m->call.seed_ptr,
        .offset_ptr = m->call.offset_ptr,
        .bh = s.bh,
        .bh_step = (uint32_t)shard->heads_total,
        .sequences = (int32_t)count,
        .heads = (int32_t)m->problem.heads,
        .down = (int32_t)(s.across > 0 ? s.head_blocks / s.across : 0),
        .across = (int32_t)s.across,
        .visible_only = m->call.visible_only,
        .low = m->low,
        .high = m->high,
        .row = (uint32_t)shard->row0,
        .block = (uint32_t)(shard->col0 / ORDO_KEEP_COLS),
        .words = words,
        .stream = stream,
    };
}

/* Keep bits where only the device knows lengths or ids: it makes a table after the bits. */
static ordo_cuda_bits ragged_of(const ordo_dropout_view *m, uint32_t *words, void *stream)
{
    const ordo_problem *p = &m->problem;
    const ordo_shard *shard = &p->shard;
    const bool packed = p->layout == ORDO_PACKED;
    return (ordo_cuda_bits) {
        .keep = m->keep,
        .seed_ptr = m->call.seed_ptr,
        .offset_ptr = m->call.offset_ptr,
        .bh_step = (uint32_t)shard->heads_total,
        .sequences = (int32_t)p->batch,
        .heads = (int32_t)p->heads,
        .row = (uint32_t)shard->row0,
        .block = (uint32_t)(shard->col0 / ORDO_KEEP_COLS),
        .words = words,
        .stream = stream,
        .table = (ordo_cuda_sequence *)(words + m->blocks * ORDO_KEEP_WORDS),
        .layout = packed ? ORDO_PACKED : ORDO_PADDED,
        .ragged = { .cu_q = m->call.cu_q,
                    .cu_kv = m->call.cu_kv,
                    .ids = m->call.sequence_ids,
                    .batch0 = (uint32_t)shard->batch0,
                    .forward_rows = 1, /* tiles that nobody counts */
                    .backward_rows = 1,
                    .backward_keys = 1,
                    .left = -1,
                    .right = -1 },
        .q_len = (int32_t)p->q_len,
        .kv_len = (int32_t)p->kv_len,
        .q_rows = packed ? p->total_q : p->q_len,
        .kv_rows = packed ? p->total_kv : p->kv_len,
        .head0 = (uint32_t)shard->head0,
        .most = (int64_t)m->blocks,
    };
}

static ordo_status launch(const ordo_cuda_module *module, const ordo_cuda_bits *bits)
{
    return ordo_cuda_answer(module, module->dropout(bits));
}

ordo_status ordo_dropout_fill_device(const ordo_problem *problem, const ordo_dropout_call *call,
                                     uint32_t *words, size_t bytes, void *stream)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ordo_dropout_view m;
    const ordo_cuda_module *module = NULL;
    ORDO_TRY(ordo_dropout_open(problem, call, false, &m));
    if (m.blocks == 0)
        return ORDO_OK;
    if (m.blocks > INT32_MAX)
        return ordo_fail(ORDO_ERR_UNSUPPORTED,
                         "%" PRIu64 " blocks of keep bits: backend cuda expects at most 2^31 - 1",
                         m.blocks);
    ORDO_TRY(ordo_dropout_room(words, bytes, ordo_dropout_bytes(&m), COPY_BYTES));
    ORDO_TRY(ordo_cuda_ready());
    ORDO_TRY(ordo_cuda_module_get(&module, NULL));
    if (m.call.on_device && (m.call.cu_q || m.call.sequence_ids)) {
        const ordo_cuda_bits bits = ragged_of(&m, words, stream);
        return launch(module, &bits);
    }
    for (int64_t b = 0, count; b < m.problem.batch; b += count) {
        count = count_alike(&m, b);
        const ordo_cuda_bits bits = launch_of(&m, b, count, words, stream);
        if (bits.down > 0)
            ORDO_TRY(launch(module, &bits));
        words += count * bits.heads * bits.down * bits.across * ORDO_KEEP_WORDS;
    }
    return ORDO_OK;
}
