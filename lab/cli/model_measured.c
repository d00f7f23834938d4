/* model_measured.c: measured times as `ordo bench --json` and lab/bench/calibrate write them. */
#include "cli/model_measured.h"

#include "kit/json_read.h"
#include "kit/message.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20 };

typedef struct field {
    const char *name;
    size_t at;
    int kind; /* 0 number, 1 word, 2 flag */
} field;

#define NUMBER(name_, member_)                                                                     \
    {                                                                                              \
        name_, offsetof(cli_measured_row, member_), 0                                              \
    }
#define WORDS(name_, member_)                                                                      \
    {                                                                                              \
        name_, offsetof(cli_measured_row, member_), 1                                              \
    }
static const field fields[] = {
    WORDS("kernel", kernel),
    WORDS("pass", pass),
    WORDS("precision", precision),
    WORDS("dtype", precision),
    WORDS("generator", generator),
    WORDS("keep", keep),
    WORDS("mode", mode),
    WORDS("state", state),
    WORDS("mask", mask),
    WORDS("overlap", overlap),
    WORDS("placement", placement),
    WORDS("label", label),
    NUMBER("m", m),
    NUMBER("n", n),
    NUMBER("k", k),
    NUMBER("batch", batch),
    NUMBER("heads", heads),
    NUMBER("kv_heads", kv_heads),
    NUMBER("seq", seq),
    NUMBER("kv_seq", kv_seq),
    NUMBER("dim", head_dim),
    NUMBER("head_dim", head_dim),
    NUMBER("embed", embed),
    NUMBER("rounds", rounds),
    NUMBER("bits", bits),
    NUMBER("dropout", dropout),
    NUMBER("read_bytes", read_bytes),
    NUMBER("write_bytes", write_bytes),
    NUMBER("elements", elements),
    NUMBER("threads", threads),
    NUMBER("utilization", utilization),
    NUMBER("overhead_seconds", overhead_seconds),
    { "causal", offsetof(cli_measured_row, causal), 2 },
};

/* A number, or the median of a spread. */
static bool read_spread(ordo_json *r, double *value)
{
    char key[CLI_MEASURED_WORD];
    bool first = true;
    if (ordo_json_peek(r) != '{')
        return cli_json_number(r, value);
    while (ordo_json_next(r, '}', &first)) {
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        if (!(strcmp(key, "median") == 0 ? cli_json_number(r, value) : ordo_json_skip(r)))
            return false;
    }
    return !r->bad;
}

static bool read_members(ordo_json *r, cli_measured_row *to);

static bool read_member(ordo_json *r, const char *key, cli_measured_row *to)
{
    if (strcmp(key, "seconds") == 0)
        return read_spread(r, &to->seconds);
    if (strcmp(key, "peak_flops") == 0)
        return read_spread(r, &to->peak_flops);
    if (strcmp(key, "problem") == 0)
        return read_members(r, to);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, key) != 0 || ordo_json_peek(r) == 'n') /* null */
            continue;
        char *at = (char *)to + fields[i].at;
        if (fields[i].kind == 0)
            return cli_json_number(r, (double *)(void *)at);
        if (fields[i].kind == 2)
            return ordo_json_flag(r, (bool *)(void *)at);
        return ordo_json_string(r, at,
                                strcmp(key, "label") == 0 ? sizeof to->label : CLI_MEASURED_WORD);
    }
    return ordo_json_skip(r);
}

static bool read_members(ordo_json *r, cli_measured_row *to)
{
    char key[CLI_MEASURED_WORD];
    bool first = true;
    while (ordo_json_next(r, '}', &first))
        if (!ordo_json_key(r, key, sizeof key) || !read_member(r, key, to))
            return false;
    return !r->bad;
}

static bool read_results(ordo_json *r, cli_measured *t)
{
    size_t room = 0;
    bool first = true;
    t->count = 0;
    while (ordo_json_next(r, ']', &first)) {
        if (t->count == room) {
            room = room ? 2 * room : 64;
            cli_measured_row *more = realloc(t->rows, room * sizeof *more);
            if (!more)
                return ordo_json_bad(r, "less, for want of memory");
            t->rows = more;
        }
        t->rows[t->count] = (cli_measured_row) { .seconds = 0 };
        if (!read_members(r, &t->rows[t->count]))
            return false;
        t->count++;
    }
    return !r->bad;
}

static bool read_document(ordo_json *r, void *into)
{
    cli_measured *t = into;
    char key[CLI_MEASURED_WORD];
    bool first = true;
    while (ordo_json_next(r, '}', &first)) {
        if (!ordo_json_key(r, key, sizeof key))
            return false;
        const bool read = strcmp(key, "results") == 0 && !t->rows ? read_results(r, t)
                          : strcmp(key, "machine") == 0
                              ? ordo_json_string(r, t->machine, sizeof t->machine)
                              : ordo_json_skip(r);
        if (!read)
            return false;
    }
    return ordo_json_done(r);
}

int cli_measured_read(cli_measured *t, const char *path)
{
    const int status = cli_json_file(path, MOST_BYTES, read_document, t);
    if (status == CLI_OK && t->count == 0)
        return cli_usage("%s: no \"results\" to compare with", path);
    return status;
}

void cli_measured_free(cli_measured *t)
{
    free(t->rows);
}
