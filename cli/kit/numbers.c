/* numbers.c: numbers as people type them, read strictly. */
#include "kit/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Digits only: strtoll alone would take blanks and a sign. */
static bool read_digits(const char **text, uint64_t limit, uint64_t *value)
{
    const char *s = *text;
    uint64_t v = 0;
    if (!isdigit((unsigned char)*s))
        return false;
    for (; isdigit((unsigned char)*s); s++) {
        const unsigned digit = (unsigned)(*s - '0');
        if (v > (limit - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *text = s;
    *value = v;
    return true;
}

/* A size that ends where `text` then points. */
static bool read_size_part(const char **text, int64_t *value)
{
    const char *s = *text;
    const bool negative = *s == '-';
    uint64_t v;
    s += negative;
    if (!read_digits(&s, INT64_MAX, &v))
        return false;
    const int suffix = tolower((unsigned char)*s);
    const int shift = suffix == 'k' ? 10 : suffix == 'm' ? 20 : 0;
    if (v > (uint64_t)INT64_MAX >> shift)
        return false;
    v <<= shift;
    *text = s + (shift > 0);
    *value = negative ? -(int64_t)v : (int64_t)v;
    return true;
}

bool cli_read_size(const char *text, int64_t low, int64_t high, int64_t *value)
{
    int64_t v;
    if (!read_size_part(&text, &v) || *text != '\0' || v < low || v > high)
        return false;
    *value = v;
    return true;
}

bool cli_read_list(const char *text, int64_t low, int64_t high, cli_list *list)
{
    size_t capacity = 1, count = 0;
    for (const char *s = text; *s; s++)
        capacity += *s == ',';
    int64_t *values = malloc(capacity * sizeof *values);
    bool good = values != NULL;
    while (good) {
        good =
            read_size_part(&text, &values[count]) && values[count] >= low && values[count] <= high;
        count++;
        if (*text != ',')
            break;
        text++;
    }
    if (!good || *text != '\0') {
        free(values);
        return false;
    }
    *list = (cli_list) { values, count };
    return true;
}

bool cli_list_of(cli_list *list, int64_t value)
{
    cli_list_free(list);
    list->values = malloc(sizeof *list->values);
    if (list->values == NULL)
        return false;
    list->values[0] = value;
    list->count = 1;
    return true;
}

void cli_list_free(cli_list *list)
{
    free(list->values);
    *list = (cli_list) { 0 };
}

bool cli_read_u64(const char *text, uint64_t *value)
{
    uint64_t v;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        char *end;
        if (!isxdigit((unsigned char)text[2]))
            return false;
        errno = 0;
        v = strtoull(text, &end, 16);
        if (errno != 0 || *end != '\0')
            return false;
    } else if (!read_digits(&text, UINT64_MAX, &v) || *text != '\0') {
        return false;
    }
    *value = v;
    return true;
}

bool cli_read_real(const char *text, double *value)
{
    char *end;
    if (isspace((unsigned char)*text))
        return false;
    errno = 0;
    const double v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v) || errno == ERANGE)
        return false;
    *value = v;
    return true;
}

bool cli_read_pair(const char *text, char between, int64_t low, int64_t high, int64_t *first,
                   int64_t *second)
{
    int64_t a, b;
    if (!read_size_part(&text, &a) || *text != between)
        return false;
    text++;
    if (!cli_read_size(text, low, high, &b) || a < low || a > high)
        return false;
    *first = a;
    *second = b;
    return true;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool cli_read_ratio(const char *text, int64_t *numerator, int64_t *denominator)
{
    enum { LIMIT = 1000000000 };
    uint64_t top, bottom = 1;
    if (!read_digits(&text, LIMIT, &top))
        return false;
    if (*text == '/') {
        text++;
        if (!read_digits(&text, LIMIT, &bottom))
            return false;
    } else if (*text == '.') {
        if (!isdigit((unsigned char)*++text))
            return false;
        for (; isdigit((unsigned char)*text); text++) {
            if (top > LIMIT || bottom > LIMIT)
                return false;
            top = top * 10 + (unsigned)(*text - '0');
            bottom *= 10;
        }
    }
    if (*text != '\0' || top == 0 || bottom == 0)
        return false;
    const uint64_t common = common_divisor(top, bottom);
    *numerator = (int64_t)(top / common);
    *denominator = (int64_t)(bottom / common);
    return true;
}
