/* npy.c: NumPy's file format: a magic number, a Python dictionary as text, the elements.
 *
 *   \x93NUMPY, version (2 bytes), length of the text (2 bytes; 4 from version 2), little endian
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (1, 128, 8, 64), }      \n */
#define _XOPEN_SOURCE 700
#include "kit/array.h"

#include "kit/message.h"
#include "kit/output.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct reader {
    const char *at, *end;
    char *why;
} reader;

static bool bad(const reader *r, const char *format, ...) CLI_PRINTF(2, 3);

static bool bad(const reader *r, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(r->why, CLI_WHY, format, values);
    va_end(values);
    return false;
}

static char peek(reader *r)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

static bool take(reader *r, char wanted)
{
    if (peek(r) != wanted)
        return bad(r, "its header is no dictionary: expected '%c'", wanted);
    r->at++;
    return true;
}

static bool read_string(reader *r, char *text, size_t capacity)
{
    const char quote = peek(r);
    size_t used = 0;
    if (quote != '\'' && quote != '"')
        return bad(r, "its header is no dictionary: expected a string");
    for (r->at++; r->at < r->end && *r->at != quote; r->at++) {
        if (*r->at < ' ' || *r->at > '~' || *r->at == '\\' || used + 1 >= capacity)
            return bad(r, "its header is no dictionary: a string too long or strange");
        text[used++] = *r->at;
    }
    text[used] = '\0';
    return take(r, quote);
}

static bool read_word(reader *r, const char *word)
{
    const size_t length = strlen(word);
    (void)peek(r);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return false;
    r->at += length;
    return true;
}

static bool read_descr(reader *r, cli_array *array)
{
    char descr[32] = "";
    if (peek(r) == '[')
        return bad(r, "descr is a list: expected plain numbers, not records");
    if (!read_string(r, descr, sizeof descr))
        return false;
    if (descr[0] == '>')
        return bad(r, "descr '%s': big-endian; expected little-endian, '<'", descr);
    const char *type = descr[0] == '<' || descr[0] == '=' || descr[0] == '|' ? descr + 1 : descr;
    if (strcmp(type, "f4") == 0)
        array->element = CLI_ELEMENT_F32;
    else if (strcmp(type, "f2") == 0)
        array->element = CLI_ELEMENT_F16;
    else if (strcmp(type, "u2") == 0 || strcmp(type, "V2") == 0)
        array->element = CLI_ELEMENT_BITS16;
    else if (strcmp(type, "b1") == 0)
        array->element = CLI_ELEMENT_BOOL;
    else
        return bad(r, "descr '%s': expected '<f4', '<f2', '<u2' for bf16, or '|b1'", descr);
    return true;
}

static bool read_order(reader *r)
{
    if (read_word(r, "False"))
        return true;
    if (read_word(r, "True"))
        return bad(r, "fortran_order True: expected C order; numpy.ascontiguousarray() makes it");
    return bad(r, "fortran_order: expected True or False");
}

static bool read_shape(reader *r, cli_array *array)
{
    if (!take(r, '('))
        return false;
    for (array->dims = 0; peek(r) != ')'; array->dims++) {
        int64_t size = 0;
        if (array->dims == CLI_ARRAY_DIMS)
            return bad(r, "shape: more than %d dimensions", CLI_ARRAY_DIMS);
        if (!isdigit((unsigned char)peek(r)))
            return bad(r, "shape: expected whole numbers");
        for (; r->at < r->end && isdigit((unsigned char)*r->at); r->at++)
            if (__builtin_mul_overflow(size, 10, &size) ||
                __builtin_add_overflow(size, *r->at - '0', &size))
                return bad(r, "shape: a number past 2^63");
        array->shape[array->dims] = size;
        if (peek(r) != ')' && !take(r, ','))
            return false;
    }
    return take(r, ')');
}

