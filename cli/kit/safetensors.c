/* safetensors.c: .safetensors files: their header read and checked, and whole files written.
 *
 *   length of the header (8 bytes, little endian), the header, the data
 *   {"q": {"dtype": "BF16", "shape": [1, 128, 8, 64], "data_offsets": [0, 131072]}, ...}
 *
 * Offsets count from the start of the data. The arrays lie end to end, in any order, and fill
 * the file: the format allows neither holes nor overlaps. */
#define _XOPEN_SOURCE 700
#include "kit/array.h"

#include "kit/json.h"
#include "kit/json_read.h"
#include "kit/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct entry {
    char name[CLI_ARRAY_NAME];
    char dtype[16];
    int dims;
    int64_t shape[CLI_ARRAY_DIMS];
    int64_t begin, end;
} entry;

typedef struct range {
    int64_t begin, end;
} range;

typedef struct ranges {
    range *all;
    size_t count, capacity;
} ranges;

static const struct {
    const char *name;
    int64_t width;
    int element; /* a cli_element, or -1 */
} types[] = {
    { "F32", 4, CLI_ELEMENT_F32 },
    { "F16", 2, CLI_ELEMENT_F16 },
    { "BF16", 2, CLI_ELEMENT_BF16 },
    { "F64", 8, -1 },
    { "I64", 8, -1 },
    { "U64", 8, -1 },
    { "I32", 4, -1 },
    { "U32", 4, -1 },
    { "I16", 2, -1 },
    { "U16", 2, -1 },
    { "I8", 1, -1 },
    { "U8", 1, -1 },
    { "BOOL", 1, -1 },
};
enum { TYPES = sizeof types / sizeof types[0] };

/* A requested text. */
static bool take_text(ordo_json *r, cli_metadata *to)
{
    const size_t capacity = (size_t)(r->end - r->at) + 1;
    if (to->text)
        return ordo_json_bad(r, "no second text of the same name before this");
    char *text = malloc(capacity);
    if (text == NULL)
        return ordo_json_bad(r, "more memory");
    const bool good = ordo_json_string(r, text, capacity);
    to->text = good ? realloc(text, strlen(text) + 1) : NULL;
    if (to->text == NULL)
        free(text);
    return good && (to->text || ordo_json_bad(r, "more memory"));
}

/* {"any": "text", ...} */
static bool read_metadata(ordo_json *r, cli_metadata *texts, size_t count)
{
    char key[64], text[16];
    bool first = true;
    while (ordo_json_next(r, '}', &first)) {
        size_t x = 0;
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        while (x < count && strcmp(texts[x].name, key) != 0)
            x++;
        if (!(x < count ? take_text(r, &texts[x]) : ordo_json_string(r, text, sizeof text)))
            return false;
    }
    return !r->bad;
}

static bool read_shape(ordo_json *r, entry *e)
{
    bool first = true;
    while (ordo_json_next(r, ']', &first)) {
        if (e->dims == CLI_ARRAY_DIMS)
            return ordo_json_bad(r, "at most 8 dimensions");
        if (!ordo_json_count(r, &e->shape[e->dims++]))
            return false;
    }
    return !r->bad;
}

static bool read_offsets(ordo_json *r, entry *e)
{
    int64_t offsets[2] = { 0 };
    int count = 0;
    bool first = true;
    while (ordo_json_next(r, ']', &first)) {
        if (count == 2)
            return ordo_json_bad(r, "two offsets");
        if (!ordo_json_count(r, &offsets[count++]))
            return false;
    }
    e->begin = offsets[0];
    e->end = offsets[1];
    return count == 2 && !r->bad ? true : ordo_json_bad(r, "two offsets");
}

static bool read_entry(ordo_json *r, entry *e)
{
    static const char *const keys[] = { "dtype", "shape", "data_offsets" };
    bool seen[3] = { false }, first = true;
    while (ordo_json_next(r, '}', &first)) {
        char key[16];
        int which = 0;
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        while (which < 3 && strcmp(key, keys[which]) != 0)
            which++;
        if (which == 3 || seen[which])
            return ordo_json_bad(r, "dtype, shape and data_offsets, each once");
        seen[which] = true;
        if (!(which == 0   ? ordo_json_string(r, e->dtype, sizeof e->dtype)
              : which == 1 ? read_shape(r, e)
                           : read_offsets(r, e)))
            return false;
    }
    if (!r->bad && !(seen[0] && seen[1] && seen[2]))
        return ordo_json_bad(r, "dtype, shape and data_offsets before this");
    return !r->bad;
}

