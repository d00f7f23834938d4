/* fault_module.c: preloaded into `ordo scan`, makes of the host a device with a broken
 * multiprocessor: with --device emulator, or as device 0 of fake_module.so, whose memory is the
 * host's and whose passes the emulator then computes; FAULT_FAIL of them, then the device fails.
 *
 * Units of the forward pass (64 rows of a head) are spread over four multiprocessors. With
 * probability FAULT_P a unit of number FAULT_PROCESSOR has one bit inverted, in column 5 of its row
 * FAULT_ROW or the last one. What the scan itself computes on one thread, which is what it expects,
 * stays right.
 *
 * It is also what the scan asks of other libraries: as libcuda.so.1 and libnvidia-ml.so.1, and in
 * units_module.c the functions of a CUDA module with ORDO_FAULTS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ordo/ordo.h"

enum { PROCESSORS = 4, ROWS = 64, COLUMN = 5 };

#define EXPORT __attribute__((visibility("default")))

typedef ordo_status pass_function(const ordo_plan *plan, const ordo_call *call);

static uint64_t computed, flips, state = 7;

static double given(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtod(text, NULL) : 0;
}

static double uniform(void) /* splitmix64 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int processor_of(int64_t sequence, int64_t head, int64_t row)
{
    return (int)((sequence + 3 * head + row / ROWS) % PROCESSORS);
}

static void damage(const ordo_problem *p, const ordo_call *call)
{
    uint16_t *const o = call->o.data;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t first = 0; first < p->q_len; first += ROWS) {
                if (processor_of(b, h, first) != (int)given("FAULT_PROCESSOR"))
                    continue;
                computed++;
                if (uniform() >= given("FAULT_P"))
                    continue;
                int64_t row = first + (int64_t)given("FAULT_ROW");
                row = row < p->q_len ? row : p->q_len - 1;
                o[((b * p->q_len + row) * p->heads + h) * p->v_head_dim + COLUMN] ^= 1 << 6;
                flips++;
            }
}

static ordo_status run(const char *name, const ordo_plan *plan, const ordo_call *call)
{
    pass_function *real;
    *(void **)&real = dlsym(RTLD_NEXT, name); /* as POSIX writes it */
    return real(plan, call);
}

/* A pass of a device: by the emulator. */
static ordo_status run_here(const char *name, const ordo_plan *plan, const ordo_call *call)
{
    static int64_t passes;
    char line[2048], here[2064];
    ordo_plan *own = NULL;
    ordo_call copy = *call;
    ordo_plan_info info = ORDO_PLAN_INFO_INIT;
    ordo_status status = ordo_plan_query(plan, &info);
    if (status != ORDO_OK || info.backend != ORDO_BACKEND_CUDA)
        return status == ORDO_OK ? run(name, plan, call) : status;
    if (getenv("FAULT_FAIL") && passes++ >= (int64_t)given("FAULT_FAIL"))
        return ORDO_ERR_DEVICE;
    status = run(name, plan, call); /* which sees what libordo refuses */
    if (status == ORDO_OK)
        status = ordo_plan_print(plan, line, sizeof line, NULL);
    char *const backend = status == ORDO_OK ? strstr(line, "backend=cuda") : NULL;
    if (!backend)
        return ORDO_ERR_INTERNAL;
    *backend = '\0';
    snprintf(here, sizeof here, "%sbackend=emulator%s", line, backend + strlen("backend=cuda"));
    status = ordo_plan_parse(&own, here);
    copy.stream = NULL;
    if (status == ORDO_OK)
        status = run(name, own, &copy);
    ordo_plan_destroy(own);
    return status;
}

EXPORT ordo_status ordo_attention_forward(const ordo_plan *plan, const ordo_call *call)
{
    ordo_problem problem = ORDO_PROBLEM_INIT;
    ordo_status status = run_here("ordo_attention_forward", plan, call);
    if (status == ORDO_OK && call->threads != 1)
        status = ordo_plan_problem(plan, &problem);
    if (status == ORDO_OK && call->threads != 1)
        damage(&problem, call);
    return status;
}

EXPORT ordo_status ordo_attention_backward(const ordo_plan *plan, const ordo_call *call)
{
    return run_here("ordo_attention_backward", plan, call);
}

/* ---- units ---- */

EXPORT void ordo_cuda_units_clear(void);
EXPORT void ordo_cuda_units_clear(void)
{
}

EXPORT int ordo_cuda_units_processor(int backward, int64_t sequence, int64_t head, int64_t row);
EXPORT int ordo_cuda_units_processor(int backward, int64_t sequence, int64_t head, int64_t row)
{
    return backward ? -1 : processor_of(sequence, head, row);
}

EXPORT double ordo_cuda_units_rate(int *processor, uint64_t *count, uint64_t *flipped);
EXPORT double ordo_cuda_units_rate(int *processor, uint64_t *count, uint64_t *flipped)
{
    *processor = (int)given("FAULT_PROCESSOR");
    *count = computed;
    *flipped = flips;
    return given("FAULT_P");
}

/* ---- the driver and NVML: 61 C, 1755 MHz, 412.9 W ---- */

EXPORT int cuInit(unsigned flags);
EXPORT int cuInit(unsigned flags)
{
    return (int)flags;
}

EXPORT int cuDeviceGet(int *device, int index);
EXPORT int cuDeviceGet(int *device, int index)
{
    *device = 70 + index;
    return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *address, int capacity, int device);
EXPORT int cuDeviceGetPCIBusId(char *address, int capacity, int device)
{
    return snprintf(address, (size_t)capacity, "0000:%d:00.0", device) < 0;
}

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlInit_v2(void)
{
    return 0;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle)
{
    *handle = &state;
    return strcmp(address, "0000:70:00.0") != 0;
}

static int reading(const void *handle, unsigned *value, unsigned found)
{
    *value = found;
    return handle != &state;
}

EXPORT int nvmlDeviceGetTemperature(void *handle, int kind, unsigned *value);
EXPORT int nvmlDeviceGetTemperature(void *handle, int kind, unsigned *value)
{
    return kind != 0 || reading(handle, value, 61);
}

EXPORT int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *value);
EXPORT int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *value)
{
    return kind != 1 || reading(handle, value, 1755);
}

EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned *value);
EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned *value)
{
    return reading(handle, value, 412900);
}
