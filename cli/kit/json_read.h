/* json_read.h: a strict reader of JSON in memory, value by value.
 *
 * Every function returns false after an error, and `why` then says what was wrong and where. */
#ifndef CLI_JSON_READ_H
#define CLI_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cli_json_reader {
    const char *start, *at, *end;
    bool bad;
    char why[128];
} cli_json_reader;

cli_json_reader cli_json_reader_of(const char *text, size_t length);

/* Members of an object, or elements of an array with ']':
 *
 *   bool first = true;
 *   while (next(r, '}', &first)) { key(r, ...); value... }
 *
 * The first call reads the opening bracket. next() is false at the closing bracket and on an error;
 * `bad` tells which. */
bool cli_json_next(cli_json_reader *reader, char closing, bool *first);

/* A string, decoded to UTF-8 and terminated; it is truncated to the capacity. */
bool cli_json_string(cli_json_reader *reader, char *text, size_t capacity);
bool cli_json_key(cli_json_reader *reader, char *text, size_t capacity); /* and its colon */

/* A whole number from 0 to 2^63 - 1. */
bool cli_json_count(cli_json_reader *reader, int64_t *value);

/* A number; true or false; any value, skipped. */
bool cli_json_number(cli_json_reader *reader, double *value);
bool cli_json_flag(cli_json_reader *reader, bool *value);
bool cli_json_skip(cli_json_reader *reader);

/* The first character of the value at hand, blanks skipped; NUL at the end. */
char cli_json_peek(cli_json_reader *reader);

/* Nothing but blanks follows. */
bool cli_json_done(cli_json_reader *reader);

/* Read a file of at most `most` bytes, "-" for standard input, by `read`, which gets `into` and
 * returns false if the document is not what it expects. Prints why and returns an exit status if
 * that fails. */
int cli_json_file(const char *path, size_t most, bool (*read)(cli_json_reader *, void *into),
                  void *into);

/* Record an error of the caller's at this place; returns false. */
bool cli_json_bad(cli_json_reader *reader, const char *expected);

#endif
