/* json.c: a writer of JSON.
 *
 * Objects and arrays are indented by two spaces per level; one in which `compact` is set stays on
 * one line. Doubles get the fewest digits that read back as the same number. */
#include "kit/json.h"

#include "base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void quote(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    putc('"', out);
    while (*s) {
        const int length = ordo_utf8_length(s);
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", out);
        else if (*s == '\t')
            fputs("\\t", out);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
        else if (length == 0)
            fputs("\\ufffd", out); /* file names may be any bytes; JSON may not */
        else
            fwrite(s, 1, (size_t)length, out);
        s += length > 0 ? length : 1;
    }
    putc('"', out);
}

static bool is_compact(const cli_json *json)
{
    return json->compact > 0 && json->depth >= json->compact;
}

static void indent(cli_json *json)
{
    putc('\n', json->out);
    for (int i = 0; i < json->depth; i++)
        fputs("  ", json->out);
}

/* Comma, place and key of the next value. */
static void next(cli_json *json, const char *key)
{
    if (json->filled[json->depth])
        fputs(is_compact(json) ? ", " : ",", json->out);
    json->filled[json->depth] = true;
    if (json->depth > 0 && !is_compact(json))
        indent(json);
    if (key) {
        quote(json->out, key);
        fputs(": ", json->out);
    }
}

static void open_level(cli_json *json, const char *key, char bracket)
{
    next(json, key);
    putc(bracket, json->out);
    assert(json->depth < CLI_JSON_DEPTH);
    json->filled[++json->depth] = false;
}

static void close_level(cli_json *json, char bracket)
{
    assert(json->depth > 0);
    const bool compact = is_compact(json);
    const bool filled = json->filled[json->depth--];
    if (filled && !compact)
        indent(json);
    putc(bracket, json->out);
    if (json->depth < json->compact)
        json->compact = 0;
    if (json->depth == 0)
        putc('\n', json->out);
}

void cli_json_object(cli_json *json, const char *key)
{
    open_level(json, key, '{');
}

void cli_json_array(cli_json *json, const char *key)
{
    open_level(json, key, '[');
}

void cli_json_end_object(cli_json *json)
{
    close_level(json, '}');
}

void cli_json_end_array(cli_json *json)
{
    close_level(json, ']');
}

void cli_json_text(cli_json *json, const char *key, const char *value)
{
    if (value == NULL) {
        cli_json_null(json, key);
        return;
    }
    next(json, key);
    quote(json->out, value);
}

void cli_json_int(cli_json *json, const char *key, int64_t value)
{
    next(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void cli_json_uint(cli_json *json, const char *key, uint64_t value)
{
    next(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void cli_json_real(cli_json *json, const char *key, double value)
{
    char text[40];
    if (!isfinite(value)) {
        cli_json_null(json, key);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    next(json, key);
    fputs(text, json->out);
}

void cli_json_bool(cli_json *json, const char *key, bool value)
{
    next(json, key);
    fputs(value ? "true" : "false", json->out);
}

void cli_json_null(cli_json *json, const char *key)
{
    next(json, key);
    fputs("null", json->out);
}
