/* plan_text.c: one table of fields serves writing and reading.
 *
 *   ordo-plan/1 backend=cpu family=cpu revision=4 dtype=bf16 ... key=cpu.r4/...
 *
 * Numbers have one spelling: integers in decimal, floating-point numbers as a whole hex mantissa
 * and a binary exponent, which no locale and no rounding can touch. No pointers, and no lengths
 * of single sequences: the line of a packed batch serves every batch within its maxima. */
#include "api/plan_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/problem.h"
#include "base/status.h"
#include "ordo/dropout.h"
#include "plan/family.h"

typedef enum kind { I64, I32, REAL, TRUTH, WORD, NAME } kind;

typedef struct field {
    const char *name;
    kind kind;
    size_t offset;
    const char *(*spelling)(int at); /* NAME: of the constants 0, 1, 2, ... */
    bool optional;                   /* left out if it is 0, as in lines of before it existed */
} field;

/* The spelling of value `at` of a constant; "unknown" past the last one. */
#define SPELLING(noun)                                                                             \
    static const char *noun##_at(int at)                                                           \
    {                                                                                              \
        return ordo_##noun##_name((ordo_##noun)at);                                                \
    }
SPELLING(backend)
SPELLING(dtype)
SPELLING(layout)
SPELLING(mask)
SPELLING(keying)
SPELLING(order)
SPELLING(issue)
SPELLING(assign)
SPELLING(form)

#define AT(member) offsetof(ordo_plan, member)

