/* child.c: the same command in another process, on another instruction set.
 *
 * The library chooses its kernels once per process, so another choice needs another process. */
#define _XOPEN_SOURCE 700
#include "kit/child.h"

#include "kit/message.h"
#include "kit/numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK "ORDO_VERIFY_PROBLEM"

extern char **environ;

int64_t cli_child_asked(void)
{
    const char *text = getenv(ASK);
    int64_t index = -1;
    if (text && !cli_read_size(text, 0, INT64_MAX, &index))
        index = -1;
    return index;
}

int cli_child_answer(const cli_tensors *t)
{
    for (int i = 0; i < CLI_OUTPUTS; i++)
        fwrite(t->out[i], 1, cli_tensors_output_bytes(t, (cli_output)i), stdout);
    return CLI_OK; /* cli_output_finish() checks it */
}

static bool is_named(const char *variable, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* The environment of this process without two variables; the strings are borrowed. */
static char **environment(char *ask, char *target)
{
    size_t count = 0, used = 0;
    while (environ[count])
        count++;
    char **environment = malloc((count + 3) * sizeof *environment);
    if (environment == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (!is_named(environ[i], ASK) && !is_named(environ[i], "ORDO_CPU"))
            environment[used++] = environ[i];
    environment[used++] = ask;
    if (*target)
        environment[used++] = target;
    environment[used] = NULL;
    return environment;
}

/* The words after "ordo": argv[0] is the command's name. */
static char **words_of(int argc, char **argv)
{
    static char name[] = "ordo";
    char **words = malloc(((size_t)argc + 2) * sizeof *words);
    if (words == NULL)
        return NULL;
    words[0] = name;
    memcpy(words + 1, argv, (size_t)argc * sizeof *words);
    words[argc + 1] = NULL;
    return words;
}

/* Start it with its standard output in the pipe; its messages are discarded. */
static int spawn(char **words, char **variables, const int ends[2], pid_t *child)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (error == 0)
        error = posix_spawn_file_actions_addclose(&actions, ends[0]);
    if (error == 0)
        error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (error == 0)
        error = posix_spawn(child, "/proc/self/exe", &actions, NULL, words, variables);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static bool read_fully(int from, char *to, size_t count)
{
    while (count > 0) {
        const ssize_t got = read(from, to, count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        count -= (size_t)got;
    }
    return true;
}

/* All outputs and then the end. */
static bool read_outputs(int from, const cli_tensors *t)
{
    char more;
    for (int i = 0; i < CLI_OUTPUTS; i++)
        if (!read_fully(from, t->out[i], cli_tensors_output_bytes(t, (cli_output)i)))
            return false;
    return !read_fully(from, &more, 1);
}

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int cli_child_run(int argc, char **argv, size_t problem, const char *target, const cli_tensors *t,
                  bool *lacks)
{
    char ask[64], cpu[64] = "";
    int ends[2];
    pid_t child;
    snprintf(ask, sizeof ask, ASK "=%zu", problem);
    if (*target)
        snprintf(cpu, sizeof cpu, "ORDO_CPU=%s", target);
    char **words = words_of(argc, argv), **variables = environment(ask, cpu);
    int status = CLI_OK;
    *lacks = false;
    if (words == NULL || variables == NULL || pipe(ends) != 0) {
        status = cli_error(CLI_FAILED, "cannot start another process: %s", strerror(errno));
    } else {
        const int error = spawn(words, variables, ends, &child);
        close(ends[1]);
        const bool all = error == 0 && read_outputs(ends[0], t);
        close(ends[0]);
        const int left = error == 0 ? wait_for(child) : CLI_UNSUPPORTED;
        *lacks = left == CLI_UNSUPPORTED;
        if (left != CLI_OK && left != CLI_UNSUPPORTED)
            status = cli_error(CLI_FAILED, "the process for target %s failed, exit status %d",
                               *target ? target : "native", left);
        else if (left == CLI_OK && !all)
            status = cli_error(CLI_FAILED,
                               "the process for target %s wrote fewer bytes than expected", target);
    }
    free(words);
    free(variables);
    return status;
}