static bool read_dictionary(reader *r, cli_array *array)
{
    static const char *const names[] = { "descr", "fortran_order", "shape" };
    bool seen[3] = { false };
    if (!take(r, '{'))
        return false;
    while (peek(r) != '}') {
        char key[32] = "";
        int which = 0;
        if (!read_string(r, key, sizeof key) || !take(r, ':'))
            return false;
        while (which < 3 && strcmp(key, names[which]) != 0)
            which++;
        if (which == 3 || seen[which])
            return bad(r, "its header has %s '%s'", which == 3 ? "an unknown key" : "twice", key);
        seen[which] = true;
        if (!(which == 0   ? read_descr(r, array)
              : which == 1 ? read_order(r)
                           : read_shape(r, array)))
            return false;
        if (peek(r) != '}' && !take(r, ','))
            return false;
    }
    for (int i = 0; i < 3; i++)
        if (!seen[i])
            return bad(r, "its header lacks '%s'", names[i]);
    if (!take(r, '}'))
        return false;
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n'))
        r->at++;
    return r->at == r->end || bad(r, "its header goes on after the dictionary");
}

/* The data fill the rest of the file. */
static bool check_data(const reader *r, cli_array *array, int64_t file_bytes)
{
    const int64_t there = file_bytes - array->offset;
    const int64_t width = cli_element_bytes(array->element);
    if (!cli_array_size(array->shape, array->dims, width, &array->bytes))
        return bad(r, "shape: more than 2^62 bytes");
    if (there != array->bytes)
        return bad(r, "%s: %" PRId64 " bytes of data, and its shape asks for %" PRId64,
                   there < array->bytes ? "truncated" : "too long", there, array->bytes);
    return true;
}

bool cli_npy_parse(cli_array *array, const unsigned char *data, size_t held, int64_t file_bytes,
                   char why[CLI_WHY])
{
    reader r = { .why = why };
    if (held < 10 || memcmp(data, "\x93NUMPY", 6) != 0)
        return bad(&r, "not a .npy file: no magic number at its start");
    const int version = data[6];
    if (version < 1 || version > 3 || data[7] != 0)
        return bad(&r, "version %d.%d: expected 1.0 to 3.0", version, data[7]);
    const size_t start = version == 1 ? 10 : 12;
    size_t length = data[8] | (size_t)data[9] << 8;
    if (start > held)
        return bad(&r, "truncated: no room for a header");
    if (version > 1)
        length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > CLI_NPY_HEADER)
        return bad(&r, "a header of %zu bytes: expected at most %d", length, CLI_NPY_HEADER);
    if (length > held - start)
        return bad(&r, "truncated: a header of %zu bytes, and %zu left", length, held - start);
    r.at = (const char *)data + start;
    r.end = r.at + length;
    array->offset = (int64_t)(start + length);
    return read_dictionary(&r, array) && check_data(&r, array, file_bytes);
}

int cli_npy_open(cli_array *array, const char *path)
{
    char why[CLI_WHY];
    int64_t bytes = 0;
    const int file = cli_array_file(path, &bytes);
    if (file < 0)
        return CLI_USAGE;
    const size_t most = CLI_NPY_HEADER + 12;
    const size_t held = bytes < (int64_t)most ? (size_t)bytes : most;
    unsigned char *data = malloc(most);
    int status = CLI_OK;
    *array = (cli_array) { .path = path };
    if (data == NULL)
        status = cli_out_of_memory();
    else if (!cli_array_bytes(file, 0, data, held))
        status = cli_error(CLI_USAGE, "cannot read %s: %s", path,
                           errno ? strerror(errno) : "the file ends too early");
    else if (!cli_npy_parse(array, data, held, bytes, why))
        status = cli_error(CLI_USAGE, "%s: %s", path, why);
    free(data);
    close(file);
    return status;
}

void cli_npy_header(cli_file *file, cli_element element, int dims, const int64_t *shape)
{
    char text[512];
    int used = snprintf(text, sizeof text, "{'descr': '<%s', 'fortran_order': False, 'shape': (",
                        element == CLI_ELEMENT_F32   ? "f4"
                        : element == CLI_ELEMENT_F16 ? "f2"
                                                     : "u2");
    for (int i = 0; i < dims; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%" PRId64 "%s", shape[i],
                         i + 1 < dims || dims == 1 ? ", " : "");
    used += snprintf(text + used, sizeof text - (size_t)used, "), }");
    const int length = (10 + used + 1 + 63) / 64 * 64 - 10; /* the data start at a multiple of 64 */
    fwrite("\x93NUMPY\x01\x00", 1, 8, file->stream);
    putc(length & 0xff, file->stream);
    putc(length >> 8, file->stream);
    fprintf(file->stream, "%-*s\n", length - 1, text);
}