/* `split` is the number of accumulators, as version 0.1.0 writes and reads it. */
static const field fields[] = {
    { "backend", NAME, AT(backend), backend_at },
    { "family", WORD, AT(family), NULL },
    { "revision", I32, AT(revision), NULL },
    { "dtype", NAME, AT(problem.dtype), dtype_at },
    { "layout", NAME, AT(problem.layout), layout_at },
    { "batch", I64, AT(problem.batch), NULL },
    { "heads", I64, AT(problem.heads), NULL },
    { "kv_heads", I64, AT(problem.kv_heads), NULL },
    { "q_len", I64, AT(problem.q_len), NULL },
    { "kv_len", I64, AT(problem.kv_len), NULL },
    { "total_q", I64, AT(problem.total_q), NULL },
    { "total_kv", I64, AT(problem.total_kv), NULL },
    { "head_dim", I64, AT(problem.head_dim), NULL },
    { "v_head_dim", I64, AT(problem.v_head_dim), NULL },
    { "scale", REAL, AT(problem.scale), NULL },
    { "mask", NAME, AT(problem.mask), mask_at },
    { "window", TRUTH, AT(problem.window.on), NULL },
    { "left", I64, AT(problem.window.left), NULL },
    { "right", I64, AT(problem.window.right), NULL },
    { "softcap", REAL, AT(problem.softcap), NULL },
    { "alibi", TRUTH, AT(problem.alibi), NULL },
    { "dropout", REAL, AT(problem.dropout.p), NULL },
    { "rounds", I32, AT(problem.dropout.rounds), NULL },
    { "bits", I32, AT(problem.dropout.bits), NULL },
    { "keying", NAME, AT(problem.dropout.keying), keying_at },
    { "batch0", I64, AT(problem.shard.batch0), NULL },
    { "head0", I64, AT(problem.shard.head0), NULL },
    { "row0", I64, AT(problem.shard.row0), NULL },
    { "col0", I64, AT(problem.shard.col0), NULL },
    { "heads_total", I64, AT(problem.shard.heads_total), NULL },
    { "q_total", I64, AT(problem.shard.q_total), NULL },
    { "kv_total", I64, AT(problem.shard.kv_total), NULL },
    { "fq", I64, AT(forward_tile.q), NULL },
    { "fk", I64, AT(forward_tile.k), NULL },
    { "bq", I64, AT(backward_tile.q), NULL },
    { "bk", I64, AT(backward_tile.k), NULL },
    { "order", NAME, AT(order), order_at },
    { "asked", NAME, AT(order_asked), order_at },
    { "group", I64, AT(group), NULL },
    { "split", I64, AT(accumulators), NULL },
    { "issue", NAME, AT(issue), issue_at },
    { "section", I64, AT(section), NULL },
    { "assign", NAME, AT(assign), assign_at },
    { "workers", I64, AT(workers), NULL },
    { "segments", I64, AT(segments), NULL, true },
    { "blocks", I64, AT(problem.blocks.entries), NULL, true },
    { "blocks_per_sequence", TRUTH, AT(problem.blocks.per_sequence), NULL, true },
    { "blocks_per_head", TRUTH, AT(problem.blocks.per_head), NULL, true },
    { "page_rows", I64, AT(problem.paging.page_rows), NULL, true },
    { "pages", I64, AT(problem.paging.pages), NULL, true },
    { "table_columns", I64, AT(problem.paging.table_columns), NULL, true },
    { "seen", TRUTH, AT(problem.seen.on), NULL, true },
    { "seen_per_sequence", TRUTH, AT(problem.seen.per_sequence), NULL, true },
    { "seen_per_head", TRUTH, AT(problem.seen.per_head), NULL, true },
    { "bias", TRUTH, AT(problem.bias.on), NULL, true },
    { "bias_per_sequence", TRUTH, AT(problem.bias.per_sequence), NULL, true },
    { "bias_per_head", TRUTH, AT(problem.bias.per_head), NULL, true },
    { "bias_dtype", NAME, AT(problem.bias.dtype), dtype_at, true },
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const char heading[] = "ordo-plan/1";

/* ---- writing ---- */

/* 1.5 -> "0x3p-1": odd mantissa, so that there is one spelling; "0" for zero. Finite only. */
static void write_real(double x, char *text, size_t capacity)
{
    if (x == 0) {
        snprintf(text, capacity, "0");
        return;
    }
    int exponent;
    uint64_t mantissa = (uint64_t)ldexp(frexp(fabs(x), &exponent), 53);
    exponent -= 53;
    for (; mantissa % 2 == 0; mantissa /= 2)
        exponent++;
    snprintf(text, capacity, "%s0x%" PRIx64 "p%d", x < 0 ? "-" : "", mantissa, exponent);
}

static void write_field(const ordo_plan *plan, const field *f, char *text, size_t capacity)
{
    const void *at = (const char *)plan + f->offset;
    switch (f->kind) {
    case I64: snprintf(text, capacity, "%" PRId64, *(const int64_t *)at); break;
    case I32: snprintf(text, capacity, "%d", *(const int *)at); break;
    case REAL: write_real(*(const double *)at, text, capacity); break;
    case TRUTH: snprintf(text, capacity, "%d", *(const bool *)at ? 1 : 0); break;
    case WORD: snprintf(text, capacity, "%s", (const char *)at); break;
    case NAME: snprintf(text, capacity, "%s", f->spelling(*(const int *)at)); break;
    }
}

size_t ordo_plan_write(const ordo_plan *plan, char text[ORDO_PLAN_LINE_MAX])
{
    char value[192];
    ordo_plan original = *plan; /* as it can be read again */
    original.problem = ordo_problem_original(&plan->problem);
    size_t used = (size_t)snprintf(text, ORDO_PLAN_LINE_MAX, "%s", heading);
    for (int x = 0; x < FIELDS; x++) {
        write_field(&original, &fields[x], value, sizeof value);
        if (fields[x].optional &&
            strcmp(value, fields[x].spelling ? fields[x].spelling(0) : "0") == 0)
            continue;
        used += (size_t)snprintf(text + used, ORDO_PLAN_LINE_MAX - used, " %s=%s", fields[x].name,
                                 value);
    }
    if (plan->workspace_limit != 0)
        used += (size_t)snprintf(text + used, ORDO_PLAN_LINE_MAX - used, " limit=%" PRId64,
                                 plan->workspace_limit);
    if (plan->backward_form != ordo_family_form(plan))
        used += (size_t)snprintf(text + used, ORDO_PLAN_LINE_MAX - used, " form=%s",
                                 ordo_form_name(plan->backward_form));
    ordo_plan_key(plan, value, sizeof value);
    used += (size_t)snprintf(text + used, ORDO_PLAN_LINE_MAX - used, " key=%s", value);
    return used;
}

/* ---- reading ---- */

static bool read_integer(const char *text, int64_t *value)
{
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9')
        return false;
    int64_t sum = 0;
    for (; *digits >= '0' && *digits <= '9'; digits++)
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, *digits - '0', &sum))
            return false;
    *value = *text == '-' ? -sum : sum;
    return *digits == 0;
}

