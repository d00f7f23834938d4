/* progress.c: a clock, and a progress line on stderr while the library works.
 *
 * The library never prints and its calls block, so an interval timer writes the line. */
#define _XOPEN_SOURCE 700
#include "kit/output.h"

#include "kit/message.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static char line[128];
static volatile sig_atomic_t seconds;
static int depth; /* of work inside work: only the outermost is shown */

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Only what a signal handler may do: no stdio. */
static void on_alarm(int number)
{
    (void)number;
    const int saved = errno;
    char text[sizeof line + 24];
    size_t length = strlen(line);
    memcpy(text, line, length);
    char digits[12];
    size_t count = 0;
    for (unsigned s = (unsigned)seconds; count == 0 || s > 0; s /= 10)
        digits[count++] = (char)('0' + s % 10);
    while (count > 0)
        text[length++] = digits[--count];
    memcpy(text + length, " s ", 3);
    if (write(STDERR_FILENO, text, length + 3) < 0)
        seconds = 0; /* a terminal that went away: nothing to do about it */
    seconds = seconds + 1;
    errno = saved;
}

static void set_timer(time_t first, time_t interval)
{
    const struct itimerval timer = { .it_value.tv_sec = first, .it_interval.tv_sec = interval };
    setitimer(ITIMER_REAL, &timer, NULL);
}

void cli_progress_start(const char *what)
{
    if (depth++ > 0 || !isatty(STDERR_FILENO))
        return;
    snprintf(line, sizeof line, "\r%s: %s ... ", cli_message_prefix(), what);
    seconds = 2;
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    set_timer(2, 1);
}

void cli_progress_stop(void)
{
    if (--depth > 0 || !isatty(STDERR_FILENO))
        return;
    set_timer(0, 0);
    signal(SIGALRM, SIG_IGN);
    if (seconds > 2)
        fputs("\r\033[K", stderr);
    seconds = 0;
}