static bool entry_fits(ordo_json *r, const entry *e, int64_t data_bytes, int *type)
{
    int64_t bytes;
    if (e->begin > e->end || e->end > data_bytes)
        return ordo_json_bad(r, "offsets inside the data before this");
    for (*type = 0; *type < TYPES && strcmp(types[*type].name, e->dtype) != 0;)
        ++*type;
    if (*type == TYPES) /* a type younger than this reader: no array of ours */
        return true;
    if (!cli_array_size(e->shape, e->dims, types[*type].width, &bytes))
        return ordo_json_bad(r, "a shape of less than 2^62 bytes before this");
    if (bytes != e->end - e->begin)
        return ordo_json_bad(r, "offsets that fit the shape before this");
    return true;
}

static bool add_range(ranges *list, const entry *e)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        range *all = realloc(list->all, capacity * sizeof *all);
        if (all == NULL)
            return false;
        list->all = all;
        list->capacity = capacity;
    }
    list->all[list->count++] = (range) { e->begin, e->end };
    return true;
}

/* `path` marks the array as found: its name for now, the file's path in the end. */
static bool take_entry(ordo_json *r, const entry *e, int type, const char *name, cli_array *array)
{
    if (array->path)
        return ordo_json_bad(r, "no second array of the same name before this");
    if (type == TYPES || types[type].element < 0) {
        char expected[128];
        snprintf(expected, sizeof expected, "%s as F32, F16 or BF16 before this, not %s", e->name,
                 e->dtype);
        return ordo_json_bad(r, expected);
    }
    array->path = name;
    array->element = (cli_element)types[type].element;
    array->dims = e->dims;
    memcpy(array->shape, e->shape, sizeof array->shape);
    array->offset = e->begin;
    array->bytes = e->end - e->begin;
    return true;
}

static bool read_header(ordo_json *r, cli_array *arrays, const char *const *names, size_t count,
                        char other[CLI_ARRAY_NAME], cli_metadata *texts, size_t text_count,
                        int64_t data_bytes, ranges *list)
{
    bool first = true;
    while (ordo_json_next(r, '}', &first)) {
        entry e = { .dims = 0 };
        int type = TYPES;
        if (!ordo_json_key(r, e.name, sizeof e.name))
            return false;
        if (strcmp(e.name, "__metadata__") == 0) {
            if (!read_metadata(r, texts, text_count))
                return false;
            continue;
        }
        if (!read_entry(r, &e) || !entry_fits(r, &e, data_bytes, &type))
            return false;
        size_t which = 0;
        while (which < count && strcmp(e.name, names[which]) != 0)
            which++;
        if (which < count && !take_entry(r, &e, type, names[which], &arrays[which]))
            return false;
        if (which == count && other)
            memcpy(other, e.name, sizeof e.name);
        if (!add_range(list, &e))
            return ordo_json_bad(r, "more memory");
    }
    return ordo_json_done(r);
}

