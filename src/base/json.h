/* json.h: a strict reader of JSON in memory, value by value. The library reads records with it, the
 * command its files: src/base/json.c is compiled into both.
 *
 * Every function returns false after an error, and `why` then says what was wrong and where. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORDO_JSON_DEPTH = 32 }; /* objects and arrays inside one another that a value may have */

typedef struct ordo_json {
    const char *start, *at, *end;
    bool bad;
    char why[128];
} ordo_json;

ordo_json ordo_json_of(const char *text, size_t length);

/* Members of an object, or elements of an array with ']':
 *
 *   for (bool first = true; ordo_json_next(j, '}', &first);) { key, value }
 *
 * The first call reads the opening bracket. False at the closing bracket and on an error; `bad`
 * tells which. */
bool ordo_json_next(ordo_json *json, char closing, bool *first);

/* A string, decoded to UTF-8 and ended by a NUL, which it does not contain; what does not fit into
 * the capacity is left out. `text` may be the reader's place, json->at: decoded text is shorter. */
bool ordo_json_string(ordo_json *json, char *text, size_t capacity);
bool ordo_json_key(ordo_json *json, char *text, size_t capacity); /* and its colon */

/* A whole number of 64 bits; one from 0 on. */
bool ordo_json_int(ordo_json *json, int64_t *value);
bool ordo_json_count(ordo_json *json, int64_t *value);

/* A number: its text, which ends at json->at. */
bool ordo_json_number(ordo_json *json, const char **text);

/* True or false; any value, skipped. */
bool ordo_json_flag(ordo_json *json, bool *value);
bool ordo_json_skip(ordo_json *json);

/* The first character of the value at hand, blanks skipped; NUL at the end. */
char ordo_json_peek(ordo_json *json);

/* Nothing but blanks follows. */
bool ordo_json_done(ordo_json *json);

/* Record an error of the caller's at this place; returns false. */
bool ordo_json_bad(ordo_json *json, const char *expected);

/* Length of the UTF-8 sequence at s, which ends with a NUL somewhere; 0 if there is none. */
int ordo_utf8_length(const unsigned char *s);

#endif
