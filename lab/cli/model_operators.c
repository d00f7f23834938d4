/* model_operators.c: reads a list of kernels from JSON.
 *
 *   {"kernels": [
 *     {"name": "qkv", "kind": "gemm", "m": 8192, "n": 6144, "k": 4096},
 *     {"name": "bits", "kind": "rng", "heads": 32, "seq": 8192},
 *     {"name": "attention", "kind": "attention", "heads": 32, "seq": 8192, "after": ["bits"]}]}
 */
#include "cli/model_operators.h"

#include "kit/json_read.h"
#include "kit/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

/* A kernel as the file states it. */
typedef struct stated {
    char name[CLI_OPERATOR_NAME], kind[CLI_OPERATOR_NAME], precision[16], generator[16];
    double m, n, k, batch, heads, kv_heads, seq, kv_seq, head_dim, rounds, bits, elements;
    double rows, width, parameters, read_bytes, write_bytes, bytes, ranks, seconds, stream;
    double tensor, memory, slots, link;
    bool causal;
} stated;

#define AT(member) offsetof(stated, member)

/* What a number may be. Except for amounts, 0 in `stated` means that the file does not state it. */
typedef enum range { SIZE, STREAM, ABOVE, AMOUNT } range;

static const struct {
    const char *name;
    size_t at;
    range range;
} numbers[] = {
    { "m", AT(m), SIZE },
    { "n", AT(n), SIZE },
    { "k", AT(k), SIZE },
    { "batch", AT(batch), SIZE },
    { "heads", AT(heads), SIZE },
    { "kv_heads", AT(kv_heads), SIZE },
    { "seq", AT(seq), SIZE },
    { "kv_seq", AT(kv_seq), SIZE },
    { "head_dim", AT(head_dim), SIZE },
    { "rounds", AT(rounds), SIZE },
    { "bits", AT(bits), SIZE },
    { "elements", AT(elements), ABOVE },
    { "rows", AT(rows), AMOUNT },
    { "width", AT(width), AMOUNT },
    { "parameters", AT(parameters), AMOUNT },
    { "read_bytes", AT(read_bytes), AMOUNT },
    { "write_bytes", AT(write_bytes), AMOUNT },
    { "bytes", AT(bytes), AMOUNT },
    { "ranks", AT(ranks), SIZE },
    { "seconds", AT(seconds), ABOVE },
    { "stream", AT(stream), STREAM },
    { "tensor", AT(tensor), AMOUNT },
    { "memory", AT(memory), AMOUNT },
    { "slots", AT(slots), AMOUNT },
    { "link", AT(link), AMOUNT },
};

/* ---- one kernel ---- */

static int64_t whole(double x)
{
    return x >= 0 && x < 1e15 ? (int64_t)x : -1;
}

static double at_least_one(double x)
{
    return x > 0 ? x : 1;
}

/* The number of a word in a list of names; 0 for no word, -1 for an unknown one. */
static int word_of(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return word[0] == '\0' ? 0 : -1;
}

static const char *const kinds[] = { "gemm", "attention", "attention-backward", "rng",     "memory",
                                     "norm", "optimizer", "all-reduce",         "measured" };
enum { GEMM, ATTENTION, BACKWARD, RNG, MEMORY, NORM, OPTIMIZER, ALL_REDUCE, MEASURED, KINDS };

/* Bytes of one parameter in a step of AdamW: gradient, moments, weight in f32; weight in 16 bits.
 */
enum { ADAM_READ = 2 + 4 + 4 + 4, ADAM_WRITE = 4 + 4 + 4 + 2 };

