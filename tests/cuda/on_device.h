/* on_device.h: what the CUDA tests share: calls that must succeed, arrays there and back, a line
 * a test. */
#ifndef TESTS_CUDA_ON_DEVICE_H
#define TESTS_CUDA_ON_DEVICE_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline bool device_is_missing(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
        return false;
    printf("skip: no CUDA device\n0 passed, 0 failed, 1 skipped\n");
    return true;
}

/* Memory of the device, every byte `fill`. */
template <class T> static T *device_array(size_t count, int fill)
{
    T *array;
    TRY(cudaMalloc(&array, count * sizeof(T)));
    TRY(cudaMemset(array, fill, count * sizeof(T)));
    return array;
}

template <class T> static T *to_device(const T *from, size_t count)
{
    T *array = device_array<T>(count, 0);
    TRY(cudaMemcpy(array, from, count * sizeof(T), cudaMemcpyHostToDevice));
    return array;
}

template <class T> static void from_device(T *to, const T *from, size_t count)
{
    TRY(cudaGetLastError());
    TRY(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyDeviceToHost));
}

static int tests_passed, tests_failed;

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
