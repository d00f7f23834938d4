/* block_module.c: libordo_lab_cuda.so without a GPU: device memory is the host's, streams do their
 * work at once. Stands beside tests/api/fake_module.c, which computes attention so. */
#include "api/fake_attention.h"
#include "base/keep.h"
#include "block/compare.h"
#include "block/cuda/module.h"
#include "block/elements.h"
#include "block/functions.h"
#include "block/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct block_cuda {
    block_cuda_options options;
    bool ran[BLOCK_PRODUCTS];
};

static ordo_status open_fake(block_cuda **c, const block_cuda_options *options, char *why, size_t n)
{
    (void)why, (void)n;
    *c = calloc(1, sizeof **c);
    (*c)->options = *options;
    return ORDO_OK;
}

static void close_fake(block_cuda *c)
{
    free(c);
}

static void forget_fake(block_cuda *c)
{
    (void)c;
}

static float at(const void *data, int64_t i)
{
    return block_load(data, ORDO_BF16, i);
}

static void put(void *data, int64_t i, float value)
{
    block_store(data, ORDO_BF16, i, value);
}

static ordo_status multiply(block_cuda *c, const block_product *p, void *stream, char *why,
                            size_t n)
{
    (void)stream;
    if (p->id < 0 || p->id >= BLOCK_PRODUCTS) {
        snprintf(why, n, "product %d: expected 0 to %d", p->id, BLOCK_PRODUCTS - 1);
        return ORDO_ERR_INTERNAL;
    }
    c->ran[p->id] = true;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float sum = 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += at(p->a, p->a_transposed ? k * p->m + i : i * p->k + k) *
                       at(p->b, p->b_transposed ? j * p->k + k : k * p->n + j);
            put(p->c, i * p->n + j, sum);
        }
    return ORDO_OK;
}

static void describe(const block_cuda *c, int id, char *text, size_t n)
{
    snprintf(text, n, "%s", c->ran[id] ? "algorithm 0" : "");
}

static ordo_status fill(void *to, ordo_dtype dtype, int64_t count, uint64_t seed, uint32_t tensor,
                        float factor, float centre, void *stream, char *why, size_t n)
{
    (void)stream, (void)why, (void)n;
    for (int64_t i = 0; i < count; i++)
        block_store(to, dtype, i,
                    centre + factor * block_random(seed, tensor, (uint64_t)i / 4).at[i % 4]);
    return ORDO_OK;
}

static ordo_status norm(const block_norm *x, void *stream, char *why, size_t n)
{
    (void)stream, (void)why, (void)n;
    for (int64_t row = 0; row < x->rows; row++) {
        const int64_t first = row * x->columns;
        float squares = 0;
        for (int64_t j = 0; j < x->columns; j++)
            squares += at(x->x, first + j) * at(x->x, first + j);
        const float factor = 1 / sqrtf(squares / (float)x->columns + ORDO_BLOCK_NORM_EPSILON);
        x->factor[row] = factor;
        for (int64_t j = 0; j < x->columns; j++)
            put(x->y, first + j, at(x->x, first + j) * factor * x->gain[j]);
    }
    return ORDO_OK;
}

static ordo_status norm_gradient(block_cuda *c, const block_norm_gradient *x, void *stream,
                                 char *why, size_t n)
{
    (void)c, (void)stream, (void)why, (void)n;
    for (int64_t j = 0; j < x->columns; j++) {
        x->dgain[j] = 0;
        for (int64_t row = 0; row < x->rows; row++)
            x->dgain[j] +=
                at(x->dy, row * x->columns + j) * (at(x->x, row * x->columns + j) * x->factor[row]);
    }
    for (int64_t row = 0; row < x->rows; row++) {
        const int64_t first = row * x->columns;
        const float f = x->factor[row];
        float sum = 0;
        for (int64_t j = 0; j < x->columns; j++)
            sum += x->gain[j] * at(x->dy, first + j) * at(x->x, first + j);
        for (int64_t j = 0; j < x->columns; j++)
            put(x->dx, first + j,
                f * x->gain[j] * at(x->dy, first + j) -
                    at(x->x, first + j) * (f * f * f / (float)x->columns * sum) +
                    at(x->add, first + j));
    }
    return ORDO_OK;
}

static ordo_status activate(const block_activation *a, void *stream, char *why, size_t n)
{
    (void)stream, (void)why, (void)n;
    float slope;
    for (int64_t i = 0; i < a->rows * a->width; i++) {
        const int64_t first = a->gated ? i + i / a->width * a->width : i;
        put(a->g, i,
            a->gated ? block_silu(at(a->u, first), &slope) * at(a->u, first + a->width)
                     : block_gelu(at(a->u, first), &slope));
    }
    return ORDO_OK;
}