static ordo_operator operator_of(const stated *s, int kind)
{
    static const char *const precisions[] = { "bf16", "fp8", "f16", "f32" };
    static const char *const generators[] = { "sliced", "swar", "compare", "sliced-any" };
    static const ordo_operator_kind of[KINDS] = {
        ORDO_OPERATOR_GEMM,   ORDO_OPERATOR_ATTENTION,  ORDO_OPERATOR_ATTENTION,
        ORDO_OPERATOR_RNG,    ORDO_OPERATOR_MEMORY,     ORDO_OPERATOR_MEMORY,
        ORDO_OPERATOR_MEMORY, ORDO_OPERATOR_ALL_REDUCE, ORDO_OPERATOR_MEASURED,
    };
    const ordo_precision precision = (ordo_precision)word_of(s->precision, precisions, 4);
    const ordo_rng rng = { (int)whole(s->rounds), (int)whole(s->bits),
                           (ordo_generator)word_of(s->generator, generators, 4) };
    ordo_operator o = { .kind = of[kind],
                        .gemm = ORDO_GEMM_INIT,
                        .attention = ORDO_ATTENTION_SHAPE_INIT,
                        .rng = rng,
                        .seconds = s->seconds,
                        .stream = whole(s->stream),
                        .ranks = whole(s->ranks) };
    o.gemm.precision = o.attention.precision = precision;
    o.gemm.m = whole(s->m);
    o.gemm.n = whole(s->n);
    o.gemm.k = whole(s->k);
    o.attention.batch = whole(at_least_one(s->batch));
    o.attention.heads = whole(at_least_one(s->heads));
    o.attention.kv_heads = whole(s->kv_heads);
    o.attention.q_len = whole(s->seq);
    o.attention.kv_len = whole(s->kv_seq);
    o.attention.head_dim = whole(s->head_dim);
    o.attention.causal = s->causal;
    o.attention.backward = kind == BACKWARD;
    o.attention.keep = ORDO_KEEP_GIVEN;
    o.attention.rng = rng;
    const double columns = s->kv_seq > 0 ? s->kv_seq : s->seq;
    o.elements = s->elements > 0
                     ? s->elements
                     : at_least_one(s->batch) * at_least_one(s->heads) * s->seq * columns;
    o.read_bytes = kind == NORM         ? 2 * s->rows * s->width
                   : kind == OPTIMIZER  ? ADAM_READ * s->parameters
                   : kind == ALL_REDUCE ? s->bytes
                                        : s->read_bytes;
    o.write_bytes = kind == NORM        ? 2 * s->rows * s->width
                    : kind == OPTIMIZER ? ADAM_WRITE * s->parameters
                                        : s->write_bytes;
    o.use[ORDO_RESOURCE_TENSOR] = s->tensor;
    o.use[ORDO_RESOURCE_MEMORY] = s->memory;
    o.use[ORDO_RESOURCE_SLOTS] = s->slots;
    o.use[ORDO_RESOURCE_LINK] = s->link;
    return o;
}

/* Add a kernel; NULL if the list is full. */
static ordo_operator *add(cli_operators *list, const stated *s, int kind)
{
    const size_t i = list->count;
    if (i == ORDO_OPERATORS_MOST)
        return NULL;
    list->list[i] = operator_of(s, kind);
    snprintf(list->name[i], sizeof list->name[i], "%s", s->name[0] != '\0' ? s->name : kinds[kind]);
    snprintf(list->kind[i], sizeof list->kind[i], "%s", kinds[kind]);
    list->list[i].name = list->name[i];
    list->list[i].after = list->after[i];
    list->count++;
    return &list->list[i];
}

/* ---- a file ---- */

static bool read_after(ordo_json *r, cli_operators *list, size_t *count)
{
    bool first = true;
    while (ordo_json_next(r, ']', &first)) {
        if (*count == CLI_OPERATOR_AFTER)
            return ordo_json_bad(r, "at most 8 names in \"after\"");
        if (!ordo_json_string(r, list->waits[list->count][(*count)++], CLI_OPERATOR_NAME))
            return false;
    }
    return !r->bad;
}

/* NULL if a number is within its range, else what was expected. */
static const char *expected_in(range of, double x)
{
    const bool is_whole = x >= 0 && x < 1e15 && x == (double)whole(x);
    switch (of) {
    case SIZE: return is_whole && x >= 1 ? NULL : "a whole number above 0, below 1e15";
    case STREAM: return is_whole ? NULL : "a whole number, 0 or more and below 1e15";
    case ABOVE: return x > 0 ? NULL : "a number above 0";
    case AMOUNT: return x >= 0 ? NULL : "0 or more";
    }
    return NULL;
}

