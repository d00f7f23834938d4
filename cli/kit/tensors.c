/* tensors.c: the tensors of one call on the host: seeded inputs, outputs and their digests. */
#include "kit/tensors.h"

#include "kit/digest.h"
#include "kit/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- where things lie ---- */

typedef struct row_span {
    int64_t first, valid, held; /* first row in memory, rows that count, rows in memory */
} row_span;

static row_span span_of(const ordo_problem *p, const int32_t *numbers, int64_t length,
                        int64_t sequence)
{
    if (p->layout == ORDO_PACKED) {
        const int64_t rows = numbers[sequence + 1] - numbers[sequence];
        return (row_span) { numbers[sequence], rows, rows };
    }
    const int64_t valid = p->layout == ORDO_PADDED ? numbers[sequence] : length;
    return (row_span) { sequence * length, valid, length };
}

static int64_t rows_in_memory(const ordo_problem *p, int64_t length, int64_t total)
{
    return p->layout == ORDO_PACKED ? total : p->batch * length;
}

static size_t width_of(const ordo_problem *p)
{
    return p->dtype == ORDO_F32 ? 4 : 2;
}

/* ---- inputs ---- */

typedef struct input_shape {
    const int32_t *numbers;
    int64_t length, heads, dim;
} input_shape;

static void fill(const cli_tensors *t, void *data, const input_shape *s, uint64_t key)
{
    const ordo_problem *p = &t->problem;
    for (int64_t b = 0; b < p->batch; b++) {
        const row_span at = span_of(p, s->numbers, s->length, b);
        const uint64_t of_sequence = cli_random_mix(key + (uint64_t)(t->ids ? t->ids[b] : b));
        for (int64_t row = 0; row < at.held; row++)
            for (int64_t h = 0; h < s->heads; h++) {
                const uint64_t place =
                    cli_random_mix(cli_random_mix(of_sequence + (uint64_t)row) + (uint64_t)h);
                const int64_t first = ((at.first + row) * s->heads + h) * s->dim;
                for (int64_t x = 0; x < s->dim; x++)
                    cli_random_put(data, p->dtype, first + x, place + (uint64_t)x);
            }
    }
}

/* Sequences and heads of the bias. */
static int64_t bias_sequences(const ordo_problem *p)
{
    return p->bias.per_sequence ? p->batch : 1;
}
static int64_t bias_heads(const ordo_problem *p)
{
    return p->bias.per_head ? p->heads : 1;
}

static const void *bias_row(const cli_tensors *t, const void *data, int64_t b, int64_t h,
                            int64_t row)
{
    const ordo_problem *p = &t->problem;
    const int64_t line = (b * bias_heads(p) + h) * p->q_len + row;
    return (const float *)data + line * p->kv_len;
}

/* One element of 16 is hidden. */
static void fill_bias(const cli_tensors *t, uint64_t key)
{
    const ordo_problem *p = &t->problem;
    for (int64_t b = 0; p->bias.on && b < bias_sequences(p); b++)
        for (int64_t h = 0; h < bias_heads(p); h++)
            for (int64_t row = 0; row < p->q_len; row++) {
                const int64_t id = p->bias.per_sequence && t->ids ? t->ids[b] : b;
                const uint64_t of_head = cli_random_mix(key + (uint64_t)id) + (uint64_t)h;
                const uint64_t place = cli_random_mix(cli_random_mix(of_head) + (uint64_t)row);
                float *to = (float *)bias_row(t, t->bias, b, h, row);
                for (int64_t x = 0; x < p->kv_len; x++)
                    to[x] = cli_random_mix(place + (uint64_t)x) % 16 == 0
                                ? -INFINITY
                                : (float)cli_random_normal(place + (uint64_t)x);
            }
}

/* ---- memory ---- */

static void *take(size_t bytes)
{
    return aligned_alloc(256, (bytes + 256) / 256 * 256); /* never 0 bytes */
}

size_t cli_tensors_output_bytes(const cli_tensors *t, cli_output output)
{
    const ordo_problem *p = &t->problem;
    const size_t rows = (size_t)rows_in_memory(p, p->q_len, p->total_q) * (size_t)p->heads;
    const size_t columns = (size_t)rows_in_memory(p, p->kv_len, p->total_kv) * (size_t)p->kv_heads;
    switch (output) {
    case CLI_O: return rows * (size_t)p->v_head_dim * width_of(p);
    case CLI_LSE: return rows * sizeof(float);
    case CLI_DQ: return rows * (size_t)p->head_dim * width_of(p);
    case CLI_DK: return columns * (size_t)p->head_dim * width_of(p);
    case CLI_DV: return columns * (size_t)p->v_head_dim * width_of(p);
    case CLI_DSINK: return t->sinks ? (size_t)(p->batch * p->heads) * sizeof(float) : 0;
    case CLI_DBIAS:
        return p->bias.on ? (size_t)(bias_sequences(p) * bias_heads(p) * p->q_len * p->kv_len) *
                                sizeof(float)
                          : 0;
    case CLI_OUTPUTS: break;
    }
    return 0;
}