static bool read_real(const char *text, double *value)
{
    *value = 0;
    if (strcmp(text, "0") == 0)
        return true;
    const bool negative = *text == '-';
    text += negative;
    if (strncmp(text, "0x", 2) != 0)
        return false;
    uint64_t mantissa = 0;
    int digits = 0;
    for (text += 2; *text && *text != 'p'; text++, digits++) {
        const char *hex = "0123456789abcdef", *place = strchr(hex, *text);
        if (!place || digits == 14)
            return false;
        mantissa = 16 * mantissa + (uint64_t)(place - hex);
    }
    int64_t exponent;
    if (*text != 'p' || !read_integer(text + 1, &exponent) || exponent < -1100 || exponent > 1100 ||
        mantissa >> 53 != 0)
        return false;
    *value = ldexp((double)mantissa, (int)exponent) * (negative ? -1 : 1);
    return isfinite(*value);
}

static bool read_name(const char *text, const char *(*spelling)(int at), int *value)
{
    for (*value = 0; strcmp(spelling(*value), "unknown") != 0; ++*value)
        if (strcmp(text, spelling(*value)) == 0)
            return true;
    return false;
}

static bool read_field(ordo_plan *plan, const field *f, const char *text)
{
    void *at = (char *)plan + f->offset;
    int64_t number = 0;
    switch (f->kind) {
    case I64: return read_integer(text, (int64_t *)at);
    case I32:
        if (!read_integer(text, &number) || number < INT32_MIN || number > INT32_MAX)
            return false;
        *(int *)at = (int)number;
        return true;
    case REAL: return read_real(text, (double *)at);
    case TRUTH: *(bool *)at = *text == '1'; return strcmp(text, "0") == 0 || strcmp(text, "1") == 0;
    case WORD:
        if (strlen(text) >= sizeof plan->family)
            return false;
        memcpy(at, text, strlen(text) + 1);
        return true;
    case NAME: return read_name(text, f->spelling, (int *)at);
    }
    return false;
}

/* Take the next " name=value" from `rest`; NULL if it is not that name. */
static char *next_value(char **rest, const char *name)
{
    char *word = *rest;
    const size_t length = strlen(name);
    if (!word || strncmp(word, name, length) != 0 || word[length] != '=')
        return NULL;
    char *end = strchr(word, ' ');
    *rest = end ? end + 1 : NULL;
    if (end)
        *end = 0;
    return word + length + 1;
}

/* Forms follow from head sizes and tiles; the backward pass may have another, which is written. */
static ordo_status read_forms(ordo_plan *plan, const char *text)
{
    const ordo_family *family = ordo_family_find(plan->family);
    const ordo_family_row *row = family ? ordo_family_row_of(family, &plan->problem) : NULL;
    int form = (int)ordo_family_form(plan);
    if (text && !read_name(text, form_at, &form))
        return ordo_fail(ORDO_ERR_PARSE, "plan: form=%.40s: not a value of that field", text);
    plan->forward_form = row ? row->forward.form : ORDO_FORM_FLASH;
    plan->backward_form = (ordo_form)form;
    return ORDO_OK;
}

