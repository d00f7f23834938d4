/* output.h: files that appear whole or not at all, and a standard output that is checked. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* A file being written. It goes to a temporary name in the folder of `path`, and takes its name
 * only when cli_file_commit() has seen every byte reach the system. An interrupt removes the
 * temporary file. "-" is standard output; pipes and devices are written in place. */
typedef struct cli_file {
    FILE *stream;
    char *path; /* where it will be, symbolic links followed; NULL for standard output */
    char *temporary;
} cli_file;

/* Each prints its error and returns an exit status. */
int cli_file_open(cli_file *file, const char *path);
int cli_file_commit(cli_file *file);

/* Whether a file could be written there now; no trace is left. Commands ask before they work,
 * so that a wrong path costs no time. */
int cli_file_check(const char *path);

/* Give up: close and remove what was written so far. */
void cli_file_discard(cli_file *file);

/* Once at the start and once at the end of the process. A reader of standard output that has left
 * ends the process by SIGPIPE, without a message. */
void cli_output_start(void);
int cli_output_finish(void);

/* A line about progress on stderr, once a second, when a terminal is there and the command has
 * worked for more than two seconds, in one piece of work or in many. Work inside other work has no
 * separate line. `what` must outlive the work. */
void cli_progress_start(const char *what);
void cli_progress_stop(void);

/* Seconds on a clock that never goes back. */
double cli_now(void);

#endif
