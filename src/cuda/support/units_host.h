/* support/units_host.h: the host's side of tile/units.h: maps the lists, reads what is to break
 * from ORDO_FAULT, and answers who asks. Included by launch.cu in builds with ORDO_FAULTS. */
#ifndef CUDA_SUPPORT_UNITS_HOST_H
#define CUDA_SUPPORT_UNITS_HOST_H

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/tile/units.h"

static ordo_units *units_mapped; /* NULL: nobody has launched a kernel */
static double units_p;

/* "processor=17,p=0.001,bit=20": all three, in this order. */
static void units_read_fault(ordo_units *units)
{
    const char *const text = getenv("ORDO_FAULT");
    unsigned processor = 0, bit = 0;
    double p = 0;
    char more;
    units->processor = ~0u;
    if (!text)
        return;
    if (sscanf(text, "processor=%u,p=%lf,bit=%u%c", &processor, &p, &bit, &more) != 3 || bit > 31 ||
        !(p >= 0 && p <= 1)) {
        fprintf(stderr, "ORDO_FAULT %s: expected processor=N,p=P,bit=N\n", text);
        return;
    }
    units_p = p;
    units->threshold = p >= 1 ? ~0u : (uint32_t)(p * 0x1p32);
    units->bit = bit;
    units->processor = processor;
}

static void units_begin(void)
{
    void *const at = (void *)ORDO_UNITS;
    void *device = NULL;
    void *const got = mmap(at, sizeof(ordo_units), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != at ||
        cudaHostRegister(at, sizeof(ordo_units),
                         cudaHostRegisterMapped | cudaHostRegisterPortable) != cudaSuccess ||
        cudaHostGetDevicePointer(&device, at, 0) != cudaSuccess || device != at) {
        fprintf(stderr, "units: the host has %p, the device %p, expected %p\n", got, device, at);
        return; /* kernels fault: an error instead of a list that says nothing */
    }
    units_mapped = (ordo_units *)at;
    units_read_fault(units_mapped);
}

/* Before each launch. */
static void units_launch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, units_begin);
}

#define UNITS_EXPORT extern "C" __attribute__((visibility("default")))

UNITS_EXPORT void ordo_cuda_units_clear(void)
{
    for (int x = 0; units_mapped && x < 2 * ORDO_UNIT_PROCESSORS * ORDO_UNIT_GROUPS; x++)
        (&units_mapped->of[0][0][0])[x].count = 0;
}

/* The multiprocessor that computed the unit of this row; -1: none that is known. */
UNITS_EXPORT int ordo_cuda_units_processor(int backward, int64_t sequence, int64_t head,
                                           int64_t row)
{
    for (int p = 0; units_mapped && p < ORDO_UNIT_PROCESSORS; p++)
        for (int g = 0; g < ORDO_UNIT_GROUPS; g++) {
            const ordo_unit_list *const list = &units_mapped->of[backward != 0][p][g];
            for (uint32_t x = 0; x < list->count && x < ORDO_UNIT_ENTRIES; x++)
                if (list->at[x].sequence == sequence && list->at[x].head == head &&
                    list->at[x].row == row)
                    return p;
        }
    return -1;
}

/* The probability of a fault, of a unit of multiprocessor *processor; how many units that one
 * computed, and how many of them have a bit inverted. 0: no fault was asked for. */
UNITS_EXPORT double ordo_cuda_units_rate(int *processor, uint64_t *count, uint64_t *flips)
{
    *count = *flips = 0;
    if (!units_mapped || units_mapped->processor >= ORDO_UNIT_PROCESSORS)
        return 0;
    *processor = (int)units_mapped->processor;
    for (int backward = 0; backward < 2; backward++)
        for (int g = 0; g < ORDO_UNIT_GROUPS; g++) {
            const ordo_unit_list *const list = &units_mapped->of[backward][*processor][g];
            *count += list->all;
            *flips += list->flips;
        }
    return units_p;
}

#endif
