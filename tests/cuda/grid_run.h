/* grid_run.h: execute a grid_case on a backend of the host or on a CUDA device.
 *
 * A lab is one thread's memory for it: pieces that grow and are used again, in host memory or on
 * the device. Outputs lie in one piece with guards between them, are NaN before every pass, and
 * are compared where they lie. */
#ifndef TESTS_CUDA_GRID_RUN_H
#define TESTS_CUDA_GRID_RUN_H

#include "base/keep.h"
#include "grid_case.h"

enum { GRID_ALIGN = 256, GRID_NOT_WRITTEN = 0xff, GRID_LISTS = 5 };

/* Memory that grows. */
typedef struct grid_piece {
    unsigned char *at;
    size_t bytes;
} grid_piece;

typedef struct grid_lab {
    ordo_backend backend;
    bool cuda;             /* that one is */
    void *stream, *side;   /* CUDA streams */
    ordo_machine *machine; /* NULL: the host */
    grid_piece workspace, bits, copy, sums;
} grid_lab;

/* A case laid out for a backend. */
typedef struct grid_image {
    ordo_call call;
    grid_piece memory;
    size_t outputs, end;       /* outputs are here and end there */
    size_t at[GRID_TENSORS];   /* each tensor, from the beginning */
    size_t sink, dsink, parts; /* and what sinks have: one input, two outputs, */
    size_t bias, dbias;        /* and a bias */
    size_t lengths, ids, seed; /* and the other arrays */
    size_t lists[GRID_LISTS];  /* those of the mask of blocks or elements, */
    ordo_block_mask mask;      /* which points to them */
} grid_image;

/* ---- memory, wherever it is ---- */

/* A call that cannot fail unless the machine does: nothing more can be said after it. */
static inline void grid_must(ordo_status status, const char *what)
{
    if (status == ORDO_OK)
        return;
    printf("FAIL %s: %s\n", what, ordo_last_error());
    fflush(stdout);
    _Exit(1);
}

static inline void grid_reserve(const grid_lab *lab, grid_piece *piece, size_t bytes)
{
    if (piece->bytes >= bytes && piece->at)
        return;
    const size_t room = (bytes + bytes / 2 + GRID_ALIGN) / GRID_ALIGN * GRID_ALIGN;
    if (lab->cuda) {
        grid_must(ordo_device_free(piece->at), "ordo_device_free");
        grid_must(ordo_device_alloc((void **)&piece->at, room), "ordo_device_alloc");
    } else {
        free(piece->at);
        piece->at = aligned_alloc(GRID_ALIGN, room);
        if (!piece->at)
            abort();
    }
    piece->bytes = room;
}

static inline void grid_release(const grid_lab *lab, grid_piece *piece)
{
    if (lab->cuda)
        grid_must(ordo_device_free(piece->at), "ordo_device_free");
    else
        free(piece->at);
    *piece = (grid_piece) { 0 };
}

static inline void grid_move(const grid_lab *lab, void *to, const void *from, size_t bytes)
{
    if (lab->cuda)
        grid_must(ordo_device_copy(to, from, bytes, lab->stream), "ordo_device_copy");
    else if (bytes > 0)
        memcpy(to, from, bytes);
}

static inline void grid_set(const grid_lab *lab, void *memory, int byte, size_t bytes)
{
    if (lab->cuda)
        grid_must(ordo_device_fill(memory, byte, bytes, lab->stream), "ordo_device_fill");
    else
        memset(memory, byte, bytes);
}

static inline bool grid_equal(const grid_lab *lab, const void *a, const void *b, size_t bytes)
{
    bool equal = false;
    if (!lab->cuda)
        return memcmp(a, b, bytes) == 0;
    grid_must(ordo_device_equal(a, b, bytes, lab->stream, &equal), "ordo_device_equal");
    return equal;
}

/* ---- a case ---- */

