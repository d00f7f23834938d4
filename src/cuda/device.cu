/* device.cu: the module's table, and what it says about devices. */
#include "cuda/module.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

static ordo_status fail(cudaError_t error, const char *call, char *why, size_t why_size)
{
    snprintf(why, why_size, "%s: %s", call, cudaGetErrorString(error));
    return ORDO_ERR_DEVICE;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess)                                                                 \
            return fail(error_, #call, why, why_size);                                             \
    } while (0)

static ordo_status device_count(int *count, char *why, size_t why_size)
{
    *count = 0;
    int driver = 0, runtime = 0;
    TRY(cudaDriverGetVersion(&driver));
    TRY(cudaRuntimeGetVersion(&runtime));
    if (driver == 0) {
        snprintf(why, why_size, "no CUDA driver on this machine (libcuda.so.1 not found)");
        return ORDO_ERR_DEVICE;
    }
    if (driver / 1000 < runtime / 1000) {
        snprintf(why, why_size, "the CUDA driver speaks CUDA %d.%d, the module needs %d.0",
                 driver / 1000, driver % 1000 / 10, runtime / 1000);
        return ORDO_ERR_DEVICE;
    }
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0)) {
        *count = 0;
        snprintf(why, why_size, "the CUDA driver is there, but it shows no device");
        return ORDO_ERR_DEVICE;
    }
    if (error != cudaSuccess)
        return fail(error, "cudaGetDeviceCount", why, why_size);
    return ORDO_OK;
}

static ordo_status check_index(int index, char *why, size_t why_size)
{
    int count;
    const ordo_status status = device_count(&count, why, why_size);
    if (status != ORDO_OK)
        return status;
    if (index < 0 || index >= count) {
        snprintf(why, why_size, "device %d: expected 0 to %d", index, count - 1);
        return ORDO_ERR_ARGUMENT;
    }
    return ORDO_OK;
}

static ordo_status device_query(int index, ordo_device *device, char *why, size_t why_size)
{
    const ordo_status status = check_index(index, why, why_size);
    if (status != ORDO_OK)
        return status;
    cudaDeviceProp prop;
    int clock_khz = 0, driver = 0, runtime = 0;
    TRY(cudaGetDeviceProperties(&prop, index));
    TRY(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index));
    TRY(cudaDriverGetVersion(&driver));
    TRY(cudaRuntimeGetVersion(&runtime));

    memset(device, 0, sizeof *device);
    snprintf(device->name, sizeof device->name, "%s", prop.name);
    device->major = prop.major;
    device->minor = prop.minor;
    device->workers = prop.multiProcessorCount;
    device->memory_bytes = prop.totalGlobalMem;
    device->l2_bytes = (uint64_t)prop.l2CacheSize;
    device->shared_bytes_per_block = prop.sharedMemPerBlockOptin;
    device->clock_ghz = clock_khz * 1e-6;
    device->driver = driver;
    device->runtime = runtime;
    return ORDO_OK;
}

/* A variable of the module, so that the check allocates nothing. */
static __device__ unsigned answer;

static __global__ void answer_question(unsigned question)
{
    answer = ~question;
}

static ordo_status ask(char *why, size_t why_size)
{
    const unsigned question = 0x0a77e471;
    unsigned got = 0;
    answer_question<<<1, 1>>>(question);
    TRY(cudaGetLastError());
    TRY(cudaMemcpyFromSymbol(&got, answer, sizeof got));
    if (got != ~question) {
        snprintf(why, why_size, "a kernel answered %#x, expected %#x", got, ~question);
        return ORDO_ERR_DEVICE;
    }
    return ORDO_OK;
}

static ordo_status device_check(int index, char *why, size_t why_size)
{
    ordo_status status = check_index(index, why, why_size);
    if (status != ORDO_OK)
        return status;
    int current = 0;
    TRY(cudaGetDevice(&current));
    TRY(cudaSetDevice(index));
    status = ask(why, why_size);
    cudaSetDevice(current); /* leave the caller's device as it was */
    return status;
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const ordo_cuda_module *ordo_cuda_module_table(void)
{
    static const ordo_cuda_module table = {
        ORDO_CUDA_MODULE_ABI,
        sizeof(ordo_cuda_module),
        "nvcc " TEXT(__CUDACC_VER_MAJOR__) "." TEXT(__CUDACC_VER_MINOR__) ", sm_90a",
        device_count,
        device_query,
        device_check,
    };
    return &table;
}
