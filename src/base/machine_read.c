/* machine_read.c: the strict reader of machine files.
 *
 *   # comment
 *   name = h200                                  text: name, title, family
 *   clock_ghz = 1.55 GHz | source | 2026-11-15   number: value unit | source | date
 *
 * A number nobody can trace is worse than none, so whatever is unknown, repeated, missing,
 * out of range, without unit, source or date is an error that names file and line. */
#include "base/decimal.h"
#include "base/environment.h"
#include "base/machine.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    const char *at;
    size_t length;
} span;

typedef struct reader {
    const char *label;
    int line;
    ordo_machine *machine;
    bool has_family;
} reader;

/* How a span goes into a message: shortened where it would drown the rest. */
#define SHOW(s) (int)((s).length < 60 ? (s).length : 60), (s).at

__attribute__((format(printf, 2, 3))) static ordo_status bad(const reader *r, const char *format,
                                                             ...)
{
    char what[320];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return ordo_fail(ORDO_ERR_PARSE, "%s:%d: %s", r->label, r->line, what);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static span trim(span s)
{
    while (s.length > 0 && is_blank(s.at[0]))
        s.at++, s.length--;
    while (s.length > 0 && is_blank(s.at[s.length - 1]))
        s.length--;
    return s;
}

/* Divide `rest` at the first `separator`: the part before it, trimmed. False, and all of it, if
 * there is none. */
static bool take_part(span *rest, char separator, span *part)
{
    const char *at = rest->length > 0 ? memchr(rest->at, separator, rest->length) : NULL;
    if (at == NULL) {
        *part = trim(*rest);
        *rest = (span) { rest->at + rest->length, 0 };
        return false;
    }
    const size_t before = (size_t)(at - rest->at);
    *part = trim((span) { rest->at, before });
    *rest = (span) { at + 1, rest->length - before - 1 };
    return true;
}

/* The first blank-delimited word of `rest`, which keeps what follows it. */
static span word(span *rest)
{
    *rest = trim(*rest);
    span w = { rest->at, 0 };
    while (w.length < rest->length && !is_blank(w.at[w.length]))
        w.length++;
    rest->at += w.length;
    rest->length -= w.length;
    *rest = trim(*rest);
    return w;
}

static bool is(span s, const char *text)
{
    return s.length == strlen(text) && memcmp(s.at, text, s.length) == 0;
}

/* Number of `count` digits, or -1. */
static int fixed(const char *at, int count)
{
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (at[i] < '0' || at[i] > '9')
            return -1;
        value = value * 10 + (at[i] - '0');
    }
    return value;
}

static bool is_date(span s)
{
    static const int days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    if ((s.length != 7 && s.length != 10) || s.at[4] != '-')
        return false;
    const int year = fixed(s.at, 4), month = fixed(s.at + 5, 2);
    if (year < 1970 || year > 2199 || month < 1 || month > 12)
        return false;
    if (s.length == 7)
        return true;
    const int day = fixed(s.at + 8, 2);
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return s.at[7] == '-' && day >= 1 && day <= days[month - 1] && (month != 2 || day < 29 || leap);
}

static bool is_name(span s)
{
    if (s.length == 0 || s.length > ORDO_MACHINE_NAME_MAX)
        return false;
    for (size_t i = 0; i < s.length; i++) {
        const char c = s.at[i];
        const bool letter = c >= 'a' && c <= 'z';
        if (!letter && (i == 0 || ((c < '0' || c > '9') && c != '-' && c != '_')))
            return false;
    }
    return true;
}

static ordo_status read_name(reader *r, span value)
{
    if (r->machine->name[0] != '\0')
        return bad(r, "name is given twice");
    if (!is_name(value))
        return bad(r, "name \"%.*s\": expected a lower-case letter, then up to %d of a-z 0-9 - _",
                   SHOW(value), ORDO_MACHINE_NAME_MAX - 1);
    memcpy(r->machine->name, value.at, value.length);
    return ORDO_OK;
}

