/* module.cu: the module's table, queries of devices, and which kernels run a pass. */
#include "cuda/module.h"

#include <stdio.h>
#include <string.h>

#include "cuda/dispatch.h"
#include "cuda/ops/ops.h"
#include "cuda/sm90/gemm/gemm.h"
#include "cuda/sm90/passes.h"
#include "cuda/support/around.h"
#include "cuda/support/launch.h"

static ordo_status device_count(int *count)
{
    *count = 0;
    int driver = 0, runtime = 0;
    CUDA_CALL(cudaDriverGetVersion(&driver));
    CUDA_CALL(cudaRuntimeGetVersion(&runtime));
    if (driver == 0)
        return ordo_cuda_fail(ORDO_ERR_DEVICE,
                              "no CUDA driver on this machine (libcuda.so.1 not found)");
    if (driver / 1000 < runtime / 1000)
        return ordo_cuda_fail(ORDO_ERR_DEVICE,
                              "the CUDA driver speaks CUDA %d.%d, the module needs %d.0",
                              driver / 1000, driver % 1000 / 10, runtime / 1000);
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0)) {
        *count = 0;
        return ordo_cuda_fail(ORDO_ERR_DEVICE, "the CUDA driver is there, but it shows no device");
    }
    return ordo_cuda_status(error, "cudaGetDeviceCount");
}

static ordo_status check_index(int index)
{
    int count;
    CUDA_TRY(device_count(&count));
    if (index < 0 || index >= count)
        return ordo_cuda_fail(ORDO_ERR_ARGUMENT, "device %d: expected 0 to %d", index, count - 1);
    return ORDO_OK;
}

static ordo_status device_query(int index, ordo_device *device)
{
    CUDA_TRY(check_index(index));
    cudaDeviceProp prop;
    int clock_khz = 0, driver = 0, runtime = 0;
    CUDA_CALL(cudaGetDeviceProperties(&prop, index));
    CUDA_CALL(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index));
    CUDA_CALL(cudaDriverGetVersion(&driver));
    CUDA_CALL(cudaRuntimeGetVersion(&runtime));

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

static ordo_status ask(void)
{
    const unsigned question = 0x0a77e471;
    unsigned got = 0;
    answer_question<<<1, 1>>>(question);
    CUDA_CALL(cudaGetLastError());
    CUDA_CALL(cudaMemcpyFromSymbol(&got, answer, sizeof got));
    if (got != ~question)
        return ordo_cuda_fail(ORDO_ERR_DEVICE, "a kernel answered %#x, expected %#x", got,
                              ~question);
    return ORDO_OK;
}

static ordo_status device_check(int index)
{
    int current = 0;
    CUDA_TRY(check_index(index));
    CUDA_CALL(cudaGetDevice(&current));
    CUDA_CALL(cudaSetDevice(index));
    const ordo_status status = ask();
    cudaSetDevice(current); /* leave the caller's device as it was */
    return status;
}

static ordo_status device_select(int index)
{
    CUDA_TRY(check_index(index));
    CUDA_CALL(cudaSetDevice(index));
    return ORDO_OK;
}

/* What is launched runs on devices of the family that its plan is for. */
static ordo_status check_family(int32_t capability)
{
    int index = 0, major = 0, minor = 0;
    CUDA_CALL(cudaGetDevice(&index));
    CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    CUDA_CALL(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
    return 10 * major + minor == capability
               ? ORDO_OK
               : ordo_cuda_fail(ORDO_ERR_UNSUPPORTED, "plan for sm%d, device %d is sm%d%d",
                                capability, index, major, minor);
}

/* Orders whose chains wait on later chains would hang unless those are resident too, one block per
 * chain. */
static ordo_status check_residency(const ordo_run *run)
{
    const int together = ordo_run_coresident(run);
    int index = 0, processors = 0;
    CUDA_CALL(cudaGetDevice(&index));
    CUDA_CALL(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, index));
    if (together <= processors && together <= run->workers)
        return ORDO_OK;
    return ordo_cuda_fail(
        ORDO_ERR_UNSUPPORTED,
        "%d chains must be resident together, and device %d has %d multiprocessors; expected "
        "a smaller group or another order",
        together, index, processors);
}