/* The usual slopes: powers of two, falling geometrically from head to head. */
static void fill_slopes(const cli_tensors *t)
{
    for (int64_t h = 0; h < t->problem.heads; h++)
        t->slopes[h] = (float)exp2(-8.0 * (double)(h + 1) / (double)t->problem.heads);
}

bool cli_tensors_make(cli_tensors *t, const ordo_plan *plan, const int32_t *q_numbers,
                      const int32_t *kv_numbers, const int64_t *ids, uint64_t seed, bool sinks)
{
    *t = (cli_tensors) { .problem = ORDO_PROBLEM_INIT,
                         .q_numbers = q_numbers,
                         .kv_numbers = kv_numbers,
                         .ids = ids,
                         .sinks = sinks };
    if (ordo_plan_problem(plan, &t->problem) != ORDO_OK)
        return false;
    const ordo_problem *p = &t->problem;
    const input_shape q = { q_numbers, p->q_len, p->heads, p->head_dim };
    const input_shape k = { kv_numbers, p->kv_len, p->kv_heads, p->head_dim };
    const input_shape v = { kv_numbers, p->kv_len, p->kv_heads, p->v_head_dim };
    const input_shape o = { q_numbers, p->q_len, p->heads, p->v_head_dim };
    t->q = take(cli_tensors_output_bytes(t, CLI_DQ));
    t->k = take(cli_tensors_output_bytes(t, CLI_DK));
    t->v = take(cli_tensors_output_bytes(t, CLI_DV));
    t->dout = take(cli_tensors_output_bytes(t, CLI_O));
    t->slopes = take((size_t)p->heads * sizeof(float));
    t->sink = take((size_t)p->heads * sizeof(float));
    t->bias = take(cli_tensors_output_bytes(t, CLI_DBIAS));
    bool good = t->q && t->k && t->v && t->dout && t->slopes && t->sink && t->bias;
    for (int i = 0; i < CLI_OUTPUTS; i++)
        good = (t->out[i] = take(cli_tensors_output_bytes(t, (cli_output)i))) != NULL && good;
    if (!good) {
        cli_tensors_free(t);
        return false;
    }
    fill(t, t->q, &q, cli_random_mix(seed ^ cli_random_mix(1)));
    fill(t, t->k, &k, cli_random_mix(seed ^ cli_random_mix(2)));
    fill(t, t->v, &v, cli_random_mix(seed ^ cli_random_mix(3)));
    fill(t, t->dout, &o, cli_random_mix(seed ^ cli_random_mix(4)));
    fill_bias(t, cli_random_mix(seed ^ cli_random_mix(6)));
    fill_slopes(t);
    for (int64_t h = 0; h < p->heads; h++)
        t->sink[h] =
            (float)cli_random_normal(cli_random_mix(seed ^ cli_random_mix(5)) + (uint64_t)h);
    return true;
}

void cli_tensors_free(cli_tensors *t)
{
    void *all[] = { t->q, t->k, t->v, t->dout, t->slopes, t->sink, t->bias };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    for (int i = 0; i < CLI_OUTPUTS; i++)
        free(t->out[i]);
    *t = (cli_tensors) { 0 };
}

ordo_call cli_tensors_call(const cli_tensors *t)
{
    ordo_call call = ORDO_CALL_INIT;
    call.q.data = t->q;
    call.k.data = t->k;
    call.v.data = t->v;
    call.dout.data = t->dout;
    call.o.data = t->out[CLI_O];
    call.lse = t->out[CLI_LSE];
    call.dq.data = t->out[CLI_DQ];
    call.dk.data = t->out[CLI_DK];
    call.dv.data = t->out[CLI_DV];
    if (t->problem.layout == ORDO_PACKED) {
        call.cu_q = t->q_numbers;
        call.cu_kv = t->kv_numbers;
    } else if (t->problem.layout == ORDO_PADDED) {
        call.q_lens = t->q_numbers;
        call.kv_lens = t->kv_numbers;
    }
    if (t->mask)
        *(t->problem.seen.on ? &call.seen : &call.block_mask) = t->mask;
    call.sequence_ids = t->ids;
    call.slopes = t->problem.alibi ? t->slopes : NULL;
    call.bias.data = t->problem.bias.on ? t->bias : NULL;
    call.dbias = t->problem.bias.on ? t->out[CLI_DBIAS] : NULL;
    call.sink = t->sinks ? t->sink : NULL;
    call.dsink_parts = t->sinks ? t->out[CLI_DSINK] : NULL;
    return call;
}

