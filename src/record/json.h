/* json.h: one line of JSON in memory, read value by value.
 *
 * Every function returns false after an error, and `bad` stays set. Strings are decoded in place,
 * where they always fit: the text is the reader's to change. */
#ifndef RECORD_JSON_H
#define RECORD_JSON_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ordo_json {
    char *at, *end;
    bool bad;
} ordo_json;

/* Members of an object ('}') or elements of an array (']'):
 *
 *   for (bool first = true; ordo_json_next(j, '}', &first);) { key, value }
 *
 * False at the closing bracket and on an error. */
bool ordo_json_next(ordo_json *j, char closing, bool *first);

/* A string, decoded to UTF-8 and ended by a NUL, which it does not contain; a key takes the colon
 * as well. */
bool ordo_json_string(ordo_json *j, char **text);
bool ordo_json_key(ordo_json *j, char **text);

/* A whole number of 64 bits; a number, NaN if it has more than 15 digits or an exponent beyond what
 * base/decimal.h reads exactly, or null, which is NaN as well. */
bool ordo_json_int(ordo_json *j, int64_t *value);
bool ordo_json_real(ordo_json *j, double *value);

/* 16 hexadecimal digits as a string. */
bool ordo_json_digest(ordo_json *j, uint64_t *value);

/* Any value: its text without blanks between tokens, and its end. It is not ended by a NUL. */
bool ordo_json_raw(ordo_json *j, char **text, char **end);

/* Nothing but blanks follows. */
bool ordo_json_done(ordo_json *j);

#endif
