/* json_read.h: JSON from files, and its numbers, by the reader of base/json.h. */
#ifndef CLI_JSON_READ_H
#define CLI_JSON_READ_H

#include "base/json.h"

/* A number that a double holds. */
bool cli_json_number(ordo_json *reader, double *value);

/* Read a file of at most `most` bytes, "-" for standard input, by `read`, which gets `into` and
 * returns false if the document is not what it expects. Prints why and returns an exit status if
 * that fails. */
int cli_json_file(const char *path, size_t most, bool (*read)(ordo_json *, void *into), void *into);

#endif
