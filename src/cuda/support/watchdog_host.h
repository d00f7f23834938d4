/* support/watchdog_host.h: the host's side of tile/watchdog.h: maps the report and prints it to
 * standard error. Included by launch.cu in builds with ORDO_WATCHDOG. */
#ifndef CUDA_SUPPORT_WATCHDOG_HOST_H
#define CUDA_SUPPORT_WATCHDOG_HOST_H

#include <cuda_runtime.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "cuda/tile/watchdog.h"

enum { WATCHED_LAUNCHES = 24, WATCHED_LINES = ORDO_WATCH_BLOCKS * ORDO_WATCH_WARPS };

static struct {
    pthread_mutex_t lock;
    uint64_t count;
    const void *kernel[WATCHED_LAUNCHES];
    unsigned blocks[WATCHED_LAUNCHES];
} watched = { PTHREAD_MUTEX_INITIALIZER, 0, {}, {} };

static const char *watch_name(const void *kernel)
{
    const char *name = NULL;
#if CUDART_VERSION >= 12030
    if (cudaFuncGetName(&name, kernel) != cudaSuccess)
        return "?";
#else
    (void)kernel;
#endif
    return name ? name : "?";
}

static void watch_print(const volatile ordo_watch_line *lines)
{
    static const char *const waits[] = { "",     "mbarrier",  "counter", "named barrier",
                                         "grid", "registers", "copies" };
    fprintf(stderr, "watchdog: waits of more than 10 s; the last launches:\n");
    pthread_mutex_lock(&watched.lock);
    const uint64_t count = watched.count;
    for (uint64_t n = count > WATCHED_LAUNCHES ? count - WATCHED_LAUNCHES : 0; n < count; n++)
        fprintf(stderr, "  launch %" PRIu64 ": %u blocks of %s\n", n,
                watched.blocks[n % WATCHED_LAUNCHES],
                watch_name(watched.kernel[n % WATCHED_LAUNCHES]));
    pthread_mutex_unlock(&watched.lock);
    for (int x = 0; x < WATCHED_LINES; x++) {
        const volatile ordo_watch_line *const line = lines + x;
        const unsigned note = line->note;
        if (line->now)
            fprintf(stderr,
                    "  grid %" PRIu64 " block %u warp %d lane %u: %s %#" PRIx64 ", wants %u, state "
                    "%#018" PRIx64 "\n",
                    line->grid, line->block, x % ORDO_WATCH_WARPS, line->lane,
                    waits[line->wait % 7], line->at, line->want, line->state);
        if (note >> 16)
            fprintf(stderr, "  block %d warp %d: %s %u\n", x / ORDO_WATCH_WARPS,
                    x % ORDO_WATCH_WARPS, waits[(note >> 16) % 7], note & 0xffff);
    }
    fflush(stderr);
}

/* Prints the report once per 10 s in which something was written to it: all warps that hang write
 * within one interval. */
static void *watch(void *argument)
{
    const volatile ordo_watch_line *const lines = (const volatile ordo_watch_line *)argument;
    for (uint64_t last = 0, seen = 0;; last = seen) {
        const struct timespec interval = { 11, 0 };
        nanosleep(&interval, NULL);
        for (int x = 0; x < WATCHED_LINES; x++)
            seen = lines[x].now > seen ? lines[x].now : seen;
        if (seen > last)
            watch_print(lines);
    }
    return NULL;
}

static void watch_begin(void)
{
    const size_t bytes = WATCHED_LINES * sizeof(ordo_watch_line);
    void *const at = (void *)ORDO_WATCH_REPORT;
    void *device = NULL;
    pthread_t thread;
    void *const got = mmap(at, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != at || cudaHostRegister(at, bytes, cudaHostRegisterMapped) != cudaSuccess ||
        cudaHostGetDevicePointer(&device, at, 0) != cudaSuccess || device != at ||
        pthread_create(&thread, NULL, watch, at) != 0)
        fprintf(stderr, "watchdog: no report: the host has %p, the device %p, expected %p\n", got,
                device, at);
    else
        fprintf(stderr, "watchdog: waits of more than 10 s are reported\n");
}

/* Before each launch. */
static void watch_launch(const void *kernel, unsigned blocks)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_begin);
    pthread_mutex_lock(&watched.lock);
    watched.kernel[watched.count % WATCHED_LAUNCHES] = kernel;
    watched.blocks[watched.count % WATCHED_LAUNCHES] = blocks;
    watched.count++;
    pthread_mutex_unlock(&watched.lock);
}

#endif
