/* json_check.c: read standard input and exit 0 if it is one JSON value, else say where not.
 *
 * With arguments, print the values found under those keys of the outermost object, one a line. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text, *at;
static int wanted_count;
static char **wanted;

static void fail(const char *expected)
{
    fprintf(stderr, "byte %zu: expected %s, found '%.20s'\n", (size_t)(at - text), expected, at);
    exit(1);
}

static void blank(void)
{
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')
        at++;
}

static void string(void)
{
    if (*at++ != '"')
        fail("a string");
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20)
            fail("no control character");
        if (*at != '\\')
            continue;
        at++;
        if (*at == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++at))
                    fail("four hexadecimal digits");
        } else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
            fail("an escape");
        }
    }
    at++;
}

static void digits(void)
{
    if (!isdigit((unsigned char)*at))
        fail("a digit");
    while (isdigit((unsigned char)*at))
        at++;
}

static void number(void)
{
    at += *at == '-';
    if (*at == '0')
        at++;
    else
        digits();
    if (*at == '.') {
        at++;
        digits();
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        digits();
    }
}

static void value(int depth);

static void members(int depth, char close, int keys)
{
    at++;
    blank();
    if (*at == close) {
        at++;
        return;
    }
    for (;; at++) {
        const char *key = at + 1;
        size_t length = 0;
        blank();
        if (keys) {
            key = at + 1;
            string();
            length = (size_t)(at - key) - 1;
            blank();
            if (*at++ != ':')
                fail("a colon");
        }
        blank();
        const char *from = at;
        value(depth + 1);
        for (int i = 0; keys && depth == 0 && i < wanted_count; i++)
            if (strlen(wanted[i]) == length && memcmp(wanted[i], key, length) == 0)
                printf("%.*s\n", (int)(at - from), from);
        blank();
        if (*at == close)
            break;
        if (*at != ',')
            fail("a comma");
    }
    at++;
}

static void value(int depth)
{
    static const char *const words[] = { "true", "false", "null" };
    if (depth > 64)
        fail("less depth");
    if (*at == '{' || *at == '[') {
        members(depth, *at == '{' ? '}' : ']', *at == '{');
        return;
    }
    if (*at == '"') {
        string();
        return;
    }
    for (int i = 0; i < 3; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            at += strlen(words[i]);
            return;
        }
    number();
}

int main(int argc, char **argv)
{
    size_t size = 0, capacity = 1 << 16;
    wanted = argv + 1;
    wanted_count = argc - 1;
    text = malloc(capacity + 1);
    for (size_t got; text && (got = fread(text + size, 1, capacity - size, stdin)) > 0;) {
        size += got;
        if (size == capacity)
            text = realloc(text, (capacity *= 2) + 1);
    }
    if (text == NULL)
        return 2;
    text[size] = '\0';
    at = text;
    blank();
    value(0);
    blank();
    if (at != text + size)
        fail("the end");
    free(text);
    return 0;
}