static inline ordo_dropout_call grid_dropout_call(const grid_case *c)
{
    ordo_dropout_call call = ORDO_DROPOUT_CALL_INIT;
    call.seed = c->seed;
    call.offset = c->offset;
    call.threads = 1;
    if (c->problem.layout == ORDO_PACKED) {
        call.cu_q = c->cu_q;
        call.cu_kv = c->cu_kv;
    }
    if (c->ids_given)
        call.sequence_ids = c->ids;
    return call;
}

static inline size_t grid_take(size_t *used, size_t bytes)
{
    const size_t at = *used;
    *used = (at + bytes + 2 * GRID_ALIGN - 1) / GRID_ALIGN * GRID_ALIGN; /* a guard at least */
    return at;
}

/* One value per head, of as many sequences. */
static inline size_t grid_sink_bytes(const grid_case *c, int64_t sequences)
{
    return (size_t)(sequences * c->problem.heads) * sizeof(float);
}

static inline size_t grid_dbias_bytes(const grid_case *c)
{
    return (size_t)ordo_bias_count(&c->problem) * sizeof(float);
}

/* The arrays of a mask of blocks or elements, and how many numbers they have. */
static inline const int32_t *grid_list(const ordo_block_mask *mask, int list, size_t *count)
{
    const int64_t masks = mask->sequences * mask->heads;
    const int64_t counts[] = { masks * ((mask->q_len + ORDO_BLOCK - 1) / ORDO_BLOCK + 1),
                               mask->entries, masks * mask->q_len, masks * mask->q_len,
                               masks * ordo_keep_blocks(mask->q_len, mask->kv_len) *
                                   ORDO_KEEP_WORDS };
    const int32_t *const lists[] = { mask->start, mask->key, mask->first, mask->last,
                                     (const int32_t *)mask->bits };
    *count = lists[list] ? (size_t)counts[list] : 0;
    return lists[list];
}

/* Everything of a case but bits and workspace. */
static inline void grid_lay(grid_image *image, const grid_case *c)
{
    size_t used = 0;
    for (int t = 0; t < GRID_OUTPUTS; t++)
        image->at[t] = grid_take(&used, grid_bytes(c, t));
    image->lengths = grid_take(&used, 4 * (GRID_BATCH_MAX + 1) * sizeof(int32_t));
    image->ids = grid_take(&used, sizeof c->ids);
    image->seed = grid_take(&used, sizeof c->slopes + 2 * sizeof(uint64_t));
    image->sink = grid_take(&used, sizeof c->sink);
    image->bias =
        grid_take(&used, grid_bias_bytes(&c->bias, &c->problem, grid_bias_gap(c), c->bias.f32));
    for (int list = 0; list < GRID_LISTS && c->mask; list++) {
        size_t count = 0;
        (void)grid_list(c->mask, list, &count);
        image->lists[list] = grid_take(&used, count * sizeof(int32_t));
    }
    image->outputs = used;
    for (int t = GRID_OUTPUTS; t < GRID_TENSORS; t++)
        image->at[t] = grid_take(&used, grid_bytes(c, t));
    image->dsink = grid_take(&used, c->sinks ? grid_sink_bytes(c, 1) : 0);
    image->parts = grid_take(&used, c->sinks ? grid_sink_bytes(c, c->problem.batch) : 0);
    image->dbias = grid_take(&used, grid_dbias_bytes(c));
    image->end = used;
}