static ordo_status read_title(reader *r, span value)
{
    if (r->machine->title[0] != '\0')
        return bad(r, "title is given twice");
    if (value.length == 0 || value.length > ORDO_MACHINE_TITLE_MAX)
        return bad(r, "title of %zu characters, expected 1 to %d", value.length,
                   ORDO_MACHINE_TITLE_MAX);
    memcpy(r->machine->title, value.at, value.length);
    return ORDO_OK;
}

static const char *const families[] = { "cpu", "cuda", "npu" }; /* by ordo_machine_family */

static ordo_status read_family(reader *r, span value)
{
    if (r->has_family)
        return bad(r, "family is given twice");
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (is(value, families[i])) {
            r->machine->family = (ordo_machine_family)i;
            r->has_family = true;
            return ORDO_OK;
        }
    return bad(r, "family \"%.*s\", expected cpu, cuda or npu", SHOW(value));
}

/* `value unit`, into the entry's value. */
static ordo_status read_value(const reader *r, const ordo_machine_range *range, span field,
                              double *value)
{
    const char *key = range->key.name;
    const char *expected = range->key.unit;
    const span number = word(&field), unit = word(&field);

    if (number.length == 0)
        return bad(r, "%s has no value", key);
    if (number.at[0] == '-')
        return bad(r, "%s is negative: \"%.*s\"", key, SHOW(number));
    if (!ordo_decimal_read(number.at, number.length, value))
        return bad(r, "%s: \"%.*s\" is not a plain decimal number of at most 15 digits", key,
                   SHOW(number));
    if (!is(unit, expected)) {
        if (expected[0] == '\0')
            return bad(r, "%s has unit \"%.*s\", expected none", key, SHOW(unit));
        if (unit.length == 0)
            return bad(r, "%s has no unit, expected \"%s\"", key, expected);
        return bad(r, "%s has unit \"%.*s\", expected \"%s\"", key, SHOW(unit), expected);
    }
    if (field.length > 0)
        return bad(r, "%s: unexpected \"%.*s\" after the unit", key, SHOW(field));
    if (*value < range->min || *value > range->max)
        return bad(r, "%s is %.*s, expected %.10g to %.10g", key, SHOW(number), range->min,
                   range->max);
    if (range->integer && (double)(uint64_t)*value != *value)
        return bad(r, "%s is %.*s, expected a whole number", key, SHOW(number));
    return ORDO_OK;
}

static ordo_status read_number(reader *r, size_t index, span rest)
{
    const ordo_machine_range *range = ordo_machine_range_at(index);
    ordo_machine_entry *entry = &r->machine->entries[index];
    const char *key = range->key.name;
    span field, source, date;

    if (entry->source != NULL)
        return bad(r, "%s is given twice", key);
    const bool has_source = take_part(&rest, '|', &field),
               has_date = take_part(&rest, '|', &source);
    ORDO_TRY(read_value(r, range, field, &entry->value));
    if (!has_source || source.length == 0)
        return bad(r, "%s has no source, expected \"value unit | source | date\"", key);
    if (take_part(&rest, '|', &date))
        return bad(r, "%s has more than two '|'", key);
    if (!has_date || date.length == 0)
        return bad(r, "%s has no date, expected \"value unit | source | date\"", key);
    if (!is_date(date))
        return bad(r, "%s has date \"%.*s\", expected YYYY-MM or YYYY-MM-DD", key, SHOW(date));

    const size_t size = source.length + date.length + sizeof " | ";
    entry->source = malloc(size);
    if (entry->source == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "machine: no memory for %zu bytes", size);
    snprintf(entry->source, size, "%.*s | %.*s", (int)source.length, source.at, (int)date.length,
             date.at);
    return ORDO_OK;
}

static ordo_status check_bytes(const reader *r, span line)
{
    if (line.length > ORDO_MACHINE_LINE_MAX)
        return bad(r, "line of %zu bytes, expected at most %d", line.length, ORDO_MACHINE_LINE_MAX);
    for (size_t i = 0; i < line.length; i++) {
        const unsigned char c = (unsigned char)line.at[i];
        if ((c < 0x20 && c != '\t') || c > 0x7e)
            return bad(r, "byte 0x%02x in column %zu: machine files are plain ASCII text", c,
                       i + 1);
    }
    return ORDO_OK;
}

