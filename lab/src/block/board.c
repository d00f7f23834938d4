/* board.c: reads energy and clock by NVML. The library stays loaded. */
#include "block/board.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum { CLOCK_SM = 1 }; /* NVML_CLOCK_SM */

static struct {
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*clock)(void *device, int kind, unsigned *megahertz);
    void *device;
} board;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* C has no cast from an object to a function. */
static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

static void open_board(void)
{
    int (*init)(void) = NULL;
    int (*handle)(unsigned index, void **device) = NULL;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    find(library, "nvmlInit_v2", &init);
    find(library, "nvmlDeviceGetHandleByIndex_v2", &handle);
    if (init == NULL || handle == NULL || init() != 0 || handle(0, &board.device) != 0)
        return;
    find(library, "nvmlDeviceGetTotalEnergyConsumption", &board.energy);
    find(library, "nvmlDeviceGetClockInfo", &board.clock);
}

double ordo_board_joules(void)
{
    unsigned long long millijoules = 0;
    pthread_once(&once, open_board);
    if (board.energy == NULL || board.energy(board.device, &millijoules) != 0)
        return -1;
    return (double)millijoules * 1e-3;
}

double ordo_board_clock_ghz(void)
{
    unsigned megahertz = 0;
    pthread_once(&once, open_board);
    if (board.clock == NULL || board.clock(board.device, CLOCK_SM, &megahertz) != 0)
        return -1;
    return megahertz * 1e-3;
}
