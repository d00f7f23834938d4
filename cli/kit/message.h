/* message.h: exit statuses, and messages on stderr. */
#ifndef CLI_MESSAGE_H
#define CLI_MESSAGE_H

#include "ordo/ordo.h"

#if defined(__GNUC__)
#define CLI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CLI_PRINTF(text, first)
#endif

/* Exit statuses, the same for every command. */
enum {
    CLI_OK = 0,
    CLI_DIFFERENT = 1,   /* the command compared things and they differ */
    CLI_USAGE = 2,       /* arguments that have no meaning */
    CLI_UNSUPPORTED = 3, /* a meaning, but not here */
    CLI_FAILED = 4,      /* memory, device, disk, or a bug */
    CLI_UNREADABLE = 5   /* no difference found, but a part could not be read */
};

/* Return the exit status of a call from the present function unless it is CLI_OK. */
#define CLI_TRY(call)                                                                              \
    do {                                                                                           \
        const int status_of_call = (call);                                                         \
        if (status_of_call != CLI_OK)                                                              \
            return status_of_call;                                                                 \
    } while (0)

/* Messages on stderr, each starting with "ordo <command>: ". The functions that return int
 * return the exit status that belongs to the message. */
void cli_message_command(const char *name);
const char *cli_message_prefix(void);
int cli_usage(const char *format, ...) CLI_PRINTF(1, 2); /* and points at --help */
int cli_error(int exit_status, const char *format, ...) CLI_PRINTF(2, 3);

/* The exit status of a library status; the second prints ordo_last_error() unless it is ORDO_OK. */
int cli_exit_of(ordo_status status);
int cli_library(ordo_status status);

static inline int cli_out_of_memory(void)
{
    (void)cli_error(CLI_FAILED, "out of memory");
    return CLI_FAILED;
}

/* Returns the candidate most similar to what was typed, or NULL if none is similar. */
const char *cli_nearest(const char *typed, const char *const *candidates, size_t count);

#endif