/* ---- the sets of kernels ---- */

static ordo_status wgmma_forward(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages)
{
    if (pass->form != ORDO_FORM_PHASE)
        return ordo_wgmma_forward_flash(pass, pages);
    return pages ? ordo_cuda_fail(ORDO_ERR_UNSUPPORTED, "form phase: keys in pages have no kernels")
                 : ordo_wgmma_forward_phases(pass);
}

static ordo_status wgmma_backward(const ordo_cuda_pass *pass)
{
    return pass->form == ORDO_FORM_FLASH ? ordo_wgmma_backward_flash(pass)
                                         : ordo_wgmma_backward_phases(pass);
}

static const struct {
    int32_t kernels;
    ordo_status (*forward)(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages);
    ordo_status (*backward)(const ordo_cuda_pass *pass);
    ordo_status (*gemm)(const ordo_cuda_gemm *gemm);
} sets[] = { { ORDO_KERNELS_WGMMA, wgmma_forward, wgmma_backward, ordo_wgmma_gemm } };

static ordo_status find_set(int32_t kernels, int *set)
{
    for (*set = 0; *set < (int)(sizeof sets / sizeof *sets); ++*set)
        if (sets[*set].kernels == kernels)
            return ORDO_OK;
    return ordo_cuda_fail(ORDO_ERR_UNSUPPORTED, "set %d of kernels: this module has none of it",
                          kernels);
}

ordo_status ordo_cuda_launch_forward(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages)
{
    int set = 0;
    CUDA_TRY(find_set(pass->kernels, &set));
    return sets[set].forward(pass, pages);
}

ordo_status ordo_cuda_launch_backward(const ordo_cuda_pass *pass)
{
    int set = 0;
    CUDA_TRY(find_set(pass->kernels, &set));
    CUDA_TRY(sets[set].backward(pass));
    return ordo_cuda_sink(pass);
}

static ordo_status forward(const ordo_cuda_pass *pass, const ordo_cuda_pages *pages)
{
    CUDA_TRY(check_family(pass->capability));
    return ordo_cuda_launch_forward(pass, pages);
}

static ordo_status backward(const ordo_cuda_pass *pass)
{
    CUDA_TRY(check_family(pass->capability));
    CUDA_TRY(check_residency(&pass->run));
    return ordo_cuda_launch_backward(pass);
}

static ordo_status gemm(const ordo_cuda_gemm *g)
{
    int set = 0;
    CUDA_TRY(check_family(g->capability));
    CUDA_TRY(find_set(g->kernels, &set));
    return sets[set].gemm(g);
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const ordo_cuda_module *ordo_cuda_module_table(void)
{
    static const ordo_cuda_module table = {
        ORDO_CUDA_MODULE_ABI,
        sizeof(ordo_cuda_module),
        sizeof(ordo_cuda_pass),
        sizeof(ordo_cuda_pages),
        sizeof(ordo_cuda_bits),
        sizeof(ordo_cuda_combine),
        sizeof(ordo_cuda_gemm),
        "nvcc " TEXT(__CUDACC_VER_MAJOR__) "." TEXT(__CUDACC_VER_MINOR__) ", sm_90a",
        ordo_cuda_why,
        device_count,
        device_query,
        device_check,
        forward,
        backward,
        device_select,
        ordo_cuda_alloc,
        ordo_cuda_free,
        ordo_cuda_copy,
        ordo_cuda_fill,
        ordo_cuda_equal,
        ordo_cuda_stream_create,
        ordo_cuda_stream_destroy,
        ordo_cuda_synchronise,
        ordo_cuda_event_create,
        ordo_cuda_event_destroy,
        ordo_cuda_event_record,
        ordo_cuda_event_elapsed,
        ordo_cuda_dropout,
        ordo_cuda_combine_parts,
        ordo_cuda_fill_words,
        ordo_cuda_digest,
        ordo_cuda_sum,
        ordo_cuda_event_wait,
        gemm,
        ordo_cuda_pack_seen,
    };
    return &table;
}