static inline void grid_upload_tensors(const grid_lab *lab, grid_image *image, const grid_case *c)
{
    unsigned char *at = image->memory.at;
    ordo_call *call = &image->call;
    for (int t = 0; t < GRID_OUTPUTS; t++)
        grid_move(lab, at + image->at[t], c->data[t], grid_bytes(c, t));
    call->q = grid_tensor(c, GRID_Q, at + image->at[GRID_Q]);
    call->k = grid_tensor(c, GRID_K, at + image->at[GRID_K]);
    call->v = grid_tensor(c, GRID_V, at + image->at[GRID_V]);
    call->dout = grid_tensor(c, GRID_DOUT, at + image->at[GRID_DOUT]);
    call->o = grid_tensor(c, GRID_O, at + image->at[GRID_O]);
    call->dq = grid_tensor(c, GRID_DQ, at + image->at[GRID_DQ]);
    call->dk = grid_tensor(c, GRID_DK, at + image->at[GRID_DK]);
    call->dv = grid_tensor(c, GRID_DV, at + image->at[GRID_DV]);
    call->lse = (float *)(void *)(at + image->at[GRID_LSE]);
    if (c->dlse)
        call->dlse = (const float *)(const void *)(at + image->at[GRID_DLSE]);
}

static inline void grid_upload_lengths(const grid_lab *lab, grid_image *image, const grid_case *c)
{
    const bool packed = c->problem.layout == ORDO_PACKED;
    int32_t *at = (void *)(image->memory.at + image->lengths);
    const size_t bytes = (GRID_BATCH_MAX + (packed ? 1 : 0)) * sizeof *at;
    if (c->problem.layout == ORDO_DENSE)
        return;
    grid_move(lab, at, packed ? c->cu_q : c->q_lens, bytes);
    grid_move(lab, at + GRID_BATCH_MAX + 1, packed ? c->cu_kv : c->kv_lens, bytes);
    *(packed ? &image->call.cu_q : &image->call.q_lens) = at;
    *(packed ? &image->call.cu_kv : &image->call.kv_lens) = at + GRID_BATCH_MAX + 1;
}

static inline void grid_upload_rest(const grid_lab *lab, grid_image *image, const grid_case *c)
{
    ordo_call *call = &image->call;
    if (c->ids_given) {
        call->sequence_ids = (void *)(image->memory.at + image->ids);
        grid_move(lab, image->memory.at + image->ids, c->ids, sizeof c->ids);
    }
    uint64_t *seed = (void *)(image->memory.at + image->seed);
    const uint64_t values[] = { c->seed, c->offset };
    call->seed = c->by_pointer ? 1 : c->seed; /* another one, that must not be used */
    call->offset = c->by_pointer ? 1 : c->offset;
    if (c->by_pointer) {
        grid_move(lab, seed, values, sizeof values);
        call->seed_ptr = seed;
        call->offset_ptr = seed + 1;
    }
    if (c->problem.alibi) {
        grid_move(lab, seed + 2, c->slopes, sizeof c->slopes);
        call->slopes = (const float *)(const void *)(seed + 2);
        call->slopes_batch_stride = c->slopes_each ? c->problem.heads : 0;
    }
    if (c->sinks) {
        unsigned char *at = image->memory.at;
        grid_move(lab, at + image->sink, c->sink, sizeof c->sink);
        call->sink = (const float *)(const void *)(at + image->sink);
        call->dsink = (float *)(void *)(at + image->dsink);
        call->dsink_parts = (float *)(void *)(at + image->parts);
    }
}

static inline void grid_upload_mask(const grid_lab *lab, grid_image *image, const grid_case *c)
{
    const int32_t *at[GRID_LISTS];
    if (!c->mask)
        return;
    image->mask = *c->mask;
    for (int list = 0; list < GRID_LISTS; list++) {
        size_t count = 0;
        const int32_t *const from = grid_list(c->mask, list, &count);
        at[list] = from ? (const void *)(image->memory.at + image->lists[list]) : NULL;
        if (count > 0)
            grid_move(lab, image->memory.at + image->lists[list], from, count * sizeof *from);
    }
    image->mask.start = at[0];
    image->mask.key = at[1];
    image->mask.first = at[2];
    image->mask.last = at[3];
    image->mask.bits = (const uint32_t *)at[4];
}

