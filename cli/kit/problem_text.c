/* problem_text.c: a problem in words and as JSON. */
#include "kit/problem_args.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Append to `text`; what does not fit is left out. */
static void add(char *text, size_t capacity, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list values;
    va_start(values, format);
    vsnprintf(text + used, capacity - used, format, values);
    va_end(values);
}

/* A length or a count with its default; ORDO_NO_KEYS is none. */
static int64_t or_else(int64_t value, int64_t otherwise)
{
    return value > 0 ? value : value < 0 ? 0 : otherwise;
}

static const char *bias_name(const ordo_bias *bias)
{
    static const char *const names[] = { "shared", "heads", "sequences", "full" };
    return names[2 * bias->per_sequence + bias->per_head];
}

void cli_problem_describe(const ordo_problem *p, char *text, size_t capacity)
{
    const int64_t kv_len = or_else(p->kv_len, p->q_len);
    text[0] = '\0';
    add(text, capacity, "%s, %s, %" PRId64 " x %" PRId64, ordo_dtype_name(p->dtype),
        ordo_mask_name(p->mask), p->q_len, kv_len);
    add(text, capacity, ", batch %" PRId64 ", heads %" PRId64, p->batch, p->heads);
    if (p->kv_heads > 0 && p->kv_heads != p->heads)
        add(text, capacity, " over %" PRId64, p->kv_heads);
    add(text, capacity, ", dim %" PRId64, p->head_dim);
    if (p->v_head_dim > 0 && p->v_head_dim != p->head_dim)
        add(text, capacity, " and %" PRId64, p->v_head_dim);
    if (p->layout == ORDO_PACKED)
        add(text, capacity, ", packed %" PRId64 " x %" PRId64, p->total_q,
            or_else(p->total_kv, p->total_q));
    else if (p->layout != ORDO_DENSE)
        add(text, capacity, ", %s", ordo_layout_name(p->layout));
    if (p->window.on)
        add(text, capacity, ", window %" PRId64 ",%" PRId64, p->window.left, p->window.right);
    if (p->blocks.entries > 0)
        add(text, capacity, ", block mask of %" PRId64 " entries", p->blocks.entries);
    if (p->seen.on)
        add(text, capacity, ", seen");
    if (p->softcap > 0)
        add(text, capacity, ", softcap %g", p->softcap);
    if (p->alibi)
        add(text, capacity, ", alibi");
    if (p->bias.on)
        add(text, capacity, ", bias %s", bias_name(&p->bias));
    if (p->dropout.p > 0)
        add(text, capacity, ", dropout %g", p->dropout.p);
    if (p->dropout.p > 0 && p->dropout.keying != ORDO_KEYING_ORDO)
        add(text, capacity, " (%s)", ordo_keying_name(p->dropout.keying));
}

static void lengths_json(cli_json *json, const ordo_problem *p)
{
    cli_json_int(json, "seq", p->q_len);
    cli_json_int(json, "kv_seq", or_else(p->kv_len, p->q_len));
    if (p->layout == ORDO_PACKED) {
        cli_json_int(json, "total_q", p->total_q);
        cli_json_int(json, "total_kv", or_else(p->total_kv, p->total_q));
    }
}

void cli_problem_json(cli_json *json, const char *key, const ordo_problem *p)
{
    cli_json_object(json, key);
    cli_json_text(json, "dtype", ordo_dtype_name(p->dtype));
    cli_json_text(json, "layout", ordo_layout_name(p->layout));
    cli_json_int(json, "batch", p->batch);
    cli_json_int(json, "heads", p->heads);
    cli_json_int(json, "kv_heads", or_else(p->kv_heads, p->heads));
    lengths_json(json, p);
    cli_json_int(json, "dim", p->head_dim);
    cli_json_int(json, "v_dim", or_else(p->v_head_dim, p->head_dim));
    cli_json_real(json, "scale", p->scale);
    cli_json_text(json, "mask", ordo_mask_name(p->mask));
    if (p->window.on) {
        cli_json_array(json, "window");
        cli_json_int(json, NULL, p->window.left);
        cli_json_int(json, NULL, p->window.right);
        cli_json_end_array(json);
    } else {
        cli_json_null(json, "window");
    }
    if (p->blocks.entries > 0)
        cli_json_int(json, "block_mask_entries", p->blocks.entries);
    if (p->seen.on)
        cli_json_bool(json, "seen", true);
    cli_json_real(json, "softcap", p->softcap);
    cli_json_bool(json, "alibi", p->alibi);
    if (p->bias.on)
        cli_json_text(json, "bias", bias_name(&p->bias));
    cli_json_real(json, "dropout", p->dropout.p);
    cli_json_text(json, "keying", ordo_keying_name(p->dropout.keying));
    cli_json_end_object(json);
}