static ordo_status activate_gradient(const block_activation *a, void *stream, char *why, size_t n)
{
    (void)stream, (void)why, (void)n;
    for (int64_t i = 0; i < a->rows * a->width; i++) {
        const int64_t first = a->gated ? i + i / a->width * a->width : i;
        const float u = at(a->u, first), d = at(a->dg, i);
        float slope;
        const float value = a->gated ? block_silu(u, &slope) : block_gelu(u, &slope);
        if (a->gated) {
            put(a->du, first + a->width, d * value);
            slope *= at(a->u, first + a->width);
        }
        put(a->du, first, d * slope);
    }
    return ORDO_OK;
}

static ordo_status add(void *sum, const void *a, const void *b, int64_t count, void *stream,
                       char *why, size_t n)
{
    (void)stream, (void)why, (void)n;
    for (int64_t i = 0; i < count; i++)
        put(sum, i, at(a, i) + at(b, i));
    return ORDO_OK;
}

static uint32_t sliced_word(const block_keep *b, uint64_t w)
{
    const ordo_keep keep = { b->seed, b->offset, b->rounds, 8, b->threshold, ORDO_KEYING_ORDO };
    const uint64_t down = (uint64_t)(b->seq + 15) / 16, across = (uint64_t)(b->seq + 127) / 128;
    const uint64_t block = w / 64, place = block % (down * across), lane = w % 64;
    return ordo_keep_word(&keep, (uint32_t)(block / (down * across)),
                          (uint32_t)(place / across * 16 + lane / 2 / 4 + lane % 2 * 8),
                          (uint32_t)(place % across), (uint32_t)(lane / 2 % 4));
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

enum { PROCESSORS = 132 };

static ordo_status keep(const block_keep *b, block_keep_part part, const block_stamps *stamps,
                        void *stream, char *why, size_t n)
{
    (void)stream, (void)why, (void)n;
    const uint64_t warps = PROCESSORS * (part == BLOCK_KEEP_BESIDE ? 4u : 64u);
    for (uint64_t warp = 0; warp < warps && part != BLOCK_KEEP_REST; warp++) {
        const uint64_t begin = now();
        for (uint64_t w = warp; w < b->count; w += warps)
            b->words[w] = b->generator == ORDO_GENERATOR_COMPARE
                              ? block_compare_word(b->seed, b->offset, b->rounds, b->threshold, w)
                              : sliced_word(b, w);
        if (stamps)
            stamps->warps[warp] =
                (block_stamp) { .begin = begin, .end = now(), .sm = (uint32_t)warp % PROCESSORS };
    }
    return ORDO_OK;
}

/* Attention reads compared bits from memory, and makes others by itself. */
static ordo_status attend(const ordo_cuda_pass *pass, ordo_generator generator, bool backward,
                          char *why, size_t n)
{
    const ordo_keep *maker = &pass->keep;
    const int64_t heads = (int64_t)pass->run.sequences * pass->run.kv_heads * pass->run.group_heads;
    const int64_t count = heads * ordo_keep_blocks(pass->q_rows, pass->kv_rows) * ORDO_KEEP_WORDS;
    uint32_t *words = calloc((size_t)count, sizeof *words);
    ordo_cuda_pass own = *pass;
    (void)why, (void)n;
    for (int64_t w = 0; w < count; w++)
        words[w] = block_compare_word(maker->seed, maker->offset, maker->rounds, maker->threshold,
                                      (uint64_t)w);
    if (generator == ORDO_GENERATOR_COMPARE)
        own.keep_bits = words;
    if (backward)
        fake_attention_backward(&own);
    else
        fake_attention_forward(&own, NULL);
    free(words);
    return ORDO_OK;
}

static ordo_status multiply_beside(const block_product *p, const block_stamps *stamps, void *stream,
                                   char *why, size_t n)
{
    const uint64_t begin = now();
    block_cuda none = { .options = { 0 } };
    multiply(&none, p, stream, why, n);
    for (uint32_t i = 0; stamps && i < PROCESSORS; i++)
        stamps->blocks[i] = (block_stamp) { .begin = begin, .end = now(), .sm = i };
    return ORDO_OK;
}

static ordo_status stamp(uint64_t *nanoseconds, void *stream, char *why, size_t n)
{
    (void)stream, (void)why, (void)n;
    *nanoseconds = now();
    return ORDO_OK;
}

static ordo_status wait_event(void *stream, void *event, char *why, size_t n)
{
    (void)stream, (void)event, (void)why, (void)n;
    return ORDO_OK;
}

const block_cuda_module *ordo_block_cuda_table(void)
{
    static const block_cuda_module table = { ORDO_BLOCK_CUDA_ABI,
                                             sizeof(block_cuda_module),
                                             open_fake,
                                             close_fake,
                                             forget_fake,
                                             multiply,
                                             describe,
                                             fill,
                                             norm,
                                             norm_gradient,
                                             activate,
                                             activate_gradient,
                                             add,
                                             keep,
                                             attend,
                                             multiply_beside,
                                             stamp,
                                             wait_event };
    return &table;
}
