/* cli.h: what the files of the command share: exit statuses, messages, the list of commands. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

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
    CLI_FAILED = 4       /* memory, device, disk, or a bug */
};

/* The commands: a new one is a line here and a file with its cli_<name>(). */
#define CLI_COMMANDS(X)                                                                            \
    X(info, "what this build and this machine can do")                                             \
    X(plan, "turn a problem into tiles and a fixed order of sums")                                 \
    X(schedule, "replay an order of sums on a timeline, and draw it")                              \
    X(run, "run attention on seeded inputs or files, print digests")                               \
    X(verify, "run a problem in many ways and compare every bit")                                  \
    X(bench, "time attention beside what the cores could do")                                      \
    X(mask, "make dropout masks: statistics, rows, pictures")                                      \
    X(model, "price kernels and transformer blocks by their limiters")                             \
    X(io, "count the words attention moves, beside lower bounds")

#define CLI_DECLARE(name, summary) int cli_##name(int argc, char **argv);
CLI_COMMANDS(CLI_DECLARE)
#undef CLI_DECLARE

/* Messages on stderr, each starting with "ordo <command>: ". The functions that return int
 * return the exit status their message deserves. */
void cli_message_command(const char *name);
const char *cli_message_prefix(void);
int cli_usage(const char *format, ...) CLI_PRINTF(1, 2); /* and points at --help */
int cli_error(int exit_status, const char *format, ...) CLI_PRINTF(2, 3);

/* Exit status of a library status; the second also prints ordo_last_error(). */
int cli_exit_of(ordo_status status);
int cli_library_error(ordo_status status);

/* The candidate nearest to what was typed, or NULL if none comes near. */
const char *cli_nearest(const char *typed, const char *const *candidates, size_t count);

#endif