static inline void grid_upload_bias(const grid_lab *lab, grid_image *image, const grid_case *c)
{
    unsigned char *at = image->memory.at;
    if (!c->bias.on)
        return;
    const bool f32 = c->bias.f32;
    unsigned char *data = grid_bias_make(&c->bias, &c->problem, grid_bias_gap(c), f32);
    grid_move(lab, at + image->bias, data,
              grid_bias_bytes(&c->bias, &c->problem, grid_bias_gap(c), f32));
    free(data);
    image->call.bias = grid_bias_tensor(&c->problem, grid_bias_gap(c), at + image->bias);
    image->call.dbias = (float *)(void *)(at + image->dbias);
}

/* Bits made by a device, which alone knows seed, lengths and ids if the case says so. */
static inline ordo_status grid_make_bits_there(grid_lab *lab, const grid_image *image,
                                               const grid_case *c)
{
    ordo_dropout_info info;
    ordo_dropout_call call = grid_dropout_call(c);
    if (c->by_pointer) {
        call.on_device = true;
        call.seed_ptr = image->call.seed_ptr;
        call.offset_ptr = image->call.offset_ptr;
        call.cu_q = image->call.cu_q;
        call.cu_kv = image->call.cu_kv;
        call.sequence_ids = image->call.sequence_ids;
    }
    const ordo_status status = ordo_dropout_query(&c->problem, &call, &info);
    if (status != ORDO_OK)
        return status;
    grid_reserve(lab, &lab->bits, info.bytes + 16);
    return ordo_dropout_fill_device(&c->problem, &call, (void *)lab->bits.at, info.bytes,
                                    lab->stream);
}

static inline ordo_status grid_make_bits_here(grid_lab *lab, const grid_case *c)
{
    ordo_dropout_info info;
    const ordo_dropout_call call = grid_dropout_call(c);
    const ordo_status status = ordo_dropout_query(&c->problem, &call, &info);
    if (status != ORDO_OK)
        return status;
    grid_reserve(lab, &lab->bits, info.bytes + 16);
    return ordo_dropout_fill(&c->problem, &call, 0, info.blocks, (void *)lab->bits.at, info.bytes);
}

/* Bits for call.keep_bits: one piece for all images, so they are those of the last one loaded. */
static inline ordo_status grid_make_bits(grid_lab *lab, grid_image *image, const grid_case *c)
{
    const ordo_status status =
        lab->cuda ? grid_make_bits_there(lab, image, c) : grid_make_bits_here(lab, c);
    image->call.keep_bits = (const void *)lab->bits.at;
    return status;
}

/* Bring a case to where it will run. */
static inline ordo_status grid_load(grid_lab *lab, grid_image *image, const grid_case *c)
{
    grid_lay(image, c);
    grid_reserve(lab, &image->memory, image->end);
    image->call = (ordo_call)ORDO_CALL_INIT;
    image->call.stream = lab->stream;
    if (c->mask)
        *(c->blocks.seen ? &image->call.seen : &image->call.block_mask) = &image->mask;
    grid_upload_mask(lab, image, c);
    grid_upload_tensors(lab, image, c);
    grid_upload_lengths(lab, image, c);
    grid_upload_rest(lab, image, c);
    grid_upload_bias(lab, image, c);
    if (c->problem.dropout.p > 0 && c->bits_given)
        return grid_make_bits(lab, image, c);
    return ORDO_OK;
}

/* Forward and backward; outputs are NaN before, the workspace is full of `poison`. */
static inline ordo_status grid_run(grid_lab *lab, grid_image *image, const ordo_plan *plan,
                                   int poison, int threads)
{
    const size_t bytes = ordo_plan_workspace(plan);
    grid_reserve(lab, &lab->workspace, bytes + GRID_ALIGN);
    grid_set(lab, lab->workspace.at, poison, bytes);
    grid_set(lab, image->memory.at + image->outputs, GRID_NOT_WRITTEN, image->end - image->outputs);
    image->call.workspace = lab->workspace.at;
    image->call.workspace_bytes = bytes;
    image->call.threads = threads;
    ordo_status status = ordo_attention_forward(plan, &image->call);
    if (status == ORDO_OK)
        status = ordo_attention_backward(plan, &image->call);
    return status == ORDO_OK && lab->cuda ? ordo_device_synchronise(lab->stream) : status;
}

