/* json.h: a writer of JSON. Keys are NULL inside arrays. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_JSON_DEPTH = 16 };

typedef struct cli_json {
    FILE *out;
    int depth;
    bool filled[CLI_JSON_DEPTH + 1]; /* something stands in this object or array already */
    int compact;                     /* no line breaks from this depth on; 0 = at none */
} cli_json;

/* An object or array stays on one line if json->compact = json->depth is set after it is opened. */
void cli_json_object(cli_json *json, const char *key);
void cli_json_array(cli_json *json, const char *key);
void cli_json_end_object(cli_json *json);
void cli_json_end_array(cli_json *json);

void cli_json_text(cli_json *json, const char *key, const char *value); /* NULL gives null */
void cli_json_int(cli_json *json, const char *key, int64_t value);
void cli_json_uint(cli_json *json, const char *key, uint64_t value);
void cli_json_real(cli_json *json, const char *key, double value); /* NaN, infinities: null */
void cli_json_bool(cli_json *json, const char *key, bool value);
void cli_json_null(cli_json *json, const char *key);

#endif
