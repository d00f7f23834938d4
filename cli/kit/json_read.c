/* json_read.c: JSON from files, and its numbers. */
#include "kit/json_read.h"

#include "kit/message.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_json_number(ordo_json *r, double *value)
{
    char text[64] = { 0 };
    const char *from;
    if (!ordo_json_number(r, &from))
        return false;
    const size_t length = (size_t)(r->at - from);
    memcpy(text, from, length < sizeof text ? length : sizeof text - 1);
    *value = strtod(text, NULL); /* digits past the first 63 change no double by much */
    if (isfinite(*value))
        return true;
    char said[sizeof text + 48];
    snprintf(said, sizeof said, "a number that a double holds, not %s", text);
    r->at = from;
    return ordo_json_bad(r, said);
}

int cli_json_file(const char *path, size_t most, bool (*read)(ordo_json *, void *into), void *into)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!file)
        return cli_error(CLI_USAGE, "%s: %s", path, strerror(errno));
    char *text = malloc(most + 1);
    const size_t length = text ? fread(text, 1, most + 1, file) : 0;
    const bool failed = ferror(file) != 0;
    if (file != stdin)
        fclose(file);
    if (!text)
        return cli_out_of_memory();
    int status = CLI_OK;
    ordo_json reader = ordo_json_of(text, length);
    if (failed)
        status = cli_error(CLI_FAILED, "cannot read %s", path);
    else if (length > most)
        status = cli_usage("%s: more than %zu bytes", path, most);
    else if (!read(&reader, into))
        status = cli_usage("%s: %s", path, reader.why);
    free(text);
    return status;
}
