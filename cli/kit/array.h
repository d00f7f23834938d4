/* array.h: a tensor in a file: its type, its shape, and where its bytes are.
 *
 * The readers trust nothing: headers are bounded, products of sizes checked, and the bytes of
 * data must be there, all of them and no others. */
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
    CLI_ELEMENT_BITS16 /* 16 bits that the file does not explain: bf16 in .npy */
} cli_element;

enum { CLI_ARRAY_DIMS = 8 };

typedef struct cli_array {
    const char *path; /* borrowed; NULL: no such array */
    cli_element element;
    int dims;
    int64_t shape[CLI_ARRAY_DIMS];
    int64_t offset, bytes; /* of the data in the file */
} cli_array;

/* Header of a .npy file; prints its error and returns an exit status. */
int cli_npy_open(cli_array *array, const char *path);

/* The arrays of those names in a .safetensors file; path stays NULL where there is none. The
 * whole header is checked, other arrays included. */
int cli_safetensors_open(cli_array *arrays, const char *const *names, size_t count,
                         const char *path);

/* Read array->bytes bytes of data. */
int cli_array_read(const cli_array *array, void *data);

/* The same on bytes in memory, for tests: false with a reason. `file_bytes` is the size of the
 * file, `held` how much of its beginning is here. */
enum { CLI_WHY = 200, CLI_NPY_HEADER = 1 << 16 };
#define CLI_SAFETENSORS_HEADER (INT64_C(100) * 1000 * 1000) /* the format's own limit */
bool cli_npy_parse(cli_array *array, const unsigned char *data, size_t held, int64_t file_bytes,
                   char why[CLI_WHY]);
bool cli_safetensors_parse(cli_array *arrays, const char *const *names, size_t count,
                           const char *header, size_t length, int64_t file_bytes,
                           char why[CLI_WHY]);

/* Start a .npy file of this type and shape. */
void cli_npy_header(cli_file *file, cli_element element, int dims, const int64_t *shape);

/* ---- for the readers ---- */

/* Open a regular file and find its size; -1 after printing an error. */
int cli_array_file(const char *path, int64_t *bytes);

/* Exactly `count` bytes from `offset`: false with errno, which is 0 where the file ended. */
bool cli_array_bytes(int file, int64_t offset, void *data, size_t count);

/* Bytes of an array of this shape; false if they pass 2^62. */
bool cli_array_size(const int64_t *shape, int dims, int64_t width, int64_t *bytes);

#endif
