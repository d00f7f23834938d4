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
    bool compact;                    /* no line breaks */
} cli_json;

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

/* "schema_version" and "command", inside the document's object. */
void cli_json_heading(cli_json *json, const char *command);

/* A document of a command: one item's fields in it, or those of several as "results". */
typedef void cli_json_item(cli_json *json, const void *items, size_t index);
void cli_json_document(FILE *out, const char *command, cli_json_item *item, const void *items,
                       size_t count);

/* Length of the UTF-8 sequence at s, which ends with a NUL somewhere; 0 if there is none. */
int cli_utf8_length(const unsigned char *s);

#endif