/* Whether nothing was written between the slices of an output. */
static inline bool grid_gaps_kept(const grid_case *c, int tensor)
{
    const int64_t row = grid_row_stride(c, tensor), head = grid_head_stride(c, tensor);
    const uint16_t *x = (const void *)c->data[tensor];
    if (grid_tensors[tensor].row || (c->head_gap == 0 && c->row_gap == 0))
        return true;
    for (int64_t r = 0; r < grid_rows(c, grid_tensors[tensor].keys); r++)
        for (int64_t d = 0; d < row; d++)
            if ((d % head >= grid_dim(c, tensor) || d >= grid_heads(c, tensor) * head) &&
                x[r * row + d] != 0xffff)
                return false;
    return true;
}

/* Bring the outputs back. False if a pass wrote between them. */
static inline bool grid_fetch(const grid_lab *lab, const grid_image *image, grid_case *c)
{
    const size_t bytes = image->end - image->outputs;
    unsigned char *all = malloc(bytes);
    bool clean = true;
    if (!all)
        abort();
    grid_move(lab, all, image->memory.at + image->outputs, bytes);
    for (int t = GRID_OUTPUTS; t < GRID_TENSORS; t++) {
        const size_t first = image->at[t] - image->outputs, last = first + grid_bytes(c, t);
        const size_t next =
            (t + 1 < GRID_TENSORS ? image->at[t + 1] : image->dsink) - image->outputs;
        memcpy(c->data[t], all + first, last - first);
        clean = clean && grid_gaps_kept(c, t);
        for (size_t x = last; x < next; x++)
            clean = clean && all[x] == GRID_NOT_WRITTEN;
    }
    const size_t dsink = image->dsink - image->outputs, parts = image->parts - image->outputs;
    const size_t one = c->sinks ? grid_sink_bytes(c, 1) : 0;
    const size_t each = c->sinks ? grid_sink_bytes(c, c->problem.batch) : 0;
    memcpy(c->dsink, all + dsink, one);
    const size_t dbias = image->dbias - image->outputs, elements = grid_dbias_bytes(c);
    memcpy(c->dsink_parts, all + parts, each);
    memcpy(c->dbias, all + dbias, elements);
    for (size_t x = dsink + one; x < bytes; x++)
        clean = clean && (all[x] == GRID_NOT_WRITTEN || (x >= parts && x < parts + each) ||
                          (x >= dbias && x < dbias + elements));
    free(all);
    return clean;
}

/* Keep the outputs as they are now, to compare others with. */
static inline void grid_keep_outputs(grid_lab *lab, const grid_image *image)
{
    const size_t bytes = image->end - image->outputs;
    grid_reserve(lab, &lab->copy, bytes);
    grid_move(lab, lab->copy.at, image->memory.at + image->outputs, bytes);
}

static inline bool grid_outputs_kept(const grid_lab *lab, const grid_image *image)
{
    return grid_equal(lab, lab->copy.at, image->memory.at + image->outputs,
                      image->end - image->outputs);
}

static inline ordo_status grid_plan(const grid_lab *lab, const grid_case *c, int64_t workers,
                                    ordo_issue issue, ordo_plan **plan)
{
    ordo_plan_options options = ORDO_PLAN_OPTIONS_INIT;
    options.backend = lab->backend;
    options.workers = workers;
    /* Fewer workers have less workspace, too: panels of one tile, of a few, of all. */
    options.workspace_limit = workers == 1 ? 1 : workers == 78 ? 4 << 20 : 0;
    options.issue = issue;
    options.order = c->order;
    options.group = c->group;
    return ordo_plan_create(plan, &c->problem, lab->machine, &options);
}

#endif
