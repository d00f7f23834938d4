/* cores.c: affinity mask and control groups. A container often sees every core of its host
 * and may use two: threads beyond the quota would only take turns. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, CPU_ALLOC */
#endif
#include "base/cores.h"

#include "base/small_file.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

/* Cores in the affinity mask, or 0 if it cannot be read. */
static int affinity(void)
{
#ifdef __linux__
    /* The kernel refuses a mask smaller than its own and does not say how large that is. */
    for (size_t cpus = 1024; cpus <= (size_t)1 << 20; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL)
            return 0;
        const size_t size = CPU_ALLOC_SIZE(cpus);
        const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
#endif
    return 0;
}

/* quota / period rounded up, or INT_MAX for no limit. */
static int cores_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT_MAX;
    const long long cores = (quota - 1) / period + 1;
    return cores < INT_MAX ? (int)cores : INT_MAX;
}

/* The limit written in one group's directory, in either version's form. */
static int limit_at(const char *root, const char *directory)
{
    char path[512], text[128], period[64];
    snprintf(path, sizeof path, "%.400s/cpu.max", directory);
    if (ordo_small_file(text, sizeof text, root, path)) {
        char *end;
        const long long quota = strtoll(text, &end, 10); /* "max" reads as 0: no limit */
        return cores_of(quota, strtoll(end, NULL, 10));
    }
    snprintf(path, sizeof path, "%.400s/cpu.cfs_quota_us", directory);
    if (!ordo_small_file(text, sizeof text, root, path))
        return INT_MAX;
    snprintf(path, sizeof path, "%.400s/cpu.cfs_period_us", directory);
    if (!ordo_small_file(period, sizeof period, root, path))
        return INT_MAX;
    return cores_of(strtoll(text, NULL, 10), strtoll(period, NULL, 10));
}

/* The least limit from a group up to its mount point: every ancestor limits. Inside a
 * container the path may name directories that only the host has; going up passes them. */
static int limit_above(const char *root, const char *mount, const char *group)
{
    char directory[400];
    const int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return limit_at(root, mount);
    int least = INT_MAX;
    for (;;) {
        const int limit = limit_at(root, directory);
        least = limit < least ? limit : least;
        char *slash = strrchr(directory, '/');
        if (strlen(directory) <= strlen(mount) || slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* Whether a comma-separated list of controllers has "cpu" in it. */
static bool has_cpu(const char *list)
{
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == '\0' || at[3] == ','))
            return true;
    }
    return false;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The least limit of all control groups the process is in; INT_MAX if none. */
static int quota(const char *root)
{
    char groups[4096], mount[300];
    int cores = INT_MAX;
    (void)ordo_small_file(groups, sizeof groups, root, "/proc/self/cgroup");
    for (char *line = groups, *next; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        controllers++;
        *path++ = '\0';
        if (*controllers == '\0') { /* version 2, alone or with version 1 */
            cores = least(cores, limit_above(root, "/sys/fs/cgroup", path));
            cores = least(cores, limit_above(root, "/sys/fs/cgroup/unified", path));
        } else if (has_cpu(controllers)) {
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%.200s", controllers);
            cores = least(cores, limit_above(root, mount, path));
            cores = least(cores, limit_above(root, "/sys/fs/cgroup/cpu", path));
        }
    }
    return cores;
}

int ordo_cores(const char *root, const char **how)
{
    const char *source = "sched_getaffinity";
    int cores = affinity();
    if (cores == 0) {
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        source = online > 0 ? "sysconf(_SC_NPROCESSORS_ONLN)" : "nothing; 1 is safe";
        cores = online > 0 && online < INT_MAX ? (int)online : 1;
    }
    const int limit = quota(root);
    if (limit < cores) {
        source = "cpu quota of the control group";
        cores = limit;
    }
    if (how != NULL)
        *how = source;
    return cores;
}
