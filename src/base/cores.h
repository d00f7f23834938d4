/* cores.h: how many cores this process may keep busy. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

/* Cores in the affinity mask, or fewer if a CPU quota of the process's control groups allows
 * fewer (a part of a core counts as one); at least 1. `how`, if not NULL, gets what decided.
 * `root` stands before /sys and /proc: "" outside tests. */
int ordo_cores(const char *root, const char **how);

#endif