static ordo_status read_line(ordo_plan *plan, char *line)
{
    char *rest = line;
    const size_t title = strlen(heading);
    if (strncmp(rest, heading, title) != 0 || rest[title] != ' ')
        return ordo_fail(ORDO_ERR_PARSE, "plan \"%.24s\": expected it to begin with \"%s \"", line,
                         heading);
    rest += title + 1;
    for (int x = 0; x < FIELDS; x++) {
        const char *value = next_value(&rest, fields[x].name);
        if (!value && fields[x].optional)
            continue;
        if (!value)
            return ordo_fail(ORDO_ERR_PARSE, "plan: expected field %s next", fields[x].name);
        if (!read_field(plan, &fields[x], value))
            return ordo_fail(ORDO_ERR_PARSE, "plan: %s=%.40s: not a value of that field",
                             fields[x].name, value);
    }
    const char *limit = next_value(&rest, "limit"); /* if it is not the default */
    if (limit && !read_integer(limit, &plan->workspace_limit))
        return ordo_fail(ORDO_ERR_PARSE, "plan: limit=%.40s: not a value of that field", limit);
    ORDO_TRY(read_forms(plan, next_value(&rest, "form")));
    if (!next_value(&rest, "key") || rest)
        return ordo_fail(ORDO_ERR_PARSE, "plan: expected field key last");
    return ORDO_OK;
}

/* Lines of version 0.1 have a word " predicted_ns=N" after the workers and the segments, which
 * says nothing of the plan: take it out. */
static ordo_status skip_prediction(char *line, size_t *length)
{
    static const char name[] = " predicted_ns=";
    char *word = strstr(line, name), *before = word;
    if (!word)
        return ORDO_OK;
    while (before > line && *--before != ' ')
        continue;
    char *value = word + strlen(name), *end = strchr(value, ' ');
    if (end)
        *end = 0;
    int64_t ns;
    if ((strncmp(before, " workers=", 9) != 0 && strncmp(before, " segments=", 10) != 0) ||
        !read_integer(value, &ns) || ns < -1)
        return ordo_fail(ORDO_ERR_PARSE,
                         "plan: predicted_ns=%.40s: expected -1 or a time after "
                         "the workers and the segments, or nothing",
                         value);
    const size_t rest = end ? (size_t)(line + *length - end) : 0;
    if (end)
        *end = ' ';
    memmove(word, end ? end : word, rest);
    *length = (size_t)(word - line) + rest;
    line[*length] = 0;
    return ORDO_OK;
}

ordo_status ordo_plan_read(ordo_plan *plan, const char *text)
{
    char asked[ORDO_PLAN_LINE_MAX], line[ORDO_PLAN_LINE_MAX];
    size_t length = strnlen(text, sizeof line + 1);
    if (length > 0 && length <= sizeof line && text[length - 1] == '\n')
        length--; /* as read from a file */
    if (length >= sizeof line)
        return ordo_fail(ORDO_ERR_PARSE, "plan: longer than %d bytes", ORDO_PLAN_LINE_MAX - 1);
    memcpy(asked, text, length);
    asked[length] = 0;
    ORDO_TRY(skip_prediction(asked, &length));
    memcpy(line, asked, length + 1);
    ORDO_TRY(read_line(plan, line));
    /* A plan has one spelling, its key included: the text must be what it would print. */
    char again[ORDO_PLAN_LINE_MAX];
    const size_t size = ordo_plan_write(plan, again);
    size_t same = 0;
    while (same < length && same < size && asked[same] == again[same])
        same++;
    if (same != length || same != size)
        return ordo_fail(ORDO_ERR_PARSE, "plan: \"%.32s\" at byte %zu: expected \"%.32s\"",
                         asked + same, same, again + same);
    return ORDO_OK;
}