void cli_tensors_poison(cli_tensors *t)
{
    for (int i = 0; i < CLI_OUTPUTS; i++)
        memset(t->out[i], 0xff, cli_tensors_output_bytes(t, (cli_output)i));
}

/* ---- elements and digests ---- */

cli_extent cli_tensors_extent(const cli_tensors *t, cli_output output, int64_t sequence)
{
    const ordo_problem *p = &t->problem;
    const bool of_keys = output == CLI_DK || output == CLI_DV;
    if (output == CLI_DSINK)
        return (cli_extent) { t->sinks ? 1 : 0, p->heads, 1, sizeof(float), sequence };
    if (output == CLI_DBIAS) {
        const bool here = p->bias.on && (p->bias.per_sequence || sequence == 0);
        const bool own = p->bias.per_sequence;
        return (cli_extent) {
            .rows = !here ? 0
                    : own ? span_of(p, t->q_numbers, p->q_len, sequence).valid
                          : p->q_len,
            .heads = bias_heads(p),
            .columns = own ? span_of(p, t->kv_numbers, p->kv_len, sequence).valid : p->kv_len,
            .width = sizeof(float),
            .first = sequence,
        };
    }
    const row_span at = of_keys ? span_of(p, t->kv_numbers, p->kv_len, sequence)
                                : span_of(p, t->q_numbers, p->q_len, sequence);
    return (cli_extent) {
        .rows = at.valid,
        .heads = of_keys ? p->kv_heads : p->heads,
        .columns = output == CLI_LSE                     ? 1
                   : output == CLI_O || output == CLI_DV ? p->v_head_dim
                                                         : p->head_dim,
        .width = output == CLI_LSE ? sizeof(float) : width_of(p),
        .first = at.first,
    };
}

const void *cli_tensors_at(const cli_tensors *t, cli_output output, const cli_extent *e,
                           int64_t row, int64_t head)
{
    const ordo_problem *p = &t->problem;
    if (output == CLI_DBIAS)
        return bias_row(t, t->out[output], e->first, head, row);
    int64_t index = ((e->first + row) * e->heads + head) * e->columns;
    if (output == CLI_LSE) /* (batch, heads, rows), packed (heads, rows) */
        index = p->layout == ORDO_PACKED ? head * p->total_q + e->first + row
                                         : e->first * e->heads + head * p->q_len + row;
    return (const char *)t->out[output] + (size_t)index * e->width;
}

/* Little endian whatever the machine is. */
static void add_elements(cli_digest *digest, const unsigned char *data, size_t count, size_t width)
{
    const uint16_t probe = 1;
    if (*(const unsigned char *)&probe == 1) {
        cli_digest_add(digest, data, count * width);
        return;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t byte = width; byte-- > 0;)
            cli_digest_add(digest, data + i * width + byte, 1);
}

static void digest_sequence(const cli_tensors *t, cli_output output, int64_t b, cli_digest *digest)
{
    const cli_extent e = cli_tensors_extent(t, output, b);
    for (int64_t h = 0; h < e.heads; h++)
        for (int64_t row = 0; row < e.rows; row++)
            add_elements(digest, cli_tensors_at(t, output, &e, row, h), (size_t)e.columns, e.width);
}

uint64_t cli_tensors_digest(const cli_tensors *t, cli_output output, int64_t sequence)
{
    cli_digest digest = cli_digest_start();
    if (cli_tensors_output_bytes(t, output) == 0 ||
        (output == CLI_DBIAS && sequence >= 0 && !t->problem.bias.per_sequence))
        return 0;
    const int64_t first = sequence < 0 ? 0 : sequence,
                  end = sequence < 0 ? t->problem.batch : sequence + 1;
    for (int64_t b = first; b < end; b++)
        digest_sequence(t, output, b, &digest);
    return cli_digest_value(&digest);
}

const char *cli_output_name(cli_output output)
{
    static const char *const names[CLI_OUTPUTS] = {
        "o", "lse", "dq", "dk", "dv", "dsink", "dbias"
    };
    return names[output];
}
