/* output.c: files that appear whole or not at all, and a standard output that is checked. */
#define _XOPEN_SOURCE 700
#include "kit/output.h"

#include "kit/message.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The one temporary file that may exist at a time, for the signal handler. */
static char pending[4096];
static volatile sig_atomic_t is_pending;

static void on_interrupt(int number)
{
    if (is_pending)
        unlink(pending);
    signal(number, SIG_DFL);
    raise(number);
}

static sigset_t interrupts(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

static void trap(int number)
{
    struct sigaction old, action = { .sa_handler = on_interrupt };
    sigemptyset(&action.sa_mask);
    /* nohup and a shell's background jobs ignore some signals on purpose. */
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void cli_output_start(void)
{
    /* A closed standard stream would let the next file opened take its number, and receive
     * what was meant for the stream. A read-only descriptor in its place refuses writes. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", O_RDONLY) == -1)
            _Exit(CLI_FAILED);
    /* A closed pipe and a limit on file sizes are then errors of write, seen like a full disk. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    trap(SIGINT);
    trap(SIGTERM);
    trap(SIGHUP);
}

/* Flush a stream: 0, or the error of the first write that failed. stdio keeps no errno of an
 * earlier failure; one more write to the stream, which is broken anyway, tells it. */
static int flush(FILE *stream)
{
    const bool failed = ferror(stream) != 0;
    if (fflush(stream) != 0)
        return errno;
    if (!failed)
        return 0;
    return write(fileno(stream), "\n", 1) < 0 ? errno : EIO;
}

int cli_output_finish(void)
{
    int why = flush(stdout);
    if (fclose(stdout) != 0 && why == 0)
        why = errno;
    if (why == EPIPE) { /* the reader has what it wanted: end without a word, as most programs do */
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return why == 0 ? CLI_OK
                    : cli_error(CLI_FAILED, "cannot write standard output: %s", strerror(why));
}

static int cannot(const char *path)
{
    return cli_error(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
}

static void forget(cli_file *file)
{
    free(file->path);
    free(file->temporary);
    *file = (cli_file) { 0 };
}

/* Create the temporary file; what `path` is now decides its permissions. */
static int open_temporary(cli_file *file, mode_t mode)
{
    const size_t length = strlen(file->path) + sizeof ".XXXXXX";
    file->temporary = malloc(length);
    if (file->temporary == NULL || length > sizeof pending) {
        errno = file->temporary ? ENAMETOOLONG : ENOMEM;
        return -1;
    }
    snprintf(file->temporary, length, "%s.XXXXXX", file->path);

    /* No interrupt may fall between the file's birth and the note of its name. */
    sigset_t set = interrupts(), old;
    sigprocmask(SIG_BLOCK, &set, &old);
    const int fd = mkstemp(file->temporary);
    if (fd >= 0) {
        snprintf(pending, sizeof pending, "%s", file->temporary);
        is_pending = 1;
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (fd >= 0)
        (void)fchmod(fd, mode); /* a file system without modes keeps what mkstemp gave */
    return fd;
}

int cli_file_open(cli_file *file, const char *path)
{
    *file = (cli_file) { 0 };
    if (strcmp(path, "-") == 0) {
        file->stream = stdout;
        return CLI_OK;
    }
    struct stat at;
    const bool exists = stat(path, &at) == 0;
    if (exists && S_ISDIR(at.st_mode)) {
        errno = EISDIR;
        return cannot(path);
    }
    /* Follow links, or the rename would replace the link instead of the file. */
    file->path = exists ? realpath(path, NULL) : NULL;
    if (file->path == NULL && (file->path = malloc(strlen(path) + 1)) != NULL)
        memcpy(file->path, path, strlen(path) + 1);
    if (file->path == NULL)
        return cannot(path);
    if (exists && !S_ISREG(at.st_mode)) {
        file->stream = fopen(path, "w");
    } else if (exists && access(path, W_OK) != 0) {
        file->stream = NULL; /* a rename would get round a read-only file */
    } else {
        const mode_t mask = umask(0);
        umask(mask);
        const int fd = open_temporary(file, exists ? at.st_mode & 0777 : 0666 & ~mask);
        file->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    }
    if (file->stream)
        return CLI_OK;
    const int status = cannot(path);
    forget(file);
    return status;
}

int cli_file_check(const char *path)
{
    struct stat at;
    cli_file file;
    if (strcmp(path, "-") == 0)
        return CLI_OK;
    if (stat(path, &at) == 0 && !S_ISREG(at.st_mode) && !S_ISDIR(at.st_mode)) {
        /* Opening a pipe would wait for its reader, and closing it would end the stream. */
        return access(path, W_OK) == 0 ? CLI_OK : cannot(path);
    }
    CLI_TRY(cli_file_open(&file, path));
    cli_file_discard(&file);
    return CLI_OK;
}

int cli_file_commit(cli_file *file)
{
    if (file->stream == stdout) {
        *file = (cli_file) { 0 };
        return CLI_OK; /* cli_output_finish() checks it */
    }
    int why = flush(file->stream);
    if (why == 0 && is_pending && fsync(fileno(file->stream)) != 0)
        why = errno;
    if (fclose(file->stream) != 0 && why == 0)
        why = errno;
    if (why == 0 && is_pending && rename(file->temporary, file->path) != 0)
        why = errno;
    const bool good = why == 0;
    errno = why;
    const int status = good ? CLI_OK : cannot(file->path);
    if (!good && is_pending)
        unlink(file->temporary);
    is_pending = 0;
    forget(file);
    return status;
}

void cli_file_discard(cli_file *file)
{
    if (file->stream && file->stream != stdout)
        (void)fclose(file->stream);
    if (is_pending && file->temporary)
        unlink(file->temporary);
    is_pending = 0;
    forget(file);
}
