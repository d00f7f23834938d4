/* json.c: a strict reader of JSON in memory, value by value. */
#include "base/json.h"

#include <stdio.h>
#include <string.h>

int ordo_utf8_length(const unsigned char *s)
{
    const int length = s[0] < 0x80   ? 1
                       : s[0] < 0xc2 ? 0
                       : s[0] < 0xe0 ? 2
                       : s[0] < 0xf0 ? 3
                       : s[0] < 0xf5 ? 4
                                     : 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, and what lies past the last code point. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

ordo_json ordo_json_of(const char *text, size_t length)
{
    return (ordo_json) { .start = text, .at = text, .end = text + length };
}

bool ordo_json_bad(ordo_json *r, const char *expected)
{
    if (!r->bad)
        snprintf(r->why, sizeof r->why, "byte %zu of the JSON: expected %.90s",
                 (size_t)(r->at - r->start), expected);
    r->bad = true;
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(ordo_json *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* The character at hand; NUL at the end, which is no part of JSON either. */
static char peek(const ordo_json *r)
{
    return r->at < r->end ? *r->at : '\0';
}

char ordo_json_peek(ordo_json *r)
{
    skip_blanks(r);
    return peek(r);
}

static bool take(ordo_json *r, char wanted, const char *name)
{
    skip_blanks(r);
    if (r->bad || peek(r) != wanted)
        return ordo_json_bad(r, name);
    r->at++;
    return true;
}

bool ordo_json_next(ordo_json *r, char closing, bool *first)
{
    const bool object = closing == '}';
    if (*first && !take(r, object ? '{' : '[', object ? "an object" : "an array"))
        return false;
    skip_blanks(r);
    if (!r->bad && peek(r) == closing) {
        r->at++;
        return false;
    }
    const bool good = *first || take(r, ',', object ? "a comma or }" : "a comma or ]");
    *first = false;
    return good && !r->bad;
}

static bool read_hex(ordo_json *r, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char c = peek(r), lower = (char)(c | 0x20);
        if (!is_digit(c) && (lower < 'a' || lower > 'f'))
            return ordo_json_bad(r, "four hexadecimal digits");
        *value = *value * 16 + (uint32_t)(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return true;
}

/* What follows \u: one code point, perhaps as two halves. */
static bool read_code_point(ordo_json *r, uint32_t *code)
{
    uint32_t low;
    if (!read_hex(r, code))
        return false;
    if (*code == 0)
        return ordo_json_bad(r, "no NUL in a string before this");
    if (*code >= 0xdc00 && *code < 0xe000)
        return ordo_json_bad(r, "the first half of a pair before the second");
    if (*code < 0xd800 || *code >= 0xdc00)
        return true;
    if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
        return ordo_json_bad(r, "the second half of a pair");
    r->at += 2;
    if (!read_hex(r, &low))
        return false;
    if (low < 0xdc00 || low >= 0xe000)
        return ordo_json_bad(r, "the second half of a pair");
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

static size_t encode(uint32_t code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(code | 0xf00u >> length);
    return length;
}

/* One character, decoded to at most four bytes. */
static bool read_character(ordo_json *r, char *to, size_t *length)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (*r->at != '\\') {
        char held[5] = { 0 };
        const size_t left = (size_t)(r->end - r->at);
        memcpy(held, r->at, left < 4 ? left : 4);
        *length = (size_t)ordo_utf8_length((const unsigned char *)held);
        if (*length == 0 || (unsigned char)*r->at < 0x20)
            return ordo_json_bad(r, "a printable character in UTF-8");
        memcpy(to, held, *length);
        r->at += *length;
        return true;
    }
    r->at++;
    const char c = peek(r);
    const char *letter = c ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    if (c != 'u' && letter == NULL)
        return ordo_json_bad(r, "an escape");
    r->at++;
    if (c == 'u' && !read_code_point(r, &code))
        return false;
    *length = encode(c == 'u' ? code : (uint32_t)meanings[letter - letters], to);
    return true;
}

bool ordo_json_string(ordo_json *r, char *text, size_t capacity)
{
    size_t used = 0;
    if (!take(r, '"', "a string"))
        return false;
    text[0] = '\0';
    while (peek(r) != '"') {
        char character[4];
        size_t length = 0;
        if (r->at >= r->end)
            return ordo_json_bad(r, "the end of a string");
        if (!read_character(r, character, &length))
            return false;
        if (used + length < capacity) {
            memcpy(text + used, character, length);
            text[used + length] = '\0';
            used += length;
        } else {
            capacity = 0; /* nothing after a character that did not fit */
        }
    }
    r->at++;
    return true;
}

bool ordo_json_key(ordo_json *r, char *text, size_t capacity)
{
    return ordo_json_string(r, text, capacity) && take(r, ':', "a colon");
}

bool ordo_json_int(ordo_json *r, int64_t *value)
{
    const bool negative = ordo_json_peek(r) == '-';
    *value = 0;
    r->at += negative;
    if (r->bad || !is_digit(peek(r)))
        return ordo_json_bad(r, "a whole number");
    if (*r->at == '0' && r->end - r->at > 1 && is_digit(r->at[1]))
        return ordo_json_bad(r, "a number without leading zeros");
    for (; is_digit(peek(r)); r->at++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, *r->at - '0', value))
            return ordo_json_bad(r, "a number below 2^63");
    if (negative)
        *value = -*value;
    return true;
}

bool ordo_json_count(ordo_json *r, int64_t *value)
{
    if (ordo_json_peek(r) == '-')
        return ordo_json_bad(r, "a whole number");
    return ordo_json_int(r, value);
}

static bool take_digits(ordo_json *r)
{
    const char *first = r->at;
    while (is_digit(peek(r)))
        r->at++;
    return r->at > first;
}

bool ordo_json_number(ordo_json *r, const char **text)
{
    skip_blanks(r);
    *text = r->at;
    r->at += peek(r) == '-';
    bool good = !r->bad && take_digits(r);
    if (good && peek(r) == '.') {
        r->at++;
        good = take_digits(r);
    }
    if (good && (peek(r) | 0x20) == 'e') {
        r->at++;
        r->at += peek(r) == '+' || peek(r) == '-';
        good = take_digits(r);
    }
    if (good)
        return true;
    r->at = *text;
    return ordo_json_bad(r, "a number");
}

static bool take_word(ordo_json *r, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

bool ordo_json_flag(ordo_json *r, bool *value)
{
    skip_blanks(r);
    *value = !r->bad && take_word(r, "true");
    return *value || (!r->bad && take_word(r, "false")) ? true : ordo_json_bad(r, "true or false");
}

/* Nesting is bounded by `depth`, so that no file can exhaust the stack. */
static bool skip(ordo_json *r, int depth)
{
    char text[8];
    const char *number;
    const char c = ordo_json_peek(r);
    if (c == '"')
        return ordo_json_string(r, text, sizeof text);
    if (c == '-' || is_digit(c))
        return ordo_json_number(r, &number);
    if (c != '{' && c != '[')
        return take_word(r, "true") || take_word(r, "false") || take_word(r, "null")
                   ? true
                   : ordo_json_bad(r, "a value");
    if (depth == 0)
        return ordo_json_bad(r, "fewer levels");
    bool first = true;
    while (ordo_json_next(r, c == '{' ? '}' : ']', &first))
        if ((c == '{' && !ordo_json_key(r, text, sizeof text)) || !skip(r, depth - 1))
            return false;
    return !r->bad;
}

bool ordo_json_skip(ordo_json *r)
{
    return skip(r, ORDO_JSON_DEPTH);
}

bool ordo_json_done(ordo_json *r)
{
    skip_blanks(r);
    return r->bad || r->at != r->end ? ordo_json_bad(r, "nothing more") : true;
}
