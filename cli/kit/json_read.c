/* json_read.c: a strict reader of JSON in memory, value by value. */
#include "kit/json_read.h"

#include "kit/json.h"
#include "kit/message.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cli_json_reader cli_json_reader_of(const char *text, size_t length)
{
    return (cli_json_reader) { .start = text, .at = text, .end = text + length };
}

bool cli_json_bad(cli_json_reader *r, const char *expected)
{
    if (!r->bad)
        snprintf(r->why, sizeof r->why, "byte %zu of the JSON: expected %.90s",
                 (size_t)(r->at - r->start), expected);
    r->bad = true;
    return false;
}

static void skip_blanks(cli_json_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* The character at hand; NUL at the end, which is no part of JSON either. */
static char peek(const cli_json_reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static bool take(cli_json_reader *r, char wanted, const char *name)
{
    skip_blanks(r);
    if (r->bad || peek(r) != wanted)
        return cli_json_bad(r, name);
    r->at++;
    return true;
}

bool cli_json_next(cli_json_reader *r, char closing, bool *first)
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

static bool read_hex(cli_json_reader *r, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char c = peek(r);
        if (!isxdigit((unsigned char)c))
            return cli_json_bad(r, "four hexadecimal digits");
        *value =
            *value * 16 +
            (uint32_t)(isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10);
    }
    return true;
}

/* What follows \u: one code point, perhaps as two halves. */
static bool read_code_point(cli_json_reader *r, uint32_t *code)
{
    uint32_t low;
    if (!read_hex(r, code))
        return false;
    if (*code >= 0xdc00 && *code < 0xe000)
        return cli_json_bad(r, "the first half of a pair before the second");
    if (*code < 0xd800 || *code >= 0xdc00)
        return true;
    if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
        return cli_json_bad(r, "the second half of a pair");
    r->at += 2;
    if (!read_hex(r, &low))
        return false;
    if (low < 0xdc00 || low >= 0xe000)
        return cli_json_bad(r, "the second half of a pair");
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
static bool read_character(cli_json_reader *r, char *to, size_t *length)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (*r->at != '\\') {
        char held[5] = { 0 };
        const size_t left = (size_t)(r->end - r->at);
        memcpy(held, r->at, left < 4 ? left : 4);
        *length = (size_t)cli_utf8_length((const unsigned char *)held);
        if (*length == 0 || (unsigned char)*r->at < 0x20)
            return cli_json_bad(r, "a printable character in UTF-8");
        memcpy(to, held, *length);
        r->at += *length;
        return true;
    }
    r->at++;
    const char c = peek(r);
    const char *letter = c ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    if (c != 'u' && letter == NULL)
        return cli_json_bad(r, "an escape");
    r->at++;
    if (c == 'u' && !read_code_point(r, &code))
        return false;
    *length = encode(c == 'u' ? code : (uint32_t)meanings[letter - letters], to);
    return true;
}

bool cli_json_string(cli_json_reader *r, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    if (!take(r, '"', "a string"))
        return false;
    while (peek(r) != '"') {
        char character[4];
        size_t length = 0;
        if (r->at >= r->end)
            return cli_json_bad(r, "the end of a string");
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

bool cli_json_key(cli_json_reader *r, char *text, size_t capacity)
{
    return cli_json_string(r, text, capacity) && take(r, ':', "a colon");
}

bool cli_json_count(cli_json_reader *r, int64_t *value)
{
    skip_blanks(r);
    if (r->bad || !isdigit((unsigned char)peek(r)))
        return cli_json_bad(r, "a whole number");
    if (*r->at == '0' && r->end - r->at > 1 && isdigit((unsigned char)r->at[1]))
        return cli_json_bad(r, "a number without leading zeros");
    *value = 0;
    for (; isdigit((unsigned char)peek(r)); r->at++) {
        const int digit = *r->at - '0';
        if (*value > (INT64_MAX - digit) / 10)
            return cli_json_bad(r, "a number below 2^63");
        *value = *value * 10 + digit;
    }
    return true;
}

char cli_json_peek(cli_json_reader *r)
{
    skip_blanks(r);
    return peek(r);
}

bool cli_json_number(cli_json_reader *r, double *value)
{
    char text[64];
    size_t length = 0;
    skip_blanks(r);
    const char *at = r->at;
    while (at < r->end && length + 1 < sizeof text && *at != '\0' &&
           strchr("+-.0123456789eE", *at) != NULL)
        text[length++] = *at++;
    text[length] = '\0';
    char *end = text;
    const double read = strtod(text, &end);
    /* strtod() takes more than JSON does: a leading plus or point, a trailing point. */
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (r->bad || length == 0 || *end != '\0' || !isdigit((unsigned char)digits[0]) ||
        !isdigit((unsigned char)text[length - 1]))
        return cli_json_bad(r, "a number");
    if (!isfinite(read)) {
        char said[sizeof text + 48];
        snprintf(said, sizeof said, "a number that a double holds, not %s", text);
        return cli_json_bad(r, said);
    }
    r->at = at;
    *value = read;
    return true;
}

static bool take_word(cli_json_reader *r, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

bool cli_json_flag(cli_json_reader *r, bool *value)
{
    skip_blanks(r);
    *value = !r->bad && take_word(r, "true");
    return *value || (!r->bad && take_word(r, "false")) ? true : cli_json_bad(r, "true or false");
}

/* Nesting is bounded by `depth`, so that no file can exhaust the stack. */
static bool skip(cli_json_reader *r, int depth)
{
    char text[8];
    double number;
    const char c = cli_json_peek(r);
    if (c == '"')
        return cli_json_string(r, text, sizeof text);
    if (c == '-' || isdigit((unsigned char)c))
        return cli_json_number(r, &number);
    if (c != '{' && c != '[')
        return take_word(r, "true") || take_word(r, "false") || take_word(r, "null")
                   ? true
                   : cli_json_bad(r, "a value");
    if (depth == 0)
        return cli_json_bad(r, "fewer levels");
    bool first = true;
    while (cli_json_next(r, c == '{' ? '}' : ']', &first))
        if ((c == '{' && !cli_json_key(r, text, sizeof text)) || !skip(r, depth - 1))
            return false;
    return !r->bad;
}

bool cli_json_skip(cli_json_reader *r)
{
    return skip(r, CLI_JSON_DEPTH);
}

bool cli_json_done(cli_json_reader *r)
{
    skip_blanks(r);
    return r->bad || r->at != r->end ? cli_json_bad(r, "nothing more") : true;
}

int cli_json_file(const char *path, size_t most, bool (*read)(cli_json_reader *, void *into),
                  void *into)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file)
        return cli_error(CLI_USAGE, "%s: %s", path, strerror(errno));
    char *text = malloc(most + 1);
    const size_t length = text ? fread(text, 1, most + 1, file) : 0;
    const bool failed = ferror(file) != 0;
    if (file != stdin)
        fclose(file);
    if (!text)
        return cli_out_of_memory();
    int status = CLI_OK;
    cli_json_reader reader = cli_json_reader_of(text, length);
    if (failed)
        status = cli_error(CLI_FAILED, "cannot read %s", path);
    else if (length > most)
        status = cli_usage("%s: more than %zu bytes", path, most);
    else if (!read(&reader, into))
        status = cli_usage("%s: %s", path, reader.why);
    free(text);
    return status;
}
