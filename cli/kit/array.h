/* array.h: a tensor in a file: its type, its shape, and the place of its bytes.
 *
 * The readers accept nothing unchecked: headers have a size limit, products of sizes may not
 * overflow, and the file must hold exactly the bytes that the header announces. */
#ifndef CLI_ARRAY_H
#define CLI_ARRAY_H

#include "kit/output.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_element {
    CLI_ELEMENT_F32,
    CLI_ELEMENT_BF16,
    CLI_ELEMENT_F16,
    CLI_ELEMENT_BITS16, /* 16 bits of unknown meaning: bf16 in .npy */
    CLI_ELEMENT_BOOL    /* in .npy only */
} cli_element;

/* Bytes of an element in a file. */
static inline int64_t cli_element_bytes(cli_element element)
{
    return element == CLI_ELEMENT_F32 ? 4 : element == CLI_ELEMENT_BOOL ? 1 : 2;
}

enum { CLI_ARRAY_DIMS = 8 };

typedef struct cli_array {
    const char *path; /* borrowed; NULL: no such array */
    cli_element element;
    int dims;
    int64_t shape[CLI_ARRAY_DIMS];
    int64_t offset, bytes; /* place and size of the data in the file */
} cli_array;

/* Read the header of a .npy file. Like the next two, prints its error and returns an exit status.
 */
int cli_npy_open(cli_array *array, const char *path);

/* A text in the metadata of a .safetensors file. */
typedef struct cli_metadata {
    const char *name;
    char *text; /* NULL: no such text; free() releases it */
} cli_metadata;

/* Find the named arrays in a .safetensors file; `path` of one that is not there stays NULL. The
 * whole header is checked, other arrays included; the name of the last one of these goes to
 * `other`, unless it is NULL. Of the `texts` in its metadata the names are given; NULL: none. */
enum { CLI_ARRAY_NAME = 64 }; /* longer ones are truncated, and none that are looked for */
int cli_safetensors_open(cli_array *arrays, const char *const *names, size_t count,
                         char other[CLI_ARRAY_NAME], cli_metadata *texts, size_t text_count,
                         const char *path);

/* An array to be written. */
typedef struct cli_saved {
    const char *name;
    cli_element element;
    int dims;
    int64_t shape[CLI_ARRAY_DIMS];
    const void *data;
    int64_t bytes;
} cli_saved;

/* Write a .safetensors file, whole or not at all. */
int cli_safetensors_write(const char *path, const cli_saved *arrays, size_t count,
                          const cli_metadata *texts, size_t text_count);

/* Read the array->bytes bytes of data into `data`. */
int cli_array_read(const cli_array *array, void *data);

/* Parse a header in memory; returns false and a reason if it is invalid. `file_bytes` is the size
 * of the file, and `held` bytes of its beginning are in `data`. */
enum { CLI_WHY = 200, CLI_NPY_HEADER = 1 << 16 };
#define CLI_SAFETENSORS_HEADER (INT64_C(100) * 1000 * 1000) /* the format's own limit */
bool cli_npy_parse(cli_array *array, const unsigned char *data, size_t held, int64_t file_bytes,
                   char why[CLI_WHY]);
bool cli_safetensors_parse(cli_array *arrays, const char *const *names, size_t count,
                           char other[CLI_ARRAY_NAME], cli_metadata *texts, size_t text_count,
                           const char *header, size_t length, int64_t file_bytes,
                           char why[CLI_WHY]);

/* Write the header of a .npy file of this type and shape. */
void cli_npy_header(cli_file *file, cli_element element, int dims, const int64_t *shape);

/* ---- for the readers ---- */

/* Open a regular file and find its size. Returns a descriptor, or -1 after printing an error. */
int cli_array_file(const char *path, int64_t *bytes);

/* Read exactly `count` bytes from `offset`. Returns false with errno set: 0 if the file ended. */
bool cli_array_bytes(int file, int64_t offset, void *data, size_t count);

/* Compute the bytes of an array of this shape. Returns false if they exceed 2^62. */
bool cli_array_size(const int64_t *shape, int dims, int64_t width, int64_t *bytes);

#endif