static bool read_in_range(ordo_json *r, const char *key, range of, double *value)
{
    (void)ordo_json_peek(r); /* skips blanks */
    const char *text = r->at;
    if (!cli_json_number(r, value))
        return false;
    const char *expected = expected_in(of, *value);
    if (expected == NULL)
        return true;
    char said[96];
    snprintf(said, sizeof said, "%s for \"%s\", not %.*s", expected, key, (int)(r->at - text),
             text);
    r->at = text;
    return ordo_json_bad(r, said);
}

static bool read_member(ordo_json *r, const char *key, stated *s)
{
    if (strcmp(key, "name") == 0)
        return ordo_json_string(r, s->name, sizeof s->name);
    if (strcmp(key, "kind") == 0)
        return ordo_json_string(r, s->kind, sizeof s->kind);
    if (strcmp(key, "precision") == 0)
        return ordo_json_string(r, s->precision, sizeof s->precision);
    if (strcmp(key, "generator") == 0)
        return ordo_json_string(r, s->generator, sizeof s->generator);
    if (strcmp(key, "causal") == 0)
        return ordo_json_flag(r, &s->causal);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(numbers[i].name, key) == 0)
            return read_in_range(r, key, numbers[i].range,
                                 (double *)(void *)((char *)s + numbers[i].at));
    char said[96];
    snprintf(said, sizeof said, "a key of a kernel, not \"%.40s\"", key);
    return ordo_json_bad(r, said);
}

static bool read_kernel(ordo_json *r, cli_operators *list)
{
    stated s = { .m = 0 };
    char key[CLI_OPERATOR_NAME];
    size_t waits = 0;
    bool first = true;
    if (list->count == ORDO_OPERATORS_MOST)
        return ordo_json_bad(r, "at most 256 kernels");
    while (ordo_json_next(r, '}', &first)) {
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        if (!(strcmp(key, "after") == 0 ? read_after(r, list, &waits) : read_member(r, key, &s)))
            return false;
    }
    if (r->bad)
        return false;
    const int kind = s.kind[0] == '\0' ? -1 : word_of(s.kind, kinds, KINDS);
    if (kind < 0)
        return ordo_json_bad(r, "\"kind\" gemm, attention, attention-backward, rng, memory, norm, "
                                "optimizer, all-reduce or measured");
    ordo_operator *o = add(list, &s, kind);
    o->after_count = waits;
    return true;
}

static bool read_document(ordo_json *r, void *into)
{
    cli_operators *list = into;
    char key[CLI_OPERATOR_NAME];
    bool first = true;
    while (ordo_json_next(r, '}', &first)) {
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        bool element = true;
        if (strcmp(key, "kernels") != 0) {
            char said[96];
            snprintf(said, sizeof said, "\"kernels\", not \"%.40s\"", key);
            return ordo_json_bad(r, said);
        }
        while (ordo_json_next(r, ']', &element))
            if (!read_kernel(r, list))
                return false;
        if (r->bad)
            return false;
    }
    return ordo_json_done(r);
}

static size_t find_name(const cli_operators *list, size_t from, const char *name)
{
    while (from < list->count && strcmp(list->name[from], name) != 0)
        from++;
    return from;
}

/* Indices of the kernels that others name. */
static int find_names(cli_operators *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        for (size_t k = 0; k < list->list[i].after_count; k++) {
            const char *name = list->waits[i][k];
            const size_t at = find_name(list, 0, name);
            if (at == list->count || find_name(list, at + 1, name) < list->count)
                return cli_usage("%s: %s is after \"%s\": %s has that name", path, list->name[i],
                                 name, at == list->count ? "no kernel" : "more than one kernel");
            list->after[i][k] = (int64_t)at;
        }
    return CLI_OK;
}

int cli_operators_read(cli_operators *list, const char *path)
{
    const int status = cli_json_file(path, MOST_BYTES, read_document, list);
    if (status != CLI_OK)
        return status;
    if (list->count == 0)
        return cli_usage("%s: no \"kernels\"", path);
    return find_names(list, path);
}

/* ---- presets ---- */

