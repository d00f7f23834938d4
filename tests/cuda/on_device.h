/* on_device.h: what the CUDA tests share: calls that must succeed, arrays there and back, checks
 * that are counted. */
#ifndef TESTS_CUDA_ON_DEVICE_H
#define TESTS_CUDA_ON_DEVICE_H

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline bool have_hopper(void)
{
    cudaDeviceProp prop;
    return cudaGetDeviceProperties(&prop, 0) == cudaSuccess && prop.major == 9;
}

static inline bool device_is_missing(void)
{
    if (have_hopper())
        return false;
    printf("skip: no device of compute capability 9.0\n0 passed, 0 failed, 1 skipped\n");
    return true;
}

/* Memory of the device, every byte `fill`. */
template <class T> static T *device_array(size_t count, int fill)
{
    T *array;
    MUST(cudaMalloc(&array, count * sizeof(T)));
    MUST(cudaMemset(array, fill, count * sizeof(T)));
    return array;
}

template <class T> static T *to_device(const T *from, size_t count)
{
    T *array = device_array<T>(count, 0);
    MUST(cudaMemcpy(array, from, count * sizeof(T), cudaMemcpyHostToDevice));
    return array;
}

template <class T> static void from_device(T *to, const T *from, size_t count)
{
    MUST(cudaGetLastError());
    MUST(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyDeviceToHost));
}

static int tests_passed, tests_failed;

/* Count a check; say which one failed. */
__attribute__((format(printf, 2, 3))) static inline void verdict(bool ok, const char *format, ...)
{
    va_list list;
    tests_passed += ok;
    tests_failed += !ok;
    if (ok)
        return;
    printf("FAIL ");
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
}

static inline void report(const char *name, long wrong, long count)
{
    printf("%s %s: %ld of %ld differ\n", wrong ? "FAIL" : "ok  ", name, wrong, count);
    fflush(stdout);
    tests_passed += wrong == 0;
    tests_failed += wrong != 0;
}

static inline int report_all(void)
{
    printf("%d passed, %d failed, 0 skipped\n", tests_passed, tests_failed);
    return tests_failed ? 1 : 0;
}

#endif
