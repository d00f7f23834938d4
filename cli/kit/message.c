/* message.c: what the command says on stderr, and which exit status goes with it. */
#include "kit/message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *command = ""; /* "" before a command is known */

void cli_message_command(const char *name)
{
    command = name;
}

const char *cli_message_prefix(void)
{
    static char prefix[64];
    snprintf(prefix, sizeof prefix, "ordo%s%s", *command ? " " : "", command);
    return prefix;
}

static void say(const char *format, va_list values)
{
    fflush(stdout); /* so that what was printed before stays before */
    fprintf(stderr, "%s: ", cli_message_prefix());
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
}

static void say_hint(void)
{
    fprintf(stderr, "Try '%s --help'.\n", cli_message_prefix());
}

int cli_usage(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
    say_hint();
    return CLI_USAGE;
}

int cli_error(int exit_status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
    return exit_status;
}

int cli_exit_of(ordo_status status)
{
    switch (status) {
    case ORDO_OK: return CLI_OK;
    case ORDO_ERR_ARGUMENT:
    case ORDO_ERR_SHAPE:
    case ORDO_ERR_ALIGN:
    case ORDO_ERR_OVERFLOW:
    case ORDO_ERR_PARSE:
    case ORDO_ERR_FILE: return CLI_USAGE;
    case ORDO_ERR_UNSUPPORTED: return CLI_UNSUPPORTED;
    case ORDO_ERR_MEMORY:
    case ORDO_ERR_DEVICE:
    case ORDO_ERR_INTERNAL: break;
    }
    return CLI_FAILED;
}

int cli_library(ordo_status status)
{
    const char *why = ordo_last_error();
    if (status == ORDO_OK)
        return CLI_OK;
    const int exit_status = cli_exit_of(status);
    cli_error(exit_status, "%s", *why ? why : ordo_status_name(status));
    if (exit_status == CLI_USAGE)
        say_hint();
    return exit_status;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t row[3][LONGEST + 1];
    const size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST)
        return LONGEST;
    for (size_t i = 0; i <= na; i++)
        for (size_t j = 0; j <= nb; j++) {
            size_t *here = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
            if (i == 0 || j == 0) {
                here[j] = i + j;
                continue;
            }
            here[j] = least(up[j - 1] + (a[i - 1] != b[j - 1]), least(up[j], here[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                here[j] = least(here[j], up2[j - 2] + 1);
        }
    return row[na % 3][nb];
}

const char *cli_nearest(const char *typed, const char *const *candidates, size_t count)
{
    const size_t length = strlen(typed);
    const char *best = NULL;
    size_t best_distance = 1 + length / 3; /* further away is no likely slip of the fingers */
    for (size_t i = 0; i < count; i++) {
        size_t d = distance(typed, candidates[i]);
        /* A word broken off counts as near: "--causal-top" for a longer name. */
        if (length >= 4 && strncmp(typed, candidates[i], length) == 0)
            d = least(d, 1);
        if (d <= best_distance && (best == NULL || d < best_distance)) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}
