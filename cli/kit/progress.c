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
static volatile sig_atomic_t seconds; /* since `began` */
static volatile sig_atomic_t shown;
static double began; /* the first work of this command; 0: none yet */
static int depth;    /* depth of work inside work: only the outermost is shown */

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
    shown = 1;
    errno = saved;
}

/* First after `wait` seconds, then once a second. */
static void start_timer(double wait)
{
    struct itimerval timer = { .it_interval.tv_sec = 1 };
    timer.it_value.tv_sec = (time_t)wait;
    timer.it_value.tv_usec = (suseconds_t)(1e6 * (wait - (double)timer.it_value.tv_sec));
    if (timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0)
        timer.it_value.tv_usec = 1; /* 0 would mean never */
    setitimer(ITIMER_REAL, &timer, NULL);
}

void cli_progress_start(const char *what)
{
    if (depth++ > 0 || !isatty(STDERR_FILENO))
        return;
    snprintf(line, sizeof line, "\r%s: %s ... ", cli_message_prefix(), what);
    const double now = cli_now();
    began = began > 0 ? began : now;
    const double silent = now - began;
    seconds = silent > 2 ? (int)silent : 2;
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    start_timer(silent < 2 ? 2 - silent : 0);
}

void cli_progress_stop(void)
{
    if (--depth > 0 || !isatty(STDERR_FILENO))
        return;
    setitimer(ITIMER_REAL, &(struct itimerval) { 0 }, NULL);
    signal(SIGALRM, SIG_IGN);
    if (shown)
        fputs("\r\033[K", stderr);
    shown = 0;
}