static const struct preset {
    const char *name;
    int64_t embed, heads, kv_heads, mlp;
    bool gated;
    int64_t experts, chosen; /* 0: one dense MLP */
} presets[] = {
    { "llama3-8b", 4096, 32, 8, 14336, true, 0, 0 },
    { "llama3-70b", 8192, 64, 8, 28672, true, 0, 0 },
    { "gpt3", 12288, 96, 96, 49152, false, 0, 0 },
    { "moe", 4096, 32, 8, 14336, true, 8, 2 }, /* as in Mixtral 8x7B */
};

static void gemm(cli_operators *list, const stated *like, const char *name, double m, double n,
                 double k)
{
    stated s = *like;
    snprintf(s.name, sizeof s.name, "%s", name);
    s.m = m;
    s.n = n;
    s.k = k;
    (void)add(list, &s, GEMM);
}

static void moved(cli_operators *list, const char *name, double read, double written)
{
    stated s = { .read_bytes = read, .write_bytes = written };
    snprintf(s.name, sizeof s.name, "%s", name);
    (void)add(list, &s, MEMORY);
}

static void all_reduce(cli_operators *list, const char *name, double bytes, double ranks)
{
    stated s = { .bytes = bytes, .ranks = ranks };
    snprintf(s.name, sizeof s.name, "%s", name);
    if (ranks > 1)
        (void)add(list, &s, ALL_REDUCE);
}

static void mlp(cli_operators *list, const stated *like, const struct preset *p, double tokens,
                double ranks)
{
    const double rows = p->experts ? tokens * (double)p->chosen : tokens;
    const double e = (double)p->embed, wide = (double)p->mlp / ranks, two = p->gated ? 2 : 1;
    if (p->experts) {
        gemm(list, like, "router", tokens, (double)p->experts, e);
        moved(list, "dispatch", 2 * tokens * e, 2 * rows * e);
    }
    gemm(list, like, p->gated ? "gate and up" : "up", rows, two * wide, e);
    moved(list, "activation", 2 * two * rows * wide, 2 * rows * wide);
    gemm(list, like, "down", rows, e, wide);
    if (p->experts)
        moved(list, "combine", 2 * rows * e, 2 * tokens * e);
}

int cli_operators_preset(cli_operators *list, const cli_preset_args *a)
{
    const struct preset *p = NULL;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, a->name) == 0)
            p = &presets[i];
    if (!p)
        return cli_usage("--preset %s: expected llama3-8b, llama3-70b, gpt3 or moe", a->name);
    if (p->kv_heads % a->tensor_parallel != 0)
        return cli_usage("--tensor-parallel %lld: expected a divisor of %lld key heads",
                         (long long)a->tensor_parallel, (long long)p->kv_heads);
    const double tokens = (double)(a->batch * a->seq), ranks = (double)a->tensor_parallel;
    const double e = (double)p->embed, unit = 2 * tokens * e, d = e / (double)p->heads;
    stated like = { .rounds = (double)a->rounds,
                    .bits = (double)a->bits,
                    .batch = (double)a->batch,
                    .heads = (double)p->heads / ranks,
                    .kv_heads = (double)p->kv_heads / ranks,
                    .seq = (double)a->seq,
                    .head_dim = d,
                    .causal = a->causal };
    snprintf(like.precision, sizeof like.precision, "%s",
             ordo_precision_name((ordo_precision)a->precision));
    snprintf(like.generator, sizeof like.generator, "%s",
             ordo_generator_name((ordo_generator)a->generator));
    gemm(list, &like, "projection", tokens, e, e / ranks);
    all_reduce(list, "all-reduce 1", unit, ranks);
    moved(list, "residual and norm 1", 2 * unit, 2 * unit);
    mlp(list, &like, p, tokens, ranks);
    all_reduce(list, "all-reduce 2", unit, ranks);
    moved(list, "residual and norm 2", 2 * unit, 2 * unit);
    gemm(list, &like, "qkv", tokens, (e + 2 * d * (double)p->kv_heads) / ranks, e);
    snprintf(like.name, sizeof like.name, "keep bits");
    (void)add(list, &like, RNG);
    snprintf(like.name, sizeof like.name, "attention");
    ordo_operator *attention = add(list, &like, ATTENTION);
    attention->after_count = 1;
    list->after[list->count - 1][0] = (int64_t)list->count - 2;
    return CLI_OK;
}
