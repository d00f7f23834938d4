/* progress_test.c: the line about progress appears two seconds after the command began to work,
 * also if no piece of its work takes that long. */
#define _XOPEN_SOURCE 700
#include "check.h"
#include "kit/output.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* Make stderr a terminal; returns the other end of it, or -1. */
static int open_terminal(void)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        return -1;
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0 || dup2(slave, STDERR_FILENO) < 0)
        return -1;
    fcntl(master, F_SETFL, O_NONBLOCK);
    return master;
}

/* What the terminal shows since the last call; "" if nothing. */
static const char *shown(int master)
{
    static char text[1000];
    fflush(stderr);
    size_t used = 0;
    for (ssize_t count; (count = read(master, text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)count;
    text[used] = '\0';
    return text;
}

static void work(const char *name, double seconds)
{
    const double end = cli_now() + seconds;
    cli_progress_start(name);
    while (cli_now() < end) /* the alarm ends a sleep early */
        nanosleep(&(struct timespec) { .tv_nsec = 10000000 }, NULL);
    cli_progress_stop();
}

TEST(short_pieces_of_long_work_are_shown)
{
    const int kept = dup(STDERR_FILENO), master = open_terminal();
    if (master < 0)
        SKIP("no pseudo-terminals here");
    const double begin = cli_now();
    work("first", 1.2);
    if (cli_now() < begin + 2) /* a busy machine may take longer */
        CHECK(strcmp(shown(master), "") == 0);
    work("second", 1.2); /* two seconds are over before its end */
    const char *text = shown(master);
    CHECK(strstr(text, "second ... ") != NULL);
    CHECK(strstr(text, "\033[K") != NULL);
    work("third", 0.1); /* at once */
    text = shown(master);
    CHECK(strstr(text, "third ... ") != NULL);
    CHECK(strstr(text, "\033[K") != NULL);
    dup2(kept, STDERR_FILENO);
}

TEST(work_inside_work_has_no_line)
{
    const int kept = dup(STDERR_FILENO), master = open_terminal();
    if (master < 0)
        SKIP("no pseudo-terminals here");
    cli_progress_start("outer");
    work("inner", 0.1);
    cli_progress_stop();
    const char *text = shown(master);
    CHECK(strstr(text, "outer ... ") != NULL);
    CHECK(strstr(text, "inner") == NULL);
    dup2(kept, STDERR_FILENO);
}

CHECK_MAIN()