static ordo_status read_line(reader *r, span line)
{
    ORDO_TRY(check_bytes(r, line));
    span rest = trim(line), key;
    if (rest.length == 0 || rest.at[0] == '#')
        return ORDO_OK;
    if (!take_part(&rest, '=', &key) || key.length == 0)
        return bad(r, "expected \"key = value unit | source | date\"");
    if (is(key, "name"))
        return read_name(r, trim(rest));
    if (is(key, "title"))
        return read_title(r, trim(rest));
    if (is(key, "family"))
        return read_family(r, trim(rest));

    const size_t index = ordo_machine_range_find(key.at, key.length);
    if (index < ordo_machine_key_count())
        return read_number(r, index, rest);
    const char *nearest = ordo_machine_nearest(key.at, key.length);
    if (nearest != NULL)
        return bad(r, "unknown key \"%.*s\", did you mean \"%s\"?", SHOW(key), nearest);
    return bad(r, "unknown key \"%.*s\"", SHOW(key));
}

/* What the family requires; all that is missing goes into one message. */
static ordo_status check_complete(const reader *r)
{
    const ordo_machine *m = r->machine;
    if (m->name[0] == '\0' || m->title[0] == '\0' || !r->has_family)
        return bad(r, "%s is missing",
                   m->name[0] == '\0'    ? "name"
                   : m->title[0] == '\0' ? "title"
                                         : "family");
    const char *family = families[m->family];
    const bool runs = m->family != ORDO_MACHINE_NPU; /* something of ours */
    char missing[240] = "";
    size_t used = 0;
    for (size_t i = 0; i < ordo_machine_key_count(); i++) {
        const ordo_machine_key *key = ordo_machine_key_at(i);
        const bool required =
            (runs && strcmp(key->required_by, "all") == 0) || strcmp(key->required_by, family) == 0;
        if (required && m->entries[i].source == NULL && used < sizeof missing) {
            const int n = snprintf(missing + used, sizeof missing - used, "%s%s",
                                   used > 0 ? ", " : "", key->name);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    if (used > 0)
        return bad(r, "missing, and required by family %s: %s", family, missing);
    return ORDO_OK;
}

static ordo_status read_lines(reader *r, const char *text, size_t length)
{
    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        span line = { text, end != NULL ? (size_t)(end - text) : length };
        const size_t step = line.length + (end != NULL);
        if (end != NULL && line.length > 0 && line.at[line.length - 1] == '\r')
            line.length--; /* files that passed through Windows */
        r->line++;
        ORDO_TRY(read_line(r, line));
        text += step;
        length -= step;
    }
    if (r->line == 0)
        r->line = 1; /* so that an empty file still has a line to point at */
    return check_complete(r);
}

ordo_status ordo_machine_parse(ordo_machine **machine, const char *text, size_t length,
                               const char *label)
{
    ORDO_DEFAULT_ENVIRONMENT;
    ORDO_TRY(ordo_check_pointer("machine", machine));
    *machine = NULL;
    if (text == NULL && length > 0)
        return ordo_fail(ORDO_ERR_ARGUMENT, "text is NULL, length %zu", length);

    reader r = { .label = label != NULL ? label : "machine" };
    if (length > ORDO_MACHINE_FILE_MAX)
        return ordo_fail(ORDO_ERR_PARSE, "%s:1: %zu bytes, expected at most %d", r.label, length,
                         ORDO_MACHINE_FILE_MAX);
    const size_t size =
        sizeof(ordo_machine) + ordo_machine_key_count() * sizeof(ordo_machine_entry);
    r.machine = calloc(1, size);
    if (r.machine == NULL)
        return ordo_fail(ORDO_ERR_MEMORY, "machine: no memory for %zu bytes", size);

    const ordo_status status = read_lines(&r, text, length);
    if (status != ORDO_OK) {
        ordo_machine_destroy(r.machine);
        return status;
    }
    *machine = r.machine;
    return ORDO_OK;
}
