/* json.c: one line of JSON in memory, read value by value. */
#include "record/json.h"

#include "base/decimal.h"

#include <math.h>
#include <string.h>

enum { MOST_DEPTH = 32 };

static bool fail(ordo_json *j)
{
    j->bad = true;
    return false;
}

/* The character at hand after blanks; NUL at the end, which is no part of JSON either. */
static char peek(ordo_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\r' || *j->at == '\n'))
        j->at++;
    return j->at < j->end && !j->bad ? *j->at : '\0';
}

static bool take(ordo_json *j, char wanted)
{
    if (peek(j) != wanted)
        return fail(j);
    j->at++;
    return true;
}

bool ordo_json_next(ordo_json *j, char closing, bool *first)
{
    const bool opening = *first;
    *first = false;
    if (opening && !take(j, closing == '}' ? '{' : '['))
        return false;
    if (peek(j) == closing) {
        j->at++;
        return false;
    }
    return opening ? !j->bad : take(j, ',');
}

bool ordo_json_done(ordo_json *j)
{
    return peek(j) == '\0' && !j->bad && j->at == j->end;
}

/* ---- strings ---- */

static bool read_hex(ordo_json *j, int digits, uint64_t *value)
{
    *value = 0;
    if (j->end - j->at < digits)
        return fail(j);
    for (int i = 0; i < digits; i++, j->at++) {
        const char c = *j->at;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return fail(j);
        *value = *value << 4 | (uint64_t)digit;
    }
    return true;
}

/* UTF-8 of a code point; the number of bytes. */
static int encode(uint32_t code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)((length == 2 ? 0xc0 : length == 3 ? 0xe0 : 0xf0) | code);
    return length;
}

/* What follows \u: a code point, perhaps as a pair of halves; never 0. */
static bool read_code_point(ordo_json *j, uint32_t *code)
{
    uint64_t high = 0, low = 0;
    if (!read_hex(j, 4, &high) || high == 0 || (high >= 0xdc00 && high < 0xe000))
        return fail(j);
    *code = (uint32_t)high;
    if (high < 0xd800 || high >= 0xe000)
        return true;
    if (j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u')
        return fail(j);
    j->at += 2;
    if (!read_hex(j, 4, &low) || low < 0xdc00 || low >= 0xe000)
        return fail(j);
    *code = 0x10000 + (((uint32_t)high - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    return true;
}

/* One escape, after its backslash: 1 to 4 bytes at `to`; 0 on an error. */
static int unescape(ordo_json *j, char *to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char c = j->at < j->end ? *j->at++ : '\0';
    const char *found = c ? strchr(names, c) : NULL;
    uint32_t code = 0;
    if (found) {
        *to = values[found - names];
        return 1;
    }
    if (c != 'u' || !read_code_point(j, &code))
        return fail(j);
    return encode(code, to);
}

bool ordo_json_string(ordo_json *j, char **text)
{
    if (!take(j, '"'))
        return false;
    char *to = *text = j->at;
    while (j->at < j->end && *j->at != '"' && !j->bad) {
        const unsigned char c = (unsigned char)*j->at++;
        if (c < 0x20)
            return fail(j);
        if (c == '\\')
            to += unescape(j, to);
        else
            *to++ = (char)c;
    }
    if (j->bad || j->at == j->end)
        return fail(j);
    j->at++; /* the NUL stands where the closing quote was, or before */
    *to = '\0';
    return true;
}

bool ordo_json_key(ordo_json *j, char **text)
{
    return ordo_json_string(j, text) && take(j, ':');
}

bool ordo_json_digest(ordo_json *j, uint64_t *value)
{
    return take(j, '"') && read_hex(j, 16, value) && take(j, '"');
}

/* ---- numbers ---- */

static bool ends_number(const ordo_json *j)
{
    return j->at == j->end || strchr(",]} \t\r\n", *j->at) != NULL;
}

bool ordo_json_int(ordo_json *j, int64_t *value)
{
    const bool negative = peek(j) == '-';
    int64_t sum = 0;
    j->at += negative;
    const char *start = j->at;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, *j->at - '0', &sum))
            return fail(j);
    if (j->at == start || (*start == '0' && j->at - start > 1) || !ends_number(j))
        return fail(j);
    *value = negative ? -sum : sum;
    return true;
}

static bool take_word(ordo_json *j, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(j->end - j->at) < length || memcmp(j->at, word, length) != 0)
        return fail(j);
    j->at += length;
    return true;
}

bool ordo_json_real(ordo_json *j, double *value)
{
    const char first = peek(j);
    *value = NAN;
    if (first == 'n')
        return take_word(j, "null");
    j->at += first == '-';
    const char *start = j->at;
    while (!ends_number(j))
        if (!strchr("+-.0123456789eE", *j->at++))
            return fail(j);
    if (j->at == start)
        return fail(j);
    if (!ordo_decimal_read(start, (size_t)(j->at - start), value))
        *value = NAN;
    else if (first == '-')
        *value = -*value;
    return true;
}

/* ---- any value ---- */

/* Copy what a reader has passed to `to`; the end of the copy. */
static char *keep(char *to, const char *from, const char *end)
{
    memmove(to, from, (size_t)(end - from));
    return to + (end - from);
}

static bool skip_string(ordo_json *j)
{
    char byte[4];
    for (j->at++; j->at < j->end && *j->at != '"' && !j->bad;) {
        const unsigned char c = (unsigned char)*j->at++;
        if (c < 0x20 || (c == '\\' && unescape(j, byte) == 0))
            return fail(j);
    }
    return !j->bad && j->at < j->end ? (j->at++, true) : fail(j);
}

static bool skip_number(ordo_json *j)
{
    const char *start = j->at;
    while (j->at < j->end && strchr("+-.0123456789eE", *j->at) && *j->at)
        j->at++;
    return j->at > start || fail(j);
}

static bool compact(ordo_json *j, char **to, int depth)
{
    const char c = peek(j);
    const char *start = j->at;
    if (depth == 0)
        return fail(j);
    if (c == '{' || c == '[') {
        const char closing = c == '{' ? '}' : ']';
        *(*to)++ = c;
        bool first = true, any = false;
        while (ordo_json_next(j, closing, &first)) {
            if (any)
                *(*to)++ = ',';
            any = true;
            if (c == '{') {
                start = (peek(j), j->at);
                if (peek(j) != '"' || !skip_string(j))
                    return fail(j);
                *to = keep(*to, start, j->at);
                if (!take(j, ':'))
                    return false;
                *(*to)++ = ':';
            }
            if (!compact(j, to, depth - 1))
                return false;
        }
        if (!j->bad)
            *(*to)++ = closing;
        return !j->bad;
    }
    const bool good = c == '"'   ? skip_string(j)
                      : c == 't' ? take_word(j, "true")
                      : c == 'f' ? take_word(j, "false")
                      : c == 'n' ? take_word(j, "null")
                                 : skip_number(j);
    if (good)
        *to = keep(*to, start, j->at);
    return good;
}

bool ordo_json_raw(ordo_json *j, char **text, char **end)
{
    (void)peek(j);
    *text = *end = j->at;
    return compact(j, end, MOST_DEPTH);
}