static int by_begin(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static bool check_ranges(const ranges *list, int64_t data_bytes, char why[CLI_WHY])
{
    int64_t end = 0;
    if (list->count > 0)
        qsort(list->all, list->count, sizeof *list->all, by_begin);
    for (size_t i = 0; i < list->count; i++) {
        if (list->all[i].begin != end) {
            snprintf(why, CLI_WHY, "data_offsets %" PRId64 " after %" PRId64 ": a hole or overlap",
                     list->all[i].begin, end);
            return false;
        }
        end = list->all[i].end;
    }
    if (end == data_bytes)
        return true;
    snprintf(why, CLI_WHY, "%" PRId64 " bytes of data, and its arrays take %" PRId64, data_bytes,
             end);
    return false;
}

bool cli_safetensors_parse(cli_array *arrays, const char *const *names, size_t count,
                           char other[CLI_ARRAY_NAME], cli_metadata *texts, size_t text_count,
                           const char *header, size_t length, int64_t file_bytes, char why[CLI_WHY])
{
    ordo_json r = ordo_json_of(header, length);
    ranges list = { 0 };
    const int64_t start = 8 + (int64_t)length, data_bytes = file_bytes - start;
    bool good = length > 0 && header[0] == '{';
    if (!good)
        snprintf(why, CLI_WHY, "not a .safetensors file: its header does not start with {");
    else if (!(good = read_header(&r, arrays, names, count, other, texts, text_count, data_bytes,
                                  &list)))
        snprintf(why, CLI_WHY, "%s", r.why);
    else
        good = check_ranges(&list, data_bytes, why);
    for (size_t i = 0; good && i < count; i++)
        arrays[i].offset += start;
    free(list.all);
    return good;
}

/* The header's text in memory; NULL with a reason. */
static char *read_text(int file, int64_t bytes, size_t *length, char why[CLI_WHY])
{
    unsigned char size[8];
    uint64_t count = 0;
    if (bytes < 8 || !cli_array_bytes(file, 0, size, 8)) {
        snprintf(why, CLI_WHY, "not a .safetensors file: shorter than 8 bytes");
        return NULL;
    }
    for (int i = 8; i-- > 0;)
        count = count << 8 | size[i];
    if (count > CLI_SAFETENSORS_HEADER || count > (uint64_t)(bytes - 8)) {
        snprintf(why, CLI_WHY, "a header of %" PRIu64 " bytes in a file of %" PRId64, count, bytes);
        return NULL;
    }
    char *text = malloc((size_t)count + 1);
    if (text == NULL || !cli_array_bytes(file, 8, text, (size_t)count)) {
        snprintf(why, CLI_WHY, "%s", text == NULL ? "out of memory" : "the file ends too early");
        free(text);
        return NULL;
    }
    *length = (size_t)count;
    return text;
}

int cli_safetensors_open(cli_array *arrays, const char *const *names, size_t count,
                         char other[CLI_ARRAY_NAME], cli_metadata *texts, size_t text_count,
                         const char *path)
{
    char why[CLI_WHY];
    int64_t bytes = 0;
    size_t length = 0;
    const int file = cli_array_file(path, &bytes);
    if (file < 0)
        return CLI_USAGE;
    memset(arrays, 0, count * sizeof *arrays);
    char *text = read_text(file, bytes, &length, why);
    const bool good = text && cli_safetensors_parse(arrays, names, count, other, texts, text_count,
                                                    text, length, bytes, why);
    for (size_t i = 0; i < count; i++)
        arrays[i].path = good && arrays[i].path ? path : NULL;
    free(text);
    close(file);
    return good ? CLI_OK : cli_error(CLI_USAGE, "%s: %s", path, why);
}

static const char *type_name(cli_element element)
{
    for (int x = 0; x < TYPES; x++)
        if (types[x].element == (int)element)
            return types[x].name;
    return "BF16"; /* 16 bits */
}

/* The header as text, padded to a multiple of 8 bytes; NULL if memory ran out. */
static char *header_text(const cli_saved *arrays, size_t count, const cli_metadata *texts,
                         size_t text_count, size_t *length)
{
    char *text = NULL;
    cli_json json = { .out = open_memstream(&text, length) };
    int64_t at = 0;
    if (json.out == NULL)
        return NULL;
    cli_json_object(&json, NULL);
    json.compact = json.depth;
    cli_json_object(&json, "__metadata__");
    for (size_t i = 0; i < text_count; i++)
        cli_json_text(&json, texts[i].name, texts[i].text);
    cli_json_end_object(&json);
    for (size_t i = 0; i < count; i++) {
        cli_json_object(&json, arrays[i].name);
        cli_json_text(&json, "dtype", type_name(arrays[i].element));
        cli_json_array(&json, "shape");
        for (int x = 0; x < arrays[i].dims; x++)
            cli_json_int(&json, NULL, arrays[i].shape[x]);
        cli_json_end_array(&json);
        cli_json_array(&json, "data_offsets");
        cli_json_int(&json, NULL, at);
        cli_json_int(&json, NULL, at += arrays[i].bytes);
        cli_json_end_array(&json);
        cli_json_end_object(&json);
    }
    cli_json_end_object(&json);
    for (long x = ftell(json.out); x % 8 != 0; x++)
        fputc(' ', json.out);
    const bool bad = ferror(json.out) != 0;
    if (fclose(json.out) != 0 || bad) {
        free(text);
        return NULL;
    }
    return text;
}

int cli_safetensors_write(const char *path, const cli_saved *arrays, size_t count,
                          const cli_metadata *texts, size_t text_count)
{
    cli_file file;
    size_t length = 0;
    char *header = header_text(arrays, count, texts, text_count, &length);
    if (header == NULL)
        return cli_out_of_memory();
    int status = cli_file_open(&file, path);
    if (status == CLI_OK) {
        for (int i = 0; i < 8; i++)
            fputc((int)((uint64_t)length >> 8 * i & 255), file.stream);
        fwrite(header, 1, length, file.stream);
        for (size_t i = 0; i < count; i++)
            fwrite(arrays[i].data, 1, (size_t)arrays[i].bytes, file.stream);
        status = cli_file_commit(&file);
    }
    free(header);
    return status;
}
